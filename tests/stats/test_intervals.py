"""Intervals, the n a verdict needs, micro-units and log-bucket histograms, against scipy and brute force."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ragmon.stats import histograms
from ragmon.stats.histograms import NOT_POSITIVE, bucket, bucket_value, buckets, quantile
from ragmon.stats.intervals import clustered, needed_for_pass, needed_to_decide, wilson

SHARES = st.floats(0, 1)

# --- Wilson's interval ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wilson_is_scipys_for_thousands_of_counts():
    rng = random.Random(1927)
    every = [(k, n) for n in range(1, 61) for k in range(n + 1)]
    larger = [(rng.randint(0, n), n) for n in (rng.randint(61, 100_000) for _ in range(1200))]
    for k, n in every + larger:
        expected = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k, n) == pytest.approx((expected.low, expected.high), abs=1e-9), (k, n)


def test_without_observations_anything_is_possible():
    assert wilson(0, 0) == (0.0, 1.0)


@given(n=st.floats(0.01, 1e9), share=SHARES)
def test_bounds_lie_in_the_unit_interval_around_the_value(n, share):
    """Also for graded scores and an effective n that is no integer."""
    lower, upper = wilson(share * n, n)
    assert 0.0 <= lower <= share + 1e-9
    assert share - 1e-9 <= upper <= 1.0


@given(n=st.integers(1, 10**9))
def test_a_flawless_sample_reaches_the_end_exactly(n):
    """Without rounding noise: a gate of at most 0 or at least 1 is never missed by 1e-17."""
    assert wilson(n, n)[1] == 1.0
    assert wilson(0, n)[0] == 0.0


# --- how many it takes ------------------------------------------------------------------------------------------------


def smallest_n(proves):
    return next(n for n in range(1, 20_000) if proves(n))


@pytest.mark.parametrize(
    ("threshold", "at_least", "needed"),
    [
        (0.75, True, 12),
        (0.80, True, 16),
        (0.90, True, 35),
        (0.95, True, 73),
        (0.99, True, 381),
        (0.05, False, 73),
        (0.10, False, 35),
    ],
)
def test_the_n_below_which_no_sample_can_pass(threshold, at_least, needed):
    assert needed_for_pass(threshold, at_least=at_least) == needed


@given(threshold=st.integers(1, 199).map(lambda i: i / 200), at_least=st.booleans())
def test_needed_for_pass_is_what_trying_every_n_finds(threshold, at_least):
    def proves(n):
        lower, upper = wilson(n if at_least else 0, n)
        return lower >= threshold if at_least else upper <= threshold

    found = needed_for_pass(threshold, at_least=at_least)
    assert found == smallest_n(proves)


def test_some_gates_anything_passes_and_some_nothing_can_prove():
    assert needed_for_pass(0.0, at_least=True) == 1
    assert needed_for_pass(1.0, at_least=False) == 1
    assert needed_for_pass(1.0, at_least=True) is None
    assert needed_for_pass(0.0, at_least=False) is None


@given(p=st.integers(0, 100).map(lambda i: i / 100), threshold=st.integers(1, 99).map(lambda i: i / 100))
def test_needed_to_decide_is_where_the_gate_leaves_the_interval(p, threshold):
    """With one observation fewer the gate lies inside Wilson's interval, with so many it does not."""
    needed = needed_to_decide(p, threshold)
    if p == threshold:
        assert needed is None
        return

    def straddles(n):
        lower, upper = wilson(p * n, n)
        return lower < threshold < upper

    assert not straddles(needed + 1e-6)
    assert needed == 1 or straddles(needed - 1)


# --- clusters ---------------------------------------------------------------------------------------------------------

ITEMS, PROBES, RUNS = 50, 100, 600


def simulate(alpha, beta, seed):
    """Coverage and largest effective n of the clustered interval, and coverage of plain Wilson over all draws."""
    rng = np.random.default_rng(seed)
    truth = alpha / (alpha + beta)
    covered = naive = 0
    most = 0.0
    for _ in range(RUNS):
        right = rng.binomial(PROBES, rng.beta(alpha, beta, ITEMS))
        lower, upper, n_eff = clustered(Counter((PROBES, float(y)) for y in right))
        covered += lower <= truth <= upper
        most = max(most, n_eff)
        low, high = wilson(float(right.sum()), ITEMS * PROBES)
        naive += low <= truth <= high
    return covered / RUNS, most, naive / RUNS


@pytest.mark.parametrize(("alpha", "beta"), [(4, 1), (0.58, 0.15), (0.95, 0.05), (1, 1)])
def test_asking_fifty_items_a_hundred_times_covers_what_it_promises(alpha, beta):
    """The interval for questions like these holds its 95 % where items differ; counting draws does not."""
    coverage, most, naive = simulate(alpha, beta, seed=20260821)
    assert coverage >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / RUNS)
    assert most <= ITEMS
    assert naive < 0.7


