"""Errors of a journal: a full disk, a damaged file, a disk that fails, a lock that is not released."""

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

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_PRIMARY: Final = 0xFF
"""Mask of the primary result code, the low byte of an extended one (SQLite, "Result and Error Codes")."""
_REASON_BY_CODE: Final[dict[int, Reason]] = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_ERROR: "corrupt",  # the statements are correct, so a table or a column is missing
}
_MESSAGES: Final[dict[Reason, tuple[str, str]]] = {
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
        detail: The message of SQLite or of the operating system.
    """

    def __init__(self, reason: Reason, path: Path, detail: str = "") -> None:
        message, hint = _MESSAGES[reason]
        super().__init__(f"{path}: {message}" + (f" ({detail})" if detail else ""), hint=hint)
        self.reason: Reason = reason


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite errors inside the block into a `JournalError`.

    Args:
        path: The journal.

    Raises:
        JournalError: SQLite raised an error.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise
    except sqlite3.Error as error:
        raise JournalError(_reason(error, path), path, str(error)) from error


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Translate SQLite errors, and errors of decoding what was read: the file is damaged then."""
    try:
        with translate_errors(path):
            yield
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise JournalError("corrupt", path, str(error)) from error


@contextmanager
def translate_file_errors(path: Path) -> Iterator[None]:
    """Translate SQLite errors, decoding errors and errors of the file system."""
    try:
        with translate_read_errors(path):
            yield
    except OSError as error:
        raise JournalError("disk_full" if error.errno in _DISK_FULL else "io", path, str(error)) from error


def translate_errors_of(path: Path, items: Iterator[Item]) -> Iterator[Item]:
    """Read items one by one, and translate the errors of reading; errors of the caller's loop pass unchanged.

    Raises:
        JournalError: The next item cannot be read.
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
        return "corrupt"  # raised by Python itself: a text in the file is not UTF-8
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return "corrupt"
    if code & _PRIMARY == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
        return "corrupt"  # the file header says that only a newer SQLite may write it
    reason = _REASON_BY_CODE.get(code & _PRIMARY)
    if reason is not None:
        return reason
    # The shared memory of a write-ahead log cannot grow on a full disk, and the error does not say why.
    return "disk_full" if _is_full(path.parent) else "io"


def _is_full(folder: Path) -> bool:
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    return status.f_bavail == 0 or (status.f_files > 0 and status.f_favail == 0)
