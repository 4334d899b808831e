"""The file of a journal: its tables, its connections, its size, what can be wrong with it, and the lock of its folder.

One process writes to a state folder; the kernel releases the lock of a process that has ended. A damaged file is set
aside under another name and a new file is started: the server never waits for a manual repair.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import sleep
from typing import Final, Literal

import msgspec

from ragmon.core.errors import RagmonError, UnavailableError

VERSION: Final = 1
TRACE_ID: Final = 16
TABLES: Final = """
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

-- By row, the ends of the trace ids of its lines: labels find their records by them.
CREATE TABLE traced (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL);

-- Traces whose labels a server still has in memory; it removes them before it writes the next checkpoint.
CREATE TABLE forgotten (trace_id TEXT PRIMARY KEY) WITHOUT ROWID;

-- Traces that are not taken again from chunks, in lower case.
CREATE TABLE erased (trace_id TEXT PRIMARY KEY) WITHOUT ROWID;

-- Requests that ended the process twice.
CREATE TABLE quarantined (seq INTEGER PRIMARY KEY AUTOINCREMENT, arrival REAL NOT NULL, step TEXT NOT NULL,
    trace_id TEXT NOT NULL, form TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL);
"""
Reason = Literal["disk_full", "io", "corrupt", "busy"]
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
DATABASE: Final = "journal.db"
SIDE_FILES: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database in WAL mode."""
_LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait while another connection writes."""
_SHORT_TIMEOUT_MS: Final = 50
"""Milliseconds to wait for readers when the work can also be done later."""
PAGE: Final = 4096
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
LOCK_FILE: Final = "journal.lock"
_MAX_PID_LENGTH: Final = 32
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.01
"""Attempts to read the holder's process id, and seconds between them."""
ASIDE: Final = ".corrupt-"
"""The part of a file name, before the time, of a journal that was set aside."""
_SUFFIXES: Final = ("", *SIDE_FILES)
_CHECKED: Final = 16 << 20
"""The largest file, in bytes, that is checked as a whole when it is opened."""
LEVEL: Final = 1
"""The compression level of checkpoints: low, as they are written often and read seldom."""


def checksum(*values: float | str | bytes) -> int:
    """A CRC-32 checksum of values that are written together.

    >>> checksum(1, 2.0, b"lines") == checksum(1, 2.0, b"lined")
    False
    """
    crc = 0
    for value in values:
        crc = zlib.crc32(value if isinstance(value, bytes) else f"{value} ".encode(), crc)
    return crc


def check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a file holds a journal of this version; not if it is empty."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not version and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return False
    row = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    if row is None or row[0] != version:
        raise JournalError("corrupt", path, "its version is not known")
    if version != VERSION:
        raise RagmonError(
            f"{path} is of version {version}, and this ragmon reads and writes version {VERSION}",
            hint="use the ragmon that wrote it, or another `state_dir`",
        )
    return True


def create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a file that is empty, in one transaction."""
    if check(connection, path):
        return
    try:
        connection.executescript("BEGIN IMMEDIATE;" + TABLES)
        connection.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class JournalError(UnavailableError):
    """The journal cannot be read or written."""

    def __init__(self, reason: Reason, path: Path, detail: str = "") -> None:
        message, hint = _MESSAGES[reason]
        super().__init__(f"{path}: {message}" + (f" ({detail})" if detail else ""), hint=hint)
        self.reason: Reason = reason


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite errors inside the block into a `JournalError`."""
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
    try:
        status = os.statvfs(path.parent)
    except OSError:
        return "io"
    return "disk_full" if status.f_bavail == 0 or (status.f_files > 0 and status.f_favail == 0) else "io"


def create_file(path: Path) -> None:
    """Create an empty file that only its owner can read, if there is none."""
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
    """A connection that writes to an existing file; transactions begin only with an explicit BEGIN."""
    return _connect(path, "rw", _WRITER_PRAGMAS, _LAYOUT_PRAGMAS)


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that reads, also while another process writes."""
    return _connect(path, "ro", _READER_PRAGMAS)


def _connect(path: Path, mode: str, pragmas: tuple[str, ...], layout: tuple[str, ...] = ()) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_LOCK_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, not always the same one
    )
    try:
        for pragma in (*pragmas, *(layout if layout and not pages(connection) else ())):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


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
    """
    limit = wal_limit(size)
    wal = 0
    with suppress(OSError):  # there is none
        wal = path.with_name(path.name + SIDE_FILES[0]).stat().st_size
    wal = min(max(limit, wal), _MAX_WAL_GROWTH * limit)
    return (pages(connection) - free_pages(connection)) * PAGE + wal - size


def pages(connection: sqlite3.Connection) -> int:
    """Pages of the file, including free ones."""
    return _pragma_value(connection, "page_count")


def free_pages(connection: sqlite3.Connection) -> int:
    """Free pages of the file."""
    return _pragma_value(connection, "freelist_count")


def _pragma_value(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


class Lock:
    """Locks a folder until `release` is called or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def open_file(path: Path) -> sqlite3.Connection:
    """Open a journal's file, and create it if needed."""
    with translate_file_errors(path):
        create_file(path)
        connection = open_writer(path)
        try:
            create_tables(connection, path)
            if path.stat().st_size <= _CHECKED:
                (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if result != "ok":
                    raise JournalError("corrupt", path, result)  # noqa: TRY301 - one path closes the connection
        except BaseException:
            connection.close()
            raise
    return connection


def journal_file(folder: Path) -> Path:
    """The path of the journal's file in a folder."""
    path = folder / DATABASE
    if not path.is_file():
        raise RagmonError(f"there is no journal in {folder}", hint="name the `state_dir` of a `ragmon serve`")
    return path


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file holds a journal of this ragmon's version."""
    if not check(connection, path):
        raise RagmonError(f"{path} holds nothing yet", hint="start `ragmon serve` first")


def quarantine_file(path: Path, now: float) -> Path:
    """Rename a journal's file together with its write-ahead log and its shared memory file."""
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
    return not path.exists() and any(_with_suffix(path, suffix).exists() for suffix in SIDE_FILES)


def files_set_aside(path: Path) -> list[Path]:
    """The damaged journals that were set aside, with their logs."""
    return sorted(path.parent.glob(f"{path.name}{ASIDE}*"))


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
