"""An HTTP connection whose requests end in time, whatever the other side does."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from _typeshed import WriteableBuffer

LARGEST_REPLY: Final = 1 << 16
"""Bytes that are read of a reply; whoever sends more loses the connection."""


class Reply(NamedTuple):
    """What the other side answered."""

    status: int
    headers: Message
    body: bytes


def left(deadline: float) -> float:
    """Seconds until a deadline of the monotonic clock.

    Raises:
        TimeoutError: It has passed.
    """
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("the time for the request is up")
    return seconds


class Connection(HTTPConnection):
    """To one peer; it is opened by the first request and kept open for the next ones.

    Args:
        host: Name or address of the peer.
        port: Its port.
        tls: How its certificate is checked; None for plain HTTP.
        largest: Bytes that are read of a reply.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, largest: int = LARGEST_REPLY) -> None:
        super().__init__(host, port)
        self._largest = largest
        self.default_port = 80 if tls is None else 443
        self._tls = tls
        self._deadline = 0.0
        self._timed: _Timed | None = None
        self._aborted = False

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
        """Send a request and read the reply.

        Args:
            path: What is asked for.
            body: What is sent.
            headers: Beside those that follow from the rest.
            deadline: When to give up, on the monotonic clock. Only the system's look-up of a name is not cut short.

        Raises:
            TimeoutError: There was no whole reply in time.
            OSError: The peer cannot be reached, or broke off.
            HTTPException: It does not speak HTTP.
        """
        self._deadline = deadline
        reused = self.sock is not None
        try:
            return self._exchange(path, body, headers)
        except TimeoutError:
            raise
        except (OSError, HTTPException):
            # An idle connection may have been closed by the peer, which shows only when it is used.
            if not reused or self._aborted:
                raise
        return self._exchange(path, body, headers)

    def abort(self) -> None:
        """End a request that another thread waits for, and make no more."""
        self._aborted = True
        timed = self._timed  # the other thread may close it at any moment
        if timed is not None:
            timed.abort()

    def leave(self) -> None:
        """Let go of the parent's connection in a forked child, without a word to the peer and without its locks."""
        if self._timed is not None:
            os.close(self._timed.sock.detach())

    def connect(self) -> None:
        """Open the connection.

        Raises:
            OSError: The peer cannot be reached in time, or its certificate is not trusted.
        """
        sock = self._reach()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(left(self._deadline))
                sock = self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock = self._timed = _Timed(sock)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._timed = None
        super().close()

    def _reach(self) -> socket.socket:
        """A connected socket; all addresses of the peer share the time there is."""
        failed: OSError | None = None
        for *_, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                return socket.create_connection((str(address[0]), self.port), timeout=left(self._deadline))
            except OSError as error:
                failed = error
        raise failed or OSError("the name has no address")

    def _exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        try:
            if self._timed is None:
                self.connect()
            if self._timed is not None:
                self._timed.deadline = self._deadline
            self.request("POST", path, body, headers)
            reply = self.getresponse()
            with reply:
                found = Reply(reply.status, reply.headers, reply.read(self._largest))
                whole = reply.isclosed()
        except BaseException:
            self.close()
            raise
        if not whole:
            self.close()
        return found


class _Timed:
    """What `HTTPConnection` needs of a socket, with one deadline: a socket's own timeout starts anew with each byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = 0.0

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self.sock.settimeout(left(self.deadline))
            view = view[self.sock.send(view) :]

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(_Reader(self))

    def abort(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()


class _Reader(RawIOBase):
    """Reads a socket until its deadline."""

    def __init__(self, timed: _Timed) -> None:
        self._timed = timed
        self._file = timed.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._timed.sock.settimeout(left(self._timed.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
