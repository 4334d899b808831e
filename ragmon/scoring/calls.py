"""The newest trace of every latency series that the application's own tracer kept: one a person can open.

How many calls there were, sampled or not: what producers tell of all their calls, by time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import isfinite
from typing import Any, Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.record import Record, Totals

_ID: Final = re.compile(r"[0-9a-f]{32}")


class Exemplar(NamedTuple):
    """A trace that stands for a point of a series.

    Attributes:
        trace_id: 32 hex digits.
        seconds: How long its call took.
        ts: When it came, seconds since the epoch.
    """

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """Remembers one trace by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Remember a record's trace, if it was kept and took a known time.

        Args:
            record: The record, counted already.
            now: When it came, seconds since the epoch.
        """
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def forget(self, pipeline: str) -> None:
        """Forget the traces of a pipeline."""
        self._newest = {key: found for key, found in self._newest.items() if key[0] != pipeline}

    def newest(self) -> dict[tuple[str, str], Exemplar]:
        """The traces by pipeline and source."""
        return dict(self._newest)


FOLDED: Final = 300
"""Seconds between two counts that are kept for long."""


class Producer(NamedTuple):
    """A process that counts its calls: its counts only grow."""

    instance: str
    started: float


GONE: Final = Producer("", 0.0)
"""Stands for all producers that are gone."""


class CallKey(NamedTuple):
    """Which calls."""

    pipeline: str
    source: str
    stratum: str


class Count(NamedTuple):
    """Calls, and how many of them became records."""

    calls: int = 0
    kept: int = 0

    def plus(self, other: Count) -> Count:
        """Both together."""
        return Count(self.calls + other.calls, self.kept + other.kept)

    def minus(self, other: Count) -> Count:
        """What came since."""
        return Count(max(0, self.calls - other.calls), max(0, self.kept - other.kept))

    def larger(self, other: Count | None) -> Count:
        """Counts only grow: the larger one is the later one."""
        return self if other is None else Count(max(self.calls, other.calls), max(self.kept, other.kept))


NOTHING: Final = Count()


class CounterSeries:
    """What one producer told of one key.

    Attributes:
        first: The step it was told of first, and the count then.
        steps: The last count of each step of ten seconds.
    """

    __slots__ = ("_counts", "_times", "first", "steps")

    def __init__(self, step: int, count: Count) -> None:
        self.first = (step, count)
        self.steps = {step: count}
        self._times: list[int] = []
        self._counts: list[Count] = []

    def put(self, step: int, count: Count) -> None:
        """Add a count."""
        self.first = min(self.first, (step, count))
        self.steps[step] = count.larger(self.steps.get(step))
        self._times.clear()

    def at(self, end: float) -> Count:
        """The count at a time."""
        if not self._times:
            self._times = sorted(self.steps)
            self._counts = list(accumulate((self.steps[step] for step in self._times), Count.larger))
        place = bisect_left(self._times, end)
        return self._counts[place - 1] if place else NOTHING

    def thin(self, fresh: float, oldest: float | None) -> None:
        """Keep the last count of every five minutes of what is old, and of what is older still one."""
        kept: dict[int, Count] = {}
        for step, count in self.steps.items():
            place = step if step >= fresh else step // FOLDED * FOLDED
            place = place if oldest is None or step >= oldest else 0
            kept[place] = count.larger(kept.get(place))
        self.steps = kept
        self._times.clear()


class CallTotals:
    """Cumulative counts of calls, by producer and time step; two of them merge by taking the larger count."""

    def __init__(self) -> None:
        self._told: dict[Producer, dict[CallKey, CounterSeries]] = {}

    def see(self, line: Totals) -> None:
        """Take in what a producer tells; a line about losses alone counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            count = Count(line.calls, line.kept)
            self._put(Producer(line.instance, line.started), key, int(line.ts) // STEP * STEP, count)

    def _put(self, producer: Producer, key: CallKey, step: int, count: Count) -> None:
        keys = self._told.setdefault(producer, {})
        told = keys.get(key)
        if told is None:
            keys[key] = CounterSeries(step, count)
        else:
            told.put(step, count)

    def since(self, begin: float | None, end: float) -> dict[CallKey, Count]:
        """The calls of a window, to the ten seconds between two reports.

        Of a producer that was heard of before the window, a key it had not told of had no calls. Of one that had been
        running for long when it was first heard of, only what it counted since is known.

        Args:
            begin: Where it begins, seconds since the epoch; None: with each producer's first report.
            end: Where it ends, exclusive.
        """
        found: dict[CallKey, Count] = {}
        for producer, keys in self._told.items():
            heard = min(told.first[0] for told in keys.values())
            unknown = begin is None or (heard >= begin and producer.started < begin)
            for key, told in keys.items():
                base = NOTHING if begin is None else told.at(begin)
                if unknown and told.first[0] == heard:
                    base = told.first[1]
                found[key] = told.at(end).minus(base).plus(found.get(key, NOTHING))
        return found

    def whole(self) -> dict[CallKey, Count]:
        """All calls of every producer since it started."""
        found: dict[CallKey, Count] = {}
        for keys in self._told.values():
            for key, told in keys.items():
                found[key] = told.at(float("inf")).plus(found.get(key, NOTHING))
        return found

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts.

        Args:
            fresh: Of what is older, the last count of every five minutes is kept.
            oldest: Of what is older, the last count; None keeps all.
        """
        for keys in self._told.values():
            for told in keys.values():
                told.thin(fresh, oldest)
        if oldest is not None:
            self._bury(oldest)

    def _bury(self, oldest: float) -> None:
        """Add up the producers that have told nothing for long: processes come and go, memory is bounded."""
        silent = [p for p, keys in self._told.items() if all(max(told.steps) < oldest for told in keys.values())]
        for producer in silent:
            if producer != GONE:
                for key, told in self._told.pop(producer).items():
                    held = self._told.setdefault(GONE, {}).get(key)
                    count = told.at(oldest).plus(NOTHING if held is None else held.steps[0])
                    self._told[GONE][key] = CounterSeries(0, count)

    def merge(self, other: CallTotals) -> None:
        """Add what was told elsewhere."""
        for producer, key, told in other:
            mine = self._told.setdefault(producer, {}).setdefault(key, CounterSeries(*told.first))
            mine.first = min(mine.first, told.first)
            for step, count in told.steps.items():
                mine.put(step, count)

    def __iter__(self) -> Iterator[tuple[Producer, CallKey, CounterSeries]]:
        for producer, keys in self._told.items():
            for key, told in keys.items():
                yield producer, key, told

    def dump(self) -> list[Any]:
        """Plain JSON data."""
        return [
            [*producer, *key, [told.first[0], *told.first[1]], {str(step): count for step, count in told.steps.items()}]
            for producer, key, told in self
        ]

    @classmethod
    def load(cls, data: list[Any]) -> CallTotals:
        """What `dump` wrote."""
        calls = cls()
        for instance, started, pipeline, source, stratum, (first, *count), steps in data:
            told = CounterSeries(first, Count(*count))
            told.steps = {int(step): Count(*held) for step, held in steps.items()}
            calls._told.setdefault(Producer(instance, started), {})[CallKey(pipeline, source, stratum)] = told
        return calls


def by_stratum(calls: Mapping[CallKey, Count], pipeline: str, source: str) -> dict[str, Count]:
    """The calls of each stratum of one pipeline and source; calls of unknown weight stand for nothing."""
    return {
        key.stratum: count
        for key, count in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != constants.UNKNOWN_WEIGHT and count.calls
    }
