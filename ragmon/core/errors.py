"""Every error that ragmon raises on purpose, log lines, and the safe display of untrusted text in both.

    RagmonError
    ├── InputError        a file or a value given to ragmon is wrong
    │   ├── GoldError     ... in a gold file
    │   └── ConfigError   ... in ragmon.toml
    ├── UnavailableError  a port or a disk cannot be used now: a later try may succeed without a correction
    └── UnknownNameError  a metric, gate or preset that does not exist
        └── UnknownIncidentError  an incident that does not exist, or that is over

`Unassessed` is not an error: a metric raises it when a fact it needs is unknown.

Untrusted text in a log, on a terminal, as a label or on a page must not control the display: no colours or cursor moves
(C0 and C1 controls), no extra lines, no change of direction, which makes a text look like a different text (Unicode
Technical Report 36, 2.8). Removed characters are written as escapes, so that two different texts stay different.

A log line holds no text of a request: a warning is logged once, the same error once a minute.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, Final

LONGEST: Final = 200
"""Characters shown of a name or a short text."""
_LONGEST_LINE: Final = 4000
# Names in programs: of tools, npm's scopes, modules, classes of Java, Go and Python, models, most ids of documents.
_NAME: Final = re.compile(r"@?[\w.:/#*$-]{1,100}(?:@(?:\d[\d-]*|default|latest))?", re.ASCII)
_BREAKS: Final = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1 controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # direction marks, embeddings, overrides, isolates
    "\u2028\u2029\ufeff\ufff9-\ufffb\ufffe\uffff"  # separators, byte order mark, annotations, noncharacters
    "\ud800-\udfff]"  # unpaired surrogates, which have no UTF-8 form
)


def printable(text: str, limit: int = LONGEST) -> str:
    r"""Text on one line without control characters, cut where it is long.

    >>> print(printable("two\nlines, \x1b[31mred"))
    two lines, \x1b[31mred
    """

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"

    if not text.isprintable():
        text = _CONTROLS.sub(escape, _BREAKS.sub(" ", text[: limit + 1]))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shown_name(name: str, otherwise: str) -> str:
    """A name that traffic brings, if it looks like a name in a program; a user's question or answer does not.

    Some instrumentations name a span after the question, some applications put a message in place of an error's type.
    Pages, metrics and logs may be open to everybody: they show such a name only through this function.


    >>> shown_name("search_docs", "__other__"), shown_name("What is a day ticket?", "__other__")
    ('search_docs', '__other__')
    """
    return name if _NAME.fullmatch(name) else otherwise


def printable_line(text: str) -> str:
    r"""A whole line that contains untrusted text, without control characters; the limit is that of a line.

    >>> print(printable_line("support/answer_precision:\n" + 30 * "ab"))
    support/answer_precision: abababababababababababababababababababababababababababababab
    """
    return printable(text, _LONGEST_LINE)


def printable_json(data: object, **layout: Any) -> str:
    r"""Data as strict JSON in which control characters are escaped.

    >>> printable_json({"build": "\u202egnp"})
    '{"build": "\\u202egnp"}'
    """

    def escape(match: re.Match[str]) -> str:
        char = match[0]
        return char if char in "\n\r\t" else f"\\u{ord(char):04x}"  # in JSON these occur only between values

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, **layout)
    return text if text.isprintable() else _CONTROLS.sub(escape, text)


class RagmonError(Exception):
    """Anything ragmon refuses to do; `hint` says how to correct it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(RagmonError):
    """A file or value is wrong; the message names file and line, the value found and the problem.

    Args:
        message: What is wrong, without file and line.
        path: The file, as the user named it.
        line: The line in it, counted from 1; None where the whole file is meant.
        value: The offending value; a long value is shortened.
        hint: How to correct it.
    """

    def __init__(
        self, message: str, *, path: str = "", line: int | None = None, value: object = None, hint: str = ""
    ) -> None:
        where = path if line is None else f"{path}:{line}"
        suffix = "" if value is None else f": {shorten(value)}"
        super().__init__(f"{where}: {message}{suffix}" if where else f"{message}{suffix}", hint=hint)
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


class UnknownIncidentError(UnknownNameError):
    """There is no incident with a name, or none that lasts.

    Args:
        name: The name.
        known: The names of incidents, of which the nearest are suggested.
        ended: When the incident ended, in words; "" where there is none.
    """

    def __init__(self, name: str, known: Collection[str], ended: str = "") -> None:
        message, hint = f"there is no incident {shorten(name)}", "there is no incident yet"
        if ended:
            message = f"incident {shorten(name)} ended at {ended}"
            hint = "only alarms that fire are acknowledged; `ragmon why` with its name says what it was"
        elif known:
            hint = nearest(name, known)
        RagmonError.__init__(self, message, hint=hint)


class Unassessed(Exception):  # noqa: N818 - control flow, like StopIteration
    """A fact the metric needs is unknown; `reason` is one of `ragmon.core.constants.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The hint for a mistyped name: the nearest known names, or all known names when none is near.

    Near is a name that has at least the cutoff's share of its letters in common.

    >>> nearest("answer_precison", ["answer_precision", "mrr"])
    'did you mean answer_precision?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"one of: {', '.join(names)}" if names else "none are defined"


def shorten(value: object, limit: int = 80) -> str:
    """`repr` of a value, cut to the width of a terminal line."""
    return printable(repr(value), limit)


class UnreachableError(ConnectionError):
    """There is no connection to a server: nobody listens, its name has no address, or TLS fails."""


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
    """Logs errors with their location in the code; messages are not logged because they may quote a user."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def __call__(self, what: str, error: BaseException) -> None:
        """Log an error, unless the same line was logged within `PAUSE` seconds."""
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
