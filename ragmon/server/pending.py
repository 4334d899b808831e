"""What waits: decoded requests for their row, spans for the rest of their traces, probe replies for their records.

Requests and complete traces become a `WriteBatch`, one row of the journal, with `BatchCounts`: what arrived and what
became of it. The lines that come with a chunk (labels, samples of records) follow it in its row and count if it does,
so an erasure finds them; the chunk itself holds no text.

A probe over HTTP may be seen twice: by the prober, which holds the reply, and by the application, which knows what was
retrieved. Both carry the trace id that the prober chose, and are one request. A reply waits a while for the
application's record, and a record that arrives first waits, on disk, for the reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import PROBE_TAG
from ragmon.core.errors import log_error
from ragmon.core.http_server import RejectedError
from ragmon.core.process import Deadline
from ragmon.core.record import (
    Answer,
    ChunkEntry,
    Entry,
    ErasedTraces,
    Label,
    Record,
    Sampling,
    TextFacts,
    check_trace_id,
    decode_entry,
    encode,
    parse_label,
)
from ragmon.ingest.lines import Rejected
from ragmon.ingest.native import NativeRecord, native_record, totals
from ragmon.ingest.otlp import TOO_MANY, ExternalSpan, read
from ragmon.ingest.receiver import Encoding, ExportResult
from ragmon.ingest.trace_buffer import DECORATED, LATE, remember
from ragmon.scoring.ratings import REJECTED
from ragmon.server.erasure import RECORD
from ragmon.server.journal import Journal, JournalBatch
from ragmon.server.process import ASSEMBLING, READING, Attempts, body_key, trace_key
from ragmon.server.state import SLICE, entries
from ragmon.server.store import (
    FOREVER,
    TRACE_ID,
    FinishedTrace,
    JournalReaderBase,
    PendingRequest,
    trace_id_ends,
)
from ragmon.stream.assembler import (
    NOTHING,
    UNSAMPLED,
    AssembledTrace,
    Assembler,
    AssemblyLimits,
    JournalledTraceBuffer,
    OpenTrace,
    is_sampled,
    quarantined_trace,
)
from ragmon.stream.chunk import ERASED, BatchCounts, ChunkAdder, ChunkError, ChunkStretch, count, split

BAD_REQUEST: Final = 400
TOO_LARGE: Final = 413
REPLY_WAIT: Final = 10.0
"""Seconds a reply waits for the application's own record, which takes some seconds to arrive."""
LATELY: Final = 600.0
"""Seconds of rows that are searched for probes at start: a prober on another host sends its own record soon after."""
MAX_REPLIES: Final = 10_000
REMEMBERED: Final = 200_000
"""Finished traces that are remembered, to recognise their late spans."""
MEMORY: Final = 3600.0
"""Seconds of finished traces that are read back at start."""
IN_MEMORY: Final = 3
"""Bytes in memory per byte of a waiting request, at most: two for protobuf, three for JSON."""
RETRIED: Final = 30.0
"""Seconds after which an exporter tries again at the latest: the longest pause of the collector's retries."""
JOINED: Final = "joined"
NO_REPLY: Final = "no_reply"
"""Results for an application's own record of a probe: joined with the reply, or the reply did not arrive in time."""
OLDEST: Final = 86_400.0
"""Seconds for which the keys of earlier records are known; older records are dropped."""
_FILLED: Final = ("q", "retrieved_ids", "candidate_ids", "contexts", "verdicts")
NATIVE_KEY: Final = TRACE_ID + 8
"""Bytes of a native record's key: its trace and its span."""


@dataclass
class QueuedRequest:
    """A decoded request that waits to be journalled.

    Attributes:
        future: Resolved when the request is on disk.
        counts: What is in it besides records, spans and entries.
        body: Its body as it arrived, kept while spans of it wait.
        chunk: The lines that come with the chunk among the entries.
    """

    future: Future[Any] = field(default_factory=Future)
    size: int = 0
    native: list[NativeRecord] = field(default_factory=list)
    external: list[ExternalSpan] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    counts: BatchCounts = field(default_factory=BatchCounts)
    result: ExportResult = field(default_factory=ExportResult)
    body: bytes = b""
    encoding: Encoding = Encoding.PROTOBUF
    chunk: ChunkLines | None = None


