"""`ragmon.record`, `ragmon.stage` and `ragmon.trace_id`: what code inside a call says of it."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture.call import Call, SamplingDecision, TracedFunction, outside_calls
from ragmon.capture.convert import call_to_record
from ragmon.core import errors
from ragmon.testing import capture_traces
from tests.support.capturing import capturing


def said(say):
    """The record of a call inside which something is said."""

    @ragmon.trace
    def answer(question):
        say()
        return {"answer": question, "citations": ["from the result"]}

    with capture_traces() as records:
        answer("q")
    (record,) = records
    return record


def test_everything_that_can_be_said_stands_on_the_record():
    record = said(
        lambda: ragmon.record(
            qid="q7",
            question="as the user put it",
            retrieved=[{"id": "d1", "text": "one", "score": 0.5}, {"id": "d2", "text": "two", "score": 0.25}],
            candidates=["d3", "d1", "d2"],
            claim="as it was shown",
            citations=["d1"],
            index_hash="i1",
            build="b1",
            session="s1",
            tags={"lang": "de", "beta": True, "turn": 3, "nothing": None},
        )
    )
    assert (record.qid, record.q) == ("q7", "as the user put it")
    assert (record.retrieved_ids, record.contexts, record.scores) == (["d1", "d2"], ["one", "two"], [0.5, 0.25])
    assert record.candidate_ids == ["d3", "d1", "d2"]
    assert (record.answer_json.claim, record.answer_json.citations) == ("as it was shown", ["d1"])
    assert (record.index_hash, record.build, record.session) == ("i1", "b1", "s1")
    assert record.tags == {"lang": "de", "beta": "true", "turn": "3"}


def test_what_is_not_said_comes_from_the_call_and_its_result():
    record = said(lambda: ragmon.record(index_hash="i1"))
    assert (record.q, record.answer_json.claim, record.answer_json.citations) == ("q", "q", ["from the result"])
    assert record.retrieved_ids is record.candidate_ids is record.tags is None


def test_a_field_given_again_replaces_and_candidates_accumulate():
    def say():
        ragmon.record(retrieved=["a"], candidates=["a"], build="b1")
        ragmon.record(retrieved=["b"], candidates=("b", "c"))
        ragmon.record(build="b2")

    record = said(say)
    assert (record.retrieved_ids, record.candidate_ids, record.build) == (["b"], ["a", "b", "c"], "b2")


def test_what_the_application_changes_afterwards_stays_as_it_was_said():
    def say():
        found, tags = ["a"], {"lang": "de"}
        ragmon.record(retrieved=found, candidates=found, tags=tags)
        found.append("b")
        tags["lang"] = "en"

    record = said(say)
    assert (record.retrieved_ids, record.candidate_ids, record.tags) == (["a"], ["a"], {"lang": "de"})


@pytest.mark.parametrize("shape", ["dict", "list"])
def test_a_caller_that_changes_its_result_does_not_change_the_record(shape):
    """The worker looks at the result later, when the caller has long gone on with it."""
    extract = {"claim": "answer"} if shape == "dict" else {"claim": "[0]"}

    @ragmon.trace(extract=extract)
    def answer(question):
        return {"answer": question} if shape == "dict" else [question]

    with capturing() as (_, kept):
        result = answer("as it was")
        result["answer" if shape == "dict" else 0] = "changed"
    assert call_to_record(kept[0]).answer_json.claim == "as it was"


def test_nothing_that_is_said_can_raise():
    """A field of the wrong kind is left out; the rest of the record stands."""
    for field in ["retrieved", "candidates", "citations", "tags", "claim", "qid", "session", "build"]:
        for junk in [7, 1.5, True, object(), "text", b"bytes", [None], [[]], {"a": 1}, {1, 2}, range(3)]:
            record = said(lambda: ragmon.record(index_hash="i1", **{field: junk}))  # noqa: B023 - called in this turn
            assert record.index_hash == "i1", (field, junk)


def test_an_iterator_that_is_handed_over_is_not_used_up():
    mine = iter(["a", "b"])
    record = said(lambda: ragmon.record(retrieved=mine))
    assert (record.retrieved_ids, list(mine)) == (None, ["a", "b"])


def test_what_is_said_outside_a_call_is_counted_and_warned_of_once(caplog, monkeypatch):
    monkeypatch.setattr(errors, "_said", set())
    before = outside_calls()
    with capturing(), caplog.at_level(logging.WARNING, logger="ragmon"):
        for _ in range(3):
            ragmon.record(retrieved=["a"])
    assert outside_calls() == before + 3
    assert [r.getMessage() for r in caplog.records] == [
        "ragmon.record() was called outside a traced call; it is counted and ignored"
    ]


def test_what_is_said_once_the_call_has_ended_is_outside_it():
    """Background work that inherited the context of a call must not write on a record that has left."""
    before = outside_calls()

    async def later(release):
        await release.wait()
        ragmon.record(retrieved=["too late"])
        assert ragmon.trace_id() is None

    @ragmon.trace
    async def answer(release):
        return asyncio.create_task(later(release))

    async def main():
        release = asyncio.Event()
        task = await answer(release)
        release.set()
        await task

    with capture_traces() as records:
        asyncio.run(main())
    assert records[0].retrieved_ids is None
    assert outside_calls() == before + 1


def test_what_was_said_before_an_error_stands_on_the_record_of_the_error():
    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=["a"], claim="never sent")
        raise TimeoutError(question)

    with capture_traces() as records, pytest.raises(TimeoutError):
        answer("a secret")
    (record,) = records
    assert (record.error, record.retrieved_ids, record.answer_json) == ("TimeoutError", ["a"], None)


def latency(*stages, seconds=9.0):
    """The latency of a call with these stages, as `(name, from, to)` in seconds."""
    with capturing() as (found, _):
        call = Call(
            TracedFunction(lambda: None),
            found.plan(TracedFunction(lambda: None)),
            (),
            {},
            SamplingDecision(audit=True, p_audit=1.0),
        )
    call.stages, call.seconds = list(stages), seconds
    return call_to_record(call).latency_ms


def test_stages_are_timed_in_milliseconds():
    record = said(lambda: ragmon.stage("retrieve").__enter__().__exit__(None, None, None))
    assert 0 <= record.latency_ms.retrieve <= record.latency_ms.total
    assert record.latency_ms.generate is None


def test_a_stage_lets_errors_through_and_still_counts():
    @ragmon.trace
    def answer(question):
        with ragmon.stage("generate"):
            raise TimeoutError(question)

    with capture_traces() as records, pytest.raises(TimeoutError):
        answer("q")
    assert records[0].latency_ms.generate is not None


def test_the_same_stage_twice_at_once_counts_its_union():
    found = latency(("retrieve", 1, 3), ("retrieve", 2, 4), ("retrieve", 6, 7), ("generate", 3, 5), ("rerank", 0, 9))
    assert (found.total, found.retrieve, found.generate) == (9000, 4000, 2000)


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), min_size=1, max_size=6)


@pytest.mark.slow
@given(spans)
def test_the_union_is_every_moment_some_of_them_ran(spans):
    moments = {moment for started, ended in spans for moment, _ in pairwise(range(started, ended + 1))}
    assert latency(*(("retrieve", *span) for span in spans)).retrieve == 1000 * len(moments)


def test_outside_a_call_a_stage_does_nothing_and_there_is_no_trace_id():
    with capturing(), ragmon.stage("retrieve"):
        assert ragmon.trace_id() is None
