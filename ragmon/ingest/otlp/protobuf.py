"""OTLP's binary encoding, read without making an object of every attribute.

Source: OpenTelemetry, OTLP specification 1.5, and its protocol definitions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon import attributes as keys
from ragmon import names
from ragmon.ingest.otlp.batch import BUILD, FIRST, SERVICE, Batch, Foreign, Own
from ragmon.ingest.otlp.lines import SAMPLED
from ragmon.ingest.otlp.wanted import ON_SPAN, on_event
from ragmon.ingest.rejected import Rejected, misfit
from ragmon.spans import Event, Span
from ragmon.spans.model import OWN_SCOPE

MALFORMED_PROTOBUF: Final = "malformed_protobuf"
"""Why a body is no request: it is no such message, or text in it is no UTF-8."""
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_NO_TRACE: Final = bytes(_TRACE_ID_BYTES)
_NO_SPAN: Final = bytes(_SPAN_ID_BYTES)
_NOBODY: Final = (b"", _NO_SPAN)
"""The parents of a span that has none."""
_FAILED: Final = Status.STATUS_CODE_ERROR
_NOTHING: Final = (None, "string_value_strindex")
"""Values that say nothing: none, and a place in a table that traces do not have."""


def parsed(message: Any, body: bytes) -> Any:
    """A protocol message.

    Args:
        message: Its class.
        body: What was received.

    Raises:
        Rejected: It is none.
    """
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}") from None


def read(body: bytes) -> Batch:
    """The spans of a request.

    Raises:
        Rejected: It is none.
    """
    batch = Batch()
    for process in parsed(ExportTraceServiceRequest, body).resource_spans:
        service, build = _named(process.resource.attributes)
        for held in process.scope_spans:
            scope = held.scope.name
            for told in held.spans:
                try:
                    _sort(batch, told, scope, service, build)
                except Rejected as rejected:
                    batch.refuse(rejected)
            batch.spans += len(held.spans)
    return batch


def _named(resource: Iterable[Any]) -> tuple[str | None, str | None]:
    """What a process says of itself: its service and the version of it."""
    held = {pair.key: pair.value.string_value for pair in resource}
    return held.get(SERVICE) or None, held.get(BUILD) or None


def _sort(batch: Batch, told: Any, scope: str, service: str | None, build: str | None) -> None:
    """Put a span where it belongs.

    Raises:
        Rejected: It is none.
    """
    trace_id, span_id, parent, end_ns = told.trace_id, told.span_id, told.parent_span_id, told.end_time_unix_nano
    is_root = parent in _NOBODY
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise misfit("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise misfit("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if not is_root and len(parent) != _SPAN_ID_BYTES:
        raise misfit("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)
    line = _line(told.attributes if scope == OWN_SCOPE else told.attributes[:FIRST])
    if line is not None:
        batch.own.append(Own(trace_id, span_id, end_ns, line))
    elif scope == OWN_SCOPE:
        batch.stages += 1
    else:
        failed = told.status.code == _FAILED
        batch.foreign.append(Foreign(trace_id, span_id, is_root, end_ns, failed, service, build, told, scope, span))


def _line(attributes: Iterable[Any]) -> str | None:
    """The record among a span's attributes.

    Raises:
        Rejected: It is no text.
    """
    for pair in attributes:
        if pair.key == keys.RAGMON_RECORD:
            if pair.value.WhichOneof("value") != "string_value":
                raise Rejected(names.INVALID_SCHEMA, f"{keys.RAGMON_RECORD} is text")
            line: str = pair.value.string_value
            return line
    return None


def span(told: Any, scope: str) -> Span:
    """A span as the mapper reads it.

    Args:
        told: The message.
        scope: The name of the instrumentation.
    """
    parent, flags = told.parent_span_id, told.flags
    return Span(
        trace_id=told.trace_id.hex(),
        span_id=told.span_id.hex(),
        parent_id=None if parent in _NOBODY else parent.hex(),
        name=told.name,
        start_ns=told.start_time_unix_nano,
        end_ns=told.end_time_unix_nano,
        attributes=_attributes(told.attributes),
        events=[_event(event) for event in told.events],
        failed=told.status.code == _FAILED,
        dropped=told.dropped_attributes_count,
        dropped_events=told.dropped_events_count,
        scope=scope,
        sampled=bool(flags & SAMPLED) if flags else None,
    )


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key = pair.key
        if ON_SPAN[key]:
            value = pair.value
            found[key] = value.string_value or _value(value)
    return found


def _event(told: Any) -> Event:
    name = told.name
    return Event(name, {pair.key: _value(pair.value) for pair in told.attributes if on_event(name, pair.key)})


def _value(value: Any) -> Any:
    """An attribute's value; protobuf itself limits how deep it is nested. Bytes are text, as in the JSON encoding."""
    kind = value.WhichOneof("value")
    if kind in _NOTHING:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [_value(inner) for inner in found.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in found.values}
    return base64.b64encode(found).decode() if kind == "bytes_value" else found
