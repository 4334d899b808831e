"""The journal writer: the thread that writes requests to the journal, then acknowledges, then scores them.

Between two rows it runs tasks of other threads and does housekeeping: checkpoints, deletion of old rows, and a new
journal where the old one is damaged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Condition, RLock, Thread
from time import monotonic, sleep
from typing import Any, Final

from msgspec.structs import replace

from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError, log_error
from ragmon.core.http_server import RejectedError
from ragmon.core.record import Ack, ChunkEntry, Label, Record
from ragmon.ingest.receiver import Encoding, ExportResult
from ragmon.monitor.embedded import check_incident
from ragmon.monitor.engine import Engine, log_acknowledged
from ragmon.server.journal import Journal
from ragmon.server.pending import (
    QueuedRequest,
    TraceTracker,
    UnreadableError,
    WriteBatch,
    decode_chunk,
    decode_labels,
    decode_metrics,
    decode_traces,
    drop_repeated,
    store_replies,
)
from ragmon.server.process import MemoryTrimmer
from ragmon.server.state import Clock, ServerState, recover
from ragmon.server.store import JournalError
from ragmon.stream.chunk import BatchCounts, count

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


def _fires(engine: Engine, ack: Ack) -> bool:
    """Whether the alarm fires, or the incident lasts, that is acknowledged."""
    return bool(engine.incidents.alarms_of(ack.pipeline, ack.alert)) or any(
        state.firing is not None and (state.pipeline, state.alert) == (ack.pipeline, ack.alert)
        for state in engine.alarms.states()
    )


def _only_ack(request: QueuedRequest) -> Ack | None:
    """The acknowledgement that a request consists of; None for any other request."""
    entry = request.entries[0] if len(request.entries) == 1 else None
    return entry if isinstance(entry, Ack) else None


class JournalWriter:
    """The consumer that receivers hand requests to, and the owner of the server state.

    Attributes:
        resets: How often a damaged journal was set aside.
        uncounted: Whether an error left the state without a row that is on disk, or with a part of it.
        unaccounted: Records that the journal does not account for: the residual after its rows were read.
        trouble: Why nothing can be written at the moment; "" otherwise.
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
        self.resets = int(journal.set_aside is not None)
        self._due = monotonic() + EVERY
        self._expiring = False
        self._retry_at = 0.0
        self._saved = (0, 0)
        self._saved_upto = journal.tail.upto
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
                raise UnavailableError(
                    "rows on disk are uncounted: the journal is being counted again", hint="try again"
                )
            yield

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
        """Silence an alarm, or every alarm of the incident that is named; the result is whether it was firing."""
        self._check_capacity()
        with self.lock:
            engine = self.server_state.engine
            if not engine.incidents.alarms_of(pipeline, alert):
                check_incident(pipeline, alert, {each.name: each.ended for each in engine.incidents.incidents})
                states, configured = engine.alarms.states(), engine.settings.pipelines
                pipelines = sorted({*configured, *(state.pipeline for state in states)})
                if pipeline not in pipelines:
                    raise UnknownNameError("pipeline", pipeline, pipelines)
                gates = [gate.name for gate in engine.gates.policy(pipeline).gates] if pipeline in configured else []
                alerts = sorted({*gates, *(state.alert for state in states if state.pipeline == pipeline)})
                if alert not in alerts:
                    raise UnknownNameError("alarm", alert, alerts)
            ack = Ack(pipeline=pipeline, alert=alert, reason=reason, by=by)
            fires = _fires(engine, ack)
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
        """Switch to another configuration; the counts stay. Called as a task.

        First a checkpoint is written: after a crash, rows that were scored with one gold set must not be scored again
        with another.
        """
        with self.lock:
            try:
                self._save()
            except JournalError as error:
                log_error(f"no checkpoint before the new configuration ({error.reason})", error)
            server_state.continue_from(self.server_state, self.server_state.dump())
            self.open_traces.configure(server_state.engine.settings)
            self.server_state = server_state

    def _check_capacity(self) -> None:
        if self._stopping:
            raise _stopped()
        if self._queued > QUEUED:
            raise RejectedError(BUSY, "rate_limited", "more arrived than can be written", BUSY_FOR)

    def _check_counts(self) -> None:
        if self.server_state.adder is not None:
            raise RejectedError(
                MISDIRECTED, "misdirected", "this server only adds up what others count: send it to one of those"
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
                if not self.uncounted and self._keep(ending=last):
                    self.quarantined = self.journal.quarantine_size()
                self._trimmer.trim_if_due(self.server_state.seq + sum(self.refused.values()))
            except JournalError as error:
                log_error(f"the journal cannot be written ({error.reason})", error)
                self._fail(requests, error.reason)
            except BaseException as error:  # noqa: BLE001 - the thread must survive: nothing else resolves futures
                log_error("a row could not be written or counted", error)
                self._fail(requests, "internal")
            if self.uncounted or self.journal.tail.seq != self._counted:
                self._recount()
            if last:
                return

    def _recount(self) -> None:
        """Throw the state away, and count the journal from its newest checkpoint on, as a start does."""
        self.uncounted = True
        self.trouble, self.trouble_since = UNCOUNTED, self.trouble_since or self.clock.now()
        if monotonic() < self._recount_at:
            return
        _log.error("rows on disk are uncounted: the journal is being counted again")
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
        self._counted = self.journal.tail.seq
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
                row = WriteBatch(batch, self.open_traces, now)
                row.write(requests, unwritten_counts, self.clock.now())
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
        with self._counting():
            self.server_state.failures.clear()
            self.server_state.advance(row.arrival)
            fired = [_fires(self.server_state.engine, ack) for _, ack in acks]
            self.open_traces.commit(row, self._unwritten_counts)
            self.server_state.apply(
                row.seq, row.arrival, row.counts, row.entries, row.forgotten, pause=self._yield_lock
            )
        self._counted = row.seq
        for (request, ack), is_fired in zip(acks, fired, strict=True):
            log_acknowledged(ack)
            request.future.set_result(is_fired)
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
            numbers = store_replies(unstored, batch, now)
        traces.replies.mark_stored(numbers)
        failures.clear()
        traces.released.clear()

    def _keep(self, *, ending: bool) -> bool:
        """Do the work that is due; returns whether a minute has passed, after which old data may be gone."""
        now, server_state = monotonic(), self.server_state
        due = now >= self._due
        written = self.journal.tail.upto - self._saved_upto
        many = written * PARTS >= max(self.journal.limits.size, LEAST) or (
            written >= CHECKPOINT_CHUNKS
            if server_state.adder is not None
            else server_state.engine.scorer.scored - self._saved[1] >= CHECKPOINT_RECORDS
        )
        if due or ending or (many and now >= self._retry_at):
            self._retry_at = now + PAUSE
            self._due = self._retry_at if due else self._due
            self._save()
            self._retry_at = now
        if due:
            self._due = now + EVERY
            self.journal.truncate_wal()  # the WAL still holds users' text of released requests
        if (due or self._expiring) and self.clock.calm:
            self._expiring = self.journal.expire()
        for _ in range(SLICES):
            if not self.journal.make_room():
                break
        return due

    def _save(self) -> None:
        """Write a checkpoint, if anything arrived since the last one."""
        server_state = self.server_state
        if server_state.seq == self._saved[0]:
            return
        with self.journal.begin() as batch:
            # Read in the transaction, so that no erasure comes between; the next row clears them, and tells others.
            erased = batch.forgotten(clear=False)
            with self._lock:
                server_state.erase(erased)
                data = server_state.dump()
            batch.add_failures(server_state.failures)  # recovery does not find them again: their rows are counted
            batch.save(server_state.seq, self.clock.now(), data)
        server_state.failures.clear()
        self._saved = (server_state.seq, server_state.engine.scorer.scored)
        self._saved_upto = self.journal.tail.upto

    def _reset_journal(self) -> None:
        """Set a damaged journal aside, and continue with the current state in a new one."""
        self._saved, self._due, self._retry_at = (-1, 0), 0.0, 0.0  # retry soon if it fails now
        self.resets += 1
        try:
            aside = self.journal.quarantine_and_reset()
            _log.error("the journal is damaged and was set aside: %s", aside)
            self._save()
        except JournalError as error:
            log_error(f"no new journal can be started ({error.reason})", error)

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
            self._reset_journal()
            with self._lock:
                self.open_traces.reset_journal(self.clock.arrival())


def _stopped() -> RejectedError:
    return RejectedError(UNAVAILABLE, "stopping", "the server is being stopped", BUSY_FOR)
