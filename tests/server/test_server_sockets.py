"""How many connections a port accepts, how long a TLS handshake may take, and what happens when files run out."""

from __future__ import annotations

import http.client
import resource
import ssl
import time
import urllib.parse
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.cli.serve import TEMPORARY
from ragmon.core.http_server import CONNECTIONS, HANDSHAKE, OWN_FILES, SPARE_FILES, HttpServer, shares
from ragmon.core.network import Address
from ragmon.ingest.receiver import ReceiverApp
from tests.support.fake_consumer import FakeConsumer, certificate, connect, hung_up, rest, trickling
from tests.support.process_usage import cpu_seconds, open_files, resident
from tests.support.serving import PROTOBUF, Process, asked, configuration, get, post, process, whole
from tests.support.waiting import TIMEOUT, wait_for

HELLO = bytes.fromhex("160301020001000001fc03")
"""The first eleven bytes of a TLS ClientHello."""
FILES = 128
"""Files the server in a test may have open."""
FLOOD = 500
"""Connections a test opens to it at once."""
USUAL = (1024, 1300)
"""The files that a process may open by default, and more connections than that."""
MIB = 1 << 20
EMPTY = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 0\r\n\r\n".encode()


def address(url):
    """A URL's host and port."""
    place = urllib.parse.urlsplit(url)
    return Address(place.hostname, place.port)


def export(place, cert, body=b""):
    """The status of an export over TLS."""
    trust = ssl.create_default_context(cafile=cert)
    connection = http.client.HTTPSConnection(place.host, place.port, context=trust, timeout=TIMEOUT)
    connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.fixture
def pair(tmp_path):
    return certificate(tmp_path)


@pytest.fixture
def many_files():
    """This process may open as many files as its tests need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def serving(consumer, **how):
    """A write port without TLS."""
    return HttpServer(ReceiverApp(consumer, token=None), Address("127.0.0.1", 0), tls=None, name="otlp", **how).start()


@pytest.fixture
def opened(pair, monkeypatch):
    """A write port over TLS with few connections and a short handshake, and the desk behind it."""
    consumer = FakeConsumer()
    monkeypatch.setattr("ragmon.core.http_server.HANDSHAKE", 0.5)
    port = HttpServer(
        ReceiverApp(consumer, token=None),
        Address("127.0.0.1", 0),
        tls=pair,
        name="otlp",
        connections=20,
    ).start()
    yield port.address, consumer
    port.stop(5.0)


def test_a_handshake_has_ten_seconds_by_default_and_is_ended_when_they_are_over(opened):
    assert HANDSHAKE == 10.0
    with connect(opened[0]) as sock:
        sock.sendall(HELLO)
        wait_for(lambda: hung_up(sock))


def test_handshakes_count_among_the_connections_and_the_oldest_gives_way(opened, pair):
    with ExitStack() as stack:
        begun = [stack.enter_context(connect(opened[0])) for _ in range(60)]
        for sock in begun:
            sock.sendall(HELLO)
        assert export(opened[0], pair[0]) == 200
        wait_for(lambda: sum(hung_up(sock) for sock in begun[:40]) == 40)


def test_connections_that_say_nothing_after_their_handshake_give_way_too(opened, pair):
    trust = ssl.create_default_context(cafile=pair[0])
    with ExitStack() as stack:
        for _ in range(40):
            sock = trust.wrap_socket(connect(opened[0]), server_hostname="127.0.0.1")
            stack.enter_context(sock)
        assert export(opened[0], pair[0]) == 200


@pytest.mark.slow
@pytest.mark.parametrize(("files", "flood"), [(FILES, FLOOD), USUAL])
def test_a_flood_of_partial_handshakes_keeps_nobody_out(tmp_path, pair, many_files, files, flood):
    """Metrics, health and exports are answered; log and memory stay small."""
    path = configuration(tmp_path)
    path.write_text(f'{path.read_text()}tls = {{ cert = "{pair[0]}", key = "{pair[1]}" }}\n')
    with process(tmp_path, files=files) as running:
        place = address(running.otlp)
        assert export(place, pair[0], whole([asked(0)])) == 200
        assert get(f"{running.admin}/metrics")[0] == 200
        before, used, usual = resident(running.pid), open_files(running.pid), cpu_seconds(running.pid)
        with ExitStack() as stack:
            for number in range(flood):
                stack.enter_context(connect(place)).sendall(HELLO)
                if number % 100 == 99:
                    assert open_files(running.pid) < files - SPARE_FILES
                    assert get(f"{running.admin}/healthz")[0] == 200
                    assert get(f"{running.admin}/metrics")[0] == 200
                    assert export(place, pair[0], whole([asked(number)])) == 200
            assert cpu_seconds(running.pid) - usual < 5.0
        wait_for(lambda: open_files(running.pid), lambda found: found <= used + 2)
        assert resident(running.pid) - before < 30 * MIB
        assert running.stop() == 0
    assert len("\n".join(running.lines)) < 2000


def test_half_headers_are_ended_however_they_trickle_and_keep_nobody_out():
    """Sixty where fifty connections may be: the oldest give way at once, the others when their time is over."""
    port = serving(FakeConsumer(), connections=50, patience=2.0)
    half = [connect(port.address) for _ in range(60)]
    for sock in half:
        sock.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n")
    stop = trickling(half, b"X: y\r\n")
    wait_for(lambda: sum(hung_up(sock) for sock in half[:10]) == 10)
    assert post(f"http://{port.address}/v1/traces", b"", PROTOBUF)[0] == 200
    wait_for(lambda: all(hung_up(sock) for sock in half))
    stop.set()
    for sock in half:
        sock.close()
    port.stop(5.0)


def test_where_requests_run_on_all_connections_a_new_one_is_closed():
    consumer = FakeConsumer()
    port = serving(consumer, connections=2)
    consumer.holds = True
    with ExitStack() as stack:
        busy = [stack.enter_context(connect(port.address)) for _ in range(2)]
        for sock in busy:
            sock.sendall(EMPTY)
        consumer.wait_for(lambda: len(consumer.taken) == 2)
        assert rest(stack.enter_context(connect(port.address))) == b""
        consumer.release()
        assert [sock.recv(100)[:13] for sock in busy] == [b"HTTP/1.1 200 "] * 2
    port.stop(5.0)


def test_what_is_read_of_uvicorns_connections_is_what_it_was():
    """`ListeningSocket` reads `transport`, `cycle` and `flow` of uvicorn's protocols, which are not documented."""
    consumer = FakeConsumer()
    port = serving(consumer, connections=2)
    connections = port._server.server_state.connections
    with connect(port.address) as sock:
        [protocol] = wait_for(lambda: list(connections))
        assert protocol.cycle is None
        assert protocol.transport.get_extra_info("socket").getpeername() == sock.getsockname()
        consumer.holds = True
        sock.sendall(EMPTY)
        consumer.wait_for(lambda: consumer.taken)
        first = protocol.cycle
        assert (first.response_complete, protocol.flow.write_paused) == (False, False)
        consumer.release()
        wait_for(lambda: first.response_complete)
        assert protocol.cycle is first
        sock.sendall(EMPTY)
        wait_for(lambda: protocol.cycle is not first)
    wait_for(lambda: not connections)
    port.stop(5.0)


