"""What a journal holds, and how it is read.

The journal as others read it: pages, commands, replays, while a server writes or when none does.

Which row holds the answer of a trace: asked when somebody labels it, days later.

Row by row the ends of its records' trace ids are kept, one blob after the other: an index by id would change a page for
every record, and labels are rare. To find one is to look through eight bytes a record.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from ragmon.core.record import Record, decode_entry
from ragmon.server.journal import files, store
from ragmon.server.journal.errors import translate_errors, translate_errors_of, translate_read_errors
from ragmon.server.journal.failures import FailurePage, FailureQuery, page
from ragmon.server.journal.quarantine import QuarantinedRequest
from ragmon.server.journal.schema import TRACE_ID, checksum

_TOGETHER: Final = 500
"""Ids looked up at once: SQLite takes some thousand parameters."""


class JournalRow(NamedTuple):
    """An accepted batch.

    Attributes:
        seq: Its number.
        arrival: When it came, seconds since the epoch.
        n: How many records it had when it came.
        counts: The books that go with it, as they were given.
        lines: Its lines (`ragmon.core.record`), each with its newline.
    """

    seq: int
    arrival: float
    n: int
    counts: bytes
    lines: bytes


class RowCounts(NamedTuple):
    """A row without its lines."""

    seq: int
    arrival: float
    n: int
    counts: bytes


class PendingRequest(NamedTuple):
    """A request whose spans wait for the rest of their traces, or a record that waits for the reply to its probe.

    Attributes:
        seq: Its number.
        arrival: When it came, seconds since the epoch.
        form: How it is written: `protobuf`, `json`, or `record`.
        body: The request, or the record.
        lowest: The smallest draw that was kept when it came.
        waits: The ids of the traces whose spans wait, one after the other.
    """

    seq: int
    arrival: float
    form: str
    body: bytes
    lowest: int = 0
    waits: bytes = b""

    @property
    def traces(self) -> set[bytes]:
        """The traces whose spans wait."""
        return {self.waits[at : at + TRACE_ID] for at in range(0, len(self.waits), TRACE_ID)}


class Checkpoint(NamedTuple):
    """A state that was saved.

    Attributes:
        seq: The last row it knows of.
        at: When it was saved, seconds since the epoch.
        data: The state.
    """

    seq: int
    at: float
    data: bytes


class HighWaterMark(NamedTuple):
    """The newest row there ever was.

    Attributes:
        seq: Its number.
        arrival: When it came, seconds since the epoch.
        upto: Bytes of lines of it and all rows before it.
    """

    seq: int = 0
    arrival: float = 0.0
    upto: int = 0


def finished_traces(connection: sqlite3.Connection, trace_ids: Iterable[bytes]) -> Iterator[tuple[bytes, float, int]]:
    """Which traces are done, when they were, and whether their spans became records."""
    wanted = iter(trace_ids)
    while some := list(islice(wanted, _TOGETHER)):
        places = ", ".join("?" * len(some))
        find = f"SELECT trace_id, arrival, recorded FROM assembled WHERE trace_id IN ({places})"  # noqa: S608 - ours
        yield from connection.execute(find, some)


def _check(what: str, expected: int, found: int) -> None:
    if found != expected:
        raise ValueError(f"{what} is not as it was written")


class JournalReaderBase:
    """Reads a journal, one thing at a time: no answer is in memory as a whole, no reader holds up the one who writes.

    Attributes:
        path: The journal's file.
    """

    path: Path
    _connection: sqlite3.Connection

    def rows(self, after: int = 0, *, upto: int | None = None) -> Iterator[JournalRow]:
        """Rows in order.

        Args:
            after: The number of the last row that is not wanted.
            upto: That of the last one that is; None for all there are, those that come meanwhile too.

        Raises:
            JournalError: They cannot be read.
        """
        rows = self._rows(after)
        return translate_errors_of(self.path, rows if upto is None else takewhile(lambda row: row.seq <= upto, rows))

    def _rows(self, after: int) -> Iterator[JournalRow]:
        for *values, expected in self._each("seq, arrival, n, counts, lines, sum", "rows", after):
            _check(f"row {values[0]}", expected, checksum(*values))
            yield JournalRow._make(values)

    def books(self, after: int = 0) -> Iterator[RowCounts]:
        """Rows in order without their lines, which are not read.

        Args:
            after: The number of the last row that is not wanted.

        Raises:
            JournalError: They cannot be read.
        """
        return translate_errors_of(
            self.path, map(RowCounts._make, self._each("seq, arrival, n, counts", "rows", after))
        )

    def bodies(self) -> Iterator[PendingRequest]:
        """Requests whose spans wait, in order.

        Raises:
            JournalError: They cannot be read.
        """
        return translate_errors_of(self.path, self._bodies())

    def _bodies(self) -> Iterator[PendingRequest]:
        for seq, *values, expected in self._each("seq, arrival, form, body, lowest, waits, sum", "bodies", 0):
            _check(f"request {seq}", expected, checksum(*values))
            yield PendingRequest(seq, *values)

    def quarantined(self) -> Iterator[QuarantinedRequest]:
        """Requests that are set aside, in the order in which that was done.

        Raises:
            JournalError: They cannot be read.
        """
        columns = "seq, arrival, step, trace_id, form, size, body"
        return translate_errors_of(self.path, map(QuarantinedRequest._make, self._each(columns, "quarantined", 0)))

    def _each(self, columns: str, table: str, after: int) -> Iterator[tuple[Any, ...]]:
        seek = f"SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT 1"  # noqa: S608 - ours
        while (found := self._connection.execute(seek, (after,)).fetchone()) is not None:
            after = found[0]
            yield found

    def assembled(self, since: float) -> dict[bytes, float]:
        """When traces became records, by their ids; those of a time and after it, seconds since the epoch.

        Those that were forgotten and that no server has counted yet are among them, however old; theirs is below zero.

        Raises:
            JournalError: They cannot be read.
        """
        with translate_read_errors(self.path):
            some = "SELECT trace_id, arrival FROM assembled WHERE arrival >= ? OR arrival < 0"
            return dict(self._connection.execute(some, (since,)))

    def known(self, trace_ids: Iterable[bytes]) -> set[bytes]:
        """Those traces that became records already, or were forgotten, however long ago.

        Raises:
            JournalError: They cannot be read.
        """
        with translate_read_errors(self.path):
            return {trace_id for trace_id, *_ in finished_traces(self._connection, trace_ids)}

    def checkpoint(self) -> Checkpoint | None:
        """The newest saved state that can be read.

        Raises:
            JournalError: The journal cannot be read.
        """
        with translate_read_errors(self.path):
            return self._saved("SELECT seq, at, data FROM checkpoints ORDER BY seq DESC")

    def base(self) -> Checkpoint | None:
        """What a replay of all rows begins with; None where it begins with nothing, since no row was ever deleted.

        Raises:
            JournalError: The journal cannot be read.
        """
        with translate_read_errors(self.path):
            first = self._connection.execute("SELECT seq FROM rows ORDER BY seq LIMIT 1").fetchone()
            if (first[0] if first else self._tail_on_disk().seq + 1) == 1:
                return None
            return self._saved("SELECT seq, at, data FROM checkpoints ORDER BY seq")

    def _saved(self, query: str) -> Checkpoint | None:
        for seq, at, data in self._connection.execute(query):
            with suppress(zlib.error):
                return Checkpoint(seq, at, zlib.decompress(data))
        return None

    def failures(self, query: FailureQuery) -> FailurePage:
        """One page of the requests that failed a gate, newest first.

        Raises:
            RagmonError: The cursor is none.
            JournalError: The journal cannot be read.
        """
        with translate_read_errors(self.path):
            return page(self._connection, query)

    def last(self) -> tuple[int, float]:
        """Number and arrival of the newest row there ever was; zeros before the first one.

        Raises:
            JournalError: The journal cannot be read.
        """
        with translate_read_errors(self.path):
            return self._tail_on_disk()[:2]

    def last_before(self, moment: float) -> int:
        """The number of the last row that came before a moment, seconds since the epoch.

        Rows come in order of time, so it is found by halves; where none came before, the rows after it are all of them.

        Raises:
            JournalError: The journal cannot be read.
        """
        seek = "SELECT seq, arrival FROM rows WHERE seq >= ? ORDER BY seq LIMIT 1"
        with translate_read_errors(self.path):
            first = self._connection.execute(seek, (0,)).fetchone()
            low, high = (first[0] - 1 if first else 0), self._tail_on_disk().seq
            while low < high:
                middle = (low + high + 1) // 2
                found = self._connection.execute(seek, (middle,)).fetchone()
                if found is not None and found[1] < moment:
                    low = found[0]
                else:
                    high = middle - 1
        return low

    def _tail_on_disk(self) -> HighWaterMark:
        found = self._connection.execute("SELECT seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1").fetchone()
        found = found or self._connection.execute("SELECT seq, arrival, upto FROM tail").fetchone()
        return HighWaterMark(*found) if found else HighWaterMark()


class JournalReader(JournalReaderBase):
    """Reads the journal of a state folder; used by one thread at a time.

    It sees what is on disk when it asks. Where a server sets a damaged journal aside, it goes on reading that one.

    Args:
        folder: The folder.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.path = files.journal_file(folder)
        with translate_errors(self.path):
            self._connection = store.reading(self.path)
            try:
                files.check_version(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; again is harmless."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def open_readonly(folder: Path) -> JournalReader:
    """Read a journal beside whoever writes it.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be read.
    """
    return JournalReader(folder)


WIDTH: Final = 8
"""Bytes of a trace id that are kept: its end, which is random whoever makes ids."""
FEW: Final = 16
"""Ids up to which searching each beats taking everything apart."""


def trace_id_ends(trace_ids: Iterable[str | None]) -> bytes:
    """The ends of trace ids, one after the other; what is no id has none.

    >>> trace_id_ends(["0af7651916cd43dd8448eb211c80319c", None, "x"]).hex()
    '8448eb211c80319c'
    """
    return b"".join(end for trace_id in trace_ids if (end := _end(trace_id)))


def _end(trace_id: str | None) -> bytes:
    try:
        found = bytes.fromhex(trace_id or "")
    except ValueError:
        return b""
    return found[-WIDTH:] if len(found) >= WIDTH else b""


def records_of_traces(connection: sqlite3.Connection, trace_ids: Collection[str]) -> dict[str, Record]:
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
