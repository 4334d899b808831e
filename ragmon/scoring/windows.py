"""The state: rows of counts per time step and series, the tables of gold items, and the windows over them.

This is the only accumulator. Everything is addition of integers, so states merge in any order, on any machine, to the
same bits. Time is the records' own time; the caller passes `now`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, DROPPED_PIPELINES, FOLDED, FRESH, HOUR, LIVE, OTHER, STEP
from ragmon.scoring.calls import RECENT, CallKey, CallTotals, Count
from ragmon.scoring.captured import CapturedTable
from ragmon.scoring.cohorts import Cohorts, Judged
from ragmon.scoring.counts import UNTIMED, ItemTable, WindowBucket
from ragmon.scoring.fingerprint import PRIME, add, digest_of, of_counts
from ragmon.scoring.fingerprint import Sums as Fingerprints
from ragmon.scoring.series import Cut, SeriesKey, SeriesState, WindowSeries, merge_row

OPEN: Final = 60.0
"""Seconds behind the newest record in which rows usually still grow."""
MODEL_SLICE: Final = "(model)="
"""The start of the slices by model that are counted for `why` alone: no tag has such a name. They are not exported."""


Rename = Callable[[str, str, str, str], tuple[str, str, str]]
"""Gets pipeline, source, build and index; gives pipeline, build and index as they are counted."""


class WindowsState(msgspec.Struct):
    """The saved form of a `State`; its retention is that of the configuration.

    Attributes:
        newest: The newest event time.
        fold_due: When rows are folded next.
    """

    newest: float
    fold_due: float
    calls: CallTotals
    matched: list[tuple[tuple[str, str], int]]
    series: list[tuple[SeriesKey, SeriesState]]
    captured: CapturedTable
    cohorts: Cohorts
    answers: dict[str, list[int]] = {}


class State:
    """All rows of a scorer, and all calls that producers report.

    Args:
        retention: Seconds a folded row is kept; None keeps all (replay).
        timed_items: Keep the counts of gold items by time (live) instead of in one table (replay).

    Attributes:
        matched: Audit members of live traffic that have a gold item, by pipeline and kind of match.
        answers: By pipeline, the number of its answers and of those that cite something.
        captured: Which fields the records have.
        cohorts: Labels and the scores they are compared with, by the hour of the answer.
        remembered: A cache for readers; not part of the state.
        cut: Set by the scorer (`ragmon.scoring.score_table.ScoreTable.cut`); not part of the state either.
    """

    cut: Cut = staticmethod(lambda _: None)

    def __init__(self, *, retention: float | None = None, timed_items: bool = False) -> None:
        self.series: dict[SeriesKey, WindowSeries] = {}
        self.retention = retention
        self.timed_items = timed_items
        self.newest = 0.0
        self.calls = CallTotals(self._recent)
        self.matched: Counter[tuple[str, str]] = Counter()
        self.answers: dict[str, list[int]] = {}
        self.captured = CapturedTable()
        self.cohorts = Cohorts()
        self.remembered: dict[Any, Any] = {}
        self._fold_due = 0.0
        self._changes = 0

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: the counts alone."""
        return {name: value for name, value in vars(self).items() if name not in ("cut", "remembered")} | {
            "remembered": {}
        }

    @property
    def _recent(self) -> int | None:
        """The steps kept of each producer's series: a replay needs all, so that parts of it merge."""
        return None if self.retention is None else RECENT

    @property
    def fold_due(self) -> float:
        """The event time from which rows are folded next."""
        return self._fold_due

    def advance(self, newest: float, fold_due: float) -> None:
        """Go on to where somebody is who counts for this state (`add_row`); earlier times change nothing.

        Args:
            newest: The newest event time there.
            fold_due: From when rows are folded next there.
        """
        self.newest = max(self.newest, newest)
        if fold_due > self._fold_due:
            self.fold(fold_due - FOLDED)

    def add_row(self, series: WindowSeries, start: int, row: WindowBucket, *, is_folded: bool) -> None:
        """Add a row that was counted elsewhere.

        Args:
            series: The series.
            start: The start of its step; `UNTIMED` for records without a time.
            row: The row.
            is_folded: Its step is a folded one.
        """
        rows = series.folded if is_folded else series.fresh
        if start in rows:
            merge_row(rows, start, row, self.cut)
        else:
            self.cut(row)
            rows[start] = row
        self._changes = series.changed = self._changes + 1
        if is_folded or start < self.newest - OPEN:
            series.closed_changed = self._changes
        if is_folded:
            series.old_changed = self._changes

    @property
    def folded(self) -> float:
        """Another number after rows were folded: then what was read before cannot be added to what is read now."""
        return self._fold_due

    def at(self, key: SeriesKey) -> WindowSeries:
        """The series of a key, created if it is new."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = WindowSeries()
        return series

    def is_fresh(self, ts: float | None) -> bool:
        """Whether the row of an event time, None for a record without one, is kept apart from others."""
        return ts is not None and ts >= self.newest - FRESH

    def row(self, series: WindowSeries, ts: float | None, *, is_fresh: bool) -> WindowBucket:
        """The row of an event time.

        Args:
            series: The series.
            ts: Event time in seconds since the epoch; None for a record without one.
            is_fresh: Whether the row was fresh when the record came.
        """
        self._changes = series.changed = self._changes + 1
        if ts is None:
            series.old_changed = self._changes
            return series.folded.setdefault(UNTIMED, WindowBucket())
        if ts < self.newest - OPEN:
            series.closed_changed = self._changes
        if not is_fresh:
            series.old_changed = self._changes
            rows, start = series.folded, int(ts) // FOLDED * FOLDED
        else:
            rows, start = series.fresh, int(ts) // STEP * STEP
        row = rows.get(start)
        if row is None:
            row = rows[start] = WindowBucket()
        return row

    def item_table(self, series: WindowSeries, ts: float | None, *, is_fresh: bool) -> ItemTable:
        """The table of gold items of an event time, as `row`."""
        # A replay asks for no window of items, so their steps are not kept apart.
        return series.items.at(ts, is_fresh=is_fresh and self.timed_items)

    def _change(self, series: WindowSeries) -> None:
        """Mark a series as changed, so that readers drop what they cached of it."""
        self._changes = series.changed = series.closed_changed = series.old_changed = self._changes + 1

    def fold(self, now: float) -> None:
        """Fold rows that are no longer fresh, and move rows past the retention out of the windows."""
        self._fold_due = now + FOLDED
        self.calls.fold(now - FRESH, None if self.retention is None else now - self.retention)
        self.cohorts.fold(now, self.retention)
        for series in self.series.values():
            self._change(series)
            series.fold(now - FRESH, self.cut)
            if self.retention is not None:
                series.expire(now - self.retention, self.cut)
            if not self.timed_items:
                series.items.expire(now - FRESH, keep=True)
            elif self.retention is not None:
                series.items.expire(now - self.retention)

    def merge(self, other: State) -> None:
        """Add another state; the order of merging does not matter."""
        for key, series in other.series.items():
            self.at(key).merge(series, self.cut)
            self._change(self.at(key))
        self.calls.merge(other.calls)
        self.matched.update(other.matched)
        for pipeline, (answers, citing) in other.answers.items():
            self.count_answers(pipeline, answers, citing)
        self.captured.merge(other.captured)
        self.cohorts.merge(other.cohorts)
        self.newest = max(self.newest, other.newest)
        if self.newest > self._fold_due:
            self.fold(self.newest)

    @property
    def untimed(self) -> int:
        """How many requests have no time; those that match gold or were labelled are counted once."""
        return sum(
            series.folded[UNTIMED].count
            for key, series in self.series.items()
            if UNTIMED in series.folded and not key.slice and key.source not in ALSO_LIVE_SOURCES
        )

    def count_answers(self, pipeline: str, answers: int, citing: int) -> None:
        """Count answers of a pipeline, and those among them that cite something."""
        counts = self.answers.setdefault(pipeline, [0, 0])
        counts[0] += answers
        counts[1] += citing

    def rename(self, rename: Rename) -> None:
        """Move everything to the names it is to be counted under; nothing changes where they are the same.

        Args:
            rename: Gives the names.
        """
        sources = {key.pipeline: key.source for key in sorted(self.series, reverse=True)}
        for key in sorted(self.series):
            renamed = rename(key.pipeline, key.source, key.build, key.index_hash)
            if renamed != (key.pipeline, key.build, key.index_hash):
                pipeline, build, index_hash = renamed
                other = self.at(key._replace(pipeline=pipeline, build=build, index_hash=index_hash))
                other.merge(self.series.pop(key), self.cut)

        def pipeline_of(name: str, source: str | None = None) -> str:
            return rename(name, source or sources.get(name, LIVE), "", "")[0]

        matched, answers, self.matched, self.answers = self.matched, self.answers, Counter(), {}
        for (name, how), n in matched.items():
            self.matched[pipeline_of(name), how] += n
        for name, (n, citing) in answers.items():
            self.count_answers(pipeline_of(name), n, citing)
        self.captured.rename(pipeline_of)
        self.cohorts.rename(pipeline_of)

    def retire(self, pipeline: str, build: str, index_hash: str) -> None:
        """Merge the series of a build and its index into those of `other`."""
        retired = (pipeline, build, index_hash)
        for key in [key for key in self.series if (key.pipeline, key.build, key.index_hash) == retired]:
            other_series = self.at(key._replace(build=OTHER, index_hash=OTHER))
            other_series.merge(self.series.pop(key), self.cut)
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
                    self.cut(sums.past)
                sums.expired = (sums.expired + series.fingerprint(self.cut)) % PRIME
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

    def digest(self) -> str:
        """The digest of everything counted, by which live and replay are compared.

        It holds the rows by five minutes, past ones included, and their sum; gold items by hour; all calls, and those
        of the last hour by five minutes; matches, answers, labels by judge version, and whether ids occur in gold.
        Which models have a slice of their own depends on the order of records: their slices are taken together.
        """
        sums: Fingerprints = {}
        whole: dict[SeriesKey, WindowBucket] = {}
        for key, series in self.series.items():
            if key.slice.startswith(MODEL_SLICE):
                key = key._replace(slice=MODEL_SLICE)  # noqa: PLW2901 - the name it is counted under here
            rows = series.all_folded(self.cut)
            add(sums, ("rows", *key), series.fingerprint_of(rows))
            add(sums, ("items", *key), series.items.fingerprint())
            total = whole.setdefault(key, WindowBucket())
            for row in (series.past, *rows.values()):
                total.merge(row)
        for key, total in whole.items():
            self.cut(total)
            add(sums, ("sum", *key), of_counts(total.counts()))
        for call_row in self.calls.to_rows(self.newest - HOUR):
            add(sums, ("calls", *call_row[:3]), of_counts(call_row[3:]))
        for matched_key, n in self.matched.items():
            add(sums, ("matched", *matched_key), n)
        for pipeline, counts in self.answers.items():
            add(sums, ("answers", pipeline), of_counts(counts))
        for captured_key, captured in self.captured:
            add(sums, ("ids", *captured_key), of_counts(captured.compared()))
        places = len(Judged._fields)
        for row in self.cohorts.to_rows():
            add(sums, ("cohorts", *row[:places]), of_counts(row[places:]))
        return digest_of(sums)

    def dump(self) -> WindowsState:
        """The whole state in its saved form; parts of it are not copied."""
        return WindowsState(
            newest=self.newest,
            fold_due=self._fold_due,
            calls=self.calls,
            matched=list(self.matched.items()),
            answers=self.answers,
            series=[(key, series.dump()) for key, series in self.series.items()],
            captured=self.captured,
            cohorts=self.cohorts,
        )

    def restore(self, state: WindowsState) -> None:
        """Replace everything by a saved state; the retention stays."""
        self.newest, self._fold_due = state.newest, state.fold_due
        self.calls, self.calls.recent = state.calls, self._recent
        self.matched = Counter(dict(state.matched))
        self.answers = {pipeline: list(counts) for pipeline, counts in state.answers.items()}
        self.captured, self.cohorts = state.captured, state.cohorts
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
