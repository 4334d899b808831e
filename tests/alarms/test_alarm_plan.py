"""What is said beforehand of an alarm is what it does: the drop, the observations, the time."""

from __future__ import annotations

import random
from statistics import median

import pytest

from ragmon.alarms.detector import Detector
from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import AlarmBudget, describe, detectability, worth_a_page
from ragmon.core.policy import Gate
from ragmon.metrics.base import build

METRICS = build()
FLOOR = Gate("precision", "answer_precision", 0.80, "at_least")
CEILING = Gate("refusals", "over_refusal_rate", 0.10, "at_most")


def found(gate, per_minute=10.0, **budget):
    (one,) = detectability([gate], METRICS, {gate.name: per_minute}, AlarmBudget(**budget))
    return one


def test_a_gate_pages_ten_points_beyond_its_threshold_unless_it_says_where():
    assert worth_a_page(FLOOR) == pytest.approx(0.70)
    assert worth_a_page(CEILING) == pytest.approx(0.20)
    assert worth_a_page(Gate("refusals", "over_refusal_rate", 0.95, "at_most")) == 1.0
    assert worth_a_page(Gate("precision", "answer_precision", 0.80, "at_least", page_beyond=0.75)) == 0.75


def test_the_time_is_the_observations_at_the_rate_they_come():
    slow, fast = found(FLOOR, 1.0), found(FLOOR, 100.0)
    assert slow.minutes == pytest.approx(slow.labels)
    assert fast.minutes == pytest.approx(fast.labels / 100)
    assert slow.labels < fast.labels  # many small steps are many starts


def test_a_tighter_budget_takes_longer():
    assert found(FLOOR, false_pages_per_30d=0.1).labels > found(FLOOR).labels
    assert found(FLOOR, divisor=10).labels > found(FLOOR).labels


def test_a_level_just_beyond_the_gate_is_said_to_be_never_found():
    near = found(Gate("precision", "answer_precision", 0.80, "at_least", page_beyond=0.7999))
    assert near.labels is None
    assert describe(near) == "a drop to 80 % is never found: it is too close to the limit"


def test_where_the_rate_is_unknown_only_the_observations_are_told():
    (one,) = detectability([CEILING], METRICS, {})
    assert one.minutes is None
    assert describe(one).startswith("a rise to 20 % takes about ")


def test_gates_that_are_no_means_are_left_out():
    """A quantile and a count of indexes have no share to fall."""
    slow = Gate("latency_p95", "latency", 1.3, "at_most", kind="quantile_ratio")
    index = Gate("index_hash", "index_hash", 1, "at_most", kind="distinct")
    assert detectability([slow, index], METRICS, {}) == []


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "truth"), [(FLOOR, 0.70), (CEILING, 0.80)])
def test_simulated_alarms_take_about_that_many_observations(gate, truth):
    """Within a fifth of what is said, over two hundred changes at ten a minute."""
    rng, threshold = random.Random(7), found(gate).labels
    level = gate.threshold if gate.at_least else 1 - gate.threshold
    needed = [_observations_until(rng, truth, level) for _ in range(200)]
    assert 0.75 * threshold <= median(needed) <= 1.2 * threshold


def _observations_until(rng, truth, level):
    """Observations from the change to the alarm, after two quiet hours well above the level."""
    detector, seen, alarm = Detector(), 0, 6 * 43_200
    for minute in range(10_000):
        share = min(1.0, level + 0.06) if minute < 120 else truth
        ones = sum(rng.random() < share for _ in range(10))
        mean = detector.update(Observations(ones, 10 - ones), level)
        seen += 10 if minute >= 120 else 0
        if minute >= 120 and mean >= alarm:
            return seen
    return seen
