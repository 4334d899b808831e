"""What an alarm can detect in what time: closed forms, to be said before anything happens.

An alarm that is valid at every look needs a certain evidence, and a change yields only so much evidence a label. So a
small drop at a low label rate takes days, whatever the rule: more labels or a wider gate are the only remedies.

How much of what will be reported of a time has been reported: labels come days after the answers they are about.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ragmon.core.errors import RagmonError

DROPS: Final = (0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60)
"""The drops an alarm bets on, relative to its gate."""


def kl(p: float, q: float) -> float:
    """Evidence a label yields on average against a share q when the share is p, in nats.

    Args:
        p: The true share, in [0, 1].
        q: The share that is doubted, in [0, 1].

    Returns:
        The Kullback-Leibler divergence of two coins; infinite where q excludes what p allows.

    Source: Kullback and Leibler, Ann. Math. Stat. 22 (1951), p. 79.

    >>> round(kl(0.70, 0.80), 4)
    0.0282
    """
    parts = ((_share("p", p), _share("q", q)), (1 - p, 1 - q))
    if any(x > 0 and y <= 0 for x, y in parts):
        return math.inf
    return max(0.0, sum(x * math.log(x / y) for x, y in parts if x > 0))


def information_floor(p: float, gate: float, threshold: float) -> float:
    """The labels it takes to gather an evidence by the best possible bet, one that knows the share.

    It holds to first order: an alarm that was gathering before the change can be a little faster.

    Args:
        p: The share after the change, in [0, 1].
        gate: The gate, in [0, 1].
        threshold: Evidence that raises the alarm, above 1. Where an alarm looks once a minute it is the minutes to one
            false alarm: 43,200 for 30 days.

    Returns:
        The labels; infinite where the share lies on the gate.

    Raises:
        RagmonError: A share lies outside [0, 1], or the threshold is none.

    Source: Lorden, Ann. Math. Stat. 42 (1971), p. 1897.

    >>> round(information_floor(0.70, 0.80, 43_200)), round(information_floor(0.77, 0.80, 43_200))
    (379, 3931)
    """
    distance = kl(p, gate)
    return math.log(_evidence(threshold)) / distance if distance > 0 else math.inf


def labels_to_detect(
    p: float,
    gate: float,
    threshold: float,
    *,
    at_least: bool = True,
    per_step: float | None = None,
    drops: Sequence[float] = DROPS,
) -> float | None:
    """How many labels an alarm takes after a change, by the best of its bets alone.

    A cautious figure: the other bets win as well. Simulated alarms took .8 to 1.1 of it where it is known how many
    labels a step has, and .55 to 1.1 where not: an alarm adds up its starts, and they are more where steps are small.

    Args:
        p: The share after the change, in [0, 1].
        gate: The gate, in [0, 1].
        threshold: Evidence that raises the alarm, above 1.
        at_least: True for a floor, False for a ceiling.
        per_step: Labels a step; None where it is unknown.
        drops: What is bet on: drops relative to the gate, between 0 and 1, in equal parts.

    Returns:
        The labels; None where no bet wins, because the share keeps the gate or lies too close to it.

    Raises:
        RagmonError: A share lies outside [0, 1], or the threshold is none.

    >>> round(labels_to_detect(0.70, 0.80, 43_200)), labels_to_detect(0.80, 0.80, 43_200)
    (469, None)
    """
    p, gate = _share("p", p), _share("gate", gate)
    if not at_least:
        p, gate = 1 - p, 1 - gate
    if gate >= 1:
        return 1 / (1 - p) if p < 1 else None  # the first bad label refutes it
    growth = max(p * math.log1p(-d) + (1 - p) * math.log1p(d * gate / (1 - gate)) for d in drops)
    if growth <= 0:
        return None
    stake = _evidence(threshold) * len(drops)
    # After n labels all starts together hold e^(growth n) times the sum of a geometric series over the steps.
    return (math.log(stake) if per_step is None else math.log1p(stake * -math.expm1(-growth * per_step))) / growth


def minutes_to_detect(labels: float | None, per_minute: float) -> float | None:
    """How long it takes until so many labels have come.

    Args:
        labels: As `labels_to_detect` tells them.
        per_minute: Labels a minute.

    Returns:
        Minutes; None where that many never come.

    >>> minutes_to_detect(469.0, 10)
    46.9
    """
    return labels / per_minute if labels is not None and per_minute > 0 else None


def _evidence(threshold: float) -> float:
    if not threshold > 1:
        raise RagmonError(f"threshold {threshold!r} is no evidence", hint="above 1: 43200 for 30 days")
    return threshold


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise RagmonError(f"{name} {value!r} lies outside [0, 1]", hint="0.80 is 80 %")
    return value


ENOUGH: Final = 20
"""Reports from which a delay has a distribution."""


class Delays:
    """How long reports take, as far as it can be known: what takes longer than anybody has waited is not seen.

    The share of reports that come within a delay is the product-limit estimate for data truncated on the right, which
    takes each delay among the reports that could have been as long (Lynden-Bell 1971; for reporting delays Lawless
    1994). It is of those reports that come within the longest time anybody waited.

    Args:
        reports: For each report how long it took, and how long it could have taken at most to be here now, in seconds.

    >>> Delays([(1.0, 9.0), (1.0, 9.0), (5.0, 9.0), (1.0, 2.0)]).share(1.0)
    0.6666666666666667
    """

    def __init__(self, reports: Sequence[tuple[float, float]]) -> None:
        self._reports = [(max(0.0, delay), max(delay, most, 0.0)) for delay, most in reports]
        self._delays, self._shares = _distribution(self._reports)

    def share(self, waited: float) -> float:
        """The share of reports that come within a time, in seconds; in (0, 1]."""
        place = bisect_right(self._delays, waited)
        return self._shares[place - 1] if place else self._shares[0]

    @property
    def maturity(self) -> float | None:
        """The share of all reports on these times that is here, in (0, 1]; None where there are too few to say.

        Each report that is here stands for as many as its time lets come.
        """
        if len(self._reports) < ENOUGH:
            return None
        return len(self._reports) / sum(1.0 / self.share(most) for _, most in self._reports)


def _distribution(reports: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The delays, and the share of reports that come within each: from the longest, which all do, to the shortest."""
    times = Counter(delay for delay, _ in reports)
    delays = sorted(times)
    by_delay, by_most = sorted(delay for delay, _ in reports), sorted(most for _, most in reports)
    shares, share = [1.0] * len(delays), 1.0
    for place in range(len(delays) - 1, 0, -1):
        delay = delays[place]
        # At risk are reports that took no longer and could have taken as long: since delay <= most, none is short of
        # both.
        could = bisect_right(by_delay, delay) - bisect_left(by_most, delay)
        share *= 1.0 - times[delay] / could if could > times[delay] else 1.0
        shares[place - 1] = share
    return delays, shares
