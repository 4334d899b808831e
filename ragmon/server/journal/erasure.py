"""What waits, without the spans of some traces, or with those of one alone: OTLP requests, and records of probes.

What saved states hold of people: the words of raters, which are taken out where somebody asks for that.

What somebody asks to be forgotten is taken out of the journal, and off the disk, while a server goes on writing.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Collection, Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import record as entries
from ragmon.core.errors import RagmonError
from ragmon.gold.labels.ratings import LabelStore
from ragmon.server.journal import failures, files, store
from ragmon.server.journal.errors import translate_read_errors
from ragmon.server.journal.quarantine import QuarantinedRequest
from ragmon.server.journal.reader import JournalReaderBase, JournalRow, PendingRequest
from ragmon.server.journal.retention import LEVEL
from ragmon.server.journal.schema import checksum

PROTOBUF: Final = "protobuf"
JSON: Final = "json"
RECORD: Final = "record"
"""One record, as a line of the journal."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What a request raises that is not what it says it is."""


class RemainingRequest(NamedTuple):
    """What is left of a request.

    Attributes:
        body: The request; None where nothing is left.
        removed: How many spans were taken out.
    """

    body: bytes | None
    removed: int


def remove_traces(form: str, body: bytes, traces: AbstractSet[str]) -> RemainingRequest:
    """A request without the spans of some traces.

    One that cannot be read but names such a trace is left out as a whole.

    Args:
        form: How it is written: `protobuf`, `json`, or `record`.
        body: The request.
        traces: The traces' ids, 32 lower-case hex digits.

    >>> read_erasures = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> remove_traces("json", read_erasures, {"ab"}).body
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"cd"}]}]}]}'
    """
    try:
        return _HOW[form](body, traces)
    except _UNREADABLE:
        folded = body.lower()
        named = any(trace.encode() in folded or _binary(trace) in body for trace in traces)
        return RemainingRequest(None, 1) if named else RemainingRequest(body, 0)


def keep_trace(form: str, body: bytes, trace: str) -> bytes:
    """What of a request is of one trace; all of it where it cannot be read.

    Args:
        form: How it is written: `protobuf`, `json`, or `record`.
        body: The request.
        trace: The trace's id, 32 lower-case hex digits.

    >>> read_erasures = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> keep_trace("json", read_erasures, "ab")
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"}]}]}]}'
    """
    try:
        return _HOW[form](body, _AllBut(trace)).body or b""
    except _UNREADABLE:
        return body


class _AllBut(Container[str]):
    """All traces but one.

    Args:
        trace: The one.
    """

    def __init__(self, trace: str) -> None:
        self._trace = trace

    def __contains__(self, trace: object) -> bool:
        return trace != self._trace


def _binary(trace: str) -> bytes:
    try:
        return bytes.fromhex(trace)
    except ValueError:
        return trace.encode()


def _protobuf(body: bytes, traces: Container[str]) -> RemainingRequest:
    # Heavy, and needed where somebody forgets.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    try:
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    removed = 0
    for process in request.resource_spans:
        for scope in process.scope_spans:
            kept = [span for span in scope.spans if span.trace_id.hex() not in traces]
            removed += len(scope.spans) - len(kept)
            _set(scope.spans, kept)
        _set(process.scope_spans, [scope for scope in process.scope_spans if scope.spans])
    if not removed:
        return RemainingRequest(body, 0)
    _set(request.resource_spans, [process for process in request.resource_spans if process.scope_spans])
    return RemainingRequest(request.SerializeToString() if request.resource_spans else None, removed)


def _set(field: Any, kept: list[Any]) -> None:
    """Put messages into a repeated field in place of those that are there."""
    if len(kept) < len(field):
        copies = [type(message).FromString(message.SerializeToString()) for message in kept]
        del field[:]
        field.extend(copies)


