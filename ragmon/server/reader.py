"""Reading the journal while a server writes it, or when none runs: its types, a reader, and records by trace id.

A label needs the record of its trace, often days later. For each row, one blob holds the ends of its records' trace
ids: an index by id would change a page for every record, and labels are rare. A lookup scans eight bytes per record.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from ragmon.core.record import Record, decode_entry
from ragmon.server.failures import FailurePage, FailureQuery, page
from ragmon.server.quarantine import QuarantinedRequest
from ragmon.server.store import (
    TRACE_ID,
    check_version,
    checksum,
    journal_file,
    open_reader,
    translate_errors,
    translate_read_errors,
)

_LOOKUP_BATCH: Final = 500
"""Ids in one query: SQLite accepts some thousand parameters."""
WIDTH: Final = 8
"""Bytes of a trace id that are kept: its end, which is random whichever system made the id."""
FEW: Final = 16
"""Up to so many ids, searching for each id is faster than decoding everything."""


class JournalRow(NamedTuple):
    """An accepted batch."""

    seq: int
    arrival: float
    n: int
    counts: bytes
    lines: bytes


class PendingRequest(NamedTuple):
    """A request whose spans wait for the rest of their traces, or a record that waits for the reply to its probe.

    Attributes:
        seq: Its sequence number.
        arrival: Its arrival time, seconds since the epoch.
        encoding: Its encoding: `protobuf`, `json`, or `record`.
        body: The request, or the record.
        lowest: The sampling threshold at arrival: the smallest draw that was kept.
        waits: The ids of the traces whose spans wait, one after the other.
    """

    seq: int
    arrival: float
    encoding: str
    body: bytes
    lowest: int = 0
    waits: bytes = b""

    @property
    def traces(self) -> set[bytes]:
        """The ids of the traces whose spans wait."""
        return {self.waits[start : start + TRACE_ID] for start in range(0, len(self.waits), TRACE_ID)}


class Checkpoint(NamedTuple):
    """A saved state of the server."""

    seq: int
    at: float
    data: bytes


class HighWaterMark(NamedTuple):
    """The newest row ever written, even if deleted since."""

    seq: int = 0
    arrival: float = 0.0
    upto: int = 0


def finished_traces(connection: sqlite3.Connection, trace_ids: Iterable[bytes]) -> Iterator[tuple[bytes, float, int]]:
    """The finished traces among the ids: id, time, and whether its spans became records."""
    remaining = iter(trace_ids)
    while batch := list(islice(remaining, _LOOKUP_BATCH)):
        params = ", ".join("?" * len(batch))
        find = f"SELECT trace_id, arrival, recorded FROM assembled WHERE trace_id IN ({params})"  # noqa: S608 - no user input
        yield from connection.execute(find, batch)


def _check(name: str, expected: int, actual: int) -> None:
    if actual != expected:
        raise ValueError(f"{name} is not as it was written")


class JournalReaderBase:
    """Reads a journal row by row: no result is in memory as a whole, and no reader blocks the writer.

    Every method raises a `JournalError` where the journal cannot be read.
    """

    path: Path
    _connection: sqlite3.Connection

    def rows(self, after: int = 0) -> Iterator[JournalRow]:
        """Rows after a number, in order, with the rows that are written meanwhile."""
        with translate_read_errors(self.path):
            for *values, expected in self._each("seq, arrival, n, counts, lines, sum", "rows", after):
                row = JournalRow._make(values)
                _check(f"row {row.seq}", expected, checksum(*row))
                yield row

    def oldest(self) -> float | None:
        """When the first row arrived, seconds since the epoch; None where there is none."""
        with translate_read_errors(self.path):
            row = self._connection.execute("SELECT arrival FROM rows ORDER BY seq LIMIT 1").fetchone()
            return None if row is None else float(row[0])

    def pending_requests(self) -> Iterator[PendingRequest]:
        """Pending requests, in order."""
        with translate_read_errors(self.path):
            for seq, *values, expected in self._each("seq, arrival, form, body, lowest, waits, sum", "bodies", 0):
                _check(f"request {seq}", expected, checksum(*values))
                yield PendingRequest(seq, *values)

    def quarantined(self) -> Iterator[QuarantinedRequest]:
        """Quarantined requests, in the order in which they were quarantined."""
        with translate_read_errors(self.path):
            columns = "seq, arrival, step, trace_id, form, size, body"
            yield from map(QuarantinedRequest._make, self._each(columns, "quarantined", 0))

    def _each(self, columns: str, table: str, after: int) -> Iterator[tuple[Any, ...]]:
        select = f"SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT 1"  # noqa: S608 - no user input
        while (row := self._connection.execute(select, (after,)).fetchone()) is not None:
            after = row[0]
            yield row

    def assembled(self, since: float) -> dict[bytes, float]:
        """The times at which traces became records, by trace id, from `since` on, seconds since the epoch.

        Erased traces that no server has counted yet are included, however old; their times are negative.
        """
        with translate_read_errors(self.path):
            select = "SELECT trace_id, arrival FROM assembled WHERE arrival >= ? OR arrival < 0"
            return dict(self._connection.execute(select, (since,)))

    def finished_trace_ids(self, trace_ids: Iterable[bytes]) -> set[bytes]:
        """The ids of traces that became records or were erased, however long ago."""
        with translate_read_errors(self.path):
            return {trace_id for trace_id, *_ in finished_traces(self._connection, trace_ids)}

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that can be read."""
        with translate_read_errors(self.path):
            return self._first_readable("SELECT seq, at, data FROM checkpoints ORDER BY seq DESC")

    def last_checkpoint(self) -> tuple[int, float] | None:
        """The last row that the newest checkpoint includes, and when it was saved, seconds since the epoch."""
        with translate_read_errors(self.path):
            query = "SELECT seq, at FROM checkpoints ORDER BY seq DESC LIMIT 1"
            saved: tuple[int, float] | None = self._connection.execute(query).fetchone()
            return saved

    def base(self) -> Checkpoint | None:
        """The checkpoint from which a replay of all rows starts; None if no row was ever deleted."""
        with translate_read_errors(self.path):
            first = self._connection.execute("SELECT seq FROM rows ORDER BY seq LIMIT 1").fetchone()
            if (first[0] if first else self._tail_on_disk().seq + 1) == 1:
                return None
            return self._first_readable("SELECT seq, at, data FROM checkpoints ORDER BY seq")

    def _first_readable(self, query: str) -> Checkpoint | None:
        for seq, at, data in self._connection.execute(query):
            with suppress(zlib.error):
                return Checkpoint(seq, at, zlib.decompress(data))
        return None

    def failures(self, query: FailureQuery) -> FailurePage:
        """One page of the requests that failed a gate, newest first."""
        with translate_read_errors(self.path):
            return page(self._connection, query)

    def records_of(self, trace_id: str, limit: int) -> list[Record]:
        """The records of a trace in the order of arrival, the newest ones where there are many."""
        found: list[Record] = []
        with translate_read_errors(self.path):
            for seq, _ in _rows(self._connection, {end} if (end := _end(trace_id)) else set()):
                (lines,) = self._connection.execute("SELECT lines FROM rows WHERE seq = ?", (seq,)).fetchone() or (b"",)
                found = [*_records_in(lines, {trace_id}), *found]
                if len(found) >= limit:
                    break
        return found[-limit:]

    def last(self) -> tuple[int, float]:
        """Number and arrival time of the newest row ever written; zeros before the first one."""
        with translate_read_errors(self.path):
            return self._tail_on_disk()[:2]

    def last_before(self, moment: float) -> int:
        """The number of the last row that arrived before a moment, seconds since the epoch.

        Rows are in order of arrival, so this is a binary search. If none arrived before, the number is that before the
        first row.
        """
        select = "SELECT seq, arrival FROM rows WHERE seq >= ? ORDER BY seq LIMIT 1"
        with translate_read_errors(self.path):
            first_row = self._connection.execute(select, (0,)).fetchone()
            low, high = (first_row[0] - 1 if first_row else 0), self._tail_on_disk().seq
            while low < high:
                middle = (low + high + 1) // 2
                row = self._connection.execute(select, (middle,)).fetchone()
                if row is not None and row[1] < moment:
                    low = row[0]
                else:
                    high = middle - 1
        return low

    def _tail_on_disk(self) -> HighWaterMark:
        row = self._connection.execute("SELECT seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1").fetchone()
        row = row or self._connection.execute("SELECT seq, arrival, upto FROM tail").fetchone()
        return HighWaterMark(*row) if row else HighWaterMark()


