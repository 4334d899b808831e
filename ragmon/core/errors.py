"""Every error ragmon raises on purpose.

    RagmonError
    ├── InputError        a file or a value somebody gave us is wrong
    │   ├── GoldError     ... in a gold file
    │   └── ConfigError   ... in ragmon.toml
    ├── UnavailableError  a port, a disk: it may pass without anybody correcting anything
    └── UnknownNameError  a metric, gate or preset that does not exist

`Unassessed` is not an error: a metric raises it to say that one of the facts it needs is unknown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ragmon.core.escaping import printable


class RagmonError(Exception):
    """Anything ragmon refuses to do; `hint` says what would be right."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(RagmonError):
    """A file is broken: where, what was found there, and what belongs there.

    Args:
        message: What is wrong, without the place.
        path: The file, as the user named it.
        line: The line in it, counted from 1; None where the file as a whole is meant.
        value: The offending value; long ones are shortened.
        hint: What would be right.
    """

    def __init__(
        self, message: str, *, path: str = "", line: int | None = None, value: object = None, hint: str = ""
    ) -> None:
        place = path if line is None else f"{path}:{line}"
        shown = "" if value is None else f": {shorten(value)}"
        super().__init__(f"{place}: {message}{shown}" if place else f"{message}{shown}", hint=hint)
        self.path = path
        self.line = line


class GoldError(InputError):
    """A gold file is refused as a whole."""


class ConfigError(InputError):
    """ragmon.toml holds something it must not."""


class UnavailableError(RagmonError):
    """Something outside of ragmon cannot be had just now: a port, room on a disk. Trying again later may help."""


class UnknownNameError(RagmonError):
    """A name nobody registered; the nearest ones are suggested."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind}: {shorten(name)}", hint=nearest(name, known))


class Unassessed(Exception):  # noqa: N818 - control flow, like StopIteration
    """A fact the metric needs is unknown, and why (a reason of `ragmon.core.constants.REASONS`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for a mistyped name: its nearest neighbours, or the whole list when there are none.

    >>> nearest("answer_precison", ["answer_precision", "mrr"])
    'did you mean answer_precision?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"one of: {', '.join(names)}" if names else "none are defined"


def shorten(value: object, limit: int = 80) -> str:
    """`repr` of a value, cut to what fits on a terminal line."""
    return printable(repr(value), limit)
