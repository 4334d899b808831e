"""How much a request holds is seen before it is parsed: a body of few bytes must not become gigabytes of objects."""

from __future__ import annotations

import json
import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from ragmon.core import semconv
from ragmon.core.http_server import RejectedError
from ragmon.ingest import otlp_wire
from ragmon.ingest.lines import Rejected
from ragmon.ingest.otlp_wire import MAX_ITEMS, MAX_MESSAGES, TOO_MANY, check_size
from ragmon.ingest.receiver import Encoding
from ragmon.server.pending import decode_metrics, decode_traces
from tests.support.effort import cpu_seconds, effort
from tests.support.examples import cases
from tests.support.otlp_requests import as_json, export, field
from tests.support.recorded_spans import made

MANY = MAX_MESSAGES + 8


SPANS_OF_NOTHING = {
    "processes": b"\x0a\x00" * MANY,
    "scopes": field(1, b"\x12\x00" * MANY),
    "spans": field(1, field(2, b"\x12\x00" * MANY)),
    "spans of several scopes": field(1, field(2, b"\x12\x00" * (MANY // 8 + 1)) * 8),
    "spans behind fields nobody knows": field(15, bytes(99)) + b"\x78\x01" + field(1, field(2, b"\x12\x00" * MANY)),
}


@pytest.mark.parametrize("body", SPANS_OF_NOTHING.values(), ids=SPANS_OF_NOTHING)
def test_a_request_of_very_many_messages_is_not_taken_apart(body):
    with pytest.raises(RejectedError) as refused:
        decode_traces(body, Encoding.PROTOBUF)
    assert (refused.value.status, refused.value.reason) == (413, TOO_MANY)
    assert refused.value.counts.dropped == {TOO_MANY: 1}, "somebody sent it, so it is accounted for"


def test_nor_are_more_spans_than_any_collector_sends_though_they_hold_nothing():
    with pytest.raises(RejectedError) as refused:
        decode_traces(field(1, field(2, b"\x12\x00" * (MAX_ITEMS + 1))), Encoding.PROTOBUF)
    assert (refused.value.status, refused.value.counts.dropped) == (413, {TOO_MANY: MAX_ITEMS + 1})


def span_of(part, n=MANY):
    """A request with one span, which holds the same again and again."""
    return field(1, field(2, field(2, field(1, b"t" * 16) + field(2, b"s" * 8) + part * n)))


PARTS_OF_NOTHING = {
    "attributes": span_of(field(9, b"")),
    "events": span_of(field(11, b"")),
    "links": span_of(field(13, b"")),
    "attributes of an event": field(1, field(2, field(2, field(11, field(3, b"") * MANY)))),
    "attributes in an attribute": span_of(field(9, field(2, field(6, field(1, b"") * MANY))), 1),
    "values in an attribute": span_of(field(9, field(2, field(5, field(1, b"") * MANY))), 1),
    "attributes of a process": field(1, field(1, field(1, b"") * MANY)),
    "attributes of an instrumentation": field(1, field(2, field(1, field(3, b"") * MANY))),
    "attributes that are no text": span_of(field(9, field(1, b"\xff") + field(2, b"")), MANY // 2),
    "links behind a span that is none": field(1, field(2, field(2, b"\x00") + field(2, field(13, b"") * MANY))),
}


def refusal(body, encoding):
    """The error with which such traces are refused."""
    with pytest.raises(RejectedError) as refused:
        decode_traces(body, encoding)
    return refused.value


@pytest.mark.slow
@pytest.mark.parametrize("body", PARTS_OF_NOTHING.values(), ids=PARTS_OF_NOTHING)
def test_nor_is_one_of_few_spans_that_hold_very_much(body):
    """An empty link takes two bytes, and 190 in memory: twenty mebibytes of them were 1.9 GiB."""
    units, refused = effort(lambda: refusal(body, Encoding.PROTOBUF))
    assert units <= 130
    assert (refused.status, refused.reason) == (413, TOO_MANY)


@pytest.mark.parametrize("part", [5, 7], ids=["exemplars", "attributes"])
def test_nor_is_one_of_few_points_that_hold_very_much(part):
    body = field(1, field(2, field(2, field(7, field(1, field(part, b"") * MANY)))))
    with pytest.raises(RejectedError) as refused:
        decode_metrics(body, Encoding.PROTOBUF)
    assert refused.value.status == 413


@pytest.mark.slow
@pytest.mark.parametrize(
    "span", [b"{}", b'{"name":0}', b'{"name":null}', b'{"a":"\\x"}'], ids=["empty", "misfits", "null", "no JSON"]
)
def test_spans_in_json_that_are_none_are_not_looked_at_one_by_one_where_there_are_too_many(span):
    """Nine hundred thousand, 58 KB in gzip, took 45 seconds and 2.7 GB: an error for each was kept."""
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % b",".join([span] * 500_000)
    units, refused = effort(lambda: refusal(body, Encoding.JSON))
    assert units <= 130
    assert (refused.status, refused.reason) == (413, TOO_MANY)


def test_nor_are_texts_in_json_without_end():
    """Where attributes should stand, four million took 300 MiB, and sixteen such requests at once 830."""
    texts = b",".join([b'"ab"'] * 4_000_000)
    with pytest.raises(RejectedError) as refused:
        decode_traces(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[%b]}]}]}]}' % texts, Encoding.JSON)
    assert refused.value.status == 413


