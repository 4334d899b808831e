"""How a request that raised ended: in an error of the pipeline, or otherwise.

Python also raises where nothing failed: a caller leaves, a graph waits for a person, an application refuses what its
client asked. This is decided here alone, by the names of an exception's types and by its status, for decorated calls
and for spans. The status error of a client library, a provider's 429, is an error: only the types that a web framework
raises to its own client are none, unless it hands such an error on.

Imported on the request path: it needs the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Final

ABANDONED: Final = "abandoned"
CANCELLED: Final = "cancelled"
CUT: Final = "cut"
INTERRUPTED: Final = "interrupted"
REJECTED: Final = "rejected"
IGNORED: Final = "ignored"
"""Endings of calls that neither return nor fail: the caller left; the task was cancelled; the stream is longer than the
limit; the call waits for a person, or the process stops; the client was answered with a status below 500; `[errors]
ignore` names the exception."""

_CONTROL_FLOW: Final = {
    "GeneratorExit": ABANDONED,
    "starlette.requests.ClientDisconnect": ABANDONED,
    "starlette.websockets.WebSocketDisconnect": ABANDONED,
    "litestar.exceptions.websocket_exceptions.WebSocketDisconnect": ABANDONED,
    "falcon.errors.WebSocketDisconnected": ABANDONED,
    "sanic.exceptions.WebsocketClosed": ABANDONED,
    "tornado.websocket.WebSocketClosedError": ABANDONED,
    "werkzeug.exceptions.ClientDisconnected": ABANDONED,
    "uvicorn.protocols.utils.ClientDisconnected": ABANDONED,
    "django.core.exceptions.RequestAborted": ABANDONED,
    "django.http.request.UnreadablePostError": ABANDONED,
    "asyncio.exceptions.CancelledError": CANCELLED,
    "concurrent.futures._base.CancelledError": CANCELLED,
    "trio.Cancelled": CANCELLED,
    "trio._core._exceptions.Cancelled": CANCELLED,
    "KeyboardInterrupt": INTERRUPTED,
    "langgraph.errors.GraphBubbleUp": INTERRUPTED,
    "langgraph.errors.GraphInterrupt": INTERRUPTED,
    "langgraph.errors.GraphDrained": INTERRUPTED,
    "langgraph.errors.NodeInterrupt": INTERRUPTED,
    "langgraph.errors.ParentCommand": INTERRUPTED,
    "llama_index.core.workflow.errors.WaitingForEvent": INTERRUPTED,
    "workflows.errors.WaitingForEvent": INTERRUPTED,
    "pydantic_ai.exceptions.ApprovalRequired": INTERRUPTED,
    "pydantic_ai.exceptions.CallDeferred": INTERRUPTED,
    "haystack.core.errors.BreakpointException": INTERRUPTED,
}
_ALONE: Final = {name.rpartition(".")[2]: ending for name, ending in _CONTROL_FLOW.items()}
"""Many tracers record a type without its module."""
_WEB: Final = (
    *("fastapi.", "starlette.", "flask.", "quart.", "werkzeug.", "django.", "rest_framework.", "ninja.", "aiohttp.web"),
    *("tornado.web.", "litestar.", "sanic.", "falcon.", "bottle.", "pyramid.", "webob.", "cherrypy.", "blacksheep."),
    *("connexion.", "robyn.", "chalice."),
)
"""Modules of web frameworks, not of their clients: `aiohttp.client_exceptions`, `tornado.httpclient`."""
_CHAIN: Final = 8
"""Causes of an exception that are looked at."""
_STATUS_FIELDS: Final = ("status_code", "code", "status", "STATUS_CODE")
_STATUS: Final = re.compile(r"(?:HTTP )?([1-5]\d\d)\b")
_WORDS: Final = re.compile(r"^(?:HTTP|Http)|(?:Error|Exception)$")


def _compact(phrase: str) -> str:
    return "".join(filter(str.isalnum, phrase)).casefold()


_STATUS_OF: Final = {_compact(status.phrase): status.value for status in HTTPStatus} | {
    "404": 404,
    "permissiondenied": 403,
    "notauthorized": 401,
    "notauthenticated": 401,
    "authenticationfailed": 401,
    "unprocessableentity": 422,
    "unprocessablecontent": 422,
    "requestvalidation": 422,
    "client": 400,
    "parse": 400,
    "requestentitytoolarge": 413,
    "contenttoolarge": 413,
    "payloadtoolarge": 413,
    "filetoolarge": 413,
    "throttled": 429,
    "ratelimitexceeded": 429,
    "suspiciousoperation": 400,
    "invalidusage": 400,
}
"""Statuses by the names that frameworks give the types that stand for one."""
_BAD_REQUESTS: Final = ("rest_framework.exceptions.ValidationError", "ninja.errors.ValidationError")


def ending_of(types: Sequence[str], status: int | None = None, ignored: Iterable[str] = ()) -> str | None:
    """How a request ended that raised; None where it ended in an error.

    Args:
        types: The names of the exception's type and, where they are known, of its bases, with their modules, where
            these are known: `starlette.exceptions.HTTPException`.
        status: The status that the exception carries; None where it is not known.
        ignored: Names of types that are no errors, with or without their modules; `*` stands for any characters.

    >>> ending_of(["starlette.exceptions.HTTPException"], 404), ending_of(["openai.NotFoundError"], 404)
    ('rejected', None)
    >>> ending_of(["langgraph.errors.GraphInterrupt"]), ending_of(["GeneratorExit"])
    ('interrupted', 'abandoned')
    """
    for name in types:
        alone = name.rpartition(".")[2]
        if any(fnmatchcase(name, pattern) or fnmatchcase(alone, pattern) for pattern in ignored):
            return IGNORED
    for name in types:
        ending = _CONTROL_FLOW.get(name) or (_ALONE.get(name) if "." not in name else None)
        if ending is not None:
            return ending
    if not any(map(_is_of_web, types)):
        return None
    found = (status, *map(_status_of_name, types))
    known = next((number for number in found if number is not None and 100 <= number < 600), None)
    return REJECTED if known is not None and known < HTTPStatus.INTERNAL_SERVER_ERROR else None


def _is_of_web(name: str) -> bool:
    # Without a module, a name that no client library has.
    return name.startswith(_WEB) or name in ("HTTPException", "Http404")


def is_of_web(kind: type) -> bool:
    """Whether a class is one of a web framework, or is made from one."""
    return any(f"{base.__module__}.".startswith(_WEB) for base in kind.__mro__)


def _status_of_name(name: str) -> int | None:
    if name in _BAD_REQUESTS:
        return HTTPStatus.BAD_REQUEST
    alone = _WORDS.sub("", name.rpartition(".")[2])
    return _STATUS_OF.get(alone.casefold()) if _is_of_web(name) else None


def status_in(message: str) -> int | None:
    """The status that the message of a web framework's exception begins with.

    >>> status_in("404: no such page"), status_in("HTTP 403: Forbidden"), status_in("4 pages")
    (404, 403, None)
    """
    found = _STATUS.match(message)
    return None if found is None else int(found[1])


def ending_of_error(error: BaseException, ignored: Iterable[str] = ()) -> str | None:
    """How a call ended that raised an exception; None where it ended in an error.

    A group of exceptions is an error if one of them is.
    """
    if isinstance(error, BaseExceptionGroup):
        endings = [ending_of_error(part, ignored) for part in error.exceptions]
        own = ending_of(_names(error), None, ignored)
        return own or (None if None in endings else endings[0])
    types = _names(error)
    ending = ending_of(types, _status(error) if any(map(_is_of_web, types)) else None, ignored)
    return None if ending == REJECTED and _hides_an_answer(error) else ending


def _hides_an_answer(error: BaseException) -> bool:
    # Of a server that the application asked: its 429, handed on to the own client, is a fault of the pipeline.
    for _ in range(_CHAIN):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            return False
        for field in ("response", "request_info", "request"):
            with suppress(Exception):  # of httpx, where there is none
                if getattr(cause, field, None) is not None and not is_of_web(type(cause)):
                    return True
        error = cause
    return False


def _names(error: BaseException) -> list[str]:
    return [
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        for kind in type(error).__mro__
    ]


def _status(error: BaseException) -> int | None:
    # Werkzeug's abort() takes a whole response, too.
    for holder in (error, getattr(error, "response", None)):
        for field in _STATUS_FIELDS:
            with suppress(Exception):  # properties of the application's own classes
                value = getattr(holder, field, None)
                number = status_in(value) if isinstance(value, str) else value
                if isinstance(number, int) and 100 <= number < 600:
                    return int(number)
    return None
