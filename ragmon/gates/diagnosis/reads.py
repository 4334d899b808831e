"""The data a diagnosis reads: measures, the rows of a gate in a time range, and the requests on each side of a cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import FOLDED, STEP
from ragmon.core.policy import Gate, Outcome
from ragmon.gates.diagnosis.change import Point, ScoreSums, added
from ragmon.gates.diagnosis.model import Side, Stage, Times
from ragmon.metrics.facts import Key
from ragmon.scoring.buckets import UNTIMED, Bucket, SeriesKey, State, Table, add_table
from ragmon.scoring.calls import by_stratum
from ragmon.scoring.cohorts import add_counts
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.snapshot import FEW, SLACK
from ragmon.scoring.windows import Clusters, clusters_of
from ragmon.stats import histograms
from ragmon.stats.histograms import MICRO, quantile
from ragmon.stats.intervals import clustered_or_missing
from ragmon.stats.strata import Estimate

OCTAVES: Final = tuple(2**power for power in range(18))
"""Latency limits in milliseconds; they are fixed, so they do not depend on the measured data."""


class Measure(ABC):
    """A score of requests that is followed over time: a gate's metric, a share within a latency limit, or of one index.

    Args:
        name: The name of the measure.
        at_least: Whether more is better.
    """

    def __init__(self, name: str, *, at_least: bool) -> None:
        self.name = name
        self.at_least = at_least

    @abstractmethod
    def of(self, key: SeriesKey, row: Bucket) -> Stat:
        """The measure in a row of a series."""

    def passed(self, key: SeriesKey, row: Bucket) -> tuple[int, int] | None:
        """How many requests pass and fail the gate, each by its own score; None where that is not known."""
        stat = self.of(key, row)
        good = self.sums(stat).total // MICRO
        return good, stat.n - good

    def sums(self, stat: Stat) -> ScoreSums:
        """The same statistic as sums of which more is better."""
        return ScoreSums(stat.n, stat.sum if self.at_least else stat.n * MICRO - stat.sum)


class GateMetric(Measure):
    """The metric of a gate.

    Args:
        gate: The gate.
        table: The metrics.
    """

    def __init__(self, gate: Gate, table: ScoreTable) -> None:
        super().__init__(gate.metric, at_least=gate.at_least)
        self.metric = table.metrics[gate.metric]
        self._gate = gate
        self._table = ScoreTable({gate.metric: self.metric})

    def of(self, key: SeriesKey, row: Bucket) -> Stat:
        """The measure in a row of a series."""
        return self._table.of(row)[self.name]

    def passed(self, key: SeriesKey, row: Bucket) -> tuple[int, int] | None:
        """How many requests pass and fail the gate; None for scores that are kept as sums only."""
        if self.metric.measured or row.spilled:
            return None
        scored = [(score, n) for facts, n in row.cells.items() if (score := self.score(facts)) is not None]
        good = sum(n for score, n in scored if self.keeps(score))
        return good, sum(n for _, n in scored) - good

    def keeps(self, score: float) -> bool:
        """Whether a request with this score passes the gate."""
        return self._gate.holds(score)

    def score(self, facts: Key) -> float | None:
        """The score of one request; None where it has no score."""
        (score,) = self._table.scores(facts)
        return score / MICRO if isinstance(score, int) else None


class Within(Measure):
    """The share of requests that took less than a number of milliseconds."""

    def __init__(self, milliseconds: int, stage: str = "total") -> None:
        super().__init__(f"within {milliseconds} ms", at_least=True)
        self._edge = histograms.bucket(milliseconds)
        self._stage = stage

    def of(self, key: SeriesKey, row: Bucket) -> Stat:
        """The measure in a row of a series."""
        histogram = row.latency.get(self._stage, {})
        fast = MICRO * sum(n for bucket, n in histogram.items() if bucket < self._edge)
        return Stat(sum(histogram.values()), fast, fast * MICRO)


class SameIndex(Measure):
    """The share of requests answered by the index that was seen first."""

    def __init__(self, index_hash: str) -> None:
        super().__init__(f"index_hash {index_hash}", at_least=True)
        self._index = index_hash

    def of(self, key: SeriesKey, row: Bucket) -> Stat:
        """The measure in a row of a series."""
        n = row.count if key.index_hash else 0
        same = n * MICRO if key.index_hash == self._index else 0
        return Stat(n, same, same * MICRO)


class Requests(Measure):
    """Every request counts: what is followed is which requests there are."""

    def __init__(self) -> None:
        super().__init__(REQUESTS, at_least=True)

    def of(self, key: SeriesKey, row: Bucket) -> Stat:
        """The measure in a row of a series."""
        return Stat(row.count, row.count * MICRO, row.count * MICRO**2)


class Reads(NamedTuple):
    """The series a gate reads.

    Attributes:
        pipeline, where: The pipeline and the slice of the gate.
        source: The source; "" for all sources that count a request once.
        gold: The gold set; "" for requests without one; None for all requests.
    """

    pipeline: str
    source: str
    gold: str | None
    where: str

    def takes(self, key: SeriesKey) -> bool:
        """Whether the gate reads a series, of any slice and any sampling."""
        source = key.source == self.source if self.source else key.source not in constants.ALSO_LIVE_SOURCES
        return key.pipeline == self.pipeline and source and self.gold in (None, key.gold)


def reads(outcome: Outcome, state: State, table: ScoreTable) -> Reads:
    """The series a gate's outcome rests on; without data in its window, those of the gold set with most records."""
    gate, gold = outcome.gate, outcome.gold or outcome.gate.gold or None
    if gold is None and gate.kind == "threshold" and table.metrics[gate.metric].needs_gold:
        sizes: dict[str, int] = {}
        for key, series in state.series.items():
            if (key.pipeline, key.source, key.slice) == (gate.pipeline, outcome.source, gate.where) and key.gold:
                sizes[key.gold] = sizes.get(key.gold, 0) + sum(row.count for row in state.window(series, None, 0))
        gold = max(sorted(sizes), key=sizes.__getitem__, default="")
    return Reads(gate.pipeline, outcome.source, gold, gate.where)