@pytest.mark.parametrize("member", ["{}", '{"spanId":"1"}'])
def test_in_json_as_well(member):
    spans = ",".join([member] * 1_100_000)
    with pytest.raises(RejectedError) as refused:
        decode_traces(b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % spans.encode(), Encoding.JSON)
    assert refused.value.status == 413


def test_nor_are_more_points_than_any_collector_sends():
    points = ExportMetricsServiceRequest()
    scope = points.resource_metrics.add().scope_metrics.add(scope={"name": "ragmon"})
    metric = scope.metrics.add(name=semconv.REQUESTS)
    metric.sum.data_points.extend([NumberDataPoint()] * (MAX_ITEMS + 1))
    with pytest.raises(RejectedError) as refused:
        decode_metrics(points.SerializeToString(), Encoding.PROTOBUF)
    assert refused.value.status == 413


@pytest.mark.parametrize("kind", [5, 7, 9, 10, 11], ids=["gauge", "sum", "histogram", "exponential", "summary"])
def test_and_so_are_points_of_metrics(kind):
    body = field(1, field(2, field(2, field(kind, b"\x0a\x00" * MANY))))
    assert len(ExportMetricsServiceRequest.FromString(body).resource_metrics) == 1
    with pytest.raises(RejectedError) as refused:
        decode_metrics(body, Encoding.PROTOBUF)
    assert refused.value.status == 413


@pytest.mark.slow
@pytest.mark.parametrize("as_json_too", [False, True], ids=["protobuf", "json"])
def test_what_collectors_send_is_taken(as_json_too):
    """Eight thousand spans with a dozen attributes."""
    request = export([made({f"key.{n}": "value" for n in range(12)})] * 8192)
    body = as_json(request) if as_json_too else request.SerializeToString()
    taken = decode_traces(body, Encoding.JSON if as_json_too else Encoding.PROTOBUF)
    assert len(taken.external) == 8192


def exceeds_limits(body, *, json, message=ExportTraceServiceRequest):
    """Whether a request is refused before it is parsed."""
    try:
        check_size(body, message, json=json)
    except Rejected as rejected:
        return rejected.reason == TOO_MANY
    return False


@given(
    st.binary(max_size=2000), st.sampled_from([ExportTraceServiceRequest, ExportMetricsServiceRequest]), st.booleans()
)
def test_bytes_that_mean_nothing_are_left_to_the_parser(body, message, as_json_too):
    """Whatever comes after a quarter of a million bytes of one field."""
    assert not exceeds_limits(field(15, bytes(1 << 18)) + body, json=as_json_too, message=message)


