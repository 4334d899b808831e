"""The thread beside the request path: it turns finished calls into records and hands them to the sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from time import monotonic, time
from typing import Final, NamedTuple

from ragmon.capture.call import Call, here
from ragmon.capture.counters import CLOSED, FULL, KEPT, CounterFile
from ragmon.capture.exporters.base import BATCH, BatchExporter, Exporter, ExporterAdapter, Processor
from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record

QUEUE: Final = 4096
HELD: Final = 64 * 1024 * 1024
"""Calls that may wait, and the bytes they may keep alive; the next one is dropped and counted."""
LINGER: Final = 0.2
"""Seconds a call waits for spans inside it that have not ended."""
DRAIN_SHARE: Final = 0.5
"""Share of the time somebody waits that records on a detour have; the rest is for their way to the sink."""
_LOOK: Final = 0.2
"""Seconds between two looks at what else is to be done."""
_NAP: Final = 0.05
"""Seconds the worker sleeps when there is nothing to do. Waking it would cost the request path a lock."""


class QueuedRecord(NamedTuple):
    """A record that was made elsewhere.

    Attributes:
        record: The record.
        weight: Estimated bytes it keeps alive.
    """

    record: Record
    weight: int


class WorkerCounts(NamedTuple):
    """What the worker was given and what became of it, at one moment."""

    received: int
    sent: int
    dropped: dict[str, int]
    pending: int


class Worker:
    """A bounded queue and the daemon thread that empties it.

    Args:
        convert: Makes a record of a call.
        sink: Where records go.
        capacity: Calls that may wait.
        held: Bytes they may keep alive, as estimated.
        folder: Where the counters lie so that they outlive the process; None keeps them in memory alone.
        detour: Where records may stay a while before they go to the sink; None has none.
        every: Called by the thread now and then, also while there is nothing to deliver; told whether somebody waits
            for it.

    Attributes:
        page: The counters.
    """

    def __init__(
        self,
        convert: Callable[[Call], Record],
        sink: Exporter | BatchExporter,
        capacity: int = QUEUE,
        held: int = HELD,
        folder: Path | None = None,
        every: Callable[[bool], None] | None = None,
        detour: Processor | None = None,
    ) -> None:
        self._convert = convert
        self._door = ExporterAdapter(sink)
        self._capacity = capacity
        self._held = held
        self._folder = folder
        self._every = every
        self._detour = detour
        self._prepare()

    def _prepare(self) -> None:
        self.page = CounterFile(self._folder)
        self._room = self._held
        self._queue: deque[Call | QueuedRecord] = deque()
        self._books = Condition()
        self._done = 0
        self._taken = 0
        self._closed = False
        self._given_up = False
        self._until = inf
        self._target = self._asked = self._answered = 0
        self._wake: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it at any moment
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is not None:
            return
        with self._books:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
                self._thread.start()

    def reset_after_fork(self, sink: Exporter | BatchExporter, detour: Processor | None = None) -> None:
        """Begin anew in a forked child: the queue, the locks and the counters that came along are its parent's.

        Args:
            sink: Where the child's records go.
            detour: Where they may stay a while before.
        """
        self._detour = detour
        self.page.leave_to_parent()
        self._door = ExporterAdapter(sink)
        self._prepare()

    def submit(self, call: Call | QueuedRecord) -> None:
        """Take a finished call: an append, or a drop that is counted. Takes no lock, never blocks, never raises."""
        lane, page = here.lane, self.page
        if lane.page is not page:
            lane.page, lane.column = page, page.column(lane)
        if lane.column:
            page.words[lane.column] += 1
        else:
            page.count(0, KEPT)
        if self._closed:
            page.count(lane.column, CLOSED)
        elif len(self._queue) >= self._capacity or call.weight > self._room:
            page.count(lane.column, FULL)
        else:
            # Nothing can come between reading and writing it: Python switches threads only where something is called.
            self._room -= call.weight
            self._queue.append(call)

    def counts(self) -> WorkerCounts:
        """What was given, delivered and lost so far, and what is on its way."""
        with self._books:
            page = self.page
            dropped, sent, received = page.dropped(), page.delivered, page.total(KEPT)
            return WorkerCounts(received, sent, dropped, received - sent - sum(dropped.values()))

    def flush(self, timeout: float) -> bool:
        """Wait until everything submitted so far is with the sink, or lost, and all there is to tell is told.

        Args:
            timeout: Seconds.

        Returns:
            Whether it is.
        """
        with self._books:
            self._target = self._taken + len(self._queue)
            self._asked = asked = self._asked + 1
            self._until = min(self._until, monotonic() + timeout * DRAIN_SHARE)
            self._wake.put(None)
            if self.is_told:
                return self._done >= self._target
            return self._books.wait_for(lambda: self._answered >= asked and self._done >= self._target, timeout)

    def stop(self, timeout: float = 5.0) -> bool:
        """Deliver what waits and tell what there is to tell, then end the thread; what is late is dropped and counted.

        Args:
            timeout: Seconds.

        Returns:
            Whether there was time for all of it.
        """
        self._until = min(self._until, monotonic() + timeout * DRAIN_SHARE)
        self._closed = True
        self._wake.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
        with self._books:
            late, under_way = len(self._queue), self._taken - self._done
            self._queue.clear()
            self._given_up = True
            self.page.commit(0, {constants.SHUTDOWN_TIMEOUT: late, constants.UNCONFIRMED: under_way})
            self._taken += late
            self._done = self._taken
            return not late + under_way

    @property
    def is_told(self) -> bool:
        """Whether the thread came to its end, and told all there was to tell."""
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        due = monotonic()
        while True:
            asked = self._asked
            if monotonic() >= due or (asked > self._answered and self._done >= self._target):
                due = monotonic() + _LOOK
                self._tick(asked)
            if self._step():
                continue
            if self._closed:
                self._tick(asked + 1)
                if not self._queue and (self._detour is None or not self._detour.holds):
                    return
            with suppress(Empty):
                self._wake.get(timeout=_NAP)

    def _tick(self, asked: int) -> None:
        """Do what is done now and then; all of it where somebody asked."""
        try:
            if self._every is not None:
                self._every(asked > self._answered)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            warn_once(f"counts could not be told: {whereabouts(error)}")
        with self._books:
            if self._done >= self._target:
                self._answered = asked
                self._until = self._until if self._closed else inf
                # What looking around has brought up belongs to what was asked for.
                self._target = self._taken + len(self._queue)
            self._books.notify_all()

    def _step(self) -> bool:
        """Deliver what waits, a batch at most; returns whether there was anything."""
        with self._books:
            calls = self._next()
            weight = sum(call.weight for call in calls)
            self._room += weight
            self._taken += len(calls)
        if not calls and (self._detour is None or not self._detour.holds):
            return False
        records, unread = self._read(calls)
        self._settle(0, unread)
        records = self._onward(records)
        for start in range(0, len(records), self._door.at_once):
            given = records[start : start + self._door.at_once]
            self.page.give(len(given), given[0].trace_id)
            lost = self._door.give(given)
            self._settle(len(given) - sum(lost.values()), lost, given=len(given))
        return bool(calls or records)

    def _onward(self, records: list[Record]) -> list[Record]:
        """The records that go to the sink now."""
        if self._detour is None:
            return records
        try:
            return self._detour.take(records, self._until)
        except Exception as error:  # noqa: BLE001 - the thread must go on, and so must the records
            warn_once(f"records go on unjudged: {whereabouts(error)}")
            return records

    def _next(self) -> list[Call | QueuedRecord]:
        """The calls that are delivered now; one with spans that have not ended holds back those behind it."""
        taken: list[Call | QueuedRecord] = []
        while self._queue and len(taken) < BATCH and not self._lingers(self._queue[0]):
            taken.append(self._queue.popleft())
        return taken

    def _lingers(self, call: Call | QueuedRecord) -> bool:
        """Whether spans inside a call may yet end, and nobody is in a hurry."""
        if not isinstance(call, Call) or not call.open or self._closed or self._asked > self._answered:
            return False
        return 0 <= time() - call.ts < LINGER

    def _read(self, calls: Sequence[Call | QueuedRecord]) -> tuple[list[Record], dict[str, int]]:
        """The records of calls, and how many could not be read."""
        records = []
        for call in calls:
            try:
                records.append(self._convert(call) if isinstance(call, Call) else call.record)
                if isinstance(call, Call):
                    call.forget()  # tasks it started may hold it for as long as they run
            except BaseException as error:  # noqa: BLE001 - extract= may raise anything, and nobody interrupts a thread
                warn_once(f"a call could not be read and is dropped: {whereabouts(error)}")
        unread = len(calls) - len(records)
        return records, {constants.INVALID_SCHEMA: unread} if unread else {}

    def _settle(self, delivered: int, lost: Mapping[str, int], given: int = 0) -> None:
        with self._books:
            if self._given_up:  # counted as unconfirmed already
                return
            self.page.commit(delivered, lost, given=given)
            self._done += delivered + sum(lost.values())
            self._books.notify_all()
