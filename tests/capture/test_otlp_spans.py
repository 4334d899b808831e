"""A record as spans: nothing of it is lost on the way, and other backends can read what it says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.core import semconv
from ragmon.core.record import LATEST, Answer, Latency, Record, Sampling, encode
from ragmon.testing import make_record
from tests.support.oracle.draw import drawn
from tests.support.otlp_receiver import attributes, receiving
from tests.support.random_records import record as random_record

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def sent():
    """Sends records and gives what the receiver got: the records, and all spans."""
    with receiving() as server:

        def run(*records):
            server.requests.clear()
            sink = OtlpExporter(server.endpoint, resource={})
            assert sink.deliver(records) == {}
            sink.close()
            return server.records(), server.spans()

        yield run


records = drawn(lambda draw: [random_record(draw) for _ in range(draw.number(6))], 300)
times = st.none() | st.floats(0, LATEST, exclude_max=True)
words = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
milliseconds = st.none() | st.floats(0, allow_nan=False, allow_infinity=False)


@settings(max_examples=60)
@given(found=records)
def test_every_record_comes_back_as_it_was(sent, found):
    assert sent(*found)[0] == found


@settings(max_examples=60)
@given(
    trace_id=words,
    ts=times,
    q=words,
    claim=words,
    latency=st.builds(Latency, milliseconds, milliseconds, milliseconds),
    error=words,
    tag=words,
)
def test_every_text_and_number_the_contract_allows_comes_back(sent, trace_id, ts, q, claim, latency, error, tag):
    """Times the protocol cannot hold, trace ids that are none, texts of every language: the record keeps them."""
    record = Record(
        trace_id=trace_id,
        ts=ts,
        q=q,
        answer_json=Answer(claim, [claim or ""]),
        latency_ms=latency,
        error=error,
        tags={tag or "": tag or ""},
    )
    found, (span,) = sent(record)
    assert found == [record]
    assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert any(span.trace_id)


def full(**fields):
    return make_record(
        "q7",
        **{
            "claim": "At the harbour",
            "trace_id": TRACE_ID,
            "ts": 1_700_000_002.0,
            "pipeline": "support",
            "q": "Where is it?",
            "scores": [0.9, 0.5, 0.1],
            "contexts": ["one", "two", "three"],
            "latency_ms": Latency(1500.0, 300.0, 1000.0),
            "sampling": Sampling(p_audit=0.25, p=0.25),
            **fields,
        },
    )


def test_the_root_is_a_workflow_that_ends_when_the_call_ended(sent):
    _, (root,) = sent(full())
    assert root.name == "invoke_workflow support"
    assert root.kind == Span.SPAN_KIND_INTERNAL
    assert root.trace_id.hex() == TRACE_ID
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (
        1_700_000_000_500_000_000,
        1_700_000_002_000_000_000,
    )
    assert root.status.code == Status.STATUS_CODE_UNSET
    assert not root.parent_span_id
    held = attributes(root)
    assert held[semconv.RAGMON_RECORD] == encode(full()).decode().strip()
    assert held["ragmon.contract.version"] == "1"
    assert held["ragmon.qid"] == "q7"
    assert held["ragmon.sampling.probability"] == 0.25
    assert held["ragmon.ok"] is True
    assert held["gen_ai.operation.name"] == "invoke_workflow"
    assert held["gen_ai.workflow.name"] == "support"


def test_question_and_answer_are_readable_by_other_backends(sent):
    _, (root,) = sent(full())
    held = attributes(root)
    assert held["openinference.span.kind"] == "CHAIN"
    assert (held["input.value"], held["output.value"]) == ("Where is it?", "At the harbour")
    (asked,), (answered,) = json.loads(held["gen_ai.input.messages"]), json.loads(held["gen_ai.output.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "Where is it?"}]}
    assert answered == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "At the harbour"}],
        "finish_reason": "stop",
    }


def test_attributes_of_text_are_there_only_where_text_is(sent):
    held = attributes(sent(full(q=None, contexts=None, claim=None))[1][0])
    assert not {
        key for key in held if key.startswith(("input.", "output.", "openinference.", "gen_ai.in", "gen_ai.out"))
    }


def test_an_error_is_the_only_thing_that_makes_a_span_fail(sent):
    _, (failed, empty, refused) = sent(full(error="TimeoutError"), full(error=""), full(claim="not in context"))
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert attributes(failed)["error.type"] == "TimeoutError"
    assert attributes(failed)["ragmon.ok"] is False
    for span in (empty, refused):
        assert span.status.code == Status.STATUS_CODE_UNSET
        assert "error.type" not in attributes(span)
        assert attributes(span)["ragmon.ok"] is True


def test_every_span_has_an_id_of_its_own(sent):
    _, spans = sent(*[full() for _ in range(50)])
    assert len({span.span_id for span in spans}) == 50


def test_a_trace_without_an_id_that_can_be_sent_gets_one(sent):
    _, spans = sent(*[Record(trace_id=trace_id) for trace_id in (None, "", "0" * 32, "abc", "x" * 32, TRACE_ID * 2)])
    assert len({span.trace_id for span in spans}) == 6
