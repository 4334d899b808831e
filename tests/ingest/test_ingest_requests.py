"""The bodies of requests with traces: read span by span, in both encodings, without reading what nobody asks for."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.core import constants, semconv
from ragmon.core.record import Record
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import record_in
from ragmon.ingest.otlp import IS_READ, MALFORMED_PROTOBUF, SpanBatch, read
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Event, Span
from ragmon.ingest.spans.tools import KEYS, MEMO_MAX_CHARS
from ragmon.testing import make_record
from tests.ingest.test_spans_fuzz import OPTIONS, SPANS
from tests.support.examples import cases
from tests.support.otlp_requests import as_json, carried, export, field, of_records
from tests.support.recorded_spans import START, TRACE, made, recorded

RECORDED = sorted((Path(__file__).parents[1] / "data" / "spans").glob("*.json"))
ENCODINGS = pytest.mark.parametrize("as_json_too", [False, True], ids=["protobuf", "json"])


def received(request, as_json_too=False):
    return read(as_json(request) if as_json_too else request.SerializeToString(), json=as_json_too)


def spans_of(batch):
    return [one.span() for one in batch.external]


def sent(*records):
    """What ragmon's own exporter sends of some records."""
    return of_records(records, {"service.name": "shop"})


@ENCODINGS
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_spans_of_real_instrumentations_become_the_records_all_their_attributes_make(path, as_json_too):
    for trace in recorded(path):
        batch = received(export(trace), as_json_too)
        assert (batch.spans, batch.rejected, len(batch.external)) == (len(trace), {}, len(trace))
        assert to_record(spans_of(batch)) == to_record(trace)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_limit_that_took_attributes_or_events_off_is_still_known(path):
    for trace in recorded(path):
        cut = [span._replace(dropped=3, dropped_events=1) for span in trace]
        assert to_record(spans_of(received(export(cut)))) == to_record(cut)


def possible(spans):
    """Spans as an exporter of another program could send them."""
    return [
        carried(span)._replace(
            scope="other",
            span_id=shifted(span.span_id),
            parent_id=None if span.parent_id is None else shifted(span.parent_id),
        )
        for span in spans
    ]


def shifted(span_id):
    return format(int(span_id, 16) + 1, "016x")


@pytest.mark.slow
@ENCODINGS
@given(SPANS, OPTIONS)
def test_any_spans_become_the_record_all_their_attributes_make(as_json_too, spans, options):
    spans = possible(spans)
    batch = received(export(spans), as_json_too)
    assert (len(batch.external), batch.rejected, batch.stages) == (len(spans), {}, 0)
    assert to_record(spans_of(batch)) == to_record(spans)


class Asked(Mapping):
    """Attributes that remember which of them were asked for."""

    def __init__(self, held, asked):
        self.held, self.asked = held, asked

    def __getitem__(self, key):
        self.asked.add(key)
        return self.held[key]

    def __contains__(self, key):
        self.asked.add(key)
        return key in self.held

    def __iter__(self):
        return iter(self.held)

    def items(self):
        """Whoever looks through all of them asks for none by its name."""
        return self.held.items()

    def __len__(self):
        return len(self.held)


@pytest.fixture(scope="module")
def asked():
    """Every key the mapper asked for by its name."""
    found = set()
    yield found
    assert {semconv.SPAN_KIND, semconv.METADATA, semconv.RERANKER_QUERY} <= found


@pytest.mark.slow
@settings(max_examples=cases(200))
@given(spans=SPANS, options=OPTIONS)
def test_every_key_the_mapper_asks_for_is_read(asked, spans, options):
    """Whoever teaches the mapper a new key is told here to read it off the wire too."""
    watched = [span._replace(attributes=Asked(span.attributes, asked)) for span in spans]
    to_record(watched)
    assert not [key for key in asked if not IS_READ[key]]


