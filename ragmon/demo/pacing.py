"""How far a run of the demo has come: its time, without the pauses of the machine, and its traffic.

A laptop that sleeps, a virtual machine that its host stops and a machine with too much to do answer nothing for a
while. The windows of the gates are then empty, and a run that only looks at the clock ends without having shown
anything. So the clock of a run stands still during a pause, and each half of the run also waits for its traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ragmon.demo.load import PLANNED_RATE

LONGEST_GAP: Final = 3.0
"""Seconds between two looks at the clock, half a second apart by plan; what is beyond is a pause of the machine."""
ENOUGH: Final = 0.5
"""Share of the planned calls that a half of the run waits for."""
PATIENCE: Final = 3.0
"""How many times its planned length a half of the run may last."""

# Seconds since the start of the machine, on Linux with those in which it slept.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which this machine did not run the demo.

    Args:
        seconds: How long it was.
        began: The local time at its beginning.
    """

    seconds: float
    began: datetime

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s at {self.began:%H:%M:%S}"


class Pacing:
    """The clock of a run, and the calls of each half.

    Args:
        seconds: The planned duration of the run; the second half begins with the incident.
        count_calls: Returns how many calls were captured since the start of the run.

    Attributes:
        now: Seconds since the start, without pauses.
        pauses: The pauses of the machine, in their order.
        expected_calls: About how many calls a half of the run should have.
    """

    def __init__(self, seconds: float, count_calls: Callable[[], int]) -> None:
        self.now = 0.0
        self.pauses: list[Pause] = []
        self.expected_calls = round(PLANNED_RATE * seconds / 2)
        self._half = seconds / 2
        self._count_calls = count_calls
        self._half_began = 0.0
        self._calls_before = 0
        self._last_look = time.clock_gettime(_CLOCK)

    def advance(self) -> Pause | None:
        """Look at the clock; returns the pause that ended just before, if there was one."""
        look = time.clock_gettime(_CLOCK)
        gap, self._last_look = look - self._last_look, look
        self.now += min(gap, LONGEST_GAP)
        if gap <= LONGEST_GAP:
            return None
        self.pauses.append(Pause(gap, datetime.now().astimezone() - timedelta(seconds=gap)))
        return self.pauses[-1]

    @property
    def calls(self) -> int:
        """How many calls this half of the run has had."""
        return self._count_calls() - self._calls_before

    @property
    def has_enough_calls(self) -> bool:
        """Whether this half of the run has had the calls it waits for."""
        return self.calls >= ENOUGH * self.expected_calls

    @property
    def is_due(self) -> bool:
        """Whether this half of the run has lasted as long as planned."""
        return self.now - self._half_began >= self._half

    def is_over(self, *, decided: bool) -> bool:
        """Whether this half of the run is over.

        Args:
            decided: Its gates show what they should, however many calls there were.
        """
        lasted = self.now - self._half_began
        return self.is_due and (decided or self.has_enough_calls or lasted >= PATIENCE * self._half)

    def begin_second_half(self) -> None:
        """The incident begins."""
        self._half_began = self.now
        self._calls_before = self._count_calls()
