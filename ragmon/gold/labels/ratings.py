"""What raters say of one answer: the last word of each counts, in whatever order the words arrive.

Which answers have been labelled, and what became of every label: each is counted under exactly one result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import QUARANTINED
from ragmon.core.record import FIELDS, Label
from ragmon.gold.labels.pending import PendingLabels

# What became of a label.
JOINED: Final = "joined"
CHANGED: Final = "changed"
CONFLICT: Final = "conflict"
DUPLICATE: Final = "duplicate"
LATE: Final = "late"
ORPHAN: Final = "orphan"
PROBED: Final = "probe"
REJECTED: Final = "rejected"
CROWDED: Final = "crowded"
NO_ROOM: Final = "no_room"
RESULTS: Final = {
    JOINED: "it says something new of an answer",
    CHANGED: "its rater had said something else, and takes that back",
    CONFLICT: "it says something new, and another rater says otherwise",
    DUPLICATE: "its rater had said the same",
    LATE: "its rater has said something else since",
    ORPHAN: "no trace of this id came, or it is gone",
    PROBED: "the trace asked a gold question: gold says what is right",
    REJECTED: "it is no label",
    CROWDED: "too much had been said of the answer",
    NO_ROOM: "it waited for its trace, and too many labels came after it",
    QUARANTINED: "twice the process ended while it was counted: it is set aside",
}


AHEAD: Final = 60.0
"""Seconds by which the clock of whoever gives a label may be ahead."""


def given_at(label: Label, now: float) -> float | None:
    """When a label says that it was given; None where it does not say, or names a time to come.

    A wrong clock must not have the last word for ever.

    Args:
        label: The label.
        now: When it came, seconds since the epoch.
    """
    return None if label.ts is None or label.ts > now + AHEAD else label.ts


class Consensus(NamedTuple):
    """What all raters of an answer say together.

    Attributes:
        correct: The mean of what they say, in [0, 1]; None where none says it.
        answerable: What most of them say; None where none says it, or as many say the one as the other.
        relevant_ids: The documents that at least half of those who name any call relevant, in the order of their
            names; None where none names any.
    """

    correct: float | None = None
    answerable: bool | None = None
    relevant_ids: tuple[str, ...] | None = None


class Rating(msgspec.Struct, omit_defaults=True):
    """The last word of one rater on each field of one answer, with its time in seconds since the epoch."""

    correct: tuple[float, float] | None = None
    answerable: tuple[float, bool] | None = None
    relevant_ids: tuple[float, tuple[str, ...]] | None = None

    def hear(self, label: Label, ts: float) -> str:
        """Take in what the rater says.

        The later word counts; of two at the same time the greater one, so that the order of arrival plays no part.

        Args:
            label: The label.
            ts: When it was given, seconds since the epoch.

        Returns:
            `joined` where something new is said, else `changed`, `late` or `duplicate`.
        """
        found = {self._hear(name, value, ts) for name, value in _said(label)}
        return next((result for result in (JOINED, CHANGED, LATE) if result in found), DUPLICATE)

    def _hear(self, name: str, value: Any, ts: float) -> str:
        before = getattr(self, name)
        if before is None:
            setattr(self, name, (ts, value))
            return JOINED
        if before[1] == value:
            setattr(self, name, max(before, (ts, value)))
            return DUPLICATE
        if (ts, value) < before:
            return LATE
        setattr(self, name, (ts, value))
        return CHANGED

    def agrees(self, other: Rating) -> bool:
        """Whether two raters say the same wherever both say something."""
        mine = ((getattr(self, name), getattr(other, name)) for name in FIELDS)
        return all(one is None or two is None or one[1] == two[1] for one, two in mine)


def _said(label: Label) -> Iterable[tuple[str, Any]]:
    if label.correct is not None:
        yield "correct", float(label.correct)
    if label.answerable is not None:
        yield "answerable", label.answerable
    if label.relevant_ids is not None:
        yield "relevant_ids", tuple(sorted(set(label.relevant_ids)))


def consensus(raters: Collection[Rating]) -> Consensus:
    """What raters say together; each has one vote.

    >>> consensus([Rating(correct=(0.0, 1.0)), Rating(correct=(5.0, 0.0), answerable=(5.0, True))])
    Consensus(correct=0.5, answerable=True, relevant_ids=None)
    """
    correct = sorted(words.correct[1] for words in raters if words.correct is not None)
    yes = Counter(words.answerable[1] for words in raters if words.answerable is not None)
    named = [words.relevant_ids[1] for words in raters if words.relevant_ids is not None]
    votes = Counter(name for names in named for name in names)
    return Consensus(
        correct=sum(correct) / len(correct) if correct else None,
        answerable=None if yes[True] == yes[False] else yes[True] > yes[False],
        relevant_ids=tuple(sorted(name for name, n in votes.items() if 2 * n >= len(named))) if named else None,
    )


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
    raters: dict[str, Rating] = {}


class LabelStore:
    """What was said so far.

    Args:
        ttl: Seconds a label waits for its trace, and an answer's words are remembered.

    Attributes:
        results: Labels by what became of them (`ragmon.gold.labels.ratings.RESULTS`).
    """

    def __init__(self, ttl: float = TTL) -> None:
        self.results: Counter[str] = Counter()
        self._ttl = ttl
        self._answers: dict[str, _Answer] = {}
        self._held = 0
        self._early = self._no_labels()

    @staticmethod
    def _no_labels() -> PendingLabels:
        return PendingLabels(MOST, LARGEST, lambda label: _size(label.rater, label))

    def hear(self, label: Label, now: float) -> Consensus | None:
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
        words = Rating() if before is None else copy(before)
        said = given_at(label, now)
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
        return consensus(answer.raters.values()) if first else None

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


def _size(rater: str, said: Rating | Label) -> int:
    """Bytes that what somebody says takes, about."""
    told = said.relevant_ids
    names = () if told is None else told[1] if isinstance(said, Rating) else told
    return _WORDS + sum(_NAME + len(name.encode()) for name in (rater, *names))
