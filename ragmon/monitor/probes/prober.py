"""The prober of one probe: sends the questions of a gold set at a steady rate, or the whole set at once as a sweep.

Questions are sent at random moments of regular intervals, within a daily quota, and with back-off after failures.
`SweepTrigger` decides which alarms start a sweep. Time, randomness and files are passed in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Thread
from time import monotonic
from typing import Final

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.config.settings import ProbeSpec
from ragmon.core import constants
from ragmon.core.errors import log_error, warn_once
from ragmon.core.http_client import DAY, BackOff, DailyQuota
from ragmon.core.record import Record
from ragmon.monitor.probes.client import CacheHitDetector, ProbeClient
from ragmon.monitor.probes.question import CACHED, LOST, OK, SKIPPED, THROTTLED, GoldQuestion, ProbeCounts, ProbeResult
from ragmon.monitor.probes.runner import ProbeWorkers

SWEEP_INTERVAL: Final = 3600.0
"""Seconds between two sweeps for the same alarm: within the hour most answers stay the same, so a second sweep adds
little, and an alarm that flaps must not spend the day's quota.
"""


class SweepTrigger:
    """Finds pipelines with new look alarms, for which a sweep is due; at most one per alarm and hour.

    Args:
        edges: Earlier transitions, which trigger nothing.
    """

    def __init__(self, edges: Iterable[AlarmTransition] = ()) -> None:
        self._seen = {transition for transition in edges if _starts_look(transition)}
        self._last: dict[tuple[str, str], float] = {}

    def see(self, edges: Iterable[AlarmTransition], now: float) -> set[str]:
        """The pipelines for which a sweep is due.

        Args:
            edges: All transitions that are kept.
            now: Monotonic seconds.
        """
        look_alarms = {transition for transition in edges if _starts_look(transition)}
        new, self._seen = look_alarms - self._seen, look_alarms
        pipelines = set()
        for transition in new:
            alarm = (transition.pipeline, transition.alert)
            if now - self._last.get(alarm, float("-inf")) >= SWEEP_INTERVAL:
                self._last[alarm] = now
                pipelines.add(transition.pipeline)
        return pipelines


def _starts_look(transition: AlarmTransition) -> bool:
    return transition.severity == constants.LOOK and transition.state == "firing"


RESERVE: Final = 0.2
"""The share of the daily quota reserved for sweeps."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
"""The limits of the first and of every pause after failures of the application, in seconds."""

Draw = Callable[[], float]
"""A random number in [0, 1)."""


def interval(items: int, every: float, max_per_day: int, *, reserve: bool) -> float:
    """Average seconds between two questions: as configured, or longer if the daily quota requires it.

    Args:
        items: Questions per round.
        every: Seconds per round.
        max_per_day: Maximum questions per day.
        reserve: Keep a part of them for sweeps.

    >>> interval(225, 3600.0, 100_000, reserve=True), interval(225, 3600.0, 2000, reserve=False)
    (16.0, 43.2)
    """
    return max(every / items, DAY / (max_per_day * (1 - RESERVE if reserve else 1)))


