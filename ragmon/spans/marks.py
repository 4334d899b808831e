"""Citations as numbers in the text: `[1]` is the first document that was retrieved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_MARK: Final = re.compile(r"(?<![\w\])])\[\^?(\d{1,2}(?:\s*[,;]\s*\d{1,2})*)\](?!\()|(?<=\])\[\^?(\d{1,2})\](?!\()")
"""Not `row[1]`, which is code, not `[1](…)`, which is a link, and no year."""
_NUMBER: Final = re.compile(r"\d+")


def cited(claim: str, ids: Sequence[str]) -> list[str] | None:
    """The documents a claim's marks stand for, in the order they are cited first.

    Args:
        claim: The answer's text.
        ids: The retrieved ids in rank order.

    Returns:
        Ids; a number past the list stands for itself, as something that was not retrieved. None where no mark is one of
        the list's: then the numbers mean something else, or nothing was cited in this way.

    >>> cited("Rollo [2], says the chronicle [1, 2].", ["d1", "d2"])
    ['d2', 'd1']
    >>> cited("It returns row[1].", ["d1"]) is None
    True
    """
    if "[" not in claim:
        return None
    numbers = [int(n) for found in _MARK.finditer(claim) for n in _NUMBER.findall(found[1] or found[2])]
    if not any(1 <= n <= len(ids) for n in numbers):
        return None
    return list(dict.fromkeys(ids[n - 1] if 1 <= n <= len(ids) else f"[{n}]" for n in numbers))
