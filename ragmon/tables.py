"""What each gold item did: facts per item, by step while it is fresh, by the hour later, as one table in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ragmon.facts import Key
from ragmon.rows import add_counts, key_text, text_key

Table = dict[str, dict[Key, int]]
"""Facts by gold item."""
HOUR: Final = 3600
WHOLE: Final = 0
"""The hour under which a replay keeps everything."""


class ItemTables:
    """The item tables of one series.

    Attributes:
        steps: Tables by the start of their step, as long as rows of that age are fresh.
        hours: Tables by hour since the epoch; `WHOLE` holds what is not kept by time.
    """

    __slots__ = ("hours", "steps")

    def __init__(self) -> None:
        self.steps: dict[int, Table] = {}
        self.hours: dict[int, Table] = {}

    @staticmethod
    def count(tables: dict[int, Table], place: int, qid: str, key: Key) -> None:
        """Add one request of an item to one of the two."""
        table = tables.get(place)
        if table is None:
            table = tables[place] = {}
        facts = table.get(qid)
        if facts is None:
            table[qid] = {key: 1}
        else:
            facts[key] = facts.get(key, 0) + 1

    def fold(self, before: float) -> None:
        """Move the tables of steps that started before a time into their hours."""
        for start in [s for s in self.steps if s < before]:
            add_table(self.hours.setdefault(start // HOUR, {}), self.steps.pop(start))

    def expire(self, before: float) -> None:
        """Forget the hours that ended before a time."""
        for hour in [h for h in self.hours if h != WHOLE and (h + 1) * HOUR < before]:
            del self.hours[hour]

    def merge(self, other: ItemTables) -> None:
        """Add another series' tables."""
        for mine, theirs in ((self.steps, other.steps), (self.hours, other.hours)):
            for place, table in theirs.items():
                add_table(mine.setdefault(place, {}), table)

    def window(self, start: float | None, end: float) -> Iterator[Table]:
        """The tables of a window: exact steps; of older hours those that reach into it.

        Args:
            start: Seconds since the epoch; None for everything.
            end: Where it ends, exclusive.
        """
        for step, table in self.steps.items():
            if start is None or start <= step < end:
                yield table
        for hour, table in self.hours.items():
            if start is None or hour == WHOLE or ((hour + 1) * HOUR > start and hour * HOUR < end):
                yield table

    def all(self) -> Iterator[Table]:
        """Every table."""
        return self.window(None, 0)

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            name: {
                str(place): {qid: {key_text(key): n for key, n in facts.items()} for qid, facts in table.items()}
                for place, table in tables.items()
            }
            for name, tables in (("steps", self.steps), ("hours", self.hours))
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> ItemTables:
        """The tables `dump` wrote."""
        tables = cls()
        tables.steps, tables.hours = (
            {
                int(place): {qid: {text_key(key): n for key, n in facts.items()} for qid, facts in table.items()}
                for place, table in data[name].items()
            }
            for name in ("steps", "hours")
        )
        return tables


def add_table(mine: Table, other: Mapping[str, Mapping[Key, int]]) -> None:
    """Add a table's counts into another."""
    for qid, facts in other.items():
        add_counts(mine.setdefault(qid, {}), facts)
