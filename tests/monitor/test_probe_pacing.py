"""When questions are due: evenly, unpredictably, within the day, and not while nobody can answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.quota import DailyQuota
from ragmon.core.record import Answer, Latency, Record
from ragmon.monitor.probes.client import CacheHitDetector
from ragmon.monitor.probes.prober import (
    DAY,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    RESERVE,
    BackOff,
    JitteredSchedule,
    QuestionBudget,
    interval,
)

NOON = 1_763_726_400.0


class TestInterval:
    def test_a_round_takes_the_time_that_is_configured(self):
        assert interval(60, 3600.0, 2000, reserve=False) == 60.0

    @given(st.integers(1, 5000), st.floats(1, 1e6), st.integers(1, 10**6), st.booleans())
    def test_a_day_of_rounds_is_within_the_days_budget_and_leaves_what_looks_need(self, items, every, most, reserve):
        sent = DAY / interval(items, every, most, reserve=reserve)
        assert sent <= most * (1 - RESERVE * reserve) * (1 + 1e-9)
        assert interval(items, every, most, reserve=reserve) >= every / items


class TestPace:
    @given(st.integers(0, 10**6), st.floats(0.01, 1000))
    def test_every_turn_has_one_question_at_a_moment_of_its_own(self, seed, turn):
        schedule = JitteredSchedule(turn, NOON, random.Random(seed).random)
        for number in range(50):
            assert NOON + number * turn - 1e-6 <= schedule.due <= NOON + (number + 1) * turn + 1e-6
            assert schedule.missed(schedule.due) == 0
            schedule.take()

    def test_the_moments_are_spread_over_the_turn(self):
        schedule, moments = JitteredSchedule(10.0, 0.0, random.Random(1).random), []
        for number in range(1000):
            moments.append(schedule.due - 10 * number)
            schedule.take()
        for low in (0.0, 2.5, 5.0, 7.5):
            assert 200 < sum(low <= moment < low + 2.5 for moment in moments) < 300

    def test_what_was_missed_is_counted_and_not_made_up_for(self):
        schedule = JitteredSchedule(10.0, 0.0, lambda: 0.5)
        assert [(schedule.missed(at), schedule.due) for at in (0.0, 5.0, 14.9, 75.0, 75.0)] == [
            *[(0, 5.0)] * 3,
            (7, 75.0),
            (0, 75.0),
        ]
        schedule.take()
        assert schedule.due == 85.0


class TestBudget:
    def test_it_is_of_a_utc_day(self):
        budget, midnight = QuestionBudget(2), NOON + DAY / 2
        for _ in range(2):
            budget.spend(NOON)
        assert [budget.left(at) for at in (NOON, midnight - 1, midnight, midnight + 1)] == [0, 0, 2, 2]
        budget.spend(midnight)
        assert budget.left(midnight + 5) == 1

    def test_a_process_that_ends_leaves_what_it_sent_to_the_next_and_the_day_ends_all_the_same(self, tmp_path):
        for left in (5, 3):
            budget = QuestionBudget(5, DailyQuota(tmp_path, "probe"))
            assert budget.left(NOON) == left
            budget.spend(NOON)
            budget.spend(NOON)
        assert budget.left(NOON) == 1
        assert budget.left(NOON + DAY) == 5
        assert budget.left(NOON + 2 * DAY) == 5
        assert not list(tmp_path.iterdir()), "yesterday's file stays a day, the one before it does not"

    def test_processes_that_send_at_once_share_it(self, tmp_path):
        one, other = QuestionBudget(3, DailyQuota(tmp_path, "probe")), QuestionBudget(3, DailyQuota(tmp_path, "probe"))
        assert (one.left(NOON), other.left(NOON)) == (3, 3)
        one.spend(NOON)
        other.spend(NOON)
        assert (one.left(NOON), other.left(NOON)) == (2, 1)

    def test_where_nothing_can_be_written_the_process_counts_for_itself(self, tmp_path):
        budget = QuestionBudget(3, DailyQuota(tmp_path / "gone", "probe"))
        budget.spend(NOON)
        assert budget.left(NOON) == 2

    def test_a_clock_put_back_over_midnight_begins_no_new_day(self):
        budget, midnight = QuestionBudget(1), NOON + DAY / 2
        budget.spend(midnight)
        assert [budget.left(at) for at in (midnight - 1, midnight + 1, midnight + DAY)] == [0, 0, 1]


class TestBackOff:
    def test_pauses_double_up_to_five_minutes(self):
        back_off, pauses = BackOff(lambda: 1.0), []
        for _ in range(12):
            back_off.until = 0.0
            back_off.failed(100.0)
            pauses.append(back_off.until - 100.0)
        assert pauses == [min(LONGEST_PAUSE, FIRST_PAUSE * 2**n) for n in range(12)]

    def test_they_are_never_the_same_for_all(self):
        back_off = BackOff(random.Random(1).random)
        back_off.failed(0.0)
        assert 0.5 <= back_off.until < 1.0

    def test_an_answer_ends_them(self):
        back_off = BackOff(lambda: 1.0)
        for _ in range(5):
            back_off.failed(0.0)
        back_off.worked()
        back_off.failed(100.0)
        assert back_off.until == 101.0

    @pytest.mark.parametrize(("asked", "pause"), [(0.0, 1.0), (30.0, 30.0), (1e9, LONGEST_WAIT)])
    def test_an_application_is_left_alone_as_long_as_it_asks_for_within_an_hour(self, asked, pause):
        back_off = BackOff(lambda: 1.0)
        back_off.failed(0.0, asked)
        assert back_off.until == pause


def answered(qid, ms, claim="yes"):
    return Record(qid=qid, answer_json=Answer(claim, ["d1"]), latency_ms=Latency(total=ms))


class TestCached:
    def first(self, **slow):
        """A round of answers that were made, in 900 ms where nothing else is said."""
        cached = CacheHitDetector()
        for qid in "abcdefg":
            assert not cached.see(answered(qid, slow.get(qid, 900.0)))
        return cached

    def test_the_same_words_in_no_time_were_kept(self):
        cached = self.first()
        assert [cached.see(answered(qid, 5.0)) for qid in "abcdefg"] == [True] * 7
        assert cached.see(answered("a", 6.0)), "what was kept is no measure of what is made"

    def test_other_words_were_made(self):
        assert not self.first().see(answered("a", 5.0, "no"))

    def test_a_question_that_is_always_answered_at_once_is_not_suspected(self):
        assert not self.first(a=12.0).see(answered("a", 2.0))

    def test_nor_is_what_follows_a_slow_start(self):
        assert not self.first(a=9000.0).see(answered("a", 700.0))

    def test_nor_is_an_application_that_takes_less_than_a_cache_could_save(self):
        cached = CacheHitDetector()
        for qid in "abcdefg":
            cached.see(answered(qid, 40.0))
        assert not cached.see(answered("a", 0.5))

    def test_nor_is_anything_before_it_is_known_how_long_answers_take(self):
        cached = CacheHitDetector()
        cached.see(answered("a", 900.0))
        assert not cached.see(answered("a", 5.0))

    def test_errors_tell_nothing(self):
        assert not self.first().see(Record(qid="a", error="TimeoutError", latency_ms=Latency(total=1.0)))
