"""Evidence by betting: what it is, what it costs, and that looking at it often is no cheating."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import RagmonError
from ragmon.stats import betting
from ragmon.stats.betting import ALPHA, BETS, shares

BAR = math.log(2 / ALPHA)
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]), max_size=60)
ZEROS_AND_ONES = st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda c: shares(c[0], sum(c)))
MEANS = st.integers(1, 99).map(lambda i: i / 100)

# --- what it is -------------------------------------------------------------------------------------------------------


@given(observed=SCORES, mean=MEANS)
def test_wealth_is_the_product_of_fair_bets_in_the_order_in_which_they_were_made(observed, mean):
    """By the definition: one factor an observation, a mixture of products."""
    for log_evidence, sign, most in ((betting.log_above, 1, 1 / mean), (betting.log_below, -1, 1 / (1 - mean))):
        wealth = []
        for d in BETS:
            money = 1.0
            for x in observed:
                money *= 1 + sign * d * most * (x - mean)
            wealth.append(money)
        expected = math.log(sum(wealth) / len(wealth))
        assert log_evidence(Counter(observed), mean) == pytest.approx(expected, abs=1e-9)


@given(mean=MEANS, p=st.floats(0, 1))
def test_a_bet_on_what_is_not_so_does_not_grow(mean, p):
    """One observation, in expectation: the wealth of whoever doubts a true statement is at most the start."""

    def expected(log_evidence):
        return p * math.exp(log_evidence({1.0: 1}, mean)) + (1 - p) * math.exp(log_evidence({0.0: 1}, mean))

    if p <= mean:
        assert expected(betting.log_above) <= 1 + 1e-12
    if p >= mean:
        assert expected(betting.log_below) <= 1 + 1e-12


@given(observed=SCORES, mean=MEANS)
def test_graded_scores_of_which_the_sum_alone_is_known_never_give_more_evidence(observed, mean):
    known, summed = Counter(observed), shares(math.fsum(observed), len(observed))
    assert betting.log_above(summed, mean) <= betting.log_above(known, mean) + 1e-9
    assert betting.log_below(summed, mean) <= betting.log_below(known, mean) + 1e-9


@given(
    observed=st.lists(st.floats(0, 1), min_size=1, max_size=80),
    mean=MEANS,
    marks=st.sampled_from([1, 2, 10, 100]),
)
def test_scores_that_are_moved_to_marks_keep_their_sum_and_never_give_more_evidence(observed, mean, marks):
    known = Counter(observed)
    moved = betting.coarse(known, marks)
    assert len(moved) <= max(len(known), marks + 1) if len(known) > marks else moved == known
    assert math.fsum(moved.values()) == pytest.approx(len(observed))
    assert math.fsum(x * n for x, n in moved.items()) == pytest.approx(math.fsum(observed), abs=1e-9)
    assert betting.log_above(moved, mean) <= betting.log_above(known, mean) + 1e-9
    assert betting.log_below(moved, mean) <= betting.log_below(known, mean) + 1e-9


def test_marks_cost_next_to_nothing():
    """A thousand different means of measured scores."""
    means = Counter(np.random.default_rng(5).beta(8, 2, 1000).tolist())
    assert len(betting.coarse(means)) <= betting.MARKS + 1
    assert betting.confidence_sequence(betting.coarse(means)) == pytest.approx(
        betting.confidence_sequence(means), abs=1e-4
    )


@given(seen=ZEROS_AND_ONES, mean=MEANS)
def test_below_is_above_from_the_other_side(seen, mean):
    turned = {1.0: seen[0.0], 0.0: seen[1.0]}
    assert betting.log_below(seen, mean) == pytest.approx(betting.log_above(turned, 1 - mean), abs=1e-9)


def test_nothing_seen_is_no_evidence():
    assert betting.log_above({}, 0.5) == betting.log_below(shares(0, 0), 0.5) == 0.0
    assert betting.verdict({}, 0.5) is None
    assert betting.confidence_sequence({}) == (0.0, 1.0)
    assert betting.needed({}, 0.5) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: betting.log_above({1.1: 3}, 0.5), "score 1.1 lies outside [0, 1]"),
        (lambda: betting.log_below({math.nan: 3}, 0.5), "score nan lies outside [0, 1]"),
        (lambda: betting.log_above({0.5: -1}, 0.5), "score 0.5 occurs -1 times"),
        (lambda: betting.log_above({0.5: 1}, 1.5), "mean 1.5 lies outside [0, 1]"),
        (lambda: betting.verdict({0.5: 1}, 80), "threshold 80 lies outside [0, 1]"),
        (lambda: betting.verdict({0.5: 1}, 80, at_least=False), "threshold 80 lies outside [0, 1]"),
    ],
)
def test_what_is_no_share_is_refused(call, message):
    with pytest.raises(RagmonError) as refused:
        call()
    assert (str(refused.value), bool(refused.value.hint)) == (message, True)


# --- verdicts ---------------------------------------------------------------------------------------------------------


@given(seen=ZEROS_AND_ONES, threshold=MEANS)
def test_a_ceiling_is_a_floor_from_the_other_side(seen, threshold):
    turned = {1.0: seen[0.0], 0.0: seen[1.0]}
    assert betting.verdict(seen, threshold) == betting.verdict(turned, 1 - threshold, at_least=False)


@given(observed=SCORES, threshold=MEANS)
def test_a_verdict_is_the_gate_lying_outside_the_confidence_sequence(observed, threshold):
    lower, upper = betting.confidence_sequence(Counter(observed))
    verdict = betting.verdict(Counter(observed), threshold)
    if abs(threshold - lower) > 1e-9 and abs(threshold - upper) > 1e-9:
        assert verdict == ("pass" if threshold < lower else "fail" if threshold > upper else None)


@given(observed=SCORES.filter(bool), alpha=st.sampled_from([0.01, 0.05, 0.2]))
def test_a_confidence_sequence_ends_where_the_evidence_reaches_its_bar(observed, alpha):
    seen, bar = Counter(observed), math.log(2 / alpha)
    lower, upper = betting.confidence_sequence(seen, alpha)
    assert 0 <= lower <= math.fsum(observed) / len(observed) <= upper <= 1
    if lower > 0:
        assert betting.log_above(seen, lower) >= bar > betting.log_above(seen, min(1.0, lower + 1e-9))
    if upper < 1:
        assert betting.log_below(seen, upper) >= bar > betting.log_below(seen, max(0.0, upper - 1e-9))


@pytest.mark.parametrize("at_least", [True, False])
def test_gates_at_the_ends(at_least):
    """What anything keeps passes; what a single bad score breaks fails by it, and nothing ever proves it."""
    anything, flawless = (0.0, 1.0) if at_least else (1.0, 0.0)
    assert betting.verdict({1 - flawless: 1}, anything, at_least=at_least) == "pass"
    assert betting.verdict({flawless: 10**6}, flawless, at_least=at_least) is None
    assert betting.verdict({flawless: 10**6, abs(flawless - 1e-3): 1}, flawless, at_least=at_least) == "fail"
    assert betting.needed({flawless: 1}, flawless) is None


# --- how many it takes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "flawless", "n"), [(0.80, 1.0, 27), (0.90, 1.0, 56), (0.95, 1.0, 115), (0.05, 0.0, 115)]
)
def test_the_n_below_which_no_run_can_pass(threshold, flawless, n):
    """About twice what an interval asks for that may be looked at once (16, 35, 73)."""
    proven = [betting.verdict({flawless: m}, threshold, at_least=flawless == 1.0) for m in range(1, n + 1)]
    assert proven == [None] * (n - 1) + ["pass"]
    assert betting.needed({flawless: 1}, threshold) == n


@given(observed=SCORES.filter(bool), threshold=MEANS)
def test_needed_is_where_more_of_the_same_decides(observed, threshold):
    seen, n = Counter(observed), len(observed)
    needed = betting.needed(seen, threshold)
    if needed is None:
        assert betting.verdict({x: 1e9 * c for x, c in seen.items()}, threshold) is None
        return
    more = {x: needed / n * c for x, c in seen.items()}
    less = {x: (needed - 1) / n * c for x, c in seen.items()}
    assert betting.verdict({x: c * (1 + 1e-12) for x, c in more.items()}, threshold) is not None
    assert betting.verdict({x: c * (1 - 1e-12) for x, c in less.items()}, threshold) is None


# --- looking often ----------------------------------------------------------------------------------------------------

LOOKS, RUNS = 5000, 4000


@cache
def borders(gate):
    """For every n the fewest good ones that pass and the most that fail, as `verdict` has it."""
    passes, fails = np.zeros(LOOKS, int), np.zeros(LOOKS, int)
    least, most = 0, -1
    for n in range(1, LOOKS + 1):
        while least <= n and betting.verdict(shares(least, n), gate) != "pass":
            least += 1
        while most < n and betting.verdict(shares(most + 1, n), gate) == "fail":
            most += 1
        passes[n - 1], fails[n - 1] = least, most
    return passes, fails


def first_verdicts(gate, p, seed=2010):
    """When every run is first told pass and fail, looking after each of 5,000 observations; 0 for never."""
    passes, fails = borders(gate)
    rng = np.random.default_rng(seed)
    first = []
    for _ in range(RUNS // 500):
        good = np.cumsum(rng.random((500, LOOKS)) < p, axis=1, dtype=np.int32)
        told = [good >= passes, good <= fails]
        first.append(np.array([np.where(t.any(axis=1), t.argmax(axis=1) + 1, 0) for t in told]))
    return np.concatenate(first, axis=1)


def share_and_error(of):
    share = np.mean(of)
    return share, math.sqrt(max(share, 1 / RUNS) * (1 - share) / RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("gate", [0.50, 0.80, 0.95])
def test_on_the_gate_5000_looks_are_told_wrong_at_most_as_often_as_allowed(gate):
    passed, failed = first_verdicts(gate, gate)
    for told, allowed in ((passed, ALPHA / 2), (failed, ALPHA / 2), (passed | failed, ALPHA)):
        share, error = share_and_error(told > 0)
        assert share <= allowed + 3 * error
    assert np.mean((passed | failed) > 0) > 0.01  # it is no bound that nothing comes near


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p", "verdict", "median"), [(0.86, "pass", 326), (0.90, "pass", 111), (0.77, "fail", 1523), (0.70, "fail", 139)]
)
def test_how_long_a_verdict_takes_beside_a_gate_of_80_percent(p, verdict, median):
    """The medians of a prototype with other bets; ours lie within a fifth of them. The wrong verdict stays rare."""
    passed, failed = first_verdicts(0.80, p)
    right, wrong = (passed, failed) if verdict == "pass" else (failed, passed)
    taken = np.where(right > 0, right, np.inf)
    assert np.median(taken) == pytest.approx(median, rel=0.2)
    share, error = share_and_error((wrong > 0) & ((right == 0) | (wrong < right)))
    assert share <= ALPHA / 2 + 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.50, 0.98])
def test_a_confidence_sequence_covers_at_all_looks_together(p):
    looks = np.unique(np.geomspace(5, 3000, 30).astype(int))
    bounds = cache(lambda good, n: betting.confidence_sequence(shares(good, n)))
    rng = np.random.default_rng(9686)
    runs, missed = 600, 0
    for _ in range(runs):
        good = np.cumsum(rng.random(looks[-1]) < p)
        seen = [bounds(int(good[n - 1]), int(n)) for n in looks]
        missed += any(not lower <= p <= upper for lower, upper in seen)
    assert missed / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_means_of_gold_items_may_be_looked_at_while_the_items_are_asked_again():
    """40 items of very different quality on the gate together: after every round their means are judged."""
    rng = np.random.default_rng(40)
    runs, told = 400, 0
    for _ in range(runs):
        quality = rng.beta(1.6, 0.4, 40)  # mean .80
        good = np.zeros(40)
        verdicts = set()
        for asked in range(1, 13):
            good += rng.random(40) < quality
            verdicts.add(betting.verdict(Counter(good / asked), 0.80))
        told += verdicts != {None}
    assert told / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
