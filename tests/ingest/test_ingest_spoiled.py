"""One bad span spoils no batch: the others are scored, and what is lost is counted span by span, by its reason."""

from __future__ import annotations

import json
import random
from time import time_ns
from urllib.parse import urlsplit

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.core import constants, semconv
from ragmon.ingest import otlp
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.lines import Rejected
from ragmon.ingest.otlp import MALFORMED_PROTOBUF, read
from ragmon.ingest.receiver import Encoding
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Event
from ragmon.server.erasure import remove_traces
from ragmon.server.pending import UnreadableError, decode_traces
from tests.support.effort import effort, least_ratio
from tests.support.otlp_requests import add, as_json, field, put
from tests.support.recorded_spans import START, made
from tests.support.serving import PROTOBUF, accounted, post, serving

SPANS = 100
BAD = 50
"""Which of them is bad."""
JSON = "application/json"
QUESTION = b'{"stringValue": "Is it MARK?"}'


def request(count=SPANS, *, first=1, now=False, **bad):
    """Retrievals of a trace each in one scope; the bad one has a mark in its question, and what else it is given."""
    end = time_ns() if now else START
    found = ExportTraceServiceRequest()
    process = found.resource_spans.add()
    put(process.resource.attributes, {"service.name": "shop"})
    scope = process.scope_spans.add()
    scope.scope.name = "retriever"
    for number in range(count):
        told = {semconv.OPERATION: "retrieval", semconv.DOCUMENTS: f'[{{"id": "d{number}"}}]'}
        told[semconv.QUERY_TEXT] = f"Is it {'MARK' if number == BAD else number}?"
        span = made(told)._replace(trace_id=f"{first + number:032x}", start_ns=end - 10**9, end_ns=end)
        add(scope.spans, span._replace(**bad) if number == BAD else span)
    return found


def in_protobuf(old, new, **bad):
    """Protobuf with some bytes of the bad span changed; lengths stand before what they are of."""
    body = request(**bad).SerializeToString()
    assert len(old) == len(new)
    assert old in body
    return body.replace(old, new)


def nested(depth):
    """Protobuf whose bad span has lists in each other."""
    value = field(1, b"x")
    for _ in range(depth):
        value = field(5, field(1, value))
    found = request()
    spans = found.resource_spans[0].scope_spans[0].spans
    bodies = [span.SerializeToString() for span in spans]
    bodies[BAD] += field(9, field(1, b"deep") + field(2, value))
    return field(1, field(2, b"".join(field(2, body) for body in bodies)))


def in_json(old, new):
    """JSON with some bytes changed."""
    body = as_json(request())
    assert old in body
    return body.replace(old, new)


def in_span(**members):
    """JSON whose bad span has other members."""
    found = json.loads(as_json(request()))
    found["resourceSpans"][0]["scopeSpans"][0]["spans"][BAD].update(members)
    return json.dumps(found).encode()


