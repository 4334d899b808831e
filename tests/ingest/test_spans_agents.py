"""What programs in real frameworks did is read from the spans they left."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.ingest.otlp import read
from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import SpanOptions
from tests.support.instrumentation_table import YES, verdicts
from tests.support.otlp_requests import from_json
from tests.support.recorded_agents import NAMES, questions, versions

frameworks = pytest.mark.parametrize("name", NAMES)


@frameworks
def test_a_recording_has_every_kind_of_request(name):
    asked = questions(name)
    assert all(one.requests and (one.answer is None) == (one.error is not None) for one in asked)
    assert all(version[0].isdigit() for version in versions(name).values())


@frameworks
def test_texts_and_scores_are_those_of_the_documents(name):
    """Where the ids are read; spans without a text or a score leave the column unknown."""
    for one in questions(name):
        if verdicts(one, SpanOptions())["ids"] == YES:
            (record,) = one.records(SpanOptions())
            assert record.contexts in (None, [document["text"] for document in one.documents])
            assert record.scores in (None, [document["score"] for document in one.documents])


@frameworks
def test_naming_a_tool_that_is_known_by_its_shape_changes_nothing(name):
    """Spans inside of its own, such as those of a request to an MCP server, may have the same name and no output."""
    named = SpanOptions(retrievers=("search", "retrieve"))
    for one in questions(name):
        if verdicts(one, SpanOptions())["ids"] == YES:
            assert verdicts(one, named) == verdicts(one, SpanOptions())


@frameworks
def test_the_same_is_read_off_protobuf(name):
    """Where only the attributes that are read are decoded."""
    for one in questions(name):
        exports = [body for body, told in zip(one.bodies, one.requests, strict=True) if "resourceSpans" in told]
        in_protobuf = [from_json(body, ExportTraceServiceRequest).SerializeToString() for body in exports]
        read_off = [span.span() for body in in_protobuf for span in read(body, json=False).external]
        for from_binary, from_text in zip(per_request(read_off), per_request(one.spans), strict=True):
            assert to_record(from_binary) == to_record(from_text)
