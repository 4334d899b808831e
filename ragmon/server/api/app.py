"""The ASGI application of the admin port, and the parsing of its query parameters.

The port is read only, for Prometheus, orchestrators and people, and never shows the content of requests. A query
parameter that is unknown, repeated or malformed is answered with an error that names it.
"""

from __future__ import annotations

import json
import re
from asyncio import Semaphore
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.config.types import duration
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError, nearest, shorten
from ragmon.core.escaping import printable_json
from ragmon.core.log import log_error
from ragmon.core.net import HINT, is_known
from ragmon.export.prometheus import Exposition
from ragmon.export.status_page import STYLE_HASH, page
from ragmon.gates.releases import By
from ragmon.monitor.embedded import split
from ragmon.server.api.queries import MAX_DROP, BusyError, QueryService
from ragmon.server.api.status import StatusService
from ragmon.server.journal import FailureQuery, JournalError

OUTCOME: Final = "fail"
"""The only outcome that records can be queried by: requests that keep their gates are in no index."""
LIMIT: Final = 50
_RECORDS: Final = (
    "pipeline",
    "source",
    "gate",
    "metric",
    "outcome",
    "build",
    "index_hash",
    "since",
    "limit",
    "cursor",
)
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")
_SHARE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")


def records(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """A page of the requests that fail a gate.

    Args:
        asking: The query service.
        given: The query parameters.

    Raises:
        RagmonError: A parameter is wrong.
    """
    params = _params(given, *_RECORDS)
    if params.get("outcome", OUTCOME) != OUTCOME:
        hint = f"{OUTCOME}: the index holds the requests that alone fail a gate, and no others"
        raise RagmonError(f"outcome is {shorten(params['outcome'])}", hint=hint)
    source = params.get("source")
    if source is not None and source not in constants.SOURCES:
        raise UnknownNameError("source", source, constants.SOURCES)
    pipeline = asking.known(params["pipeline"]) if "pipeline" in params else None
    metric = asking.metric(params["metric"]) if "metric" in params else None
    failing = FailureQuery(pipeline=pipeline, metric=metric)
    if "gate" in params:
        pipeline, gate = _gate(asking, params)
        failing = asking.judged(pipeline, gate)
        if metric not in (None, failing.metric):
            raise RagmonError(f"gate {gate} judges {failing.metric}, not {metric}", hint="give one of them")
    since = _seconds(params)
    query = replace(
        failing,
        source=source,
        build=params.get("build"),
        index_hash=params.get("index_hash"),
        since=0.0 if since is None else asking.now() - since,
        limit=_limit(params),
        cursor=params.get("cursor"),
    )
    return asking.records(query)


def why(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """What broke: the diagnosis of a gate.

    Args:
        asking: The query service.
        given: The query parameters: the gate, and how far to look back.

    Raises:
        RagmonError: A parameter is wrong.
    """
    params = _params(given, "gate", "pipeline", "since")
    return asking.why(*_gate(asking, params), _seconds(params))


def compare(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """Compare one release with another.

    Args:
        asking: The query service.
        given: The query parameters.

    Raises:
        RagmonError: A parameter is wrong.
    """
    params = _params(given, "pipeline", "by", "baseline", "candidate", "max_drop")
    by: By = "index_hash" if params.get("by") == "index_hash" else "build"
    if params.get("by", by) != by:
        raise RagmonError(f"by is {shorten(params['by'])}", hint=nearest(params["by"], ("build", "index_hash")))
    releases = _required(params, "baseline"), _required(params, "candidate")
    max_drop = params.get("max_drop", str(MAX_DROP))
    if not _SHARE.fullmatch(max_drop) or float(max_drop) >= 1:
        raise RagmonError(f"max_drop is {shorten(max_drop)}", hint="a share below 1: 0.02 is 2 points")
    return asking.compare(params.get("pipeline", asking.usual), by, releases, float(max_drop))


def _params(given: QueryParams, *allowed: str) -> dict[str, str]:
    """The query parameters of a request.

    Raises:
        RagmonError: A parameter is unknown, or is given twice.
    """
    names = [name for name, _ in given.multi_items()]
    for name in names:
        if name not in allowed:
            hint = nearest(name, allowed)
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=hint)
        if names.count(name) > 1:
            raise RagmonError(f"the parameter {name} is given twice", hint="once")
    return dict(given)


def _required(params: dict[str, str], name: str) -> str:
    if not params.get(name):
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return params[name]


def _gate(asking: QueryService, params: dict[str, str]) -> tuple[str, str]:
    """The pipeline and the gate; `support/precision` names both."""
    gate, pipeline = split(_required(params, "gate"), params.get("pipeline", asking.usual))
    if pipeline != params.get("pipeline", pipeline):
        message = f"gate names the pipeline {shorten(pipeline)}, and pipeline {shorten(params['pipeline'])}"
        raise RagmonError(message, hint="name it once")
    return pipeline, gate


def _seconds(params: dict[str, str]) -> float | None:
    text = params.get("since")
    if text is None:
        return None
    try:
        seconds = float(text) if _SECONDS.fullmatch(text) else float(duration(text))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds")
    return seconds


def _limit(params: dict[str, str]) -> int:
    text = params.get("limit", str(LIMIT))
    if not _COUNT.fullmatch(text):
        raise RagmonError(f"limit is {shorten(text)}", hint="a number of records, at least 1; a page has 1000 at most")
    return int(text)


METHODS: Final = ("GET", "HEAD")
_RETRY: Final = {"Retry-After": "5"}
_CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


class _Json(JSONResponse):
    """JSON without terminal control characters; a lone surrogate is written as its escape."""

    def render(self, content: Any) -> bytes:
        return printable_json(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()


def admin(views: StatusService, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of the admin port.

    Args:
        views: The status service.
        hosts: The host names that requests may use, besides IP addresses and localhost.
    """
    queries = QueryService(views)
    exposition = Exposition(views.reading, views.moment)
    handlers: dict[str, Answer] = {
        "/": lambda _: HTMLResponse(page(views.status()), headers={"Content-Security-Policy": _CONTENT_POLICY}),
        "/metrics": lambda request: _metrics(exposition, request),
        "/api/status": lambda _: _Json(views.status()),
        "/api/records": lambda request: _Json(records(queries, request.query_params)),
        "/api/why": lambda request: _Json(why(queries, request.query_params)),
        "/api/compare": lambda request: _Json(compare(queries, request.query_params)),
    }
    lock = Semaphore()
    locks: dict[str, AbstractAsyncContextManager[Any]] = {"/api/compare": nullcontext()}  # it locks itself
    routes = {path: _in_thread(handler, locks.get(path, lock)) for path, handler in handlers.items()}
    routes["/healthz"] = _immediate(lambda: "" if views.writer.alive else views.trouble())
    routes["/readyz"] = _immediate(views.trouble, views.quarantine)
    error_handlers: dict[Any, Any] = {404: _not_found(list(routes)), 405: _not_found(list(routes))}
    app = Starlette(
        routes=[Route(path, endpoint) for path, endpoint in routes.items()], exception_handlers=error_handlers
    )
    app.router.redirect_slashes = False
    return _check_origin(app, hosts)


def _check_origin(app: ASGIApp, hosts: Collection[str]) -> ASGIApp:
    """An application that rejects requests from web pages, which could send the data to their authors.

    A page of another site sends `Origin`; one that uses DNS rebinding sends its own name in `Host`.
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


def _in_thread(handler: Answer, lock: AbstractAsyncContextManager[Any]) -> Endpoint:
    """An endpoint that runs in a thread of the pool, and whose errors reveal nothing of the data.

    Args:
        handler: Makes the response.
        lock: Serialises the requests: each of them holds the lock that the journal writer needs.
    """

    async def endpoint(request: Request) -> Response:
        try:
            async with lock:
                response = await run_in_threadpool(handler, request)
        except (JournalError, BusyError) as error:
            response = _error(503, str(error), error.hint, **_RETRY)
        except UnknownNameError as error:
            response = _error(404, str(error), error.hint)
        except RagmonError as error:
            response = _error(400, str(error), error.hint)
        except Exception as error:  # noqa: BLE001 - an error in one request must not affect others
            log_error(f"{request.url.path} could not be answered", error)
            response = _error(500, "something is wrong here", "the log says where")
        response.headers.update(_HEADERS)
        return response

    return endpoint


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
        return PlainTextResponse(f"{error or body}\n", 503 if error else 200, _HEADERS)

    return endpoint


def _not_found(paths: list[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The response for unknown paths, and for methods that would change something."""

    async def answer(request: Request, _: Exception) -> Response:
        if request.method not in METHODS:
            hint = "labels and acknowledgements are POSTed to the write port: `[serve] otlp`"
            return _error(405, "this port only reads", hint, Allow=", ".join(METHODS))
        path = request.url.path
        return _error(404, f"there is nothing at {shorten(path)}", nearest(path, paths))

    return answer


def _error(status: int, error: str, hint: str, **headers: str) -> Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return _Json({"error": error, "hint": hint}, status, headers=_HEADERS | header_fields)


def _metrics(exposition: Exposition, request: Request) -> Response:
    body, content_type = exposition.page(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})
