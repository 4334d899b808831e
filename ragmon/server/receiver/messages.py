"""Checks of request headers (token, host, encoding, size), and the responses in the encoding of the request.

OTLP logs are sorted here. Most are rejected, as a success: some SDKs send logs to where spans go, and log an error for
each failed request.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
from collections.abc import Collection
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.datastructures import Headers
from starlette.responses import Response

from ragmon.core.errors import shorten
from ragmon.core.net import HINT, is_known
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp import logs
from ragmon.ingest.otlp.wire import TOO_MANY
from ragmon.monitor.http.requests import (
    BAD_CONTENT_ENCODING,
    FORBIDDEN,
    JSON,
    UNAUTHORISED,
    HTTPError,
    RejectedError,
    bad_media_type,
    media_type,
)
from ragmon.server.receiver.interface import Consumer, Encoding, ExportResult
from ragmon.server.receiver.limits import IDENTITY, encodings

_MESSAGE: Final = (
    "ragmon reads traces, metrics, and log records that are messages of a model call with the ids of its span"
)
LOGS_NOT_READ: Final = "logs_not_read"
"""The reason for a request with other logs, which is answered without an error."""


def accept_logs(consumer: Consumer, body: bytes, encoding: Encoding) -> Future[ExportResult]:
    """Accept an `ExportLogsServiceRequest`: what belongs to spans as spans, and the rest is rejected, without an error.

    Args:
        consumer: Receives what belongs to spans, and counts a request with other records.
        body: The request.
        encoding: Its encoding.

    Raises:
        RejectedError: It is not such a request (400), has too many records (413), or the consumer rejects it.
    """
    try:
        events = logs.read(body, as_json=encoding is Encoding.JSON)
    except Rejected as rejected:
        raise HTTPError(413 if rejected.reason == TOO_MANY else 400, rejected.reason, str(rejected)) from None
    result: Future[ExportResult] = Future()
    if events.body:
        consumer.traces(events.body, Encoding.PROTOBUF).add_done_callback(partial(_with_unread, result, events.unread))
    else:
        result.set_result(ExportResult(events.unread, _MESSAGE if events.unread else ""))
    if events.unread:
        consumer.refuse(LOGS_NOT_READ)
    return result


def _with_unread(result: Future[ExportResult], unread: int, taken: Future[ExportResult]) -> None:
    """Pass the consumer's result on, with the log records that it did not get."""
    error = taken.exception()
    if error is not None:
        result.set_exception(error)
        return
    accepted = taken.result()
    message = accepted.message or (_MESSAGE if unread else "")
    result.set_result(ExportResult(accepted.rejected + unread, message))


PROTOBUF: Final = "application/x-protobuf"
FORMS: Final = {PROTOBUF: Encoding.PROTOBUF, JSON: Encoding.JSON}
_BEARER: Final = b"bearer"
_BASIC: Final = b"basic"


def authorise(given: bytes, token: str | None) -> None:
    """Check the token of a request: a bearer token, or the password of Basic, which Langfuse's exporters send.

    Args:
        given: The `Authorization` of the request; empty if there is none.
        token: The token; None if none is required.

    Raises:
        HTTPError: The token is missing or wrong (401).
    """
    if token is None:
        return
    scheme, _, credential = given.partition(b" ")
    # The comparison takes the same time for any value, so its time reveals nothing about the token.
    given_token = credential.strip() if scheme.lower() == _BEARER else _password(scheme, credential)
    if not hmac.compare_digest(given_token, token.encode()):
        hint = (
            "Authorization: Bearer, and what is in the file of `[serve] token_file`, or that as the password of Basic"
        )
        raise HTTPError(401, UNAUTHORISED, "the token is missing, or is another", hint=hint)


