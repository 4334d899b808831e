"""How often a slow burn is told where nothing burns, and how soon where something does: simulated months of traffic.

The rules are computed here a second time, with numpy, minute by minute; that Prometheus computes the same is what
promtool's tests and `test_real_rules.py` show.
"""

from __future__ import annotations

import numpy as np
import pytest

from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.export.promql import Z999
from ragmon.export.rules.recording import burn_of

BURN = burn_of(Gate("precision", "answer_precision", 0.80, "at_least"))
MONTH = 30 * 24 * 60
MONTHS = 20
RULES = {"6h": (360, 30, BURN.page, 180), "3d": (4320, 360, BURN.budget, 720)}
"""Long and short window, share of failures, and how long an alert is kept, in minutes."""


def summed(counts, minutes):
    """What was counted in the minutes before."""
    total = np.cumsum(counts).astype(float)
    total[minutes:] -= total[:-minutes].copy()
    return total


def lower(share, n):
    """The lower Wilson bound."""
    half = Z999 * np.sqrt(share * (1 - share) / n + Z999**2 / (4 * n * n))
    return (share + Z999**2 / (2 * n) - half) / (1 + Z999**2 / n)


def episodes(rule, good, per_minute, month):
    """When the alert began, minutes since the start of a month in which this share of answers is good."""
    chance = np.random.default_rng([month, per_minute, round(100 * good)])
    n = chance.poisson(per_minute, MONTH)
    failed = chance.binomial(n, 1 - good)
    long, short, level, keep = RULES[rule]
    with np.errstate(invalid="ignore", divide="ignore"):
        many = summed(n, long)
        proven = lower(summed(failed, long) / many, many) > level
        still = summed(failed, short) / summed(n, short) > level
    held = np.convolve(proven & still & (many >= MIN_SAMPLES), np.ones(5))[:MONTH] >= 5
    (at,) = np.nonzero(held)
    return at[np.diff(at, prepend=-MONTH) > keep]


@pytest.mark.slow
@pytest.mark.parametrize("per_minute", [1, 10, 100])
@pytest.mark.parametrize("rule", RULES)
def test_a_gate_that_holds_has_no_ticket_and_one_right_at_its_threshold_hardly_any(rule, per_minute):
    def tickets(good):
        return sum(len(episodes(rule, good, per_minute, month)) for month in range(MONTHS))

    assert tickets(0.86) == 0
    assert tickets(0.82) == 0
    assert tickets(0.80) <= 0.25 * MONTHS, "per month, where half of all looks are on the wrong side"


@pytest.mark.parametrize(("per_minute", "hours"), [(1, 6), (10, 1), (100, 0.2)])
def test_three_days_find_a_gate_ten_points_below_within_hours(per_minute, hours):
    began = [episodes("3d", 0.70, per_minute, month)[0] for month in range(MONTHS)]
    assert np.median(began) <= 60 * hours


@pytest.mark.parametrize("per_minute", [10, 100])
def test_six_hours_find_what_is_worse_than_the_level_worth_a_page(per_minute):
    began = [episodes("6h", 0.60, per_minute, month)[0] for month in range(MONTHS)]
    assert np.median(began) <= 60
