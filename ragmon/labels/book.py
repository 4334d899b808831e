"""Which answers have been labelled, and what became of every label: each is counted under exactly one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, Final

import msgspec

from ragmon.core.record import Label
from ragmon.labels.early import Early
from ragmon.labels.words import CONFLICT, CROWDED, JOINED, NO_ROOM, ORPHAN, Verdict, Words, dated, together

TTL: Final = 7 * 86_400.0
"""Seconds a label waits for its trace, and for which the words on an answer are remembered."""
MOST: Final = 100_000
"""Answers whose words are remembered, and labels that wait; beyond them the oldest go."""
RATERS: Final = 100
"""Raters of one answer who are heard live: each new word is held against those of all others."""
LARGEST: Final = 64 << 20
"""Bytes of the words that are remembered, and of labels that wait; beyond them the oldest go."""
LARGEST_ANSWER: Final = 1 << 20
"""Bytes of the words on one answer."""
_WORDS: Final = 400
_NAME: Final = 60
"""Bytes that words take beside names, and a name beside its letters."""


class _Answer(msgspec.Struct):
    """What was said of one answer.

    Attributes:
        since: When the first label came, seconds since the epoch.
        raters: The words of each.
        size: Bytes they take.
    """

    since: float
    size: int = 0
    raters: dict[str, Words] = {}


class Book:
    """What was said so far.

    Args:
        ttl: Seconds a label waits for its trace, and an answer's words are remembered.

    Attributes:
        results: Labels by what became of them (`ragmon.labels.words.RESULTS`).
    """

    def __init__(self, ttl: float = TTL) -> None:
        self.results: Counter[str] = Counter()
        self._ttl = ttl
        self._answers: dict[str, _Answer] = {}
        self._held = 0
        self._early = self._no_labels()

    @staticmethod
    def _no_labels() -> Early:
        return Early(MOST, LARGEST, lambda label: _size(label.rater, label))

    def hear(self, label: Label, now: float) -> Verdict | None:
        """Take in what is said of an answer that is there.

        Args:
            label: The label.
            now: When it came, seconds since the epoch.

        Returns:
            What is said of the answer, where this is the first word on it; None where there were others.
        """
        answer = self._answers.get(label.trace_id)
        first = answer is None
        answer = answer or _Answer(now)
        before = answer.raters.get(label.rater)
        words = Words() if before is None else copy(before)
        said = dated(label, now)
        result = words.hear(label, now if said is None else said)
        size = answer.size + _size(label.rater, words) - (0 if before is None else _size(label.rater, before))
        too_many = before is None and len(answer.raters) >= RATERS
        if not first and (too_many or size > max(answer.size, LARGEST_ANSWER)):
            self.results[CROWDED] += 1
            return None
        answer.raters[label.rater] = words
        self._remember(label.trace_id, answer, size)
        if result == JOINED and not all(words.agrees(other) for other in answer.raters.values()):
            result = CONFLICT
        self.results[result] += 1
        return together(answer.raters.values()) if first else None

    def _remember(self, trace_id: str, answer: _Answer, size: int) -> None:
        """Hold the words on an answer, of a size now; those on the oldest make room."""
        self._answers[trace_id] = answer
        self._held += size - answer.size
        answer.size = size
        while len(self._answers) > MOST or self._held > LARGEST:
            self._drop(next(iter(self._answers)))

    def _drop(self, trace_id: str) -> bool:
        """Remember the words on an answer no longer; returns whether there were any."""
        answer = self._answers.pop(trace_id, None)
        self._held -= 0 if answer is None else answer.size
        return answer is not None

    def keep(self, label: Label, now: float) -> None:
        """Let a label wait for its trace; where too much waits, others may have to make room (`labels.early`)."""
        self._count(NO_ROOM, self._early.put(label, now))

    def take(self, trace_id: str | None) -> list[Label]:
        """The labels that waited for a trace, which is there now."""
        return [] if trace_id is None else self._early.take(trace_id)

    def forget(self, trace_ids: Iterable[str]) -> int:
        """Forget what was said of traces; a label that waits for one of them waits in vain.

        Args:
            trace_ids: In lower case.

        Returns:
            Of how many anything had been said.
        """
        found = 0
        for trace_id in trace_ids:
            heard = self._drop(trace_id)
            found += heard or trace_id in self._early
            self._count(ORPHAN, len(self.take(trace_id)))
        return found

    @property
    def waiting(self) -> int:
        """Labels that wait for their traces."""
        return len(self._early)

    def expire(self, now: float) -> None:
        """Forget what was said long ago, and count labels whose trace never came."""
        before = now - self._ttl
        while self._answers and next(iter(self._answers.values())).since < before:
            self._drop(next(iter(self._answers)))
        self._count(ORPHAN, self._early.expire(before))

    def _count(self, result: str, n: int) -> None:
        if n:
            self.results[result] += n

    def dump(self) -> dict[str, Any]:
        """Plain JSON data; comments are not kept."""
        return {
            "results": dict(self.results),
            "answers": {trace_id: msgspec.to_builtins(answer) for trace_id, answer in self._answers.items()},
            "early": list(self._early.dump()),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.results = Counter(data["results"])
        self._answers = msgspec.convert(data["answers"], dict[str, _Answer])
        for answer in self._answers.values():  # an older ragmon wrote no sizes
            answer.size = sum(_size(rater, words) for rater, words in answer.raters.items())
        self._held = sum(answer.size for answer in self._answers.values())
        self._early = self._no_labels()
        self._count(NO_ROOM, self._early.load(data["early"]))


def _size(rater: str, said: Words | Label) -> int:
    """Bytes that what somebody says takes, about."""
    told = said.relevant_ids
    names = () if told is None else told[1] if isinstance(said, Words) else told
    return _WORDS + sum(_NAME + len(name.encode()) for name in (rater, *names))
