"""The file of a journal: its tables, its connections, what can be wrong with it, who reads it, its index of failures.

One process writes to a state folder; the kernel releases the lock of a process that has ended. A damaged file is set
aside under another name and a new file is started: the server never waits for a manual repair.

A label needs the record of its trace, often days later. For each row, one blob holds the ends of its records' trace
ids: an index by id would change a page for every record, and labels are rare. A lookup scans eight bytes per record.

Each failure is indexed under every metric it failed and under its series. Series are few: a page is merged from the
newest failures of each series, and series that do not match are never read.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import heapq
import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from time import sleep
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

import msgspec

from ragmon.core.constants import DEFAULT_PIPELINE, OTHER
from ragmon.core.errors import RagmonError, UnavailableError, shorten
from ragmon.core.record import Record, decode_entry, is_tombstone

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
-- ended: when the last span of it ended, in nanoseconds: what begins later is another request of the same trace.
CREATE TABLE assembled (trace_id BLOB PRIMARY KEY, arrival REAL NOT NULL, recorded INTEGER NOT NULL,
    ended INTEGER NOT NULL) WITHOUT ROWID;
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
    "disk_full": ("there is no room left for the journal", "free some: a running server continues by itself"),
    "io": ("the journal can be neither read nor written", "check the disk and who owns the folder"),
    "corrupt": ("the journal is damaged", "`ragmon serve` sets it aside by itself and starts a new one"),
    "busy": ("another process is writing to the journal and keeps it locked", "try again"),
}
DATABASE: Final = "journal.db"
SIDE_FILES: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database in WAL mode."""
LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait while another connection writes."""
PAGE: Final = 4096
_CACHE: Final = 16 << 10
"""Size of the page cache, in KiB."""
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
MAX_REQUESTS: Final = 100
"""Maximum number of requests in the quarantine; the oldest are deleted, but stay counted."""
MAX_BYTES: Final = 16 << 20
"""Maximum bytes in the quarantine; a larger single request is kept without its content."""
_LOOKUP_BATCH: Final = 500
"""Ids in one query: SQLite accepts some thousand parameters."""
WIDTH: Final = 8
"""Bytes of a trace id that are kept: its end, which is random whichever system made the id."""
FEW: Final = 16
"""Up to so many ids, searching for each id is faster than decoding everything."""
MAX_PAGE: Final = 1000
SERIES: Final = 4096
"""Maximum number of series; beyond it, new builds and index hashes are counted as `OTHER`."""
SLICES: Final = "slices"
TRAITS: Final = "traits"
LATENCY_MS: Final = "latency_ms"
SESSION: Final = "session"
"""The keys in `facts` of a request's slices, its traits in the terms of a diagnosis, how long it took in all, and its
session."""
MAX_SCANNED: Final = 20_000
"""Maximum number of failures read for one page of a slice; the next page continues there."""
_ALL: Final = ""
"""The metric name under which every failure is indexed."""
_BATCH: Final = 500
_MISSING: Final = ""
"""A build or an index hash that is not known."""
_Position = tuple[float, int, int]
"""Event time, row, and line in the row: the sort key of failures."""
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_decode_cursor: Final = msgspec.json.Decoder(tuple[float, _Number, _Number]).decode


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
    """Translate SQLite errors, errors of the file system, and errors of decoding what was read: it is damaged then."""
    try:
        with translate_errors(path):
            yield
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise JournalError("corrupt", path, str(error)) from error
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


def connect(path: Path, *, writes: bool = False) -> sqlite3.Connection:
    """A connection to an existing file; transactions begin only with an explicit BEGIN."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rw' if writes else 'ro'}",
        uri=True,
        timeout=LOCK_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, not always the same one
    )
    try:
        layout = _LAYOUT_PRAGMAS if writes and not pragma(connection, "page_count") else ()
        for setting in (*(_WRITER_PRAGMAS if writes else _READER_PRAGMAS), *layout):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a pragma that is a number."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


