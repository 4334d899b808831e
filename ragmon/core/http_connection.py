"""The synchronous HTTP client: one connection to one server, one deadline for each request.

A socket's own timeout starts anew with each byte, so a slow server could hold a caller for ever. Here connection, TLS
handshake, request and response share one deadline. Redirects are not followed, and proxies of the environment are not
used.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ragmon.core.net import Url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from _typeshed import WriteableBuffer


class RawResponse(NamedTuple):
    """The response of a server.

    Attributes:
        status: The HTTP status.
        headers: The headers.
        body: The body, or its beginning.
        is_cut: The body is larger than the client's limit.
    """

    status: int
    headers: Message
    body: bytes
    is_cut: bool = False


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline of the monotonic clock.

    Raises:
        TimeoutError: The deadline has passed.
    """
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


class HttpClient(HTTPConnection):
    """A keep-alive connection to one server, opened by the first request.

    Args:
        url: The server; its path is not used.
        max_body: Largest body of a response that is read, in bytes; the connection is closed on a larger one.
        tls: TLS settings for https; None trusts the certificates this machine trusts.
    """

    def __init__(self, url: Url, max_body: int, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(url.host, url.port)
        self._max_body = max_body
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self.default_port = 443
            self._tls = tls or ssl.create_default_context()
        self._deadline = 0.0
        self._deadline_socket: _DeadlineSocket | None = None
        self._aborted = False

    def exchange(
        self,
        method: str,
        target: str,
        deadline: float,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawResponse:
        """Send a request and read the response.

        Args:
            method: The HTTP method.
            target: Path and query.
            deadline: Deadline on the monotonic clock. Only the system's name resolution can exceed it.
            body: Request body.
            headers: Headers beside those that HTTP requires.

        Raises:
            TimeoutError: There was no complete response in time.
            OSError: The server cannot be reached, or closed the connection.
            HTTPException: The server does not speak HTTP.
        """
        self._deadline = deadline
        reused = self.sock is not None
        try:
            return self._exchange(method, target, body, headers or {})
        except TimeoutError:
            raise
        except (OSError, HTTPException):
            # The server may have closed an idle connection, which shows only on the next request: retry once.
            if not reused or self._aborted:
                raise
        return self._exchange(method, target, body, headers or {})

    def open(self, deadline: float) -> None:
        """Open the connection, with the TLS handshake.

        Args:
            deadline: Deadline on the monotonic clock.

        Raises:
            OSError: The server cannot be reached in time, or its certificate is not trusted.
        """
        self._deadline = deadline
        self.connect()

    def abort(self) -> None:
        """Abort a request that another thread waits for, and send no more."""
        self._aborted = True
        deadline_socket = self._deadline_socket  # the other thread may close it at any time
        if deadline_socket is not None:
            deadline_socket.abort()

    def detach_after_fork(self) -> None:
        """Close the parent's connection in a forked child, without sending anything and without its locks."""
        if self._deadline_socket is not None:
            os.close(self._deadline_socket.sock.detach())

    def connect(self) -> None:
        """Open the connection before the deadline of the request; called by `HTTPConnection`."""
        sock = self._open_socket()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(seconds_left(self._deadline))
                sock = self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock = self._deadline_socket = _DeadlineSocket(sock)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._deadline_socket = None
        super().close()

    def _open_socket(self) -> socket.socket:
        """A connected socket; all addresses of the server share one deadline."""
        last_error: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(seconds_left(self._deadline))
                sock.connect(address)
            except OSError as error:
                sock.close()
                last_error = error
            else:
                return sock
        raise last_error or OSError("the name has no address")

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> RawResponse:
        try:
            if self._deadline_socket is None:
                self.connect()
            if self._deadline_socket is not None:
                self._deadline_socket.deadline = self._deadline
            self.request(method, target, body, headers)
            raw = self.getresponse()
            with raw:
                read = raw.read(self._max_body + 1)
                is_read = raw.isclosed()
        except BaseException:
            self.close()
            raise
        if not is_read:
            self.close()
        return RawResponse(raw.status, raw.headers, read[: self._max_body], is_cut=len(read) > self._max_body)


class _DeadlineSocket:
    """The socket interface of `HTTPConnection`, with one deadline: a socket's own timeout restarts with each byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = 0.0

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self.sock.settimeout(seconds_left(self.deadline))
            view = view[self.sock.send(view) :]

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(_DeadlineReader(self))

    def abort(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()


class _DeadlineReader(RawIOBase):
    """Reads a socket until its deadline."""

    def __init__(self, deadline_socket: _DeadlineSocket) -> None:
        self._deadline_socket = deadline_socket
        self._file = deadline_socket.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._deadline_socket.sock.settimeout(seconds_left(self._deadline_socket.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
