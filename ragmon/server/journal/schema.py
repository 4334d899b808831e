"""The tables of a journal, and the migrations of a journal written by an older ragmon.

Version 1 has three layouts, written by three builds before the first release. The layout of 31fab96 has no checksums,
and that of fa9e83b does not record which traces wait. 7694258 wrote the third layout, on which all later versions are
based. A journal of one of the two older layouts is converted to the third without loss.

The checkpoints in a journal have versions of their own; one of version 1 is converted when it is read
(`upgrade_checkpoint`).
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ragmon.core.errors import RagmonError
from ragmon.ingest.fields import Rejected
from ragmon.server.journal.store import JournalError

TRACE_ID: Final = 16
"""Bytes of a trace id."""


def checksum(*told: float | str | bytes) -> int:
    """A CRC-32 checksum of values that are written together.

    >>> checksum(1, 2.0, b"lines") == checksum(1, 2.0, b"lined")
    False
    """
    crc = 0
    for value in told:
        crc = zlib.crc32(value if isinstance(value, bytes) else f"{value} ".encode(), crc)
    return crc


_SCHEMA_1: Final = """
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


def _migrate_to_1(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA_1.split(";"):
        connection.execute(statement)


def _create(connection: sqlite3.Connection, table: str) -> None:
    """Create one table of version 1, and its indexes."""
    for statement in _SCHEMA_1.split(";"):
        if f"CREATE TABLE {table} (" in statement or f" ON {table} (" in statement:
            connection.execute(statement)


def _migrate_to_2(connection: sqlite3.Connection) -> None:
    """Add the index of trace ids, by which labels find their records; existing rows are not indexed."""
    convert_version_1(connection, lambda table: _create(connection, table))
    connection.execute("CREATE TABLE traced (seq INTEGER PRIMARY KEY, ids BLOB NOT NULL)")


def _migrate_to_3(connection: sqlite3.Connection) -> None:
    """Add the list of erased traces, which the server reads: it holds the labels of these traces in memory."""
    connection.execute("CREATE TABLE forgotten (trace_id TEXT PRIMARY KEY) WITHOUT ROWID")


def _migrate_to_4(connection: sqlite3.Connection) -> None:
    """Add the quarantine of requests that ended the process twice; a sequence number is never used again."""
    connection.execute(
        "CREATE TABLE quarantined (seq INTEGER PRIMARY KEY AUTOINCREMENT, arrival REAL NOT NULL, step TEXT NOT NULL,"
        " trace_id TEXT NOT NULL, form TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL)"
    )


def _migrate_to_5(connection: sqlite3.Connection) -> None:
    """Add the traces that are not taken again from chunks, in lower case; those that are due are still to be erased."""
    connection.execute("CREATE TABLE erased (trace_id TEXT PRIMARY KEY, due INTEGER NOT NULL) WITHOUT ROWID")


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [
    _migrate_to_1,
    _migrate_to_2,
    _migrate_to_3,
    _migrate_to_4,
    _migrate_to_5,
]
"""The function at index n migrates a journal from version n to version n + 1. Existing entries are never changed."""


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a journal; 0 for an empty file.

    Raises:
        JournalError: The two places that hold the version differ, so the file is damaged.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not version:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    if row is None or row[0] != version:
        raise JournalError("corrupt", path, "its version is not known")
    return version


def check(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a journal; an error if this ragmon cannot read it.

    Raises:
        RagmonError: A newer ragmon wrote it.
        JournalError: It is damaged.
    """
    version = schema_version(connection, path)
    if version > len(MIGRATIONS):
        raise RagmonError(
            f"{path} is of version {version}, and this ragmon knows versions up to {len(MIGRATIONS)}",
            hint="a newer ragmon wrote it: use that one, or another `state_dir`",
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate a journal to the schema version of this ragmon, in one transaction.

    Raises:
        RagmonError: A newer ragmon wrote it.
        JournalError: It is damaged.
    """
    version, newest = check(connection, path), len(MIGRATIONS)
    if version == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[version:]:
            migration(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (newest,))
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def log_id(connection: sqlite3.Connection, known: str = "") -> str:
    """What tells the row numbers of a journal from those of another one; it is made up at the first call.

    Args:
        connection: The journal.
        known: What it was before, where a new file continues the numbers of a damaged one.
    """
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('log', ?)", (known or secrets.token_hex(8),))
    return str(connection.execute("SELECT value FROM meta WHERE name = 'log'").fetchone()[0])


_PREFIX: Final = 5
"""Bytes of a key before its unique part; for a record assembled from a third-party trace, that part is the trace id."""
_OLD_PREFIX: Final = "old_"
_NO_NAMES: Final = [0.0, 0.0, []]
"""The value of an empty cache of record names; losing the cached names costs only time."""

Create = Callable[[str], None]
"""Creates a table of the third layout, and its indexes, by its name."""


def convert_version_1(connection: sqlite3.Connection, create: Create) -> None:
    """Convert a journal of version 1 to the third layout, inside a transaction.

    Args:
        connection: The journal.
        create: Creates a table.

    Raises:
        sqlite3.Error: The journal cannot be read or written.
        ValueError: Its content is not that of a journal.
    """
    if "sum" not in _columns(connection, "rows"):
        _replace(connection, create, "rows", _rows(connection))
    if "recorded" not in _columns(connection, "assembled"):
        (last,) = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'bodies'").fetchone() or (0,)
        _replace(connection, create, "bodies", _bodies(connection))
        connection.execute("DELETE FROM sqlite_sequence WHERE name IN ('bodies', 'old_bodies')")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('bodies', ?)", (last,))
        connection.execute("DROP INDEX assembled_arrival")
        _replace(connection, create, "assembled", _assembled(connection))
        _convert_checkpoints(connection)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _replace(connection: sqlite3.Connection, create: Create, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Replace a table; `rows` reads the old table, which is renamed to `old_...` before."""
    connection.execute(f"ALTER TABLE {table} RENAME TO {_OLD_PREFIX}{table}")
    create(table)
    for row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - no user input
    connection.execute(f"DROP TABLE {_OLD_PREFIX}{table}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for seq, arrival, n, upto, encoded, lines in connection.execute(
        "SELECT seq, arrival, n, upto, counts, lines FROM old_rows ORDER BY seq"
    ):
        counters = msgspec.json.decode(encoded)
        counts = msgspec.json.encode(counters) if _sum_native_counts(counters) else encoded
        yield seq, arrival, n, upto, checksum(seq, arrival, n, counts, lines), counts, lines


def _sum_native_counts(counts: dict[str, Any]) -> bool:
    """Replace counts of native records per pipeline, as older builds wrote them, by their sum; returns if it did."""
    own = counts.get("own")
    if not isinstance(own, dict):
        return False
    counts["own"] = sum(own.values())
    return True


def _convert_checkpoints(connection: sqlite3.Connection) -> None:
    """Convert the counters in checkpoints, and add an empty name cache; a checkpoint that cannot be read is skipped."""
    for seq, data in connection.execute("SELECT seq, data FROM checkpoints").fetchall():
        try:
            state = msgspec.json.decode(zlib.decompress(data))
        except (zlib.error, msgspec.DecodeError):
            continue
        _sum_native_counts(state["counts"])
        state["live"]["admission"].setdefault("fresh", _NO_NAMES)
        encoded = zlib.compress(msgspec.json.encode(state), 1)
        connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (encoded, seq))


def _bodies(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    select_done = "SELECT 1 FROM assembled WHERE trace_id = ?"
    lowest = "lowest" if "lowest" in _columns(connection, "old_bodies") else "0"
    query = f"SELECT seq, arrival, form, {lowest}, body FROM old_bodies ORDER BY seq"  # noqa: S608 - no user input
    for seq, arrival, form, threshold, body in connection.execute(query):
        kept = (trace_id for trace_id in _waiting_traces(form, body) if _sampling_draw(trace_id) >= threshold)
        waits = b"".join(
            trace_id for trace_id in sorted(kept) if not connection.execute(select_done, (trace_id,)).fetchone()
        )
        yield seq, arrival, form, threshold, checksum(arrival, form, body, threshold, waits), waits, body


def _waiting_traces(encoding: str, body: bytes) -> set[bytes]:
    """The ids of the third-party traces in a request, whose spans may wait; none if it cannot be read any more."""
    from ragmon.ingest.otlp.protobuf import read  # noqa: PLC0415 - a heavy import, needed once for a journal

    try:
        return {span.trace_id for span in read(body, json=encoding == "json").external}
    except Rejected:
        return set()


def _sampling_draw(trace_id: bytes) -> int:
    from ragmon.capture.call import SPAN  # noqa: PLC0415 - as above

    return int.from_bytes(trace_id, "big") % SPAN


def _assembled(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The finished traces; a trace that became a record has a deduplication key."""
    recorded = {key[_PREFIX:] for key in _keys(connection) if len(key) == _PREFIX + TRACE_ID}
    for trace_id, arrival in connection.execute("SELECT trace_id, arrival FROM old_assembled"):
        yield trace_id, arrival, trace_id in recorded


def _keys(connection: sqlite3.Connection) -> Iterator[bytes]:
    for (blob,) in connection.execute("SELECT keys FROM claims"):
        yield from msgspec.msgpack.decode(blob, type=list[bytes])
    for (key,) in connection.execute("SELECT key FROM keys"):
        yield key


CHECKPOINT: Final = 3
"""The version of the checkpoints that this ragmon writes: `ragmon.server.pipeline.state.SavedServerState`. One of
version 2 has the calls of producers in a form that is still read, and no chunks."""


class _CheckpointVersion(msgspec.Struct):
    v: int
    facts: int = 1
    digest: int = 1


_decode_version: Final = msgspec.msgpack.Decoder(_CheckpointVersion).decode


def counts_alike(data: bytes, facts: int, digest: int) -> bool:
    """Whether a checkpoint has counts as they are made today, as far as can be told before it is read.

    Args:
        data: The checkpoint.
        facts: The version of the facts.
        digest: The version of the digest: an older checkpoint does not know that of rows whose time is over.
    """
    try:
        header = _decode_version(data)
    except msgspec.MsgspecError:
        return True
    return (header.facts, header.digest) == (facts, digest) or header.v > CHECKPOINT


def upgrade_checkpoint(data: bytes) -> bytes:
    """A checkpoint of the newest version.

    Raises:
        ValueError: It is damaged, or has a later version.
    """
    version = _decode_version(data).v
    if version != CHECKPOINT:
        raise ValueError(f"a checkpoint of version {version}")
    return data
