"""What stands on a request before its body: who sends it, whom it was meant for, and how it is written."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Any, Final, Protocol

from ragmon.core import constants
from ragmon.core.errors import shorten
from ragmon.core.net import HINT, is_known
from ragmon.server.desk import Form
from ragmon.server.doors.limits import IDENTITY, encodings
from ragmon.server.doors.refusals import (
    BAD_CONTENT_ENCODING,
    BAD_CONTENT_TYPE,
    FORBIDDEN,
    UNAUTHORISED,
    TurnedAwayError,
)

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
FORMS: Final = {PROTOBUF: Form.PROTOBUF, JSON: Form.JSON}
_BEARER: Final = b"bearer"


class Fields(Protocol):
    """The headers of a request; names in lower case."""

    def __contains__(self, name: Any, /) -> bool: ...

    def get(self, name: str, default: str, /) -> str:
        """The first of a name."""

    def getlist(self, name: str, /) -> list[str]:
        """All of a name."""


def authorise(given: bytes, token: str | None) -> None:
    """Let only those in who know the token.

    Args:
        given: The `Authorization` of a request; empty where there is none.
        token: The token; None where everybody may come in.

    Raises:
        TurnedAwayError: It is not the token (401).
    """
    if token is None:
        return
    scheme, _, word = given.partition(b" ")
    # The comparison takes the same time whatever the word is, so its length of time tells nothing about the token.
    if scheme.lower() != _BEARER or not hmac.compare_digest(word.strip(), token.encode()):
        hint = "Authorization: Bearer, and what is in the file of `[serve] token_file`"
        raise TurnedAwayError(401, UNAUTHORISED, "the token is missing, or is another", hint=hint)


def meant_for_us(headers: Fields, hosts: Collection[str] | None) -> None:
    """Refuse what web pages send: they say where they come from, or ask for a name of their own.

    Args:
        headers: Of the request.
        hosts: The names this server may be asked by; None where any will do, as a token keeps strangers out.

    Raises:
        TurnedAwayError: A web page asks (403).
    """
    if "origin" in headers:
        raise TurnedAwayError(403, FORBIDDEN, "a web page asks", hint="programs send no Origin")
    if hosts is not None and not is_known(headers.get("host", ""), hosts):
        hint = f"{HINT}; with a token, `[serve] token_file`, any name will do"
        raise TurnedAwayError(403, FORBIDDEN, "this server is not known by that name", hint=hint)


def form(headers: Fields) -> Form | None:
    """How a body is written; None where nobody here can read it."""
    return FORMS.get(headers.get("content-type", "").partition(";")[0].strip().lower())


def written(headers: Fields, *known: Form) -> Form:
    """How a body is written, where that is one of some forms.

    Raises:
        TurnedAwayError: It is not (415).
    """
    found = form(headers)
    if found not in known:
        hint = f"Content-Type: {' or '.join(name for name, one in FORMS.items() if one in known)}"
        told = shorten(headers.get("content-type", ""))
        raise TurnedAwayError(415, BAD_CONTENT_TYPE, f"Content-Type is {told}", hint=hint)
    return found


def encoding(headers: Fields) -> str:
    """How a body is compressed: one of `encodings()`, or identity.

    Raises:
        TurnedAwayError: In a way that is unknown here, or twice (415).
    """
    told = ",".join(headers.getlist("content-encoding"))
    found = [word for part in told.split(",") if (word := part.strip().lower()) and word != IDENTITY]
    if not found:
        return IDENTITY
    if found[1:] or found[0] not in encodings():
        hint = f"one of: {', '.join((IDENTITY, *encodings()))}"
        raise TurnedAwayError(415, BAD_CONTENT_ENCODING, f"Content-Encoding is {shorten(told)}", hint=hint)
    return found[0]


def fits(headers: Fields, most: int) -> None:
    """Refuse a body whose announced length is too large before it is read.

    Args:
        headers: Of the request.
        most: Bytes a body may have.

    Raises:
        TurnedAwayError: It says it is larger (413).
    """
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise oversize(most)


def oversize(most: int) -> TurnedAwayError:
    """What somebody is told who sends more than that many bytes."""
    return TurnedAwayError(413, constants.OVERSIZE, f"the body is larger than {most} bytes", hint="send less at once")
