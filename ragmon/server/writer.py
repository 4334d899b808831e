"""The journal writer: the thread that writes requests to the journal, then acknowledges, then scores them.

Between two rows it runs tasks of other threads and does housekeeping: checkpoints, deletion of old rows, and a new
journal where the old one is damaged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from threading import Condition, RLock, Thread
from time import monotonic, sleep
from typing import Any, Final

from msgspec.structs import replace

from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError, log_error
from ragmon.core.http_server import RejectedError
from ragmon.core.record import Ack, ChunkEntry, Entry, ErasedTraces, Label, Record, encode
from ragmon.ingest.native import NativeRecord
from ragmon.ingest.receiver import Encoding, ExportResult
from ragmon.ingest.trace_buffer import LATE
from ragmon.monitor.engine import Engine, log_acknowledged
from ragmon.server.erasure import RECORD
from ragmon.server.journal import Journal, JournalBatch
from ragmon.server.pending import (
    PendingProbeRecord,
    ProbeReply,
    QueuedRequest,
    TraceTracker,
    UnreadableError,
    WriteBatch,
    decode_chunk,
    decode_labels,
    decode_metrics,
    decode_traces,
    drop_repeated,
    is_from_prober,
    join_reply,
)
from ragmon.server.process import MemoryTrimmer
from ragmon.server.state import Clock, ServerState, recover
from ragmon.server.store import TRACE_ID, JournalError, trace_id_ends
from ragmon.stream.assembler import AssembledTrace
from ragmon.stream.chunk import ERASED, BatchCounts, count

JOINED: Final = "joined"
NO_REPLY: Final = "no_reply"
"""Results for an application's own record of a probe: joined with the reply, or the reply did not arrive in time."""
OLDEST: Final = 86_400.0
"""Seconds for which the keys of earlier records are known; older records are dropped."""
EVERY: Final = 60.0
"""Seconds between two checkpoints, and between two deletions of old data."""
CHECKPOINT_RECORDS: Final = 20_000
"""Records after which a checkpoint is written in any case: scoring them again takes about half a second."""
CHECKPOINT_CHUNKS: Final = 8 << 20
"""Bytes of the journal after which a server that adds up chunks writes a checkpoint in any case: adding them again
takes some seconds, whatever number of records they stand for."""
SLICES: Final = 8
"""Delete transactions between two rows, at most: together they delete more than one row adds."""
PARTS: Final = 8
"""Checkpoints per full journal: the oldest rows can be deleted only up to a checkpoint."""
LEAST: Final = 8 << 20
"""Journal size in bytes below which checkpoints are not written more often: each takes time and some space."""
PAUSE: Final = 5.0
"""Seconds before a failed checkpoint or recount is tried again: each takes time."""
_log = logging.getLogger("ragmon.server")
TICK: Final = 0.25
"""Seconds after which time advances although nothing arrived."""
BATCH_RECORDS: Final = 4_000
"""Native records per batch: the next batch waits until they are scored, about 0.2 s."""
YIELD: Final = 0.0005
"""Seconds in which a thread that waits for the lock wakes up and takes it."""
QUEUED: Final = 128 << 20
"""Limit of bytes in the queue; above it, senders are asked to retry later."""
TOGETHER: Final = 16 << 20
"""Bytes of requests per batch."""
BUSY: Final = 429
MISDIRECTED: Final = 421
UNAVAILABLE: Final = 503
CORRUPT: Final = "corrupt"
UNCOUNTED: Final = "uncounted"
BUSY_FOR: Final = 1.0
BROKEN_FOR: Final = 5.0
"""Seconds after which a sender may retry."""


