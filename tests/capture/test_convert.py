"""A call becomes a record: whatever it returned and said, what stands on the record is what a log can hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture.convert import call_to_record
from ragmon.core.record import encode
from ragmon.ingest.lines import decode
from tests.support.capturing import capturing, record_of

MEMBERS = (
    *(
        "answer",
        "claim",
        "answer_json",
        "citations",
        "retrieved",
        "retrieved_ids",
        "documents",
        "contexts",
        "candidates",
    ),
    *("retrieval", "topk", "id", "text", "content", "score", "metadata", "node", "chunk_id"),
    *("qid", "session", "model", "user", "build", "index_hash"),
    *("sources", "context", "messages", "message", "role", "type", "choices", "replies", "data", "body", "statusCode"),
    *("question", "query", "input", "queryStringParameters", "query_string", "REQUEST_METHOD", "scope", "_json"),
)
anything_at_all = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.sampled_from(MEMBERS) | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything_at_all, anything_at_all)
def test_a_record_of_anything_can_be_written_and_read_back_as_it_was(result, said):
    """NaN, half surrogate pairs, bytes, nested junk: what stands on a record is what a log can hold."""

    @ragmon.trace
    def answer(given):
        ragmon.record(candidates=said, tags=said, session=said)
        if isinstance(said, list):
            ragmon.record(retrieved=said, citations=said, question=said)
        return given

    @ragmon.trace
    def stream(*given):
        yield from given

    with capturing() as (_, kept):
        answer(result)
        assert list(stream(said, result)) == [said, result]
    for call in kept:
        record = call_to_record(call, build="b1")
        assert decode(encode(record)) == record


def test_the_model_and_the_user_of_a_decorated_call():
    """Those of `ragmon.record` win over those of the result."""

    @ragmon.trace
    def answer(question):
        ragmon.record(user="u1")
        return {"answer": "Rollo", "model": "fixed-1", "user": "u2"}

    with capturing() as (_, kept):
        answer("Who?")
    record = call_to_record(kept[0], build="b1")
    assert (record.model, record.user) == ("fixed-1", "u1")


HALF = "half of a pair: \ud83d"


def test_text_that_has_no_utf_8_form_is_mended_wherever_it_stands():
    """One such character in one field would cost every record after it a line in the log."""
    fields = ("question", "claim", "qid", "session", "model", "user", "build", "index_hash")

    @ragmon.trace(name=HALF)
    def answer(question):
        ragmon.record(
            retrieved=[{"id": HALF, "text": HALF}],
            candidates=[HALF],
            citations=[HALF],
            tags={HALF: HALF},
            **dict.fromkeys(fields, HALF),
        )
        return question

    with capturing() as (_, kept):
        answer("q")
    record = call_to_record(kept[0])
    assert decode(encode(record)) == record
    mended = HALF.replace("\ud83d", "?")
    assert (record.q, record.answer_json.claim, record.pipeline, record.tags) == (
        mended,
        mended,
        mended,
        {mended: mended},
    )


@pytest.mark.parametrize("score", [float("nan"), float("inf"), True, "near", None])
def test_scores_that_are_no_finite_numbers_are_left_out(score):
    """JSON has no other numbers."""
    documents = [{"id": "d1", "score": 0.5}, {"id": "d2", "score": score}]
    record = record_of({"answer": "yes", "documents": documents})
    assert (record.retrieved_ids, record.scores) == (["d1", "d2"], None)
    assert decode(encode(record)) == record
