"""The admin port: read only, for Prometheus, orchestrators and people. It never shows content."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ragmon.config.kinds import duration
from ragmon.errors import RagmonError, UnknownNameError, shorten
from ragmon.export.page import page
from ragmon.export.prometheus import Collector
from ragmon.journal import JournalError, Query
from ragmon.names import DEFAULT_PIPELINE
from ragmon.server.asking import Asking
from ragmon.server.views import Views

OUTCOMES: Final = ("fail",)
_LIMIT: Final = 50
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")
_BY: Final = ("build", "index_hash")

Answer = Callable[[Request], Any]


def admin(views: Views) -> Starlette:
    """The ASGI application of the admin port.

    Args:
        views: What it shows.
    """
    asking = Asking(views)
    registry = CollectorRegistry()
    registry.register(Collector(views.reading))
    routes = {
        "/": lambda _: HTMLResponse(page(views.status()), headers=_HEADERS),
        "/metrics": lambda request: _metrics(registry, request),
        "/healthz": lambda _: _health("" if views.keeper.alive else views.trouble()),
        "/readyz": lambda _: _health(views.trouble()),
        "/api/status": lambda _: JSONResponse(views.status()),
        "/api/records": lambda request: JSONResponse(_records(asking, request)),
        "/api/why": lambda request: JSONResponse(_why(asking, request)),
        "/api/compare": lambda request: JSONResponse(_compare(asking, request)),
    }
    return Starlette(routes=[Route(path, _off_the_loop(answer), methods=["GET"]) for path, answer in routes.items()])


_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def _off_the_loop(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose work does not hold up the others."""

    async def endpoint(request: Request) -> Response:
        try:
            return await run_in_threadpool(answer, request)
        except UnknownNameError as error:
            return _wrong(404, error)
        except JournalError as error:
            return _wrong(503, error)
        except RagmonError as error:
            return _wrong(400, error)

    return endpoint


def _wrong(status: int, error: RagmonError) -> Response:
    return JSONResponse({"error": str(error), "hint": error.hint}, status)


def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": kind})


def _health(trouble: str) -> Response:
    return PlainTextResponse(f"{trouble}\n", 503) if trouble else PlainTextResponse("ok\n")


def _records(asking: Asking, request: Request) -> dict[str, Any]:
    asked = _asked(
        request, "pipeline", "source", "gate", "metric", "outcome", "build", "index_hash", "since", "limit", "cursor"
    )
    if asked.get("outcome", "fail") not in OUTCOMES:
        raise RagmonError(f"outcome is {shorten(asked['outcome'])}", hint="fail: requests that keep no gate are kept")
    metric = asked.get("metric")
    if "gate" in asked:
        pipeline, gate = _gate(asked)
        asked["pipeline"], metric = pipeline, asking.metric_of(pipeline, gate)
    since = _seconds(asked)
    query = Query(
        pipeline=asked.get("pipeline"),
        source=asked.get("source"),
        metric=metric,
        build=asked.get("build"),
        index_hash=asked.get("index_hash"),
        since=0.0 if since is None else asking.now() - since,
        limit=_limit(asked),
        cursor=asked.get("cursor"),
    )
    return asking.records(query)


def _why(asking: Asking, request: Request) -> dict[str, Any]:
    asked = _asked(request, "gate", "pipeline", "since")
    pipeline, gate = _gate(asked)
    return asking.why(pipeline, gate, _seconds(asked))


def _compare(asking: Asking, request: Request) -> dict[str, Any]:
    asked = _asked(request, "pipeline", "by", "baseline", "candidate")
    by = asked.get("by", "build")
    if by not in _BY:
        raise RagmonError(f"by is {shorten(by)}", hint=" or ".join(_BY))
    pair = [_needed(asked, name) for name in ("baseline", "candidate")]
    pipeline = asked.get("pipeline", DEFAULT_PIPELINE)
    return asking.compare(pipeline, "build" if by == "build" else "index_hash", *pair)


def _asked(request: Request, *known: str) -> dict[str, str]:
    """The parameters of a request.

    Raises:
        RagmonError: There is no such parameter.
    """
    for name in request.query_params:
        if name not in known:
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=f"one of {', '.join(known)}")
    return dict(request.query_params)


def _needed(asked: dict[str, str], name: str) -> str:
    if name not in asked:
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return asked[name]


def _gate(asked: dict[str, str]) -> tuple[str, str]:
    """Pipeline and gate; `support/precision` names both."""
    pipeline, slash, gate = _needed(asked, "gate").rpartition("/")
    return (pipeline if slash else asked.get("pipeline", DEFAULT_PIPELINE)), gate


def _seconds(asked: dict[str, str]) -> float | None:
    text = asked.get("since")
    if text is None:
        return None
    try:
        return float(text) if _NUMBER.fullmatch(text) else float(duration(text))
    except ValueError as error:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds") from error


def _limit(asked: dict[str, str]) -> int:
    text = asked.get("limit", str(_LIMIT))
    if not text.isdecimal() or not text.isascii() or int(text[:6]) < 1:
        raise RagmonError(f"limit is {shorten(text)}", hint="a number of records, at least 1")
    return int(text[:6])
