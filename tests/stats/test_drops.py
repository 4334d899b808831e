"""Bounds on a drop: they agree with the tests they are made of, and hold as often as they say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ragmon.stats.betting import (
    ALPHA,
    DROP_HALVINGS,
    Unpaired,
    at_most,
    backwards,
    log_not_worse,
    log_worse,
    not_worse,
    pairs_at_most,
    shares,
    worse,
)

LEVEL = ALPHA / 2
NONE = Unpaired({}, {})
EXACT = 2 / 2**DROP_HALVINGS
PAIRS = [
    {(1.0, 0.0): 5, (1.0, 1.0): 495},
    {(1.0, 0.0): 50, (0.0, 1.0): 2, (1.0, 1.0): 448},
    {(0.0, 1.0): 50, (1.0, 1.0): 450},
    {(1.0, None): 20, (1.0, 1.0): 400, (None, 0.0): 30},
    {(0.5, 0.25): 40, (1.0, 1.0): 60},
    {(1.0, 1.0): 3},
]


def bounds(pairs, alone=NONE):
    flipped = backwards(pairs), Unpaired(alone.now, alone.then)
    return -pairs_at_most(*flipped, LEVEL), pairs_at_most(pairs, alone, LEVEL)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("alone", [NONE, Unpaired(shares(40, 50), shares(20, 50))])
def test_a_drop_in_pairs_is_proven_just_where_its_lower_bound_is_above_0(pairs, alone):
    lower, upper = bounds(pairs, alone)
    assert (lower >= 0) == worse(pairs, alone, LEVEL)
    agree = not worse(backwards(pairs)) or not alone.then
    assert lower <= upper or not agree
    for margin in (0.01, 0.02, 0.05, 0.3):
        if abs(upper - margin) > EXACT:
            assert (upper < margin) == not_worse(pairs, margin, alone, LEVEL)


@pytest.mark.parametrize(("a", "b"), [(450, 440), (450, 380), (380, 450), (500, 500), (0, 500)])
def test_of_two_samples_as_well(a, b):
    first, second = shares(a, 500), shares(b, 500)
    lower, upper = -at_most(second, first, LEVEL), at_most(first, second, LEVEL)
    assert lower <= (a - b) / 500 <= upper
    assert (lower >= 0) == (log_worse(first, second) >= -math.log(LEVEL))
    for margin in (0.02, 0.05, 0.3):
        if abs(upper - margin) > EXACT:
            assert (upper < margin) == (log_not_worse(first, second, margin) >= -math.log(LEVEL))


def test_without_observations_nothing_is_excluded():
    assert at_most({}, {}, LEVEL) == 1
    assert bounds({}) == (-1, 1)


def test_more_observations_make_it_narrower():
    widths = [upper - lower for lower, upper in (bounds({(1.0, 0.0): n, (1.0, 1.0): 9 * n}) for n in (5, 50, 500))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("drop", [-0.1, 0.0, 0.15])
def test_a_bound_misses_the_drop_at_most_as_often_as_allowed(drop):
    rng, runs, n = np.random.default_rng(5), 60, 200
    missed = 0
    for _ in range(runs):
        a, b = rng.random(n) < 0.8, rng.random(n) < 0.8 - drop
        pairs = Counter(zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True))
        lower, upper = bounds(pairs)
        first, second = shares(int(a.sum()), n), shares(int(b.sum()), n)
        lower_two, upper_two = -at_most(second, first, LEVEL), at_most(first, second, LEVEL)
        missed += max(not lower <= drop <= upper, not lower_two <= drop <= upper_two)
    assert missed <= runs * 2 * LEVEL
