"""Bounds on how far one mean lies below another: the tests of `ragmon.stats.paired`, turned round.

A drop lies below a value if it is proven that the mean fell by less; it lies above one if it is proven that it fell by
more. So a bound excludes what the test at the same error probability excludes, and holds however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ragmon.stats import paired
from ragmon.stats.betting import Scores
from ragmon.stats.paired import Pairs, Unpaired, log_worse, not_worse, worse

HALVINGS: Final = 12
"""Halvings of the range from -1 to 1: bounds are exact to 1/2048, on the safe side."""


def at_most(a: Scores, b: Scores, alpha: float) -> float:
    """An upper bound on the drop from one sample to another, independent one.

    Args:
        a: The observations of the first sample.
        b: The observations of the second one.
        alpha: Probability of a drop above the bound.

    >>> from ragmon.stats.betting import shares
    >>> round(at_most(shares(450, 500), shares(440, 500), 0.025), 2)
    0.1
    """
    return _least(lambda margin: log_worse(b, a, -margin) >= -math.log(alpha))


def pairs_at_most(pairs: Pairs, alone: Unpaired, alpha: float) -> float:
    """An upper bound on the drop between two runs over items.

    Args:
        pairs: Scores of the items that both runs were asked.
        alone: Scores of the items that only one run was asked.
        alpha: Probability of a drop above the bound.

    >>> round(pairs_at_most({(1.0, 0.0): 5, (1.0, 1.0): 495}, Unpaired({}, {}), 0.025), 2)
    0.03
    """
    reverse = paired.backwards(pairs), Unpaired(alone.now, alone.then)

    def proven(margin: float) -> bool:
        if margin <= 0:
            return worse(*reverse, alpha, by=-margin)
        return not_worse(pairs, margin, alone, alpha)

    return _least(proven)


def _least(proven: Callable[[float], bool]) -> float:
    """The least margin that a drop is proven to be below; 1 where none is."""
    low, high = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if proven(middle) else (middle, high)
    return high
