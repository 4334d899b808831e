"""The sampler of the native core says, marks and counts what the one in plain Python does."""

from __future__ import annotations

from array import array
from contextvars import ContextVar, copy_context
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.capture.call import SamplingDecision, UnsampledCall
from ragmon.capture.sampler import WAITING, PythonSampler, estimated_bytes
from ragmon.native.sampling import sampler_type
from tests.support.native_core import needs_native

pytestmark = needs_native
running = ContextVar("running", default=None)
SAMPLED, UNSAMPLED = SamplingDecision(audit=True, p_audit=0.5), SamplingDecision(audit=False, p_audit=0.5)


def both(p_unsampled=1.0, *, mark=None, times=False, slow_above=inf, shortest=0, refuses=None):
    """A sampler of either kind."""
    told = (running.get, p_unsampled, SAMPLED, UNSAMPLED, mark, times, slow_above, shortest, refuses)
    return PythonSampler(*told), sampler_type()(*told)


@pytest.fixture(params=[0, 1], ids=["python", "native"])
def kind(request):
    """Which of both."""
    return request.param


class Text(str):
    """No plain text: its methods may do anything."""

    __slots__ = ()


class ColdKey:
    """A key that looks like `claim` to a dictionary, and cannot be compared."""

    def __hash__(self):
        return hash("claim")

    def __eq__(self, other):
        raise ZeroDivisionError


texts = st.text(max_size=12)
leaves = st.one_of(
    texts, st.none(), st.integers(), st.binary(max_size=5), texts.map(Text), st.lists(texts, max_size=3), st.just({})
)
answers = st.dictionaries(st.sampled_from(["claim", "answer", "answer_json", "documents"]), leaves, max_size=4)
documents = st.lists(st.one_of(texts, st.dictionaries(texts, leaves, max_size=3), leaves), max_size=4)
results = st.one_of(
    leaves,
    answers,
    st.builds(lambda answer, inner: {**answer, "answer_json": inner}, answers, st.one_of(answers, leaves)),
    st.builds(lambda answer, found: {**answer, "documents": found}, answers, documents),
    documents,
)


def is_even(text):
    """Something that may be said of a text; of none, it cannot."""
    return 1 // len(text) + 1 == 2 or len(text) % 2 == 0


@given(results, st.sampled_from([0, 1, 6]), st.sampled_from([None, is_even]))
def test_both_take_the_same_results_for_usual(result, shortest, refuses):
    python, native = both(shortest=shortest, refuses=refuses)
    assert python.is_usual(result) == native.is_usual(result)
    assert +python is +native is True
    assert (result in python) == (result in native)
    assert (-python, -native, python.calls()) == (None, None, native.calls())


@given(results, st.lists(st.one_of(leaves, documents), max_size=3).map(tuple))
def test_both_estimate_the_same_bytes(result, args):
    python, native = both()
    assert python.weigh(result, args) == native.weigh(result, args)


def test_a_list_weighs_what_its_first_entry_says():
    _, native = both()
    found = [{"id": "a", "text": "x" * 500, "score": 1.0}] * 3
    assert native.weigh({"documents": found, "answer": "yes"}, ("why?",)) == 3 * (1024 + 501) + 3 + 4
    assert native.weigh(found, ()) == estimated_bytes([found])
    with pytest.raises(TypeError, match="a result and a tuple"):
        native.weigh(found, [])


def test_a_result_whose_keys_cannot_be_compared_is_left_to_python(kind):
    sampler = both(shortest=5, refuses=is_even)[kind]
    assert +sampler is True
    assert {ColdKey(): 1} not in sampler
    assert (sampler.calls(), -sampler) == (0, None)


def test_a_sync_call_marks_its_thread_until_it_ends(kind):
    sampler = both()[kind]
    assert +sampler is True
    assert +sampler is None, "a call inside"
    assert "an answer" in sampler
    assert +sampler is True
    assert -sampler is None
    assert +sampler is True
    assert "an answer" in sampler
    assert sampler.calls() == 2


def test_a_call_that_somebody_looked_for_is_not_counted_in_silence():
    _, native = both()
    assert (native.look(), +native, native.look(), "an answer" in native) == (False, True, True, False)
    assert (native.is_busy(), -native, native.is_busy(), native.calls()) == (True, None, False, 0)


