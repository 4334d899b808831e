"""What an application can do to its tracer: the application notices nothing, and nothing is lost uncounted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import ragmon
from ragmon.capture import call as outcomes
from ragmon.capture.convert import call_to_record
from ragmon.capture.worker import Worker
from ragmon.config.load import defaults
from ragmon.monitor.install import Installation
from ragmon.testing import Collected, capture_traces
from tests.support.capturing import BrokenError, Gate, capturing, raises, returns
from tests.support.waiting import TIMEOUT


class Bomb:
    """Raises whatever it is asked."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


CYCLE: dict[str, object] = {"answer": "an answer", "documents": [{"id": "d1"}]}
CYCLE["self"] = CYCLE
NONSENSE = {
    "object": object,
    "bomb": Bomb,
    "cycle": lambda: CYCLE,
    "dict of numbers": lambda: {1: 2},
    "dict of dicts of a cycle": lambda: {"answer": {"claim": CYCLE}},
    "function": lambda: NONSENSE.items,
    "nan": lambda: float("nan"),
    "bytes": lambda: b"\xff",
    "set in a dict": lambda: {"answer": {1}},
}


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("name", NONSENSE)
def test_whatever_is_returned_arrives_and_is_counted(name, rate):
    result = NONSENSE[name]()
    with capturing(rate, keep={"refusal": 1.0, "slow": 1.0}, slow_above=60.0) as (found, kept):
        assert ragmon.trace(lambda question: result)("q") is result
    assert sum(found.totals().values()) == 1
    assert len(kept) == rate


def test_a_result_may_be_changed_by_its_caller_at_once():
    """What lies inside it may be changed once the worker has looked at it, some milliseconds later."""
    with capturing() as (_, kept):
        result = ragmon.trace(returns({"answer": "mine", "citations": ["d1"], "documents": [{"id": "d1"}]}))("q")
    result["answer"] = "changed"
    result.pop("citations")
    result["documents"] = []
    record = call_to_record(kept[0])
    assert (record.answer_json.claim, record.answer_json.citations, record.retrieved_ids) == ("mine", ["d1"], ["d1"])


@pytest.mark.parametrize(
    "result",
    ["x" * 50_000_000, {"answer": "x" * 50_000_000}, {"documents": [{"id": "d"}] * 50_000}],
    ids=["text", "a field", "documents"],
)
def test_huge_results_are_held_up_to_a_bound_and_then_dropped_and_counted(result):
    """One of 50 MB fits the 64 MB a queue may keep alive, two do not."""
    gate = Gate()
    worker = Worker(call_to_record, gate)
    with capturing() as (_, kept):
        for _ in range(3):
            ragmon.trace(lambda question: result)("q")
    for call in kept:
        worker.submit(call)
    assert worker.counts().dropped == {"queue_full": 2}
    gate.opened.set()
    worker.start()
    assert worker.stop(30)
    assert worker.counts() == (3, 1, {"queue_full": 2}, 0)


def test_the_bound_is_given_back_with_every_record_delivered():
    sink = Collected()
    worker = Worker(call_to_record, sink, max_bytes=3000)
    worker.start()
    with capturing(1.0) as (found, _):
        found.submit = worker.submit
        for _ in range(50):
            ragmon.trace(lambda question: "x" * 2000)("q")
            assert worker.flush(30)
    assert worker.stop(30)
    assert worker.counts() == (50, 50, {}, 0)


def test_a_recursive_pipeline_is_one_trace_however_deep():
    @ragmon.trace
    def answer(question):
        return {"answer": "end"} if not question else answer(question[1:])

    with capture_traces() as records:
        assert answer("x" * 200) == {"answer": "end"}
    assert len(records) == 1


def test_a_recursion_without_end_raises_what_it_raises_without():
    @ragmon.trace
    def answer(question):
        return answer(question)

    with capturing(0.0) as (found, _), pytest.raises(RecursionError):
        answer("q")
    assert found.errors() == {("default", "RecursionError"): 1}
    with capturing(0.0) as (found, _):
        ragmon.trace(lambda question: question)("q")
    assert sum(found.totals().values()) == 1, "nothing of it is left in this thread"


