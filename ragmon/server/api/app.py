"""The parameters of what is asked over HTTP: each is known, given once, and of its kind, or the answer says so.

The admin port: read only, for Prometheus, orchestrators and people. It never shows content.
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
from ragmon.core.net import HINT, is_known
from ragmon.export.prometheus import Exposition
from ragmon.export.status_page import STYLE_HASH, page
from ragmon.gates.releases import By
from ragmon.monitor.embedded import split
from ragmon.monitor.log import complain
from ragmon.server.api.queries import MAX_DROP, BusyError, QueryService
from ragmon.server.api.status import StatusService
from ragmon.server.journal import FailureQuery, JournalError

OUTCOME: Final = "fail"
"""The one outcome requests can be asked for by: those that keep their gates are in no index."""
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
        asking: Knows them.
        given: Which.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, *_RECORDS)
    if asked.get("outcome", OUTCOME) != OUTCOME:
        hint = f"{OUTCOME}: the index holds the requests that alone fail a gate, and no others"
        raise RagmonError(f"outcome is {shorten(asked['outcome'])}", hint=hint)
    source = asked.get("source")
    if source is not None and source not in constants.SOURCES:
        raise UnknownNameError("source", source, constants.SOURCES)
    pipeline = asking.known(asked["pipeline"]) if "pipeline" in asked else None
    metric = asking.metric(asked["metric"]) if "metric" in asked else None
    judged = FailureQuery(pipeline=pipeline, metric=metric)
    if "gate" in asked:
        pipeline, gate = _gate(asking, asked)
        judged = asking.judged(pipeline, gate)
        if metric not in (None, judged.metric):
            raise RagmonError(f"gate {gate} judges {judged.metric}, not {metric}", hint="give one of them")
    since = _seconds(asked)
    query = replace(
        judged,
        source=source,
        build=asked.get("build"),
        index_hash=asked.get("index_hash"),
        since=0.0 if since is None else asking.now() - since,
        limit=_limit(asked),
        cursor=asked.get("cursor"),
    )
    return asking.records(query)


def why(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """What broke.

    Args:
        asking: Knows it.
        given: Which gate, and how far to look back.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, "gate", "pipeline", "since")
    return asking.why(*_gate(asking, asked), _seconds(asked))