@dataclass(frozen=True, eq=False)
class WindowSelection:
    """The counts of some series in a time range.

    Args:
        state: All counts.
        reads: The series.
        begin, end: The time range, seconds since the epoch.
        version: The version of the gold set; None for all.
    """

    state: State
    reads: Reads
    begin: int
    end: int
    version: str | None = None

    @cached_property
    def every(self) -> tuple[SeriesKey, ...]:
        """All series it may read, including slices and calls that were kept for their outcome."""
        return tuple(
            key
            for key in sorted(self.state.series)
            if self.reads.takes(key) and self.version in (None, key.gold_version)
        )

    @cached_property
    def keys(self) -> tuple[SeriesKey, ...]:
        """The series of audit members, which the gate's verdict and its alarm rest on."""
        return tuple(key for key in self.every if key.drawn and key.slice == self.reads.where)

    @cached_property
    def _edge(self) -> int:
        """The time from which rows are `STEP` seconds long; older rows are `FOLDED` seconds long."""
        folded = (start for key in self.every for start in self.state.series[key].folded if start != UNTIMED)
        return max(folded, default=-FOLDED) + FOLDED

    def rows(self, key: SeriesKey, begin: float, end: float) -> Iterator[tuple[int, int, Bucket]]:
        """The start and end of each step that starts in a time range, with its row; a step may have two rows."""
        series = self.state.series[key]
        for start, row in series.fresh.items():
            place = start if start >= self._edge else start // FOLDED * FOLDED
            if begin <= place < end:
                yield place, place + (STEP if start >= self._edge else FOLDED), row
        for start, row in series.folded.items():
            if start != UNTIMED and begin <= start < end:
                yield start, start + FOLDED, row

    @cached_property
    def steps(self) -> dict[int, int]:
        """The end of every step with a record, by its start."""
        return {start: end for key in self.keys for start, end, _ in self.rows(key, self.begin, self.end)}

    def points(self, measure: Measure) -> list[Point]:
        """The steps with at least one score, in order of time."""
        sums_by_start: dict[int, ScoreSums] = {}
        for key in self.keys:
            for start, _, row in self.rows(key, self.begin, self.end):
                sums = measure.sums(measure.of(key, row))
                if sums.n:
                    sums_by_start[start] = sums_by_start[start].plus(sums) if start in sums_by_start else sums
        return [Point(start, self.steps[start], sums_by_start[start]) for start in sorted(sums_by_start)]

    def merged(self, keys: Iterable[SeriesKey], begin: float, end: float) -> dict[SeriesKey, Bucket]:
        """The counts of each series in a time range, as one row."""
        buckets: dict[SeriesKey, Bucket] = {}
        for key in keys:
            bucket = buckets[key] = Bucket()
            for _, _, row in self.rows(key, begin, end):
                bucket.merge(row)
        return buckets


def first_seen(state: State, keys: Sequence[SeriesKey]) -> float | None:
    """The start of the first step with a record in any of the series; None where it is older than every step."""
    starts = []
    for key in keys:
        series = state.series[key]
        if series.past.count or UNTIMED in series.folded:
            return None
        starts += [*series.fresh, *series.folded]
    return float(min(starts)) if starts else None


REQUESTS = "requests"
GOLD_ITEMS = "gold items"