DEEP = b'{"arrayValue":{"values":[' * 9999 + b"]}}" * 9999
RAISED = [Event("exception", {"exception.type": "what"})]
PROTOBUF_FAULTS = {
    "a byte that is not a character": (in_protobuf(b"MARK", b"MA\xffK"), {}),
    "a character cut off": (in_protobuf(b"MARK", b"MAR\xc3"), {}),
    "half of a surrogate pair": (in_protobuf(b"MARK", b"M\xed\xa0\x80"), {}),
    "in a key": (in_protobuf(b"exception.type", b"exception.typ\xff", events=RAISED), {}),
    "in the name of an event": (in_protobuf(b"\x09exception", b"\x09exceptio\xff", events=RAISED), {}),
    "in the name of the span": (in_protobuf(b"bad name", b"bad\xffname", name="bad name"), {}),
    "in the name of the scope": (in_protobuf(b"retriever", b"retrieve\xff"), {}),
    "in what the process says of itself": (in_protobuf(b"shop", b"sho\xff"), {}),
    "a field of a kind there is not": (
        in_protobuf(b"\x0a\x0bIs it MARK", b"\x0f\x0bIs it MARK"),
        {MALFORMED_PROTOBUF: 1},
    ),
    "a length that is too long": (in_protobuf(b"\x0a\x0bIs it MARK", b"\x0a\x7fIs it MARK"), {MALFORMED_PROTOBUF: 1}),
    "lists in lists": (nested(1000), {MALFORMED_PROTOBUF: 1}),
    "an id that is none": (in_protobuf((BAD + 1).to_bytes(16, "big"), bytes(16)), {constants.INVALID_SCHEMA: 1}),
}
JSON_FAULTS = {
    "the first half of a surrogate pair": (in_json(b"MARK", rb"so \ud83d"), {}),
    "the second half": (in_json(b"MARK", rb"\uDE00 so"), {}),
    "the halves the wrong way round": (in_json(b"MARK", rb"\ude00\ud83d"), {}),
    "a half after a whole pair": (in_json(b"MARK", rb"\ud83d\ude00\ud83d"), {}),
    "a half after backslashes": (in_json(b"MARK", rb"\\\ud83d \\ud83d\udc00 \\\\\udc00"), {}),
    "a byte that is not a character": (in_json(b"MARK", b"caf\xe9"), {}),
    "half of a surrogate pair in bytes": (in_json(b"MARK", b"\xed\xa0\x80"), {}),
    "in the keys": (in_json(b'"thread.id"', b'"thread\xff\\ud800"'), {}),
    "in the name of the scope": (in_json(b'"retriever"', b'"retrieve\xff\\udfff"'), {}),
    "in what the process says of itself": (in_json(b'"shop"', b'"sho\xff\\ud800"'), {}),
    "a line break in a text": (in_json(b"MARK", b"one\ttwo"), {}),
    "a number that is none": (in_json(QUESTION, b'{"doubleValue": NaN}'), {}),
    "a number that no float holds": (in_json(QUESTION, b'{"doubleValue": 1e999}'), {}),
    "an escape there is not": (in_json(b"MARK", rb"\x41"), {constants.MALFORMED_JSON: 1}),
    "a comma too many": (in_json(QUESTION, QUESTION + b","), {constants.MALFORMED_JSON: 1}),
    "lists in lists": (in_json(QUESTION, DEEP), {constants.DEPTH: 1}),
    "a name that is not text": (in_span(name=5), {constants.INVALID_SCHEMA: 1}),
    "an id that is none": (in_span(spanId="xyz"), {constants.INVALID_SCHEMA: 1}),
    "a time that is none": (in_span(startTimeUnixNano="soon"), {constants.INVALID_SCHEMA: 1}),
    "a bad span beside half of a pair": (in_span(name=5).replace(b"shop", rb"\ud800"), {constants.INVALID_SCHEMA: 1}),
}
FAULTS = {f"protobuf: {name}": (Encoding.PROTOBUF, *fault) for name, fault in PROTOBUF_FAULTS.items()}
FAULTS |= {f"json: {name}": (Encoding.JSON, *fault) for name, fault in JSON_FAULTS.items()}


@pytest.mark.slow
def test_a_bad_span_is_repaired_or_lost_alone_and_the_other_ninety_nine_are_records():
    for form, body, lost in FAULTS.values():
        taken = decode_traces(body, form)
        assert taken.counts.dropped == lost, (form, body, lost)
        assert taken.counts.received == taken.result.rejected == sum(lost.values()), (form, body, lost)
        assert bool(taken.result.message) == bool(lost), (form, body, lost)
        records = [to_record([one.span()]).record for one in taken.external]
        assert len(records) == SPANS - sum(lost.values()), (form, body, lost)
        assert {record.retrieved_ids[0] for record in records} >= {f"d{n}" for n in range(SPANS) if n != BAD}, (
            form,
            body,
            lost,
        )


@pytest.mark.parametrize(("body", "lost"), JSON_FAULTS.values(), ids=JSON_FAULTS)
def test_and_so_it_is_in_a_file(tmp_path, body, lost):
    path = tmp_path / "spans.jsonl"
    path.write_bytes(body + b"\n" + as_json(request(1)) + b"\n")
    intake = ReadSummary()
    records = list(read_files([str(path)], intake))
    # The trace of the second line is the first one of the first: a file holds whole traces.
    assert len(records) == SPANS - sum(lost.values())
    assert intake.rejected == lost
    assert intake.read == SPANS


