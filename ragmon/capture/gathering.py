"""The spans of one request, gathered while it runs; called on the application's threads, so it only remembers.

A request is the outermost span of this process and everything below it. It is over when all its spans have ended,
not when the outermost has: what runs on in the background belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, final

LATE: Final = "late"
ORPHAN: Final = "orphan"
TOO_MANY: Final = "too_many_spans"
FULL: Final = "too_many_requests"
"""Why a span belongs to no request's record."""
_REMEMBERED: Final = 10_000
"""Spans that were open when their request was given up, to be known as late."""


@dataclass(frozen=True)
class Limits:
    """How long and how much is waited for.

    Args:
        linger: Seconds after the last span ended in which another may begin.
        after_root: Seconds after the outermost span ended until the request is taken as it is.
        age: Seconds after it began until it is taken as it is.
        spans: Spans of one request.
        requests: Requests at once.
    """

    linger: float = 0.2
    after_root: float = 30.0
    age: float = 600.0
    spans: int = 512
    requests: int = 2048


@final
class Gathered:
    """One request.

    Attributes:
        trace_id: Its trace.
        spans: Those that have ended.
        ids: Of all its spans.
        open: Ids of those that have not ended.
        began: When it began, by the clock of the gathering.
        root_ended: When its outermost span ended; None before.
        changed: When a span began or ended last.
        claimed: A decorated call inside it is the request.
        complete: Nothing of it is missing.
    """

    __slots__ = ("began", "changed", "claimed", "complete", "ids", "open", "root", "root_ended", "spans", "trace_id")

    def __init__(self, trace_id: int, root: int, now: float) -> None:
        self.trace_id = trace_id
        self.root = root
        self.spans: list[Any] = []
        self.ids = [root]
        self.open = {root}
        self.began = self.changed = now
        self.root_ended: float | None = None
        self.claimed = False
        self.complete = True

    def is_due(self, now: float, limits: Limits, *, hurried: bool) -> bool:
        """Whether nothing more is to be waited for; in a hurry only for what is known to run."""
        if self.root_ended is not None and not self.open:
            return hurried or now - self.changed >= limits.linger
        late = self.root_ended is not None and now - self.root_ended >= limits.after_root
        return late or now - self.began >= limits.age


class Gathering:
    """The requests that run.

    Every step is one operation on a dictionary, a set or a list, so threads need no lock.

    Args:
        limits: How long and how much is waited for.
        clock: Seconds, for lingering.

    Attributes:
        dropped: Spans that belong to no record, by reason.
    """

    def __init__(self, limits: Limits | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits or Limits()
        self._clock = clock
        self._requests: dict[int, Gathered] = {}
        self._of: dict[int, Gathered] = {}
        self._gone: dict[int, None] = {}
        self.dropped = {LATE: 0, ORPHAN: 0, TOO_MANY: 0, FULL: 0}

    def begin_request(self, trace_id: int, span_id: int) -> bool:
        """An outermost span began; returns False where there are too many."""
        if len(self._requests) >= self.limits.requests:
            self.dropped[FULL] += 1
            return False
        found = Gathered(trace_id, span_id, self._clock())
        self._requests[span_id] = self._of[span_id] = found
        return True

    def begin(self, span_id: int, parent_id: int) -> bool:
        """A span began below another; returns False where that one is in no request."""
        found = self._of.get(parent_id)
        if found is None:
            return False
        found.ids.append(span_id)
        found.open.add(span_id)
        found.changed = self._clock()
        self._of[span_id] = found
        return True

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span: its record is the request's."""
        found = self._of.get(span_id)
        if found is not None:
            found.claimed = True

    def end(self, span_id: int, span: Any) -> None:
        """A span ended."""
        found = self._of.get(span_id)
        if found is None:
            if self._gone.pop(span_id, 0) is None:
                self.dropped[LATE] += 1
            return
        now = self._clock()
        if len(found.spans) < self.limits.spans or span_id == found.root:
            found.spans.append(span)
        else:
            found.complete = False
            self.dropped[TOO_MANY] += 1
        found.changed = now
        if span_id == found.root:
            found.root_ended = now
        found.open.discard(span_id)

    def due(self, *, hurried: bool = False, all_of_them: bool = False) -> Iterator[Gathered]:
        """Requests nothing more is to be waited for; each is given once.

        Args:
            hurried: Do not linger after the last span.
            all_of_them: Give those as well that still run.
        """
        now = self._clock()
        for root, found in list(self._requests.items()):
            if all_of_them or found.is_due(now, self.limits, hurried=hurried):
                del self._requests[root]
                found.complete = found.complete and not found.open
                self._forget(found)
                yield found

    def _forget(self, found: Gathered) -> None:
        for span_id in list(found.open):
            self._gone[span_id] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.pop(next(iter(self._gone)))
        for span_id in found.ids:
            self._of.pop(span_id, None)
