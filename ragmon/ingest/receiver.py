"""The write port over HTTP: OTLP exports, and JSON requests with labels and acknowledgements of alarms.

A request is rejected as early as its headers allow: token, host, encoding, size. Its body is inflated within limits;
the memory limiter counts requests in flight, bytes of bodies, and bodies that are being inflated. A `Consumer` accepts
what is decoded. OTLP logs are sorted here. Most are rejected, as a success: some SDKs send logs to where spans go, and
log an error for each failed request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import io
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ragmon.core import constants
from ragmon.core.constants import ACKS_PATH, LABELS_PATH
from ragmon.core.errors import UnknownNameError, log_error, nearest, shorten
from ragmon.core.http_server import (
    BAD_CONTENT_ENCODING,
    BAD_METHOD,
    DECOMPRESS_LIMIT,
    FORBIDDEN,
    JSON,
    LIMITS,
    LONGEST_ACK,
    RATE_LIMITED,
    UNAUTHORISED,
    UNKNOWN_PATH,
    HTTPError,
    RejectedError,
    RequestLimits,
    acknowledgement,
    bad_media_type,
    check_headers,
    check_size,
    media_type,
    read_body,
    read_json,
)
from ragmon.core.network import HINT, is_known
from ragmon.ingest.files import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.ingest.lines import Rejected
from ragmon.ingest.otlp import TOO_MANY, read_logs


class Encoding(Enum):
    """The encoding of an OTLP request."""

    PROTOBUF = "protobuf"
    JSON = "json"


@dataclass(frozen=True)
class ExportResult:
    """A request is on disk: how many of its spans, points or labels are invalid, and the error of the first of them."""

    rejected: int = 0
    message: str = ""


_Endpoint = Callable[[Request], Awaitable[Response]]


class Consumer(Protocol):
    """Accepts requests. Each future is done when the request is on disk, or raises `RejectedError`."""

    def traces(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Accept an `ExportTraceServiceRequest`; `RejectedError` where it cannot be decoded, or the queue is full."""

    def metrics(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Accept an `ExportMetricsServiceRequest` with the totals of producers; other metrics are ignored."""

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Accept labels of raters: objects with `trace_id`, `correct`, `rater` and more."""

    def acknowledge(self, pipeline: str, alert: str, reason: str, by: str = "") -> Future[bool]:
        """Silence an alarm; the result is whether it fired, or an `UnknownNameError` if there is no such alarm."""

    def refuse(self, reason: str) -> None:
        """Count a request that a receiver rejected."""


IDENTITY: Final = "identity"
MAGIC: Final = {"gzip": GZIP, "zstd": ZSTD[0]}
_CHUNK: Final = 1 << 18
_SLACK: Final = 1 << 18
"""Compressed bytes read before the meter applies: a decompressor returns its output in blocks."""


def encodings() -> tuple[str, ...]:
    """The supported content encodings: gzip, and zstd if the extra is installed."""
    return tuple(name for name in MAGIC if name != "zstd" or find_spec("zstandard") is not None)


class _Metered(io.BytesIO):
    """A compressed body that raises an error when its decompressed size is less than half of the bytes read.

    No compressor enlarges data that much. An attacker who joins hundreds of thousands of empty members does: they
    decompress to nothing, and take seconds to do so.
    """

    inflated = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > _SLACK and self.inflated < self.tell() // 2:
            raise HTTPError(413, DECOMPRESS_LIMIT, "the body inflates to less than its own size")
        return super().read(size)


def inflate(body: bytes, encoding: str, limits: RequestLimits = LIMITS) -> bytes:
    """Decompress a body; `HTTPError` as soon as it exceeds the limits (413), or where it is damaged (400).

    >>> import gzip
    >>> inflate(gzip.compress(b"spans"), "gzip")
    b'spans'
    """
    source = _Metered(body)
    stream = Inflated(source, MAGIC[encoding])
    limit = min(limits.inflated, max(limits.free, limits.ratio * len(body)))
    chunks = []
    try:
        while chunk := stream.read(_CHUNK):
            source.inflated += len(chunk)
            if source.inflated > limit:
                most = f"{limits.inflated} bytes"
                if limit != limits.inflated:
                    most = f"{limits.free} bytes and {limits.ratio} times its size"
                raise HTTPError(413, DECOMPRESS_LIMIT, f"the body inflates to more than {most}")
            chunks.append(chunk)
    except BrokenStreamError as error:
        raise HTTPError(400, constants.TRUNCATED, f"the body cannot be inflated: {error}") from None
    return b"".join(chunks)


T = TypeVar("T")
RETRY_AFTER: Final = 1.0
"""Seconds after which a client may retry when the server is overloaded."""
_SMALL_SHARE: Final = 6
"""Small bodies may use a part of the memory limit, one in so many, in addition."""
_MAX_INFLATING: Final = 2
"""Bodies decompressed at once: each uses one processor, and its output is not yet counted as held."""


class MemoryLimiter:
    """Limits the requests and the memory of one receiver. Belongs to one event loop."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._inflating = asyncio.Semaphore(_MAX_INFLATING)
        self._turns = asyncio.Semaphore(limits.turns)
        self.in_flight = 0
        self.reserved = 0

    def ticket(self) -> Reservation:
        """A reservation for a request."""
        self.check_in_flight()
        return Reservation(self)

    def check_in_flight(self) -> None:
        """Refuse a request where the largest number is in flight."""
        if self.in_flight >= self.limits.in_flight:
            raise busy_error()

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait until a body may be decoded; small bodies do not wait.

        One interpreter decodes all bodies, so decoding many at once is not faster, and fills the memory.
        """
        if size <= self.limits.small:
            yield
            return
        try:
            await asyncio.wait_for(self._turns.acquire(), self.limits.deadline)
        except TimeoutError:
            raise busy_error() from None
        try:
            yield
        finally:
            self._turns.release()

    async def inflated(self, ticket: Reservation, body: bytes, encoding: str) -> bytes:
        """Decompress a body, in a thread pool."""
        async with self._inflating:
            try:
                plain = await run_in_threadpool(inflate, body, encoding, self.limits)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its traceback would keep the output in memory
        ticket.reserve(len(plain) - len(body))
        return plain


class Reservation:
    """The reservation of one request; it is released when the block ends."""

    def __init__(self, limiter: MemoryLimiter) -> None:
        self._limiter = limiter
        self._held = 0
        self._is_in_flight = False

    def reserve(self, size: int) -> None:
        """Reserve more bytes; a negative number releases them."""
        held, limit = self._held + size, self._limiter.limits.memory
        if held <= self._limiter.limits.small:
            limit += limit // _SMALL_SHARE
        if size > 0 and self._limiter.reserved + size > limit:
            raise busy_error()
        self._limiter.reserved += size
        self._held = held

    def begin(self) -> None:
        """Count the request as in flight: it was received completely."""
        self._limiter.check_in_flight()
        self._limiter.in_flight += 1
        self._is_in_flight = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limiter.reserved -= self._held
        self._limiter.in_flight -= self._is_in_flight


def busy_error() -> HTTPError:
    """The error for a request that exceeds the limits of the receiver."""
    return HTTPError(429, RATE_LIMITED, "ragmon is overloaded", hint="try again", retry_after=RETRY_AFTER)


async def submit_and_wait(submit: Callable[[], Future[T]]) -> T:
    """Submit a request to the consumer, in a thread pool, and wait until it is done.

    Cancelling the wait does not cancel the request: it may be on disk already.
    """
    try:
        future = await run_in_threadpool(submit)
    except RejectedError as error:
        raise error.with_traceback(None) from None  # its traceback would keep the body in memory
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has ended: no request is waiting
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    await done.wait()
    return future.result()


_MESSAGE: Final = (
    "ragmon reads traces, metrics, and log records that are messages of a model call with the ids of its span"
)
_LOGS_NOT_READ: Final = "logs_not_read"
"""The reason for a request with other logs, which is answered without an error."""


def accept_logs(consumer: Consumer, body: bytes, encoding: Encoding) -> Future[ExportResult]:
    """Accept an `ExportLogsServiceRequest`: what belongs to spans as spans; the rest is rejected, without an error."""
    try:
        events = read_logs(body, as_json=encoding is Encoding.JSON)
    except Rejected as rejected:
        raise HTTPError(413 if rejected.reason == TOO_MANY else 400, rejected.reason, str(rejected)) from None
    result: Future[ExportResult] = Future()
    message = _MESSAGE if events.unread else ""

    def add_unread(accepted: Future[ExportResult]) -> None:
        error = accepted.exception()
        if error is not None:
            result.set_exception(error)
        else:
            spans = accepted.result()
            result.set_result(ExportResult(spans.rejected + events.unread, spans.message or message))

    if events.body:
        consumer.traces(events.body, Encoding.PROTOBUF).add_done_callback(add_unread)
    else:
        result.set_result(ExportResult(events.unread, message))
    if events.unread:
        consumer.refuse(_LOGS_NOT_READ)
    return result


PROTOBUF: Final = "application/x-protobuf"
FORMS: Final = {PROTOBUF: Encoding.PROTOBUF, JSON: Encoding.JSON}


def authorise(given: bytes, token: str | None) -> None:
    """Check the token of a request: a bearer token, or the password of Basic, which Langfuse's exporters send."""
    if token is None:
        return
    scheme, _, credential = given.partition(b" ")
    given_token = credential.strip() if scheme.lower() == b"bearer" else b""
    if scheme.lower() == b"basic":  # RFC 7617
        with suppress(binascii.Error):
            given_token = base64.b64decode(credential.strip(), validate=True).partition(b":")[2]
    # The comparison takes the same time for any value, so its time reveals nothing about the token.
    if not hmac.compare_digest(given_token, token.encode()):
        hint = (
            "Authorization: Bearer, and what is in the file of `[serve] token_file`, or that as the password of Basic"
        )
        raise HTTPError(401, UNAUTHORISED, "the token is missing or wrong", hint=hint)


def _check_host(headers: Headers, hosts: Collection[str] | None) -> None:
    """Reject requests of web pages: they send an Origin header (CSRF), or their own host name (DNS rebinding)."""
    if "origin" in headers:
        raise HTTPError(403, FORBIDDEN, "requests from web pages are refused", hint="programs send no Origin")
    if hosts is not None and not is_known(headers.get("host", ""), hosts):
        hint = f"{HINT}; with a token, `[serve] token_file`, any name will do"
        raise HTTPError(403, FORBIDDEN, "this server is not known by that name", hint=hint)


def body_encoding(headers: Headers) -> Encoding | None:
    """The encoding of a body; None if it is not supported."""
    return FORMS.get(media_type(headers))


def _content_type(headers: Headers, *known: Encoding) -> Encoding:
    """The encoding of a body, if it is one of the known ones."""
    form = body_encoding(headers)
    if form not in known:
        raise bad_media_type(headers, *(name for name, candidate in FORMS.items() if candidate in known))
    return form


_GRPC_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 429: 8, 431: 3, 503: 14}
"""By HTTP status (google.rpc.Code). Errors that allow a retry have a code on which clients retry."""
_INTERNAL: Final = 13
_NANO: Final = 1_000_000_000


