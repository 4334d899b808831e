"""Clocks: what time it is, unmoved by jumps; when a request came, which never goes back; what CPU a thread has left."""

from __future__ import annotations

from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, thread_time, time
from typing import Final

JUMP: Final = 2.0
"""Seconds the system's clock may differ from the time that passed before it counts as a jump."""
BELIEVED: Final = 60.0
"""Seconds after which a jump that lasts is believed: somebody set the clock right."""
CALM: Final = 900.0
"""Seconds after a jump in which nothing is deleted for its age: the jump may be taken back."""
SLICE: Final = 0.05
"""Seconds of CPU that the thread that writes may work before others have their turn."""


def _passed() -> float:
    """Seconds that passed, those asleep included."""
    return clock_gettime(CLOCK_BOOTTIME)


class Clock:
    """The time of the server.

    Args:
        wall: The system's clock, seconds since the epoch.
        passed: Seconds that passed since any moment; never goes back.

    Attributes:
        jumps: How often the system's clock jumped.

    >>> clock = Clock(wall=lambda: 100.0, passed=lambda: 5.0)
    >>> clock.go_on_from(130.0)
    >>> clock.now(), clock.arrival()
    (100.0, 130.0)
    """

    def __init__(self, wall: Callable[[], float] = time, passed: Callable[[], float] = _passed) -> None:
        self.jumps = 0
        self._wall = wall
        self._passed = passed
        self._at = (wall(), passed())
        self._jump: tuple[float, float] | None = None
        self._calm_from = 0.0
        self._arrival = self._at

    def go_on_from(self, last: float) -> None:
        """What comes now came no earlier than the last request before this process began."""
        self._arrival = (max(last, self._arrival[0]), self._arrival[1])

    def now(self) -> float:
        """What time it is, seconds since the epoch; a jump of the system's clock is not followed at once."""
        seen, passed = self._wall(), self._passed()
        expected = self._at[0] + passed - self._at[1]
        drift = seen - expected
        if abs(drift) <= JUMP:
            self._at, self._jump = (seen, passed), None
            return seen
        if self._jump is None or abs(drift - self._jump[0]) > JUMP:
            self.jumps += 1
            self._jump = (drift, passed)
            self._calm_from = passed + CALM
        elif passed - self._jump[1] >= BELIEVED:
            self._at, self._jump = (seen, passed), None
            return seen
        return expected

    @property
    def calm(self) -> bool:
        """Whether the system's clock has not jumped lately."""
        self.now()
        return self._passed() >= self._calm_from

    def arrival(self) -> float:
        """When what comes now came; while that is ahead of the clock it goes at half its pace, and never back."""
        now, (last, then) = self.now(), self._arrival
        passed = self._passed()
        self._arrival = (max(now, last + (passed - then) / 2), passed)
        return self._arrival[0]


class Deadline:
    """A time of this thread's own clock.

    Args:
        seconds: Seconds of CPU from now.
    """

    def __init__(self, seconds: float) -> None:
        self._cpu = thread_time() + seconds
        self._wall = monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether it has; the clock that is quickly read says no before the other one can say yes."""
        return monotonic() >= self._wall and thread_time() >= self._cpu
