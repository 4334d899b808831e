"""How many messages a request holds, counted before any of them is made: two bytes can be a whole span."""

from __future__ import annotations

from typing import Final

MOST: Final = 50_000
"""Spans, or points, of one request with all that holds them; exporters send some hundred, collectors some thousand."""
_MEMBERS: Final = 20
"""Braces of JSON for each of those, on average."""
_WALKED: Final = 1 << 17
"""Bytes of a request below which nothing that it holds is too much."""
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}

Levels = tuple[frozenset[int], ...]
"""The fields that hold messages, level by level."""
SPANS: Final[Levels] = (frozenset({1}), frozenset({2}), frozenset({2}))
"""`resource_spans`, `scope_spans`, `spans`."""
POINTS: Final[Levels] = (frozenset({1}), frozenset({2}), frozenset({2}), frozenset({5, 7, 9, 10, 11}), frozenset({1}))
"""`resource_metrics`, `scope_metrics`, `metrics`, the kinds of them, `data_points`."""


class _BrokenError(Exception):
    """What follows is no protocol message; whoever parses it says so."""


def is_crowded(body: bytes, levels: Levels, *, json: bool) -> bool:
    r"""Whether a request holds more than anybody sends who means it.

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
        return body.count(b"{") > _MEMBERS * MOST
    try:
        return _count(body, 0, len(body), levels, MOST) < 0
    except (_BrokenError, IndexError):
        return False


def _count(body: bytes, at: int, end: int, levels: Levels, left: int) -> int:
    """Go through the fields of a message; returns how many more there may be, below zero where there are too many."""
    wanted, deeper = levels[0], levels[1:]
    while at < end and left >= 0:
        tag, at = _varint(body, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _varint(body, at)
            if tag >> 3 in wanted:
                left -= 1
                if deeper and size:
                    left = _count(body, at, min(at + size, end), deeper, left)
            at += size
        elif kind == 0:
            _, at = _varint(body, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise _BrokenError
    return left


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
