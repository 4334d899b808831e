"""One release against another: is it worse, provably not worse, or is it too early to say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragmon import stats
from ragmon.canary.parts import Release, lacking, look
from ragmon.compare import Flip, Place, items_of
from ragmon.core.policy import Gate, Policy, Verdict
from ragmon.gold.sets import GoldInfo
from ragmon.judging import Evidence, find_evidence, sources_of
from ragmon.scoring.counts import Table
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, Snapshot, item_sums
from ragmon.stats import betting, paired
from ragmon.stats import paired as two_samples

_Means = Mapping[str, float | None]
"""Mean scores by gold item; None where the item was not in the denominator."""


class Sample(NamedTuple):
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
    before: Sample
    after: Sample
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
    items: Mapping[Place, Table]


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

    Gold records are paired item by item, everything else is two samples of clusters (`ragmon.canary.clusters`). A run
    through a gold set is compared when both have come to nearly all of it. That any gate is ever called worse where
    none is has probability alpha / 2 at most, alpha being `ragmon.stats.betting.ALPHA`: it is shared among the gates.
    Not worse each gate has to be proven on its own, so that being wrong about all of them together is no likelier than
    about one: alpha / 2.

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
    return _Side(release, look(release.state, table, golds, gated), items_of(release.state))


def _compare(gate: Gate, then: _Side, now: _Side, table: ScoreTable, levels: _Levels) -> Comparison:
    before, after = _evidence(gate, then, now)
    gold = after.series.gold if after.series is not None else ""
    samples = Sample(before.stat.value, before.stat.n), Sample(after.stat.value, after.stat.n)
    found = Comparison(gate, after.source, gold, *samples, "insufficient", "")
    missing = [side.release.name for side, seen in ((then, before), (now, after)) if not seen.stat.n]
    if missing or before.series is None or after.series is None:
        return replace(found, reason=f"no data of {' and '.join(missing)}")
    for side, series in ((then, before.series), (now, after.series)):
        lacks = lacking(side.snapshot, series)
        if lacks is not None:
            return replace(found, reason=f"{side.release.name}: {lacks}")
    if gold and not table.metrics[gate.metric].measured:
        place = Place(gate.pipeline, after.source, gold, gate.where)
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
    alone = paired.Alone(_alone(gate, before, after), _alone(gate, after, before))
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


def _sample(seen: betting.Scores) -> Sample:
    n = round(sum(seen.values()))
    return Sample(math.fsum(x * count for x, count in seen.items()) / n if n else None, n)


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
