"""Streams stay what they were for their consumer, and their call is in place only while a part is made."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import threading

import pytest

import ragmon
from ragmon.capture import streams
from ragmon.testing import capture_traces
from tests.support.capturing import BrokenError, capturing


@ragmon.trace
def words(question):
    """Words of an answer."""
    for word in question.split():
        ragmon.record(citations=[word])
        yield word


@ragmon.trace
async def awords(question):
    for word in question.split():
        await asyncio.sleep(0)
        ragmon.record(citations=[word])
        yield word


def test_traced_generator_functions_are_generator_functions():
    """Frameworks ask: a FastAPI dependency, a pytest fixture, a Gradio handler."""
    assert inspect.isgeneratorfunction(words)
    assert inspect.isasyncgenfunction(awords)
    assert words.__doc__ == "Words of an answer."


def talk(question):
    heard = []
    try:
        while len(heard) < 2:
            try:
                heard.append((yield len(heard)))
            except LookupError as error:
                heard.append(type(error).__name__)
    finally:
        heard.append("closed")
    return heard


def test_send_throw_and_the_return_value_work_as_without():
    def drive(generator):
        said = [next(generator), generator.send("a")]
        with pytest.raises(StopIteration) as stop:
            generator.throw(KeyError("k"))
        return said, stop.value.value

    with capture_traces() as records:
        assert drive(ragmon.trace(talk)("q")) == drive(talk("q")) == ([0, 1], ["a", "KeyError", "closed"])
    assert [r.error for r in records] == [None]


def test_asend_and_athrow_work_as_without():
    async def talk(question):
        heard = yield question
        try:
            yield heard
        except LookupError:
            yield "caught"

    async def drive(generator):
        return [await anext(generator), await generator.asend("a"), await generator.athrow(KeyError("k"))]

    with capture_traces():
        assert asyncio.run(drive(ragmon.trace(talk)("q"))) == asyncio.run(drive(talk("q"))) == ["q", "a", "caught"]


def test_between_two_parts_the_consumer_is_outside_the_call():
    """What it says there is its own: two streams read in turns do not mix, and nothing stays behind."""
    with capture_traces() as records:
        first, second = words("a b"), words("c d")
        for _ in range(2):
            for stream in (first, second):
                next(stream)
                assert ragmon.trace_id() is None
        assert [*first, *second] == []
    assert [(r.answer_json.claim, r.answer_json.citations) for r in records] == [("ab", ["b"]), ("cd", ["d"])]


def test_inside_a_traced_call_a_stream_is_part_of_that_call():
    @ragmon.trace
    def answer(question):
        return {"answer": " ".join(words(question))}

    @ragmon.trace
    async def answer_async(question):
        return {"answer": " ".join([word async for word in awords(question)])}

    with capture_traces() as records:
        answer("a b")
        asyncio.run(answer_async("c d"))
    assert [(r.answer_json.claim, r.answer_json.citations) for r in records] == [("a b", ["b"]), ("c d", ["d"])]


@pytest.mark.parametrize(
    ("items", "told", "claim"),
    [
        ([b"an ", b"answer"], {}, "an answer"),
        ([{"answer": "a"}, {"answer": "an answer"}], {}, "an answer"),
        (["4", "2"], {"reduce": lambda items: {"answer": "-".join(items)}}, "4-2"),
        ([], {}, ""),
    ],
    ids=["bytes are joined", "else the last item counts", "reduce= decides", "an empty stream says nothing"],
)
def test_what_a_stream_says(items, told, claim):
    @ragmon.trace(**told)
    def answer(question):
        yield from items

    with capture_traces() as records:
        assert list(answer("q")) == items
    assert records[0].answer_json.claim == claim


def test_a_reduce_that_raises_costs_the_answer_and_nothing_else():
    @ragmon.trace(reduce=lambda items: items[7])
    def answer(question):
        yield question

    with capture_traces() as records:
        assert list(answer("q")) == ["q"]
    assert [(record.q, record.answer_json.claim) for record in records] == [("q", None)]


def test_an_error_in_the_finally_of_a_stream_is_the_error_of_its_call():
    @ragmon.trace
    def answer(question):
        try:
            yield question
        finally:
            raise BrokenError(question)

    with capture_traces() as records:
        stream = answer("q")
        next(stream)
        with pytest.raises(BrokenError):
            stream.close()
    assert [(r.error, r.ended) for r in records] == [("BrokenError", None)]


def test_a_stream_may_be_closed_in_another_context_and_another_thread():
    """Servers close an abandoned response from wherever they notice."""
    with capture_traces() as records:
        stream = words("a b")
        next(stream)
        contextvars.copy_context().run(stream.close)
        other = words("c d")
        next(other)
        thread = threading.Thread(target=other.close)
        thread.start()
        thread.join()
    assert [r.ended for r in records] == ["abandoned", "abandoned"]


@pytest.mark.slow
def test_a_stream_nobody_holds_any_more_is_abandoned():
    async def main():
        stream = awords("a b")
        await anext(stream)
        del stream
        gc.collect()
        await asyncio.sleep(0)

    with capture_traces() as records:
        next(words("c d"))
        gc.collect()
        asyncio.run(main())
    assert [r.ended for r in records] == ["abandoned", "abandoned"]


class Client:
    """A model client's stream: an iterator, a context manager, with attributes."""

    status = 200

    def __init__(self):
        self._left = iter(["a", "b"])
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def close(self):
        self.closed = True


@pytest.mark.parametrize(("take", "ended"), [(2, None), (1, "abandoned")])
def test_iterators_keep_their_attributes_and_their_context(take, ended):
    with capture_traces() as records:
        with ragmon.trace(lambda question: Client())("q") as stream:
            assert stream.status == 200
            assert [next(stream) for _ in range(take)] == ["a", "b"][:take]
            if ended is None:
                assert list(stream) == []
        assert stream.closed
    assert [r.ended for r in records] == [ended]


def test_a_file_is_no_stream_of_an_answer(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_text("an answer")
    with capture_traces(), ragmon.trace(lambda question: path.open())("q") as file:
        assert file.read() == "an answer"


def test_of_a_stream_too_long_to_hold_the_answer_is_unknown(monkeypatch):
    monkeypatch.setattr(streams, "SIZE", 10)
    with capture_traces() as records:
        assert len(list(words("four more words than fit"))) == 5
    assert [(r.ended, r.partial, r.answer_json, r.error) for r in records] == [("cut", True, None, None)]


@pytest.mark.parametrize("keep", [{}, {"refusal": 1.0, "error": 1.0}])
def test_streams_that_lose_the_draw_are_counted_as_they_end(keep):
    @ragmon.trace
    def answer(question):
        yield question[:5]
        if question == "broken":
            raise BrokenError
        yield question[5:]

    with capturing(0.0, keep=keep) as (found, kept):
        for question in ("not in context", "the answer"):
            list(answer(question))
        with pytest.raises(BrokenError):
            list(answer("broken"))
    totals = {stratum: n for (_, _, stratum), n in found.totals().items() if n}
    refusals = {"refusal": 1, "rest": 1} if keep else {"rest": 2}
    assert totals == {"error": 1, **refusals}
    assert sorted(call.stratum for call in kept) == sorted(set(totals) - {"rest"} if keep else [])
