"""Tests of whether one mean is below another: for two independent samples, and for the same items answered twice.

Independent samples: evidence that one mean lies below the other, and that it does not by more than a margin. At the
true mean of the first sample, evidence about it and evidence about the second are e-values, and so is their product,
because the samples are independent. That mean is unknown: the least product over all possible means counts. It is a
function of counts alone and holds however often one looks (`ragmon.stats.betting`). Samples that rise and fall
together, such as two runs over the same questions, only make it more cautious.

Pairs: evidence that the mean over items fell between two runs, and that it did not. A metric has its own denominator:
an item may be in it in the first run, in the second, in both or in neither (a precision counts only what was answered).
The means compared are those over the items each run happened to answer, so an item that was answered in only one run
counts too, by its distance from the earlier mean. That mean is known up to a confidence sequence, and the least
evidence over it counts. Where both runs answered, only the difference of the two scores matters: of scores of 0 and 1
the flips; equal scores have no effect.

Items that only one of the runs was asked are two independent samples; their evidence and that of the pairs are
averaged, which gives evidence again. Two runs over the same items are no independent samples, because the item
influences both scores.

The tests stay valid however often one looks while items are added, or while the same items are asked again in rounds.

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


def log_worse(a: Scores, b: Scores, by: float = 0.0) -> float:
    """Evidence that the mean of b lies below that of a: the logarithm of an e-value against "at least as high".

    Args:
        a: The observations of one sample.
        b: The observations of another, independent one.
        by: How far below it lies at least, in (-1, 1).

    Raises:
        RagmonError: A score lies outside [0, 1], or a count is negative.

    >>> from ragmon.stats.betting import shares
    >>> round(log_worse(shares(450, 500), shares(380, 500)), 2)
    13.38
    """
    return _least_evidence(checked(a), mirrored(checked(b)), 1.0 + by)


def log_not_worse(a: Scores, b: Scores, margin: float) -> float:
    """Evidence that the mean of b lies above that of a minus a margin: against "lower by the margin or more".

    Args:
        a: The observations of one sample.
        b: The observations of another, independent one.
        margin: In [0, 1); with 0 it is evidence that b is better.

    Raises:
        RagmonError: The margin or a score is out of range, or a count is negative.

    >>> from ragmon.stats.betting import shares
    >>> round(log_not_worse(shares(450, 500), shares(455, 500), 0.05), 2)
    1.96
    """
    return _least_evidence(checked(b), mirrored(checked(a)), 1 - checked_margin(margin))


def checked_margin(margin: float) -> float:
    """Return a margin if it is in [0, 1).

    Raises:
        RagmonError: It is not.
    """
    if not 0 <= margin < 1:
        raise RagmonError(f"margin {margin!r} is no difference of shares", hint="from 0 to below 1: 0.02 is 2 points")
    return margin


def _least_evidence(first: Seen, second: Seen, width: float) -> float:
    """The least evidence, over all q, that one mean lies above q and another above `width - q`; both are in [0, 1].

    The logarithm of `1 - d + d x / q` is `log((1 - d) q + d x) - log(q)`, whose second derivative in q is never
    negative; mixtures and sums of such functions are convex as well. So the slope finds the only minimum, and a
    tangent bounds the rounding error.
    """
    low, high = max(0.0, width - 1), min(1.0, width)
    bound = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        (log_first, slope_first), (log_second, slope_second) = wealth(first, middle), wealth(second, width - middle)
        slope = slope_first - slope_second
        bound = log_first + log_second - abs(slope) * (high - low)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return bound


Pairs = Mapping[tuple[float | None, float | None], float]
"""Number of items by their scores in [0, 1] in the first and second run; None: the item was not in the denominator."""
MEAN_ALPHA_SHARE: Final = 0.1
"""Part of the error probability that is spent on the confidence sequence of the earlier mean."""
PAIR_WEIGHT: Final = 0.75
"""Weight of the evidence in pairs; the rest is the weight of items that only one run was asked."""


class Unpaired(NamedTuple):
    """Scores of the items that only one of the runs was asked: the first run (`then`) or the second (`now`)."""

    then: Scores
    now: Scores


_NONE: Final = Unpaired({}, {})


def backwards(pairs: Pairs) -> Pairs:
    """The pairs with the second run as the first."""
    return {(after, before): count for (before, after), count in pairs.items()}


def worse(pairs: Pairs, alone: Unpaired = _NONE, alpha: float = ALPHA / 2, *, by: float = 0.0) -> bool:
    """Whether it is proven that the mean fell.

    Args:
        pairs: Scores of the items that both runs were asked.
        alone: Scores of the items that only one run was asked.
        alpha: Probability of ever returning True where the mean did not fall.
        by: How far it fell at least, in [0, 1).

    >>> worse({(1.0, 0.0): 13, (0.0, 1.0): 1, (1.0, 1.0): 500})
    True
    """
    in_pairs = _evidence(pairs, _earlier_mean(pairs, alone, alpha), by, falls=True)
    return _is_proven(in_pairs, log_worse(*alone, by), alpha)


def not_worse(pairs: Pairs, margin: float, alone: Unpaired = _NONE, alpha: float = ALPHA / 2) -> bool:
    """Whether it is proven that the mean fell by less than a margin.

    Args:
        pairs: Scores of the items that both runs were asked.
        margin: In [0, 1).
        alone: Scores of the items that only one run was asked.
        alpha: Probability of ever returning True where the mean fell by the margin or more.

    Raises:
        RagmonError: The margin is out of range.

    >>> not_worse({(1.0, 0.0): 1, (1.0, 1.0): 500}, 0.02), not_worse({(1.0, 0.0): 1, (1.0, 1.0): 50}, 0.02)
    (True, False)
    """
    lower, upper = _earlier_mean(pairs, alone, alpha)
    # A mean below the margin cannot fall by the margin.
    means = max(lower, checked_margin(margin)), max(upper, margin)
    return _is_proven(_evidence(pairs, means, margin, falls=False), log_not_worse(*alone, margin), alpha)


def _earlier_mean(pairs: Pairs, alone: Unpaired, alpha: float) -> tuple[float, float]:
    """Bounds on the mean of the first run."""
    earlier = dict(alone.then)
    for (before, _), count in pairs.items():
        if before is not None:
            earlier[before] = earlier.get(before, 0) + count
    return confidence_sequence(earlier, MEAN_ALPHA_SHARE * alpha)


def _is_proven(in_pairs: float, in_others: float, alpha: float) -> bool:
    """Whether the averaged evidence of pairs and of unpaired items is enough."""
    weighted = math.log(2 * PAIR_WEIGHT) + in_pairs, math.log(2 - 2 * PAIR_WEIGHT) + in_others
    return log_mean_exp(weighted) >= -math.log((1 - MEAN_ALPHA_SHARE) * alpha)


def _evidence(pairs: Pairs, means: tuple[float, float], margin: float, *, falls: bool) -> float:
    """The logarithm of the least evidence in pairs over all earlier means between two bounds.

    For a fixed stake it is concave in that mean, so it is least at one of the bounds.
    """
    wealth = []
    for d in BETS:
        stake = -d / (1 + margin) if falls else d / (1 - margin)
        wealth.append(min(_log_wealth(pairs, stake, mean, margin) for mean in means))
    return log_mean_exp(wealth)


def _log_wealth(pairs: Pairs, stake: float, mean: float, margin: float) -> float:
    """The logarithm of the wealth from a stake on the rise of every item.

    A rise is the second score minus the mean that is allowed, minus the first score's distance from the earlier mean.
    """
    total = 0.0
    for (before, after), count in pairs.items():
        rise = (0.0 if after is None else after - mean + margin) - (0.0 if before is None else before - mean)
        total += count * math.log1p(stake * rise)
    return total
