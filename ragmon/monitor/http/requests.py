"""The limits of HTTP requests, the errors that reject them, and the acknowledgement of an alarm as a request.

Each error has the reason under which a server counts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.core.errors import shorten

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request, and of all requests of a receiver together.

    Attributes:
        header: Bytes of the headers.
        wire: Bytes of a body as sent.
        inflated: Bytes of a decompressed body.
        ratio: The highest compression ratio of a body that is larger than `free`.
        free: Decompressed bytes up to which the ratio does not matter.
        deadline: Seconds in which the body must arrive.
        in_flight: Requests that were received completely and are not answered yet.
        memory: Bytes of all bodies together; small bodies may use a sixth of it in addition.
        small: Bytes up to which a body is small: it waits for no turn, and may use the additional memory.
        turns: Large bodies decoded or written at once; decoding one takes several times its bytes.
    """

    header: int = 16 << 10
    wire: int = 8 << 20
    inflated: int = 20 << 20
    ratio: int = 500
    free: int = 1 << 20
    deadline: float = 32.0
    in_flight: int = 64
    memory: int = 64 << 20
    small: int = 256 << 10
    turns: int = 2


LIMITS: Final = RequestLimits()

UNAUTHORISED: Final = "unauthorised"
FORBIDDEN: Final = "forbidden"
"""The request came from a web page, from another machine, or was meant for another host."""
RATE_LIMITED: Final = "rate_limited"
"""The server is overloaded."""
DECOMPRESS_LIMIT: Final = "decompress_limit"
TIMEOUT: Final = "timeout"
BAD_CONTENT_TYPE: Final = "bad_content_type"
BAD_CONTENT_ENCODING: Final = "bad_content_encoding"
NO_MESSAGE: Final = "no_message"
"""A gRPC call ended without a message: the message was too large for gRPC, or was never sent."""
UNKNOWN_PATH: Final = "unknown_path"
BAD_METHOD: Final = "bad_method"


class RejectedError(Exception):
    """A request was rejected; the client may retry if `retry_after` is set.

    Args:
        status: The HTTP status.
        reason: The reason under which it is counted.
        message: What is wrong.
        retry_after: Seconds after which the client may retry; None if a retry cannot succeed.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class HTTPError(RejectedError):
    """A request was rejected by the receiver itself, which counts it with `Consumer.refuse`.

    Args:
        status: The HTTP status.
        reason: The reason under which it is counted.
        message: What is wrong.
        hint: How to correct it.
        retry_after: Seconds after which the client may retry; None if a retry cannot succeed.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.hint = hint


JSON: Final = "application/json"


def media_type(headers: Headers) -> str:
    """The media type of a body, without its parameters; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def bad_media_type(headers: Headers, *known: str) -> HTTPError:
    """The error for a body of a media type that is none of the known ones."""
    value = shorten(headers.get("content-type", ""))
    return HTTPError(415, BAD_CONTENT_TYPE, f"Content-Type is {value}", hint=f"Content-Type: {' or '.join(known)}")


def check_size(headers: Headers, most: int) -> None:
    """Reject a request whose Content-Length is too large, before its body is read.

    Args:
        headers: The headers of the request.
        most: Maximum bytes of a body.

    Raises:
        HTTPError: The Content-Length is larger, or not a number (413).
    """
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise oversize(most)


def check_headers(headers: Headers, most: int) -> None:
    """Reject a request whose headers are too large.

    Raises:
        HTTPError: They are (431).
    """
    if sum(len(name) + len(value) for name, value in headers.raw) > most:
        raise HTTPError(431, constants.OVERSIZE, f"the headers are larger than {most} bytes")


def oversize(most: int) -> HTTPError:
    """The error for a body of more than so many bytes."""
    return HTTPError(413, constants.OVERSIZE, f"the body is larger than {most} bytes", hint="send less at once")


async def read_body(request: Request, most: int, deadline: float, hold: Callable[[int], object] | None = None) -> bytes:
    """The body of a request, as sent.

    Args:
        request: The request.
        most: Maximum bytes it may have.
        deadline: Seconds within which it must arrive.
        hold: Called with the bytes of each chunk before it is kept.

    Raises:
        HTTPError: It is too large (413), or too slow (408).
    """
    chunks = bytearray()
    try:
        async with asyncio.timeout(deadline):
            async for chunk in request.stream():
                if len(chunks) + len(chunk) > most:
                    raise oversize(most)
                if hold is not None:
                    hold(len(chunk))
                chunks += chunk
    except TimeoutError:
        raise HTTPError(408, TIMEOUT, f"the body did not come within {deadline:g} seconds") from None
    return bytes(chunks)


def read_json(body: bytes, example: str) -> Any:
    """Parse a JSON body.

    Args:
        body: The body.
        example: What it should look like.

    Raises:
        HTTPError: It is not JSON (400).
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HTTPError(400, constants.MALFORMED_JSON, "this is no JSON", hint=example) from None


ACKS_PATH: Final = "/v1/ack"
LONGEST_ACK: Final = 64 << 10
"""Maximum bytes of an acknowledgement."""
LONGEST_NAME: Final = 200
"""Maximum characters of the name of who acknowledges."""
_EXAMPLE: Final = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back", "by": "ada"}'


class Acknowledgement(NamedTuple):
    """The acknowledgement of an alarm by a person.

    Attributes:
        pipeline: The pipeline of the alarm.
        alert: The name of the alarm.
        reason: The reason the person gave.
        by: Who the person is; "" where the request does not say.
    """

    pipeline: str
    alert: str
    reason: str
    by: str = ""


def acknowledgement(body: bytes) -> Acknowledgement:
    """Parse a body with an acknowledgement; the default pipeline is used if it names none.

    Raises:
        HTTPError: It is not an acknowledgement (400), or too large (413).

    >>> acknowledgement(b'{"gate": "mrr", "reason": "rolled back", "by": "ada"}')
    Acknowledgement(pipeline='default', alert='mrr', reason='rolled back', by='ada')
    """
    if len(body) > LONGEST_ACK:
        raise oversize(LONGEST_ACK)
    data = read_json(body, _EXAMPLE)
    if not isinstance(data, dict) or not {"gate", "reason"} <= data.keys():
        raise HTTPError(400, constants.INVALID_SCHEMA, "this is no acknowledgement", hint=_EXAMPLE)
    by = data.get("by", "")
    if not isinstance(by, str) or len(by) > LONGEST_NAME:
        hint = f"a name of at most {LONGEST_NAME} characters"
        raise HTTPError(400, constants.INVALID_SCHEMA, f"by is {shorten(by)}", hint=hint)
    parsed = Acknowledgement(data.get("pipeline", constants.DEFAULT_PIPELINE), data["gate"], data["reason"], by)
    if not all(isinstance(part, str) and part for part in parsed[:3]):
        message = "gate, pipeline and reason are texts"
        raise HTTPError(400, constants.INVALID_SCHEMA, message, hint="none of them empty")
    return parsed
