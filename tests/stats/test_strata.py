"""What an estimate from strata promises, whatever the numbers; how often it holds is in test_strata_coverage."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.stats.intervals import graded, wilson
from ragmon.stats.strata import Stratum, post_stratified


def stratum(calls, assessed, good, *, domain=None, name="rest"):
    """Scores of 0 and 1; every assessed record is in the denominator unless `domain` says how many are."""
    return Stratum(name, calls, assessed, assessed if domain is None else domain, good, good)


def bounds(found):
    return found.lower, found.upper


@st.composite
def strata(draw, *, observed=False):
    """Consistent numbers of one stratum, graded scores included."""
    assessed = draw(st.integers(1 if observed else 0, 500))
    domain = draw(st.integers(1 if observed else 0, assessed)) if assessed else 0
    total = draw(st.floats(0, 1)) * domain
    # Between those of scores that are all alike and those of scores that are 0 or 1.
    squares = total if not domain else total**2 / domain + draw(st.floats(0, 1)) * (total - total**2 / domain)
    return Stratum(
        draw(st.sampled_from("abcdef")), draw(st.integers(0, 100_000)), assessed, domain, total, min(squares, total)
    )


SOME = st.lists(strata(), min_size=1, max_size=10)

# --- graded scores ----------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 10_000), share=st.floats(0, 1))
def test_scores_of_nought_and_one_have_wilsons_interval_exactly(n, share):
    good = round(share * n)
    assert graded(n, good, good) == wilson(good, n)


@given(stratum=strata(observed=True))
def test_graded_scores_are_never_less_certain_than_wilson_takes_them_for(stratum):
    n, total = stratum.domain, stratum.sum
    lower, upper = graded(n, total, stratum.squares)
    low, high = wilson(total, n)
    assert low - 1e-12 <= lower <= total / n + 1e-12
    assert total / n - 1e-12 <= upper <= high + 1e-12


@given(stratum=strata(observed=True))
def test_turning_scores_around_turns_the_interval_around(stratum):
    n, total, squares = stratum.domain, stratum.sum, stratum.squares
    lower, upper = graded(n, total, squares)
    assert graded(n, n - total, max(0.0, n - 2 * total + squares)) == pytest.approx((1 - upper, 1 - lower), abs=1e-6)


def test_scores_that_are_all_alike_leave_room_for_rare_ones_that_are_not():
    """Thirty scores of 0.9 do not exclude that one in thirty is 0."""
    lower, upper = graded(30, 27, 24.3)
    assert lower < 0.9 * (1 - 1 / 30)
    assert upper > 0.9


def test_a_single_graded_score_says_as_little_as_one_of_nought_and_one():
    assert graded(1, 0.5, 0.25) == wilson(0.5, 1)
    assert graded(0, 0, 0) == (0.0, 1.0)


# --- one stratum ------------------------------------------------------------------------------------------------------


@given(calls=st.integers(0, 10**6), outside=st.integers(0, 50), n=st.integers(1, 1000), share=st.floats(0, 1))
def test_one_stratum_gives_wilsons_interval_whatever_its_total_and_its_domain(calls, outside, n, share):
    good = round(share * n)
    found = post_stratified([stratum(calls, n + outside, good, domain=n)])
    assert found.value == pytest.approx(good / n)
    assert bounds(found) == pytest.approx(wilson(good, n), abs=1e-12)
    assert (found.n, found.n_eff, found.unobserved) == (n, pytest.approx(n), 0.0)


@given(stratum=strata(observed=True))
def test_one_stratum_of_graded_scores_has_their_interval(stratum):
    found = post_stratified([stratum])
    assert bounds(found) == pytest.approx(graded(stratum.domain, stratum.sum, stratum.squares), abs=1e-12)
    assert found.n_eff == pytest.approx(stratum.domain)


# --- weights ----------------------------------------------------------------------------------------------------------


def test_a_stratum_weighs_its_calls_in_the_denominator():
    """900 of 1,000 calls at 0.5 and 2,400 of 8,000 at 0.9: what the rates of sampling were does not matter."""
    found = post_stratified([stratum(1000, 1000, 450, domain=900), stratum(8000, 80, 21.6, domain=24)])
    assert found.value == pytest.approx(float((900 * Fraction(1, 2) + 2400 * Fraction(9, 10)) / 3300))
    assert found.population == pytest.approx(3300)


def test_where_every_call_is_scored_it_is_a_plain_sample():
    """The mean is exact, the effective number is the number, and the interval is Wilson's within a twentieth."""
    found = post_stratified([stratum(300, 300, 100), stratum(700, 700, 650)])
    lower, upper = wilson(750, 1000)
    assert (found.value, found.n, found.n_eff) == (0.75, 1000, pytest.approx(1000))
    assert bounds(found) == pytest.approx((lower, upper), abs=(upper - lower) / 20)


@given(SOME, st.randoms(use_true_random=False))
def test_the_order_of_the_strata_does_not_matter(some, chance):
    shuffled = random.Random(chance.random()).sample(some, len(some))
    assert post_stratified(shuffled) == post_stratified(some)


@given(SOME)
def test_the_value_lies_within_the_bounds_and_they_within_the_unit_interval(some):
    found = post_stratified(some)
    assert 0.0 <= found.lower <= found.upper <= 1.0
    assert 0.0 <= found.unobserved <= 1.0
    assert found.n == sum(s.domain for s in some)
    if found.value is None:
        assert (found.n, found.n_eff) == (0, 0.0)
    else:
        assert found.lower - 1e-12 <= found.value <= found.upper + 1e-12
        assert 1.0 - 1e-9 <= found.n_eff <= found.n + 1e-9


