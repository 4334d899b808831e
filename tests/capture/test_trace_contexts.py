"""One call is one trace: calls inside calls, threads, tasks, and work that outlives the call it began in."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import ragmon
from ragmon.capture.call import outside_calls
from ragmon.testing import capture_traces
from tests.support.capturing import capturing, pipeline
from tests.support.waiting import TIMEOUT

traced = ragmon.trace(pipeline)


@ragmon.trace(sample=1.0)
def inner(question):
    ragmon.record(retrieved=["found inside"])
    return {"answer": f"inner {question}"}


@ragmon.trace
def outer(question):
    return {"answer": f"outer {inner(question)['answer']}"}


def test_traced_calls_inside_a_traced_call_are_one_trace():
    with capture_traces() as records:
        outer("q")
    assert [(r.answer_json.claim, r.retrieved_ids) for r in records] == [("outer inner q", ["found inside"])]


def test_a_call_that_is_not_kept_hides_the_calls_inside_it():
    """Else every sampled-out request would draw again for each of its parts, and count more than once."""
    orphans = outside_calls()
    with capturing(0.0) as (found, kept):
        outer("q")
    assert kept == []
    assert sum(found.totals().values()) == 1
    assert outside_calls() == orphans, "what is said inside it is no orphan"


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_work_that_outlives_a_call_is_no_longer_inside_it(rate):
    """A task inherits the context it was started in; what a lazily started loop calls are calls of their own."""
    tasks = []

    async def later(release):
        await release.wait()
        traced("background")

    @ragmon.trace
    async def answer(question, release):
        tasks.append(asyncio.create_task(later(release)))
        return question

    async def main():
        release = asyncio.Event()
        await answer("q", release)
        release.set()
        await tasks[0]

    with capturing(rate) as (found, kept):
        asyncio.run(main())
    assert sum(found.totals().values()) == 2
    assert len(kept) == 2 * rate


def test_threads_keep_their_calls_apart():
    """Eight calls at once, each waiting for all others in the middle."""
    barrier = threading.Barrier(8)

    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=[f"document {question}"])
        barrier.wait(timeout=TIMEOUT)
        ragmon.record(citations=[f"citation {question}"])
        return question

    with capture_traces() as records, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, "abcdefgh")) == list("abcdefgh")
    assert sorted((r.q, *r.retrieved_ids, *r.answer_json.citations) for r in records) == [
        (q, f"document {q}", f"citation {q}") for q in "abcdefgh"
    ]
    assert len({r.trace_id for r in records}) == 8


def test_gathered_coroutines_keep_their_calls_apart():
    @ragmon.trace
    async def answer(question):
        await asyncio.sleep(0)
        ragmon.record(retrieved=[f"document {question}"])
        await asyncio.sleep(0)
        return question

    async def main():
        return await asyncio.gather(*map(answer, "abcd"))

    with capture_traces() as records:
        assert asyncio.run(main()) == list("abcd")
    assert sorted((r.q, *r.retrieved_ids) for r in records) == [(q, f"document {q}") for q in "abcd"]


def test_tasks_and_threads_of_a_call_belong_to_it_where_they_inherit_its_context():
    async def retrieve():
        ragmon.record(candidates=["by task"])
        await asyncio.to_thread(ragmon.record, candidates=["by thread"])

    @ragmon.trace
    async def answer(question):
        await asyncio.create_task(retrieve())
        return question

    with capture_traces() as records:
        asyncio.run(answer("q"))
    assert [r.candidate_ids for r in records] == [["by task", "by thread"]]


def test_a_call_is_carried_into_a_thread_that_does_not_inherit_it():
    """Executors and plain threads start with an empty context."""

    def search(name):
        ragmon.record(candidates=[name])
        return inner(name)["answer"]

    @ragmon.trace
    def answer(question):
        with ThreadPoolExecutor(2) as pool:
            return " ".join(pool.map(ragmon.propagate(search), ["a", "b"]))

    with capture_traces() as records:
        assert answer("q") == "inner a inner b"
    (record,) = records
    assert sorted(record.candidate_ids) == ["a", "b"]
    assert record.retrieved_ids == ["found inside"]


def test_a_call_that_is_not_kept_is_carried_as_well():
    orphans = outside_calls()

    @ragmon.trace
    def answer(question):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(ragmon.propagate(inner), question).result()

    with capturing(0.0) as (found, kept):
        answer("q")
    assert (sum(found.totals().values()), kept, outside_calls()) == (1, [], orphans)


def test_carried_into_work_that_outlives_it_a_call_is_over():
    started = threading.Event()

    @ragmon.trace
    def answer(question):
        return threading.Thread(target=ragmon.propagate(later))

    def later():
        started.wait(timeout=TIMEOUT)
        traced("background")

    with capture_traces() as records:
        thread = answer("q")
        thread.start()
        started.set()
        thread.join()
    assert sorted(r.q for r in records) == ["background", "q"]


def test_outside_a_call_there_is_nothing_to_carry():
    assert ragmon.propagate(pipeline) is pipeline
