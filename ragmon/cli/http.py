"""Asking a monitor over HTTP, and telling it something: what answers is an object, or an error with a hint."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from time import sleep
from typing import Any, Final
from urllib.parse import urlencode

import click

from ragmon import remote
from ragmon.config.services import Tls
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_line
from ragmon.server.receiver.security import read_token

TIMEOUT: Final = 30.0
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


def ask(url: str, path: str, asked: Mapping[str, str], *, timeout: float = TIMEOUT) -> dict[str, Any]:
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
    return _object(remote.get(url, f"{path}?{urlencode(asked)}", timeout=timeout), remote.place(url))


def tell(url: str, path: str, body: object, settings: Settings, *, reads: bool = False) -> dict[str, Any]:
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
    place, token = remote.place(url), None if reads else read_token(settings.serve)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = remote.Request("POST", path, json.dumps(body).encode(), headers)
    trusted = _trusted(settings)
    answer = remote.send(place, request, timeout=TIMEOUT, trusted=trusted)
    for tried in range(1, TRIES):
        if answer.status not in _LATER:
            break
        _wait(place, answer, FIRST_WAIT * 2.0 ** (tried - 1))
        answer = remote.send(place, request, timeout=TIMEOUT, trusted=trusted)
    return _object(answer, place)


def _wait(place: remote.Place, answer: remote.Answer, usual: float) -> None:
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
    if isinstance(tls, Tls) and Path(tls.cert).is_file():
        trusted.load_verify_locations(tls.cert)
    return trusted


def _object(answer: remote.Answer, place: remote.Place) -> dict[str, Any]:
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
