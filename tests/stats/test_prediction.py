"""What an estimate from labels and proxies promises, whatever the numbers; how often it holds has a file of its own."""

from __future__ import annotations

import random
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragmon.scoring.score_table import Stat
from ragmon.stats.histograms import MICRO
from ragmon.stats.prediction import FEWEST, Sums, equivalent_sample, predicted

ONE = MICRO


def total(some):
    return reduce(add, some, Sums())


def sums(labels, others=()):
    """Of labelled records, (label, proxy) each, and of the proxies of the others."""
    y, f = zip(*labels, strict=True) if labels else ((), ())
    yy, ff, yf = (sum(a * b for a, b in zip(*pair, strict=True)) for pair in ((y, y), (f, f), (y, f)))
    return Sums(len(y), sum(y), yy, sum(f), ff, yf, len(f) + len(others), sum(f) + sum(others))


def counts(both, right, believed, neither, others=()):
    """Labels and proxies of 0 and 1: how many have both, the label alone, the proxy alone, neither."""
    pairs = [(ONE, ONE)] * both + [(ONE, 0)] * right + [(0, ONE)] * believed + [(0, 0)] * neither
    return sums(pairs, others)


def speaks_alone(found, given):
    """The estimate is the project's own for these labels, to the last bit."""
    plain = Stat(given.labels, given.y, given.yy).estimate
    assert (found.value, found.lower, found.upper) == (plain.value, plain.lower, plain.upper)
    assert (found.n, found.n_eff, found.gain, found.weight) == (plain.n, plain.n_eff, 1.0, 0.0)


binary = st.sampled_from([0, ONE])
graded = st.integers(0, ONE)


@st.composite
def samples(draw, fewest=0):
    score = draw(st.sampled_from([binary, graded, st.just(draw(graded))]))
    proxy = draw(st.sampled_from([binary, graded, st.just(draw(graded))]))
    labels = draw(st.lists(st.tuples(score, proxy), min_size=fewest, max_size=60))
    if draw(st.booleans()):
        labels = [(y, y if draw(st.booleans()) else f) for y, f in labels]
    return labels, draw(st.lists(proxy, max_size=100))


# --- sums -------------------------------------------------------------------------------------------------------------


@given(samples(), st.randoms(use_true_random=False))
def test_sums_of_places_and_hours_add_up_in_any_order_to_the_same_estimate(sample, chance):
    labels, others = sample
    parts = [Sums.of_label(y, f) for y, f in labels] + [Sums.of_record(f) for f in (*others, *(f for _, f in labels))]
    shuffled = random.Random(chance.random()).sample(parts, len(parts))
    cut = chance.randint(0, len(parts))
    assert total(shuffled[:cut]) + total(shuffled[cut:]) == total(parts) == sums(*sample)
    assert predicted(total(shuffled)) == predicted(total(parts))


# --- whatever the numbers ---------------------------------------------------------------------------------------------


@given(samples(fewest=1))
@example(([(ONE, ONE)] * 40, [0] * 50))
@example(([(ONE, ONE)] * 39 + [(0, 0)], [ONE] * 5000))
def test_the_value_lies_within_bounds_that_lie_within_the_unit_interval(sample):
    given = sums(*sample)
    found = predicted(given)
    assert 0.0 <= found.lower <= found.value + 1e-12
    assert found.value - 1e-12 <= found.upper <= 1.0
    assert 0.0 <= found.weight <= 1.0
    assert found.n <= found.n_eff <= max(given.records, found.n) * (1 + 1e-12)
    assert found.gain == found.n_eff / found.n


@given(samples(fewest=FEWEST))
def test_it_is_what_least_squares_say_of_the_records_themselves(sample):
    """The line through the labelled points, at the mean proxy of all records."""
    y, f = (np.array(column) / ONE for column in zip(*sample[0], strict=True))
    every = np.array([*f, *(np.array(sample[1]) / ONE)])
    found = predicted(sums(*sample))
    if np.ptp(f) < 1e-3 or np.ptp(y) < 1e-3 or not sample[1]:
        return
    slope = min(1.0, max(0.0, np.polyfit(f, y, 1)[0]))
    if found.gain == 1.0:
        assert found.weight <= slope + 1e-6
        slope = found.weight
    assert found.weight == pytest.approx(slope, abs=1e-6)
    assert found.value == pytest.approx(min(1.0, max(0.0, y.mean() + slope * (every.mean() - f.mean()))), abs=1e-6)


@pytest.mark.slow
@given(samples(fewest=FEWEST))
def test_failures_have_the_mirrored_estimate(sample):
    labels, others = sample
    found = predicted(sums(labels, others))
    mirrored = predicted(sums([(ONE - y, ONE - f) for y, f in labels], [ONE - f for f in others]))
    assert (mirrored.n_eff, mirrored.weight) == (pytest.approx(found.n_eff), found.weight)
    assert mirrored.value == pytest.approx(1 - found.value)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - found.upper, 1 - found.lower), abs=1e-6)


@given(samples(fewest=1))
def test_the_sample_that_is_alike_has_scores_in_the_unit_interval(sample):
    found = equivalent_sample(sums(*sample))
    assert found.total == pytest.approx(found.value * found.n)
    assert -1e-12 <= found.squares <= found.total * (1 + 1e-12) + 1e-12 <= found.n * (1 + 1e-9)


# --- where the labels speak alone -------------------------------------------------------------------------------------


