"""The write port over gRPC: real exporters and channels, strangers, and calls that dawdle."""

from __future__ import annotations

import gzip
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from ragmon.core.errors import RagmonError, RateLimitedLog
from ragmon.core.http_server import RejectedError, RequestLimits
from ragmon.core.network import Address
from ragmon.ingest import receiver as messages
from ragmon.ingest.receiver import Encoding, ExportResult
from ragmon.server import grpc as grpc_service
from ragmon.server.grpc import GrpcServer
from tests.support.fake_consumer import FakeConsumer, certificate, connect, names_in, rest, traced
from tests.support.process_usage import peak
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]

HERE = Address("127.0.0.1", 0)
MIB = 1 << 20
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
CODE = grpc.StatusCode


@pytest.fixture
def consumer():
    return FakeConsumer()


@pytest.fixture
def opened(consumer):
    """Opens ports with the test's own limits; they are closed at the end."""
    ports = []

    def open_port(*, token=None, tls=None, **how):
        ports.append(GrpcServer(consumer, HERE, token=token, tls=tls, limits=RequestLimits(**how)).start())
        return ports[-1].address

    yield open_port
    consumer.release()
    for port in ports:
        port.stop(5.0)


@pytest.fixture
def port(opened):
    return opened()


@pytest.fixture
def channel():
    """Opens channels, each with a connection of its own; they are closed at the end."""
    channels = []

    def open_channel(address):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        channels.append(grpc.insecure_channel(str(address), options=options))
        return channels[-1]

    yield open_channel
    for found in channels:
        found.close()


def call(channel, body=b"", path=TRACES, timeout=TIMEOUT, **how):
    """A call's code, and its answer or what its end says beside the code."""
    try:
        return CODE.OK, channel.unary_unary(path)(body, timeout=timeout, **how)
    except grpc.RpcError as error:
        return error.code(), dict(error.trailing_metadata())


def bearer(token):
    return {"metadata": (("authorization", f"Bearer {token}"),)}


def spans(names, address, **how):
    """Send spans the way an application does."""
    traced(names, OTLPSpanExporter(str(address), compression=grpc.Compression.Gzip, **({"insecure": True} | how)))


def test_opentelemetrys_own_exporter_delivers_its_spans_compressed(consumer, port):
    spans(["ask", "retrieve"], port)
    [(what, body, form)] = consumer.taken
    assert (what, form, names_in(body)) == ("traces", Encoding.PROTOBUF, ["ask", "retrieve"])


def test_opentelemetrys_own_exporter_delivers_its_metrics(consumer, port):
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(str(port), insecure=True))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("app").create_counter("calls").add(3)
    provider.shutdown()
    [(what, body, form)] = consumer.taken
    request = ExportMetricsServiceRequest.FromString(body)
    assert (what, form) == ("metrics", Encoding.PROTOBUF)
    assert request.resource_metrics[0].scope_metrics[0].metrics[0].name == "calls"


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("body", [b"", b"\x0a\x00", b"spans" * 1000])
def test_a_message_comes_as_it_was_before_it_was_compressed(consumer, port, channel, compression, body):
    assert call(channel(port), body, compression=compression) == (CODE.OK, b"")
    assert consumer.taken == [("traces", body, Encoding.PROTOBUF)]


@pytest.mark.parametrize(
    ("path", "response", "field"),
    [
        (TRACES, ExportTraceServiceResponse, "rejected_spans"),
        (METRICS, ExportMetricsServiceResponse, "rejected_data_points"),
    ],
)
def test_what_the_desk_rejects_is_a_partial_success(consumer, port, channel, path, response, field):
    consumer.answers.append(ExportResult(3, "no trace id"))
    code, body = call(channel(port), b"x", path)
    partial = response.FromString(body).partial_success
    assert (code, getattr(partial, field), partial.error_message) == (CODE.OK, 3, "no trace id")


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, CODE.INVALID_ARGUMENT), (429, CODE.RESOURCE_EXHAUSTED), (503, CODE.UNAVAILABLE), (507, CODE.INTERNAL)],
)
def test_a_refusal_of_the_desk_says_when_to_come_again(consumer, port, channel, status, code, at_once):
    wait = None if status == 400 else 2.5
    error = RejectedError(status, "some", "why", retry_after=wait)
    if at_once:
        consumer.raises = error
    consumer.answers.append(error)
    found, trailing = call(channel(port))
    told = Status.FromString(trailing["grpc-status-details-bin"])
    assert (found, told.code, told.message) == (code, code.value[0], "why")
    if wait is None:
        assert not told.details
        assert "google.rpc.retryinfo-bin" not in trailing
    else:
        info = RetryInfo()
        assert told.details[0].Unpack(info)
        assert info.retry_delay.ToMilliseconds() == 2500
        assert RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"]) == info
    assert not consumer.refused


