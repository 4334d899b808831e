"""What one step says of one metric: a score in [0, 1] per cluster, counted where it is 0 or 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ragmon.stats import MICRO


class Observations(NamedTuple):
    """The cluster means of one step.

    Attributes:
        ones: Clusters with mean 1.
        zeros: Clusters with mean 0.
        parts: The means of all others, sorted: sums of them are the same in any order of arrival.
    """

    ones: int = 0
    zeros: int = 0
    parts: tuple[float, ...] = ()

    @property
    def n(self) -> int:
        """How many clusters."""
        return self.ones + self.zeros + len(self.parts)

    @property
    def total(self) -> float:
        """The sum of their means."""
        return self.ones + sum(self.parts)

    @property
    def turned(self) -> Observations:
        """One minus every mean: an upper bound seen as a lower one."""
        return Observations(self.zeros, self.ones, tuple(sorted(1.0 - part for part in self.parts)))


NONE = Observations()


def observe(clusters: Iterable[tuple[int, int]]) -> Observations:
    """The observations of `(n, sum in micro-units)` pairs, one per cluster; empty clusters do not count.

    A hundred requests of one session are one observation: they share what makes them good or bad, and an alarm that
    took them for a hundred would break its budget.

    >>> observe([(1, 1_000_000), (2, 0), (2, 1_000_000), (0, 0)])
    Observations(ones=1, zeros=1, parts=(0.5,))
    """
    ones = zeros = 0
    parts = []
    for n, total in clusters:
        if not n:
            continue
        if total == 0:
            zeros += 1
        elif total == n * MICRO:
            ones += 1
        else:
            parts.append(total / (n * MICRO))
    return Observations(ones, zeros, tuple(sorted(parts)))
