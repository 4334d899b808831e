"""Warnings said once: a pipeline that answers a thousand questions a second must not log a thousand lines."""

from __future__ import annotations

import os

from ragmon.core.escaping import printable_line

_said: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning the first time it comes up."""
    if message not in _said:
        import logging  # noqa: PLC0415 - most processes never warn, and all of them import this

        _said.add(message)
        logging.getLogger("ragmon").warning("%s", printable_line(message))


def whereabouts(error: BaseException) -> str:
    """What kind of error it is and where it was raised; its message may quote a user and stays out of the log.

    >>> try:
    ...     int("a secret")
    ... except ValueError as error:
    ...     "secret" in whereabouts(error), whereabouts(error).startswith("ValueError at ")
    (False, True)
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} at {trace.tb_frame.f_code.co_filename.rpartition(os.sep)[2]}:{trace.tb_lineno}"
