"""The rows of one series: fresh ones, folded ones, and the sum of those whose time is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ragmon.core.constants import FOLDED, UNKNOWN_WEIGHT
from ragmon.scoring.counts import UNTIMED, BucketState, ItemCounts, ItemsState, WindowBucket
from ragmon.scoring.fingerprint import PRIME, as_text, from_text, moment, of_counts


class SeriesKey(NamedTuple):
    """The key of a series. Rows of different keys are added only where a reader does so explicitly."""

    pipeline: str
    source: str
    gold: str = ""
    gold_version: str = ""
    slice: str = ""
    audit: bool = True
    stratum: str = "rest"
    build: str = ""
    index_hash: str = ""

    @property
    def drawn(self) -> bool:
        """Whether its records were kept by the uniform sampler, at a known rate."""
        return self.audit and self.stratum != UNKNOWN_WEIGHT


Cut = Callable[[WindowBucket], object]
"""Cuts a merged row to as many facts as a row may have."""


class WindowSeries:
    """The rows of one series.

    Attributes:
        fresh: Rows of `STEP` seconds by their start.
        folded: Rows of `FOLDED` seconds by their start.
        past: The sum of rows older than the retention; counters must never fall.
        items: The counts of each gold item.
        expired: The fingerprint of the rows that are in `past`, by their steps.
        changed, closed_changed, old_changed: The change number of its state at the last change of the series, of rows
            that usually grow no more, and of its folded or older rows.
    """

    __slots__ = ("changed", "closed_changed", "expired", "folded", "fresh", "items", "old_changed", "past")

    def __init__(self) -> None:
        self.changed = self.closed_changed = self.old_changed = 0
        self.fresh: dict[int, WindowBucket] = {}
        self.folded: dict[int, WindowBucket] = {}
        self.past = WindowBucket()
        self.items = ItemCounts()
        self.expired = 0

    def merge(self, other: WindowSeries, cut: Cut) -> None:
        """Add the counts of another series."""
        for own_rows, other_rows in ((self.fresh, other.fresh), (self.folded, other.folded)):
            for start, row in other_rows.items():
                merge_row(own_rows, start, row, cut)
        self.past.merge(other.past)
        cut(self.past)
        self.items.merge(other.items)
        self.expired = (self.expired + other.expired) % PRIME

    def all_folded(self, cut: Cut) -> dict[int, WindowBucket]:
        """Every row that is not past, as if all were folded; folded rows are the series' own, and are not changed."""
        growing: dict[int, WindowBucket] = {}
        for start, row in self.fresh.items():
            folded = start if start == UNTIMED else start // FOLDED * FOLDED
            if folded in self.folded and folded not in growing:
                merge_row(growing, folded, self.folded[folded], cut)
            merge_row(growing, folded, row, cut)
        return {**self.folded, **growing}

    def fold(self, before: float, cut: Cut) -> None:
        """Fold the rows that started before a time."""
        for start in [s for s in self.fresh if s < before]:
            merge_row(self.folded, start // FOLDED * FOLDED, self.fresh.pop(start), cut)
        self.items.fold(before)

    def expire(self, before: float, cut: Cut) -> None:
        """Move the rows that ended before a time into the past."""
        for start in [s for s in self.folded if s != UNTIMED and s + FOLDED < before]:
            row = self.folded.pop(start)
            self.expired = (self.expired + moment(start) * of_counts(row.counts())) % PRIME
            self.past.merge(row)
            cut(self.past)

    def fingerprint(self, cut: Cut) -> int:
        """The fingerprint of every row there ever was, by five minutes."""
        return self.fingerprint_of(self.all_folded(cut))

    def fingerprint_of(self, rows: Mapping[int, WindowBucket]) -> int:
        """The same, from the rows of `all_folded`."""
        return sum((moment(step) * of_counts(row.counts()) for step, row in rows.items()), self.expired) % PRIME

    def dump(self) -> SeriesState:
        """The series in its saved form."""
        fresh, folded = ({start: row.dump() for start, row in rows.items()} for rows in (self.fresh, self.folded))
        return SeriesState(fresh, folded, self.past.dump(), self.items.dump(), as_text(self.expired))

    @classmethod
    def load(cls, state: SeriesState) -> WindowSeries:
        """A series from its saved form."""
        series = cls()
        series.fresh = {start: WindowBucket.load(row) for start, row in state.fresh.items()}
        series.folded = {start: WindowBucket.load(row) for start, row in state.folded.items()}
        series.past = WindowBucket.load(state.past)
        series.items = ItemCounts.load(state.items)
        series.expired = from_text(state.expired)
        return series


def merge_row(rows: dict[int, WindowBucket], start: int, row: WindowBucket, cut: Cut) -> None:
    """Add a row to the one at a step."""
    own_row = rows.setdefault(start, WindowBucket())
    own_row.merge(row)
    cut(own_row)


class SeriesState(msgspec.Struct):
    """The saved form of a `WindowSeries`."""

    fresh: dict[int, BucketState]
    folded: dict[int, BucketState]
    past: BucketState
    items: ItemsState
    expired: str = ""
