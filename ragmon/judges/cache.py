"""What was judged before: equal texts before the same judge have the same opinion."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Final

from ragmon.judges.results import Opinion

CAPACITY: Final = 1024
"""Opinions that are remembered; the one longest unused goes first."""


def digest(*parts: str) -> bytes:
    """A fingerprint of texts and of where one ends and the next begins.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        found.update(len(text).to_bytes(8))
        found.update(text)
    return found.digest()


class Cache:
    """Opinions by fingerprint; any thread may ask.

    Args:
        capacity: How many are remembered.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self.begin_again()

    def begin_again(self) -> None:
        """Begin anew in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()
        self._held: OrderedDict[bytes, Opinion] = OrderedDict()

    def get(self, key: bytes) -> Opinion | None:
        """What was found before."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: bytes, opinion: Opinion) -> None:
        """Remember an opinion."""
        with self._lock:
            self._held[key] = opinion
            self._held.move_to_end(key)
            if len(self._held) > self._capacity:
                self._held.popitem(last=False)
