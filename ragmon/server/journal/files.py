"""The lock of a state folder, and opening the journal's file.

One process writes to a state folder; the kernel releases the lock of a process that has ended. A damaged journal file
is set aside under another name and a new one is started: the server never waits for a manual repair.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import sleep
from typing import Final

from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.server.journal import schema, store
from ragmon.server.journal.store import JournalError, translate_file_errors

FILE: Final = "journal.lock"
_MAX_PID_LENGTH: Final = 32
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.01
"""Attempts to read the holder's process id, and seconds between them."""


class Lock:
    """Locks a folder until `release` is called or the process ends.

    Args:
        folder: The folder.

    Raises:
        UnavailableError: Another process holds the lock.
        OSError: The lock file cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = self._holder()
            os.close(self._file)
            raise UnavailableError(
                f"{folder} is in use" + (f" by process {holder}" if holder else ""),
                hint="stop that one, or give this one a `state_dir` of its own",
            ) from None
        except OSError:
            os.close(self._file)
            raise

    def _holder(self) -> str:
        """The id of the process that holds the lock; waits a little, as it may not have written its id yet."""
        for _ in range(_ATTEMPTS):
            if holder := os.pread(self._file, _MAX_PID_LENGTH, 0).decode("ascii", "replace").strip():
                return holder
            sleep(_PAUSE)
        return ""

    def release(self) -> None:
        """Release the lock; calling it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


ASIDE: Final = ".corrupt-"
"""The part of a file name, before the time, of a journal that was set aside."""
_SUFFIXES: Final = ("", *store.SIDE_FILES)
_CHECKED: Final = 16 << 20
"""The largest file, in bytes, that is checked as a whole when it is opened."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open a journal's file, and create it if needed.

    Raises:
        RagmonError: Its version is another one.
        JournalError: It cannot be opened, or is damaged.
    """
    with translate_file_errors(path):
        store.create(path)
        connection = store.open_writer(path)
        try:
            schema.create(connection, path)
            if path.stat().st_size <= _CHECKED:
                _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise JournalError("corrupt", path, result)


def journal_file(folder: Path) -> Path:
    """The path of the journal's file in a folder.

    Raises:
        RagmonError: There is no journal.
    """
    path = folder / store.FILE
    if not path.is_file():
        raise RagmonError(f"there is no journal in {folder}", hint="name the `state_dir` of a `ragmon serve`")
    return path


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file holds a journal of this ragmon's version.

    Raises:
        RagmonError: It is empty, or its version is another one.
        JournalError: It is damaged.
    """
    if not schema.check(connection, path):
        raise RagmonError(f"{path} holds nothing yet", hint="start `ragmon serve` first")


def quarantine_file(path: Path, now: float) -> Path:
    """Rename a journal's file together with its write-ahead log and its shared memory file.

    Args:
        path: The file.
        now: Seconds since the epoch; it becomes part of the name.

    Returns:
        The file's new name.

    Raises:
        JournalError: It cannot be renamed.
    """
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (path.with_name(f"{path.name}{ASIDE}{moment}" + (f"-{n}" if n > 1 else "")) for n in count(1))
    aside = next(name for name in names if not any(_with_suffix(name, suffix).exists() for suffix in _SUFFIXES))
    with translate_file_errors(path):
        # If the process ends between two renames, the next start sets the orphaned log aside.
        for suffix in _SUFFIXES:
            if _with_suffix(path, suffix).exists():
                _with_suffix(path, suffix).rename(_with_suffix(aside, suffix))
    return aside


def is_orphaned(path: Path) -> bool:
    """Whether there is a write-ahead log without its file: SQLite would apply it to a new file of that name."""
    return not path.exists() and any(_with_suffix(path, suffix).exists() for suffix in store.SIDE_FILES)


def files_set_aside(path: Path) -> list[Path]:
    """The damaged journals that were set aside, with their logs."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*"))


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
