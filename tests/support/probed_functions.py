"""Functions that tests probe by name."""

from __future__ import annotations

import asyncio
import threading

import ragmon
from tests.support.waiting import TIMEOUT

HELD = threading.Event()
LET_GO = threading.Event()


def plain(question):
    ragmon.record(retrieved=["d1", "d2"], index_hash="i1")
    with ragmon.stage("retrieve"):
        pass
    return {"answer": question.upper(), "citations": ["d1"]}


def retrieving(question):
    """Answers with a text that was retrieved."""
    return {"answer": "It is good.", "citations": ["d1"], "retrieved": [{"id": "d1", "text": "It is good."}]}


async def later(question):
    await asyncio.sleep(0)
    return plain(question)


async def same_loop(question):
    return {"answer": str(id(asyncio.get_running_loop())), "citations": []}


def streamed(question):
    ragmon.record(retrieved=["d1"])
    yield from ("in ", "parts")


async def streamed_later(question):
    ragmon.record(retrieved=["d1"])
    for part in ("in ", "parts"):
        await asyncio.sleep(0)
        yield part


@ragmon.trace(name="elsewhere", extract={"claim": "deep.text", "retrieved": "deep.found"})
def traced(question):
    return {"deep": {"text": "from below", "found": ["d7"]}, "answer": "not this"}


def breaks(question):
    raise LookupError(question)


class PanicException(BaseException):
    """What extensions written in Rust raise."""


def panics(question):
    raise PanicException(question)


def too_slow_itself(question):
    raise TimeoutError("the model did not answer")


def holds(question):
    """Does not return before it is let go."""
    HELD.set()
    LET_GO.wait(TIMEOUT)
    return "too late"


async def sleeps(question):
    await asyncio.sleep(60)


def installs(question):
    """What some applications do on their first request."""
    ragmon.install(sink=ragmon.testing.Collected())
    return plain(question)


class Callable:
    def __call__(self, question):
        return plain(question)

    def method(self, question):
        return plain(question)


instance = Callable()
