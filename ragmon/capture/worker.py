"""The thread beside the request path: it turns finished calls into records and hands them to the sink."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic
from typing import Final

from ragmon import names
from ragmon.capture.calls import Call
from ragmon.capture.sinks import Sink
from ragmon.contract import Record

logger = logging.getLogger("ragmon")
QUEUE: Final = 4096
"""Calls that may wait; the next one is dropped and counted."""
_NAP: Final = 0.2


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
        self._emptied = Condition()
        self._busy = False
        self._stopping = False
        self._thread: Thread | None = None
        self.received = 0
        self.sent = 0
        self.dropped: dict[str, int] = {}

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is None:
            self._stopping = False
            self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
            self._thread.start()

    def submit(self, call: Call) -> None:
        """Take a finished call: an append, or a drop that is counted. Never blocks, never raises."""
        self.received += 1
        if len(self._queue) >= self._capacity:
            self._drop(names.QUEUE_FULL)
        else:
            self._queue.append(call)

    def _drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    @property
    def pending(self) -> int:
        """Calls that wait."""
        return len(self._queue) + self._busy

    def flush(self, timeout: float) -> bool:
        """Wait until everything submitted so far is with the sink.

        Args:
            timeout: Seconds.

        Returns:
            Whether it is.
        """
        deadline = monotonic() + timeout
        with self._emptied:
            while self.pending and self._thread is not None:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._emptied.wait(min(left, _NAP))
        return not self.pending

    def stop(self, timeout: float = 5.0) -> bool:
        """Flush, then end the thread; returns whether everything was delivered."""
        done = self.flush(timeout)
        self._stopping = True
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None
        return done

    def _run(self) -> None:
        while not self._stopping:
            if not self._queue:
                with self._emptied:
                    self._emptied.notify_all()
                    # The request path must not take a lock to wake this thread, so it looks by itself.
                    self._emptied.wait(_NAP / 10)
                continue
            self._busy = True
            call = self._queue.popleft()
            try:
                self._sink.submit(self._convert(call))
                self.sent += 1
            except Exception:
                self._drop(names.SCORER_ERROR)
                logger.exception("a captured call could not be delivered; it is counted and dropped")
            finally:
                self._busy = False
