"""OTLP's log records that are events of a model call: its messages, written beside its span instead of on it.

Older releases of OpenTelemetry's instrumentations write one event per message (`gen_ai.user.message`, `gen_ai.choice`),
later ones `gen_ai.client.inference.operation.details` with all messages. Each becomes a span that stands for it
(`ragmon.ingest.spans.log_events`), in a request with traces of the same encoding. All other log records are not read.

Source: OpenTelemetry, OTLP specification 1.5; semantic conventions for generative AI, events, 1.28 to 1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.core import constants
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp import is_export, json
from ragmon.ingest.otlp.attribute_layouts import on_event
from ragmon.ingest.otlp.json import (
    AttributeValue,
    EventMessage,
    ExportRequest,
    Integer,
    Pair,
    Resource,
    ResourceDict,
    ResourceSpans,
    Scope,
    ScopeSpans,
    SpanMessage,
)
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.ingest.spans import Span
from ragmon.ingest.spans.conventions import MESSAGE_EVENTS
from ragmon.ingest.spans.log_events import LOG_SCOPE

_EVENT_NAME: Final = "event.name"
"""The attribute with the name of an event, where the log record has no field for it."""
_TEXT: Final = "content"
"""The attribute of an event that a body becomes which is a text."""
_ID_BYTES: Final = 8


class LogEvents(NamedTuple):
    """The log records of one request.

    Attributes:
        body: A request with traces, in the same encoding, that holds the events; b"" where there is none.
        unread: The number of log records that are no event of a model call, or name no span.
    """

    body: bytes
    unread: int


def read(body: bytes, *, as_json: bool) -> LogEvents:
    """The events of model calls in an `ExportLogsServiceRequest`.

    Args:
        body: The decompressed body.
        as_json: Whether the body is JSON with hexadecimal ids; otherwise it is protobuf.

    Raises:
        Rejected: It is no such request.

    Examples:
        >>> read(b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}', as_json=True)
        LogEvents(body=b'', unread=2)
    """
    return _read_json(body) if as_json else _read_protobuf(body)


def _read_protobuf(body: bytes) -> LogEvents:
    try:
        request: Any = ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise Rejected(MALFORMED_PROTOBUF, "it is no ExportLogsServiceRequest") from None
    traces, events, unread = ExportTraceServiceRequest(), 0, 0
    for resource_logs in request.resource_logs:
        records = [record for scope_logs in resource_logs.scope_logs for record in scope_logs.log_records]
        named = [(record, name) for record in records if (name := _protobuf_name(record)) in MESSAGE_EVENTS]
        unread += len(records) - len(named)
        events += len(named)
        if named:
            resource_spans = traces.resource_spans.add(resource=resource_logs.resource)
            scope_spans = resource_spans.scope_spans.add(scope={"name": LOG_SCOPE})
            for record, name in named:
                _add_protobuf_span(scope_spans.spans.add(), record, name)
    return LogEvents(traces.SerializeToString() if events else b"", unread)


def _protobuf_name(record: Any) -> str:
    """The name of an event that belongs to a span; "" for other log records."""
    if not (record.trace_id.strip(b"\0") and len(record.span_id) == _ID_BYTES and record.span_id.strip(b"\0")):
        return ""
    attribute = next((pair.value.string_value for pair in record.attributes if pair.key == _EVENT_NAME), "")
    name: str = record.event_name or attribute
    return name


def _add_protobuf_span(span: Any, record: Any, name: str) -> None:
    time = record.time_unix_nano or record.observed_time_unix_nano
    span.trace_id, span.parent_span_id, span.name = record.trace_id, record.span_id, name
    span.span_id = sha256(record.SerializeToString(deterministic=True)).digest()[:_ID_BYTES]
    span.start_time_unix_nano = span.end_time_unix_nano = time
    event = span.events.add(name=name, time_unix_nano=time)
    event.attributes.extend(pair for pair in record.attributes if on_event(name, pair.key))
    kind = record.body.WhichOneof("value")
    if kind == "kvlist_value":
        event.attributes.extend(pair for pair in record.body.kvlist_value.values if on_event(name, pair.key))
    elif kind == "string_value":
        event.attributes.add(key=_TEXT, value=record.body)


class _LogRecord(json._Message):  # noqa: SLF001 - the rules of one encoding
    """A log record."""

    time_unix_nano: Integer = 0
    observed_time_unix_nano: Integer = 0
    event_name: str = ""
    attributes: list[Pair] = msgspec.field(default_factory=list)
    body: AttributeValue = msgspec.field(default_factory=AttributeValue)
    trace_id: str = ""
    span_id: str = ""


class _ScopeLogs(json._Message):  # noqa: SLF001 - as above
    """The log records of one instrumentation scope, not decoded yet."""

    log_records: list[msgspec.Raw] | None = None


class _ResourceLogs(json._Message):  # noqa: SLF001 - as above
    """The log records of one resource."""

    resource: Resource | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _ExportLogs(json._Message):  # noqa: SLF001 - as above
    """An export request with logs."""

    resource_logs: list[_ResourceLogs] | None = None


_decode_export = msgspec.json.Decoder(_ExportLogs).decode
_decode_record = msgspec.json.Decoder(_LogRecord).decode
_NO_ID: Final = "0"


def _read_json(body: bytes) -> LogEvents:
    request, unread = _json_request(body)
    return LogEvents(msgspec.json.encode(request) if request.resource_spans else b"", unread)


def _json_request(body: bytes) -> tuple[ExportRequest, int]:
    """A request with traces that holds the events of one with logs, and the number of other log records."""
    try:
        request = _decode_export(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Rejected(constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    traces, unread = ExportRequest(resource_spans=[]), 0
    for resource_logs in request.resource_logs or ():
        raw = [record for scope_logs in resource_logs.scope_logs or () for record in scope_logs.log_records or ()]
        spans = [span for record in raw if (span := _json_span(record)) is not None]
        unread += len(raw) - len(spans)
        if spans:
            scope_spans = ScopeSpans(scope=Scope(name=LOG_SCOPE), spans=spans)
            resource = resource_logs.resource or Resource()
            traces.resource_spans.append(ResourceSpans(resource=resource, scope_spans=[scope_spans]))
    return traces, unread


def _json_span(raw: msgspec.Raw) -> SpanMessage | None:
    """The span that stands for an event; None for other log records, and for one that is malformed."""
    try:
        record = _decode_record(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    attribute = next((pair.value.string_value for pair in record.attributes if pair.key == _EVENT_NAME), None)
    name = record.event_name or attribute or ""
    if name not in MESSAGE_EVENTS or not (record.trace_id.strip(_NO_ID) and record.span_id.strip(_NO_ID)):
        return None
    body = record.body
    members = body.kvlist_value.values if body.kvlist_value is not None else []
    text = [Pair(key=_TEXT, value=body)] if body.string_value is not None else []
    pairs = [pair for pair in (*record.attributes, *members) if on_event(name, pair.key)]
    time = record.time_unix_nano if str(record.time_unix_nano) != _NO_ID else record.observed_time_unix_nano
    return SpanMessage(
        trace_id=record.trace_id,
        span_id=sha256(msgspec.json.encode(record)).hexdigest()[: 2 * _ID_BYTES],
        parent_span_id=record.span_id,
        name=name,
        start_time_unix_nano=time,
        end_time_unix_nano=time,
        events=[EventMessage(name=name, attributes=[*pairs, *text])],
    )


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, ResourceDict]]:
    """The spans that stand for the events in a line with logs, each with the attributes of its resource.

    Args:
        line: A line as collectors write it; one without logs has none.
        refuse: Called for an event that is malformed.

    Raises:
        Rejected: The line is no request with logs.
    """
    if is_export(line, "Logs"):
        request, _ = _json_request(line)
        yield from json.spans(msgspec.json.encode(request), refuse)
