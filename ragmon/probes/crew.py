"""Questions under way: each in a thread of its own, so many at once, and none waited for beyond its time."""

from __future__ import annotations

from math import inf
from threading import Condition, Thread
from time import monotonic
from typing import Final

from ragmon.core.log import warn_once, whereabouts
from ragmon.probes.asking import Asker
from ragmon.probes.question import LOST, Answered, Question, Sending

GRACE: Final = 1.0
"""Seconds after its deadline a question may take to say so itself."""


class Crew:
    """Asks questions side by side.

    A thread cannot be ended from outside: a function that does not return keeps its place until it does.

    Args:
        asker: Asks one.
        size: How many at once.
        grace: Seconds after its deadline for which a question is waited for.
    """

    def __init__(self, asker: Asker, size: int, *, grace: float = GRACE) -> None:
        self._asker = asker
        self._size = size
        self._grace = grace
        self._changed = Condition()
        self._under_way: dict[int, tuple[Question, Sending]] = {}
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

    def send(self, question: Question) -> None:
        """Send a question."""
        sending = self._asker.sending(question)
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

    def _ask(self, number: int, question: Question, sending: Sending) -> None:
        answered = self._asker.ask(question, sending)
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
                deadlines = [self._patience(sending) for _, sending in self._under_way.values()]
                self._changed.wait(min([until, *deadlines]) - now)
            self._woken = False
            for number in self._overdue():
                self._back.append(self._asker.late(*self._under_way.pop(number)))
                self._left_behind.add(number)
            found, self._back = self._back, []
        return found

    def _overdue(self) -> list[int]:
        now = monotonic()
        return [number for number, (_, sending) in self._under_way.items() if self._patience(sending) <= now]

    def _patience(self, sending: Sending) -> float:
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
