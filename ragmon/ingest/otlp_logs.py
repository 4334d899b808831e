"""OTLP's log records that are events of a model call: its messages, written beside its span instead of on it.

Older releases of OpenTelemetry's instrumentations write one event per message (`gen_ai.user.message`, `gen_ai.choice`),
later ones `gen_ai.client.inference.operation.details` with all messages. Each becomes a span that stands for it
(`ragmon.ingest.spans.messages`), in a request with traces. All other log records are not read.

Source: OpenTelemetry, OTLP specification 1.5; semantic conventions for generative AI, events, 1.28 to 1.37.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ragmon.core import constants
from ragmon.ingest.lines import Rejected, is_export
from ragmon.ingest.otlp import SpanOrigin, on_event, parse_message, spans_of, to_span
from ragmon.ingest.otlp_wire import check_size
from ragmon.ingest.spans.conventions import MESSAGE_EVENTS
from ragmon.ingest.spans.messages import LOG_SCOPE
from ragmon.ingest.spans.span import Span

_ID_BYTES: Final = 8


class LogEvents(NamedTuple):
    """The log records of one request.

    Attributes:
        body: A request with traces, in protobuf, that holds the events; b"" where there is none.
        unread: The number of log records that are no event of a model call, or name no span.
    """

    body: bytes
    unread: int


def read_logs(body: bytes, *, as_json: bool) -> LogEvents:
    """The events of model calls in an `ExportLogsServiceRequest`.

    Raises:
        Rejected: It is no such request, or holds too much.

    Examples:
        >>> read_logs(b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}', as_json=True)
        LogEvents(body=b'', unread=2)
    """
    if as_json:
        logs = _read_json(body)
    else:
        request = parse_message(ExportLogsServiceRequest, body)
        logs = (
            (part.resource, [r for scope in part.scope_logs for r in scope.log_records])
            for part in request.resource_logs
        )
    traces, events, unread = ExportTraceServiceRequest(), 0, 0
    for resource, records in logs:
        named = [(record, name) for record in records if (name := _event_name(record)) in MESSAGE_EVENTS]
        unread += len(records) - len(named)
        events += len(named)
        if named:
            resource_spans = traces.resource_spans.add(resource=resource)
            scope_spans = resource_spans.scope_spans.add(scope={"name": LOG_SCOPE})
            for record, name in named:
                # Write the span that stands for an event.
                span = scope_spans.spans.add()
                time = record.time_unix_nano or record.observed_time_unix_nano
                span.trace_id, span.parent_span_id, span.name = record.trace_id, record.span_id, name
                span.span_id = sha256(record.SerializeToString(deterministic=True)).digest()[:_ID_BYTES]
                span.start_time_unix_nano = span.end_time_unix_nano = time
                event = span.events.add(name=name, time_unix_nano=time)
                event.attributes.extend(pair for pair in record.attributes if on_event(name, pair.key))
                kind = record.body.WhichOneof("value")
                if kind == "kvlist_value":
                    event.attributes.extend(
                        pair for pair in record.body.kvlist_value.values if on_event(name, pair.key)
                    )
                elif kind == "string_value":
                    event.attributes.add(key="content", value=record.body)
    return LogEvents(traces.SerializeToString() if events else b"", unread)


class _ScopeLogs(msgspec.Struct, rename="camel"):
    log_records: list[msgspec.Raw] | None = None


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: dict[str, Any] | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _ExportLogs(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] | None = None


_decode_export: Final = msgspec.json.Decoder(_ExportLogs).decode
_UNREADABLE: Final = (msgspec.MsgspecError, ParseError, UnicodeDecodeError, RecursionError, ValueError, TypeError)
_NO_RECORD: Final = LogRecord()


def _read_json(body: bytes) -> Iterator[tuple[Any, list[Any]]]:
    """The log records of each process, with its resource; an empty one for each that is malformed."""
    check_size(body, ExportLogsServiceRequest, json=True)
    try:
        request = _decode_export(body)
        resources = [
            ParseDict(resource_logs.resource or {}, Resource(), ignore_unknown_fields=True)
            for resource_logs in request.resource_logs or ()
        ]
    except _UNREADABLE:
        raise Rejected(constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    for resource, resource_logs in zip(resources, request.resource_logs or (), strict=True):
        raw = [record for scope_logs in resource_logs.scope_logs or () for record in scope_logs.log_records or ()]
        yield resource, [_json_record(record) for record in raw]


def _json_record(raw: msgspec.Raw) -> Any:
    try:
        record = msgspec.json.decode(raw)
        for name in ("traceId", "spanId"):  # hexadecimal in OTLP, base64 in protobuf's JSON
            record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
        return ParseDict(record, LogRecord(), ignore_unknown_fields=True)
    except (LookupError, *_UNREADABLE):
        return _NO_RECORD


def _event_name(record: Any) -> str:
    """The name of an event that belongs to a span; "" for other log records."""
    if not (record.trace_id.strip(b"\0") and len(record.span_id) == _ID_BYTES and record.span_id.strip(b"\0")):
        return ""
    attribute = next((pair.value.string_value for pair in record.attributes if pair.key == "event.name"), "")
    name: str = getattr(record, "event_name", "") or attribute  # messages of OpenTelemetry before 1.35 lack the field
    return name


def log_spans(line: bytes) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans that stand for the events in a line with logs, each with what made it."""
    if is_export(line, "Logs"):
        traces = ExportTraceServiceRequest.FromString(read_logs(line, as_json=True).body)
        for message, process in spans_of(traces):
            yield to_span(message, process.scope), process