def test_an_exporter_waits_as_long_as_it_is_told_and_tries_again(consumer, port, caplog):
    consumer.answers.append(RejectedError(429, "queue_full", "too much", retry_after=0.25))
    spans(["ask"], port)
    assert [names_in(body) for _, body, _ in consumer.taken] == [["ask"], ["ask"]]
    assert "retrying in 0.25s" in caplog.text


@pytest.mark.parametrize(
    ("given", "known"),
    [("Bearer sesame", True), ("bearer sesame", True), ("Bearer guess", False), ("sesame", False), (None, False)],
)
def test_only_who_knows_the_token_comes_in(consumer, opened, channel, given, known):
    how = {} if given is None else {"metadata": (("authorization", given),)}
    code, _ = call(channel(opened(token="sesame")), b"x", **how)
    assert code is (CODE.OK if known else CODE.UNAUTHENTICATED)
    assert len(consumer.taken) == known
    assert consumer.refused == ({} if known else {"unauthorised": 1})


def test_a_flood_of_strangers_holds_nobody_up(consumer, opened, channel):
    port = opened(token="sesame")
    stop, told = threading.Event(), []

    def stranger(line):
        while not stop.is_set():
            told.append(call(line, bytes(100_000), **bearer("guess"))[0])

    threads = [threading.Thread(target=stranger, args=(channel(port),), daemon=True) for _ in range(10)]
    for thread in threads:
        thread.start()
    consumer.wait_for(lambda: consumer.refused["unauthorised"] >= 100)
    line = channel(port)
    assert [call(line, **bearer("sesame"))[0] for _ in range(20)] == [CODE.OK] * 20
    stop.set()
    for thread in threads:
        thread.join()
    assert set(told) == {CODE.UNAUTHENTICATED}
    assert consumer.refused == {"unauthorised": len(told)}


@pytest.mark.slow
def test_two_hundred_calls_that_send_nothing_hold_nobody_up_and_are_ended(consumer, opened, channel):
    port = opened(deadline=2.0, in_flight=4)
    done = threading.Event()

    def silent():
        done.wait(TIMEOUT)
        yield b""

    lines = [channel(port) for _ in range(50)]
    slow = [line.stream_unary(TRACES).future(silent(), timeout=TIMEOUT) for line in lines for _ in range(4)]
    spans(["served"], port)
    assert names_in(consumer.taken[0][1]) == ["served"]
    assert {one.code() for one in slow} == {CODE.DEADLINE_EXCEEDED}
    done.set()
    assert consumer.refused == {"timeout": 200}