def _json(body: bytes, traces: Container[str]) -> RemainingRequest:
    request = json.loads(body)
    removed = 0
    for process in request.get("resourceSpans") or []:
        for scope in process.get("scopeSpans") or []:
            spans = scope.get("spans") or []
            scope["spans"] = [span for span in spans if span["traceId"].lower() not in traces]
            removed += len(spans) - len(scope["spans"])
        process["scopeSpans"] = [scope for scope in process.get("scopeSpans") or [] if scope["spans"]]
    if not removed:
        return RemainingRequest(body, 0)
    request["resourceSpans"] = [process for process in request["resourceSpans"] if process["scopeSpans"]]
    text = json.dumps(request, separators=(",", ":"), ensure_ascii=False)
    return RemainingRequest(text.encode("utf-8", "surrogatepass") if request["resourceSpans"] else None, removed)


def _record(body: bytes, traces: Container[str]) -> RemainingRequest:
    is_wanted = json.loads(body)["trace_id"].lower() in traces
    return RemainingRequest(None, 1) if is_wanted else RemainingRequest(body, 0)


_HOW: Final = {PROTOBUF: _protobuf, JSON: _json, RECORD: _record}


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIVE, _LABELS = "live", "labels"


def checkpoint_seqs(connection: sqlite3.Connection) -> list[int]:
    """The saved states, by the last rows they know of."""
    return [seq for (seq,) in connection.execute("SELECT seq FROM checkpoints ORDER BY seq")]


def erase_from_checkpoint(connection: sqlite3.Connection, seq: int, trace_ids: Collection[str]) -> bool:
    """Take what people said of traces out of a saved state, inside a transaction; all else in it stays to the byte.

    A state that cannot be read is deleted: nobody can begin with it, and what it holds is not known.

    Args:
        connection: The journal.
        seq: The last row the state knows of.
        trace_ids: In lower case.

    Returns:
        Whether anything was in it.
    """
    found = connection.execute("SELECT data FROM checkpoints WHERE seq = ?", (seq,)).fetchone()
    if found is None:
        return False
    try:
        left = _without(zlib.decompress(found[0]), trace_ids)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return connection.execute("DELETE FROM checkpoints WHERE seq = ?", (seq,)).rowcount > 0
    if left is None:
        return False
    connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (zlib.compress(left, LEVEL), seq))
    return True


def _without(data: bytes, trace_ids: Collection[str]) -> bytes | None:
    """A state without what people said of traces; None where they said nothing."""
    state = _parts(data)
    live = _parts(state[_LIVE])
    if _LABELS not in live:
        return None
    book = LabelStore()
    book.load(msgspec.json.decode(live[_LABELS]))
    if not book.forget(trace_ids):
        return None
    live[_LABELS] = msgspec.Raw(msgspec.json.encode(book.dump()))
    state[_LIVE] = msgspec.Raw(msgspec.json.encode(live))
    return msgspec.json.encode(state)


def write_erasures(connection: sqlite3.Connection, trace_ids: Iterable[str]) -> None:
    """Leave word, inside a transaction, which traces are forgotten: a server holds in memory what it saves next."""
    told = ((trace_id,) for trace_id in trace_ids)
    connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", told)


def read_erasures(connection: sqlite3.Connection) -> list[str]:
    """The traces that were forgotten since this was asked last, inside a transaction."""
    found = [trace_id for (trace_id,) in connection.execute("SELECT trace_id FROM forgotten").fetchall()]
    if found:
        connection.execute("DELETE FROM forgotten")
    return found


_WIPED_WITHIN: Final = 15.0
_LOCK_TIMEOUT_MS: Final = 500
"""Milliseconds the log is waited for at once: nobody can write meanwhile."""
_IN_PLACE: Final = {
    was: entries.encode_entry(entries.Tombstone(was)).rstrip(b"\n")
    for was in (entries.RECORD_ENTRY, entries.LABEL_ENTRY)
}