class JournalReader(JournalReaderBase):
    """Reads the journal of a state folder; used by one thread at a time.

    Each query sees what is on disk at that time. If the server sets a damaged journal aside, the reader stays with the
    damaged file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = journal_file(folder)
        with translate_errors(self.path):
            self._connection = open_reader(self.path)
            try:
                check_version(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def open_readonly(folder: Path) -> JournalReader:
    """Open a journal for reading; another process may write it."""
    return JournalReader(folder)


def trace_id_ends(trace_ids: Iterable[str | None]) -> bytes:
    """The ends of trace ids, joined; a value that is not a trace id is skipped.

    >>> trace_id_ends(["0af7651916cd43dd8448eb211c80319c", None, "x"]).hex()
    '8448eb211c80319c'
    """
    return b"".join(end for trace_id in trace_ids if (end := _end(trace_id)))


def _end(trace_id: str | None) -> bytes:
    try:
        id_bytes = bytes.fromhex(trace_id or "")
    except ValueError:
        return b""
    return id_bytes[-WIDTH:] if len(id_bytes) >= WIDTH else b""


def records_of_traces(connection: sqlite3.Connection, trace_ids: Collection[str]) -> dict[str, Record]:
    """The newest record of each trace."""
    ids_by_end: dict[bytes, list[str]] = {}
    for trace_id in trace_ids:
        if end := _end(trace_id):
            ids_by_end.setdefault(end, []).append(trace_id)
    records: dict[str, Record] = {}
    for seq, ends in _rows(connection, set(ids_by_end)):
        (lines,) = connection.execute("SELECT lines FROM rows WHERE seq = ?", (seq,)).fetchone() or (b"",)
        missing = {candidate for end in ends for candidate in ids_by_end[end] if candidate not in records}
        records |= {record.trace_id or "": record for record in _records_in(lines, missing)}
        if len(records) == len(trace_ids):
            break
    return records


def _rows(connection: sqlite3.Connection, ends: set[bytes]) -> Iterator[tuple[int, set[bytes]]]:
    """The rows that may contain one of the trace ids, newest first, each with the id ends it contains."""
    if not ends:
        return
    for seq, blob in connection.execute("SELECT seq, ids FROM traced ORDER BY seq DESC"):
        if len(ends) <= FEW:
            row_ends = {end for end in ends if _contains(blob, end)}
        else:
            row_ends = ends.intersection(blob[start : start + WIDTH] for start in range(0, len(blob), WIDTH))
        if row_ends:
            yield seq, row_ends


def _contains(blob: bytes, end: bytes) -> bool:
    start = blob.find(end)
    while start >= 0 and start % WIDTH:
        start = blob.find(end, start + 1)
    return start >= 0


def _records_in(lines: bytes, trace_ids: AbstractSet[str]) -> Iterator[Record]:
    """All records of some traces in the lines of a row, in order."""
    needles = [b'"trace_id":"%b"' % trace_id.encode() for trace_id in trace_ids] if len(trace_ids) <= FEW else [b""]
    for line in lines.split(b"\n"):
        if any(needle in line for needle in needles):
            with suppress(msgspec.DecodeError):
                record = decode_entry(line)
                if isinstance(record, Record) and record.trace_id in trace_ids:
                    yield record
