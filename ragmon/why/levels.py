"""Small arithmetic on means: levels, and how far two of them lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ragmon.scoring.score_table import Stat
from ragmon.stats import MICRO
from ragmon.why.model import Level


def level(stat: Stat) -> Level:
    """The mean and what stands behind it."""
    return Level(stat.n, stat.value)


def share(k: int, n: int) -> Stat:
    """So many of so many."""
    return Stat(n, k * MICRO, k * MICRO**2)


def added(stats: Iterable[Stat]) -> Stat:
    """All requests together."""
    held = list(stats)
    return Stat(sum(one.n for one in held), sum(one.sum for one in held), sum(one.squares for one in held))


def without(whole: Stat, part: Stat) -> Stat:
    """The other requests."""
    return Stat(whole.n - part.n, whole.sum - part.sum, whole.squares - part.squares)


def moved_by(before: Stat, after: Stat) -> float:
    """How far a mean moved, in standard errors; 0 where one side has no request.

    Source: Agresti and Caffo, Am. Stat. 54 (2000), p. 280: a score of 0 and one of 1 are added to each side, so that
    few requests that agree are not taken for certain.

    >>> round(moved_by(share(90, 100), share(60, 100)), 1)
    -5.1
    """
    if not before.n or not after.n:
        return 0.0
    (a, va), (b, vb) = _adjusted(before), _adjusted(after)
    return (b - a) / math.sqrt(va + vb)


def apart(before: Stat, after: Stat, rest_before: Stat, rest_after: Stat) -> float:
    """How much further a part moved than the rest, in standard errors; 0 where one of them has no request."""
    four = (before, after, rest_before, rest_after)
    if not all(one.n for one in four):
        return 0.0
    (a, va), (b, vb), (c, vc), (d, vd) = map(_adjusted, four)
    return ((b - a) - (d - c)) / math.sqrt(va + vb + vc + vd)


def _adjusted(stat: Stat) -> tuple[float, float]:
    """The mean with a 0 and a 1 among the scores, and its variance."""
    n = stat.n + 2
    mean = (stat.sum / MICRO + 1) / n
    return mean, max(0.0, (stat.squares / MICRO**2 + 1) / n - mean * mean) / n
