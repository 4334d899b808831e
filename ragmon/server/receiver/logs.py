"""OTLP logs, which ragmon rejects. Some SDKs send logs to where spans go, and log an error for each failed request."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from ragmon.core import constants
from ragmon.ingest.otlp import batch
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.server.receiver.interface import Encoding, ExportResult, HTTPError

_MESSAGE: Final = "ragmon reads traces and metrics; logs are not read"


class _Scope(msgspec.Struct, rename="camel"):
    log_records: list[msgspec.Raw] | None = None


class _Resource(msgspec.Struct, rename="camel"):
    scope_logs: list[_Scope] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_Resource] | None = None


def reject_logs(body: bytes, form: Encoding) -> Future[ExportResult]:
    """Reject all records of an `ExportLogsServiceRequest`, as a partial success.

    Args:
        body: The request.
        form: Its encoding.

    Raises:
        HTTPError: It is not such a request (400), or has too many records (413).

    >>> reject_logs(b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}', Encoding.JSON).result().rejected
    2
    """
    if batch.exceeds_limits(body, batch.LOGS, json=form is Encoding.JSON):
        raise HTTPError(
            413, constants.OVERSIZE, f"it holds more than {batch.MAX_MESSAGES} messages", hint="send less at once"
        )
    count = _count_json(body) if form is Encoding.JSON else _count_protobuf(body)
    done: Future[ExportResult] = Future()
    done.set_result(ExportResult(count, _MESSAGE if count else ""))
    return done


def _count_json(body: bytes) -> int:
    try:
        export = msgspec.json.decode(body, type=_Export)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HTTPError(400, constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    scopes = (scope for resource in export.resource_logs or () for scope in resource.scope_logs or ())
    return sum(len(scope.log_records or ()) for scope in scopes)


def _count_protobuf(body: bytes) -> int:
    try:
        export: Any = ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise HTTPError(400, MALFORMED_PROTOBUF, "it is no ExportLogsServiceRequest") from None
    return sum(len(scope.log_records) for resource in export.resource_logs for scope in resource.scope_logs)
