"""Connections to the journal's file: how it is written, and how it is read beside the one who writes."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

FILE: Final = "journal.db"
BESIDE: Final = ("-wal", "-shm")
"""What SQLite keeps beside a database in write-ahead mode."""

_LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for somebody else who writes."""
_BRIEFLY: Final = 50
"""Milliseconds to wait for readers where it can be done later as well."""
PAGE: Final = 4096
"""Bytes of a page."""
_CACHE: Final = 16 << 10
"""KiB of pages kept in memory."""
_LARGEST_LOG: Final = 16 << 20
"""Bytes of the write-ahead log after which it is moved into the file: hot pages are moved once for many changes."""
_SMALLEST_LOG: Final = 1 << 18
_LOG: Final = 16
"""The part of a journal that its log may be."""
_LARGER: Final = 2
"""How many times that the log is with a row that was just written, and counts at most."""

# Of an empty file alone; that it is in write-ahead mode is written last, and the others with it.
_LAYOUT: Final = (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL")
_WRITING: Final = (
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",  # nothing of what people said goes to another place
    "cell_size_check = ON",
    "trusted_schema = OFF",
    f"cache_size = -{_CACHE}",
)
_READING: Final = ("query_only = ON", "temp_store = MEMORY", "cell_size_check = ON", "trusted_schema = OFF")


def create(path: Path) -> None:
    """Make an empty file that only its owner reads, if there is none.

    Raises:
        OSError: It cannot be made.
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


def writing(path: Path) -> sqlite3.Connection:
    """A connection that writes to a file that exists; transactions begin where somebody says so.

    Raises:
        sqlite3.Error: It cannot be opened, or is no database.
    """
    connection = _connect(path, "rw")
    try:
        for pragma in (*_WRITING, *(() if pages(connection) else _LAYOUT)):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def reading(path: Path) -> sqlite3.Connection:
    """A connection that reads, also while another process writes.

    Raises:
        sqlite3.Error: It cannot be opened, or is no database.
    """
    connection = _connect(path, "ro")
    try:
        for pragma in _READING:
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
    """Bytes of the log of a journal of some size after which it is moved into the file."""
    return max(_SMALLEST_LOG, min(size // _LOG, _LARGEST_LOG))


def fit_wal(connection: sqlite3.Connection, size: int) -> None:
    """Let the log of a journal be as large as becomes one of some size, in bytes."""
    log = wal_limit(size)
    for pragma in (f"wal_autocheckpoint = {log // PAGE}", f"journal_size_limit = {log}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written.

    Source: SQLite, PRAGMA data_version.
    """
    return _number(connection, "data_version")


def truncate_wal(connection: sqlite3.Connection) -> None:
    """Move what the write-ahead log holds into the file and cut it off: what was deleted stands in it as it was.

    While somebody reads, as much is moved as can be, and nothing is cut off: whoever sends does not wait for that.
    """
    connection.execute(f"PRAGMA busy_timeout = {_BRIEFLY}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * _LOCK_TIMEOUT)}")


def excess_bytes(connection: sqlite3.Connection, path: Path, size: int) -> int:
    """Bytes by which a journal is larger than it may be, below zero where it is smaller.

    Its log counts, and pages that are free do not: new rows take them. While somebody reads all the while, the log
    cannot be moved and grows; it counts no further then, for to delete rows would make it larger still.

    Args:
        connection: The journal.
        path: Its file.
        size: Bytes it may have.
    """
    usual = wal_limit(size)
    log = min(max(usual, wal_size(path)), _LARGER * usual)
    return (pages(connection) - free_pages(connection)) * PAGE + log - size


def wal_size(path: Path) -> int:
    """Bytes of the write-ahead log of a file; 0 where there is none."""
    try:
        return path.with_name(path.name + BESIDE[0]).stat().st_size
    except OSError:
        return 0


def pages(connection: sqlite3.Connection) -> int:
    """Pages of the file, free ones too."""
    return _number(connection, "page_count")


def free_pages(connection: sqlite3.Connection) -> int:
    """Pages that hold nothing."""
    return _number(connection, "freelist_count")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
