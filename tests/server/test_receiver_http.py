"""The write port over HTTP: real exporters, people's JSON, and everybody else who may come to an open port."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession
from ragmon.core.errors import PAUSE, RagmonError, RateLimitedLog, UnknownNameError
from ragmon.core.http_server import HttpServer, RejectedError, RequestLimits
from ragmon.core.network import Address
from ragmon.core.record import Record
from ragmon.ingest import receiver as door
from ragmon.ingest import receiver as limits
from ragmon.ingest import receiver as messages
from ragmon.ingest.receiver import Encoding, ExportResult, ReceiverApp
from tests.support.examples import cases
from tests.support.fake_consumer import (
    FakeConsumer,
    certificate,
    connect,
    hung_up,
    names_in,
    rest,
    send,
    traced,
    trickling,
)
from tests.support.process_usage import peak
from tests.support.waiting import TIMEOUT, wait_for

ROOT = Path(__file__).parents[2]

PROTOBUF, JSON = "application/x-protobuf", "application/json"
HERE = Address("127.0.0.1", 0)
MIB = 1 << 20
ACK = {"gate": "mrr", "pipeline": "support", "reason": "rolled back"}


@pytest.fixture
def consumer():
    return FakeConsumer()


@pytest.fixture
def opened(consumer):
    """Opens write ports with the test's own limits; they are closed at the end."""
    ports = []

    def open_port(*, token=None, tls=None, connections=400, **how):
        cost = RequestLimits(**how)
        app = ReceiverApp(consumer, token=token, limits=cost)
        port = HttpServer(app, HERE, tls=tls, name="otlp", connections=connections, patience=cost.deadline).start()
        ports.append(port)
        return port.address

    yield open_port
    consumer.release()
    for port in ports:
        port.stop(5.0)


class Current:
    """The desk of the test that runs."""

    consumer = None

    def __getattr__(self, name):
        return getattr(self.consumer, name)

    def refuse(self, reason):
        self.consumer.refuse(reason)


@pytest.fixture(scope="module")
def usual():
    """A write port as it is by default, and the desk behind it."""
    current = Current()
    listening = HttpServer(ReceiverApp(current, token=None), HERE, tls=None, name="otlp").start()
    yield current, listening.address
    listening.stop(5.0)


@pytest.fixture
def port(usual, consumer):
    """The write port as it is by default."""
    usual[0].consumer = consumer
    yield usual[1]
    consumer.release()


def post(address, path, body=b"", kind=PROTOBUF, method="POST", **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Content-Type": kind} | given)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def status(address, *args, **kwargs):
    return post(address, *args, **kwargs)[0]


def exporter(address, scheme="http", **how):
    return OTLPSpanExporter(f"{scheme}://{address}/v1/traces", compression=Compression.Gzip, **how)


def test_opentelemetrys_own_exporter_delivers_its_spans_compressed(consumer, port):
    traced(["ask", "retrieve", "generate"], exporter(port))
    [(what, body, form)] = consumer.taken
    assert (what, form) == ("traces", Encoding.PROTOBUF)
    assert names_in(body) == ["ask", "retrieve", "generate"]


def test_what_ragmons_producers_send_is_handed_in_and_the_connection_kept(consumer, opened):
    sink = OtlpExporter(OtlpSession(f"http://{opened(token='open-sesame')}", token="open-sesame"), resource={})
    assert [sink.deliver([Record(qid=name)]) for name in "ab"] == [{}, {}]
    assert sink.report([])
    assert [what for what, *_ in consumer.taken] == ["traces", "traces", "metrics"]
    sink.close()


def test_json_is_handed_in_as_it_is_and_answered_in_json(consumer, port):
    found, headers, answer = post(port, "/v1/traces", b'{"resourceSpans": []}', f"{JSON}; charset=utf-8")
    assert (found, headers["Content-Type"], json.loads(answer)) == (200, JSON, {})
    assert consumer.taken == [("traces", b'{"resourceSpans": []}', Encoding.JSON)]


@pytest.mark.parametrize(
    ("path", "response", "field"),
    [
        ("/v1/traces", ExportTraceServiceResponse, "rejected_spans"),
        ("/v1/metrics", ExportMetricsServiceResponse, "rejected_data_points"),
    ],
)
def test_what_the_desk_rejects_is_a_partial_success_in_the_form_of_the_request(consumer, port, path, response, field):
    consumer.answers += [ExportResult(3, "no trace id"), ExportResult(3, "no trace id"), ExportResult(0, "no trace id")]
    for kind, read in ((PROTOBUF, response.FromString), (JSON, lambda text: json_format.Parse(text, response()))):
        found, headers, body = post(port, path, b"x", kind)
        partial = read(body).partial_success
        assert (found, headers["Content-Type"]) == (200, kind)
        assert (getattr(partial, field), partial.error_message) == (3, "no trace id")
    assert post(port, path, b"x")[2] == b""


@pytest.mark.parametrize("at_once", [True, False])
def test_a_refusal_of_the_desk_is_told_in_the_form_of_the_request(consumer, port, at_once):
    """And is not counted here: the desk knows of it."""
    error = RejectedError(503, "disk_full", "the disk is full", retry_after=2.5)
    if at_once:
        consumer.raises = error
    consumer.answers += [error, error]
    found, headers, body = post(port, "/v1/traces")
    told = Status.FromString(body)
    assert (found, headers["Content-Type"], headers["Retry-After"]) == (503, PROTOBUF, "3")
    assert (told.code, told.message) == (14, "the disk is full")
    found, headers, body = post(port, "/v1/traces", kind=JSON)
    assert (found, headers["Content-Type"], headers["Retry-After"]) == (503, JSON, "3")
    assert json.loads(body) == {"code": 14, "message": "the disk is full"}
    assert not consumer.refused


@pytest.mark.slow
def test_a_producer_tries_again_what_was_refused_for_now_and_gives_up_what_was_refused_for_good(consumer, port):
    sink = OtlpExporter(f"http://{port}", resource={})
    consumer.answers += [RejectedError(503, "disk_full", "full", retry_after=0.1)]
    assert sink.deliver([Record(qid="a")]) == {}
    assert len(consumer.taken) == 2
    consumer.answers += [RejectedError(400, "malformed", "no protobuf")]
    assert sink.deliver([Record(qid="a")]) == {"export_refused": 1}
    consumer.answers += [ExportResult(1, "odd")]
    assert sink.deliver([Record(qid="a")]) == {"export_refused": 1}
    sink.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "x"])
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/labels", "/v1/ack"])
def test_what_a_web_page_may_send_unasked_is_refused(consumer, port, kind, path):
    found, _, body = post(port, path, json.dumps(ACK), kind)
    assert found == 415
    assert JSON in json.loads(body)["hint"]
    assert not consumer.taken
    assert consumer.refused == {"bad_content_type": 1}


