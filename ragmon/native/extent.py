"""How much a protocol message holds, counted by the native core without decoding it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ragmon.native.library import native_core


class NativeExtent:
    """Counts the items of one kind of request.

    Args:
        description: Limits and layouts as numbers, in the order of `Limits.new` in src/extent.rs.
    """

    def __init__(self, description: Sequence[int]) -> None:
        self._description = (ctypes.c_uint32 * len(description))(*description)

    def of(self, body: bytes) -> tuple[int, bool] | None:
        """The number of items that start in a message, and whether it exceeds the limits.

        Args:
            body: The message.

        Returns:
            None where the core is not there, or could not count them: then Python has to.
        """
        functions = native_core().functions
        if functions is None:
            return None
        found = functions.ragmon_extent(body, len(body), self._description, len(self._description))
        return None if found < 0 else (found >> 1, bool(found & 1))
