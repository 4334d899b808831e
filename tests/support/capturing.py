"""What tests of capture share: small pipelines, and a runtime without a worker behind it."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import ragmon
from ragmon.capture import call
from ragmon.capture.call import CaptureSettings, Runtime, install_runtime
from ragmon.capture.convert import call_to_record
from tests.support.waiting import TIMEOUT


class BrokenError(LookupError):
    pass


class Gate:
    """A sink that holds every record until it is opened; a record called `poison` breaks it."""

    def __init__(self):
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.records = []

    def submit(self, record):
        self.entered.set()
        self.opened.wait(timeout=TIMEOUT)
        if record.q == "poison":
            raise BrokenError(record.q)
        self.records.append(record)


def pipeline(question: str, *rest: int, deep: bool = False, **more: object) -> dict[str, object]:
    """Answer a question."""
    if question == "raise":
        raise BrokenError(question)
    return {"answer": question, "rest": rest, "deep": deep, "more": more}


def returns(result):
    """A pipeline that answers everything alike."""

    def answer(question):
        assert question is not None
        return result

    return answer


def raises(error):
    """A pipeline that always fails alike."""

    def answer(question):
        assert question is not None
        raise error

    return answer


@contextmanager
def capturing(rate=1.0, **terms):
    """A runtime that keeps a share of all calls; gives it, and the list of the calls it kept."""
    kept = []
    found = Runtime(kept.append, settings=lambda _: CaptureSettings(rate=rate, **terms))
    before = install_runtime(found)
    try:
        yield found, kept
    finally:
        install_runtime(before)


def seed_draws(seed):
    """Make the draws of this process repeatable."""
    call._generator.seed(seed)


def record_of(result, **told):
    """The record of a call with this result."""

    @ragmon.trace(**told)
    def answer(question):
        assert question
        return result

    with capturing() as (_, kept):
        answer("q")
    return call_to_record(kept[0])


def found(result, **told):
    """Claim, citations, ids and texts that are found in a result."""
    record = record_of(result, **told)
    return record.answer_json.claim, record.answer_json.citations, record.retrieved_ids, record.contexts
