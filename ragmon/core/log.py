"""Log lines without any text of a request, and few of them: warnings once, the same error once a minute.

A pipeline that answers 1,000 questions a second must not log 1,000 lines a second.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from ragmon.core.escaping import printable_line

_said: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning if the same message was not logged before."""
    if message not in _said:
        import logging  # noqa: PLC0415 - most processes never warn, and all of them import this

        _said.add(message)
        logging.getLogger("ragmon").warning("%s", printable_line(message))


def error_location(error: BaseException) -> str:
    """The type of an error and the line that raised it; its message may quote a user, so it is left out.

    >>> try:
    ...     int("a secret")
    ... except ValueError as error:
    ...     "secret" in error_location(error), error_location(error).startswith("ValueError at ")
    (False, True)
    """
    trace = error.__traceback__  # follow it to the innermost frame
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} at {trace.tb_frame.f_code.co_filename.rpartition(os.sep)[2]}:{trace.tb_lineno}"


PAUSE: Final = 60.0
"""Seconds in which the same error is logged once."""


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
        import logging  # noqa: PLC0415 - most processes never log an error, and all of them import this

        note = f" (and {suppressed} times before)" if suppressed else ""
        logging.getLogger("ragmon.server").error("%s%s", line, note)


log_error: Final = RateLimitedLog()