class Signal(NamedTuple):
    """One kind of telemetry: its response message, and the field of a partial success that counts rejected items."""

    response: Any
    rejected: str


TRACES: Final = Signal(ExportTraceServiceResponse, "rejected_spans")
METRICS: Final = Signal(ExportMetricsServiceResponse, "rejected_data_points")
LOGS: Final = Signal(ExportLogsServiceResponse, "rejected_log_records")


def export_success(signal: Signal, result: ExportResult) -> Any:
    """The response message for an export that was accepted."""
    response = signal.response()
    if result.rejected > 0:
        setattr(response.partial_success, signal.rejected, result.rejected)
        response.partial_success.error_message = result.message
    return response


def _json_response(answer: object, status: int = 200) -> Response:
    return Response(json.dumps(answer), status, media_type=JSON)


def status(error: RejectedError) -> Any:
    """An error as `google.rpc.Status`, with the retry delay if a retry is allowed."""
    message = Status(code=_GRPC_CODES.get(error.status, _INTERNAL), message=_error_text(error))
    if error.retry_after is not None:
        message.details.add().Pack(retry_info(error.retry_after))
    return message


def retry_info(seconds: float) -> Any:
    """A retry delay as `google.rpc.RetryInfo`."""
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(round(seconds * _NANO))
    return info


