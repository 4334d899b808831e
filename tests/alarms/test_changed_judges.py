"""A judge that changes while its version does not is a ticket; one that stays, or says so, is none."""

from __future__ import annotations

from math import sin, tau

import pytest

from ragmon.alarms.baselines import AlarmSettings
from ragmon.alarms.drift import Drift, JudgeMonitor
from ragmon.scoring.minutes import Minute
from tests.support.judged_world import BEGIN, DAY, JUDGE, JudgedWorld
from tests.support.saved import saved

SCORES, AGREEMENT = f"{JUDGE}:drift", f"{JUDGE}:label:drift"


def tickets(world):
    """Each alarm with the day of its first ticket, and how many there were."""
    drift, steps, first = Drift(AlarmSettings(())), {}, {}
    for now, entry in world.entries():
        record = getattr(entry, "answer", entry)
        step = steps.setdefault(int(now) // 60, Minute(int(now) // 60))
        micro = {name: int(score * 1_000_000) for name, score in record.measures.items()}
        source = "live"
        if entry is not record:
            source, micro = "label", {**micro, "answer_correct": 1_000_000 * entry.correct}
        step.add_scores(source, micro, record.judge_versions or {})
    for minute, step in sorted(steps.items()):
        for signal in drift.step(step, "live"):
            if signal.firing is not None:
                first.setdefault(signal.alert, []).append((minute * 60 - BEGIN) / DAY)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_unannounced_change_is_a_ticket_by_its_scores_in_a_day_and_by_labels_in_six(seed):
    found = tickets(JudgedWorld(changed=3.0, seed=seed))
    assert 3.0 < found[SCORES][0] < 4.0
    assert 4.0 < found[AGREEMENT][0] < 9.0
    assert len(found[SCORES]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_an_announced_change_is_no_ticket(seed):
    assert tickets(JudgedWorld(changed=3.0, versions=("1", "2"), seed=seed)) == {}


def quiet(seed):
    """A world in which nothing changes; in every other one the truth follows the time of day."""
    swing = 0.05 * (seed % 2)
    return JudgedWorld(answers=2_000, truth=lambda day: 0.8 + swing * sin(tau * day), seed=100 + seed)


@pytest.mark.slow
def test_fourteen_quiet_worlds_of_fourteen_days_have_no_ticket():
    assert [tickets(quiet(seed)) for seed in range(14)] == [{}] * 14


def test_a_judge_that_changed_is_compared_with_what_it_was_until_that_is_undone():
    """Twenty days later too: its reference learns no score that differs from it."""
    monitor, changes, n = JudgeMonitor(metric=JUDGE), [], 1_000
    days = [900_000] * 2 + [600_000] * 20 + [900_000]
    for hour, score in enumerate(score for score in days for _ in range(24)):
        if monitor.step(60 * (hour + 1), {"": [n, n * score, n * score * score]}):
            changes.append(hour // 24)
        assert monitor.shift() is None or monitor.shift().before == pytest.approx(0.9)
    assert changes == [2, 22]


def test_any_number_of_scores_can_be_saved_and_is_compared():
    """Two million a minute: the sum of their squares outgrows a number of 64 bits within the hour."""
    monitor, changes = JudgeMonitor(metric=JUDGE), []
    for minute in range(1, 31 * 60):
        score = 900_000 if minute < 28 * 60 else 500_000
        n = 2_000_000
        if monitor.step(minute, {"": [n, n * score, n * score * score]}):
            changes.append(minute // 60)
        if minute % 60 == 0:
            monitor = saved(monitor)
    assert changes == [30]
