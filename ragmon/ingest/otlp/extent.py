"""How many messages a request holds, counted before any of them is made: two bytes can be a whole span."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

MOST: Final = 50_000
"""Spans, or points, of one request with all that holds them; exporters send some hundred, collectors some thousand."""
FIELDS: Final = 4
"""Fields that are looked at for each of those: names, units and schemas stand beside them."""
_MEMBERS: Final = 20
"""Brackets of JSON for each of those, on average."""
_WALKED: Final = 1 << 17
"""Bytes of a request below which nothing that it holds is too much."""
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_GROUPS: Final = (3, 4)
"""Where a group begins and ends: what it holds is walked as if it stood outside, so nothing hides in one."""

Levels = tuple[frozenset[int], ...]
"""The fields that hold messages, level by level."""
SPANS: Final[Levels] = (frozenset({1}), frozenset({2}), frozenset({2}))
"""`resource_spans`, `scope_spans`, `spans`."""
POINTS: Final[Levels] = (frozenset({1}), frozenset({2}), frozenset({2}), frozenset({5, 7, 9, 10, 11}), frozenset({1}))
"""`resource_metrics`, `scope_metrics`, `metrics`, the kinds of them, `data_points`."""


class _CrowdedError(Exception):
    """There is more than anybody sends who means it."""


class _BrokenError(Exception):
    """What follows is no protocol message; whoever parses it says so."""


def is_crowded(body: bytes, levels: Levels, *, json: bool) -> bool:
    r"""Whether a request holds more than anybody sends who means it.

    It takes time in proportion to `MOST`, however large the request is: each field that is looked at counts, be it a
    message or one that nobody knows.

    Args:
        body: What was received, inflated.
        levels: Which fields to follow.
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
        return body.count(b"{") - body.count(b"{\\") + body.count(b"[") > _MEMBERS * MOST
    try:
        _Walk(body).count(0, len(body), levels)
    except _CrowdedError:
        return True
    except (_BrokenError, IndexError):
        return False
    return False


def spans_in(body: bytes) -> int:
    r"""How many spans were begun in a request that breaks off, or that is none from some place on; at least one.

    >>> spans_in(b"\n\x06\x12\x04\x12\x00\x12\x09"), spans_in(b"no request")
    (2, 1)
    """
    walk = _Walk(body)
    with suppress(_CrowdedError, _BrokenError, IndexError):
        walk.count(0, len(body), SPANS)
    return max(1, walk.innermost)


class _Walk:
    """Goes through the fields of a protocol message.

    Args:
        body: The message.

    Attributes:
        innermost: How many messages of the last level were begun so far.
    """

    def __init__(self, body: bytes) -> None:
        self.innermost = 0
        self._body = body
        self._messages = MOST
        self._fields = FIELDS * MOST

    def count(self, at: int, end: int, levels: Levels) -> None:
        """Go through a message.

        Args:
            at: Where it begins.
            end: Where it ends.
            levels: Which of its fields hold messages, and which of theirs.

        Raises:
            _CrowdedError: There are too many messages, or fields.
            _BrokenError, IndexError: It is none.
        """
        body, wanted, deeper = self._body, levels[0], levels[1:]
        while at < end:
            tag, at = _varint(body, at)
            number, kind = tag >> 3, tag & 7
            self._fields -= 1
            if not number:
                raise _BrokenError
            if self._fields < 0:
                raise _CrowdedError
            if kind == _BYTES:
                size, at = _varint(body, at)
                if number in wanted:
                    self._message(at, min(at + size, end), deeper)
                at += size
            else:
                at = _past(body, at, kind)

    def _message(self, at: int, end: int, deeper: Levels) -> None:
        """Count a message, and those in it."""
        self._messages -= 1
        if self._messages < 0:
            raise _CrowdedError
        if not deeper:
            self.innermost += 1
        elif at < end:
            self.count(at, end, deeper)


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
