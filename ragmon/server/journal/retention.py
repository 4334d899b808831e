"""Checkpoints and retention.

The newest checkpoint is for the next start. Older ones are kept so that a replay can start from them when the rows
before them are deleted. Expired data is deleted in small transactions, so that requests do not wait long for the disk.
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
"""The compression level of checkpoints: low, as they are written often and read seldom."""
_CHECKPOINTS: Final = 8
"""Checkpoints divide the retention into so many parts."""
_DAY: Final = 86_400.0
_SELECT_CHECKPOINTS: Final = "SELECT seq, at, upto FROM checkpoints ORDER BY seq"


@dataclass(frozen=True)
class RetentionLimits:
    """How much data a journal keeps, and for how long.

    Args:
        retention: Seconds after which rows are deleted.
        size: Bytes beyond which the oldest rows are deleted earlier.
        keys: Seconds of event time within which a duplicate record is recognised.
        assembled: Seconds for which an assembled trace is remembered; a later span of it starts a new trace.
    """

    retention: float = 7 * _DAY
    size: int = 5 << 30
    keys: float = _DAY + 600
    assembled: float = _DAY + 600


def save(
    connection: sqlite3.Connection, seq: int, at: float, data: bytes, tail: HighWaterMark, limits: RetentionLimits
) -> None:
    """Save a checkpoint inside a transaction, and delete those that are neither the newest nor needed for a replay.

    Args:
        connection: The journal.
        seq: The last row the checkpoint includes.
        at: The arrival time of that row or later, seconds since the epoch.
        data: The encoded state.
        tail: The newest row.
        limits: The retention limits.
    """
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (seq, at, tail.upto, zlib.compress(data, LEVEL))
    )
    checkpoints = connection.execute(_SELECT_CHECKPOINTS).fetchall()
    kept = checkpoints[0]
    for checkpoint in checkpoints[1:-1]:
        if (
            checkpoint[1] - kept[1] >= limits.retention / _CHECKPOINTS
            or checkpoint[2] - kept[2] >= limits.size / _CHECKPOINTS
        ):
            kept = checkpoint
        else:
            connection.execute("DELETE FROM checkpoints WHERE seq = ?", (checkpoint[0],))


def deletable_checkpoint(connection: sqlite3.Connection, before: float, excess: int) -> int:
    """The checkpoint up to which rows are to be deleted; 0 for none.

    Args:
        connection: The journal.
        before: Rows that arrived before this time, seconds since the epoch, are expired.
        excess: Bytes by which the journal is too large.

    Returns:
        The number of the last row of a checkpoint: the remaining rows can be replayed from it.
    """
    checkpoints: list[tuple[int, float, int]] = connection.execute(_SELECT_CHECKPOINTS).fetchall()
    expired = max((seq for seq, at, _ in checkpoints if at < before), default=0)
    first = connection.execute("SELECT upto - length(lines) FROM rows ORDER BY seq LIMIT 1").fetchone()
    if excess <= 0 or not checkpoints or first is None:
        return expired
    far_enough = (seq for seq, _, upto in checkpoints if upto - first[0] >= excess)
    return max(expired, next(far_enough, checkpoints[-1][0]))


STEP: Final = 10.0
"""Seconds of event time in a time step of the deduplication keys."""
_AT_ONCE: Final = 4 << 20
"""Bytes of lines deleted in one transaction; a single row may have more."""
_MAX_ROWS: Final = 1024
_MAX_OTHER_ROWS: Final = 4096
_FREE_SHARE: Final = 8
"""One in so many pages of the file may be free: new rows use those pages."""
_MIN_FREE: Final = 64


def expire(connection: sqlite3.Connection, keys: Keys, limits: RetentionLimits, excess: int, now: float | None) -> bool:
    """Delete some expired data, inside a transaction.

    Args:
        connection: The journal.
        keys: Its deduplication keys.
        limits: The retention limits.
        excess: Bytes by which the journal is too large.
        now: Seconds since the epoch; None: nothing is deleted for its age.

    Returns:
        Whether anything was deleted: then there may be more.
    """
    before = -inf if now is None else now - limits.retention
    if _delete_rows(connection, deletable_checkpoint(connection, before, excess), bytes_per_transaction(limits.size)):
        return True
    return now is not None and (
        keys.expire(int((now - limits.keys) // STEP))
        or _delete_older(connection, "assembled", "trace_id", now - limits.assembled)
        or _delete_older(connection, "bodies", "seq", before)
        or _delete_older(connection, "quarantined", "seq", before)
    )


def bytes_per_transaction(size: int) -> int:
    """Bytes deleted or freed in one transaction; deleted pages are overwritten through the write-ahead log."""
    return min(_AT_ONCE, store.wal_limit(size))


def _delete_rows(connection: sqlite3.Connection, last: int, most: int) -> bool:
    """Delete the oldest rows up to row `last`, about `most` bytes of lines, with their index entries and failures."""
    # First: a checkpoint must not remain when rows after it are deleted, as no replay can start from it.
    connection.execute("DELETE FROM checkpoints WHERE seq < ?", (last,))
    oldest = connection.execute("SELECT seq, upto FROM rows WHERE seq <= ? ORDER BY seq LIMIT 1", (last,)).fetchone()
    if oldest is None:
        return False
    select = f"SELECT seq FROM rows WHERE seq <= ? AND upto < ? ORDER BY seq LIMIT {_MAX_ROWS}"  # noqa: S608 - no user input
    rows = connection.execute(select, (last, oldest[1] + most)).fetchall()
    (upto,) = rows[-1] if rows else (oldest[0],)
    newest = "SELECT 1, seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1"
    connection.execute(f"INSERT OR REPLACE INTO tail {newest}")
    connection.execute("DELETE FROM rows WHERE seq <= ?", (upto,))
    connection.execute("DELETE FROM traced WHERE seq <= ?", (upto,))
    failures.delete(connection, "seq <= ?", upto)
    failures.delete_series(connection)
    return True


def _delete_older(connection: sqlite3.Connection, table: str, key: str, before: float) -> bool:
    old = f"SELECT {key} FROM {table} WHERE arrival >= 0 AND arrival < ? LIMIT {_MAX_OTHER_ROWS}"  # noqa: S608 - no user input
    return connection.execute(f"DELETE FROM {table} WHERE {key} IN ({old})", (before,)).rowcount > 0  # noqa: S608


def shrink(connection: sqlite3.Connection, size: int) -> bool:
    """Return some free pages to the file system, outside a transaction; returns whether there were too many.

    Args:
        connection: The journal.
        size: The limit of the journal in bytes.
    """
    free, total = store.free_pages(connection), store.pages(connection)
    if free < _MIN_FREE or (free * _FREE_SHARE < total and total * store.PAGE <= size):
        return False
    limit = bytes_per_transaction(size) // store.PAGE
    # executescript, because it steps the statement to its end; execute would free a single page.
    connection.executescript(f"PRAGMA incremental_vacuum({limit})")
    if free <= limit:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return True
