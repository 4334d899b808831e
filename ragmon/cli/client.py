"""A server that runs elsewhere, asked over its admin port.

Asking a monitor over HTTP, and telling it something: what answers is an object, or an error with a hint.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from time import sleep
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import click
import msgspec

from ragmon.config.services import TlsTable
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.escaping import printable_line
from ragmon.export.state import StageCounters
from ragmon.server.receiver.security import read_token

TIMEOUT: Final = 10.0
"""Seconds to wait for an answer."""
LARGEST: Final = 64 << 20
"""Bytes of an answer that are read."""
STATUS: Final = "/api/status"
_EXAMPLE: Final = "http://127.0.0.1:9464"


class NoAnswerError(RagmonError):
    """Nobody answers, or not with what was asked for."""


class ClientRequest(NamedTuple):
    """What a server is asked.

    Attributes:
        method: The HTTP method.
        path: The page, after the path of the server's address.
        body: What comes with it.
        headers: Besides those that HTTP asks for.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}


class ServerResponse(NamedTuple):
    """What a server answered.

    Attributes:
        status: The HTTP status.
        body: What came with it.
        again: Its `Retry-After`: when the server wants to be asked again; None where it does not say.
    """

    status: int
    body: bytes
    again: str | None = None


class ProducerStats(msgspec.Struct):
    """What producers say of themselves.

    Attributes:
        missing: Records they sent that have not come.
        dropped: Records they lost, by reason.
    """

    missing: int = 0
    dropped: dict[str, int] = {}


class QuarantinedItem(msgspec.Struct):
    """A request that is set aside.

    Attributes:
        arrival: When it came, seconds since the epoch.
        step: What was done with it when the process ended: `assembling`, `scoring` or `reading`.
        trace_id: Its trace; "" where there is none.
        size: Its bytes.
    """

    arrival: float
    step: str
    trace_id: str = ""
    size: int = 0


class JournalStatus(msgspec.Struct):
    """How the journal stands: its newest row."""

    row: int = 0


class ServerStatus(msgspec.Struct):
    """What `/api/status` says, as far as somebody here asks.

    Attributes:
        version: The server's ragmon.
        now: Its time, seconds since the epoch.
        books: By stage.
        trouble: Why it can take nothing; "" where it can.
        spans_dropped: Spans that belong to no record, by reason.
        refused: Requests it turned away, by reason.
        quarantined: Requests that are set aside.
        producers: What producers say of themselves.
        journal: How the journal stands.
        builds: `(pipeline, build, index_hash)` that answered last, the newest of a pipeline last.
    """

    version: str
    now: float
    books: dict[str, StageCounters]
    trouble: str = ""
    spans_dropped: dict[str, int] = {}
    refused: dict[str, int] = {}
    quarantined: list[QuarantinedItem] = []
    producers: ProducerStats = msgspec.field(default_factory=ProducerStats)
    journal: JournalStatus = msgspec.field(default_factory=JournalStatus)
    builds: list[tuple[str, str, str]] = []


class ServerAddress(NamedTuple):
    """Where a server listens."""

    tls: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_server_address(url: str) -> ServerAddress:
    """Read an address.

    Raises:
        RagmonError: It is none.

    >>> str(parse_server_address("https://ragmon.example/monitor/"))
    'ragmon.example:443'
    """
    try:
        found = urlsplit(url)
        host, port, tls = found.hostname, found.port, found.scheme == "https"
    except ValueError:
        host = None
    if host is None or found.scheme not in ("http", "https") or "@" in found.netloc:
        # What stands before an @ may be a password, so such an address is not shown.
        told = "it names a user" if "@" in url else shorten(url)
        raise RagmonError(f"this is no address of a server: {told}", hint=_EXAMPLE)
    return ServerAddress(tls, host, port or (443 if tls else 80), found.path.rstrip("/"))


def get_page(url: str, path: str, *, timeout: float = TIMEOUT) -> ServerResponse:
    """Ask for a page.

    Args:
        url: The server's address; what proxies the environment names play no part.
        path: The page.
        timeout: Seconds to wait for each part of the answer.

    Raises:
        RagmonError: The address is none.
        NoAnswerError: Nobody answers there.
    """
    return send_request(parse_server_address(url), ClientRequest("GET", path), timeout=timeout)


def send_request(
    where: ServerAddress, request: ClientRequest, *, timeout: float = TIMEOUT, trusted: ssl.SSLContext | None = None
) -> ServerResponse:
    """Send a request and read its answer.

    Args:
        where: The server.
        request: What it is asked, or told.
        timeout: Seconds to wait for each part of the answer.
        trusted: Whom to trust over TLS; None for those this machine trusts.

    Raises:
        NoAnswerError: Nobody answers there.
    """
    if where.tls:
        trusted = trusted or ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            where.host, where.port, timeout=timeout, context=trusted
        )
    else:
        connection = http.client.HTTPConnection(where.host, where.port, timeout=timeout)
    try:
        connection.request(request.method, f"{where.path}{request.path}", request.body, dict(request.headers))
        answer = connection.getresponse()
        return ServerResponse(answer.status, answer.read(LARGEST), answer.headers.get("Retry-After"))
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise NoAnswerError(f"nobody answers on {where} ({_why(error)})", hint=_hint(error)) from error
    finally:
        connection.close()


