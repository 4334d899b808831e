"""However large, deep or endless what a call was given or gave: little work in ragmon's thread, and then a record."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict, deque
from types import MappingProxyType, SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest

import ragmon
from ragmon.capture.convert import call_to_record
from ragmon.capture.objects import TOO_LARGE, unread
from ragmon.testing import Collected, defaults
from tests.support.capturing import capturing

NAMES = ("answer_json", "answer", "response", "result", "output", "data", "claim", "text", "content", "messages")
LIMIT = 0.010
"""Seconds of processor time of one record; the least of several trials, as the machine has other work to do."""


def loop():
    """A list that contains itself."""
    entries = []
    entries.append(entries)
    return entries


def ring():
    """A dictionary that is each of its own fields."""
    fields = {}
    fields.update(dict.fromkeys(NAMES, fields))
    return fields


def own_field():
    value = SimpleNamespace()
    value.answer = value.documents = value
    return value


def tree(depth):
    return {} if not depth else {name: tree(depth - 1) for name in NAMES}


def nested(depth, wrap):
    value = "yes"
    for _ in range(depth):
        value = wrap(value)
    return value


class AnyName:
    """Answers every name with another object of its kind."""

    def __getattr__(self, name):
        return AnyName()


WIDE = [[["word"] * 256] * 256] * 256
MESSAGES = [{"role": "assistant", "content": [{"text": ""}] * 256}] * 256
RESULTS = {
    "a list that contains itself": lambda: {"choices": loop()},
    "the same as an answer": lambda: {"answer": loop()},
    "the same as all of it": loop,
    "the same as documents": lambda: {"answer": "yes", "documents": loop(), "citations": loop(), "candidates": loop()},
    "a dictionary that is its own fields": ring,
    "an object that is its own field": own_field,
    "a tree": lambda: tree(4),
    "a tuple of trees": lambda: tuple(itertools.repeat(tree(4), 1000)),
    "deep lists": lambda: {"answer": nested(5000, lambda value: [value])},
    "deep dictionaries": lambda: nested(5000, lambda value: {"answer": value}),
    "deep tuples": lambda: nested(5000, lambda value: (value, 200)),
    "wide lists": lambda: {"answer": WIDE},
    "wide messages": lambda: {"messages": MESSAGES},
    "many parts": lambda: {"answer": ["word"] * 300_000},
    "many citations": lambda: {"answer": "yes", "citations": {str(n) for n in range(100_000)}},
    "many ids": lambda: {"retrieved": ["d1"] * 300_000, "candidates": ["d1"] * 300_000},
    "many sources": lambda: {"answer": "yes", "sources": ["a title"] * 300_000},
    "many components": lambda: {str(n): {"replies": loop(), "answers": loop()} for n in range(32)},
    "many fields": lambda: {str(n): n for n in range(100_000)},
    "a long text": lambda: {"answer": "é" * 5_000_000},
    "a long body of JSON": lambda: {"statusCode": 200, "body": "[" * 900_000},
    "what answers every name": AnyName,
    "the same inside": lambda: {"answer": AnyName(), "documents": AnyName()},
    "a mock": Mock,
    "mocks inside": lambda: {"answer": MagicMock(), "documents": [MagicMock()] * 100},
    "what makes what it lacks": lambda: defaultdict(lambda: defaultdict(dict)),
    "an endless iterator": lambda: {"answer": itertools.repeat("word"), "documents": itertools.count()},
}


def seconds_of(call):
    started = time.thread_time()
    call_to_record(call)
    return time.thread_time() - started


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_and_an_argument_cost_little_whatever_they_hold(name):
    value = RESULTS[name]()
    calls = []
    with capturing() as (_, kept):
        ragmon.trace(lambda question: value)("Is it?")
        ragmon.trace(lambda body, question_text: "yes")(value, "Is it?")
        calls += kept
    for call in calls:
        record = call_to_record(call)
        assert record.answer_json is not None
        assert min(seconds_of(call) for _ in range(5)) < LIMIT
    assert record.answer_json.claim == "yes"


@pytest.mark.parametrize(
    ("result", "field"),
    [
        ({"answer": WIDE, "retrieved": ["d1"]}, "claim"),
        ({**tree(4), "retrieved": ["d1"]}, "claim"),
        ({"answer": "é" * 5_000_000, "retrieved": ["d1"]}, "claim"),
    ],
    ids=["wide", "tree", "text"],
)
def test_a_field_that_costs_too_much_is_unknown_and_counted_and_the_others_stay(result, field):
    unread.clear()
    with capturing() as (_, kept):
        ragmon.trace(lambda question: result)("Is it?")
    record = call_to_record(kept[0])
    assert (record.q, record.answer_json.claim, record.retrieved_ids) == ("Is it?", None, ["d1"])
    assert unread[field, TOO_LARGE] >= 1
    assert unread.keys() == {(field, TOO_LARGE)}


def test_a_long_honest_answer_with_many_documents_is_read_whole():
    documents = [{"id": f"d{n}", "text": "word " * 1_000} for n in range(1_000)]
    answer = "word " * 100_000
    unread.clear()
    with capturing() as (_, kept):
        ragmon.trace(lambda question: {"answer": answer, "documents": documents})("Is it?")
    record = call_to_record(kept[0])
    assert (record.answer_json.claim, len(record.retrieved_ids), len(record.contexts)) == (answer, 1_000, 1_000)
    assert not unread


def test_calls_after_a_hostile_one_become_records_soon():
    """The worker takes one call after the other: one that holds it up would hold up all."""
    sink = Collected()
    installation = ragmon.install(defaults(), sink=sink)
    results = itertools.cycle([{"choices": loop()}, ring(), AnyName(), {"answer": WIDE}, "yes"])
    try:
        answer = ragmon.trace(sample=1.0)(lambda question: next(results))
        for _ in range(100):
            answer("Is it?")
        assert installation.flush(30)
    finally:
        installation.shutdown()
    assert [record.answer_json.claim for record in sink.records] == [None, None, None, None, "yes"] * 20
    assert installation.counters().residual == 0


def test_a_deque_and_a_dictionary_that_go_on_changing_are_read():
    """The application goes on with what it has returned, in another thread."""
    documents, fields = deque(maxlen=500), {}
    ended = threading.Event()

    def change():
        for n in itertools.count():
            documents.append({"id": f"d{n}", "text": "one"})
            fields[f"field {n % 1000}"] = fields.pop(f"field {(n + 500) % 1000}", n)
            if ended.is_set():
                return

    thread = threading.Thread(target=change)
    sink = Collected()
    installation = ragmon.install(defaults(), sink=sink)
    try:
        thread.start()
        answer = ragmon.trace(sample=1.0)(lambda body: {"answer": "yes", "documents": documents, "result": body})
        for _ in range(50):
            answer(MappingProxyType(fields))
        assert installation.flush(30)
    finally:
        ended.set()
        thread.join()
        installation.shutdown()
    assert [record.answer_json.claim for record in sink.records] == ["yes"] * 50
    assert all(record.retrieved_ids for record in sink.records[-10:])
