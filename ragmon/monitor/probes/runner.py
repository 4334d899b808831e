"""The workers that send questions, and one round over a gold set.

Each question in flight has its own thread and is not waited for beyond its deadline. A round sends every question once,
as fast as the application answers; `RecordSorter` sorts the records by question, and `TraceFile` writes them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from threading import Condition, Thread
from time import monotonic
from types import TracebackType
from typing import BinaryIO, Final, Self

from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.http_client import MAX_RETRY_AFTER_FOR_USER
from ragmon.core.record import Record, encode
from ragmon.monitor.probes.client import ProbeClient
from ragmon.monitor.probes.question import LOST, THROTTLED, GoldQuestion, InFlight, ProbeResult

GRACE: Final = 1.0
"""Seconds after its deadline for a question to report the timeout itself."""


class ProbeWorkers:
    """Sends questions concurrently.

    A thread cannot be stopped from outside: a function that does not return occupies a worker until it does.

    Args:
        client: Sends one question.
        size: Maximum number of concurrent questions.
        grace: Seconds after its deadline for which a question is waited for.
    """

    def __init__(self, client: ProbeClient, size: int, *, grace: float = GRACE) -> None:
        self._client = client
        self._size = size
        self._grace = grace
        self._changed = Condition()
        self._in_flight: dict[int, tuple[GoldQuestion, InFlight]] = {}
        self._abandoned: set[int] = set()
        self._results: list[ProbeResult] = []
        self._sent = 0
        self._is_woken = False

    @property
    def free(self) -> bool:
        """Whether another question may be sent."""
        with self._changed:
            return len(self._in_flight) + len(self._abandoned) < self._size

    @property
    def busy(self) -> bool:
        """Whether any result is outstanding."""
        with self._changed:
            return bool(self._in_flight or self._results)

    def send(self, question: GoldQuestion) -> None:
        """Send a question."""
        sending = self._client.sending(question)
        with self._changed:
            self._sent += 1
            number = self._sent
            self._in_flight[number] = (question, sending)
        thread = Thread(target=self._ask, args=(number, question, sending), name=f"ragmon-ask-{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process has too many threads, which is not the target's fault
            warn_once(f"a question could not be sent: {error_location(error)}")
            with self._changed:
                del self._in_flight[number]
                self._results.append(ProbeResult(question, LOST, overloaded=True))

    def _ask(self, number: int, question: GoldQuestion, sending: InFlight) -> None:
        answered = self._client.ask(question, sending)
        with self._changed:
            if self._in_flight.pop(number, None) is not None:
                self._results.append(answered)
            self._abandoned.discard(number)
            self._changed.notify_all()

    def wait(self, seconds: float) -> list[ProbeResult]:
        """The results so far, including timeouts.

        Args:
            seconds: Maximum time to wait if there are none yet.
        """
        until = monotonic() + seconds
        with self._changed:
            while not (self._results or self._is_woken or self._overdue() or (now := monotonic()) >= until):
                deadlines = [self._deadline(sending) for _, sending in self._in_flight.values()]
                self._changed.wait(min([until, *deadlines]) - now)
            self._is_woken = False
            for number in self._overdue():
                self._results.append(self._client.late(*self._in_flight.pop(number)))
                self._abandoned.add(number)
            results, self._results = self._results, []
        return results

    def _overdue(self) -> list[int]:
        now = monotonic()
        return [number for number, (_, sending) in self._in_flight.items() if self._deadline(sending) <= now]

    def _deadline(self, sending: InFlight) -> float:
        """The time until which a question is waited for; infinite once its target has returned."""
        limit = sending.deadline + self._grace
        return inf if sending.came_back <= limit else limit

    def wake(self) -> None:
        """Interrupt `wait`."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def abandon(self) -> int:
        """Stop waiting for all questions; returns how many were in flight."""
        with self._changed:
            lost = len(self._in_flight)
            self._abandoned.update(self._in_flight)
            self._in_flight.clear()
        return lost


STDOUT: Final = "-"


class RecordSorter:
    """Passes records on in the order of their index.

    Args:
        take: Called with each record.

    Attributes:
        placed: The number of indexes with a result.
    """

    def __init__(self, take: Callable[[Record], None]) -> None:
        self.placed = 0
        self._take = take
        self._next = 0
        self._waiting: dict[int, Record | None] = {}

    def put(self, place: int, record: Record | None) -> None:
        """Set the result of an index; None if it has no record."""
        self.placed += 1
        self._waiting[place] = record
        while self._next in self._waiting:
            self._pass_on(self._waiting.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Pass on the remaining records, skipping indexes without a result."""
        for index in sorted(self._waiting):
            self._pass_on(self._waiting.pop(index))

    def _pass_on(self, record: Record | None) -> None:
        if record is not None:
            self._take(record)


class TraceFile:
    """Writes records to a trace file; an existing file is overwritten.

    Args:
        output: The file; None or `-` for standard output.
        redact: Removes from a record what must not be written; None if that was done before.

    Raises:
        RagmonError: It cannot be written.
    """

    def __init__(self, output: str | None, redact: Callable[[Record], Record] | None = None) -> None:
        self._redact = redact
        self._name = output or STDOUT
        self._is_stdout = self._name == STDOUT
        try:
            # Open until `__exit__`.
            self._file: BinaryIO = sys.stdout.buffer if self._is_stdout else open(self._name, "wb")  # noqa: SIM115, PTH123
        except OSError as error:
            raise self._write_error(error) from error

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            RagmonError: It cannot be written, for example because the disk is full.
        """
        try:
            self._file.write(encode(record if self._redact is None else self._redact(record)))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> RagmonError:
        return RagmonError(f"{self._name}: cannot be written ({error.strerror})", hint="check space and rights")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stdout:
            self._file.close()


_PAUSE: Final = 1.0
"""Seconds without questions where an application has too much to do and names no time; a question has few tries."""
_MAX_PAUSE: Final = 60.0
"""Maximum seconds before the prober checks again what is due."""


def run_round(workers: ProbeWorkers, questions: Sequence[GoldQuestion]) -> Iterator[ProbeResult]:
    """Send every question once.

    Args:
        workers: Sends them.
        questions: In order.

    Yields:
        The result of each question, as it arrives. Questions are missing if all workers hang in calls that never end.
    """
    waiting, until = deque(questions), 0.0
    while waiting or workers.busy:
        while waiting and workers.free and monotonic() >= until:
            workers.send(waiting.popleft())
        pause = until - monotonic() if waiting and workers.free else _MAX_PAUSE
        for answered in workers.wait(pause):
            if answered.result == THROTTLED:
                retried = answered.question
                waiting.appendleft(replace(retried, tries=retried.tries + 1))
                until = monotonic() + min(answered.wait or _PAUSE, MAX_RETRY_AFTER_FOR_USER)
            yield answered
        if waiting and not (workers.busy or workers.free):
            return
