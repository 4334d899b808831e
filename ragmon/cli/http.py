"""Asking a monitor over HTTP, and telling it something: what answers is an object, or an error with a hint."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from ragmon import remote
from ragmon.config.services import Tls
from ragmon.config.settings import Settings
from ragmon.errors import RagmonError
from ragmon.server.exposure import read_token

TIMEOUT: Final = 30.0
"""Seconds to wait for an answer that is a matter of looking it up."""
_LARGEST: Final = 1 << 20
"""Bytes that are read of the answer to something that was told."""


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
    place = remote.place(url)
    try:
        answer = remote.get(url, f"{path}?{urlencode(asked)}", timeout=timeout)
    except (remote.NoAnswerError, UnicodeError) as error:
        raise _nobody(place, error.__cause__ or error) from error
    return _object(answer, place)


def tell(url: str, path: str, body: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """Tell the write port of a monitor something.

    Args:
        url: Its address.
        path: What kind of thing.
        body: The thing.
        settings: Where the token is, and the certificate of a server that signs its own.

    Raises:
        RagmonError: The address or the token is none.
        NoAnswerError: Nobody answers.
        AnsweredError: It was refused.
    """
    place, token = remote.place(url), read_token(settings.serve)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection = _connection(place, settings)
    try:
        connection.request("POST", f"{place.path}{path}", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        answer = remote.Answer(response.status, response.read(_LARGEST))
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise _nobody(place, error) from error
    finally:
        connection.close()
    return _object(answer, place)


def _connection(place: remote.Place, settings: Settings) -> http.client.HTTPConnection:
    if not place.tls:
        return http.client.HTTPConnection(place.host, place.port, timeout=TIMEOUT)
    trusted = ssl.create_default_context()
    tls = settings.serve.tls
    if isinstance(tls, Tls) and Path(tls.cert).is_file():
        trusted.load_verify_locations(tls.cert)
    return http.client.HTTPSConnection(place.host, place.port, timeout=TIMEOUT, context=trusted)


def _nobody(place: remote.Place, error: BaseException) -> remote.NoAnswerError:
    hint = "is the monitor running? --url URL"
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "SSL_CERT_FILE names the certificates to trust; `[serve] tls` the server's own"
    return remote.NoAnswerError(f"no monitor answers on {place} ({error})", hint=hint)


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
