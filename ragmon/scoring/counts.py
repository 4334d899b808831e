"""The counts of one time step (how often each tuple of facts was seen, and what was measured), and of each gold item.

Counts of gold items are kept by step while fresh, by hour later, and as one table in a replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from ragmon.core.constants import HOUR, STAGES, STEP
from ragmon.core.record import Latency
from ragmon.metrics.facts import Key
from ragmon.scoring.fingerprint import PRIME, as_text, from_text, moment, of_counts
from ragmon.scoring.groups import COUNT, SUM, Packed, packed_sums_text, packed_text
from ragmon.scoring.groups import from_text as packed_from_text
from ragmon.stats import buckets

CELLS: Final = 4096
"""Distinct facts that a row keeps, those with the smallest hashes; the sums of the others go into the spill."""

UNTIMED: Final = -1
"""The step of records without a time: they are in the totals, but in no window."""
_BATCH: Final = 64
"""Latencies that are collected before they are put into buckets."""
_stages = attrgetter(*STAGES)

T = TypeVar("T")
Sums = list[int]
"""`[n, sum, sum of squares]` of a measure, in micro-units."""


class BucketState(msgspec.Struct, omit_defaults=True):
    """The saved form of a `WindowBucket`: its facts are text (`key_text`), because JSON has no other keys."""

    cells: dict[str, int] = {}
    measures: dict[str, dict[str, Sums]] = {}
    latency: dict[str, dict[int, int]] = {}
    spill: dict[str, Sums] = {}
    spilled: int = 0
    groups: dict[str, str] = {}
    measured_groups: dict[str, dict[str, tuple[str, str]]] = {}


class WindowBucket:
    """The counts of one time step of one series; rows can be added in any order.

    Attributes:
        cells: Requests by facts.
        measures: By metric name and facts, the sums of a measured score.
        spill: Sums of requests above the limit on cells, by metric key, and their counts by reason where unassessed.
        spilled: How many requests went into the spill.
        groups: By facts, the packed counts of requests by random group of clusters (`ragmon.scoring.groups`).
        measured_groups: By metric name and facts, the packed counts and sums of a measured score.
        ranked: A heap of the facts of a full row, the largest hash first; empty where it has to be made. Not saved.
    """

    __slots__ = ("_latency", "_pending", "cells", "groups", "measured_groups", "measures", "ranked", "spill", "spilled")

    def __init__(self) -> None:
        self.cells: dict[Key, int] = {}
        self.measures: dict[str, dict[Key, Sums]] = {}
        self._latency: dict[str, dict[int, int]] = {}
        self._pending: list[Latency] = []
        self.spill: dict[str, Sums] = {}
        self.spilled = 0
        self.ranked: list[tuple[int, Key]] = []
        self.groups: dict[Key, Packed] = {}
        self.measured_groups: dict[str, dict[Key, list[Packed]]] = {}

    def measure(self, name: str, key: Key, sums: Sums) -> None:
        """Add measured scores, in micro-units."""
        add_sums(self.measures.setdefault(name, {}), key, sums)

    def group(self, group: int, key: Key, n: int, measured: Mapping[str, Sums]) -> None:
        """Add requests, and their measured scores in micro-units, to the random group of their cluster."""
        self.groups[key] = self.groups.get(key, 0) + n * COUNT[group]
        for name, (m, total, _) in measured.items():
            add_sums(self.measured_groups.setdefault(name, {}), key, (m * COUNT[group], total * SUM[group]))

    def add_latencies(self, latencies: Sequence[Latency]) -> None:
        """Add the stages of requests to their histograms."""
        self._pending += latencies
        if len(self._pending) >= _BATCH:
            self._fill_histograms()

    @property
    def latency(self) -> dict[str, dict[int, int]]:
        """By stage, a log-bucket histogram of milliseconds."""
        if self._pending:
            self._fill_histograms()
        return self._latency

    def _fill_histograms(self) -> None:
        """Put collected latencies into buckets; one by one this would be a sixth of the work of a replay."""
        for stage, values in zip(STAGES, zip(*map(_stages, self._pending), strict=True), strict=True):
            known = [ms for ms in values if ms is not None] if None in values else values
            if known:
                add_counts(self._latency.setdefault(stage, {}), buckets(known))
        self._pending.clear()

    def add_histograms(self, histograms: Mapping[str, Mapping[int, int]]) -> None:
        """Add histograms of latencies by stage."""
        for stage, histogram in histograms.items():
            add_counts(self._latency.setdefault(stage, {}), histogram)

    def merge(self, other: WindowBucket) -> None:
        """Add another row's counts to this one."""
        # Readers merge tens of thousands of small rows: function calls for each part would double the cost.
        self.ranked = []
        add_counts(self.cells, other.cells)
        for name, other_cells in other.measures.items():
            own_cells = self.measures.setdefault(name, {})
            for key, sums in other_cells.items():
                add_sums(own_cells, key, sums)
        if other._pending:
            other._fill_histograms()
        for stage, histogram in other._latency.items():
            add_counts(self._latency.setdefault(stage, {}), histogram)
        for metric, sums in other.spill.items():
            add_sums(self.spill, metric, sums)
        self.spilled += other.spilled
        if other.groups:
            self._merge_groups(other)

    def _merge_groups(self, other: WindowBucket) -> None:
        groups = self.groups
        if not groups:
            groups.update(other.groups)
        else:
            for key, packed in other.groups.items():
                # Most facts are rare; a packed count that was never added to is one of the 64 that all rows share.
                groups[key] = groups[key] + packed if key in groups else packed
        for name, other_groups in other.measured_groups.items():
            own_groups = self.measured_groups.setdefault(name, {})
            for key, pair in other_groups.items():
                add_sums(own_groups, key, pair)

    def drop(self, key: Key) -> tuple[int, dict[str, Sums]]:
        """Remove the requests with some facts; returns their number, and the sums of what was measured on them."""
        count, measured = self.cells[key], {name: cells[key] for name, cells in self.measures.items() if key in cells}
        for table in self.counts().values():  # whatever is counted by facts, alone or by name
            if isinstance(table, dict):
                table.pop(key, None)
                if isinstance(next(iter(table.values()), None), dict):
                    for inner in table.values():
                        inner.pop(key, None)
        return count, measured

    def counts(self) -> dict[str, Any]:
        """Everything that it counts, by name; all of it is whole numbers that add up when rows are merged."""
        names = [name for name in self.__slots__ if not name.startswith("_") and name != "ranked"]
        return {"latency": self.latency, **{name: getattr(self, name) for name in names}}

    @property
    def count(self) -> int:
        """How many requests the row holds."""
        return sum(self.cells.values()) + self.spilled

    def dump(self) -> BucketState:
        """The row in its saved form."""
        measures = {name: with_text_keys(cells) for name, cells in self.measures.items()}
        groups = {key_text(key): packed_text(packed) for key, packed in self.groups.items()}
        measured_groups = {
            name: {key_text(key): (packed_text(n), packed_sums_text(sums)) for key, (n, sums) in cells.items()}
            for name, cells in self.measured_groups.items()
        }
        return BucketState(
            with_text_keys(self.cells), measures, self.latency, self.spill, self.spilled, groups, measured_groups
        )

    @classmethod
    def load(cls, state: BucketState) -> WindowBucket:
        """A row from its saved form."""
        row = cls()
        row.cells = with_keys(state.cells)
        row.measures = {name: with_keys(cells) for name, cells in state.measures.items()}
        row._latency, row.spill, row.spilled = state.latency, state.spill, state.spilled
        row.groups = {text_key(text): packed_from_text(packed) for text, packed in state.groups.items()}
        row.measured_groups = {
            name: {
                text_key(text): [packed_from_text(counts), packed_from_text(sums, SUM)]
                for text, (counts, sums) in cells.items()
            }
            for name, cells in state.measured_groups.items()
        }
        return row


