"""Means from counts: the score of every metric for each tuple of facts, computed once.

`weighted` estimates means over all traffic from records kept at different rates: every stratum is weighted by its
calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.core.sampling import calls_per_record
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Facts, Key
from ragmon.scoring.buckets import ALONE, CELLS, Bucket, rank
from ragmon.stats.clusters import GROUPS, DesignEffect, GroupedSample, design_effect
from ragmon.stats.histograms import MICRO, Sums, add_counts, add_sums, micro, sums_of
from ragmon.stats.intervals import graded
from ragmon.stats.strata import Estimate, Stratum, post_stratified, shifts

MEMORY: Final = 65_536

Score = int | str | None
"""Micro-units, the reason why it is unknown, or None for a request outside the denominator.

For a measured metric the number is `IF_MEASURED` or `APPLIES`: its scores are kept apart.
"""
IF_MEASURED: Final = 0  # the request is in the denominator if it was measured, and outside of it otherwise
APPLIES: Final = 1  # the request is in the denominator, measured or not


@dataclass(slots=True)
class Spread:
    """The scores of one metric by random group of clusters, added up on demand: most metrics are never asked for.

    Attributes:
        groups: Requests by their scores in all metrics, and by group.
    """

    groups: Mapping[tuple[Score, ...], Mapping[int, int]] = field(default_factory=dict)
    index: int = 0
    measured: Sequence[Mapping[int, Sums]] = ()

    def __bool__(self) -> bool:
        return any(isinstance(scores[self.index], int) for scores in self.groups) or any(
            group != ALONE for by_group in self.measured for group in by_group
        )

    def totals(self) -> tuple[list[int], list[int]]:
        """The requests of each group, and the sums of their scores in micro-units."""
        counts, totals = [0] * GROUPS, [0] * GROUPS
        for scores, groups in self.groups.items():
            score = scores[self.index]
            if isinstance(score, int):
                for group, n in groups.items():
                    counts[group] += n
                    totals[group] += n * score
        for by_group in self.measured:
            for group, (n, total, *_) in by_group.items():
                if group != ALONE:
                    counts[group] += n
                    totals[group] += total
        return counts, totals


@dataclass(slots=True)
class Stat:
    """A mean with its counts.

    Attributes:
        unassessed: Requests in the denominator that could not be scored, by reason.
        unscored: Requests that a measured metric applies to and that nobody measured, labelled or judged.
        outside: Requests of which it is known that they are outside of the denominator. Together with `n`, `unassessed`
            and `unscored` they are all requests.
    """

    n: int = 0
    sum: int = 0
    squares: int = 0
    unassessed: dict[str, int] = field(default_factory=dict)
    unscored: int = 0
    outside: int = 0
    spread: Spread = field(default_factory=Spread, compare=False)  # requests in a spill have no group

    def __repr__(self) -> str:
        found = self.estimate
        text = "no data" if found.value is None else f"{found.value:.4g} ({found.lower:.4g} to {found.upper:.4g})"
        missing = "".join(f", {n} {reason}" for reason, n in sorted(self.unassessed.items()))
        return f"<Stat {text} of {self.n}{missing}>"

    def add(self, n: int, total: int, squares: int) -> None:
        """Add requests with a score, by their sums in micro-units."""
        self.n += n
        self.sum += total
        self.squares += squares

    def miss(self, reason: str, n: int) -> None:
        """Add requests that could not be scored."""
        self.unassessed[reason] = self.unassessed.get(reason, 0) + n

    @property
    def value(self) -> float | None:
        """The mean; None where nothing was scored: an empty denominator means no data, never 0 or 1."""
        return self.sum / (self.n * MICRO) if self.n else None

    @property
    def unknown(self) -> int:
        """Requests without a score whose reason may depend on the outcome."""
        if not self.unassessed:
            return 0
        return sum(n for reason, n in self.unassessed.items() if reason not in constants.IGNORABLE)

    @property
    def assessed(self) -> int:
        """Requests of which it is known whether they are in the denominator; calls that ended in an error are not."""
        return self.n + self.unscored + self.outside + self.unassessed.get(constants.ERROR, 0)

    @property
    def extremes(self) -> tuple[float, float] | None:
        """The mean if every unknown score were 0, and if it were 1; None where nothing could be scored at all."""
        n = self.n + self.unknown
        total = self.sum / MICRO
        return (total / n, (total + self.unknown) / n) if n else None

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval, for a sample in which all requests had the same probability.

        The interval holds whatever the unknown scores are: its lower bound takes them as 0, its upper bound as 1. It is
        that of as many independent scores as the clusters of requests are worth.
        """
        total, squares, unknown = self.sum / MICRO, self.squares / MICRO**2, self.unknown
        effect = design_effect([self.grouped()]) if self.spread else DesignEffect()
        lower, upper = graded(self.n, total, squares, effect.z)
        if unknown:
            lower = graded(self.n + unknown, total, squares, effect.z)[0]
            upper = graded(self.n + unknown, total + unknown, squares + unknown, effect.z)[1]
        return Estimate(self.value, lower, upper, self.n, self.n / effect.ratio, 0.0, float(self.n), ())

    def grouped(self, weight: float = 1.0, shift: float = 0.0) -> GroupedSample:
        """The scores with their sums by group, as the sample of a stratum."""
        total, squares = self.sum / MICRO, self.squares / MICRO**2
        if not self.spread:
            return GroupedSample(weight, self.n, total, squares, shift=shift)
        counts, sums = self.spread.totals()
        return GroupedSample(weight, self.n, total, squares, counts, [x / MICRO for x in sums], shift)


