"""Intervals for shares (Wilson, clustered, Clopper-Pearson), observations that a verdict needs, and flips by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import exp, lgamma
from typing import Final

Z95: Final = 1.959963984540054  # the 97.5 % quantile of the normal distribution

_ROUNDING: Final = 1e-9  # ignored when a number is rounded up


def wilson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The score interval for a proportion. Lower and upper bound; (0, 1) when n is 0.

    The sum of the scores need not be an integer: then the interval is conservative.

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
    # At 0 and 1 the bound is exactly p; floating point would be off by 1e-17.
    return (0.0 if p <= 0 else max(0.0, centre - half)), (1.0 if p >= 1 else min(1.0, centre + half))


def graded(n: float, total: float, squares: float, z: float = Z95) -> tuple[float, float]:
    """The score interval for the mean of scores in [0, 1], from their sum and their sum of squares.

    Lower and upper bound; (0, 1) when n is 0.

    For scores of 0 and 1 it equals `wilson`, and it is never wider. Scores in between vary less than 0 and 1 would with
    the same mean, by the ratio of the variances, and there are two ways to put this into Wilson's formula: as more
    observations, or as less variance around the same centre. The first misses rare extreme scores that a small sample
    does not contain, the second is pulled too far towards 0.5; the interval covers both.

    Source: Wilson, J. Am. Stat. Assoc. 22 (1927), p. 209, with the sample variance in place of p(1 - p).
    """
    if n <= 1 or squares >= total or total >= n:
        return wilson(total, n, z)
    p = total / n
    binary = p * (1 - p)
    variance = min(max(0.0, squares / n - p * p) * n / (n - 1), binary)
    noise = z * z / n
    more_data = _wilson_bounds(p, noise * variance / binary, binary)
    less_variance = _wilson_bounds(p, noise, variance)
    return max(0.0, min(more_data[0], less_variance[0])), min(1.0, max(more_data[1], less_variance[1]))


def _wilson_bounds(p: float, noise: float, variance: float) -> tuple[float, float]:
    # Wilson's: `noise` is z² / n, `variance` that of one observation.
    centre = (p + noise / 2) / (1 + noise)
    half = math.sqrt(noise * variance + noise * noise / 4) / (1 + noise)
    return centre - half, centre + half


def needed_for_pass(threshold: float, *, at_least: bool) -> int | None:
    """The smallest n at which a flawless sample can prove the gate.

    The n; 1 when every value meets the gate, None when no finite sample can prove it (at least 1, at most 0).
    """
    return needed_to_decide(1.0 if at_least else 0.0, threshold)


def needed_to_decide(p: float, threshold: float) -> int | None:
    """How many observations put Wilson's interval around p on one side of the gate.

    The n, at least 1; None when p lies on the gate.

    Source: a gate g lies within Wilson's interval as long as (p - g)² <= z² g (1 - g) / n, solved for n.
    """
    if p == threshold:
        return None
    exact = threshold * (1 - threshold) * (Z95 / (p - threshold)) ** 2
    return max(1, math.ceil(exact - _ROUNDING))


def clustered(clusters: Mapping[tuple[int, float], int]) -> tuple[float, float, float]:
    """Wilson's interval for a ratio of sums when observations come in clusters (one gold item asked many times).

    Lower bound, upper bound and the effective number of observations, at most the number of clusters.

    `clusters` says how many clusters have each `(n, sum of scores)`.

    Source: linearised variance of a ratio with clusters as units (Cochran, Sampling Techniques, 3rd ed., 1977,
    section 6.3), put into Wilson's interval as an effective n.
    """
    used = [(n, y, times) for (n, y), times in clusters.items() if n > 0]
    if not used:
        return 0.0, 1.0, 0.0
    total, m = sum(n * times for n, _, times in used), sum(times for _, _, times in used)
    # fsum: the order of the clusters is chance, and must not change the last bits.
    p = math.fsum(y * times for _, y, times in used) / total
    residual = math.fsum((y - p * n) ** 2 * times for n, y, times in used)
    n_eff = float(m)
    if m > 1 and residual > 0:
        variance = residual * m / (m - 1) / total**2
        # Without the cap the coverage is .91 instead of .95 for 50 items of which a few always fail.
        n_eff = min(float(m), p * (1 - p) / variance)
    lower, upper = wilson(p * n_eff, n_eff)
    return lower, upper, n_eff


def clustered_or_missing(clusters: Mapping[tuple[int, float, int], int]) -> tuple[float, float, float]:
    """The interval of `clustered` where some scores are unknown: it covers the mean whatever they are.

    Lower bound if every unknown score were 0, upper bound if every one were 1, and the effective number of
    observations of the known scores.

    Source: worst-case bounds, Manski, Am. Econ. Rev. 80 (1990), p. 319.
    """

    def filled(unknown_n: int, score: int) -> Counter[tuple[int, float]]:
        # The clusters, with unknown scores left out or taken as a number.
        sums: Counter[tuple[int, float]] = Counter()
        for (n, total, unknown), times in clusters.items():
            sums[n + unknown_n * unknown, total + score * unknown] += times
        return sums

    lower, upper, n_eff = clustered(filled(0, 0))
    if any(unknown for _, _, unknown in clusters):
        lower, upper = clustered(filled(1, 0))[0], clustered(filled(1, 1))[1]
    return lower, upper, n_eff


_TINY: Final = 1e-300  # replaces zero in a denominator of the continued fraction
_CONVERGED: Final = 1e-15  # the relative change below which another term adds nothing
_ACCURACY: Final = 1e-12  # relative, of a quantile; the last Newton step is already far more accurate
_TERMS: Final = 10_000  # more than the continued fraction needs: about 400 for a million observations


def clopper_pearson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The exact interval for a proportion: its coverage is at least the level, whatever the true share is.

    Lower and upper bound; (0, 1) when n is 0.

    The sum of the scores need not be an integer: then the interval is conservative.

    Source: Clopper and Pearson, Biometrika 26 (1934), p. 404, as quantiles of beta distributions.
    """
    if n <= 0:
        return 0.0, 1.0
    tail = math.erfc(z / math.sqrt(2)) / 2
    lower = 0.0 if successes <= 0 else beta_quantile(tail, successes, n - successes + 1)
    # By symmetry the upper bound is 1 minus the lower bound of the failures; near 1 this keeps precision.
    upper = 1.0 if successes >= n else 1 - beta_quantile(tail, n - successes, successes + 1)
    return lower, upper


