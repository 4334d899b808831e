"""The change point of a mean: the most likely cut of a series of steps into two, its significance and its interval.

Two means against one have the likelihood ratio `n1 KL(p1, p) + n2 KL(p2, p)`, with p the mean of both: its logarithm is
the evidence. That is exact for shares and conservative for graded scores. The module also has arithmetic on means:
sums, differences, and the distance of two means in standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ragmon.gates.diagnosis.model import ChangePoint, Level
from ragmon.scoring.score_table import Stat
from ragmon.stats.histograms import MICRO
from ragmon.stats.prediction import kl

ALPHA: Final = 0.01
"""The significance level."""
LIKELY: Final = math.log(2 / 0.05)
"""Cuts whose evidence is less than this below the best are nearly as likely.

Source: if both means were known, the difference in evidence between the true cut and the best one would exceed x on
either side with a probability of at most exp(-x) (Ville's inequality), so that these cuts hold the true one in 95 of
100 cases; because the means are estimated, it is a little less. The idea is Siegmund's, Int. Stat. Rev. 56 (1988), p.
31.
"""


class ScoreSums(NamedTuple):
    """A number of requests and the sum of their scores in micro-units; more is better."""

    n: int
    total: int

    @property
    def mean(self) -> float:
        """The mean score; there must be at least one request."""
        return self.total / (self.n * MICRO)

    def plus(self, other: ScoreSums) -> ScoreSums:
        """The sums of both."""
        return ScoreSums(self.n + other.n, self.total + other.total)

    def minus(self, other: ScoreSums) -> ScoreSums:
        """The sums without the other's."""
        return ScoreSums(self.n - other.n, self.total - other.total)


NOTHING: Final = ScoreSums(0, 0)


class Point(NamedTuple):
    """One step: its start and end in seconds since the epoch, and its scores."""

    start: int
    end: int
    sums: ScoreSums


def gain(change: ScoreSums, other: ScoreSums) -> float:
    """The logarithm of the likelihood ratio of two means against one.

    >>> round(gain(ScoreSums(100, 90 * MICRO), ScoreSums(100, 60 * MICRO)), 2)
    12.66
    """
    if not change.n or not other.n:
        return 0.0
    mean = change.plus(other).mean
    return change.n * kl(change.mean, mean) + other.n * kl(other.mean, mean)


def p_bound(evidence: float, places: int) -> float:
    """An upper bound on the probability of this much evidence for any of the compared cuts, if nothing changed.

    The evidence of each side exceeds x with a probability of at most exp(-x), for any scores in [0, 1]; that of both
    sides together with at most (1 + x) exp(-x); that of any cut with at most the sum over all cuts. Requests are taken
    as independent.

    Args:
        evidence: The result of `gain`, for a change in one direction.
        places: How many cuts were compared.

    Source: Hoeffding, J. Am. Stat. Assoc. 58 (1963), p. 13, theorem 1.

    >>> p_bound(20.0, 700) < 0.0001 < p_bound(15.0, 700), p_bound(1.0, 5)
    (True, 1.0)
    """
    return min(1.0, places * (1 + evidence) * math.exp(-evidence))


def locate(points: Sequence[Point], tries: int = 1) -> ChangePoint:
    """The most likely time at which the mean fell.

    Args:
        points: Steps with at least one score, in order of time.
        tries: The number of measures of the same requests that are tried.
    """
    places = max(0, len(points) - 1) * tries
    if len(points) < 2:
        reason = "all requests that were scored fall into one step" if points else "no request was scored"
        return _none(reason, places)
    up_to = list(accumulate((point.sums for point in points), ScoreSums.plus))
    total = up_to[-1]
    cuts = [(before, total.minus(before)) for before in up_to[:-1]]
    largest_possible = max(gain(ScoreSums(a.n, a.n * MICRO), ScoreSums(b.n, 0)) for a, b in cuts)
    if p_bound(largest_possible, places) > ALPHA:
        return _none(f"{total.n} scored requests are too few: no change could be told from chance", places)
    gains = [gain(a, b) if a.mean > b.mean else 0.0 for a, b in cuts]
    best = max(range(len(gains)), key=gains.__getitem__)
    p = p_bound(gains[best], places)
    if p > ALPHA:
        how = f"p <= {p:.2g}" if p < 1 else "chance would do as much"
        return _none(f"nothing became worse: {how}, {places} places looked at", places, p, gains[best])
    likely = [i for i, evidence in enumerate(gains) if evidence > 0 and evidence >= gains[best] - LIKELY]
    return ChangePoint(
        began=float(points[best + 1].start),
        earliest=float(points[likely[0]].start),
        latest=float(points[likely[-1] + 1].end),
        p=p,
        evidence=gains[best],
        places=places,
        reason="",
    )


def _none(reason: str, places: int, p: float = 1.0, evidence: float = 0.0) -> ChangePoint:
    return ChangePoint(None, None, None, p, evidence, places, reason)


def total(sums: Iterable[ScoreSums]) -> ScoreSums:
    """The sum of all."""
    total = NOTHING
    for each in sums:
        total = total.plus(each)
    return total


def level(stat: Stat) -> Level:
    """The mean of a statistic and its number of requests."""
    return Level(stat.n, stat.value)


def share(k: int, n: int) -> Stat:
    """The statistic of k successes in n requests."""
    return Stat(n, k * MICRO, k * MICRO**2)


def added(stats: Iterable[Stat]) -> Stat:
    """The statistic of all requests together."""
    parts = list(stats)
    return Stat(sum(part.n for part in parts), sum(part.sum for part in parts), sum(part.squares for part in parts))


def without(total: Stat, part: Stat) -> Stat:
    """The statistic of the requests outside a part."""
    return Stat(total.n - part.n, total.sum - part.sum, total.squares - part.squares)


def moved_by(before: Stat, after: Stat) -> float:
    """The change of a mean in standard errors; 0 where one side has no request.

    Source: Agresti and Caffo, Am. Stat. 54 (2000), p. 280: a score of 0 and one of 1 are added to each side, so that a
    few requests with equal scores do not count as certain.

    >>> round(moved_by(share(90, 100), share(60, 100)), 1)
    -5.1
    """
    if not before.n or not after.n:
        return 0.0
    (a, va), (b, vb) = _adjusted(before), _adjusted(after)
    return (b - a) / math.sqrt(va + vb)


def difference_in_change(before: Stat, after: Stat, rest_before: Stat, rest_after: Stat) -> float:
    """How much more a part changed than the rest, in standard errors; 0 where one of the four has no request."""
    four = (before, after, rest_before, rest_after)
    if not all(stat.n for stat in four):
        return 0.0
    (a, va), (b, vb), (c, vc), (d, vd) = map(_adjusted, four)
    return ((b - a) - (d - c)) / math.sqrt(va + vb + vc + vd)


def _adjusted(stat: Stat) -> tuple[float, float]:
    """The mean with a 0 and a 1 added to the scores, and its variance."""
    n = stat.n + 2
    mean = (stat.sum / MICRO + 1) / n
    return mean, max(0.0, (stat.squares / MICRO**2 + 1) / n - mean * mean) / n
