"""Label values Prometheus can always render and never confuses."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from ragmon.printing import printable

LONGEST: Final = 128
"""Characters of a label value; Prometheus refuses a whole scrape for one that is longer than its own limit."""
_DIGITS: Final = 8


@lru_cache(maxsize=4096)
def label(text: str) -> str:
    """A label value: printable, at most 128 characters. What had to be changed stays apart by a fingerprint.

    >>> label("support"), len(label("x" * 10_000))
    ('support', 128)
    """
    shown = printable(text, LONGEST)
    if shown == text:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return f"{shown[: LONGEST - _DIGITS - 1]}~{hashlib.sha256(raw).hexdigest()[:_DIGITS]}"