@given(st.lists(strata(observed=True), min_size=1, max_size=10))
def test_failures_have_the_mirrored_estimate(some):
    found = post_stratified(some)
    turned = [
        dataclasses.replace(
            s, sum=s.domain - s.sum, squares=max(0.0, min(s.domain - s.sum, s.domain - 2 * s.sum + s.squares))
        )
        for s in some
    ]
    mirrored = post_stratified(turned)
    assert mirrored.value == pytest.approx(1 - found.value)
    assert bounds(mirrored) == pytest.approx((1 - found.upper, 1 - found.lower), abs=1e-5)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 500)), min_size=1, max_size=9))
def test_a_flawless_sample_reaches_the_end_exactly(sizes):
    """Without rounding noise, so that a gate of at least 1 is never missed by 1e-17."""
    perfect = post_stratified([stratum(calls, n, n) for calls, n in sizes])
    assert (perfect.value, perfect.upper) == (1.0, 1.0)
    hopeless = post_stratified([stratum(calls, n, 0) for calls, n in sizes])
    assert (hopeless.value, hopeless.lower) == (0.0, 0.0)


def test_a_counter_that_lags_behind_the_records_is_taken_for_their_number():
    assert post_stratified([stratum(3, 40, 30), stratum(100, 50, 45)]) == post_stratified(
        [stratum(40, 40, 30), stratum(100, 50, 45)]
    )


# --- how much the sample says -----------------------------------------------------------------------------------------


def test_where_all_agree_the_effective_number_is_kishs():
    """(sum of weights)² / sum of squared weights, over the 110 records."""
    found = post_stratified([stratum(1000, 100, 100), stratum(1000, 10, 10)])
    weights = [10.0] * 100 + [100.0] * 10
    assert found.n_eff == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights))


def test_records_of_a_stratum_without_weight_say_nothing():
    """A thousand failed calls beside 40 of the rest are worth 40 records, not 1,040."""
    found = post_stratified([stratum(1000, 1000, 0), stratum(10**6, 40, 36)])
    assert found.n == 1040
    assert found.n_eff == pytest.approx(40, rel=0.05)


def test_a_stratum_whose_few_records_agree_is_not_taken_for_certain():
    """All 20 of the rest are right: with its own variance of 0, the effective number would be all 320 records."""
    found = post_stratified([stratum(300, 300, 90), stratum(9700, 20, 20)])
    assert found.n_eff < 60


@pytest.mark.parametrize("parts", [3, 6, 7, 20])
def test_cutting_a_sample_into_equal_strata_makes_it_no_more_certain(parts):
    cut = post_stratified([stratum(1000, 10, 9, name=str(i)) for i in range(parts)])
    whole = post_stratified([stratum(1000 * parts, 10 * parts, 9 * parts)])
    assert cut.lower <= whole.lower + 1e-12
    assert cut.upper >= whole.upper - 1e-12
    assert cut.n_eff == pytest.approx(whole.n_eff)


# --- what was not seen ------------------------------------------------------------------------------------------------


@given(some=st.lists(strata(observed=True), min_size=1, max_size=6), calls=st.integers(1, 10**6))
def test_an_unobserved_stratum_counts_as_all_wrong_and_as_all_right(some, calls):
    """Its share of the weight widens the interval on both sides; value and effective number are the others'."""
    known, found = post_stratified(some), post_stratified([*some, Stratum("dark", calls, 0, 0, 0, 0)])
    share = calls / (calls + known.population)
    assert found.unobserved == pytest.approx(share)
    assert found.missing == ("dark",)
    assert found.lower == pytest.approx((1 - share) * known.lower, abs=1e-12)
    assert found.upper == pytest.approx((1 - share) * known.upper + share, abs=1e-12)
    assert (found.value, found.n, found.n_eff) == (known.value, known.n, known.n_eff)


@given(SOME)
def test_a_stratum_without_calls_changes_nothing(some):
    assert post_stratified([*some, Stratum("idle", 0, 0, 0, 0, 0)]) == post_stratified(some)


def test_a_stratum_without_the_domain_weighs_nothing_but_leaves_less_certainty_the_less_was_seen_of_it():
    known = [stratum(1000, 200, 160)]
    widths = []
    for assessed in (1, 10, 100, 1000, 10_000):
        found = post_stratified([*known, stratum(10_000, assessed, 0, domain=0, name="refused")])
        assert (found.value, found.n, found.unobserved) == (0.8, 200, 0.0)
        widths.append(found.upper - found.lower)
    assert widths == sorted(widths, reverse=True)
    lower, upper = bounds(post_stratified(known))
    assert widths[0] > 0.8
    assert widths[-1] == pytest.approx(upper - lower, rel=0.001)


@pytest.mark.parametrize(
    ("some", "unobserved"),
    [
        ([], 0.0),
        ([stratum(0, 0, 0)], 0.0),
        ([stratum(50, 50, 0, domain=0)], 0.0),
        ([stratum(50, 0, 0)], 1.0),
        ([stratum(50, 50, 0, domain=0), stratum(50, 0, 0, name="dark")], 1.0),
    ],
)
def test_without_a_record_in_the_denominator_there_is_no_value_and_anything_is_possible(some, unobserved):
    found = post_stratified(some)
    assert (found.value, *bounds(found)) == (None, 0.0, 1.0)
    assert (found.n, found.n_eff, found.unobserved) == (0, 0.0, unobserved)


# --- rounding ---------------------------------------------------------------------------------------------------------


def test_sums_may_be_off_by_what_floating_point_adds():
    """0.1 added up ten times is not 1."""
    tenth = sum([0.1] * 10)
    assert Stratum("rest", 10, 1, 1, 1 + 1e-12, 1 + 1e-12).mean == 1.0
    assert Stratum("rest", 10, 10, 10, tenth, tenth * (1 + 1e-12)).mean == pytest.approx(0.1)