def test_sixty_four_threads_lose_nothing():
    sink = Collected()
    installed = Installation(defaults(), sink, keep_all=True)
    before = installed.start()
    barrier = threading.Barrier(64)

    @ragmon.trace
    def answer(question):
        return question

    def ask(name):
        barrier.wait(timeout=TIMEOUT)
        for n in range(50):
            answer(f"{name} {n}")

    try:
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(ask, range(64)))
        assert installed.flush(60)
    finally:
        installed.shutdown(60)
        ragmon.capture.call.install_runtime(before)
    books = installed.counters()
    assert (books.received, books.residual) == (3200, 0)
    assert books.scored + sum(books.dropped.values()) == 3200
    assert len(sink.records) == books.scored


@pytest.mark.slow
def test_ten_thousand_tasks_at_once_keep_their_calls_apart():
    @ragmon.trace
    async def answer(question):
        ragmon.record(retrieved=[question])
        await asyncio.sleep(0)
        return {"claim": question}

    async def main():
        await asyncio.gather(*(answer(str(n)) for n in range(10_000)))

    with capturing() as (found, kept):
        asyncio.run(main())
    assert sum(found.totals().values()) == len(kept) == 10_000
    assert all(record.retrieved_ids == [record.answer_json.claim] for record in map(call_to_record, kept))


def test_a_clock_that_is_set_back_makes_no_negative_durations(monkeypatch):
    """Durations are read off a clock nobody can set; only the moment of the call is the wall's."""
    moments = iter([2_000_000_000.0, 1_000_000_000.0])
    monkeypatch.setattr(outcomes, "time", lambda: next(moments))
    with capturing() as (_, kept):
        for _ in range(2):
            ragmon.trace(lambda question: question)("q")
    records = list(map(call_to_record, kept))
    assert [record.ts for record in records] == [2_000_000_000.0, 1_000_000_000.0]
    assert all(0 <= record.latency_ms.total < 10_000 for record in records)


class Hangs:
    """A sink that never comes back."""

    def submit(self, record):
        threading.Event().wait()


def test_a_sink_that_hangs_costs_the_application_nothing_and_shutdown_its_time_limit():
    installed = Installation(defaults(), Hangs(), keep_all=True)
    before = installed.start()

    @ragmon.trace
    def answer(question):
        return question

    for _ in range(5000):
        answer("q")
    started = time.monotonic()
    assert not installed.shutdown(timeout=0.2)
    ragmon.capture.call.install_runtime(before)
    assert time.monotonic() - started < TIMEOUT / 3, "the sink never ends"
    books = installed.counters()
    assert (books.received, books.scored, books.residual) == (5000, 0, 0)
    assert books.dropped.keys() == {"queue_full", "shutdown_timeout", "unconfirmed"}


def test_calls_while_the_interpreter_shuts_down_run_as_without():
    script = """
import atexit, ragmon
from ragmon.testing import Collected
@ragmon.trace(sample=1.0)
def answer(question):
    return question
class Late:
    def __del__(self):
        print(answer("very late"))
late = Late()
atexit.register(lambda: print(answer("late")))
ragmon.install(sink=Collected())
atexit.register(lambda: print(answer("before")))
print(answer("in time"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (
        0,
        ["in time", "before", "late", "very late", ""],
        "",
    )


class Colliding:
    """A key that lands where `claim` lands, and cannot be compared."""

    def __hash__(self):
        return hash("claim")

    def __eq__(self, other):
        raise BrokenError


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_result_that_cannot_even_be_looked_at_arrives(rate):
    result = {Colliding(): "an answer"}
    with capturing(rate, keep={"refusal": 1.0}):
        assert ragmon.trace(lambda question: result)("q") is result


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_very_exception_arrives_also_where_counting_it_fails(rate, monkeypatch):
    def broken(*_):
        raise MemoryError

    monkeypatch.setattr(ragmon.capture.call.CallCounters, "count_error", broken)
    with capturing(rate), pytest.raises(BrokenError) as caught:
        ragmon.trace(raises(BrokenError("q")))("q")
    assert caught.value.__context__ is None
