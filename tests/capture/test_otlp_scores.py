"""Scores sent back to where the scored traces are."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.capture.exporters import Scored
from ragmon.capture.otlp_exporter import OtlpSession, ScoreExporter
from tests.support.otlp_receiver import Answer, attributes, receiving

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
SCORES = [("faithfulness", 0.75, None), ("answer_precision", 1.0, "pass")]


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


@pytest.fixture
def sink(receiver):
    """Makes sinks that are closed when the test ends."""
    with ExitStack() as stack:

        def make(*, carriers=False, **told):
            session = OtlpSession(receiver.endpoint, **{"timeout": 5.0, **told})
            made = ScoreExporter(session, resource={"service.name": "ragmon"}, carriers=carriers)
            stack.callback(made.close)
            return made

        yield make


def test_each_score_is_an_evaluation_event_at_the_span_that_was_scored(receiver, sink):
    assert sink(token="t").deliver([Scored(TRACE_ID, SPAN_ID, SCORES)]) == {}
    assert {event.event_name for event in receiver.events()} == {"gen_ai.evaluation.result"}
    assert {(event.trace_id.hex(), event.span_id.hex()) for event in receiver.events()} == {(TRACE_ID, SPAN_ID)}
    assert [attributes(event) for event in receiver.events()] == [
        {"gen_ai.evaluation.name": "faithfulness", "gen_ai.evaluation.score.value": 0.75},
        {
            "gen_ai.evaluation.name": "answer_precision",
            "gen_ai.evaluation.score.value": 1.0,
            "gen_ai.evaluation.score.label": "pass",
        },
    ]
    (request,) = receiver.requests
    assert request.path == "/v1/logs"
    assert request.headers["Authorization"] == "Bearer t"
    assert attributes(request.message.resource_logs[0].resource) == {"service.name": "ragmon"}
    assert all(event.time_unix_nano for event in receiver.events())


def test_carriers_are_evaluator_spans_of_their_own_trace_with_one_link(receiver, sink):
    assert sink(carriers=True).deliver([Scored(TRACE_ID, SPAN_ID, SCORES)]) == {}
    assert len(receiver.events()) == 2
    (span,) = receiver.spans()
    assert span.kind == Span.SPAN_KIND_INTERNAL
    assert span.trace_id.hex() != TRACE_ID
    (link,) = span.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert attributes(span) == {
        "openinference.span.kind": "EVALUATOR",
        "ragmon.internal": True,
        "annotations.0.annotation.name": "faithfulness",
        "annotations.0.annotation.score": 0.75,
        "annotations.0.annotation.annotator_kind": "CODE",
        "annotations.1.annotation.name": "answer_precision",
        "annotations.1.annotation.score": 1.0,
        "annotations.1.annotation.label": "pass",
        "annotations.1.annotation.annotator_kind": "CODE",
    }


def test_a_trace_whose_span_nobody_knows_has_events_and_no_carrier(receiver, sink):
    assert sink(carriers=True).deliver([Scored(TRACE_ID, None, SCORES)]) == {}
    assert [(event.trace_id.hex(), event.span_id) for event in receiver.events()] == [(TRACE_ID, b"")] * 2
    assert receiver.spans() == []


def test_what_is_no_trace_is_counted_and_costs_no_other_score(receiver, sink):
    given = [Scored("not a trace", SPAN_ID, SCORES), Scored(TRACE_ID, SPAN_ID, [("b", 1, None)])]
    assert sink(carriers=True).deliver(given) == {"invalid_schema": 2}
    assert [attributes(event)["gen_ai.evaluation.name"] for event in receiver.events()] == ["b"]
    assert len(receiver.spans()) == 1


def test_nothing_is_sent_where_nothing_was_scored(receiver, sink):
    assert sink(carriers=True).deliver([]) == {}
    assert receiver.requests == []


def test_what_the_backend_does_not_take_is_counted_events_and_carriers_alike(receiver, sink):
    scored = [Scored(TRACE_ID, SPAN_ID, SCORES)] * 3
    receiver.answers.extend([Answer(rejected=4), Answer(rejected=2), Answer(404), Answer(400), Answer(503), Answer()])
    sink = sink(carriers=True)
    assert sink.deliver(scored) == {"export_refused": 6}
    assert sink.deliver(scored) == {"export_refused": 9}
    assert sink.deliver(scored) == {}


def test_a_backend_that_hangs_costs_the_timeout(receiver, sink):
    receiver.answers += [Answer(hang=True), Answer(hang=True)]
    assert sink(timeout=0.2, carriers=True).deliver([Scored(TRACE_ID, SPAN_ID, SCORES)]) == {"export_timeout": 3}
