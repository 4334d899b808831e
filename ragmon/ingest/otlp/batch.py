"""What a request with traces brought.

How many messages a request holds, counted before any of them is made: two bytes can be a whole span.

The value of an attribute as Python has it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.ingest.fields import Rejected
from ragmon.ingest.spans import Span

SERVICE: Final = "service.name"
"""What a process calls its service."""
BUILD: Final = "service.version"
"""What it calls the version of the application."""
FIRST: Final = 2
"""Where another program passed a span of ragmon's on under its own name, the record is among the first attributes. One
that comes later is for the mapper to find: to look through all attributes of every span would take too long."""


class NativeSpan(msgspec.Struct, gc=False):
    """A span of ragmon's that holds a whole record.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        end_ns: When it ended, nanoseconds since the epoch.
        line: The record, one line of the trace contract; nobody has looked into it yet.
    """

    trace_id: bytes
    span_id: bytes
    end_ns: int
    line: str


class ExternalSpan(msgspec.Struct, gc=False):
    """Any other span; its attributes are not read before they are asked for.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: It has no parent.
        end_ns: When it ended, nanoseconds since the epoch.
        failed: Its status is an error.
        service: The service its process belongs to, `service.name`; None where that is unknown.
        build: The version of the application, `service.version`.
        told: The message. One of protobuf's keeps its whole request in memory.
        scope: The name of the instrumentation.
        read: Reads the message.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    end_ns: int
    failed: bool
    service: str | None
    build: str | None
    told: Any
    scope: str
    read: Callable[[Any, str], Span]

    def span(self) -> Span:
        """The span as the mapper reads it, with those attributes alone that it asks for."""
        return self.read(self.told, self.scope)


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request.

    Attributes:
        spans: How many there are in all.
        own: Those that hold whole records.
        foreign: Those of other instrumentations.
        stages: How many were children of ragmon's own, which tell nothing their root does not.
        rejected: How many were none, by reason.
        first: What was wrong with the first of those; "" where there is none.
        body: The request as it was read, where something had to be repaired before; b"" where it is as it came.
    """

    spans: int = 0
    own: list[NativeSpan] = field(default_factory=list)
    foreign: list[ExternalSpan] = field(default_factory=list)
    stages: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    first: str = ""
    body: bytes = b""

    def refuse(self, rejected: Rejected) -> None:
        """Count what is none."""
        if rejected.lost:
            self.first = self.first or str(rejected)
            self.rejected[rejected.reason] += rejected.lost


MOST: Final = 50_000
"""Spans, or points, of one request with all that holds them; exporters send some hundred, collectors some thousand."""
FIELDS: Final = 4
"""Fields that are looked at for each of those: names, units and schemas stand beside them."""
PARTS: Final = 8
"""Attributes, events, links and such for each of those, on average: an empty one takes two bytes, and in memory 200."""
TOO_MANY: Final = "too_many_messages"
"""Why a request is not taken apart: what it holds would fill the memory."""
_MEMBERS: Final = 12
"""Brackets of JSON for each of those, on average."""
_QUOTES: Final = 60
"""Quotation marks of JSON for each of those: an attribute has two brackets, and ten of these."""
_DEEPEST: Final = 100
"""Messages in one another that a parser follows."""
_WALKED: Final = 1 << 17
"""Bytes of a request below which nothing that it holds is too much."""
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_GROUPS: Final = (3, 4)
"""Where a group begins and ends: what it holds is walked as if it stood outside, so nothing hides in one."""


class _Kind(Enum):
    """What a message is counted as."""

    HOLDER = auto()
    """It holds items, or other holders: `MOST` is about it, and so is `FIELDS`."""
    ITEM = auto()
    """A span, a point, a log record: `MOST` is about it."""
    PART = auto()
    """An attribute, an event, a link: `PARTS` is about it."""
    VALUE = auto()
    """One with its attribute."""


class MessageLayout(NamedTuple):
    """A message.

    Attributes:
        kind: What it is counted as.
        inner: Its fields that hold messages.
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
    """Processes, their instrumentations, and the items of those."""
    scopes = _holder({1: _part({3: _PAIR}), 2: item})
    return _holder({1: _holder({1: _part({1: _PAIR, 3: _part()}), 2: scopes})})


SPANS: Final = _request(_item({9: _PAIR, 11: _part({3: _PAIR}), 13: _part({4: _PAIR}), 15: _part()}))
"""`resource_spans`, `scope_spans`, `spans`."""
LOGS: Final = _request(_item({5: _VALUE, 6: _PAIR}))
"""`resource_logs`, `scope_logs`, `log_records`."""
_NUMBERS: Final = _holder({1: _item({5: _EXEMPLAR, 7: _PAIR})})
POINTS: Final = _request(
    _holder(
        {
            5: _NUMBERS,
            7: _NUMBERS,
            9: _holder({1: _item({8: _EXEMPLAR, 9: _PAIR})}),
            10: _holder({1: _item({1: _PAIR, 8: _part(), 9: _part(), 11: _EXEMPLAR})}),
            11: _holder({1: _item({6: _part(), 7: _PAIR})}),
            12: _PAIR,
        }
    )
)
"""`resource_metrics`, `scope_metrics`, `metrics`, the kinds of them, `data_points`."""


