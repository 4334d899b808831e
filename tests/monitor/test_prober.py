"""A prober that goes on for ever, seen from the application it asks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import contextmanager
from time import monotonic

import pytest

from ragmon.core.network import DailyQuota
from ragmon.gates.incidents import Incident
from ragmon.server.probe_client import GoldQuestion, ProbeCounts
from ragmon.server.probes import BurstTrigger, Prober
from tests.support.probed import asking, web
from tests.support.waiting import TIMEOUT, wait_for

QUESTIONS = [GoldQuestion(place, f"q{place}", f"What is {place}?") for place in range(12)]
FAST = {"every": "50ms", "max_per_day": 10**9}
"""A question every 4 ms."""


class Inbox:
    """Records as they come, which a test can wait for."""

    def __init__(self):
        self.records = []
        self._changed = threading.Condition()

    def __call__(self, record):
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()
        return True

    def wait(self, n):
        """Wait for so many records."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.records) >= n, TIMEOUT), self.records
            return self.records[:n]


@contextmanager
def probing(target, *, clock=lambda: 0.0, questions=QUESTIONS, seed=1, **keys):
    """A prober that runs; gives it, what came back, and its counts."""
    inbox, counts = Inbox(), ProbeCounts()
    with asking(target, **{**FAST, **keys}) as client:
        quota = DailyQuota(client.spec.max_per_day, clock=clock)
        prober = Prober(client.spec, questions, client, inbox, counts=counts, rng=random.Random(seed), quota=quota)
        prober.start()
        try:
            yield prober, inbox, counts
        finally:
            prober.stop()


def results(counts):
    return {result: n for (_, result), n in counts.read().items()}


def yes(_):
    return {"answer": "yes", "citations": []}


def test_every_round_asks_every_question_once_in_an_order_of_its_own():
    with web(yes) as there, probing(there.url, concurrency=1) as (_, inbox, _counts):
        asked = [record.qid for record in inbox.wait(36)]
    rounds = [asked[:12], asked[12:24], asked[24:36]]
    assert all(sorted(one) == sorted(question.qid for question in QUESTIONS) for one in rounds)
    assert len({tuple(one) for one in rounds}) == 3


def test_no_more_questions_are_under_way_than_may_be():
    together = threading.Barrier(3, timeout=TIMEOUT)

    def answer(_):
        together.wait()  # breaks unless three are here at once
        return yes(_)

    with web(answer) as there, probing(there.url, concurrency=3) as (_, inbox, _counts):
        inbox.wait(9)
        together.abort()
    assert there.most == 3


def test_the_days_budget_is_kept_and_the_next_day_it_goes_on():
    now = [86_000.0]
    with web(yes) as there, probing(there.url, clock=lambda: now[0], every="365d", max_per_day=10) as found:
        prober, inbox, counts = found
        prober.burst(0.0)
        inbox.wait(10)
        wait_for(lambda: results(counts).get("skipped") == 2)
        prober.burst(0.0)
        wait_for(lambda: results(counts).get("skipped") == 14)
        assert len(there.asked) == 10
        now[0] += 86_400
        prober.burst(0.0)
        inbox.wait(20)
    assert len(there.asked) == 20


def test_a_burst_larger_than_the_set_asks_each_question_once():
    with web(yes) as there, probing(there.url, every="365d") as (prober, inbox, _):
        assert not there.asked
        assert prober.burst(0.0)
        assert sorted(record.qid for record in inbox.wait(12)) == sorted(question.qid for question in QUESTIONS)
        assert len(there.asked) == 12


def test_a_burst_that_is_under_way_is_not_begun_again():
    opened = threading.Event()
    with (
        web(lambda asked: opened.wait(TIMEOUT) and yes(asked)) as there,
        probing(there.url, every="365d", concurrency=1) as (prober, inbox, _),
    ):
        assert prober.burst(0.0)
        assert not prober.burst(0.0)
        opened.set()
        inbox.wait(12)
        wait_for(lambda: prober.burst(0.0))
        inbox.wait(24)


@pytest.mark.slow
def test_an_application_that_is_down_is_left_alone_and_its_errors_are_records():
    status = [503]
    with (
        web(lambda asked: (status[0], {}, b"") if status[0] != 200 else yes(asked)) as there,
        probing(there.url) as (prober, inbox, counts),
    ):
        assert inbox.wait(1)[0].error == "Http503Error"
        wait_for(lambda: prober._paused_until > monotonic())
        status[0] = 200
        wait_for(lambda: results(counts).get("ok"))
        assert len([record for record in inbox.records if record.error]) < 20
        wait_for(lambda: results(counts).get("skipped"))


