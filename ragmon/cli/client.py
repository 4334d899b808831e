"""What the commands ask of a running monitor: its pages, its status, and JSON back and forth."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from time import sleep
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from ragmon.config.services import TlsTable
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, printable_line
from ragmon.core.network import (
    MAX_RETRY_AFTER_FOR_USER,
    OVERLOADED,
    BackOff,
    HttpResponse,
    Url,
    parse_url,
    request,
    retry_after,
)
from ragmon.core.process import read_token
from ragmon.export.status import StageCounters
from ragmon.gates.coverage import CaptureReport

TIMEOUT: Final = 10.0
"""Seconds for a request and its response."""
MAX_BODY: Final = 64 << 20
"""Largest response that is read, in bytes."""
STATUS: Final = "/api/status"
QUERY_TIMEOUT: Final = 30.0
"""Seconds for a query that needs no scoring, and its response."""
TRIES: Final = 5
"""How often a post is sent to a monitor that is overloaded, or that its gateway cannot reach."""
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 30.0
"""The longest first pause and the longest pause between two tries, in seconds: a person waits for the command."""
_EXAMPLE: Final = "http://127.0.0.1:9464"
T = TypeVar("T")


class NoResponseError(RagmonError):
    """The server does not respond, or with something else than was asked for."""


class ProducerStats(msgspec.Struct):
    """Totals that producers report: records that have not arrived, and records they dropped, by reason."""

    missing: int = 0
    dropped: dict[str, int] = {}


class QuarantinedItem(msgspec.Struct):
    """A request in quarantine; `step` is what the process did when it ended: `assembling`, `scoring` or `reading`."""

    arrival: float
    step: str
    trace_id: str = ""
    size: int = 0


class JournalStatus(msgspec.Struct):
    """The state of the journal: the number of its newest row."""

    row: int = 0


class ServerStatus(msgspec.Struct):
    """The part of `/api/status` that the commands read.

    Attributes:
        now: The server's clock, seconds since the epoch.
        trouble: Why the server accepts nothing; "" if it does accept.
        spans_dropped: Spans that belong to no record, by reason.
        refused: Requests it rejected, by reason.
        journal: None for a monitor in an application, which has none.
        builds: The latest `(pipeline, build, index_hash)`, the newest of a pipeline last.
        unknown_conventions: Requests that are not read, by the name of their instrumentation.
        tools_without_documents: Requests without a retrieval, by the names of the tools called in them.
        uncovered: Pipelines that have records and no gate.
        needed_series: `[serve] max_series` with which all pipelines would have places; None where all have.
    """

    version: str
    now: float
    stages: dict[str, StageCounters] = msgspec.field(name="books")
    trouble: str = ""
    spans_dropped: dict[str, int] = {}
    refused: dict[str, int] = {}
    quarantined: list[QuarantinedItem] = []
    producers: ProducerStats = msgspec.field(default_factory=ProducerStats)
    journal: JournalStatus | None = None
    builds: list[tuple[str, str, str]] = []
    captured: list[CaptureReport] = []
    unknown_conventions: dict[str, int] = {}
    tools_without_documents: dict[str, int] = {}
    uncovered: list[str] = []
    needed_series: int | None = None


def parse_server_url(text: str) -> Url:
    """Parse the URL of a server; an address without a scheme is one of http.

    >>> parse_server_url("https://ragmon.example/monitor/").authority, str(parse_server_url("localhost:9464"))
    ('ragmon.example:443', 'http://localhost:9464')
    """
    address = text if "//" in text else f"http://{text.strip()}"
    return parse_url(address, "the server's URL", hint=_EXAMPLE, base=True)


def get_page(
    url: str, path: str, *, timeout: float = TIMEOUT, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Send a GET request."""
    return _send_request("GET", parse_server_url(url), path, timeout=timeout, headers=headers)


