"""What a door answers: what became of a request, or why it was not taken, in the form it was asked in."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from ragmon.server.desk import Form, RefusedError, Taken
from ragmon.server.doors.envelope import JSON, PROTOBUF

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


def exported(signal: Signal, taken: Taken) -> Any:
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


def export_response(signal: Signal, taken: Taken, form: Form) -> Response:
    """The same over HTTP, in the form of the request."""
    answer = exported(signal, taken)
    if form is Form.PROTOBUF:
        return Response(answer.SerializeToString(), media_type=PROTOBUF)
    return Response(MessageToJson(answer, indent=None), media_type=JSON)


def json_response(answer: object, status: int = 200) -> Response:
    """JSON over HTTP."""
    return Response(json.dumps(answer), status, media_type=JSON)


def status(error: RefusedError) -> Any:
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


def refusal(error: RefusedError, form: Form | None) -> Response:
    """A refusal over HTTP (OTLP specification, Failures).

    Args:
        error: Why.
        form: The form of the export that was refused; None for what is no export.
    """
    if form is Form.PROTOBUF:
        answer = Response(status(error).SerializeToString(), error.status, media_type=PROTOBUF)
    elif form is Form.JSON:
        answer = json_response({"code": _CODES.get(error.status, _INTERNAL), "message": _told(error)}, error.status)
    else:
        answer = json_response({"error": str(error), "hint": getattr(error, "hint", "")}, error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))  # whole seconds (RFC 9110, 10.2.3)
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="ragmon"'
    return answer


def _told(error: RefusedError) -> str:
    hint = getattr(error, "hint", "")
    return f"{error} ({hint})" if hint else str(error)