@dataclass
class Erasure:
    """What was forgotten.

    Attributes:
        rows: Rows that were changed.
        records, labels: Lines that were taken out of them.
        spans: Spans that waited for the rest of their traces.
        quarantined: Requests that were set aside and held it.
        states: Saved states that held what people said of its answers.
        wiped: The bytes are off the disk; if not, somebody read all the while: the same again does it.
        unread: Damaged journals that were set aside and may hold it still; they can only be deleted as a whole.
    """

    rows: int = 0
    records: int = 0
    labels: int = 0
    spans: int = 0
    quarantined: int = 0
    states: int = 0
    wiped: bool = False
    unread: list[Path] = field(default_factory=list)


class _Line(msgspec.Struct):
    """What of a line tells whether it is meant."""

    kind: str | None = None
    trace_id: str | None = None
    tags: dict[str, str] | None = None
    answer: _Line | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


@dataclass
class _Wanted:
    """What is to be forgotten.

    Attributes:
        traces: Traces whose labels and spans go, in lower case.
        tag: Name and value of a tag whose records go; None: those of the traces go.
    """

    traces: set[str]
    tag: tuple[str, str] | None

    def record(self, line: _Line) -> bool:
        """Whether it is a record that is meant."""
        if line.kind is not None:
            return False
        if self.tag is None:
            return _trace_of(line) in self.traces
        return (line.tags or {}).get(self.tag[0]) == self.tag[1]

    def label(self, line: _Line) -> bool:
        """Whether it is a label that is meant."""
        return line.kind == "label" and _trace_of(line) in self.traces


def erase(folder: Path, *, trace: str | None = None, tag: tuple[str, str] | None = None) -> Erasure:
    """Take a trace, or all records with a tag, out of a journal: records, labels, waiting spans, failures.

    In the place of a line stays one of the kind `forgotten`. Keys and the ids of traces that became records stay until
    they expire, or a producer that sends twice would bring them back. Saved states hold counts, which stay, and the
    words of raters, which go.

    Args:
        folder: Where the journal lies; a server may be writing to it.
        trace: A trace id.
        tag: A tag's name and value.

    Raises:
        RagmonError: Neither or both were given, there is no journal, or it is one of another version.
        JournalError: It cannot be read or written.
    """
    if (trace is None) is (tag is None):
        raise RagmonError("what is to be forgotten?", hint="name a trace, or a tag and its value")
    path = files.journal_file(folder)
    with translate_read_errors(path), closing(store.writing(path)) as connection:
        files.check_version(connection, path)
        eraser = _Eraser(path, connection, _Wanted(set() if trace is None else {trace.lower()}, tag))
        eraser.run()
        eraser.done.wiped = _wipe(connection)
    eraser.done.unread = files.files_set_aside(path)
    return eraser.done


