"""The totals of all calls that producers report, sampled or not, by time step.

A producer says how many calls it has counted since it started. What is kept of each producer only serves to tell how
many more calls a report makes, and when; windows are read from sums over all producers, however many there are.

What a producer had counted before its first report is kept apart, by when it started and by that report: it lies in
the windows within which the producer started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core import constants
from ragmon.core.constants import FOLDED_SECONDS
from ragmon.core.record import Totals
from ragmon.scoring.cohorts import slot, step_of

RECENT: Final = 32
"""Steps that live traffic keeps of a series: reports that are later than that, five minutes and more, are rare."""


class Producer(NamedTuple):
    """A process that counts its calls; its counts only grow."""

    instance: str
    started: float


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
        """The difference of both counts."""
        return Count(self.calls - other.calls, self.kept - other.kept)


NOTHING: Final = Count()
T = TypeVar("T")


class CounterSeries(msgspec.Struct):
    """The counts of one producer and one key: the reported steps, with the largest count up to each of them.

    A report that arrives out of order changes exactly the increments that it would have changed in order. The steps
    are lists of numbers: with a tuple a step, a hundred thousand steps would cost twice the memory.

    Attributes:
        first: The first reported step, and the smallest count of it.
        calls, kept: The counts up to each step.
    """

    first: tuple[int, Count]
    times: list[int]
    calls: list[int]
    kept: list[int]

    @property
    def total(self) -> Count:
        """The count after the newest step."""
        return Count(self.calls[-1], self.kept[-1])

    @property
    def is_settled(self) -> bool:
        """Whether the steps begin later than the reports, because older ones were dropped."""
        return self.times[0] > self.first[0]

    def put(self, step: int, count: Count) -> list[tuple[int, Count]]:
        """Add a count, whatever it says of the first one; returns the steps whose increments change, and by how much.

        A step older than the kept ones is taken for the oldest of these, whose count it hardly ever exceeds.
        """
        if self.is_settled:
            step = max(step, self.times[0])
        index = bisect_left(self.times, step)
        if index == len(self.times) or self.times[index] != step:
            self.times.insert(index, step)
            for counts in (self.calls, self.kept):
                counts.insert(index, counts[index - 1] if index else 0)
        # What the increment of a step gains, the following steps lose until it is used up.
        changes, gained = [], NOTHING
        for at in range(index, len(self.times)):
            more = Count(max(0, count.calls - self.calls[at]), max(0, count.kept - self.kept[at]))
            if not (any(more) or any(gained)):
                break
            self.calls[at] += more.calls
            self.kept[at] += more.kept
            changes.append((self.times[at], more.minus(gained)))
            gained = more
        return changes

    def keep(self, n: int) -> None:
        """Drop all but the newest steps."""
        for numbers in (self.times, self.calls, self.kept):
            del numbers[:-n]

    def thin(self, fresh: float, oldest: float) -> None:
        """Keep the last step of each five minutes of those before `fresh`, and of those before `oldest` one."""
        self.keep(len(self.times) - max(0, bisect_left(self.times, oldest) - 1))
        old = bisect_left(self.times, fresh)
        last = {slot(step): index for index, step in enumerate(self.times[:old])}
        for counts in (self.calls, self.kept):
            counts[:old] = [counts[index] for index in last.values()]
        self.times[:old] = last


class ProducerCalls(msgspec.Struct):
    """What is kept of a producer.

    Attributes:
        start: The step in which it started, as far as its reports do not say otherwise.
    """

    start: int
    first: int
    series: dict[CallKey, CounterSeries] = {}


class CallSums(msgspec.Struct):
    """The calls of a key over all producers.

    Attributes:
        past: The calls of steps that are not kept apart.
        firsts: The calls before first reports, by the steps of the producers' start and of that report.
    """

    total: Count = NOTHING
    past: Count = NOTHING
    steps: dict[int, Count] = {}
    firsts: dict[tuple[int, int], Count] = {}


class CallTotals(msgspec.Struct):
    """Cumulative call counts of producers; merging two takes the larger count of each.

    Attributes:
        recent: The steps that are kept of a series. Reports older than those count, but change no other step. None
            keeps all, so that states merge to the same whatever their parts are.
        fresh, oldest: Which steps are kept apart, as `fold` says.
    """

    recent: int | None = None
    fresh: float = 0.0
    oldest: int = 0
    producers: dict[Producer, ProducerCalls] = {}
    sums: dict[CallKey, CallSums] = {}

    def see(self, line: Totals) -> None:
        """Add totals of a producer; a line that only reports losses counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            count = Count(line.calls, line.kept)
            self._report(Producer(line.instance, line.started), key, step_of(line.ts), count)

    def _report(self, producer: Producer, key: CallKey, step: int, count: Count) -> None:
        known = self.producers.get(producer)
        if known is None:
            known = self.producers[producer] = ProducerCalls(step_of(producer.started), step)
        series, first = known.series.get(key), (step, count)
        is_first = series is None or (first < series.first and not series.is_settled)
        if series is None:
            series = CounterSeries(first, [step], [0], [0])
        self._put(key, series, step, count)
        if not is_first:
            return
        # It may be the first report of the producer as well.
        names = set(known.series) if step < known.first else {key} & known.series.keys()
        for name in names:
            self._set_apart(known, name, -1)
        known.start, known.first = min(known.start, step), min(known.first, step)
        known.series[key], series.first = series, first
        for name in names | {key}:
            self._set_apart(known, name, 1)

    def _put(self, key: CallKey, series: CounterSeries, step: int, count: Count) -> None:
        sums = self.sums.setdefault(key, CallSums())
        for changed, more in series.put(step, count):
            sums.total = sums.total.plus(more)
            self._add(sums, changed, more)
        if self.recent is not None:
            series.keep(self.recent)

    def _set_apart(self, producer: ProducerCalls, key: CallKey, sign: int) -> None:
        # What a producer had counted until its first report is taken out of that step, or put back if `sign` is -1.
        step, (calls, kept) = producer.series[key].first
        if step == producer.first:
            sums, count = self.sums.setdefault(key, CallSums()), Count(sign * calls, sign * kept)
            self._add(sums, step, NOTHING.minus(count))
            self._add_first(sums, producer.start, step, count)

    def _add(self, sums: CallSums, step: int, count: Count) -> None:
        kept_at = self._kept_at(step)
        if kept_at is None:
            sums.past = sums.past.plus(count)
        else:
            _add_to(sums.steps, kept_at, count)

    def _add_first(self, sums: CallSums, start: int, first: int, count: Count) -> None:
        started, reported = self._kept_at(start), self._kept_at(first)
        if started is not None and reported is not None:  # no window that is kept begins before the start
            _add_to(sums.firsts, (started, reported), count)

    def _kept_at(self, step: int) -> int | None:
        if step < self.oldest:
            return None
        return step if step >= self.fresh else slot(step)

    def since(self, begin: float | None, end: float) -> dict[CallKey, Count]:
        """The calls of a window, with the resolution of ten seconds between two reports.

        Without a begin, they are the calls since the first reports. A key that a producer did not report before the
        window had no calls then, if the producer had reported anything. For a producer that had run long before its
        first report, only the calls since that report are known.
        """
        found = {}
        for key, sums in self.sums.items():
            if begin is None:
                counts = [sums.past, *(count for step, count in sums.steps.items() if step < end)]
            else:
                counts = [count for step, count in sums.steps.items() if begin <= step < end]
                counts += (count for (start, first), count in sums.firsts.items() if begin <= start and first < end)
            found[key] = Count(sum(calls for calls, _ in counts), sum(kept for _, kept in counts))
        return found

    def totals(self) -> dict[CallKey, Count]:
        """All calls of every producer since it started."""
        return {key: sums.total for key, sums in self.sums.items()}

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts; both edges only move forward.

        Steps older than `fresh` are added up by five minutes; what begins before `oldest` is not kept apart.
        """
        self.fresh = max(self.fresh, fresh)
        self.oldest = max(self.oldest, ceil((oldest or 0.0) / FOLDED_SECONDS) * FOLDED_SECONDS)
        for sums in self.sums.values():
            steps, firsts, sums.steps, sums.firsts = sums.steps, sums.firsts, {}, {}
            for step, count in steps.items():
                self._add(sums, step, count)
            for (start, first), count in firsts.items():
                self._add_first(sums, start, first, count)
        # Processes come and go, and memory must stay bounded. The calls of those that are gone stay in the sums.
        for producer, known in list(self.producers.items()):
            if max(series.times[-1] for series in known.series.values()) < self.oldest:
                del self.producers[producer]
            for series in known.series.values():
                series.thin(self.fresh, self.oldest)

    def merge(self, other: CallTotals) -> None:
        """Add the totals of another instance.

        It is the same as seeing its reports, as far as it keeps them apart. Of steps that it dropped, and of producers
        that it gave up, only the number of calls is known.
        """
        if other.fresh > self.fresh:
            self.fold(other.fresh, None)
        gone = other.totals()
        for producer, known in other.producers.items():
            for key, series in known.series.items():
                gone[key] = gone[key].minus(series.total)
                self._report(producer, key, *series.first)
                own = self.producers[producer].series[key]
                for step, calls, kept in zip(series.times, series.calls, series.kept, strict=True):
                    self._put(key, own, step, Count(calls, kept))
        for key, count in gone.items():
            sums = self.sums.setdefault(key, CallSums())
            sums.total = sums.total.plus(count)

    def to_rows(self, since: float) -> list[list[Any]]:
        """What was counted, in canonical order, whatever is kept of it.

        For each key that has calls: the key, all calls and how many of them became records; the same of each five
        minutes since a time, by their start; and of what producers had counted before their first reports, by the five
        minutes in which they started and those of the report.
        """
        rows = []
        for key, sums in sorted(self.sums.items()):
            steps: dict[int, Count] = {}
            firsts: dict[tuple[int, int], Count] = {}
            for step, count in sums.steps.items():
                _add_to(steps, slot(step), count)
            for (start, first), count in sums.firsts.items():
                _add_to(firsts, (slot(start), slot(first)), count)
            timed = [[step, *count] for step, count in sorted(steps.items()) if step >= since]
            timed_firsts = [[*edges, *count] for edges, count in sorted(firsts.items()) if edges[0] >= since]
            rows.append([*key, *sums.total, timed, timed_firsts])
        return rows


def _add_to(counts: dict[T, Count], key: T, count: Count) -> None:
    # A zero count is the same as none.
    total = counts.get(key, NOTHING).plus(count)
    if any(total):
        counts[key] = total
    else:
        counts.pop(key, None)


def by_stratum(calls: Mapping[CallKey, Count], pipeline: str, source: str) -> dict[str, Count]:
    """The calls of one pipeline and source by stratum, without those of unknown weight."""
    return {
        key.stratum: count
        for key, count in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != constants.UNKNOWN_WEIGHT and count.calls
    }
