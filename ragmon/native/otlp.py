"""The spans of a plain OTLP request in protobuf, found by the native core without an object for each part of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ragmon.native.library import native_core

ROOT: Final = 1
"""The flag of a span without a parent."""
FAILED: Final = 2
"""The flag of a span whose status is an error."""
OWN: Final = 4
"""The flag of a span in ragmon's own scope."""
HAS_RECORD: Final = 8
"""The flag of a span of ragmon that holds a record."""
_ROW: Final = Struct("=16s8sQ10I")
"""A row of src/otlp.rs; its last number is not used."""
_ROOM: Final = 1024
"""Rows that are made room for at first; exporters send 512 spans at most, unless they are told otherwise."""
_SMALLEST_SPAN: Final = 28
"""Bytes of a span that holds its ids and nothing else."""


class SpanRow(NamedTuple):
    """A span of a request. Where its parts begin and end is in bytes of the request.

    Attributes:
        trace_id: 16 bytes, not all zero.
        span_id: 8 bytes, not all zero.
        end_ns: The end time, nanoseconds since the epoch.
        flags: `ROOT`, `FAILED`, `OWN`, `HAS_RECORD`.
        start: Where the span begins.
        end: Where it ends.
        record_start: Where the text of its record begins.
        record_end: Where it ends.
        scope_start: Where the name of its scope begins.
        scope_end: Where it ends.
        resource_start: Where its resource begins.
        resource_end: Where it ends.
        unused: 0.
    """

    trace_id: bytes
    span_id: bytes
    end_ns: int
    flags: int
    start: int
    end: int
    record_start: int
    record_end: int
    scope_start: int
    scope_end: int
    resource_start: int
    resource_end: int
    unused: int


def plain_spans(body: bytes) -> Iterator[SpanRow] | None:
    """The spans of a request in their order.

    Args:
        body: The decompressed body.

    Returns:
        None where the core is not there, or the request holds anything that exporters do not write: Python reads it.
    """
    brief = native_core().brief
    if brief is None:
        return None
    room = min(_ROOM, len(body) // _SMALLEST_SPAN)
    while True:
        rows = (ctypes.c_uint64 * (room * _ROW.size // 8))()
        count = brief.ragmon_otlp_spans(body, len(body), rows, room)
        if count < 0:
            return None
        if count <= room:
            return map(SpanRow._make, _ROW.iter_unpack(memoryview(rows).cast("B")[: count * _ROW.size]))
        room = count
