"""Labels that wait for their traces, and which of them is evicted when there are too many.

A flood of labels for traces that never come must not evict the labels of others. If the labels of a rater take more
than one rater's share of the limit, the oldest label of that rater is evicted. If no rater is over the share, the
oldest label of all is evicted: most traces arrive within minutes of their labels, so it is the least likely to be
joined. The choice depends only on the order of the labels, so a replay makes the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.record import Label

SHARE: Final = 8
"""One rater may use one part in so many of the limit before the labels of that rater are evicted first."""


class _PendingLabel(NamedTuple):
    """A label that waits for its trace.

    Attributes:
        at: When it arrived, seconds since the epoch.
        label: The label, without its comment.
        size: Its size in bytes.
    """

    at: float
    label: Label
    size: int


class PendingLabels:
    """Labels whose traces have not arrived, in the order of arrival.

    Args:
        most: The limit of their number.
        largest: The limit of their total size in bytes.
        size: The approximate size of a label in bytes.
    """

    def __init__(self, most: int, largest: int, size: Callable[[Label], int]) -> None:
        self._most = most
        self._largest = largest
        self._size = size
        self._next = 0
        self._bytes = 0
        self._by_number: dict[int, _PendingLabel] = {}
        self._by_trace: dict[str, dict[int, None]] = {}
        self._by_rater: dict[str, dict[int, None]] = {}
        self._bytes_of_rater: dict[str, int] = {}
        self._over_share: set[str] = set()

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._by_trace

    def put(self, label: Label, now: float) -> int:
        """Add a label.

        Args:
            label: The label.
            now: When it arrived, seconds since the epoch; never earlier than the one before it.

        Returns:
            How many labels were evicted.
        """
        pending = _PendingLabel(now, msgspec.structs.replace(label, comment=None), self._size(label))
        number, self._next = self._next, self._next + 1
        self._by_number[number] = pending
        self._by_trace.setdefault(label.trace_id, {})[number] = None
        self._by_rater.setdefault(label.rater, {})[number] = None
        self._add_bytes(label.rater, pending.size)
        evicted = 0
        while len(self._by_number) > self._most or self._bytes > self._largest:
            self._remove(self._next_to_evict())
            evicted += 1
        return evicted

    def _add_bytes(self, rater: str, size: int) -> None:
        """Add to the bytes of a rater, or subtract them, and update whether the rater is over the share."""
        self._bytes += size
        self._bytes_of_rater[rater] = self._bytes_of_rater.get(rater, 0) + size
        if self._usage(rater) * SHARE > self._most * self._largest:
            self._over_share.add(rater)
        else:
            self._over_share.discard(rater)

    def _usage(self, rater: str) -> int:
        """The share of the limit that a rater's labels use, by number or by bytes, in units of `most * largest`."""
        return max(len(self._by_rater[rater]) * self._largest, self._bytes_of_rater[rater] * self._most)

    def _next_to_evict(self) -> int:
        if not self._over_share:
            return next(iter(self._by_number))
        return next(iter(self._by_rater[max(self._over_share, key=lambda rater: (self._usage(rater), rater))]))

    def _remove(self, number: int) -> _PendingLabel:
        pending = self._by_number.pop(number)
        trace_id, rater = pending.label.trace_id, pending.label.rater
        del self._by_trace[trace_id][number]
        if not self._by_trace[trace_id]:
            del self._by_trace[trace_id]
        del self._by_rater[rater][number]
        self._add_bytes(rater, -pending.size)
        if not self._by_rater[rater]:
            del self._by_rater[rater], self._bytes_of_rater[rater]
        return pending

    def take(self, trace_id: str) -> list[Label]:
        """Remove and return the labels that waited for a trace."""
        return [self._remove(number).label for number in tuple(self._by_trace.get(trace_id, ()))]

    def expire(self, before: float) -> int:
        """Remove labels that arrived before a time in seconds since the epoch; returns how many."""
        expired = 0
        while self._by_number and next(iter(self._by_number.values())).at < before:
            self._remove(next(iter(self._by_number)))
            expired += 1
        return expired

    def dump(self) -> Iterator[list[Any]]:
        """Plain JSON data: arrival time and label of each, in the order of arrival."""
        return ([pending.at, msgspec.to_builtins(pending.label)] for pending in self._by_number.values())

    def load(self, data: Sequence[Any]) -> int:
        """Load what `dump` wrote into an empty object; returns how many labels were evicted."""
        arrivals = sorted(msgspec.convert(data, list[tuple[float, Label]]), key=lambda arrival: arrival[0])
        return sum(self.put(label, at) for at, label in arrivals)
