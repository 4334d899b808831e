"""An HTTP connection whose requests end in time, whatever the other side does.

The receiver at the other end: what it is sent, how often that is tried, and what its answers mean.
"""

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
import gzip
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import count
from math import isfinite
from threading import Event, Lock
from time import time
from typing import Any

from opentelemetry import context

from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.net import PROTOBUF, parse, request_headers

LARGEST_REPLY: Final = 1 << 16
"""Bytes that are read of a reply; whoever sends more loses the connection."""


class HttpResponse(NamedTuple):
    """What the other side answered."""

    status: int
    headers: Message
    body: bytes


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline of the monotonic clock.

    Raises:
        TimeoutError: It has passed.
    """
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("the time for the request is up")
    return seconds


class PersistentConnection(HTTPConnection):
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

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline: float) -> HttpResponse:
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
                sock.settimeout(seconds_left(self._deadline))
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
                return socket.create_connection((str(address[0]), self.port), timeout=seconds_left(self._deadline))
            except OSError as error:
                failed = error
        raise failed or OSError("the name has no address")

    def _exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        try:
            if self._timed is None:
                self.connect()
            if self._timed is not None:
                self._timed.deadline = self._deadline
            self.request("POST", path, body, headers)
            reply = self.getresponse()
            with reply:
                found = HttpResponse(reply.status, reply.headers, reply.read(self._largest))
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
            self.sock.settimeout(seconds_left(self.deadline))
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
        self._timed.sock.settimeout(seconds_left(self._timed.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
_LATER: Final[frozenset[int]] = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""The answers after which a request may be sent again (OTLP specification, Failures)."""
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the token is missing, or is not the receiver's",
    HTTPStatus.FORBIDDEN: "the token is not allowed to write there",
    HTTPStatus.NOT_FOUND: "the address of an OTLP/HTTP receiver, without /v1/traces",
}
# Private names that every instrumentation reads all the same; older ones read the plain word.
_SUPPRESSED: Final = (
    getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None),
    getattr(context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", None),
    "suppress_instrumentation",
)


class SendResult(NamedTuple):
    """What became of a request.

    Attributes:
        reason: Why it is lost; None where the receiver took it. `export_refused`: it said no for good.
            `export_timeout`: it did not answer in time. `export_failed`: it was not reached, or not ready.
        body: The protocol message it answered with.
        again: Sending it again may help.
        wait: Seconds the receiver wants to be left alone first; None where it did not say.
    """

    reason: str | None = None
    body: bytes = b""
    again: bool = False
    wait: float | None = None

    def rejected(self, response: Any, field: str) -> int:
        """How much of an accepted request the receiver refused.

        Args:
            response: The protocol's class of such an answer.
            field: Its partial success's count.
        """
        try:
            return max(0, int(getattr(response.FromString(self.body).partial_success, field)))
        except Exception:  # noqa: BLE001 - in whatever words, it took the request
            return 0