@pytest.mark.slow
def test_one_that_asks_to_wait_is_not_asked_before_and_the_question_is_not_lost():
    told = Counter()

    def answer(asked):
        told[asked.question] += 1
        return (429, {"Retry-After": "0.2"}, b"") if told.total() == 1 else yes(asked)

    with web(answer) as there, probing(there.url, concurrency=1) as (_, inbox, counts):
        first = inbox.wait(1)[0]
        moments = there.asked[:2]
    assert moments[0].question == moments[1].question == first.q
    assert results(counts)["throttled"] == 1


@pytest.mark.slow
def test_answers_a_cache_keeps_are_counted_and_are_no_records():
    kept, slow = {}, threading.Event()

    def answer(asked):
        if asked.question not in kept:
            slow.wait(0.4)
            kept[asked.question] = yes(asked)
        return kept[asked.question]

    with web(answer) as there, probing(there.url, every="1ms", concurrency=4) as (_, inbox, counts):
        wait_for(lambda: results(counts).get("cached", 0) >= 24)
        made = len(inbox.records)
        ok = results(counts)["ok"]
    assert made >= 12
    assert abs(ok - made) <= 4


def test_stopping_waits_for_nobody():
    held = threading.Event()
    with web(lambda asked: held.wait(TIMEOUT) and yes(asked)) as there:
        with probing(there.url, concurrency=2, timeout="60s") as (_, inbox, counts):
            wait_for(lambda: len(there.asked) == 2)
            started = monotonic()
        assert monotonic() - started < TIMEOUT / 3
        held.set()
    assert (inbox.records, results(counts)["lost"], "ok" in results(counts)) == ([], 2, False)


def test_an_answer_nobody_can_keep_is_lost_and_does_not_end_the_prober():
    broken = []

    def take(record):
        broken.append(record)
        raise LookupError(record.qid)

    with web(yes) as there, asking(there.url, **FAST) as client:
        counts = ProbeCounts()
        prober = Prober(client.spec, QUESTIONS, client, take, counts=counts)
        prober.start()
        wait_for(lambda: len(broken) >= 2)
        prober.stop()
    assert counts.read().keys() <= {("support", "lost"), ("support", "skipped")}


def test_a_burst_draws_its_questions_at_random_and_spreads_them():
    drawn = []
    for seed in range(2):
        with web(yes) as there, probing(there.url, every="365d", burst=5, seed=seed) as (prober, inbox, counts):
            assert prober.burst(0.5)
            drawn.append([record.qid for record in inbox.wait(5)])
            assert len(there.asked) == 5
            assert counts.read_bursts() == {"support": 1}
    assert sorted(drawn[0]) != sorted(drawn[1])


def test_a_day_has_as_many_bursts_as_it_may_have():
    with web(yes) as there, probing(there.url, every="365d", burst=2, bursts_per_day=2) as (prober, inbox, counts):
        for total in (2, 4):
            assert prober.burst(0.0)
            inbox.wait(total)
            wait_for(lambda: not prober._burst)
        assert not prober.burst(0.0)
        assert counts.read_bursts() == {"support": 2}


class TestBursts:
    def incident(self, name="support-1", **changed):
        return Incident(name, name.partition("-")[0], 0.0, "coverage:look", **changed)

    def test_a_suspected_incident_asks_at_once_and_twice_more_whether_it_is_true(self):
        trigger, incidents = BurstTrigger(), [self.incident()]
        assert [now for now in range(10_000) if trigger.see(incidents, float(now))] == [0, 90, 240]

    def test_a_confirmed_one_asks_later_and_once_more_whether_it_is_over(self):
        trigger, incidents = BurstTrigger(), [self.incident(severity="confirmed")]
        assert [now for now in range(10_000) if trigger.see(incidents, float(now))] == [900, 3600]

    def test_what_only_takes_longer_asks_for_nothing(self):
        assert BurstTrigger().see([self.incident(metrics=("latency",))], 0.0) == set()

    def test_every_incident_asks_for_itself_and_its_own_pipeline(self):
        trigger = BurstTrigger()
        assert trigger.see([self.incident()], 0.0) == {"support"}
        more = [self.incident(), self.incident("support-2"), self.incident("sales-1")]
        assert trigger.see(more, 1.0) == {"support", "sales"}

    def test_what_is_over_asks_for_nothing(self):
        assert BurstTrigger().see([self.incident(ended=1.0)], 0.0) == set()