def test_a_half_of_a_pair_is_a_question_mark_in_either_encoding():
    bodies = ((Encoding.JSON, in_json(b"MARK", rb"M\ud83d")), (Encoding.PROTOBUF, in_protobuf(b"MARK?", b"M?\xffK?")))
    asked = [to_record([decode_traces(body, form).external[BAD].span()]).record.q for form, body in bodies]
    assert asked == ["Is it M??", "Is it M??K?"]


def test_a_request_that_was_repaired_is_journalled_as_it_was_read():
    """So whoever reads it again, after a crash or to forget a trace, need not repair it."""
    taken = decode_traces(in_protobuf(b"MARK", b"MA\xffK"), Encoding.PROTOBUF)
    assert len(ExportTraceServiceRequest.FromString(taken.body).resource_spans[0].scope_spans[0].spans) == SPANS
    for body in (in_json(b"MARK", b"caf\xe9"), in_json(QUESTION, QUESTION + b","), in_span(name=5, traceId=7)):
        taken = decode_traces(body, Encoding.JSON)
        again = read(taken.body, json=True)
        assert [one.span() for one in again.external] == [one.span() for one in taken.external]
        assert (again.body, again.rejected) == (b"", {})
        left = remove_traces("json", taken.body, {taken.external[0].trace_id.hex()})
        assert left.removed == 1
        assert len(read(left.body, json=True).external) == len(taken.external) - 1
    for whole, form in ((request().SerializeToString(), Encoding.PROTOBUF), (as_json(request()), Encoding.JSON)):
        assert decode_traces(whole, form).body == whole


BROKEN = {
    "protobuf that breaks off": (Encoding.PROTOBUF, request().SerializeToString()[:-7], SPANS, MALFORMED_PROTOBUF),
    "json that breaks off": (Encoding.JSON, as_json(request())[:-7], SPANS, constants.MALFORMED_JSON),
    "json that breaks off in a text": (
        Encoding.JSON,
        as_json(request()).partition(b"MARK")[0],
        BAD,
        constants.MALFORMED_JSON,
    ),
    "json with brackets that do not match": (Encoding.JSON, as_json(request()) + b"]", SPANS, constants.MALFORMED_JSON),
    "no protobuf": (Encoding.PROTOBUF, b"\x0b\xff", 1, MALFORMED_PROTOBUF),
    "no json": (Encoding.JSON, b"nothing", 1, constants.MALFORMED_JSON),
    "a resource of another type": (
        Encoding.JSON,
        in_json(b'"resource": {', b'"resource": 7, "x": {'),
        SPANS,
        constants.INVALID_SCHEMA,
    ),
}


@pytest.mark.parametrize(("form", "body", "lost", "reason"), BROKEN.values(), ids=BROKEN)
def test_of_a_request_that_cannot_be_read_at_all_the_spans_are_counted_that_seem_to_be_in_it(form, body, lost, reason):
    with pytest.raises(UnreadableError) as refused:
        decode_traces(body, form)
    # Where a text breaks off before a span says when it began, that span is not seen.
    assert lost <= refused.value.counts.received <= lost + 1
    assert refused.value.counts.dropped == {reason: refused.value.counts.received}


def test_a_resource_with_a_number_that_is_none_costs_no_span():
    """Of a process its name and its version are read, and those are texts."""
    found = json.loads(as_json(request()))
    resource = found["resourceSpans"][0]["resource"]
    resource["attributes"].append({"key": "host.cpus", "value": {"intValue": "many"}})
    taken = decode_traces(json.dumps(found).encode(), Encoding.JSON)
    assert (len(taken.external), taken.counts.dropped) == (SPANS, {})


def flipped(body, chance):
    """A request with one to three bits changed somewhere."""
    changed = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("form", Encoding, ids=lambda form: form.value)
