"""Daily quotas, counted in a file that processes share without a lock and that outlives them.

A judge has such a quota of requests a day.
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
    """A count per day, kept as the length of a file: one byte for each use.

    Args:
        folder: The folder of the files.
        name: Identifies the quota; its files of other days are removed.
        make: Makes the folder, or raises OSError where it may not be written to; None where the folder exists.
    """

    def __init__(self, folder: Path, name: str, make: Callable[[Path], None] | None = None) -> None:
        self._folder = folder
        self._name = name
        self._make = make

    def add(self, day: int) -> int:
        """Count one use.

        Args:
            day: Days since the epoch.

        Returns:
            The count of the day; 0 where nothing can be written: a read-only folder, a full disk.
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
        """Start or continue a day and remove the files of older days; returns the count so far.

        The files of later days and of the day before stay: a clock that is set back and corrected must not reset them.
        """
        with suppress(OSError):
            self._prepare()
            for path in self._folder.glob(f"{self._name}-*{SUFFIX}"):
                if not _is_recent(path, day):
                    with suppress(OSError):  # an old file that stays does no harm
                        path.unlink()
            return self._path(day).lstat().st_size
        return 0

    def _prepare(self) -> None:
        if self._make is not None:
            self._make(self._folder)

    def _path(self, day: int) -> Path:
        return self._folder / f"{self._name}-{day}{SUFFIX}"


def _is_recent(path: Path, day: int) -> bool:
    day_text = path.stem.rpartition("-")[2]
    return day_text.isdigit() and int(day_text) >= day - 1


DAY: Final = 86_400
"""Seconds in a day; days begin at midnight UTC."""


class JudgeBudget:
    """The requests of one day, counted over all processes of this application on this machine.

    A restart continues the count.

    Args:
        per_day: Requests a day.
        clock: Seconds since the epoch.
        folder: The folder of the day's file; None counts in this process alone.
        name: Identifies the judge.
    """

    def __init__(
        self, per_day: int, *, clock: Callable[[], float] = time, folder: Path | None = None, name: str = "judge"
    ) -> None:
        self._per_day = per_day
        self._clock = clock
        self._quota = None if folder is None else DailyQuota(folder, name, make_private)
        self._lock = Lock()
        self._day = -1
        self._own_count = 0
        self._given_back = 0
        self._is_exhausted = False

    def reset_after_fork(self) -> None:
        """Reset in a forked child: the parent may hold the lock, and requests given back belong to the parent."""
        self._lock = Lock()
        self._given_back = 0

    def spend(self) -> bool:
        """Take one request from today's budget; returns whether one was left."""
        with self._lock:
            day = int(self._clock() // DAY)
            if day > self._day or day < self._day - 1:  # a clock set back over midnight starts no new day
                self._day, self._own_count, self._given_back, self._is_exhausted = day, 0, 0, False
                if self._quota is not None:
                    self._quota.begin(day)
            if self._given_back:
                self._given_back -= 1
                return True
            if self._is_exhausted:
                return False
            self._own_count += 1
            count = 0 if self._quota is None else self._quota.add(self._day)
            self._is_exhausted = max(self._own_count, count) > self._per_day
            return not self._is_exhausted

    def give_back(self) -> None:
        """Put back a request that was not sent; this process uses it next."""
        with self._lock:
            self._given_back += 1
