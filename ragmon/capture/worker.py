"""The worker thread: it turns finished calls into records and exports them, off the request path."""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Condition, Thread
from time import monotonic, time
from typing import Final, NamedTuple

from ragmon.capture.call import Call
from ragmon.capture.counters import CLOSED, FULL, KEPT, CounterFile
from ragmon.capture.exporters import BATCH, BatchExporter, Exporter, ExporterAdapter, Processor
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once
from ragmon.core.process import sleep_if_inherited
from ragmon.core.record import Record

QUEUE: Final = 4096
MAX_BYTES: Final = 64 * 1024 * 1024
"""Limits of the queue, in calls and in bytes they keep alive; beyond them calls are dropped and counted."""
LINGER: Final = 0.2
"""Seconds a call waits in the queue for spans inside it that have not ended."""
DRAIN_SHARE: Final = 0.5
"""Share of a flush timeout for the processor to return its records; the rest is for the export."""
_TICK_INTERVAL: Final = 0.2
_IDLE_SLEEP: Final = 0.05
"""Seconds the worker sleeps when there is nothing to do. To wake it would cost the request path a lock."""


class QueuedRecord(NamedTuple):
    """A record made by other code, for example by the span processor, and the estimated bytes it keeps alive."""

    record: Record
    weight: int


class WorkerCounts(NamedTuple):
    """How many calls and records the worker received, sent and dropped, and how many are pending, at one moment."""

    received: int
    sent: int
    dropped: dict[str, int]
    pending: int


