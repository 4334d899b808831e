"""`POST /v1/ack`: somebody has seen an alarm. The one thing an embedded monitor lets anybody write, on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, Final

from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.net import is_plain

PATH: Final = "/v1/ack"
LONGEST: Final = 64 << 10
"""Bytes of a request."""
_JSON: Final = "application/json"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Acknowledge = Callable[[str, str, str], bool]
"""Alarm, pipeline and reason; returns whether the alarm fired."""


class _RefusedError(Exception):
    """A request that is not taken.

    Args:
        status: The HTTP status.
        message: What is wrong.
        hint: What would be right.
    """

    def __init__(self, status: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint


def with_acks(app: App, acknowledge: Acknowledge) -> App:
    """A WSGI application that takes acknowledgements, and leaves everything else to another one.

    It takes them from this machine alone, and only as JSON: a browser does not send that across sites unasked.

    Args:
        app: The other one.
        acknowledge: Silences an alarm.
    """

    def front(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            return app(environ, start_response)
        try:
            alert, pipeline, reason = _asked(environ)
            body, status = {"fired": acknowledge(alert, pipeline, reason)}, "200 OK"
        except UnknownNameError as error:
            body, status = _told(error, error.hint), "404 Not Found"
        except _RefusedError as error:
            body, status = _told(error, error.hint), error.status
        start_response(status, [("Content-Type", _JSON)])
        return [json.dumps(body).encode()]

    return front


def _told(error: Exception, hint: str) -> dict[str, Any]:
    return {"error": str(error), "hint": hint}


def _asked(environ: dict[str, Any]) -> tuple[str, str, str]:
    """Alarm, pipeline and reason of a request.

    Raises:
        _RefusedError: It is no acknowledgement, or not from here.
    """
    if environ["REQUEST_METHOD"] != "POST":
        raise _RefusedError("405 Method Not Allowed", "acknowledgements are POSTed", "`ragmon ack` does")
    if not _from_here(environ.get("REMOTE_ADDR", "")):
        raise _RefusedError("403 Forbidden", "acknowledgements are taken from this machine alone", "`ragmon ack` there")
    if not _asked_for_us(environ):
        raise _RefusedError("403 Forbidden", "a web page asks", "`ragmon ack` from a terminal")
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != _JSON:
        raise _RefusedError("415 Unsupported Media Type", "an acknowledgement is JSON", f"Content-Type: {_JSON}")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > LONGEST:
        raise _RefusedError("413 Content Too Large", f"Content-Length is {length[:20]}", f"at most {LONGEST}")
    try:
        found = json.loads(environ["wsgi.input"].read(int(length)))
        parts = found["gate"], found.get("pipeline", constants.DEFAULT_PIPELINE), found["reason"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back"}'
        raise _RefusedError("400 Bad Request", "this is no acknowledgement", hint) from error
    if not all(isinstance(part, str) and part for part in parts):
        raise _RefusedError("400 Bad Request", "gate, pipeline and reason are texts", "none of them empty")
    return parts


def _asked_for_us(environ: dict[str, Any]) -> bool:
    """Whether a request was meant for this monitor: a web page's says where it comes from, or asks for its own name."""
    return "HTTP_ORIGIN" not in environ and is_plain(str(environ.get("HTTP_HOST", "")))


def _from_here(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def split(name: str, usual: str = constants.DEFAULT_PIPELINE) -> tuple[str, str]:
    """The alarm and the pipeline of `[PIPELINE/]ALARM`.

    Args:
        name: What somebody typed.
        usual: The pipeline that is meant where none is named.

    Raises:
        RagmonError: One of them is missing.

    >>> split("support/precision"), split("precision")
    (('precision', 'support'), ('precision', 'default'))
    """
    pipeline, slash, alert = name.rpartition("/")
    if not alert or (slash and not pipeline):
        raise RagmonError(f"{name!r} names no alarm", hint="[PIPELINE/]ALARM, as `ragmon_gate_alarm` shows them")
    return alert, pipeline or usual
