"""What raters say of one answer: the last word of each counts, in whatever order the words arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import QUARANTINED
from ragmon.core.record import FIELDS, Label

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


def dated(label: Label, now: float) -> float | None:
    """When a label says that it was given; None where it does not say, or names a time to come.

    A wrong clock must not have the last word for ever.

    Args:
        label: The label.
        now: When it came, seconds since the epoch.
    """
    return None if label.ts is None or label.ts > now + AHEAD else label.ts


class Verdict(NamedTuple):
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


class Words(msgspec.Struct, omit_defaults=True):
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

    def agrees(self, other: Words) -> bool:
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


def together(raters: Collection[Words]) -> Verdict:
    """What raters say together; each has one vote.

    >>> together([Words(correct=(0.0, 1.0)), Words(correct=(5.0, 0.0), answerable=(5.0, True))])
    Verdict(correct=0.5, answerable=True, relevant_ids=None)
    """
    correct = sorted(words.correct[1] for words in raters if words.correct is not None)
    yes = Counter(words.answerable[1] for words in raters if words.answerable is not None)
    named = [words.relevant_ids[1] for words in raters if words.relevant_ids is not None]
    votes = Counter(name for names in named for name in names)
    return Verdict(
        correct=sum(correct) / len(correct) if correct else None,
        answerable=None if yes[True] == yes[False] else yes[True] > yes[False],
        relevant_ids=tuple(sorted(name for name, n in votes.items() if 2 * n >= len(named))) if named else None,
    )