class Lock:
    """Locks a folder until `release` is called or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            for _ in range(_ATTEMPTS):
                holder = os.pread(self._file, _MAX_PID_LENGTH, 0).decode("ascii", "replace").strip()
                if holder:
                    break
                sleep(_PAUSE)  # it may not have written its id yet
            os.close(self._file)
            raise UnavailableError(
                f"{folder} is in use" + (f" by process {holder}" if holder else ""),
                hint="stop that one, or give this one a `state_dir` of its own",
            ) from None
        except OSError:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Release the lock; calling it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def upgrade(connection: sqlite3.Connection) -> None:
    """Give a journal what it was written without: of a trace that is done, nothing is taken again."""
    if "ended" not in {name for _, name, *_ in connection.execute("PRAGMA table_info(assembled)")}:
        with suppress(sqlite3.OperationalError):  # another process has just done it
            connection.execute(f"ALTER TABLE assembled ADD COLUMN ended INTEGER NOT NULL DEFAULT {FOREVER}")


def open_file(path: Path) -> sqlite3.Connection:
    """Open a journal's file, and create it if needed."""
    with translate_read_errors(path):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        connection = connect(path, writes=True)
        try:
            if not check(connection, path):
                connection.executescript("BEGIN IMMEDIATE;" + TABLES)
                connection.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
            upgrade(connection)
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
    with translate_read_errors(path):
        # If the process ends between two renames, the next start sets the orphaned log aside.
        for suffix in _SUFFIXES:
            if _with_suffix(path, suffix).exists():
                _with_suffix(path, suffix).rename(_with_suffix(aside, suffix))
    return aside


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


class QuarantinedRequest(NamedTuple):
    """A request in quarantine: the spans of a trace, or a line of the journal; a body that is too large is empty."""

    seq: int
    arrival: float
    step: str
    trace_id: str
    encoding: str
    size: int
    body: bytes


def add_quarantined(
    connection: sqlite3.Connection, arrival: float, step: str, trace_id: str, form: str, body: bytes
) -> None:
    """Put a request into the quarantine, inside a transaction; delete the oldest if there are too many."""
    kept = body if len(body) <= MAX_BYTES else b""
    insert = "INSERT INTO quarantined (arrival, step, trace_id, form, size, body) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(insert, (arrival, step, trace_id, form, len(body), kept))
    total = 0
    sizes = connection.execute("SELECT seq, length(body) FROM quarantined ORDER BY seq DESC").fetchall()
    for position, (seq, size) in enumerate(sizes):
        total += size
        if position >= MAX_REQUESTS or total > MAX_BYTES:
            connection.execute("DELETE FROM quarantined WHERE seq <= ?", (seq,))
            return


class JournalRow(NamedTuple):
    """An accepted batch."""

    seq: int
    arrival: float
    n: int
    counts: bytes
    lines: bytes


class PendingRequest(NamedTuple):
    """A request whose spans wait for the rest of their traces, or a record that waits for the reply to its probe.

    Attributes:
        encoding: Its encoding: `protobuf`, `json`, or `record`.
        lowest: The sampling threshold at arrival: the smallest draw that was kept.
        waits: The ids of the traces whose spans wait, one after the other.
    """

    seq: int
    arrival: float
    encoding: str
    body: bytes
    lowest: int = 0
    waits: bytes = b""

    @property
    def traces(self) -> set[bytes]:
        """The ids of the traces whose spans wait."""
        return {self.waits[start : start + TRACE_ID] for start in range(0, len(self.waits), TRACE_ID)}


class Checkpoint(NamedTuple):
    """A saved state of the server."""

    seq: int
    at: float
    data: bytes


class HighWaterMark(NamedTuple):
    """The newest row ever written, even if deleted since."""

    seq: int = 0
    arrival: float = 0.0
    upto: int = 0


FOREVER: Final = (1 << 63) - 1
"""When a trace ended of which nothing is taken again, in nanoseconds: no time is later."""


class FinishedTrace(NamedTuple):
    """A trace that is done.

    Attributes:
        arrival: The arrival of the row that it was finished with; negative where it was erased and is not counted yet.
        recorded: Whether its spans became records.
        ended: When its last span ended, in nanoseconds.
    """

    arrival: float
    recorded: int
    ended: int


_FINISHED: Final = "SELECT trace_id, arrival, recorded, ended FROM assembled WHERE"


def finished(connection: sqlite3.Connection, trace_ids: Iterable[bytes]) -> dict[bytes, FinishedTrace]:
    """The finished traces among some."""
    remaining, found = iter(trace_ids), dict[bytes, FinishedTrace]()
    while batch := list(islice(remaining, _LOOKUP_BATCH)):
        params = ", ".join("?" * len(batch))
        rows = connection.execute(f"{_FINISHED} trace_id IN ({params})", batch)
        found |= {trace_id: FinishedTrace(*row) for trace_id, *row in rows}
    return found


