"""Which alarms ask for a look: those that began just now, of which none asked within the hour.

When the next question is due: evenly, at a random moment of its turn, within a day's budget, later after failures.

The time and chance come from outside, and so does what is on disk.

A prober: sends the questions of a gold set for ever, at its rate, and the whole set at once when it is told to.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Thread
from time import monotonic, time
from typing import Final

from ragmon.alarms import AlarmTransition
from ragmon.config.settings import ProbeSpec
from ragmon.core import constants
from ragmon.core.log import warn_once
from ragmon.core.quota import DailyQuota
from ragmon.core.record import Record
from ragmon.monitor.log import complain
from ragmon.monitor.probes.client import CacheHitDetector, ProbeClient
from ragmon.monitor.probes.question import CACHED, LOST, OK, SKIPPED, THROTTLED, Answered, GoldQuestion, ProbeCounts
from ragmon.monitor.probes.runner import ProbeWorkers

APART: Final = 3600.0
"""Seconds between two whole sets that the same alarm asks for. One set tells what there is to tell: the same questions
have mostly the same answers within the hour; and an alarm that flutters must not spend the day's budget."""


class SweepTrigger:
    """Reads the alarms that began and ended.

    Args:
        edges: Those of before; they ask for nothing.
    """

    def __init__(self, edges: Iterable[AlarmTransition] = ()) -> None:
        self._known = {edge for edge in edges if _asks(edge)}
        self._last: dict[tuple[str, str], float] = {}

    def see(self, edges: Iterable[AlarmTransition], now: float) -> set[str]:
        """The pipelines that are to be looked at.

        Args:
            edges: All that are remembered.
            now: Seconds of any clock that never goes back.
        """
        found = {edge for edge in edges if _asks(edge)}
        new, self._known = found - self._known, found
        pipelines = set()
        for edge in new:
            alarm = (edge.pipeline, edge.alert)
            if now - self._last.get(alarm, float("-inf")) >= APART:
                self._last[alarm] = now
                pipelines.add(edge.pipeline)
        return pipelines


def _asks(edge: AlarmTransition) -> bool:
    return edge.severity == constants.LOOK and edge.state == "firing"