def _password(scheme: bytes, credential: bytes) -> bytes:
    """The password in the credential of Basic, RFC 7617; empty where there is none."""
    if scheme.lower() != _BASIC:
        return b""
    try:
        return base64.b64decode(credential.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def check_host(headers: Headers, hosts: Collection[str] | None) -> None:
    """Reject requests of web pages: they send an Origin header (CSRF), or their own host name (DNS rebinding).

    Args:
        headers: The headers of the request.
        hosts: The accepted host names; None if any is accepted, since a token is required.

    Raises:
        HTTPError: The request came from a web page (403).
    """
    if "origin" in headers:
        raise HTTPError(403, FORBIDDEN, "a web page asks", hint="programs send no Origin")
    if hosts is not None and not is_known(headers.get("host", ""), hosts):
        hint = f"{HINT}; with a token, `[serve] token_file`, any name will do"
        raise HTTPError(403, FORBIDDEN, "this server is not known by that name", hint=hint)


def body_encoding(headers: Headers) -> Encoding | None:
    """The encoding of a body; None if it is not supported."""
    return FORMS.get(media_type(headers))


def content_type(headers: Headers, *known: Encoding) -> Encoding:
    """The encoding of a body, if it is one of the known ones.

    Raises:
        HTTPError: It is another one (415).
    """
    form = body_encoding(headers)
    if form not in known:
        raise bad_media_type(headers, *(name for name, candidate in FORMS.items() if candidate in known))
    return form


def encoding(headers: Headers) -> str:
    """The content encoding of a body: one of `encodings()`, or identity.

    Raises:
        HTTPError: The encoding is not supported, or there is more than one (415).
    """
    value = ",".join(headers.getlist("content-encoding"))
    names = [name for part in value.split(",") if (name := part.strip().lower()) and name != IDENTITY]
    if not names:
        return IDENTITY
    if names[1:] or names[0] not in encodings():
        hint = f"one of: {', '.join((IDENTITY, *encodings()))}"
        raise HTTPError(415, BAD_CONTENT_ENCODING, f"Content-Encoding is {shorten(value)}", hint=hint)
    return names[0]


_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 429: 8, 431: 3, 503: 14}
"""The gRPC code of an HTTP status (google.rpc.Code). Errors that allow a retry have a code on which clients retry."""
_INTERNAL: Final = 13
_NANO: Final = 1_000_000_000


class Signal(NamedTuple):
    """One kind of telemetry.

    Attributes:
        response: The response message of an export.
        rejected: The field of its partial success that counts rejected items.
    """

    response: Any
    rejected: str


TRACES: Final = Signal(ExportTraceServiceResponse, "rejected_spans")
METRICS: Final = Signal(ExportMetricsServiceResponse, "rejected_data_points")
LOGS: Final = Signal(ExportLogsServiceResponse, "rejected_log_records")


def export_success(signal: Signal, taken: ExportResult) -> Any:
    """The response message for an export that was accepted.

    Args:
        signal: The signal that was exported.
        taken: The result.
    """
    response = signal.response()
    if taken.rejected > 0:
        setattr(response.partial_success, signal.rejected, taken.rejected)
        response.partial_success.error_message = taken.message
    return response


def export_response(signal: Signal, taken: ExportResult, encoding: Encoding) -> Response:
    """The HTTP response for an export that was accepted, in the encoding of the request."""
    message = export_success(signal, taken)
    if encoding is Encoding.PROTOBUF:
        return Response(message.SerializeToString(), media_type=PROTOBUF)
    return Response(MessageToJson(message, indent=None), media_type=JSON)


def json_response(answer: object, status: int = 200) -> Response:
    """An HTTP response with a JSON body."""
    return Response(json.dumps(answer), status, media_type=JSON)


def status(error: RejectedError) -> Any:
    """An error as `google.rpc.Status`, with the retry delay if a retry is allowed."""
    message = Status(code=_CODES.get(error.status, _INTERNAL), message=_error_text(error))
    if error.retry_after is not None:
        message.details.add().Pack(retry_info(error.retry_after))
    return message


def retry_info(seconds: float) -> Any:
    """A retry delay as `google.rpc.RetryInfo`."""
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(round(seconds * _NANO))
    return info


def refusal(error: RejectedError, encoding: Encoding | None) -> Response:
    """The HTTP response for an error (OTLP specification, Failures).

    Args:
        error: The error.
        encoding: The encoding of the export that was rejected; None for other requests.
    """
    if encoding is Encoding.PROTOBUF:
        response = Response(status(error).SerializeToString(), error.status, media_type=PROTOBUF)
    elif encoding is Encoding.JSON:
        response = json_response(
            {"code": _CODES.get(error.status, _INTERNAL), "message": _error_text(error)}, error.status
        )
    else:
        response = json_response({"error": str(error), "hint": getattr(error, "hint", "")}, error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))  # whole seconds (RFC 9110, 10.2.3)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="ragmon"'
    return response


def _error_text(error: RejectedError) -> str:
    hint = getattr(error, "hint", "")
    return f"{error} ({hint})" if hint else str(error)
