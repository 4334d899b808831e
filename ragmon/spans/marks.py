"""Citations as numbers in the text: `[1]` is the first document that was retrieved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_ENTRY: Final = r"\d{1,2}(?:\s*[-–]\s*\d{1,2})?"
_MARKS: Final = re.compile(rf"(?<!\])(?:\[\^?{_ENTRY}(?:\s*[,;]\s*{_ENTRY})*\])+(?!\()")
"""Marks side by side; not `[1](…)` and `[text][1]`, which are links, and no year."""
_NUMBERS: Final = re.compile(r"(\d{1,2})(?:\s*[-–]\s*(\d{1,2}))?")
_OTHER: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|^ {0,3}\[\^?\d{1,2}\]:[^\n]*", re.DOTALL | re.MULTILINE)
"""Code, and lines that say what a footnote is or where a link leads: numbers in brackets cite nothing there."""
_INDEXED: Final = re.compile(r"(?<=[A-Za-z0-9_)])(?:\[\d+\])+(?=\.?\w|\s*[-+*/%]?=)")
"""An index in code outside of any fence, as in `row[1].name` and `row[1] = 2`; `said[1].` cites."""


def cited(claim: str, ids: Sequence[str]) -> list[str] | None:
    """The documents a claim's marks stand for, in the order they are cited first.

    Args:
        claim: The answer's text.
        ids: The retrieved ids in rank order.

    Returns:
        Ids; a number past the list stands for itself, as something that was not retrieved. None where no mark is one of
        the list's, or one is 0: then the numbers mean something else, or nothing was cited in this way.

    >>> cited("Rollo[2], says the chronicle [1, 2].", ["d1", "d2"])
    ['d2', 'd1']
    >>> cited("It returns `row[1]`, or row[1].name.", ["d1"]) is None
    True
    """
    if "[" not in claim:
        return None
    text = _INDEXED.sub(" ", _OTHER.sub(" ", claim))
    # Each range once: a long text of them would otherwise be a list of a hundred numbers for every five characters.
    ranges = dict.fromkeys(found.groups() for marks in _MARKS.finditer(text) for found in _NUMBERS.finditer(marks[0]))
    numbers = dict.fromkeys(n for first, last in ranges for n in _numbers(int(first), int(last or first)))
    if 0 in numbers or not any(n <= len(ids) for n in numbers):
        return None
    return list(dict.fromkeys(ids[n - 1] if n <= len(ids) else f"[{n}]" for n in numbers))


def _numbers(first: int, last: int) -> Iterator[int]:
    yield from range(first, last + 1) if first <= last else (first, last)
