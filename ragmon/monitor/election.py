"""Which process of an application scores: the one that holds the lock on a file. The file says where it is reached.

The kernel releases the lock when its process ends, however it ends. The file lies in a folder that this user alone may
read, so the token in it is known to this user's processes only.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

import msgspec

from ragmon.core.process import is_private, make_private

SUFFIX: Final = ".leader"
_ATTEMPTS: Final = 20
"""How often a lock is tried while other processes remove the file or its folder."""
_MOST: Final = 4096
"""Bytes of the file that are read."""
_OLD: Final = 60.0
"""Seconds after which an unlocked file is of a leader that was killed; a new one is locked within microseconds."""


class LeaderAddress(msgspec.Struct, frozen=True):
    """Where the process is reached that scores.

    Attributes:
        leader: The unique id of its leadership.
        url: Its address.
        token: The token that its other processes send.
    """

    leader: str
    url: str
    token: str


class Election:
    """One process's part in the election.

    Args:
        path: The file; processes with the same path elect one of them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Try to become the leader; returns whether this process is the leader.

        Raises:
            OSError: The folder cannot be written, or another user may write to it.
        """
        for _ in range(_ATTEMPTS if self._file is None else 0):
            try:
                self._file = self._lock()
            except BlockingIOError:
                return False
            except FileNotFoundError:  # another process took the empty folder away
                continue
            if self._file is not None:
                break
        return self._file is not None

    def _lock(self) -> int | None:
        """Lock the file; None where its last leader has removed it meanwhile."""
        make_private(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                os.ftruncate(file, 0)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def publish(self, address: LeaderAddress) -> None:
        """Write where this process is reached; it is the leader.

        Raises:
            OSError: The disk is full.
        """
        if self._file is not None:
            data = msgspec.json.encode(address)
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))

    def leader(self) -> LeaderAddress | None:
        """Where the leader is reached; None while that is unknown."""
        try:
            if not is_private(self._path.parent):
                return None
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MOST), type=LeaderAddress)
        except (OSError, msgspec.MsgspecError):  # nobody leads, or the leader is about to write it
            return None

    def release(self) -> None:
        """Lead no longer."""
        if self._file is not None:
            with suppress(OSError):  # the folder may hold other files, or have become read-only
                self._path.unlink(missing_ok=True)
                self._path.parent.rmdir()
                self._path.parent.parent.rmdir()
            os.close(self._file)
            self._file = None

    def leave_to_parent(self) -> None:
        """Close the file that a forked child inherited; its parent stays the leader."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sweep(folder: Path) -> None:
    """Remove the files of leaders that were killed."""
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # its leader lives
            if time() - path.stat().st_mtime < _OLD:
                continue
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(file)