class Worker:
    """A bounded queue and the daemon thread that empties it.

    Args:
        folder: Folder of the counter file, so that counts survive a crash; None keeps the counters in memory only.
        every: Called periodically by the thread, also when idle; its argument says whether a flush waits.
    """

    def __init__(
        self,
        convert: Callable[[Call], Record],
        sink: Exporter | BatchExporter,
        capacity: int = QUEUE,
        max_bytes: int = MAX_BYTES,
        folder: Path | None = None,
        every: Callable[[bool], None] | None = None,
        processor: Processor | None = None,
    ) -> None:
        self._convert = convert
        self._exporter = ExporterAdapter(sink)
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._folder = folder
        self._periodic = every
        self._processor = processor
        self._prepare()

    def _prepare(self) -> None:
        self.counter_file = CounterFile(self._folder)
        self._free_bytes = self._max_bytes
        self._queue: deque[Call | QueuedRecord] = deque()
        self._condition = Condition()
        self._done = 0
        self._dequeued = 0
        self._closed = False
        self._stopped = False
        self._drain_deadline = inf
        self._target = self._flushes = self._flushed = 0
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # a signal handler may put into it at any moment
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is not None:
            return
        with self._condition:
            if self._thread is None:
                # gevent may have replaced the class since the fork: its greenlets must not wait for the whole process.
                self._wake = queue.SimpleQueue()
                self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
                self._thread.start()

    def reset_after_fork(self, sink: Exporter | BatchExporter, processor: Processor | None = None) -> None:
        """Reset in a forked child: the queue, locks and counters it inherited belong to the parent."""
        self._processor = processor
        self.counter_file.leave_to_parent()
        self._exporter = ExporterAdapter(sink)
        self._prepare()

    def submit(self, call: Call | QueuedRecord) -> None:
        """Queue a finished call, or drop and count it. Takes no lock, never blocks, never raises."""
        page = self.counter_file
        page.count(KEPT)
        if self._closed:
            page.count(CLOSED)
        elif len(self._queue) >= self._capacity or call.weight > self._free_bytes:
            page.count(FULL)
        else:
            # No other thread can run between this read and write: Python switches threads only at calls.
            self._free_bytes -= call.weight
            self._queue.append(call)

    def counts(self) -> WorkerCounts:
        """How many calls and records were received, delivered and lost so far, and how many are pending."""
        with self._condition:
            page = self.counter_file
            dropped, sent, received = page.dropped(), page.delivered, page.total(KEPT)
            return WorkerCounts(received, sent, dropped, received - sent - sum(dropped.values()))

    def flush(self, timeout: float) -> bool:
        """Wait until everything submitted so far is exported or lost, and the periodic task has run.

        Returns whether that took no longer than the timeout in seconds.
        """
        with self._condition:
            self._target = self._dequeued + len(self._queue)
            self._flushes = flush_id = self._flushes + 1
            self._drain_deadline = min(self._drain_deadline, monotonic() + timeout * DRAIN_SHARE)
            self._wake.put(None)
            if self.is_told:
                return self._done >= self._target
            return self._condition.wait_for(lambda: self._flushed >= flush_id and self._done >= self._target, timeout)

    def stop(self, timeout: float = 5.0) -> bool:
        """Deliver what is queued, run the periodic task, then end the thread; late records are dropped and counted.

        Returns whether all of that took no longer than the timeout in seconds.
        """
        self._drain_deadline = min(self._drain_deadline, monotonic() + timeout * DRAIN_SHARE)
        self._closed = True
        self._wake.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
        with self._condition:
            late, in_flight = len(self._queue), self._dequeued - self._done
            self._queue.clear()
            self._stopped = True
            self.counter_file.commit(0, {constants.SHUTDOWN_TIMEOUT: late, constants.UNCONFIRMED: in_flight})
            self._dequeued += late
            self._done = self._dequeued
            return not late + in_flight

    @property
    def is_told(self) -> bool:
        """Whether the thread has ended, after its last periodic task."""
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        process, due = os.getpid(), monotonic()
        while True:
            sleep_if_inherited(process)
            flush_id = self._flushes
            if monotonic() >= due or (flush_id > self._flushed and self._done >= self._target):
                due = monotonic() + _TICK_INTERVAL
                self._tick(flush_id, process)
            if self._step(process):
                continue
            if self._closed:
                self._tick(flush_id + 1, process)
                if not self._queue and (self._processor is None or not self._processor.holds):
                    return
            with suppress(queue.Empty):
                self._wake.get(timeout=_IDLE_SLEEP)

    def _tick(self, flush_id: int, process: int) -> None:
        # All the work at once if a flush waits.
        try:
            if self._periodic is not None:
                self._periodic(flush_id > self._flushed)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            warn_once(f"counts could not be told: {error_location(error)}")
        sleep_if_inherited(process)
        with self._condition:
            if self._done >= self._target:
                self._flushed = flush_id
                self._drain_deadline = self._drain_deadline if self._closed else inf
                # Records that the periodic task has queued belong to this flush.
                self._target = self._dequeued + len(self._queue)
            self._condition.notify_all()

    def _step(self, process: int) -> bool:
        with self._condition:
            # The calls to deliver now; a call with spans that have not ended holds back the calls behind it.
            calls: list[Call | QueuedRecord] = []
            while self._queue and len(calls) < BATCH and not self._lingers(self._queue[0]):
                calls.append(self._queue.popleft())
            weight = sum(call.weight for call in calls)
            self._free_bytes += weight
            self._dequeued += len(calls)
        if not calls and (self._processor is None or not self._processor.holds):
            return False
        records = []
        for call in calls:
            try:
                records.append(self._convert(call) if isinstance(call, Call) else call.record)
                if isinstance(call, Call):
                    call.forget()  # tasks it started may reference it as long as they run
            except BaseException as error:  # noqa: BLE001 - extract= may raise anything, and the thread must go on
                warn_once(f"a call could not be read and is dropped: {error_location(error)}")
        failed = len(calls) - len(records)
        sleep_if_inherited(process)
        self._commit(0, {constants.INVALID_SCHEMA: failed} if failed else {})
        if self._processor is not None:
            try:
                records = self._processor.take(records, self._drain_deadline)
            except Exception as error:  # noqa: BLE001 - the thread must go on, and the records must be exported
                warn_once(f"records go on unjudged: {error_location(error)}")
        sleep_if_inherited(process)
        for start in range(0, len(records), self._exporter.at_once):
            batch = records[start : start + self._exporter.at_once]
            self.counter_file.give(len(batch), batch[0].trace_id)
            lost = self._exporter.give(batch)
            sleep_if_inherited(process)  # the parent counts what it gave
            self._commit(len(batch) - sum(lost.values()), lost, given=len(batch))
        return bool(calls or records)

    def _lingers(self, call: Call | QueuedRecord) -> bool:
        # Spans inside a call may still end.
        if not isinstance(call, Call) or not call.open or self._closed or self._flushes > self._flushed:
            return False
        return 0 <= time() - call.ts < LINGER

    def _commit(self, delivered: int, lost: Mapping[str, int], given: int = 0) -> None:
        with self._condition:
            if self._stopped:  # already counted as unconfirmed
                return
            self.counter_file.commit(delivered, lost, given=given)
            self._done += delivered + sum(lost.values())
            self._condition.notify_all()
