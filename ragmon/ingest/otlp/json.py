"""OTLP's JSON encoding: ids are hexadecimal, 64-bit integers may be texts, what is unknown is passed over.

Source: OpenTelemetry, OTLP specification 1.5, JSON Protobuf encoding.

OTLP as JSON, one export request a line, as collectors write traces to files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ragmon.core import constants
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp import repair
from ragmon.ingest.otlp.batch import MOST, TOO_MANY
from ragmon.ingest.spans import Event, Span

_DEEPEST: Final = 32
_LEAST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
_STARTED: Final = b'"startTimeUnixNano"'
"""What stands once in every span; quoted in a text it has a backslash before its second quotation mark."""
Integer = int | float | str


class _Message(msgspec.Struct, rename="camel", gc=False):
    """A message whose unknown fields are passed over."""


class AttributeValue(_Message):
    """An attribute's value: one of these."""

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
    """Something that happened in a span."""

    name: str = ""
    attributes: list[Pair] = []


class LinkMessage(_Message):
    """Another span that a span is about."""

    trace_id: str = ""


class SpanStatus(_Message):
    """How a span ended."""

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
    """An instrumentation."""

    name: str = ""


class ScopeSpans(_Message):
    """The spans of one instrumentation."""

    scope: Scope = msgspec.field(default_factory=Scope)
    spans: list[SpanMessage] = []


class Resource(_Message):
    """What a process says of itself."""

    attributes: list[Pair] = []


class ResourceSpans(_Message):
    """The spans of one process."""

    resource: Resource = msgspec.field(default_factory=Resource)
    scope_spans: list[ScopeSpans] = []


class ExportRequest(_Message):
    """A request."""

    resource_spans: list[ResourceSpans] = []


_decode = msgspec.json.Decoder(ExportRequest).decode


def export(line: bytes, refuse: Callable[[Rejected], None]) -> tuple[ExportRequest, bytes]:
    """A request that brings traces; text that is no UTF-8 is repaired, and half of a surrogate pair.

    Args:
        line: The request.
        refuse: Told of every span that does not fit its type, or is no JSON; the others are read.

    Returns:
        The request, and how it is written without what had to be repaired or left out; b"" where it is as it came.

    Raises:
        Rejected: It is none, whatever its spans hold.
    """
    refused: list[Rejected] = []
    try:
        found = _strict(line, refused.append)
        read = _as_written(found) if refused else (found, b"")
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        refused.clear()
        other = _repaired(repair.json(line), refused)
        if other is None:
            raise Rejected(rejected.reason, str(rejected), max(1, line.count(_STARTED))) from None
        read = _as_written(other)
    for one in refused:
        refuse(one)
    return read


def _as_written(found: ExportRequest) -> tuple[ExportRequest, bytes]:
    """A request as it is read again from what is written of it: numbers that are none are null there."""
    try:
        body = msgspec.json.encode(found)
        return _decode(body), body
    except (msgspec.MsgspecError, OverflowError, RecursionError):  # a count beyond all integers
        return found, b""


def _repaired(line: bytes, refused: list[Rejected]) -> ExportRequest | None:
    """A request that is JSON now, else the spans in it that are; None where there would be none if all were."""
    try:
        return _strict(line, refused.append)
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        refused.clear()
    parts = repair.split_request(line)
    if parts is None:
        return None
    try:
        check_span_count(len(parts.spans))
        found, left = msgspec.json.decode(parts.rest), len(parts.spans)
        for process in _members(found, "resourceSpans"):
            for scope in _members(process, "scopeSpans"):
                if places := _members(scope, "spans"):
                    left -= len(places)
                    scope["spans"] = list(_readable((parts.spans[place] for place in places), refused.append))
        return None if left else _forgiving(_told(found), refused.append)
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return None


def _readable(spans: Iterable[bytes], refuse: Callable[[Rejected], None]) -> Iterator[Any]:
    for told in spans:
        try:
            yield repair.span(told)
        except Rejected as rejected:
            refuse(Rejected(rejected.reason, str(rejected)))  # one that was raised keeps what it was raised over


def check_span_count(spans: int) -> None:
    """Nothing, where each of so many spans may be looked at by itself.

    Args:
        spans: How many there are.

    Raises:
        Rejected: There are too many.
    """
    if spans > MOST:
        raise Rejected(TOO_MANY, f"it holds more than {MOST} spans; send them in several requests", spans)


def _strict(line: bytes, refuse: Callable[[Rejected], None]) -> ExportRequest:
    """A request that is JSON.

    Raises:
        Rejected: It is none.
    """
    try:
        try:
            return _decode(line)
        except msgspec.ValidationError:
            return _forgiving(_told(msgspec.json.decode(line)), refuse)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = constants.INVALID_SCHEMA if isinstance(error, msgspec.ValidationError) else constants.MALFORMED_JSON
        raise Rejected(reason, str(error)) from None


def _forgiving(found: Any, refuse: Callable[[Rejected], None]) -> ExportRequest:
    """A request by protobuf's looser rules: numbers may be texts, and one bad span spoils no other.

    Raises:
        msgspec.ValidationError: It is none.
    """
    scopes = [scope for process in _members(found, "resourceSpans") for scope in _members(process, "scopeSpans")]
    check_span_count(sum(len(_members(scope, "spans")) for scope in scopes))
    for scope in scopes:
        if spans := _members(scope, "spans"):
            scope["spans"] = [span for span in spans if _fits(span, refuse)]
    return msgspec.convert(found, ExportRequest, strict=False)


