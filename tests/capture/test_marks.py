"""The mark of a running call ends with it, and each call is counted once, whatever happens to it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragmon
from ragmon.capture import call as running
from ragmon.capture.call import WAITING
from ragmon.capture.trace import probe
from ragmon.capture.worker import Timings
from tests.support.capturing import BrokenError, capturing

RESULTS = [
    "an answer that is not a refusal at all",
    "not in context",
    {"answer": "Not in context"},
    {"answer": None, "answer_json": {"claim": "an answer that is long enough"}},
    ["a", "list"],
    7,
    None,
]


def do(step):
    """One step of a program: how it ends, and what it does inside."""
    result, inner, ends, looks = step
    if looks:
        ragmon.record(candidates=["d1"])
        if (carried := ragmon.propagate(sync))(("inside", [], "returns", False)) != "inside":
            raise AssertionError(carried)
    for part in inner:
        run(part)
    if ends == "raises":
        raise BrokenError
    if ends == "cancelled":
        raise asyncio.CancelledError
    return iter([result]) if ends == "streams" else result


@ragmon.trace
def sync(step):
    return do(step)


@ragmon.trace
async def awaits(step):
    return do(step)


@ragmon.trace
def generates(step):
    yield do(step)


@ragmon.trace
async def generates_async(step):
    yield do(step)


async def _collected(step):
    return [item async for item in generates_async(step)]


def driven(coroutine):
    """What a coroutine that never waits returns, without a loop, so that it can run inside another."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError


WAYS = {
    "sync": sync,
    "async": lambda step: driven(awaits(step)),
    "generator": lambda step: list(generates(step)),
    "async generator": lambda step: driven(_collected(step)),
}


def run(part):
    """One call of a program; what it raises ends there."""
    way, step = part
    try:
        found = WAYS[way](step)
        if step[2] == "streams" and way in {"sync", "async"}:
            list(found)
    except (BrokenError, asyncio.CancelledError):
        pass


def calls(inner):
    ends = st.sampled_from(["returns", "returns", "raises", "cancelled", "streams"])
    step = st.tuples(st.sampled_from(RESULTS), inner, ends, st.booleans())
    return st.tuples(st.sampled_from(list(WAYS)), step)


leaves = calls(st.just([]))
nested = calls(st.lists(calls(st.lists(leaves, max_size=2)), max_size=2))
programs = st.lists(st.one_of(leaves, nested), max_size=6)
TERMS = [
    {"time_all": False},
    {},
    {"keep": {"refusal": 1.0, "error": 1.0}},
    {"keep": {"slow": 1.0, "refusal": 1.0}, "slow_above": -1.0},
    {"keep": {"refusal": 1.0}, "refuses": lambda text: "long" in text},
    {"keep": {"refusal": 1.0}, "detail": True},
]


@settings(deadline=None)
@given(programs, st.sampled_from([0.0, 1.0]), st.sampled_from(TERMS))
def test_each_outermost_call_of_a_program_is_counted_once_and_leaves_no_mark(program, rate, terms):
    with capturing(rate, **terms) as (found, kept):
        for part in program:
            run(part)
            assert running.running_call() is None
        assert sum(found.totals().values()) == len(program)
        assert len(kept) == len(program) if rate else len(kept) <= len(program)