@pytest.mark.parametrize("coding", ["deflate", "br", "gzip, gzip", "gzip,zstd", "x", "gzip;q=1"])
def test_an_unknown_or_double_encoding_is_refused_with_those_that_are_known(consumer, port, coding):
    found, _, body = post(port, "/v1/traces", gzip.compress(gzip.compress(b"")), Content_Encoding=coding)
    assert found == 415
    assert re.search("identity, gzip", Status.FromString(body).message)
    assert consumer.refused == {"bad_content_encoding": 1}


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "identity, gzip", "zstd", "identity", ""])
def test_every_encoding_comes_out_as_what_went_in(consumer, port, coding):
    body = b"spans" * 1000
    sent = gzip.compress(body) if "gzip" in coding.lower() else body
    if coding == "zstd":
        sent = pytest.importorskip("zstandard").ZstdCompressor().compress(body)
    assert status(port, "/v1/traces", sent, Content_Encoding=coding) == 200
    assert consumer.taken == [("traces", body, Encoding.PROTOBUF)]


def test_without_its_extra_zstd_is_refused(monkeypatch, port):
    monkeypatch.setattr(limits, "find_spec", lambda _: None)
    found, _, body = post(port, "/v1/traces", b"", JSON, Content_Encoding="zstd")
    assert found == 415
    assert json.loads(body)["message"].endswith("(one of: identity, gzip)")


def test_labels_come_one_by_one_or_many_at_once(consumer, port):
    label = {"trace_id": "5a", "correct": True, "rater": "ann"}
    consumer.answers += [ExportResult(), ExportResult(2, "no trace_id")]
    assert json.loads(post(port, "/v1/labels", json.dumps(label), JSON)[2]) == {
        "accepted": 1,
        "rejected": 0,
        "message": "",
    }
    found, _, body = post(port, "/v1/labels", json.dumps([label] * 10_000), JSON)
    assert (found, json.loads(body)) == (200, {"accepted": 9998, "rejected": 2, "message": "no trace_id"})
    assert consumer.taken == [("labels", [label]), ("labels", [label] * 10_000)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"a": NaN}', 400),
        (b'"label"', 400),
        (b"[{}, 1]", 400),
        (b"[" * 100_000, 400),
        (b'{"a": 1' + b"0" * 10_000 + b"}", 400),
        (json.dumps([{}] * 10_001), 413),
        (b"[" + b"[]," * 500_000 + b"[]]", 413),
    ],
)
def test_what_are_no_labels_is_refused(consumer, port, body, expected):
    found, _, told = post(port, "/v1/labels", body, JSON)
    assert (found, set(json.loads(told))) == (expected, {"error", "hint"})
    assert not consumer.taken


