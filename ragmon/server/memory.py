"""Returning freed memory to the system, so that one large request does not keep its memory allocated for ever.

glibc keeps freed memory in an arena per thread, for the next allocation; with dozens of threads the arenas hold most of
what was ever used. It is limited to two arenas, and asked every few seconds to release the free memory in them.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from time import monotonic
from typing import Final

EVERY: Final = 10.0
"""Seconds between two trims: one takes some milliseconds."""
_ARENAS: Final = 2
_LARGE: Final = 256 << 10
"""Bytes from which an allocation gets pages of its own, which are released when it is freed."""
# Source: GNU C Library manual, "Malloc Tunable Parameters"; the numbers are those of its malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def limit_arenas() -> None:
    """Configure glibc to keep little freed memory; any other C library is left unchanged."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name, value in ((_ARENA_MAX, _ARENAS), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            library.mallopt(name, value)


class MemoryTrimmer:
    """Returns free memory to the system, if anything arrived since the last trim."""

    def __init__(self) -> None:
        self._due = monotonic() + EVERY
        self._last_came = 0

    def give_back(self, came: int) -> None:
        """Trim, if it is time.

        Args:
            came: A number that grows with what arrives.
        """
        now = monotonic()
        if now < self._due:
            return
        self._due = now + EVERY
        if came != self._last_came:
            self._last_came = came
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
