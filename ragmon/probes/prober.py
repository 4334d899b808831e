"""A prober: sends the questions of a gold set for ever, at its rate, and the whole set at once when it is told to."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Thread
from time import monotonic, time
from typing import Final

from ragmon.config.settings import ProbeSpec
from ragmon.core.log import warn_once
from ragmon.core.record import Record
from ragmon.probes.asking import Asker
from ragmon.probes.cached import Cached
from ragmon.probes.counting import Counts
from ragmon.probes.crew import Crew
from ragmon.probes.pacing import BackOff, Budget, Pace, interval
from ragmon.probes.question import CACHED, LOST, OK, SKIPPED, THROTTLED, Answered, Question
from ragmon.server.complaints import complain

_WHILE: Final = 60.0
"""Seconds a prober waits at most before it looks again what is due."""


class Prober:
    """Sends the questions of one probe.

    Args:
        spec: The probe.
        questions: What it asks.
        asker: Asks one of them.
        take: Given the record of every answer, in the prober's thread; returns whether it could be kept.
        counts: Counts what becomes of questions.
        rng: Chance: the order of a round, the moment of a question.
        wall: Seconds since the epoch, for the day's budget.
        budget: What may still be sent today, where another prober sent before it.

    Attributes:
        spec: The probe.
        interval: Seconds between two questions, on average.
    """

    def __init__(
        self,
        spec: ProbeSpec,
        questions: Sequence[Question],
        asker: Asker,
        take: Callable[[Record], bool],
        *,
        counts: Counts,
        rng: random.Random | None = None,
        wall: Callable[[], float] = time,
        budget: Budget | None = None,
    ) -> None:
        self.spec = spec
        self._questions = questions
        self._asker = asker
        self._crew = Crew(asker, spec.concurrency)
        self._take = take
        self._counts = counts
        self._rng = rng or random.Random()  # noqa: S311 - when to ask is no secret
        self._wall = wall
        self.interval = interval(len(questions), spec.every, spec.max_per_day, reserve=spec.on_look)
        self._pace = Pace(self.interval, monotonic(), self._rng.random)
        self._budget = budget or Budget(spec.max_per_day)
        self._back_off = BackOff(self._rng.random)
        self._cached = Cached()
        self._round: deque[Question] = deque()
        self._sweep: deque[Question] = deque()
        self._again: deque[Question] = deque()
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"ragmon-probe-{spec.name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; what is under way is not waited for."""
        self._stopping = True
        self._crew.wake()
        self._thread.join()
        self._counts.add(self.spec.name, LOST, self._crew.abandon())
        self._asker.close()

    def sweep(self) -> bool:
        """Send the whole set now; returns whether that is not being done already."""
        if self._sweep:
            return False
        self._sweep.extend(self._shuffled())
        self._crew.wake()
        return True

    def _shuffled(self) -> list[Question]:
        """Any stretch of a round is to be a fair sample of the set, not a stretch of its file."""
        return self._rng.sample(self._questions, len(self._questions))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._counts.add(self.spec.name, SKIPPED, self._pace.missed(monotonic()))
                while self._crew.free and (question := self._next()) is not None:
                    self._crew.send(question)
                for answered in self._crew.wait(self._pause()):
                    self._settle(answered)
            except Exception as error:  # noqa: BLE001 - a prober that fails harms nobody and goes on
                complain(f"probe {self.spec.name} failed", error)
                self._back_off.failed(monotonic())

    def _next(self) -> Question | None:
        """The question that is due now, if one is and may be sent."""
        now, wall = monotonic(), self._wall()
        if self._stopping or now < self._back_off.until:
            return None
        if self._budget.left(wall) <= 0:
            self._counts.add(self.spec.name, SKIPPED, len(self._sweep) + len(self._again))
            self._sweep.clear()
            self._again.clear()
            return None
        found = self._again.popleft() if self._again else self._sweep.popleft() if self._sweep else self._in_turn(now)
        if found is not None:
            self._budget.spend(wall)
        return found

    def _in_turn(self, now: float) -> Question | None:
        if now < self._pace.due:
            return None
        self._pace.take()
        if not self._round:
            self._round.extend(self._shuffled())
        return self._round.popleft()

    def _pause(self) -> float:
        """Seconds until there is something to do, as far as is known."""
        if not self._crew.free or self._budget.left(self._wall()) <= 0:
            return _WHILE
        due = 0.0 if self._again or self._sweep else self._pace.due
        return min(_WHILE, max(0.0, due - monotonic(), self._back_off.until - monotonic()))

    def _settle(self, answered: Answered) -> None:
        """Count an answer, and hand on its record."""
        result, record = answered.result, answered.record
        if result == OK and record is not None and self._cached.see(record):
            result, record = CACHED, None
        if record is not None and not self._taken(record):
            result = LOST
        self._counts.add(self.spec.name, result)
        if result == THROTTLED:
            self._again.append(replace(answered.question, tries=answered.question.tries + 1))
        if answered.unreachable:
            warn_once(f"probe {self.spec.name}: nobody answers ({answered.unreachable}); it is tried again and again")
        if answered.overloaded:
            self._back_off.failed(monotonic(), answered.wait)
        else:
            self._back_off.worked()

    def _taken(self, record: Record) -> bool:
        try:
            return self._take(record)
        except Exception as error:  # noqa: BLE001 - whatever takes it, the next question is asked
            complain(f"probe {self.spec.name} cannot hand on an answer", error)
            return False
