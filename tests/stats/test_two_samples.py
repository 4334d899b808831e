"""Two samples, and pairs: evidence for a drop and against it, looked at as often as one likes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import RagmonError
from ragmon.stats import betting
from ragmon.stats import betting as paired
from ragmon.stats.betting import ALPHA, Unpaired, log_not_worse, log_worse, shares
from ragmon.stats.prediction import kl

LEVEL = ALPHA / 2
COUNTS = st.dictionaries(st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(0, 400), max_size=4)
EQUAL = {(1.0, 1.0): 500, (0.0, 0.0): 100}


def allowed(level, runs):
    return level + 3 * math.sqrt(level * (1 - level) / runs)


# --- two independent samples ------------------------------------------------------------------------------------------


def brute_force(a, b, margin=0.0, *, worse):
    """The least product over a fine grid of means, and finer where it is least."""

    def product(p):
        if worse:
            return betting.log_above(a, p) + betting.log_below(b, p)
        return betting.log_below(a, p) + betting.log_above(b, max(0.0, p - margin))

    low, high = (0.0, 1.0) if worse else (margin, 1.0)
    for _ in range(6):
        grid = np.linspace(low, high, 60)
        values = [product(float(p)) for p in grid]
        best = int(np.argmin(values))
        low, high = grid[max(0, best - 1)], grid[min(59, best + 1)]
    return min(values)


@pytest.mark.slow
@given(a=COUNTS, b=COUNTS)
def test_evidence_for_a_drop_is_the_least_product_over_all_means(a, b):
    found = log_worse(a, b)
    least = brute_force(a, b, worse=True)
    assert least - 1e-6 <= found <= least + 1e-9


@pytest.mark.slow
@given(a=COUNTS, b=COUNTS, margin=st.sampled_from([0.0, 0.02, 0.1, 0.5]))
def test_evidence_against_a_drop_is_the_least_product_over_all_means(a, b, margin):
    found = log_not_worse(a, b, margin)
    least = brute_force(a, b, margin, worse=False)
    assert least - 1e-6 <= found <= least + 1e-9


@given(a=COUNTS, b=COUNTS)
def test_not_worse_without_a_margin_is_better(a, b):
    assert log_not_worse(a, b, 0.0) == log_worse(b, a)


@pytest.mark.parametrize("margin", [-0.01, 1, math.nan])
def test_a_margin_is_a_difference_of_shares(margin):
    with pytest.raises(RagmonError, match=f"margin {margin} is not a difference"):
        log_not_worse({}, {}, margin)
    with pytest.raises(RagmonError, match=f"margin {margin} is not a difference"):
        paired.not_worse({}, margin)


def beside(p, q, n):
    """An upper bound of any evidence that two samples differ: nobody bets better than who knows both shares."""
    return n * (kl(p, (p + q) / 2) + kl(q, (p + q) / 2))


def first_proof(evidence, p, q, runs, looks, seed):
    """When evidence first reaches its bar in each run, looking often; infinite for never."""
    rng, bar = np.random.default_rng(seed), -math.log(LEVEL)
    first = np.full(runs, np.inf)
    for run in range(runs):
        a, b = (np.cumsum(rng.random(looks[-1]) < share)[looks - 1] for share in (p, q))
        for n, good, later in zip(looks, a, b, strict=True):
            if evidence(shares(int(good), int(n)), shares(int(later), int(n))) >= bar:
                first[run] = n
                break
    return first


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.60, 0.95])
def test_equal_releases_are_called_worse_at_most_as_often_as_allowed(p):
    """40 looks at up to 3,000 requests each."""

    def evidence(a, b):
        n = sum(a.values())
        bound = beside(a[1.0] / n, b[1.0] / n, n)
        return log_worse(a, b) if b[1.0] < a[1.0] and bound > -math.log(LEVEL) else 0.0

    runs, looks = 4000, np.unique(np.geomspace(10, 3000, 40).astype(int))
    found = np.isfinite(first_proof(evidence, p, p, runs, looks, seed=1))
    assert found.mean() <= allowed(LEVEL, runs)


@pytest.mark.slow
def test_a_drop_by_the_margin_is_ruled_out_at_most_as_often_as_allowed():
    runs, looks = 200, np.unique(np.geomspace(20, 3000, 16).astype(int))
    found = first_proof(lambda a, b: log_not_worse(a, b, 0.05), 0.90, 0.85, runs, looks, seed=2)
    assert np.isfinite(found).mean() <= allowed(LEVEL, runs)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "most"), [(0.80, 360), (0.70, 120)])
def test_how_many_requests_of_either_release_prove_a_drop_from_90_percent(q, most):
    looks = np.arange(20, 2000, 20)
    assert np.median(first_proof(log_worse, 0.90, q, 60, looks, seed=3)) <= most


def test_how_many_requests_of_either_release_rule_out_a_drop_by_5_points():
    looks = np.arange(200, 6000, 200)
    found = first_proof(lambda a, b: log_not_worse(a, b, 0.05), 0.90, 0.90, 40, looks, seed=4)
    assert np.median(found) <= 1600


# --- pairs ------------------------------------------------------------------------------------------------------------


def bets_on_differences(differences, margin, *, falls):
    """By the definition, where every item is in both denominators: one bet an item on half of 1 + its difference."""
    seen = Counter((1 + d) / 2 for d in differences)
    return betting.log_below(seen, 0.5) if falls else betting.log_above(seen, (1 - margin) / 2)


@given(
    scores=st.lists(st.tuples(*[st.sampled_from([0.0, 0.4, 1.0])] * 2), min_size=1, max_size=300),
    margin=st.sampled_from([0.0, 0.02, 0.2]),
)
def test_in_the_same_denominator_the_differences_of_the_scores_are_bet_on(scores, margin):
    pairs, differences = Counter(scores), [after - before for before, after in scores]
    anywhere = (0.0, 1.0)
    for falls, by in ((True, 0.0), (False, margin)):
        found = paired._evidence(pairs, anywhere, by, falls=falls)
        assert found == pytest.approx(bets_on_differences(differences, by, falls=falls), abs=1e-9)


@pytest.mark.parametrize(("worse", "better", "proven"), [(12, 0, True), (12, 8, False), (40, 12, True), (0, 30, False)])
def test_flips_prove_a_drop_whatever_the_equal_items_say(worse, better, proven):
    flips = {(1.0, 0.0): worse, (0.0, 1.0): better}
    assert paired.worse(flips) == paired.worse({**flips, (1.0, 1.0): 10**6, (0.0, 0.0): 10**6}) == proven


def test_pairs_prove_what_two_samples_of_the_same_size_cannot():
    pairs = {(1.0, 0.0): 14, (1.0, 1.0): 436, (0.0, 0.0): 150}
    assert paired.worse(pairs)
    assert log_worse(shares(450, 600), shares(436, 600)) < 0


@pytest.mark.parametrize(("items", "proven"), [(313, False), (314, True)])
def test_how_many_equal_items_rule_out_a_drop_by_2_points(items, proven):
    assert paired.not_worse({(1.0, 1.0): items}, 0.02) == proven


def test_wrong_answers_to_what_was_refused_before_are_a_drop_without_a_single_flip():
    """A precision counts what was answered. Items that both answered say nothing of those that one answers now."""
    pairs = {**EQUAL, (None, 0.0): 150, (None, None): 200}
    assert paired.worse(pairs)
    assert not paired.not_worse(pairs, 0.02)
    assert not paired.worse({**EQUAL, (None, 1.0): 150, (None, None): 200})


def test_items_that_one_release_alone_was_asked_are_two_samples():
    assert paired.worse({}, Unpaired(shares(450, 500), shares(380, 500)))
    assert paired.not_worse({}, 0.20, Unpaired(shares(450, 500), shares(455, 500)))
    assert not paired.worse({}, Unpaired(shares(450, 500), {}))


def test_pairs_prove_as_much_beside_items_that_say_nothing():
    few = Unpaired(shares(4, 5), shares(4, 5))
    assert paired.worse({**EQUAL, (1.0, 0.0): 13}, few)
    assert paired.not_worse({(1.0, 1.0): 500}, 0.02, few)


def two_runs(rng, items, q_then, q_now, *, refused):
    """Scores of two runs: easy items are answered rightly by both; what one refuses is no item of its denominator."""
    ease = rng.random(items)
    then, now = (np.where(rng.random(items) < 0.2, rng.random(items), ease) < q for q in (q_then, q_now))
    answered = [rng.random(items) >= refused * (1 + side) for side in (0, 1)]
    return [
        (float(a) if first else None, float(b) if second else None)
        for a, b, first, second in zip(then, now, *answered, strict=True)
    ]


def ever(proves, runs, looks, seed, **how):
    """In which share of runs something is ever proven, looking again and again while items come in."""
    rng, found = np.random.default_rng(seed), 0
    for _ in range(runs):
        scores = two_runs(rng, looks[-1], **how)
        found += any(proves(Counter(scores[:n])) for n in looks)
    return found / runs


ITEMS = [50, 100, 200, 400, 800]


@pytest.mark.slow
@pytest.mark.parametrize("refused", [0.0, 0.3])
def test_equal_runs_over_the_same_items_are_called_worse_at_most_as_often_as_allowed(refused):
    """The second run refuses twice as much, at random: its mean is the same."""
    runs = 200
    found = ever(paired.worse, runs, ITEMS, 5, q_then=0.80, q_now=0.80, refused=refused)
    assert found <= allowed(LEVEL, runs)


@pytest.mark.slow
def test_a_run_that_refuses_its_errors_and_errs_elsewhere_is_not_called_worse():
    """The first is right on four of five and answers all; the second refuses half of the rest, and flips a tenth.

    Of what they answered four in five are right, both times; of what both answered the second has fewer.
    """
    rng, runs, found = np.random.default_rng(8), 200, 0
    for _ in range(runs):
        easy, flips, refuses = rng.random(800) < 0.8, rng.random(800) < 0.1, rng.random(800) < 0.5
        after = np.where(easy, ~flips, False)
        scores = [
            (float(right), None if refused and not right else float(now))
            for right, now, refused in zip(easy, after, refuses, strict=True)
        ]
        found += any(paired.worse(Counter(scores[:n])) for n in ITEMS)
    assert found / runs <= allowed(LEVEL, runs)
    fewer = Counter(pair for pair in scores if pair[1] is not None)
    assert paired.worse(fewer)


@pytest.mark.slow
@pytest.mark.parametrize("refused", [0.0, 0.3])
def test_a_drop_by_the_margin_in_pairs_is_ruled_out_at_most_as_often_as_allowed(refused):
    runs = 200
    found = ever(lambda pairs: paired.not_worse(pairs, 0.05), runs, ITEMS, 6, q_then=0.85, q_now=0.80, refused=refused)
    assert found <= allowed(LEVEL, runs)


def test_how_many_items_prove_a_drop_by_5_points():
    """Of a pair of runs of which a third of the answers is no matter of the item: 800 items do in most cases."""
    assert ever(paired.worse, 60, [800], 7, q_then=0.85, q_now=0.80, refused=0.0) >= 0.5