def _check(name: str, expected: int, actual: int) -> None:
    if actual != expected:
        raise ValueError(f"{name} is not as it was written")


@dataclass(frozen=True)
class Failure:
    """A request that failed a gate."""

    seq: int
    line: int
    ts: float
    pipeline: str
    source: str
    scores: Mapping[str, float]
    trace_id: str | None = None
    build: str | None = None
    index_hash: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        record: Record,
        source: str,
        scores: Mapping[str, float],
        traits: Sequence[str],
        slices: Sequence[str] = (),
        seq: int = 0,
        line: int = 0,
    ) -> Failure:
        """The failure of a record in a line of a row."""
        total = None if record.latency_ms is None else record.latency_ms.total
        took = None if total is None else round(total, 1)
        facts = {TRAITS: traits, SLICES: slices or None, LATENCY_MS: took, SESSION: record.session}
        return cls(
            seq,
            line,
            ts=record.ts or 0.0,
            pipeline=record.pipeline or DEFAULT_PIPELINE,
            source=source,
            trace_id=record.trace_id,
            build=record.build,
            index_hash=record.index_hash,
            scores=scores,
            facts={name: value for name, value in facts.items() if value is not None},
        )


@dataclass(frozen=True)
class FailureQuery:
    """Selects failures; None, "" and an empty tuple stand for any.

    Args:
        where: Only failures of this slice, `tag=value`.
        trait: Only failures with this trait.
        session: Only failures of this session.
        trace: The beginning of their trace ids.
        since: Earliest event time, inclusive, seconds since the epoch.
        until: Latest event time, exclusive.
        cursor: The cursor of the previous page; None for the first page.
    """

    pipeline: str | None = None
    source: str | None = None
    metric: str | None = None
    build: str | None = None
    index_hash: str | None = None
    sources: tuple[str, ...] = ()
    where: str = ""
    trait: str = ""
    session: str = ""
    trace: str = ""
    since: float = 0.0
    until: float = float("inf")
    limit: int = 50
    cursor: str | None = None


class FailurePage(NamedTuple):
    """One page of failures, newest first; a page of a slice may be short although more pages follow."""

    failures: list[Failure]
    cursor: str | None
    """The cursor of the next page; None after the last page."""


class FailureIndex:
    """Writes failures to the index, inside transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.erased = False
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        """Write failures."""
        rows, index = [], []
        for failure in failures:
            if self.erased:
                find = "SELECT lines FROM rows WHERE seq = ?"
                row = self._connection.execute(find, (failure.seq,)).fetchone()
                if row is not None and is_tombstone(row[0].split(b"\n")[failure.line]):
                    continue
            series = self._series_id(
                (failure.pipeline, failure.source, failure.build or _MISSING, failure.index_hash or _MISSING)
            )
            scores, facts = (
                json.dumps(dict(values), separators=(",", ":")) for values in (failure.scores, failure.facts)
            )
            rows.append((failure.seq, failure.line, series, failure.ts, failure.trace_id, scores, facts))
            index += [(metric, series, failure.ts, failure.seq, failure.line) for metric in (_ALL, *failure.scores)]
        self._connection.executemany("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._connection.executemany("INSERT OR REPLACE INTO failed VALUES (?, ?, ?, ?, ?)", index)

    def _series_id(self, key: tuple[str, str, str, str]) -> int:
        series_id = self._series.get(key)
        if series_id is not None:
            return series_id
        find = "SELECT id FROM series WHERE (pipeline, source, build, index_hash) = (?, ?, ?, ?)"
        row = self._connection.execute(find, key).fetchone()
        if row is None and key[2:] != (OTHER, OTHER):
            (count,) = self._connection.execute("SELECT count(*) FROM series").fetchone()
            if count >= SERIES:
                return self._series_id((key[0], key[1], OTHER, OTHER))
        if row is None:
            add = "INSERT INTO series (pipeline, source, build, index_hash) VALUES (?, ?, ?, ?)"
            row = (self._connection.execute(add, key).lastrowid,)
        self._series[key] = row[0]
        return int(row[0])

    def forget_series(self) -> None:
        """Drop the cached series ids: their transaction was rolled back, or the series were deleted."""
        self._series.clear()


def delete_failures(connection: sqlite3.Connection, where: str, *values: Any) -> None:
    """Delete failures inside a transaction."""
    select = f"SELECT seq, place, series, ts, scores FROM failures WHERE {where} LIMIT {_BATCH}"  # noqa: S608 - no user input
    while batch := connection.execute(select, values).fetchall():
        entries = (
            (metric, series, ts, seq, place)
            for seq, place, series, ts, scores in batch
            for metric in (_ALL, *json.loads(scores))
        )
        connection.executemany("DELETE FROM failed WHERE (metric, series, ts, seq, place) = (?, ?, ?, ?, ?)", entries)
        keys = [(seq, place) for seq, place, *_ in batch]
        connection.executemany("DELETE FROM failures WHERE seq = ? AND place = ?", keys)


def delete_series(connection: sqlite3.Connection) -> None:
    """Delete series without failures."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM failed WHERE metric = ? AND series = series.id)",
        (_ALL,),
    )


