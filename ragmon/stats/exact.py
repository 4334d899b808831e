"""The exact interval for shares, from the incomplete beta function; the standard library only."""

from __future__ import annotations

import math
from typing import Final

from ragmon.stats.intervals import Z95

_TINY: Final = 1e-300
"""Stands for zero in a denominator of the continued fraction."""
_CONVERGED: Final = 1e-15
"""The change, in proportion, below which another term adds nothing."""
_ACCURACY: Final = 1e-12
"""Of a quantile, in proportion; Newton's last step is already far more accurate."""
_TERMS: Final = 10_000
"""More than the continued fraction takes: some 400 for a million observations."""


def clopper_pearson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The exact interval for a proportion: it covers at least its level whatever the truth.

    Args:
        successes: Sum of the scores, between 0 and n; need not be an integer (then it is conservative).
        n: Number of observations.
        z: Normal quantile of the level.

    Returns:
        Lower and upper bound; (0, 1) when n is 0.

    Source: Clopper and Pearson, Biometrika 26 (1934), p. 404, as quantiles of beta distributions.

    >>> [round(x, 4) for x in clopper_pearson(8, 10)]
    [0.4439, 0.9748]
    """
    if n <= 0:
        return 0.0, 1.0
    tail = math.erfc(z / math.sqrt(2)) / 2
    lower = 0.0 if successes <= 0 else _beta_quantile(tail, successes, n - successes + 1)
    # By symmetry the upper bound is the failures' lower one; near 1 that keeps its digits.
    upper = 1.0 if successes >= n else 1 - _beta_quantile(tail, n - successes, successes + 1)
    return lower, upper


def _beta_cdf(x: float, a: float, b: float) -> float:
    """The chance that a Beta(a, b) variable is at most x, in (0, 1): the regularised incomplete beta function.

    Source: NIST Digital Library of Mathematical Functions (DLMF), 8.17.22; fast below the mean, where it is needed.
    """
    return _power(x, a, b) / a / _fraction(x, a, b)


def _power(x: float, a: float, b: float) -> float:
    """x^a (1 - x)^b / B(a, b)."""
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(logarithm + a * math.log(x) + b * math.log1p(-x))


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d1 / (1 + d2 / (1 + ...)) that divides the incomplete beta function.

    The number of terms grows with the root of the larger shape.

    Source: DLMF 8.17.22, by the modified method of Lentz (Thompson and Barnett, J. Comput. Phys. 64 (1986), p. 490).
    """
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


def _beta_quantile(q: float, a: float, b: float) -> float:
    """The x at which `_beta_cdf` is q, by Newton's method; a step that would leave the bracket halves it instead."""
    low, high, x = 0.0, 1.0, a / (a + b)
    while high - low > _CONVERGED:
        excess = _beta_cdf(x, a, b) - q
        low, high = (low, x) if excess > 0 else (x, high)
        density = _power(x, a, b) / (x * (1 - x))
        step = excess / density if density else math.inf
        closer = x - step if low < x - step < high else (low + high) / 2
        if abs(closer - x) <= _ACCURACY * x:
            return closer
        x = closer
    return x
