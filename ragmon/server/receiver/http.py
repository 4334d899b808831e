"""What people send as JSON: labels, and acknowledgements of alarms.

The write port over HTTP: OTLP exports, labels, acknowledgements.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, nearest, shorten
from ragmon.monitor import embedded
from ragmon.monitor.embedded import LONGEST
from ragmon.monitor.log import complain
from ragmon.server.receiver import messages
from ragmon.server.receiver.fast_path import LARGEST, RequestHead, ResponseQueue, response_bytes
from ragmon.server.receiver.interface import (
    BAD_METHOD,
    TIMEOUT,
    UNKNOWN_PATH,
    Consumer,
    Encoding,
    ExportResult,
    HTTPError,
    RejectedError,
)
from ragmon.server.receiver.limits import (
    IDENTITY,
    LIMITS,
    RETRY_AFTER,
    MemoryLimiter,
    RequestLimits,
    Reservation,
    submit_and_wait,
)
from ragmon.server.receiver.logs import reject_logs
from ragmon.server.receiver.messages import (
    LOGS,
    METRICS,
    TRACES,
    Signal,
    export_response,
    json_response,
    oversize,
    refusal,
)

LABELS: Final = 10_000
"""Labels of one request."""
_VALUES: Final = 50 * LABELS
"""Values and containers of one request: each costs memory, however few bytes it takes."""
_LABEL: Final = '{"trace_id": "...", "correct": true, "rater": "..."}'
_ACKNOWLEDGEMENT: Final = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back"}'


class Acknowledgement(NamedTuple):
    """Somebody has seen an alarm.

    Attributes:
        pipeline: Whose it is.
        alert: Its name.
        reason: What was found.
    """

    pipeline: str
    alert: str
    reason: str


def labels(body: bytes) -> list[dict[str, Any]]:
    """The labels of a body: one object, or an array of them.

    Raises:
        TurnedAwayError: It is neither (400), or holds too many (413).

    >>> labels(b'{"trace_id": "5a1c", "correct": true}')
    [{'trace_id': '5a1c', 'correct': True}]
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > _VALUES:
        raise HTTPError(413, constants.OVERSIZE, f"there are more than {_VALUES} values", hint="send less at once")
    found = _read(body, _LABEL)
    many = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) for one in many):
        raise HTTPError(400, constants.INVALID_SCHEMA, "labels are an object or an array of objects", hint=_LABEL)
    if len(many) > LABELS:
        hint = f"at most {LABELS} in one request"
        raise HTTPError(413, constants.OVERSIZE, f"there are {len(many)} labels", hint=hint)
    return many


def acknowledgement(body: bytes) -> Acknowledgement:
    """The acknowledgement in a body; where it names no pipeline, the usual one is meant.

    Raises:
        TurnedAwayError: It is none (400), or too large (413).

    >>> acknowledgement(b'{"gate": "mrr", "reason": "rolled back"}')
    Acknowledgement(pipeline='default', alert='mrr', reason='rolled back')
    """
    if len(body) > LONGEST:
        raise oversize(LONGEST)
    found = _read(body, _ACKNOWLEDGEMENT)
    if not isinstance(found, dict) or not {"gate", "reason"} <= found.keys():
        raise HTTPError(400, constants.INVALID_SCHEMA, "this is no acknowledgement", hint=_ACKNOWLEDGEMENT)
    said = Acknowledgement(found.get("pipeline", constants.DEFAULT_PIPELINE), found["gate"], found["reason"])
    if not all(isinstance(part, str) and part for part in said):
        wrong = "gate, pipeline and reason are texts"
        raise HTTPError(400, constants.INVALID_SCHEMA, wrong, hint="none of them empty")
    return said