_KNOWN_KEYS: Final = 16_384
"""Facts and texts that are cached: many rows hold the same few."""


@lru_cache(_KNOWN_KEYS)
def key_text(key: Key) -> str:
    """Facts as text: JSON has no other keys.

    >>> key_text((5, 1, 10, (4,), (), (), ()))
    '5:1:10:4:::'
    """
    flags, wanted, retrieved, *ranks = key
    return ":".join([str(flags), str(wanted), str(retrieved), *(",".join(map(str, each)) for each in ranks)])


@lru_cache(_KNOWN_KEYS)
def text_key(text: str) -> Key:
    """Parse what `key_text` wrote."""
    flags, wanted, retrieved, *lists = text.split(":")
    found, candidates, verdicts, texts = (tuple(int(rank) for rank in ranks.split(",") if rank) for ranks in lists)
    return int(flags), int(wanted), int(retrieved), found, candidates, verdicts, texts


@lru_cache(_KNOWN_KEYS)
def rank(key: Key) -> int:
    """The hash of facts, by which a full row keeps them: the same in every process, whatever came first."""
    return int.from_bytes(hashlib.blake2b(key_text(key).encode(), digest_size=16).digest(), "big")


def with_text_keys(table: Mapping[Key, T]) -> dict[str, T]:
    """A table by facts, with the facts as text."""
    return {key_text(key): value for key, value in table.items()}


