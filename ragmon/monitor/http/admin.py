"""The ASGI application of the admin port, which a server and an embedded monitor share.

The port is for Prometheus, orchestrators and people, and shows no content of requests, but for what a server shows of a
single trace to whoever has its token. It is read only, but for the acknowledgements that an embedded monitor takes from
its own machine.
"""

from __future__ import annotations

import asyncio
import gzip
from asyncio import Semaphore
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.core.constants import ACKS_PATH
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError, nearest, shorten
from ragmon.core.escaping import printable_json
from ragmon.core.http_server import (
    FORBIDDEN,
    JSON,
    LIMITS,
    LONGEST_ACK,
    UNKNOWN_PATH,
    HTTPError,
    acknowledgement,
    bad_media_type,
    check_size,
    media_type,
    read_body,
)
from ragmon.core.log import log_error
from ragmon.core.net import HINT, is_ip_or_localhost, is_known
from ragmon.export import runbook, status_page
from ragmon.export.pages import assets
from ragmon.export.prometheus import Collector
from ragmon.monitor.http import pages
from ragmon.monitor.http.pages import AdminView

METHODS: Final = ("GET", "HEAD")
TRACES_PATH: Final = "/api/traces"
TRACE_PAGES_PATH: Final = "/t"
_RETRY: Final = {"Retry-After": "5"}
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Of every answer."""
_THREADS: Final = 4
"""Most answers are made one at a time; the other threads are for comparisons and acknowledgements."""
_LEVEL: Final = 1
"""Compression level of `/metrics`: higher ones take several times as long and save little."""

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]
Acknowledge = Callable[[str, str, str, str], bool]
"""Alarm, pipeline, reason and who; returns whether the alarm fired."""
T = TypeVar("T")


class JournalQueries(NamedTuple):
    """What answers the paths that need a journal.

    Attributes:
        records: Lists the requests that fail a gate.
        why: Diagnoses a gate.
        compare: Compares two releases. It is answered beside other requests, so it takes the locks it needs itself.
        trace: Shows the requests of a trace; its path ends in the trace id. It is answered as `compare`.
        trace_page: Shows the same as a page.
    """

    records: Answer
    why: Answer
    compare: Answer
    trace: Answer
    trace_page: Answer


class JsonResponse(JSONResponse):
    """JSON without terminal control characters; a lone surrogate is written as its escape."""

    def render(self, content: Any) -> bytes:
        """The body of a response."""
        return printable_json(content, separators=(",", ":")).encode()


def admin_app(
    view: AdminView,
    hosts: Collection[str],
    queries: JournalQueries | None = None,
    acknowledge: Acknowledge | None = None,
) -> ASGIApp:
    """The ASGI application of an admin port.

    Args:
        view: What it shows.
        hosts: The host names that requests may use, besides IP addresses and localhost.
        queries: What answers the paths that need a journal; None where there is no journal.
        acknowledge: Silences an alarm; None where a write port takes acknowledgements.
    """
    registry = CollectorRegistry()
    registry.register(Collector(view.snapshot, view.moment))
    queries = queries or JournalQueries(_no_journal, _no_journal, _no_journal, _no_trace, _no_trace)
    pool, lock = ThreadPoolExecutor(_THREADS, "ragmon-admin"), Semaphore()
    answers: dict[str, Answer] = {
        "/": partial(pages.overview, view),
        pages.MONITOR_PATH: partial(pages.monitor, view),
        pages.ALARMS_PATH: partial(pages.alarms, view),
        pages.GOLD_PATH: partial(pages.gold, view),
        "/metrics": partial(_metrics, registry),
        "/api/status": lambda _: JsonResponse(view.status(view.snapshot())),
        "/api/history": lambda _: JsonResponse(_history(view)),
        "/api/records": queries.records,
        "/api/why": queries.why,
    }
    endpoints = {path: _in_thread(answer, pool, lock) for path, answer in answers.items()}
    endpoints[runbook.PATH] = _in_thread(lambda _: pages.html(runbook.page()), pool, nullcontext())
    endpoints |= {path: _in_thread(_asset(name), pool, nullcontext()) for path, name in assets.PATHS.items()}
    endpoints["/api/compare"] = _in_thread(queries.compare, pool, nullcontext())
    endpoints["/healthz"] = _immediate(view.failure)
    endpoints["/readyz"] = _immediate(view.trouble, view.note)
    for path, answer in ((TRACES_PATH, queries.trace), (TRACE_PAGES_PATH, queries.trace_page)):
        endpoints[path + "/{trace}"] = _in_thread(answer, pool, nullcontext())
    endpoints[pages.PIPELINES_PATH + "/{names:path}"] = _in_thread(partial(pages.pipeline_or_gate, view), pool, lock)
    routes = [Route(path, _guarded(endpoint)) for path, endpoint in endpoints.items()]
    if acknowledge is not None:
        routes.append(Route(ACKS_PATH, _guarded(_acknowledgements(acknowledge, pool)), methods=["POST"]))
    unknown = _not_found([route.path.partition("/{")[0] for route in routes])
    handlers: dict[Any, Any] = {404: unknown, 405: unknown, HTTPError: _rejected, RagmonError: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return check_origin(app, hosts)


def check_origin(app: ASGIApp, hosts: Collection[str]) -> ASGIApp:
    """An application that rejects requests from web pages, which could send the data to their authors.

    A page of another site sends `Origin`; one that uses DNS rebinding sends its own name in `Host`.

    Args:
        app: The application behind it.
        hosts: The names it may be asked by, beside IP addresses and localhost.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        handler = app
        if "origin" in headers:
            handler = _error(403, "a web page asks", "programs and links send no Origin")
        elif "host" in headers and not is_known(headers["host"], hosts):  # HTTP/1.0 health checks send no Host
            handler = _error(403, "this server is not known by that name", HINT)
        await handler(scope, receive, send)

    return checked


