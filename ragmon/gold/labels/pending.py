"""Labels that wait for their traces, and which of them leaves where more came than can wait.

A flood of labels on traces that never come must not drive out those of others. Whoever has given more than their share
of all that waits makes room first, with their own oldest label; where nobody has, the oldest of all leaves: most traces
come within minutes of what is said of them, so it has waited in vain the longest. It depends on the order of the labels
alone, so a replay does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.record import Label

SHARE: Final = 8
"""The part of the room that one rater's labels may take while others want it."""


class _Waits(NamedTuple):
    """A label that waits.

    Attributes:
        at: When it came, seconds since the epoch.
        label: It, without its comment.
        size: Bytes it takes.
    """

    at: float
    label: Label
    size: int


class PendingLabels:
    """Labels whose traces have not come, in the order they came.

    Args:
        most: How many may wait.
        largest: Bytes they may take.
        size: Bytes a label takes, about.
    """

    def __init__(self, most: int, largest: int, size: Callable[[Label], int]) -> None:
        self._most = most
        self._largest = largest
        self._size = size
        self._next = 0
        self._held = 0
        self._all: dict[int, _Waits] = {}
        self._traces: dict[str, dict[int, None]] = {}
        self._raters: dict[str, dict[int, None]] = {}
        self._of_rater: dict[str, int] = {}
        self._over: set[str] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._traces

    def put(self, label: Label, now: float) -> int:
        """Let a label wait.

        Args:
            label: The label.
            now: When it came, seconds since the epoch; never before the one before it.

        Returns:
            How many had to leave for want of room.
        """
        waits = _Waits(now, msgspec.structs.replace(label, comment=None), self._size(label))
        place, self._next = self._next, self._next + 1
        self._all[place] = waits
        self._traces.setdefault(label.trace_id, {})[place] = None
        self._raters.setdefault(label.rater, {})[place] = None
        self._weigh(label.rater, waits.size)
        left = 0
        while len(self._all) > self._most or self._held > self._largest:
            self._leave(self._next_to_leave())
            left += 1
        return left

    def _weigh(self, rater: str, size: int) -> None:
        """A rater has so many bytes more here, or with a negative number fewer."""
        self._held += size
        self._of_rater[rater] = self._of_rater.get(rater, 0) + size
        if self._weight(rater) * SHARE > self._most * self._largest:
            self._over.add(rater)
        else:
            self._over.discard(rater)

    def _weight(self, rater: str) -> int:
        """The part of the room a rater's labels take, by number or by bytes, in units of `most * largest`."""
        return max(len(self._raters[rater]) * self._largest, self._of_rater[rater] * self._most)

    def _next_to_leave(self) -> int:
        if not self._over:
            return next(iter(self._all))
        return next(iter(self._raters[max(self._over, key=lambda rater: (self._weight(rater), rater))]))

    def _leave(self, place: int) -> _Waits:
        waits = self._all.pop(place)
        trace_id, rater = waits.label.trace_id, waits.label.rater
        del self._traces[trace_id][place]
        if not self._traces[trace_id]:
            del self._traces[trace_id]
        del self._raters[rater][place]
        self._weigh(rater, -waits.size)
        if not self._raters[rater]:
            del self._raters[rater], self._of_rater[rater]
        return waits

    def take(self, trace_id: str) -> list[Label]:
        """The labels that waited for a trace; they wait no longer."""
        return [self._leave(place).label for place in tuple(self._traces.get(trace_id, ()))]

    def expire(self, before: float) -> int:
        """Let labels go that came before a moment, seconds since the epoch; returns how many did."""
        found = 0
        while self._all and next(iter(self._all.values())).at < before:
            self._leave(next(iter(self._all)))
            found += 1
        return found

    def dump(self) -> Iterator[list[Any]]:
        """Plain JSON data of each, in the order they came: when it came, and it."""
        return ([waits.at, msgspec.to_builtins(waits.label)] for waits in self._all.values())

    def load(self, data: Sequence[Any]) -> int:
        """Go on from what `dump` wrote, with nothing before; returns how many found no room."""
        told = sorted(msgspec.convert(data, list[tuple[float, Label]]), key=lambda one: one[0])
        return sum(self.put(label, at) for at, label in told)