def with_keys(table: Mapping[str, T]) -> dict[Key, T]:
    """Undo `with_text_keys`."""
    return {text_key(text): value for text, value in table.items()}


def add_counts(mine: dict[T, int], other: Mapping[T, int]) -> None:
    """Add counts to a dictionary of counts."""
    if not mine:  # as most are at first; this copies many at once
        mine.update(other)
        return
    for key, n in other.items():
        mine[key] = mine.get(key, 0) + n


def add_sums(mine: dict[T, Sums], key: T, sums: Iterable[int]) -> None:
    """Add `(n, sum, squares)` to the sums of a key."""
    own_sums = mine.get(key)
    if own_sums is None:
        mine[key] = list(sums)
    else:
        for i, x in enumerate(sums):
            own_sums[i] += x


Table = dict[str, dict[Key, int]]
"""Facts by gold item."""
SavedTable = dict[str, dict[str, int]]


class ItemTable(Table):
    """The facts of gold items in one step or hour.

    Attributes:
        n: The number of requests, by which readers see that it changed.
    """

    __slots__ = ("n",)

    def __init__(self, table: Mapping[str, dict[Key, int]] = MappingProxyType({})) -> None:
        super().__init__(table)
        self.n = sum(sum(facts.values()) for facts in table.values())

    def count(self, qid: str, key: Key, n: int) -> None:
        """Add requests."""
        self.n += n
        facts = self.get(qid)
        if facts is None:
            self[qid] = {key: n}
        else:
            facts[key] = facts.get(key, 0) + n

    def merge(self, other: ItemTable) -> None:
        """Add another table."""
        add_table(self, other)
        self.n += other.n


class ItemsState(msgspec.Struct):
    """The saved form of `ItemCounts`."""

    steps: dict[int, SavedTable] = {}
    hours: dict[int, SavedTable] = {}
    whole: SavedTable = {}
    expired: str = ""