class _Eraser(JournalReaderBase):
    """Goes through a journal.

    Args:
        path: The journal's file.
        connection: A connection that writes.
        wanted: What is to be forgotten.

    Attributes:
        done: What was.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, wanted: _Wanted) -> None:
        self.path = path
        self.done = Erasure()
        self._connection = connection
        self._wanted = wanted

    def run(self) -> None:
        """Take out what is wanted; each row in a transaction of its own, so that the server need not wait."""
        if self._wanted.tag is not None:
            self._wanted.traces |= set(self._tagged())
        for row in self.rows():
            if self._without(row.lines)[1:] != ([], 0):
                self._rewrite(row)
        if self._wanted.tag is None:
            with self._transaction():
                for trace in self._wanted.traces:
                    failures.delete(self._connection, "lower(trace_id) = ?", trace)
        for body in self.bodies():
            self._take_out_of(body)
        for one in self.quarantined():
            self._take_out_of_quarantine(one)
        self._take_out_of_states()

    def _tagged(self) -> Iterator[str]:
        """The traces of records that have the tag."""
        for row in self.rows():
            for text in row.lines.split(b"\n"):
                line = _read(text)
                # The row of an answer may have expired, and a label that came days later still holds it.
                for one in () if line is None else (line, line.answer):
                    if one is not None and self._wanted.record(one) and one.trace_id:
                        yield _trace_of(one)
        held = chain(
            ((one.form, one.body) for one in self.bodies()), ((one.form, one.body) for one in self.quarantined())
        )
        for form, body in held:
            waits = _read(body) if form == RECORD else None
            if waits is not None and self._wanted.record(waits):
                yield _trace_of(waits)

    def _rewrite(self, row: JournalRow) -> None:
        with self._transaction():
            # It may have expired, or another one forgets at the same time.
            found = self._connection.execute("SELECT lines FROM rows WHERE seq = ?", (row.seq,)).fetchone()
            if found is None:
                return
            lines, places, labels = self._without(found[0])
            told = (lines, checksum(*row._replace(lines=lines)), row.seq)
            self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", told)
            for place in places:
                failures.delete(self._connection, "seq = ? AND place = ?", row.seq, place)
        self.done.rows += 1
        self.done.records += len(places)
        self.done.labels += labels

    def _without(self, lines: bytes) -> tuple[bytes, list[int], int]:
        """Lines without what is wanted, the places of the records among it, and how many labels there were."""
        kept, places, labels = lines.split(b"\n"), [], 0
        for place, text in enumerate(kept):
            line = _read(text)
            if line is None:
                continue
            if self._wanted.record(line):
                places.append(place)
                kept[place] = _IN_PLACE[entries.RECORD_ENTRY]
            elif self._wanted.label(line):
                labels += 1
                kept[place] = _IN_PLACE[entries.LABEL_ENTRY]
        return b"\n".join(kept), places, labels

    def _take_out_of(self, body: PendingRequest) -> None:
        left = remove_traces(body.form, body.body, self._wanted.traces)
        if not left.removed:
            return
        with self._transaction():
            if left.body is None:
                self._connection.execute("DELETE FROM bodies WHERE seq = ?", (body.seq,))
            else:
                told = (left.body, checksum(*body._replace(body=left.body)[1:]), body.seq)
                self._connection.execute("UPDATE bodies SET body = ?, sum = ? WHERE seq = ?", told)
            # What comes of such a trace later is late, and makes no record; below zero, until a server has counted it.
            waited = [one for one in body.traces if one.hex() in self._wanted.traces]
            traces = [(trace_id, -body.arrival) for trace_id in waited]
            self._connection.executemany("INSERT OR IGNORE INTO assembled VALUES (?, ?, 0)", traces)
        self.done.spans += left.removed

    def _take_out_of_quarantine(self, one: QuarantinedRequest) -> None:
        """What is set aside was counted then; nothing else changes."""
        left = remove_traces(one.form, one.body, self._wanted.traces)
        if not left.removed and one.trace_id not in self._wanted.traces:
            return
        with self._transaction():
            if left.removed and left.body is not None:
                told = (left.body, len(left.body), one.seq)
                self._connection.execute("UPDATE quarantined SET body = ?, size = ? WHERE seq = ?", told)
            else:
                self._connection.execute("DELETE FROM quarantined WHERE seq = ?", (one.seq,))
        self.done.quarantined += 1

    def _take_out_of_states(self) -> None:
        """First a server is told: what it saves after that is without, and what it saved before is here."""
        with self._transaction():
            write_erasures(self._connection, self._wanted.traces)
        for seq in checkpoint_seqs(self._connection):
            with self._transaction():
                self.done.states += erase_from_checkpoint(self._connection, seq, self._wanted.traces)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _read(text: bytes) -> _Line | None:
    try:
        return _decode(text) if text else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _trace_of(line: _Line) -> str:
    return (line.trace_id or "").lower()


def _wipe(connection: sqlite3.Connection) -> bool:
    """Move what the log holds into the file and cut it off; returns whether nobody stood in the way."""
    connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
    deadline = monotonic() + _WIPED_WITHIN
    while True:
        blocked, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not blocked or monotonic() >= deadline:
            return not blocked
