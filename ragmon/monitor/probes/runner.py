"""Questions under way: each in a thread of its own, so many at once, and none waited for beyond its time.

Traces of probes as lines: in the order of the questions, whatever the order of the answers.

One round: every question once, in order, as fast as the application answers.
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

from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record, encode
from ragmon.monitor.probes.client import ProbeClient
from ragmon.monitor.probes.question import LOST, THROTTLED, Answered, GoldQuestion, InFlight

GRACE: Final = 1.0
"""Seconds after its deadline a question may take to say so itself."""


class ProbeWorkers:
    """Asks questions side by side.

    A thread cannot be ended from outside: a function that does not return keeps its place until it does.

    Args:
        client: Asks one.
        size: How many at once.
        grace: Seconds after its deadline for which a question is waited for.
    """

    def __init__(self, client: ProbeClient, size: int, *, grace: float = GRACE) -> None:
        self._client = client
        self._size = size
        self._grace = grace
        self._changed = Condition()
        self._under_way: dict[int, tuple[GoldQuestion, InFlight]] = {}
        self._left_behind: set[int] = set()
        self._back: list[Answered] = []
        self._sent = 0
        self._woken = False

    @property
    def free(self) -> bool:
        """Whether another question may be sent."""
        with self._changed:
            return len(self._under_way) + len(self._left_behind) < self._size

    @property
    def busy(self) -> bool:
        """Whether an answer is waited for."""
        with self._changed:
            return bool(self._under_way or self._back)

    def send(self, question: GoldQuestion) -> None:
        """Send a question."""
        sending = self._client.sending(question)
        with self._changed:
            self._sent += 1
            number = self._sent
            self._under_way[number] = (question, sending)
        ask = Thread(target=self._ask, args=(number, question, sending), name=f"ragmon-ask-{number}", daemon=True)
        try:
            ask.start()
        except RuntimeError as error:  # this process has no thread left, which says nothing of the target
            warn_once(f"a question could not be sent: {whereabouts(error)}")
            with self._changed:
                del self._under_way[number]
                self._back.append(Answered(question, LOST, overloaded=True))

    def _ask(self, number: int, question: GoldQuestion, sending: InFlight) -> None:
        answered = self._client.ask(question, sending)
        with self._changed:
            if self._under_way.pop(number, None) is not None:
                self._back.append(answered)
            self._left_behind.discard(number)
            self._changed.notify_all()

    def wait(self, seconds: float) -> list[Answered]:
        """What came back, and what is waited for no longer.

        Args:
            seconds: How long to wait where there is nothing yet.
        """
        until = monotonic() + seconds
        with self._changed:
            while not (self._back or self._woken or self._overdue() or (now := monotonic()) >= until):
                deadlines = [self._deadline(sending) for _, sending in self._under_way.values()]
                self._changed.wait(min([until, *deadlines]) - now)
            self._woken = False
            for number in self._overdue():
                self._back.append(self._client.late(*self._under_way.pop(number)))
                self._left_behind.add(number)
            found, self._back = self._back, []
        return found

    def _overdue(self) -> list[int]:
        now = monotonic()
        return [number for number, (_, sending) in self._under_way.items() if self._deadline(sending) <= now]

    def _deadline(self, sending: InFlight) -> float:
        """Until when a question is waited for; one whose target is done comes by itself."""
        limit = sending.deadline + self._grace
        return inf if sending.came_back <= limit else limit

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def abandon(self) -> int:
        """Wait for nothing any more; returns how many questions were under way."""
        with self._changed:
            lost = len(self._under_way)
            self._left_behind.update(self._under_way)
            self._under_way.clear()
        return lost


STDOUT: Final = "-"


class InOrder:
    """Hands records on in the order of their places.

    Args:
        take: Given each.

    Attributes:
        placed: Places it is known what became of.
    """

    def __init__(self, take: Callable[[Record], None]) -> None:
        self.placed = 0
        self._take = take
        self._next = 0
        self._held: dict[int, Record | None] = {}

    def put(self, place: int, record: Record | None) -> None:
        """Say what became of a place; None for nothing."""
        self.placed += 1
        self._held[place] = record
        while self._next in self._held:
            self._hand_on(self._held.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Hand on what stands behind places of which nothing is known."""
        for place in sorted(self._held):
            self._hand_on(self._held.pop(place))

    def _hand_on(self, record: Record | None) -> None:
        if record is not None:
            self._take(record)


class TraceFile:
    """A file of traces, written anew.

    Args:
        output: The file; None or `-` for standard output.
        redact: Takes out of a record what must not be written; None where that was done.

    Raises:
        RagmonError: It cannot be written.
    """

    def __init__(self, output: str | None, redact: Callable[[Record], Record] | None = None) -> None:
        self._redact = redact
        self._name = output or STDOUT
        self._is_stdout = self._name == STDOUT
        try:
            # Held open for as long as there are records to come.
            self._file: BinaryIO = sys.stdout.buffer if self._is_stdout else open(self._name, "wb")  # noqa: SIM115, PTH123
        except OSError as error:
            raise self._failed(error) from error

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            RagmonError: There is no room.
        """
        try:
            self._file.write(encode(record if self._redact is None else self._redact(record)))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> RagmonError:
        return RagmonError(f"{self._name}: cannot be written ({error.strerror})", hint="check space and rights")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stdout:
            self._file.close()


LONGEST_WAIT: Final = 60.0
"""Seconds a busy application may ask for: somebody waits for the end of the round."""
_WHILE: Final = 60.0


def run_round(workers: ProbeWorkers, questions: Sequence[GoldQuestion]) -> Iterator[Answered]:
    """Send every question once.

    Args:
        workers: Sends them.
        questions: In order.

    Yields:
        What became of each, as it comes. Questions are missing where every place is taken by one that never ended.
    """
    waiting, until = deque(questions), 0.0
    while waiting or workers.busy:
        while waiting and workers.free and monotonic() >= until:
            workers.send(waiting.popleft())
        pause = until - monotonic() if waiting and workers.free else _WHILE
        for answered in workers.wait(pause):
            if answered.result == THROTTLED:
                again = answered.question
                waiting.appendleft(replace(again, tries=again.tries + 1))
                until = monotonic() + min(answered.wait or 1.0, LONGEST_WAIT)
            yield answered
        if waiting and not (workers.busy or workers.free):
            return
