"""Drift without labels: the stability index against numpy, how often it is wrong, and the alarms that rest on it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from ragmon.alarms import drift
from ragmon.alarms.drift import (
    BLOCK,
    INDEX_WINDOW,
    PERIOD,
    REFERENCE,
    DistributionMonitor,
    IndexMonitor,
    has_drifted,
    psi,
)
from ragmon.stats.histograms import bucket, buckets, decile_edges
from tests.support.examples import cases
from tests.support.saved import saved


@st.composite
def histograms(draw):
    """Two histograms of the same bins, with something in each; large and small ones."""
    bins, most = draw(st.integers(2, 10)), draw(st.sampled_from([12, 500]))
    counts = st.lists(st.integers(0, most), min_size=bins, max_size=bins).filter(any)
    return draw(counts), draw(counts)


# --- the index --------------------------------------------------------------------------------------------------------


def from_numpy(reference, block):
    """Both directions of the Kullback-Leibler divergence; half an observation stands for none."""
    p, q = (np.maximum(counts, 0.5) / np.sum(counts) for counts in (reference, block))
    return float(np.sum(p * np.log(p / q)) + np.sum(q * np.log(q / p)))


@given(histograms())
def test_psi_is_the_sum_of_both_divergences(pair):
    reference, block = pair
    assert psi(reference, block) == pytest.approx(from_numpy(np.array(reference), np.array(block)), rel=1e-9, abs=1e-12)


@given(histograms())
def test_psi_is_the_same_both_ways_and_nothing_between_equals(pair):
    reference, block = pair
    assert psi(reference, block) == pytest.approx(psi(block, reference), rel=1e-9, abs=1e-12)
    assert psi(reference, reference) == 0.0
    filled = [n + 1 for n in reference]
    assert psi(filled, [7 * n for n in filled]) == pytest.approx(0.0, abs=1e-12)


def test_critical_values_are_those_of_chi_squared():
    assert pytest.approx(chi2.ppf(0.999, range(1, 10)), abs=5e-4) == drift._CRITICAL


@pytest.mark.slow
@given(histograms())
@settings(max_examples=cases(1_000))
def test_drift_is_what_chance_brings_once_in_a_thousand_blocks_and_at_least_a_tenth(pair):
    reference, block = pair
    index, m, n = psi(reference, block), sum(reference), sum(block)
    certain = index * n * m / (n + m) > chi2.ppf(0.999, len(reference) - 1)
    assert has_drifted(reference, block) == (certain and index >= 0.1)


def test_a_shift_has_to_be_certain_and_large_enough():
    even = [1_000] * 10
    slight = [1_100, 900] * 5
    assert psi(even, slight) < drift.MIN_PSI
    assert not has_drifted([100 * n for n in even], [100 * n for n in slight])  # certain, and nobody's business
    large = [15, 5] * 5
    assert psi(even, large) > drift.MIN_PSI
    assert not has_drifted(even, large)  # large, and may be chance
    assert has_drifted(even, [10 * n for n in large])


def test_a_property_that_is_always_the_same_does_not_drift():
    assert not has_drifted([3_000], [300])


# --- how often it is wrong --------------------------------------------------------------------------------------------

LOOKS = 12_000
SEED = 17


class Traffic:
    """Lognormal values in log buckets, as they are collected; samples are drawn from a million of them."""

    def __init__(self, seed, shift=0.0):
        self.rng = np.random.default_rng(seed)
        found = buckets(self.rng.lognormal(6.6 + 0.45 * shift, 0.45, 1_000_000).tolist())
        self.places = np.array(sorted(found))
        self.chances = np.array([found[place] for place in self.places]) / 1_000_000

    def sample(self, n):
        counts = self.rng.multinomial(n, self.chances)
        return {int(self.places[i]): int(counts[i]) for i in np.flatnonzero(counts)}

    def blocks(self, n, edges, looks):
        """Samples of n binned by edges; a bin ends with its edge."""
        bins = np.searchsorted(edges, self.places)
        return self.rng.multinomial(n, np.bincount(bins, self.chances), looks).tolist()


def looks(n, rule, shift=0.0, references=600):
    """The share of blocks of n that a rule calls drifted, over many references of 3,000."""
    usual, now = Traffic(SEED), Traffic(SEED + 1, shift)
    found = 0
    for _ in range(references):
        first = usual.sample(REFERENCE)
        edges = decile_edges(first)
        reference = [0] * (len(edges) + 1)
        for place, count in first.items():
            reference[bisect_left(edges, place)] += count
        found += sum(rule(reference, block) for block in now.blocks(n, edges, LOOKS // references))
    return found / LOOKS


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 100, 300, 1_000])
def test_traffic_that_stays_the_same_is_left_alone(n):
    assert looks(n, has_drifted) <= 0.005 + 3 * math.sqrt(0.005 * 0.995 / LOOKS)


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 1_000])
def test_half_a_standard_deviation_is_found_in_one_block(n):
    assert looks(n, has_drifted, shift=0.5) >= 0.99


@pytest.mark.slow
def test_the_usual_rule_of_thumb_takes_chance_for_drift():
    """`psi > 0.2` knows no sample size: at 30 observations more than half of all looks are false alarms."""
    assert looks(30, lambda reference, block: psi(reference, block) > 0.2) > 0.5


def test_ten_bins_of_equal_counts_part_the_reference():
    first = Traffic(SEED).sample(REFERENCE)
    edges = decile_edges(first)
    cuts = [sum(n for place, n in first.items() if place <= edge) / REFERENCE for edge in edges]
    assert cuts == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], abs=0.02)


# --- a shape ----------------------------------------------------------------------------------------------------------


def minute(value=1.0, n=50, seed=0):
    """The log buckets of one minute's values, around a value."""
    return buckets((value * np.random.default_rng(seed).lognormal(6.6, 0.45, n)).tolist())


