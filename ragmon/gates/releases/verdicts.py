"""One build against the gates, as often as one likes.

One release against another: is it worse, provably not worse, or is it too early to say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragmon import stats
from ragmon.core import constants
from ragmon.core.policy import Gate, Outcome, Policy, Verdict
from ragmon.gates.compare import Flip, GoldLocation, items_of
from ragmon.gates.evaluate import Evidence, evaluate, find_evidence, sources_of, without_data
from ragmon.gates.releases.release import Release, missing_of_run, whole_window
from ragmon.gold.sets import GoldInfo
from ragmon.scoring.counts import Table
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, Snapshot, item_sums
from ragmon.stats import betting, paired
from ragmon.stats import paired as two_samples


def judge(release: Release, table: ScoreTable, policy: Policy, *, golds: Sequence[GoldInfo] = ()) -> list[Outcome]:
    """Judge every gate on the records of one build.

    Observations are clusters of requests (`ragmon.gates.releases.release`); where a gold number stands for questions
    like these, they are gold items. A run through a gold set is judged when it has come to nearly all of it: over the
    set its value is exact then. Each gate is judged at its own level: among twenty that lie just on their thresholds
    one wrong verdict is to be expected. Gates on latency and on indexes are judged as in a whole run.

    Args:
        release: The build.
        table: The metrics.
        policy: The gates.
        golds: The gold sets in use.

    Returns:
        One outcome per gate, in the policy's order; its bounds are a confidence sequence for the mean over clusters,
        where the value is exact for the mean over questions like these.
    """
    snapshot = whole_window(release.state, table, golds, [gate.metric for gate in policy.gates])
    found = [_judge(gate, release, snapshot, replace(policy, mode="interval")) for gate in policy.gates]
    # How many calls a build had nobody told: totals know of no builds.
    return [replace(outcome, reason=f"since build {release.name}: {outcome.reason}", of="") for outcome in found]


def _judge(gate: Gate, release: Release, snapshot: Snapshot, policy: Policy) -> Outcome:
    (as_a_run,) = evaluate(snapshot, replace(policy, gates=(gate,)), whole_run=True)
    if gate.kind != "threshold":
        return as_a_run
    evidence = find_evidence(gate, snapshot, ALL, whole_run=True)
    series = evidence.series
    if series is None or evidence.stat.value is None:
        return replace(without_data(evidence), needed=_needed_to_pass(gate))
    lacks = missing_of_run(snapshot, series)
    if lacks is not None:
        return evidence.outcome("insufficient", lacks)
    seen = release.clusters.scores(series, gate.metric)
    if evidence.estimand != constants.GOLD_SET:
        return _decide(evidence, seen)
    lower, upper = (None, None) if as_a_run.lower is None else betting.confidence_sequence(seen)
    return replace(as_a_run, lower=lower, upper=upper)


def _decide(evidence: Evidence, seen: betting.Scores) -> Outcome:
    """The outcome on what was seen: proven kept, proven broken, or neither so far."""
    gate, n = evidence.gate, round(sum(seen.values()))
    unit = "gold items" if evidence.estimand else "observations"
    value = sum(x * count for x, count in seen.items()) / n
    verdict = betting.verdict(seen, gate.threshold, at_least=gate.at_least)
    needed = None
    if n < gate.min_samples:
        verdict, needed, reason = None, _needed_to_pass(gate), f"{n} of at least {gate.min_samples} {unit}"
    elif verdict is not None:
        reason = f"proven {'kept' if verdict == 'pass' else 'broken'} by {n} {unit}, however often it is asked"
    else:
        needed = betting.needed(seen, gate.threshold)
        side, by = "keeps" if gate.holds(value) else "breaks", 100 * abs(value - gate.threshold)
        reason = f"{n} {unit} prove neither; the value {side} the gate by {by:.1f} points"
    interval = betting.confidence_sequence(seen)
    outcome = evidence.outcome(verdict or "insufficient", reason, interval=interval, needed=needed, n_eff=n)
    return replace(outcome, value=value)


def _needed_to_pass(gate: Gate) -> int:
    """The fewest observations that could pass the gate."""
    flawless = {1.0 if gate.at_least else 0.0: 1.0}
    return max(gate.min_samples, betting.needed(flawless, gate.threshold) or 0)


_Means = Mapping[str, float | None]
"""Mean scores by gold item; None where the item was not in the denominator."""


class ReleaseSample(NamedTuple):
    """What a comparison rests on, on one side.

    Attributes:
        value: The mean; None without data.
        n: Observations: gold items where they are paired, else clusters of requests.
    """

    value: float | None
    n: int


@dataclass(frozen=True)
class Comparison:
    """How a gate's metric fares in two releases.

    Attributes:
        gate: The gate.
        source: Of which source the records are.
        gold: The gold set; "" for all requests.
        before: The baseline.
        after: The candidate.
        verdict: pass: the drop is proven to be less than allowed; fail: a drop is proven; insufficient: neither.
        reason: One line for a person.
        items: Gold items that both assessed; None where the two are independent samples.
        flips: Those of them whose scores differ.
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

    @property
    def drop(self) -> float | None:
        """How much worse the candidate is; negative where it is better."""
        if self.before.value is None or self.after.value is None:
            return None
        fall = self.before.value - self.after.value
        return fall if self.gate.at_least else -fall

    @property
    def worse(self) -> int:
        """How many of the flips are for the worse."""
        return sum((flip.after < flip.before) == self.gate.at_least for flip in self.flips)


