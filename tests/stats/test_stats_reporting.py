"""How much of what will be reported is here: against what would have been, had one waited."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.stats.prediction import ENOUGH, Delays

times = st.floats(0, 100, allow_nan=False).map(lambda x: round(x, 3))
reports = st.lists(st.tuples(times, times).map(lambda pair: (min(pair), max(pair))), min_size=1, max_size=60)


def drawn(rng, n, mean, span):
    """Reports that came by now, and the share of all that is; what is asked about came evenly over a span."""
    asked = [rng.uniform(0, span) for _ in range(n)]
    delays = [rng.expovariate(1 / mean) for _ in range(n)]
    here = [(delay, span - at) for at, delay in zip(asked, delays, strict=True) if delay <= span - at]
    return Delays(here), len(here) / n


@given(reports)
def test_shares_lie_in_0_to_1_and_grow_with_the_time(told):
    found = Delays(told)
    shares = [found.share(waited) for waited in sorted({0.0, 50.0, 200.0, *(delay for delay, _ in told)})]
    assert all(0 < share <= 1 for share in shares)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@given(reports, st.randoms(use_true_random=False))
def test_the_order_of_reports_plays_no_part(told, chance):
    shuffled = list(told)
    chance.shuffle(shuffled)
    assert Delays(shuffled).maturity == Delays(told).maturity


def test_where_everybody_waited_long_enough_the_share_is_the_empirical_one():
    found = Delays([(float(n), 1000.0) for n in range(100)])
    assert [found.share(waited) for waited in (9.0, 49.0, 98.5)] == pytest.approx([0.1, 0.5, 0.99])
    assert found.maturity == pytest.approx(1.0)


def test_a_naive_share_is_too_high_and_this_one_is_not():
    """A delay's empirical share counts only what had time to be short."""
    rng = random.Random(7)
    within, naive = [], []
    for _ in range(40):
        found, _ = drawn(rng, 1000, 1.0, 4.0)
        told = [delay for delay, _ in found._reports]
        within.append(found.share(1.0))
        naive.append(sum(delay <= 1.0 for delay in told) / len(told))
    assert statistics.mean(within) == pytest.approx(0.632 / 0.982, abs=0.02)  # of those that take at most 4
    assert statistics.mean(naive) > 0.7


@pytest.mark.parametrize(("mean", "span"), [(1.0, 7.0), (0.1, 7.0), (0.5, 2.0)])
def test_the_maturity_is_the_share_of_all_reports_that_is_here(mean, span):
    rng = random.Random(1)
    told = [drawn(rng, 400, mean, span) for _ in range(60)]
    wrong = [found.maturity - share for found, share in told]
    assert abs(statistics.mean(wrong)) < 0.03


def test_of_a_few_reports_nothing_can_be_said():
    assert Delays([(1.0, 2.0)] * (ENOUGH - 1)).maturity is None
    assert Delays([]).maturity is None