class ItemCounts:
    """The item tables of one series.

    Attributes:
        steps: Tables by the start of their step, while rows of that age are fresh.
        hours: Tables by hour since the epoch, and of requests without a time.
        whole: Counts that are not kept by time.
        expired: The fingerprint of the hours that were deleted or added to `whole`.
    """

    __slots__ = ("expired", "hours", "steps", "whole")

    def __init__(self) -> None:
        self.steps: dict[int, ItemTable] = {}
        self.hours: dict[int, ItemTable] = {}
        self.whole = ItemTable()
        self.expired = 0

    def at(self, ts: float | None, *, is_fresh: bool) -> ItemTable:
        """The table an event time belongs to; None for a request without one."""
        if ts is None:
            return _at(self.hours, UNTIMED)
        return _at(self.steps, int(ts) // STEP * STEP) if is_fresh else _at(self.hours, int(ts) // HOUR)

    def fold(self, before: float) -> None:
        """Move the tables of steps that started before a time into their hours."""
        for start in [s for s in self.steps if s < before]:
            _at(self.hours, start // HOUR).merge(self.steps.pop(start))

    def expire(self, before: float, *, keep: bool = False) -> None:
        """Delete the hours that ended before a time.

        Args:
            before: Seconds since the epoch.
            keep: Add them to what is not kept by time.
        """
        for hour in [h for h in self.hours if h != UNTIMED and (h + 1) * HOUR < before]:
            table = self.hours.pop(hour)
            self.expired = (self.expired + moment(hour) * of_counts(table)) % PRIME
            if keep:
                self.whole.merge(table)

    def merge(self, other: ItemCounts) -> None:
        """Add another series' tables."""
        for own_tables, other_tables in ((self.steps, other.steps), (self.hours, other.hours)):
            for start, table in other_tables.items():
                _at(own_tables, start).merge(table)
        self.whole.merge(other.whole)
        self.expired = (self.expired + other.expired) % PRIME

    def fingerprint(self) -> int:
        """The fingerprint of everything ever counted, by hour."""
        by_hour = [(hour, table) for hour, table in self.hours.items()]
        by_hour += [(start // HOUR, table) for start, table in self.steps.items()]
        return sum((moment(hour) * of_counts(table) for hour, table in by_hour), self.expired) % PRIME

    def window(self, start: float | None, end: float, *, hours: bool = True) -> Iterator[Table]:
        """The tables of a window: exact steps, and all older hours that overlap it; without a start, all tables.

        Args:
            start: Seconds since the epoch; None for everything.
            end: The end of the window, exclusive.
            hours: Whether the window is long enough to include tables that are no longer fresh.
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

    def timed(self) -> Iterator[tuple[int, int, Table]]:
        """Every table with the start and the end of its step or hour, seconds since the epoch; -1 where it has none."""
        yield from ((step, step + STEP, table) for step, table in self.steps.items())
        for hour, table in self.hours.items():
            yield (UNTIMED, UNTIMED, table) if hour == UNTIMED else (hour * HOUR, (hour + 1) * HOUR, table)
        yield UNTIMED, UNTIMED, self.whole

    def dump(self) -> ItemsState:
        """The tables in their saved form."""
        return ItemsState(
            steps={start: _saved(table) for start, table in self.steps.items()},
            hours={hour: _saved(table) for hour, table in self.hours.items()},
            whole=_saved(self.whole),
            expired=as_text(self.expired),
        )

    @classmethod
    def load(cls, state: ItemsState) -> ItemCounts:
        """The tables from their saved form."""
        items = cls()
        items.steps = {start: _table(saved) for start, saved in state.steps.items()}
        items.hours = {hour: _table(saved) for hour, saved in state.hours.items()}
        items.whole = _table(state.whole)
        items.expired = from_text(state.expired)
        return items


def _saved(table: Table) -> SavedTable:
    return {qid: with_text_keys(facts) for qid, facts in table.items()}


def _table(saved: SavedTable) -> ItemTable:
    return ItemTable({qid: with_keys(facts) for qid, facts in saved.items()})


def _at(tables: dict[int, ItemTable], start: int) -> ItemTable:
    """The table of a step or hour, created if it is new."""
    table = tables.get(start)
    if table is None:
        table = tables[start] = ItemTable()
    return table


def add_table(mine: Table, other: Mapping[str, Mapping[Key, int]]) -> None:
    """Add one table to another."""
    for qid, facts in other.items():
        add_counts(mine.setdefault(qid, {}), facts)
