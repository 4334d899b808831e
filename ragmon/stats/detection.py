"""How fast an alarm can detect a change, in closed form, and how complete the labels of a time are.

An alarm that is valid at every look needs a certain evidence, and after a change each label yields only so much. So a
small drop at a low label rate takes days, whatever the rule: more labels or a wider gate are the only remedies.

Labels arrive days after their answers; `Delays` estimates the share of them that has arrived.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ragmon.core.errors import RagmonError
from ragmon.stats.betting import checked_share

DROPS: Final = (0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60)
"""The drops an alarm bets on, as shares of its gate."""


def kl(p: float, q: float) -> float:
    """The evidence of one label on average against a share q when the true share is p, in nats.

    Args:
        p: The true share, in [0, 1].
        q: The share that is tested, in [0, 1].

    Returns:
        The Kullback-Leibler divergence of two coins; infinite where q excludes what p allows.

    Source: Kullback and Leibler, Ann. Math. Stat. 22 (1951), p. 79.

    >>> round(kl(0.70, 0.80), 4)
    0.0282
    """
    parts = ((checked_share("p", p), checked_share("q", q)), (1 - p, 1 - q))
    if any(x > 0 and y <= 0 for x, y in parts):
        return math.inf
    return max(0.0, sum(x * math.log(x / y) for x, y in parts if x > 0))


def information_floor(p: float, gate: float, threshold: float) -> float:
    """How many labels the best possible bet needs for an evidence, one that knows the share.

    It holds to first order: an alarm that had gathered evidence before the change can be a little faster.

    Args:
        p: The share after the change, in [0, 1].
        gate: The gate, in [0, 1].
        threshold: Evidence that raises the alarm, above 1. Where an alarm looks once a minute this is the number of
            minutes to one false alarm: 43,200 for 30 days.

    Returns:
        The labels; infinite where the share lies on the gate.

    Raises:
        RagmonError: A share lies outside [0, 1], or the threshold is not above 1.

    Source: Lorden, Ann. Math. Stat. 42 (1971), p. 1897.

    >>> round(information_floor(0.70, 0.80, 43_200)), round(information_floor(0.77, 0.80, 43_200))
    (379, 3931)
    """
    distance = kl(p, gate)
    return math.log(_checked_evidence(threshold)) / distance if distance > 0 else math.inf


def labels_to_detect(
    p: float,
    gate: float,
    threshold: float,
    *,
    at_least: bool = True,
    per_step: float | None = None,
    drops: Sequence[float] = DROPS,
) -> float | None:
    """How many labels an alarm needs after a change, by its best bet alone.

    The figure is cautious, because the other bets win as well. In simulations alarms needed .8 to 1.1 of it where the
    number of labels per step is known, and .55 to 1.1 where it is not: an alarm adds up bets started at every step, and
    smaller steps mean more starts.

    Args:
        p: The share after the change, in [0, 1].
        gate: The gate, in [0, 1].
        threshold: Evidence that raises the alarm, above 1.
        at_least: True for a floor, False for a ceiling.
        per_step: Labels per step; None where it is unknown.
        drops: The drops that are bet on, as shares of the gate between 0 and 1, in equal parts.

    Returns:
        The labels; None where no bet wins, because the share keeps the gate or lies too close to it.

    Raises:
        RagmonError: A share lies outside [0, 1], or the threshold is not above 1.

    >>> round(labels_to_detect(0.70, 0.80, 43_200)), labels_to_detect(0.80, 0.80, 43_200)
    (469, None)
    """
    p, gate = checked_share("p", p), checked_share("gate", gate)
    if not at_least:
        p, gate = 1 - p, 1 - gate
    if gate >= 1:
        return 1 / (1 - p) if p < 1 else None  # the first bad label refutes it
    growth = max(p * math.log1p(-d) + (1 - p) * math.log1p(d * gate / (1 - gate)) for d in drops)
    if growth <= 0:
        return None
    stake = _checked_evidence(threshold) * len(drops)
    # After n labels the wealth of all starts is e^(growth n) times the sum of a geometric series over the steps.
    return (math.log(stake) if per_step is None else math.log1p(stake * -math.expm1(-growth * per_step))) / growth


def minutes_to_detect(labels: float | None, per_minute: float) -> float | None:
    """How long it takes until a number of labels has arrived.

    Args:
        labels: As returned by `labels_to_detect`.
        per_minute: Labels per minute.

    Returns:
        Minutes; None where so many labels never arrive.

    >>> minutes_to_detect(469.0, 10)
    46.9
    """
    return labels / per_minute if labels is not None and per_minute > 0 else None


def _checked_evidence(threshold: float) -> float:
    if not threshold > 1:
        raise RagmonError(f"threshold {threshold!r} is no evidence", hint="above 1: 43200 for 30 days")
    return threshold


ENOUGH: Final = 20
"""The fewest reports from which the distribution of delays is estimated."""


class Delays:
    """The distribution of reporting delays, from reports of which those with longer delays have not arrived yet.

    The share of reports that arrive within a delay is the product-limit estimate for right-truncated data, which
    compares each delay with the reports that could have taken as long (Lynden-Bell 1971; for reporting delays Lawless
    1994). It is relative to the reports that arrive within the longest possible delay among these reports.

    Args:
        reports: For each report its delay, and the longest delay with which it would have arrived by now, in seconds.

    >>> Delays([(1.0, 9.0), (1.0, 9.0), (5.0, 9.0), (1.0, 2.0)]).share(1.0)
    0.6666666666666667
    """

    def __init__(self, reports: Sequence[tuple[float, float]]) -> None:
        self._reports = [(max(0.0, delay), max(delay, limit, 0.0)) for delay, limit in reports]
        self._delays, self._shares = _distribution(self._reports)

    def share(self, waited: float) -> float:
        """The share of reports that arrive within a time in seconds; in (0, 1]."""
        index = bisect_right(self._delays, waited)
        return self._shares[index - 1] if index else self._shares[0]

    @property
    def maturity(self) -> float | None:
        """The share of all reports about these times that has arrived, in (0, 1]; None with too few reports.

        Each report counts as the inverse of the share that arrives within its longest possible delay.
        """
        if len(self._reports) < ENOUGH:
            return None
        return len(self._reports) / math.fsum(1.0 / self.share(limit) for _, limit in self._reports)


def _distribution(reports: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The delays in rising order, and for each the share of reports that arrive within it; 1 for the longest."""
    times = Counter(delay for delay, _ in reports)
    delays = sorted(times)
    by_delay, by_limit = sorted(delay for delay, _ in reports), sorted(limit for _, limit in reports)
    shares, share = [1.0] * len(delays), 1.0
    for index in range(len(delays) - 1, 0, -1):
        delay = delays[index]
        # At risk are reports with at most this delay that could have had it. As delay <= limit, no report is subtracted
        # that was not counted.
        at_risk = bisect_right(by_delay, delay) - bisect_left(by_limit, delay)
        share *= 1.0 - times[delay] / at_risk if at_risk > times[delay] else 1.0
        shares[index - 1] = share
    return delays, shares
