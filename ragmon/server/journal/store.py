"""SQLite connections to the journal's file, for the writer and for concurrent readers, and the size of the file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

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