def feed(shape, minutes, value=1.0, n=50, begin=0):
    """The minutes in which the alarm changed."""
    return [at for at in range(begin, begin + minutes) if shape.step(at, minute(value, n, at))]


def test_it_fires_when_a_block_drifted_and_resolves_when_one_has_not():
    shape = DistributionMonitor()
    assert feed(shape, 120) == []
    fired = feed(shape, 120, value=1.5, begin=120)
    assert len(fired) == 1
    assert shape.firing
    # The block that was open when the shift came holds some of both; the one after it is all of the new kind.
    assert 120 < fired[0] <= 120 + 2 * PERIOD
    resolved = feed(shape, 180, begin=240)
    assert len(resolved) == 1
    assert not shape.firing
    assert feed(shape, 600, begin=420) == []


def test_a_reference_takes_three_thousand_observations_and_an_hour():
    for n, minutes in ((50, 60), (10, 300), (600, 60), (7, 429)):
        shape = DistributionMonitor()
        feed(shape, minutes, n=n)
        assert shape.edges is None, n
        feed(shape, 1, n=n, begin=minutes)
        assert len(shape.edges) == 9, n
        assert sum(shape.reference) == n * minutes >= REFERENCE
        assert shape.block == minute(1.0, n, minutes)


@pytest.mark.parametrize(("n", "minutes"), [(50, PERIOD), (5, PERIOD), (4, 75), (1, BLOCK)])
def test_a_block_takes_three_hundred_observations_and_an_hour(n, minutes):
    """Every value is ten times the usual one, so the first block that ends is the one that fires."""
    shape = DistributionMonitor()
    feed(shape, PERIOD)
    assert feed(shape, 2 * minutes, value=10.0, n=n, begin=PERIOD) == [PERIOD + minutes]


def test_values_on_an_edge_count_below_it():
    """In the reference and in every block alike."""
    shape, counts = DistributionMonitor(), {place: 10 * place for place in range(1, 13)}
    for at in range(PERIOD + 1):
        shape.step(at, counts)
    up_to = [PERIOD * sum(n for place, n in counts.items() if place <= edge) for edge in shape.edges]
    assert list(accumulate(shape.reference)) == [*up_to, PERIOD * sum(counts.values())]


def test_minutes_without_traffic_pass_like_others():
    """A property is stepped only when it was seen; an hour is an hour of the clock."""
    shape = DistributionMonitor()
    feed(shape, PERIOD)
    assert feed(shape, 1, value=10.0, n=BLOCK, begin=PERIOD) == []
    assert not shape.step(PERIOD + 59, minute(10.0))
    assert shape.step(PERIOD + 60, minute(10.0))


def test_a_property_with_one_value_never_fires():
    shape = DistributionMonitor()
    same = {bucket(250.0): 50}
    assert not any(shape.step(at, same) for at in range(600))
    assert len(shape.reference) == 1