def test_every_call_of_threads_that_end_is_counted():
    """Their marks and objects go with them; their counts do not."""
    with capturing(0.0) as (found, _):
        for _ in range(4):
            threads = [
                threading.Thread(target=lambda: [run(("sync", ("x", [], "returns", False))) for _ in range(500)])
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sum(found.totals().values()) == 10_000
        assert sum(sum(values.values()) for values in Timings().read(found).values()) == 10_000


class Interrupt(BaseException):
    """What the handler of a signal raises."""


@contextmanager
def alarm():
    """Gives a function that makes the next timer raise `Interrupt`, wherever Python is then, or (False) nothing."""
    armed = False

    def ring(*_):
        nonlocal armed
        if armed:
            armed = False
            raise Interrupt

    def arm(on):
        nonlocal armed
        armed = on

    before = signal.signal(signal.SIGALRM, ring)
    gc.disable()  # a signal within somebody's callback of the collector is nobody's to handle
    try:
        yield arm
    finally:
        arm(False)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # where it rings just before
@pytest.mark.parametrize("terms", [{}, {"keep": {"slow": 1.0}, "slow_above": 60.0}], ids=["timed", "strata"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_signal_at_any_moment_leaves_no_mark_and_every_call_counted_once(is_async, terms):
    """A mark that stayed would hide all later calls of the thread. Timers ring at every place of a call in turn."""
    entered = attempts = interrupts = counted = 0

    def plain(question):
        nonlocal entered
        entered += 1
        return question

    async def awaited(question):
        return plain(question)

    traced = ragmon.trace(awaited if is_async else plain)
    with capturing(0.0, **terms) as (found, _), alarm() as arm:
        for turn in range(3000):
            entered = attempts = 0
            try:
                arm(True)
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + turn % 40))
                for _ in range(200):
                    attempts += 1
                    driven(traced("q")) if is_async else traced("q")
                arm(False)
            except Interrupt:
                interrupts += 1
            assert running.running_call() is None
            before, counted = counted, sum(found.totals().values())
            is_cut = entered < attempts  # the last call may have been counted before its function began
            assert counted - before in ({entered, entered + 1} if is_cut else {entered})
    assert interrupts > 100


def test_a_signal_while_an_answer_is_looked_at_comes_through_and_the_call_is_counted_once():
    def refuses(text):
        raise Interrupt(text)

    with capturing(0.0, keep={"refusal": 1.0}, refuses=refuses) as (found, kept):
        with pytest.raises(Interrupt):
            sync(("short", [], "returns", False))
        assert running.running_call() is None
    assert (found.errors(), sum(found.totals().values()), kept) == ({("default", "Interrupt"): 1}, 1, [])


def test_draws_are_independent():
    """Shares of single draws and of pairs lie within six standard deviations."""
    drawn = []
    with capturing(0.5) as (_, kept):
        for _ in range(20_000):
            run(("sync", ("x", [], "returns", False)))
            drawn.append(bool(kept))
            kept.clear()
    pairs = sum(one and other for one, other in pairwise(drawn))
    assert abs(sum(drawn) - 10_000) < 6 * (20_000 * 0.25) ** 0.5
    assert abs(pairs - 5000) < 6 * (20_000 * 0.25) ** 0.5


def test_latencies_that_nobody_reads_push_out_the_oldest_and_their_calls_stay_counted():
    with capturing(0.0) as (found, _):
        for _ in range(WAITING + 5):
            run(("sync", ("x", [], "returns", False)))
        assert sum(found.totals().values()) == WAITING + 5
        ((_, histogram),) = Timings().read(found).items()
        assert sum(histogram.values()) == WAITING


def test_every_call_of_a_probe_is_part_of_it_and_none_after_it():
    with capturing(0.0) as (found, kept):
        with probe("q1"):
            for _ in range(2):
                run(("sync", ("x", [], "returns", False)))
        run(("sync", ("x", [], "returns", False)))
    assert [call.probe for call in kept] == ["q1", "q1"]
    assert found.totals()["default", "live", "rest"] == 1


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_what_consumes_a_stream_is_outside_its_call(rate):
    """Between two items the context is the consumer's."""

    @ragmon.trace
    def answer(question):
        return iter([question, question])

    with capturing(rate) as (found, kept):
        for _ in answer("q"):
            run(("sync", ("x", [], "returns", False)))
    assert sum(found.totals().values()) == 3
    assert len(kept) == 3 * rate


def test_a_task_that_makes_a_stream_is_part_of_its_call_until_the_stream_ends():
    tasks = []

    async def work(queue, ended):
        ragmon.record(candidates=["by task"])
        queue.put_nowait("an item")
        await ended.wait()
        run(("sync", ("background", [], "returns", False)))

    @ragmon.trace
    async def answer(question, ended):
        queue = asyncio.Queue()
        tasks.append(asyncio.create_task(work(queue, ended)))

        async def items():
            yield await queue.get()

        return items()

    async def main():
        ended = asyncio.Event()
        assert [item async for item in await answer("q", ended)] == ["an item"]
        ended.set()
        await tasks[0]

    with capturing() as (found, kept):
        asyncio.run(main())
    assert [call.fields for call in kept] == [{"candidates": [["by task"]]}, None]
    assert sum(found.totals().values()) == 2


FORK = """
import os, sys, ragmon
from ragmon.capture import call as runtime
from ragmon.capture import call as running
from ragmon.monitor import install  # registers what happens after a fork

def draws():
    return [running.random() < 0.5 for _ in range(64)]

@ragmon.trace(name="outer", sample=0.0)
def outer(question):
    ragmon.record(candidates=["d1"]) if question == "looks" else None
    return os.fork()

@ragmon.trace(name="inner", sample=0.5)
def inner(question):
    return question

mother = runtime.Runtime(lambda call: None)
runtime.install_runtime(mother)
for _ in range(3):
    inner("q")
reader, writer = os.pipe()
child = outer(sys.argv[1])
if child == 0:
    within = running.running_call()
    runtime.install_runtime(mother.reset_after_fork())
    for _ in range(5):
        inner("q")
    totals = {key[0]: n for key, n in runtime.current.totals().items() if n}
    os.write(writer, repr((within, totals, draws())).encode())
    os._exit(0)
os.waitpid(child, 0)
within, totals, drawn = eval(os.read(reader, 65536))
mine = {key[0]: n for key, n in mother.totals().items() if n}
print((within, totals, mine, drawn != draws(), running.running_call()))
"""


@pytest.mark.parametrize("question", ["q", "looks"])
def test_a_forked_child_counts_from_zero_and_draws_anew(question):
    """Forked inside a call: that one is its parent's, and what the child does from there on is its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORK, question], check=True, capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == str((None, {"inner": 5}, {"inner": 3, "outer": 1}, True, None))


def test_a_call_that_ends_in_another_thread_than_it_began_is_counted_once():
    """A coroutine may be driven by several threads: its mark is in its context and in no thread."""

    class Pause:
        def __await__(self):
            yield

    @ragmon.trace
    async def answer(question):
        await Pause()
        return question

    with capturing(0.0) as (found, _):
        coroutine = answer("q")
        coroutine.send(None)
        ended = []

        def drive():
            with pytest.raises(StopIteration):
                coroutine.send(None)
            ended.append(True)

        thread = threading.Thread(target=drive)
        thread.start()
        thread.join()
        sync(("x", [], "returns", False))
        assert (ended, sum(found.totals().values())) == ([True], 2)


def test_a_runtime_that_was_taken_away_is_freed():
    with capturing(0.0, keep={"refusal": 1.0}, refuses=lambda text: "long" in text) as (found, _):
        sync(("x", [], "returns", False))
        gone = weakref.ref(found)
        del found
    with capturing(0.0):
        sync(("x", [], "returns", False))
    gc.collect()
    assert gone() is None


def test_another_runtime_takes_over_and_the_first_goes_on_behind_it():
    """Functions find the plan of the runtime that is installed."""
    with capturing(0.0) as (first, _):
        sync(("x", [], "returns", False))
        with capturing(0.0) as (second, _):
            sync(("x", [], "returns", False))
        sync(("x", [], "returns", False))
    assert (sum(first.totals().values()), sum(second.totals().values())) == (2, 1)
