"""OTLP's protobuf encoding, and `read` for a request with traces in either encoding.

Spans are decoded only when they are needed, and without an object for every attribute.

Source: OpenTelemetry, OTLP specification 1.5, and its protocol definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon.core import constants, semconv
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp import batch as extent
from ragmon.ingest.otlp import repair
from ragmon.ingest.otlp.attribute_layouts import ByKind, InBytes, attributes, on_event
from ragmon.ingest.otlp.batch import BUILD, RECORD_SEARCH_LIMIT, SERVICE, ExternalSpan, NativeSpan, SpanBatch, value
from ragmon.ingest.otlp.json import SAMPLED, read_json
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.ingest.spans import Event, Span
from ragmon.ingest.spans.model import OWN_SCOPE

_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_NO_TRACE: Final = bytes(_TRACE_ID_BYTES)
_NO_SPAN: Final = bytes(_SPAN_ID_BYTES)
_NO_PARENT: Final = (b"", _NO_SPAN)
"""The parent ids of a root span."""
_SpanByKind: Final = type(ByKind().resource_spans.add().scope_spans.add().spans.add())
_SpanInBytes: Final = type(InBytes().resource_spans.add().scope_spans.add().spans.add())
"""The classes of a single span, with its attributes by kind of value, and in bytes."""
_RECORD_PAIR: Final = re.compile(
    re.escape(KeyValue(key=semconv.RAGMON_RECORD).SerializeToString()) + rb"\x12[\x80-\xff]*[\x00-\x7f]\n"
).match
"""How an attribute with a record begins: its key, the size of its value, and the tag of a text."""
_PARENT_SIZES: Final = (0, _SPAN_ID_BYTES)
_RECORD_PREFIX: Final = KeyValue(key=semconv.RAGMON_RECORD).SerializeToString() + b"\x12"
"""How an attribute with a record begins: its key, and the tag of its value (field 2, length-delimited)."""
_STATUS_ERROR: Final = Status.STATUS_CODE_ERROR


def parse_message(message: Any, body: bytes) -> Any:
    """Parse a protocol message.

    Args:
        message: Its class.
        body: The bytes.

    Raises:
        Rejected: The body is no such message.
    """
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}") from None


class _ParsedSpan(msgspec.Struct, gc=False):
    """A span, parsed in two ways.

    Attributes:
        by_kind: The message with its attributes by kind of value.
        raw: All spans of its scope with their attributes in bytes.
        at: The index of the span among those.
    """

    by_kind: Any
    raw: Any
    at: int


def read_protobuf(body: bytes) -> SpanBatch:
    """The spans of a request in protobuf; invalid UTF-8 is repaired, and a malformed span is left out and counted.

    Raises:
        Rejected: The request itself is malformed.
    """
    batch = SpanBatch()
    try:
        by_kind, in_bytes = parse_message(ByKind, body), parse_message(InBytes, body)
    except Rejected:
        batch.body = body = _repaired(body, batch)
        by_kind, in_bytes = parse_message(ByKind, body), parse_message(InBytes, body)
    for resource_at, raw_resource_spans in enumerate(in_bytes.resource_spans):
        for scope_at, raw_scope_spans in enumerate(raw_resource_spans.scope_spans):
            raw_spans = raw_scope_spans.spans
            native = _native_spans(raw_spans) if raw_scope_spans.scope.name == OWN_SCOPE else None
            if native is not None:
                batch.native += native
            else:
                _sort_scope(batch, by_kind.resource_spans[resource_at], scope_at, raw_spans)
            batch.spans += len(raw_spans)
    return batch


def native_ids(body: bytes) -> list[tuple[bytes, bytes]] | None:
    """The trace and span ids of a request of ragmon's own records, in half the time that it takes to read it.

    Args:
        body: The decompressed body.

    Returns:
        None where the request holds anything else, so that it has to be read.
    """
    try:
        request = InBytes.FromString(body)
    except DecodeError:
        return None
    found = []
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            if scope_spans.scope.name != OWN_SCOPE:
                return None
            for span in scope_spans.spans:
                trace_id, span_id = span.trace_id, span.span_id
                has_ids = len(trace_id) == _TRACE_ID_BYTES and len(span_id) == _SPAN_ID_BYTES
                has_parent = len(span.parent_span_id) in (0, _SPAN_ID_BYTES)
                is_usual = has_ids and has_parent and trace_id != _NO_TRACE and span_id != _NO_SPAN
                if not is_usual or not any(map(_RECORD_PAIR, span.attributes)):
                    return None
                found.append((trace_id, span_id))
    return found


def _native_spans(raw_spans: Iterable[Any]) -> list[NativeSpan] | None:
    """The spans of ragmon's own scope; None if one of them is not written as ragmon writes its records.

    To look only at what a record needs takes half as long as to sort the spans.
    """
    found = []
    for span in raw_spans:
        trace_id, span_id = span.trace_id, span.span_id
        pair = next((pair for pair in span.attributes if pair.startswith(_RECORD_PREFIX)), None)
        has_ids = len(trace_id) == _TRACE_ID_BYTES and len(span_id) == _SPAN_ID_BYTES
        if pair is None or not has_ids or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return None
        if len(span.parent_span_id) not in _PARENT_SIZES:
            return None
        line = KeyValue.FromString(pair).value.string_value
        if not line:
            return None
        found.append(NativeSpan(trace_id, span_id, span.end_time_unix_nano, line))
    return found


def _sort_scope(batch: SpanBatch, resource_spans: Any, at: int, raw_spans: Any) -> None:
    """Add the spans of one instrumentation to the lists of the batch they belong to.

    Args:
        batch: The batch.
        resource_spans: What one process sent, with attributes by kind of value.
        at: The index of the instrumentation.
        raw_spans: Its spans with their attributes in bytes.
    """
    service, build = _service_and_build(resource_spans.resource.attributes)
    scope_spans = resource_spans.scope_spans[at]
    for index, span in enumerate(scope_spans.spans):
        try:
            _sort_protobuf(batch, _ParsedSpan(span, raw_spans, index), scope_spans.scope.name, service, build)
        except Rejected as rejected:
            batch.refuse(rejected)


def _repaired(body: bytes, batch: SpanBatch) -> bytes:
    """A request with its text repaired, without the malformed spans, which the batch counts.

    Raises:
        Rejected: The request itself is malformed, not only its spans.
    """
    try:
        return repair.protobuf(body, batch)
    except DecodeError as error:
        lost = extent.spans_in(body)
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}", lost) from None


def _service_and_build(resource: Iterable[Any]) -> tuple[str | None, str | None]:
    """The service name and version among the resource attributes."""
    attributes = {pair.key: pair.value.string_value for pair in resource}
    return attributes.get(SERVICE) or None, attributes.get(BUILD) or None


def _sort_protobuf(batch: SpanBatch, parsed: _ParsedSpan, scope: str, service: str | None, build: str | None) -> None:
    """Add a span to the list of the batch it belongs to.

    Raises:
        Rejected: The span is malformed.
    """
    span = parsed.by_kind
    trace_id, span_id, parent, end_ns = span.trace_id, span.span_id, span.parent_span_id, span.end_time_unix_nano
    is_root = parent in _NO_PARENT
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise wrong_type("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise wrong_type("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if not is_root and len(parent) != _SPAN_ID_BYTES:
        raise wrong_type("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)
    keys = span.attributes.key
    if semconv.RAGMON_RECORD in (keys if scope == OWN_SCOPE else keys[:RECORD_SEARCH_LIMIT]):
        batch.native.append(NativeSpan(trace_id, span_id, end_ns, _protobuf_record(parsed)))
    elif scope == OWN_SCOPE:
        batch.stages += 1
    else:
        failed = span.status.code == _STATUS_ERROR
        batch.external.append(
            ExternalSpan(trace_id, span_id, is_root, end_ns, failed, service, build, parsed, scope, _span)
        )


def _protobuf_record(parsed: _ParsedSpan) -> str:
    """The record among the attributes of a span.

    Raises:
        Rejected: It is not text.
    """
    pairs = map(KeyValue.FromString, parsed.raw[parsed.at].attributes)
    record_value = next((pair.value for pair in pairs if pair.key == semconv.RAGMON_RECORD), None)
    if record_value is None or record_value.WhichOneof("value") != "string_value":
        raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
    line: str = record_value.string_value
    return line


def _span(parsed: _ParsedSpan, scope: str) -> Span:
    """A span in the mapper's form.

    Args:
        parsed: The message.
        scope: The name of the instrumentation.
    """
    span = parsed.by_kind
    parent, events, flags = span.parent_span_id, span.events, span.flags
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        None if parent in _NO_PARENT else parent.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        attributes(scope, span.attributes.value, parsed.raw[parsed.at]),
        [_event(event) for event in events] if events else [],
        span.status.code == _STATUS_ERROR,
        span.dropped_attributes_count,
        span.dropped_events_count,
        scope,
        bool(flags & SAMPLED) if flags else None,
        [link.trace_id.hex() for link in span.links] if span.links else (),
    )


def span_bytes(span: ExternalSpan) -> ExternalSpan:
    """The same span as bytes of its own: a buffered span must not keep its whole parsed request in memory."""
    if span.read is not _span:
        return span
    parsed = span.message
    return msgspec.structs.replace(span, message=parsed.raw[parsed.at].SerializeToString(), read=_from_bytes)


def _from_bytes(raw_span: bytes, scope: str) -> Span:
    return _span(_ParsedSpan(_SpanByKind.FromString(raw_span), [_SpanInBytes.FromString(raw_span)], 0), scope)


def _event(message: Any) -> Event:
    name = message.name
    return Event(name, {pair.key: value(pair.value) for pair in message.attributes if on_event(name, pair.key)})


def read(body: bytes, *, json: bool) -> SpanBatch:
    """The spans of a request.

    Args:
        body: The decompressed body.
        json: Whether the body is JSON with hexadecimal ids; otherwise it is protobuf.

    Raises:
        Rejected: The request is truncated or malformed. A span that is malformed is counted and left out.

    Examples:
        >>> body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0","spanId":"0"}]}]}]}'
        >>> batch = read(body, json=True)
        >>> batch.spans, batch.external, batch.first
        (1, [], "traceId is 32 hex digits, not '0'")
    """
    return read_json(body) if json else read_protobuf(body)