BELOW = {
    semconv.RETRIEVED: ("RETRIEVER", {"0.document.id": "d1"}),
    semconv.RERANKER_OUTPUT: ("RERANKER", {"0.document.id": "d1"}),
    semconv.RERANKER_INPUT: ("RERANKER", {"0.document.id": "d1", "1.document.id": "d2"}),
    semconv.LLM_INPUT: ("RETRIEVER", {"0.message.role": "user", "0.message.content": "Is it?"}),
    semconv.LLM_OUTPUT: ("LLM", {"0.message.role": "assistant", "0.message.content": "It is."}),
    semconv.LEGACY_COMPLETIONS: ("LLM", {"0.role": "assistant", "0.content": "It is."}),
    semconv.ASSOCIATION: ("LLM", {"session_id": "s-1"}),
}


@pytest.mark.parametrize("name", BELOW)
def test_lists_and_objects_in_flattened_attributes_are_read_whole(name):
    """Nobody asks for those by their keys; a record that needs one shows that it is there."""
    kind, members = BELOW[name]
    span = made({semconv.SPAN_KIND: kind, **{f"{name}.{member}": value for member, value in members.items()}})
    mapped = to_record(spans_of(received(export([span]))))
    assert mapped == to_record([span])
    assert mapped != to_record([span._replace(attributes={semconv.SPAN_KIND: kind})])


def test_what_nobody_asks_for_is_not_read():
    spans = [made({semconv.QUERY_TEXT: "Is it?", "http.request.header.cookie": "secret", "llm.token_count.total": 7})]
    (span,) = spans_of(received(export(spans)))
    assert span.attributes == {semconv.QUERY_TEXT: "Is it?"}


def test_of_events_hits_are_read_whole_and_of_exceptions_their_type_and_message():
    events = [
        Event(semconv.QUERY_RESULT, {"db.query.result.id": "d1", "db.query.result.colour": "red"}),
        Event("exception", {"exception.type": "NotFound", "exception.message": "404", "exception.stacktrace": "..."}),
        Event("log", {"message": "m"}),
    ]
    (span,) = spans_of(received(export([made({}, events=events)])))
    raised = Event("exception", {"exception.type": "NotFound", "exception.message": "404"})
    assert span.events == [events[0], raised, Event("log", {})]


def test_keys_without_end_do_not_fill_the_memory():
    request = export(
        [made({f"tag.{number}": "x" for number in range(20_000)} | {"long" * 99: 1} | {semconv.QUERY_TEXT: "Is it?"})]
    )
    for _ in range(2):
        (span,) = spans_of(received(request))
        assert span.attributes == {semconv.QUERY_TEXT: "Is it?"}
    assert len(IS_READ) <= KEYS
    assert max(map(len, IS_READ)) <= MEMO_MAX_CHARS


VALUES = {
    "text": "ä\0\U0001f600",
    "empty": "",
    "yes": True,
    "no": False,
    "zero": 0,
    "large": -(2**63),
    "half": 0.5,
    "list": ["a", 1, [True, None]],
    "nothing in it": [],
    "object": {"a": {"b": [1.5]}},
    "empty object": {},
    "unknown": None,
}


@ENCODINGS
def test_values_of_every_kind_arrive(as_json_too):
    attributes = {f"{semconv.ASSOCIATION}.{name}": value for name, value in VALUES.items()}
    (span,) = spans_of(received(export([made(attributes)]), as_json_too))
    assert {key: span.attributes[key] for key in attributes} == attributes
    assert [type(value) for value in span.attributes.values()][-len(VALUES) :] == list(map(type, VALUES.values()))


@ENCODINGS
def test_bytes_are_text_in_base64_whatever_the_encoding(as_json_too):
    (span,) = spans_of(received(export([made({semconv.METADATA: b"\x00\x01"})]), as_json_too))
    assert span.attributes[semconv.METADATA] == "AAE="


@ENCODINGS
@pytest.mark.parametrize("sampled", [None, True, False])
def test_a_span_arrives_whole(as_json_too, sampled):
    root = made({}, start=1, end=9)
    attributes = {semconv.SPAN_KIND: "CHAIN"}
    child = made(attributes, parent=root, start=2, end=3, failed=True, dropped=2, scope="s", sampled=sampled)
    (one,) = received(export([child]), as_json_too).external
    found = one.span()
    assert found._replace(attributes={}, events=[]) == child._replace(attributes={}, events=[])
    assert (one.trace_id, one.span_id) == (bytes.fromhex(TRACE), bytes.fromhex(child.span_id))
    assert (one.is_root, one.start_ns, one.end_ns) == (False, START + 2_000_000_000, START + 3_000_000_000)