class OtlpHttpClient:
    """One OTLP/HTTP receiver. Nothing is read from the variables that configure the application's own exporters.

    Args:
        endpoint: Its base address.
        token: Its bearer token; None where it wants none.
        certificate: A file of certificates to trust in place of the system's; None for those.

    Raises:
        RagmonError: The address, the token or the certificate file cannot be used.
    """

    def __init__(self, endpoint: str, *, token: str | None = None, certificate: str | None = None) -> None:
        self._endpoint = parse(endpoint)
        self._compress = not self._endpoint.loopback  # on one machine it costs more than it saves
        self._headers = request_headers(token, compressed=self._compress)
        self._tls = _trust(certificate) if self._endpoint.tls else None
        self._closing = Event()
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process."""
        self._process = os.getpid()
        self._connection = PersistentConnection(self._endpoint.host, self._endpoint.port, self._tls)
        self._at_work = Lock()

    def _reset_after_fork(self) -> None:
        """Begin anew in a forked child, where the parent's connection and lock are of no use."""
        if self._process != os.getpid():
            self._left = self._connection  # held, so that nobody tidies up what the parent's threads had locked
            self._left.leave()
            self._begin()

    def post(
        self, signal: str, body: bytes, deadline: float, *, retry: bool = True, kind: str = PROTOBUF
    ) -> SendResult:
        """Send a request until it is taken, refused, or out of time. Never raises for what the receiver does.

        Args:
            signal: `traces`, `metrics` or `logs`; a ragmon server takes `labels`.
            body: The protocol message.
            deadline: When to give up, on the monotonic clock.
            retry: Send it again where that may help.
            kind: The body's media type.
        """
        self._reset_after_fork()
        if self._compress:
            body = gzip.compress(body, compresslevel=1)
        with self._at_work, _uninstrumented():
            answer = self._tried(signal, body, deadline, retry=retry, kind=kind)
        if self._closing.is_set():
            self._hang_up()
        return answer

    def close(self) -> None:
        """End what is under way, from whatever thread, and send no more."""
        self._reset_after_fork()
        self._closing.set()
        self._connection.abort()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection, unless a request is still to learn that it was ended: then it does so itself."""
        if self._at_work.acquire(blocking=False):
            self._connection.close()
            self._at_work.release()

    def _tried(self, signal: str, body: bytes, deadline: float, *, retry: bool, kind: str) -> SendResult:
        for wait in _waits():
            answer = (
                SendResult(constants.EXPORT_FAILED)
                if self._closing.is_set()
                else self._once(signal, body, deadline, kind)
            )
            if not (retry and answer.again):
                break
            pause = wait if answer.wait is None else answer.wait
            if pause >= deadline - monotonic() or self._closing.wait(pause):
                break
        return answer

    def _once(self, signal: str, body: bytes, deadline: float, kind: str) -> SendResult:
        headers = {**self._headers, "Content-Type": kind}
        try:
            reply = self._connection.post(f"{self._endpoint.path}/v1/{signal}", body, headers, deadline)
        except TimeoutError:
            self._warn("it does not answer in time")
            return SendResult(constants.EXPORT_TIMEOUT)
        except ssl.SSLCertVerificationError as error:
            self._warn(f"its certificate is not trusted ({error.verify_message})")
            return SendResult(constants.EXPORT_FAILED)
        except OSError as error:
            self._warn(error.strerror or whereabouts(error))
            return SendResult(constants.EXPORT_FAILED, again=True)
        except HTTPException as error:
            self._warn(f"it does not speak HTTP ({whereabouts(error)}); OTLP over HTTP is usually on port 4318")
            return SendResult(constants.EXPORT_FAILED, again=True)
        return self._read(reply)

    def _read(self, reply: HttpResponse) -> SendResult:
        if HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
            ours = reply.headers.get_content_type() == self._headers["Content-Type"]
            return SendResult(body=reply.body if ours else b"")
        hint = _HINTS.get(reply.status)
        self._warn(f"it answered with status {reply.status}" + (f" ({hint})" if hint else ""))
        if reply.status in _LATER:
            return SendResult(constants.EXPORT_FAILED, again=True, wait=retry_after(reply.headers.get("Retry-After")))
        return SendResult(
            constants.EXPORT_FAILED if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else constants.EXPORT_REFUSED
        )

    def _warn(self, why: str) -> None:
        warn_once(f"exporting to {self._endpoint} fails: {why}")


def _trust(certificate: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise RagmonError(
            f"{certificate}: cannot be used as a certificate ({why})", hint="a PEM file of certificates to trust"
        ) from error


@contextmanager
def _uninstrumented() -> Iterator[None]:
    """The application's instrumentations must not take ragmon's requests for its own."""
    found = context.get_current()
    for key in _SUPPRESSED:
        if key is not None:
            found = context.set_value(key, True, found)
    token = context.attach(found)
    try:
        yield
    finally:
        context.detach(token)


def _waits() -> Iterator[float]:
    """Seconds between tries: growing, and drawn, so that many producers do not come back at once."""
    for power in count():
        yield random.uniform(0.5, 1.0) * min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(power, 16))  # noqa: S311


def retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header: a number, or a date (RFC 9110, section 10.2.3)."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time()
    return max(0.0, seconds) if isfinite(seconds) else None
