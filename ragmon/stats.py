"""Estimates and histograms in exact integers; the standard library only.

A graded score is held as an integer number of micro-units (1e-6), so sums are the same in any order on any
machine.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import rshift
from typing import Final

MICRO: Final = 1_000_000
Z95: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_DROPPED_BITS: Final = 46
_HALF: Final = 1 << (_DROPPED_BITS - 1)
NOT_POSITIVE: Final = 0
"""The bucket of zero and below, and of what is too small for a normal double."""

_ROUNDING: Final = 1e-9
"""What floating point may add to a whole number before it is rounded up."""


def micro(score: float) -> int:
    """A score in [0, 1] as an integer of micro-units, rounded half to even, once."""
    return round(score * MICRO)


def wilson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The score interval for a proportion.

    Args:
        successes: Sum of the scores, between 0 and n; need not be an integer (then it is conservative).
        n: Number of observations, or the effective number.
        z: Normal quantile of the level.

    Returns:
        Lower and upper bound; (0, 1) when n is 0.

    Source: Wilson, J. Am. Stat. Assoc. 22 (1927), p. 209.

    >>> [round(x, 4) for x in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    if n <= 0:
        return 0.0, 1.0
    p = successes / n
    z2 = z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(max(0.0, p * (1 - p) / n + z2 / (4 * n * n)))
    # At the ends the bound is exactly p; floating point would leave 1e-17 on the wrong side.
    return (0.0 if p <= 0 else max(0.0, centre - half)), (1.0 if p >= 1 else min(1.0, centre + half))


def needed_for_pass(threshold: float, *, at_least: bool, z: float = Z95) -> int | None:
    """The smallest n at which a flawless sample can prove the gate.

    Args:
        threshold: The gate, in [0, 1].
        at_least: True for a floor, False for a ceiling.
        z: Normal quantile of the level.

    Returns:
        The n; 1 when anything meets the gate, None when no finite sample can prove it (at least 1, at most 0).

    >>> needed_for_pass(0.80, at_least=True), needed_for_pass(0.05, at_least=False)
    (16, 73)
    """
    return needed_to_decide(1.0 if at_least else 0.0, threshold, z)


def needed_to_decide(p: float, threshold: float, z: float = Z95) -> int | None:
    """How many observations put Wilson's interval around p on one side of the gate.

    Args:
        p: The value observed so far, taken to stay as it is.
        threshold: The gate, in [0, 1].
        z: Normal quantile of the level.

    Returns:
        The n, at least 1; None when p lies on the gate.

    Source: a gate g lies within Wilson's interval as long as (p - g)² <= z² g (1 - g) / n, solved for n.

    >>> needed_to_decide(0.90, 0.80)
    62
    """
    if p == threshold:
        return None
    exact = threshold * (1 - threshold) * (z / (p - threshold)) ** 2
    return max(1, math.ceil(exact - _ROUNDING))


def clustered(clusters: Iterable[tuple[int, float]], z: float = Z95) -> tuple[float, float, float]:
    """Wilson's interval for a ratio of sums when observations come in clusters (one gold item asked many times).

    Args:
        clusters: One `(n, sum of scores)` per cluster; empty clusters do not count.
        z: Normal quantile of the level.

    Returns:
        Lower bound, upper bound and the effective number of observations, never more than the clusters.

    Source: linearised variance of a ratio with clusters as units (Cochran, Sampling Techniques, 3rd ed., 1977,
    section 6.3), put into Wilson's interval as an effective n.
    """
    used = [(n, y) for n, y in clusters if n > 0]
    if not used:
        return 0.0, 1.0, 0.0
    total, m = sum(n for n, _ in used), len(used)
    p = sum(y for _, y in used) / total
    residual = sum((y - p * n) ** 2 for n, y in used)
    n_eff = float(m)
    if m > 1 and residual > 0:
        variance = residual * m / (m - 1) / total**2
        # Uncapped, 50 items of which a few always fail are covered at .91 instead of .95.
        n_eff = min(float(m), p * (1 - p) / variance)
    lower, upper = wilson(p * n_eff, n_eff, z)
    return lower, upper, n_eff


def bucket(value: float) -> int:
    """The bucket of a positive value: the leading bits of its floating-point form, 64 buckets an octave.

    A bucket is at most 1/64 wide in proportion, so the middle of one is right within 0.8 %. Values of zero and below
    share one bucket. Histograms merge by adding counts.

    Source: the layout of IEEE 754 doubles (ISO/IEC 60559); HdrHistogram and DDSketch's cubic mapping use the same idea
    (Masson, Rim, Lee, VLDB 12 (2019)).
    """
    return next(iter(buckets([value])))


def buckets(values: Sequence[float]) -> Counter[int]:
    """How many values fall into each bucket; the whole batch is sorted in C."""
    positive = values if min(values, default=1.0) > 0 else [value for value in values if value > 0]
    counts = Counter(map(rshift, array("q", array("d", positive).tobytes()), repeat(_DROPPED_BITS)))
    if len(positive) < len(values):
        counts[NOT_POSITIVE] += len(values) - len(positive)
    return counts


def bucket_value(index: int) -> float:
    """The middle of a bucket, in the unit of the values."""
    return 0.0 if index == NOT_POSITIVE else array("d", array("q", [(index << _DROPPED_BITS) + _HALF]).tobytes())[0]


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """A quantile of a log-bucket histogram, by nearest rank.

    Args:
        histogram: Counts by bucket.
        q: Which, in [0, 1].

    Returns:
        The middle of the bucket that holds it, in the unit of the values; None when the histogram is empty.

    >>> quantile({bucket(100.0): 9, bucket(900.0): 1}, 0.5) < 102
    True
    """
    if not histogram:
        return None
    indices = sorted(histogram)
    up_to = list(accumulate(histogram[index] for index in indices))
    rank = max(1, math.ceil(q * up_to[-1] - _ROUNDING))
    return bucket_value(indices[bisect_left(up_to, rank)])
