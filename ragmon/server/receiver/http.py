"""The write port over HTTP: OTLP exports, and JSON requests with labels and acknowledgements of alarms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, nearest, shorten
from ragmon.core.log import log_error
from ragmon.monitor.http.admin import Endpoint
from ragmon.monitor.http.requests import (
    ACKS_PATH,
    BAD_METHOD,
    LIMITS,
    LONGEST_ACK,
    UNKNOWN_PATH,
    HTTPError,
    RejectedError,
    RequestLimits,
    acknowledgement,
    check_headers,
    check_size,
    read_body,
    read_json,
)
from ragmon.server.receiver import messages
from ragmon.server.receiver.interface import Consumer, Encoding, ExportResult
from ragmon.server.receiver.limits import RETRY_AFTER, MemoryLimiter, submit_and_wait
from ragmon.server.receiver.messages import (
    LOGS,
    METRICS,
    TRACES,
    Signal,
    accept_logs,
    export_response,
    json_response,
    refusal,
)

LABELS: Final = 10_000
"""Maximum number of labels of one request."""
_MAX_VALUES: Final = 50 * LABELS
"""Maximum number of JSON values and containers of one request: each takes memory, however few bytes it has."""
_LABEL_EXAMPLE: Final = '{"trace_id": "...", "correct": true, "rater": "..."}'


def labels(body: bytes) -> list[dict[str, Any]]:
    """Parse a body with labels: one object, or an array of objects.

    Raises:
        HTTPError: It is neither (400), or has too many labels (413).

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
LABELS_PATH: Final = "/v1/labels"
LANGFUSE_PATH: Final = "/api/public/otel/v1/traces"
"""The path to which Langfuse's own exporters send traces: they append it to the address they are given."""
EXPORTS: Final = (TRACES_PATH, LANGFUSE_PATH, METRICS_PATH, LOGS_PATH)
PURPOSE: Final = (
    f"ragmon's write port: OTLP to {TRACES_PATH} and {METRICS_PATH}, labels to {LABELS_PATH}, "
    f"acknowledgements to {ACKS_PATH}, all of them POSTed\n"
)


def receiver_app(
    consumer: Consumer, *, token: str | None, hosts: Collection[str] = (), limits: RequestLimits = LIMITS
) -> ASGIApp:
    """The ASGI application of the write port.

    A request is rejected as early as its headers allow. It is answered when the consumer has it on disk.

    Args:
        consumer: Receives the requests.
        token: The bearer token; None if none is required.
        hosts: Host names accepted without a token, besides IP addresses and localhost.
        limits: The limits of a request.
    """
    return _WritePort(consumer, token, hosts, limits)


class _WritePort:
    """The application returned by `receiver_app`."""

    def __init__(self, consumer: Consumer, token: str | None, hosts: Collection[str], limits: RequestLimits) -> None:
        self._consumer = consumer
        self._token = token
        self._hosts = hosts if token is None else None
        self._limits = limits
        self._limiter = MemoryLimiter(limits)
        self._endpoints: dict[str, Endpoint] = {
            TRACES_PATH: partial(self._export, signal=TRACES),
            LANGFUSE_PATH: partial(self._export, signal=TRACES),
            METRICS_PATH: partial(self._export, signal=METRICS),
            LOGS_PATH: partial(self._export, signal=LOGS),
            LABELS_PATH: self._labels,
            ACKS_PATH: self._acknowledge,
        }
        posts = [Route(path, self._guarded(end), methods=["POST"]) for path, end in self._endpoints.items()]
        errors: dict[Any, Any] = {404: self._unknown_path, 405: self._method_not_allowed}
        self._app = Starlette(routes=[Route("/", _purpose), *posts], exception_handlers=errors)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._app(scope, receive, send)

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint for clients with the token; the application answers errors that are expected."""

        async def guarded(request: Request) -> Response:
            try:
                check_headers(request.headers, self._limits.header)
                messages.check_host(request.headers, self._hosts)
                messages.authorise(request.headers.get("authorization", "").encode("latin-1"), self._token)
                return await endpoint(request)
            # Answered here: while Starlette's handlers send a response, the traceback keeps the body in memory.
            except RejectedError as error:
                return self._rejected(request, error)
            except UnknownNameError as error:
                return _unknown_name(error)
            except ClientDisconnect:
                return Response()  # nobody reads it
            except asyncio.CancelledError:  # the server stops; the task ends with this response
                return refusal(_stopping_error(), _error_encoding(request))
            except Exception as error:  # noqa: BLE001 - an error in one request must not affect others
                log_error("a request could not be taken", error)
                return refusal(_internal_error(), _error_encoding(request))

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
        rejection = HTTPError(405, BAD_METHOD, f"requests to {path} are POSTed")
        self._consumer.refuse(rejection.reason)
        response = refusal(rejection, None)
        response.headers["Allow"] = "POST"
        return response

    def _consumer_of(self, signal: Signal) -> Callable[[bytes, Encoding], Future[ExportResult]]:
        """The function that accepts exports of a signal."""
        if signal is LOGS:
            return partial(accept_logs, self._consumer)
        return self._consumer.traces if signal is TRACES else self._consumer.metrics

    async def _export(self, request: Request, signal: Signal) -> Response:
        form = messages.content_type(request.headers, *Encoding)
        async with self._body(request, self._limits.wire) as body:
            result = await submit_and_wait(partial(self._consumer_of(signal), body, form))
        return export_response(signal, result, form)

    async def _labels(self, request: Request) -> Response:
        messages.content_type(request.headers, Encoding.JSON)
        async with self._body(request, self._limits.wire) as body:
            try:
                items = await run_in_threadpool(labels, body)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its traceback would keep the parsed data in memory
            result = await submit_and_wait(partial(self._consumer.labels, items))
        summary = {"accepted": len(items) - result.rejected, "rejected": result.rejected, "message": result.message}
        return json_response(summary)

    async def _acknowledge(self, request: Request) -> Response:
        messages.content_type(request.headers, Encoding.JSON)
        async with self._body(request, LONGEST_ACK) as body:
            fired = await submit_and_wait(partial(self._consumer.acknowledge, *acknowledgement(body)))
        return json_response({"fired": fired})

    @asynccontextmanager
    async def _body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The decompressed body of a request; the request counts as in flight inside the block.

        Args:
            request: The request.
            most: Maximum bytes it may have as sent.

        Raises:
            HTTPError: It is too large, too slow or damaged, or there are too many requests.
        """
        encoding = messages.encoding(request.headers)
        check_size(request.headers, most)
        with self._limiter.ticket() as reservation:
            body = await read_body(request, most, self._limits.deadline, reservation.reserve)
            reservation.begin()
            body = await self._limiter.inflated(reservation, body, encoding)
            async with self._limiter.turn(len(body)):
                yield body


async def _purpose(_: Request) -> Response:
    return PlainTextResponse(PURPOSE)


def _unknown_name(error: UnknownNameError) -> Response:
    return json_response({"error": str(error), "hint": error.hint}, 404)


def _stopping_error() -> RejectedError:
    return RejectedError(503, "", "the server stops", RETRY_AFTER)


def _internal_error() -> RejectedError:
    return RejectedError(500, "", "something is wrong here; the log says where")


def _error_encoding(request: Request) -> Encoding | None:
    """The encoding of an error response: that of the export; None for other requests and for unknown encodings."""
    return messages.body_encoding(request.headers) if request.scope["path"] in EXPORTS else None
