"""The sampler draws, marks and counts calls, and leaves to the wrapper what needs another look."""

from __future__ import annotations

from array import array
from contextvars import ContextVar, copy_context
from itertools import pairwise
from math import inf

import pytest

from ragmon.capture.call import SamplingDecision, UnsampledCall
from ragmon.capture.sampler import WAITING, Sampler, estimated_bytes, weigh

running = ContextVar("running", default=None)
SAMPLED, UNSAMPLED = SamplingDecision(audit=True, p_audit=0.5), SamplingDecision(audit=False, p_audit=0.5)


def made(p_unsampled=1.0, *, mark=None, times=False, slow_above=inf, shortest=0, refuses=None):
    """A sampler."""
    return Sampler(running.get, p_unsampled, SAMPLED, UNSAMPLED, mark, times, slow_above, shortest, refuses)


class ColdKey:
    """A key that looks like `claim` to a dictionary, and cannot be compared."""

    def __hash__(self):
        return hash("claim")

    def __eq__(self, other):
        raise ZeroDivisionError


def is_even(text):
    """Something that may be said of a text; of none, it cannot."""
    return 1 // len(text) + 1 == 2 or len(text) % 2 == 0


def test_a_list_weighs_what_its_first_entry_says():
    found = [{"id": "a", "text": "x" * 500, "score": 1.0}] * 3
    assert weigh({"documents": found, "answer": "yes"}, ("why?",)) == 3 * (1024 + 501) + 3 + 4
    assert weigh(found, ()) == estimated_bytes([found])


def test_a_result_whose_keys_cannot_be_compared_is_left_to_the_wrapper():
    sampler = made(shortest=5, refuses=is_even)
    assert +sampler is True
    assert {ColdKey(): 1} not in sampler
    assert (sampler.calls(), -sampler) == (0, None)


def test_a_sync_call_marks_its_thread_until_it_ends():
    sampler = made()
    assert +sampler is True
    assert +sampler is None, "a call inside"
    assert "an answer" in sampler
    assert +sampler is True
    assert -sampler is None
    assert +sampler is True
    assert "an answer" in sampler
    assert sampler.calls() == 2


def test_an_async_call_marks_its_context():
    sampler = made(mark=running.set)

    def calls():
        call = +sampler
        assert running.get() is call
        assert (call.ended, +sampler) == (False, None)
        assert "an answer" in call
        assert call.ended, "so that the context may begin another"
        second = +sampler
        assert (-second, second.ended, sampler.calls()) == (None, True, 1)
        assert 5 not in +sampler

    copy_context().run(calls)
    assert running.get() is None


@pytest.mark.parametrize("has_ended", [False, True])
def test_inside_a_call_of_the_context_the_wrapper_decides(has_ended):
    sampler = made()
    outer = UnsampledCall()
    outer.ended = has_ended

    def inside():
        running.set(outer)
        return +sampler

    assert copy_context().run(inside) is (True if has_ended else None)
    if has_ended:
        assert "an answer" in sampler


@pytest.mark.parametrize(("context", "answer"), [({}, True), ({"span": 1}, None)])
def test_where_a_tracer_has_something_in_the_context_the_wrapper_decides(context, answer):
    sampler = made()
    sampler.refresh(lambda: context, False)
    assert +sampler is answer
    assert -sampler is None


def test_what_a_check_for_tracers_raises_comes_through():
    """It is asked before anything is marked."""
    sampler = made()
    sampler.refresh(lambda: 1 / 0, False)
    with pytest.raises(ZeroDivisionError):
        +sampler  # noqa: B018 - it begins a call
    sampler.refresh(None, False)
    assert +sampler is True
    assert -sampler is None


def test_a_signal_while_an_answer_is_looked_at_comes_through_and_the_call_is_not_counted():
    def refuses(text):
        raise KeyboardInterrupt(text)

    sampler = made(shortest=9, refuses=refuses)
    assert +sampler is True
    with pytest.raises(KeyboardInterrupt):
        "short" in sampler  # noqa: B015 - it ends a call
    assert (-sampler, sampler.calls()) == (None, 0)


def test_the_draw_gives_the_decision():
    assert +made(0.0) is SAMPLED
    sampler = made()
    sampler.refresh(None, True)
    assert +sampler is UNSAMPLED, "the call is remembered, so that its details are kept"


def test_draws_are_independent():
    """Shares of single draws and of pairs lie within six standard deviations."""
    sampler = made(0.5)
    drawn = []
    for _ in range(20_000):
        drawn.append(+sampler is True)
        -sampler  # noqa: B018 - it ends the call
    pairs = sum(one and other for one, other in pairwise(drawn))
    assert abs(sum(drawn) - 10_000) < 6 * (20_000 * 0.25) ** 0.5
    assert abs(pairs - 5000) < 6 * (20_000 * 0.25) ** 0.5


def test_times_are_seconds_and_a_slow_call_is_not_counted():
    sampler = made(times=True)
    for _ in range(3):
        assert +sampler is True
        assert "an answer" in sampler
    waiting = array("d", sampler.take_seconds())
    assert len(waiting) == 3
    assert all(0 <= seconds < 60 for seconds in waiting)
    assert sampler.take_seconds() == b""
    slow = made(times=True, slow_above=-1.0)
    assert +slow is True
    assert "an answer" not in slow
    assert -slow >= 0.0
    assert (slow.calls(), slow.take_seconds()) == (0, b"")


def test_latencies_that_nobody_reads_push_out_the_oldest():
    sampler = made(times=True)
    for _ in range(WAITING + 5):
        assert +sampler is True
        assert "an answer" in sampler
    assert (sampler.calls(), len(sampler.take_seconds())) == (WAITING + 5, 8 * WAITING)


def test_a_mark_that_cannot_be_set_is_an_error():
    sampler = made(mark=lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        +sampler  # noqa: B018 - as above