def test_an_acknowledgement_says_whether_the_alarm_fired(consumer, port):
    consumer.answers += [True, False]
    for fired in (True, False):
        found, _, body = post(port, "/v1/ack", json.dumps(ACK), JSON)
        assert (found, json.loads(body)) == (200, {"fired": fired})
    assert consumer.taken == [("acknowledge", "support", "mrr", "rolled back", "")] * 2


def test_an_unknown_alarm_is_answered_with_the_nearest(consumer, port):
    consumer.answers.append(UnknownNameError("alarm", "mrrr", ["mrr"]))
    found, _, body = post(port, "/v1/ack", json.dumps(ACK), JSON)
    assert (found, json.loads(body)) == (404, {"error": "unknown alarm: 'mrrr'", "hint": "did you mean mrr?"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{", 400),
        ("[]", 400),
        ('{"gate": "mrr"}', 400),
        ('{"gate": "mrr", "reason": ""}', 400),
        ('{"gate": 1, "reason": "x"}', 400),
        ('{"gate": "mrr", "reason": "x", "pipeline": null}', 400),
        (" " * 70_000, 413),
        (gzip.compress(b" " * 70_000), 413),
    ],
)
def test_what_is_no_acknowledgement_is_refused(consumer, port, body, expected):
    coding = "gzip" if isinstance(body, bytes) else "identity"
    assert status(port, "/v1/ack", body, JSON, Content_Encoding=coding) == expected
    assert not consumer.taken


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/labels", "/v1/ack"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "rebound.evil.example:4318"},
        {"Host": "localhost.evil.example"},
        {"Host": ""},
    ],
)
def test_a_web_page_is_refused_whatever_it_asks_for(consumer, port, path, headers):
    assert status(port, path, json.dumps(ACK), JSON, **headers) == 403
    assert not consumer.taken
    assert consumer.refused == {"forbidden": 1}


@pytest.mark.parametrize("host", ["localhost:4318", "LOCALHOST", "127.0.0.1", "[::1]:4318", "10.0.0.7:4318"])
def test_an_address_is_no_name_of_somebody_elses(port, host):
    assert status(port, "/v1/traces", Host=host) == 200


def test_with_a_token_the_server_may_have_a_name_but_pages_are_refused_all_the_same(opened):
    port = opened(token="sesame")
    known = {"Authorization": "Bearer sesame"}
    assert status(port, "/v1/traces", Host="ragmon.example", **known) == 200
    assert status(port, "/v1/traces", Origin="https://ragmon.example", **known) == 403


def basic(user, password):
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Bearer sesame", 200),
        ("bearer sesame", 200),
        ("Bearer  sesame ", 200),
        ("Bearer Sesame", 401),
        ("Bearer sesame2", 401),
        ("Bearer", 401),
        ("sesame", 401),
        ("Basic sesame", 401),
        (basic("any", "sesame"), 200),
        (basic("", "sesame"), 200),
        (basic("sesame", ""), 401),
        (basic("sesame", "sesame2"), 401),
        ("Basic \xe9", 401),
        ("Basic", 401),
        ("Bearer s\xe9same", 401),
        (None, 401),
    ],
)
def test_only_who_knows_the_token_comes_in(consumer, opened, given, expected):
    port = opened(token="sesame")
    found, headers, _ = post(port, "/v1/traces", **({} if given is None else {"Authorization": given}))
    assert found == expected
    assert headers["WWW-Authenticate"] == ('Bearer realm="ragmon"' if expected == 401 else None)
    assert consumer.refused == ({"unauthorised": 1} if expected == 401 else {})


def test_a_large_body_from_a_stranger_is_not_read_and_yet_he_is_told_why(consumer, opened):
    """Whoever is hung up on while he sends sees a reset connection, and looks for the fault in the network."""
    port = opened(token="sesame")
    assert status(port, "/v1/traces", bytes(7 * MIB)) == 401
    assert consumer.refused == {"unauthorised": 1}


