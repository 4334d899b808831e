"""Requests nobody works on any more: twice the process ended or froze while it did. They are kept to be looked at."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

MOST: Final = 100
"""Requests that are kept; of more the oldest go, which stay counted."""
LARGEST: Final = 16 << 20
"""Bytes of all that is kept; what is larger by itself is kept without its content."""
ASSEMBLING: Final = "assembling"
SCORING: Final = "scoring"
READING: Final = "reading"
"""What was done with a request when the process ended."""


class Quarantined(NamedTuple):
    """A request that is set aside.

    Attributes:
        seq: Its number among them.
        arrival: When it came, seconds since the epoch.
        step: What was done with it: `assembling`, `scoring` or `reading`.
        trace_id: Its trace, 32 hex digits; "" where there is none.
        form: How it is written: `protobuf` or `json` for spans, `record` for a line of the journal.
        size: Its bytes.
        body: The spans or the line; empty where it is too large to be kept.
    """

    seq: int
    arrival: float
    step: str
    trace_id: str
    form: str
    size: int
    body: bytes


def add(connection: sqlite3.Connection, arrival: float, step: str, trace_id: str, form: str, body: bytes) -> None:
    """Keep a request, inside a transaction; the oldest go where there are too many.

    Args:
        connection: The journal.
        arrival: When it came, seconds since the epoch.
        step: What was done with it.
        trace_id: Its trace, 32 hex digits; "" where there is none.
        form: How it is written.
        body: The request.
    """
    kept = body if len(body) <= LARGEST else b""
    add_one = "INSERT INTO quarantined (arrival, step, trace_id, form, size, body) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(add_one, (arrival, step, trace_id, form, len(body), kept))
    total = 0
    sizes = connection.execute("SELECT seq, length(body) FROM quarantined ORDER BY seq DESC").fetchall()
    for place, (seq, size) in enumerate(sizes):
        total += size
        if place >= MOST or total > LARGEST:
            connection.execute("DELETE FROM quarantined WHERE seq <= ?", (seq,))
            return


def count(connection: sqlite3.Connection) -> int:
    """How many are kept."""
    return int(connection.execute("SELECT count(*) FROM quarantined").fetchone()[0])