def _guarded(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose unexpected errors reveal nothing of the data; the application answers the expected ones."""

    async def guarded(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except (HTTPError, RagmonError):
            raise
        except ClientDisconnect:
            return Response()  # nobody reads it
        except Exception as error:  # noqa: BLE001 - an error in one request must not affect others
            log_error(f"{request.scope['path']} could not be answered", error)
            return _error(500, "something is wrong here", "the log says where")
        response.headers.update(HEADERS)
        return response

    return guarded


def _in_thread(answer: Answer, pool: ThreadPoolExecutor, lock: AbstractAsyncContextManager[Any]) -> Endpoint:
    """An endpoint that runs in a thread.

    Args:
        answer: Makes the response.
        pool: The threads.
        lock: Serialises the requests: each of them holds the lock that whoever counts records needs.
    """

    async def endpoint(request: Request) -> Response:
        async with lock:
            return await _run(pool, answer, request)

    return endpoint


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *args: object) -> T:
    """Call a function in a thread of a pool, which Python ends with the process; anyio's threads would keep it alive.

    Raises:
        UnavailableError: The process ends.
    """
    try:
        future = asyncio.get_running_loop().run_in_executor(pool, function, *args)
    except RuntimeError as error:
        raise UnavailableError("the process ends", hint="ask again when it is back") from error
    return await future


def _immediate(trouble: Callable[[], str], note: Callable[[], str] = str) -> Endpoint:
    """An endpoint that waits for no lock: an orchestrator kills a server that does not answer.

    Args:
        trouble: Why the answer is no; "" where it is yes.
        note: What to add to a yes.
    """

    async def endpoint(_: Request) -> Response:
        error = trouble()
        remark = note()
        body = f"ok\n{remark}" if remark else "ok"
        return PlainTextResponse(f"{error or body}\n", 503 if error else 200)

    return endpoint


def _acknowledgements(acknowledge: Acknowledge, pool: ThreadPoolExecutor) -> Endpoint:
    """An endpoint that silences an alarm, for this machine alone.

    An acknowledgement is JSON, which browsers do not send across sites unasked.
    """

    async def endpoint(request: Request) -> Response:
        check_is_local(request, "acknowledgements are taken from this machine alone", "`ragmon ack` there")
        if media_type(request.headers) != JSON:
            raise bad_media_type(request.headers, JSON)
        check_size(request.headers, LONGEST_ACK)
        given = acknowledgement(await read_body(request, LONGEST_ACK, LIMITS.deadline))
        fired = await _run(pool, acknowledge, given.alert, given.pipeline, given.reason, given.by)
        return JsonResponse({"fired": fired})

    return endpoint


def check_is_local(request: Request, message: str, hint: str) -> None:
    """Check that a request is from this machine, and that it was meant for this machine.

    Args:
        request: The request.
        message: What is said to whoever is on another machine.
        hint: What to do there.

    Raises:
        HTTPError: It is not (403).
    """
    if not is_local(request):
        raise HTTPError(403, FORBIDDEN, message, hint=hint)
    if not is_ip_or_localhost(request.headers.get("host", "")):
        raise HTTPError(403, FORBIDDEN, "a web page asks", hint="ask from a terminal, by an address or `localhost`")


def is_local(request: Request) -> bool:
    """Whether a request is from this machine."""
    return request.client is not None and _is_loopback(request.client.host)


def _is_loopback(address: str) -> bool:
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def _asset(name: str) -> Answer:
    """The answer that is a file of the pages."""
    return lambda _: Response(assets.asset(name), media_type=assets.CONTENT_TYPES[name])


def _history(view: AdminView) -> dict[str, Any]:
    """The history of all gates that the overview draws.

    Raises:
        HTTPError: This monitor keeps none (404).
    """
    if view.history is None:
        raise HTTPError(404, UNKNOWN_PATH, "this monitor keeps no history of its gates", hint="/api/status has them")
    return status_page.history(*view.history.overview())


def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except (TypeError, ValueError):  # a malformed version in the header
        encode, content_type = choose_encoder("")
    body = encode(registry)
    headers = {"Content-Type": content_type}
    if gzip_accepted(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, _LEVEL)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers)


def _no_journal(_: Request) -> NoReturn:
    hint = "`ragmon serve` keeps one, and answers this"
    raise HTTPError(404, UNKNOWN_PATH, "an embedded monitor has no journal", hint=hint)


def _no_trace(_: Request) -> NoReturn:
    hint = "`ragmon show TRACE FILE` reads the trace log of `[export] jsonl`; `ragmon serve` keeps a journal"
    raise HTTPError(404, UNKNOWN_PATH, "an embedded monitor has no journal", hint=hint)


def _not_found(paths: list[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The response for unknown paths, and for methods that would change something."""
    takes_acks = ACKS_PATH in paths

    async def answer(request: Request, _: Exception) -> Response:
        path = request.scope["path"]
        if takes_acks and path == ACKS_PATH:
            return _error(405, "acknowledgements are POSTed", "`ragmon ack` does", Allow="POST")
        if request.method not in METHODS:
            write_port = "labels and acknowledgements are POSTed to the write port: `[serve] otlp`"
            hint = f"acknowledgements are POSTed to {ACKS_PATH}" if takes_acks else write_port
            return _error(405, "this port only reads", hint, Allow=", ".join(METHODS))
        return _error(404, f"there is nothing at {shorten(path)}", nearest(path, paths))

    return answer


async def _rejected(_: Request, error: HTTPError) -> Response:
    return _error(error.status, str(error), error.hint)


async def _failed(_: Request, error: RagmonError) -> Response:
    if isinstance(error, UnavailableError):
        return _error(503, str(error), error.hint, **_RETRY)
    return _error(404 if isinstance(error, UnknownNameError) else 400, str(error), error.hint)


def _error(status: int, error: str, hint: str, **headers: str) -> Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return JsonResponse({"error": error, "hint": hint}, status, headers=HEADERS | header_fields)
