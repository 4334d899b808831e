"""The write port over HTTP: OTLP exports, labels, acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon import acks
from ragmon.errors import UnknownNameError, nearest, shorten
from ragmon.server.complaints import complain
from ragmon.server.desk import Desk, Form, RefusedError
from ragmon.server.doors import bodies, envelope
from ragmon.server.doors.answers import METRICS, TRACES, Signal, export_response, json_response, refusal
from ragmon.server.doors.intake import RETRY_AFTER, Intake, handed
from ragmon.server.doors.limits import LIMITS, RequestLimits
from ragmon.server.doors.refusals import BAD_METHOD, TIMEOUT, UNKNOWN_PATH, TurnedAwayError

TRACES_PATH: Final = "/v1/traces"
METRICS_PATH: Final = "/v1/metrics"
LABELS_PATH: Final = "/v1/labels"
EXPORTS: Final = (TRACES_PATH, METRICS_PATH)
PURPOSE: Final = (
    f"ragmon's write port: OTLP to {TRACES_PATH} and {METRICS_PATH}, labels to {LABELS_PATH}, "
    f"acknowledgements to {acks.PATH}, all of them POSTed\n"
)


def writing(desk: Desk, *, token: str | None, limits: RequestLimits = LIMITS) -> ASGIApp:
    """The ASGI application of the write port.

    A request is turned away as early as its headers allow. It is answered once the desk has it on disk. The headers'
    own size and time are a matter of `Listening`.

    Args:
        desk: Where requests are handed in.
        token: The bearer token; None where none is needed.
        limits: What a request may cost.
    """
    return _WritePort(desk, token, limits)


class _WritePort:
    """See `writing`."""

    def __init__(self, desk: Desk, token: str | None, limits: RequestLimits) -> None:
        self._desk = desk
        self._token = token
        self._limits = limits
        self._intake = Intake(limits)
        self._takers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            TRACES_PATH: self._traces,
            METRICS_PATH: self._metrics,
            LABELS_PATH: self._labels,
            acks.PATH: self._acknowledge,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            stopping = RefusedError(503, "", "the server stops", RETRY_AFTER)
            await refusal(stopping, _form(request))(scope, receive, send)
            raise
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._taken(request)
        except RefusedError as error:
            if isinstance(error, TurnedAwayError):
                self._desk.refuse(error.reason)
            return refusal(error, _form(request))
        except UnknownNameError as error:
            return json_response({"error": str(error), "hint": error.hint}, 404)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - one request's trouble is not another's
            complain("a request could not be taken", error)
            return refusal(RefusedError(500, "", "something is wrong here; the log says where"), _form(request))

    async def _taken(self, request: Request) -> Response:
        """What becomes of a request.

        Raises:
            RefusedError: It is not taken.
        """
        path, method = request.scope["path"], request.method
        if path == "/" and method in ("GET", "HEAD"):
            return PlainTextResponse(PURPOSE)
        taker = self._takers.get(path)
        if taker is None:
            hint = "metrics and traces are taken, logs are not" if path == "/v1/logs" else nearest(path, self._takers)
            raise TurnedAwayError(404, UNKNOWN_PATH, f"there is nothing at {shorten(path)}", hint=hint)
        if method != "POST":
            return self._posts_only(path)
        envelope.meant_for_us(request.headers, named=self._token is not None)
        envelope.authorise(request.headers.get("authorization", "").encode("latin-1"), self._token)
        return await taker(request)

    def _posts_only(self, path: str) -> Response:
        error = TurnedAwayError(405, BAD_METHOD, f"requests to {path} are POSTed")
        self._desk.refuse(error.reason)
        answer = refusal(error, None)
        answer.headers["Allow"] = "POST"
        return answer

    async def _traces(self, request: Request) -> Response:
        return await self._export(request, TRACES)

    async def _metrics(self, request: Request) -> Response:
        return await self._export(request, METRICS)

    async def _export(self, request: Request, signal: Signal) -> Response:
        form = envelope.written(request.headers, *Form)
        take = self._desk.traces if signal is TRACES else self._desk.metrics
        async with self._body(request, self._limits.wire) as body:
            taken = await handed(partial(take, body, form))
        return export_response(signal, taken, form)

    async def _labels(self, request: Request) -> Response:
        envelope.written(request.headers, Form.JSON)
        async with self._body(request, self._limits.wire) as body:
            found = await run_in_threadpool(bodies.labels, body)
            taken = await handed(partial(self._desk.labels, found))
        told = {"accepted": len(found) - taken.rejected, "rejected": taken.rejected, "message": taken.message}
        return json_response(told)

    async def _acknowledge(self, request: Request) -> Response:
        envelope.written(request.headers, Form.JSON)
        async with self._body(request, acks.LONGEST) as body:
            fired = await handed(partial(self._desk.acknowledge, *bodies.acknowledgement(body)))
        return json_response({"fired": fired})

    @asynccontextmanager
    async def _body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body of a request as it was before it was compressed; it counts as in flight inside the block.

        Args:
            request: The request.
            most: Bytes it may have as it is sent.

        Raises:
            TurnedAwayError: It is too large, too slow, damaged, or one too many.
        """
        encoding = envelope.encoding(request.headers)
        envelope.fits(request.headers, most)
        with self._intake.ticket() as ticket:
            chunks = bytearray()
            try:
                async with asyncio.timeout(self._limits.deadline):
                    async for chunk in request.stream():
                        if len(chunks) + len(chunk) > most:
                            raise envelope.oversize(most)
                        ticket.hold(len(chunk))
                        chunks += chunk
            except TimeoutError:
                slow = f"the body did not come within {self._limits.deadline:g} seconds"
                raise TurnedAwayError(408, TIMEOUT, slow) from None
            ticket.begin()
            body = bytes(chunks)
            chunks.clear()  # it would stay in memory beside the body
            body = await self._intake.inflated(ticket, body, encoding)
            async with self._intake.turn(len(body)):
                yield body


def _form(request: Request) -> Form | None:
    """The form in which a refusal is told: that of an export, None for what is no export or in no known form."""
    return envelope.form(request.headers) if request.scope["path"] in EXPORTS else None
