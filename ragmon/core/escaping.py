"""What may be shown of a text that somebody else wrote: in a log, on a terminal, as a label, on a page.

Such a text steers nothing: no colours and cursors (C0 and C1 controls), no further lines, no change of direction, which
shows a text as another one than it is (Unicode Technical Report 36, 2.8). What is taken out is written as its escape,
so that two texts that differ still differ; white space that ends a line becomes a space.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 200
"""Characters of a name or a short text that are shown."""
_LONGEST_LINE: Final = 4000
"""Characters of a whole line that are shown."""

_BREAKS: Final = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_STEERING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1 controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # marks, embeddings, overrides and isolates of direction
    "\u2028\u2029\ufeff\ufff9-\ufffb\ufffe\uffff"  # separators, a mark of byte order, annotations, no characters
    "\ud800-\udfff]"  # half a surrogate pair, which has no UTF-8 form
)


def printable(text: str, limit: int = LONGEST) -> str:
    r"""Text on one line that no terminal, log, page or label obeys, cut where it is long.

    Args:
        text: What somebody else wrote.
        limit: Characters that are shown at most.

    >>> print(printable("two\nlines, \x1b[31mred"))
    two lines, \x1b[31mred
    """
    if not text.isprintable():
        text = _STEERING.sub(_escaped, _BREAKS.sub(" ", text[: limit + 1]))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable_line(text: str) -> str:
    r"""A whole line of which others wrote a part, and which may be as long as lines are.

    >>> print(printable_line("support/answer_precision:\n" + 30 * "ab"))
    support/answer_precision: abababababababababababababababababababababababababababababab
    """
    return printable(text, _LONGEST_LINE)


def printable_json(text: str) -> str:
    r"""A JSON document that says the same, without characters that steer whatever shows it.

    >>> printable_json('{"build": "\u202egnp"}')
    '{"build": "\\u202egnp"}'
    """
    return text if text.isprintable() else _STEERING.sub(_json_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def _json_escaped(found: re.Match[str]) -> str:
    char = found[0]
    return char if char in "\n\r\t" else f"\\u{ord(char):04x}"  # line breaks stand between values alone
