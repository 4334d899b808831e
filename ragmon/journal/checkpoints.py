"""Saved states: the newest to start from, and older ones a replay can begin with when rows before them are gone."""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass
from typing import Final

from ragmon.journal.held import Tail

LEVEL: Final = 1
"""How hard states are compressed: they are made often and read seldom."""
_APART: Final = 8
"""Into how many parts the retention is divided by checkpoints."""
_DAY: Final = 86_400.0
_PLACES: Final = "SELECT seq, at, upto FROM checkpoints ORDER BY seq"


@dataclass(frozen=True)
class Limits:
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


def save(connection: sqlite3.Connection, seq: int, at: float, data: bytes, tail: Tail, limits: Limits) -> None:
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


def cut(connection: sqlite3.Connection, before: float, excess: int) -> int:
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
