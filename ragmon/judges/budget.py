"""How often a judge may be asked in a day."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import time
from typing import Final

from ragmon.capture.folders import make_private

DAY: Final = 86_400
"""Seconds; days begin at midnight UTC."""
SUFFIX: Final = ".spent"


class Budget:
    """Requests of one day, counted over all processes of this application on this machine.

    A request is one byte at the end of the day's file: where that byte came to lie is how many there were. A restart
    goes on from it.

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
        self._folder = folder
        self._name = name
        self._lock = Lock()
        self._day = -1
        self._own = 0
        self._is_spent = False

    def begin_again(self) -> None:
        """Go on in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()

    def spend(self) -> bool:
        """Take one request out of today's; returns whether there was one left."""
        with self._lock:
            day = int(self._clock() // DAY)
            if day > self._day or day < self._day - 1:  # a clock that is put back over midnight begins no new day
                self._day, self._own, self._is_spent = day, 0, False
                self._forget(day)
            if self._is_spent:
                return False
            self._own += 1
            self._is_spent = max(self._own, self._place(self._day)) > self._per_day
            return not self._is_spent

    def _place(self, day: int) -> int:
        """Which request of the day this one is, as far as files tell."""
        if self._folder is None:
            return 0
        try:
            make_private(self._folder)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._folder / f"{self._name}-{day}{SUFFIX}", flags, 0o600)
            try:
                os.write(file, b".")
                return os.lseek(file, 0, os.SEEK_CUR)
            finally:
                os.close(file)
        except OSError:  # a folder nobody may write to, a full disk: this process counts for itself
            return 0

    def _forget(self, day: int) -> None:
        """Remove what earlier days left."""
        if self._folder is None:
            return
        with suppress(OSError):
            for path in self._folder.glob(f"{self._name}-*{SUFFIX}"):
                if path.name != f"{self._name}-{day}{SUFFIX}":
                    path.unlink(missing_ok=True)