@ENCODINGS
@pytest.mark.parametrize("parent", ["", "0" * 16])
def test_a_span_without_a_parent_is_a_root(as_json_too, parent):
    (one,) = received(export([made({})._replace(parent_id=parent)]), as_json_too).external
    assert one.is_root
    assert one.span().parent_id is None


@ENCODINGS
def test_every_span_knows_its_process(as_json_too):
    request = export([made({})], **{"service.name": "shop", "service.version": "2026.11", "host.name": "h"})
    request.MergeFrom(export([made({})], **{"service.name": 7}))
    batch = received(request, as_json_too)
    assert [(one.service, one.build) for one in batch.external] == [("shop", "2026.11"), (None, None)]


@ENCODINGS
def test_what_ragmon_sends_arrives_as_lines_of_the_trace_contract(as_json_too):
    records = [make_record(f"q{n}", v=1, trace_id=f"{n + 1:032x}", ts=1.7e9 + n) for n in range(5)]
    batch = received(sent(*records), as_json_too)
    assert [decode(own.line.encode()) for own in batch.native] == records
    assert [own.trace_id.hex() for own in batch.native] == [record.trace_id for record in records]
    assert [own.end_ns for own in batch.native] == [round(record.ts * 1e9) for record in records]
    assert (batch.spans, batch.external, batch.stages, batch.rejected) == (5, [], 0, {})


@ENCODINGS
def test_stages_of_ragmons_own_are_counted_and_not_read(as_json_too):
    records = [make_record("q1", v=1, ts=1.7e9), make_record("q2", v=1, ts=1.7e9)]
    request = sent(*records)
    request.MergeFrom(export([made({})], scope="ragmon"))
    batch = received(request, as_json_too)
    assert (batch.spans, len(batch.native), batch.external, batch.stages) == (3, 2, [], 1)


@ENCODINGS
def test_a_record_another_program_passes_on_as_its_own_span_is_whole_too(as_json_too):
    request = sent(make_record("q1", v=1, ts=1.7e9))
    request.resource_spans[0].scope_spans[0].scope.name = "a gateway"
    batch = received(request, as_json_too)
    assert (len(batch.native), batch.external) == (1, [])


@ENCODINGS
def test_a_record_that_is_no_text_is_rejected(as_json_too):
    batch = received(export([made({semconv.RAGMON_RECORD: 7})], scope="ragmon"), as_json_too)
    assert (batch.native, batch.rejected, batch.first) == ([], {constants.INVALID_SCHEMA: 1}, "ragmon.record is text")


@ENCODINGS
@pytest.mark.parametrize(
    "ids",
    [
        {"trace_id": ""},
        {"trace_id": "0" * 32},
        {"trace_id": "ab" * 15},
        {"span_id": ""},
        {"span_id": "0" * 16},
        {"span_id": "ab" * 16},
        {"parent_id": "ab"},
    ],
    ids=str,
)
def test_a_span_whose_id_is_none_is_rejected_and_the_others_are_read(as_json_too, ids):
    spans = [made({}), made({})._replace(**ids), made({})]
    batch = received(export(spans), as_json_too)
    assert [one.span_id.hex() for one in batch.external] == [spans[0].span_id, spans[2].span_id]
    assert (batch.spans, batch.rejected) == (3, {constants.INVALID_SCHEMA: 1})
    assert next(iter(ids)).split("_")[0] in batch.first


def test_the_first_rejection_is_told_and_all_are_counted():
    spans = [made({})._replace(span_id=f"{number:02x}") for number in range(1, 4)]
    batch = received(export(spans))
    assert batch.rejected == {constants.INVALID_SCHEMA: 3}
    assert batch.first == r"span_id is 8 bytes, not all zero, not b'\x01'"


def test_an_empty_request_has_no_spans():
    assert read(b"", json=False) == read(b"{}", json=True) == SpanBatch()


def whole():
    """A request like those of real exporters."""
    request = sent(make_record("q1", v=1, ts=1.7e9))
    request.MergeFrom(export([made({})], scope="ragmon"))
    request.MergeFrom(export(recorded(RECORDED[2])[0], **{"service.name": "shop"}))
    return request.SerializeToString()


