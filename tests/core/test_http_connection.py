"""The HTTP client: one deadline for each request, a limit of the response, and a connection that is used again."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager, suppress
from http.client import BadStatusLine
from time import monotonic

import pytest

from ragmon.core.http_connection import HttpClient, seconds_left
from ragmon.core.net import split_url

MAX_BODY = 1000
OK = b"HTTP/1.1 200 OK\r\n"
SOON = 0.3
"""Seconds that a request may take whose peer is slow."""
LATE = 60.0
"""Seconds after which a request would surely not have kept its deadline; machines are slow."""


class Peer:
    """A server that treats each connection as a function tells it.

    Attributes:
        requests: What came, in order; the first bytes of each request.
        connections: How many connections there were.
        over: Set at the end of the test.
    """

    def __init__(self, door, talk):
        self._door = door
        self._talk = talk
        self.url = split_url(f"http://127.0.0.1:{door.getsockname()[1]}")
        self.requests = []
        self.connections = 0
        self.over = threading.Event()

    def run(self):
        with suppress(OSError):
            while True:
                connection, _ = self._door.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    self._talk(self, connection)

    def read(self, connection):
        """Read one request; False if the client hung up."""
        received = connection.recv(10_000)
        if received:
            self.requests.append(received)
        return bool(received)

    def drip(self, connection, data):
        """Send a byte at a time, which keeps every single read short."""
        while not self.over.wait(0.02):
            connection.sendall(data)


@contextmanager
def peer(talk):
    """A peer that runs inside the block."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = Peer(door, talk)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            thread.join()


def answering(*answers):
    """Answers requests in turn, over one connection or several."""
    left = list(answers)

    def talk(server, connection):
        while left and server.read(connection):
            connection.sendall(left.pop(0))

    return talk


def answer(body, *headers):
    lines = [b"Content-Length: %d" % len(body), *headers]
    return OK + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


@contextmanager
def client_of(server, **options):
    with closing(HttpClient(server.url, MAX_BODY, **options)) as client:
        yield client


def get(client, seconds=LATE):
    return client.exchange("GET", "/", monotonic() + seconds)


def fails_in_time(server, *, secure=False, body=None):
    """A request to a slow peer ends at its deadline."""
    url = server.url._replace(scheme="https") if secure else server.url
    with closing(HttpClient(url, MAX_BODY)) as client:
        started = monotonic()
        with pytest.raises(TimeoutError):
            client.exchange("POST", "/", started + SOON, body=body)
        assert SOON <= monotonic() - started < LATE