@given(st.lists(graded, max_size=100))
def test_without_a_label_there_is_no_value_whatever_the_proxies_say(proxies):
    found = predicted(sums([], proxies))
    assert (found.value, found.lower, found.upper) == (None, 0.0, 1.0)
    assert (found.n, found.n_eff, found.gain, found.weight) == (0, 0.0, None, 0.0)


@given(st.lists(st.tuples(graded, graded), min_size=1, max_size=FEWEST - 1), st.lists(graded, max_size=50))
def test_with_fewer_than_twenty_labels_they_speak_alone(labels, others):
    found = predicted(sums(labels, others))
    speaks_alone(found, sums(labels, others))


@given(st.lists(graded, min_size=FEWEST, max_size=60), graded, st.lists(graded, max_size=50))
def test_a_proxy_that_is_the_same_for_all_labels_says_nothing(labels, proxy, others):
    given = sums([(y, proxy) for y in labels], others)
    speaks_alone(predicted(given), given)


@pytest.mark.slow
@given(graded, st.lists(graded, min_size=FEWEST, max_size=60), st.lists(graded, max_size=50))
def test_labels_that_are_all_alike_speak_alone(label, proxies, others):
    """Nobody knows how the proxy does on the other kind of answer."""
    given = sums([(label, f) for f in proxies], others)
    speaks_alone(predicted(given), given)


def test_a_proxy_that_falls_where_the_label_rises_is_not_turned_around():
    given = counts(5, 25, 15, 5, others=[ONE] * 500)
    speaks_alone(predicted(given), given)


@given(samples(fewest=FEWEST))
def test_where_every_record_has_a_label_the_labels_are_all_there_is(sample):
    given = sums(sample[0])
    speaks_alone(predicted(given), given)


def test_labels_whose_records_are_counted_elsewhere_speak_alone_until_there_are_more():
    labels = [Sums.of_label(ONE, ONE)] * 30 + [Sums.of_label(0, 0)] * 10
    few = total([*labels, *[Sums.of_record(ONE)] * 40])
    speaks_alone(predicted(few), few)
    assert predicted(few + total([Sums.of_record(0)] * 400)).gain > 1


# --- what a proxy is worth --------------------------------------------------------------------------------------------


@given(st.lists(graded, max_size=50), st.lists(graded, min_size=50, max_size=100))
def test_a_proxy_that_is_the_label_gives_the_mean_over_all_records(labels, others):
    labels = [*labels, *[0] * 12, *[ONE] * 12]
    found = predicted(sums([(y, y) for y in labels], others))
    assert found.value == (sum(labels) + sum(others)) / ((len(labels) + len(others)) * ONE)
    assert found.weight == 1.0
    assert found.gain > 1


def test_a_proxy_that_makes_no_label_worth_more_than_one_is_believed_less():
    """One answer of 25 is wrong, and the proxy found it: that may be chance."""
    found = predicted(counts(24, 0, 0, 1, others=[ONE] * 900 + [0] * 100))
    assert found.gain == 1.0
    assert 0 < found.weight < 1
    assert 0.9 < found.value < 0.96


def test_a_proxy_that_was_never_wrong_is_not_taken_for_perfect():
    """The interval reaches as far as the rule of three: some 3 in 100 answers may still be judged wrongly."""
    found = predicted(counts(80, 0, 0, 20, others=[ONE] * 80_000 + [0] * 20_000))
    assert (found.upper - found.lower) / 2 == pytest.approx(3 / 100, rel=0.05)
    assert 600 < found.n_eff < 800
    assert 60 < predicted(counts(24, 0, 0, 6, others=[ONE] * 800 + [0] * 200)).n_eff < 80


def test_a_proxy_that_errs_corrects_for_the_errors_seen():
    """Of 100 answers it believes 60 of 80 right ones and 5 of 20 wrong ones: 700 believed in 1,000 are 818 right."""
    found = predicted(counts(60, 20, 5, 15, others=[ONE] * 635 + [0] * 265))
    believed, doubted = 60 / 65, 20 / 35
    assert found.value == pytest.approx(0.7 * believed + 0.3 * doubted)


def test_the_better_the_proxy_the_more_a_label_is_worth():
    gains = [predicted(counts(80 - w, w, w, 20 - w, others=[ONE, 0] * 5000)).gain for w in (16, 12, 8, 4, 2, 1, 0)]
    assert gains == sorted(gains)
    assert gains[0] == 1.0
    assert gains[-1] > 5


def test_labels_are_never_worth_more_than_there_are_records():
    found = predicted(counts(800, 0, 0, 200, others=[ONE] * 20))
    assert 1000 < found.n_eff <= 1020


def test_a_value_beyond_the_ends_is_taken_for_the_end():
    """By chance no label that the proxy doubts is among many that it believes."""
    found = predicted(counts(28, 0, 5, 7, others=[ONE] * 100_000))
    assert found.value < 1
    far = predicted(sums([(ONE, ONE * 6 // 10)] * 28 + [(0, 0)] * 12, [ONE] * 10_000))
    assert (far.value, far.upper, far.weight) == (1.0, 1.0, 1.0)
    assert far.lower < 0.98


def test_labels_between_nought_and_one_have_a_narrower_interval_than_labels_of_nought_and_one():
    half = predicted(sums([(ONE * 3 // 4, ONE // 2), (ONE // 4, 0)] * 50, [ONE // 2, 0] * 1000))
    whole = predicted(sums([(ONE, ONE // 2), (0, 0)] * 50, [ONE // 2, 0] * 1000))
    assert half.value == pytest.approx(whole.value)
    assert half.upper - half.lower < 0.6 * (whole.upper - whole.lower)
