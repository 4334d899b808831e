"""What agents in real frameworks did is read from the spans they left, without a setting."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.ingest.otlp import read
from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import SpanOptions
from tests.support.agent_model import QUESTIONS
from tests.support.record_agents import PACKAGES
from tests.support.recorded_agents import NAMES, questions, versions

frameworks = pytest.mark.parametrize("name", NAMES)


def test_every_framework_that_can_be_recorded_is():
    """`python -m tests.support.record_agents NAME` makes a recording anew."""
    assert set(NAMES) == set(PACKAGES)


@frameworks
def test_question_ids_contexts_scores_answer_and_citations_of_an_agent(name):
    """They equal what the agent really asked, what its tool returned in rank order, and what it answered."""
    asked = questions(name)
    assert [one.question for one in asked] == list(QUESTIONS)
    for one in asked:
        (request,) = per_request(one.spans)
        mapped = to_record(request)
        record = mapped.record
        assert {
            "question": record.q,
            "ids": record.retrieved_ids,
            "contexts": record.contexts,
            "answer": record.answer_json.claim,
            "citations": record.answer_json.citations,
            "session": None,
        } == one.returned
        assert record.scores == [document["score"] for document in one.found[0]]
        assert (record.error, dict(mapped.missing)) == (None, {})
        assert all(version[0].isdigit() for version in versions(name).values())


@frameworks
def test_naming_a_tool_that_is_known_by_its_shape_changes_nothing(name):
    """Spans inside of its own, such as those of a request to an MCP server, may have the same name and no output."""
    named = ["search", "retrieve"]
    for one in questions(name):
        (request,), (unnamed,) = per_request(one.spans, SpanOptions(retrievers=named)), per_request(one.spans)
        assert to_record(request, SpanOptions(retrievers=named)).record == to_record(unnamed).record


@frameworks
def test_the_same_is_read_off_protobuf(name):
    """Where only the attributes that are read are decoded."""
    for one in questions(name):
        spans = [span.span() for body in one.requests for span in read(in_protobuf(body), json=False).external]
        (from_protobuf,), (from_json,) = per_request(spans), per_request(one.spans)
        assert to_record(from_protobuf) == to_record(from_json)


def in_protobuf(body):
    """An export request in protobuf; OTLP's JSON writes ids in hexadecimal, protobuf's own in base64."""
    message = json.loads(body)
    for process in message["resourceSpans"]:
        for scope in process["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
                for link in span.get("links", ()):
                    link |= {key: base64.b64encode(bytes.fromhex(link[key])).decode() for key in ("traceId", "spanId")}
    return ParseDict(message, ExportTraceServiceRequest()).SerializeToString()