def _members(message: Any, name: str) -> list[Any]:
    found = message.get(name) if isinstance(message, dict) else None
    return found if isinstance(found, list) else []


def _fits(span: Any, refuse: Callable[[Rejected], None]) -> bool:
    try:
        msgspec.convert(span, SpanMessage, strict=False)
    except msgspec.ValidationError as error:
        refuse(Rejected(constants.INVALID_SCHEMA, str(error)))
        return False
    return True


def _told(found: Any) -> Any:
    """JSON without members that are null: in protobuf's encoding those are not set."""
    if isinstance(found, dict):
        return {name: _told(value) for name, value in found.items() if value is not None}
    return [_told(value) for value in found] if isinstance(found, list) else found


def plain(pairs: list[Pair], depth: int = 0) -> dict[str, Any]:
    """Attributes as Python has them; an empty value is None.

    Raises:
        Rejected: One is nested too deeply, or holds a number that is none.
    """
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: AttributeValue, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Rejected(constants.DEPTH, "an attribute is nested too deeply")
    if value.array_value is not None:
        return [_value(inner, depth + 1) for inner in value.array_value.values]
    if value.kvlist_value is not None:
        return plain(value.kvlist_value.values, depth + 1)
    if value.int_value is not None:
        return integer("intValue", value.int_value)
    if value.double_value is not None:
        return _double(value.double_value)
    found = (value.string_value, value.bool_value, value.bytes_value)
    return next((one for one in found if one is not None), None)


def integer(name: str, value: Integer, least: int = _LEAST) -> int:
    """A whole number of at most 64 bits.

    Args:
        name: What it is called.
        value: How it is written.
        least: The smallest one there may be.

    Raises:
        Rejected: It is none.
    """
    try:
        found = int(value)
    except (ValueError, OverflowError):
        raise wrong_type(name, "an integer", value) from None
    if isinstance(value, float) and found != value:
        raise wrong_type(name, "an integer", value)
    if not least <= found <= _LARGEST:
        raise wrong_type(name, f"an integer of 64 bits from {least} on", value)
    return found


def _double(value: float | str) -> float:
    try:
        return float(value)  # the encoding writes NaN and infinities as texts
    except ValueError:
        raise wrong_type("doubleValue", "a number", value) from None


_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}\Z")
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}\Z")
_REQUEST: Final = re.compile(rb'\s*\{\s*"resource(?:Spans|Metrics|Logs)"')
_NOBODY: Final = "0" * 16
"""The parent of a span that has none."""
SAMPLED: Final = 1
"""The bit of a span's flags that says its trace is kept."""
_FAILED: Final = (2, "2", "STATUS_CODE_ERROR")

ResourceDict = dict[str, Any]
"""What the process says of itself."""


def is_export(line: bytes) -> bool:
    """Whether a line looks like an OTLP request.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    return _REQUEST.match(line) is not None


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, ResourceDict]]:
    """The spans of one request, each with what its process says of itself; metrics and logs have none.

    Args:
        line: One request.
        refuse: Told of every span that is none; the others are read.

    Raises:
        Rejected: It is no request.
    """
    for process in export(line, refuse)[0].resource_spans:
        try:
            resource = plain(process.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope.spans) for scope in process.scope_spans)
            refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        for scope in process.scope_spans:
            for told in scope.spans:
                try:
                    found = span(told, scope.scope.name)
                except Rejected as rejected:
                    refuse(rejected)
                else:
                    yield found, resource


def span(told: SpanMessage, scope: str) -> Span:
    """A span as the mapper reads it.

    Args:
        told: The message.
        scope: The name of the instrumentation.

    Raises:
        Rejected: It is none.
    """
    parent = told.parent_span_id.lower() or _NOBODY
    if not _TRACE_ID.match(told.trace_id):
        raise wrong_type("traceId", "32 hex digits", told.trace_id)
    for name, found in (("spanId", told.span_id), ("parentSpanId", parent)):
        if not _SPAN_ID.match(found):
            raise wrong_type(name, "16 hex digits", found)
    for name, found in (("traceId", told.trace_id), ("spanId", told.span_id)):
        if not found.strip("0"):
            raise wrong_type(name, "an id that is not all zero", found)
    return Span(
        trace_id=told.trace_id.lower(),
        span_id=told.span_id.lower(),
        parent_id=None if parent == _NOBODY else parent,
        name=told.name,
        start_ns=integer("startTimeUnixNano", told.start_time_unix_nano, 0),
        end_ns=integer("endTimeUnixNano", told.end_time_unix_nano, 0),
        attributes=plain(told.attributes),
        events=[Event(event.name, plain(event.attributes)) for event in told.events],
        failed=told.status.code in _FAILED,
        dropped=told.dropped_attributes_count,
        dropped_events=told.dropped_events_count,
        scope=scope,
        sampled=None if told.flags is None else bool(told.flags & SAMPLED),
        links=[link.trace_id.lower() for link in told.links] if told.links else (),
    )
