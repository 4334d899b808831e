"""Answers that come from a cache which does not say so: the same words as before, far sooner than they can be made."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from statistics import median
from typing import Final

import msgspec

from ragmon.core.record import Record

SOONER: Final = 5.0
"""So many times as fast as when the answer was made."""
SAVED: Final = 50.0
"""Milliseconds it must have saved at least: what takes that long anyway is not worth a cache."""
MEMORY: Final = 101
"""Answers whose times are remembered."""
ENOUGH: Final = 5
"""Of these, as many must be known."""


class Cached:
    """Tells answers that were made from answers that were kept.

    An answer counts as kept where it is the same, word for word, as the one before to this question; and came at least
    five times as fast and 50 ms sooner both than when that question's answer was made, and than half of this probe's
    answers that were made. A question that is always answered at once (a refusal before any search) is not suspected,
    nor is the second answer after a slow start.

    >>> from ragmon.core.record import Answer, Latency
    >>> def answered(qid, ms): return Record(qid=qid, answer_json=Answer("yes"), latency_ms=Latency(total=ms))
    >>> cached = Cached()
    >>> [cached.see(answered(qid, 900.0)) for qid in "abcde"], cached.see(answered("a", 4.0))
    ([False, False, False, False, False], True)
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[bytes, float]] = {}
        self._times: deque[float] = deque(maxlen=MEMORY)

    def see(self, record: Record) -> bool:
        """Whether an answer was kept; one that was made is remembered."""
        took = None if record.latency_ms is None else record.latency_ms.total
        if record.qid is None or record.answer_json is None or took is None:
            return False
        words = blake2b(msgspec.json.encode(record.answer_json), digest_size=16).digest()
        before = self._made.get(record.qid)
        if before is not None and before[0] == words and len(self._times) >= ENOUGH:
            usual = min(before[1], median(self._times))
            if took * SOONER <= usual and took + SAVED <= usual:
                return True
        self._made[record.qid] = (words, took)
        self._times.append(took)
        return False