def failure_page(connection: sqlite3.Connection, query: FailureQuery) -> FailurePage:
    """One page of failures."""
    limit = max(1, min(query.limit, MAX_PAGE))
    before: _Position = (query.until, 0, 0)
    if query.cursor is not None:
        try:
            before = _decode_cursor(base64.urlsafe_b64decode(query.cursor))
        except (ValueError, msgspec.DecodeError):
            raise RagmonError(
                f"this is not a cursor: {shorten(query.cursor)}", hint="use the cursor that the page before gives"
            ) from None
    filters = {name: getattr(query, name) for name in ("pipeline", "source", "build", "index_hash")}
    conditions = {name: value for name, value in filters.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in conditions) or "1"
    series = connection.execute(f"SELECT id, source FROM series WHERE {where}", conditions).fetchall()  # noqa: S608
    # The positions of each series, newest first; rows are read only as they are consumed.
    newest = (
        "SELECT ts, seq, place FROM failed WHERE metric = ? AND series = ? AND ts >= ? "
        "AND (ts, seq, place) < (?, ?, ?) ORDER BY ts DESC, seq DESC, place DESC"
    )
    metric = _ALL if query.metric is None else query.metric
    by_series: list[Iterator[_Position]] = [
        connection.execute(newest, (metric, series_id, query.since, *before))
        for series_id, source in series
        if not query.sources or source in query.sources
    ]
    matching: list[Failure] = []
    previous: _Position | None = None
    for n_read, position in enumerate(heapq.merge(*by_series, reverse=True)):
        if previous is not None and (len(matching) == limit or n_read == MAX_SCANNED):
            return FailurePage(matching, base64.urlsafe_b64encode(json.dumps(previous).encode()).decode())
        previous, failure = position, _failure(connection, *position[1:])
        if failure is not None and _is_wanted(failure, query):
            matching.append(failure)
    return FailurePage(matching, None)


def _is_wanted(failure: Failure, query: FailureQuery) -> bool:
    facts = failure.facts
    return (
        (not query.where or query.where in facts.get(SLICES, ()))
        and (not query.trait or query.trait in facts.get(TRAITS, ()))
        and (not query.session or query.session == facts.get(SESSION))
        and (failure.trace_id or "").startswith(query.trace)
    )


def _failure(connection: sqlite3.Connection, row: int, line: int) -> Failure | None:
    find = (
        "SELECT ts, pipeline, source, scores, trace_id, build, index_hash, facts "
        "FROM failures JOIN series ON series.id = failures.series WHERE seq = ? AND place = ?"
    )
    found = connection.execute(find, (row, line)).fetchone()
    if found is None:
        return None
    ts, pipeline, source, scores, trace_id, build, index_hash, facts = found
    rest = json.loads(scores), trace_id, build or None, index_hash or None, json.loads(facts)
    return Failure(row, line, ts, pipeline, source, *rest)


