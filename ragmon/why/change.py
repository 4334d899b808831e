"""When a mean fell: the most likely cut of a series of steps into two, how sure that is, and how exact.

Two means against one have the likelihood ratio `n1 KL(p1, p) + n2 KL(p2, p)`, with p the mean of both: its logarithm
is the evidence. For shares that is exact, for graded scores cautious.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ragmon.stats import MICRO
from ragmon.stats.detection import kl
from ragmon.why.model import Change

ALPHA: Final = 0.01
"""What is no likelier than this by chance counts."""
LIKELY: Final = math.log(2 / 0.05)
"""Cuts whose evidence falls short by less than this are nearly as likely.

Source: if both means were known, the evidence lost between the true cut and the best would exceed x on either side with
a chance of at most exp(-x) (Ville's inequality), so that these cuts hold the true one in 95 of 100 cases; means that
are estimated make it a little less. The idea is Siegmund's, Int. Stat. Rev. 56 (1988), p. 31.
"""


class Sums(NamedTuple):
    """Requests and the sum of their scores in micro-units, of which more is better."""

    n: int
    total: int

    @property
    def mean(self) -> float:
        """Their mean; there must be one request."""
        return self.total / (self.n * MICRO)

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        return Sums(self.n + other.n, self.total + other.total)

    def minus(self, other: Sums) -> Sums:
        """The rest."""
        return Sums(self.n - other.n, self.total - other.total)


NOTHING: Final = Sums(0, 0)


class Point(NamedTuple):
    """One step: where it starts and ends, seconds since the epoch, and its scores."""

    start: int
    end: int
    sums: Sums


def gain(one: Sums, other: Sums) -> float:
    """The logarithm of the likelihood ratio of two means against one.

    >>> round(gain(Sums(100, 90 * MICRO), Sums(100, 60 * MICRO)), 2)
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


def locate(points: Sequence[Point], tries: int = 1) -> Change:
    """The most likely moment at which the mean fell.

    Args:
        points: Steps with at least one score, in the order of time.
        tries: How many measures of the same requests are tried.
    """
    places = max(0, len(points) - 1) * tries
    if len(points) < 2:
        told = "all requests that were scored fall into one step" if points else "no request was scored"
        return _none(told, places)
    up_to = list(accumulate((point.sums for point in points), Sums.plus))
    whole = up_to[-1]
    cuts = [(before, whole.minus(before)) for before in up_to[:-1]]
    possible = max(gain(Sums(a.n, a.n * MICRO), Sums(b.n, 0)) for a, b in cuts)
    if chance(possible, places) > ALPHA:
        return _none(f"{whole.n} scored requests are too few: no change could be told from chance", places)
    found = [gain(a, b) if a.mean > b.mean else 0.0 for a, b in cuts]
    best = max(range(len(found)), key=found.__getitem__)
    p = chance(found[best], places)
    if p > ALPHA:
        how = f"p <= {p:.2g}" if p < 1 else "chance would do as much"
        return _none(f"nothing became worse: {how}, {places} places looked at", places, p, found[best])
    likely = [i for i, evidence in enumerate(found) if evidence > 0 and evidence >= found[best] - LIKELY]
    return Change(
        began=float(points[best + 1].start),
        earliest=float(points[likely[0]].start),
        latest=float(points[likely[-1] + 1].end),
        p=p,
        evidence=found[best],
        places=places,
        reason="",
    )


def _none(reason: str, places: int, p: float = 1.0, evidence: float = 0.0) -> Change:
    return Change(None, None, None, p, evidence, places, reason)


def together(sums: Iterable[Sums]) -> Sums:
    """All of them."""
    found = NOTHING
    for one in sums:
        found = found.plus(one)
    return found
