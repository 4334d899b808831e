"""How often a judge may be asked in a day."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import time
from typing import Final

from ragmon.capture.folders import make_private
from ragmon.spent import Spent

DAY: Final = 86_400
"""Seconds; days begin at midnight UTC."""


class Budget:
    """Requests of one day, counted over all processes of this application on this machine.

    A restart goes on from what was spent.

    Args:
        per_day: Requests a day.
        clock: Seconds since the epoch.
        folder: Where the day's file lies; None counts in this process alone.
        name: Tells judges apart.
    """

    def __init__(
        self, per_day: int, *, clock: Callable[[], float] = time, folder: Path | None = None, name: str = "judge"
    ) -> None:
        self._per_day = per_day
        self._clock = clock
        self._spent = None if folder is None else Spent(folder, name, make_private)
        self._lock = Lock()
        self._day = -1
        self._own = 0
        self._unused = 0
        self._is_spent = False

    def begin_again(self) -> None:
        """Go on in a forked child: the parent may have held the lock, and what came back is the parent's."""
        self._lock = Lock()
        self._unused = 0

    def spend(self) -> bool:
        """Take one request out of today's; returns whether there was one left."""
        with self._lock:
            day = int(self._clock() // DAY)
            if day > self._day or day < self._day - 1:  # a clock that is put back over midnight begins no new day
                self._day, self._own, self._unused, self._is_spent = day, 0, 0, False
                if self._spent is not None:
                    self._spent.begin(day)
            if self._unused:
                self._unused -= 1
                return True
            if self._is_spent:
                return False
            self._own += 1
            place = 0 if self._spent is None else self._spent.add(self._day)
            self._is_spent = max(self._own, place) > self._per_day
            return not self._is_spent

    def give_back(self) -> None:
        """Put back one request that reached nobody; this process takes it next."""
        with self._lock:
            self._unused += 1
