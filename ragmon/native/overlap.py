"""The words of an answer that occur in its contexts, counted by the native core.

A module of its own beside `scanning`: it is called for single requests of live traffic, without a scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragmon.native.library import native_core


def words_found(words: Sequence[str], texts: Sequence[str]) -> int | None:
    """How many of the words occur in the texts, repetitions counted.

    Args:
        words: Words as `ragmon.metrics.grounding.words` gives them.
        texts: Texts; words are runs of their letters and digits.

    Returns:
        The number; None where the native core is not there, or a text is not ASCII: then it is Python's to count.

    >>> words_found(["ferry", "nine", "ferry"], ["A FERRY leaves"]) in (2, None)
    True
    """
    text = "\n".join(texts)
    if not text.isascii():
        return None
    functions = native_core().functions
    if functions is None:
        return None
    wanted, read = " ".join(words).encode(), text.encode("ascii")
    found: int = functions.ragmon_words_found(wanted, len(wanted), read, len(read))
    return found if found >= 0 else None
