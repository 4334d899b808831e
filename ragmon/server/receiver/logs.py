"""OTLP logs: nobody here reads them. Some SDKs send them wherever spans go, and log an error for each refusal."""

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

_TOLD: Final = "ragmon reads traces and metrics; logs are not read"


class _Scope(msgspec.Struct, rename="camel"):
    log_records: list[msgspec.Raw] | None = None


class _Resource(msgspec.Struct, rename="camel"):
    scope_logs: list[_Scope] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_Resource] | None = None


def reject_logs(body: bytes, form: Encoding) -> Future[ExportResult]:
    """What becomes of an `ExportLogsServiceRequest`: all of its records are rejected, as a partial success.

    Args:
        body: The request.
        form: How it is written.

    Raises:
        TurnedAwayError: It is none (400), or holds too many records (413).

    >>> reject_logs(b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}', Encoding.JSON).result().rejected
    2
    """
    if batch.is_crowded(body, batch.LOGS, json=form is Encoding.JSON):
        raise HTTPError(413, constants.OVERSIZE, f"it holds more than {batch.MOST} messages", hint="send less at once")
    count = _in_json(body) if form is Encoding.JSON else _in_protobuf(body)
    done: Future[ExportResult] = Future()
    done.set_result(ExportResult(count, _TOLD if count else ""))
    return done


def _in_json(body: bytes) -> int:
    try:
        found = msgspec.json.decode(body, type=_Export)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HTTPError(400, constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    scopes = (scope for resource in found.resource_logs or () for scope in resource.scope_logs or ())
    return sum(len(scope.log_records or ()) for scope in scopes)


def _in_protobuf(body: bytes) -> int:
    try:
        found: Any = ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise HTTPError(400, MALFORMED_PROTOBUF, "it is no ExportLogsServiceRequest") from None
    return sum(len(scope.log_records) for resource in found.resource_logs for scope in resource.scope_logs)
