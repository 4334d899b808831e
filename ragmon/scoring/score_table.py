"""From counts to means: the score of every metric for every tuple of facts, computed once.

Means over all traffic from records kept at different rates: every stratum weighs what it holds of all calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ragmon import stats
from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Facts, Key
from ragmon.scoring.counts import WindowBucket
from ragmon.stats.strata import Estimate, Stratum, post_stratified

MEMORY: Final = 65_536
"""Tuples of facts whose scores are remembered."""

Score = int | str | None
"""Micro-units, the reason it is unknown, or None: not in the denominator."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A mean and what stands behind it.

    Attributes:
        n: Requests in the denominator.
        sum: Sum of their scores in micro-units.
        squares: Sum of the squares.
        unassessed: Requests that belong in it but could not be scored, by reason.
    """

    n: int = 0
    sum: int = 0
    squares: int = 0
    unassessed: Mapping[str, int] = field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """The mean; None where nothing was scored: an empty denominator is no data, never 0 or 1."""
        return self.sum / (self.n * stats.MICRO) if self.n else None

    @property
    def estimate(self) -> Estimate:
        """The mean of these requests with its 95 % interval, as a sample in which all were drawn alike."""
        total = self.sum / stats.MICRO
        lower, upper = stats.graded(self.n, total, self.squares / stats.MICRO**2)
        return Estimate(self.value, lower, upper, self.n, float(self.n), 0.0, float(self.n), ())


class _Tally:
    """A statistic that is being added up."""

    __slots__ = ("n", "squares", "sum", "unassessed")

    def __init__(self) -> None:
        self.n = self.sum = self.squares = 0
        self.unassessed: dict[str, int] = {}

    def add(self, n: int, total: int, squares: int) -> None:
        self.n += n
        self.sum += total
        self.squares += squares

    def miss(self, reason: str, n: int) -> None:
        self.unassessed[reason] = self.unassessed.get(reason, 0) + n

    def stat(self) -> Stat:
        return Stat(self.n, self.sum, self.squares, self.unassessed)


class ScoreTable:
    """The scores of facts.

    Args:
        metrics: By key.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = dict(metrics)
        self._memory: dict[Key, tuple[Score, ...]] = {}
        self._keys: dict[Key, Key] = {}

    def shared(self, key: Key) -> Key:
        """The one tuple that stands for these facts wherever they are counted."""
        if len(self._keys) >= MEMORY:
            self._keys.clear()
        return self._keys.setdefault(key, key)

    def scores(self, key: Key) -> tuple[Score, ...]:
        """One score per metric, in the order of `metrics`; measured ones say here only whether they apply."""
        found = self._memory.get(key)
        if found is None:
            if len(self._memory) >= MEMORY:
                self._memory.clear()
            facts = Facts._make(key)
            found = self._memory[key] = tuple(_score(metric, facts) for metric in self.metrics.values())
        return found

    def applying(self, key: Key, measured: Mapping[str, int]) -> dict[str, int]:
        """Of scores that were measured, those of metrics in whose denominator a request with these facts is."""
        if not measured:
            return {}
        found = zip(self.metrics, self.scores(key), strict=True)
        return {name: measured[name] for name, score in found if name in measured and isinstance(score, int)}

    def of(self, row: WindowBucket) -> dict[str, Stat]:
        """Every metric of one row."""
        tallies = {name: _Tally() for name in self.metrics}
        measured = [row.measures.get(name, {}) if metric.measured else None for name, metric in self.metrics.items()]
        places = list(zip(tallies.values(), measured, strict=True))
        for key, count in row.cells.items():
            for (tally, cells), score in zip(places, self.scores(key), strict=True):
                if score is None:
                    continue
                if isinstance(score, str):
                    tally.miss(score, count)
                elif cells is None:
                    tally.add(count, count * score, count * score * score)
                elif key in cells:
                    tally.add(*cells[key])
        for spilled, sums in row.spill.items():
            name, _, reason = spilled.partition("|")
            if name in tallies and reason:
                tallies[name].miss(reason, sums[0])
            elif name in tallies:
                tallies[name].add(*sums)
        return {name: tally.stat() for name, tally in tallies.items()}

    def spill(self, row: WindowBucket, key: Key, measured: Mapping[str, int]) -> None:
        """Add a request to a row that is full: its scores are kept, its facts are not."""
        row.spilled += 1
        for (name, metric), score in zip(self.metrics.items(), self.scores(key), strict=True):
            value = measured.get(name) if metric.measured and isinstance(score, int) else score
            if isinstance(value, str):
                row.spill.setdefault(f"{name}|{value}", [0, 0, 0])[0] += 1
            elif value is not None:
                held = row.spill.setdefault(name, [0, 0, 0])
                held[0] += 1
                held[1] += value
                held[2] += value * value


def _score(metric: Metric, facts: Facts) -> Score:
    try:
        if metric.measured:
            return 1 if metric.applies(facts) else None
        score = metric.score(facts)
    except Unassessed as unknown:
        return unknown.reason
    return None if score is None else stats.micro(score)


def weighted(rows: Mapping[str, WindowBucket], calls: Mapping[str, int], table: ScoreTable) -> dict[str, Estimate]:
    """Every metric over all calls.

    Args:
        rows: By stratum, what was kept of it, for whatever reason: within a stratum both draws are random.
        calls: By stratum, all calls.
        table: The metrics.
    """
    rows = {name: row for name, row in rows.items() if name != constants.UNKNOWN_WEIGHT}
    known = {name: (table.of(row), row.count) for name, row in rows.items()}
    strata = sorted({*rows, *calls})
    return {
        key: post_stratified([_stratum(name, key, metric, known.get(name), calls.get(name, 0)) for name in strata])
        for key, metric in table.metrics.items()
    }


def _stratum(name: str, key: str, metric: Metric, known: tuple[Mapping[str, Stat], int] | None, calls: int) -> Stratum:
    """What is known of one metric in one stratum."""
    if known is None:
        return Stratum(name, calls, 0, 0, 0.0, 0.0)
    found, count = known
    stat = found[key]
    # Of a score that is measured on text it is not known which of the other records would have had one.
    assessed = stat.n if metric.measured else count - sum(stat.unassessed.values())
    return Stratum(name, calls, assessed, stat.n, stat.sum / stats.MICRO, stat.squares / stats.MICRO**2)
