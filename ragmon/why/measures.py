"""What is followed through time: a gate's metric, the share of requests that were fast enough, or of one index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from ragmon import stats
from ragmon.core.policy import Gate
from ragmon.metrics.facts import Key
from ragmon.scoring.counts import Row
from ragmon.scoring.score_table import ScoreTable, Stat
from ragmon.scoring.windows import SeriesKey
from ragmon.why.change import Sums

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
    def of(self, key: SeriesKey, row: Row) -> Stat:
        """What a row of a series says."""

    def passed(self, key: SeriesKey, row: Row) -> tuple[int, int] | None:
        """How many requests keep and break the gate, one by one; None where that is not known."""
        stat = self.of(key, row)
        good = self.sums(stat).total // stats.MICRO
        return good, stat.n - good

    def sums(self, stat: Stat) -> Sums:
        """The same, of which more is better."""
        return Sums(stat.n, stat.sum if self.at_least else stat.n * stats.MICRO - stat.sum)


class Metric(Measure):
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

    def of(self, key: SeriesKey, row: Row) -> Stat:
        """What a row of a series says."""
        return self._table.of(row)[self.name]

    def passed(self, key: SeriesKey, row: Row) -> tuple[int, int] | None:
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

    def of(self, key: SeriesKey, row: Row) -> Stat:
        """What a row of a series says."""
        histogram = row.latency.get(self._stage, {})
        fast = stats.MICRO * sum(n for bucket, n in histogram.items() if bucket < self._edge)
        return Stat(sum(histogram.values()), fast, fast * stats.MICRO)


class SameIndex(Measure):
    """The share of requests that the index answered which was there first."""

    def __init__(self, index_hash: str) -> None:
        super().__init__(f"index_hash {index_hash}", at_least=True)
        self._index = index_hash

    def of(self, key: SeriesKey, row: Row) -> Stat:
        """What a row of a series says."""
        n = row.count if key.index_hash else 0
        same = n * stats.MICRO if key.index_hash == self._index else 0
        return Stat(n, same, same * stats.MICRO)
