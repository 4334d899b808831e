"""OTLP as JSON, one export request a line, as collectors write traces to files.

Source: OpenTelemetry, OTLP specification 1.5, JSON Protobuf encoding: ids are hexadecimal, 64-bit integers may be
texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ragmon import names
from ragmon.ingest.rejected import Rejected, misfit
from ragmon.spans import Event, Span

_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}\Z")
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}\Z")
_REQUEST: Final = re.compile(rb'\s*\{\s*"resource(?:Spans|Metrics|Logs)"')
_NOBODY: Final = "0" * 16
"""The parent of a span that has none."""
_SAMPLED: Final = 1
"""The bit of a span's flags that says its trace is kept."""
_FAILED: Final = (2, "STATUS_CODE_ERROR")
_DEEPEST: Final = 32
Integer = int | str


class _Message(msgspec.Struct, rename="camel", gc=False):
    """A message whose unknown fields are passed over."""


class _Value(_Message):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Integer | None = None
    double_value: float | str | None = None
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None
    bytes_value: str | None = None


class _Array(_Message):
    values: list[_Value] = []


class _Pair(_Message):
    key: str = ""
    value: _Value = msgspec.field(default_factory=_Value)


class _Pairs(_Message):
    values: list[_Pair] = []


class _Event(_Message):
    name: str = ""
    attributes: list[_Pair] = []


class _Status(_Message):
    code: int | str = 0


class _Span(_Message):
    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str = ""
    start_time_unix_nano: Integer = 0
    end_time_unix_nano: Integer = 0
    attributes: list[_Pair] = []
    dropped_attributes_count: int = 0
    events: list[_Event] = []
    dropped_events_count: int = 0
    status: _Status = msgspec.field(default_factory=_Status)
    flags: int | None = None


class _Scope(_Message):
    name: str = ""


class _ScopeSpans(_Message):
    scope: _Scope = msgspec.field(default_factory=_Scope)
    spans: list[_Span] = []


class _Resource(_Message):
    attributes: list[_Pair] = []


class _ResourceSpans(_Message):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_ScopeSpans] = []


class _Export(_Message):
    resource_spans: list[_ResourceSpans] = []


_decode = msgspec.json.Decoder(_Export).decode

Resource = dict[str, Any]
"""What the process says of itself."""


def is_export(line: bytes) -> bool:
    """Whether a line looks like an OTLP request.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    return _REQUEST.match(line) is not None


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, Resource]]:
    """The spans of one request, each with what its process says of itself; metrics and logs have none.

    Args:
        line: One request.
        refuse: Told of every span that is none; the others are read.

    Raises:
        Rejected: It is no request.
    """
    try:
        export = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = names.INVALID_SCHEMA if isinstance(error, msgspec.ValidationError) else names.MALFORMED_JSON
        raise Rejected(reason, str(error)) from None
    for process in export.resource_spans:
        resource = _plain(process.resource.attributes)
        for scope in process.scope_spans:
            for told in scope.spans:
                try:
                    span = _span(told, scope.scope.name)
                except Rejected as rejected:
                    refuse(rejected)
                else:
                    yield span, resource


def _span(told: _Span, scope: str) -> Span:
    if not _TRACE_ID.match(told.trace_id):
        raise misfit("traceId", "32 hex digits", told.trace_id)
    parent = told.parent_span_id.lower() or _NOBODY
    for name, found in (("spanId", told.span_id), ("parentSpanId", parent)):
        if not _SPAN_ID.match(found):
            raise misfit(name, "16 hex digits", found)
    return Span(
        trace_id=told.trace_id.lower(),
        span_id=told.span_id.lower(),
        parent_id=None if parent == _NOBODY else parent,
        name=told.name,
        start_ns=_integer("startTimeUnixNano", told.start_time_unix_nano),
        end_ns=_integer("endTimeUnixNano", told.end_time_unix_nano),
        attributes=_plain(told.attributes),
        events=[Event(event.name, _plain(event.attributes)) for event in told.events],
        failed=told.status.code in _FAILED,
        dropped=told.dropped_attributes_count,
        dropped_events=told.dropped_events_count,
        scope=scope,
        sampled=None if told.flags is None else bool(told.flags & _SAMPLED),
    )


def _plain(pairs: list[_Pair], depth: int = 0) -> dict[str, Any]:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: _Value, depth: int) -> Any:
    """An attribute's value; None where it is empty.

    Raises:
        Rejected: It is nested too deeply, or holds a number that is none.
    """
    if depth > _DEEPEST:
        raise Rejected(names.DEPTH, "an attribute is nested too deeply")
    if value.array_value is not None:
        return [_value(inner, depth + 1) for inner in value.array_value.values]
    if value.kvlist_value is not None:
        return _plain(value.kvlist_value.values, depth + 1)
    if value.int_value is not None:
        return _integer("intValue", value.int_value)
    if value.double_value is not None:
        return _double(value.double_value)
    found = (value.string_value, value.bool_value, value.bytes_value)
    return next((one for one in found if one is not None), None)


def _integer(name: str, value: Integer) -> int:
    try:
        return int(value)
    except ValueError:
        raise misfit(name, "an integer", value) from None


def _double(value: float | str) -> float:
    try:
        return float(value)  # the encoding writes NaN and infinities as texts
    except ValueError:
        raise misfit("doubleValue", "a number", value) from None