class UnreadableError(RejectedError):
    """A request that cannot be decoded, with its counts."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(TOO_LARGE if rejected.reason == TOO_MANY else BAD_REQUEST, rejected.reason, str(rejected))
        self.counts = BatchCounts(received=rejected.lost_spans, dropped={rejected.reason: rejected.lost_spans})


def decode_traces(body: bytes, encoding: Encoding) -> QueuedRequest:
    """Decode an `ExportTraceServiceRequest`."""
    try:
        batch = read(body, json=encoding is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error) from None
    rejected, first_error, unknown = Counter(batch.rejected), batch.first, dict[str, int]()
    records = []
    for native in batch.native:
        result = native_record(native, unknown)
        if isinstance(result, NativeRecord):
            records.append(result)
        else:
            rejected[result] += 1
            first_error = first_error or f"a span's {result}: its record cannot be read"
    bad = rejected.total()
    return QueuedRequest(
        size=len(body),
        native=records,
        external=batch.external,
        counts=BatchCounts(received=bad, dropped=dict(rejected), unknown=unknown),
        result=ExportResult(bad, first_error if bad else ""),
        body=(batch.body or body) if batch.external else b"",
        encoding=encoding,
    )


def decode_metrics(body: bytes, encoding: Encoding) -> QueuedRequest:
    """Decode the producers' totals in an `ExportMetricsServiceRequest`."""
    try:
        lines, rejected, first_error = totals(body, json=encoding is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error) from None
    return QueuedRequest(size=len(body), entries=list(lines), result=ExportResult(rejected, first_error))


def decode_labels(labels: Sequence[Any], *, comments: bool = False) -> QueuedRequest:
    """Decode labels; an invalid label is left out and counted."""
    request, first_error = QueuedRequest(), ""
    for number, data in enumerate(labels, 1):
        try:
            label = check_trace_id(parse_label(data))
        except ValueError as error:
            count(request.counts.labels, REJECTED)
            first_error = first_error or f"label {number} of {len(labels)}: {error}"
        else:
            label.comment = label.comment if comments else None
            request.entries.append(label)
    bad = request.counts.labels.get(REJECTED, 0)
    request.size = sum(len(encode(entry)) for entry in request.entries)
    request.result = ExportResult(bad, first_error)
    return request


def decode_chunk(entry: ChunkEntry) -> QueuedRequest:
    """A chunk, with its lines apart; an unreadable chunk is journalled as it is, and accounted for later."""
    request = QueuedRequest(size=len(entry.body), entries=[entry])
    try:
        stretch, counts, lines = split(entry.body)
        chunk = ChunkLines(stretch, entries(lines))
    except (ChunkError, msgspec.MsgspecError, UnicodeDecodeError):
        return request
    request.entries, request.chunk = [replace(entry, body=counts)], chunk
    return request


@dataclass
class ChunkLines:
    """The lines of a chunk that is to be written."""

    stretch: ChunkStretch
    entries: list[Entry]


def drop_repeated(chunks: list[ChunkLines], adder: ChunkAdder | None) -> None:
    """Drop the lines of chunks that will not be added, because they came before."""
    upto: dict[tuple[str, str], int] = {}
    for chunk in chunks:
        key = (chunk.stretch.part, chunk.stretch.log)
        if adder is not None and adder.expects(chunk.stretch, upto.get(key)):
            upto[key] = chunk.stretch.upto
        else:
            chunk.entries.clear()


class ProbeReply(NamedTuple):
    """A reply that waits for the application's record, or that is expected.

    Attributes:
        record: The reply; before it arrived, the known part of the request.
        due: When it is scored alone, or is no longer expected, seconds since the epoch.
        arrived: Whether it has arrived.
        number: Its number in the journal; 0 where it is not stored.
    """

    record: Record
    due: float
    arrived: bool
    number: int = 0


class PendingReplies:
    """Probe replies that wait for records, by trace."""

    def __init__(self) -> None:
        self.hurried = False
        self._lock = Lock()
        self._waiting: dict[bytes, ProbeReply] = {}

    def put(self, record: Record, due: float, *, arrived: bool) -> bool:
        """Add a reply; safe in any thread."""
        trace_id = bytes.fromhex(record.trace_id or "")
        with self._lock:
            known = self._waiting.get(trace_id)
            if known is None and len(self._waiting) >= MAX_REPLIES:
                return False
            self._waiting[trace_id] = ProbeReply(record, due, arrived, 0 if known is None else known.number)
        return True

    def get(self, trace_id: bytes) -> ProbeReply | None:
        """The reply, arrived or expected, of a trace."""
        return self._waiting.get(trace_id)

    def due(self, now: float, with_record: Container[bytes]) -> list[tuple[bytes, Record]]:
        """The replies that wait no longer; expected replies that did not arrive in time are dropped."""
        if not self._waiting:
            return []
        with self._lock:
            overdue = [trace_id for trace_id, reply in self._waiting.items() if not reply.arrived and reply.due <= now]
            for trace_id in overdue:
                del self._waiting[trace_id]
            arrived = [(trace_id, reply) for trace_id, reply in self._waiting.items() if reply.arrived]
        return [
            (trace_id, reply.record)
            for trace_id, reply in arrived
            if reply.due <= now or trace_id in with_record or self.hurried
        ]

    def commit(self, trace_ids: Iterable[bytes]) -> None:
        """Remove the replies of these traces: their outcome is on disk."""
        with self._lock:
            for trace_id in trace_ids:
                self._waiting.pop(trace_id, None)

    def unstored(self) -> dict[bytes, Record]:
        """The replies that arrived and are not on disk."""
        if not self._waiting:
            return {}
        with self._lock:
            replies = list(self._waiting.items())
        return {trace_id: reply.record for trace_id, reply in replies if reply.arrived and not reply.number}

    def mark_stored(self, numbers: Mapping[bytes, int]) -> None:
        """Note the journal numbers of replies that were stored."""
        with self._lock:
            for trace_id in numbers.keys() & self._waiting.keys():
                self._waiting[trace_id] = self._waiting[trace_id]._replace(number=numbers[trace_id])

    def reset_journal(self) -> None:
        """Forget all numbers: the journal was lost."""
        self.mark_stored(dict.fromkeys(list(self._waiting), 0))