class _CrowdedError(Exception):
    """There is more than anybody sends who means it."""


class _BrokenError(Exception):
    """What follows is no protocol message; whoever parses it says so."""


def is_crowded(body: bytes, layout: MessageLayout, *, json: bool) -> bool:
    r"""Whether a request holds more than anybody sends who means it.

    It takes time in proportion to `MOST`, however large the request is: each field that is looked at counts, be it a
    message or one that nobody knows.

    Args:
        body: What was received, inflated.
        layout: Of such a request.
        json: It is JSON; else it is protobuf.

    >>> is_crowded(b"\n\x04\x12\x02\x12\x00", SPANS, json=False)
    False
    >>> many = 100_000 * b"\n\x00"
    >>> is_crowded(many, SPANS, json=False)
    True
    """
    if len(body) < _WALKED:
        return False
    if json:
        # JSON in a text has a backslash before the quotation mark that follows, and is no message.
        brackets = body.count(b"{") - body.count(b"{\\") + body.count(b"[")
        return brackets > _MEMBERS * MOST or body.count(b'"') - body.count(b'\\"') > _QUOTES * MOST
    try:
        _Walk(body).message(0, len(body), layout)
    except _CrowdedError:
        return True
    return False


def spans_in(body: bytes) -> int:
    r"""How many spans were begun in a request that breaks off, or that is none from some place on; at least one.

    >>> spans_in(b"\n\x06\x12\x04\x12\x00\x12\x09"), spans_in(b"no request")
    (2, 1)
    """
    walk = _Walk(body)
    with suppress(_CrowdedError):
        walk.message(0, len(body), SPANS)
    return max(1, walk.items)


class _Budget:
    """How many messages and fields there may yet be of a kind.

    Args:
        messages: How many messages.
    """

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.fields = FIELDS * messages


class _Walk:
    """Goes through the fields of a protocol message.

    Args:
        body: The message.

    Attributes:
        items: How many items were begun so far.
    """

    def __init__(self, body: bytes) -> None:
        self.items = 0
        self._body = body
        self._items, self._parts = _Budget(MOST), _Budget(PARTS * MOST)

    def message(self, at: int, end: int, layout: MessageLayout, depth: int = 0) -> None:
        """Go through a message, as far as it is one: a parser may read what stands behind it.

        Args:
            at: Where it begins.
            end: Where it ends.
            layout: Of it.
            depth: In how many others it stands.

        Raises:
            _CrowdedError: There are too many messages, or fields.
        """
        if depth <= _DEEPEST:
            with suppress(_BrokenError, IndexError):
                self._fields(at, end, layout, depth)

    def _fields(self, at: int, end: int, layout: MessageLayout, depth: int) -> None:
        """Count the fields of a message, and what stands in them."""
        body, inner = self._body, layout.inner
        budget = self._items if layout.kind is _Kind.HOLDER else self._parts
        while at < end:
            tag, at = _varint(body, at)
            number, kind = tag >> 3, tag & 7
            budget.fields -= 1
            if not number:
                raise _BrokenError
            if budget.fields < 0:
                raise _CrowdedError
            if kind == _BYTES:
                size, at = _varint(body, at)
                if number in inner:
                    self._count(inner[number].kind)
                    if size:
                        self.message(at, min(at + size, end), inner[number], depth + 1)
                at += size
            else:
                at = _past(body, at, kind)

    def _count(self, kind: _Kind) -> None:
        """Count a message."""
        if kind is _Kind.VALUE:
            return
        budget = self._parts if kind is _Kind.PART else self._items
        budget.messages -= 1
        self.items += kind is _Kind.ITEM
        if budget.messages < 0:
            raise _CrowdedError


def _past(body: bytes, at: int, kind: int) -> int:
    """Where a value ends that is no bytes."""
    if kind == 0:
        return _varint(body, at)[1]
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind not in _GROUPS:
        raise _BrokenError
    return at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and what follows it."""
    found = body[at]
    at += 1
    if found < 0x80:
        return found, at
    found, shift = found & 0x7F, 7
    while shift < 64:
        part = body[at]
        at += 1
        found |= (part & 0x7F) << shift
        if part < 0x80:
            return found, at
        shift += 7
    raise _BrokenError


_NOTHING: Final = (None, "string_value_strindex")
"""Values that say nothing: none, and a place in a table that traces do not have."""


def value(told: Any) -> Any:
    """An attribute's value; protobuf itself limits how deep it is nested. Bytes are text, as in the JSON encoding.

    Args:
        told: A message `AnyValue`.
    """
    kind = told.WhichOneof("value")
    if kind in _NOTHING:
        return None
    found = getattr(told, kind)
    if kind == "array_value":
        return [value(inner) for inner in found.values]
    if kind == "kvlist_value":
        return {pair.key: value(pair.value) for pair in found.values}
    return base64.b64encode(found).decode() if kind == "bytes_value" else found
