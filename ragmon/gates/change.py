"""What a diagnosis knows: its data (`Why`), the change point of a mean, and the counts it reads.

The change point is the most likely cut of a series of steps into two. Two means against one have the likelihood ratio
`n1 KL(p1, p) + n2 KL(p2, p)`, with p the mean of both: its logarithm is the evidence, exact for shares and conservative
for graded scores. Times are in seconds since the epoch, shares in [0, 1].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS
from ragmon.core.policy import Gate, Kind, Outcome, Verdict
from ragmon.metrics.facts import Key
from ragmon.scoring.buckets import UNTIMED, Bucket, SeriesKey, State, Table, add_table, by_stratum, sampled_calls
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.snapshot import FEW, SLACK, Clusters, clusters_of
from ragmon.stats import histograms
from ragmon.stats.histograms import MICRO, add_counts, quantile
from ragmon.stats.intervals import clustered_or_missing
from ragmon.stats.prediction import kl
from ragmon.stats.strata import Estimate

How = Literal["appeared", "carries", "inside", "elsewhere", "slower"]
ALPHA: Final = 0.01
LIKELY: Final = math.log(2 / 0.05)
"""Cuts whose evidence is less than this below the best are nearly as likely.

Source: if both means were known, the difference in evidence between the true cut and the best one would exceed x on
either side with a probability of at most exp(-x) (Ville's inequality), so that these cuts hold the true one in 95 of
100 cases; because the means are estimated, it is a little less. The idea is Siegmund's, Int. Stat. Rev. 56 (1988), p.
31.
"""
OCTAVES: Final = tuple(2**power for power in range(18))
"""Latency limits in milliseconds; they are fixed, so they do not depend on the measured data."""
REQUESTS = "requests"
GOLD_ITEMS = "gold items"


@dataclass(frozen=True)
class Level:
    """A mean; its value is None where nothing was scored."""

    n: int
    value: float | None


@dataclass(frozen=True)
class ChangePoint:
    """When the measure became worse.

    Attributes:
        began: The start of the first step after the change; None where there is no significant change.
        earliest, latest: The interval that holds the change: the cuts that are nearly as likely.
        p: An upper bound on the probability of so much evidence without a change, over all compared cuts together.
        evidence: The logarithm of the likelihood ratio of two means against one.
        places: How many cuts were compared.
        reason: Why `began` is None; "" where it is not.
    """

    began: float | None
    earliest: float | None
    latest: float | None
    p: float
    evidence: float
    places: int
    reason: str


@dataclass(frozen=True)
class Side:
    """The requests before or after the change.

    Attributes:
        begin, end: The start of the first step with a record, and the end of the last one.
        value, lower, upper: The measure with its 95 % interval; None without data.
        n: Requests in its denominator.
        of: What the interval counts: `requests`, `gold items`, or `all calls` where strata are weighted.
        records: Audit members. Each is passed, failed, unassessed or outside, unless scores are kept as sums only.
        scored: Audit members with a score.
        passed, failed: Those whose own score keeps or breaks the gate; None where scores are kept as sums only.
        unassessed: Those that belong in the denominator but could not be scored, by reason.
        outside: Those that do not belong in the denominator.
        per_minute: Requests per minute; all calls where they are counted, else records.
    """

    begin: float
    end: float
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    of: str
    records: int
    scored: int
    passed: int | None
    failed: int | None
    unassessed: dict[str, int]
    outside: int
    per_minute: float


@dataclass(frozen=True)
class Moved:
    """The change of a trait's share, or of a metric.

    Attributes:
        by: The change in standard errors; positive if it rose.
        failing: For a trait, its share among the failing requests after the change.
    """

    name: str
    before: Level
    after: Level
    by: float
    failing: Level | None = None

    @property
    def of_failing(self) -> float:
        """The share of the failing requests that have the trait; 0 where nothing is known of them."""
        return 0.0 if self.failing is None else self.failing.value or 0.0


@dataclass(frozen=True)
class Times:
    """The latency of a stage, in milliseconds."""

    n: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Stage:
    """The latency of a stage before and after the change."""

    name: str
    before: Times
    after: Times


@dataclass(frozen=True)
class Part:
    """The requests of one build, index, model, slice, gold version or stratum.

    Attributes:
        name: The part's name; "" where none was recorded.
        before, after: The level of the measure in it.
        records_before, records_after: Audit members.
        first_seen: The start of the first step with a record of it, for builds and indexes in any source of the
            pipeline; None where it is older than the rows kept by time.
    """

    name: str
    before: Level
    after: Level
    records_before: int
    records_after: int
    first_seen: float | None


@dataclass(frozen=True)
class Split:
    """All parts by one property; the parts by a tag need not cover every request."""

    dimension: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Suspect:
    """A part that separates good requests from bad ones, or a stage that became slower.

    Attributes:
        dimension: `gold_version`, `build`, `index_hash`, `build and index_hash`, `model`, a tag, or `stage`.
        how: `appeared`: it was new when the change began. `carries`: its requests are worse at any time, and its share
            grew. `inside`: the change is in it and not in the rest. `elsewhere`: it was new when the change
            began, in requests of other sources; these carry none. `slower`: it takes longer than before.
        evidence: The logarithm of a likelihood ratio.
        p: An upper bound on the probability of so much evidence by chance, over all compared parts together.
        rest_before, rest_after: The level of the measure in all other requests.
        first_seen: As in `Part`.
    """

    dimension: str
    name: str
    how: How
    evidence: float
    p: float
    before: Level
    after: Level
    rest_before: Level
    rest_after: Level
    share_before: float
    share_after: float
    first_seen: float | None


@dataclass(frozen=True)
class FailingStretch:
    """A stretch of time in which requests failed more often than at the best of times.

    Attributes:
        begin, end: Seconds since the epoch.
        failed: The requests that fail the gate, or miss the measure, in it.
        trait: The first trait, in the order of the pipeline, of most of them; "" where there is none.
    """

    begin: float
    end: float
    failed: int
    trait: str


@dataclass(frozen=True)
class GateState:
    """A gate, what it reads, and its outcome in its own window.

    Attributes:
        alarm: What its alarm compares and what it has seen, in a sentence; "" where the gate says all.
        derived: It is no gate: an alarm that compares a metric with its own past.
    """

    pipeline: str
    name: str
    metric: str
    source: str
    gold: str
    slice: str
    kind: Kind
    direction: Literal["at_least", "at_most"]
    threshold: float
    verdict: Verdict
    reason: str
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    alarm: str = ""
    derived: bool = False


@dataclass(frozen=True)
class Why:
    """The diagnosis of a gate, as far as counts can tell.

    Attributes:
        firing: Since when its alarm fires; None while it does not fire.
        now: The time of the diagnosis, seconds since the epoch.
        begin, end: The time range around the change; on each side of the change nothing else became worse or better.
        measure: The measure followed in it: the metric, `within 512 ms`, `index_hash 9f3c`.
        before: The requests before the change; None without a change.
        after: The requests after the change; all requests without a change.
        mechanism: The first trait, in the order of the pipeline, that explains the change; "" where none does.
        traits: Traits of requests, largest change first.
        suspects: Parts and stages that separate good requests from bad ones, best first.
        failed: The failing requests of the time range that was asked for; None where scores are kept as sums only.
        stretches: The stretches of time in which most of them lie, in order of time.
    """

    gate: GateState
    firing: float | None
    now: float
    begin: float
    end: float
    measure: str
    change: ChangePoint
    before: Side | None
    after: Side
    mechanism: str
    traits: tuple[Moved, ...]
    metrics: tuple[Moved, ...]
    stages: tuple[Stage, ...]
    splits: tuple[Split, ...]
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]
    failed: int | None = None
    stretches: tuple[FailingStretch, ...] = ()


class ScoreSums(NamedTuple):
    """A number of requests and the sum of their scores in micro-units; more is better."""

    n: int
    total: int

    @property
    def mean(self) -> float:
        """The mean score; there must be at least one request."""
        return self.total / (self.n * MICRO)

    def plus(self, other: ScoreSums) -> ScoreSums:
        """The sums of both."""
        return ScoreSums(self.n + other.n, self.total + other.total)

    def minus(self, other: ScoreSums) -> ScoreSums:
        """The sums without the other's."""
        return ScoreSums(self.n - other.n, self.total - other.total)


NOTHING: Final = ScoreSums(0, 0)


class Point(NamedTuple):
    """One step: its start and end in seconds since the epoch, and its scores."""

    start: int
    end: int
    sums: ScoreSums


def gain(change: ScoreSums, other: ScoreSums) -> float:
    """The logarithm of the likelihood ratio of two means against one.

    >>> round(gain(ScoreSums(100, 90 * MICRO), ScoreSums(100, 60 * MICRO)), 2)
    12.66
    """
    if not change.n or not other.n:
        return 0.0
    mean = change.plus(other).mean
    return change.n * kl(change.mean, mean) + other.n * kl(other.mean, mean)


def p_bound(evidence: float, places: int) -> float:
    """An upper bound on the probability of this much evidence for any of the compared cuts, if nothing changed.

    The evidence of each side exceeds x with a probability of at most exp(-x), for any scores in [0, 1]; that of both
    sides together with at most (1 + x) exp(-x); that of any cut with at most the sum over all cuts. Requests are taken
    as independent.

    Source: Hoeffding, J. Am. Stat. Assoc. 58 (1963), p. 13, theorem 1.

    >>> p_bound(20.0, 700) < 0.0001 < p_bound(15.0, 700), p_bound(1.0, 5)
    (True, 1.0)
    """
    return min(1.0, places * (1 + evidence) * math.exp(-evidence))


def locate(points: Sequence[Point], tries: int = 1) -> ChangePoint:
    """The most likely time at which the mean fell.

    Args:
        points: Steps with at least one score, in order of time.
        tries: The number of measures of the same requests that are tried.
    """
    cuts_compared = max(0, len(points) - 1) * tries

    def no_change(reason: str, p: float = 1.0, evidence: float = 0.0) -> ChangePoint:
        return ChangePoint(None, None, None, p, evidence, cuts_compared, reason)

    if len(points) < 2:
        return no_change("all scored requests are in one step of time" if points else "no request was scored")
    up_to = list(accumulate((point.sums for point in points), ScoreSums.plus))
    total = up_to[-1]
    cuts = [(before, total.minus(before)) for before in up_to[:-1]]
    largest_possible = max(gain(ScoreSums(a.n, a.n * MICRO), ScoreSums(b.n, 0)) for a, b in cuts)
    if p_bound(largest_possible, cuts_compared) > ALPHA:
        return no_change(f"{total.n} scored requests are too few to tell a change from chance")
    gains = [gain(a, b) if a.mean > b.mean else 0.0 for a, b in cuts]
    best = max(range(len(gains)), key=gains.__getitem__)
    p = p_bound(gains[best], cuts_compared)
    if p > ALPHA:
        how = f"p <= {p:.2g}" if p < 1 else "chance alone may do this"
        return no_change(f"nothing became worse: {how}, {cuts_compared} points in time tested", p, gains[best])
    likely = [i for i, evidence in enumerate(gains) if evidence > 0 and evidence >= gains[best] - LIKELY]
    return ChangePoint(
        began=float(points[best + 1].start),
        earliest=float(points[likely[0]].start),
        latest=float(points[likely[-1] + 1].end),
        p=p,
        evidence=gains[best],
        places=cuts_compared,
        reason="",
    )


def inverted(points: Iterable[Point]) -> list[Point]:
    """The same steps where more is worse."""
    return [point._replace(sums=ScoreSums(point.sums.n, point.sums.n * MICRO - point.sums.total)) for point in points]


def segments(points: Sequence[Point]) -> list[Sequence[Point]]:
    """The steps, cut wherever the mean changed for the worse or the better."""
    changes = [change for change in (locate(points, 2), locate(inverted(points), 2)) if change.began is not None]
    if not changes:
        return [points]
    cut = max(changes, key=lambda change: change.evidence).began or 0.0
    before, after = ([point for point in points if (point.start < cut) == is_before] for is_before in (True, False))
    return [*segments(before), *segments(after)]


def total(sums: Iterable[ScoreSums]) -> ScoreSums:
    """The sum of all."""
    total = NOTHING
    for each in sums:
        total = total.plus(each)
    return total


def level(stat: Stat) -> Level:
    """The mean of a statistic and its number of requests."""
    return Level(stat.n, stat.value)


def share(k: int, n: int) -> Stat:
    """The statistic of k successes in n requests."""
    return Stat(n, k * MICRO, k * MICRO**2)


def added(stats: Iterable[Stat]) -> Stat:
    """The statistic of all requests together."""
    parts = list(stats)
    return Stat(sum(part.n for part in parts), sum(part.sum for part in parts), sum(part.squares for part in parts))


def without(total: Stat, part: Stat) -> Stat:
    """The statistic of the requests outside a part."""
    return Stat(total.n - part.n, total.sum - part.sum, total.squares - part.squares)


def moved_by(before: Stat, after: Stat) -> float:
    """The change of a mean in standard errors; 0 where one side has no request.

    Source: Agresti and Caffo, Am. Stat. 54 (2000), p. 280: a score of 0 and one of 1 are added to each side, so that a
    few requests with equal scores do not count as certain.

    >>> round(moved_by(share(90, 100), share(60, 100)), 1)
    -5.1
    """
    if not before.n or not after.n:
        return 0.0
    (a, va), (b, vb) = _adjusted(before), _adjusted(after)
    return (b - a) / math.sqrt(va + vb)


def difference_in_change(before: Stat, after: Stat, rest_before: Stat, rest_after: Stat) -> float:
    """How much more a part changed than the rest, in standard errors; 0 where one of the four has no request."""
    four = (before, after, rest_before, rest_after)
    if not all(stat.n for stat in four):
        return 0.0
    (a, va), (b, vb), (c, vc), (d, vd) = map(_adjusted, four)
    return ((b - a) - (d - c)) / math.sqrt(va + vb + vc + vd)


def _adjusted(stat: Stat) -> tuple[float, float]:
    """The mean with a 0 and a 1 added to the scores, and its variance."""
    n = stat.n + 2
    mean = (stat.sum / MICRO + 1) / n
    return mean, max(0.0, (stat.squares / MICRO**2 + 1) / n - mean * mean) / n


class Measure(ABC):
    """A score of requests that is followed over time: the metric of a gate, a share within a limit, or of one index."""

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
    """The metric of a gate."""

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
                sizes[key.gold] = sizes.get(key.gold, 0) + sum(row.count for row in series.buckets())
        gold = max(sorted(sizes), key=sizes.__getitem__, default="")
    return Reads(gate.pipeline, outcome.source, gold, gate.where)


@dataclass(frozen=True, eq=False)
class WindowSelection:
    """The counts of some series in a time range."""

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
        """The time from which rows are `BUCKET_SECONDS` seconds long; older rows are `FOLDED_SECONDS` seconds long."""
        folded = (start for key in self.every for start in self.state.series[key].folded if start != UNTIMED)
        return max(folded, default=-FOLDED_SECONDS) + FOLDED_SECONDS

    def rows(self, key: SeriesKey, begin: float, end: float) -> Iterator[tuple[int, int, Bucket]]:
        """The start and end of each step that starts in a time range, with its row; a step may have two rows."""
        series = self.state.series[key]
        for start, row in series.fresh.items():
            is_folded = start < self._edge
            first = start // FOLDED_SECONDS * FOLDED_SECONDS if is_folded else start
            if begin <= first < end:
                yield first, first + (FOLDED_SECONDS if is_folded else BUCKET_SECONDS), row
        for start, row in series.folded.items():
            if start != UNTIMED and begin <= start < end:
                yield start, start + FOLDED_SECONDS, row

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


class SideReader:
    """The requests on one side of a cut."""

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
        unassessed: dict[str, int] = {}
        for key, row in self.rows.items():
            add_counts(unassessed, measure.of(key, row).unassessed)
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

    def _estimate(self, measure: Measure, outcome: Outcome, table: ScoreTable, stat: Stat) -> tuple[Estimate, str, int]:
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
        calls |= sampled_calls(rows)
        if sum(row.count for row in rows.values()) > SLACK * sum(count.kept for count in calls.values()) + FEW:
            return {}, rows
        return {stratum: count.calls for stratum, count in calls.items()}, rows

    def _clusters(self, table: ScoreTable, metric: str) -> Clusters:
        """How many gold items have equal scores, in steps that are not folded yet."""
        items: Table = {}
        for key in self.selection.keys:
            for start, step in self.selection.state.series[key].item_steps.items():
                if self.begin <= start < self.end:
                    add_table(items, step.facts)
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
