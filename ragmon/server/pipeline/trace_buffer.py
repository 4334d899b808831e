"""The tracker of third-party traces: open ones, complete ones that are not on disk yet, and finished ones.

Finished traces are remembered for a while, to recognise their late spans.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from ragmon.config.settings import Settings
from ragmon.core.http_client import Deadline
from ragmon.core.record import Record, decode_entry
from ragmon.ingest.otlp import ExternalSpan
from ragmon.ingest.trace_buffer import DECORATED, LATE, remember
from ragmon.server.journal.erasure import RECORD
from ragmon.server.journal.journal import Journal
from ragmon.server.journal.quarantine import ASSEMBLING, READING, Attempts, body_key, trace_key
from ragmon.server.journal.reader import JournalReaderBase, PendingRequest
from ragmon.server.journal.schema import TRACE_ID
from ragmon.server.pipeline.clock import SLICE
from ragmon.server.pipeline.decode import WriteBatch, spans_of
from ragmon.server.pipeline.probe_replies import (
    WAIT,
    PendingProbeRecord,
    PendingProbeRecords,
    PendingReplies,
    recently_probed,
)
from ragmon.stream.accounts import BatchCounts, count
from ragmon.stream.assembler import (
    UNSAMPLED,
    AssembledTrace,
    Assembler,
    AssemblyLimits,
    JournalledTraceBuffer,
    OpenTrace,
    is_sampled,
    quarantined_trace,
)

REMEMBERED: Final = 200_000
"""Finished traces that are remembered, to recognise their late spans."""
MEMORY: Final = 3600.0
"""Seconds of finished traces that are read back at start."""
IN_MEMORY: Final = 3
"""Bytes in memory per byte of a waiting request, at most: two for protobuf, three for JSON."""
RETRIED: Final = 30.0
"""Seconds after which an exporter tries again at the latest: the longest pause of the collector's retries."""
WHOLE: Final = TRACE_ID + 8
"""Bytes of a native record's key: its trace and its span."""


