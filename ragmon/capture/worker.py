"""The thread beside the request path: it turns finished calls into records and hands them to the sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import Final, NamedTuple

from ragmon import names
from ragmon.capture.calls import Call, here
from ragmon.capture.notices import warn_once, whereabouts
from ragmon.capture.pages import CLOSED, FULL, KEPT, Page
from ragmon.capture.sinks import BatchSink, Sink
from ragmon.contract import Record

QUEUE: Final = 4096
HELD: Final = 64 * 1024 * 1024
"""Calls that may wait, and the bytes they may keep alive; the next one is dropped and counted."""
BATCH: Final = 512
"""Calls that are delivered at once to a sink that takes batches."""
_NAP: Final = 0.05
"""Seconds the worker sleeps when there is nothing to do. Waking it would cost the request path a lock."""


class Counts(NamedTuple):
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
        every: Called by the thread now and then, also while there is nothing to deliver.

    Attributes:
        page: The counters.
    """

    def __init__(
        self,
        convert: Callable[[Call], Record],
        sink: Sink | BatchSink,
        capacity: int = QUEUE,
        held: int = HELD,
        folder: Path | None = None,
        every: Callable[[], None] | None = None,
    ) -> None:
        self._convert = convert
        self._use(sink)
        self._capacity = capacity
        self._held = held
        self._folder = folder
        self._every = every
        self._prepare()

    def _prepare(self) -> None:
        self.page = Page(self._folder)
        self._room = self._held
        self._queue: deque[Call] = deque()
        self._books = Condition()
        self._done = 0
        self._taken = 0
        self._closed = False
        self._given_up = False
        self._wake = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
            self._thread.start()

    def begin_again(self, sink: Sink | BatchSink) -> None:
        """Begin anew in a forked child: the queue, the locks and the counters that came along are its parent's.

        Args:
            sink: Where the child's records go.
        """
        self.page.leave_to_parent()
        self._use(sink)
        self._prepare()

    def _use(self, sink: Sink | BatchSink) -> None:
        self._deliver = sink.deliver if isinstance(sink, BatchSink) else None
        self._submit = None if isinstance(sink, BatchSink) else sink.submit

    def submit(self, call: Call) -> None:
        """Take a finished call: an append, or a drop that is counted. Takes no lock, never blocks, never raises."""
        lane, page = here.lane, self.page
        if lane.page is not page:
            lane.page, lane.column = page, page.column(lane)
        page.count(lane.column, KEPT)
        if self._closed:
            page.count(lane.column, CLOSED)
        elif len(self._queue) >= self._capacity or call.weight > self._room:
            page.count(lane.column, FULL)
        else:
            # Nothing can come between reading and writing it: Python switches threads only where something is called.
            self._room -= call.weight
            self._queue.append(call)

    def counts(self) -> Counts:
        """What was given, delivered and lost so far, and what is on its way."""
        with self._books:
            page = self.page
            dropped, sent, received = page.dropped(), page.delivered, page.total(KEPT)
            return Counts(received, sent, dropped, received - sent - sum(dropped.values()))

    def flush(self, timeout: float) -> bool:
        """Wait until everything submitted so far is with the sink, or lost.

        Args:
            timeout: Seconds.

        Returns:
            Whether it is.
        """
        with self._books:
            target = self._taken + len(self._queue)
            self._wake.set()
            return self._books.wait_for(lambda: self._done >= target, timeout if self._thread is not None else 0)

    def stop(self, timeout: float = 5.0) -> bool:
        """Deliver what waits, then end the thread; what is late is dropped and counted.

        Args:
            timeout: Seconds.

        Returns:
            Whether there was time for all of it.
        """
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        with self._books:
            late, under_way = len(self._queue), self._taken - self._done
            self._queue.clear()
            self._given_up = True
            self.page.settle(0, {names.SHUTDOWN_TIMEOUT: late, names.UNCONFIRMED: under_way})
            self._taken += late
            self._done = self._taken
            return not late + under_way

    def _run(self) -> None:
        due = monotonic()
        while True:
            if self._step():
                continue
            if self._closed:
                return
            if monotonic() >= due:
                due = monotonic() + 1.0
                self._look_around()
            self._wake.wait(_NAP)
            self._wake.clear()

    def _look_around(self) -> None:
        try:
            if self._every is not None:
                self._every()
        except Exception as error:  # noqa: BLE001 - the thread must go on
            warn_once(f"counts could not be told: {whereabouts(error)}")

    def _step(self) -> bool:
        """Deliver what waits, a batch at most; returns whether there was anything."""
        with self._books:
            calls = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            self._room += sum(call.weight for call in calls)
            self._taken += len(calls)
        if not calls:
            return False
        records, unread = self._read(calls)
        self._settle(0, unread)
        if self._deliver is not None:
            self._give(self._deliver, records)
        else:
            for record in records:
                self._give(self._one, [record])
        return True

    def _read(self, calls: Sequence[Call]) -> tuple[list[Record], dict[str, int]]:
        """The records of calls, and how many could not be read."""
        records = []
        for call in calls:
            try:
                records.append(self._convert(call))
            except BaseException as error:  # noqa: BLE001 - extract= may raise anything, and nobody interrupts a thread
                warn_once(f"a call of {call.plan.pipeline} could not be read and is dropped: {whereabouts(error)}")
        unread = len(calls) - len(records)
        return records, {names.INVALID_SCHEMA: unread} if unread else {}

    def _one(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Hand one record to a sink that takes one at a time."""
        if self._submit is not None:
            self._submit(records[0])
        return {}

    def _give(self, deliver: Callable[[Sequence[Record]], Mapping[str, int]], records: Sequence[Record]) -> None:
        """Give records to the sink, and note before and after what became of them."""
        if not records:
            return
        self.page.give(len(records), records[0].trace_id)
        try:
            lost = dict(deliver(records))
        except BaseException as error:  # noqa: BLE001 - as above, for sinks
            warn_once(f"records could not be delivered and are dropped: {whereabouts(error)}")
            lost = {names.EXPORT_FAILED: len(records)}
        self._settle(len(records) - sum(lost.values()), lost, given=len(records))

    def _settle(self, delivered: int, lost: Mapping[str, int], given: int = 0) -> None:
        with self._books:
            if self._given_up:  # counted as unconfirmed already
                return
            self.page.settle(delivered, lost, given=given)
            self._done += delivered + sum(lost.values())
            self._books.notify_all()
