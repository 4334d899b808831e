"""Warnings that are logged once: a pipeline that answers 1,000 questions a second must not log 1,000 lines a second."""

from __future__ import annotations

import os

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
