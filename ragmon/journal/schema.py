"""The tables of a journal, and how one of an older ragmon becomes one of this."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ragmon.core.errors import RagmonError
from ragmon.journal import layouts
from ragmon.journal.faults import JournalError

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
    layouts.complete(connection, lambda table: _create(connection, table))
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


def version(connection: sqlite3.Connection, path: Path) -> int:
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
    found = version(connection, path)
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
