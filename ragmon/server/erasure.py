"""Erasure on request: remove traces, or all records with a tag, from the journal and from the disk.

It runs while a server goes on writing. It covers rows, pending requests (OTLP requests and probe records), quarantined
requests, failures, and the checkpoints, which hold the labels of raters.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
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
from ragmon.server.state import SavedServerState
from ragmon.server.store import (
    ASIDE,
    FOREVER,
    LEVEL,
    JournalReaderBase,
    JournalRow,
    PendingRequest,
    QuarantinedRequest,
    check_version,
    checksum,
    connect,
    delete_failures,
    journal_file,
    translate_read_errors,
    upgrade,
)

PROTOBUF: Final = "protobuf"
JSON: Final = "json"
RECORD: Final = "record"
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""The exceptions raised by a request that is not in its declared encoding."""
_WIPED_WITHIN: Final = 15.0
"""Seconds after which truncating the write-ahead log is given up."""
_LOCK_TIMEOUT_MS: Final = 500
"""Milliseconds of one wait for the write-ahead log: no process can write meanwhile."""
_TOMBSTONES: Final = {
    kind: entries.encode(entries.Tombstone(kind)).rstrip(b"\n")
    for kind in (entries.RECORD_ENTRY, entries.LABEL_ENTRY, *entries.SAMPLES)
}
_decode_state: Final = msgspec.msgpack.Decoder(SavedServerState).decode


class RemainingRequest(NamedTuple):
    """What remains of a request after traces were removed."""

    body: bytes | None
    removed: int


def remove_traces(encoding: str, body: bytes, traces: AbstractSet[str]) -> RemainingRequest:
    """Remove the spans of some traces from a request.

    A request that cannot be decoded but contains one of the ids is removed as a whole.

    >>> request = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> remove_traces("json", request, {"ab"}).body
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"cd"}]}]}]}'
    """
    try:
        return _remove(encoding, body, traces.__contains__)
    except _UNREADABLE:
        lowered = body.lower()
        is_contained = any(trace.encode() in lowered or _id_bytes(trace) in body for trace in traces)
        return RemainingRequest(None if is_contained else body, int(is_contained))


def keep_trace(encoding: str, body: bytes, trace: str) -> bytes:
    """Keep only the spans of one trace; a request that cannot be decoded stays as it is.

    >>> request = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> keep_trace("json", request, "ab")
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"}]}]}]}'
    """
    try:
        return _remove(encoding, body, lambda found: found != trace).body or b""
    except _UNREADABLE:
        return body


def _id_bytes(trace: str) -> bytes:
    try:
        return bytes.fromhex(trace)
    except ValueError:
        return trace.encode()


def _remove(encoding: str, body: bytes, is_erased: Callable[[str], bool]) -> RemainingRequest:
    if encoding == RECORD:
        removed = int(is_erased(json.loads(body)["trace_id"].lower()))
        return RemainingRequest(None if removed else body, removed)
    removed = 0
    if encoding == JSON:
        request = json.loads(body)
        for resource in request.get("resourceSpans") or []:
            for scope in resource.get("scopeSpans") or []:
                spans = scope.get("spans") or []
                scope["spans"] = [span for span in spans if not is_erased(span["traceId"].lower())]
                removed += len(spans) - len(scope["spans"])
            resource["scopeSpans"] = [scope for scope in resource.get("scopeSpans") or [] if scope["spans"]]
        if not removed:
            return RemainingRequest(body, 0)
        request["resourceSpans"] = [resource for resource in request["resourceSpans"] if resource["scopeSpans"]]
        text = json.dumps(request, separators=(",", ":"), ensure_ascii=False)
        return RemainingRequest(text.encode("utf-8", "surrogatepass") if request["resourceSpans"] else None, removed)
    if encoding != PROTOBUF:
        raise LookupError(encoding)
    # A heavy import, needed for an erasure only.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    try:
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            kept = [span for span in scope.spans if not is_erased(span.trace_id.hex())]
            removed += len(scope.spans) - len(kept)
            _keep_messages(scope.spans, kept)
        _keep_messages(resource.scope_spans, [scope for scope in resource.scope_spans if scope.spans])
    if not removed:
        return RemainingRequest(body, 0)
    _keep_messages(message.resource_spans, [resource for resource in message.resource_spans if resource.scope_spans])
    return RemainingRequest(message.SerializeToString() if message.resource_spans else None, removed)


