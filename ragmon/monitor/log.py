"""A rate-limited error log: one line per error location, without any text of a request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from ragmon.core.escaping import printable_line
from ragmon.core.log import error_location

PAUSE: Final = 60.0
"""Seconds in which the same error is logged once."""
_log = logging.getLogger("ragmon.server")


class RateLimitedLog:
    """Logs errors with their location in the code; messages are not logged because they may quote a user.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def __call__(self, what: str, error: BaseException) -> None:
        """Log an error, unless the same line was logged within `PAUSE` seconds.

        Args:
            what: The operation that failed.
            error: The exception.
        """
        line = printable_line(f"{what}: {error_location(error)}")
        with self._lock:
            now = self._clock()
            if now - self._last.get(line, -inf) < PAUSE:
                self._suppressed[line] += 1
                return
            self._last[line] = now
            suppressed = self._suppressed.pop(line, 0)
        _log.error("%s%s", line, f" (and {suppressed} times before)" if suppressed else "")


log_error: Final = RateLimitedLog()
