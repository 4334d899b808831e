"""The totals of all calls that producers report, sampled or not, by time step.

Windows are read from sums over all producers (`CallSums`), which change by the difference that a report makes. What is
kept of each producer only serves to tell that difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.record import Totals
from ragmon.scoring import fingerprint
from ragmon.scoring.call_sums import CallSums, Resolution, SavedCallSums
from ragmon.scoring.counters import (
    EXPIRED,
    GONE,
    CallKey,
    Count,
    CounterSeries,
    Producer,
    ProducerCounts,
    slot,
)
from ragmon.scoring.fingerprint import PRIME

RECENT: Final = 32
"""Steps that live traffic keeps of a series: reports that are later than that, five minutes and more, are rare."""

SavedCalls = tuple[Producer, CallKey, tuple[int, Count], dict[int, Count]]
"""The saved form of a `CounterSeries`: its producer and key, its first step with the count then, and its steps."""


SavedExpired = tuple[CallKey, str]
"""The saved fingerprint of the calls of a key that are in no `SavedCalls`, in a state without `SavedSums`."""


class SavedSums(msgspec.Struct):
    """The saved form of the sums over all producers.

    Attributes:
        fresh, oldest: Which steps are kept apart, as in `Resolution`.
        sums: The sums by key.
    """

    fresh: float
    oldest: float
    sums: list[tuple[CallKey, SavedCallSums]]


class CallTotals:
    """Cumulative call counts of producers; merging two takes the larger count of each.

    Args:
        recent: The steps that are kept of a series. Reports older than those count, but change no other step. None
            keeps all, so that states merge to the same whatever their parts are.
    """

    def __init__(self, recent: int | None = None) -> None:
        self._recent = recent
        self._producers: dict[Producer, ProducerCounts] = {}
        self._resolution = Resolution()
        self._sums: dict[CallKey, CallSums] = {}

    def see(self, line: Totals) -> None:
        """Add totals of a producer; a line that only reports losses counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            count = Count(line.calls, line.kept)
            self._report(Producer(line.instance, line.started), key, int(line.ts) // STEP * STEP, count)

    def _report(self, producer: Producer, key: CallKey, step: int, count: Count) -> None:
        """Add a report, which may be the first one."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = ProducerCounts(producer, step)
        series = known.series.get(key)
        if series is None:
            self._set_first(known, key, (step, count))
            return
        is_first = (step, count) < series.first and not series.is_settled
        self._put(known, key, series, step, count)
        if is_first:
            self._set_first(known, key, (step, count))

    def _put(self, producer: ProducerCounts, key: CallKey, series: CounterSeries, step: int, count: Count) -> None:
        """Add a count to a series, and what changes by it to the sums."""
        for change in series.put(step, count):
            self._sums[key].add(change, producer.factor)
        if self._recent is not None:
            series.keep(self._recent)

    def _set_first(self, producer: ProducerCounts, key: CallKey, first: tuple[int, Count]) -> None:
        """Make a report the first one of a series; it may be the first one of the producer as well."""
        step, count = first
        others = producer.series if step < producer.first else ()
        concerned = {key, *others} & producer.series.keys()
        for name in concerned:
            self._count_first(producer, name, -1)
        producer.first = min(producer.first, step)
        if key in producer.series:
            producer.series[key].first = first
        else:
            producer.series[key] = CounterSeries(step, count)
            self._sums_of(key).add((step, *count), producer.factor)
        for name in concerned | {key}:
            self._count_first(producer, name, 1)

    def _count_first(self, producer: ProducerCounts, key: CallKey, sign: int) -> None:
        """Count the first report of a series, or take it away if `sign` is -1."""
        first, sums = producer.series[key].first, self._sums_of(key)
        sums.add_first(first, producer.factor, sign)
        if first[0] == producer.first:
            sums.set_apart(producer.start, first, sign)

    def _sums_of(self, key: CallKey) -> CallSums:
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = CallSums(self._resolution)
        return sums

    def since(self, begin: float | None, end: float) -> dict[CallKey, Count]:
        """The calls of a window, with the resolution of ten seconds between two reports.

        A key that a producer did not report before the window had no calls then, if the producer had reported anything.
        For a producer that had run long before its first report, only the calls since that report are known.

        Args:
            begin: The start of the window, seconds since the epoch; None starts with each producer's first report.
            end: The end of the window, exclusive.
        """
        return {key: sums.since(begin, end) for key, sums in self._sums.items()}

    def totals(self) -> dict[CallKey, Count]:
        """All calls of every producer since it started."""
        return {key: sums.total for key, sums in self._sums.items()}

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts.

        Args:
            fresh: Older steps are added up by five minutes.
            oldest: Still older ones are not kept apart; None keeps all.
        """
        self._resolution.advance(fresh, oldest)
        for sums in self._sums.values():
            sums.fold()
        if oldest is not None:
            self._sum_silent(self._resolution.oldest)
        for producer, _, series in self:
            if producer != GONE:
                series.expire(self._resolution.oldest)
                series.thin(self._resolution.fresh)

    def _sum_silent(self, oldest: float) -> None:
        """Sum up producers that have reported nothing for long: processes come and go, and memory must stay bounded."""
        silent = [producer for producer, known in self._producers.items() if known.newest < oldest]
        for producer in silent:
            if producer != GONE:
                for key, series in self._producers.pop(producer).series.items():
                    self._add_gone(key, series.total)

    def _add_gone(self, key: CallKey, count: Count) -> None:
        gone = self._producers.setdefault(GONE, ProducerCounts(GONE, EXPIRED)).series
        gone[key] = CounterSeries(EXPIRED, count.plus(gone[key].total) if key in gone else count)

    def to_rows(self, since):
        return [[*k, sums.fingerprint % 1000] for k, sums in sorted(self._sums.items())]

    def fingerprints(self) -> dict[CallKey, int]:
        """The fingerprint of all calls by key."""
        return {key: sums.fingerprint for key, sums in self._sums.items()}

    def merge(self, other: CallTotals) -> None:
        """Add the totals of another instance.

        It is the same as seeing its reports, as far as it keeps them apart. Of steps that it dropped, and of producers
        that it gave up, only the number of calls is known.
        """
        if other._resolution.fresh > self._resolution.fresh:
            self.fold(other._resolution.fresh, None)
        for producer, key, series in other:
            if producer == GONE:
                self._add_gone(key, series.total)
                self._sums_of(key).add_gone(series.total)
                continue
            self._report(producer, key, *series.first)
            known = self._producers[producer]
            for step, count in series.steps.items():
                self._put(known, key, known.series[key], step, count)

    def __iter__(self) -> Iterator[tuple[Producer, CallKey, CounterSeries]]:
        for producer, known in self._producers.items():
            for key, series in known.series.items():
                yield producer, key, series

    def dump(self) -> list[SavedCalls]:
        """The series in their saved form."""
        return [(producer, key, series.first, series.steps) for producer, key, series in self]

    def dump_sums(self) -> SavedSums:
        """The sums in their saved form."""
        resolution = self._resolution
        return SavedSums(resolution.fresh, resolution.oldest, [(key, sums.dump()) for key, sums in self._sums.items()])

    @classmethod
    def load(
        cls,
        state: Sequence[SavedCalls],
        expired: Sequence[SavedExpired] = (),
        sums: SavedSums | None = None,
        *,
        edges: tuple[float, float | None] = (0.0, None),
        recent: int | None = None,
    ) -> CallTotals:
        """The totals from their saved form.

        Args:
            state: The series.
            expired: Without sums, the fingerprints of what is in no series.
            sums: The sums; None where the series have all steps, as older versions kept them.
            edges: Without sums, the edges by which the series were folded last, as in `fold`.
            recent: The steps that are kept of a series from now on.
        """
        calls = cls(recent)
        for producer, key, first, steps in state:
            known = calls._producers.setdefault(producer, ProducerCounts(producer, first[0]))
            known.first = min(known.first, first[0])
            known.series[key] = CounterSeries.load(first, steps)
        if sums is None:
            calls._resolution.advance(*edges)
            calls._sum_up(expired)
        else:
            calls._resolution.advance(sums.fresh, sums.oldest)
            calls._sums = {key: CallSums.load(saved, calls._resolution) for key, saved in sums.sums}
        if recent is not None:
            for _, _, series in calls:
                series.keep(recent)
        return calls

    def _sum_up(self, expired: Sequence[SavedExpired]) -> None:
        """Compute the sums from the series."""
        self._resolution.advance(0.0, self._oldest_apart())
        for producer, known in self._producers.items():
            for key, series in known.series.items():
                sums = self._sums_of(key)
                if producer == GONE:
                    sums.add_gone(series.total)
                    continue
                for change in series.increments():
                    sums.add(change, 0 if change[0] == EXPIRED else known.factor)  # its fingerprint is in `expired`
                self._count_first(known, key, 1)
        for key, text in expired:
            sums = self._sums_of(key)
            sums.fingerprint = (sums.fingerprint + fingerprint.from_text(text)) % PRIME

    def _oldest_apart(self) -> int:
        """The time before which steps have expired: all series expire at once, and the others' steps are later."""
        steps = {step for producer, _, series in self if producer != GONE for step in series.steps}
        if EXPIRED not in steps:
            return 0
        newest_first = max(series.first[0] for _, _, series in self)
        return min((slot(step) for step in steps - {EXPIRED}), default=newest_first + 1)


def by_stratum(calls: Mapping[CallKey, Count], pipeline: str, source: str) -> dict[str, Count]:
    """The calls of one pipeline and source by stratum, without those of unknown weight."""
    return {
        key.stratum: count
        for key, count in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != constants.UNKNOWN_WEIGHT and count.calls
    }