class JitteredSchedule:
    """One question in each interval, at a random moment of it: evenly spread, and not synchronised with anything.

    Args:
        interval: Seconds per interval.
        now: When the first interval begins.
        draw: Random numbers.
    """

    def __init__(self, interval: float, now: float, draw: Draw) -> None:
        self._interval = interval
        self._start = now
        self._draw = draw
        self._index = 0
        self.due = now + draw() * interval

    def take(self) -> None:
        """Go on to the next interval."""
        self._advance(1)

    def missed(self, now: float) -> int:
        """How many intervals passed since the last call without a question; they are not made up for."""
        intervals = int((now - self.due) // self._interval)
        if intervals > 0:
            self._advance(intervals)
        return max(0, intervals)

    def _advance(self, intervals: int) -> None:
        self._index += intervals
        self.due = self._start + (self._index + self._draw()) * self._interval


_MAX_PAUSE: Final = 60.0
"""Maximum seconds before the prober checks again what is due."""


class Prober:
    """Sends the questions of one probe.

    Args:
        spec: The probe.
        questions: The questions.
        client: Sends one question.
        take: Gets the record of every answer, in the prober's thread; returns whether it was accepted.
        counts: Counts the results of questions.
        rng: Random numbers: the order of a round, the moment of a question.
        quota: The daily quota, which may have been an earlier prober's; None: a new one.

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
        quota: DailyQuota | None = None,
    ) -> None:
        self.spec = spec
        self._questions = questions
        self._client = client
        self._workers = ProbeWorkers(client, spec.concurrency)
        self._take = take
        self._counts = counts
        self._rng = rng or random.Random()  # noqa: S311 - the schedule is no secret
        self.interval = interval(len(questions), spec.every, spec.max_per_day, reserve=spec.on_look)
        self._schedule = JitteredSchedule(self.interval, monotonic(), self._rng.random)
        self._quota = quota or DailyQuota(spec.max_per_day)
        self._back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE, draw=self._rng.random)
        self._paused_until = 0.0
        self._cache_hits = CacheHitDetector()
        self._round: deque[GoldQuestion] = deque()
        self._sweep: deque[GoldQuestion] = deque()
        self._retries: deque[GoldQuestion] = deque()
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"ragmon-probe-{spec.name}", daemon=True)

    def start(self) -> None:
        """Start sending questions."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; questions in flight are not waited for."""
        self._stopping = True
        self._workers.wake()
        self._thread.join()
        self._counts.add(self.spec.name, LOST, self._workers.abandon())
        self._client.close()

    def sweep(self) -> bool:
        """Send the whole set now; returns False if a sweep is already running."""
        if self._sweep:
            return False
        self._sweep.extend(self._shuffled())
        self._workers.wake()
        return True

    def _shuffled(self) -> list[GoldQuestion]:
        """The questions in random order, so that any part of a round is a fair sample of the set."""
        return self._rng.sample(self._questions, len(self._questions))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._counts.add(self.spec.name, SKIPPED, self._schedule.missed(monotonic()))
                while self._workers.free and (question := self._next()) is not None:
                    self._workers.send(question)
                for answered in self._workers.wait(self._pause()):
                    self._finish(answered)
            except Exception as error:  # noqa: BLE001 - the prober goes on after any failure
                log_error(f"probe {self.spec.name} failed", error)
                self._back_off_for(None)

    def _next(self) -> GoldQuestion | None:
        """The question that is due now and may be sent, if any."""
        now = monotonic()
        if self._stopping or now < self._paused_until:
            return None
        if self._quota.left <= 0:
            self._counts.add(self.spec.name, SKIPPED, len(self._sweep) + len(self._retries))
            self._sweep.clear()
            self._retries.clear()
            return None
        question = (
            self._retries.popleft()
            if self._retries
            else self._sweep.popleft()
            if self._sweep
            else self._next_of_round(now)
        )
        if question is not None and not self._quota.spend():  # another process took the last one
            self._counts.add(self.spec.name, SKIPPED)
            return None
        return question

    def _next_of_round(self, now: float) -> GoldQuestion | None:
        if now < self._schedule.due:
            return None
        self._schedule.take()
        if not self._round:
            self._round.extend(self._shuffled())
        return self._round.popleft()

    def _pause(self) -> float:
        """Seconds until the next question is due."""
        if not self._workers.free or self._quota.left <= 0:
            return _MAX_PAUSE
        due = 0.0 if self._retries or self._sweep else self._schedule.due
        return min(_MAX_PAUSE, max(0.0, due - monotonic(), self._paused_until - monotonic()))

    def _finish(self, answered: ProbeResult) -> None:
        """Count the result of a question, and pass on its record."""
        result, record = answered.result, answered.record
        if result == OK and record is not None and self._cache_hits.see(record):
            result, record = CACHED, None
        if record is not None and not self._accepted(record):
            result = LOST
        self._counts.add(self.spec.name, result)
        if result == THROTTLED:
            self._retries.append(replace(answered.question, tries=answered.question.tries + 1))
        if answered.unreachable:
            warn_once(f"probe {self.spec.name}: nobody answers ({answered.unreachable}); it is tried again and again")
        if answered.overloaded:
            self._back_off_for(answered.wait)
        else:
            self._back_off.reset()

    def _back_off_for(self, wait: float | None) -> None:
        """Send nothing for a while.

        Args:
            wait: Seconds the application asked for; None or 0 if it did not.
        """
        self._paused_until = max(self._paused_until, monotonic() + self._back_off.pause(wait or None))

    def _accepted(self, record: Record) -> bool:
        try:
            return self._take(record)
        except Exception as error:  # noqa: BLE001 - the next question is sent whatever happens here
            log_error(f"probe {self.spec.name} cannot hand on an answer", error)
            return False