@pytest.mark.slow
@pytest.mark.parametrize("port", ["otlp", "admin"])
def test_idle_connections_leave_files_for_everybody_else(tmp_path, many_files, port):
    configuration(tmp_path)
    with process(tmp_path, files=FILES) as running, ExitStack() as stack:
        place = address(getattr(running, port))
        for _ in range(FLOOD):
            stack.enter_context(connect(place))
        assert open_files(running.pid) < FILES - SPARE_FILES
        assert get(f"{running.admin}/metrics")[0] == 200
        assert post(f"{running.otlp}/v1/traces", whole([asked(1)]), PROTOBUF)[0] == 200


@pytest.mark.slow
def test_what_cannot_be_accepted_is_one_line_a_minute_and_is_served_once_there_are_files_again(tmp_path, many_files):
    """The limit is taken away while it runs: no connection can be accepted at all, on any port."""
    configuration(tmp_path)
    with process(tmp_path) as running, ExitStack() as stack:
        place, limits = address(running.otlp), resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        used, before = cpu_seconds(running.pid), len(running.lines)
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (open_files(running.pid), limits[1]))
        for _ in range(100):
            stack.enter_context(connect(place))
        wait_for(lambda: len(running.lines) - before, lambda lines: lines > 0)
        time.sleep(1.5)  # as much as asyncio takes for megabytes
        assert cpu_seconds(running.pid) - used < 1.0
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, limits)
        assert post(f"{running.otlp}/v1/traces", whole([asked(1)]), PROTOBUF)[0] == 200
        assert running.stop() == 0
        said = [line for line in running.lines[before:] if "Too many open files" in line]
    assert len(said) == 1
    assert "the otlp port: " in said[0]
    assert len("\n".join(running.lines)) < 2000


@pytest.mark.slow
@pytest.mark.parametrize("files", [24, 40])
def test_a_server_that_cannot_open_enough_files_to_start_says_so_and_may_be_started_again(tmp_path, files):
    configuration(tmp_path)
    running = Process(tmp_path, files=files)
    assert running.wait() == TEMPORARY
    assert "files can be opened, 48 are needed (Too many open files)" in running.lines[0]
    assert "LimitNOFILE=" in running.lines[1]


@given(files=st.integers(0, 1 << 20))
def test_all_ports_together_leave_the_files_a_server_needs(files):
    found = shares(files)
    assert 4 <= found.admin <= CONNECTIONS
    assert 4 <= found.write <= CONNECTIONS
    if files >= OWN_FILES + SPARE_FILES + 12:
        assert 2 * found.write + found.admin <= files - OWN_FILES - SPARE_FILES
