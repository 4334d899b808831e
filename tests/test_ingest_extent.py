"""How much a request holds is seen before it is parsed: a body of few bytes must not become gigabytes of objects."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_requests import as_json, export, field
from recorded_spans import made

from ragmon.ingest.otlp.extent import MOST, POINTS, SPANS, is_crowded
from ragmon.server.desk import Form, RefusedError
from ragmon.server.keeping.accepting import TOO_MANY, of_metrics, of_traces

MANY = MOST * 2


SPANS_OF_NOTHING = {
    "processes": b"\x0a\x00" * MANY,
    "scopes": field(1, b"\x12\x00" * MANY),
    "spans": field(1, field(2, b"\x12\x00" * MANY)),
    "spans of several scopes": field(1, field(2, b"\x12\x00" * (MANY // 4)) * 8),
    "spans behind fields nobody knows": field(15, bytes(99)) + b"\x78\x01" + field(1, field(2, b"\x12\x00" * MANY)),
}


@pytest.mark.parametrize("body", SPANS_OF_NOTHING.values(), ids=SPANS_OF_NOTHING)
def test_a_request_of_very_many_messages_is_not_taken_apart(body):
    with pytest.raises(RefusedError) as refused:
        of_traces(body, Form.PROTOBUF)
    assert (refused.value.status, refused.value.reason) == (413, TOO_MANY)
    assert refused.value.counts.dropped == {TOO_MANY: 1}, "somebody sent it, so it is accounted for"


@pytest.mark.parametrize("member", ["{}", '{"spanId":"1"}'])
def test_in_json_as_well(member):
    spans = ",".join([member] * 1_100_000)
    with pytest.raises(RefusedError) as refused:
        of_traces(b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % spans.encode(), Form.JSON)
    assert refused.value.status == 413


@pytest.mark.parametrize("kind", [5, 7, 9, 10, 11], ids=["gauge", "sum", "histogram", "exponential", "summary"])
def test_and_so_are_points_of_metrics(kind):
    body = field(1, field(2, field(2, field(kind, b"\x0a\x00" * MANY))))
    assert len(ExportMetricsServiceRequest.FromString(body).resource_metrics) == 1
    with pytest.raises(RefusedError) as refused:
        of_metrics(body, Form.PROTOBUF)
    assert refused.value.status == 413


@pytest.mark.parametrize("as_json_too", [False, True], ids=["protobuf", "json"])
def test_what_collectors_send_is_taken(as_json_too):
    """Eight thousand spans with a dozen attributes."""
    request = export([made({f"key.{n}": "value" for n in range(12)})] * 8192)
    body = as_json(request) if as_json_too else request.SerializeToString()
    taken = of_traces(body, Form.JSON if as_json_too else Form.PROTOBUF)
    assert len(taken.foreign) == 8192


@given(st.binary(max_size=2000), st.sampled_from([SPANS, POINTS]), st.booleans())
def test_bytes_that_mean_nothing_are_left_to_the_parser(body, levels, as_json_too):
    """Whatever comes after a quarter of a million bytes of one field."""
    assert not is_crowded(field(15, bytes(1 << 18)) + body, levels, json=as_json_too)


def test_a_large_text_is_one_message():
    told = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x" * (1 << 20)}]}]}]}
    assert not is_crowded(json.dumps(told).encode(), SPANS, json=True)
    assert not is_crowded(field(1, field(2, field(2, bytes(1 << 20)))), SPANS, json=False)
