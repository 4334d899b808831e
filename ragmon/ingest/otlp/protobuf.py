"""OTLP's binary encoding, read without making an object of every attribute.

Source: OpenTelemetry, OTLP specification 1.5, and its protocol definitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon.core import constants, semconv
from ragmon.ingest.otlp import extent, repair
from ragmon.ingest.otlp.attributes import attributes
from ragmon.ingest.otlp.batch import BUILD, FIRST, SERVICE, Batch, Foreign, Own
from ragmon.ingest.otlp.lines import SAMPLED
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.ingest.otlp.values import value
from ragmon.ingest.otlp.wanted import on_event
from ragmon.ingest.otlp.wire import ByKind, InBytes
from ragmon.ingest.rejected import Rejected, misfit
from ragmon.spans import Event, Span
from ragmon.spans.model import OWN_SCOPE

_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_NO_TRACE: Final = bytes(_TRACE_ID_BYTES)
_NO_SPAN: Final = bytes(_SPAN_ID_BYTES)
_NOBODY: Final = (b"", _NO_SPAN)
"""The parents of a span that has none."""
_BY_KIND: Final = type(ByKind().resource_spans.add().scope_spans.add().spans.add())
_IN_BYTES: Final = type(InBytes().resource_spans.add().scope_spans.add().spans.add())
"""A span alone, in either way."""
_FAILED: Final = Status.STATUS_CODE_ERROR


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


class _Told(msgspec.Struct, gc=False):
    """A span, parsed in two ways.

    Attributes:
        by_kind: The message, with its attributes by kind.
        raw: The spans of its scope with their attributes in bytes.
        at: Which of those it is.
    """

    by_kind: Any
    raw: Any
    at: int


def read(body: bytes) -> Batch:
    """The spans of a request; text in it that is no UTF-8 is repaired, and a span that is none is left out and counted.

    Raises:
        Rejected: It is none.
    """
    batch = Batch()
    try:
        by_kind, in_bytes = parsed(ByKind, body), parsed(InBytes, body)
    except Rejected:
        batch.body = body = _repaired(body, batch)
        by_kind, in_bytes = parsed(ByKind, body), parsed(InBytes, body)
    for process, raw_process in zip(by_kind.resource_spans, in_bytes.resource_spans, strict=True):
        service, build = _named(process.resource.attributes)
        for held, raw in zip(process.scope_spans, raw_process.scope_spans, strict=True):
            scope, spans, raw_spans = held.scope.name, held.spans, raw.spans
            for at, told in enumerate(spans):
                try:
                    _sort(batch, _Told(told, raw_spans, at), scope, service, build)
                except Rejected as rejected:
                    batch.refuse(rejected)
            batch.spans += len(spans)
    return batch


def _repaired(body: bytes, batch: Batch) -> bytes:
    """A request whose texts are UTF-8, without the spans that are none: the batch counts those.

    Raises:
        Rejected: It is none, whatever its spans hold.
    """
    try:
        return repair.protobuf(body, batch)
    except DecodeError as error:
        lost = extent.spans_in(body)
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}", lost) from None


def _named(resource: Iterable[Any]) -> tuple[str | None, str | None]:
    """What a process says of itself: its service and the version of it."""
    held = {pair.key: pair.value.string_value for pair in resource}
    return held.get(SERVICE) or None, held.get(BUILD) or None


def _sort(batch: Batch, told: _Told, scope: str, service: str | None, build: str | None) -> None:
    """Put a span where it belongs.

    Raises:
        Rejected: It is none.
    """
    span = told.by_kind
    trace_id, span_id, parent, end_ns = span.trace_id, span.span_id, span.parent_span_id, span.end_time_unix_nano
    is_root = parent in _NOBODY
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise misfit("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise misfit("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if not is_root and len(parent) != _SPAN_ID_BYTES:
        raise misfit("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)
    key = span.attributes.key
    if semconv.RAGMON_RECORD in (key if scope == OWN_SCOPE else key[:FIRST]):
        batch.own.append(Own(trace_id, span_id, end_ns, _line(told)))
    elif scope == OWN_SCOPE:
        batch.stages += 1
    else:
        failed = span.status.code == _FAILED
        batch.foreign.append(Foreign(trace_id, span_id, is_root, end_ns, failed, service, build, told, scope, _span))


def _line(told: _Told) -> str:
    """The record among a span's attributes.

    Raises:
        Rejected: It is no text.
    """
    pairs = map(KeyValue.FromString, told.raw[told.at].attributes)
    found = next((pair.value for pair in pairs if pair.key == semconv.RAGMON_RECORD), None)
    if found is None or found.WhichOneof("value") != "string_value":
        raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
    line: str = found.string_value
    return line


def _span(told: _Told, scope: str) -> Span:
    """A span as the mapper reads it.

    Args:
        told: The message.
        scope: The name of the instrumentation.
    """
    span = told.by_kind
    parent, events, flags = span.parent_span_id, span.events, span.flags
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        None if parent in _NOBODY else parent.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        attributes(scope, span.attributes.value, told.raw[told.at]),
        [_event(event) for event in events] if events else [],
        span.status.code == _FAILED,
        span.dropped_attributes_count,
        span.dropped_events_count,
        scope,
        bool(flags & SAMPLED) if flags else None,
        [link.trace_id.hex() for link in span.links] if span.links else (),
    )


def packed(found: Foreign) -> Foreign:
    """The same span by itself: what waits keeps its own bytes in memory, and not its whole request, parsed."""
    if found.read is not _span:
        return found
    told = found.told
    return msgspec.structs.replace(found, told=told.raw[told.at].SerializeToString(), read=_unpacked)


def _unpacked(told: bytes, scope: str) -> Span:
    return _span(_Told(_BY_KIND.FromString(told), [_IN_BYTES.FromString(told)], 0), scope)


def _event(told: Any) -> Event:
    name = told.name
    return Event(name, {pair.key: value(pair.value) for pair in told.attributes if on_event(name, pair.key)})