def test_acknowledged_what_it_is_now_becomes_the_reference():
    shape = DistributionMonitor()
    feed(shape, PERIOD)
    assert feed(shape, 2 * PERIOD, value=10.0, begin=PERIOD) == [2 * PERIOD]
    shape.clear()
    assert not shape.firing
    assert feed(shape, 6 * PERIOD, value=10.0, begin=3 * PERIOD) == []
    assert len(feed(shape, 3 * PERIOD, begin=9 * PERIOD)) == 1


@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0]), st.integers(200, 800)), min_size=1, max_size=30), st.integers(0, 30)
)
def test_a_shape_goes_on_from_a_checkpoint(steps, cut):
    whole = DistributionMonitor()
    before, after = steps[:cut], steps[cut:]
    for at, (value, n) in enumerate(before):
        whole.step(20 * at, minute(value, n, at))
    restored = saved(whole)
    for at, (value, n) in enumerate(after, start=cut):
        assert restored.step(20 * at, minute(value, n, at)) == whole.step(20 * at, minute(value, n, at))
        assert restored.firing == whole.firing
    assert restored == whole


# --- indexes ----------------------------------------------------------------------------------------------------------


def changed(indexes, steps, limit=1):
    """The minutes in which the alarm changed."""
    return [at for at, seen in steps if indexes.step(at, seen, limit)]


def test_two_indexes_under_one_build_within_an_hour_fire():
    indexes = IndexMonitor()
    assert changed(indexes, [(0, {("1.4", "a")}), (59, {("1.4", "b")})]) == [59]
    assert indexes.firing
    both = {("1.4", "a"), ("1.4", "b")}
    assert changed(IndexMonitor(), [(0, both)]) == [0]


def test_an_index_that_has_not_answered_for_an_hour_is_gone():
    assert changed(IndexMonitor(), [(0, {("1.4", "a")}), (INDEX_WINDOW, {("1.4", "b")})]) == []
    steps = [(0, {("1.4", "a"), ("1.4", "b")}), *((at, {("1.4", "b")}) for at in range(1, 200))]
    assert changed(IndexMonitor(), steps) == [0, INDEX_WINDOW]


def test_another_build_may_have_another_index():
    """A release that brings its index along is no drift, nor are builds side by side while it rolls out."""
    assert changed(IndexMonitor(), [(at, {("1.4", "a"), ("1.5", "b")}) for at in range(100)]) == []
    assert changed(IndexMonitor(), [(0, {("1.4", "a"), ("1.5", "b")}), (1, {("1.5", "a")})]) == [1]


def test_as_many_as_are_allowed_are_right():
    """Two replicas of an index that is being rebuilt."""
    two, three = {("1.4", "a"), ("1.4", "b")}, {("1.4", "c")}
    assert changed(IndexMonitor(), [(0, two), (1, two), (2, three), (3, two)], limit=2) == [2]


def test_acknowledged_it_forgets_what_answered():
    indexes = IndexMonitor()
    changed(indexes, [(0, {("1.4", "a"), ("1.4", "b")})])
    indexes.clear()
    assert not indexes.firing
    assert changed(indexes, [(1, {("1.4", "b")}), (2, {("1.4", "b")})]) == []
    assert changed(indexes, [(3, {("1.4", "a")})]) == [3]


PAIRS = st.sets(st.tuples(st.sampled_from(["1.4", "1.5"]), st.sampled_from("abc")), max_size=3)


def counted(steps, limit):
    """Whether it fires after each step, from the definition: who answered within the hour, by build."""
    found = []
    for place, (now, _) in enumerate(steps):
        recent = {pair for at, seen in steps[: place + 1] if now - at < INDEX_WINDOW for pair in seen}
        found.append(max(Counter(build for build, _ in recent).values(), default=0) > limit)
    return found


@given(st.lists(st.tuples(st.integers(1, 45), PAIRS), max_size=15), st.integers(1, 2), st.integers(0, 15))
def test_it_fires_while_more_than_so_many_answered_within_the_hour(gaps, limit, cut):
    """Also across a checkpoint."""
    steps, at = [], 0
    for gap, seen in gaps:
        at += gap
        steps.append((at, seen))
    indexes, found, before = IndexMonitor(), [], False
    for place, (now, seen) in enumerate(steps):
        if place == cut:
            indexes = saved(indexes)
        assert indexes.step(now, seen, limit) == ((indexes.firing is not None) != before)
        before = indexes.firing is not None
        found.append(before)
    assert found == counted(steps, limit)
