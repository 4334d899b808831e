"""What stands on a request before its body: who sends it, whom it was meant for, and how it is written.

What a door answers: what became of a request, or why it was not taken, in the form it was asked in.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Collection
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from ragmon.core import constants
from ragmon.core.errors import shorten
from ragmon.core.net import HINT, is_known
from ragmon.server.receiver.interface import (
    BAD_CONTENT_ENCODING,
    BAD_CONTENT_TYPE,
    FORBIDDEN,
    UNAUTHORISED,
    Encoding,
    ExportResult,
    HTTPError,
    RejectedError,
)
from ragmon.server.receiver.limits import IDENTITY, encodings

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
FORMS: Final = {PROTOBUF: Encoding.PROTOBUF, JSON: Encoding.JSON}
_BEARER: Final = b"bearer"


class Headers(Protocol):
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
        raise HTTPError(401, UNAUTHORISED, "the token is missing, or is another", hint=hint)


def check_host(headers: Headers, hosts: Collection[str] | None) -> None:
    """Refuse what web pages send: they say where they come from, or ask for a name of their own.

    Args:
        headers: Of the request.
        hosts: The names this server may be asked by; None where any will do, as a token keeps strangers out.

    Raises:
        TurnedAwayError: A web page asks (403).
    """
    if "origin" in headers:
        raise HTTPError(403, FORBIDDEN, "a web page asks", hint="programs send no Origin")
    if hosts is not None and not is_known(headers.get("host", ""), hosts):
        hint = f"{HINT}; with a token, `[serve] token_file`, any name will do"
        raise HTTPError(403, FORBIDDEN, "this server is not known by that name", hint=hint)


def body_encoding(headers: Headers) -> Encoding | None:
    """How a body is written; None where nobody here can read it."""
    return FORMS.get(headers.get("content-type", "").partition(";")[0].strip().lower())


def content_type(headers: Headers, *known: Encoding) -> Encoding:
    """How a body is written, where that is one of some forms.

    Raises:
        TurnedAwayError: It is not (415).
    """
    found = body_encoding(headers)
    if found not in known:
        hint = f"Content-Type: {' or '.join(name for name, one in FORMS.items() if one in known)}"
        told = shorten(headers.get("content-type", ""))
        raise HTTPError(415, BAD_CONTENT_TYPE, f"Content-Type is {told}", hint=hint)
    return found


def encoding(headers: Headers) -> str:
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
        raise HTTPError(415, BAD_CONTENT_ENCODING, f"Content-Encoding is {shorten(told)}", hint=hint)
    return found[0]


def check_size(headers: Headers, most: int) -> None:
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


def oversize(most: int) -> HTTPError:
    """What somebody is told who sends more than that many bytes."""
    return HTTPError(413, constants.OVERSIZE, f"the body is larger than {most} bytes", hint="send less at once")


_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 429: 8, 431: 3, 503: 14}
"""The gRPC code of an HTTP status (google.rpc.Code). What may be sent again has a code after which senders do so."""
_INTERNAL: Final = 13
_NANO: Final = 1_000_000_000


class Signal(NamedTuple):
    """One kind of telemetry.

    Attributes:
        response: The protocol's answer to an export.
        rejected: Its partial success's count.
    """

    response: Any
    rejected: str


TRACES: Final = Signal(ExportTraceServiceResponse, "rejected_spans")
METRICS: Final = Signal(ExportMetricsServiceResponse, "rejected_data_points")
LOGS: Final = Signal(ExportLogsServiceResponse, "rejected_log_records")


def export_success(signal: Signal, taken: ExportResult) -> Any:
    """The protocol's answer to an export that was taken.

    Args:
        signal: What was exported.
        taken: What became of it.
    """
    answer = signal.response()
    if taken.rejected > 0:
        setattr(answer.partial_success, signal.rejected, taken.rejected)
        answer.partial_success.error_message = taken.message
    return answer


def export_response(signal: Signal, taken: ExportResult, form: Encoding) -> Response:
    """The same over HTTP, in the form of the request."""
    answer = export_success(signal, taken)
    if form is Encoding.PROTOBUF:
        return Response(answer.SerializeToString(), media_type=PROTOBUF)
    return Response(MessageToJson(answer, indent=None), media_type=JSON)


def json_response(answer: object, status: int = 200) -> Response:
    """JSON over HTTP."""
    return Response(json.dumps(answer), status, media_type=JSON)


def status(error: RejectedError) -> Any:
    """A refusal as `google.rpc.Status`, with the time to wait where it may be sent again."""
    found = Status(code=_CODES.get(error.status, _INTERNAL), message=_told(error))
    if error.retry_after is not None:
        found.details.add().Pack(retry_info(error.retry_after))
    return found


def retry_info(seconds: float) -> Any:
    """When to come again, as `google.rpc.RetryInfo`."""
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(round(seconds * _NANO))
    return info


def refusal(error: RejectedError, form: Encoding | None) -> Response:
    """A refusal over HTTP (OTLP specification, Failures).

    Args:
        error: Why.
        form: The form of the export that was refused; None for what is no export.
    """
    if form is Encoding.PROTOBUF:
        answer = Response(status(error).SerializeToString(), error.status, media_type=PROTOBUF)
    elif form is Encoding.JSON:
        answer = json_response({"code": _CODES.get(error.status, _INTERNAL), "message": _told(error)}, error.status)
    else:
        answer = json_response({"error": str(error), "hint": getattr(error, "hint", "")}, error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))  # whole seconds (RFC 9110, 10.2.3)
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="ragmon"'
    return answer


def _told(error: RejectedError) -> str:
    hint = getattr(error, "hint", "")
    return f"{error} ({hint})" if hint else str(error)
