"""When questions are due: evenly, unpredictably, within the day; and which answers a cache gave."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.network import DAY
from ragmon.core.record import Answer, Latency, Record
from ragmon.server.probe_client import CacheHitDetector
from ragmon.server.probes import RESERVE, JitteredSchedule, interval

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