class TraceTracker:
    """The life cycle of third-party traces: open, complete but not on disk, finished.

    Args:
        settings: The configuration.
        limits: Timeouts and limits of the buffer.

    Attributes:
        ready: Complete traces, until the result is on disk.
        released: Journalled requests that no trace needs any more.
        forgotten: Traces that were erased while no server ran, and are not counted yet.
        unknown: Finished traces that a new journal does not know yet.
        replies: Probe replies that wait for the application's records.
        ahead: The application's records of probes whose replies have not arrived.
        behind: Whether traces are due that are not assembled yet.
    """

    def __init__(self, settings: Settings, limits: AssemblyLimits | None = None) -> None:
        self.ready: list[AssembledTrace] = []
        self.released: list[int] = []
        self.forgotten: list[bytes] = []
        self.unknown: list[bytes] = []
        self.replies = PendingReplies()
        self.ahead = PendingProbeRecords()
        self.behind = False
        self._assembling = 0
        self._limits = limits
        self._room = JournalledTraceBuffer(limits)
        self._assembler = Assembler(settings)
        self._done: dict[bytes, None] = {}
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
        return bool(self.ready or self.forgotten or self.overdue_replies(now) or any(self.ahead.due(self.replies, now)))

    def overdue_replies(self, now: float) -> list[tuple[bytes, Record]]:
        """The probe replies that wait no longer for the application's record."""
        due = self.replies.due(now, self._probed)
        if not due:
            return []
        ready_ids = {assembled.trace_id for assembled in self.ready}
        still_open = [trace_id for trace_id, _ in due if trace_id in self._room.traces or trace_id in ready_ids]
        return [reply for reply in due if reply[0] not in still_open or self.replies.hurried]

    def is_probe(self, trace_id: bytes) -> bool:
        """Whether a native record of a trace arrived recently and was counted as a probe."""
        return trace_id in self._probed

    def new(self, foreign: Sequence[ExternalSpan]) -> set[bytes]:
        """The traces of spans that are neither open nor remembered as finished; the journal knows whether they are."""
        trace_ids = {span.trace_id for span in foreign}
        return trace_ids.difference(self._done).difference(self._room.traces) if trace_ids else trace_ids

    def sort(self, foreign: Sequence[ExternalSpan], row: WriteBatch, done: Container[bytes]) -> list[ExternalSpan]:
        """The spans of a request whose traces are open or begin with it; the others are counted in the row.

        Args:
            foreign: Its spans.
            row: The batch they are written with.
            done: Finished traces that are not remembered here.
        """
        kept = []
        for span in foreign:
            trace_id = span.trace_id
            if trace_id in self._done or trace_id in row.ignored_traces or trace_id in done:
                count(row.counts.spans, DECORATED if trace_id in self._own else LATE)
            elif trace_id in self._room.traces or trace_id in row.begun:
                kept.append(span)
            elif not is_sampled(trace_id, self.lowest):
                self._count_unsampled(span, row.counts)
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

    @staticmethod
    def _count_unsampled(span: ExternalSpan, counts: BatchCounts) -> None:
        """Count an unsampled trace once, by its root; nothing else is kept of it."""
        if span.is_root:
            counts.received += 1
            count(counts.ignored, UNSAMPLED)

    def commit(self, row: WriteBatch, counts: BatchCounts) -> None:
        """A batch is on disk: complete traces are finished, and its spans wait in the buffer.

        Args:
            row: The batch.
            counts: Counts the spans that belong to no record.
        """
        self.released.clear()
        for trace in self.ready:
            self.released += self._room.release(trace.waiting)
        self.ready.clear()
        self.forgotten.clear()
        self.unknown.clear()
        self.replies.commit(row.answered)
        self.replies.mark_stored(row.replies)
        self.ahead.commit(row.overdue)
        self.ahead.add(row.early_probe_records.values())
        for trace_id in row.native_traces:
            remember(self._own, trace_id, REMEMBERED)
        for trace_id in row.probe_traces:
            remember(self._probed, trace_id, REMEMBERED)
        for trace_id in row.ignored_traces:
            remember(self._done, trace_id, REMEMBERED)
        for request, spans, seq in row.waiting_spans:
            self._hold(spans, PendingRequest(seq, row.arrival, "", request.body, self.lowest), counts)

    def _hold(self, spans: Sequence[ExternalSpan], body: PendingRequest, counts: BatchCounts) -> None:
        request = body.seq
        span_counts = self._room.add(spans, request, body.arrival, IN_MEMORY * len(body.body), body.lowest)
        del span_counts["new"]
        for reason, n in span_counts.items():
            count(counts.spans, reason, n)
        if not self._room.holds(request):
            self.released.append(request)

    def complete(self, now: float, attempts: Attempts, lock: AbstractContextManager[Any]) -> None:
        """Assemble due traces, for one time slice or until the buffer is within its limits.

        Args:
            now: Seconds since the epoch.
            attempts: Notes which trace is being assembled.
            lock: Held while the buffer changes, and not while a trace is assembled.
        """
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
        """Add a finished trace to those that are ready to be written."""
        self.ready.append(assembled)
        remember(self._done, assembled.trace_id, REMEMBERED)

    def reset_journal(self, now: float) -> None:
        """The journal was lost, and with it the waiting requests: assemble all traces as they are."""
        for due_trace in self._room.due(now, everything=True):
            self._put(self._assemble(*due_trace))
        for assembled in self.ready:
            assembled.waiting.requests.clear()
        self._room.forget_requests()
        self.ahead.reset_journal()
        self.replies.reset_journal()
        self.released.clear()
        self.unknown = list(self._done)

    def restore(self, journal: Journal, now: float, attempts: Attempts | None = None) -> None:
        """Restore from the journal what was waiting before this process started.

        Args:
            journal: The journal.
            now: Seconds since the epoch.
            attempts: The work that ended earlier processes; None where no trace will be assembled.

        Raises:
            JournalError: The journal cannot be read.
        """
        for trace_id, arrival in journal.assembled(now - MEMORY).items():
            remember(self._done, trace_id, REMEMBERED)
            if arrival < 0:
                self.forgotten.append(trace_id)
        for key in journal.recent():
            if len(key) == WHOLE:
                remember(self._own, key[:TRACE_ID], REMEMBERED)
        for trace_id in recently_probed(journal):
            remember(self._probed, trace_id, REMEMBERED)
        for body in journal.pending_requests():
            if body.encoding == RECORD:
                self._restore_probe_record(body, now)
        self._restore_all_spans(journal, attempts)

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

        Args:
            last: When something arrived last before this process started.
            now: The arrival time of what comes now.
        """
        downtime = max(0.0, now - max([last, *(trace.last for trace in self._room.traces.values())]))
        self._room.postpone(downtime + min(downtime, RETRIED))

    def _restore_all_spans(self, journal: JournalReaderBase, attempts: Attempts | None) -> None:
        """Restore waiting spans; what ended the process twice is quarantined."""
        poison = {item.key for item in attempts.poison()} if attempts else set()
        for body in journal.pending_requests():
            key = body_key(body.seq, body.arrival)
            if body.encoding == RECORD:
                continue
            if key in poison:
                self._quarantine(body, journal)
            elif attempts is None:
                self._restore_spans(body, journal)
            else:
                with attempts.attempt(key):
                    self._restore_spans(body, journal)
        for trace_id in [candidate for candidate in self._room.traces if trace_key(candidate) in poison]:
            self._put(quarantined_trace(trace_id, self._room.take(trace_id), ASSEMBLING))

    def _restore_spans(self, body: PendingRequest, journal: JournalReaderBase) -> None:
        """Restore the spans of a request whose traces made no record yet, not even a waiting one."""
        spans = spans_of(body)
        if spans is None:
            self.released.append(body.seq)
            return
        trace_ids = body.traces
        trace_ids -= journal.finished_trace_ids(trace_ids)
        trace_ids = {trace_id for trace_id in trace_ids if trace_id not in self.ahead and trace_id not in self._done}
        self._hold([span for span in spans if span.trace_id in trace_ids], body, BatchCounts())

    def _quarantine(self, body: PendingRequest, journal: JournalReaderBase) -> None:
        """Quarantine a request that cannot be decoded, and its traces."""
        trace_ids = {
            candidate for candidate in body.traces if candidate not in self.ahead and candidate not in self._done
        }
        for place, trace_id in enumerate(sorted(trace_ids - journal.finished_trace_ids(trace_ids))):
            self._room.hold(trace_id, body.seq, body.arrival)
            step = "" if place else READING  # the request is stored once, with its first trace
            self._put(quarantined_trace(trace_id, self._room.take(trace_id), step))
        if not self._room.holds(body.seq):
            self.released.append(body.seq)

    def _restore_probe_record(self, body: PendingRequest, now: float) -> None:
        """Restore a waiting reply, or a waiting record, which waits for no reply: replies in flight were lost."""
        record = decode_entry(body.body)
        assert isinstance(record, Record)  # noqa: S101 - a checksum guarantees what was written
        self.ahead.add(PendingProbeRecord(trace_id, record, body.seq) for trace_id in body.traces)
        if not body.traces:
            self.replies.put(record, now + WAIT, arrived=True)
            self.replies.mark_stored({bytes.fromhex(record.trace_id or ""): body.seq})
