"""Saved states: the newest to start from, and older ones a replay can begin with when rows before them are gone.

What has had its time is deleted, a little at once, so that nobody who waits for the disk waits for this.
"""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass
from math import inf
from typing import Final

from ragmon.server.journal import failures, store
from ragmon.server.journal.keys import Keys
from ragmon.server.journal.reader import HighWaterMark

LEVEL: Final = 1
"""How hard states are compressed: they are made often and read seldom."""
_APART: Final = 8
"""Into how many parts the retention is divided by checkpoints."""
_DAY: Final = 86_400.0
_PLACES: Final = "SELECT seq, at, upto FROM checkpoints ORDER BY seq"


@dataclass(frozen=True)
class RetentionLimits:
    """How much a journal holds.

    Args:
        retention: Seconds after which rows are deleted.
        size: Bytes beyond which the oldest rows are deleted sooner.
        keys: Seconds of event time within which a record that came twice is recognised.
        assembled: Seconds after which a span of a trace that became a record begins a new one.
    """

    retention: float = 7 * _DAY
    size: int = 5 << 30
    keys: float = _DAY + 600
    assembled: float = _DAY + 600


def save(
    connection: sqlite3.Connection, seq: int, at: float, data: bytes, tail: HighWaterMark, limits: RetentionLimits
) -> None:
    """Save a state inside a transaction, and drop those that are neither the newest nor needed to begin with.

    Args:
        connection: The journal.
        seq: The last row the state knows of.
        at: When it came or later, seconds since the epoch.
        data: The state.
        tail: The newest row.
        limits: How much the journal holds.
    """
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (seq, at, tail.upto, zlib.compress(data, LEVEL))
    )
    found = connection.execute(_PLACES).fetchall()
    kept = found[0]
    for each in found[1:-1]:
        if each[1] - kept[1] >= limits.retention / _APART or each[2] - kept[2] >= limits.size / _APART:
            kept = each
        else:
            connection.execute("DELETE FROM checkpoints WHERE seq = ?", (each[0],))


def deletable_checkpoint(connection: sqlite3.Connection, before: float, excess: int) -> int:
    """The checkpoint up to which rows are to be deleted; 0 for none.

    Args:
        connection: The journal.
        before: Rows that came before, seconds since the epoch, have had their time.
        excess: Bytes by which the journal is too large.

    Returns:
        The number of a row, that of a checkpoint: what is left can be replayed from it.
    """
    found: list[tuple[int, float, int]] = connection.execute(_PLACES).fetchall()
    old = max((seq for seq, at, _ in found if at < before), default=0)
    first = connection.execute("SELECT upto - length(lines) FROM rows ORDER BY seq LIMIT 1").fetchone()
    if excess <= 0 or not found or first is None:
        return old
    far_enough = (seq for seq, _, upto in found if upto - first[0] >= excess)
    return max(old, next(far_enough, found[-1][0]))


STEP: Final = 10.0
"""Seconds of event time in a step of keys."""
_AT_ONCE: Final = 4 << 20
"""Bytes of lines deleted in one transaction, if it is more than one row."""
_ROWS: Final = 1024
_OTHERS: Final = 4096
_SPARE: Final = 8
"""The part of the file that may be free: new rows take those pages."""
_FEW: Final = 64


def expire(connection: sqlite3.Connection, keys: Keys, limits: RetentionLimits, excess: int, now: float | None) -> bool:
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
    if _rows(connection, deletable_checkpoint(connection, before, excess), bytes_per_transaction(limits.size)):
        return True
    return now is not None and (
        keys.expire(int((now - limits.keys) // STEP))
        or _old(connection, "assembled", "trace_id", now - limits.assembled)
        or _old(connection, "bodies", "seq", before)
        or _old(connection, "quarantined", "seq", before)
    )


def bytes_per_transaction(size: int) -> int:
    """Bytes deleted, or given back, in one transaction: what is deleted goes through the log, overwritten."""
    return min(_AT_ONCE, store.wal_limit(size))


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
    freed = bytes_per_transaction(size) // store.PAGE
    # A script, because it goes on until it is done; a single statement gives one page back.
    connection.executescript(f"PRAGMA incremental_vacuum({freed})")
    if free <= freed:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return True
