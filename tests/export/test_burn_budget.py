"""How often a slow burn is ticketed where nothing burns, how soon where something does, and how soon it is over.

Months of traffic are simulated. The rule is computed here a second time, with numpy, minute by minute; that Prometheus
computes the same is what promtool's tests show.
"""

from __future__ import annotations

import numpy as np
import pytest

from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.export.promql import Z9999
from ragmon.export.rules import slow_burn
from ragmon.export.rules.recording import BUDGET, PAGE, burn_of

BURN = burn_of(Gate("precision", "answer_precision", 0.80, "at_least"))
LEVELS = {BUDGET: BURN.budget, PAGE: BURN.page}
SHORT, PENDING, KEEP = (
    int(minutes.removesuffix("m")) for minutes in (slow_burn.SHORT, slow_burn.PENDING, slow_burn.KEEP)
)
MONTH = 30 * 24 * 60
MONTHS = 60
FAULT = 8 * 60
"""Minutes of the slow fault: eight hours in which six, or seven, of ten answers are good."""


def summed(counts, minutes):
    """What was counted in the minutes before."""
    total = np.cumsum(counts).astype(float)
    total[minutes:] -= total[:-minutes].copy()
    return total


def lower(share, n):
    """The lower Wilson bound."""
    half = Z9999 * np.sqrt(share * (1 - share) / n + Z9999**2 / (4 * n * n))
    return (share + Z9999**2 / (2 * n) - half) / (1 + Z9999**2 / n)


def tickets(failing, per_minute, seed):
    """When each ticket begins and ends, in minutes, where so large a share of answers fails in each minute."""
    chance = np.random.default_rng([seed, per_minute])
    n = chance.poisson(per_minute, len(failing))
    failed = chance.binomial(n, failing)
    burning = np.zeros(len(failing), bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        still = summed(failed, SHORT) / summed(n, SHORT)
        for window in slow_burn.WINDOWS:
            many, level = summed(n, window.seconds // 60), LEVELS[window.level]
            proven = lower(summed(failed, window.seconds // 60) / many, many) > level
            burning |= proven & (still > level) & (many >= MIN_SAMPLES)
    pending = np.convolve(burning, np.ones(PENDING))[: len(failing)] >= PENDING
    found = []
    for at in np.nonzero(burning)[0]:
        if found and at <= found[-1][1]:
            found[-1][1] = at + KEEP
        elif pending[at]:
            found.append([at, at + KEEP])
    return found


def steady(good, minutes=MONTH):
    return np.full(minutes, 1 - good)


def faulty(good, before=0):
    """A slow fault after good days, and five good hours after it."""
    return np.concatenate([steady(0.92, before), steady(good, FAULT), steady(0.94, 300)])


@pytest.mark.slow
@pytest.mark.parametrize("per_minute", [1, 10, 100])
def test_a_gate_that_holds_has_no_ticket_and_one_right_at_its_threshold_hardly_any(per_minute):
    def count(good, months):
        return sum(len(tickets(steady(good), per_minute, month)) for month in range(months))

    assert count(0.86, 20) == 0
    assert count(0.82, 20) == 0
    assert count(0.80, MONTHS) <= 0.25 * MONTHS, "per month, where half of all looks are on the wrong side"


@pytest.mark.parametrize(("per_minute", "hours"), [(1, 6), (10, 1), (100, 0.2)])
def test_a_gate_ten_points_below_is_found_within_hours(per_minute, hours):
    began = [tickets(steady(0.70, 3000), per_minute, month)[0][0] for month in range(20)]
    assert np.median(began) <= 60 * hours


@pytest.mark.parametrize("per_minute", [10, 100])
def test_what_is_worse_than_the_level_worth_a_page_is_found_within_an_hour_and_within_three_after_good_days(per_minute):
    began = [tickets(steady(0.60, 3000), per_minute, month)[0][0] for month in range(20)]
    assert np.median(began) <= 60
    began = [tickets(faulty(0.40, 2 * 1440), per_minute, month)[0][0] - 2 * 1440 for month in range(20)]
    assert np.median(began) <= 3 * 60


@pytest.mark.parametrize("before", [0, 3 * 1440])
@pytest.mark.parametrize("good", [0.70, 0.60])
@pytest.mark.parametrize(("per_minute", "in_time"), [(1, 0.95), (10, 1.0), (100, 1.0)])
def test_a_ticket_ends_within_half_an_hour_of_the_fault_and_opens_less_than_once_an_hour(
    per_minute, in_time, good, before
):
    """With one answer a minute, fifteen good minutes may look like a fault by chance: one ticket of twenty is late."""
    late, ended = 0, 0
    for seed in range(60):
        of_fault = [times for times in tickets(faulty(good, before), per_minute, seed) if times[0] < before + FAULT]
        assert len(of_fault) <= FAULT / 60
        if of_fault:
            ended += 1
            late += of_fault[-1][1] > before + FAULT + 30
    assert ended or (before and good == 0.70), "three good days outweigh eight hours at the level worth a page"
    assert late <= (1 - in_time) * ended
