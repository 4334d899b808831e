"""The thread beside the request path: it turns finished calls into records and hands them to the sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from threading import Condition, Event, Thread
from typing import Final, NamedTuple

from ragmon import names
from ragmon.capture.calls import Call, seen
from ragmon.capture.notices import warn_once, whereabouts
from ragmon.capture.sinks import Sink
from ragmon.contract import Record

QUEUE: Final = 4096
"""Calls that may wait; the next one is dropped and counted."""
EXPORT_FAILED: Final = "export_failed"
SHUTDOWN_TIMEOUT: Final = "shutdown_timeout"
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
    """

    def __init__(self, convert: Callable[[Call], Record], sink: Sink, capacity: int = QUEUE) -> None:
        self._convert = convert
        self._sink = sink
        self._capacity = capacity
        self._queue: deque[Call] = deque()
        self._refused = {names.QUEUE_FULL: count(), SHUTDOWN_TIMEOUT: count()}
        self._books = Condition()
        self._taken = 0
        self._under_way = 0
        self._sent = 0
        self._failed: dict[str, int] = {}
        self._closed = False
        self._wake = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
            self._thread.start()

    def submit(self, call: Call) -> None:
        """Take a finished call: an append, or a drop that is counted. Takes no lock, never blocks, never raises."""
        if self._closed:
            next(self._refused[SHUTDOWN_TIMEOUT])
        elif len(self._queue) >= self._capacity:
            next(self._refused[names.QUEUE_FULL])
        else:
            self._queue.append(call)

    def counts(self) -> Counts:
        """What was given, delivered and lost so far, and what is on its way."""
        with self._books:
            dropped = {reason: n for reason, counter in self._refused.items() if (n := seen(counter))}
            refused, waiting = sum(dropped.values()), len(self._queue)
            for reason, n in self._failed.items():
                dropped[reason] = dropped.get(reason, 0) + n
            return Counts(self._taken + waiting + refused, self._sent, dropped, waiting + self._under_way)

    @property
    def _done(self) -> int:
        return self._sent + sum(self._failed.values())

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
            late = len(self._queue)
            self._queue.clear()
            self._taken += late
            if late:
                self._fail(SHUTDOWN_TIMEOUT, late)
            return self._done == self._taken and SHUTDOWN_TIMEOUT not in self._failed

    def _fail(self, reason: str, n: int = 1) -> None:
        self._failed[reason] = self._failed.get(reason, 0) + n

    def _run(self) -> None:
        while True:
            if self._step():
                continue
            if self._closed:
                return
            self._wake.wait(_NAP)
            self._wake.clear()

    def _step(self) -> bool:
        """Deliver one call; returns whether there was one."""
        with self._books:
            if not self._queue:
                return False
            call = self._queue.popleft()
            self._taken += 1
            self._under_way = 1
        reason = self._deliver(call)
        with self._books:
            self._under_way = 0
            if reason is None:
                self._sent += 1
            else:
                self._fail(reason)
            self._books.notify_all()
        return True

    def _deliver(self, call: Call) -> str | None:
        """Deliver a call; returns the reason when it is lost."""
        try:
            record = self._convert(call)
        except BaseException as error:  # noqa: BLE001 - extract= may raise anything, and nobody can interrupt a thread
            warn_once(f"a call of {call.plan.pipeline} could not be read and is dropped: {whereabouts(error)}")
            return names.INVALID_SCHEMA
        try:
            self._sink.submit(record)
        except BaseException as error:  # noqa: BLE001 - as above, for sinks
            warn_once(f"a record could not be delivered and is dropped: {whereabouts(error)}")
            return EXPORT_FAILED
        return None
