"""What is followed through time: a gate's metric, the share of requests that were fast enough, or of one index.

The rows a gate reads in a stretch of time, step by step and on both sides of a cut.

What the requests before a change and those after it came to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ragmon import stats
from ragmon.core import constants
from ragmon.core.constants import FOLDED, STEP
from ragmon.core.policy import Gate, Outcome
from ragmon.gates.diagnosis.change import Point, ScoreSums, added
from ragmon.gates.diagnosis.model import Side, Stage, Times
from ragmon.metrics.facts import Key
from ragmon.scoring.calls import by_stratum
from ragmon.scoring.counts import Table, WindowBucket, add_counts, add_table
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.snapshot import FEW, SLACK, item_sums
from ragmon.scoring.windows import UNTIMED, SeriesKey, State
from ragmon.stats.strata import Estimate

OCTAVES: Final = tuple(2**power for power in range(18))
"""Milliseconds at which latencies are parted; they do not depend on what was measured."""


class Measure(ABC):
    """A score of requests.

    Args:
        name: What it is called.
        at_least: More is better.
    """

    def __init__(self, name: str, *, at_least: bool) -> None:
        self.name = name
        self.at_least = at_least

    @abstractmethod
    def of(self, key: SeriesKey, row: WindowBucket) -> Stat:
        """What a row of a series says."""

    def passed(self, key: SeriesKey, row: WindowBucket) -> tuple[int, int] | None:
        """How many requests keep and break the gate, one by one; None where that is not known."""
        stat = self.of(key, row)
        good = self.sums(stat).total // stats.MICRO
        return good, stat.n - good

    def sums(self, stat: Stat) -> ScoreSums:
        """The same, of which more is better."""
        return ScoreSums(stat.n, stat.sum if self.at_least else stat.n * stats.MICRO - stat.sum)


class GateMetric(Measure):
    """A gate's metric.

    Args:
        gate: The gate.
        table: The metrics.
    """

    def __init__(self, gate: Gate, table: ScoreTable) -> None:
        super().__init__(gate.metric, at_least=gate.at_least)
        self.metric = table.metrics[gate.metric]
        self._gate = gate
        self._table = ScoreTable({gate.metric: self.metric})

    def of(self, key: SeriesKey, row: WindowBucket) -> Stat:
        """What a row of a series says."""
        return self._table.of(row)[self.name]

    def passed(self, key: SeriesKey, row: WindowBucket) -> tuple[int, int] | None:
        """How many requests keep and break the gate; None for scores that are kept as sums alone."""
        if self.metric.measured or row.spilled:
            return None
        scored = [(score, n) for facts, n in row.cells.items() if (score := self.score(facts)) is not None]
        good = sum(n for score, n in scored if self.keeps(score))
        return good, sum(n for _, n in scored) - good

    def keeps(self, score: float) -> bool:
        """Whether a request with this score is on the good side of the gate."""
        return self._gate.holds(score)

    def score(self, facts: Key) -> float | None:
        """The score of one request; None where it has none."""
        (score,) = self._table.scores(facts)
        return score / stats.MICRO if isinstance(score, int) else None


class Within(Measure):
    """The share of requests that took less than a number of milliseconds."""

    def __init__(self, milliseconds: int, stage: str = "total") -> None:
        super().__init__(f"within {milliseconds} ms", at_least=True)
        self._edge = stats.bucket(milliseconds)
        self._stage = stage

    def of(self, key: SeriesKey, row: WindowBucket) -> Stat:
        """What a row of a series says."""
        histogram = row.latency.get(self._stage, {})
        fast = stats.MICRO * sum(n for bucket, n in histogram.items() if bucket < self._edge)
        return Stat(sum(histogram.values()), fast, fast * stats.MICRO)


class SameIndex(Measure):
    """The share of requests that the index answered which was there first."""

    def __init__(self, index_hash: str) -> None:
        super().__init__(f"index_hash {index_hash}", at_least=True)
        self._index = index_hash

    def of(self, key: SeriesKey, row: WindowBucket) -> Stat:
        """What a row of a series says."""
        n = row.count if key.index_hash else 0
        same = n * stats.MICRO if key.index_hash == self._index else 0
        return Stat(n, same, same * stats.MICRO)


class Reads(NamedTuple):
    """Which series a gate reads.

    Attributes:
        pipeline, where: As the gate says.
        source: The source; "" for all that are counted once.
        gold: The gold set; "" for requests without one; None for all requests.
    """

    pipeline: str
    source: str
    gold: str | None
    where: str

    def takes(self, key: SeriesKey) -> bool:
        """Whether a series is one of them, in any slice and of any sampling."""
        source = key.source == self.source if self.source else key.source not in constants.AGAIN
        return key.pipeline == self.pipeline and source and self.gold in (None, key.gold)


def reads(outcome: Outcome, state: State, table: ScoreTable) -> Reads:
    """Which series a gate's outcome rests on; without data in its window, those of the gold set with most records."""
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
    """What was counted in a stretch of time.

    Args:
        state: Everything that was counted.
        reads: Which series.
        begin, end: The stretch, seconds since the epoch.
        version: Of the gold set; None for all.
    """

    state: State
    reads: Reads
    begin: int
    end: int
    version: str | None = None

    @cached_property
    def every(self) -> tuple[SeriesKey, ...]:
        """All series it may read, slices and calls that were kept for their outcome included."""
        return tuple(
            key
            for key in sorted(self.state.series)
            if self.reads.takes(key) and self.version in (None, key.gold_version)
        )

    @cached_property
    def keys(self) -> tuple[SeriesKey, ...]:
        """The series of audit members, which a gate's verdict and its alarm rest on."""
        return tuple(key for key in self.every if key.drawn and key.slice == self.reads.where)

    @cached_property
    def _edge(self) -> int:
        """Where rows of `STEP` seconds begin; before it they are `FOLDED` seconds long."""
        folded = (start for key in self.every for start in self.state.series[key].folded if start != UNTIMED)
        return max(folded, default=-FOLDED) + FOLDED

    def rows(self, key: SeriesKey, begin: float, end: float) -> Iterator[tuple[int, int, WindowBucket]]:
        """Start and end of each step that starts in a stretch, and its row; a step may have two."""
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
        """Where every step with a record ends, by its start."""
        return {start: end for key in self.keys for start, end, _ in self.rows(key, self.begin, self.end)}

    def points(self, measure: Measure) -> list[Point]:
        """The steps with at least one score, in the order of time."""
        found: dict[int, ScoreSums] = {}
        for key in self.keys:
            for start, _, row in self.rows(key, self.begin, self.end):
                sums = measure.sums(measure.of(key, row))
                if sums.n:
                    found[start] = found[start].plus(sums) if start in found else sums
        return [Point(start, self.steps[start], found[start]) for start in sorted(found)]

    def merged(self, keys: Iterable[SeriesKey], begin: float, end: float) -> dict[SeriesKey, WindowBucket]:
        """What each series counted in a stretch, as one row."""
        found: dict[SeriesKey, WindowBucket] = {}
        for key in keys:
            whole = found[key] = WindowBucket()
            for _, _, row in self.rows(key, begin, end):
                whole.merge(row)
        return found


