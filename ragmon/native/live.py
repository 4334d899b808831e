"""What the native core does for single requests of live traffic.

Each call takes microseconds, and keeps the interpreter lock: to give it back for so short a time would cost a thread
whole milliseconds until it gets it again beside another one that is busy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

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
    brief = native_core().brief
    if brief is None:
        return None
    wanted, read = " ".join(words).encode(), text.encode("ascii")
    found: int = brief.ragmon_words_found(wanted, len(wanted), read, len(read))
    return found if found >= 0 else None


class ExtentLimits(NamedTuple):
    """What a protocol message may hold.

    Attributes:
        messages: Items and the messages around them.
        parts: Attributes, events and links of each, on average.
        fields: Fields of each message, on average.
        depth: Messages around a message that are looked into.
    """

    messages: int
    parts: int
    fields: int
    depth: int


class Extent(NamedTuple):
    """What a protocol message holds.

    Attributes:
        items: Spans, points or log records that have started.
        exceeds: Whether it holds more than it may; then the rest was not looked at.
    """

    items: int
    exceeds: bool


class LayoutNumbers:
    """The layout of a message type for the core; it is made once.

    Args:
        numbers: Of each layout its kind (0 holder, 1 item, 2 part, 3 value), how many fields it names, and each of
            these as its number and the place of its layout. The first one is that of the message.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.array = (ctypes.c_uint32 * len(numbers))(*numbers)


def extent_of(body: bytes, layout: LayoutNumbers, limits: ExtentLimits) -> Extent | None:
    """Count the messages of a protocol message without decoding it.

    Args:
        body: The message.
        layout: Its layout.
        limits: What it may hold.

    Returns:
        What it holds; None where the native core is not there: then it is Python's to count.

    Raises:
        ValueError: The layout makes no sense.

    >>> spans = LayoutNumbers([0, 1, 2, 1, 1, 0])
    >>> extent_of(bytes([0x12, 0, 0x12, 0]), spans, ExtentLimits(5, 5, 5, 100)) in (Extent(2, False), None)
    True
    """
    brief = native_core().brief
    if brief is None:
        return None
    told = (ctypes.c_int64 * len(limits))(*limits)
    found: int = brief.ragmon_extent(body, len(body), layout.array, len(layout.array), told)
    if found == -2:
        raise ValueError(f"layout {list(layout.array)}: each is its kind, a number of fields, and so many pairs")
    return Extent(found >> 1, bool(found & 1)) if found >= 0 else None