@pytest.mark.slow
def test_a_flood_of_strangers_holds_nobody_up(consumer, opened):
    port = opened(token="sesame")
    stop, told = threading.Event(), []

    def stranger():
        while not stop.is_set():
            told.append(status(port, "/v1/traces", b"x" * 1000, Authorization="Bearer guess"))

    threads = [threading.Thread(target=stranger, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    consumer.wait_for(lambda: consumer.refused["unauthorised"] >= 100)
    assert [status(port, "/v1/traces", Authorization="Bearer sesame") for _ in range(20)] == [200] * 20
    stop.set()
    for thread in threads:
        thread.join()
    assert set(told) == {401}
    assert consumer.refused == {"unauthorised": len(told)}


def test_other_paths_say_what_there_is(consumer, port):
    found, _, body = post(port, "/v1/trace")
    assert found == 404
    assert json.loads(body)["hint"].startswith("did you mean /v1/traces")
    assert "/v1/traces" in json.loads(post(port, "/")[2])["hint"]
    assert consumer.refused == {"unknown_path": 2}


@pytest.mark.parametrize("path", ["/v1/traces%0A", "/v1/traces//", "//v1/traces", "/v1/TRACES", "/%0A"])
def test_what_is_nearly_a_path_is_another_one(consumer, opened, path):
    """A proxy that lets some paths through compares them letter by letter."""
    found, _, body = post(opened(token="sesame"), path)
    assert found == 404
    assert json.loads(body)["error"].startswith("there is nothing at ")
    assert consumer.refused == {"unknown_path": 1}
    assert not consumer.taken


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "ODD"])
def test_other_methods_are_told_which_one_is_taken(consumer, port, method):
    found, headers, _ = post(port, "/v1/traces", method=method)
    assert (found, headers["Allow"]) == (405, "POST")
    assert consumer.refused == {"bad_method": 1}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_look_at_the_port_says_what_it_is_for(port, method):
    found, _, body = post(port, "/", method=method)
    assert found == 200
    assert body == (door.PURPOSE.encode() if method == "GET" else b"")


