"""When a mean fell: the most likely cut of a series of steps into two, how sure that is, and how exact.

Two means against one have the likelihood ratio `n1 KL(p1, p) + n2 KL(p2, p)`, with p the mean of both: its logarithm
is the evidence. For shares that is exact, for graded scores cautious.

Small arithmetic on means: levels, and how far two of them lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ragmon.gates.diagnosis.model import ChangePoint, Level
from ragmon.scoring.score_table import Stat
from ragmon.stats import MICRO
from ragmon.stats.detection import kl

ALPHA: Final = 0.01
"""What is no likelier than this by chance counts."""
LIKELY: Final = math.log(2 / 0.05)
"""Cuts whose evidence falls short by less than this are nearly as likely.

Source: if both means were known, the evidence lost between the true cut and the best would exceed x on either side with
a chance of at most exp(-x) (Ville's inequality), so that these cuts hold the true one in 95 of 100 cases; means that
are estimated make it a little less. The idea is Siegmund's, Int. Stat. Rev. 56 (1988), p. 31.
"""


class ScoreSums(NamedTuple):
    """Requests and the sum of their scores in micro-units, of which more is better."""

    n: int
    total: int

    @property
    def mean(self) -> float:
        """Their mean; there must be one request."""
        return self.total / (self.n * MICRO)

    def plus(self, other: ScoreSums) -> ScoreSums:
        """Both together."""
        return ScoreSums(self.n + other.n, self.total + other.total)

    def minus(self, other: ScoreSums) -> ScoreSums:
        """The rest."""
        return ScoreSums(self.n - other.n, self.total - other.total)


NOTHING: Final = ScoreSums(0, 0)


class Point(NamedTuple):
    """One step: where it starts and ends, seconds since the epoch, and its scores."""

    start: int
    end: int
    sums: ScoreSums


def gain(one: ScoreSums, other: ScoreSums) -> float:
    """The logarithm of the likelihood ratio of two means against one.

    >>> round(gain(ScoreSums(100, 90 * MICRO), ScoreSums(100, 60 * MICRO)), 2)
    12.66
    """
    if not one.n or not other.n:
        return 0.0
    mean = one.plus(other).mean
    return one.n * kl(one.mean, mean) + other.n * kl(other.mean, mean)


def chance(evidence: float, places: int) -> float:
    """At most how likely such evidence is for any of so many cuts where nothing changed.

    Each side's part of the evidence exceeds x with a chance of at most exp(-x), for any scores in [0, 1]; two of them
    together with at most (1 + x) exp(-x); some cut with at most the sum over all. Requests are taken as independent.

    Args:
        evidence: As `gain` tells it, for a change in one direction.
        places: How many cuts were compared.

    Source: Hoeffding, J. Am. Stat. Assoc. 58 (1963), p. 13, theorem 1.

    >>> chance(20.0, 700) < 0.0001 < chance(15.0, 700), chance(1.0, 5)
    (True, 1.0)
    """
    return min(1.0, places * (1 + evidence) * math.exp(-evidence))


def locate(points: Sequence[Point], tries: int = 1) -> ChangePoint:
    """The most likely moment at which the mean fell.

    Args:
        points: Steps with at least one score, in the order of time.
        tries: How many measures of the same requests are tried.
    """
    places = max(0, len(points) - 1) * tries
    if len(points) < 2:
        told = "all requests that were scored fall into one step" if points else "no request was scored"
        return _none(told, places)
    up_to = list(accumulate((point.sums for point in points), ScoreSums.plus))
    whole = up_to[-1]
    cuts = [(before, whole.minus(before)) for before in up_to[:-1]]
    possible = max(gain(ScoreSums(a.n, a.n * MICRO), ScoreSums(b.n, 0)) for a, b in cuts)
    if chance(possible, places) > ALPHA:
        return _none(f"{whole.n} scored requests are too few: no change could be told from chance", places)
    found = [gain(a, b) if a.mean > b.mean else 0.0 for a, b in cuts]
    best = max(range(len(found)), key=found.__getitem__)
    p = chance(found[best], places)
    if p > ALPHA:
        how = f"p <= {p:.2g}" if p < 1 else "chance would do as much"
        return _none(f"nothing became worse: {how}, {places} places looked at", places, p, found[best])
    likely = [i for i, evidence in enumerate(found) if evidence > 0 and evidence >= found[best] - LIKELY]
    return ChangePoint(
        began=float(points[best + 1].start),
        earliest=float(points[likely[0]].start),
        latest=float(points[likely[-1] + 1].end),
        p=p,
        evidence=found[best],
        places=places,
        reason="",
    )


def _none(reason: str, places: int, p: float = 1.0, evidence: float = 0.0) -> ChangePoint:
    return ChangePoint(None, None, None, p, evidence, places, reason)


def together(sums: Iterable[ScoreSums]) -> ScoreSums:
    """All of them."""
    found = NOTHING
    for one in sums:
        found = found.plus(one)
    return found


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
