"""Memory given back to the system: what one large request took must not stay taken for ever.

The C library keeps what is freed in a region for each thread, for the next request; with some tens of threads that is
most of what was ever used. It is told to keep two regions, and asked now and then to give back what is free in them.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from time import monotonic
from typing import Final

EVERY: Final = 10.0
"""Seconds between two times that memory is given back: it takes some milliseconds."""
_REGIONS: Final = 2
_LARGE: Final = 256 << 10
"""Bytes from which a block has pages of its own, which go when it is freed."""
# Source: GNU C Library manual, "Malloc Tunable Parameters"; the numbers are of its malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def limit_arenas() -> None:
    """Tell the C library to keep little of what is freed; any other library than GNU's is left as it is."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name, value in ((_ARENA_MAX, _REGIONS), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            library.mallopt(name, value)


class MemoryTrimmer:
    """Gives free memory back, where something came since the last time."""

    def __init__(self) -> None:
        self._due = monotonic() + EVERY
        self._seen = 0

    def give_back(self, came: int) -> None:
        """Give it back, if it is time.

        Args:
            came: A number that grows with what comes.
        """
        now = monotonic()
        if now < self._due:
            return
        self._due = now + EVERY
        if came != self._seen:
            self._seen = came
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
