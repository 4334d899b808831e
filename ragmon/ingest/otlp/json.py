"""OTLP's JSON encoding, as exporters send it and as collectors write it to files, one export request per line.

Ids are hexadecimal, 64-bit integers may be strings, unknown fields are ignored.

Source: OpenTelemetry, OTLP specification 1.5, JSON Protobuf encoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ragmon.core import constants, semconv
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp import repair
from ragmon.ingest.otlp.batch import (
    BUILD,
    MAX_MESSAGES,
    RECORD_SEARCH_LIMIT,
    SERVICE,
    TOO_MANY,
    ExternalSpan,
    NativeSpan,
    SpanBatch,
)
from ragmon.ingest.spans import Event, Span
from ragmon.ingest.spans.model import OWN_SCOPE

_DEEPEST: Final = 32
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
_START_TIME: Final = b'"startTimeUnixNano"'
"""A key that is once in every span; quoted inside a string it has a backslash before its second quotation mark."""
Integer = int | float | str


class _Message(msgspec.Struct, rename="camel", gc=False):
    """A message; its unknown fields are ignored."""


class AttributeValue(_Message):
    """The value of an attribute; one of the fields is set."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Integer | None = None
    double_value: float | str | None = None
    array_value: Array | None = None
    kvlist_value: Pairs | None = None
    bytes_value: str | None = None


class Array(_Message):
    """Values in order."""

    values: list[AttributeValue] = []


class Pair(_Message):
    """An attribute."""

    key: str = ""
    value: AttributeValue = msgspec.field(default_factory=AttributeValue)


class Pairs(_Message):
    """Values by name."""

    values: list[Pair] = []


class EventMessage(_Message):
    """An event of a span."""

    name: str = ""
    attributes: list[Pair] = []


class LinkMessage(_Message):
    """A link to another span."""

    trace_id: str = ""


class SpanStatus(_Message):
    """The status of a span."""

    code: int | str = 0


class SpanMessage(_Message):
    """A span."""

    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    name: str = ""
    start_time_unix_nano: Integer = 0
    end_time_unix_nano: Integer = 0
    attributes: list[Pair] = []
    dropped_attributes_count: int = 0
    events: list[EventMessage] = []
    dropped_events_count: int = 0
    links: list[LinkMessage] = []
    status: SpanStatus = msgspec.field(default_factory=SpanStatus)
    flags: int | None = None


class Scope(_Message):
    """An instrumentation scope."""

    name: str = ""


class ScopeSpans(_Message):
    """The spans of one instrumentation scope."""

    scope: Scope = msgspec.field(default_factory=Scope)
    spans: list[SpanMessage] = []


class Resource(_Message):
    """The resource of a process."""

    attributes: list[Pair] = []


class ResourceSpans(_Message):
    """The spans of one resource."""

    resource: Resource = msgspec.field(default_factory=Resource)
    scope_spans: list[ScopeSpans] = []


class ExportRequest(_Message):
    """An export request with traces."""

    resource_spans: list[ResourceSpans] = []


_decode_export = msgspec.json.Decoder(ExportRequest).decode


def export(line: bytes, refuse: Callable[[Rejected], None]) -> tuple[ExportRequest, bytes]:
    """Decode an export request with traces; invalid UTF-8 and half surrogate pairs are repaired.

    Args:
        line: The request.
        refuse: Called for every span that is no JSON or has a field of a wrong type; the other spans are read.

    Returns:
        The request, and its encoding after repairs and without rejected spans; b"" where it was read unchanged.

    Raises:
        Rejected: The request itself is malformed, not only its spans.
    """
    rejections: list[Rejected] = []
    try:
        request = _decode_request(line, rejections.append)
        result = _as_encoded(request) if rejections else (request, b"")
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        rejections.clear()
        repaired = _repaired(repair.json(line), rejections)
        if repaired is None:
            raise Rejected(rejected.reason, str(rejected), max(1, line.count(_START_TIME))) from None
        result = _as_encoded(repaired)
    for rejection in rejections:
        refuse(rejection)
    return result


def _as_encoded(request: ExportRequest) -> tuple[ExportRequest, bytes]:
    """Encode a request and decode it again; numbers that are not finite become null."""
    try:
        body = msgspec.json.encode(request)
        return _decode_export(body), body
    except (msgspec.MsgspecError, OverflowError, RecursionError):  # a count too large for an integer
        return request, b""


def _repaired(line: bytes, rejections: list[Rejected]) -> ExportRequest | None:
    """Decode a repaired request, if necessary without the spans that are no JSON; None where that fails too."""
    try:
        return _decode_request(line, rejections.append)
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        rejections.clear()
    parts = repair.split_request(line)
    if parts is None:
        return None
    try:
        check_span_count(len(parts.spans))
        request, remaining = msgspec.json.decode(parts.envelope), len(parts.spans)
        for resource_spans in _list_member(request, "resourceSpans"):
            for scope_spans in _list_member(resource_spans, "scopeSpans"):
                if indexes := _list_member(scope_spans, "spans"):
                    remaining -= len(indexes)
                    scope_spans["spans"] = list(
                        _decoded_spans((parts.spans[index] for index in indexes), rejections.append)
                    )
        return None if remaining else _convert_leniently(_without_nulls(request), rejections.append)
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return None


