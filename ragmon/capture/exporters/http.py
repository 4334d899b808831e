"""The OTLP/HTTP client: retries, response codes, and an HTTP connection whose requests have a hard deadline."""

from __future__ import annotations

import gzip
import os
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from io import BufferedReader, RawIOBase
from itertools import count
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import context

from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.log import error_location, warn_once
from ragmon.core.net import PROTOBUF, parse, request_headers, retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from _typeshed import WriteableBuffer


LARGEST_REPLY: Final = 1 << 16
"""Largest response that is read, in bytes; the connection is closed on a longer one."""


class HttpResponse(NamedTuple):
    """The response of the peer."""

    status: int
    headers: Message
    body: bytes


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline of the monotonic clock.

    Raises:
        TimeoutError: The deadline has passed.
    """
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("the time for the request is up")
    return seconds


class PersistentConnection(HTTPConnection):
    """A keep-alive connection to one peer, opened by the first request.

    Args:
        host: Name or address of the peer.
        port: Its port.
        tls: TLS settings; None for plain HTTP.
        largest: Largest response that is read, in bytes.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, largest: int = LARGEST_REPLY) -> None:
        super().__init__(host, port)
        self._max_response = largest
        self.default_port = 80 if tls is None else 443
        self._tls = tls
        self._deadline = 0.0
        self._deadline_socket: _DeadlineSocket | None = None
        self._aborted = False

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline: float) -> HttpResponse:
        """Send a request and read the response.

        Args:
            path: Path of the URL.
            body: Request body.
            headers: Additional headers.
            deadline: Deadline on the monotonic clock. Only the system's name resolution can exceed it.

        Raises:
            TimeoutError: There was no complete response in time.
            OSError: The peer cannot be reached, or closed the connection.
            HTTPException: The peer does not speak HTTP.
        """
        self._deadline = deadline
        reused = self.sock is not None
        try:
            return self._exchange(path, body, headers)
        except TimeoutError:
            raise
        except (OSError, HTTPException):
            # The peer may have closed an idle connection, which shows only on the next request: retry once.
            if not reused or self._aborted:
                raise
        return self._exchange(path, body, headers)

    def abort(self) -> None:
        """Abort a request that another thread waits for, and send no more."""
        self._aborted = True
        timed = self._deadline_socket  # the other thread may close it at any time
        if timed is not None:
            timed.abort()

    def detach_after_fork(self) -> None:
        """Close the parent's connection in a forked child, without sending anything and without its locks."""
        if self._deadline_socket is not None:
            os.close(self._deadline_socket.sock.detach())

    def connect(self) -> None:
        """Open the connection.

        Raises:
            OSError: The peer cannot be reached in time, or its certificate is not trusted.
        """
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
        """A connected socket; all addresses of the peer share one deadline."""
        last_error: OSError | None = None
        for *_, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                return socket.create_connection((str(address[0]), self.port), timeout=seconds_left(self._deadline))
            except OSError as error:
                last_error = error
        raise last_error or OSError("the name has no address")

    def _exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        try:
            if self._deadline_socket is None:
                self.connect()
            if self._deadline_socket is not None:
                self._deadline_socket.deadline = self._deadline
            self.request("POST", path, body, headers)
            raw = self.getresponse()
            with raw:
                response = HttpResponse(raw.status, raw.headers, raw.read(self._max_response))
                complete = raw.isclosed()
        except BaseException:
            self.close()
            raise
        if not complete:
            self.close()
        return response


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

    def __init__(self, timed: _DeadlineSocket) -> None:
        self._deadline_socket = timed
        self._file = timed.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._deadline_socket.sock.settimeout(seconds_left(self._deadline_socket.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
_RETRYABLE: Final[frozenset[int]] = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""The status codes after which a request may be retried (OTLP specification, Failures)."""
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the token is missing, or is not the receiver's",
    HTTPStatus.FORBIDDEN: "the token is not allowed to write there",
    HTTPStatus.NOT_FOUND: "the address of an OTLP/HTTP receiver, without /v1/traces",
}
# Private names, but all instrumentations read them; older ones read the plain string.
_SUPPRESSED: Final = (
    getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None),
    getattr(context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", None),
    "suppress_instrumentation",
)


class SendResult(NamedTuple):
    """The result of a request.

    Attributes:
        reason: Why the data is lost; None if the receiver accepted it. `export_refused`: rejected permanently.
            `export_timeout`: no response in time. `export_failed`: not reachable, or not ready.
        body: The protocol message of the response.
        again: A retry may succeed.
        wait: Seconds the receiver asks to wait before a retry; None if it did not ask.
    """

    reason: str | None = None
    body: bytes = b""
    again: bool = False
    wait: float | None = None

    def rejected(self, response: Any, field: str) -> int:
        """How many items of an accepted request the receiver rejected.

        Args:
            response: The protocol class of the response.
            field: The name of the count in its partial success.
        """
        try:
            return max(0, int(getattr(response.FromString(self.body).partial_success, field)))
        except Exception:  # noqa: BLE001 - it accepted the request, even if its message is not readable
            return 0


class OtlpHttpClient:
    """A client of one OTLP/HTTP receiver. It ignores the environment variables of the application's own exporters.

    Args:
        endpoint: The receiver's base address.
        token: Its bearer token; None if it needs none.
        certificate: A PEM file of trusted certificates; None uses the system's.

    Raises:
        RagmonError: The address, the token or the certificate file is not valid.
    """

    def __init__(self, endpoint: str, *, token: str | None = None, certificate: str | None = None) -> None:
        self._endpoint = parse(endpoint)
        self._compress = not self._endpoint.loopback  # on the same machine it costs more than it saves
        self._headers = request_headers(token, compressed=self._compress)
        self._tls = _tls_context(certificate) if self._endpoint.tls else None
        self._closing = Event()
        self._init_process()

    def _init_process(self) -> None:
        """Create the state that belongs to one process."""
        self._process = os.getpid()
        self._connection = PersistentConnection(self._endpoint.host, self._endpoint.port, self._tls)
        self._lock = Lock()

    def _reset_after_fork(self) -> None:
        """Reset in a forked child, which cannot use the parent's connection and lock."""
        if self._process != os.getpid():
            self._inherited = self._connection  # never finalised: the parent's threads may have held its locks
            self._inherited.detach_after_fork()
            self._init_process()

    def post(
        self, signal: str, body: bytes, deadline: float, *, retry: bool = True, kind: str = PROTOBUF
    ) -> SendResult:
        """Send a request until it is accepted, rejected, or the deadline passes. Never raises for a receiver's error.

        Args:
            signal: `traces`, `metrics` or `logs`; a ragmon server also takes `labels`.
            body: The protocol message.
            deadline: Deadline on the monotonic clock.
            retry: Retry if that may succeed.
            kind: The body's media type.
        """
        self._reset_after_fork()
        if self._compress:
            body = gzip.compress(body, compresslevel=1)
        with self._lock, _suppress_instrumentation():
            result = self._post_with_retries(signal, body, deadline, retry=retry, kind=kind)
        if self._closing.is_set():
            self._disconnect()
        return result

    def close(self) -> None:
        """Abort the running request and send no more; may be called from any thread."""
        self._reset_after_fork()
        self._closing.set()
        self._connection.abort()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection, unless a request is running: the thread of that request then closes it."""
        if self._lock.acquire(blocking=False):
            self._connection.close()
            self._lock.release()

    def _post_with_retries(self, signal: str, body: bytes, deadline: float, *, retry: bool, kind: str) -> SendResult:
        for backoff in _backoff():
            result = (
                SendResult(constants.EXPORT_FAILED)
                if self._closing.is_set()
                else self._post_once(signal, body, deadline, kind)
            )
            if not (retry and result.again):
                break
            delay = backoff if result.wait is None else result.wait
            if delay >= deadline - monotonic() or self._closing.wait(delay):
                break
        return result

    def _post_once(self, signal: str, body: bytes, deadline: float, kind: str) -> SendResult:
        headers = {**self._headers, "Content-Type": kind}
        try:
            response = self._connection.post(f"{self._endpoint.path}/v1/{signal}", body, headers, deadline)
        except TimeoutError:
            self._warn("it does not answer in time")
            return SendResult(constants.EXPORT_TIMEOUT)
        except ssl.SSLCertVerificationError as error:
            self._warn(f"its certificate is not trusted ({error.verify_message})")
            return SendResult(constants.EXPORT_FAILED)
        except OSError as error:
            self._warn(error.strerror or error_location(error))
            return SendResult(constants.EXPORT_FAILED, again=True)
        except HTTPException as error:
            self._warn(f"it does not speak HTTP ({error_location(error)}); OTLP over HTTP is usually on port 4318")
            return SendResult(constants.EXPORT_FAILED, again=True)
        return self._to_result(response)

    def _to_result(self, response: HttpResponse) -> SendResult:
        if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            has_our_type = response.headers.get_content_type() == self._headers["Content-Type"]
            return SendResult(body=response.body if has_our_type else b"")
        hint = _HINTS.get(response.status)
        self._warn(f"it answered with status {response.status}" + (f" ({hint})" if hint else ""))
        if response.status in _RETRYABLE:
            return SendResult(
                constants.EXPORT_FAILED, again=True, wait=retry_after(response.headers.get("Retry-After"))
            )
        return SendResult(
            constants.EXPORT_FAILED if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR else constants.EXPORT_REFUSED
        )

    def _warn(self, why: str) -> None:
        warn_once(f"exporting to {self._endpoint} fails: {why}")


def _tls_context(certificate: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise RagmonError(
            f"{certificate}: cannot be used as a certificate ({why})", hint="a PEM file of certificates to trust"
        ) from error


@contextmanager
def _suppress_instrumentation() -> Iterator[None]:
    """Exclude ragmon's requests from the application's own traces."""
    suppressed = context.get_current()
    for key in _SUPPRESSED:
        if key is not None:
            suppressed = context.set_value(key, True, suppressed)
    token = context.attach(suppressed)
    try:
        yield
    finally:
        context.detach(token)


def _backoff() -> Iterator[float]:
    """Seconds between attempts: exponential, with jitter, so that many producers do not retry at the same time."""
    for power in count():
        yield random.uniform(0.5, 1.0) * min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(power, 16))  # noqa: S311