class ScoreTable:
    """The scores of every metric for each tuple of facts."""

    def __init__(self, metrics: Mapping[str, Metric], *, cells: int = CELLS) -> None:
        self.metrics = dict(metrics)
        self.cells = cells
        self._cache: dict[Key, tuple[Score, ...]] = {}
        self._shared_keys: dict[Key, Key] = {}

    def shared(self, key: Key) -> Key:
        """The single tuple object that represents these facts everywhere: this halves the memory of buckets."""
        if len(self._shared_keys) >= MEMORY:
            self._shared_keys.clear()
        return self._shared_keys.setdefault(key, key)

    def scores(self, key: Key) -> tuple[Score, ...]:
        """One score per metric, in the order of `metrics`; for measured metrics, `APPLIES` or `IF_MEASURED`."""
        scores = self._cache.get(key)
        if scores is None:
            if len(self._cache) >= MEMORY:
                self._cache.clear()
            facts = Facts._make(key)
            scores = self._cache[key] = tuple(_score(metric, facts) for metric in self.metrics.values())
        return scores

    def applying(self, key: Key, measured: Mapping[str, int]) -> dict[str, int]:
        """The measured scores of metrics that have a request with these facts in their denominator."""
        if not measured:
            return {}
        scores = zip(self.metrics, self.scores(key), strict=True)
        return {name: measured[name] for name, score in scores if name in measured and isinstance(score, int)}

    def of(self, bucket: Bucket) -> dict[str, Stat]:
        """The statistics of every metric for one bucket."""
        # Many facts have the same scores: their requests are added up first.
        cells: dict[tuple[Score, ...], int] = {}
        groups: dict[tuple[Score, ...], dict[int, int]] = {}
        for key, n in bucket.cells.items():
            scores = self.scores(key)
            cells[scores] = cells.get(scores, 0) + n
            if key in bucket.groups:
                add_counts(groups.setdefault(scores, {}), bucket.groups[key])
        found: dict[str, Stat] = {}
        for index, (name, metric) in enumerate(self.metrics.items()):
            stat = found[name] = Stat()
            if not metric.measured:
                if not metric.of_requests:
                    stat.spread = Spread(groups, index)
                for scores, n in cells.items():
                    score = scores[index]
                    if isinstance(score, int):
                        stat.add(n, n * score, n * score * score)
                    elif score is not None:
                        stat.miss(score, n)
                continue
            by_facts, spread = bucket.measures.get(name, {}), []
            for key, count in bucket.cells.items():
                score = self.scores(key)[index]
                if isinstance(score, int):
                    n, total, high, low = bucket.measured(name, key) if key in by_facts else (0, 0, 0, 0)
                    stat.add(n, total, high * MICRO + low)
                    stat.unscored += count - n if score == APPLIES else 0
                    if n:
                        spread.append(by_facts[key])
                elif score is not None:
                    stat.miss(score, count)
            stat.spread = Spread(measured=spread)
        for spill_key, (n, total, high, low) in bucket.spill.items():
            name, bar, reason = spill_key.partition("|")
            spilled = found.get(name)
            if spilled is None:
                continue
            if reason:
                spilled.miss(reason, n)
            elif bar:
                spilled.unscored += n
            else:
                spilled.add(n, total, high * MICRO + low)
        count = bucket.count
        for stat in found.values():
            stat.outside = count - stat.n - stat.unscored - sum(stat.unassessed.values())
        return found

    def cut(self, bucket: Bucket) -> None:
        """Keep as many facts of a bucket as it may have: those with the smallest hashes; of the others, the scores.

        So a bucket is the same however its requests were divided and in whatever order they came: facts that are among
        the first of the whole are among the first of every part, where none of their requests was left out.
        """
        if len(bucket.cells) > self.cells:
            for key in sorted(bucket.cells, key=rank)[self.cells :]:
                measured = {name: bucket.measured(name, key) for name, facts in bucket.measures.items() if key in facts}
                count = bucket.drop(key)
                bucket.spilled += count
                for (name, metric), score in zip(self.metrics.items(), self.scores(key), strict=True):
                    if isinstance(score, str):
                        add_sums(bucket.spill, f"{name}|{score}", (count, 0, 0, 0))
                    elif score is not None and not metric.measured:
                        add_sums(bucket.spill, name, sums_of(count, score))
                    elif score is not None:
                        sums = measured.get(name, (0, 0, 0, 0))
                        if sums[0]:
                            add_sums(bucket.spill, name, sums)
                        if score == APPLIES and sums[0] < count:
                            add_sums(bucket.spill, f"{name}|", (count - sums[0], 0, 0, 0))
                # What is no metric by itself, such as labels with a proxy.
                for name in measured.keys() - self.metrics.keys():
                    add_sums(bucket.spill, name, measured[name])


