"""What people say of answers, told by the application: taken at once, handed on by the worker.

Imported on the request path: the standard library and ragmon's words, nothing else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from time import time
from typing import Any, Final

from ragmon.core.log import warn_once

MOST: Final = 10_000
"""Labels that wait to be handed on; beyond them new ones are dropped and counted."""
DROPPED: Final = "dropped"

Given = dict[str, Any]


class Labels:
    """Labels on their way out of the process.

    Args:
        taken: Labels are taken; if not, nothing is monitored, and they are passed over.

    Attributes:
        lost: Labels that were lost here, by reason.
    """

    def __init__(self, *, taken: bool = True) -> None:
        self.lost: Counter[str] = Counter()
        self._taken = taken
        self._queue: deque[Given] = deque()

    def put(self, given: Given) -> None:
        """Take a label."""
        if not self._taken:
            return
        if len(self._queue) >= MOST:
            self.lost[DROPPED] += 1
        else:
            self._queue.append(given)

    def take(self, most: int) -> list[Given]:
        """The next labels, in order; called from one thread."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def put_back(self, given: Iterable[Given]) -> None:
        """Labels that could not be handed on, to be tried again."""
        self._queue.extendleft(reversed(list(given)))

    def __len__(self) -> int:
        return len(self._queue)


current: Labels | None = None
"""Where labels go in this process; None before `ragmon.install`."""


def renew(was: Labels) -> Labels:
    """Other ones for a forked child: what waits is its parent's to hand on."""
    global current  # noqa: PLW0603 - one process has one installation
    found = Labels()
    if current is was:
        current = found
    return found


def leave(these: Labels) -> None:
    """Take no more, where these are the ones that take."""
    global current  # noqa: PLW0603 - as above
    if current is these:
        current = None


def label(
    trace_id: str,
    *,
    correct: bool | float | None = None,
    answerable: bool | None = None,
    relevant_ids: Iterable[str] | None = None,
    rater: str,
    comment: str | None = None,
) -> None:
    """Say what somebody thinks of an answer: when a user clicks, or when a reviewer has had a look, days later.

    Never blocks and never raises. The last word of each rater on an answer counts.

    Args:
        trace_id: The answer's trace, as `ragmon.trace_id()` gave it.
        correct: Right or wrong, or a share of it in [0, 1].
        answerable: Whether the question has an answer.
        relevant_ids: The documents that hold it.
        rater: Who says so; a name that is stable and tells nobody who it is.
        comment: In their own words.
    """
    taking = current
    if taking is None:
        warn_once("ragmon.label was called before ragmon.install, and the label is lost")
        return
    told = {"trace_id": trace_id, "rater": rater, "ts": time(), "correct": correct, "answerable": answerable}
    told |= {"relevant_ids": relevant_ids, "comment": comment}
    taking.put(told)