def _decoded_spans(spans: Iterable[bytes], refuse: Callable[[Rejected], None]) -> Iterator[Any]:
    for raw_span in spans:
        try:
            yield repair.span(raw_span)
        except Rejected as rejected:
            refuse(Rejected(rejected.reason, str(rejected)))  # a raised one keeps its traceback


def check_span_count(spans: int) -> None:
    """Check that a request does not have more spans than may be read one by one.

    Args:
        spans: The number of spans.

    Raises:
        Rejected: There are too many.
    """
    if spans > MAX_MESSAGES:
        raise Rejected(TOO_MANY, f"it holds more than {MAX_MESSAGES} spans; send them in several requests", spans)


def _decode_request(line: bytes, refuse: Callable[[Rejected], None]) -> ExportRequest:
    """Decode a request that is JSON.

    Raises:
        Rejected: It is no JSON, or no request.
    """
    try:
        try:
            return _decode_export(line)
        except msgspec.ValidationError:
            return _convert_leniently(_without_nulls(msgspec.json.decode(line)), refuse)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = constants.INVALID_SCHEMA if isinstance(error, msgspec.ValidationError) else constants.MALFORMED_JSON
        raise Rejected(reason, str(error)) from None


def _convert_leniently(request: Any, refuse: Callable[[Rejected], None]) -> ExportRequest:
    """Convert a request by protobuf's looser rules: numbers may be strings, and a malformed span is left out.

    Raises:
        msgspec.ValidationError: It is no request.
    """
    scopes = [
        scope_spans
        for resource_spans in _list_member(request, "resourceSpans")
        for scope_spans in _list_member(resource_spans, "scopeSpans")
    ]
    check_span_count(sum(len(_list_member(scope_spans, "spans")) for scope_spans in scopes))
    for scope_spans in scopes:
        if spans := _list_member(scope_spans, "spans"):
            scope_spans["spans"] = [span for span in spans if _fits(span, refuse)]
    return msgspec.convert(request, ExportRequest, strict=False)


def _list_member(message: Any, name: str) -> list[Any]:
    member = message.get(name) if isinstance(message, dict) else None
    return member if isinstance(member, list) else []


def _fits(span: Any, refuse: Callable[[Rejected], None]) -> bool:
    try:
        msgspec.convert(span, SpanMessage, strict=False)
    except msgspec.ValidationError as error:
        refuse(Rejected(constants.INVALID_SCHEMA, str(error)))
        return False
    return True


def _without_nulls(decoded: Any) -> Any:
    """JSON without members that are null: in protobuf's JSON encoding, null means not set."""
    if isinstance(decoded, dict):
        return {name: _without_nulls(value) for name, value in decoded.items() if value is not None}
    return [_without_nulls(value) for value in decoded] if isinstance(decoded, list) else decoded


def plain(pairs: list[Pair], depth: int = 0) -> dict[str, Any]:
    """Attributes as Python objects; an empty value is None.

    Raises:
        Rejected: A value is nested too deeply, or holds an invalid number.
    """
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: AttributeValue, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Rejected(constants.DEPTH, "an attribute is nested too deeply")
    if value.array_value is not None:
        return [_value(member, depth + 1) for member in value.array_value.values]
    if value.kvlist_value is not None:
        return plain(value.kvlist_value.values, depth + 1)
    if value.int_value is not None:
        return integer("intValue", value.int_value)
    if value.double_value is not None:
        return _double(value.double_value)
    scalars = (value.string_value, value.bool_value, value.bytes_value)
    return next((scalar for scalar in scalars if scalar is not None), None)


def integer(name: str, value: Integer, least: int = _SMALLEST) -> int:
    """An integer of at most 64 bits.

    Args:
        name: The name of the field.
        value: The value in JSON.
        least: The smallest valid integer.

    Raises:
        Rejected: It is no such integer.
    """
    try:
        number = int(value)
    except (ValueError, OverflowError):
        raise wrong_type(name, "an integer", value) from None
    if isinstance(value, float) and number != value:
        raise wrong_type(name, "an integer", value)
    if not least <= number <= _LARGEST:
        raise wrong_type(name, f"an integer of 64 bits from {least} on", value)
    return number


def _double(value: float | str) -> float:
    try:
        return float(value)  # the encoding writes NaN and infinities as strings
    except ValueError:
        raise wrong_type("doubleValue", "a number", value) from None


_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}\Z")
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}\Z")
_NO_PARENT: Final = "0" * 16
"""The parent id of a root span."""
SAMPLED: Final = 1
"""The bit of a span's flags that says that its trace is sampled."""
_FAILED: Final = (2, "2", "STATUS_CODE_ERROR")

