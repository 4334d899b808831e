"""What goes wrong in a door, in one line that quotes no request, and not a thousand times a second."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

PAUSE: Final = 60.0
"""Seconds in which the same complaint is made once."""
_log = logging.getLogger("ragmon.server")


class Complaints:
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
        line = f"{what}: {_place(error)}"
        with self._lock:
            now = self._clock()
            if now - self._last.get(line, -inf) < PAUSE:
                self._unsaid[line] += 1
                return
            self._last[line] = now
            unsaid = self._unsaid.pop(line, 0)
        _log.error("%s%s", line, f" (and {unsaid} times before)" if unsaid else "")


def _place(error: BaseException) -> str:
    """What kind of error it is and where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} at {trace.tb_frame.f_code.co_filename.rpartition(os.sep)[2]}:{trace.tb_lineno}"


complain: Final = Complaints()
