"""The unit in which graded scores are kept."""

from __future__ import annotations

from typing import Final

MICRO: Final = 1_000_000


def micro(score: float) -> int:
    """A score in [0, 1] as an integer of micro-units, rounded half to even, once."""
    return round(score * MICRO)
