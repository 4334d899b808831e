"""What goes wrong in a door, in one line that quotes no request, and not a thousand times a second."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from ragmon.core.escaping import printable_line
from ragmon.core.log import whereabouts

PAUSE: Final = 60.0
"""Seconds in which the same complaint is made once."""
_log = logging.getLogger("ragmon.server")


class RateLimitedLog:
    """Logs errors by where they were raised: an error's message may quote a user and is not shown.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()

    def __call__(self, what: str, error: BaseException) -> None:
        """Complain, unless that was done lately.

        Args:
            what: What could not be done.
            error: Why.
        """
        line = printable_line(f"{what}: {whereabouts(error)}")
        with self._lock:
            now = self._clock()
            if now - self._last.get(line, -inf) < PAUSE:
                self._unsaid[line] += 1
                return
            self._last[line] = now
            unsaid = self._unsaid.pop(line, 0)
        _log.error("%s%s", line, f" (and {unsaid} times before)" if unsaid else "")


complain: Final = RateLimitedLog()
