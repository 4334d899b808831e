"""The tables of a journal, and its version."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Final

from ragmon.core.errors import RagmonError
from ragmon.server.journal.store import JournalError

VERSION: Final = 1
"""The version of the tables."""
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


def check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a file holds a journal of this version; not if it is empty.

    Raises:
        RagmonError: It holds a journal of another version.
        JournalError: The two places that hold the version differ, so the file is damaged.
    """
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


def create(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a file that is empty, in one transaction.

    Raises:
        RagmonError: It holds a journal of another version.
        JournalError: It is damaged.
    """
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