def refusal(error: RejectedError, encoding: Encoding | None) -> Response:
    """The HTTP response for an error (OTLP specification, Failures)."""
    if encoding is Encoding.PROTOBUF:
        response = Response(status(error).SerializeToString(), error.status, media_type=PROTOBUF)
    elif encoding is Encoding.JSON:
        response = _json_response(
            {"code": _GRPC_CODES.get(error.status, _INTERNAL), "message": _error_text(error)}, error.status
        )
    else:
        response = _json_response({"error": str(error), "hint": getattr(error, "hint", "")}, error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))  # whole seconds (RFC 9110, 10.2.3)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="ragmon"'
    return response


def _error_text(error: RejectedError) -> str:
    hint = getattr(error, "hint", "")
    return f"{error} ({hint})" if hint else str(error)


LABELS: Final = 10_000
"""Maximum number of labels of one request."""
_MAX_VALUES: Final = 50 * LABELS
"""Maximum number of JSON values and containers of one request: each takes memory, however few bytes it has."""
_LABEL_EXAMPLE: Final = '{"trace_id": "...", "correct": true, "rater": "..."}'


def labels(body: bytes) -> list[dict[str, Any]]:
    """Parse a body with labels, one object or an array of objects; `HTTPError` for others (400) and too many (413).

    >>> labels(b'{"trace_id": "5a1c", "correct": true}')
    [{'trace_id': '5a1c', 'correct': True}]
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > _MAX_VALUES:
        raise HTTPError(413, constants.OVERSIZE, f"there are more than {_MAX_VALUES} values", hint="send less at once")
    data = read_json(body, _LABEL_EXAMPLE)
    items = data if isinstance(data, list) else [data]
    if not all(isinstance(item, dict) for item in items):
        raise HTTPError(
            400, constants.INVALID_SCHEMA, "labels are an object or an array of objects", hint=_LABEL_EXAMPLE
        )
    if len(items) > LABELS:
        hint = f"at most {LABELS} in one request"
        raise HTTPError(413, constants.OVERSIZE, f"there are {len(items)} labels", hint=hint)
    return items


TRACES_PATH: Final = "/v1/traces"
METRICS_PATH: Final = "/v1/metrics"
LOGS_PATH: Final = "/v1/logs"
LANGFUSE_PATH: Final = "/api/public/otel/v1/traces"
"""The path to which Langfuse's own exporters send traces: they append it to the address they are given."""
PROJECTS_PATH: Final = "/api/public/projects"
_PROJECT: Final = {"id": "ragmon", "name": "ragmon"}
"""The one project: Langfuse's clients ask for projects to check their keys and to make addresses of traces."""
_EXPORTS: Final = (TRACES_PATH, LANGFUSE_PATH, METRICS_PATH, LOGS_PATH)
PURPOSE: Final = (
    f"ragmon's write port: OTLP to {TRACES_PATH} and {METRICS_PATH}, labels to {LABELS_PATH}, "
    f"acknowledgements to {ACKS_PATH}, all with POST\n"
)


