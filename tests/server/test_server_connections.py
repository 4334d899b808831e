"""Connections of the write port: requests in pieces and one after another, and the end of a connection or a port."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragmon.core.http_server import HttpServer, RejectedError, RequestLimits
from ragmon.core.network import Address
from ragmon.ingest.receiver import ExportResult, ReceiverApp
from tests.support.fake_consumer import FakeConsumer, connect, hung_up, rest
from tests.support.serving import PROTOBUF
from tests.support.waiting import wait_for

LARGE = 1 << 14
USUAL = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"


def request(body=b"spans", head=USUAL, length=None):
    """A request as it is sent."""
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@contextmanager
def listening(consumer, **limits):
    """A write port."""
    cost = RequestLimits(**limits)
    app = ReceiverApp(consumer, token=None, limits=cost)
    place = Address("127.0.0.1", 0)
    port = HttpServer(app, place, tls=None, name="otlp", patience=cost.deadline)
    yield port.start()
    consumer.release()
    port.stop(5.0)


@pytest.fixture
def consumer():
    return FakeConsumer()


@pytest.fixture
def port(consumer):
    with listening(consumer) as port:
        yield port.address


def answers(sock, n):
    """So many answers: status, headers and body of each. What comes after them is not read."""
    found, file = [], sock.makefile("rb", buffering=0)
    for _ in range(n):
        try:
            line = file.readline()
        except ConnectionError:
            break
        if not line:
            break
        headers = http.client.parse_headers(file)
        told = sorted((name.lower(), value) for name, value in headers.items())
        found.append((int(line.split()[1]), told, file.read(int(headers.get("content-length", 0)))))
    return found


@pytest.mark.parametrize("step", [1, 7, len(request()) - 5, len(request()) - 1])
def test_pieces_of_any_length_are_one_request(consumer, port, step):
    """Among them headers and body apart, as many clients send them."""
    sent = request()
    with connect(port) as sock:
        for start in range(0, len(sent), step):
            sock.sendall(sent[start : start + step])
        assert [status for status, *_ in answers(sock, 1)] == [200]
    assert [body for _, body, _ in consumer.taken] == [b"spans"]


def test_requests_in_one_piece_are_answered_in_their_order(consumer, port):
    """Long and odd ones among them."""
    bodies = [b"a", b"b" * (LARGE + 1), b"c", b"d"]
    odd = f"{USUAL}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\ne\r\n0\r\n\r\n"
    with connect(port) as sock:
        sock.sendall(b"".join(request(body) for body in bodies) + odd + request(b"f"))
        assert [status for status, *_ in answers(sock, 6)] == [200] * 6
    assert [body for _, body, _ in consumer.taken] == [*bodies, b"e", b"f"]


def test_what_the_desk_rejects_or_refuses_is_told(consumer, port):
    consumer.answers += [
        ExportResult(3, "no trace id"),
        RejectedError(503, "disk_full", "full", 2.0),
        ValueError("odd"),
    ]
    with connect(port) as sock:
        found = []
        for _ in range(3):
            sock.sendall(request())
            found += answers(sock, 1)
    assert [status for status, *_ in found] == [200, 503, 500]
    assert ExportTraceServiceResponse.FromString(found[0][2]).partial_success.rejected_spans == 3
    assert ("retry-after", "2") in found[1][1]
    assert Status.FromString(found[1][2]).message == "full"


def test_more_than_may_be_in_flight_are_asked_to_come_again(consumer):
    with listening(consumer, in_flight=1) as port, connect(port.address) as first, connect(port.address) as second:
        consumer.holds = True
        first.sendall(request())
        consumer.wait_for(lambda: consumer.taken)
        second.sendall(request())
        assert [status for status, *_ in answers(second, 1)] == [429]
        consumer.release()
        assert [status for status, *_ in answers(first, 1)] == [200]
        second.sendall(request())
        assert [status for status, *_ in answers(second, 1)] == [200]


@pytest.mark.slow
def test_headers_whose_body_does_not_come_are_told_so(consumer):
    with listening(consumer, deadline=1.5) as port, connect(port.address) as sock:
        sock.sendall(request(b"", length=5))
        assert [status for status, *_ in answers(sock, 1)] == [408]
    assert (consumer.taken, consumer.refused) == ([], {"timeout": 1})


@pytest.mark.slow
def test_a_connection_is_kept_while_requests_come_and_ended_some_time_after_the_last(consumer):
    with listening(consumer, deadline=1.5) as port, connect(port.address) as sock:
        for _ in range(6):
            sock.sendall(request())
            assert [status for status, *_ in answers(sock, 1)] == [200]
            threading.Event().wait(0.5)
        wait_for(lambda: hung_up(sock))


def test_who_goes_away_before_the_answer_leaves_nothing_behind(consumer):
    with listening(consumer, in_flight=1) as port:
        consumer.holds = True
        with connect(port.address) as sock:
            sock.sendall(request())
            consumer.wait_for(lambda: consumer.taken)
        consumer.release()
        with connect(port.address) as sock:
            sock.sendall(request())
            assert [status for status, *_ in answers(sock, 1)] == [200]


@pytest.mark.parametrize(("grace", "expected"), [(60.0, 200), (0.1, 503)])
def test_when_the_port_closes_what_is_in_flight_is_answered_or_asked_to_come_again(consumer, grace, expected):
    with listening(consumer) as port:
        consumer.holds = True
        with connect(port.address) as sock:
            sock.sendall(request())
            consumer.wait_for(lambda: consumer.taken)
            stopping = threading.Thread(target=port.stop, args=(grace,))
            stopping.start()
            if expected == 200:
                consumer.release()
            found = answers(sock, 1)
            assert rest(sock) == b""
            stopping.join()
    assert [status for status, *_ in found] == [expected]
    assert expected == 200 or ("retry-after", "1") in found[0][1]


def test_a_body_that_is_on_its_way_when_the_port_closes_is_taken(consumer):
    with listening(consumer) as port, connect(port.address) as sock:
        sock.sendall(request(b"", length=5))
        consumer.holds = True
        with connect(port.address) as other:  # which is read after the headers before it
            other.sendall(request())
            consumer.wait_for(lambda: consumer.taken)
            stopping = threading.Thread(target=port.stop, args=(60.0,))
            stopping.start()
            wait_for(lambda: refused(port.address))
            sock.sendall(b"other")
            consumer.wait_for(lambda: len(consumer.taken) == 2)
            consumer.release()
            assert [status for status, *_ in answers(sock, 1)] == [200]
            stopping.join()
    assert [body for _, body, _ in consumer.taken] == [b"spans", b"other"]


def refused(place):
    """Whether nobody can connect any more."""
    try:
        connect(place).close()
    except OSError:
        return True
    return False


@pytest.mark.slow
def test_a_client_that_sends_far_ahead_waits(consumer):
    """It is read no further than some requests ahead of its answers."""
    with listening(consumer) as port, connect(port.address) as sock:
        consumer.holds = True
        sock.sendall(request())
        consumer.wait_for(lambda: consumer.taken)
        many = request(bytes(LARGE)) * 2000
        sender = threading.Thread(target=sock.sendall, args=(many,))
        sender.start()
        sender.join(0.5)
        assert sender.is_alive(), "32 MB were taken off a client whose first request is not answered"
        consumer.release()
        assert [status for status, *_ in answers(sock, 2001)] == [200] * 2001
        sender.join()
    assert len(consumer.taken) == 2001
