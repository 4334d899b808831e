"""Which row holds the answer of a trace: asked when somebody labels it, days later.

Row by row the ends of its records' trace ids are kept, one blob after the other: an index by id would change a page for
every record, and labels are rare. To find one is to look through eight bytes a record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from ragmon.core.record import Record, decode_entry

WIDTH: Final = 8
"""Bytes of a trace id that are kept: its end, which is random whoever makes ids."""
FEW: Final = 16
"""Ids up to which searching each beats taking everything apart."""


def ends(trace_ids: Iterable[str | None]) -> bytes:
    """The ends of trace ids, one after the other; what is no id has none.

    >>> ends(["0af7651916cd43dd8448eb211c80319c", None, "x"]).hex()
    '8448eb211c80319c'
    """
    return b"".join(end for trace_id in trace_ids if (end := _end(trace_id)))


def _end(trace_id: str | None) -> bytes:
    try:
        found = bytes.fromhex(trace_id or "")
    except ValueError:
        return b""
    return found[-WIDTH:] if len(found) >= WIDTH else b""


def answers(connection: sqlite3.Connection, trace_ids: Collection[str]) -> dict[str, Record]:
    """The records of traces, the newest of each.

    Args:
        connection: The journal.
        trace_ids: In lower case.
    """
    wanted: dict[bytes, list[str]] = {}
    for trace_id in trace_ids:
        if end := _end(trace_id):
            wanted.setdefault(end, []).append(trace_id)
    found: dict[str, Record] = {}
    for seq, held in _rows(connection, set(wanted)):
        (lines,) = connection.execute("SELECT lines FROM rows WHERE seq = ?", (seq,)).fetchone() or (b"",)
        here = {one for end in held for one in wanted[end] if one not in found}
        found |= _among(lines, here) if len(here) > FEW else _one_by_one(lines, here)
        if len(found) == len(trace_ids):
            break
    return found


def _rows(connection: sqlite3.Connection, wanted: set[bytes]) -> Iterator[tuple[int, set[bytes]]]:
    """The rows that seem to hold one of the wanted, the newest first, and which those are."""
    if not wanted:
        return
    for seq, blob in connection.execute("SELECT seq, ids FROM traced ORDER BY seq DESC"):
        if held := _held(blob, wanted):
            yield seq, held


def _held(blob: bytes, wanted: set[bytes]) -> set[bytes]:
    if len(wanted) <= FEW:
        return {end for end in wanted if _is_in(blob, end)}
    return wanted.intersection(blob[at : at + WIDTH] for at in range(0, len(blob), WIDTH))


def _is_in(blob: bytes, end: bytes) -> bool:
    at = blob.find(end)
    while at >= 0 and at % WIDTH:
        at = blob.find(end, at + 1)
    return at >= 0


def _among(lines: bytes, trace_ids: set[str]) -> dict[str, Record]:
    """The last records of many traces among the lines of a row."""
    found = {}
    for line in lines.splitlines():
        with suppress(msgspec.DecodeError):
            record = decode_entry(line)
            if isinstance(record, Record) and record.trace_id in trace_ids:
                found[record.trace_id] = record
    return found


def _one_by_one(lines: bytes, trace_ids: set[str]) -> dict[str, Record]:
    return {trace_id: record for trace_id in trace_ids if (record := _in(lines, trace_id)) is not None}


def _in(lines: bytes, trace_id: str) -> Record | None:
    """The last record of a trace among the lines of a row; labels on it, and tags of that name, are none."""
    needle = b'"trace_id":"%b"' % trace_id.encode()
    at = lines.rfind(needle)
    while at >= 0:
        start, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
        with suppress(msgspec.DecodeError):
            record = decode_entry(lines[start : end if end >= 0 else None])
            if isinstance(record, Record) and record.trace_id == trace_id:
                return record
        at = lines.rfind(needle, 0, start)
    return None