def test_of_a_request_with_any_bits_changed_no_more_spans_are_lost_than_were_hit(form):
    """Where its structure holds: otherwise all of them are counted as lost, and none is read."""
    chance, whole = random.Random(15), request(20)
    body = as_json(whole) if form is Encoding.JSON else whole.SerializeToString()
    read_at_all, lost = 0, set()
    for _ in range(600):
        changed = flipped(body, chance)
        try:
            batch = read(changed, json=form is Encoding.JSON)
        except Rejected as rejected:
            lost.add(rejected.lost_spans)
            continue
        read_at_all += 1
        assert batch.spans == len(batch.native) + len(batch.external) + batch.stages + batch.rejected.total()
        # A bit of a key may have named a list of spans otherwise, which is then a field that nobody knows.
        assert batch.rejected.total() <= 3
        assert all(to_record([one.span()]) for one in batch.external)
    assert read_at_all > 300
    assert lost <= {*range(1, 22)}


TRANSPORTS = {"protobuf": PROTOBUF, "json": JSON, "grpc": None}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSPORTS.values(), ids=TRANSPORTS)
def test_a_server_scores_the_rest_and_accounts_for_every_span(tmp_path, kind):
    repaired, refused = request(now=True), request(now=True, first=1000)
    if kind == JSON:
        bodies = as_json(repaired).replace(b"MARK", rb"\ud83d"), as_json(refused).replace(QUESTION, QUESTION + b",")
        broken, reason = b'{"resourceSpans":[', constants.MALFORMED_JSON
    else:
        bodies = tuple(one.SerializeToString() for one in (repaired, refused))
        bodies = bodies[0].replace(b"MARK", b"MAR\xc3"), bodies[1].replace(b"\x0a\x0bIs it MARK", b"\x0a\x7fIs it MARK")
        broken, reason = b"\x0a\x05", MALFORMED_PROTOBUF
    with serving(tmp_path) as running:
        assert not send(running, bodies[0], kind)
        assert send(running, bodies[1], kind)
        assert not send(running, broken, kind, status=400)
        books = accounted(running)
        assert (books["scored"], books["dropped"]) == (2 * SPANS - 1, {reason: 2})


def send(running, body, kind, status=200):
    """Hand in an export over HTTP or gRPC; returns whether it is said that spans of it were refused."""
    if kind is not None:
        got, text = post(f"{running.otlp}/v1/traces", body, kind)
        assert got == status, text
        return status == 200 and text not in ("", "{}")
    with grpc.insecure_channel(urlsplit(running.grpc).netloc) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        if status == 200:
            return call(body) != b""
        with pytest.raises(grpc.RpcError) as refused:
            call(body)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        return False


def test_a_request_that_is_whole_is_never_looked_at_twice(monkeypatch):
    """Nothing is repaired before a parser has refused it: most requests pay nothing for the few."""
    for module, name in ((otlp, "repaired_json"), (otlp, "split_request"), (otlp, "repaired_protobuf")):
        monkeypatch.setattr(module, name, None)
    for form, body in ((Encoding.JSON, as_json(request())), (Encoding.PROTOBUF, request().SerializeToString())):
        assert len(decode_traces(body, form).external) == SPANS


MEBIBYTES = 8 << 20
HOSTILE = {
    "halves of pairs": rb"\ud83d" * (MEBIBYTES // 6),
    "second halves": rb"\ude00" * (MEBIBYTES // 6),
    "whole pairs and a half": rb"\ud83d\ude00" * (MEBIBYTES // 12) + rb"\ud83d",
    "backslashes": rb"\\" * (MEBIBYTES // 2) + rb"\ud83d",
    "bytes that are no characters": b"\xff" * MEBIBYTES,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_repairing_takes_time_in_proportion_to_the_request(text):
    """For eight times as much, caches may double it; the whole takes a bounded multiple of plain parsing."""
    part, whole = (b'"' + some + b'"' for some in (text[-len(text) // 8 :], text))
    assert least_ratio(lambda: otlp.repaired_json(whole), lambda: otlp.repaired_json(part), enough=16) <= 16
    assert effort(lambda: otlp.repaired_json(whole))[0] <= 80
