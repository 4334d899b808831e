"""Two independent samples: evidence that one mean lies below the other, and that it does not by more than a margin.

At the true mean of the first sample, evidence about it and evidence about the second are e-values, and so is their
product, because the samples are independent. That mean is unknown: the least product over all means it may be counts.
It is a function of counts alone and holds however often one looks (`ragmon.stats.betting`).

Samples that rise and fall together, such as two runs over the same questions, only make it more cautious.

The same items answered twice, then and now: evidence that the mean fell, and that it did not.

A metric has its own denominator: an item may be in it then, now, both times or not at all (a precision counts only
what was answered). What is compared are the means over what each run happened to answer, so an item that was answered
then alone or now alone counts too, at its distance from the earlier mean. That mean is known up to a confidence
sequence, and the least evidence over it counts. Where both runs answered, only the difference of the two scores
matters: of scores of 0 and 1 the flips, and equal ones cost nothing.

Items that only one of the runs was asked are two independent samples; their evidence and that of the pairs are
averaged, which is evidence again. Two runs over the same items are no independent samples: what an item is like decides
both scores.

Valid however often one looks while items are added, or while the same items are asked again in rounds.

Source: bets as in `ragmon.stats.betting`, on the differences of an item's scores; a nuisance parameter by a union of
errors, as in Berger and Boos, J. Am. Stat. Assoc. 89 (1994), p. 1012.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from ragmon.core.errors import RagmonError
from ragmon.stats.betting import (
    ALPHA,
    BETS,
    HALVINGS,
    Scores,
    Seen,
    checked,
    confidence_sequence,
    log_mean_exp,
    mirrored,
    wealth,
)


def log_worse(a: Scores, b: Scores) -> float:
    """Evidence that the mean of b lies below that of a: the logarithm of an e-value against "at least as high".

    Args:
        a: What was seen of one sample.
        b: What was seen of another, independent one.

    Raises:
        RagmonError: A score lies outside [0, 1], or a count is negative.

    >>> from ragmon.stats.betting import shares
    >>> round(log_worse(shares(450, 500), shares(380, 500)), 2)
    13.38
    """
    return _least(checked(a), mirrored(checked(b)), 1.0)


def log_not_worse(a: Scores, b: Scores, margin: float) -> float:
    """Evidence that the mean of b lies above that of a less a margin: against "lower by the margin or more".

    Args:
        a: What was seen of one sample.
        b: What was seen of another, independent one.
        margin: In [0, 1); with 0 it is evidence that b is better.

    Raises:
        RagmonError: The margin is none, a score lies outside [0, 1], or a count is negative.

    >>> from ragmon.stats.betting import shares
    >>> round(log_not_worse(shares(450, 500), shares(455, 500), 0.05), 2)
    1.96
    """
    return _least(checked(b), mirrored(checked(a)), 1 - checked_margin(margin))


def checked_margin(margin: float) -> float:
    """A margin that is one.

    Raises:
        RagmonError: It is not.
    """
    if not 0 <= margin < 1:
        raise RagmonError(f"margin {margin!r} is no difference of shares", hint="from 0 to below 1: 0.02 is 2 points")
    return margin


def _least(first: Seen, second: Seen, width: float) -> float:
    """The least of the evidence that one mean lies above q and that another lies above `width - q`, over all q.

    The logarithm of `1 - d + d x / q` is `log((1 - d) q + d x) - log(q)`, whose second derivative in q is never
    negative; mixtures and sums of such functions are convex as well. So the slope finds the only minimum, and a
    tangent bounds what rounding may have missed.
    """
    low, high = 0.0, width
    bound = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        (one, falls), (other, rises) = wealth(first, middle), wealth(second, width - middle)
        slope = falls - rises
        bound = one + other - abs(slope) * (high - low)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return bound


Pairs = Mapping[tuple[float | None, float | None], float]
"""How many items have each pair of scores in [0, 1], then and now; None where the item was not in the denominator."""
FOR_THE_MEAN: Final = 0.1
"""Part of the error that is spent on not knowing the earlier mean."""
FOR_PAIRS: Final = 0.75
"""Weight of the evidence in pairs; the rest is that of items only one run was asked."""


class Unpaired(NamedTuple):
    """Scores of the items that only one of the runs was asked."""

    then: Scores
    now: Scores


_NONE: Final = Unpaired({}, {})


def worse(pairs: Pairs, alone: Unpaired = _NONE, alpha: float = ALPHA / 2) -> bool:
    """Whether it is proven that the mean fell.

    Args:
        pairs: Scores of the items that both runs were asked.
        alone: Scores of those that one was.
        alpha: Chance of ever saying so where it did not fall.

    >>> worse({(1.0, 0.0): 13, (0.0, 1.0): 1, (1.0, 1.0): 500})
    True
    """
    in_pairs = _evidence(pairs, _earlier_mean(pairs, alone, alpha), 0.0, falls=True)
    return _proven(in_pairs, log_worse(*alone), alpha)


def not_worse(pairs: Pairs, margin: float, alone: Unpaired = _NONE, alpha: float = ALPHA / 2) -> bool:
    """Whether it is proven that the mean fell by less than a margin.

    Args:
        pairs: Scores of the items that both runs were asked.
        margin: In [0, 1).
        alone: Scores of those that one was.
        alpha: Chance of ever saying so where it fell by the margin or more.

    Raises:
        RagmonError: The margin is none.

    >>> not_worse({(1.0, 0.0): 1, (1.0, 1.0): 500}, 0.02), not_worse({(1.0, 0.0): 1, (1.0, 1.0): 50}, 0.02)
    (True, False)
    """
    lower, upper = _earlier_mean(pairs, alone, alpha)
    # From a mean below the margin nothing can fall by it.
    means = max(lower, checked_margin(margin)), max(upper, margin)
    return _proven(_evidence(pairs, means, margin, falls=False), log_not_worse(*alone, margin), alpha)


def _earlier_mean(pairs: Pairs, alone: Unpaired, alpha: float) -> tuple[float, float]:
    """Where the earlier mean may lie."""
    then = dict(alone.then)
    for (before, _), count in pairs.items():
        if before is not None:
            then[before] = then.get(before, 0) + count
    return confidence_sequence(then, FOR_THE_MEAN * alpha)


def _proven(in_pairs: float, in_others: float, alpha: float) -> bool:
    """Whether the evidence of both kinds of items is enough."""
    weighted = math.log(2 * FOR_PAIRS) + in_pairs, math.log(2 - 2 * FOR_PAIRS) + in_others
    return log_mean_exp(weighted) >= -math.log((1 - FOR_THE_MEAN) * alpha)


def _evidence(pairs: Pairs, means: tuple[float, float], margin: float, *, falls: bool) -> float:
    """The logarithm of the least evidence in pairs over all earlier means between two.

    For a fixed stake it is concave in that mean, so it is least at one of the ends.
    """
    wealth = []
    for d in BETS:
        stake = -d if falls else d / (1 - margin)
        wealth.append(min(_log_wealth(pairs, stake, mean, margin) for mean in means))
    return log_mean_exp(wealth)


def _log_wealth(pairs: Pairs, stake: float, mean: float, margin: float) -> float:
    """What a stake on the rise of every item comes to: its score now over what is allowed, less its score then."""
    total = 0.0
    for (before, after), count in pairs.items():
        rise = (0.0 if after is None else after - mean + margin) - (0.0 if before is None else before - mean)
        total += count * math.log1p(stake * rise)
    return total
