"""Whatever comes, in whatever order and however often: what is good is scored once, the rest has a reason."""

from __future__ import annotations

import json
import math
import random
import socket
from collections import Counter
from itertools import chain, permutations

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families as parse

from ragmon.core import semconv
from ragmon.core.record import encode
from ragmon.stream.assembler import AssemblyLimits
from tests.ingest.test_bad_input import REJECTED
from tests.support.command_line import ragmon
from tests.support.otlp_requests import as_json, export
from tests.support.process_usage import peak
from tests.support.serving import (
    BEGIN,
    PROTOBUF,
    Time,
    accounted,
    asked,
    configuration,
    digest,
    foreign,
    journalled,
    pass_by,
    post,
    process,
    replayed,
    send_body,
    serving,
    whole,
    within,
)
from tests.support.waiting import TIMEOUT

PATIENT = AssemblyLimits(idle=30.0, rootless=60.0)
JSON = "application/json"


# --- order ------------------------------------------------------------------------------------------------------------


def day(n=400):
    """Requests of the last twenty hours, in order of time; some were refused, some fail."""
    rng = random.Random(4)
    for number, ago in enumerate(sorted((rng.uniform(0, 72_000) for _ in range(n)), reverse=True)):
        told = rng.choice([{}, {}, {"claim": "not in context", "citations": []}, {"retrieved": []}])
        yield asked(number, ts=BEGIN - ago, **told)


def pieces(records, frameworks, rng):
    """Exports of parts of the same requests: each thrice, in any order, one at a time or many."""
    parts = [[record] for record in records for _ in range(3)]
    parts += [[span] for spans in frameworks for span in spans for _ in range(3)]
    rng.shuffle(parts)
    while parts:
        taken = [parts.pop() for _ in range(min(len(parts), rng.choice([1, 5, 100])))]
        own = [part[0] for part in taken if not hasattr(part[0], "span_id")]
        spans = [part[0] for part in taken if hasattr(part[0], "span_id")]
        if own:
            yield whole(own), PROTOBUF
        if spans:
            yield (
                (export(spans).SerializeToString(), PROTOBUF) if rng.random() < 0.5 else (as_json(export(spans)), JSON)
            )


@pytest.mark.slow
def test_order_and_repetition_change_no_count(tmp_path):
    """Clean and in order, or shuffled and each thrice, and once more when all is done."""
    records, frameworks = list(day()), [foreign(n, at=BEGIN - n) for n in range(40)]
    clean = [(whole(records), PROTOBUF), (export(chain(*frameworks)).SerializeToString(), PROTOBUF)]
    found = {}
    for name, bodies in (("clean", clean), ("shuffled", list(pieces(records, frameworks, random.Random(8))))):
        time = Time()
        (tmp_path / name).mkdir()
        with serving(tmp_path / name, clock=time.clock(), assembly_limits=PATIENT) as running:
            for body, kind in bodies:
                send_body(running, body, kind)
            pass_by(running, time, 61.0)
            if name == "shuffled":
                for body, kind in clean:
                    send_body(running, body, kind)
            books = accounted(running)
            found[name] = digest(running), books["scored"]
            spans = running.status()["spans_dropped"]
        assert replayed(tmp_path / name) == found[name][0]
    assert found["shuffled"] == found["clean"]
    assert found["clean"][1] == 440
    assert books["duplicate"] == 3 * 400
    assert spans == {"duplicate": 2 * 80, "late": 80}


@pytest.mark.slow
@pytest.mark.parametrize("places", list(permutations(range(3))))
@pytest.mark.parametrize("restarts", [False, True])
def test_a_decorated_call_and_what_was_traced_in_it_count_the_same_in_any_order(tmp_path, places, restarts):
    """One record and one trace that is none, also where the server is started anew after each export."""
    record = asked(1)
    exports = [whole([record]), *(export([span]).SerializeToString() for span in within(record, 1))]
    time = Time(now=record.ts)
    for bodies in [[exports[place]] for place in places] if restarts else [[exports[place] for place in places]]:
        with serving(tmp_path, clock=time.clock(), assembly_limits=PATIENT) as running:
            for body in bodies:
                send_body(running, body)
    with serving(tmp_path, clock=time.clock(), assembly_limits=PATIENT) as running:
        pass_by(running, time, 61.0)
        books = accounted(running)
    assert (books["received"], books["scored"], books["ignored"]) == (2, 1, {"decorated": 1})
    assert len(journalled(tmp_path)) == 1


# --- what is no request -----------------------------------------------------------------------------------------------


def holding(line, number):
    """An export of a span of ragmon's whose record is this line."""
    message = ExportTraceServiceRequest.FromString(whole([asked(number)]))
    for pair in message.resource_spans[0].scope_spans[0].spans[0].attributes:
        if pair.key == semconv.RAGMON_RECORD:
            pair.value.string_value = line
    return message.SerializeToString()


