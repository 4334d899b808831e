"""Verdicts on releases: one build against the gates, one release against another, a run against an earlier run.

A release is one build or one index. Its observations are clusters: the requests of one gold item, session or question.
Requests of a session are correlated; taken for independent draws they prove too much: of releases exactly on a gate of
.80, with a correlation of .3 and sessions of 10, 67 % got a verdict within 600 sessions, where 5 % may. With the
current mean of a session, one per session, 4 % at most got a wrong verdict over 54 designs of correlation and length.

Two assumptions remain: sessions and questions are independent of each other, and the later requests of a session are on
average as good as its first ones. A mean that still changes is not a settled bet, so no theorem covers it.

Two releases are compared while their traffic comes in, so a verdict must be proven. Two runs are complete, so their
values are compared as they are. Gold items are paired in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Literal, NamedTuple, TypeVar

from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.core.policy import Gate, Outcome, Policy, Verdict
from ragmon.gates.evaluate import (
    MAX_MISSING,
    Evidence,
    evaluate,
    find_evidence,
    not_assessable,
    sources_of,
    without_data,
)
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.facts import USUAL, CitationForm, Key, all_read_as
from ragmon.scoring.buckets import MODEL_SLICE, State, Table, add_table
from ragmon.scoring.minutes import CountedRequest, MinuteBatches, cluster_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, ItemSums, Lost, SeriesStats, Snapshot, item_sums, take_snapshot
from ragmon.stats import betting
from ragmon.stats.betting import Scores, at_most, checked_margin, coarse, log_not_worse, log_worse, pairs_at_most

MAX_SHARED_REQUESTS: Final = 8
"""Clusters of up to this many requests share equal counts, because most sessions are short and alike."""
_Counts = dict[Key, int]
By = Literal["build", "index_hash"]
"""The record field that tells two releases apart."""
_TITLES: Final[dict[By, str]] = {"build": "build", "index_hash": "index hash"}
_RUNS: Final = (constants.PROBE, constants.REPLAY)
"""Sources whose records may be a run through a gold set."""
_Means = Mapping[str, float | None]
"""Mean scores by gold item; None where the item was not in the denominator."""
_ROUNDING: Final = 1e-6
"""Reports hold six decimal places: a drop of exactly the allowed size must not fail because of rounding."""


class ReleaseSample(NamedTuple):
    """The sample of one release in a comparison.

    Attributes:
        value: The mean; None without data.
        n: The observations: paired gold items, else clusters of requests.
    """

    value: float | None
    n: int


class ReleaseIntervals(NamedTuple):
    """Lower and upper bounds, for requests and questions like these, whatever the unknown scores are.

    Attributes:
        before: Of the mean of the baseline.
        after: Of the mean of the candidate.
        drop: Of how much worse the candidate is: it is proven to be worse where both bounds are above 0.
    """

    before: tuple[float, float]
    after: tuple[float, float]
    drop: tuple[float, float]


@dataclass(frozen=True)
class Flip:
    """A gold item whose scores in two releases differ.

    Attributes:
        qid: The item.
        before, after: Its mean score in the baseline and in the candidate.
    """

    qid: str
    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    """The comparison of a gate's metric in two releases or runs.

    Attributes:
        gate: The gate.
        source: The source of the records.
        gold: The gold set; "" for all requests.
        before: The sample of the baseline.
        after: The sample of the candidate.
        verdict: Of releases: pass: the drop is proven to be less than allowed; fail: a drop is proven; insufficient:
            neither. Of runs: whether the drop is within what is allowed.
        reason: One line for a person.
        items: Gold items that both releases assessed; None for two independent samples.
        flips: Those of them whose scores differ.
        intervals: The intervals of the means and of the drop; None where nobody asked for them.
    """

    gate: Gate
    source: str
    gold: str
    before: ReleaseSample
    after: ReleaseSample
    verdict: Verdict
    reason: str
    items: int | None = None
    flips: tuple[Flip, ...] = ()
    intervals: ReleaseIntervals | None = None

    @property
    def drop(self) -> float | None:
        """How much worse the candidate is; negative where it is better."""
        before, after = self.before.value, self.after.value
        if before is None or after is None:
            return None
        return before - after if self.gate.at_least else after - before


class SeriesLocation(NamedTuple):
    """The series a request is counted in."""

    pipeline: str
    source: str
    gold: str
    where: str


def items_of(state: State) -> dict[SeriesLocation, Table]:
    """The counts of every gold item, over all builds and gold versions."""
    tables: dict[SeriesLocation, Table] = {}
    for key, series in state.series.items():
        if key.gold and key.drawn and not key.slice.startswith(MODEL_SLICE):
            merged = tables.setdefault(SeriesLocation(key.pipeline, key.source, key.gold, key.slice), {})
            for table in series.items():
                add_table(merged, table)
    return tables


class Clusters(MinuteBatches):
    """The requests of a release by cluster, over its whole time.

    Args:
        table: The metrics.
        gates: The gates to judge; only their slices and measured metrics are kept.
        cluster: The record fields that define a cluster, by pipeline.

    Attributes:
        alone: Requests without these fields; each is a cluster of its own.
        form: How the citations of a pipeline are read.
    """

    def __init__(self, table: ScoreTable, gates: Sequence[Gate], cluster: Callable[[str], Collection[str]]) -> None:
        super().__init__({gate.where for gate in gates if gate.where}, cluster)
        self.alone = 0
        self.form: Callable[[str], CitationForm] = lambda _: USUAL
        self._table = table
        self._measured = {gate.metric for gate in gates} & {m.key for m in table.metrics.values() if m.measured}
        self._facts: dict[SeriesLocation, dict[str, _Counts]] = {}
        self._sums: dict[tuple[SeriesLocation, str], dict[str, list[int]]] = {}
        self._numbers = count()
        self._empty: _Counts = {}
        self._shared: dict[tuple[int, Key], _Counts] = {}

    def collect(self, request: CountedRequest) -> None:
        """Count a request in its cluster, if it was drawn uniformly at a known rate."""
        record, item, pipeline, measured = request.record, request.item, request.pipeline, request.measured
        if record.sampling is not None and not record.sampling.drawn:
            return
        by = self._cluster(pipeline)
        cluster = cluster_of(record, item, by)
        if item is None and by and cluster == (record.trace_id or ""):
            self.alone += 1
        if not cluster:
            cluster = f"alone {next(self._numbers)}"
        gold, key = "" if item is None else item.set_name, self._table.shared(request.key)
        for where in ("", *(where for where in request.slices if where in self._slices)):
            location = SeriesLocation(pipeline, request.source, gold, where)
            clusters = self._facts.setdefault(location, {})
            clusters[cluster] = self._with(clusters.get(cluster, self._empty), key)
            for name in self._measured & measured.keys():
                sums = self._sums.setdefault((location, name), {}).setdefault(cluster, [0, 0])
                sums[0] += 1
                sums[1] += measured[name]

    def scores(self, series: SeriesStats, metric: str, *, unknown: int | None = None) -> Scores:
        """How many clusters have each mean score in a series, in the order of the scores.

        Args:
            series: The series to read. A metric that needs gold is never pooled over gold sets.
            metric: The metric's key.
            unknown: The score, 0 or 1, of requests whose score is unknown for a reason that may depend on it; None
                leaves them out.
        """
        pooled = not series.gold and not self._table.metrics[metric].needs_gold
        clusters_by_mean: Counter[float] = Counter()
        for location in self._facts:
            if (location.pipeline, location.source, location.where) == (
                series.pipeline,
                series.source,
                series.slice,
            ) and (pooled or location.gold == series.gold):
                for sums, clusters in self._sums_of(location, metric):
                    mean = sums.mean(unknown)
                    if mean is not None:
                        clusters_by_mean[mean] += clusters
        return coarse(dict(sorted(clusters_by_mean.items())))

    def _sums_of(self, location: SeriesLocation, metric: str) -> Iterator[tuple[ItemSums, int]]:
        column, form = list(self._table.metrics).index(metric), self.form(location.pipeline)
        if metric in self._measured:
            measures = self._sums.get((location, metric), {})
            for cluster, facts in self._facts[location].items():
                n, total = measures.get(cluster, (0, 0))
                yield ItemSums(n, total, item_sums(self._table, all_read_as(facts, form), column).unknown), 1
            return
        counts = self._facts[location].values()
        by_id = {id(facts): facts for facts in counts}
        for identity, clusters in Counter(map(id, counts)).items():
            yield item_sums(self._table, all_read_as(by_id[identity], form), column), clusters

    def _with(self, counts: _Counts, key: Key) -> _Counts:
        n = sum(counts.values())
        if n > MAX_SHARED_REQUESTS:
            counts[key] = counts.get(key, 0) + 1
            return counts
        grown = self._shared.get((id(counts), key))
        if grown is None:
            grown = {**counts, key: counts.get(key, 0) + 1}
            if n < MAX_SHARED_REQUESTS:
                self._shared[(id(counts), key)] = grown
        return grown


@dataclass(frozen=True)
class Release:
    """The counts of a build or an index.

    Attributes:
        name: The build or the index.
        state: Its counts.
        clusters: Its requests by cluster.
    """

    name: str
    state: State
    clusters: Clusters


def of_release(state: State, by: By, name: str) -> State:
    """The counts of one build or index. Its series are shared with the whole state and only for reading.

    Raises:
        UnknownNameError: No record has it.
    """
    names = {getattr(key, by) for key in state.series} - {""}
    if name not in names:
        error = UnknownNameError(_TITLES[by], name, names)
        if not names:
            error.hint = f"no record carries {'an' if by == 'index_hash' else 'a'} {_TITLES[by]}"
        raise error
    return State(
        retention=state.retention,
        is_live=state.is_live,
        scored=state.scored,
        unmatched=state.unmatched,
        dropped=state.dropped,
        newest=state.newest,
        series={key: series for key, series in state.series.items() if getattr(key, by) == name},
    )


def whole_window(state: State, table: ScoreTable, golds: Sequence[GoldInfo], gated: Collection[str]) -> Snapshot:
    """All counts as one window."""
    return take_snapshot(state, table, now=state.newest, windows={ALL: None}, golds=golds, gated=gated)


def missing_of_run(snapshot: Snapshot, series: SeriesStats) -> str | None:
    """Why a run through a gold set cannot be judged yet; None where it can.

    A run asks the items in some order, often that of the file, so its first answers are no random sample of the set.

    Args:
        snapshot: All counts of the release.
        series: The series to judge. One without a gold set is a run if most of its requests belong to a gold set.
    """
    if series.source not in _RUNS:
        return None
    key = (series.pipeline, series.source, "")
    of_source = [other for other in snapshot.series if (other.pipeline, other.source, other.slice) == key]
    runs = [other for other in of_source if other.gold and series.gold in ("", other.gold)]
    records = sum(other.records for other in of_source if not other.gold)
    if not series.gold and 2 * sum(run.records for run in runs) <= records:
        return None
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    for run in runs:
        size = sizes.get((run.gold, run.gold_version), 0)
        missing = size - run.traced
        if missing > MAX_MISSING * size:
            return f"{missing} of {size} gold items have no trace yet"
    return None


def judge(release: Release, table: ScoreTable, policy: Policy, *, golds: Sequence[GoldInfo] = ()) -> list[Outcome]:
    """Judge every gate on the records of one build.

    Observations are clusters of requests (`ragmon.gates.releases`), or gold items where a gold number is about
    questions like these. A run through a gold set is judged when it has asked nearly all items; its value over the set
    is then exact. Each gate is judged at its own level: among twenty gates exactly on their thresholds one wrong
    verdict is to be expected. Gates on latency and on indexes are judged as in a whole run.

    Args:
        release: The build.
        table: The metrics.
        policy: The gates.
        golds: The gold sets in use.

    Returns:
        One outcome per gate, in the policy's order. Its bounds are a confidence sequence for the mean over clusters;
        where the value is exact, for the mean over questions like these.
    """
    snapshot = whole_window(release.state, table, golds, [gate.metric for gate in policy.gates])
    outcomes = [_judge(gate, release, snapshot, replace(policy, mode="interval")) for gate in policy.gates]
    # The number of calls of a build is unknown, because call totals are not split by build.
    return [replace(outcome, reason=f"since build {release.name}: {outcome.reason}", of="") for outcome in outcomes]


_Verdict = TypeVar("_Verdict", Outcome, Comparison)


def unless_lost(verdicts: Sequence[_Verdict], lost: Lost) -> list[_Verdict]:
    """Verdicts on releases in files; where much could not be read, which may be of any release, nothing is proven."""
    if lost.requests <= MAX_MISSING * lost.lines:
        return list(verdicts)
    return [replace(found, verdict="insufficient", reason=f"{lost}; {found.reason}") for found in verdicts]


def _judge(gate: Gate, release: Release, snapshot: Snapshot, policy: Policy) -> Outcome:
    (run_outcome,) = evaluate(snapshot, replace(policy, gates=(gate,)), whole_run=True)
    if gate.kind != "threshold":
        return run_outcome
    evidence = find_evidence(gate, snapshot, ALL, whole_run=True)
    series = evidence.series
    if series is None or evidence.stat.value is None:
        return replace(without_data(evidence), needed=_needed_to_pass(gate))
    missing = missing_of_run(snapshot, series)
    if missing is not None:
        return evidence.outcome("insufficient", missing)
    known, low, high = (release.clusters.scores(series, gate.metric, unknown=score) for score in (None, 0, 1))
    if evidence.estimand != constants.GOLD_SET:
        return _decide(evidence, known, low, high)
    lower, upper = (None, None) if run_outcome.lower is None else _confidence(low, high)
    return replace(run_outcome, lower=lower, upper=upper)


def _confidence(low: Scores, high: Scores) -> tuple[float, float]:
    return betting.confidence_sequence(low)[0], betting.confidence_sequence(high)[1]


def _decide(evidence: Evidence, scores: Scores, low: Scores, high: Scores) -> Outcome:
    # The verdict holds whatever the unknown scores are: `low` takes 0 for each of them, `high` 1.
    gate, n = evidence.gate, round(sum(scores.values()))
    unit = "gold items" if evidence.estimand else "observations"
    value = sum(x * count for x, count in scores.items()) / n
    worst, best = (low, high) if gate.at_least else (high, low)
    verdict: Verdict = "insufficient"
    needed = None
    if n < gate.min_samples:
        needed, reason = _needed_to_pass(gate), f"only {n:,} {unit} (min_samples is {gate.min_samples:,})"
    elif betting.verdict(worst, gate.threshold, at_least=gate.at_least) == "pass":
        verdict, reason = "pass", f"proven within the limit by {n:,} {unit}, however often you look"
    elif betting.verdict(best, gate.threshold, at_least=gate.at_least) == "fail":
        verdict, reason = "fail", f"proven outside the limit by {n:,} {unit}, however often you look"
    else:
        needed = betting.needed(scores, gate.threshold)
        side, points = "within" if gate.holds(value) else "outside", 100 * abs(value - gate.threshold)
        reason = f"{n:,} {unit} do not decide it; the value is {side} the limit by {points:.1f} points"
        if evidence.stat.unknown:
            reason += f"; {not_assessable(evidence)}"
    outcome = evidence.outcome(verdict, reason, interval=_confidence(low, high), needed=needed, n_eff=n)
    return replace(outcome, value=value)


def _needed_to_pass(gate: Gate) -> int:
    flawless = {1.0 if gate.at_least else 0.0: 1.0}
    return max(gate.min_samples, betting.needed(flawless, gate.threshold) or 0)


def compare(
    baseline: Release,
    candidate: Release,
    table: ScoreTable,
    policy: Policy,
    *,
    golds: Sequence[GoldInfo] = (),
    max_drop: float = 0.02,
    intervals: bool = False,
) -> list[Comparison]:
    """Compare two releases on the metric of every gate with a threshold.

    Gold records are paired by item; all other records are two samples of clusters (`ragmon.gates.releases`). A
    run through a gold set is compared when both releases have asked nearly all items. The probability that any gate is
    called worse where none is is at most alpha / 2, with alpha being `ragmon.stats.betting.ALPHA`: it is shared among
    the gates. Not worse must be proven for each gate on its own, so the probability of being wrong about all of them
    together is no higher than about one: alpha / 2.

    Args:
        baseline: The known release.
        candidate: The release under test.
        table: The metrics.
        policy: The gates.
        golds: The gold sets in use.
        max_drop: How much worse a metric may be, in [0, 1).
        intervals: Compute intervals as well, at the error probabilities of the verdicts; it takes several times as
            long.

    Returns:
        One entry per gate with a threshold, in the policy's order.
    """
    gates = [gate for gate in policy.gates if gate.kind == "threshold"]
    pair = _Pair((baseline, candidate), table, gates, golds, checked_margin(max_drop), intervals=intervals)
    return [pair.compare(gate) for gate in gates]


class _Pair:
    """Two releases with their counts; scores of unknown requests are the worst for one of them, the best for the other.

    What is proven holds whatever the unknown scores are.
    """

    def __init__(
        self,
        releases: tuple[Release, Release],
        table: ScoreTable,
        gates: Sequence[Gate],
        golds: Sequence[GoldInfo],
        max_drop: float,
        *,
        intervals: bool,
    ) -> None:
        gated = [gate.metric for gate in gates]
        half_alpha = betting.ALPHA / 2
        self._releases = releases
        self._table = table
        self._snapshots = [whole_window(release.state, table, golds, gated) for release in releases]
        self._items = [items_of(release.state) for release in releases]
        self._max_drop, self._intervals = max_drop, intervals
        self._worse, self._not_worse = half_alpha / max(1, len(gates)), half_alpha

    def compare(self, gate: Gate) -> Comparison:
        before, after = evidence = self._evidence(gate)
        gold = after.series.gold if after.series is not None else ""
        samples = ReleaseSample(before.stat.value, before.stat.n), ReleaseSample(after.stat.value, after.stat.n)
        comparison = Comparison(gate, after.source, gold, *samples, "insufficient", "")
        missing = [release.name for release, found in zip(self._releases, evidence, strict=True) if not found.stat.n]
        if missing or before.series is None or after.series is None:
            return replace(comparison, reason=f"no data for {' and '.join(missing)}")
        series = before.series, after.series
        for release, snapshot, of_release in zip(self._releases, self._snapshots, series, strict=True):
            reason = missing_of_run(snapshot, of_release)
            if reason is not None:
                return replace(comparison, reason=f"{release.name}: {reason}")
        if gold and not self._table.metrics[gate.metric].measured:
            return self._by_item(comparison)
        return self._two_samples(comparison, series)

    def _evidence(self, gate: Gate) -> tuple[Evidence, Evidence]:
        """The evidence of both releases from one source: the first with data of both on one gold set, else of one."""
        pairs = []
        for source in sources_of(gate, self._snapshots[1]):
            for whole_run in (True, False):
                before, after = (
                    find_evidence(replace(gate, source=source), snapshot, ALL, whole_run=whole_run)
                    for snapshot in self._snapshots
                )
                golds = {evidence.series.gold for evidence in (before, after) if evidence.series is not None}
                if before.stat.n and after.stat.n and len(golds) == 1:
                    return before, after
                pairs.append((before, after))
        return next((pair for pair in pairs if pair[0].stat.n or pair[1].stat.n), pairs[0])

    def _two_samples(self, comparison: Comparison, series: tuple[SeriesStats, SeriesStats]) -> Comparison:
        gate = comparison.gate
        worst = 0 if gate.at_least else 1
        (known_a, *a), (known_b, *b) = (
            [release.clusters.scores(of_release, gate.metric, unknown=unknown) for unknown in (None, worst, 1 - worst)]
            for release, of_release in zip(self._releases, series, strict=True)
        )
        a_worst, a_best, b_worst, b_best = (
            scores if gate.at_least else {1 - x: count for x, count in scores.items()} for scores in (*a, *b)
        )
        decided = self._decided(
            replace(comparison, before=_sample(known_a), after=_sample(known_b)),
            worse=log_worse(a_worst, b_best) >= -math.log(self._worse),
            not_worse=log_not_worse(a_best, b_worst, self._max_drop) >= -math.log(self._not_worse),
        )
        if not self._intervals:
            return decided
        drop = -at_most(b_best, a_worst, self._worse), at_most(a_best, b_worst, self._not_worse)
        return _with_intervals(decided, a, b, drop)

    def _by_item(self, comparison: Comparison) -> Comparison:
        """The comparison by gold item; items that only one release was asked are two samples."""
        gate = comparison.gate
        location = SeriesLocation(gate.pipeline, comparison.source, comparison.gold, gate.where)
        worst = 0 if gate.at_least else 1
        (before, a_worst, a_best), (after, b_worst, b_best) = (
            [_item_means(items.get(location, {}), self._table, gate.metric, x) for x in (None, worst, 1 - worst)]
            for items in self._items
        )
        pairs, unpaired = _pairs(gate, a_best, b_worst)
        decided = self._decided(
            _paired(comparison, before, after),
            worse=betting.worse(*_pairs(gate, a_worst, b_best), self._worse),
            not_worse=betting.not_worse(pairs, self._max_drop, unpaired, self._not_worse),
        )
        if not self._intervals:
            return decided
        lower = -pairs_at_most(*_pairs(gate, b_best, a_worst), self._worse)
        upper = pairs_at_most(pairs, unpaired, self._not_worse)
        shared = sorted(before.keys() & after.keys()) if decided.items else None
        a, b = (
            [_mean_counts(means, shared) for means in extremes] for extremes in ((a_worst, a_best), (b_worst, b_best))
        )
        return _with_intervals(decided, a, b, (lower, upper))

    def _decided(self, comparison: Comparison, *, worse: bool, not_worse: bool) -> Comparison:
        """The comparison with its verdict. A proven drop is allowed if it is proven to be small."""
        points = f"{100 * self._max_drop:.1f} points"
        if not_worse:
            reason = (
                f"a drop is proven, but one of {points} is ruled out" if worse else f"a drop of {points} is ruled out"
            )
            return replace(comparison, verdict="pass", reason=reason)
        if worse:
            return replace(comparison, verdict="fail", reason="a drop is proven")
        return replace(comparison, reason=f"no drop is proven, and one of {points} is not ruled out")


def _with_intervals(
    comparison: Comparison, before: Sequence[Scores], after: Sequence[Scores], drop: tuple[float, float]
) -> Comparison:
    means = [
        _confidence(worst, best) if comparison.gate.at_least else _confidence(best, worst)
        for worst, best in (before, after)
    ]
    # Where items in both releases rise and the others fall, both a drop and a rise may be proven.
    return replace(comparison, intervals=ReleaseIntervals(means[0], means[1], (min(drop), max(drop))))


def _pairs(gate: Gate, before: _Means, after: _Means) -> tuple[betting.Pairs, betting.Unpaired]:
    def oriented(score: float | None) -> float | None:  # more is better
        return score if gate.at_least or score is None else 1 - score

    def alone(means: _Means, others: _Means) -> Scores:  # items that the other release was not asked
        return Counter(x for qid in means.keys() - others.keys() if (x := oriented(means[qid])) is not None)

    shared = before.keys() & after.keys()
    pairs = Counter((oriented(before[qid]), oriented(after[qid])) for qid in sorted(shared))
    return pairs, betting.Unpaired(alone(before, after), alone(after, before))


def _paired(comparison: Comparison, before: _Means, after: _Means) -> Comparison:
    """The comparison over the items that both releases were asked; over all items where both assessed none of them."""
    shared = sorted(before.keys() & after.keys())
    assessed = [Flip(q, a, b) for q in shared if (a := before[q]) is not None and (b := after[q]) is not None]
    qids = shared if assessed else None
    return replace(
        comparison,
        before=_sample(_mean_counts(before, qids)),
        after=_sample(_mean_counts(after, qids)),
        items=len(assessed),
        flips=tuple(flip for flip in assessed if flip.before != flip.after),
    )


def _item_means(items: Table, table: ScoreTable, metric: str, unknown: int | None = None) -> _Means:
    column = list(table.metrics).index(metric)
    return {qid: item_sums(table, facts, column).mean(unknown) for qid, facts in items.items()}


def _mean_counts(means: _Means, qids: Sequence[str] | None) -> Scores:
    return Counter(x for qid in (means if qids is None else qids) if (x := means[qid]) is not None)


def _sample(scores: Scores) -> ReleaseSample:
    n = round(sum(scores.values()))
    return ReleaseSample(math.fsum(x * count for x, count in scores.items()) / n if n else None, n)


@dataclass(frozen=True)
class EvaluatedRun:
    """A complete run and the outcomes of its gates.

    Attributes:
        items: The counts of its gold items; empty where only its values are known.
        outcomes: The outcomes of its gates.
    """

    items: Mapping[SeriesLocation, Table]
    outcomes: Sequence[Outcome]


def compare_runs(baseline: EvaluatedRun, run: EvaluatedRun, table: ScoreTable, *, max_drop: float) -> list[Comparison]:
    """Compare a run with an earlier one on the value of every gate with a threshold.

    Gold records are paired by item, each item counts once; for all other records the values of the gates are compared.
    Each run is compared in the source that its own gate was judged on.

    Returns:
        One entry per gate that has a value in both runs, in the order of the run's outcomes.
    """
    earlier = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in baseline.outcomes}
    comparisons = []
    for outcome in run.outcomes:
        gate = outcome.gate
        previous = earlier.get((gate.pipeline, gate.name))
        if previous is None or gate.kind != "threshold":
            continue
        samples = ReleaseSample(previous.value, previous.n), ReleaseSample(outcome.value, outcome.n)
        comparison = Comparison(gate, outcome.source, outcome.gold, *samples, "insufficient", "")
        items = baseline.items.get(_location(previous), {}), run.items.get(_location(outcome), {})
        if items[0].keys() & items[1].keys() and not table.metrics[gate.metric].measured:
            comparison = _paired(comparison, *(_item_means(counts, table, gate.metric) for counts in items))
        if comparison.drop is None:
            continue
        allowed = f"{100 * max_drop:.1f}"
        if comparison.drop > max_drop + _ROUNDING:
            reason = f"{100 * comparison.drop:.1f} points worse than the baseline, {allowed} are allowed"
            comparisons.append(replace(comparison, verdict="fail", reason=reason))
        else:
            reason = f"at most {allowed} points worse than the baseline"
            comparisons.append(replace(comparison, verdict="pass", reason=reason))
    return comparisons


def _location(outcome: Outcome) -> SeriesLocation:
    return SeriesLocation(outcome.gate.pipeline, outcome.source, outcome.gold, outcome.gate.where)
