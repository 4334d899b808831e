"""Every error ragmon raises on purpose.

    RagmonError
    ├── InputError        a file or a value given to ragmon is wrong
    │   ├── GoldError     ... in a gold file
    │   └── ConfigError   ... in ragmon.toml
    ├── UnavailableError  a port or a disk cannot be used now: a later try may succeed without a correction
    └── UnknownNameError  a metric, gate or preset that does not exist

`Unassessed` is not an error: a metric raises it when one of the facts it needs is unknown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ragmon.core.escaping import printable


class RagmonError(Exception):
    """Anything ragmon refuses to do; `hint` says how to correct it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(RagmonError):
    """A file or value is wrong; the message names the place, the value found and the problem.

    Args:
        message: What is wrong, without the place.
        path: The file, as the user named it.
        line: The line in it, counted from 1; None where the whole file is meant.
        value: The offending value; long ones are shortened.
        hint: How to correct it.
    """

    def __init__(
        self, message: str, *, path: str = "", line: int | None = None, value: object = None, hint: str = ""
    ) -> None:
        place = path if line is None else f"{path}:{line}"
        suffix = "" if value is None else f": {shorten(value)}"
        super().__init__(f"{place}: {message}{suffix}" if place else f"{message}{suffix}", hint=hint)
        self.path = path
        self.line = line


class GoldError(InputError):
    """A gold file is rejected as a whole."""


class ConfigError(InputError):
    """ragmon.toml holds an invalid setting."""


class UnavailableError(RagmonError):
    """A resource outside ragmon, such as a port or disk space, is not available now. A later try may succeed."""


class UnknownNameError(RagmonError):
    """A name that is not registered; the nearest registered names are suggested."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind}: {shorten(name)}", hint=nearest(name, known))


class Unassessed(Exception):  # noqa: N818 - control flow, like StopIteration
    """A fact the metric needs is unknown; `reason` is one of `ragmon.core.constants.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for a mistyped name: the nearest known names, or all of them when none is near.

    >>> nearest("answer_precison", ["answer_precision", "mrr"])
    'did you mean answer_precision?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"one of: {', '.join(names)}" if names else "none are defined"


def shorten(value: object, limit: int = 80) -> str:
    """`repr` of a value, cut to the width of a terminal line."""
    return printable(repr(value), limit)


class UnreachableError(ConnectionError):
    """There is no connection to a server: nobody listens, its name has no address, or TLS fails."""