def test_a_host_with_a_path_in_it_does_not_lead_elsewhere(consumer, opened):
    port = opened(token="sesame")
    assert status(port, "/v1/other", Host="h/v1/traces?", Authorization="Bearer sesame") == 404


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(consumer, port):
    with connect(port) as sock:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"
        sock.sendall(f"{head}Content-Length: {8 * MIB + 1}\r\n\r\n".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
    assert consumer.refused == {"oversize": 1}


def test_a_body_without_length_is_counted_as_it_comes(consumer, port):
    with connect(port) as sock:
        sock.sendall(f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n".encode())
        sock.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
        for _ in range(128):
            sock.sendall(chunk)
        assert not consumer.refused
        sock.sendall(chunk)
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
    assert not consumer.taken


def test_the_largest_body_is_taken(consumer, port):
    assert status(port, "/v1/traces", bytes(8 * MIB)) == 200
    assert status(port, "/v1/traces", iter([bytes(4 * MIB)] * 2)) == 200
    assert [len(body) for _, body, _ in consumer.taken] == [8 * MIB] * 2


SERVER = """
import sys
from tests.support.fake_consumer import FakeConsumer
from ragmon.config.units import Address
from ragmon.core.http_server import HttpServer
from ragmon.ingest.receiver import ReceiverApp
port = HttpServer(ReceiverApp(FakeConsumer(), token=None), Address("127.0.0.1", 0), tls=None, name="otlp").start()
print(port.address.port, flush=True)
sys.stdin.read()
port.stop(1.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "chunked", "zstd"])
def test_a_bomb_is_refused_in_little_memory(how):
    """256 MiB of zeros, a thousand to one or more, sent to a server in a process of its own."""
    if how == "zstd":
        bomb = pytest.importorskip("zstandard").ZstdCompressor().compress(bytes(256 * MIB))
    else:
        bomb = gzip.compress(bytes(256 * MIB))
    body = iter([bomb[:1000], bomb[1000:]]) if how == "chunked" else bomb
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        port = Address("127.0.0.1", int(process.stdout.readline()))
        assert status(port, "/v1/traces", gzip.compress(b""), Content_Encoding="gzip") == 200
        before = peak(process.pid)
        coding = "zstd" if how == "zstd" else "gzip"
        assert [status(port, "/v1/traces", body, Content_Encoding=coding)] == [413]
        assert peak(process.pid) - before < 64 * MIB
        assert process.communicate("", timeout=TIMEOUT)


@pytest.mark.slow
def test_two_hundred_trickled_headers_hold_nobody_up_and_are_hung_up_on(consumer, opened):
    port = opened(deadline=5.0)
    slow = [connect(port) for _ in range(200)]
    for sock in slow:
        sock.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n")
    stop = trickling(slow, b"X: y\r\n")
    traced(["served"], exporter(port))
    assert names_in(consumer.taken[0][1]) == ["served"]
    for sock in slow:
        wait_for(lambda sock=sock: hung_up(sock))
        sock.close()
    stop.set()


@pytest.mark.slow
def test_two_hundred_trickled_bodies_hold_nobody_up_and_are_told(consumer, opened):
    """They count as in flight only once they are there."""
    port = opened(deadline=5.0, in_flight=4)
    slow = [connect(port) for _ in range(200)]
    head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 1000000\r\n\r\n"
    for sock in slow:
        sock.sendall(head.encode())
    stop = trickling(slow, b"x")
    traced(["served"], exporter(port))
    assert names_in(consumer.taken[0][1]) == ["served"]
    consumer.wait_for(lambda: consumer.refused["timeout"] == 200)
    for sock in slow:
        assert sock.recv(100).startswith(b"HTTP/1.1 408 ")
    stop.set()
    for sock in slow:
        sock.close()
    assert len(consumer.taken) == 1


def test_beyond_the_most_connections_the_one_that_waited_longest_gives_way(opened, consumer):
    """So whoever comes and asks at once is served, however many sit there."""
    port = opened(connections=10)
    idle = [connect(port) for _ in range(10)]
    idle[0].sendall(b"POST ")
    for _ in range(5):
        assert status(port, "/v1/traces") == 200
    assert rest(idle[0]) == b""
    consumer.holds, told = True, []
    busy = threading.Thread(target=lambda: told.append(status(port, "/v1/traces")))
    busy.start()
    consumer.wait_for(lambda: len(consumer.taken) == 6)
    more = [connect(port) for _ in range(20)]
    consumer.release()
    busy.join()
    assert told == [200]
    for sock in idle + more:
        sock.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        b"X: " + b"y" * 17_000,
        b"X: " + b"y" * 1_000_000,
        b"\r\n".join(b"X%d: y" % i for i in range(3000)),
        b"X" * 100_000,
    ],
)
@pytest.mark.parametrize("piece", [1000, 10_000_000])
def test_headers_that_are_too_large_are_refused_however_they_come(consumer, port, headers, piece):
    sent = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n"
    with connect(port) as sock:
        for start in range(0, len(sent), piece):
            if not send(sock, sent[start : start + piece]):
                break
        assert rest(sock)[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 400 ", b"")
    assert not consumer.taken
    assert status(port, "/v1/traces") == 200


@pytest.mark.parametrize("size", [16_000, 17_000])
def test_headers_have_sixteen_kibibytes(port, size):
    assert status(port, "/v1/traces", X="y" * size) == (200 if size == 16_000 else 431)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n: y\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(consumer, port, sent):
    with connect(port) as sock:
        sock.sendall(sent)
        assert rest(sock).startswith(b"HTTP/1.1 400 ")
    assert status(port, "/v1/traces") == 200


def test_damaged_chunks_after_an_early_answer_end_the_connection_quietly(consumer, opened, caplog):
    port = opened(token="sesame")
    with connect(port) as sock:
        sock.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 401 ")
        sock.sendall(b"zz\r\nno chunk\r\n")
        rest(sock)
    assert not caplog.records


def test_requests_in_one_piece_are_answered_one_after_the_other(consumer, port):
    one = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 1\r\n\r\n"
    with connect(port) as sock:
        sock.sendall(b"".join(one.encode() + bytes([n]) for n in range(5)))
        found = b""
        while found.count(b"HTTP/1.1 200 ") < 5:
            found += sock.recv(1000)
    assert [body for _, body, _ in consumer.taken] == [bytes([n]) for n in range(5)]


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(consumer, port):
    with connect(port) as sock:
        sock.sendall(f"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: {PROTOBUF}\r\n".encode())
        sock.sendall(b"Content-Length: 10\r\n\r\nhalf")
    assert status(port, "/v1/traces", b"whole") == 200
    assert [body for _, body, _ in consumer.taken] == [b"whole"]


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("framing", ["Content-Length: 30000000", "Transfer-Encoding: chunked"])
def test_who_sends_too_much_and_wants_to_be_hung_up_on_reads_why_first(opened, pair, framing, tls):
    """With `Connection: close` the answer ends the connection: he is still sending, and must not see a reset."""
    port = opened(tls=pair if tls else None)
    sock = connect(port)
    if tls:
        sock = ssl.create_default_context(cafile=pair[0]).wrap_socket(sock, server_hostname="127.0.0.1")
    with sock:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\nConnection: close\r\n"
        sock.sendall(f"{head}{framing}\r\n\r\n".encode())
        for _ in range(16 if "chunked" in framing else 30):
            sock.sendall(b"f4240\r\n" + bytes(1_000_000) + b"\r\n" if "chunked" in framing else bytes(1_000_000))
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")


def test_who_goes_on_sending_after_the_answer_is_ended_after_a_while(opened, monkeypatch):
    monkeypatch.setattr("ragmon.core.http_server.LINGER", 0.5)
    with connect(opened()) as sock:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\nConnection: close\r\n"
        sock.sendall(f"{head}Content-Length: 30000000\r\n\r\n".encode())
        stop = trickling([sock], b"x")
        assert rest(sock).startswith(b"HTTP/1.1 413 ")
        wait_for(lambda: not send(sock, b"x"))
        stop.set()


def test_a_request_with_two_lengths_is_the_last_of_its_connection(consumer, port):
    """It is read by its chunks; what another server on the way took for its body is no request here."""
    head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"
    smuggled = f"{head}Content-Length: 8\r\n\r\nsmuggled".encode()
    body = b"5\r\nspans\r\n0\r\n\r\n" + smuggled
    with connect(port) as sock:
        sock.sendall(f"{head}Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)
        assert rest(sock).count(b"HTTP/1.1 ") == 1
    assert [body for _, body, _ in consumer.taken] == [b"spans"]


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_logs_that_are_no_messages_are_taken_and_said_to_be_unread(consumer, port, kind, coding):
    """So that SDKs that send them wherever spans go log no errors."""
    told = ExportLogsServiceRequest()
    for _ in range(2):
        told.resource_logs.add().scope_logs.add().log_records.extend([LogRecord(body={"string_value": "secret"})] * 3)
    body = told.SerializeToString() if kind == PROTOBUF else json_format.MessageToJson(told).encode()
    sent = gzip.compress(body) if coding == "gzip" else body
    found, headers, answer = post(port, "/v1/logs", sent, kind, Content_Encoding=coding)
    read = ExportLogsServiceResponse.FromString(answer) if kind == PROTOBUF else None
    read = read or json_format.Parse(answer, ExportLogsServiceResponse())
    assert (found, headers["Content-Type"]) == (200, kind)
    assert read.partial_success.rejected_log_records == 6
    assert read.partial_success.error_message == messages._MESSAGE
    assert (consumer.taken, consumer.refused) == ([], {"logs_not_read": 1})


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (PROTOBUF, b"\xff", 400),
        (JSON, b"{", 400),
        (JSON, b'{"resourceLogs": [1]}', 400),
        (JSON, b'{"resourceLogs": ' + b"[" * 100_000, 400),
        (PROTOBUF, b"\n\x00" * 1_000_000, 413),
    ],
)
def test_what_are_no_logs_is_refused(port, kind, body, expected):
    assert status(port, "/v1/logs", body, kind) == expected


def test_without_records_nothing_is_rejected(consumer, port):
    assert post(port, "/v1/logs", b"")[2] == b""
    assert json.loads(post(port, "/v1/logs", b"{}", JSON)[2]) == {}
    assert consumer.refused == {}


def test_langfuses_path_is_one_for_traces(consumer, opened):
    """Its exporters sign with Basic: the secret key is the token."""
    port, path = opened(token="sesame"), "/api/public/otel/v1/traces"
    assert status(port, path, b"spans", Authorization=basic("pk-lf-any", "sesame")) == 200
    found, headers, body = post(port, path, b"spans", Authorization=basic("pk-lf-any", "sk-lf-another"))
    assert (found, headers["Content-Type"]) == (401, PROTOBUF)
    assert "that as the password of Basic" in Status.FromString(body).message
    assert consumer.taken == [("traces", b"spans", Encoding.PROTOBUF)]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/logs", "/api/public/otel/v1/traces"])
def test_a_slash_at_the_end_of_a_path_means_nothing(consumer, opened, path):
    port = opened(token="sesame")
    assert status(port, f"{path}/", b"", Authorization="Bearer sesame") == 200
    assert status(port, f"{path}/", b"", Authorization="Bearer guess") == 401
    assert status(port, f"{path}//", b"", Authorization="Bearer sesame") == 404


def test_langfuses_clients_find_a_project_with_their_key(opened):
    port, path = opened(token="sesame"), "/api/public/projects"
    found, _, body = post(port, path, method="GET", Authorization=basic("pk-lf-any", "sesame"))
    (project,) = json.loads(body)["data"]
    assert (found, project["id"], project["name"]) == (200, "ragmon", "ragmon")
    assert project.keys() >= {"organization", "metadata"}
    assert status(port, path, method="GET", Authorization=basic("pk-lf-any", "another")) == 401


def test_who_asks_whether_to_go_on_is_told_so_or_why_not(consumer, opened):
    port = opened(token="sesame")
    head = f"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 5\r\n"
    for token, expected in (("sesame", b"HTTP/1.1 100 "), ("guess", b"HTTP/1.1 401 ")):
        with connect(port) as sock:
            sock.sendall(f"{head}Authorization: Bearer {token}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert sock.recv(1000).startswith(expected)
            if token == "sesame":
                sock.sendall(b"spans")
                assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_more_than_may_be_in_flight_are_asked_to_come_again(consumer, opened):
    port = opened(in_flight=2)
    consumer.holds = True
    told = []
    threads = [threading.Thread(target=lambda: told.append(status(port, "/v1/traces"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    consumer.wait_for(lambda: len(consumer.taken) == 2)
    found, headers, body = post(port, "/v1/traces", bytes(MIB))
    assert (found, headers["Retry-After"], Status.FromString(body).code) == (429, "1", 8)
    assert consumer.refused == {"rate_limited": 1}
    consumer.release()
    for thread in threads:
        thread.join()
    assert told == [200, 200]
    assert status(port, "/v1/traces", bytes(MIB)) == 200


def test_all_bodies_together_are_held_to_a_size(consumer, opened):
    port = opened(memory=MIB)
    consumer.holds = True
    busy = threading.Thread(target=status, args=(port, "/v1/traces", bytes(MIB // 2)))
    busy.start()
    consumer.wait_for(lambda: consumer.taken)
    assert status(port, "/v1/traces", bytes(MIB // 2 + 1)) == 429
    consumer.release()
    busy.join()
    assert status(port, "/v1/traces", bytes(MIB)) == 200


def test_what_goes_wrong_behind_the_door_is_told_without_what_was_sent(consumer, port, caplog, monkeypatch):
    """Once a minute for each place, not once a request."""
    now = [0.0]
    monkeypatch.setattr(door, "log_error", RateLimitedLog(lambda: now[0]))
    consumer.raises = ValueError("a secret question")
    for _ in range(3):
        found, _, body = post(port, "/v1/traces", b"a secret question")
        assert (found, Status.FromString(body).code) == (500, 13)
    now[0] = PAUSE
    assert status(port, "/v1/traces") == 500
    lines = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"a request could not be taken: ValueError at fake_consumer.py:\d+", lines[0])
    assert lines[1:] == [f"{lines[0]} (and 2 times before)"]


def test_nothing_of_a_request_is_ever_logged(consumer, opened, caplog):
    caplog.set_level(logging.DEBUG)
    port = opened(token="sesame")
    known = {"Authorization": "Bearer sesame"}
    sent = gzip.compress(b"secret" * 10)
    post(port, "/secret?secret=secret", b"secret")
    post(port, "/v1/traces", b"secret", Authorization="Bearer secret")
    post(port, "/v1/traces", b"secret", "secret/secret", **known)
    post(port, "/v1/traces", sent[:-3], Content_Encoding="gzip", **known)
    post(port, "/v1/labels", b"{secret", JSON, **known)
    post(port, "/v1/traces", b"secret", Upgrade="secret", Connection="upgrade", **known)
    with connect(port) as sock:
        sock.sendall(b"secret\r\n\r\n")
        rest(sock)
    consumer.raises = ValueError("secret")
    post(port, "/v1/traces", b"secret", **known)
    told = "\n".join(record.getMessage() + str(record.exc_info) for record in caplog.records)
    assert "a request could not be taken" in told
    assert not re.search("secret|sesame", told)


def test_requests_in_flight_are_answered_before_the_port_closes(consumer):
    port = HttpServer(ReceiverApp(consumer, token=None), HERE, tls=None, name="otlp").start()
    address, consumer.holds = port.address, True
    idle = connect(address)
    told = []
    busy = threading.Thread(target=lambda: told.append(status(address, "/v1/traces")))
    busy.start()
    consumer.wait_for(lambda: consumer.taken)
    stopping = threading.Thread(target=port.stop, args=(TIMEOUT,))
    stopping.start()
    assert rest(idle) == b""
    with pytest.raises(OSError):
        connect(address)
    assert told == []
    consumer.release()
    stopping.join()
    busy.join()
    assert told == [200]
    idle.close()


def test_who_is_not_answered_in_time_is_told_to_come_again(consumer):
    """It may be on disk all the same; whoever sends it twice is counted once there."""
    port = HttpServer(ReceiverApp(consumer, token=None), HERE, tls=None, name="otlp").start()
    consumer.holds = True
    told = []
    busy = threading.Thread(target=lambda: told.append(post(port.address, "/v1/traces")))
    busy.start()
    consumer.wait_for(lambda: consumer.taken)
    port.stop(0.1)
    busy.join()
    [(found, headers, _)] = told
    assert (found, headers["Retry-After"]) == (503, "1")
    consumer.release()


def test_a_port_can_be_opened_again_and_says_which_it_is(consumer):
    port = HttpServer(ReceiverApp(consumer, token=None), HERE, tls=None, name="otlp")
    assert port.address == HERE
    for _ in range(2):
        port.start()
        assert port.address.port > 0
        assert status(port.address, "/v1/traces") == 200
        port.stop(1.0)
        port.stop(1.0)
        assert port.address == HERE


def test_a_port_that_is_taken_is_named_with_its_key(consumer, port):
    with pytest.raises(RagmonError, match=r"the otlp port cannot be opened on 127.0.0.1:\d+ \(Address") as caught:
        HttpServer(ReceiverApp(consumer, token=None), port, tls=None, name="otlp").start()
    assert caught.value.hint == "another process has the port: change `[serve] otlp`"


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(consumer, host):
    with pytest.raises(RagmonError, match="cannot be opened") as caught:
        HttpServer(ReceiverApp(consumer, token=None), Address(host, 0), tls=None, name="admin").start()
    assert caught.value.hint == "an address of this machine that you may use: change `[serve] admin`"


def test_the_port_listens_on_version_six_too(consumer):
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        port = HttpServer(ReceiverApp(consumer, token=None), Address("::1", 0), tls=None, name="otlp").start()
    except RagmonError:
        pytest.skip("no IPv6 on loopback")
    assert str(port.address).startswith("[::1]:")
    assert status(port.address, "/v1/traces") == 200
    port.stop(1.0)


def test_a_client_that_never_reads_is_hung_up_on():
    """A page larger than what the kernel holds waits for its reader as long as a request may take, not for ever."""
    ended = threading.Event()

    async def page(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(64):
                await send({"type": "http.response.body", "body": bytes(MIB), "more_body": True})
        finally:
            ended.set()

    port = HttpServer(page, HERE, tls=None, name="admin", patience=0.5).start()
    with connect(port.address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(TIMEOUT)
        assert len(rest(sock)) < 64 * MIB
    port.stop(1.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate and its key; the exporter's HTTP library would take the environment's word over a test's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        yield certificate(tmp_path_factory.mktemp("tls"))


def test_an_exporter_delivers_over_tls(consumer, opened, pair):
    port = opened(tls=pair)
    traced(["ask"], exporter(port, "https", certificate_file=str(pair[0])))
    assert names_in(consumer.taken[0][1]) == ["ask"]


@pytest.mark.slow
def test_what_is_no_tls_harms_nobody(consumer, opened, pair, caplog):
    port = opened(tls=pair, deadline=1.0)
    with connect(port) as sock, connect(port) as silent, connect(port) as slow:
        sock.sendall(b"POST /v1/traces HTTP/1.1\r\n\r\n")
        rest(sock)
        trust = ssl.create_default_context(cafile=pair[0])
        with trust.wrap_socket(slow, server_hostname="127.0.0.1") as inside:
            inside.sendall(b"POST ")
            assert inside.recv(100) == b""
            traced(["ask"], exporter(port, "https", certificate_file=str(pair[0])))
        silent.close()
    assert [what for what, *_ in consumer.taken] == ["traces"]
    assert not caplog.records


def test_a_certificate_of_no_use_is_refused_at_the_start(consumer, pair, tmp_path):
    cert, key = pair
    other = tmp_path / "other"
    other.mkdir()
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", key, "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    pairs = [(cert, certificate(other)[1]), (cert, tmp_path / "missing.pem"), (key, cert), (cert, locked)]
    for wrong in pairs:
        with pytest.raises(RagmonError, match="cannot be used with the key") as caught:
            HttpServer(ReceiverApp(consumer, token=None), HERE, tls=wrong, name="otlp").start()
        assert caught.value.hint.endswith("`[serve] tls`")


ANSWERS = {200, 400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 503}
HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(200))
@given(
    path=st.sampled_from(["/v1/traces", "/v1/metrics", "/v1/labels", "/v1/ack", "/", "/v1"]),
    body=st.binary(max_size=2000) | st.binary(max_size=200).map(gzip.compress),
    kind=st.sampled_from([PROTOBUF, JSON]) | HEADER,
    coding=st.sampled_from(["gzip", "zstd", "identity", "gzip, gzip"]) | HEADER,
    host=st.just("localhost") | HEADER,
)
def test_whatever_is_sent_has_one_of_few_answers_and_the_server_lives_on(port, path, body, kind, coding, host):
    assert status(port, path, body, kind, Content_Encoding=coding, Host=host) in ANSWERS
    assert status(port, "/v1/traces", b"spans") == 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(sent=st.binary(max_size=500) | st.binary(max_size=300).map(lambda tail: b"POST /v1/traces HTTP/1.1\r\n" + tail))
def test_whatever_bytes_come_the_server_lives_on(port, sent):
    with connect(port) as sock:
        send(sock, sent)
        sock.shutdown(socket.SHUT_WR)
        rest(sock)
    assert status(port, "/v1/traces", b"spans") == 200
