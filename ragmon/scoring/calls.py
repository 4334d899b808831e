"""The totals of all calls that producers report, by time step, and exemplars for latency series.

Totals count all calls, sampled or not. An exemplar is the newest trace of a series that the application's own tracer
kept, so that it can be opened.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import isfinite
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.record import Record, Totals
from ragmon.scoring import fingerprint
from ragmon.scoring.fingerprint import PRIME, moment, of_counts

_ID: Final = re.compile(r"[0-9a-f]{32}")


class Exemplar(NamedTuple):
    """An exemplar of a latency series.

    Attributes:
        trace_id: 32 hex digits.
        seconds: The latency of its call.
        ts: When it arrived, seconds since the epoch.
    """

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """The newest exemplar by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Keep a record's trace, if it was exported and its latency is known.

        Args:
            record: The record, already counted.
            now: When it arrived, seconds since the epoch.
        """
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def add(self, key: tuple[str, str], exemplar: Exemplar) -> None:
        """Keep an exemplar of a pipeline and source that another process saw, if it is newer.

        Args:
            key: The pipeline and the source.
            exemplar: The exemplar.
        """
        known = self._newest.get(key)
        if known is None or exemplar.ts >= known.ts:
            self._newest[key] = exemplar

    def forget(self, pipeline: str) -> None:
        """Remove the exemplars of a pipeline."""
        self._newest = {key: exemplar for key, exemplar in self._newest.items() if key[0] != pipeline}

    def newest(self) -> dict[tuple[str, str], Exemplar]:
        """The exemplars by pipeline and source."""
        return dict(self._newest)


FOLDED: Final = 300
"""Seconds between two counts that are kept for long."""


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


class CounterSeries:
    """The counter series of one producer and one key.

    Attributes:
        first: The first reported step, and the count then.
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
        if not self._times or step < self._times[-1]:
            self._times.clear()  # `at` sorts them anew
        elif step == self._times[-1]:
            self._counts[-1] = count.larger(self._counts[-1])
        else:
            self._times.append(step)
            self._counts.append(count.larger(self._counts[-1]))

    def merge(self, other: CounterSeries) -> None:
        """Add the counts of another series; its steps may be thinned out, and say nothing of the first report."""
        self.first = min(self.first, other.first)
        for step, count in other.steps.items():
            self.steps[step] = count.larger(self.steps.get(step))
        self._times.clear()

    def at(self, end: float) -> Count:
        """The count at a time."""
        if not self._times:
            self._times = sorted(self.steps)
            self._counts = list(accumulate((self.steps[step] for step in self._times), Count.larger))
        place = bisect_left(self._times, end)
        return self._counts[place - 1] if place else NOTHING

    def thin(self, fresh: float) -> None:
        """Thin out old counts: one per five minutes."""
        kept: dict[int, Count] = {}
        for step, count in self.steps.items():
            slot = step if step >= fresh or step == EXPIRED else _slot(step)
            kept[slot] = count.larger(kept.get(slot))
        self.steps = kept
        self._times.clear()

    def expire(self, before: float) -> int:
        """Keep the last of the counts before a time; returns the fingerprint of the calls between them."""
        expired = {step: count for step, count in self.steps.items() if step == EXPIRED or _slot(step) < before}
        if expired.keys() <= {EXPIRED}:
            return 0
        last = NOTHING
        for step, count in expired.items():
            del self.steps[step]
            last = count.larger(last)
        self.steps[EXPIRED] = last
        self._times.clear()
        return _of_increments(expired)

    def fingerprint(self) -> int:
        """The fingerprint of the calls in every five minutes, since the count that expired last."""
        return _of_increments(self.steps)

    def fingerprint_of_start(self) -> int:
        """The fingerprint of the first reported step, and the count then."""
        step, count = self.first
        return moment(step) * of_counts({"first": [1, *count]})


def _slot(step: int) -> int:
    """The five minutes that a step belongs to."""
    return step // FOLDED * FOLDED


def _of_increments(steps: Mapping[int, Count]) -> int:
    """The fingerprint of the calls in every five minutes, given the last count of each step."""
    last_counts: dict[int, Count] = {}
    for step, count in steps.items():
        if step != EXPIRED:
            last_counts[_slot(step)] = count.larger(last_counts.get(_slot(step)))
    total, known = 0, steps.get(EXPIRED, NOTHING)
    for slot, last in sorted(last_counts.items()):
        total += moment(slot) * of_counts(last.minus(known)._asdict())
        known = last.larger(known)
    return total % PRIME


def _of_producer(producer: Producer) -> int:
    """The factor of a producer, so that the same calls of another one have another fingerprint."""
    return fingerprint.place(f"{producer.started!r} {producer.instance}")


SavedCalls = tuple[Producer, CallKey, tuple[int, Count], dict[int, Count]]
"""The saved form of a `CounterSeries`: its producer and key, its first step with the count then, and its steps."""


SavedExpired = tuple[CallKey, str]
"""The saved fingerprint of the calls of a key whose steps are no longer kept apart."""