class SideReader:
    """The requests on one side of a cut.

    Args:
        selection: The window selection.
        begin, end: The time range, seconds since the epoch.

    Attributes:
        rows: The counts of each series of audit members.
        total: The counts of all of them together.
    """

    def __init__(self, selection: WindowSelection, begin: float, end: float) -> None:
        self.selection = selection
        self.begin, self.end = begin, end
        self.rows: dict[SeriesKey, Bucket] = selection.merged(selection.keys, begin, end)
        self.total = Bucket()
        for row in self.rows.values():
            self.total.merge(row)
        self._stats: dict[Measure, Stat] = {}

    def stat(self, measure: Measure) -> Stat:
        """The measure over all requests of this side."""
        if measure not in self._stats:
            self._stats[measure] = added(measure.of(key, row) for key, row in self.rows.items())
        return self._stats[measure]

    def failing(self, measure: Measure) -> dict[Key, int]:
        """The requests that fail the gate, by facts; empty where scores are kept as sums only."""
        if not isinstance(measure, GateMetric) or measure.metric.measured:
            return {}
        scores = ((key, n, measure.score(key)) for key, n in self.total.cells.items())
        return {key: n for key, n, score in scores if score is not None and not measure.keeps(score)}

    def side(self, measure: Measure, outcome: Outcome, table: ScoreTable) -> Side:
        """The statistics of this side."""
        stat, steps = self.stat(measure), [s for s in self.selection.steps.items() if self.begin <= s[0] < self.end]
        begin, end = min(steps, default=(self.begin, 0))[0], max((s[1] for s in steps), default=self.end)
        unassessed = self._unassessed(measure)
        estimate, unit, calls = self._estimate(measure, outcome, table, stat)
        pass_counts = [measure.passed(key, row) for key, row in self.rows.items()]
        known_counts = [pair for pair in pass_counts if pair is not None]
        complete = len(known_counts) == len(pass_counts)
        return Side(
            begin=float(begin),
            end=float(end),
            value=estimate.value,
            lower=estimate.lower if estimate.value is not None else None,
            upper=estimate.upper if estimate.value is not None else None,
            n=estimate.n,
            of=unit,
            records=self.total.count,
            scored=stat.n,
            passed=sum(good for good, _ in known_counts) if complete else None,
            failed=sum(bad for _, bad in known_counts) if complete else None,
            unassessed=unassessed,
            outside=self.total.count - stat.n - sum(unassessed.values()),
            per_minute=60 * (calls or self.total.count) / max(1.0, end - begin),
        )

    def _unassessed(self, measure: Measure) -> dict[str, int]:
        counts: dict[str, int] = {}
        for key, row in self.rows.items():
            add_counts(counts, measure.of(key, row).unassessed)
        return counts

    def _estimate(self, measure: Measure, outcome: Outcome, table: ScoreTable, stat: Stat) -> tuple[Estimate, str, int]:
        """The estimate as the gate makes it, what its interval counts, and the number of calls where it is known."""
        if outcome.source == constants.LIVE and not outcome.gate.where and self.selection.reads.gold is None:
            calls, rows = self._calls()
            total = sum(calls.values())
            if total and len({*calls, *rows}) > 1 and isinstance(measure, GateMetric):
                only = ScoreTable({measure.name: table.metrics[measure.name]})
                return weighted(rows, calls, only)[measure.name], constants.ALL_CALLS, total
            return stat.estimate, REQUESTS, total
        if outcome.estimand == constants.QUESTIONS_LIKE_THESE and isinstance(measure, GateMetric):
            clusters = self._clusters(table, measure.name)
            if sum(n * times for (n, _, _), times in clusters.items()) == stat.n > 0:
                lower, upper, n_eff = clustered_or_missing(clusters)
                return Estimate(stat.value, lower, upper, stat.n, n_eff, 0.0, float(stat.n), ()), GOLD_ITEMS, 0
        return stat.estimate, REQUESTS, 0

    def _calls(self) -> tuple[Mapping[str, int], Mapping[str, Bucket]]:
        """The number of user calls by stratum (empty where call totals are incomplete), and the rows of kept calls."""
        rows: dict[str, Bucket] = {}
        kept = [key for key in self.selection.every if not key.slice and key.stratum != constants.UNKNOWN_WEIGHT]
        for key, row in self.selection.merged(kept, self.begin, self.end).items():
            rows.setdefault(key.stratum, Bucket()).merge(row)
        calls = by_stratum(
            self.selection.state.calls.since(self.begin, self.end),
            self.selection.reads.pipeline,
            self.selection.reads.source,
        )
        if sum(row.count for row in rows.values()) > SLACK * sum(count.kept for count in calls.values()) + FEW:
            return {}, rows
        return {stratum: count.calls for stratum, count in calls.items()}, rows

    def _clusters(self, table: ScoreTable, metric: str) -> Clusters:
        """How many gold items have equal scores, in steps that are not folded yet."""
        items: Table = {}
        for key in self.selection.keys:
            for table_of_step in self.selection.state.series[key].items(self.begin, self.end, hours=False):
                add_table(items, table_of_step)
        return clusters_of(table, items, metric)


def stages(before: SideReader | None, after: SideReader) -> tuple[Stage, ...]:
    """The latency of every stage on both sides."""
    return tuple(
        Stage(name, _times(before, name), _times(after, name))
        for name in constants.STAGES
        if after.total.latency.get(name)
    )


def _times(side: SideReader | None, stage: str) -> Times:
    histogram = {} if side is None else side.total.latency.get(stage, {})
    return Times(sum(histogram.values()), quantile(histogram, 0.5), quantile(histogram, 0.95))
