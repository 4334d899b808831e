"""What has had its time is deleted, a little at once, so that nobody who waits for the disk waits for this."""

from __future__ import annotations

import sqlite3
from typing import Final

from ragmon.journal import checkpoints, failures, store
from ragmon.journal.checkpoints import Limits
from ragmon.journal.keys import Keys

STEP: Final = 10.0
"""Seconds of event time in a step of keys."""
_AT_ONCE: Final = 4 << 20
"""Bytes of lines deleted in one transaction, if it is more than one row."""
_ROWS: Final = 1024
_OTHERS: Final = 4096
_FREED: Final = 1024
"""Pages given back at once."""
_SPARE: Final = 8
"""The part of the file that may be free: new rows take those pages."""
_FEW: Final = 64


def expire(connection: sqlite3.Connection, keys: Keys, limits: Limits, now: float) -> bool:
    """Delete some of what has had its time, inside a transaction.

    Args:
        connection: The journal.
        keys: Its keys.
        limits: How much it holds.
        now: Seconds since the epoch.

    Returns:
        Whether there was any: then there may be more.
    """
    before = now - limits.retention
    excess = store.used(connection) - limits.size
    return (
        _rows(connection, checkpoints.cut(connection, before, excess))
        or keys.expire(int((now - limits.keys) // STEP))
        or _old(connection, "assembled", "trace_id", now - limits.assembled)
        or _old(connection, "bodies", "seq", before)
        or _old(connection, "quarantined", "seq", before)
    )


def _rows(connection: sqlite3.Connection, last: int) -> bool:
    """Delete the oldest rows up to one, as many as are deleted at once, and what belongs to them."""
    # First: what cannot be replayed from any more must not be there when rows are gone.
    connection.execute("DELETE FROM checkpoints WHERE seq < ?", (last,))
    oldest = connection.execute("SELECT seq, upto FROM rows WHERE seq <= ? ORDER BY seq LIMIT 1", (last,)).fetchone()
    if oldest is None:
        return False
    some = f"SELECT seq FROM rows WHERE seq <= ? AND upto < ? ORDER BY seq LIMIT {_ROWS}"  # noqa: S608 - ours
    found = connection.execute(some, (last, oldest[1] + _AT_ONCE)).fetchall()
    (upto,) = found[-1] if found else (oldest[0],)
    newest = "SELECT 1, seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1"
    connection.execute(f"INSERT OR REPLACE INTO tail {newest}")
    connection.execute("DELETE FROM rows WHERE seq <= ?", (upto,))
    connection.execute("DELETE FROM traced WHERE seq <= ?", (upto,))
    failures.delete(connection, "seq <= ?", upto)
    failures.delete_series(connection)
    return True


def _old(connection: sqlite3.Connection, table: str, key: str, before: float) -> bool:
    some = f"SELECT {key} FROM {table} WHERE arrival >= 0 AND arrival < ? LIMIT {_OTHERS}"  # noqa: S608 - ours
    return connection.execute(f"DELETE FROM {table} WHERE {key} IN ({some})", (before,)).rowcount > 0  # noqa: S608


def shrink(connection: sqlite3.Connection) -> bool:
    """Give some free pages back, outside a transaction; returns whether there were too many."""
    free = store.free_pages(connection)
    if free < _FEW or free * _SPARE < store.pages(connection):
        return False
    # A script, because it goes on until it is done; a single statement gives one page back.
    connection.executescript(f"PRAGMA incremental_vacuum({_FREED})")
    if free <= _FREED:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return True