def test_a_large_text_is_one_message():
    told = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x" * (1 << 20)}]}]}]}
    assert not exceeds_limits(json.dumps(told).encode(), json=True)
    assert not exceeds_limits(field(1, field(2, field(2, bytes(1 << 20)))), json=False)


SIZE = 20 << 20
"""Bytes of the largest request that is taken."""
NOISE = random.Random(15).randbytes(110 << 10)
"""What keeps a body that is all the same from being told by how well it compresses."""
COSTLY = {
    "zeros": bytes(SIZE) + NOISE,
    "fields nobody knows": b"\x08\x01" * (SIZE // 2) + NOISE,
    "numbers as long as may be": b"\xf8\xff\xff\xff\x0f\xff\xff\xff\xff\xff\xff\xff\xff\x01" * (SIZE // 14) + NOISE,
    "such fields inside of scopes": field(1, field(2, b"\x08\x01" * (SIZE // 2))),
    "empty groups": b"\x0b\x0c" * (SIZE // 2),
    "a scope in a process, again and again": b"\x0a\x04\x12\x02\x78\x01" * (SIZE // 6),
    "brackets": b"[]" * (SIZE // 2),
}


@pytest.fixture(scope="module")
def parsing():
    """CPU seconds that json takes for as many bytes of numbers."""
    body = b"[" + b"1," * (SIZE // 2) + b"1]"
    return cpu_seconds(lambda: json.loads(body))


@pytest.mark.slow
@pytest.mark.parametrize("as_json_too", [False, True], ids=["protobuf", "json"])
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_counting_costs_at_most_three_times_as_much_as_parsing_numbers(body, as_json_too, parsing):
    assert cpu_seconds(lambda: exceeds_limits(body, json=as_json_too)) <= 3 * parsing


def test_what_stands_before_the_messages_does_not_hide_them():
    """A parser passes over groups, so whoever counts does too."""
    assert exceeds_limits(b"\x1b\x1c" + b"\n\x00" * MANY, json=False)


def test_lists_in_json_count_as_objects_do():
    assert exceeds_limits(b'{"resourceSpans":[%b[]]}' % (b"[]," * 1_100_000), json=True)


def test_objects_in_the_text_of_an_attribute_are_no_messages():
    """A framework that writes a large index as JSON sends one message."""
    told = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": '{"id":1}' * 1_100_000}]}]}]}
    assert not exceeds_limits(json.dumps(told).encode(), json=True)


def messages_of(found):
    """How many messages a parsed request holds: the oracle."""
    count = 0
    for descriptor, held in found.ListFields():
        if descriptor.message_type is not None:
            inner = held if descriptor.is_repeated else [held]
            count += len(inner) + sum(map(messages_of, inner))
    return count


FIELD = st.builds(field, st.sampled_from([1, 2, 3, 15]), st.binary(max_size=3)) | st.sampled_from(
    [b"\x08\x01", b"\x19" + bytes(8), b"\x7d" + bytes(4), b"\x0b\x0c", b"\x0a\x00", b"\x12\x00", b"\x8a\x00\x00"]
)
BODY = st.recursive(
    st.lists(FIELD, max_size=8).map(b"".join),
    lambda inner: st.lists(FIELD | st.builds(field, st.sampled_from([1, 2]), inner), max_size=8).map(b"".join),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(BODY)
def test_what_a_parser_would_make_too_many_messages_of_is_refused_and_nothing_small_is(body):
    """Held against protobuf itself, with a limit of five messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otlp_wire, "MAX_MESSAGES", 5)
        patch.setattr(otlp_wire, "MAX_FIELDS", 40)
        refused = exceeds_limits(body, json=False)
        try:
            held = messages_of(ExportTraceServiceRequest.FromString(body))
        except DecodeError:
            return
        assert refused or held <= 5
        assert not refused or held >= 5 or len(body) > 9