@given(st.lists(st.booleans(), min_size=30, max_size=300))
def test_with_one_draw_an_item_it_is_nearly_plain_wilson(draws):
    """Estimating the variance costs one observation."""
    n, right = len(draws), sum(draws)
    lower, upper, n_eff = clustered(Counter((1, float(draw)) for draw in draws))
    assert n - 1 - 1e-6 <= n_eff <= n
    assert (lower, upper) == pytest.approx(wilson(right, n), abs=0.01)


def test_clusters_of_equal_items_count_once_each():
    """Forty items that always answer alike are forty observations, however often they were asked."""
    clusters = {(500, 500.0): 30, (500, 0.0): 10}
    lower, upper, n_eff = clustered(clusters)
    assert n_eff == pytest.approx(39)
    assert (lower, upper) == pytest.approx(wilson(0.75 * n_eff, n_eff))


def test_empty_clusters_do_not_count():
    assert clustered({(0, 0.0): 2, (3, 2.0): 1, (3, 1.0): 1}) == clustered({(3, 2.0): 1, (3, 1.0): 1})
    assert clustered({}) == clustered({(0, 0.0): 1}) == (0.0, 1.0, 0.0)


def test_a_single_cluster_is_a_single_observation():
    assert clustered({(100, 90.0): 1})[2] == 1.0


# --- micro-units ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "micro"), [(0.0, 0), (1.0, 1_000_000), (0.5e-6, 0), (1.5e-6, 2), (2.5e-6, 2), (1 / 3, 333_333)]
)
def test_scores_are_rounded_half_to_even(score, micro):
    assert histograms.micro(score) == micro


@given(SHARES)
def test_a_score_moves_by_at_most_half_a_micro_unit(score):
    assert abs(Fraction(histograms.micro(score)) - Fraction(score) * 1_000_000) <= Fraction(1, 2) + Fraction(1, 10**9)


# --- log buckets ------------------------------------------------------------------------------------------------------

QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
DISTRIBUTIONS = {
    "uniform": lambda rng: rng.uniform(1, 5000),
    "lognormal": lambda rng: rng.lognormvariate(6, 1.2),
    "pareto": lambda rng: 20 * rng.paretovariate(1.1),
    "exponential": lambda rng: rng.expovariate(1 / 300),
    "bimodal": lambda rng: rng.gauss(40, 3) if rng.random() < 0.8 else rng.gauss(9000, 400),
    "constant": lambda _: 250.0,
    "microseconds": lambda rng: rng.uniform(0.001, 0.01),
}


def histogram(values):
    return Counter(map(bucket, values))


def test_quantiles_are_within_one_percent_of_the_exact_ones():
    for name, draw in DISTRIBUTIONS.items():
        for size in [1, 7, 100, 5000]:
            rng = random.Random(size)
            values = sorted(abs(draw(rng)) for _ in range(size))
            counts = histogram(values)
            for q in QUANTILES:
                exact = values[max(1, math.ceil(Fraction(str(q)) * size)) - 1]
                assert quantile(counts, q) == pytest.approx(exact, rel=0.01), (name, size, q)


@given(st.lists(st.floats(1e-3, 1e7)), st.lists(st.floats(1e-3, 1e7)))
def test_histograms_of_parts_add_up_to_that_of_the_whole(mine, yours):
    assert histogram(mine) + histogram(yours) == histogram(mine + yours)


@given(st.floats(1e-300, 1e300))
def test_no_value_worth_the_name_falls_into_the_bucket_of_zero(value):
    assert bucket(value) != NOT_POSITIVE


@given(st.floats(1e-300, 1e300))
def test_the_middle_of_a_bucket_is_within_one_percent_of_its_values(value):
    assert bucket_value(bucket(value)) == pytest.approx(value, rel=0.01)


def test_zero_and_negative_values_share_a_bucket_worth_zero():
    counts = histogram([0.0, -3.0, -0.0, 80.0])
    assert counts[NOT_POSITIVE] == 3
    assert quantile(counts, 0.75) == 0.0
    assert quantile(counts, 0.76) == pytest.approx(80, rel=0.01)


def test_an_empty_histogram_has_no_quantile():
    assert quantile({}, 0.5) is None


def test_a_rank_that_is_a_whole_number_is_not_pushed_up_by_floating_point():
    """0.07 x 100 is 7.000000000000001 in binary: the 7th value is meant, not the 8th."""
    counts = histogram([1.0] * 7 + [1000.0] * 93)
    assert quantile(counts, 0.07) == pytest.approx(1.0, rel=0.01)


@pytest.mark.slow
@given(st.lists(st.one_of(st.floats(-1, 1e7), st.just(0.0)), max_size=30))
def test_rows_sort_whole_batches_into_the_same_buckets(values):
    """A batch counts every value once, where one alone would fall, subnormal numbers and zero included."""
    assert buckets(values) == histogram(values)