WHOLE = whole()


def test_a_body_that_broke_off_is_no_request():
    (end,) = (len(one.SerializeToString()) for one in ExportTraceServiceRequest.FromString(WHOLE).resource_spans[:1])
    for length in range(1, len(WHOLE), 97):
        if length < end:
            with pytest.raises(Rejected) as caught:
                read(WHOLE[:length], json=False)
            assert caught.value.reason == MALFORMED_PROTOBUF


def nested(depth):
    """The value of an attribute, lists in each other."""
    request = export([made({semconv.METADATA: "x"})])
    value = b"\x0a\x01x"
    for _ in range(depth):
        value = b"\x2a" + varint(len(value) + 1 + len(varint(len(value)))) + b"\x0a" + varint(len(value)) + value
    pair = b"\x0a\x08metadata\x12" + varint(len(value)) + value
    span = request.resource_spans[0].scope_spans[0].spans[0].SerializeToString() + b"\x4a" + varint(len(pair)) + pair
    scope = b"\x12" + varint(len(span)) + span
    process = b"\x12" + varint(len(scope)) + scope
    return b"\x0a" + varint(len(process)) + process


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_lists_in_lists_are_read_and_a_span_of_a_depth_that_no_one_means_is_none():
    (span,) = spans_of(read(nested(30), json=False))
    assert to_record([span]).reason == "not_rag"
    batch = read(nested(1000), json=False)
    assert (batch.spans, batch.external, batch.rejected) == (1, [], {MALFORMED_PROTOBUF: 1})


ODD_JSON = [
    (b"", constants.MALFORMED_JSON),
    (b"[]", constants.INVALID_SCHEMA),
    (b'{"resourceSpans": 7}', constants.INVALID_SCHEMA),
    (b'{"resourceSpans": [', constants.MALFORMED_JSON),
    (b'{"x": ' + b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000 + b"}", constants.DEPTH),
    (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", constants.DEPTH),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"), ODD_JSON, ids=[body[:40].decode("ascii", "replace") for body, _ in ODD_JSON]
)
def test_json_that_is_no_request_is_told_why(body, reason):
    with pytest.raises(Rejected) as caught:
        read(body, json=True)
    assert caught.value.reason == reason


ANY_MEMBER = ("parentSpanId", "attributes", "events", "status", "name", "flags", "droppedAttributesCount")


@pytest.mark.parametrize("member", ANY_MEMBER)
def test_a_member_that_is_null_is_not_set(member):
    """Source: Protocol Buffers, ProtoJSON format: null is accepted for every field and means its default."""
    spans = [made({}), made({})]
    found = json.loads(as_json(export(spans)))
    found["resourceSpans"][0]["scopeSpans"][0]["spans"][0][member] = None
    batch = read(json.dumps(found).encode(), json=True)
    assert (len(batch.external), batch.rejected) == (2, {})


def test_numbers_may_be_written_as_text_or_with_a_point():
    """Source: as above; int32 and fixed64 alike."""
    found = json.loads(as_json(export([made({})])))
    written = {"flags": "257", "droppedAttributesCount": "3", "startTimeUnixNano": 2.0, "endTimeUnixNano": 1.7e18}
    found["resourceSpans"][0]["scopeSpans"][0]["spans"][0].update(written, status={"code": "2"})
    (span,) = spans_of(read(json.dumps(found).encode(), json=True))
    assert (span.sampled, span.dropped, span.failed) == (True, 3, True)
    assert (span.start_ns, span.end_ns) == (2, 17 * 10**17)


@pytest.mark.parametrize("wrong", [{"attributes": "x"}, {"name": 5}, {"startTimeUnixNano": 2.5}, {"events": [7]}])
def test_a_span_of_other_types_is_rejected_and_its_neighbours_are_read(wrong):
    found = json.loads(as_json(export([made({}), made({})])))
    found["resourceSpans"][0]["scopeSpans"][0]["spans"][0].update(wrong)
    batch = read(json.dumps(found).encode(), json=True)
    assert (batch.spans, len(batch.external), batch.rejected) == (2, 1, {constants.INVALID_SCHEMA: 1})


