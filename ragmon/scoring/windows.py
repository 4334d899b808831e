"""The state: rows of counts per time step and series, the tables of gold items, and the windows over them.

This is the only accumulator. Everything is addition of integers, so states merge in any order, on any machine, to the
same bits. Time is the records' own time; the caller passes `now`. Where several windows are read, each row is added
once, together with others that lie in the same windows.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import DROPPED_PIPELINES, FOLDED, FRESH, HOUR, OTHER, STEP, UNKNOWN_WEIGHT
from ragmon.metrics.facts import Key
from ragmon.scoring.calls import CallKey, CallTotals, Count, SavedCalls
from ragmon.scoring.captured import CapturedTable, SavedSeries
from ragmon.scoring.cohorts import Cohorts, SavedCohorts
from ragmon.scoring.counts import BucketState, ItemCounts, ItemsState, Table, WindowBucket

MODEL_SLICE: Final = "(model)="
"""The start of the slices by model that are counted for `why` alone: no tag has such a name. They are not exported."""
UNTIMED: Final = -1
"""The step of records without a time: they are in the totals, but in no window."""


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


class WindowSeries:
    """The rows of one series.

    Attributes:
        fresh: Rows of `STEP` seconds by their start.
        folded: Rows of `FOLDED` seconds by their start.
        past: The sum of rows older than the retention; counters must never fall.
        items: The counts of each gold item.
        changed, old_changed: The change number of its state at the last change of the series, and of its folded or
            older rows.
    """

    __slots__ = ("changed", "folded", "fresh", "items", "old_changed", "past")

    def __init__(self) -> None:
        self.changed = self.old_changed = 0
        self.fresh: dict[int, WindowBucket] = {}
        self.folded: dict[int, WindowBucket] = {}
        self.past = WindowBucket()
        self.items = ItemCounts()

    def merge(self, other: WindowSeries) -> None:
        """Add the counts of another series."""
        for own_rows, other_rows in ((self.fresh, other.fresh), (self.folded, other.folded)):
            for start, row in other_rows.items():
                own_rows.setdefault(start, WindowBucket()).merge(row)
        self.past.merge(other.past)
        self.items.merge(other.items)

    def dump(self) -> SeriesState:
        """The series in its saved form."""
        fresh, folded = ({start: row.dump() for start, row in rows.items()} for rows in (self.fresh, self.folded))
        return SeriesState(fresh, folded, self.past.dump(), self.items.dump())

    @classmethod
    def load(cls, state: SeriesState) -> WindowSeries:
        """A series from its saved form."""
        series = cls()
        series.fresh = {start: WindowBucket.load(row) for start, row in state.fresh.items()}
        series.folded = {start: WindowBucket.load(row) for start, row in state.folded.items()}
        series.past = WindowBucket.load(state.past)
        series.items = ItemCounts.load(state.items)
        return series


class SeriesState(msgspec.Struct):
    """The saved form of a `WindowSeries`."""

    fresh: dict[int, BucketState]
    folded: dict[int, BucketState]
    past: BucketState
    items: ItemsState


class WindowsState(msgspec.Struct):
    """The saved form of a `State`; its retention is that of the configuration."""

    newest: float
    fold_due: float
    calls: list[SavedCalls]
    matched: list[tuple[tuple[str, str], int]]
    series: list[tuple[SeriesKey, SeriesState]]
    answers: dict[str, list[int]] = {}
    captured: list[SavedSeries] = []
    cohorts: SavedCohorts | None = None


class State:
    """All rows of a scorer, and all calls that producers report.

    Args:
        retention: Seconds a folded row is kept; None keeps all (replay).
        timed_items: Keep the counts of gold items by time (live) instead of in one table (replay).

    Attributes:
        matched: Audit members of live traffic that have a gold item, by pipeline and kind of match.
        answers: By pipeline, the number of its answers and of those that cite something.
        captured: Which fields the records have; not part of the digest.
        cohorts: Labels and the scores they are compared with, by the hour of the answer.
        remembered: A cache for readers; not part of the state.
    """

    def __init__(self, *, retention: float | None = None, timed_items: bool = False) -> None:
        self.series: dict[SeriesKey, WindowSeries] = {}
        self.retention = retention
        self.timed_items = timed_items
        self.newest = 0.0
        self.calls = CallTotals()
        self.matched: Counter[tuple[str, str]] = Counter()
        self.answers: dict[str, list[int]] = {}
        self.captured = CapturedTable()
        self.cohorts = Cohorts()
        self.remembered: dict[Any, Any] = {}
        self._fold_due = 0.0
        self._changes = 0

    def at(self, key: SeriesKey) -> WindowSeries:
        """The series of a key, created if it is new."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = WindowSeries()
        return series

    def row(self, series: WindowSeries, ts: float | None) -> WindowBucket | None:
        """The row of an event time.

        Args:
            series: The series.
            ts: Event time in seconds since the epoch; None for a record without one.

        Returns:
            The row; None when the time is older than the retention.
        """
        self._changes = series.changed = self._changes + 1
        if ts is None:
            series.old_changed = self._changes
            return series.folded.setdefault(UNTIMED, WindowBucket())
        if ts > self.newest:
            self.newest = ts
            if ts > self._fold_due:
                self.fold(ts)
        if ts < self.newest - FRESH:
            if self.retention is not None and ts < self.newest - self.retention:
                return None
            series.old_changed = self._changes
            rows, start = series.folded, int(ts) // FOLDED * FOLDED
        else:
            rows, start = series.fresh, int(ts) // STEP * STEP
        row = rows.get(start)
        if row is None:
            row = rows[start] = WindowBucket()
        return row

    def count_item(self, series: WindowSeries, ts: float | None, qid: str, key: Key) -> None:
        """Add one request to the table of a gold item."""
        items = series.items
        table = items.whole if not self.timed_items or ts is None else items.at(ts, fresh_from=self.newest - FRESH)
        facts = table.get(qid)
        if facts is None:
            table[qid] = {key: 1}
        else:
            facts[key] = facts.get(key, 0) + 1

    def _change(self, series: WindowSeries) -> None:
        """Mark a series as changed, so that readers drop what they cached of it."""
        self._changes = series.changed = series.old_changed = self._changes + 1

    def fold(self, now: float) -> None:
        """Fold rows that are no longer fresh, and move rows past the retention out of the windows."""
        self._fold_due = now + FOLDED
        self.calls.fold(now - FRESH, None if self.retention is None else now - self.retention)
        self.cohorts.fold(now, self.retention)
        for series in self.series.values():
            self._change(series)
            for start in [s for s in series.fresh if s < now - FRESH]:
                series.folded.setdefault(start // FOLDED * FOLDED, WindowBucket()).merge(series.fresh.pop(start))
            series.items.fold(now - FRESH)
            if self.retention is not None:
                for start in [s for s in series.folded if s != UNTIMED and s + FOLDED < now - self.retention]:
                    series.past.merge(series.folded.pop(start))
                series.items.expire(now - self.retention)

    def merge(self, other: State) -> None:
        """Add another state; the order of merging does not matter."""
        for key, series in other.series.items():
            self.at(key).merge(series)
            self._change(self.at(key))
        self.calls.merge(other.calls)
        self.matched.update(other.matched)
        for pipeline, (answers, citing) in other.answers.items():
            self.count_answers(pipeline, answers, citing)
        self.captured.merge(other.captured)
        self.cohorts.merge(other.cohorts)
        self.newest = max(self.newest, other.newest)

    def count_answers(self, pipeline: str, answers: int, citing: int) -> None:
        """Count answers of a pipeline, and those among them that cite something."""
        counts = self.answers.setdefault(pipeline, [0, 0])
        counts[0] += answers
        counts[1] += citing

    def retire(self, pipeline: str, build: str, index_hash: str) -> None:
        """Merge the series of a build and its index into those of `other`."""
        retired = (pipeline, build, index_hash)
        for key in [key for key in self.series if (key.pipeline, key.build, key.index_hash) == retired]:
            other_series = self.at(key._replace(build=OTHER, index_hash=OTHER))
            other_series.merge(self.series.pop(key))
            self._change(other_series)

    def give_up(self, pipeline: str) -> None:
        """Merge all counts of a pipeline into the sums of removed pipelines, without their times.

        Slices are dropped: their requests are counted in the other series as well.
        """
        for key in [key for key in self.series if key.pipeline == pipeline]:
            series = self.series.pop(key)
            if not key.slice:
                sums = self.at(key._replace(pipeline=DROPPED_PIPELINES, build="", index_hash=""))
                for row in self.window(series, None, 0):
                    sums.past.merge(row)
                self._change(sums)
        self.answers.pop(pipeline, None)
        for removed, how in [matched_key for matched_key in self.matched if matched_key[0] == pipeline]:
            self.matched[DROPPED_PIPELINES, how] += self.matched.pop((removed, how))
        self.captured.give_up(pipeline)
        self.cohorts.give_up(pipeline)

    def window(self, series: WindowSeries, span: int | None, now: float) -> Iterator[WindowBucket]:
        """The rows of a window that ends at the first step edge after now.

        Args:
            series: The series.
            span: Seconds; None for everything ever counted.
            now: Seconds since the epoch.
        """
        if span is None:
            yield series.past
            yield from series.folded.values()
            yield from series.fresh.values()
            return
        step, _ = grid(span, now)
        begin, end = edges(span, now)
        yield from (row for start, row in series.fresh.items() if begin <= start // step * step < end)
        yield from (row for start, row in series.folded.items() if begin <= start < end)

    def totals(self, span: int, now: float) -> dict[CallKey, Count]:
        """All reported calls of a window, sampled or not, with the same edges."""
        return self.calls.since(*edges(span, now))

    def items(self, series: WindowSeries, span: int | None, now: float) -> Iterator[Table]:
        """The item tables of a window, with the same edges; in longer windows, overlapping hours are counted whole."""
        if span is None:
            return series.items.all()
        _, end = grid(span, now)
        return series.items.window(max(0, end - span), end, hours=span > HOUR)

    def to_rows(self) -> list[dict[str, Any]]:
        """Every row, folded, as plain data in canonical order; equal states give equal lists."""
        rows: list[dict[str, Any]] = []
        for key in sorted(self.series):
            series, folded = self.series[key], dict[int, WindowBucket]()
            for start, row in (*series.folded.items(), *series.fresh.items()):
                step = start if start == UNTIMED else start // FOLDED * FOLDED
                folded.setdefault(step, WindowBucket()).merge(row)
            rows += [{"series": list(key), "step": step, **_plain(folded[step])} for step in sorted(folded)]
            if series.past.count:
                rows.append({"series": list(key), "step": None, **_plain(series.past)})
        return rows

    def digest(self) -> str:
        """The sha256 of folded rows, matches and cohorts: the fingerprint by which live and replay are compared."""
        digest = hashlib.sha256()
        for row in self.to_rows():
            digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
        if self.matched:
            digest.update(json.dumps(sorted(self.matched.items()), separators=(",", ":")).encode())
        if cohorts := self.cohorts.to_rows():
            digest.update(json.dumps(cohorts, separators=(",", ":")).encode())
        return digest.hexdigest()

    def dump(self) -> WindowsState:
        """The whole state in its saved form; parts of it are not copied."""
        return WindowsState(
            newest=self.newest,
            fold_due=self._fold_due,
            calls=self.calls.dump(),
            matched=list(self.matched.items()),
            answers=self.answers,
            series=[(key, series.dump()) for key, series in self.series.items()],
            captured=self.captured.dump(),
            cohorts=self.cohorts.dump(),
        )

    def restore(self, state: WindowsState) -> None:
        """Replace everything by a saved state; the retention stays."""
        self.newest, self._fold_due = state.newest, state.fold_due
        self.calls = CallTotals.load(state.calls)
        self.matched = Counter(dict(state.matched))
        self.answers = {pipeline: list(counts) for pipeline, counts in state.answers.items()}
        self.captured = CapturedTable(state.captured)
        self.cohorts = Cohorts() if state.cohorts is None else Cohorts.load(state.cohorts)
        self.series = {key: WindowSeries.load(series) for key, series in state.series}
        self.remembered = {}
        self._changes = 0


def grid(span: int, now: float) -> tuple[int, int]:
    """The step of a window's edges, and the first edge after now where it ends."""
    step = STEP if span <= HOUR else FOLDED
    return step, (int(now) // step + 1) * step


def edges(span: int, now: float) -> tuple[int, int]:
    """The start and the end of a window; records without a time lie in no window."""
    _, end = grid(span, now)
    return max(0, end - span), end


def _plain(row: WindowBucket) -> dict[str, Any]:
    """A row as plain data, as digests are made of it."""
    data: dict[str, Any] = msgspec.to_builtins(row.dump(), str_keys=True)
    return data


class Kind(NamedTuple):
    """The key by which the rows of a group are kept apart."""

    gold: str
    gold_version: str
    stratum: str
    drawn: bool


Rows = dict[Kind, WindowBucket]
SeriesWithKinds = Sequence[tuple[Kind, WindowSeries]]
"""Series with their kinds."""


@dataclass
class Window:
    """A window that ends at a given moment.

    Attributes:
        name: Its name.
        span: Seconds; None for everything.
        now: Seconds since the epoch.
        begin, end: Its edges.
        step: The grid that the edges lie on.
    """

    name: str
    span: int | None
    now: float
    begin: float = -inf
    end: float = inf
    step: int = 1

    def __post_init__(self) -> None:
        if self.span is not None:
            self.step, _ = grid(self.span, self.now)
            self.begin, self.end = edges(self.span, self.now)


Sums = dict[int, Rows]
"""Rows by bit mask of the windows they are in, and by kind."""


def _window_mask(start: int, windows: Sequence[Window], *, fresh: bool = False) -> int:
    """The windows that a row is in, as a bit mask."""
    mask = 0
    for place, window in enumerate(windows):
        aligned = start // window.step * window.step if fresh else start
        if window.begin <= aligned < window.end:
            mask |= 1 << place
    return mask


def folded_sums(series: SeriesWithKinds, windows: Sequence[Window]) -> Sums:
    """The sums of folded and older rows of several series, each row added once."""
    sums: Sums = {}
    unbounded_mask = sum(1 << place for place, window in enumerate(windows) if window.span is None)
    for kind, window_series in series:
        if window_series.past.count:
            _add(sums, unbounded_mask, kind, window_series.past)
        for start, row in window_series.folded.items():
            _add(sums, _window_mask(start, windows), kind, row)
    return sums


def with_fresh_rows(sums: Sums, series: SeriesWithKinds, windows: Sequence[Window]) -> Sums:
    """A copy of the sums with the fresh rows of the series added."""
    total = {mask: {kind: _copied(row) for kind, row in rows.items()} for mask, rows in sums.items()}
    masks: dict[int, int] = {}
    for kind, window_series in series:
        for start, row in window_series.fresh.items():
            mask = masks.get(start)
            if mask is None:
                mask = masks[start] = _window_mask(start, windows, fresh=True)
            _add(total, mask, kind, row)
    return total


def _add(sums: Sums, mask: int, kind: Kind, row: WindowBucket) -> None:
    if mask:
        rows = sums.setdefault(mask, {})
        target = rows.get(kind)
        if target is None:
            rows[kind] = _copied(row)
        else:
            target.merge(row)


def _copied(row: WindowBucket) -> WindowBucket:
    copy = WindowBucket()
    copy.merge(row)
    return copy


def rows_of_window(sums: Sums, place: int) -> Rows:
    """The rows of one window by kind."""
    window_rows: Rows = {}
    for mask, rows in sums.items():
        if mask >> place & 1:
            for kind, row in rows.items():
                window_rows.setdefault(kind, WindowBucket()).merge(row)
    return window_rows


def kind_of(key: SeriesKey) -> Kind:
    """The kind of a series."""
    return Kind(key.gold, key.gold_version, key.stratum, key.drawn)
