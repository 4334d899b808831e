"""The one thread that writes the journal: requests are put on disk together, then answered, then scored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition, RLock, Thread
from time import sleep
from typing import Any, Final

from ragmon.core.errors import RagmonError
from ragmon.core.record import Record
from ragmon.journal import Journal, JournalError
from ragmon.monitor.engine import log_acknowledged
from ragmon.monitor.log import complain
from ragmon.server.desk import Form, RefusedError, Taken
from ragmon.server.keeping import accepting
from ragmon.server.keeping.accepting import Request, UnreadableError
from ragmon.server.keeping.acknowledging import ack_of, only_ack
from ragmon.server.keeping.clock import Clock
from ragmon.server.keeping.committing import tidy, write
from ragmon.server.keeping.counts import Counts, count
from ragmon.server.keeping.errands import settle
from ragmon.server.keeping.housekeeping import Housekeeping
from ragmon.server.keeping.ledger import Ledger
from ragmon.server.keeping.row import Row
from ragmon.server.keeping.traces import Traces
from ragmon.server.memory import Spare

TICK: Final = 0.25
"""Seconds after which time moves on although nothing came."""
RECORDS: Final = 4_000
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


class Keeper:
    """Where requests are handed in, and what was counted can be read. It is the server's `Desk`.

    Args:
        journal: Where they are put on disk.
        ledger: What was counted so far.
        waiting: Traces that wait for the rest of their spans.
        clock: The time.

    Attributes:
        lock: Held while something is counted or read.
        trouble: Why nothing can be written at the moment; "" where it can.
        trouble_since: Since when that is so, seconds since the epoch; None where it can.
        refused: Requests that were turned away, by reason.
        quarantined: Requests that are set aside in the journal.
    """

    def __init__(self, journal: Journal, ledger: Ledger, waiting: Traces, clock: Clock) -> None:
        self.journal = journal
        self.ledger = ledger
        self.waiting = waiting
        self.clock = clock
        self.lock = RLock()
        self.trouble = ""
        self.trouble_since: float | None = None
        self.refused: dict[str, int] = {}
        self.quarantined = journal.quarantine_size()
        self._housekeeping = Housekeeping(journal, clock, self.lock)
        self._spare = Spare()
        self._queue: deque[Request] = deque()
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._queued = 0
        self._loose = Counts()
        self._changed = Condition()
        self._stopping = False
        self._thread = Thread(target=self._work, name="ragmon-keeper", daemon=True)

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

    def traces(self, body: bytes, form: Form) -> Future[Taken]:
        """Hand in an `ExportTraceServiceRequest`."""
        self._has_room()
        return self._hand_in(self._read(accepting.of_traces, body, form))

    def metrics(self, body: bytes, form: Form) -> Future[Taken]:
        """Hand in an `ExportMetricsServiceRequest`."""
        self._has_room()
        return self._hand_in(self._read(accepting.of_metrics, body, form))

    def labels(self, labels: Sequence[Any]) -> Future[Taken]:
        """Hand in labels."""
        self._has_room()
        return self._hand_in(accepting.of_labels(labels, comments=self.ledger.keeps_text))

    def acknowledge(self, pipeline: str, alert: str, reason: str) -> Future[bool]:
        """Silence an alarm; the result is whether it fired.

        Raises:
            UnknownNameError: There is none.
        """
        self._has_room()
        with self.lock:
            ack = ack_of(self.ledger.live, pipeline, alert, reason)
        return self._hand_in(Request(entries=[ack]))

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

    def go_on_with(self, ledger: Ledger) -> None:
        """Go on with another configuration: what was counted stays, after a crash as well. An errand.

        Args:
            ledger: One of that configuration, with nothing counted yet.
        """
        with self.lock:
            ledger.load(self._housekeeping.secure(self.ledger))
            ledger.failures, ledger.attempts = self.ledger.failures, self.ledger.attempts
            self.waiting.configure(ledger.live.settings)
            self.ledger = ledger

    def _has_room(self) -> None:
        """Refuse early, before anything is taken apart.

        Raises:
            RefusedError: There is too much to do, or nothing can be written.
        """
        if self._stopping:
            raise _stopped()
        if self._queued > QUEUED:
            raise RefusedError(BUSY, "rate_limited", "more came than can be written", BUSY_FOR)

    def _read(self, how: Callable[[bytes, Form], Request], body: bytes, form: Form) -> Request:
        try:
            return how(body, form)
        except UnreadableError as error:
            with self._changed:
                self._loose.add(error.counts)
            raise

    def _hand_in(self, request: Request) -> Future[Any]:
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
                settle(done, what)
            try:
                self._turn(requests)
                if last:
                    tidy(self.journal, self.waiting, self.ledger.failures, self.clock.arrival())
                if self._housekeeping.keep(self.ledger, ending=last):
                    self.quarantined = self.journal.quarantine_size()
                self._spare.give_back(self.ledger.seq + sum(self.refused.values()))
            except JournalError as error:
                complain(f"the journal cannot be written ({error.reason})", error)
                self._fail(requests, error.reason)
            except Exception as error:  # noqa: BLE001 - the thread must live: without it nobody is ever told anything
                complain("a row could not be written", error)
                self._fail(requests, "internal")
            if last:
                return

    def _together(self) -> list[Request]:
        """The next requests that are put on disk together."""
        found: list[Request] = []
        size = records = 0
        while self._queue:
            size, records = size + self._queue[0].size, records + len(self._queue[0].whole)
            if found and (size > TOGETHER or records > RECORDS):
                break
            found.append(self._queue.popleft())
        self._queued -= sum(request.size for request in found)
        return found

    def _turn(self, requests: list[Request]) -> None:
        """Write one row, answer those who wait for it, and count it; without anything to write, let time pass."""
        now = self.clock.arrival()
        self.waiting.complete(now, self.journal.attempts, self.lock)
        with self._changed:
            loose, self._loose = self._loose, Counts()
        # Trouble ends when a row can be written.
        if not (requests or self.waiting.has_news(now) or loose or self.trouble):
            with self.lock:
                self.ledger.advance(now)
            tidy(self.journal, self.waiting, self.ledger.failures, self.clock.arrival())
            return
        try:
            with self.journal.begin() as batch:
                row = write(batch, requests, self.waiting, loose, now, self.clock.now())
                batch.fail(self.ledger.failures)
        except BaseException:
            with self._changed:
                self._loose.add(loose)
            raise
        self.trouble, self.trouble_since = "", None
        if any(found.aside for found in self.waiting.ready):
            self.journal.attempts.settle()
            self.quarantined = self.journal.quarantine_size()
        for request in requests:
            if not only_ack(request):
                request.done.set_result(request.taken)
        self._count(row, requests)

    def _count(self, row: Row, requests: Sequence[Request]) -> None:
        """Take in what is on disk."""
        acks = [(request, ack) for request in requests if (ack := only_ack(request))]
        live, firing = self.ledger.live, set[tuple[str, str]]()
        with self.lock:
            self.ledger.failures.clear()
            self.ledger.advance(row.arrival)
            if acks:
                firing = {(one.pipeline, one.alert) for one in live.alarms.states() if one.firing is not None}
            self.waiting.settle(row, self._loose)
            self.ledger.take(row.seq, row.arrival, row.counts, row.entries, row.forgotten, self._pause)
        for request, ack in acks:
            log_acknowledged(ack.pipeline, ack.alert, ack.reason)
            request.done.set_result((ack.pipeline, ack.alert) in firing)

    def _pause(self) -> None:
        """Give the lock to whoever waits for it; it is held once."""
        self.lock.release()
        sleep(YIELD)  # without it this thread would have the lock again before another one wakes up
        self.lock.acquire()

    def _fail(self, requests: Sequence[Request], reason: str) -> None:
        """Nothing was written: whoever waits may try again."""
        self.trouble, self.trouble_since = reason, self.trouble_since or self.clock.now()
        for request in requests:
            if not request.done.done():
                self.refuse(reason)
                refused = RefusedError(UNAVAILABLE, reason, f"nothing can be written ({reason})", BROKEN_FOR)
                request.done.set_exception(refused)
        if reason == CORRUPT:
            self._housekeeping.begin_again(self.ledger)
            with self.lock:
                self.waiting.begin_again(self.clock.arrival())


def _stopped() -> RefusedError:
    return RefusedError(UNAVAILABLE, "stopping", "the server is being stopped", BUSY_FOR)