class CallTotals:
    """Cumulative call counts by producer and time step; merging two takes the larger count."""

    def __init__(self) -> None:
        self._series: dict[Producer, dict[CallKey, CounterSeries]] = {}
        self._expired: dict[CallKey, int] = {}

    def see(self, line: Totals) -> None:
        """Add totals of a producer; a line that only reports losses counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            count = Count(line.calls, line.kept)
            self._put(Producer(line.instance, line.started), key, int(line.ts) // STEP * STEP, count)

    def _put(self, producer: Producer, key: CallKey, step: int, count: Count) -> None:
        keys = self._series.setdefault(producer, {})
        series = keys.get(key)
        if series is None:
            keys[key] = CounterSeries(step, count)
        else:
            series.put(step, count)

    def since(self, begin: float | None, end: float) -> dict[CallKey, Count]:
        """The calls of a window, with the resolution of ten seconds between two reports.

        A key that a producer did not report before the window had no calls then, if the producer had reported anything.
        For a producer that had run long before its first report, only the calls since that report are known.

        Args:
            begin: The start of the window, seconds since the epoch; None starts with each producer's first report.
            end: The end of the window, exclusive.
        """
        counts: dict[CallKey, Count] = {}
        for producer, keys in self._series.items():
            first_report = min(series.first[0] for series in keys.values())
            is_start_unknown = begin is None or (first_report >= begin and producer.started < begin)
            for key, series in keys.items():
                base = NOTHING if begin is None else series.at(begin)
                if is_start_unknown and series.first[0] == first_report:
                    base = series.first[1]
                counts[key] = series.at(end).minus(base).plus(counts.get(key, NOTHING))
        return counts

    def totals(self) -> dict[CallKey, Count]:
        """All calls of every producer since it started."""
        counts: dict[CallKey, Count] = {}
        for keys in self._series.values():
            for key, series in keys.items():
                counts[key] = series.at(float("inf")).plus(counts.get(key, NOTHING))
        return counts

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts.

        Args:
            fresh: Of older counts, the last of every five minutes is kept.
            oldest: Of still older counts, only the last is kept; None keeps all.
        """
        for producer, key, series in self:
            if oldest is not None:
                self._expire(key, _of_producer(producer) * series.expire(oldest))
            series.thin(fresh)
        if oldest is not None:
            self._sum_silent(oldest)

    def _expire(self, key: CallKey, fingerprint: int) -> None:
        """Remember the fingerprint of calls whose steps are no longer kept apart."""
        if fingerprint:
            self._expired[key] = (self._expired.get(key, 0) + fingerprint) % PRIME

    def fingerprints(self) -> dict[CallKey, int]:
        """The fingerprint of all calls by key."""
        totals = dict(self._expired)
        for producer, key, series in self:
            if producer != GONE:
                own = _of_producer(producer) * (series.fingerprint() + series.fingerprint_of_start())
                totals[key] = (totals.get(key, 0) + own) % PRIME
        return totals

    def _sum_silent(self, oldest: float) -> None:
        """Sum up producers that have reported nothing for long: processes come and go, and memory must stay bounded."""
        silent = [p for p, keys in self._series.items() if all(max(series.steps) < oldest for series in keys.values())]
        for producer in silent:
            if producer != GONE:
                for key, series in self._series.pop(producer).items():
                    gone_series = self._series.setdefault(GONE, {}).get(key)
                    count = series.at(oldest).plus(NOTHING if gone_series is None else gone_series.at(oldest))
                    self._series[GONE][key] = CounterSeries(EXPIRED, count)
                    self._expire(key, _of_producer(producer) * series.fingerprint_of_start())

    def merge(self, other: CallTotals) -> None:
        """Add the totals of another instance."""
        for producer, key, series in other:
            own_series = self._series.setdefault(producer, {}).setdefault(key, CounterSeries(*series.first))
            own_series.merge(series)
        for key, expired in other._expired.items():
            self._expire(key, expired)

    def __iter__(self) -> Iterator[tuple[Producer, CallKey, CounterSeries]]:
        for producer, keys in self._series.items():
            for key, series in keys.items():
                yield producer, key, series

    def dump(self) -> list[SavedCalls]:
        """The totals in their saved form."""
        return [(producer, key, series.first, series.steps) for producer, key, series in self]

    def dump_expired(self) -> list[SavedExpired]:
        """The fingerprints of steps that are no longer kept apart, in their saved form."""
        return [(key, fingerprint.as_text(expired)) for key, expired in self._expired.items()]

    @classmethod
    def load(cls, state: Sequence[SavedCalls], expired: Sequence[SavedExpired] = ()) -> CallTotals:
        """The totals from their saved form."""
        calls = cls()
        calls._expired = {key: fingerprint.from_text(text) for key, text in expired}
        for producer, key, first, steps in state:
            series = CounterSeries(*first)
            series.steps = steps
            calls._series.setdefault(producer, {})[key] = series
        return calls


def by_stratum(calls: Mapping[CallKey, Count], pipeline: str, source: str) -> dict[str, Count]:
    """The calls of one pipeline and source by stratum, without those of unknown weight."""
    return {
        key.stratum: count
        for key, count in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != constants.UNKNOWN_WEIGHT and count.calls
    }