def test_an_attribute_whose_key_is_written_twice_spoils_no_request():
    """Of a field that stands twice the last one counts, so this one is no record after all."""
    span = export([made({})]).resource_spans[0].scope_spans[0].spans[0].SerializeToString()
    twice = field(1, b"ragmon.record") + field(1, b"x") + field(2, field(1, b"{}"))
    body = field(1, field(2, field(2, span + field(9, twice)) + field(2, span)))
    assert read(body, json=False).spans == 2


def test_members_without_end_do_not_fill_the_memory():
    """A list's entries have a place for every member any of them has."""
    body = export([made({f"llm.output_messages.{i}.m{i}": "x" for i in range(3000)})]).SerializeToString()
    tracemalloc.start()
    try:
        assert len(spans_of(read(body, json=False))) == 1
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("time", ["-1", -1, str(2**64), "9" * 400, "soon"])
def test_a_time_in_json_that_the_protocol_cannot_hold_is_rejected(time):
    found = json.loads(as_json(export([made({})])))
    found["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["endTimeUnixNano"] = time
    batch = read(json.dumps(found).encode(), json=True)
    assert (batch.external, batch.rejected) == ([], {constants.INVALID_SCHEMA: 1})


def survives(body, as_json_too):
    """Whatever comes is a batch whose spans can be mapped, or refused with a reason."""
    try:
        batch = read(body, json=as_json_too)
    except Rejected:
        return
    assert batch.spans == len(batch.native) + len(batch.external) + batch.stages + batch.rejected.total()
    assert bool(batch.first) == bool(batch.rejected)
    spans = spans_of(batch)
    assert all(isinstance(span, Span) for span in spans)
    traces = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    for trace in traces.values():
        record = to_record(trace).record
        assert record is None or isinstance(record, Record)


@ENCODINGS
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(as_json_too, body):
    survives(body, as_json_too)


@st.composite
def damaged(draw, body):
    """A real request with some bytes changed, cut out or doubled."""
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body) - 1))
        new = draw(
            st.binary(max_size=3) | st.sampled_from([b"\xff", b"\x80\x80", b"\xed\xa0\x80", b"\\ud800", b"9" * 20])
        )
        body = body[:place] + new + body[place + draw(st.integers(0, 3)) :]
    return body


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(damaged(WHOLE))
def test_damaged_protobuf_is_a_request_or_refused(body):
    survives(body, as_json_too=False)


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(damaged(as_json(ExportTraceServiceRequest.FromString(WHOLE))))
def test_damaged_json_is_a_request_or_refused(body):
    survives(body, as_json_too=True)


@pytest.mark.slow
@ENCODINGS
def test_numbers_that_are_none_and_very_many_attributes_are_survived(as_json_too):
    documents = {
        f"{semconv.RETRIEVED}.{n}.document.{part}": v
        for n in range(3000)
        for part, v in (("id", f"d{n}"), ("score", float("nan")), ("content", "x"))
    }
    spans = [made({semconv.SPAN_KIND: "RETRIEVER", semconv.VECTOR_TOP_K: float("-inf"), **documents})]
    record = to_record(spans_of(received(export(spans), as_json_too))).record
    assert record.retrieved_ids == [f"d{n}" for n in range(1001)]
    assert record.scores is None


@ENCODINGS
@pytest.mark.parametrize("member", ['"latency_ms":"812 parsecs"', '"ts":"03/04/2025"', '"tags":["de"]', '"qid":[1]'])
def test_a_field_of_a_record_of_ragmons_own_that_cannot_be_read_is_unknown(as_json_too, member):
    line = '{"v":1,"q":"Is it?","answer_json":{"claim":"Yes."},' + member + "}"
    span = made({semconv.RAGMON_RECORD: line}, scope="ragmon")
    (native,) = received(export([span], scope="ragmon"), as_json_too).native
    unknown = {}
    found = record_in(native, unknown)
    assert (found.q, found.answer_json.claim, found.source, found.trace_id) == ("Is it?", "Yes.", "live", span.trace_id)
    assert found.ts == span.end_ns / 1e9
    assert unknown == {f"{json.loads('{' + member + '}').popitem()[0]}|unreadable": 1}
    mapped = to_record([span])
    assert (mapped.record.q, [*mapped.missing.values()]) == ("Is it?", ["unreadable"])
