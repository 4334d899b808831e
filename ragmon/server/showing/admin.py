"""The admin port: read only, for Prometheus, orchestrators and people. It never shows content."""

from __future__ import annotations

import json
from asyncio import Semaphore
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.core.errors import RagmonError, UnknownNameError, nearest, shorten
from ragmon.core.escaping import printable_json
from ragmon.core.net import HINT, is_known
from ragmon.export.prometheus import Exposition
from ragmon.export.status_page import STYLE_HASH, page
from ragmon.journal import JournalError
from ragmon.monitor.log import complain
from ragmon.server.showing.asking import Asking, BusyError
from ragmon.server.showing.questions import compare, records, why
from ragmon.server.showing.views import Views

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


def admin(views: Views, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of the admin port.

    Args:
        views: What it shows.
        hosts: The names it may be asked by, beside addresses and localhost.
    """
    asking = Asking(views)
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
    routes["/healthz"] = _at_once(lambda: "" if views.keeper.alive else views.trouble())
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
