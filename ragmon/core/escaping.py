"""Safe display of untrusted text: in a log, on a terminal, as a label, on a page.

Such a text must not control the display: no colours or cursor moves (C0 and C1 controls), no extra lines, no change of
direction, which makes a text look like a different one (Unicode Technical Report 36, 2.8). Removed characters are
written as escapes, so that two different texts stay different; a line break becomes a space.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

LONGEST: Final = 200
"""Characters shown of a name or a short text."""
_LONGEST_LINE: Final = 4000
"""Characters shown of a whole line."""
_NAME: Final = re.compile(r"@?[\w.:/#*$-]{1,100}", re.ASCII)
"""Names in programs: of tools, npm's scopes, modules, classes of Java, Go and Python, most ids of documents."""

_BREAKS: Final = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1 controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # direction marks, embeddings, overrides, isolates
    "\u2028\u2029\ufeff\ufff9-\ufffb\ufffe\uffff"  # separators, byte order mark, annotations, noncharacters
    "\ud800-\udfff]"  # unpaired surrogates, which have no UTF-8 form
)


def printable(text: str, limit: int = LONGEST) -> str:
    r"""Text on one line without control characters, cut where it is long.

    Args:
        text: The untrusted text.
        limit: The most characters that are shown.

    >>> print(printable("two\nlines, \x1b[31mred"))
    two lines, \x1b[31mred
    """
    if not text.isprintable():
        text = _CONTROLS.sub(_escaped, _BREAKS.sub(" ", text[: limit + 1]))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shown_name(name: str, otherwise: str) -> str:
    """A name that traffic brings, if it looks like one in a program; a user's question or answer does not.

    Some instrumentations name a span after the question, some applications put a message in place of an error's type.
    Pages, metrics and logs are open to whoever reaches them: they show such a name only through this function.

    Args:
        name: The name.
        otherwise: What is shown in its place.

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

    Args:
        data: Plain data.
        layout: `indent` and `separators` of `json.dumps`.

    Raises:
        ValueError: A number is not finite.

    >>> printable_json({"build": "\u202egnp"})
    '{"build": "\\u202egnp"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, **layout)
    return text if text.isprintable() else _CONTROLS.sub(_json_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def _json_escaped(match: re.Match[str]) -> str:
    char = match[0]
    return char if char in "\n\r\t" else f"\\u{ord(char):04x}"  # in JSON these occur only between values