DAY: Final = 86_400.0
RESERVE: Final = 0.2
"""The share of a day's budget that is kept for whole sets sent when an alarm asks for a look."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
"""Seconds without questions after failures: twice as long after each."""
LONGEST_WAIT: Final = 3600.0
"""Seconds an application may ask to be left alone."""

Draw = Callable[[], float]
"""A random number in [0, 1)."""


def interval(items: int, every: float, max_per_day: int, *, reserve: bool) -> float:
    """Seconds between two questions on average: as configured, or longer where the day's budget asks for it.

    Args:
        items: Questions of a round.
        every: Seconds a round is to take.
        max_per_day: Questions a day at most.
        reserve: A part of them is not sent in rounds.

    >>> interval(225, 3600.0, 100_000, reserve=True), interval(225, 3600.0, 2000, reserve=False)
    (16.0, 43.2)
    """
    return max(every / items, DAY / (max_per_day * (1 - RESERVE if reserve else 1)))


class JitteredSchedule:
    """One question in each turn of time, at a random moment of it: even, and never in step with anything.

    Args:
        interval: Seconds of a turn.
        now: When the first one begins.
        draw: Chance.
    """

    def __init__(self, interval: float, now: float, draw: Draw) -> None:
        self._interval = interval
        self._begin = now
        self._draw = draw
        self._turn = 0
        self.due = now + draw() * interval

    def take(self) -> None:
        """Go on to the next turn."""
        self._go_on(1)

    def missed(self, now: float) -> int:
        """How many turns passed since somebody asked last in which nothing could be sent; they are not made up for."""
        turns = int((now - self.due) // self._interval)
        if turns > 0:
            self._go_on(turns)
        return max(0, turns)

    def _go_on(self, turns: int) -> None:
        self._turn += turns
        self.due = self._begin + (self._turn + self._draw()) * self._interval


class QuestionBudget:
    """Questions a UTC day.

    Args:
        most: So many.
        spent: Where what was sent is counted so that it outlives the process; None counts in memory.

    Attributes:
        most: So many; may be set again.
    """

    def __init__(self, most: int, spent: DailyQuota | None = None) -> None:
        self.most = most
        self._day = -1
        self._sent = 0
        self._spent = spent

    def left(self, now: float) -> int:
        """How many may still be sent today.

        Args:
            now: Seconds since the epoch.
        """
        day = int(now // DAY)
        if day > self._day or day < self._day - 1:  # a clock that is put back over midnight begins no new day
            self._day, self._sent = day, 0 if self._spent is None else self._spent.begin(day)
        return self.most - self._sent

    def spend(self, now: float) -> None:
        """Count one."""
        self.left(now)
        place = 0 if self._spent is None else self._spent.add(self._day)
        self._sent = max(self._sent + 1, place)


class BackOff:
    """Leaves an application alone that cannot answer just now.

    Args:
        draw: Chance.

    Attributes:
        until: No question is sent before this.
    """

    def __init__(self, draw: Draw) -> None:
        self.until = 0.0
        self._draw = draw
        self._failures = 0

    def failed(self, now: float, wait: float | None = None) -> None:
        """Wait, twice as long as after the failure before.

        Args:
            now: Seconds of any clock that never goes back.
            wait: Seconds the application asked for; None where it did not.
        """
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 16)) * (0.5 + self._draw() / 2)
        self._failures += 1
        self.until = max(self.until, now + max(pause, min(wait or 0.0, LONGEST_WAIT)))

    def worked(self) -> None:
        """Somebody answers."""
        self._failures = 0


_WHILE: Final = 60.0
"""Seconds a prober waits at most before it looks again what is due."""


class Prober:
    """Sends the questions of one probe.

    Args:
        spec: The probe.
        questions: What it asks.
        client: Asks one of them.
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
        questions: Sequence[GoldQuestion],
        client: ProbeClient,
        take: Callable[[Record], bool],
        *,
        counts: ProbeCounts,
        rng: random.Random | None = None,
        wall: Callable[[], float] = time,
        budget: QuestionBudget | None = None,
    ) -> None:
        self.spec = spec
        self._questions = questions
        self._client = client
        self._workers = ProbeWorkers(client, spec.concurrency)
        self._take = take
        self._counts = counts
        self._rng = rng or random.Random()  # noqa: S311 - when to ask is no secret
        self._wall = wall
        self.interval = interval(len(questions), spec.every, spec.max_per_day, reserve=spec.on_look)
        self._schedule = JitteredSchedule(self.interval, monotonic(), self._rng.random)
        self._budget = budget or QuestionBudget(spec.max_per_day)
        self._back_off = BackOff(self._rng.random)
        self._cached = CacheHitDetector()
        self._round: deque[GoldQuestion] = deque()
        self._sweep: deque[GoldQuestion] = deque()
        self._again: deque[GoldQuestion] = deque()
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"ragmon-probe-{spec.name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; what is under way is not waited for."""
        self._stopping = True
        self._workers.wake()
        self._thread.join()
        self._counts.add(self.spec.name, LOST, self._workers.abandon())
        self._client.close()

    def sweep(self) -> bool:
        """Send the whole set now; returns whether that is not being done already."""
        if self._sweep:
            return False
        self._sweep.extend(self._shuffled())
        self._workers.wake()
        return True

    def _shuffled(self) -> list[GoldQuestion]:
        """Any stretch of a round is to be a fair sample of the set, not a stretch of its file."""
        return self._rng.sample(self._questions, len(self._questions))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._counts.add(self.spec.name, SKIPPED, self._schedule.missed(monotonic()))
                while self._workers.free and (question := self._next()) is not None:
                    self._workers.send(question)
                for answered in self._workers.wait(self._pause()):
                    self._settle(answered)
            except Exception as error:  # noqa: BLE001 - a prober that fails harms nobody and goes on
                complain(f"probe {self.spec.name} failed", error)
                self._back_off.failed(monotonic())

    def _next(self) -> GoldQuestion | None:
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

    def _in_turn(self, now: float) -> GoldQuestion | None:
        if now < self._schedule.due:
            return None
        self._schedule.take()
        if not self._round:
            self._round.extend(self._shuffled())
        return self._round.popleft()

    def _pause(self) -> float:
        """Seconds until there is something to do, as far as is known."""
        if not self._workers.free or self._budget.left(self._wall()) <= 0:
            return _WHILE
        due = 0.0 if self._again or self._sweep else self._schedule.due
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