LINES = {
    name: (line.decode().replace('{"qid"', '{"v":1,"qid"', 1), reason)
    for name, (line, reason) in REJECTED.items()
    if line.isascii() and len(line) < 1 << 20
}
"""Records that are none, as trace files have them."""


def broken(change):
    """An export with one span something is wrong with."""
    message = ExportTraceServiceRequest.FromString(whole([asked(1)]))
    change(message.resource_spans[0].scope_spans[0].spans[0])
    return message.SerializeToString()


def deep(levels):
    """A value in a list in a list."""
    value = b"\x0a\x01x"
    for _ in range(levels):
        inner = b"\x0a" + varint(len(value)) + value
        value = b"\x2a" + varint(len(inner)) + inner
    return value


def varint(number):
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def nested(levels):
    """An export whose only attribute is nested so deep."""
    body = deep(levels)
    for tag in (b"\x12", b"\x4a", b"\x12", b"\x12", b"\x0a"):
        body = tag + varint(len(body)) + body
    return body


GOOD = as_json(export(foreign(1)[1:]))
BODIES = {
    "a broken end": (whole([asked(1)])[:-7], PROTOBUF, 400, "malformed_protobuf"),
    "no message": (b"\xff" * 40, PROTOBUF, 400, "malformed_protobuf"),
    "values in values": (nested(200), PROTOBUF, 200, "malformed_protobuf"),
    "no id": (broken(lambda span: setattr(span, "trace_id", bytes(16))), PROTOBUF, 200, "invalid_schema"),
    "half of an id": (broken(lambda span: setattr(span, "span_id", b"1234")), PROTOBUF, 200, "invalid_schema"),
    "half of JSON": (GOOD[: len(GOOD) // 2], JSON, 400, "malformed_json"),
    "5,000 digits": (GOOD.replace(b"0.5", b"9" * 5000), JSON, 200, "malformed_json"),
    "an array": (b"[" + GOOD + b"]", JSON, 400, "invalid_schema"),
    "JSON in JSON in JSON": (b'{"x":' + b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000 + b"}", JSON, 400, "depth"),
    "an odd id": (as_json(export(foreign(1)[:1])).replace(b"0000", b"xxxx"), JSON, 200, "invalid_schema"),
}
"""Exports that are none, or hold a span that is none, how they are answered, and what they are counted as."""


@pytest.mark.slow
def test_among_thousands_of_good_requests_each_kind_of_bad_one_is_counted_exactly(tmp_path):
    """One in a hundred of each kind."""
    share = 20
    rng, good = random.Random(6), [asked(n) for n in range(100 * share)]
    exports = [(whole(good[n : n + 10]), PROTOBUF) for n in range(0, len(good), 10)]
    expected = Counter()
    for n, (line, reason) in enumerate(LINES.values()):
        expected[reason] += share
        exports += [(holding(line, 10_000 + 100 * n + k), PROTOBUF) for k in range(share)]
    answers = Counter({200: len(exports)})
    for body, kind, code, reason in BODIES.values():
        expected[reason] += share
        answers[code] += share
        exports += [(body, kind)] * share
    rng.shuffle(exports)
    with serving(tmp_path) as running:
        codes = Counter(post(f"{running.otlp}/v1/traces", body, kind)[0] for body, kind in exports)
        books = accounted(running)
        found = digest(running)
    assert (books["scored"], books["duplicate"], books["dropped"]) == (len(good), 0, dict(expected))
    assert books["received"] == len(good) + expected.total()
    assert codes == answers
    assert {record.trace_id for record in journalled(tmp_path)} == {record.trace_id for record in good}
    assert replayed(tmp_path) == found


@pytest.mark.slow
def test_a_hundred_megabytes_in_one_body_cost_no_memory(tmp_path):
    """Whether it says how long it is, or goes on and on: it is refused, and the next request is scored."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        send_body(running, whole([asked(1)]))
        before = peak(running.pid)
        for announced in (True, False):
            assert b" 413 " in pour(running, 100 << 20, announced=announced)
        assert peak(running.pid) - before < 32 << 20
        send_body(running, whole([asked(2)]))
        books = accounted(running)
        assert (books["scored"], running.status()["refused"]) == (2, {"oversize": 2})
        assert running.stop() == 0


def pour(running, size, *, announced):
    """Send so many bytes as one body, or as many as are taken; returns how it is answered."""
    host, port = running.otlp.removeprefix("http://").split(":")
    length = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
    piece = b"x" * (1 << 20)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as sock:
        sock.sendall(
            f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nContent-Type: {PROTOBUF}\r\n{length}\r\n\r\n".encode()
        )
        try:
            for _ in range(size // len(piece)):
                sock.sendall(piece if announced else b"%x\r\n%s\r\n" % (len(piece), piece))
        except OSError:
            pass
        return sock.recv(4096).partition(b"\r\n")[0]


# --- odd text and odd numbers -----------------------------------------------------------------------------------------

TEXTS = {
    "half a surrogate pair": "\ud800",
    "zeros": "a\0b",
    "line ends and quotes": 'a"b\\c\nd\r\u2028e',
    "markup": "<script>alert(1)</script>|`x`|[a](javascript:x)",
    "ten thousand characters": "\U0001f600é" * 5000,
    "nothing but space": " \t ",
    "a name of Prometheus": '__name__="x"} 1',
    "right to left": "\u202eabc\u0000",
}


def everywhere(text, number):
    """A request with this text in every field that is text, one after the other."""
    fields = {
        **dict.fromkeys(("pipeline", "qid", "q", "index_hash", "build", "session", "error", "ended"), text),
        "tags": {text: text},
        "retrieved_ids": [text],
        "contexts": [text],
        "answer_json": {"claim": text, "citations": [text]},
        "sampling": {"audit": True, "stratum": text, "p_audit": 1.0, "p": 1.0},
        "measures": {text: 1.0},
        "trace_id": text,
        "parent_span_id": text,
    }
    for place, (name, value) in enumerate(fields.items()):
        record = json.loads(encode(asked(number + place)))
        yield holding(json.dumps({**record, name: value}), number + place)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_whatever_text_comes_in_whatever_field_every_page_can_be_read(tmp_path, name):
    text = TEXTS[name]
    half = name == "half a surrogate pair"
    with serving(tmp_path, '[capture]\ncontent = "full"\n[slices]\nlang = ["de"]\n') as running:
        for body in everywhere(text, 0):
            send_body(running, body)
        if not half:
            odd = {f"retrieval.documents.0.document.{key}": text for key in ("id", "content")}
            spans = [span._replace(name=text, attributes={**span.attributes, text: text}) for span in foreign(1)]
            spans[1] = spans[1]._replace(attributes={**spans[1].attributes, **odd})
            send_body(running, export(spans, **{"service.name": text, "service.version": text}).SerializeToString())
        books = accounted(running)
        assert (books["scored"], books["dropped"]) == ((0, {"invalid_utf8": 16}) if half else (17, {}))
        pages = {path: running.get(path) for path in ("/", "/metrics", "/api/status", "/api/records")}
        assert {code for code, _ in pages.values()} == {200}
        assert "<script>alert" not in pages["/"][1]
        for family in parse(pages["/metrics"][1]):
            assert all(len(value) <= 128 for sample in family.samples for value in sample.labels.values())
    report = ragmon("replay", "--journal", tmp_path / "state", "--config", tmp_path / "ragmon.toml", "--format", "md")
    assert (report.code, report.err) == (0, "")
    assert "<script>alert" not in report.out


NUMBERS = {
    '"scores":[%s]': ("-0.0", "1e308", "true"),
    '"measures":{"groundedness":%s}': ("-0.0", "1e308", "-5", "true"),
    '"latency_ms":{"total":%s}': ("-0.0", "1e308", "-5", "true"),
    '"ts":%s': ("1e308", "true"),
    '"sampling":{"audit":true,"stratum":"rest","p_audit":1,"p":%s}': ("1e-308", "-0.0", "0", "1e308", "true"),
}
"""Fields that hold a number, and odd ones; the field is unknown, and a score too large counts as 1."""
NO_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999")


def test_no_number_makes_a_series_that_is_none(tmp_path):
    """Neither one that is no number, nor one that is too large, nor a truth value."""
    odd = [shape % number for shape, numbers in NUMBERS.items() for number in (*numbers, *NO_NUMBERS)]
    exports = []
    for n, field in enumerate(odd):
        record = json.loads(encode(asked(n)))
        record.pop(field.split('"')[1], None)
        exports.append(holding(f"{json.dumps(record)[:-1]},{field}}}", n))
    values = [math.nan, math.inf, -math.inf, -0.0, 1e308, True, 2**63 - 1]
    spans = [span for n, value in enumerate(values) for span in foreign(n, score=value)]
    with serving(tmp_path, '[capture]\ncontent = "full"\n') as running:
        for body in [*exports, export(spans).SerializeToString()]:
            send_body(running, body)
        books = accounted(running)
        assert (books["scored"], books["dropped"]) == (len(odd) + len(values), {})
        assert all(map(math.isfinite, running.metrics().values()))
        found = digest(running)
    for record in journalled(tmp_path):
        assert all(map(math.isfinite, record.scores or ()))
    assert replayed(tmp_path) == found
