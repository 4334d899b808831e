"""Addition of counts and of sums: what everything that is counted has in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ragmon.stats.histograms import MICRO

T = TypeVar("T")
Sums = list[int]
"""`[n, sum, squares // MICRO, squares % MICRO]` of a measure in micro-units: each part of the sum of squares adds up by
itself, and fits the 64 bits of a saved number for a lifetime of requests."""


def sums_of(n: int, score: int) -> Sums:
    """The sums of requests with one score in micro-units."""
    high, low = divmod(score * score, MICRO)
    return [n, n * score, n * high, n * low]


def add_counts(mine: dict[T, int], other: Mapping[T, int]) -> None:
    """Add counts to a dictionary of counts."""
    if not mine:  # as most are at first; this copies many at once
        mine.update(other)
        return
    for key, n in other.items():
        mine[key] = mine.get(key, 0) + n


def add_sums(mine: dict[T, Sums], key: T, sums: Iterable[int]) -> None:
    """Add sums to those of a key."""
    own_sums = mine.get(key)
    if own_sums is None:
        mine[key] = list(sums)
    else:
        for i, x in enumerate(sums):
            own_sums[i] += x