def is_from_prober(record: Record) -> bool:
    """Whether a prober made a record, not the application."""
    return record.source == constants.PROBE and PROBE_TAG in (record.tags or ())


def join_reply(own: Record, reply: Record) -> Record:
    """Join the application's record with the reply, which fills in the missing fields."""
    sampling = own.sampling or reply.sampling
    own_answer, reply_answer = own.answer_json, reply.answer_json
    answer = own_answer or reply_answer
    if own_answer is not None and reply_answer is not None:
        cited = reply_answer if own_answer.citations is None and own_answer.ranks is None else own_answer
        claim = own_answer.claim if _has_claim(own) else reply_answer.claim
        answer = Answer(claim, cited.citations, cited.ranks, own_answer.refused or reply_answer.refused)
    stratum = constants.REST if sampling is None or sampling.stratum not in constants.STRATA else sampling.stratum
    return replace(
        own,
        source=constants.PROBE,
        pipeline=reply.pipeline,
        qid=reply.qid,
        answer_json=answer,
        facts=_facts(own, reply),
        error=own.error or reply.error,
        latency_ms=own.latency_ms or reply.latency_ms,
        index_hash=own.index_hash or reply.index_hash,
        build=own.build or reply.build,
        sampling=Sampling(stratum="error" if reply.error else stratum),
        tags={**(reply.tags or {}), **(own.tags or {})},
        measures={**(reply.measures or {}), **(own.measures or {})} or None,
        judge_versions={**(reply.judge_versions or {}), **(own.judge_versions or {})} or None,
        **{name: getattr(reply, name) for name in _FILLED if getattr(own, name) is None},
    )


def _has_claim(record: Record) -> bool:
    has_text = record.answer_json is not None and record.answer_json.claim is not None
    return has_text or (record.facts is not None and record.facts.gold_version is not None)


def _facts(own: Record, reply: Record) -> TextFacts | None:
    """The text facts: the application's, or the reply's where the application compared no claim."""
    if _has_claim(own) or reply.answer_json is None:
        return own.facts
    grounded = None if own.facts is None else own.facts.grounded
    if reply.facts is None:
        return None if grounded is None else TextFacts(grounded=grounded)
    return replace(reply.facts, grounded=grounded)


