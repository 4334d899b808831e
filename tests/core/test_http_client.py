"""The HTTP client: one deadline for each request, a limit of the response, and what it says of a failure."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager, suppress
from time import monotonic

import pytest

from ragmon.core.errors import UnreachableError
from ragmon.core.network import exchange, new_client, request, split_url

MAX_BODY = 1000
OK = b"HTTP/1.1 200 OK\r\n"
SOON = 0.3
"""Seconds that a request to a slow server may take."""
LATE = 60.0
"""Seconds after which a request would surely not have kept its deadline; machines are slow."""


class Server:
    """A server that treats each connection as a function tells it.

    Attributes:
        requests: What came, in order; the first bytes of each request.
        connections: How many connections there were.
        over: Set at the end of the test.
    """

    def __init__(self, listener, talk):
        self._listener = listener
        self._talk = talk
        self.url = split_url(f"http://127.0.0.1:{listener.getsockname()[1]}/a?b=c")
        self.requests = []
        self.connections = 0
        self.over = threading.Event()

    def run(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    self._talk(self, connection)

    def read(self, connection):
        """Read one request; False if the client closed the connection."""
        received = connection.recv(10_000)
        if received:
            self.requests.append(received)
        return bool(received)

    def drip(self, connection, data):
        """Send some bytes at a time, which keeps every single read short."""
        while not self.over.wait(0.02):
            connection.sendall(data)


@contextmanager
def serving(talk):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(listener, talk)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
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


def get(url, timeout=LATE, **options):
    return request("GET", url, timeout=timeout, max_body=MAX_BODY, **options)


class TestDeadline:
    """Whatever a server does slowly, the request ends at its deadline."""

    @staticmethod
    def ends_in_time(server, *, scheme="http", body=None):
        started = monotonic()
        with pytest.raises(TimeoutError, match="timed out"):
            get(server.url._replace(scheme=scheme), SOON, body=body)
        assert SOON / 2 <= monotonic() - started < LATE

    def test_of_headers_that_drip(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + b"X-Slow: ")
            server.drip(connection, b"x")

        with serving(talk) as server:
            self.ends_in_time(server)

    @pytest.mark.parametrize(
        "head", [b"Content-Length: 900\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n384\r\n", b"\r\n"]
    )
    def test_of_a_body_that_drips(self, head):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + head)
            server.drip(connection, b"x")

        with serving(talk) as server:
            self.ends_in_time(server)

    @pytest.mark.parametrize("body", [None, bytes(50_000_000)], ids=["small", "large"])
    def test_of_a_server_that_neither_reads_nor_answers(self, body):
        with serving(lambda server, _: server.over.wait(LATE)) as server:
            self.ends_in_time(server, body=body)

    def test_of_a_tls_handshake_that_never_ends(self):
        with serving(lambda server, _: server.over.wait(LATE)) as server:
            self.ends_in_time(server, scheme="https")

    def test_of_a_tls_handshake_that_drips(self):
        """The server begins a record of 16 KiB, of which a byte comes now and then."""

        def talk(server, connection):
            connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
            server.drip(connection, b"\x03")

        with serving(talk) as server:
            self.ends_in_time(server, scheme="https")

    def test_counts_from_the_start(self):
        """Each part of the response comes within the time, and the whole of it does not."""

        def talk(server, connection):
            server.read(connection)
            for part in (OK, b"Content-Length: 2\r\n", b"\r\n", b"a", b"b"):
                server.over.wait(SOON / 2)
                connection.sendall(part)

        with serving(talk) as server:
            self.ends_in_time(server)


class TestResponse:
    @pytest.mark.parametrize(
        ("size", "kept", "is_cut"), [(0, 0, False), (MAX_BODY, MAX_BODY, False), (MAX_BODY + 1, MAX_BODY, True)]
    )
    @pytest.mark.parametrize("is_chunked", [False, True])
    def test_a_body_is_read_up_to_the_limit(self, size, kept, is_cut, is_chunked):
        body = bytes(size)
        chunk = b"%x\r\n%b\r\n" % (size, body) if body else b""
        chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
        with serving(answering(chunked if is_chunked else answer(body))) as server:
            response = get(server.url)
        assert (len(response.body), response.is_cut) == (kept, is_cut)

    def test_a_body_without_end_is_cut(self):
        def talk(server, connection):
            server.read(connection)
            connection.sendall(OK + b"\r\n")
            while not server.over.is_set():
                connection.sendall(bytes(10_000))

        with serving(talk) as server:
            assert get(server.url).is_cut

    def test_a_compressed_body_stays_compressed(self):
        with serving(answering(answer(b"\x1f\x8b", b"Content-Encoding: gzip"))) as server:
            assert get(server.url).body == b"\x1f\x8b"

    def test_redirects_are_not_followed(self):
        moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        with serving(answering(moved)) as server:
            response = get(server.url)
        assert (response.status, response.headers["Location"]) == (307, "http://127.0.0.1:1/")

    def test_the_server_gets_what_was_asked_for_and_no_proxy_of_the_environment_plays_a_part(self, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        with serving(answering(answer(b""))) as server:
            request("PUT", server.url, timeout=LATE, max_body=1, body=b"data", headers={"X-Sent": "yes"})
        line, *headers = server.requests[0].decode().partition("\r\n\r\n")[0].split("\r\n")
        assert line == "PUT /a?b=c HTTP/1.1"
        assert {
            "Accept-Encoding: identity",
            "Content-Length: 4",
            f"Host: {server.url.authority}",
            "X-Sent: yes",
        } <= set(headers)

    def test_requests_in_an_event_loop_share_a_connection(self):
        async def bodies(url):
            async with new_client() as client:
                return [(await exchange(client, "GET", url, max_body=MAX_BODY)).body for _ in range(3)]

        with serving(answering(*[answer(b"a")] * 3)) as server:
            assert asyncio.run(bodies(str(server.url))) == [b"a"] * 3
            assert server.connections == 1


class TestFailure:
    """The message is the system's reason; an `UnreachableError` says that the request was never sent."""

    def test_nobody_listens(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            with pytest.raises(UnreachableError, match=r"^Connection refused$"):
                get(split_url(f"http://127.0.0.1:{closed.getsockname()[1]}"))

    def test_nobody_listens_on_any_address_of_the_name(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            with pytest.raises(UnreachableError, match=r"^Connection refused$"):
                get(split_url(f"http://localhost:{closed.getsockname()[1]}"))

    @pytest.mark.parametrize("host", ["nobody.invalid", "xn--a", "a" * 70], ids=["unknown", "no name", "too long"])
    def test_a_name_without_an_address(self, host):
        with pytest.raises(UnreachableError):
            get(split_url("http://a:1/")._replace(host=host))

    def test_a_server_without_tls(self):
        with (
            serving(answering(OK)) as server,
            pytest.raises(UnreachableError, match="SSL"),
        ):
            get(server.url._replace(scheme="https"))

    @pytest.mark.parametrize(
        "sent", [b"", OK + b"X-Half: ", answer(b"whole")[:-1], b"220 smtp.example ready\r\n", b"\0\r\n\r\n"]
    )
    def test_a_server_that_closes_the_connection_or_speaks_another_protocol(self, sent):
        with serving(answering(sent)) as server:
            with pytest.raises(ConnectionError) as failure:
                get(server.url)
            assert not isinstance(failure.value, UnreachableError)
            assert server.connections == 1, "the request is not sent again"
