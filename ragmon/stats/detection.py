"""What an alarm can detect in what time: closed forms, to be said before anything happens.

An alarm that is valid at every look needs a certain evidence, and a change yields only so much evidence a label. So a
small drop at a low label rate takes days, whatever the rule: more labels or a wider gate are the only remedies.
"""

from __future__ import annotations

import math
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