def _continued_fraction(x: float, a: float, b: float) -> float:
    # 1 + d1 / (1 + d2 / (1 + ...)), by the modified method of Lentz (Thompson and Barnett, J. Comput. Phys. 64 (1986),
    # p. 490). The number of terms grows with the root of the larger shape.
    value = above = 1.0
    below = 0.0
    for m in range(_TERMS):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))
        for term in (odd, even):
            below = 1 / ((1 + term * below) or _TINY)
            above = (1 + term / above) or _TINY
            value *= above * below
        if abs(above * below - 1) < _CONVERGED:
            break
    return value


def beta_quantile(q: float, a: float, b: float) -> float:
    """The x at which a Beta(a, b) variable is at most x with probability q; fast below the mean.

    By Newton's method; a step out of the bracket is replaced by bisection.

    Source: the regularised incomplete beta function, NIST Digital Library of Mathematical Functions (DLMF), 8.17.22.
    """
    low, high, x = 0.0, 1.0, a / (a + b)
    log_beta = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    while high - low > _CONVERGED:
        power = math.exp(log_beta + a * math.log(x) + b * math.log1p(-x))  # x^a (1 - x)^b / B(a, b)
        excess = power / a / _continued_fraction(x, a, b) - q
        low, high = (low, x) if excess > 0 else (x, high)
        density = power / (x * (1 - x))
        step = excess / density if density else math.inf
        new_x = x - step if low < x - step < high else (low + high) / 2
        if abs(new_x - x) <= _ACCURACY * x:
            return new_x
        x = new_x
    return x


_CACHED: Final = 65_536  # many items have the same counts


@lru_cache(_CACHED)
def flip_chance(right: int, n: int, later: int) -> float:
    """The probability that most answers are right in one part and wrong in the other, if the parts are drawn at random.

    Args:
        right: How many of the answers are right.
        n: How many answers there are.
        later: How many of them are in the later part.
    """
    earlier = n - later
    shares = _shares(right, n, later)
    return sum((p for k, p in shares if (2 * k - later) * (2 * (right - k) - earlier) < 0), 0.0)


@lru_cache(_CACHED)
def tail_chance(right: int, n: int, later: int, seen: int) -> float:
    """The probability that the later part has as few right answers as it has, or as many, if it is drawn at random.

    This is Fisher's exact test, one-sided, towards the side on which the later part lies.

    Args:
        right: How many of the answers are right.
        n: How many answers there are.
        later: How many of them are in the later part.
        seen: How many answers of the later part are right.
    """
    falls = seen * n <= right * later
    return min(
        1.0,
        sum((p for k, p in _shares(right, n, later) if (k <= seen if falls else k >= seen)), 0.0),
    )


def _shares(right: int, n: int, later: int) -> Iterator[tuple[int, float]]:
    # How many right answers a random part has, with probabilities (hypergeometric).
    for k in range(max(0, later - (n - right)), min(right, later) + 1):
        log = _comb(right, k) + _comb(n - right, later - k) - _comb(n, later)
        yield k, exp(log)


def _comb(n: int, k: int) -> float:
    # The logarithm of a binomial coefficient.
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
