"""Leaves a judge's server alone that does not answer: what is asked of it costs budget, and brings nothing."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

FAILURES: Final = 6
"""Failed requests in a row after which nobody asks for a while: two records, at three attempts each."""
FIRST: Final = 30.0
LONGEST: Final = 900.0
"""Seconds without requests then; twice as long after each trial that fails."""


class Breaker:
    """Opens after several failures in a row, lets one request through now and then, and closes once that is answered.

    Args:
        failures: How many; without end it never opens.
        clock: Seconds of any clock that never goes back.
    """

    def __init__(self, failures: float = FAILURES, *, clock: Callable[[], float] = monotonic) -> None:
        self._most = failures
        self._clock = clock
        self._failures = 0
        self._pause = FIRST
        self._until = 0.0
        self._is_trying = False
        self.begin_again()

    def begin_again(self) -> None:
        """Go on in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether the server is left alone."""
        return self._failures >= self._most

    def admits(self) -> bool:
        """Whether the server may be asked now; where it is left alone, one may try when the pause is over."""
        with self._lock:
            if not self.is_open:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until, self._is_trying = now + self._pause, True
            return True

    def failed(self) -> None:
        """A request failed: nobody was there, it took too long, or the server says that it cannot."""
        with self._lock:
            was_open = self.is_open
            self._failures += 1
            if was_open and self._is_trying:
                self._pause = min(LONGEST, 2 * self._pause)
            if self.is_open and (self._is_trying or not was_open):  # others under way then tell nothing new
                self._until, self._is_trying = self._clock() + self._pause, False

    def worked(self) -> None:
        """The server answered, whatever it said."""
        with self._lock:
            self._failures, self._pause, self._is_trying = 0, FIRST, False