class JournalReaderBase:
    """Reads a journal row by row: no result is in memory as a whole, and no reader blocks the writer.

    Every method raises a `JournalError` where the journal cannot be read.
    """

    path: Path
    _connection: sqlite3.Connection

    def rows(self, after: int = 0) -> Iterator[JournalRow]:
        """Rows after a number, in order, with the rows that are written meanwhile."""
        with translate_read_errors(self.path):
            for *values, expected in self._each("seq, arrival, n, counts, lines, sum", "rows", after):
                row = JournalRow._make(values)
                _check(f"row {row.seq}", expected, checksum(*row))
                yield row

    def oldest(self) -> float | None:
        """When the first row arrived, seconds since the epoch; None where there is none."""
        row = self._first("SELECT arrival FROM rows ORDER BY seq LIMIT 1")
        return None if row is None else float(row[0])

    def pending_requests(self) -> Iterator[PendingRequest]:
        """Pending requests, in order."""
        with translate_read_errors(self.path):
            for seq, *values, expected in self._each("seq, arrival, form, body, lowest, waits, sum", "bodies", 0):
                _check(f"request {seq}", expected, checksum(*values))
                yield PendingRequest(seq, *values)

    def quarantined(self) -> Iterator[QuarantinedRequest]:
        """Quarantined requests, in the order in which they were quarantined."""
        with translate_read_errors(self.path):
            columns = "seq, arrival, step, trace_id, form, size, body"
            yield from map(QuarantinedRequest._make, self._each(columns, "quarantined", 0))

    def _first(self, query: str, *values: Any) -> Any:
        with translate_read_errors(self.path):
            return self._connection.execute(query, values).fetchone()

    def _each(self, columns: str, table: str, after: int) -> Iterator[tuple[Any, ...]]:
        select = f"SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT 1"  # noqa: S608 - no user input
        while (row := self._connection.execute(select, (after,)).fetchone()) is not None:
            after = row[0]
            yield row

    def assembled(self, since: float) -> dict[bytes, FinishedTrace]:
        """The traces that were finished from `since` on, seconds since the epoch.

        Erased traces that no server has counted yet are included, however old.
        """
        with translate_read_errors(self.path):
            rows = self._connection.execute(f"{_FINISHED} arrival >= ? OR arrival < 0", (since,))
            return {trace_id: FinishedTrace(*row) for trace_id, *row in rows}

    def finished(self, trace_ids: Iterable[bytes]) -> dict[bytes, FinishedTrace]:
        """The finished traces among some, however long ago."""
        with translate_read_errors(self.path):
            return finished(self._connection, trace_ids)

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that can be read."""
        with translate_read_errors(self.path):
            return self._first_readable("SELECT seq, at, data FROM checkpoints ORDER BY seq DESC")

    def last_checkpoint(self) -> tuple[int, float] | None:
        """The last row that the newest checkpoint includes, and when it was saved, seconds since the epoch."""
        saved: tuple[int, float] | None = self._first("SELECT seq, at FROM checkpoints ORDER BY seq DESC LIMIT 1")
        return saved

    def base(self) -> Checkpoint | None:
        """The checkpoint from which a replay of all rows starts; None if no row was ever deleted."""
        with translate_read_errors(self.path):
            first = self._connection.execute("SELECT seq FROM rows ORDER BY seq LIMIT 1").fetchone()
            if (first[0] if first else self._tail_on_disk().seq + 1) == 1:
                return None
            return self._first_readable("SELECT seq, at, data FROM checkpoints ORDER BY seq")

    def _first_readable(self, query: str) -> Checkpoint | None:
        for seq, at, data in self._connection.execute(query):
            with suppress(zlib.error):
                return Checkpoint(seq, at, zlib.decompress(data))
        return None

    def failures(self, query: FailureQuery) -> FailurePage:
        """One page of the requests that failed a gate, newest first."""
        with translate_read_errors(self.path):
            return failure_page(self._connection, query)

    def newest(self, before: tuple[int, int] | None = None) -> Iterator[tuple[int, int, Record]]:
        """The records before a line of a row, or all: row, line and record, in the reverse order of arrival."""
        row, line = before or (FOREVER, 0)
        select = "SELECT seq, lines FROM rows WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
        while (found := self._first(select, row)) is not None:
            seq, lines = found[0], found[1].split(b"\n")
            for place in reversed(range(min(line, len(lines)) if seq == row else len(lines))):
                with suppress(msgspec.DecodeError):
                    if lines[place] and isinstance(entry := decode_entry(lines[place]), Record):
                        yield seq, place, entry
            row, line = seq - 1, FOREVER

    def failure(self, row: int, line: int) -> Failure | None:
        """The request of a line, if it failed a gate."""
        with translate_read_errors(self.path):
            return _failure(self._connection, row, line)

    def records_of_traces(self, trace_ids: Collection[str]) -> dict[str, Record]:
        """The newest record of each trace."""
        with translate_read_errors(self.path):
            return records_of_traces(self._connection, trace_ids)

    def records_of(self, trace_id: str, limit: int) -> list[Record]:
        """The records of a trace in the order of arrival, the newest ones where there are many."""
        found: list[Record] = []
        with translate_read_errors(self.path):
            for seq, _ in _rows(self._connection, {end} if (end := _end(trace_id)) else set()):
                (lines,) = self._connection.execute("SELECT lines FROM rows WHERE seq = ?", (seq,)).fetchone() or (b"",)
                found = [*_records_in(lines, {trace_id}), *found]
                if len(found) >= limit:
                    break
        return found[-limit:]

    def last(self) -> tuple[int, float]:
        """Number and arrival time of the newest row ever written; zeros before the first one."""
        return self._tail_on_disk()[:2]

    def last_before(self, moment: float) -> int:
        """The number of the last row that arrived before a moment, seconds since the epoch.

        Rows are in order of arrival, so this is a binary search. If none arrived before, the number is that before the
        first row.
        """
        select = "SELECT seq, arrival FROM rows WHERE seq >= ? ORDER BY seq LIMIT 1"
        first_row = self._first(select, 0)
        low, high = (first_row[0] - 1 if first_row else 0), self._tail_on_disk().seq
        while low < high:
            middle = (low + high + 1) // 2
            row = self._first(select, middle)
            if row is not None and row[1] < moment:
                low = row[0]
            else:
                high = middle - 1
        return low

    def _tail_on_disk(self) -> HighWaterMark:
        row = self._first("SELECT seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1")
        row = row or self._first("SELECT seq, arrival, upto FROM tail")
        return HighWaterMark(*row) if row else HighWaterMark()


class JournalReader(JournalReaderBase):
    """Reads the journal of a state folder; used by one thread at a time.

    Each query sees what is on disk at that time. If the server sets a damaged journal aside, the reader stays with the
    damaged file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = journal_file(folder)
        with translate_errors(self.path):
            self._connection = connect(self.path)
            try:
                check_version(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def trace_id_ends(trace_ids: Iterable[str | None]) -> bytes:
    """The ends of trace ids, joined; a value that is not a trace id is skipped.

    >>> trace_id_ends(["0af7651916cd43dd8448eb211c80319c", None, "x"]).hex()
    '8448eb211c80319c'
    """
    return b"".join(end for trace_id in trace_ids if (end := _end(trace_id)))


def _end(trace_id: str | None) -> bytes:
    try:
        id_bytes = bytes.fromhex(trace_id or "")
    except ValueError:
        return b""
    return id_bytes[-WIDTH:] if len(id_bytes) >= WIDTH else b""


def records_of_traces(connection: sqlite3.Connection, trace_ids: Collection[str]) -> dict[str, Record]:
    """The newest record of each trace."""
    ids_by_end: dict[bytes, list[str]] = {}
    for trace_id in trace_ids:
        if end := _end(trace_id):
            ids_by_end.setdefault(end, []).append(trace_id)
    records: dict[str, Record] = {}
    for seq, ends in _rows(connection, set(ids_by_end)):
        (lines,) = connection.execute("SELECT lines FROM rows WHERE seq = ?", (seq,)).fetchone() or (b"",)
        missing = {candidate for end in ends for candidate in ids_by_end[end] if candidate not in records}
        records |= {record.trace_id or "": record for record in _records_in(lines, missing)}
        if len(records) == len(trace_ids):
            break
    return records


def _rows(connection: sqlite3.Connection, ends: set[bytes]) -> Iterator[tuple[int, set[bytes]]]:
    """The rows that may contain one of the trace ids, newest first, each with the id ends it contains."""
    if not ends:
        return
    for seq, blob in connection.execute("SELECT seq, ids FROM traced ORDER BY seq DESC"):
        if len(ends) <= FEW:
            row_ends = {end for end in ends if _contains(blob, end)}
        else:
            row_ends = ends.intersection(blob[start : start + WIDTH] for start in range(0, len(blob), WIDTH))
        if row_ends:
            yield seq, row_ends


def _contains(blob: bytes, end: bytes) -> bool:
    start = blob.find(end)
    while start >= 0 and start % WIDTH:
        start = blob.find(end, start + 1)
    return start >= 0


def _records_in(lines: bytes, trace_ids: AbstractSet[str]) -> Iterator[Record]:
    """All records of some traces in the lines of a row, in order."""
    needles = [b'"trace_id":"%b"' % trace_id.encode() for trace_id in trace_ids] if len(trace_ids) <= FEW else [b""]
    for line in lines.split(b"\n"):
        if any(needle in line for needle in needles):
            with suppress(msgspec.DecodeError):
                record = decode_entry(line)
                if isinstance(record, Record) and record.trace_id in trace_ids:
                    yield record