ResourceDict = dict[str, Any]
"""The attributes of a resource."""


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, ResourceDict]]:
    """The spans of one request, each with the attributes of its resource; requests with metrics or logs have none.

    Args:
        line: One request.
        refuse: Called for every span that is malformed; the other spans are read.

    Raises:
        Rejected: The request itself is malformed.
    """
    for resource_spans in export(line, refuse)[0].resource_spans:
        try:
            resource = plain(resource_spans.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope_spans.spans) for scope_spans in resource_spans.scope_spans)
            refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        for scope_spans in resource_spans.scope_spans:
            for message in scope_spans.spans:
                try:
                    decoded = span(message, scope_spans.scope.name)
                except Rejected as rejected:
                    refuse(rejected)
                else:
                    yield decoded, resource


def span(message: SpanMessage, scope: str) -> Span:
    """A span in the mapper's form.

    Args:
        message: The message.
        scope: The name of the instrumentation.

    Raises:
        Rejected: The span is malformed.
    """
    parent = message.parent_span_id.lower() or _NO_PARENT
    if not _TRACE_ID.match(message.trace_id):
        raise wrong_type("traceId", "32 hex digits", message.trace_id)
    for name, hex_id in (("spanId", message.span_id), ("parentSpanId", parent)):
        if not _SPAN_ID.match(hex_id):
            raise wrong_type(name, "16 hex digits", hex_id)
    for name, hex_id in (("traceId", message.trace_id), ("spanId", message.span_id)):
        if not hex_id.strip("0"):
            raise wrong_type(name, "an id that is not all zero", hex_id)
    return Span(
        trace_id=message.trace_id.lower(),
        span_id=message.span_id.lower(),
        parent_id=None if parent == _NO_PARENT else parent,
        name=message.name,
        start_ns=integer("startTimeUnixNano", message.start_time_unix_nano, 0),
        end_ns=integer("endTimeUnixNano", message.end_time_unix_nano, 0),
        attributes=plain(message.attributes),
        events=[Event(event.name, plain(event.attributes)) for event in message.events],
        failed=message.status.code in _FAILED,
        dropped=message.dropped_attributes_count,
        dropped_events=message.dropped_events_count,
        scope=scope,
        sampled=None if message.flags is None else bool(message.flags & SAMPLED),
        links=[link.trace_id.lower() for link in message.links] if message.links else (),
    )


def read_json(body: bytes) -> SpanBatch:
    """The spans of a request in JSON; a malformed span is left out and counted.

    Raises:
        Rejected: The request itself is malformed.
    """
    batch = SpanBatch()
    request, batch.body = export(body, batch.refuse)
    check_span_count(
        sum(len(scope.spans) for resource_spans in request.resource_spans for scope in resource_spans.scope_spans)
    )
    batch.spans = batch.rejected.total()
    for resource_spans in request.resource_spans:
        try:
            resource = plain(resource_spans.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope.spans) for scope in resource_spans.scope_spans)
            batch.spans += lost
            batch.refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        values = (resource.get(key) for key in (SERVICE, BUILD))
        service, build = (value if isinstance(value, str) and value else None for value in values)
        for scope in resource_spans.scope_spans:
            _read_scope(batch, scope, service, build)
    return batch


def _read_scope(batch: SpanBatch, scope_spans: ScopeSpans, service: str | None, build: str | None) -> None:
    batch.spans += len(scope_spans.spans)
    for message in scope_spans.spans:
        try:
            _sort_json(batch, message, span(message, scope_spans.scope.name), service, build)
        except Rejected as rejected:
            batch.refuse(rejected)


def _sort_json(batch: SpanBatch, message: SpanMessage, span: Span, service: str | None, build: str | None) -> None:
    """Add a span to the list of the batch it belongs to.

    Raises:
        Rejected: The span holds a record that is not text.
    """
    own, end_ns = span.scope == OWN_SCOPE, span.end_ns
    trace_id, span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    line = _json_record(message.attributes if own else message.attributes[:RECORD_SEARCH_LIMIT])
    if line is not None:
        batch.native.append(NativeSpan(trace_id, span_id, end_ns, line))
    elif own:
        batch.stages += 1
    else:
        is_root = span.parent_id is None
        batch.external.append(
            ExternalSpan(trace_id, span_id, is_root, end_ns, span.failed, service, build, span, span.scope, _identity)
        )


def _json_record(attributes: list[Pair]) -> str | None:
    """The record among the attributes of a span.

    Raises:
        Rejected: It is not text.
    """
    pair = next((pair for pair in attributes if pair.key == semconv.RAGMON_RECORD), None)
    if pair is not None and pair.value.string_value is None:
        raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
    return None if pair is None else pair.value.string_value


def _identity(span: Span, _scope: str) -> Span:
    return span
