"""How many questions were due, and what became of them."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Counts:
    """By probe and result."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, probe: str, result: str, n: int = 1) -> None:
        """Count."""
        if n:
            with self._lock:
                self._found[probe, result] += n

    def read(self) -> dict[tuple[str, str], int]:
        """All so far."""
        with self._lock:
            return dict(self._found)
