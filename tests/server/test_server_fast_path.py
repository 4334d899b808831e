"""Small exports take a short way through the write port: it answers as the general one does, and costs half."""

from __future__ import annotations

import gzip
import http.client
import threading
from contextlib import contextmanager

import pytest
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragmon.config.types import Address
from ragmon.monitor.http.listener import HttpServer
from ragmon.monitor.http.requests import RejectedError, RequestLimits
from ragmon.server.receiver.fast_path import LARGEST, parse_head
from ragmon.server.receiver.http import receiver_app
from ragmon.server.receiver.interface import ExportResult
from tests.server.test_server_sockets import address
from tests.support.effort import least_ratio
from tests.support.examples import cases
from tests.support.fake_consumer import FakeConsumer, connect, hung_up, rest, send
from tests.support.process_usage import cpu_seconds
from tests.support.serving import PROTOBUF, asked, configuration, process, whole
from tests.support.waiting import wait_for

USUAL = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"


def request(body=b"spans", head=USUAL, length=None):
    """A request as it is sent."""
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@contextmanager
def listening(consumer, *, short=True, token=None, **limits):
    """A write port with or without the short way."""
    cost = RequestLimits(**limits)
    app = receiver_app(consumer, token=token, limits=cost)

    async def general(scope, receive, send):
        await app(scope, receive, send)

    place = Address("127.0.0.1", 0)
    port = HttpServer(app if short else general, place, tls=None, name="otlp", limits=cost, refused=consumer.refuse)
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


@pytest.fixture(scope="module")
def both():
    """The same port with the short way and without it, each with its desk."""
    desks = FakeConsumer(), FakeConsumer()
    with listening(desks[0], deadline=2.0) as short, listening(desks[1], short=False, deadline=2.0) as general:
        yield list(zip((short.address, general.address), desks, strict=True))


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


def taken_by(consumer):
    """What a desk was handed and what was refused, since the last look."""
    found = list(consumer.taken), dict(consumer.refused)
    consumer.taken.clear()
    consumer.refused.clear()
    return found


NAMES = st.sampled_from(
    ["Accept", "X-Id", "Connection", "Transfer-Encoding", "Origin", "Host", "Content-Length", "X:", ""]
)
VALUES = st.sampled_from(
    ["", "x", " y ", "keep-alive", "close", "chunked", "0", "5", "\x00", "\xe9", "a\r\n b", "http://a"]
)
LINES = st.lists(st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]}: {pair[1]}\r\n"), max_size=3).map("".join)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(250), deadline=None)
@given(
    line=st.sampled_from(
        ["POST /v1/traces HTTP/1.1", "POST /v1/metrics HTTP/1.1", "POST /v1/traces HTTP/1.0", "GET / HTTP/1.1"]
    ),
    host=st.sampled_from(["Host: localhost\r\n", "Host: evil.example\r\n", "host:127.0.0.1\r\n", ""]),
    kind=st.sampled_from([PROTOBUF, "application/json; charset=utf-8", "text/plain"]),
    coding=st.sampled_from(
        ["", "Content-Encoding: gzip\r\n", "content-encoding: identity\r\n", "Content-Encoding: br\r\n"]
    ),
    more=LINES,
    body=st.binary(max_size=40) | st.binary(max_size=40).map(gzip.compress) | st.just(gzip.compress(bytes(1 << 20))),
    off=st.sampled_from([0, 0, 0, 0, -1, 1]),
)
def test_both_ways_take_and_answer_the_same(both, line, host, kind, coding, more, body, off):
    """Whatever is sent, however odd: the same answers, the same hand-ins, the same counts."""
    told = f"{line}\r\n{host}Content-Type: {kind}\r\n{coding}{more}".encode("latin-1")
    sent = told + f"Content-Length: {max(len(body) + off, 0)}\r\n\r\n".encode() + body
    found = []
    for place, consumer in both:
        with connect(place) as sock:
            sock.sendall(sent + b"!" * max(off, 0))
            answered = answers(sock, 1)
            send(sock, b"\r\nno request\r\n\r\n")  # after which the connection is closed, and everything is counted
            answered += answers(sock, 2)
        found.append((answered, taken_by(consumer)))
    assert found[0] == found[1]


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
    bodies = [b"a", b"b" * (LARGEST + 1), b"c", b"d"]
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
def test_a_connection_is_kept_as_long_as_after_any_request(consumer, monkeypatch):
    """It is idle then, and no longer in the time that headers have."""
    monkeypatch.setattr("ragmon.monitor.http.connection.KEEP_ALIVE", 5.0)
    with listening(consumer, deadline=0.3) as port, connect(port.address) as sock:
        sock.sendall(request())
        assert answers(sock, 1)
        threading.Event().wait(0.6)
        sock.sendall(request())
        assert [status for status, *_ in answers(sock, 1)] == [200]
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
        many = request(bytes(LARGEST)) * 2000
        sender = threading.Thread(target=sock.sendall, args=(many,))
        sender.start()
        sender.join(0.5)
        assert sender.is_alive(), "32 MB were taken off a client whose first request is not answered"
        consumer.release()
        assert [status for status, *_ in answers(sock, 2001)] == [200] * 2001
        sender.join()
    assert len(consumer.taken) == 2001


@pytest.mark.parametrize(
    "odd",
    [
        b"POST /v1/traces HTTP/1.0\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"GET /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n X: folded\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\nHost: a\nContent-Length: 1\n\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nX: \r\x00\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 16385\r\n\r\nx",
        b"POST /v1/traces?x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"\r\nPOST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1\r\n\r\nx",
        b"POST /v1/traces HTTP/1.1",
    ],
)
def test_what_could_mean_two_things_is_left_to_the_general_parser(odd):
    assert parse_head(odd, 1 << 14) is None


def test_header_lines_are_read_in_time_that_grows_with_their_size():
    """CPU time of a head of n and of 8n bytes, the worst of which no part is accepted."""

    def parse(size):
        text = b"POST /v1/traces HTTP/1.1\r\n" + b"a:" * (size // 2) + b"\x00\r\n\r\n"
        return lambda: [parse_head(text, len(text)) for _ in range(20)]

    assert parse(1 << 12)() == [None] * 20
    assert least_ratio(parse(1 << 20), parse(1 << 17), enough=12) <= 12


@pytest.mark.slow
def test_a_single_record_costs_half_of_what_the_general_way_costs(tmp_path):
    """CPU of a real server over eight connections; a header that is listed as rare takes the general way."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        place = address(running.otlp)

        def send(first, more):
            with connect(place) as sock:
                for number in range(first, first + 80):
                    sock.sendall(request(whole([asked(number)]), f"{USUAL}{more}"))
                    assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")

        def cost(round_, more):
            before = cpu_seconds(running.pid)
            starts = range(round_ * 10_000, round_ * 10_000 + 800, 100)
            threads = [threading.Thread(target=send, args=(first, more)) for first in starts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return cpu_seconds(running.pid) - before

        cost(1, "")
        short, general = [cost(2, ""), cost(4, "")], [cost(3, "Upgrade: x\r\n"), cost(5, "Upgrade: x\r\n")]
    assert sum(general) > 1.5 * sum(short), (general, short)
