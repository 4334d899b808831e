"""SQLite connections to the journal's file, for the writer and for concurrent readers, its size, and what can be wrong.

`JournalError` says which of four it is: a full disk, a damaged file, a disk that fails, a lock that is not released.
"""

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


FILE: Final = "journal.db"
SIDE_FILES: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database in WAL mode."""

_LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait while another connection writes."""
_SHORT_TIMEOUT_MS: Final = 50
"""Milliseconds to wait for readers when the work can also be done later."""
PAGE: Final = 4096
"""Bytes of a database page."""
_CACHE: Final = 16 << 10
"""Size of the page cache, in KiB."""
_MAX_WAL: Final = 16 << 20
"""Bytes of the write-ahead log after which it is moved into the file: hot pages are moved once for many changes."""
_MIN_WAL: Final = 1 << 18
_WAL_SHARE: Final = 16
"""The write-ahead log may be one in so many parts of the journal."""
_MAX_WAL_GROWTH: Final = 2
"""The write-ahead log counts at most so many times its limit; just after a large row was written it is that large."""

# For an empty file only; journal_mode is last, because setting it writes the other two to the file.
_LAYOUT_PRAGMAS: Final = (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL")
_WRITER_PRAGMAS: Final = (
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",  # no user content in temporary files
    "cell_size_check = ON",
    "trusted_schema = OFF",
    f"cache_size = -{_CACHE}",
)
_READER_PRAGMAS: Final = ("query_only = ON", "temp_store = MEMORY", "cell_size_check = ON", "trusted_schema = OFF")


def create(path: Path) -> None:
    """Create an empty file that only its owner can read, if there is none.

    Raises:
        OSError: It cannot be created.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_writer(path: Path) -> sqlite3.Connection:
    """A connection that writes to an existing file; transactions begin only with an explicit BEGIN.

    Raises:
        sqlite3.Error: The file cannot be opened, or is not a database.
    """
    connection = _connect(path, "rw")
    try:
        for pragma in (*_WRITER_PRAGMAS, *(() if pages(connection) else _LAYOUT_PRAGMAS)):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that reads, also while another process writes.

    Raises:
        sqlite3.Error: The file cannot be opened, or is not a database.
    """
    connection = _connect(path, "ro")
    try:
        for pragma in _READER_PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_LOCK_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, not always the same one
    )


def wal_limit(size: int) -> int:
    """Bytes of the write-ahead log, for a journal of a size in bytes, after which it is moved into the file."""
    return max(_MIN_WAL, min(size // _WAL_SHARE, _MAX_WAL))


def fit_wal(connection: sqlite3.Connection, size: int) -> None:
    """Set the size of the write-ahead log for a journal of a size in bytes."""
    limit = wal_limit(size)
    for pragma in (f"wal_autocheckpoint = {limit // PAGE}", f"journal_size_limit = {limit}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written.

    Source: SQLite, PRAGMA data_version.
    """
    return _pragma_value(connection, "data_version")


def truncate_wal(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and truncate it, since it still contains deleted data.

    While a reader is active, SQLite moves what it can and does not truncate: requests must not wait for readers.
    """
    connection.execute(f"PRAGMA busy_timeout = {_SHORT_TIMEOUT_MS}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * _LOCK_TIMEOUT)}")


def excess_bytes(connection: sqlite3.Connection, path: Path, size: int) -> int:
    """Bytes by which a journal exceeds its limit; negative if it is smaller.

    The write-ahead log counts; free pages do not, as new rows use them. While a reader is active without a pause, the
    log cannot be moved and grows; it counts only up to a bound, as deleting rows would make it even larger.

    Args:
        connection: The journal.
        path: Its file.
        size: The limit in bytes.
    """
    limit = wal_limit(size)
    wal = min(max(limit, wal_size(path)), _MAX_WAL_GROWTH * limit)
    return (pages(connection) - free_pages(connection)) * PAGE + wal - size


def wal_size(path: Path) -> int:
    """Bytes of the write-ahead log of a file; 0 if there is none."""
    try:
        return path.with_name(path.name + SIDE_FILES[0]).stat().st_size
    except OSError:
        return 0


def pages(connection: sqlite3.Connection) -> int:
    """Pages of the file, including free ones."""
    return _pragma_value(connection, "page_count")


def free_pages(connection: sqlite3.Connection) -> int:
    """Free pages of the file."""
    return _pragma_value(connection, "freelist_count")


def _pragma_value(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
