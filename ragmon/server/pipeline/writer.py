"""Acknowledgements: whether there is such an alarm, and the line that is journalled of it.

What somebody wants done by the thread that writes.

What is done now and then: checkpoints, forgetting what is old, a new journal where the old one broke.

The one thread that writes the journal: requests are put on disk together, then answered, then scored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from threading import Condition, RLock, Thread
from time import monotonic, sleep
from typing import Any, Final

from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.record import Ack, Record
from ragmon.monitor.engine import Engine, log_acknowledged
from ragmon.monitor.log import complain
from ragmon.server.journal import Journal, JournalError
from ragmon.server.memory import MemoryTrimmer
from ragmon.server.pipeline import decode
from ragmon.server.pipeline.clock import Clock
from ragmon.server.pipeline.commit import write_batch, write_beside_batch
from ragmon.server.pipeline.decode import BatchCounts, QueuedRequest, UnreadableError, WriteBatch, count
from ragmon.server.pipeline.state import ServerState
from ragmon.server.pipeline.trace_buffer import TraceTracker
from ragmon.server.receiver.interface import Encoding, ExportResult, RejectedError


def ack_entry(engine: Engine, pipeline: str, alert: str, reason: str) -> Ack:
    """The line of an acknowledgement.

    Args:
        engine: Knows the alarms; one of a gate that is configured may not have judged a minute yet.
        pipeline: Whose alarm.
        alert: Which.
        reason: What somebody says of it.

    Raises:
        UnknownNameError: There is no such alarm.
    """
    states, configured = engine.alarms.states(), engine.settings.pipelines
    pipelines = sorted({*configured, *(state.pipeline for state in states)})
    if pipeline not in pipelines:
        raise UnknownNameError("pipeline", pipeline, pipelines)
    gates = [gate.name for gate in engine.policy(pipeline).gates] if pipeline in configured else []
    alerts = sorted({*gates, *(state.alert for state in states if state.pipeline == pipeline)})
    if alert not in alerts:
        raise UnknownNameError("alarm", alert, alerts)
    return Ack(pipeline=pipeline, alert=alert, reason=reason)


def only_ack(request: QueuedRequest) -> Ack | None:
    """The acknowledgement that a request is; None where it is another."""
    found = request.entries[0] if len(request.entries) == 1 else None
    return found if isinstance(found, Ack) else None


def run_task(done: Future[Any], what: Callable[[], Any]) -> None:
    """Do it, and tell whoever asked what came of it.

    Args:
        done: Told of it.
        what: What is to be done.
    """
    try:
        done.set_result(what())
    except BaseException as error:  # noqa: BLE001 - whoever asked is told
        done.set_exception(error)


EVERY: Final = 60.0
"""Seconds between two checkpoints, and between two looks at what is old."""
CHECKPOINT_RECORDS: Final = 20_000
"""Records after which there is a checkpoint in any case: to score them again takes about half a second."""
SLICES: Final = 8
"""Transactions in which rows are deleted between two rows, at most: together they delete more than a row writes."""
PARTS: Final = 8
"""Into how many parts a journal is divided by checkpoints: up to one of them the oldest rows are deleted."""
LEAST: Final = 8 << 20
"""Bytes of a journal below which checkpoints are not made more often: each takes time, and some room itself."""
PAUSE: Final = 5.0
"""Seconds after which a checkpoint that could not be written is tried again: it takes time to make one."""
_log = logging.getLogger("ragmon.server")


class Housekeeping:
    """Keeps a journal in order.

    Args:
        journal: The journal.
        clock: The time.
        lock: Held while what was counted is read.

    Attributes:
        resets: How often a damaged journal was set aside.
    """

    def __init__(self, journal: Journal, clock: Clock, lock: AbstractContextManager[Any]) -> None:
        self.resets = int(journal.set_aside is not None)
        self._journal = journal
        self._clock = clock
        self._lock = lock
        self._due = monotonic() + EVERY
        self._expiring = False
        self._again = 0.0
        self._saved = (0, 0)
        self._saved_upto = journal.upto

    def keep(self, server_state: ServerState, *, ending: bool = False) -> bool:
        """Do what is due; returns whether a minute has passed and old things may be gone.

        Args:
            server_state: What was counted.
            ending: The server is being stopped.

        Raises:
            JournalError: The journal cannot be written.
        """
        now = monotonic()
        due = now >= self._due
        many = self._much_came(server_state) and now >= self._again
        if due or many or ending:
            self._again = now + PAUSE
            self._due = self._again if due else self._due
            self.save(server_state)
            self._again = now
        if due:
            self._due = now + EVERY
            self._journal.wipe_log()  # users' words are in it, of requests that wait for nothing any more
        if (due or self._expiring) and self._clock.calm:
            self._expiring = self._journal.expire()
        self._make_room()
        return due

    def _much_came(self, server_state: ServerState) -> bool:
        """Whether so much came since the last checkpoint that another one is due."""
        written = self._journal.upto - self._saved_upto
        return server_state.engine.scorer.scored - self._saved[1] >= CHECKPOINT_RECORDS or written * PARTS >= max(
            self._journal.limits.size, LEAST
        )

    def _make_room(self) -> None:
        """Delete the oldest rows while the journal is too large, whatever the clock says."""
        for _ in range(SLICES):
            if not self._journal.make_room():
                return

    def save(self, server_state: ServerState) -> None:
        """Write a checkpoint, if anything came since the last one."""
        if server_state.seq == self._saved[0]:
            return
        with self._journal.begin() as batch:
            forgotten = batch.forgotten()  # asked where nobody can forget more before it is saved
            with self._lock:
                server_state.forget(forgotten)
                data = server_state.dump()
            batch.fail(server_state.failures)  # nobody finds them again: the rows they are in are counted
            batch.save(server_state.seq, self._clock.now(), data)
        server_state.failures.clear()
        self._saved = (server_state.seq, server_state.engine.scorer.scored)
        self._saved_upto = self._journal.upto

    def secure(self, server_state: ServerState) -> bytes:
        """Write a checkpoint before another configuration holds, and return what was counted.

        Rows that were scored by one gold set are not to be scored again by another, should the server be killed.
        """
        try:
            self.save(server_state)
        except JournalError as error:
            complain(f"no checkpoint before another configuration ({error.reason})", error)
        return server_state.dump()

    def reset_journal(self, server_state: ServerState) -> None:
        """Set a damaged journal aside, and go on in a new one with what is known."""
        self._saved, self._due, self._again = (-1, 0), 0.0, 0.0  # should it not succeed now, as soon as there is room
        self.resets += 1
        try:
            aside = self._journal.quarantine_and_reset()
            _log.error("the journal is damaged and was set aside: %s", aside)
            self.save(server_state)
        except JournalError as error:
            complain(f"no new journal can be begun ({error.reason})", error)


TICK: Final = 0.25
"""Seconds after which time moves on although nothing came."""
BATCH_RECORDS: Final = 4_000
"""Whole records that are put on disk at once: whoever comes next waits until they are scored, some 0.2 s."""
YIELD: Final = 0.0005
"""Seconds in which somebody who waits for the lock wakes up and has it."""
QUEUED: Final = 128 << 20
"""Bytes of requests that wait to be journalled; beyond them senders are asked to wait."""
TOGETHER: Final = 16 << 20
"""Bytes of requests that are put on disk at once."""
BUSY: Final = 429
UNAVAILABLE: Final = 503
CORRUPT: Final = "corrupt"
BUSY_FOR: Final = 1.0
BROKEN_FOR: Final = 5.0
"""Seconds after which a sender may try again."""


class JournalWriter:
    """Where requests are handed in, and what was counted can be read. It is the server's `Desk`.

    Args:
        journal: Where they are put on disk.
        server_state: What was counted so far.
        waiting: Traces that wait for the rest of their spans.
        clock: The time.

    Attributes:
        lock: Held while something is counted or read.
        trouble: Why nothing can be written at the moment; "" where it can.
        trouble_since: Since when that is so, seconds since the epoch; None where it can.
        refused: Requests that were turned away, by reason.
        quarantined: Requests that are set aside in the journal.
    """

    def __init__(self, journal: Journal, server_state: ServerState, waiting: TraceTracker, clock: Clock) -> None:
        self.journal = journal
        self.server_state = server_state
        self.waiting = waiting
        self.clock = clock
        self.lock = RLock()
        self.trouble = ""
        self.trouble_since: float | None = None
        self.refused: dict[str, int] = {}
        self.quarantined = journal.quarantine_size()
        self._housekeeping = Housekeeping(journal, clock, self.lock)
        self._spare = MemoryTrimmer()
        self._queue: deque[QueuedRequest] = deque()
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._queued = 0
        self._loose = BatchCounts()
        self._changed = Condition()
        self._stopping = False
        self._thread = Thread(target=self._work, name="ragmon-journal-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what was handed in, then a checkpoint; what comes from now on is refused."""
        with self._changed:
            self.waiting.replies.hurried = True
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether anything can be written."""
        return self._thread.is_alive()

    @property
    def resets(self) -> int:
        """How often a damaged journal was set aside."""
        return self._housekeeping.resets

    def traces(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """Hand in an `ExportTraceServiceRequest`."""
        self._has_room()
        return self._hand_in(self._read(decode.decode_traces, body, form))

    def metrics(self, body: bytes, form: Encoding) -> Future[ExportResult]:
        """Hand in an `ExportMetricsServiceRequest`."""
        self._has_room()
        return self._hand_in(self._read(decode.decode_metrics, body, form))

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Hand in labels."""
        self._has_room()
        return self._hand_in(decode.decode_labels(labels, comments=self.server_state.keeps_text))

    def acknowledge(self, pipeline: str, alert: str, reason: str) -> Future[bool]:
        """Silence an alarm; the result is whether it fired.

        Raises:
            UnknownNameError: There is none.
        """
        self._has_room()
        with self.lock:
            ack = ack_entry(self.server_state.engine, pipeline, alert, reason)
        return self._hand_in(QueuedRequest(entries=[ack]))

    def reply(self, record: Record, wait: float, *, came: bool = True) -> bool:
        """Hand in what a prober got, or that it asks."""
        return self.waiting.replies.put(record, self.clock.now() + wait, came=came)

    def refuse(self, reason: str) -> None:
        """Count a request that was turned away."""
        with self._changed:
            count(self.refused, reason)

    def errand(self, what: Callable[[], Any]) -> Future[Any]:
        """Have something done between two rows."""
        done: Future[Any] = Future()
        with self._changed:
            if self._stopping:
                done.set_exception(RagmonError("the server is being stopped"))
            else:
                self._errands.append((what, done))
                self._changed.notify()
        return done

    def go_on_with(self, server_state: ServerState) -> None:
        """Go on with another configuration: what was counted stays, after a crash as well. An errand.

        Args:
            server_state: One of that configuration, with nothing counted yet.
        """
        with self.lock:
            server_state.load(self._housekeeping.secure(self.server_state))
            server_state.failures, server_state.attempts = self.server_state.failures, self.server_state.attempts
            self.waiting.configure(server_state.engine.settings)
            self.server_state = server_state

    def _has_room(self) -> None:
        """Refuse early, before anything is taken apart.

        Raises:
            RefusedError: There is too much to do, or nothing can be written.
        """
        if self._stopping:
            raise _stopped()
        if self._queued > QUEUED:
            raise RejectedError(BUSY, "rate_limited", "more came than can be written", BUSY_FOR)

    def _read(self, how: Callable[[bytes, Encoding], QueuedRequest], body: bytes, form: Encoding) -> QueuedRequest:
        try:
            return how(body, form)
        except UnreadableError as error:
            with self._changed:
                self._loose.add(error.counts)
            raise

    def _hand_in(self, request: QueuedRequest) -> Future[Any]:
        with self._changed:
            if self._stopping:
                raise _stopped()
            self._queue.append(request)
            self._queued += request.size
            self._changed.notify()
        return request.done

    def _work(self) -> None:
        """Write rows; once that ends, however it does, nobody is left waiting."""
        try:
            self._run()
        finally:
            with self._changed:
                self._stopping = True
                requests, errands = list(self._queue), list(self._errands)
                self._queue.clear()
                self._errands.clear()
            for request in requests:
                request.done.set_exception(_stopped())
            for _, done in errands:
                done.set_exception(RagmonError("the server is being stopped"))

    def _run(self) -> None:
        """Write rows until the server is stopped and nothing waits."""
        while True:
            with self._changed:
                if not (self._queue or self._errands or self._stopping or self.waiting.behind):
                    self._changed.wait(TICK)
                requests, errands = self._together(), list(self._errands)
                self._errands.clear()
                last = self._stopping and not requests
            for what, done in errands:
                run_task(done, what)
            try:
                self._turn(requests)
                if last:
                    write_beside_batch(self.journal, self.waiting, self.server_state.failures, self.clock.arrival())
                if self._housekeeping.keep(self.server_state, ending=last):
                    self.quarantined = self.journal.quarantine_size()
                self._spare.give_back(self.server_state.seq + sum(self.refused.values()))
            except JournalError as error:
                complain(f"the journal cannot be written ({error.reason})", error)
                self._fail(requests, error.reason)
            except Exception as error:  # noqa: BLE001 - the thread must live: without it nobody is ever told anything
                complain("a row could not be written", error)
                self._fail(requests, "internal")
            if last:
                return

    def _together(self) -> list[QueuedRequest]:
        """The next requests that are put on disk together."""
        found: list[QueuedRequest] = []
        size = records = 0
        while self._queue:
            size, records = size + self._queue[0].size, records + len(self._queue[0].whole)
            if found and (size > TOGETHER or records > BATCH_RECORDS):
                break
            found.append(self._queue.popleft())
        self._queued -= sum(request.size for request in found)
        return found

    def _turn(self, requests: list[QueuedRequest]) -> None:
        """Write one row, answer those who wait for it, and count it; without anything to write, let time pass."""
        now = self.clock.arrival()
        self.waiting.complete(now, self.journal.attempts, self.lock)
        with self._changed:
            loose, self._loose = self._loose, BatchCounts()
        # Trouble ends when a row can be written.
        if not (requests or self.waiting.has_news(now) or loose or self.trouble):
            with self.lock:
                self.server_state.advance(now)
            write_beside_batch(self.journal, self.waiting, self.server_state.failures, self.clock.arrival())
            return
        try:
            with self.journal.begin() as batch:
                row = write_batch(batch, requests, self.waiting, loose, now, self.clock.now())
                batch.fail(self.server_state.failures)
        except BaseException:
            with self._changed:
                self._loose.add(loose)
            raise
        self.trouble, self.trouble_since = "", None
        if any(found.aside for found in self.waiting.ready):
            self.journal.attempts.commit()
            self.quarantined = self.journal.quarantine_size()
        for request in requests:
            if not only_ack(request):
                request.done.set_result(request.taken)
        self._count(row, requests)

    def _count(self, row: WriteBatch, requests: Sequence[QueuedRequest]) -> None:
        """Take in what is on disk."""
        acks = [(request, ack) for request in requests if (ack := only_ack(request))]
        engine, firing = self.server_state.engine, set[tuple[str, str]]()
        with self.lock:
            self.server_state.failures.clear()
            self.server_state.advance(row.arrival)
            if acks:
                firing = {(one.pipeline, one.alert) for one in engine.alarms.states() if one.firing is not None}
            self.waiting.commit(row, self._loose)
            self.server_state.take(row.seq, row.arrival, row.counts, row.entries, row.forgotten, self._pause)
        for request, ack in acks:
            log_acknowledged(ack.pipeline, ack.alert, ack.reason)
            request.done.set_result((ack.pipeline, ack.alert) in firing)

    def _pause(self) -> None:
        """Give the lock to whoever waits for it; it is held once."""
        self.lock.release()
        sleep(YIELD)  # without it this thread would have the lock again before another one wakes up
        self.lock.acquire()

    def _fail(self, requests: Sequence[QueuedRequest], reason: str) -> None:
        """Nothing was written: whoever waits may try again."""
        self.trouble, self.trouble_since = reason, self.trouble_since or self.clock.now()
        for request in requests:
            if not request.done.done():
                self.refuse(reason)
                refused = RejectedError(UNAVAILABLE, reason, f"nothing can be written ({reason})", BROKEN_FOR)
                request.done.set_exception(refused)
        if reason == CORRUPT:
            self._housekeeping.reset_journal(self.server_state)
            with self.lock:
                self.waiting.reset_journal(self.clock.arrival())


def _stopped() -> RejectedError:
    return RejectedError(UNAVAILABLE, "stopping", "the server is being stopped", BUSY_FOR)