def _send_request(
    method: str,
    server: Url,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    tls: ssl.SSLContext | None = None,
) -> HttpResponse:
    page, _, query = path.partition("?")
    url = server._replace(path=server.path + page, query=query)
    try:
        response = request(method, url, body=body, headers=headers, timeout=timeout, max_body=MAX_BODY, tls=tls)
    except OSError as error:
        hint = f"start `ragmon serve` or your application, or pass its address, such as {_EXAMPLE}"
        if "certificate" in str(error):
            hint = "set SSL_CERT_FILE to the certificates to trust; `[serve] tls` names the server's own"
        raise NoResponseError(f"no answer from {server.authority} ({error})", hint=hint) from error
    if response.is_cut:
        message = f"the answer of {server.authority} is larger than {MAX_BODY} bytes"
        raise NoResponseError(message, hint=f"is this the address of ragmon? It looks like {_EXAMPLE}")
    return response


def status(url: str) -> ServerStatus:
    """The status of a monitor, a server's or one in an application."""
    return read_page(url, STATUS, ServerStatus)


def read_page(url: str, path: str, part: type[T]) -> T:
    """The part of a JSON page that a command reads."""
    response = get_page(url, path)
    try:
        if response.status == HTTPStatus.OK:
            return msgspec.json.decode(response.body, type=part)
        reason = f"it answered with status {response.status}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    message = f"what answers on {parse_server_url(url).authority} is not the admin port of `ragmon serve` ({reason})"
    raise NoResponseError(message, hint="its address is `[serve] admin` in the server's configuration")


def read_back(data: object, kind: type[T], what: str) -> T:
    """The answer of a monitor as the class it was made of, without unknown members; messages call it `what`."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise RagmonError(
            f"this is no {what}: {error}", hint="does the monitor have the same version of ragmon?"
        ) from error


def counter_delta(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The increase of each counter between two readings.

    >>> counter_delta({"late": 1}, {"late": 3, "too_old": 1})
    {'late': 2, 'too_old': 1}
    """
    return {reason: n - before.get(reason, 0) for reason, n in after.items() if n > before.get(reason, 0)}


class ErrorResponseError(RagmonError):
    """A monitor responded with an error, or with something other than a JSON object."""

    def __init__(self, message: str, status: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def get_json(
    url: str,
    path: str,
    params: Mapping[str, str],
    *,
    timeout: float = QUERY_TIMEOUT,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Query the admin port of a monitor."""
    query = f"?{urlencode(params)}" if params else ""
    return _json_object(get_page(url, path + query, timeout=timeout, headers=headers), parse_server_url(url))


def post_json(url: str, path: str, body: object, settings: Settings, *, reads: bool = False) -> dict[str, Any]:
    """Post JSON to a monitor; retry a few times if it is overloaded.

    A write port gets the token; an admin port (`reads`) takes no token and may have no TLS.
    """
    server, token = parse_server_url(url), None if reads else read_token(settings.serve.token_file)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    content, tls, own = json.dumps(body).encode(), ssl.create_default_context(), settings.serve.tls
    if isinstance(own, TlsTable) and Path(own.cert).is_file():
        tls.load_verify_locations(own.cert)
    back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE, max_retry_after=MAX_RETRY_AFTER_FOR_USER)
    for attempt in range(1, TRIES + 1):
        response = _send_request("POST", server, path, body=content, headers=headers, timeout=QUERY_TIMEOUT, tls=tls)
        if response.status not in OVERLOADED or attempt == TRIES:
            break
        seconds = back_off.pause(retry_after(response.headers.get("Retry-After")))
        authority = printable_line(server.authority)
        click.echo(f"{authority} answered {response.status}: trying again in {seconds:.0f} s", err=True)
        sleep(seconds)
    return _json_object(response, server)


def _json_object(response: HttpResponse, server: Url) -> dict[str, Any]:
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        value = None
    if response.status == HTTPStatus.OK and isinstance(value, dict):
        return value
    fields = value if isinstance(value, dict) else {}
    message = str(fields.get("error") or f"{server.authority} answered {response.status}")
    hint = str(fields.get("hint") or "is --url a monitor of another kind?")
    raise ErrorResponseError(message, response.status, hint=hint)