def compare(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """One release against another.

    Args:
        asking: Knows them.
        given: Which.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, "pipeline", "by", "baseline", "candidate", "max_drop")
    by: By = "index_hash" if asked.get("by") == "index_hash" else "build"
    if asked.get("by", by) != by:
        raise RagmonError(f"by is {shorten(asked['by'])}", hint=nearest(asked["by"], ("build", "index_hash")))
    pair = _needed(asked, "baseline"), _needed(asked, "candidate")
    drop = asked.get("max_drop", str(MAX_DROP))
    if not _SHARE.fullmatch(drop) or float(drop) >= 1:
        raise RagmonError(f"max_drop is {shorten(drop)}", hint="a share below 1: 0.02 is 2 points")
    return asking.compare(asked.get("pipeline", asking.usual), by, pair, float(drop))


def _asked(given: QueryParams, *known: str) -> dict[str, str]:
    """The parameters of a request.

    Raises:
        RagmonError: There is no such parameter, or one is given twice.
    """
    told = [name for name, _ in given.multi_items()]
    for name in told:
        if name not in known:
            close = nearest(name, known)
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=close)
        if told.count(name) > 1:
            raise RagmonError(f"the parameter {name} is given twice", hint="once")
    return dict(given)


def _needed(asked: dict[str, str], name: str) -> str:
    if not asked.get(name):
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return asked[name]


def _gate(asking: QueryService, asked: dict[str, str]) -> tuple[str, str]:
    """Pipeline and gate; `support/precision` names both."""
    gate, pipeline = split(_needed(asked, "gate"), asked.get("pipeline", asking.usual))
    if pipeline != asked.get("pipeline", pipeline):
        told = f"gate names the pipeline {shorten(pipeline)}, and pipeline {shorten(asked['pipeline'])}"
        raise RagmonError(told, hint="name it once")
    return pipeline, gate


def _seconds(asked: dict[str, str]) -> float | None:
    text = asked.get("since")
    if text is None:
        return None
    try:
        found = float(text) if _SECONDS.fullmatch(text) else float(duration(text))
    except ValueError:
        found = 0.0
    if found <= 0:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds")
    return found


def _limit(asked: dict[str, str]) -> int:
    text = asked.get("limit", str(LIMIT))
    if not _COUNT.fullmatch(text):
        raise RagmonError(f"limit is {shorten(text)}", hint="a number of records, at least 1; a page has 1000 at most")
    return int(text)


METHODS: Final = ("GET", "HEAD")
_AGAIN: Final = {"Retry-After": "5"}
_POLICY: Final = (
    f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


class _Json(JSONResponse):
    """JSON that steers no terminal it is shown on; half a surrogate pair is written as its escape."""

    def render(self, content: Any) -> bytes:
        return printable_json(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()


def admin(views: StatusService, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of the admin port.

    Args:
        views: What it shows.
        hosts: The names it may be asked by, beside addresses and localhost.
    """
    asking = QueryService(views)
    exposition = Exposition(views.reading, views.moment)
    slow: dict[str, Answer] = {
        "/": lambda _: HTMLResponse(page(views.status()), headers={"Content-Security-Policy": _POLICY}),
        "/metrics": lambda request: _metrics(exposition, request),
        "/api/status": lambda _: _Json(views.status()),
        "/api/records": lambda request: _Json(records(asking, request.query_params)),
        "/api/why": lambda request: _Json(why(asking, request.query_params)),
        "/api/compare": lambda request: _Json(compare(asking, request.query_params)),
    }
    one = Semaphore()
    turns: dict[str, AbstractAsyncContextManager[Any]] = {"/api/compare": nullcontext()}  # it refuses a second one
    routes = {path: _off_the_loop(answer, turns.get(path, one)) for path, answer in slow.items()}
    routes["/healthz"] = _at_once(lambda: "" if views.writer.alive else views.trouble())
    routes["/readyz"] = _at_once(views.trouble, views.quarantine)
    handlers: dict[Any, Any] = {404: _elsewhere(list(routes)), 405: _elsewhere(list(routes))}
    app = Starlette(routes=[Route(path, found) for path, found in routes.items()], exception_handlers=handlers)
    app.router.redirect_slashes = False
    return _asked_by_name(app, hosts)


def _asked_by_name(app: ASGIApp, hosts: Collection[str]) -> ASGIApp:
    """An application that refuses web pages: whoever reads one would send what stands here to those who wrote it.

    A page of another site says so in `Origin`; one whose name was made to lead here (DNS rebinding) asks for that name.
    """

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        answer = app
        if "origin" in headers:
            answer = _wrong(403, "a web page asks", "programs and links send no Origin")
        elif "host" in headers and not is_known(headers["host"], hosts):  # HTTP/1.0 of a health check may name none
            answer = _wrong(403, "this server is not known by that name", HINT)
        await answer(scope, receive, send)

    return asked


def _off_the_loop(answer: Answer, turn: AbstractAsyncContextManager[Any]) -> Endpoint:
    """An endpoint whose work does not hold up the others, and whose failure says nothing of what was read.

    Args:
        answer: The work.
        turn: Waits until it is this one's turn: all of them hold what the thread that writes the journal needs.
    """

    async def endpoint(request: Request) -> Response:
        try:
            async with turn:
                found = await run_in_threadpool(answer, request)
        except (JournalError, BusyError) as error:
            found = _wrong(503, str(error), error.hint, **_AGAIN)
        except UnknownNameError as error:
            found = _wrong(404, str(error), error.hint)
        except RagmonError as error:
            found = _wrong(400, str(error), error.hint)
        except Exception as error:  # noqa: BLE001 - one question's trouble is not another's
            complain(f"{request.url.path} could not be answered", error)
            found = _wrong(500, "something is wrong here", "the log says where")
        found.headers.update(_HEADERS)
        return found

    return endpoint


def _at_once(trouble: Callable[[], str], note: Callable[[], str] = str) -> Endpoint:
    """An endpoint that waits for nobody: an orchestrator kills what does not answer.

    Args:
        trouble: Why the answer is no; "" where it is yes.
        note: What is to be known beside a yes.
    """

    async def endpoint(_: Request) -> Response:
        told = trouble()
        said = note()
        yes = f"ok\n{said}" if said else "ok"
        return PlainTextResponse(f"{told or yes}\n", 503 if told else 200, _HEADERS)

    return endpoint


def _elsewhere(paths: list[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What is said of paths nothing stands at, and of methods that would change something."""

    async def answer(request: Request, _: Exception) -> Response:
        if request.method not in METHODS:
            hint = "labels and acknowledgements are POSTed to the write port: `[serve] otlp`"
            return _wrong(405, "this port only reads", hint, Allow=", ".join(METHODS))
        path = request.url.path
        return _wrong(404, f"there is nothing at {shorten(path)}", nearest(path, paths))

    return answer


def _wrong(status: int, error: str, hint: str, **headers: str) -> Response:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return _Json({"error": error, "hint": hint}, status, headers=_HEADERS | told)


def _metrics(exposition: Exposition, request: Request) -> Response:
    found, kind = exposition.page(request.headers.get("accept", ""))
    return Response(found, headers={"Content-Type": kind})