def _read(body: bytes, hint: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HTTPError(400, constants.MALFORMED_JSON, "this is no JSON", hint=hint) from None


TRACES_PATH: Final = "/v1/traces"
METRICS_PATH: Final = "/v1/metrics"
LOGS_PATH: Final = "/v1/logs"
LABELS_PATH: Final = "/v1/labels"
LANGFUSE_PATH: Final = "/api/public/otel/v1/traces"
"""Where Langfuse's own exporters send traces: the address they are given is that of a server with this path."""
_INFLATED: Final = 4 * LARGEST
"""Bytes of a small body once it is inflated."""
EXPORTS: Final = (TRACES_PATH, LANGFUSE_PATH, METRICS_PATH, LOGS_PATH)
PURPOSE: Final = (
    f"ragmon's write port: OTLP to {TRACES_PATH} and {METRICS_PATH}, labels to {LABELS_PATH}, "
    f"acknowledgements to {embedded.ACKS_PATH}, all of them POSTed\n"
)


def receiver_app(
    consumer: Consumer, *, token: str | None, hosts: Collection[str] = (), limits: RequestLimits = LIMITS
) -> ASGIApp:
    """The ASGI application of the write port.

    A request is turned away as early as its headers allow. It is answered once the desk has it on disk. The headers'
    own size and time are a matter of `Listening`.

    Args:
        consumer: Where requests are handed in.
        token: The bearer token; None where none is needed.
        hosts: The names it may be asked by without a token, beside addresses and localhost.
        limits: What a request may cost.
    """
    return _WritePort(consumer, token, hosts, limits)


class _WritePort:
    """See `receiver_app`."""

    _usual: ClassVar = {
        (signal, form): response_bytes(export_response(signal, ExportResult(), form))
        for signal in (TRACES, METRICS)
        for form in Encoding
    }

    def __init__(self, consumer: Consumer, token: str | None, hosts: Collection[str], limits: RequestLimits) -> None:
        self._consumer = consumer
        self._token = token
        self._hosts = hosts if token is None else None
        self._limits = limits
        self._intake = MemoryLimiter(limits)
        self._answers: ResponseQueue | None = None
        self._takers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            TRACES_PATH: partial(self._export, signal=TRACES),
            LANGFUSE_PATH: partial(self._export, signal=TRACES),
            METRICS_PATH: partial(self._export, signal=METRICS),
            LOGS_PATH: partial(self._export, signal=LOGS),
            LABELS_PATH: self._labels,
            embedded.ACKS_PATH: self._acknowledge,
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
            await refusal(_stopping(), _form(request))(scope, receive, send)
            raise
        await answer(scope, receive, send)

    def quick(self, head: RequestHead, body: bytes, answer: Callable[[bytes], None]) -> bool:
        """Take a small export at once; returns whether that was done. Whatever is to be refused is left to the others.

        Args:
            head: What stands before its body.
            body: Its body.
            answer: Is told the answer, in the event loop.
        """
        signal = TRACES if head.path == TRACES_PATH else METRICS
        ticket = None
        try:
            messages.check_host(head.fields, self._hosts)
            messages.authorise(head.fields.get("authorization", "").encode(), self._token)
            form = messages.content_type(head.fields, *Encoding)
            plain = _plain(body, messages.encoding(head.fields))
            if plain is None:
                return False
            ticket = self._intake.ticket()
            ticket.hold(len(plain))
            ticket.begin()
        except HTTPError:
            if ticket is not None:
                ticket.give_back()
            return False
        waits = _Waits(self._usual, signal, form, ticket, answer)
        try:
            future = self._take(signal)(plain, form)
        except RejectedError as error:
            self._loop().put(partial(waits.refused, error))
        except Exception as error:  # noqa: BLE001 - one request's trouble is not another's
            complain("a request could not be taken", error)
            self._loop().put(partial(waits.refused, _broken()))
        else:
            loop = self._loop()
            future.add_done_callback(lambda done: loop.put(partial(waits.done, done)))
        return True

    def _loop(self) -> ResponseQueue:
        """Of the event loop that runs; it is another one once the port is opened again."""
        running = asyncio.get_running_loop()
        if self._answers is None or self._answers.loop is not running:
            self._answers = ResponseQueue(running)
        return self._answers

    @staticmethod
    def stopping(headers: messages.Headers) -> bytes:
        """What somebody is told who is not answered before the server ends."""
        return response_bytes(refusal(_stopping(), messages.body_encoding(headers)))

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._taken(request)
        except RejectedError as error:
            if isinstance(error, HTTPError):
                self._consumer.refuse(error.reason)
            return refusal(error, _form(request))
        except UnknownNameError as error:
            return json_response({"error": str(error), "hint": error.hint}, 404)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - one request's trouble is not another's
            complain("a request could not be taken", error)
            return refusal(_broken(), _form(request))

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
            hint = nearest(path, self._takers)
            raise HTTPError(404, UNKNOWN_PATH, f"there is nothing at {shorten(path)}", hint=hint)
        if method != "POST":
            return self._posts_only(path)
        messages.check_host(request.headers, self._hosts)
        messages.authorise(request.headers.get("authorization", "").encode("latin-1"), self._token)
        return await taker(request)

    def _posts_only(self, path: str) -> Response:
        error = HTTPError(405, BAD_METHOD, f"requests to {path} are POSTed")
        self._consumer.refuse(error.reason)
        answer = refusal(error, None)
        answer.headers["Allow"] = "POST"
        return answer

    def _take(self, signal: Signal) -> Callable[[bytes, Encoding], Future[ExportResult]]:
        """Where an export is handed in."""
        if signal is LOGS:
            return reject_logs
        return self._consumer.traces if signal is TRACES else self._consumer.metrics

    async def _export(self, request: Request, signal: Signal) -> Response:
        form = messages.content_type(request.headers, *Encoding)
        async with self._body(request, self._limits.wire) as body:
            taken = await submit_and_wait(partial(self._take(signal), body, form))
        return export_response(signal, taken, form)

    async def _labels(self, request: Request) -> Response:
        messages.content_type(request.headers, Encoding.JSON)
        async with self._body(request, self._limits.wire) as body:
            try:
                found = await run_in_threadpool(labels, body)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its frames would keep what was read
            taken = await submit_and_wait(partial(self._consumer.labels, found))
        told = {"accepted": len(found) - taken.rejected, "rejected": taken.rejected, "message": taken.message}
        return json_response(told)

    async def _acknowledge(self, request: Request) -> Response:
        messages.content_type(request.headers, Encoding.JSON)
        async with self._body(request, embedded.LONGEST) as body:
            fired = await submit_and_wait(partial(self._consumer.acknowledge, *acknowledgement(body)))
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
        encoding = messages.encoding(request.headers)
        messages.check_size(request.headers, most)
        with self._intake.ticket() as ticket:
            chunks = bytearray()
            try:
                async with asyncio.timeout(self._limits.deadline):
                    async for chunk in request.stream():
                        if len(chunks) + len(chunk) > most:
                            raise messages.oversize(most)
                        ticket.hold(len(chunk))
                        chunks += chunk
            except TimeoutError:
                slow = f"the body did not come within {self._limits.deadline:g} seconds"
                raise HTTPError(408, TIMEOUT, slow) from None
            ticket.begin()
            body = bytes(chunks)
            chunks.clear()  # it would stay in memory beside the body
            body = await self._intake.inflated(ticket, body, encoding)
            async with self._intake.turn(len(body)):
                yield body


class _Waits(NamedTuple):
    """A small export that waits until it is on disk."""

    usual: dict[tuple[Signal, Encoding], bytes]
    signal: Signal
    form: Encoding
    ticket: Reservation
    answer: Callable[[bytes], None]

    def done(self, future: Future[ExportResult]) -> None:
        try:
            taken = future.result()
        except RejectedError as error:
            self.refused(error)
        except Exception as error:  # noqa: BLE001 - one request's trouble is not another's
            complain("a request could not be taken", error)
            self.refused(_broken())
        else:
            self.ticket.give_back()
            whole = self.usual[self.signal, self.form]
            self.answer(response_bytes(export_response(self.signal, taken, self.form)) if taken.rejected > 0 else whole)

    def refused(self, error: RejectedError) -> None:
        self.ticket.give_back()
        self.answer(response_bytes(refusal(error, self.form)))


def _plain(body: bytes, encoding: str) -> bytes | None:
    """A small body as it was before it was compressed; None where it is not one member of gzip, or not small."""
    if encoding == IDENTITY:
        return body
    if encoding != "gzip":
        return None
    inflating = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        plain = inflating.decompress(body, _INFLATED)
    except zlib.error:
        return None
    return plain if inflating.eof and not inflating.unused_data else None


def _stopping() -> RejectedError:
    return RejectedError(503, "", "the server stops", RETRY_AFTER)


def _broken() -> RejectedError:
    return RejectedError(500, "", "something is wrong here; the log says where")


def _form(request: Request) -> Encoding | None:
    """The form in which a refusal is told: that of an export, None for what is no export or in no known form."""
    return messages.body_encoding(request.headers) if request.scope["path"] in EXPORTS else None
