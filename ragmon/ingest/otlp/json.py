"""OTLP's JSON encoding, as exporters send it and as collectors write it to files, one export request per line.

Ids are hexadecimal, 64-bit integers may be strings, unknown fields are ignored.

Source: OpenTelemetry, OTLP specification 1.5, JSON Protobuf encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon.core import constants
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp import repair
from ragmon.ingest.otlp.batch import SpanBatch, SpanOrigin, check_ids, sorted_spans, spans_of, to_span
from ragmon.ingest.otlp.wire import MAX_ITEMS, TOO_MANY, check_size, too_many
from ragmon.ingest.spans.model import Span

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
_START_TIME: Final = b'"startTimeUnixNano"'
"""A key that is once in every span; quoted inside a string it has a backslash before its second quotation mark."""
_FAILED: Final = (2, "2", "STATUS_CODE_ERROR")
Integer = int | float | str


class _Message(msgspec.Struct, rename="camel", gc=False):
    """A message; its unknown fields are ignored."""


class AttributeValue(_Message):
    """The value of an attribute; one of the fields is set."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_text: Integer | None = msgspec.field(default=None, name="intValue")
    double_text: float | str | None = msgspec.field(default=None, name="doubleValue")
    array_value: Array | None = None
    kvlist_value: Pairs | None = None
    bytes_value: str | None = None

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802 - protobuf's name
        """The name of the field that is set."""
        return next((kind for kind, name in _KINDS if getattr(self, name) is not None), None)

    @property
    def int_value(self) -> int:
        """The integer."""
        return integer("intValue", self.int_text or 0)

    @property
    def double_value(self) -> float:
        """The number; NaN and infinities are strings in JSON."""
        try:
            return float(self.double_text or 0)
        except ValueError:
            raise wrong_type("doubleValue", "a number", self.double_text) from None


_KINDS: Final = (
    ("string_value", "string_value"),
    ("array_value", "array_value"),
    ("kvlist_value", "kvlist_value"),
    ("int_value", "int_text"),
    ("double_value", "double_text"),
    ("bool_value", "bool_value"),
    ("bytes_value", "bytes_value"),
)
"""The kinds of values, and the fields that hold them."""


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

    trace_hex: str = msgspec.field(default="", name="traceId")

    @property
    def trace_id(self) -> bytes:
        """The id of its trace."""
        return _id_bytes("traceId", self.trace_hex, 32)


class SpanStatus(_Message):
    """The status of a span."""

    code_text: int | str = msgspec.field(default=0, name="code")

    @property
    def code(self) -> int:
        """Protobuf's number for an error, 0 for anything else."""
        return Status.STATUS_CODE_ERROR if self.code_text in _FAILED else 0


class SpanMessage(_Message):
    """A span."""

    trace_hex: str = msgspec.field(default="", name="traceId")
    span_hex: str = msgspec.field(default="", name="spanId")
    parent_hex: str = msgspec.field(default="", name="parentSpanId")
    name: str = ""
    start_time: Integer = msgspec.field(default=0, name="startTimeUnixNano")
    end_time: Integer = msgspec.field(default=0, name="endTimeUnixNano")
    attributes: list[Pair] = []
    dropped_attributes_count: int = 0
    events: list[EventMessage] = []
    dropped_events_count: int = 0
    links: list[LinkMessage] = []
    status: SpanStatus = msgspec.field(default_factory=SpanStatus)
    flags: int | None = None

    @property
    def trace_id(self) -> bytes:
        """The id of its trace."""
        return _id_bytes("traceId", self.trace_hex, 32)

    @property
    def span_id(self) -> bytes:
        """Its id."""
        return _id_bytes("spanId", self.span_hex, 16)

    @property
    def parent_span_id(self) -> bytes:
        """The id of its parent; empty for a root."""
        return _id_bytes("parentSpanId", self.parent_hex, 16) if self.parent_hex else b""

    @property
    def start_time_unix_nano(self) -> int:
        """When it began, nanoseconds since the epoch."""
        return integer("startTimeUnixNano", self.start_time, 0)

    @property
    def end_time_unix_nano(self) -> int:
        """When it ended."""
        return integer("endTimeUnixNano", self.end_time, 0)


def _id_bytes(name: str, digits: str, size: int) -> bytes:
    """An id.

    Raises:
        Rejected: It has another number of hexadecimal digits.
    """
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if not 2 * len(found) == len(digits) == size:
        raise wrong_type(name, f"{size} hex digits", digits)
    return found


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
        if len(parts.spans) > MAX_ITEMS:
            raise too_many(len(parts.spans))
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
    count = sum(len(_list_member(scope_spans, "spans")) for scope_spans in scopes)
    if count > MAX_ITEMS:
        raise too_many(count)
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


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans of one request, each with what made it; requests with metrics or logs have none.

    Args:
        line: One request.
        refuse: Called for every span that is malformed; the other spans are read.

    Raises:
        Rejected: The request itself is malformed.
    """
    for message, process in spans_of(export(line, refuse)[0]):
        try:
            check_ids(message)
            yield to_span(message, process.scope), process
        except Rejected as rejected:
            refuse(rejected)


def read_json(body: bytes) -> SpanBatch:
    """The spans of a request in JSON; a malformed span is left out and counted.

    Raises:
        Rejected: The request itself is malformed.
    """
    check_size(body, ExportTraceServiceRequest, json=True)
    batch = SpanBatch()
    request, batch.body = export(body, batch.refuse)
    return sorted_spans(batch, request)
