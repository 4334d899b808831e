"""The OTLP/HTTP client: retries until a deadline, and what the status codes of a receiver mean."""

from __future__ import annotations

import gzip
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, NamedTuple

from opentelemetry import context

from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.http_connection import HttpClient, HttpResponse
from ragmon.core.log import error_location, warn_once
from ragmon.core.net import Url, current_version, parse_url
from ragmon.core.pacing import OVERLOADED, BackOff, retry_after

PROTOBUF: Final = "application/x-protobuf"
MAX_BODY: Final = 1 << 16
"""Largest response that is read, in bytes."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""The limits of the first and of every pause between two attempts, in seconds."""
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
        self._endpoint = _parse_endpoint(endpoint)
        self._compress = not self._endpoint.is_loopback  # on the same machine it costs more than it saves
        self._headers = _request_headers(token, compressed=self._compress)
        self._tls = _tls_context(certificate) if self._endpoint.scheme == "https" else None
        self._closing = Event()
        self._init_process()

    def _init_process(self) -> None:
        """Create the state that belongs to one process."""
        self._process = os.getpid()
        self._connection = HttpClient(self._endpoint, MAX_BODY, self._tls)
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
        back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            result = (
                SendResult(constants.EXPORT_FAILED)
                if self._closing.is_set()
                else self._post_once(signal, body, deadline, kind)
            )
            if not (retry and result.again):
                return result
            pause = back_off.pause(result.wait)
            if pause >= deadline - monotonic() or self._closing.wait(pause):
                return result

    def _post_once(self, signal: str, body: bytes, deadline: float, kind: str) -> SendResult:
        headers = {**self._headers, "Content-Type": kind}
        try:
            target = f"{self._endpoint.path}/v1/{signal}"
            response = self._connection.exchange("POST", target, deadline, body=body, headers=headers)
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
        if response.status in OVERLOADED:
            return SendResult(
                constants.EXPORT_FAILED, again=True, wait=retry_after(response.headers.get("Retry-After"))
            )
        return SendResult(
            constants.EXPORT_FAILED if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR else constants.EXPORT_REFUSED
        )

    def _warn(self, why: str) -> None:
        warn_once(f"exporting to {self._endpoint} fails: {why}")


def _parse_endpoint(text: str) -> Url:
    """The base address of a receiver; the path of traces may follow it.

    Raises:
        RagmonError: The text is no such address.
    """
    hint = "http://127.0.0.1:4318, or https://host/path; a token goes into a file of its own"
    url = parse_url(text, "the export endpoint", hint=hint, base=True)
    return url._replace(path=url.path.removesuffix("/v1/traces"))


def _request_headers(token: str | None, *, compressed: bool) -> dict[str, str]:
    """The headers of every request.

    Args:
        token: The bearer token; None where the receiver needs none.
        compressed: Bodies are compressed with gzip.

    Raises:
        RagmonError: The token cannot be sent in a header.
    """
    headers = {"Content-Type": PROTOBUF, "User-Agent": f"ragmon/{current_version()}"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    if token is not None:
        bare_token = token.strip()
        if not re.fullmatch(r"[!-~]+", bare_token):
            raise RagmonError("the export token cannot be sent", hint="one line of printable ASCII without spaces")
        headers["Authorization"] = f"Bearer {bare_token}"
    return headers


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