@dataclass
class WriteBatch:
    """One row of the journal, made of requests and complete traces; it changes nothing outside the journal.

    A label is stored together with the answer it rates, so that a replay need not search for the answer. The two
    records of a probe, the application's and the prober's, are joined into one record.

    Attributes:
        lines: The entries as they are journalled.
        waiting_spans: Spans that wait, with the request that they came in and its number in the journal.
        native_traces: Traces with native records in this row.
        begun: Traces that begin with this row.
        ignored_traces: Traces that are ignored because a decorated call in them sent a native record.
        answered: Traces of probe replies that this row settles.
        early_probe_records: Probe records that wait for their replies, by trace, with their numbers in the journal.
        replies: Probe replies that wait, by trace, with their numbers in the journal.
        overdue: Traces whose records no longer wait for a reply.
        forgotten: Traces that were erased since the previous row.
    """

    batch: JournalBatch
    traces: TraceTracker
    arrival: float
    seq: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)
    entries: list[Entry] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    waiting_spans: list[tuple[QueuedRequest, list[ExternalSpan], int]] = field(default_factory=list)
    native_traces: list[bytes] = field(default_factory=list)
    begun: set[bytes] = field(default_factory=set)
    ignored_traces: set[bytes] = field(default_factory=set)
    probe_traces: set[bytes] = field(default_factory=set)
    answered: set[bytes] = field(default_factory=set)
    early_probe_records: dict[bytes, tuple[Record, int]] = field(default_factory=dict)
    replies: dict[bytes, int] = field(default_factory=dict)
    overdue: list[bytes] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    _labelled: set[str] = field(default_factory=set)  # traces whose answers are stored in the line of a label
    _brought: dict[str, Record] = field(default_factory=dict)  # the answers of labels that came with chunks, by trace

    def put(self, entry: Entry, line: bytes) -> None:
        """Add a line."""
        self.entries.append(entry)
        self.lines.append(line)

    def write(self, requests: Sequence[QueuedRequest], unwritten: BatchCounts, wall: float) -> None:
        """Write the row."""
        self.counts.add(unwritten)
        self.forgotten = self.batch.forgotten()
        if self.forgotten:
            self._put(ErasedTraces(sorted(self.forgotten)))
        # After a jump of the system clock that was undone, arrivals may still lie ahead of the clock.
        self._put_native(
            [native for request in requests for native in request.native], min(self.arrival, wall) - OLDEST
        )
        labels = self._put_assembled()
        self._put_overdue()
        self._put_unmatched_replies()
        own = (entry for request in requests for entry in request.entries if isinstance(entry, Label))
        answers = self._answers_to([*labels, *own])
        self._put_entries(labels, answers)
        for request in requests:
            self.counts.add(request.counts)
            self._put_entries(request.entries, answers)
            if request.chunk is not None:
                self._put_chunk_lines(request.chunk.entries)
            pieces = self.traces.sort(request.external, self)
            if pieces:
                waits = sorted({span.trace_id for span in pieces})
                seq = self.batch.add_pending(
                    self.arrival, request.encoding.value, request.body, waits, self.traces.lowest
                )
                self.waiting_spans.append((request, pieces, seq))
        count(self.counts.ignored, ERASED, len(self.traces.forgotten))
        ends = trace_id_ends(entry.trace_id for entry in self.entries if isinstance(entry, Record))
        self.seq = self.batch.append(self.arrival, len(self.entries), self.counts.dump(), b"".join(self.lines), ends)
        self.batch.delete_pending(self.traces.released)
        self.batch.mark_finished([*self.ignored_traces, *self.traces.forgotten], self.arrival)
        self.batch.mark_finished(self.traces.unknown, self.arrival)

    def _put(self, entry: Entry) -> None:
        """Add an entry; of all labels on one answer in a row, only the first line holds the answer."""
        journalled = entry
        if isinstance(entry, Label) and entry.answer is not None:
            if entry.trace_id in self._labelled:
                journalled = replace(entry, answer=None)
            self._labelled.add(entry.trace_id)
        self.put(entry, encode(journalled))

    def _put_entries(self, entries: Iterable[Entry], answers: Mapping[str, Record]) -> None:
        for entry in entries:
            self._put(replace(entry, answer=answers.get(entry.trace_id)) if isinstance(entry, Label) else entry)

    def _answers_to(self, labels: Iterable[Label]) -> Mapping[str, Record]:
        """The answers that labels rate, where they arrived with this row or before it."""
        trace_ids = {label.trace_id for label in labels}
        if not trace_ids:
            return {}
        in_row = {
            entry.trace_id: entry for entry in self.entries if isinstance(entry, Record) and entry.trace_id in trace_ids
        }
        in_journal = self.batch.answers(trace_ids - in_row.keys())
        return in_journal | {trace_id: record for trace_id, record in in_row.items() if trace_id is not None}

    def _put_chunk_lines(self, lines: Sequence[Entry]) -> None:
        """Add the lines of a chunk to the row, but nothing of traces that were erased.

        A label that found no answer where it was counted may find one among the samples here.
        """
        refused = self.batch.refused(entry.trace_id or "" for entry in lines if isinstance(entry, Label | Record))
        kept = [entry for entry in lines if not (isinstance(entry, Label | Record) and entry.trace_id in refused)]
        answers = self._answers_to(entry for entry in kept if isinstance(entry, Label) and entry.answer is None)
        brought = self._brought
        for index, entry in enumerate(kept):
            if isinstance(entry, Label):
                # The first label of a row holds the answer for all of them.
                answer = brought.get(entry.trace_id) or entry.answer
                if answer is None and entry.trace_id in answers:
                    answer = replace(answers[entry.trace_id], kind=None)
                if answer is not None:
                    brought[entry.trace_id] = answer
                kept[index] = replace(entry, answer=answer)
        for entry in kept:
            self._put(entry)

    def _put_native(self, records: Sequence[NativeRecord], oldest: float) -> None:
        """Add the native records, each once; the spans of a decorated call may have made a record before.

        Of the two records of a probe the first counts, where it did not wait for the second.
        """
        self.counts.received += len(records)
        fresh = [native for native in records if native.ended >= oldest]
        if len(fresh) < len(records):
            count(self.counts.dropped, constants.TOO_OLD, len(records) - len(fresh))
            self.counts.native += len(records) - len(fresh)  # they arrived
        duplicates = self.batch.claim([native.key for native in fresh])
        finished = self.batch.finished({native.trace_id for native in fresh})
        recorded = {trace_id for trace_id, known in finished.items() if known.recorded}
        for index, native in enumerate(fresh):
            self.counts.native += index not in duplicates
            from_prober = is_from_prober(native.record)
            is_known = self._is_probed(native.trace_id) if from_prober else native.trace_id in recorded
            if index in duplicates or is_known:
                self.counts.duplicate += 1
            elif not self._put_joined(native.trace_id, native.record):
                self.put(native.record, native.line)
                self.native_traces.append(native.trace_id)
                if native.record.source == constants.PROBE:
                    self.probe_traces.add(native.trace_id)
                if from_prober:
                    recorded.add(native.trace_id)
                    self.batch.mark_finished([native.trace_id], self.arrival, recorded=True)

    def _put_assembled(self) -> list[Label]:
        """Add the records of complete traces, each once; returns the ratings on their spans."""
        ready = self.traces.ready
        if not ready:
            return []
        done = self.batch.finished(trace.trace_id for trace in ready)
        new_traces = []
        for trace in ready:
            known = done.get(trace.trace_id)
            if known is None or known.ended <= trace.waiting.after:
                new_traces.append(trace)
            else:
                count(self.counts.ignored, ERASED if known.arrival < 0 else LATE)
        fresh = [trace for trace in new_traces if not _too_old(trace)]
        count(self.counts.dropped, constants.TOO_OLD, len(new_traces) - len(fresh))
        records = [assembled for trace in fresh for assembled in trace.made]
        duplicates = self.batch.claim([assembled.key for assembled in records])
        self.counts.duplicate += len(duplicates)
        for index, assembled in enumerate(records):
            if index not in duplicates and not self._put_joined(assembled.key[1][:TRACE_ID], assembled.record):
                self.put(assembled.record, assembled.line)
        for trace in fresh:
            self.counts.add(trace.counts)
            if trace.aside:
                self.batch.quarantine(trace.trace_id, trace.aside, trace.waiting.requests)
        settled = [trace for trace in ready if trace.trace_id not in self.early_probe_records]
        for is_recorded in (False, True):
            ended = {trace.trace_id: _end_of(trace) for trace in settled if bool(trace.made) == is_recorded}
            self.batch.mark_finished(ended, self.arrival, recorded=is_recorded)
        return [label for trace in fresh for label in trace.labels]

    def _is_probed(self, trace_id: bytes) -> bool:
        """Whether a native record of a trace arrived and was counted as a probe."""
        return trace_id in self.probe_traces or self.traces.is_probe(trace_id)

    def _put_joined(self, trace_id: bytes, record: Record) -> bool:
        """Add the application's own record of a probe whose reply has arrived, or let it wait for an expected reply.

        Returns whether the record is that of a probe; it is accounted for then.
        """
        reply = self.traces.replies.get(trace_id)
        if trace_id in self.answered or trace_id in self.traces.ahead or trace_id in self.early_probe_records:
            self.counts.duplicate += 1
        elif reply is None:
            return False
        else:
            self.native_traces.append(trace_id)
            self.probe_traces.add(trace_id)
            if reply.arrived:
                self._put_own(trace_id, record, reply)
            else:
                joined = join_reply(record, reply.record)
                seq = self.batch.add_pending(self.arrival, RECORD, encode(joined), [trace_id])
                self.early_probe_records[trace_id] = joined, seq
        return True

    def _put_overdue(self) -> None:
        """Add the application's records of probes whose replies have arrived since, or are overdue."""
        for trace_id, record, seq, reply in list(self.traces.due_probe_records(self.arrival)):
            self.overdue.append(trace_id)
            self.probe_traces.add(trace_id)
            if seq and not self.batch.delete_pending([seq]):  # another process erased it
                count(self.counts.ignored, ERASED)
                self.batch.mark_finished([trace_id], self.arrival)
            else:
                self._put_own(trace_id, record, reply)

    def _put_own(self, trace_id: bytes, record: Record, reply: ProbeReply | None) -> None:
        """Add the application's own record of a probe, and settle the reply."""
        has_reply = reply is not None and self._settle(trace_id)
        if reply is not None and has_reply:
            self.counts.duplicate += 1
            record = join_reply(record, reply.record)
        count(self.counts.probed, JOINED if has_reply else NO_REPLY)
        self._put(record)
        self.batch.mark_finished([trace_id], self.arrival, recorded=True)

    def _put_unmatched_replies(self) -> None:
        """Add the replies that wait no longer for the application's record, and store the replies that still wait.

        A record of the application that arrives later is a duplicate.
        """
        overdue = [reply for reply in self.traces.overdue_replies(self.arrival) if reply[0] not in self.answered]
        for trace_id, record in overdue:
            if not self._settle(trace_id):
                continue
            if self._is_probed(trace_id):
                self.counts.duplicate += 1
            else:
                self._put(record)
                self.batch.mark_finished([trace_id], self.arrival, recorded=True)
        unstored = self.traces.replies.unstored().items()
        waiting = {trace_id: reply for trace_id, reply in unstored if trace_id not in self.answered}
        self.replies.update(store_replies(waiting, self.batch, self.arrival))

    def _settle(self, trace_id: bytes) -> bool:
        """Count a reply; returns whether it still exists: another process may have erased it."""
        self.counts.received += 1
        self.answered.add(trace_id)
        reply = self.traces.replies.get(trace_id)
        exists = reply is None or not reply.number or bool(self.batch.delete_pending([reply.number]))
        count(self.counts.ignored, ERASED, int(not exists))
        return exists