class ReceiverApp:
    """The ASGI application of the write port.

    A request is rejected as early as its headers allow. It is answered when the consumer has it on disk. Without a
    token, `hosts` are the names of this server that are accepted besides IP addresses and localhost.
    """

    def __init__(
        self, consumer: Consumer, *, token: str | None, hosts: Collection[str] = (), limits: RequestLimits = LIMITS
    ) -> None:
        self._consumer = consumer
        self._token = token
        self._hosts = hosts if token is None else None
        self._limits = limits
        self._limiter = MemoryLimiter(limits)
        self._endpoints: dict[str, _Endpoint] = {
            TRACES_PATH: partial(self._export, signal=TRACES),
            LANGFUSE_PATH: partial(self._export, signal=TRACES),
            METRICS_PATH: partial(self._export, signal=METRICS),
            LOGS_PATH: partial(self._export, signal=LOGS),
            LABELS_PATH: self._labels,
            ACKS_PATH: self._acknowledge,
        }
        posts = [Route(path, self._guarded(end), methods=["POST"]) for path, end in self._endpoints.items()]
        errors: dict[Any, Any] = {404: self._unknown_path, 405: self._method_not_allowed}

        async def purpose(_: Request) -> Response:
            return PlainTextResponse(PURPOSE)

        async def projects(_: Request) -> Response:
            return _json_response({"data": [{**_PROJECT, "organization": _PROJECT, "metadata": {}}]})

        gets = [Route("/", purpose), Route(PROJECTS_PATH, self._guarded(projects))]
        self._app = Starlette(routes=[*gets, *posts], exception_handlers=errors)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            if scope["path"].removesuffix("/") in self._endpoints:  # exporters may be given an address with a slash
                scope["path"] = scope["path"].removesuffix("/")
            await self._app(scope, receive, send)

    def _guarded(self, endpoint: _Endpoint) -> _Endpoint:
        """An endpoint for clients with the token; the application answers errors that are expected."""

        async def guarded(request: Request) -> Response:
            try:
                check_headers(request.headers, self._limits.header)
                _check_host(request.headers, self._hosts)
                authorise(request.headers.get("authorization", "").encode("latin-1"), self._token)
                return await endpoint(request)
            # Answered here: while Starlette's handlers send a response, the traceback keeps the body in memory.
            except RejectedError as error:
                return self._rejected(request, error)
            except UnknownNameError as error:
                return _json_response({"error": str(error), "hint": error.hint}, 404)
            except ClientDisconnect:
                return Response()  # nobody reads it
            except asyncio.CancelledError:  # the server stops; the task ends with this response
                return refusal(
                    RejectedError(503, "", "the server is being stopped", RETRY_AFTER), _error_encoding(request)
                )
            except Exception as error:  # noqa: BLE001 - an error in one request must not affect others
                log_error("a request could not be taken", error)
                return refusal(
                    RejectedError(500, "", "an error in ragmon; the log says where"), _error_encoding(request)
                )

        return guarded

    def _rejected(self, request: Request, error: RejectedError) -> Response:
        if isinstance(error, HTTPError):
            self._consumer.refuse(error.reason)
        return refusal(error, _error_encoding(request))

    async def _unknown_path(self, request: Request, _: Exception) -> Response:
        path = request.scope["path"]
        hint = nearest(path, self._endpoints)
        return self._rejected(request, HTTPError(404, UNKNOWN_PATH, f"there is nothing at {shorten(path)}", hint=hint))

    async def _method_not_allowed(self, request: Request, error: Exception) -> Response:
        path = request.scope["path"]
        if path not in self._endpoints:  # nothing is POSTed to the page that says what this port is for
            return await self._unknown_path(request, error)
        rejection = HTTPError(405, BAD_METHOD, f"send requests to {path} with POST")
        self._consumer.refuse(rejection.reason)
        response = refusal(rejection, None)
        response.headers["Allow"] = "POST"
        return response

    async def _export(self, request: Request, signal: Signal) -> Response:
        encoding = _content_type(request.headers, *Encoding)
        accept: Callable[[bytes, Encoding], Future[ExportResult]] = partial(accept_logs, self._consumer)
        if signal is not LOGS:
            accept = self._consumer.traces if signal is TRACES else self._consumer.metrics
        async with self._body(request, self._limits.wire) as body:
            result = await submit_and_wait(partial(accept, body, encoding))
        message = export_success(signal, result)
        if encoding is Encoding.PROTOBUF:
            return Response(message.SerializeToString(), media_type=PROTOBUF)
        return Response(MessageToJson(message, indent=None), media_type=JSON)

    async def _labels(self, request: Request) -> Response:
        _content_type(request.headers, Encoding.JSON)
        async with self._body(request, self._limits.wire) as body:
            try:
                items = await run_in_threadpool(labels, body)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its traceback would keep the parsed data in memory
            result = await submit_and_wait(partial(self._consumer.labels, items))
        summary = {"accepted": len(items) - result.rejected, "rejected": result.rejected, "message": result.message}
        return _json_response(summary)

    async def _acknowledge(self, request: Request) -> Response:
        _content_type(request.headers, Encoding.JSON)
        async with self._body(request, LONGEST_ACK) as body:
            fired = await submit_and_wait(partial(self._consumer.acknowledge, *acknowledgement(body)))
        return _json_response({"fired": fired})

    @asynccontextmanager
    async def _body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The decompressed body of a request; the request counts as in flight inside the block."""
        value = ",".join(request.headers.getlist("content-encoding"))
        names = [name for text in value.split(",") if (name := text.strip().lower()) and name != IDENTITY]
        if names[1:] or not set(names) <= {*encodings()}:
            hint = f"one of: {', '.join((IDENTITY, *encodings()))}"
            raise HTTPError(415, BAD_CONTENT_ENCODING, f"Content-Encoding is {shorten(value)}", hint=hint)
        check_size(request.headers, most)
        with self._limiter.ticket() as reservation:
            body = await read_body(request, most, self._limits.deadline, reservation.reserve)
            reservation.begin()
            if names:
                body = await self._limiter.inflated(reservation, body, names[0])
            async with self._limiter.turn(len(body)):
                yield body


def _error_encoding(request: Request) -> Encoding | None:
    """The encoding of an error response: that of the export; None for other requests and for unknown encodings."""
    return body_encoding(request.headers) if request.scope["path"] in _EXPORTS else None