@dataclass(frozen=True)
class _Side:
    """A release, and what can be read from its counts."""

    release: Release
    snapshot: Snapshot
    items: Mapping[GoldLocation, Table]


class _Levels(NamedTuple):
    """How much is allowed, and how sure a verdict must be."""

    max_drop: float
    worse: float
    not_worse: float


def compare(
    baseline: Release,
    candidate: Release,
    table: ScoreTable,
    policy: Policy,
    *,
    golds: Sequence[GoldInfo] = (),
    max_drop: float = 0.02,
) -> list[Comparison]:
    """Compare two releases on the metric of every gate with a threshold.

    Gold records are paired item by item, everything else is two samples of clusters (`ragmon.gates.releases.release`).
    A run through a gold set is compared when both have come to nearly all of it. That any gate is ever called worse
    where none is has probability alpha / 2 at most, alpha being `ragmon.stats.betting.ALPHA`: it is shared among the
    gates. Not worse each gate has to be proven on its own, so that being wrong about all of them together is no
    likelier than about one: alpha / 2.

    Args:
        baseline: The release that is known.
        candidate: The release in question.
        table: The metrics.
        policy: The gates.
        golds: The gold sets in use.
        max_drop: How much worse a metric may be, in [0, 1).

    Returns:
        One entry per gate with a threshold, in the policy's order.
    """
    gates = [gate for gate in policy.gates if gate.kind == "threshold"]
    then, now = (_side(release, table, golds, gates) for release in (baseline, candidate))
    each = betting.ALPHA / 2
    levels = _Levels(two_samples.checked_margin(max_drop), each / max(1, len(gates)), each)
    return [_compare(gate, then, now, table, levels) for gate in gates]


def _side(release: Release, table: ScoreTable, golds: Sequence[GoldInfo], gates: Sequence[Gate]) -> _Side:
    gated = [gate.metric for gate in gates]
    return _Side(release, whole_window(release.state, table, golds, gated), items_of(release.state))


def _compare(gate: Gate, then: _Side, now: _Side, table: ScoreTable, levels: _Levels) -> Comparison:
    before, after = _evidence(gate, then, now)
    gold = after.series.gold if after.series is not None else ""
    samples = ReleaseSample(before.stat.value, before.stat.n), ReleaseSample(after.stat.value, after.stat.n)
    found = Comparison(gate, after.source, gold, *samples, "insufficient", "")
    missing = [side.release.name for side, seen in ((then, before), (now, after)) if not seen.stat.n]
    if missing or before.series is None or after.series is None:
        return replace(found, reason=f"no data of {' and '.join(missing)}")
    for side, series in ((then, before.series), (now, after.series)):
        lacks = missing_of_run(side.snapshot, series)
        if lacks is not None:
            return replace(found, reason=f"{side.release.name}: {lacks}")
    if gold and not table.metrics[gate.metric].measured:
        place = GoldLocation(gate.pipeline, after.source, gold, gate.where)
        return _by_item(found, then.items.get(place, {}), now.items.get(place, {}), table, levels)
    a = then.release.clusters.scores(before.series, gate.metric)
    b = now.release.clusters.scores(after.series, gate.metric)
    return _two_samples(replace(found, before=_sample(a), after=_sample(b)), a, b, levels)


