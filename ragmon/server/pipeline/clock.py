"""Clocks: a wall clock that resists jumps, and arrival times that never go back."""

from __future__ import annotations

from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime, time
from typing import Final

JUMP: Final = 2.0
"""Seconds by which the system clock may differ from the elapsed time before this counts as a jump."""
BELIEVED: Final = 60.0
"""Seconds after which a jump that persists is accepted: the clock was corrected."""
CALM: Final = 900.0
"""Seconds after a jump in which no data is deleted for its age: the jump may be undone."""
SLICE: Final = 0.05
"""Seconds of CPU that the writer thread may work before it lets other threads run."""


def _elapsed() -> float:
    """Elapsed seconds, including time in which the machine sleeps."""
    return clock_gettime(CLOCK_BOOTTIME)


class Clock:
    """The clock of the server.

    Args:
        wall: The system clock, seconds since the epoch.
        passed: Elapsed seconds since any moment; never goes back.

    Attributes:
        jumps: How often the system clock jumped.

    >>> clock = Clock(wall=lambda: 100.0, passed=lambda: 5.0)
    >>> clock.go_on_from(130.0)
    >>> clock.now(), clock.arrival()
    (100.0, 130.0)
    """

    def __init__(self, wall: Callable[[], float] = time, passed: Callable[[], float] = _elapsed) -> None:
        self.jumps = 0
        self._wall = wall
        self._elapsed = passed
        self._reference = (wall(), passed())
        self._jump: tuple[float, float] | None = None
        self._calm_at = 0.0
        self._arrival = self._reference

    def go_on_from(self, last: float) -> None:
        """Start arrival times no earlier than the last arrival before this process started."""
        self._arrival = (max(last, self._arrival[0]), self._arrival[1])

    def now(self) -> float:
        """The time in seconds since the epoch; a jump of the system clock is not followed at once."""
        wall, passed = self._wall(), self._elapsed()
        expected = self._reference[0] + passed - self._reference[1]
        drift = wall - expected
        if abs(drift) <= JUMP:
            self._reference, self._jump = (wall, passed), None
            return wall
        if self._jump is None or abs(drift - self._jump[0]) > JUMP:
            self.jumps += 1
            self._jump = (drift, passed)
            self._calm_at = passed + CALM
        elif passed - self._jump[1] >= BELIEVED:
            self._reference, self._jump = (wall, passed), None
            return wall
        return expected

    @property
    def calm(self) -> bool:
        """Whether the system clock has not jumped recently."""
        self.now()
        return self._elapsed() >= self._calm_at

    def arrival(self) -> float:
        """The arrival time of new data; never goes back, and runs at half speed while it is ahead of the clock."""
        now, (last_arrival, elapsed_then) = self.now(), self._arrival
        elapsed_now = self._elapsed()
        self._arrival = (max(now, last_arrival + (elapsed_now - elapsed_then) / 2), elapsed_now)
        return self._arrival[0]
