"""What each gold item did: facts per item, by step while it is fresh, by the hour later, as one table in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragmon.core.constants import HOUR, STEP
from ragmon.metrics.facts import Key
from ragmon.rows import add_counts, key_text, text_key

Table = dict[str, dict[Key, int]]
"""Facts by gold item."""


class ItemTables:
    """The item tables of one series.

    Attributes:
        steps: Tables by the start of their step, as long as rows of that age are fresh.
        hours: Tables by hour since the epoch.
        whole: What is not kept by time.
    """

    __slots__ = ("hours", "steps", "whole")

    def __init__(self) -> None:
        self.steps: dict[int, Table] = {}
        self.hours: dict[int, Table] = {}
        self.whole: Table = {}

    def at(self, ts: float, *, fresh_from: float) -> Table:
        """The table an event time belongs to."""
        if ts < fresh_from:
            return self.hours.setdefault(int(ts) // HOUR, {})
        return self.steps.setdefault(int(ts) // STEP * STEP, {})

    def fold(self, before: float) -> None:
        """Move the tables of steps that started before a time into their hours."""
        for start in [s for s in self.steps if s < before]:
            add_table(self.hours.setdefault(start // HOUR, {}), self.steps.pop(start))

    def expire(self, before: float) -> None:
        """Forget the hours that ended before a time."""
        for hour in [h for h in self.hours if (h + 1) * HOUR < before]:
            del self.hours[hour]

    def merge(self, other: ItemTables) -> None:
        """Add another series' tables."""
        for mine, theirs in ((self.steps, other.steps), (self.hours, other.hours)):
            for place, table in theirs.items():
                add_table(mine.setdefault(place, {}), table)
        add_table(self.whole, other.whole)

    def window(self, start: float | None, end: float, *, hours: bool = True) -> Iterator[Table]:
        """The tables of a window: exact steps; of older hours those that reach into it; without a start, all.

        Args:
            start: Seconds since the epoch; None for everything.
            end: Where it ends, exclusive.
            hours: The window is long enough to reach into what is no longer fresh.
        """
        for step, table in self.steps.items():
            if start is None or start <= step < end:
                yield table
        for hour, table in self.hours.items():
            if start is None or (hours and (hour + 1) * HOUR > start and hour * HOUR < end):
                yield table
        if start is None:
            yield self.whole

    def all(self) -> Iterator[Table]:
        """Every table."""
        return self.window(None, 0)

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "steps": {str(start): _dump(table) for start, table in self.steps.items()},
            "hours": {str(hour): _dump(table) for hour, table in self.hours.items()},
            "whole": _dump(self.whole),
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> ItemTables:
        """The tables `dump` wrote."""
        tables = cls()
        tables.steps = {int(start): _load(table) for start, table in data["steps"].items()}
        tables.hours = {int(hour): _load(table) for hour, table in data["hours"].items()}
        tables.whole = _load(data["whole"])
        return tables


def _dump(table: Table) -> dict[str, dict[str, int]]:
    return {qid: {key_text(key): n for key, n in facts.items()} for qid, facts in table.items()}


def _load(table: Mapping[str, Mapping[str, int]]) -> Table:
    return {qid: {text_key(key): n for key, n in facts.items()} for qid, facts in table.items()}


def add_table(mine: Table, other: Mapping[str, Mapping[Key, int]]) -> None:
    """Add a table's counts into another."""
    for qid, facts in other.items():
        add_counts(mine.setdefault(qid, {}), facts)