def test_a_call_without_a_message_is_refused(consumer, port, channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel(port).stream_unary(TRACES)(iter([]), timeout=TIMEOUT)
    assert caught.value.code() is CODE.INVALID_ARGUMENT
    assert consumer.refused == {"no_message": 1}


def test_too_many_calls_at_once_are_asked_to_come_again(consumer, opened, channel, monkeypatch):
    monkeypatch.setattr(grpc_service, "READING", 1)
    done = threading.Event()

    def silent():
        done.wait(TIMEOUT)
        yield b"late"

    line = channel(opened())
    slow, codes = None, []
    while CODE.RESOURCE_EXHAUSTED not in codes:  # until the silent one has come
        if slow is None or slow.done():  # it came while another was read, and was itself asked to come again
            slow = line.stream_unary(TRACES).future(silent(), timeout=TIMEOUT)
        code, trailing = call(line)
        codes.append(code)
    assert "google.rpc.retryinfo-bin" in trailing
    done.set()
    assert slow.result() == b""


def test_more_than_may_be_in_flight_are_asked_to_come_again(consumer, opened, channel):
    consumer.holds = True
    port = opened(in_flight=1)
    line = channel(port)
    busy = line.unary_unary(TRACES).future(b"", timeout=TIMEOUT)
    consumer.wait_for(lambda: len(consumer.taken) == 1)
    code, trailing = call(channel(port))
    assert code is CODE.RESOURCE_EXHAUSTED
    assert RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
    assert consumer.refused == {"rate_limited": 1}
    consumer.release()
    assert busy.result() == b""
    assert call(line) == (CODE.OK, b"")


def test_messages_that_are_too_large_are_refused(consumer, port, channel):
    line = channel(port)
    assert call(line, bytes(20 * MIB))[0] is CODE.OK
    assert call(line, bytes(20 * MIB + 1))[0] is CODE.RESOURCE_EXHAUSTED
    assert call(line, bytes(MIB + 1), compression=grpc.Compression.Gzip)[0] is CODE.INVALID_ARGUMENT
    assert consumer.refused == {"no_message": 1, "decompress_limit": 1}


def test_a_compressed_message_has_the_size_of_one_over_http(consumer, opened, channel):
    line = channel(opened(wire=100))
    assert call(line, gzip.compress(b"x"))[0] is CODE.OK  # what is gzip is inflated, whether it says so or not
    body = b" ".join(b"%d" % n for n in range(1000))
    assert call(line, body, compression=grpc.Compression.Gzip)[0] is CODE.INVALID_ARGUMENT
    assert call(line, body)[0] is CODE.OK
    assert consumer.refused == {"oversize": 1}


def test_logs_that_are_no_messages_are_taken_and_said_to_be_unread(consumer, port, channel):
    told = ExportLogsServiceRequest()
    told.resource_logs.add().scope_logs.add().log_records.extend([LogRecord()] * 3)
    code, answer = call(channel(port), told.SerializeToString(), path=LOGS)
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert (code, partial.rejected_log_records) == (CODE.OK, 3)
    assert partial.error_message == messages._MESSAGE
    assert call(channel(port), b"\xff", path=LOGS)[0] is CODE.INVALID_ARGUMENT
    assert (consumer.taken, consumer.refused) == ([], {"malformed_protobuf": 1, "logs_not_read": 1})


def test_metadata_has_sixteen_kibibytes(port, channel):
    line = channel(port)
    assert call(line, metadata=(("x", "y" * 15_000),))[0] is CODE.OK
    assert call(line, metadata=(("x", "y" * 17_000),))[0] is CODE.RESOURCE_EXHAUSTED
    assert call(line)[0] is CODE.OK


def test_other_methods_and_compressions_are_unknown(consumer, port, channel):
    line = channel(port)
    assert call(line, path="/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export")[0] is CODE.UNIMPLEMENTED
    assert call(line, b"x" * 1000, compression=grpc.Compression.Deflate)[0] is CODE.UNIMPLEMENTED
    assert not consumer.taken


SERVER = """
import sys
from tests.support.fake_consumer import FakeConsumer
from ragmon.config.units import Address
from ragmon.server.grpc import GrpcServer
port = GrpcServer(FakeConsumer(), Address("127.0.0.1", 0), token=None, tls=None).start()
print(port.address.port, flush=True)
sys.stdin.read()
port.stop(1.0)
"""


@pytest.mark.slow
def test_a_bomb_is_refused_in_little_memory(channel):
    """256 MiB of zeros, a thousand to one, sent to a server in a process of its own."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        line = channel(Address("127.0.0.1", int(process.stdout.readline())))
        assert call(line, b"spans", compression=grpc.Compression.Gzip)[0] is CODE.OK
        before = peak(process.pid)
        assert call(line, bytes(256 * MIB), compression=grpc.Compression.Gzip)[0] is CODE.INVALID_ARGUMENT
        assert peak(process.pid) - before < 64 * MIB
        assert process.communicate("", timeout=TIMEOUT)


def test_what_is_no_grpc_harms_nobody(consumer, port):
    for sent in (b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"x" * 1000):
        with connect(port) as sock:
            sock.sendall(sent)
            rest(sock)
    spans(["ask"], port)
    assert len(consumer.taken) == 1


def test_what_goes_wrong_behind_the_door_is_told_without_what_was_sent(consumer, port, channel, caplog, monkeypatch):
    monkeypatch.setattr(grpc_service, "log_error", RateLimitedLog())
    caplog.set_level(logging.DEBUG)
    consumer.raises = ValueError("a secret question")
    line = channel(port)
    assert [call(line, b"a secret question")[0] for _ in range(3)] == [CODE.INTERNAL] * 3
    [told] = [record.getMessage() for record in caplog.records if record.name == "ragmon.server"]
    assert re.fullmatch(r"a call could not be taken: ValueError at fake_consumer.py:\d+", told)
    assert "secret" not in caplog.text


def test_calls_in_flight_are_answered_before_the_port_closes(consumer, channel):
    port = GrpcServer(consumer, HERE, token=None, tls=None).start()
    consumer.holds = True
    busy = channel(port.address).unary_unary(TRACES).future(b"", timeout=TIMEOUT)
    consumer.wait_for(lambda: consumer.taken)
    address = port.address
    stopping = threading.Thread(target=port.stop, args=(TIMEOUT,))
    stopping.start()
    while call(channel(address), timeout=1.0)[0] is not CODE.UNAVAILABLE:
        pass  # one that came in before the port closed is held as well, and must not wait as long as the grace is
    assert not busy.done()
    consumer.release()
    assert busy.result() == b""
    stopping.join()


def test_calls_that_are_not_answered_in_time_may_be_sent_again(consumer, channel):
    port = GrpcServer(consumer, HERE, token=None, tls=None).start()
    consumer.holds = True
    busy = channel(port.address).unary_unary(TRACES).future(b"", timeout=TIMEOUT)
    consumer.wait_for(lambda: consumer.taken)
    port.stop(0.1)
    assert busy.code() in (CODE.UNAVAILABLE, CODE.CANCELLED)
    consumer.release()


def test_a_port_can_be_opened_again_and_says_which_it_is(consumer, channel):
    port = GrpcServer(consumer, HERE, token=None, tls=None)
    for _ in range(2):
        port.start()
        assert port.address.port > 0
        assert call(channel(port.address))[0] is CODE.OK
        port.stop(1.0)
        port.stop(1.0)
        assert port.address == HERE


def test_a_port_that_is_taken_is_named_with_its_key(consumer, port):
    with pytest.raises(RagmonError, match=r"the grpc port cannot be opened on 127.0.0.1:\d+ \(Address") as caught:
        GrpcServer(consumer, port, token=None, tls=None).start()
    assert caught.value.hint == "another process has the port: change `[serve] grpc`"


def test_an_exporter_delivers_over_tls(consumer, opened, tmp_path):
    cert, key = certificate(tmp_path)
    port = opened(tls=(cert, key), token="sesame")
    trust = grpc.ssl_channel_credentials(cert.read_bytes())
    spans(["ask"], port, insecure=False, credentials=trust, headers={"authorization": "Bearer sesame"})
    assert names_in(consumer.taken[0][1]) == ["ask"]


def test_a_certificate_of_no_use_is_refused_at_the_start(consumer, tmp_path):
    cert, key = certificate(tmp_path)
    with pytest.raises(RagmonError, match="cannot be used with the key"):
        GrpcServer(consumer, HERE, token=None, tls=(key, cert)).start()


@pytest.mark.slow
def test_grpc_is_loaded_only_where_this_door_opens():
    script = "import ragmon.core.http_server, ragmon.ingest.receiver, sys; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(body=st.binary(max_size=1000) | st.binary(max_size=50).map(lambda tail: b"\x1f\x8b" + tail))
def test_whatever_is_sent_has_one_of_few_answers_and_the_server_lives_on(port, channel, body):
    line = channel(port)
    assert call(line, body)[0] in (CODE.OK, CODE.INVALID_ARGUMENT)
    assert call(line, b"spans")[0] is CODE.OK
