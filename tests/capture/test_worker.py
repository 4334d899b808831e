"""The worker and its sinks: bounded, accountable, and never the application's problem."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import ragmon
from ragmon.capture.call import estimated_bytes
from ragmon.capture.convert import call_to_record
from ragmon.capture.worker import Worker
from ragmon.testing import Collected
from tests.support.capturing import Gate, capturing, pipeline
from tests.support.waiting import TIMEOUT


@pytest.fixture
def calls():
    """Makes finished calls, by their questions."""

    def make(*questions):
        with capturing() as (_, kept):
            for question in questions:
                ragmon.trace(pipeline)(question)
        return kept

    return make


@pytest.fixture
def worker():
    """Makes workers and ends them."""
    made = []

    def make(sink, *, capacity=64, convert=call_to_record, start=True):
        made.append(Worker(convert, sink, capacity))
        if start:
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop(timeout=TIMEOUT)
        assert residual(one) == 0


def residual(worker):
    received, sent, dropped, pending = worker.counts()
    return received - sent - sum(dropped.values()) - pending


def test_everything_arrives_in_order(worker, calls):
    sink = Collected()
    one = worker(sink)
    for call in calls(*"abcdef"):
        one.submit(call)
    assert one.flush(timeout=TIMEOUT)
    assert [record.q for record in sink.records] == list("abcdef")
    assert one.counts() == (6, 6, {}, 0)


def test_a_second_start_changes_nothing(worker, calls):
    sink = Collected()
    one = worker(sink)
    one.start()
    for call in calls(*"abc"):
        one.submit(call)
    assert one.stop(timeout=TIMEOUT)
    assert len(sink.records) == 3


def test_a_full_queue_drops_the_new_call_and_counts_it(worker, calls):
    """Dropping the old one would favour what is recent: an estimate must not depend on when the queue was full."""
    gate = Gate()
    one = worker(gate, capacity=3)
    first, *others = calls(*"abcdefg")
    one.submit(first)
    assert gate.entered.wait(timeout=TIMEOUT)
    for call in others:
        one.submit(call)
    assert one.counts() == (7, 0, {"queue_full": 3}, 4)
    assert residual(one) == 0
    gate.opened.set()
    assert one.flush(timeout=TIMEOUT)
    assert [record.q for record in gate.records] == list("abcd")
    assert one.counts() == (7, 4, {"queue_full": 3}, 0)


def test_flush_gives_up_when_its_time_is_up(worker, calls):
    gate = Gate()
    one = worker(gate)
    (call,) = calls("a")
    one.submit(call)
    assert gate.entered.wait(timeout=TIMEOUT)
    assert not one.flush(timeout=0.01)
    gate.opened.set()
    assert one.flush(timeout=TIMEOUT)


def test_flush_waits_for_what_came_before_it_only(worker, calls):
    """Under steady traffic the queue is never empty."""
    first, second, third = calls(*"abc")
    more = iter([third])

    class Busy(Collected):
        def submit(self, record):
            super().submit(record)
            for call in more:
                one.submit(call)

    one = worker(Busy(), start=False)
    one.submit(first)
    one.submit(second)
    one.start()
    assert one.flush(timeout=TIMEOUT)
    assert one.counts().sent >= 2


def test_without_a_thread_flush_does_not_wait(worker, calls):
    one = worker(Collected(), start=False)
    assert one.flush(timeout=TIMEOUT)
    one.submit(calls("a")[0])
    assert not one.flush(timeout=TIMEOUT)


def test_stop_delivers_what_waits_and_refuses_what_comes_later(worker, calls):
    sink = Collected()
    one = worker(sink)
    *others, late = calls(*"abcd")
    for call in others:
        one.submit(call)
    assert one.stop(timeout=TIMEOUT)
    one.submit(late)
    assert [record.q for record in sink.records] == list("abc")
    assert one.counts() == (4, 3, {"shutdown_timeout": 1}, 0)


def test_stop_gives_up_when_its_time_is_up_and_counts_what_is_lost(worker, calls):
    gate = Gate()
    one = worker(gate)
    first, *others = calls(*"abcd")
    one.submit(first)
    assert gate.entered.wait(timeout=TIMEOUT)
    for call in others:
        one.submit(call)
    assert not one.stop(timeout=0.01)
    counted = (4, 0, {"shutdown_timeout": 3, "unconfirmed": 1}, 0)
    assert one.counts() == counted, "one of them was given to the sink, and nobody knows"
    gate.opened.set()
    assert one.stop(timeout=TIMEOUT)
    assert one.counts() == counted, "what was told at the end stands"


@pytest.mark.parametrize("error", [ValueError, RecursionError, SystemExit, KeyboardInterrupt])
def test_nothing_ends_the_thread(worker, calls, error):
    """An extract= that calls sys.exit would leave a process that looks healthy and records nothing."""

    def convert(call):
        if call.args == ("poison",):
            raise error
        return call_to_record(call)

    sink = Collected()
    one = worker(sink, convert=convert)
    for call in calls("a", "poison", "b"):
        one.submit(call)
    assert one.flush(timeout=TIMEOUT)
    assert [record.q for record in sink.records] == ["a", "b"]
    assert one.counts() == (3, 2, {"invalid_schema": 1}, 0)


def test_a_sink_that_fails_loses_that_record_alone(worker, calls):
    gate = Gate()
    gate.opened.set()
    one = worker(gate)
    for call in calls("a", "poison", "b"):
        one.submit(call)
    assert one.flush(timeout=TIMEOUT)
    assert [record.q for record in gate.records] == ["a", "b"]
    assert one.counts() == (3, 2, {"export_failed": 1}, 0)


def test_the_worker_lets_go_of_what_it_has_delivered(worker):
    """A call holds the application's own objects; idle, the worker must not keep the last of them alive."""

    class Result:
        claim = "yes"

    one = worker(Collected())
    with capturing() as (_, kept):
        alive = weakref.ref(ragmon.trace(lambda question: Result() if question else None)("q"))
    one.submit(kept.pop())
    assert one.flush(timeout=TIMEOUT)
    assert alive() is None


def test_the_books_close_at_every_moment(calls):
    """Eight threads submit, the queue overflows, records fail, and somebody keeps looking."""
    made = calls(*["a", "poison"] * 50)
    done = threading.Event()
    gate = Gate()
    gate.opened.set()
    one = Worker(call_to_record, gate, capacity=20)
    one.start()
    looks = count()

    def watch():
        while not done.is_set():
            assert residual(one) == 0
            next(looks)

    def send(chunk):
        for call in chunk * 20:
            one.submit(call)

    with ThreadPoolExecutor(9) as pool:
        watching = pool.submit(watch)
        list(pool.map(send, [made[n::8] for n in range(8)]))
        done.set()
        watching.result()
    assert one.stop(timeout=TIMEOUT)
    received, sent, dropped, pending = one.counts()
    assert (received, pending) == (len(made) * 20, 0)
    assert sent == len(gate.records)
    assert received == sent + sum(dropped.values())
    assert set(dropped) <= {"queue_full", "export_failed"}
    assert next(looks) > 0


def test_a_list_weighs_what_its_first_entry_says():
    found = [{"id": "a", "text": "x" * 500, "score": 1.0}] * 3
    assert estimated_bytes(["yes", found, "why?"]) == 3 * (1024 + 501) + 3 + 4
