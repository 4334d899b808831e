"""Two independent samples: evidence that one mean lies below the other, and that it does not by more than a margin.

At the true mean of the first sample, evidence about it and evidence about the second are e-values, and so is their
product, because the samples are independent. That mean is unknown: the least product over all means it may be counts.
It is a function of counts alone and holds however often one looks (`ragmon.stats.betting`).

Samples that rise and fall together, such as two runs over the same questions, only make it more cautious.
"""

from __future__ import annotations

from ragmon.core.errors import RagmonError
from ragmon.stats.betting import HALVINGS, Scores, Seen, checked, mirrored, wealth


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
