"""What has had its time is deleted, a little at once, so that nobody who waits for the disk waits for this."""

from __future__ import annotations

import sqlite3
from math import inf
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
_SPARE: Final = 8
"""The part of the file that may be free: new rows take those pages."""
_FEW: Final = 64


def expire(connection: sqlite3.Connection, keys: Keys, limits: Limits, excess: int, now: float | None) -> bool:
    """Delete some of what has had its time, inside a transaction.

    Args:
        connection: The journal.
        keys: Its keys.
        limits: How much it holds.
        excess: Bytes by which it is too large.
        now: Seconds since the epoch; None: nothing is deleted for its age.

    Returns:
        Whether there was any: then there may be more.
    """
    before = -inf if now is None else now - limits.retention
    if _rows(connection, checkpoints.cut(connection, before, excess), at_once(limits.size)):
        return True
    return now is not None and (
        keys.expire(int((now - limits.keys) // STEP))
        or _old(connection, "assembled", "trace_id", now - limits.assembled)
        or _old(connection, "bodies", "seq", before)
        or _old(connection, "quarantined", "seq", before)
    )


def at_once(size: int) -> int:
    """Bytes deleted, or given back, in one transaction: what is deleted goes through the log, overwritten."""
    return min(_AT_ONCE, store.log_of(size))


def _rows(connection: sqlite3.Connection, last: int, most: int) -> bool:
    """Delete the oldest rows up to one, in bytes of lines as many as are deleted at once, and what belongs to them."""
    # First: what cannot be replayed from any more must not be there when rows are gone.
    connection.execute("DELETE FROM checkpoints WHERE seq < ?", (last,))
    oldest = connection.execute("SELECT seq, upto FROM rows WHERE seq <= ? ORDER BY seq LIMIT 1", (last,)).fetchone()
    if oldest is None:
        return False
    some = f"SELECT seq FROM rows WHERE seq <= ? AND upto < ? ORDER BY seq LIMIT {_ROWS}"  # noqa: S608 - ours
    found = connection.execute(some, (last, oldest[1] + most)).fetchall()
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


def shrink(connection: sqlite3.Connection, size: int) -> bool:
    """Give some free pages back, outside a transaction; returns whether there were too many.

    Args:
        connection: The journal.
        size: Bytes it may have.
    """
    free, there = store.free_pages(connection), store.pages(connection)
    if free < _FEW or (free * _SPARE < there and there * store.PAGE <= size):
        return False
    freed = at_once(size) // store.PAGE
    # A script, because it goes on until it is done; a single statement gives one page back.
    connection.executescript(f"PRAGMA incremental_vacuum({freed})")
    if free <= freed:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return True
