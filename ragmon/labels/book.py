"""Which answers have been labelled, and what became of every label: each is counted under exactly one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ragmon.contract import Label
from ragmon.labels.words import CONFLICT, CROWDED, JOINED, ORPHAN, Verdict, Words, together

TTL: Final = 7 * 86_400.0
"""Seconds a label waits for its trace, and for which the words on an answer are remembered."""
MOST: Final = 100_000
"""Answers whose words are remembered, and labels that wait; beyond them the oldest go."""
RATERS: Final = 100
"""Raters of one answer who are heard live: each new word is held against those of all others."""


class _Answer(msgspec.Struct):
    """What was said of one answer.

    Attributes:
        since: When the first label came, seconds since the epoch.
        raters: The words of each.
    """

    since: float
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
        self._early: dict[str, list[tuple[float, Label]]] = {}
        self._waiting = 0

    def hear(self, label: Label, now: float) -> Verdict | None:
        """Take in what is said of an answer that is there.

        Args:
            label: The label.
            now: When it came, seconds since the epoch; a label without a time has this one.

        Returns:
            What is said of the answer, where this is the first word on it; None where there were others.
        """
        answer = self._answers.get(label.trace_id)
        first = answer is None
        if answer is None:
            answer = self._answers[label.trace_id] = _Answer(now)
            if len(self._answers) > MOST:
                del self._answers[next(iter(self._answers))]
        if label.rater not in answer.raters and len(answer.raters) >= RATERS:
            self.results[CROWDED] += 1
            return None
        words = answer.raters.setdefault(label.rater, Words())
        said = now if label.ts is None else min(label.ts, now)  # a clock that is ahead must not have the last word
        result = words.hear(label, said)
        if result == JOINED and not all(words.agrees(other) for other in answer.raters.values()):
            result = CONFLICT
        self.results[result] += 1
        return together(answer.raters.values()) if first else None

    def keep(self, label: Label, now: float) -> None:
        """Let a label wait for its trace."""
        self._early.setdefault(label.trace_id, []).append((now, label))
        self._waiting += 1
        while self._waiting > MOST:
            self._orphan(next(iter(self._early)))

    def take(self, trace_id: str | None) -> list[Label]:
        """The labels that waited for a trace, which is there now."""
        found = self._early.pop(trace_id, []) if trace_id is not None else []
        self._waiting -= len(found)
        return [label for _, label in found]

    def forget(self, trace_ids: Iterable[str]) -> int:
        """Forget what was said of traces; a label that waits for one of them waits in vain.

        Args:
            trace_ids: In lower case.

        Returns:
            Of how many anything had been said.
        """
        found = 0
        for trace_id in trace_ids:
            heard = self._answers.pop(trace_id, None) is not None
            found += heard or trace_id in self._early
            self._orphan(trace_id)
        return found

    @property
    def waiting(self) -> int:
        """Labels that wait for their traces."""
        return self._waiting

    def expire(self, now: float) -> None:
        """Forget what was said long ago, and count labels whose trace never came."""
        before = now - self._ttl
        while self._answers and next(iter(self._answers.values())).since < before:
            del self._answers[next(iter(self._answers))]
        while self._early and next(iter(self._early.values()))[0][0] < before:
            self._orphan(next(iter(self._early)))

    def _orphan(self, trace_id: str) -> None:
        self.results[ORPHAN] += len(self.take(trace_id))

    def dump(self) -> dict[str, Any]:
        """Plain JSON data; of comments nothing is kept."""
        return {
            "results": dict(self.results),
            "answers": {trace_id: msgspec.to_builtins(answer) for trace_id, answer in self._answers.items()},
            "early": [
                [at, msgspec.to_builtins(msgspec.structs.replace(label, comment=None))]
                for labels in self._early.values()
                for at, label in labels
            ],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.results = Counter(data["results"])
        self._answers = msgspec.convert(data["answers"], dict[str, _Answer])
        self._early, self._waiting = {}, 0
        for at, label in msgspec.convert(data["early"], list[tuple[float, Label]]):
            self.keep(label, at)