def test_an_async_call_marks_its_context(kind):
    sampler = both(mark=running.set)[kind]

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
def test_inside_a_call_of_the_context_python_decides(kind, has_ended):
    sampler = both()[kind]
    outer = UnsampledCall()
    outer.ended = has_ended

    def inside():
        running.set(outer)
        return +sampler

    assert copy_context().run(inside) is (True if has_ended else None)
    if has_ended:
        assert "an answer" in sampler


@pytest.mark.parametrize(("context", "answer"), [({}, True), ({"span": 1}, None)])
def test_where_a_tracer_has_something_in_the_context_python_decides(kind, context, answer):
    sampler = both()[kind]
    sampler.refresh(lambda: context, False)
    assert +sampler is answer
    assert -sampler is None


def test_what_a_check_for_tracers_raises_comes_through(kind):
    """It is asked before anything is marked."""
    sampler = both()[kind]
    sampler.refresh(lambda: 1 / 0, False)
    with pytest.raises(ZeroDivisionError):
        +sampler  # noqa: B018 - it begins a call
    sampler.refresh(None, False)
    assert +sampler is True
    assert -sampler is None
    with pytest.raises(TypeError):
        sampler.refresh()


def test_a_signal_while_an_answer_is_looked_at_comes_through_and_the_call_is_not_counted(kind):
    def refuses(text):
        raise KeyboardInterrupt(text)

    sampler = both(shortest=9, refuses=refuses)[kind]
    assert +sampler is True
    with pytest.raises(KeyboardInterrupt):
        "short" in sampler  # noqa: B015 - it ends a call
    assert (-sampler, sampler.calls()) == (None, 0)


def test_the_draw_gives_the_decision(kind):
    assert +both(0.0)[kind] is SAMPLED
    sampler = both()[kind]
    sampler.refresh(None, True)
    assert +sampler is UNSAMPLED, "the call is remembered, so that its details are kept"


def test_draws_are_independent(kind):
    """Shares of single draws and of pairs lie within six standard deviations."""
    sampler = both(0.5)[kind]
    drawn = []
    for _ in range(20_000):
        drawn.append(+sampler is True)
        -sampler  # noqa: B018 - it ends the call
    pairs = sum(one and other for one, other in pairwise(drawn))
    assert abs(sum(drawn) - 10_000) < 6 * (20_000 * 0.25) ** 0.5
    assert abs(pairs - 5000) < 6 * (20_000 * 0.25) ** 0.5


def test_times_are_seconds_and_a_slow_call_is_not_counted(kind):
    sampler = both(times=True)[kind]
    for _ in range(3):
        assert +sampler is True
        assert "an answer" in sampler
    waiting = array("d", sampler.take_seconds())
    assert len(waiting) == 3
    assert all(0 <= seconds < 60 for seconds in waiting)
    assert sampler.take_seconds() == b""
    slow = both(times=True, slow_above=-1.0)[kind]
    assert +slow is True
    assert "an answer" not in slow
    assert -slow >= 0.0
    assert (slow.calls(), slow.take_seconds()) == (0, b"")


def test_latencies_that_nobody_reads_push_out_the_oldest(kind):
    sampler = both(times=True)[kind]
    for _ in range(WAITING + 5):
        assert +sampler is True
        assert "an answer" in sampler
    assert (sampler.calls(), len(sampler.take_seconds())) == (WAITING + 5, 8 * WAITING)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError):
        sampler_type()(running.get)
    with pytest.raises(TypeError):
        sampler_type().seed("a text")
    with pytest.raises(TypeError, match="cannot create"):
        type(+both(mark=lambda _: None)[1])()


def test_a_mark_that_cannot_be_set_is_an_error(kind):
    sampler = both(mark=lambda _: 1 / 0)[kind]
    with pytest.raises(ZeroDivisionError):
        +sampler  # noqa: B018 - as above


def test_it_holds_no_reference_longer_than_it_lives():
    class Watch(dict):
        """A context that can be referred to weakly."""

    import weakref  # noqa: PLC0415 - this test alone

    watch, call = Watch(), None
    gone = weakref.ref(watch)
    _, native = both(mark=lambda _: None)
    native.refresh(lambda watch=watch: watch, False)
    call = +native
    del watch, native
    assert gone() is not None, "its async call refers to it"
    del call
    assert gone() is None
