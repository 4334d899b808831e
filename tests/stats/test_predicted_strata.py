"""Labels and proxies of strata: weighed by what the strata hold of all calls, honest about those nobody labelled."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.stats.histograms import MICRO
from ragmon.stats.intervals import wilson
from ragmon.stats.prediction import FEWEST, StratumSample, Sums, predicted, stratified
from ragmon.stats.strata import Stratum, post_stratified


def counts(both, right, believed, neither, records, proxies):
    """Labels and proxies of 0 and 1: how many have both, the label alone, the proxy alone, neither."""
    n, y, f = both + right + believed + neither, both + right, both + believed
    square = MICRO**2
    return Sums(n, y * MICRO, y * square, f * MICRO, f * square, both * square, int(records), int(proxies) * MICRO)


@st.composite
def parts(draw, *, labelled=False):
    seen = [draw(st.integers(0, 60)) for _ in range(4)]
    if labelled and not sum(seen):
        seen[0] = 1
    records = sum(seen) + draw(st.integers(0, 1000))
    proxies = draw(st.integers(0, records))
    assessed = records + draw(st.integers(0, 500))
    name = draw(st.sampled_from("abcdef"))
    return StratumSample(name, draw(st.integers(0, 10**6)), assessed, counts(*seen, records, proxies))


SOME = st.lists(parts(), min_size=1, max_size=8)


@given(parts(labelled=True))
def test_one_stratum_has_the_estimate_of_its_labels_and_proxies(part):
    found, plain = stratified([part]), predicted(part.sums)
    assert (found.value, found.lower, found.upper) == pytest.approx((plain.value, plain.lower, plain.upper), abs=1e-9)
    assert (found.n, found.n_eff, found.gain) == (plain.n, pytest.approx(plain.n_eff), pytest.approx(plain.gain))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 99), st.floats(0, 1)), min_size=1, max_size=8))
def test_without_proxies_it_is_the_estimate_from_the_labels_to_the_last_bit(strata):
    seen = [(f"{i}", total, n, round(share * n)) for i, (total, n, share) in enumerate(strata)]
    found = stratified([StratumSample(name, total, n, counts(0, y, 0, n - y, 0, 0)) for name, total, n, y in seen])
    plain = post_stratified([Stratum(name, total, n, n, float(y), float(y)) for name, total, n, y in seen])
    assert (found.value, found.lower, found.upper, found.n) == (plain.value, plain.lower, plain.upper, plain.n)
    assert found.n_eff == plain.n_eff
    assert found.gain == (1.0 if found.n else None)


@given(SOME, st.randoms(use_true_random=False))
def test_the_order_of_the_strata_does_not_matter(some, chance):
    some = [StratumSample(str(i), part.total, part.assessed, part.sums) for i, part in enumerate(some)]
    assert stratified(random.Random(chance.random()).sample(some, len(some))) == stratified(some)


@given(SOME)
def test_the_value_lies_within_bounds_that_lie_within_the_unit_interval(some):
    found = stratified(some)
    assert 0.0 <= found.lower <= found.upper <= 1.0
    assert found.n == sum(part.sums.labels for part in some)
    assert (found.value is None) == (found.n == 0)
    if found.value is not None:
        assert found.lower - 1e-12 <= found.value <= found.upper + 1e-12


def test_a_stratum_weighs_its_calls_in_the_denominator_as_all_its_records_tell():
    """Of 1,000 calls half belong in it, of 3,000 all do; labels are few and their share does not matter."""
    hot = StratumSample("hot", 1000, 400, counts(20, 10, 0, 30, 200, 60))
    rest = StratumSample("rest", 3000, 300, counts(45, 0, 0, 5, 300, 270))
    found = stratified([hot, rest])
    one, other = predicted(hot.sums), predicted(rest.sums)
    assert found.value == pytest.approx((500 * one.value + 3000 * other.value) / 3500)
    assert found.n == 110
    assert found.gain > 1.2


def test_a_stratum_with_too_few_labels_lets_them_speak_alone():
    few = counts(10, 2, 1, FEWEST - 14, 1000, 300)
    enough = counts(60, 20, 5, 15, 5000, 3500)
    found = stratified([StratumSample("few", 1000, 1000, few), StratumSample("enough", 9000, 5000, enough)])
    assert found.value == pytest.approx(0.1 * 12 / 19 + 0.9 * predicted(enough).value)


def test_a_stratum_without_a_label_may_hold_anything_whatever_its_proxies_say():
    known = StratumSample("known", 9000, 5000, counts(60, 20, 5, 15, 5000, 3500))
    one = stratified([known])
    proxied = stratified([known, StratumSample("dark", 2000, 1000, Sums(records=500, proxies=400 * MICRO))])
    assert (proxied.value, proxied.n_eff) == (one.value, one.n_eff)
    assert proxied.lower == pytest.approx(0.9 * one.lower)
    assert proxied.upper == pytest.approx(0.9 * one.upper + 0.1)
    unseen = stratified([known, StratumSample("dark", 1000, 0, Sums())])
    assert (unseen.lower, unseen.upper) == pytest.approx((proxied.lower, proxied.upper))


def test_without_a_label_anywhere_there_is_no_value():
    found = stratified([StratumSample("rest", 100, 50, Sums(records=50, proxies=40 * MICRO))])
    assert (found.value, found.lower, found.upper, found.n, found.gain) == (None, 0.0, 1.0, 0, None)
    assert stratified([]).value is None


def test_a_stratum_knows_fewer_scores_than_records_in_its_denominator():
    """80 of 200 records are scored: their number makes the interval, all records make the weight."""
    scored = Stratum("rest", 1000, 400, 200, 60, 60, scores=80)
    found = post_stratified([scored])
    assert (found.value, found.n_eff, found.population) == (0.75, pytest.approx(80), 500)
    assert (found.lower, found.upper) == pytest.approx(wilson(60, 80))


DESIGNS = {
    "suspicious calls all scored": (10_000, (0.15, 0.85), (1, 0.05), (0.30, 0.96), 60),
    "a denominator of half the calls": (20_000, (0.3, 0.7), (1, 0.1), (0.40, 0.90), 80),
    "few labels": (5_000, (0.2, 0.8), (1, 0.1), (0.40, 0.90), 30),
}


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
def test_it_covers_with_shorter_intervals_where_strata_are_kept_at_different_rates(design):
    """`labels` of each stratum's records are labelled; a rule errs on one answer in twelve, to either side."""
    calls, mix, kept, good, labels = DESIGNS[design]
    domain = (0.5, 0.7) if "half" in design else (1.0, 1.0)
    rng = np.random.default_rng(1)
    truth = sum(m * d * g for m, d, g in zip(mix, domain, good, strict=True))
    truth /= sum(m * d for m, d in zip(mix, domain, strict=True))
    held, widths, plain, runs = 0, 0.0, 0.0, 1000
    for _ in range(runs):
        strata = []
        for name, total, rate, share, p in zip("ab", rng.multinomial(calls, mix), kept, domain, good, strict=True):
            assessed = rng.binomial(total, rate)
            records = rng.binomial(assessed, share)
            chances = np.outer([p, 1 - p], [11 / 12, 1 / 12]).ravel()
            both, right, neither, believed = (int(x) for x in rng.multinomial(labels, chances))
            rest = rng.multinomial(records - labels, chances)
            known = counts(both, right, believed, neither, records, both + believed + rest[0] + rest[3])
            strata.append(StratumSample(name, int(total), int(assessed), known))
        found = stratified(strata)
        alone = post_stratified(
            Stratum(part.name, part.total, part.assessed, known.records, right, right, known.labels)
            for part in strata
            for known, right in [(part.sums, part.sums.y / MICRO)]
        )
        held += found.lower <= truth <= found.upper
        widths, plain = widths + found.upper - found.lower, plain + alone.upper - alone.lower
    assert held / runs >= 0.93
    assert widths / plain < 0.95


def test_a_stratum_weighs_by_its_answers_not_by_those_that_have_a_proxy():
    """A judge that read a tenth of one stratum and all of the other does not move the weights."""
    few = StratumSample("few", 1000, 1000, counts(30, 0, 0, 0, 100, 100), domain=1000)
    all_read = StratumSample("all", 1000, 1000, counts(0, 0, 0, 30, 1000, 0), domain=1000)
    assert stratified([few, all_read]).value == pytest.approx(0.5)
