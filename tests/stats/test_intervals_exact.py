"""Clopper and Pearson's interval, against scipy and against the chances it promises."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom, norm

from ragmon.stats.intervals import Z95, clopper_pearson

MILLION = 10**6


def from_scipy(successes, n, z=Z95):
    tail = norm.sf(z)
    lower = beta.ppf(tail, successes, n - successes + 1) if successes > 0 else 0.0
    upper = beta.isf(tail, successes + 1, n - successes) if successes < n else 1.0
    return lower, upper


def cases():
    """Every count up to 40 observations, then random ones up to a million, whole and graded, and the corners."""
    rng = random.Random(1934)
    sizes = [int(10 ** rng.uniform(1.6, 6)) for _ in range(500)]
    yield from ((k, n) for n in range(1, 41) for k in range(n + 1))
    yield from ((rng.randint(0, n), n) for n in sizes)
    yield from ((rng.uniform(0, n), n) for n in sizes)
    yield from ((rng.uniform(0, n), n) for n in range(1, 200))
    yield from ((k, MILLION) for k in (0, 1e-6, 0.3, 1, 2, MILLION / 2, MILLION - 1, MILLION - 0.5, MILLION))
    yield from [(1e-300, 5), (1e-9, 10), (1e-4, 3), (0.01, 1), (0.5, 1), (1 - 1e-9, 1), (10 - 1e-9, 10)]


@pytest.mark.slow
def test_it_is_scipys_for_whole_and_graded_sums_up_to_a_million_observations():
    for k, n in cases():
        assert clopper_pearson(k, n) == pytest.approx(from_scipy(k, n), abs=1e-9), (k, n)


@pytest.mark.parametrize("z", [0.5, 1.0, 1.6448536269514722, 2.5758293035489004, 3.29, 5.0])
def test_it_is_scipys_at_other_levels(z):
    for k, n in [(0, 7), (3, 7), (7, 7), (2.5, 30), (90, 100), (99_950, 100_000)]:
        assert clopper_pearson(k, n, z) == pytest.approx(from_scipy(k, n, z), abs=1e-9), (k, n)


@pytest.mark.parametrize("n", [1, 5, 10, 20, 73, 200])
def test_whatever_the_truth_it_covers_its_level(n):
    """Each bound misses in at most 2.5 % of all samples; summed exactly over them, not simulated."""
    counts = np.arange(n + 1)
    lower, upper = np.array([clopper_pearson(k, n) for k in range(n + 1)]).T
    for p in np.linspace(0.001, 0.999, 500):
        chances = binom.pmf(counts, n, p)
        assert chances[lower > p].sum() <= 0.025 + 1e-9
        assert chances[upper < p].sum() <= 0.025 + 1e-9


@given(n=st.integers(1, 5000), share=st.floats(0, 1))
def test_bounds_lie_in_the_unit_interval_around_the_value(n, share):
    lower, upper = clopper_pearson(share * n, n)
    assert 0.0 <= lower <= share + 1e-12
    assert share - 1e-12 <= upper <= 1.0


@given(n=st.integers(1, 2000), share=st.floats(0, 1))
def test_failures_have_the_mirrored_interval(n, share):
    lower, upper = clopper_pearson(share * n, n)
    assert clopper_pearson(n - share * n, n) == pytest.approx((1 - upper, 1 - lower), abs=1e-9)


@pytest.mark.parametrize("n", [1, 3, 59, MILLION])
def test_a_flawless_sample_reaches_the_end_exactly_and_has_a_closed_form(n):
    """Without a failure in n, the chance of that is the tail: p^n = 0.025."""
    assert clopper_pearson(n, n) == (pytest.approx(0.025 ** (1 / n), abs=1e-12), 1.0)
    assert clopper_pearson(0, n) == (0.0, pytest.approx(1 - 0.025 ** (1 / n), abs=1e-12))


def test_without_observations_anything_is_possible():
    assert clopper_pearson(0, 0) == (0.0, 1.0)
