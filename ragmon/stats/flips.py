"""Flips by chance: how often a majority turns round between two parts of the same answers if nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import exp, lgamma
from typing import Final

_KNOWN: Final = 65_536
"""Results that are cached: many items have the same counts."""


@lru_cache(_KNOWN)
def flip_chance(right: int, n: int, later: int) -> float:
    """The probability that most answers are right in one part and wrong in the other, if the parts are drawn at random.

    Args:
        right: How many of the answers are right.
        n: How many answers there are.
        later: How many of them are in the later part.

    >>> round(flip_chance(1, 2, 1), 3), flip_chance(5, 5, 2)
    (1.0, 0.0)
    """
    earlier = n - later
    shares = _shares(right, n, later)
    return sum((p for k, p in shares if (2 * k - later) * (2 * (right - k) - earlier) < 0), 0.0)


@lru_cache(_KNOWN)
def tail_chance(right: int, n: int, later: int, seen: int) -> float:
    """The probability that the later part has as few right answers as it has, or as many, if it is drawn at random.

    This is Fisher's exact test, one-sided, towards the side on which the later part lies.

    Args:
        right: How many of the answers are right.
        n: How many answers there are.
        later: How many of them are in the later part.
        seen: How many answers of the later part are right.

    >>> round(tail_chance(3, 6, 3, 0), 3)
    0.05
    """
    falls = seen * n <= right * later
    return min(
        1.0,
        sum((p for k, p in _shares(right, n, later) if (k <= seen if falls else k >= seen)), 0.0),
    )


def _shares(right: int, n: int, later: int) -> Iterator[tuple[int, float]]:
    """How many right answers a random part has, with probabilities (hypergeometric)."""
    for k in range(max(0, later - (n - right)), min(right, later) + 1):
        log = _comb(right, k) + _comb(n - right, later - k) - _comb(n, later)
        yield k, exp(log)


def _comb(n: int, k: int) -> float:
    """The logarithm of a binomial coefficient."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