def _score(metric: Metric, facts: Facts) -> Score:
    try:
        if not metric.measured:
            score = metric.score(facts)
            return None if score is None else micro(score)
        if not metric.applies(facts):
            return None
    except Unassessed as unknown:
        return unknown.reason
    try:
        return APPLIES if metric.expects_score(facts) else IF_MEASURED
    except Unassessed:
        return APPLIES


def weighted(buckets: Mapping[str, Bucket], calls: Mapping[str, int], table: ScoreTable) -> dict[str, Estimate]:
    """Every metric over all calls, by the kept records and the number of all calls of each stratum.

    Whatever records were kept for, they are a random sample of their stratum.
    """
    buckets = {name: bucket for name, bucket in buckets.items() if name != constants.UNKNOWN_WEIGHT}
    samples = {name: table.of(bucket) for name, bucket in buckets.items()}
    strata = sorted({*samples, *calls})
    estimates: dict[str, Estimate] = {}
    for key in table.metrics:
        by_stratum = {name: samples[name][key] if name in samples else Stat() for name in strata}
        parts = []
        for name, stat in by_stratum.items():
            # The denominator comes from facts, whichever requests were measured.
            domain, scores = stat.n + stat.unscored, float(stat.n) if stat.unscored else None
            total, squares = stat.sum / MICRO, stat.squares / MICRO**2
            sizes = calls.get(name, 0), stat.assessed, domain
            is_sampled = calls_per_record(name) is not None
            parts.append(Stratum(name, *sizes, total, squares, scores, stat.unknown, is_sampled))
        effect = DesignEffect()
        if any(by_stratum[name].spread for name in samples):
            weights = shifts(parts)  # clusters may reach over strata
            effect = design_effect(by_stratum[name].grouped(*weights[name]) for name in sorted(weights))
        estimate = post_stratified(parts, z=effect.z)
        n_eff = estimate.n_eff / effect.ratio if effect.ratio > 1 else estimate.n_eff
        estimates[key] = replace(estimate, n=sum(stat.n for stat in by_stratum.values()), n_eff=n_eff)
    return estimates