def first_seen(state: State, keys: Sequence[SeriesKey]) -> float | None:
    """The start of the first step in which any of some series has a record; None where it is older than any step."""
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
    """The rows on one side of a cut.

    Args:
        look: What is looked at.
        begin, end: The stretch of time, seconds since the epoch.

    Attributes:
        rows: What each series of audit members counted.
        whole: All of them together.
    """

    def __init__(self, look: WindowSelection, begin: float, end: float) -> None:
        self.look = look
        self.begin, self.end = begin, end
        self.rows: dict[SeriesKey, WindowBucket] = look.merged(look.keys, begin, end)
        self.whole = WindowBucket()
        for row in self.rows.values():
            self.whole.merge(row)
        self._stats: dict[Measure, Stat] = {}

    def stat(self, measure: Measure) -> Stat:
        """A measure over all requests of this side."""
        if measure not in self._stats:
            self._stats[measure] = added(measure.of(key, row) for key, row in self.rows.items())
        return self._stats[measure]

    def failing(self, measure: Measure) -> dict[Key, int]:
        """The requests that break the gate, by facts; empty where their scores are not known one by one."""
        if not isinstance(measure, GateMetric) or measure.metric.measured:
            return {}
        scores = ((key, n, measure.score(key)) for key, n in self.whole.cells.items())
        return {key: n for key, n, score in scores if score is not None and not measure.keeps(score)}

    def side(self, measure: Measure, outcome: Outcome, table: ScoreTable) -> Side:
        """What is said of this side."""
        stat, steps = self.stat(measure), [s for s in self.look.steps.items() if self.begin <= s[0] < self.end]
        begin, end = min(steps, default=(self.begin, 0))[0], max((s[1] for s in steps), default=self.end)
        unassessed = self._unassessed(measure)
        found, of, calls = self._estimate(measure, outcome, table, stat)
        one_by_one = [measure.passed(key, row) for key, row in self.rows.items()]
        known = [pair for pair in one_by_one if pair is not None]
        complete = len(known) == len(one_by_one)
        return Side(
            begin=float(begin),
            end=float(end),
            value=found.value,
            lower=found.lower if found.value is not None else None,
            upper=found.upper if found.value is not None else None,
            n=found.n,
            of=of,
            records=self.whole.count,
            scored=stat.n,
            passed=sum(good for good, _ in known) if complete else None,
            failed=sum(bad for _, bad in known) if complete else None,
            unassessed=unassessed,
            outside=self.whole.count - stat.n - sum(unassessed.values()),
            per_minute=60 * (calls or self.whole.count) / max(1.0, end - begin),
        )

    def _unassessed(self, measure: Measure) -> dict[str, int]:
        found: dict[str, int] = {}
        for key, row in self.rows.items():
            add_counts(found, measure.of(key, row).unassessed)
        return found

    def _estimate(self, measure: Measure, outcome: Outcome, table: ScoreTable, stat: Stat) -> tuple[Estimate, str, int]:
        """The value as the gate has it, what its interval is for, and how many calls there were where that is known."""
        if outcome.source == constants.LIVE and not outcome.gate.where and self.look.reads.gold is None:
            calls, rows = self._calls()
            total = sum(calls.values())
            if total and len({*calls, *rows}) > 1 and isinstance(measure, GateMetric):
                only = ScoreTable({measure.name: table.metrics[measure.name]})
                return weighted(rows, calls, only)[measure.name], constants.ALL_CALLS, total
            return stat.estimate, REQUESTS, total
        if outcome.estimand == constants.QUESTIONS_LIKE_THESE and isinstance(measure, GateMetric):
            clusters = self._clusters(table, measure.name)
            if sum(n for n, _ in clusters) == stat.n > 0:
                lower, upper, n_eff = stats.clustered(clusters)
                return Estimate(stat.value, lower, upper, stat.n, n_eff, 0.0, float(stat.n), ()), GOLD_ITEMS, 0
        return stat.estimate, REQUESTS, 0

    def _calls(self) -> tuple[Mapping[str, int], Mapping[str, WindowBucket]]:
        """All calls of user traffic by stratum, none where some producer tells nothing, and what was kept of them."""
        rows: dict[str, WindowBucket] = {}
        kept = [key for key in self.look.every if not key.slice and key.stratum != constants.UNKNOWN_WEIGHT]
        for key, row in self.look.merged(kept, self.begin, self.end).items():
            rows.setdefault(key.stratum, WindowBucket()).merge(row)
        calls = by_stratum(
            self.look.state.calls.since(self.begin, self.end), self.look.reads.pipeline, self.look.reads.source
        )
        if sum(row.count for row in rows.values()) > SLACK * sum(count.kept for count in calls.values()) + FEW:
            return {}, rows
        return {stratum: count.calls for stratum, count in calls.items()}, rows

    def _clusters(self, table: ScoreTable, metric: str) -> list[tuple[int, float]]:
        """`(n, sum of scores)` of every gold item, as far as its steps are still fresh."""
        items: Table = {}
        for key in self.look.keys:
            for found in self.look.state.series[key].items.window(self.begin, self.end, hours=False):
                add_table(items, found)
        place = list(table.metrics).index(metric)
        sums = (item_sums(table, facts, place) for facts in items.values())
        return [(n, total / stats.MICRO) for n, total in sums if n]


def stages(before: SideReader | None, after: SideReader) -> tuple[Stage, ...]:
    """How long every stage took on both sides."""
    return tuple(
        Stage(name, _times(before, name), _times(after, name))
        for name in constants.STAGES
        if after.whole.latency.get(name)
    )


def _times(half: SideReader | None, stage: str) -> Times:
    histogram = {} if half is None else half.whole.latency.get(stage, {})
    return Times(sum(histogram.values()), stats.quantile(histogram, 0.5), stats.quantile(histogram, 0.95))
