"""The rows of a journal, each read once: none is missing, each holds what it held when it was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from ragmon.core.record import LABEL_ENTRY, RECORD_ENTRY, Forgotten
from ragmon.server.journal import JournalError
from ragmon.server.journal.reader import Readable, Row
from ragmon.server.pipeline.decode import Counts
from ragmon.server.pipeline.recovery import entries

NAMED: Final = 10
"""Faults that are named; the others are counted."""


@dataclass
class Rows:
    """What was found in a journal's rows.

    Attributes:
        count: How many rows there are.
        first, last: Numbers of the first and the last one; 0 where there is none.
        arrival: When the last one came, seconds since the epoch.
        lines: Lines in them.
        forgotten: Records that somebody had forgotten.
        labels: Labels that somebody had forgotten.
        wrong: What is not as it should be.
    """

    count: int = 0
    first: int = 0
    last: int = 0
    arrival: float = 0.0
    lines: int = 0
    forgotten: int = 0
    labels: int = 0
    wrong: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        """The first faults, and how many more there are."""
        more = len(self.wrong) - NAMED
        return self.wrong[:NAMED] + ([f"{more} more rows are not as they should be"] if more > 0 else [])


def look(journal: Readable) -> Rows:
    """Read every row, up to one that is damaged.

    Args:
        journal: The journal, which must not change meanwhile.

    Raises:
        JournalError: It cannot be reached.
    """
    found = Rows()
    try:
        for row in journal.rows():
            _take(row, found)
        _begins(journal, found)
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        found.wrong.append(f"after row {found.last}: {error}")
    return found


def _take(row: Row, found: Rows) -> None:
    if not found.count:
        found.first = row.seq
    elif row.seq > found.last + 1:
        found.wrong.append(f"{_rows(found.last + 1, row.seq - 1)} missing")
    if row.arrival < found.arrival:
        found.wrong.append(f"row {row.seq} came before row {found.last}")
    found.count, found.last, found.arrival = found.count + 1, row.seq, row.arrival
    _read(row, found)


def _read(row: Row, found: Rows) -> None:
    try:
        Counts.load(row.counts)
        held = entries(row.lines)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found.wrong.append(f"row {row.seq} cannot be read")
        return
    if len(held) != row.n:
        found.wrong.append(f"row {row.seq} held {row.n} lines and holds {len(held)}")
    found.lines += len(held)
    gone = [entry.was for entry in held if isinstance(entry, Forgotten)]
    found.labels += gone.count(LABEL_ENTRY)
    found.forgotten += gone.count(RECORD_ENTRY)


def _begins(journal: Readable, found: Rows) -> None:
    """Rows before the first one are gone: a checkpoint must say what they said.

    A journal that was begun anew where a damaged one was set aside has one of row 0, and goes on with the old numbers.
    """
    base = journal.base()
    last = journal.last()[0]
    if base is None:
        if found.first > 1 or (last and not found.count):
            found.wrong.append(f"{_rows(1, (found.first or last + 1) - 1)} gone, and no checkpoint says what they said")
    elif base.seq and found.first > base.seq + 1:
        found.wrong.append(f"{_rows(base.seq + 1, found.first - 1)} missing")
    newest = journal.checkpoint()
    if newest is not None and newest.seq > last:
        found.wrong.append(f"a checkpoint knows of row {newest.seq}, and the newest row is {last}")


def _rows(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"