class _RowWriter:
    """Writes requests and complete traces to the journal as one row; changes nothing outside the journal.

    A label is stored together with the answer it rates, so that a replay need not search for the answer. The two
    records of a probe, the application's and the prober's, are joined into one record.
    """

    def __init__(self, batch: JournalBatch, traces: TraceTracker, arrival: float) -> None:
        self.batch = batch
        self.traces = traces
        self.row = WriteBatch(arrival)
        self._labelled: set[str] = set()  # traces whose answers are stored in the line of a label
        self._brought: dict[str, Record] = {}  # the answers of labels that came with chunks, by trace

    def write(self, requests: Sequence[QueuedRequest], unwritten: BatchCounts, wall: float) -> WriteBatch:
        row, batch, traces = self.row, self.batch, self.traces
        row.counts.add(unwritten)
        row.forgotten = batch.forgotten()
        if row.forgotten:
            self._put(ErasedTraces(sorted(row.forgotten)))
        # After a jump of the system clock that was undone, arrivals may still lie ahead of the clock.
        self._put_native([native for request in requests for native in request.native], min(row.arrival, wall) - OLDEST)
        labels = self._put_assembled()
        self._put_overdue()
        self._put_unmatched_replies()
        own = (entry for request in requests for entry in request.entries if isinstance(entry, Label))
        answers = self._answers_to([*labels, *own])
        self._put_entries(labels, answers)
        for request in requests:
            row.counts.add(request.counts)
            self._put_entries(request.entries, answers)
            if request.chunk is not None:
                self._put_chunk_lines(request.chunk.entries)
            pieces = traces.sort(request.external, row, batch.finished_traces(traces.new(request.external)))
            if pieces:
                waits = sorted({span.trace_id for span in pieces})
                seq = batch.add_pending(row.arrival, request.encoding.value, request.body, waits, traces.lowest)
                row.waiting_spans.append((request, pieces, seq))
        count(row.counts.ignored, ERASED, len(traces.forgotten))
        ends = trace_id_ends(entry.trace_id for entry in row.entries if isinstance(entry, Record))
        row.seq = batch.append(row.arrival, len(row.entries), row.counts.dump(), b"".join(row.lines), ends)
        batch.delete_pending(traces.released)
        batch.mark_finished([*row.ignored_traces, *traces.forgotten, *traces.unknown], row.arrival)
        return row

    def _put(self, entry: Entry) -> None:
        """Add an entry; of all labels on one answer in a row, only the first line holds the answer."""
        journalled = entry
        if isinstance(entry, Label) and entry.answer is not None:
            if entry.trace_id in self._labelled:
                journalled = replace(entry, answer=None)
            self._labelled.add(entry.trace_id)
        self.row.put(entry, encode(journalled))

    def _put_entries(self, entries: Iterable[Entry], answers: Mapping[str, Record]) -> None:
        for entry in entries:
            self._put(replace(entry, answer=answers.get(entry.trace_id)) if isinstance(entry, Label) else entry)

    def _answers_to(self, labels: Iterable[Label]) -> Mapping[str, Record]:
        """The answers that labels rate, where they arrived with this row or before it."""
        trace_ids = {label.trace_id for label in labels}
        if not trace_ids:
            return {}
        in_row = {
            entry.trace_id: entry
            for entry in self.row.entries
            if isinstance(entry, Record) and entry.trace_id in trace_ids
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
        row = self.row
        row.counts.received += len(records)
        fresh = [native for native in records if native.ended >= oldest]
        if len(fresh) < len(records):
            count(row.counts.dropped, constants.TOO_OLD, len(records) - len(fresh))
            row.counts.native += len(records) - len(fresh)  # they arrived
        duplicates = self.batch.claim([native.key for native in fresh])
        recorded = self.batch.recorded({native.trace_id for native in fresh})
        for index, native in enumerate(fresh):
            row.counts.native += index not in duplicates
            from_prober = is_from_prober(native.record)
            is_known = self._is_probed(native.trace_id) if from_prober else native.trace_id in recorded
            if index in duplicates or is_known:
                row.counts.duplicate += 1
            elif not self._put_joined(native.trace_id, native.record):
                row.put(native.record, native.line)
                row.native_traces.append(native.trace_id)
                if native.record.source == constants.PROBE:
                    row.probe_traces.add(native.trace_id)
                if from_prober:
                    recorded.add(native.trace_id)
                    self.batch.mark_finished([native.trace_id], row.arrival, recorded=True)

    def _put_assembled(self) -> list[Label]:
        """Add the records of complete traces, each once; returns the ratings on their spans."""
        row, batch, ready = self.row, self.batch, self.traces.ready
        if not ready:
            return []
        done = batch.finished_traces(trace.trace_id for trace in ready)
        forgotten = sum(arrival < 0 for arrival in done.values())
        count(row.counts.ignored, ERASED, forgotten)
        count(row.counts.ignored, LATE, len(done) - forgotten)
        new_traces = [trace for trace in ready if trace.trace_id not in done]
        fresh = [trace for trace in new_traces if not _too_old(trace)]
        count(row.counts.dropped, constants.TOO_OLD, len(new_traces) - len(fresh))
        records = [assembled for trace in fresh for assembled in trace.made]
        duplicates = batch.claim([assembled.key for assembled in records])
        row.counts.duplicate += len(duplicates)
        for index, assembled in enumerate(records):
            if index not in duplicates and not self._put_joined(assembled.key[1][:TRACE_ID], assembled.record):
                row.put(assembled.record, assembled.line)
        for trace in fresh:
            row.counts.add(trace.counts)
            if trace.aside:
                batch.quarantine(trace.trace_id, trace.aside, trace.waiting.requests)
        batch.mark_finished([trace.trace_id for trace in ready if not trace.made], row.arrival)
        written = [trace.trace_id for trace in ready if trace.made and trace.trace_id not in row.early_probe_records]
        batch.mark_finished(written, row.arrival, recorded=True)
        return [label for trace in fresh for label in trace.labels]

    def _is_probed(self, trace_id: bytes) -> bool:
        """Whether a native record of a trace arrived and was counted as a probe."""
        return trace_id in self.row.probe_traces or self.traces.is_probe(trace_id)

    def _put_joined(self, trace_id: bytes, record: Record) -> bool:
        """Add the application's own record of a probe whose reply has arrived, or let it wait for an expected reply.

        Returns whether the record is that of a probe; it is accounted for then.
        """
        row, reply = self.row, self.traces.replies.get(trace_id)
        if trace_id in row.answered or trace_id in self.traces.ahead or trace_id in row.early_probe_records:
            row.counts.duplicate += 1
        elif reply is None:
            return False
        else:
            row.native_traces.append(trace_id)
            row.probe_traces.add(trace_id)
            if reply.arrived:
                self._put_own(trace_id, record, reply)
            else:
                joined = join_reply(record, reply.record)
                seq = self.batch.add_pending(row.arrival, RECORD, encode(joined), [trace_id])
                row.early_probe_records[trace_id] = PendingProbeRecord(trace_id, joined, seq)
        return True

    def _put_overdue(self) -> None:
        """Add the application's records of probes whose replies have arrived since, or are overdue."""
        row = self.row
        for pending, reply in list(self.traces.due_probe_records(row.arrival)):
            row.overdue.append(pending.trace_id)
            row.probe_traces.add(pending.trace_id)
            if pending.seq and not self.batch.delete_pending([pending.seq]):  # another process erased it
                count(row.counts.ignored, ERASED)
                self.batch.mark_finished([pending.trace_id], row.arrival)
            else:
                self._put_own(pending.trace_id, pending.record, reply)

    def _put_own(self, trace_id: bytes, record: Record, reply: ProbeReply | None) -> None:
        """Add the application's own record of a probe, and settle the reply."""
        has_reply = reply is not None and self._settle(trace_id)
        if reply is not None and has_reply:
            self.row.counts.duplicate += 1
            record = join_reply(record, reply.record)
        count(self.row.counts.probed, JOINED if has_reply else NO_REPLY)
        self._put(record)
        self.batch.mark_finished([trace_id], self.row.arrival, recorded=True)

    def _put_unmatched_replies(self) -> None:
        """Add the replies that wait no longer for the application's record, and store the replies that still wait.

        A record of the application that arrives later is a duplicate.
        """
        row, batch = self.row, self.batch
        overdue = [reply for reply in self.traces.overdue_replies(row.arrival) if reply[0] not in row.answered]
        for trace_id, record in overdue:
            if not self._settle(trace_id):
                continue
            if self._is_probed(trace_id):
                row.counts.duplicate += 1
            else:
                self._put(record)
                batch.mark_finished([trace_id], row.arrival, recorded=True)
        unstored = self.traces.replies.unstored().items()
        waiting = {trace_id: reply for trace_id, reply in unstored if trace_id not in row.answered}
        row.replies.update(_store_replies(waiting, batch, row.arrival))

    def _settle(self, trace_id: bytes) -> bool:
        """Count a reply; returns whether it still exists: another process may have erased it."""
        self.row.counts.received += 1
        self.row.answered.add(trace_id)
        number = self.traces.replies.number(trace_id)
        exists = not number or bool(self.batch.delete_pending([number]))
        count(self.row.counts.ignored, ERASED, int(not exists))
        return exists


def _store_replies(replies: Mapping[bytes, Record], batch: JournalBatch, arrival: float) -> dict[bytes, int]:
    return {trace_id: batch.add_pending(arrival, RECORD, encode(record)) for trace_id, record in replies.items()}


def _too_old(trace: AssembledTrace) -> bool:
    """Whether a trace had ended so long before its first span arrived that its key may no longer be known."""
    ended = min(
        (assembled.record.ts for assembled in trace.made if assembled.record.ts is not None),
        default=trace.waiting.first,
    )
    return ended < trace.waiting.first - OLDEST


def ack_entry(engine: Engine, pipeline: str, alert: str, reason: str, by: str = "") -> Ack:
    """The journal entry of an acknowledgement."""
    states, configured = engine.alarms.states(), engine.settings.pipelines
    pipelines = sorted({*configured, *(state.pipeline for state in states)})
    if pipeline not in pipelines:
        raise UnknownNameError("pipeline", pipeline, pipelines)
    gates = [gate.name for gate in engine.policy(pipeline).gates] if pipeline in configured else []
    alerts = sorted({*gates, *(state.alert for state in states if state.pipeline == pipeline)})
    if alert not in alerts:
        raise UnknownNameError("alarm", alert, alerts)
    return Ack(pipeline=pipeline, alert=alert, reason=reason, by=by)


def _firing(engine: Engine) -> set[tuple[str, str]]:
    return {(state.pipeline, state.alert) for state in engine.alarms.states() if state.firing is not None}


def _only_ack(request: QueuedRequest) -> Ack | None:
    """The acknowledgement that a request consists of; None for any other request."""
    entry = request.entries[0] if len(request.entries) == 1 else None
    return entry if isinstance(entry, Ack) else None


class Housekeeping:
    """Writes checkpoints, deletes old rows and replaces a damaged journal."""

    def __init__(self, journal: Journal, clock: Clock, lock: AbstractContextManager[Any]) -> None:
        self.resets = int(journal.set_aside is not None)
        self._journal = journal
        self._clock = clock
        self._lock = lock
        self._due = monotonic() + EVERY
        self._expiring = False
        self._retry_at = 0.0
        self._saved = (0, 0)
        self._saved_upto = journal.upto

    def keep(self, server_state: ServerState, *, ending: bool = False) -> bool:
        """Do the work that is due; returns whether a minute has passed, after which old data may be gone."""
        now = monotonic()
        due = now >= self._due
        written = self._journal.upto - self._saved_upto
        many = written * PARTS >= max(self._journal.limits.size, LEAST) or (
            written >= CHECKPOINT_CHUNKS
            if server_state.adder is not None
            else server_state.engine.scorer.scored - self._saved[1] >= CHECKPOINT_RECORDS
        )
        if due or ending or (many and now >= self._retry_at):
            self._retry_at = now + PAUSE
            self._due = self._retry_at if due else self._due
            self.save(server_state)
            self._retry_at = now
        if due:
            self._due = now + EVERY
            self._journal.truncate_wal()  # the WAL still holds users' text of released requests
        if (due or self._expiring) and self._clock.calm:
            self._expiring = self._journal.expire()
        for _ in range(SLICES):
            if not self._journal.make_room():
                break
        return due

    def save(self, server_state: ServerState) -> None:
        """Write a checkpoint, if anything arrived since the last one."""
        if server_state.seq == self._saved[0]:
            return
        with self._journal.begin() as batch:
            # Read in the transaction, so that no erasure comes between; the next row clears them, and tells others.
            erased = batch.forgotten(clear=False)
            with self._lock:
                server_state.erase(erased)
                data = server_state.dump()
            batch.add_failures(server_state.failures)  # recovery does not find them again: their rows are counted
            batch.save(server_state.seq, self._clock.now(), data)
        server_state.failures.clear()
        self._saved = (server_state.seq, server_state.engine.scorer.scored)
        self._saved_upto = self._journal.upto

    def secure(self, server_state: ServerState) -> bytes:
        """Write a checkpoint before the configuration changes, and return the dumped state.

        After a crash, rows that were scored with one gold set must not be scored again with another.
        """
        try:
            self.save(server_state)
        except JournalError as error:
            log_error(f"no checkpoint before another configuration ({error.reason})", error)
        return server_state.dump()

    def reset_journal(self, server_state: ServerState) -> None:
        """Quarantine a damaged journal, and continue with the current state in a new one."""
        self._saved, self._due, self._retry_at = (-1, 0), 0.0, 0.0  # retry soon if it fails now
        self.resets += 1
        try:
            aside = self._journal.quarantine_and_reset()
            _log.error("the journal is damaged and was set aside: %s", aside)
            self.save(server_state)
        except JournalError as error:
            log_error(f"no new journal can be begun ({error.reason})", error)


class JournalWriter:
    """The consumer that receivers hand requests to, and the owner of the server state.

    Attributes:
        uncounted: Whether an error left the state without a row that is on disk, or with a part of it.
        unaccounted: Records that the journal does not account for: the residual after its rows were read.
        trouble: Why nothing can be written at the moment; "" otherwise.
        trouble_since: Since when, seconds since the epoch; None where the journal can be written.
        refused: Rejected requests, by reason.
        quarantined: Requests quarantined in the journal.
        send_ack: Writes acknowledgements where every server that adds up the same hears them; None where they
            concern this server alone.
        send_labels: Sends labels to where answers are counted, if that is not here; None where labels are taken here.
    """

    def __init__(self, journal: Journal, server_state: ServerState, open_traces: TraceTracker, clock: Clock) -> None:
        self.journal = journal
        self.server_state = server_state
        self.open_traces = open_traces
        self.clock = clock
        self.trouble = ""
        self.trouble_since: float | None = None
        self.refused: dict[str, int] = {}
        self.send_ack: Callable[..., Future[bool]] | None = None
        self.quarantined = journal.quarantine_size()
        self.send_labels: Callable[[Sequence[Label]], Future[None]] | None = None
        self._lock = RLock()
        self._housekeeping = Housekeeping(journal, clock, self._lock)
        self._trimmer = MemoryTrimmer()
        self._queue: deque[QueuedRequest] = deque()
        self._tasks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._queued = 0
        self._unwritten_counts = BatchCounts()
        self._changed = Condition()
        self._stopping = False
        self._thread = Thread(target=self._work, name="ragmon-journal-writer", daemon=True)
        self._recount_at = 0.0
        self._set_counted()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what was accepted, then a checkpoint; reject new requests."""
        with self._changed:
            self.open_traces.replies.hurried = True
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while the state is read."""
        with self._lock:
            if self.uncounted:
                raise UnavailableError("rows on disk are uncounted: the journal is counted again", hint="try again")
            yield

    @property
    def resets(self) -> int:
        """How often a damaged journal was quarantined."""
        return self._housekeeping.resets

    def traces(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Submit an `ExportTraceServiceRequest`."""
        return self._receive(decode_traces, body, encoding)

    def metrics(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Submit an `ExportMetricsServiceRequest`."""
        return self._receive(decode_metrics, body, encoding)

    def chunk(self, entry: ChunkEntry) -> Future[ExportResult]:
        """Submit what another process counted (`ragmon.stream.chunk`)."""
        return self._submit(decode_chunk(entry))

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Submit labels."""
        if self.send_labels is None:
            self._check_counts()
            self._check_capacity()
            return self._submit(decode_labels(labels, comments=self.server_state.keeps_text))
        request = decode_labels(labels, comments=self.server_state.keeps_text)
        with self._changed:
            self._unwritten_counts.add(request.counts)
        sent = self.send_labels([entry for entry in request.entries if isinstance(entry, Label)])

        def resolve(done: Future[None]) -> None:
            error = done.exception()
            request.future.set_result(request.result) if error is None else request.future.set_exception(error)

        sent.add_done_callback(resolve)
        return request.future

    def acknowledge(self, pipeline: str, alert: str, reason: str, by: str = "") -> Future[bool]:
        """Silence an alarm; the result is whether it was firing."""
        self._check_capacity()
        with self.lock:
            ack = ack_entry(self.server_state.engine, pipeline, alert, reason, by)
            fires = (pipeline, alert) in _firing(self.server_state.engine)
        if self.send_ack is None:
            return self._submit(QueuedRequest(entries=[ack]))
        return self.send_ack(replace(ack, at=self.clock.now()), fired=fires)

    def reply(self, record: Record, wait: float, *, arrived: bool = True) -> bool:
        """Submit the reply to a probe, or announce one."""
        return self.open_traces.replies.put(record, self.clock.now() + wait, arrived=arrived)

    def refuse(self, reason: str) -> None:
        """Count a rejected request."""
        with self._changed:
            count(self.refused, reason)

    def run_between_rows(self, what: Callable[[], Any]) -> Future[Any]:
        """Run a task between two rows."""
        done: Future[Any] = Future()
        with self._changed:
            if self._stopping:
                done.set_exception(RagmonError("the server is being stopped"))
            else:
                self._tasks.append((what, done))
                self._changed.notify()
        return done

    def replace_state(self, server_state: ServerState) -> None:
        """Switch to another configuration; the counts stay, also after a crash. Called as a task."""
        with self.lock:
            server_state.continue_from(self.server_state, self._housekeeping.secure(self.server_state))
            self.open_traces.configure(server_state.engine.settings)
            self.server_state = server_state

    def _check_capacity(self) -> None:
        if self._stopping:
            raise _stopped()
        if self._queued > QUEUED:
            raise RejectedError(BUSY, "rate_limited", "more came than can be written", BUSY_FOR)

    def _check_counts(self) -> None:
        if self.server_state.adder is not None:
            raise RejectedError(
                MISDIRECTED, "misdirected", "this server adds up what others count: send it to one of them"
            )

    def _receive(
        self, decode: Callable[[bytes, Encoding], QueuedRequest], body: bytes, encoding: Encoding
    ) -> Future[ExportResult]:
        self._check_counts()
        self._check_capacity()
        try:
            request = decode(body, encoding)
        except UnreadableError as error:
            with self._changed:
                self._unwritten_counts.add(error.counts)
            raise
        return self._submit(request)

    def _submit(self, request: QueuedRequest) -> Future[Any]:
        with self._changed:
            if self._stopping:
                raise _stopped()
            self._queue.append(request)
            self._queued += request.size
            self._changed.notify()
        return request.future

    def _work(self) -> None:
        """Write rows; when that ends, for whatever reason, fail all waiting futures."""
        try:
            self._run()
        finally:
            with self._changed:
                self._stopping = True
                requests, tasks = list(self._queue), list(self._tasks)
                self._queue.clear()
                self._tasks.clear()
            for request in requests:
                request.future.set_exception(_stopped())
            for _, done in tasks:
                done.set_exception(RagmonError("the server is being stopped"))

    def _run(self) -> None:
        while True:
            with self._changed:
                if not (self._queue or self._tasks or self._stopping or self.open_traces.behind):
                    self._changed.wait(TICK)
                requests, tasks = self._together(), list(self._tasks)
                self._tasks.clear()
                last = self._stopping and not requests
            for task, done in tasks:
                try:
                    done.set_result(task())
                except BaseException as error:  # noqa: BLE001 - the future carries the error
                    done.set_exception(error)
            try:
                self._turn(requests)
                if last:
                    self._write_without_row()
                if not self.uncounted and self._housekeeping.keep(self.server_state, ending=last):
                    self.quarantined = self.journal.quarantine_size()
                self._trimmer.trim_if_due(self.server_state.seq + sum(self.refused.values()))
            except JournalError as error:
                log_error(f"the journal cannot be written ({error.reason})", error)
                self._fail(requests, error.reason)
            except BaseException as error:  # noqa: BLE001 - the thread must survive: nothing else resolves futures
                log_error("a row could not be written or counted", error)
                self._fail(requests, "internal")
            if self.uncounted or self.journal.newest != self._counted:
                self._recount()
            if last:
                return

    def _recount(self) -> None:
        """Throw the state away, and count the journal from its newest checkpoint on, as a start does."""
        self.uncounted = True
        self.trouble, self.trouble_since = UNCOUNTED, self.trouble_since or self.clock.now()
        if monotonic() < self._recount_at:
            return
        _log.error("rows on disk are uncounted: the journal is counted again")
        try:
            with self._lock:
                settings = self.server_state.engine.settings
                self.server_state = recover(settings, self.journal, self.journal.attempts)
                self.open_traces = self.open_traces.restored(settings, self.journal, self.clock.now())
                self._set_counted()
        except BaseException as error:  # noqa: BLE001 - as above
            self._recount_at = monotonic() + PAUSE
            log_error("the journal could not be counted again", error)

    def _set_counted(self) -> None:
        self._counted = self.journal.newest
        self.unaccounted = self._residual()
        self.uncounted = False

    def _residual(self) -> int:
        """Records that are unaccounted for; 0 where others count: whether their books close is for them to say."""
        state = self.server_state
        return 0 if state.adder is not None else state.counters(self.open_traces.pending).residual

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Hold the lock while the state changes; a state that an error left incomplete is neither read nor saved."""
        with self._lock:
            is_complete = False
            try:
                yield
                is_complete = self.server_state.engine.failed is None and self._residual() == self.unaccounted
            finally:
                self.uncounted = not is_complete

    def _together(self) -> list[QueuedRequest]:
        requests: list[QueuedRequest] = []
        size = records = 0
        while self._queue:
            size, records = size + self._queue[0].size, records + len(self._queue[0].native)
            if requests and (size > TOGETHER or records > BATCH_RECORDS):
                break
            requests.append(self._queue.popleft())
        self._queued -= sum(queued.size for queued in requests)
        return requests

    def _turn(self, requests: list[QueuedRequest]) -> None:
        """Write one row, acknowledge its requests, and count it; with nothing to write, only advance the time."""
        if self.uncounted:
            raise UnavailableError("what is on disk is counted first")
        now = self.clock.arrival()
        self.open_traces.complete(now, self.journal.attempts, self._lock)
        with self._changed:
            unwritten_counts, self._unwritten_counts = self._unwritten_counts, BatchCounts()
        # After an error, write a row even without data: success clears the error.
        if not (requests or self.open_traces.has_news(now) or unwritten_counts or self.trouble):
            with self._counting():
                self.server_state.advance(now)
            self._write_without_row()
            return
        drop_repeated([request.chunk for request in requests if request.chunk is not None], self.server_state.adder)
        try:
            with self.journal.begin() as batch:
                row = _RowWriter(batch, self.open_traces, now).write(requests, unwritten_counts, self.clock.now())
                batch.add_failures(self.server_state.failures)
        except BaseException:
            with self._changed:
                self._unwritten_counts.add(unwritten_counts)
            raise
        self.trouble, self.trouble_since = "", None
        has_set_aside = any(trace.aside for trace in self.open_traces.ready)
        for request in requests:
            if not _only_ack(request):
                request.future.set_result(request.result)
        acks = [(request, ack) for request in requests if (ack := _only_ack(request))]
        firing = set[tuple[str, str]]()
        with self._counting():
            self.server_state.failures.clear()
            self.server_state.advance(row.arrival)
            if acks:
                firing = _firing(self.server_state.engine)
            self.open_traces.commit(row, self._unwritten_counts)
            self.server_state.apply(
                row.seq, row.arrival, row.counts, row.entries, row.forgotten, pause=self._yield_lock
            )
        self._counted = row.seq
        for request, ack in acks:
            log_acknowledged(ack)
            request.future.set_result((ack.pipeline, ack.alert) in firing)
        if has_set_aside:
            self.journal.attempts.commit()
            self.quarantined = self.journal.quarantine_size()

    def _write_without_row(self) -> None:
        """Write what needs no row: failures, waiting replies, the release of requests whose text must be deleted."""
        now, traces, failures = self.clock.arrival(), self.open_traces, self.server_state.failures
        unstored = traces.replies.unstored()
        if not (failures or traces.released or unstored):
            return
        with self.journal.begin() as batch:
            batch.add_failures(failures)
            batch.delete_pending(traces.released)
            numbers = _store_replies(unstored, batch, now)
        traces.replies.mark_stored(numbers)
        failures.clear()
        traces.released.clear()

    def _yield_lock(self) -> None:
        """Give waiting threads the lock; it is held exactly once here."""
        self._lock.release()
        try:
            sleep(YIELD)  # otherwise this thread takes the lock again before another one wakes up
        finally:
            self._lock.acquire()

    def _fail(self, requests: Sequence[QueuedRequest], reason: str) -> None:
        self.trouble, self.trouble_since = reason, self.trouble_since or self.clock.now()
        for request in requests:
            if not request.future.done():
                self.refuse(reason)
                error = RejectedError(UNAVAILABLE, reason, f"nothing can be written ({reason})", BROKEN_FOR)
                request.future.set_exception(error)
        if reason == CORRUPT:
            self._housekeeping.reset_journal(self.server_state)
            with self._lock:
                self.open_traces.reset_journal(self.clock.arrival())


def _stopped() -> RejectedError:
    return RejectedError(UNAVAILABLE, "stopping", "the server is being stopped", BUSY_FOR)
