"""One process writes to a state folder; the kernel takes the lock from a process that is gone.

A journal's file is opened, or set aside where it cannot be read: no journal waits for somebody to repair it.
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
from ragmon.server.journal.errors import JournalError, translate_file_errors

FILE: Final = "journal.lock"
_LONGEST: Final = 32
_LOOKS: Final = 20
_PAUSE: Final = 0.01
"""Looks at who holds it, and seconds between them."""


class Lock:
    """Holds a folder until it is released or the process ends.

    Args:
        folder: The folder.

    Raises:
        UnavailableError: Another one holds it.
        OSError: The lock file cannot be made or written.
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
        """The process that holds it; it may have taken it a moment ago, and not have written its number yet."""
        for _ in range(_LOOKS):
            if holder := os.pread(self._file, _LONGEST, 0).decode("ascii", "replace").strip():
                return holder
            sleep(_PAUSE)
        return ""

    def release(self) -> None:
        """Let go of the folder; again is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


ASIDE: Final = ".corrupt-"
_ENDS: Final = ("", *store.BESIDE)
_CHECKED: Final = 16 << 20
"""Bytes up to which a file is read as a whole before it is trusted."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open a journal's file, make it if there is none, and bring it to this ragmon's version.

    Raises:
        RagmonError: A newer ragmon wrote it.
        JournalError: It cannot be opened, or is damaged.
    """
    with translate_file_errors(path):
        store.create(path)
        connection = store.writing(path)
        try:
            schema.migrate(connection, path)
            if path.stat().st_size <= _CHECKED:
                _check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise JournalError("corrupt", path, found)


def journal_file(folder: Path) -> Path:
    """The journal's file in a folder.

    Raises:
        RagmonError: There is none.
    """
    path = folder / store.FILE
    if not path.is_file():
        raise RagmonError(f"there is no journal in {folder}", hint="name the `state_dir` of a `ragmon serve`")
    return path


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Nothing, if a journal is of this ragmon's version.

    Raises:
        RagmonError: It is of another one.
        JournalError: It is damaged.
    """
    found = schema.check(connection, path)
    if not found:
        raise RagmonError(f"{path} holds nothing yet", hint="start `ragmon serve` first")
    if found < len(schema.MIGRATIONS):
        raise RagmonError(f"{path} was written by an older ragmon", hint="start this one's `ragmon serve` once")


def quarantine_file(path: Path, now: float) -> Path:
    """Put a journal's file, and what is beside it, under another name.

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
    aside = next(name for name in names if not any(_beside(name, end).exists() for end in _ENDS))
    with translate_file_errors(path):
        # Should we be stopped in between, a log without its file is set aside by whoever comes next.
        for end in _ENDS:
            if _beside(path, end).exists():
                _beside(path, end).rename(_beside(aside, end))
    return aside


def is_orphaned(path: Path) -> bool:
    """Whether there is a log whose file is gone: beside a new file it would be taken for that one's."""
    return not path.exists() and any(_beside(path, end).exists() for end in store.BESIDE)


def files_set_aside(path: Path) -> list[Path]:
    """Journals that could not be read, and what is beside them."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*"))


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)
