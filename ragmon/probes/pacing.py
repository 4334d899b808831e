"""When the next question is due: evenly, at a random moment of its turn, within a day's budget, later after failures.

The time and chance come from outside, and so does what is on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ragmon.core.quota import Spent

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


class Pace:
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


class Budget:
    """Questions a UTC day.

    Args:
        most: So many.
        spent: Where what was sent is counted so that it outlives the process; None counts in memory.

    Attributes:
        most: So many; may be set again.
    """

    def __init__(self, most: int, spent: Spent | None = None) -> None:
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
