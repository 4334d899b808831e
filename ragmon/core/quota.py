"""What was spent of a day's budget, in a file: it outlives the process, and processes share it without a lock.

How often a judge may be asked in a day.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import time
from typing import Final

from ragmon.core.private_files import make_private

SUFFIX: Final = ".spent"


class DailyQuota:
    """One byte for each thing of a day, in a file of that day: where it comes to lie is how many there were.

    Args:
        folder: Where the files lie.
        name: Tells budgets apart; the files of other days that have it are removed.
        make: Makes the folder, or says that nothing may be written there; None where it is there.
    """

    def __init__(self, folder: Path, name: str, make: Callable[[Path], None] | None = None) -> None:
        self._folder = folder
        self._name = name
        self._make = make

    def add(self, day: int) -> int:
        """Count one more.

        Args:
            day: Days since the epoch.

        Returns:
            How many there are; 0 where nothing can be written: a folder nobody may write to, a full disk.
        """
        try:
            self._prepare()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._path(day), flags, 0o600)
            try:
                os.write(file, b".")
                return os.lseek(file, 0, os.SEEK_CUR)
            finally:
                os.close(file)
        except OSError:
            return 0

    def begin(self, day: int) -> int:
        """Begin a day, or go on with it, and remove what older days left; returns how many there are already.

        Later days and the one before stay: a clock that is put back and right again must not begin them anew.
        """
        with suppress(OSError):
            self._prepare()
            for path in self._folder.glob(f"{self._name}-*{SUFFIX}"):
                if not _is_recent(path, day):
                    with suppress(OSError):  # one that cannot be removed tells nothing of today
                        path.unlink()
            return self._path(day).lstat().st_size
        return 0

    def _prepare(self) -> None:
        if self._make is not None:
            self._make(self._folder)

    def _path(self, day: int) -> Path:
        return self._folder / f"{self._name}-{day}{SUFFIX}"


def _is_recent(path: Path, day: int) -> bool:
    told = path.stem.rpartition("-")[2]
    return told.isdigit() and int(told) >= day - 1


DAY: Final = 86_400
"""Seconds; days begin at midnight UTC."""


class JudgeBudget:
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
        self._spent = None if folder is None else DailyQuota(folder, name, make_private)
        self._lock = Lock()
        self._day = -1
        self._own = 0
        self._unused = 0
        self._is_spent = False

    def reset_after_fork(self) -> None:
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