class TestDeadline:
    """Whatever a peer does slowly, it ends when the deadline is over."""

    def test_headers_that_drip(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + b"X-Slow: ")
            server.drip(connection, b"x")

        with peer(talk) as server:
            fails_in_time(server)

    @pytest.mark.parametrize(
        "head", [b"Content-Length: 900\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n384\r\n", b"\r\n"]
    )
    def test_a_body_that_drips(self, head):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + head)
            server.drip(connection, b"x")

        with peer(talk) as server:
            fails_in_time(server)

    def test_a_peer_that_says_nothing(self):
        with peer(lambda server, _: server.over.wait(60)) as server:
            fails_in_time(server)

    def test_a_peer_that_reads_nothing(self):
        with peer(lambda server, _: server.over.wait(60)) as server:
            fails_in_time(server, body=bytes(50_000_000))

    def test_a_tls_handshake_that_is_never_finished(self):
        with peer(lambda server, _: server.over.wait(60)) as server:
            fails_in_time(server, secure=True)

    def test_a_tls_handshake_that_drips(self):
        """It begins a record of 16 KiB, of which a byte comes now and then."""

        def talk(server, connection):
            connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
            server.drip(connection, b"\x03")

        with peer(talk) as server:
            fails_in_time(server, secure=True)

    def test_it_is_counted_from_the_start(self):
        """Each part of the response comes within the time, and the whole of it does not."""

        def talk(server, connection):
            server.read(connection)
            for part in (OK, b"Content-Length: 2\r\n", b"\r\n", b"a", b"b"):
                server.over.wait(SOON / 2)
                connection.sendall(part)

        with peer(talk) as server:
            fails_in_time(server)

    def test_nothing_is_sent_after_it(self):
        with peer(answering()) as server, client_of(server) as client:
            with pytest.raises(TimeoutError):
                get(client, -1.0)
            assert server.connections == 0

    def test_every_request_has_its_own(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(answer(b"a"))
            server.read(connection)
            server.drip(connection, b"")

        with peer(talk) as server, client_of(server) as client:
            assert get(client).body == b"a"
            with pytest.raises(TimeoutError):
                get(client, SOON)

    def test_seconds_are_left_until_it(self):
        assert 0 < seconds_left(monotonic() + 5) <= 5
        with pytest.raises(TimeoutError):
            seconds_left(monotonic())


class TestResponse:
    """What is read of a response."""

    @pytest.mark.parametrize(
        ("size", "kept", "is_cut"), [(0, 0, False), (MAX_BODY, MAX_BODY, False), (MAX_BODY + 1, MAX_BODY, True)]
    )
    @pytest.mark.parametrize("is_chunked", [False, True])
    def test_a_body_is_read_up_to_the_limit(self, size, kept, is_cut, is_chunked):
        body = bytes(size)
        chunk = b"%x\r\n%b\r\n" % (size, body) if body else b""
        chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
        with peer(answering(chunked if is_chunked else answer(body))) as server, client_of(server) as client:
            response = get(client)
        assert (len(response.body), response.is_cut) == (kept, is_cut)

    def test_a_body_without_end_is_cut_and_the_connection_closed(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + b"\r\n")
            while server.connections == 1:
                connection.sendall(bytes(10_000))

        with peer(talk) as server, client_of(server) as client:
            assert get(client).is_cut
            server._talk = answering(answer(b"whole"))
            assert get(client).body == b"whole"
            assert server.connections == 2

    def test_status_and_headers_are_told_and_redirects_not_followed(self):
        moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        with peer(answering(moved)) as server, client_of(server) as client:
            response = get(client)
        assert (response.status, response.headers["Location"]) == (307, "http://127.0.0.1:1/")

    def test_a_peer_of_another_protocol_is_an_error(self):
        greeting = answering(b"220 smtp.example ready\r\n")
        with peer(greeting) as server, client_of(server) as client, pytest.raises(BadStatusLine):
            get(client)


class TestConnection:
    """One connection serves many requests."""

    def test_it_is_used_again(self):
        with peer(answering(*[answer(b"a")] * 3)) as server, client_of(server) as client:
            assert [get(client).body for _ in range(3)] == [b"a"] * 3
            assert server.connections == 1

    def test_one_that_was_closed_while_it_was_idle_is_replaced(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(answer(b"a"))

        with peer(talk) as server, client_of(server) as client:
            assert [get(client).body for _ in range(3)] == [b"a"] * 3
            assert server.connections == 3

    def test_a_request_that_a_new_connection_loses_is_not_sent_again(self):
        with peer(lambda server, connection: server.read(connection)) as server, client_of(server) as client:
            with pytest.raises(ConnectionError):
                get(client)
            assert server.connections == 1

    def test_it_may_be_opened_before_the_first_request(self):
        with peer(answering(answer(b"a"))) as server, client_of(server) as client:
            client.open(monotonic() + LATE)
            assert get(client).body == b"a"
            assert server.connections == 1

    def test_a_request_is_aborted_from_another_thread(self):
        arrived, failures = threading.Event(), []

        def talk(server, connection):
            server.read(connection)
            arrived.set()
            server.over.wait(60)

        def request(client):
            try:
                get(client, 60.0)
            except Exception as error:  # noqa: BLE001 - any failure ends the wait
                failures.append(error)

        with peer(talk) as server, client_of(server) as client:
            thread = threading.Thread(target=request, args=(client,))
            thread.start()
            assert arrived.wait(LATE)
            client.abort()
            thread.join(LATE)
            assert not thread.is_alive()
        assert len(failures) == 1

    def test_what_is_sent_is_what_was_asked_for(self, monkeypatch):
        """No proxy of the environment comes between."""
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        with peer(answering(answer(b""))) as server, client_of(server) as client:
            client.exchange("PUT", "/a?b=c", monotonic() + LATE, body=b"data", headers={"X-Sent": "yes"})
        head, _, body = b"".join(server.requests).partition(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        assert line == "PUT /a?b=c HTTP/1.1"
        assert sorted(headers) == [
            "Accept-Encoding: identity",
            "Content-Length: 4",
            f"Host: {server.url.authority}",
            "X-Sent: yes",
        ]
        assert body in (b"", b"data")  # the peer answers after the first bytes
