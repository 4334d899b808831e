"""Means from counts: the score of every metric for each tuple of facts, computed once.

`weighted` estimates means over all traffic from records kept at different rates: every stratum is weighted by its
calls.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ragmon import stats
from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Facts, Key
from ragmon.scoring.counts import CELLS, Sums, WindowBucket, add_sums, rank
from ragmon.scoring.groups import Spread
from ragmon.stats.design_effect import DesignEffect, GroupedSample, design_effect
from ragmon.stats.strata import Estimate, Stratum, post_stratified, shifts

MEMORY: Final = 65_536
"""Tuples of facts whose scores are cached."""

Score = int | str | None
"""Micro-units, the reason why it is unknown, or None for a request outside the denominator.

For a measured metric the number is one of the two below: its scores are kept apart.
"""
IF_MEASURED: Final = 0
"""The request is in the denominator if it was measured, and outside of it otherwise."""
APPLIES: Final = 1
"""The request is in the denominator, measured or not."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A mean with its counts.

    Attributes:
        n: Requests in the denominator.
        sum: Sum of their scores in micro-units.
        squares: Sum of the squares.
        unassessed: Requests in the denominator that could not be scored, by reason.
        spread: The scores by random group of clusters.
        unscored: Requests that a measured metric applies to and that nobody measured, labelled or judged.
        outside: Requests of which it is known that they are outside of the denominator. Together with `n`, `unassessed`
            and `unscored` they are all requests.
    """

    n: int = 0
    sum: int = 0
    squares: int = 0
    unassessed: Mapping[str, int] = field(default_factory=dict)
    unscored: int = 0
    outside: int = 0
    spread: Spread = field(default_factory=Spread, compare=False)  # requests in a spill have no group

    @property
    def value(self) -> float | None:
        """The mean; None where nothing was scored: an empty denominator means no data, never 0 or 1."""
        return self.sum / (self.n * stats.MICRO) if self.n else None

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
        total = self.sum / stats.MICRO
        return (total / n, (total + self.unknown) / n) if n else None

    @property
    def estimate(self) -> Estimate:
        """The mean with its 95 % interval, for a sample in which all requests had the same probability.

        The interval holds whatever the unknown scores are: its lower bound takes them as 0, its upper bound as 1. It is
        that of as many independent scores as the clusters of requests are worth.
        """
        total, squares, unknown = self.sum / stats.MICRO, self.squares / stats.MICRO**2, self.unknown
        effect = design_effect([self.grouped()]) if self.spread else DesignEffect()
        lower, upper = stats.graded(self.n, total, squares, effect.z)
        if unknown:
            lower = stats.graded(self.n + unknown, total, squares, effect.z)[0]
            upper = stats.graded(self.n + unknown, total + unknown, squares + unknown, effect.z)[1]
        return Estimate(self.value, lower, upper, self.n, self.n / effect.ratio, 0.0, float(self.n), ())

    def grouped(self, weight: float = 1.0, shift: float = 0.0) -> GroupedSample:
        """The scores with their sums by group, as the sample of a stratum."""
        total, squares = self.sum / stats.MICRO, self.squares / stats.MICRO**2
        if not self.spread:
            return GroupedSample(weight, self.n, total, squares, shift=shift)
        counts, sums = self.spread.totals()
        return GroupedSample(weight, self.n, total, squares, counts, [x / stats.MICRO for x in sums], shift)


_UNMEASURED: Final = (0, 0, 0)


_Rest = tuple[tuple[str, str | int], ...]
"""Metrics with their scores of some facts, or the reasons why they have none."""
_SUM_BITS: Final = 48
_SQUARES_BITS: Final = 120
_LANE_BITS: Final = 208
"""Where the sums of a metric lie in a packed number: 48 bits of requests, 72 of the scores, 88 of their squares."""


class _StatBuilder:
    """A `Stat` under construction."""

    __slots__ = ("n", "spread", "squares", "sum", "unassessed", "unscored")

    def __init__(self) -> None:
        self.n = self.sum = self.squares = self.unscored = 0
        self.spread = Spread()
        self.unassessed: dict[str, int] = {}

    def add(self, n: int, total: int, squares: int) -> None:
        self.n += n
        self.sum += total
        self.squares += squares

    def miss(self, reason: str, n: int) -> None:
        self.unassessed[reason] = self.unassessed.get(reason, 0) + n

    def stat(self, count: int) -> Stat:
        """The statistics of a row with so many requests."""
        outside = count - self.n - self.unscored - sum(self.unassessed.values())
        return Stat(self.n, self.sum, self.squares, self.unassessed, self.unscored, outside, self.spread)


class ScoreTable:
    """The scores of every metric for each tuple of facts.

    Args:
        metrics: The metrics by key.
        cells: Distinct facts that a row keeps.
    """

    def __init__(self, metrics: Mapping[str, Metric], *, cells: int = CELLS) -> None:
        self.metrics = dict(metrics)
        self.cells = cells
        self._measured = {name: place for place, (name, metric) in enumerate(metrics.items()) if metric.measured}
        self._cache: dict[Key, tuple[Score, ...]] = {}
        self._packed: dict[Key, tuple[int, _Rest]] = {}
        self._shared_keys: dict[Key, Key] = {}

    def shared(self, key: Key) -> Key:
        """The single tuple object that represents these facts everywhere."""
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

    def of(self, row: WindowBucket) -> dict[str, Stat]:
        """The statistics of every metric for one row."""
        count, total = row.count, 0
        rest: dict[_Rest, int] = {}
        for key, n in row.cells.items():
            packed, others = self._packed.get(key) or self._pack(key)
            total += n * packed
            if others:
                rest[others] = rest.get(others, 0) + n
        builders = _unpacked(total, self.metrics)
        for others, n in rest.items():
            for name, score in others:
                builder = builders.setdefault(name, _StatBuilder())
                if isinstance(score, str):
                    builder.miss(score, n)
                else:
                    builder.add(n, n * score, n * score * score)
        for name in self._measured:
            self._add_measured(builders, name, row)
        _add_spill(builders, row)
        self._add_groups(builders, row)
        nothing = Stat(outside=count)
        return {name: builders[name].stat(count) if name in builders else nothing for name in self.metrics}

    def _pack(self, key: Key) -> tuple[int, _Rest]:
        """The scores of facts in one number, which adds up, and what is not in it: reasons why there is no score."""
        if len(self._packed) >= MEMORY:
            self._packed.clear()
        packed, rest = 0, []
        for place, (name, score) in enumerate(zip(self.metrics, self.scores(key), strict=True)):
            if isinstance(score, int) and name in self._measured:
                continue
            if isinstance(score, int) and 0 <= score <= stats.MICRO:
                packed |= (1 | score << _SUM_BITS | score * score << _SQUARES_BITS) << place * _LANE_BITS
            elif score is not None:  # a registered metric may break the law and have a score outside of [0, 1]
                rest.append((name, score))
        self._packed[key] = packed, tuple(rest)
        return self._packed[key]

    def _add_measured(self, builders: dict[str, _StatBuilder], name: str, row: WindowBucket) -> None:
        """Add the scores that were measured, and the requests that a measured metric applies to without a score."""
        cells, place = row.measures.get(name, {}), self._measured[name]
        builder = _StatBuilder()
        for key, count in row.cells.items():
            score = self.scores(key)[place]
            if isinstance(score, int):
                n, total, squares = cells.get(key, _UNMEASURED)
                builder.add(n, total, squares)
                builder.unscored += count - n if score == APPLIES else 0
        known = builders.setdefault(name, builder)
        if known is not builder:
            known.add(builder.n, builder.sum, builder.squares)
            known.unscored += builder.unscored

    def _add_groups(self, builders: dict[str, _StatBuilder], row: WindowBucket) -> None:
        """Add what a row holds of clusters."""
        for key, packed in row.groups.items():
            for (name, metric), score in zip(self.metrics.items(), self.scores(key), strict=True):
                if not isinstance(score, int):
                    continue
                if not metric.measured:
                    builders[name].spread.add(score, packed)
                elif pair := row.measured_groups.get(name, {}).get(key):
                    builders[name].spread.add_measured(pair)

    def add(self, row: WindowBucket, key: Key, n: int, measured: Mapping[str, Sums], group: int | None) -> None:
        """Add requests with the same facts to a row; of a full one, their scores alone.

        Args:
            row: The row.
            key: Their facts.
            n: How many they are.
            measured: By metric, the sums of what was measured on their texts.
            group: The random group of their cluster; None where each is a cluster of its own.
        """
        count = row.cells.get(key)
        if count is None:
            if len(row.cells) >= self.cells and not self._has_room(row, key):
                self._spill(row, key, n, measured)
                return
            # Rows and item tables hold the same few facts: sharing the tuples halves the memory.
            key, count = self.shared(key), 0
        row.cells[key] = count + n
        for name, sums in measured.items():
            row.measure(name, key, sums)
        if group is not None:
            row.group(group, key, n, measured)

    def _has_room(self, row: WindowBucket, key: Key) -> bool:
        """Whether a full row keeps facts it has not seen: those with the largest hash make room for them."""
        if not row.ranked:
            row.ranked = [(-rank(known), known) for known in row.cells]
            heapq.heapify(row.ranked)
        if not row.ranked or rank(key) >= -row.ranked[0][0]:
            return False
        _, largest = heapq.heapreplace(row.ranked, (-rank(key), key))
        self._drop(row, largest)
        return True

    def cut(self, row: WindowBucket) -> None:
        """Keep as many facts of a merged row as a row may have: those with the smallest hashes.

        So a row is the same however its requests were divided and in whatever order they came: facts that are among the
        first of the whole are among the first of every part, where none of their requests was left out.
        """
        if len(row.cells) > self.cells:
            for key in sorted(row.cells, key=rank)[self.cells :]:
                self._drop(row, key)

    def _drop(self, row: WindowBucket, key: Key) -> None:
        """Move the requests with some facts to the spill."""
        count, measured = row.drop(key)
        self._spill(row, key, count, measured)

    def _spill(self, row: WindowBucket, key: Key, count: int, measured: Mapping[str, Sequence[int]]) -> None:
        row.spilled += count
        for (name, metric), score in zip(self.metrics.items(), self.scores(key), strict=True):
            if isinstance(score, str):
                add_sums(row.spill, f"{name}|{score}", (count, 0, 0))
            elif score is not None and not metric.measured:
                add_sums(row.spill, name, (count, count * score, count * score * score))
            elif score is not None:
                sums = measured.get(name, _UNMEASURED)
                if sums[0]:
                    add_sums(row.spill, name, sums)
                if score == APPLIES and sums[0] < count:
                    add_sums(row.spill, f"{name}|", (count - sums[0], 0, 0))
        for name in measured.keys() - self.metrics.keys():  # what is no metric by itself, such as labels with a proxy
            add_sums(row.spill, name, measured[name])


def _unpacked(packed: int, metrics: Iterable[str]) -> dict[str, _StatBuilder]:
    """The sums of the metrics that a packed number has scores of."""
    builders: dict[str, _StatBuilder] = {}
    data = packed.to_bytes((packed.bit_length() + _LANE_BITS) // 8, "little")
    for place, name in enumerate(metrics):
        lane = int.from_bytes(data[place * _LANE_BITS // 8 : (place + 1) * _LANE_BITS // 8], "little")
        if lane:
            builder = builders[name] = _StatBuilder()
            builder.n = lane & (1 << _SUM_BITS) - 1
            builder.sum = lane >> _SUM_BITS & (1 << _SQUARES_BITS - _SUM_BITS) - 1
            builder.squares = lane >> _SQUARES_BITS
    return builders


def _add_spill(builders: dict[str, _StatBuilder], row: WindowBucket) -> None:
    """Add the requests whose facts a full row does not have."""
    for spill_key, sums in row.spill.items():
        name, bar, reason = spill_key.partition("|")
        builder = builders.setdefault(name, _StatBuilder())
        if reason:
            builder.miss(reason, sums[0])
        elif bar:
            builder.unscored += sums[0]
        else:
            builder.add(*sums)


def _score(metric: Metric, facts: Facts) -> Score:
    try:
        if metric.measured:
            return _place(metric, facts) if metric.applies(facts) else None
        score = metric.score(facts)
    except Unassessed as unknown:
        return unknown.reason
    return None if score is None else stats.micro(score)


def _place(metric: Metric, facts: Facts) -> int:
    """Where an unmeasured request belongs that a measured metric applies to."""
    try:
        return APPLIES if metric.expects_score(facts) else IF_MEASURED
    except Unassessed:
        return APPLIES


def weighted(rows: Mapping[str, WindowBucket], calls: Mapping[str, int], table: ScoreTable) -> dict[str, Estimate]:
    """Every metric over all calls.

    Args:
        rows: The kept records of each stratum, whatever they were kept for: within a stratum both samples are random.
        calls: The number of all calls of each stratum.
        table: The metrics.
    """
    rows = {name: row for name, row in rows.items() if name != constants.UNKNOWN_WEIGHT}
    samples = {name: table.of(row) for name, row in rows.items()}
    strata = sorted({*samples, *calls})
    estimates: dict[str, Estimate] = {}
    for key in table.metrics:
        by_stratum = {name: samples[name][key] if name in samples else Stat() for name in strata}
        parts = [_stratum(name, stat, calls.get(name, 0)) for name, stat in by_stratum.items()]
        estimate = _post_stratified(parts, {name: by_stratum[name] for name in samples})
        estimates[key] = replace(estimate, n=sum(stat.n for stat in by_stratum.values()))
    return estimates


def _post_stratified(strata: Sequence[Stratum], samples: Mapping[str, Stat]) -> Estimate:
    """The weighted mean of strata whose requests come in clusters, which may reach over strata."""
    effect = DesignEffect()
    if any(stat.spread for stat in samples.values()):
        weights = shifts(strata)
        effect = design_effect(samples[name].grouped(*weights[name]) for name in sorted(weights))
    estimate = post_stratified(strata, z=effect.z)
    return replace(estimate, n_eff=estimate.n_eff / effect.ratio) if effect.ratio > 1 else estimate


def _stratum(name: str, stat: Stat, calls: int) -> Stratum:
    """The sample of one metric in one stratum: the denominator comes from facts, whoever was measured."""
    total, squares = stat.sum / stats.MICRO, stat.squares / stats.MICRO**2
    domain, scores = stat.n + stat.unscored, float(stat.n) if stat.unscored else None
    return Stratum(name, calls, stat.assessed, domain, total, squares, scores, stat.unknown)
