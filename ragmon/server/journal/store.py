"""What can be wrong with a journal: a full disk, a broken file, a broken disk, somebody who does not let go.

The tables of a journal, and how one of an older ragmon becomes one of this.

Connections to the journal's file: how it is written, and how it is read beside the one who writes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.server.journal import migrations

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
def told(path: Path) -> Iterator[None]:
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
def told_reading(path: Path) -> Iterator[None]:
    """The same, and what is read but was never written so is damage."""
    try:
        with told(path):
            yield
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise JournalError("corrupt", path, str(error)) from error


@contextmanager
def told_of_files(path: Path) -> Iterator[None]:
    """The same, and errors of the file system become one too."""
    try:
        with told_reading(path):
            yield
    except OSError as error:
        raise JournalError("disk_full" if error.errno in _NO_ROOM else "io", path, str(error)) from error


def each_told(path: Path, items: Iterator[Item]) -> Iterator[Item]:
    """Items that are read from the store, one by one; what is done with them is no matter of the store.

    Raises:
        JournalError: The next one cannot be read.
    """
    while True:
        with told_reading(path):
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


_FIRST: Final = """
-- Whether the version is what it says is seen where both places that hold it agree.
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- upto: bytes of lines of this row and all before it, deleted ones too. What is short stands before what is long.
-- sum: a checksum of the rest: SQLite has none, so a flipped bit of a count would never be noticed.
CREATE TABLE rows (seq INTEGER PRIMARY KEY, arrival REAL NOT NULL, n INTEGER NOT NULL, upto INTEGER NOT NULL,
    sum INTEGER NOT NULL, counts BLOB NOT NULL, lines BLOB NOT NULL);

-- The newest row, for when it is deleted.
CREATE TABLE tail (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER, arrival REAL, upto INTEGER);

-- A number is never given twice: another process may delete what somebody still waits for.
-- waits: the ids of the traces whose spans wait, one after the other. Other spans of it were counted when it came.
CREATE TABLE bodies (seq INTEGER PRIMARY KEY AUTOINCREMENT, arrival REAL NOT NULL, form TEXT NOT NULL,
    lowest INTEGER NOT NULL, sum INTEGER NOT NULL, waits BLOB NOT NULL, body BLOB NOT NULL);

-- Traces that are done. recorded: their spans became records. Below zero: forgotten, and not accounted for yet.
CREATE TABLE assembled (trace_id BLOB PRIMARY KEY, arrival REAL NOT NULL, recorded INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX assembled_arrival ON assembled (arrival);

CREATE TABLE claims (seq INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE checkpoints (seq INTEGER PRIMARY KEY, at REAL NOT NULL, upto INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE series (id INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, source TEXT NOT NULL, build TEXT NOT NULL,
    index_hash TEXT NOT NULL, UNIQUE (pipeline, source, build, index_hash));
CREATE TABLE failures (seq INTEGER, place INTEGER, series INTEGER NOT NULL, ts REAL NOT NULL, trace_id TEXT,
    scores TEXT NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (seq, place)) WITHOUT ROWID;
CREATE TABLE failed (metric TEXT, series INTEGER, ts REAL, seq INTEGER, place INTEGER,
    PRIMARY KEY (metric, series, ts, seq, place)) WITHOUT ROWID;
"""


def _first(connection: sqlite3.Connection) -> None:
    for statement in _FIRST.split(";"):
        connection.execute(statement)


def _create(connection: sqlite3.Connection, table: str) -> None:
    """Make one table of version 1, and its indexes."""
    for statement in _FIRST.split(";"):
        if f"CREATE TABLE {table} (" in statement or f" ON {table} (" in statement:
            connection.execute(statement)


def _traced(connection: sqlite3.Connection) -> None:
    """Labels find the answers they are about; those in rows that are there already they do not find."""
    migrations.complete(connection, lambda table: _create(connection, table))
    connection.execute("CREATE TABLE traced (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL)")


def _forgotten(connection: sqlite3.Connection) -> None:
    """Whoever forgets a trace leaves word for the server, which holds what people said of it in memory."""
    connection.execute("CREATE TABLE forgotten (trace_id TEXT PRIMARY KEY) WITHOUT ROWID")


def _quarantined(connection: sqlite3.Connection) -> None:
    """What ended the process twice is kept to be looked at; a number is never given twice."""
    connection.execute(
        "CREATE TABLE quarantined (seq INTEGER PRIMARY KEY AUTOINCREMENT, arrival REAL NOT NULL, step TEXT NOT NULL,"
        " trace_id TEXT NOT NULL, form TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL)"
    )


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_first, _traced, _forgotten, _quarantined]
"""The function at place n makes a journal of version n one of version n + 1. What stands here is never changed."""


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a journal; 0 for an empty file.

    Raises:
        JournalError: It is not told twice alike, so the file is damaged.
    """
    told = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not told:
        return 0
    found = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    if found is None or found[0] != told:
        raise JournalError("corrupt", path, "its version is not known")
    return told


def check(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a journal this ragmon can read.

    Raises:
        RagmonError: A newer ragmon wrote it.
        JournalError: It is damaged.
    """
    found = schema_version(connection, path)
    if found > len(MIGRATIONS):
        raise RagmonError(
            f"{path} is of version {found}, and this ragmon knows versions up to {len(MIGRATIONS)}",
            hint="a newer ragmon wrote it: use that one, or another `state_dir`",
        )
    return found


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a journal to this ragmon's version, wholly or not at all.

    Raises:
        RagmonError: A newer ragmon wrote it.
        JournalError: It is damaged.
    """
    found, newest = check(connection, path), len(MIGRATIONS)
    if found == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[found:]:
            step(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (newest,))
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


FILE: Final = "journal.db"
BESIDE: Final = ("-wal", "-shm")
"""What SQLite keeps beside a database in write-ahead mode."""

_PATIENCE: Final = 5.0
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
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, not always the same one
    )


def log_of(size: int) -> int:
    """Bytes of the log of a journal of some size after which it is moved into the file."""
    return max(_SMALLEST_LOG, min(size // _LOG, _LARGEST_LOG))


def fit(connection: sqlite3.Connection, size: int) -> None:
    """Let the log of a journal be as large as becomes one of some size, in bytes."""
    log = log_of(size)
    for pragma in (f"wal_autocheckpoint = {log // PAGE}", f"journal_size_limit = {log}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written.

    Source: SQLite, PRAGMA data_version.
    """
    return _number(connection, "data_version")


def wipe_log(connection: sqlite3.Connection) -> None:
    """Move what the write-ahead log holds into the file and cut it off: what was deleted stands in it as it was.

    While somebody reads, as much is moved as can be, and nothing is cut off: whoever sends does not wait for that.
    """
    connection.execute(f"PRAGMA busy_timeout = {_BRIEFLY}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * _PATIENCE)}")


def excess(connection: sqlite3.Connection, path: Path, size: int) -> int:
    """Bytes by which a journal is larger than it may be, below zero where it is smaller.

    Its log counts, and pages that are free do not: new rows take them. While somebody reads all the while, the log
    cannot be moved and grows; it counts no further then, for to delete rows would make it larger still.

    Args:
        connection: The journal.
        path: Its file.
        size: Bytes it may have.
    """
    usual = log_of(size)
    log = min(max(usual, log_size(path)), _LARGER * usual)
    return (pages(connection) - free_pages(connection)) * PAGE + log - size


def log_size(path: Path) -> int:
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