def _why(error: Exception) -> str:
    told = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return told if told.isprintable() else f"{type(error).__name__}: it speaks no HTTP"


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "SSL_CERT_FILE names the certificates to trust; `[serve] tls` the server's own"
    return f"is it running? Its address, such as {_EXAMPLE}"


def status(url: str) -> ServerStatus:
    """How a server stands.

    Args:
        url: The address of its admin port.

    Raises:
        RagmonError: The address is none.
        NoAnswerError: Nobody answers there, or it is no `ragmon serve`.
    """
    answer = get_page(url, STATUS)
    try:
        if answer.status == HTTPStatus.OK:
            return msgspec.json.decode(answer.body, type=ServerStatus)
        told = f"it answered with status {answer.status}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        told = str(error)
    raise NoAnswerError(
        f"what answers on {parse_server_address(url)} is not the admin port of `ragmon serve` ({told})",
        hint="`[serve] admin` of the server's configuration says where that is",
    )


def counter_delta(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was counted between two looks.

    >>> counter_delta({"late": 1}, {"late": 3, "too_old": 1})
    {'late': 2, 'too_old': 1}
    """
    return {reason: n - before.get(reason, 0) for reason, n in after.items() if n > before.get(reason, 0)}


QUERY_TIMEOUT: Final = 30.0
"""Seconds to wait for an answer that is a matter of looking it up."""


TRIES: Final = 5
"""How often a monitor is told something that has too much to do, or cannot be reached behind its gateway."""
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 30.0
"""Seconds between two tries, where a monitor does not say how long or names more: somebody waits."""
_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class AnsweredError(RagmonError):
    """A monitor answered, but not with what was asked for.

    Args:
        message: What it said.
        status: The HTTP status.
        hint: What would be right.
    """

    def __init__(self, message: str, status: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def get_json(url: str, path: str, asked: Mapping[str, str], *, timeout: float = QUERY_TIMEOUT) -> dict[str, Any]:
    """Ask the admin port of a monitor.

    Args:
        url: Its address.
        path: What about.
        asked: The parameters.
        timeout: Seconds to wait for each part of the answer.

    Raises:
        RagmonError: The address is none.
        NoAnswerError: Nobody answers.
        AnsweredError: It does not know, or what answers is no monitor.
    """
    return _object(get_page(url, f"{path}?{urlencode(asked)}", timeout=timeout), parse_server_address(url))


def post_json(url: str, path: str, body: object, settings: Settings, *, reads: bool = False) -> dict[str, Any]:
    """Tell the write port of a monitor something; where it cannot take it now, a few times more.

    Args:
        url: Its address.
        path: What kind of thing.
        body: The thing.
        settings: Where the token is, and the certificate of a server that signs its own.
        reads: It is an admin port, which takes no token and may have no TLS: it is shown none.

    Raises:
        RagmonError: The address or the token is none.
        NoAnswerError: Nobody answers.
        AnsweredError: It was refused.
    """
    address, token = parse_server_address(url), None if reads else read_token(settings.serve)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = ClientRequest("POST", path, json.dumps(body).encode(), headers)
    trusted = _trusted(settings)
    answer = send_request(address, request, timeout=QUERY_TIMEOUT, trusted=trusted)
    for tried in range(1, TRIES):
        if answer.status not in _LATER:
            break
        _wait(address, answer, FIRST_WAIT * 2.0 ** (tried - 1))
        answer = send_request(address, request, timeout=QUERY_TIMEOUT, trusted=trusted)
    return _object(answer, address)


def _wait(place: ServerAddress, answer: ServerResponse, usual: float) -> None:
    """Leave a monitor alone for as long as it wants, or as is usual, and say so."""
    from ragmon.capture.exporters.http import (  # noqa: PLC0415 - most commands never wait, and need nothing of it
        retry_after,
    )

    asked = retry_after(answer.again)
    seconds = min(LONGEST_WAIT, usual if asked is None else asked)
    click.echo(f"{printable_line(str(place))} answered {answer.status}: trying again in {seconds:.0f} s", err=True)
    sleep(seconds)


def _trusted(settings: Settings) -> ssl.SSLContext:
    """Those this machine trusts, and the certificate the server here was given."""
    trusted = ssl.create_default_context()
    tls = settings.serve.tls
    if isinstance(tls, TlsTable) and Path(tls.cert).is_file():
        trusted.load_verify_locations(tls.cert)
    return trusted


def _object(answer: ServerResponse, place: ServerAddress) -> dict[str, Any]:
    """The object in an answer.

    Raises:
        AnsweredError: There is none, or it says what is wrong.
    """
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if answer.status == HTTPStatus.OK and isinstance(found, dict):
        return found
    told = found if isinstance(found, dict) else {}
    message = str(told.get("error") or f"{place} answered {answer.status}")
    hint = str(told.get("hint") or "--url names a monitor of another kind?")
    raise AnsweredError(message, answer.status, hint=hint)
