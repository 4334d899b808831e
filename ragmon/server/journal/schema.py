"""The tables of a journal, and how one of an older ragmon becomes one of this.

Version 1 has three layouts: three builds before the first release wrote it, each with other columns. The layout of
31fab96 has no checksums, that of fa9e83b does not say which traces wait. 7694258 wrote the last one, which every later
version begins with. Both older ones become that one, with nothing lost.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ragmon.core.errors import RagmonError
from ragmon.ingest.fields import Rejected
from ragmon.server.journal.errors import JournalError

TRACE_ID: Final = 16
"""Bytes of a trace's id."""


def checksum(*told: float | str | bytes) -> int:
    """A checksum of what is written together.

    >>> checksum(1, 2.0, b"lines") == checksum(1, 2.0, b"lined")
    False
    """
    found = 0
    for value in told:
        found = zlib.crc32(value if isinstance(value, bytes) else f"{value} ".encode(), found)
    return found


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
    complete(connection, lambda table: _create(connection, table))
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


_PREFIX: Final = 5
"""Bytes of a key before what is unique in it; that of a foreign trace's record is the trace's id."""
_OLD: Final = "old_"
_NO_NAMES: Final = [0.0, 0.0, []]
"""No names of records were looked at lately: what is remembered of them only saves time."""

Create = Callable[[str], None]
"""Makes a table of the last layout, and its indexes, by its name."""


def complete(connection: sqlite3.Connection, create: Create) -> None:
    """Bring a journal of version 1 to the layout all later versions begin with, inside a transaction.

    Args:
        connection: The journal.
        create: Makes a table.

    Raises:
        sqlite3.Error: It cannot be read or written.
        ValueError: What it holds is no journal's.
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
        _saved(connection)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _replace(connection: sqlite3.Connection, create: Create, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Make a table anew; the rows are read from the old one, which is called `old_...` by then."""
    connection.execute(f"ALTER TABLE {table} RENAME TO {_OLD}{table}")
    create(table)
    for row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - ours
    connection.execute(f"DROP TABLE {_OLD}{table}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for seq, arrival, n, upto, told, lines in connection.execute(
        "SELECT seq, arrival, n, upto, counts, lines FROM old_rows ORDER BY seq"
    ):
        books = msgspec.json.decode(told)
        counts = msgspec.json.encode(books) if _add_up(books) else told
        yield seq, arrival, n, upto, checksum(seq, arrival, n, counts, lines), counts, lines


def _add_up(counts: dict[str, Any]) -> bool:
    """Whole records were counted by pipeline once; returns whether they were."""
    own = counts.get("own")
    if not isinstance(own, dict):
        return False
    counts["own"] = sum(own.values())
    return True


def _saved(connection: sqlite3.Connection) -> None:
    """The same in saved states, and what they did not say of names; one that cannot be read is passed over, as ever."""
    for seq, data in connection.execute("SELECT seq, data FROM checkpoints").fetchall():
        try:
            state = msgspec.json.decode(zlib.decompress(data))
        except (zlib.error, msgspec.DecodeError):
            continue
        _add_up(state["counts"])
        state["live"]["admission"].setdefault("fresh", _NO_NAMES)
        told = zlib.compress(msgspec.json.encode(state), 1)
        connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (told, seq))


def _bodies(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    done = "SELECT 1 FROM assembled WHERE trace_id = ?"
    lowest = "lowest" if "lowest" in _columns(connection, "old_bodies") else "0"
    query = f"SELECT seq, arrival, form, {lowest}, body FROM old_bodies ORDER BY seq"  # noqa: S608 - ours
    for seq, arrival, form, least, body in connection.execute(query):
        there = (one for one in _foreign(form, body) if _draw(one) >= least)
        waits = b"".join(one for one in sorted(there) if not connection.execute(done, (one,)).fetchone())
        yield seq, arrival, form, least, checksum(arrival, form, body, least, waits), waits, body


def _foreign(form: str, body: bytes) -> set[bytes]:
    """The traces of a request whose spans may wait; none of one that cannot be read any more."""
    from ragmon.ingest.otlp.request import read  # noqa: PLC0415 - heavy, and needed once in a journal's life

    try:
        return {one.trace_id for one in read(body, json=form == "json").foreign}
    except Rejected:
        return set()


def _draw(trace_id: bytes) -> int:
    from ragmon.capture.call import SPAN  # noqa: PLC0415 - as above

    return int.from_bytes(trace_id, "big") % SPAN


def _assembled(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Traces that are done; those that became records have a key."""
    recorded = {key[_PREFIX:] for key in _keys(connection) if len(key) == _PREFIX + TRACE_ID}
    for trace_id, arrival in connection.execute("SELECT trace_id, arrival FROM old_assembled"):
        yield trace_id, arrival, trace_id in recorded


def _keys(connection: sqlite3.Connection) -> Iterator[bytes]:
    for (blob,) in connection.execute("SELECT keys FROM claims"):
        yield from msgspec.msgpack.decode(blob, type=list[bytes])
    for (key,) in connection.execute("SELECT key FROM keys"):
        yield key
