"""What was found out about a key, for the next span that has it: applications write the same few keys all day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

KEYS: Final = 4096
"""Keys that are remembered; who makes up more of them must not fill the memory."""
LONGEST: Final = 200
"""Characters of a key that is remembered."""
K = TypeVar("K", str, bytes)
T = TypeVar("T")


class Remembered(dict[K, T], Generic[K, T]):
    """A function of a text, or of bytes, whose first results are kept.

    Args:
        find: The function.

    >>> length = Remembered(len)
    >>> length["four"], list(length)
    (4, ['four'])
    """

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._find: Callable[[K], T] = find

    def __missing__(self, key: K) -> T:
        found = self._find(key)
        if len(self) < KEYS and len(key) <= LONGEST:
            self[key] = found
        return found
