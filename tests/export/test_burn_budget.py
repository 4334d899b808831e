"""How often a slow burn is ticketed where nothing burns, how soon where something does, and how soon it is over.

Months of traffic are simulated. The rule is computed here a second time, with numpy, minute by minute; that Prometheus
computes the same is what promtool's tests show.
"""

from __future__ import annotations

import numpy as np
import pytest

BUDGET = 0.20
"""What a gate of 0.80 allows to fail."""
Z9999 = 3.89
LONG, SHORT, PENDING, KEEP, ENOUGH = 3 * 1440, 6 * 60, 10, 10, 30
MONTH = 30 * 24 * 60
MONTHS = 60
FAULT = 8 * 60
"""Minutes of the slow fault: eight hours in which six, or seven, of ten answers are good."""


def summed(counts, minutes):
    """What was counted in the minutes before."""
    total = np.cumsum(counts).astype(float)
    total[minutes:] -= total[:-minutes].copy()
    return total


def tickets(failing, per_minute, seed):
    """When each ticket begins and ends, in minutes, where so large a share of answers fails in each minute."""
    chance = np.random.default_rng([seed, per_minute])
    n = chance.poisson(per_minute, len(failing))
    failed = chance.binomial(n, failing)
    many = summed(n, LONG)
    proven = summed(failed, LONG) - BUDGET * many > Z9999 * np.sqrt(BUDGET * (1 - BUDGET) * many)
    burning = proven & (many >= ENOUGH) & (summed(failed, SHORT) > BUDGET * summed(n, SHORT))
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


def faulty(good):
    """A slow fault, and seven good hours after it."""
    return np.concatenate([steady(good, FAULT), steady(0.94, 420)])


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


@pytest.mark.parametrize("per_minute", [1, 10])
def test_after_three_good_days_a_fault_of_twenty_points_is_found_within_two_days(per_minute):
    failing = np.concatenate([steady(0.92, LONG), steady(0.60, LONG)])
    began = [tickets(failing, per_minute, month)[0][0] - LONG for month in range(20)]
    assert np.median(began) <= 2 * 1440


@pytest.mark.parametrize("good", [0.70, 0.60])
@pytest.mark.parametrize("per_minute", [1, 10, 100])
def test_a_fault_is_one_ticket_which_ends_within_six_hours_of_it(per_minute, good):
    for seed in range(60):
        found = tickets(faulty(good), per_minute, seed)
        assert len(found) <= 2
        assert all(end <= FAULT + 6 * 60 + KEEP for _, end in found)
