"""Pauses between attempts, `Retry-After`, quotas per day, and deadlines in CPU time of a thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from http import HTTPStatus
from math import isnan
from pathlib import Path
from random import random
from threading import Lock
from time import monotonic, thread_time, time
from typing import Final

from ragmon.core.process import make_private

OVERLOADED: Final[frozenset[int]] = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Status codes of an overloaded server or its gateway: a later attempt may succeed (OTLP specification, Failures)."""
MAX_RETRY_AFTER: Final = 3600.0
"""Maximum seconds of a `Retry-After` that is respected; a server that names more is asked again after an hour."""
MAX_RETRY_AFTER_FOR_USER: Final = 60.0
"""The same where a user waits for the end of a command."""


def retry_after(text: str | None) -> float | None:
    """Seconds of a `Retry-After` header, given as a number or a date; None if it is missing or not valid.

    A number that is too large for a double is infinite: `BackOff` has a limit.

    Source: RFC 9110, section 10.2.3.

    >>> retry_after("1.5"), retry_after("-3"), retry_after("soon")
    (1.5, 0.0, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a date is rare

        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time()
    return None if isnan(seconds) else max(0.0, seconds)


class BackOff:
    """Pauses between attempts: random, so that many clients do not retry together, below a limit that doubles.

    Source: M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015 ("full jitter").

    Args:
        first: The limit of the first pause, in seconds.
        longest: The limit of every pause, in seconds.
        max_retry_after: Maximum seconds of a `Retry-After` that is respected.
        draw: A random number in [0, 1); a constant 1 makes every pause as long as its limit.

    >>> back_off = BackOff(1.0, 5.0, draw=lambda: 1.0)
    >>> [back_off.pause() for _ in range(4)], back_off.pause(30.0), back_off.pause(1e9)
    ([1.0, 2.0, 4.0, 5.0], 30.0, 3600.0)
    """

    def __init__(
        self,
        first: float,
        longest: float,
        *,
        max_retry_after: float = MAX_RETRY_AFTER,
        draw: Callable[[], float] = random,
    ) -> None:
        self._first = first
        self._longest = longest
        self._max_retry_after = max_retry_after
        self._draw = draw
        self._limit = first

    def pause(self, retry_after: float | None = None) -> float:
        """Seconds to wait before the next attempt.

        Args:
            retry_after: Seconds the server asks to wait, which is respected; None if it does not.
        """
        limit, self._limit = self._limit, min(self._longest, 2 * self._limit)
        return self._draw() * limit if retry_after is None else min(retry_after, self._max_retry_after)

    def reset(self) -> None:
        """An attempt succeeded: the next pause is a first pause."""
        self._limit = self._first


SUFFIX: Final = ".spent"
DAY: Final = 86_400
"""Seconds in a day; days begin at midnight UTC."""


class DailyQuota:
    """A number of requests per day, shared by threads, and by processes that have the same file.

    The count of a day is the length of the day's file, one byte for each request: processes share it without a lock,
    and a restart continues it. Where nothing can be written, the process counts for itself.

    Args:
        per_day: Requests per day.
        path: The file of a day is `PATH-DAY.spent`, with the days since the epoch; None counts in this process alone.
        make_folder: Make the file's folder, or leave it unused if another user may write to it; False: it exists.
        clock: Seconds since the epoch.

    Attributes:
        per_day: Requests per day; may be changed.
    """

    def __init__(
        self,
        per_day: int,
        *,
        path: Path | None = None,
        make_folder: bool = True,
        clock: Callable[[], float] = time,
    ) -> None:
        self.per_day = per_day
        self._path = path
        self._make_folder = make_folder
        self._clock = clock
        self._lock = Lock()
        self._day = -1
        self._count = 0
        self._given_back = 0

    def reset_after_fork(self) -> None:
        """Reset in a forked child: the parent may hold the lock, and requests given back belong to the parent."""
        self._lock = Lock()
        self._given_back = 0

    @property
    def left(self) -> int:
        """How many requests are left today, as far as this process knows; negative if too many were sent."""
        with self._lock:
            self._begin_day()
            return self.per_day - self._count + self._given_back

    def spend(self) -> bool:
        """Take one request from today's quota; returns whether one was left."""
        with self._lock:
            self._begin_day()
            if self._given_back:
                self._given_back -= 1
                return True
            if self._count >= self.per_day:
                return False
            stored = 0
            with suppress(OSError):  # where nothing can be written, the process counts for itself
                if (file := self._file()) is not None:
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                    descriptor = os.open(file, flags, 0o600)
                    try:
                        os.write(descriptor, b".")
                        stored = os.lseek(descriptor, 0, os.SEEK_CUR)
                    finally:
                        os.close(descriptor)
            self._count = max(self._count + 1, stored)
            return self._count <= self.per_day

    def give_back(self) -> None:
        """Put back a request that was not sent; this process uses it next."""
        with self._lock:
            self._given_back += 1

    def _begin_day(self) -> None:
        day = int(self._clock() // DAY)
        if self._day - 1 <= day <= self._day:  # a clock set back over midnight starts no new day
            return
        self._day, self._count, self._given_back = day, 0, 0
        with suppress(OSError):  # there is no file yet, or nothing can be written
            if (file := self._file()) is None:
                return
            # The files of later days and of the day before stay: a clock that is set back and corrected must not reset
            # them.
            for path in file.parent.glob(f"{file.name.rpartition('-')[0]}-*{SUFFIX}"):
                of_day = path.stem.rpartition("-")[2]
                if not of_day.isdigit() or int(of_day) < day - 1:
                    with suppress(OSError):  # an old file that stays does no harm
                        path.unlink()
            status = file.lstat()
            self._count = status.st_size if stat.S_ISREG(status.st_mode) else 0

    def _file(self) -> Path | None:
        # Today's; an OSError where its folder cannot be made, or another user may write to it.
        if self._path is None:
            return None
        if self._make_folder:
            make_private(self._path.parent)
        return self._path.with_name(f"{self._path.name}-{self._day}{SUFFIX}")


class Deadline:
    """A deadline in CPU time of the current thread.

    Args:
        seconds: Seconds of CPU from now.
    """

    def __init__(self, seconds: float) -> None:
        self._cpu = thread_time() + seconds
        self._wall = monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed; the cheap wall clock is read first, which can never pass later."""
        now = monotonic()
        if now < self._wall:
            return False
        left = self._cpu - thread_time()
        # The thread needs at least that long for what is left.
        self._wall = now + left
        return left <= 0
