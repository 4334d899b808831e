"""The counters of producers: what a process says of its calls, whose counts only grow.

A series holds the reported steps with the largest count up to each of them, so that a report that arrives out of order
changes exactly the increments that it would have changed in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ragmon.core.constants import FOLDED
from ragmon.scoring import fingerprint


class Producer(NamedTuple):
    """A process that counts its calls; its counts only grow."""

    instance: str
    started: float


GONE: Final = Producer("", 0.0)
"""Stands for all producers that are gone."""
EXPIRED: Final = -1
"""The step of the last count of all steps that are no longer kept apart."""


class CallKey(NamedTuple):
    """The key of a call counter."""

    pipeline: str
    source: str
    stratum: str


class Count(NamedTuple):
    """Calls, and how many of them became records."""

    calls: int = 0
    kept: int = 0

    def plus(self, other: Count) -> Count:
        """The sum of both counts."""
        return Count(self.calls + other.calls, self.kept + other.kept)

    def minus(self, other: Count) -> Count:
        """The increase since another count."""
        return Count(max(0, self.calls - other.calls), max(0, self.kept - other.kept))

    def larger(self, other: Count | None) -> Count:
        """The larger of two counts, which is the later one because counts only grow."""
        return self if other is None else Count(max(self.calls, other.calls), max(self.kept, other.kept))


NOTHING: Final = Count()

Change = tuple[int, int, int]
"""A step, and how many more calls and kept calls its increment has; fewer where that is negative."""


def slot(step: int) -> int:
    """The five minutes that a step belongs to."""
    return step // FOLDED * FOLDED


class CounterSeries:
    """The counter series of one producer and one key.

    Args:
        step: The first reported step.
        count: The count then.

    Attributes:
        first: The first reported step, and the smallest count of it.
    """

    __slots__ = ("_calls", "_kept", "_times", "first")

    def __init__(self, step: int, count: Count) -> None:
        self.first = (step, count)
        # Lists of numbers: with a tuple a step, a hundred thousand steps would cost twice the memory.
        self._times = [step]
        self._calls = [count.calls]
        self._kept = [count.kept]

    @classmethod
    def load(cls, first: tuple[int, Count], steps: Mapping[int, Count]) -> CounterSeries:
        """A series from its first report and the counts of its steps."""
        times = sorted(steps)
        series = cls(times[0], steps[times[0]])
        for step in times[1:]:
            series.put(step, steps[step])
        series.first = first
        return series

    @property
    def steps(self) -> dict[int, Count]:
        """The steps that are kept apart, in order of time, with the largest count up to each."""
        return dict(zip(self._times, map(Count, self._calls, self._kept), strict=True))

    @property
    def newest(self) -> int:
        """The newest step."""
        return self._times[-1]

    @property
    def total(self) -> Count:
        """The count after the newest step."""
        return Count(self._calls[-1], self._kept[-1])

    @property
    def is_settled(self) -> bool:
        """Whether the steps begin later than the reports, because older ones were dropped."""
        return self._times[0] > self.first[0]

    def __len__(self) -> int:
        return len(self._times)

    def at(self, end: float) -> Count:
        """The count at a time."""
        place = bisect_left(self._times, end)
        return Count(self._calls[place - 1], self._kept[place - 1]) if place else NOTHING

    def increments(self) -> list[Change]:
        """The calls of each step: those until the first one, which nothing came before, are its own."""
        before = (0, *self._calls), (0, *self._kept)
        rows = zip(self._times, self._calls, self._kept, *before, strict=False)
        return [
            (step, calls - calls_before, kept - kept_before) for step, calls, kept, calls_before, kept_before in rows
        ]

    def put(self, step: int, count: Count) -> Sequence[Change]:
        """Add a count, whatever it says of the first report; returns the increments that change.

        A step older than the kept ones is taken for the oldest of these, whose count it hardly ever exceeds.
        """
        if step <= self._times[-1]:
            return self._insert(step, count)
        known = self.total
        largest = count.larger(known)
        self._times.append(step)
        self._calls.append(largest.calls)
        self._kept.append(largest.kept)
        return () if largest == known else ((step, largest.calls - known.calls, largest.kept - known.kept),)

    def _insert(self, step: int, count: Count) -> list[Change]:
        if self.is_settled:
            step = max(step, self._times[0])
        place = bisect_left(self._times, step)
        if self._times[place] != step:
            self._times.insert(place, step)
            self._calls.insert(place, self._calls[place - 1] if place else 0)
            self._kept.insert(place, self._kept[place - 1] if place else 0)
        return self._raise(place, count)

    def _raise(self, place: int, count: Count) -> list[Change]:
        """Raise the counts from a place on: what its increment gains, the following ones lose until it is used up."""
        changes: list[Change] = []
        calls_before = kept_before = 0
        for at in range(place, len(self._times)):
            more_calls, more_kept = max(0, count.calls - self._calls[at]), max(0, count.kept - self._kept[at])
            if not (more_calls or more_kept or calls_before or kept_before):
                break
            changes.append((self._times[at], more_calls - calls_before, more_kept - kept_before))
            self._calls[at] += more_calls
            self._kept[at] += more_kept
            calls_before, kept_before = more_calls, more_kept
        return changes

    def keep(self, n: int) -> None:
        """Drop all but the newest steps."""
        if len(self._times) > n:
            for numbers in (self._times, self._calls, self._kept):
                del numbers[:-n]

    def thin(self, fresh: float) -> None:
        """Keep one step per five minutes, with their last count, of those older than a time."""
        n = bisect_left(self._times, fresh)
        last = {slot(step): place for place, step in enumerate(self._times[:n])}
        if len(last) < n or any(slot(step) != step for step in self._times[:n]):
            self._calls[:n] = [self._calls[place] for place in last.values()]
            self._kept[:n] = [self._kept[place] for place in last.values()]
            self._times[:n] = last

    def expire(self, before: float) -> None:
        """Keep one of the steps before a time: what was counted until then."""
        self.keep(max(1, len(self._times) - max(0, bisect_left(self._times, before) - 1)))


class ProducerCounts:
    """The series of a producer.

    Args:
        producer: The producer.
        step: Its first reported step.

    Attributes:
        factor: The factor of its fingerprints, so that the same calls of another producer have another fingerprint.
        first: Its first reported step.
        series: Its series by key.
    """

    __slots__ = ("_started", "factor", "first", "series")

    def __init__(self, producer: Producer, step: int) -> None:
        self.factor = fingerprint.place(f"{producer.started!r} {producer.instance}")
        self.first = step
        self.series: dict[CallKey, CounterSeries] = {}
        self._started = producer.started

    @property
    def start(self) -> float:
        """When it started, as far as its reports do not say otherwise; seconds since the epoch."""
        return min(self._started, self.first)

    @property
    def newest(self) -> int:
        """The newest step of all its series."""
        return max(series.newest for series in self.series.values())