def _evidence(gate: Gate, then: _Side, now: _Side) -> tuple[Evidence, Evidence]:
    """What either side has of the same source and gold set: the first source of which both have data."""
    for source in sources_of(gate, now.snapshot):
        for whole_run in (True, False):
            before, after = (
                find_evidence(replace(gate, source=source), side.snapshot, ALL, whole_run=whole_run)
                for side in (then, now)
            )
            golds = {found.series.gold for found in (before, after) if found.series is not None}
            if before.stat.n and after.stat.n and len(golds) == 1:
                return before, after
    before, after = (find_evidence(gate, side.snapshot, ALL, whole_run=False) for side in (then, now))
    return before, after


def _two_samples(found: Comparison, a: betting.Scores, b: betting.Scores, levels: _Levels) -> Comparison:
    """The comparison of two independent samples."""
    a, b = _turned(found.gate, a), _turned(found.gate, b)
    worse = two_samples.log_worse(a, b) >= -math.log(levels.worse)
    not_worse = two_samples.log_not_worse(a, b, levels.max_drop) >= -math.log(levels.not_worse)
    return _decided(found, worse=worse, not_worse=not_worse, max_drop=levels.max_drop)


def _by_item(found: Comparison, then: Table, now: Table, table: ScoreTable, levels: _Levels) -> Comparison:
    """The comparison item by item; items that only one release was asked are two samples."""
    before, after = (_item_means(items, table, found.gate.metric) for items in (then, now))
    shared = sorted(before.keys() & after.keys())
    both = [Flip(q, a, b) for q in shared if (a := before[q]) is not None and (b := after[q]) is not None]
    shown = shared if both else None
    found = replace(
        found,
        before=_sample(_seen(before, shown)),
        after=_sample(_seen(after, shown)),
        items=len(both),
        flips=tuple(flip for flip in both if flip.before != flip.after),
    )
    gate = found.gate
    pairs = Counter((_good(gate, before[qid]), _good(gate, after[qid])) for qid in shared)
    alone = paired.Unpaired(_alone(gate, before, after), _alone(gate, after, before))
    return _decided(
        found,
        worse=paired.worse(pairs, alone, levels.worse),
        not_worse=paired.not_worse(pairs, levels.max_drop, alone, levels.not_worse),
        max_drop=levels.max_drop,
    )


def _item_means(items: Table, table: ScoreTable, metric: str) -> _Means:
    place = list(table.metrics).index(metric)
    sums = {qid: item_sums(table, facts, place) for qid, facts in items.items()}
    return {qid: total / (n * stats.MICRO) if n else None for qid, (n, total) in sums.items()}


def _seen(means: _Means, qids: Sequence[str] | None) -> betting.Scores:
    """How often each mean occurs among some items, or among all."""
    return Counter(x for qid in (means if qids is None else qids) if (x := means[qid]) is not None)


def _sample(seen: betting.Scores) -> ReleaseSample:
    n = round(sum(seen.values()))
    return ReleaseSample(math.fsum(x * count for x, count in seen.items()) / n if n else None, n)


def _alone(gate: Gate, means: _Means, others: _Means) -> betting.Scores:
    """The scores of the items that the other release was not asked."""
    return Counter(x for qid in means.keys() - others.keys() if (x := _good(gate, means[qid])) is not None)


def _good(gate: Gate, score: float | None) -> float | None:
    """A score of which more is better."""
    return score if gate.at_least or score is None else 1 - score


def _turned(gate: Gate, seen: betting.Scores) -> betting.Scores:
    """How often scores occur of which more is better."""
    return seen if gate.at_least else {1 - x: count for x, count in seen.items()}


def _decided(found: Comparison, *, worse: bool, not_worse: bool, max_drop: float) -> Comparison:
    """The comparison with its verdict: a drop that is proven, but proven to be small, is allowed."""
    points = f"{100 * max_drop:.1f} points"
    if not_worse:
        reason = f"a drop is proven, one of {points} is ruled out" if worse else f"a drop of {points} is ruled out"
        return replace(found, verdict="pass", reason=reason)
    if worse:
        return replace(found, verdict="fail", reason="a drop is proven")
    return replace(found, reason=f"no drop is proven, one of {points} is not ruled out")
