"""OTLP's binary encoding, read without making an object of every attribute.

Source: OpenTelemetry, OTLP specification 1.5, and its protocol definitions.

The body of a request with traces, in either of OTLP's encodings, as spans that are read when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon.core import constants, semconv
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp import batch as extent
from ragmon.ingest.otlp import json as lines
from ragmon.ingest.otlp import repair
from ragmon.ingest.otlp.attribute_layouts import ByKind, InBytes, attributes, on_event
from ragmon.ingest.otlp.batch import BUILD, FIRST, SERVICE, ExternalSpan, NativeSpan, SpanBatch, value
from ragmon.ingest.otlp.json import SAMPLED, Pair, ScopeSpans, SpanMessage, check_span_count, export, plain
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.ingest.spans import Event, Span
from ragmon.ingest.spans.model import OWN_SCOPE

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


def parse_message(message: Any, body: bytes) -> Any:
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


def read_protobuf(body: bytes) -> SpanBatch:
    """The spans of a request; text in it that is no UTF-8 is repaired, and a span that is none is left out and counted.

    Raises:
        Rejected: It is none.
    """
    batch = SpanBatch()
    try:
        by_kind, in_bytes = parse_message(ByKind, body), parse_message(InBytes, body)
    except Rejected:
        batch.body = body = _repaired(body, batch)
        by_kind, in_bytes = parse_message(ByKind, body), parse_message(InBytes, body)
    for process, raw_process in zip(by_kind.resource_spans, in_bytes.resource_spans, strict=True):
        service, build = _named(process.resource.attributes)
        for held, raw in zip(process.scope_spans, raw_process.scope_spans, strict=True):
            scope, spans, raw_spans = held.scope.name, held.spans, raw.spans
            for at, told in enumerate(spans):
                try:
                    _sort_protobuf(batch, _Told(told, raw_spans, at), scope, service, build)
                except Rejected as rejected:
                    batch.refuse(rejected)
            batch.spans += len(spans)
    return batch


def _repaired(body: bytes, batch: SpanBatch) -> bytes:
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


def _sort_protobuf(batch: SpanBatch, told: _Told, scope: str, service: str | None, build: str | None) -> None:
    """Put a span where it belongs.

    Raises:
        Rejected: It is none.
    """
    span = told.by_kind
    trace_id, span_id, parent, end_ns = span.trace_id, span.span_id, span.parent_span_id, span.end_time_unix_nano
    is_root = parent in _NOBODY
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise wrong_type("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise wrong_type("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if not is_root and len(parent) != _SPAN_ID_BYTES:
        raise wrong_type("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)
    key = span.attributes.key
    if semconv.RAGMON_RECORD in (key if scope == OWN_SCOPE else key[:FIRST]):
        batch.own.append(NativeSpan(trace_id, span_id, end_ns, _protobuf_record(told)))
    elif scope == OWN_SCOPE:
        batch.stages += 1
    else:
        failed = span.status.code == _FAILED
        batch.foreign.append(
            ExternalSpan(trace_id, span_id, is_root, end_ns, failed, service, build, told, scope, _span)
        )


def _protobuf_record(told: _Told) -> str:
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


def span_bytes(found: ExternalSpan) -> ExternalSpan:
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


def read(body: bytes, *, json: bool) -> SpanBatch:
    """The spans of a request.

    Args:
        body: What was received, inflated.
        json: It is JSON with hexadecimal ids; else it is protobuf.

    Raises:
        Rejected: It is no request: broken off, or of another shape. A span that is none is counted and left out.

    Example:
        >>> body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0","spanId":"0"}]}]}]}'
        >>> batch = read(body, json=True)
        >>> batch.spans, batch.foreign, batch.first
        (1, [], "traceId is 32 hex digits, not '0'")
    """
    return _read_json(body) if json else read_protobuf(body)


def _read_json(body: bytes) -> SpanBatch:
    batch = SpanBatch()
    found, batch.body = export(body, batch.refuse)
    check_span_count(sum(len(scope.spans) for process in found.resource_spans for scope in process.scope_spans))
    batch.spans = batch.rejected.total()
    for process in found.resource_spans:
        try:
            resource = plain(process.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope.spans) for scope in process.scope_spans)
            batch.spans += lost
            batch.refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        service, build = (_text(resource.get(key)) for key in (SERVICE, BUILD))
        for scope in process.scope_spans:
            _read_scope(batch, scope, service, build)
    return batch


def _read_scope(batch: SpanBatch, scope: ScopeSpans, service: str | None, build: str | None) -> None:
    batch.spans += len(scope.spans)
    for told in scope.spans:
        try:
            _sort_json(batch, told, lines.span(told, scope.scope.name), service, build)
        except Rejected as rejected:
            batch.refuse(rejected)


def _sort_json(batch: SpanBatch, told: SpanMessage, span: Span, service: str | None, build: str | None) -> None:
    """Put a span where it belongs.

    Raises:
        Rejected: It holds a record that is no text.
    """
    own, end_ns = span.scope == OWN_SCOPE, span.end_ns
    trace_id, span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    line = _json_record(told.attributes if own else told.attributes[:FIRST])
    if line is not None:
        batch.own.append(NativeSpan(trace_id, span_id, end_ns, line))
    elif own:
        batch.stages += 1
    else:
        is_root = span.parent_id is None
        batch.foreign.append(
            ExternalSpan(trace_id, span_id, is_root, end_ns, span.failed, service, build, span, span.scope, _itself)
        )


def _json_record(attributes: list[Pair]) -> str | None:
    """The record among a span's attributes.

    Raises:
        Rejected: It is no text.
    """
    pair = next((pair for pair in attributes if pair.key == semconv.RAGMON_RECORD), None)
    if pair is not None and pair.value.string_value is None:
        raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
    return None if pair is None else pair.value.string_value


def _itself(span: Span, _scope: str) -> Span:
    return span


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
