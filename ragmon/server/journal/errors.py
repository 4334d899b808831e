"""What can be wrong with a journal: a full disk, a broken file, a broken disk, a lock that nobody releases."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from ragmon.core.errors import UnavailableError

Reason = Literal["disk_full", "io", "corrupt", "busy"]
Item = TypeVar("Item")

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_PRIMARY: Final = 0xFF
"""The low byte of an extended result code (SQLite, "Result and Error Codes") is the primary one."""
_BY_CODE: Final[dict[int, Reason]] = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_ERROR: "corrupt",  # our statements are right, so a table or a column is gone
}
_SAID: Final[dict[Reason, tuple[str, str]]] = {
    "disk_full": ("there is no room left for the journal", "free some: a server that runs goes on by itself"),
    "io": ("the journal can be neither read nor written", "look at the disk and at who owns the folder"),
    "corrupt": ("the journal is damaged", "`ragmon serve` sets it aside by itself and begins a new one"),
    "busy": ("somebody else writes to the journal and does not let go", "try again"),
}


class JournalError(UnavailableError):
    """The journal cannot be read or written.

    Args:
        reason: `disk_full`, `io`, `corrupt` or `busy`.
        path: The journal.
        detail: What the store said.
    """

    def __init__(self, reason: Reason, path: Path, detail: str = "") -> None:
        message, hint = _SAID[reason]
        super().__init__(f"{path}: {message}" + (f" ({detail})" if detail else ""), hint=hint)
        self.reason: Reason = reason


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Errors of the store inside the block become a `JournalError`.

    Args:
        path: The journal.

    Raises:
        JournalError: There was one.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise
    except sqlite3.Error as error:
        raise JournalError(_reason(error, path), path, str(error)) from error


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """The same, and what is read but was never written so is damage."""
    try:
        with translate_errors(path):
            yield
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise JournalError("corrupt", path, str(error)) from error


@contextmanager
def translate_file_errors(path: Path) -> Iterator[None]:
    """The same, and errors of the file system become one too."""
    try:
        with translate_read_errors(path):
            yield
    except OSError as error:
        raise JournalError("disk_full" if error.errno in _NO_ROOM else "io", path, str(error)) from error


def translate_errors_of(path: Path, items: Iterator[Item]) -> Iterator[Item]:
    """Items that are read from the store, one by one; what is done with them is no matter of the store.

    Raises:
        JournalError: The next one cannot be read.
    """
    while True:
        with translate_read_errors(path):
            item = next(items, None)
        if item is None:
            return
        yield item


def _reason(error: sqlite3.Error, path: Path) -> Reason:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "corrupt"  # Python's own: a text in the file is no UTF-8
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return "corrupt"
    if code & _PRIMARY == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
        return "corrupt"  # the file says of itself that a newer SQLite must write it
    known = _BY_CODE.get(code & _PRIMARY)
    if known is not None:
        return known
    # The shared memory of a write-ahead log cannot grow on a full disk, and the error does not say why.
    return "disk_full" if _is_full(path.parent) else "io"


def _is_full(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)