def _keep_messages(field: Any, kept: list[Any]) -> None:
    if len(kept) < len(field):
        copies = [type(message).FromString(message.SerializeToString()) for message in kept]
        del field[:]
        field.extend(copies)


@dataclass
class Erasure:
    """The result of an erasure.

    Attributes:
        records, labels: Lines that were removed from those rows.
        wiped: The bytes are off the disk. If not, another process was reading all the time: run the erasure again.
        unread: Damaged journals set aside earlier. They may still hold the data, and can only be deleted as a whole.
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
    """The fields of a line that decide whether it is erased."""

    kind: str | None = None
    trace_id: str | None = None
    tags: dict[str, str] | None = None
    user: str | None = None
    answer: _Line | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


def erase(
    folder: Path, *, trace: str | None = None, tag: tuple[str, str] | None = None, user: str | None = None
) -> Erasure:
    """Erase a trace, or all records with a tag or of a user, from a journal: records, labels, pending spans, failures.

    An erased line is replaced by a tombstone of the kind `forgotten`. Deduplication keys and the ids of assembled
    traces stay until they expire: without them, a producer that sends a batch twice would bring the data back. In
    checkpoints the counts stay, and the labels of raters are erased.
    """
    if [trace, tag, user].count(None) != 2:
        raise RagmonError("nothing says what to delete", hint="name a trace, or a tag and its value, or a user")
    path = journal_file(folder)
    with translate_read_errors(path), closing(connect(path, writes=True)) as connection:
        check_version(connection, path)
        upgrade(connection)
        eraser = _Eraser(path, connection, set() if trace is None else {trace.lower()}, tag, user)
        eraser.run()
        # The write-ahead log still holds what was erased: it is moved into the file and truncated.
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
        deadline = monotonic() + _WIPED_WITHIN
        while not eraser.done.wiped:
            is_blocked, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            eraser.done.wiped = not is_blocked
            if monotonic() >= deadline:
                break
    eraser.done.unread = sorted(path.parent.glob(f"{path.name}{ASIDE}*"))
    return eraser.done


_ERASE: Final = """INSERT INTO assembled VALUES (?, ?, 0, ?) ON CONFLICT (trace_id) DO UPDATE SET
    arrival = excluded.arrival, ended = excluded.ended WHERE arrival BETWEEN 0 AND -excluded.arrival"""


class _Eraser(JournalReaderBase):
    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        traces: set[str],
        tag: tuple[str, str] | None,
        user: str | None,
    ) -> None:
        self.path = path
        self.done = Erasure()
        self._connection = connection
        self._traces, self._tag, self._user = traces, tag, user

    def run(self) -> None:
        by_trace = bool(self._traces)
        if not by_trace:
            self._traces |= set(self._traces_of_records())
        # Each row in a transaction of its own: the server must not wait long.
        for row in self.rows():
            self._erase_from_row(row)
        if by_trace:
            with self._transaction():
                for trace in self._traces:
                    delete_failures(self._connection, "lower(trace_id) = ?", trace)
        for pending in self.pending_requests():
            remaining = remove_traces(pending.encoding, pending.body, self._traces)
            if not remaining.removed:
                continue
            with self._transaction():
                if remaining.body is None:
                    self._connection.execute("DELETE FROM bodies WHERE seq = ?", (pending.seq,))
                else:
                    values = (remaining.body, checksum(*pending._replace(body=remaining.body)[1:]), pending.seq)
                    self._connection.execute("UPDATE bodies SET body = ?, sum = ? WHERE seq = ?", values)
                # Spans of such a trace that come later make no record. Negative: not counted by a server yet.
                # A trace that was finished before the request came waits again; one finished since is counted.
                erased = [trace_id for trace_id in pending.traces if trace_id.hex() in self._traces]
                traces = [(trace_id, -pending.arrival, FOREVER) for trace_id in erased]
                self._connection.executemany(_ERASE, traces)
            self.done.spans += remaining.removed
        # Quarantined requests were counted when they were quarantined, so no counts change.
        for request in self.quarantined():
            remaining = remove_traces(request.encoding, request.body, self._traces)
            if not remaining.removed and request.trace_id not in self._traces:
                continue
            with self._transaction():
                if remaining.removed and remaining.body is not None:
                    values = (remaining.body, len(remaining.body), request.seq)
                    self._connection.execute("UPDATE quarantined SET body = ?, size = ? WHERE seq = ?", values)
                else:
                    self._connection.execute("DELETE FROM quarantined WHERE seq = ?", (request.seq,))
            self.done.quarantined += 1
        # The server is told first: checkpoints it saves from now on hold no erased label, older ones are changed here.
        with self._transaction():
            rows = [(trace_id,) for trace_id in self._traces]
            self._connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", rows)
            self._connection.executemany("INSERT OR IGNORE INTO erased VALUES (?)", rows)
            finished = [(FOREVER, _id_bytes(trace_id)) for trace_id in self._traces]
            self._connection.executemany("UPDATE assembled SET ended = ? WHERE trace_id = ?", finished)
        for (seq,) in self._connection.execute("SELECT seq FROM checkpoints ORDER BY seq").fetchall():
            with self._transaction():
                self.done.states += self._erase_from_checkpoint(seq)

    def _traces_of_records(self) -> Iterator[str]:
        for row in self.rows():
            for text in row.lines.split(b"\n"):
                line = _read(text)
                # A label contains the record it is about: it may come days later, when the record's row has expired.
                for entry in () if line is None else (line, line.answer):
                    if entry is not None and self._is_selected(entry) and entry.trace_id:
                        yield entry.trace_id.lower()
        for request in chain[PendingRequest | QuarantinedRequest](self.pending_requests(), self.quarantined()):
            record = _read(request.body) if request.encoding == RECORD else None
            if record is not None and self._is_selected(record):
                yield (record.trace_id or "").lower()

    def _is_selected(self, line: _Line) -> bool:
        """Whether a line is a record to be erased."""
        if line.kind is not None and line.kind not in entries.SAMPLES:
            return False
        if self._tag is not None:
            return (line.tags or {}).get(self._tag[0]) == self._tag[1]
        return (line.trace_id or "").lower() in self._traces if self._user is None else line.user == self._user

    def _erase_from_row(self, row: JournalRow) -> None:
        if self._without(row.lines)[1:] == ([], 0):
            return
        with self._transaction():
            # The row may have expired, or another erasure may run at the same time.
            current = self._connection.execute("SELECT lines FROM rows WHERE seq = ?", (row.seq,)).fetchone()
            if current is None:
                return
            lines, positions, labels = self._without(current[0])
            values = (lines, checksum(*row._replace(lines=lines)), row.seq)
            self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", values)
            for position in positions:
                delete_failures(self._connection, "seq = ? AND place = ?", row.seq, position)
        self.done.rows += 1
        self.done.records += len(positions)
        self.done.labels += labels

    def _without(self, lines: bytes) -> tuple[bytes, list[int], int]:
        """Lines with tombstones in place of the selected ones, the positions of the records, the number of labels."""
        kept, positions, labels = lines.split(b"\n"), [], 0
        for position, text in enumerate(kept):
            line = _read(text)
            if line is None:
                continue
            if self._is_selected(line):
                positions.append(position)
                kept[position] = _TOMBSTONES[line.kind or entries.RECORD_ENTRY]
            elif line.kind == entries.LABEL_ENTRY and (line.trace_id or "").lower() in self._traces:
                labels += 1
                kept[position] = _TOMBSTONES[entries.LABEL_ENTRY]
        return b"\n".join(kept), positions, labels

    def _erase_from_checkpoint(self, seq: int) -> bool:
        """Remove the labels of the traces, and examples of ids; returns whether the checkpoint changed or is gone."""
        row = self._connection.execute("SELECT data FROM checkpoints WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            return False
        try:
            saved = _decode_state(zlib.decompress(row[0]))
        except (zlib.error, msgspec.MsgspecError, ValueError, TypeError):
            # No recovery can start from it, and its content is unknown.
            return self._connection.execute("DELETE FROM checkpoints WHERE seq = ?", (seq,)).rowcount > 0
        if not saved.engine.labels.erase(self._traces) | saved.engine.scorer.captured.forget_examples():
            return False
        data = zlib.compress(msgspec.msgpack.encode(saved), LEVEL)
        self._connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (data, seq))
        return True

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