def store_replies(replies: Mapping[bytes, Record], batch: JournalBatch, arrival: float) -> dict[bytes, int]:
    """Write replies that wait; returns their numbers in the journal."""
    return {trace_id: batch.add_pending(arrival, RECORD, encode(record)) for trace_id, record in replies.items()}


def _end_of(trace: AssembledTrace) -> int:
    # Of a request that could not be read no time is known.
    return trace.waiting.ended if trace.waiting.spans else FOREVER


def _too_old(trace: AssembledTrace) -> bool:
    """Whether a trace had ended so long before its first span arrived that its key may no longer be known."""
    ended = min(
        (assembled.record.ts for assembled in trace.made if assembled.record.ts is not None),
        default=trace.waiting.first,
    )
    return ended < trace.waiting.first - OLDEST


class TraceTracker:
    """The life cycle of third-party traces: open, complete but not on disk, finished.

    Attributes:
        ready: Complete traces, until the result is on disk.
        released: Journalled requests that no trace needs any more.
        forgotten: Traces that were erased while no server ran, and are not counted yet.
        unknown: Finished traces that a new journal does not know yet.
        ahead: The application's records of probes whose replies have not arrived, at most as many as are expected.
        behind: Whether traces are due that are not assembled yet.
    """

    def __init__(self, settings: Settings, limits: AssemblyLimits | None = None) -> None:
        self.ready: list[AssembledTrace] = []
        self.released: list[int] = []
        self.forgotten: list[bytes] = []
        self.unknown: dict[bytes, int] = {}
        self.replies = PendingReplies()
        self.ahead: dict[bytes, tuple[Record, int]] = {}
        self.behind = False
        self._assembling = 0
        self._limits = limits
        self._room = JournalledTraceBuffer(limits)
        self._assembler = Assembler(settings)
        self._done: dict[bytes, int] = {}
        self._own: dict[bytes, None] = {}
        self._probed: dict[bytes, None] = {}

    def configure(self, settings: Settings) -> None:
        """Assemble traces by another configuration from now on."""
        self._assembler = Assembler(settings)

    @property
    def lowest(self) -> int:
        """The sampling threshold: the smallest random value of a trace that is kept."""
        return self._assembler.lowest

    @property
    def pending(self) -> int:
        """Traces and records whose result is not on disk."""
        waiting = len(self._room.traces) + self._assembling + len(self.ready)
        return waiting + len(self.forgotten) + len(self.ahead)

    def has_news(self, now: float) -> bool:
        """Whether there is anything to write."""
        return bool(self.ready or self.forgotten or self.overdue_replies(now) or any(self.due_probe_records(now)))

    def overdue_replies(self, now: float) -> list[tuple[bytes, Record]]:
        """The probe replies that wait no longer for the application's record."""
        due = self.replies.due(now, self._probed)
        if not due:
            return []
        ready_ids = {assembled.trace_id for assembled in self.ready}
        still_open = [trace_id for trace_id, _ in due if trace_id in self._room.traces or trace_id in ready_ids]
        return [reply for reply in due if reply[0] not in still_open or self.replies.hurried]

    def due_probe_records(self, now: float) -> Iterator[tuple[bytes, Record, int, ProbeReply | None]]:
        """The application's records that wait no longer, with trace, number and reply; None where that is overdue."""
        for trace_id, (record, seq) in self.ahead.items():
            reply = self.replies.get(trace_id)
            if reply is not None and reply.arrived:
                yield trace_id, record, seq, reply
            elif reply is None or reply.due <= now or self.replies.hurried:
                yield trace_id, record, seq, None

    def is_probe(self, trace_id: bytes) -> bool:
        """Whether a native record of a trace arrived recently and was counted as a probe."""
        return trace_id in self._probed

    def sort(self, foreign: Sequence[ExternalSpan], row: WriteBatch) -> list[ExternalSpan]:
        """The spans of a request whose traces are open or begin with it; the others are counted in the row.

        A trace that is done begins again with a span that began after all of its spans had ended.
        """
        # The journal knows whether traces are done that are neither open nor remembered.
        unknown = {span.trace_id for span in foreign}.difference(self._done, self._room.traces)
        self._remember(row.batch.finished(unknown))
        kept = []
        for span in foreign:
            trace_id = span.trace_id
            open_trace = self._room.traces.get(trace_id)
            after = self._done.get(trace_id, NOTHING) if open_trace is None else open_trace.after
            is_own = after > NOTHING and trace_id in self._own
            if span.start_ns <= after or is_own or trace_id in row.ignored_traces:
                count(row.counts.spans, DECORATED if trace_id in self._own else LATE)
            elif open_trace is not None or trace_id in row.begun:
                kept.append(span)
            elif not is_sampled(trace_id, self.lowest):
                # Count an unsampled trace once, by its root; nothing else is kept of it.
                if span.is_root:
                    row.counts.received += 1
                    count(row.counts.ignored, UNSAMPLED)
            else:
                row.counts.received += 1
                if trace_id in self._own:
                    row.ignored_traces.add(trace_id)
                    count(row.counts.ignored, DECORATED)
                    count(row.counts.spans, DECORATED)
                else:
                    row.begun.add(trace_id)
                    kept.append(span)
        return kept

    def commit(self, row: WriteBatch, counts: BatchCounts) -> None:
        """A batch is on disk: complete traces are finished, and its spans wait in the buffer."""
        self.released.clear()
        for trace in self.ready:
            self.released += self._room.release(trace.waiting)
        self.ready.clear()
        self.forgotten.clear()
        self.unknown.clear()
        self.replies.commit(row.answered)
        self.replies.mark_stored(row.replies)
        for trace_id in row.overdue:
            self.ahead.pop(trace_id, None)
        self.ahead.update(row.early_probe_records)
        for trace_id in row.native_traces:
            remember(self._own, trace_id, REMEMBERED)
        for trace_id in row.probe_traces:
            remember(self._probed, trace_id, REMEMBERED)
        for trace_id in row.ignored_traces:
            remember(self._done, trace_id, REMEMBERED, FOREVER)
        for request, spans, seq in row.waiting_spans:
            self._hold(spans, PendingRequest(seq, row.arrival, "", request.body, self.lowest), counts)

    def _hold(self, spans: Sequence[ExternalSpan], body: PendingRequest, counts: BatchCounts) -> None:
        request = body.seq
        size = IN_MEMORY * len(body.body)
        span_counts = self._room.add(spans, request, body.arrival, size, body.lowest, self._done)
        del span_counts["new"]
        for reason, n in span_counts.items():
            count(counts.spans, reason, n)
        if not self._room.holds(request):
            self.released.append(request)

    def complete(self, now: float, attempts: Attempts, lock: AbstractContextManager[Any]) -> None:
        """Assemble due traces, for one time slice or until the buffer is within its limits."""
        slice_end = Deadline(SLICE)
        self.behind = False
        while not self.behind:
            with lock:
                due_trace = next(self._room.due(now), None)
                self._assembling = int(due_trace is not None)
            if due_trace is None:
                return
            with attempts.attempt(trace_key(due_trace[0])):
                assembled = self._assemble(*due_trace)
            with lock:
                self._assembling = 0
                self._put(assembled)
            self.behind = slice_end.passed and not self._room.crowded

    def _assemble(self, trace_id: bytes, trace: OpenTrace) -> AssembledTrace:
        return self._assembler.assemble(trace_id, trace, decorated=trace_id in self._own)

    def _put(self, assembled: AssembledTrace) -> None:
        self.ready.append(assembled)
        remember(self._done, assembled.trace_id, REMEMBERED, _end_of(assembled))

    def _remember(self, finished: Mapping[bytes, FinishedTrace]) -> None:
        for trace_id, trace in finished.items():
            remember(self._done, trace_id, REMEMBERED, trace.ended)

    def reset_journal(self, now: float) -> None:
        """The journal was lost, and with it the waiting requests: assemble all traces as they are."""
        for due_trace in self._room.due(now, everything=True):
            self._put(self._assemble(*due_trace))
        for assembled in self.ready:
            assembled.waiting.requests.clear()
        self._room.forget_requests()
        self.ahead = {trace_id: (record, 0) for trace_id, (record, _) in self.ahead.items()}
        self.replies.reset_journal()
        self.released.clear()
        self.unknown = dict(self._done)

    def restore(self, journal: Journal, now: float, attempts: Attempts | None = None) -> None:
        """Restore from the journal what was waiting before this process started."""
        finished = journal.assembled(now - MEMORY)
        self._remember(finished)
        self.forgotten += [trace_id for trace_id, trace in finished.items() if trace.arrival < 0]
        for key in journal.recent():
            if len(key) == NATIVE_KEY:
                remember(self._own, key[:TRACE_ID], REMEMBERED)
        pattern = f'"source":"{constants.PROBE}"'.encode()
        for row in journal.rows(after=journal.last_before(journal.last()[1] - LATELY)):
            for line in row.lines.split(b"\n") if pattern in row.lines else ():
                entry = decode_entry(line) if pattern in line else None
                if isinstance(entry, Record) and entry.source == constants.PROBE and entry.trace_id:
                    remember(self._probed, bytes.fromhex(entry.trace_id), REMEMBERED)
        for body in journal.pending_requests():
            if body.encoding != RECORD:
                continue
            record = decode_entry(body.body)
            assert isinstance(record, Record)  # noqa: S101 - a checksum guarantees what was written
            # A waiting record waits for no reply: replies in flight were lost.
            self.ahead |= dict.fromkeys(body.traces, (record, body.seq))
            if not body.traces:
                self.replies.put(record, now + REPLY_WAIT, arrived=True)
                self.replies.mark_stored({bytes.fromhex(record.trace_id or ""): body.seq})
        poison = {item.key for item in attempts.poison()} if attempts else set()
        for body in journal.pending_requests():
            if body.encoding == RECORD:
                continue
            key = body_key(body.seq, body.arrival)
            if key in poison:
                # Each trace is set aside; the request is quarantined once, with its first trace.
                for n, trace_id in enumerate(sorted(self._unrecorded(body, journal))):
                    self._room.hold(trace_id, body.seq, body.arrival, self._done.get(trace_id, NOTHING))
                    self._put(quarantined_trace(trace_id, self._room.take(trace_id), "" if n else READING))
                if not self._room.holds(body.seq):
                    self.released.append(body.seq)
                continue
            with nullcontext() if attempts is None else attempts.attempt(key):
                try:
                    spans = read(body.body, json=body.encoding == Encoding.JSON.value).external
                except Rejected as rejected:
                    log_error(f"a journalled request cannot be read any more ({rejected.reason})", rejected)
                    self.released.append(body.seq)
                    continue
                trace_ids = self._unrecorded(body, journal)
                spans = [span for span in spans if span.start_ns > self._done.get(span.trace_id, NOTHING)]
                self._hold([span for span in spans if span.trace_id in trace_ids], body, BatchCounts())
        for trace_id in [candidate for candidate in self._room.traces if trace_key(candidate) in poison]:
            self._put(quarantined_trace(trace_id, self._room.take(trace_id), ASSEMBLING))

    def _unrecorded(self, body: PendingRequest, journal: JournalReaderBase) -> set[bytes]:
        """The traces of a request that made no record since it came, not even a waiting one."""
        trace_ids = body.traces - self.ahead.keys()
        finished = journal.finished(trace_ids)
        self._remember(finished)
        return trace_ids - {key for key, trace in finished.items() if not 0 <= trace.arrival <= body.arrival}

    def restored(self, settings: Settings, journal: Journal, now: float) -> TraceTracker:
        """Another tracker, of what waits in the journal, and of the probe replies that wait here and are in no row."""
        tracker = TraceTracker(settings, self._limits)
        tracker.replies = self.replies
        tracker.replies.commit(journal.assembled(now - MEMORY))
        tracker.restore(journal, now, journal.attempts)
        return tracker

    def resume(self, last: float, now: float) -> None:
        """Go on waiting for the spans of open traces after a downtime, in which none could arrive.

        Exporters keep what a server does not take, and wait longer and longer before they try again: about as long as
        the server was down, and no longer than `RETRIED`.
        """
        downtime = max(0.0, now - max([last, *(trace.last for trace in self._room.traces.values())]))
        self._room.postpone(downtime + min(downtime, RETRIED))
