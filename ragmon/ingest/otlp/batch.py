"""The spans of one OTLP request, and the limits on what a request may hold.

The messages of a request are counted before any of them becomes an object, because two bytes can be a whole span.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.ingest.fields import Rejected
from ragmon.ingest.spans import Span

SERVICE: Final = "service.name"
"""The resource attribute with the name of the service."""
BUILD: Final = "service.version"
"""The resource attribute with the version of the application."""
RECORD_SEARCH_LIMIT: Final = 2
"""In a span of ragmon that another program forwards under its own scope name, the record is looked for among this many
first attributes: to search all attributes of every span would take too long. The mapper finds a later one."""


class NativeSpan(msgspec.Struct, gc=False):
    """A span of ragmon that holds a whole record.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        end_ns: The end time, nanoseconds since the epoch.
        line: The record, one line of the trace contract, not decoded yet.
    """

    trace_id: bytes
    span_id: bytes
    end_ns: int
    line: str


class ExternalSpan(msgspec.Struct, gc=False):
    """A span of another instrumentation; its attributes are decoded only on request.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: Whether it has no parent.
        end_ns: The end time, nanoseconds since the epoch.
        failed: Whether its status is an error.
        service: The service of its process, `service.name`; None where that is unknown.
        build: The version of the application, `service.version`.
        message: The message. A protobuf message keeps its whole request in memory.
        scope: The name of the instrumentation.
        read: Decodes the message.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    end_ns: int
    failed: bool
    service: str | None
    build: str | None
    message: Any
    scope: str
    read: Callable[[Any, str], Span]

    def span(self) -> Span:
        """The span in the mapper's form, with only the attributes the mapper reads."""
        return self.read(self.message, self.scope)


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request.

    Attributes:
        spans: The number of all spans.
        native: The spans of ragmon that hold whole records.
        external: The spans of other instrumentations.
        stages: The number of child spans of ragmon; they add nothing to the record on their root.
        rejected: The number of rejected spans, by reason.
        first: The details of the first rejection; "" where there is none.
        body: The request as it was read, where it had to be repaired first; b"" where it was read unchanged.
    """

    spans: int = 0
    native: list[NativeSpan] = field(default_factory=list)
    external: list[ExternalSpan] = field(default_factory=list)
    stages: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    first: str = ""
    body: bytes = b""

    def refuse(self, rejected: Rejected) -> None:
        """Count a rejection."""
        if rejected.lost_spans:
            self.first = self.first or str(rejected)
            self.rejected[rejected.reason] += rejected.lost_spans


MAX_MESSAGES: Final = 50_000
"""The maximum number of spans or points of one request, together with the messages that contain them; exporters send
some hundred, collectors some thousand."""
MAX_FIELDS_PER_MESSAGE: Final = 4
"""The maximum number of fields per such message, on average; names, units and schema URLs are among them."""
MAX_PARTS_PER_MESSAGE: Final = 8
"""The maximum number of attributes, events, links and similar parts per such message, on average: an empty one takes
two bytes, and 200 in memory."""
TOO_MANY: Final = "too_many_messages"
"""The reason for a request that is rejected undecoded: its messages would fill the memory."""
_BRACKETS_PER_MESSAGE: Final = 12
"""The maximum number of opening brackets of JSON per such message, on average."""
_QUOTES_PER_MESSAGE: Final = 60
"""The maximum number of JSON quotation marks per message: an attribute has two brackets and ten quotation marks."""
_MAX_DEPTH: Final = 100
"""The maximum depth of nested messages that a parser follows."""
_WALKED: Final = 1 << 17
"""A shorter request is not checked: it cannot hold too much."""
_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
_GROUPS: Final = (3, 4)
"""The wire types that start and end a group. Its fields are counted as fields of the message around it."""


class _Kind(IntEnum):
    """The limit that a message counts against."""

    HOLDER = 0
    """It contains items or other holders; counts against `MAX_MESSAGES` and `MAX_FIELDS_PER_MESSAGE`."""
    ITEM = 1
    """A span, a point, a log record; counts against `MAX_MESSAGES`."""
    PART = 2
    """An attribute, an event, a link; counts against `MAX_PARTS_PER_MESSAGE`."""
    VALUE = 3
    """The value of an attribute; counted together with the attribute."""


class MessageLayout(NamedTuple):
    """The layout of a message type.

    Attributes:
        kind: The limit it counts against.
        inner: Its fields that hold messages, by field number.
    """

    kind: _Kind
    inner: dict[int, MessageLayout]


def _part(inner: dict[int, MessageLayout] | None = None) -> MessageLayout:
    return MessageLayout(_Kind.PART, inner or {})


def _item(inner: dict[int, MessageLayout]) -> MessageLayout:
    return MessageLayout(_Kind.ITEM, inner)


def _holder(inner: dict[int, MessageLayout]) -> MessageLayout:
    return MessageLayout(_Kind.HOLDER, inner)


_VALUE: Final = MessageLayout(_Kind.VALUE, {})
_PAIR: Final = _part({2: _VALUE})
_VALUE.inner.update({5: _part({1: _VALUE}), 6: _part({1: _PAIR})})
_EXEMPLAR: Final = _part({7: _PAIR})


def _request(item: MessageLayout) -> MessageLayout:
    """The layout of a request: resources, their scopes, and the items of those."""
    scopes = _holder({1: _part({3: _PAIR}), 2: item})
    return _holder({1: _holder({1: _part({1: _PAIR, 3: _part()}), 2: scopes})})


SPANS: Final = _request(_item({9: _PAIR, 11: _part({3: _PAIR}), 13: _part({4: _PAIR}), 15: _part()}))
"""`resource_spans`, `scope_spans`, `spans`."""
LOGS: Final = _request(_item({5: _VALUE, 6: _PAIR}))
"""`resource_logs`, `scope_logs`, `log_records`."""
_NUMBER_POINTS: Final = _holder({1: _item({5: _EXEMPLAR, 7: _PAIR})})
POINTS: Final = _request(
    _holder(
        {
            5: _NUMBER_POINTS,
            7: _NUMBER_POINTS,
            9: _holder({1: _item({8: _EXEMPLAR, 9: _PAIR})}),
            10: _holder({1: _item({1: _PAIR, 8: _part(), 9: _part(), 11: _EXEMPLAR})}),
            11: _holder({1: _item({6: _part(), 7: _PAIR})}),
            12: _PAIR,
        }
    )
)
"""`resource_metrics`, `scope_metrics`, `metrics`, the kinds of metrics, `data_points`."""


class _TooManyError(Exception):
    """The message exceeds a limit on messages or fields."""


class _MalformedError(Exception):
    """The rest is no protocol message; the parser reports that."""


def exceeds_limits(body: bytes, layout: MessageLayout, *, json: bool) -> bool:
    r"""Whether a request holds more messages than any regular exporter or collector sends.

    The check takes time in proportion to `MAX_MESSAGES`, however large the request is: each field counts against the
    limits, known or unknown, message or not.

    Args:
        body: The decompressed body.
        layout: The layout of such a request.
        json: Whether the body is JSON; otherwise it is protobuf.

    >>> exceeds_limits(b"\n\x04\x12\x02\x12\x00", SPANS, json=False)
    False
    >>> many = 100_000 * b"\n\x00"
    >>> exceeds_limits(many, SPANS, json=False)
    True
    """
    if len(body) < _WALKED:
        return False
    if json:
        # JSON inside a string has a backslash after the bracket, before the quotation mark; it is no message.
        brackets = body.count(b"{") - body.count(b"{\\") + body.count(b"[")
        return (
            brackets > _BRACKETS_PER_MESSAGE * MAX_MESSAGES
            or body.count(b'"') - body.count(b'\\"') > _QUOTES_PER_MESSAGE * MAX_MESSAGES
        )
    return _scan(body, layout).exceeds


def spans_in(body: bytes) -> int:
    r"""The number of spans that start in a truncated or malformed request; at least one.

    >>> spans_in(b"\n\x06\x12\x04\x12\x00\x12\x09"), spans_in(b"no request")
    (2, 1)
    """
    return max(1, _scan(body, SPANS).items)


def _scan(body: bytes, layout: MessageLayout) -> _FieldScanner:
    """How much a protocol message holds."""
    scanner = _FieldScanner(body)
    try:
        scanner.message(0, len(body), layout)
    except _TooManyError:
        scanner.exceeds = True
    return scanner


class _Budget:
    """The number of messages and fields of one kind that may still follow.

    Args:
        messages: The number of messages.
    """

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.fields = MAX_FIELDS_PER_MESSAGE * messages


class _FieldScanner:
    """Counts the messages and fields of a protocol message without decoding it.

    Args:
        body: The message.

    Attributes:
        items: The number of items that have started so far.
        exceeds: Whether there are too many messages or fields; then the rest was not looked at.
    """

    def __init__(self, body: bytes) -> None:
        self.items, self.exceeds = 0, False
        self._body = body
        self._items, self._parts = _Budget(MAX_MESSAGES), _Budget(MAX_PARTS_PER_MESSAGE * MAX_MESSAGES)

    def message(self, at: int, end: int, layout: MessageLayout, depth: int = 0) -> None:
        """Scan a message up to its end or its first malformed field: a parser may still read what follows it.

        Args:
            at: Where it starts.
            end: Where it ends.
            layout: Its layout.
            depth: The number of messages around it.

        Raises:
            _TooManyError: There are too many messages or fields.
        """
        if depth > _MAX_DEPTH:
            return
        try:  # `suppress` would take as long as a short message
            self._fields(at, end, layout, depth)
        except (_MalformedError, IndexError):
            return

    def _fields(self, at: int, end: int, layout: MessageLayout, depth: int) -> None:
        """Count the fields of a message, and the messages in them."""
        body, inner = self._body, layout.inner
        budget = self._items if layout.kind is _Kind.HOLDER else self._parts
        while at < end:
            tag = body[at]
            if tag < 0x80:  # nearly every tag: a call for each would be a third of the work
                at += 1
            else:
                tag, at = _varint(body, at)
            number, kind = tag >> 3, tag & 7
            budget.fields -= 1
            if not number:
                raise _MalformedError
            if budget.fields < 0:
                raise _TooManyError
            if kind == _LENGTH_DELIMITED:
                size = body[at]
                if size < 0x80:
                    at += 1
                else:
                    size, at = _varint(body, at)
                if number in inner:
                    self._count(inner[number].kind)
                    if size:
                        self.message(at, min(at + size, end), inner[number], depth + 1)
                at += size
            else:
                at = _skip_value(body, at, kind)

    def _count(self, kind: _Kind) -> None:
        """Count a message."""
        if kind is _Kind.VALUE:
            return
        budget = self._parts if kind is _Kind.PART else self._items
        budget.messages -= 1
        self.items += kind is _Kind.ITEM
        if budget.messages < 0:
            raise _TooManyError


def _skip_value(body: bytes, at: int, kind: int) -> int:
    """The end of a value that is not length-delimited."""
    if kind == 0:
        return _varint(body, at)[1]
    if kind in _FIXED_SIZES:
        return at + _FIXED_SIZES[kind]
    if kind not in _GROUPS:
        raise _MalformedError
    return at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; returns the number and the position after it."""
    number = body[at]
    at += 1
    if number < 0x80:
        return number, at
    number, shift = number & 0x7F, 7
    while shift < 64:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise _MalformedError


_NO_VALUE: Final = (None, "string_value_strindex")
"""Kinds of values that count as unset: none, and an index into a string table that traces do not have."""


def value(any_value: Any) -> Any:
    """The value of an attribute as a Python object; bytes become base64 text, as in the JSON encoding.

    protobuf itself limits how deep values are nested.

    Args:
        any_value: A message `AnyValue`.
    """
    kind = any_value.WhichOneof("value")
    if kind in _NO_VALUE:
        return None
    content = getattr(any_value, kind)
    if kind == "array_value":
        return [value(member) for member in content.values]
    if kind == "kvlist_value":
        return {pair.key: value(pair.value) for pair in content.values}
    return base64.b64encode(content).decode() if kind == "bytes_value" else content
