"""Totals that producers report of all their calls: calls, losses, latency, and records sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from ragmon.core import constants
from ragmon.core.record import Totals
from ragmon.stats.histograms import add_counts

T = TypeVar("T")

SILENT: Final = 86_400.0
"""Seconds without a report after which a producer may be gone."""
MOST: Final = 20_000
"""Series above which those of producers that may be gone are summed; one that came back would count twice."""
GONE: Final = "gone"
_REASONS: Final = frozenset(value for value in vars(constants).values() if isinstance(value, str))  # known ones


class ProducerSeries(NamedTuple):
    """The key of a counter that a producer reports."""

    instance: str
    started: float
    pipeline: str
    source: str
    stratum: str


class LastTotals(msgspec.Struct):
    """The latest totals of a producer.

    Attributes:
        at: When they arrived, seconds since the epoch.
        calls: All calls.
        kept: Calls that became records.
        dropped: Records that the producer lost, by reason.
        latency: Calls in log buckets of milliseconds.
    """

    at: float
    calls: int
    kept: int
    dropped: dict[str, int]
    latency: dict[int, int]


NO_TOTALS: Final = LastTotals(0.0, 0, 0, {}, {})
"""The totals of a producer that has reported nothing."""


class ProducerTotals(msgspec.Struct, dict=True):
    """The latest totals of every producer, and their sums, which change by the difference that a report makes.

    Attributes:
        last: The latest totals. The sums follow from them, and a checkpoint holds none.
    """

    last: dict[ProducerSeries, LastTotals] = {}

    def __post_init__(self) -> None:
        self._due = 0.0
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._kept = 0
        self._dropped: Counter[str] = Counter()
        self._latency: dict[tuple[str, str], dict[int, int]] = {}
        for key, last in self.last.items():
            self._add_difference(key, NO_TOTALS, last)

    def see(self, line: Totals, now: float, since: float = 0.0) -> None:
        """Add totals of a producer; counters only grow, so the larger totals are the later ones.

        Args:
            line: The totals; the producer's clock may be wrong.
            now: When they arrived, seconds since the epoch.
            since: A producer that began to count before is counted from its first totals on.
        """
        key = ProducerSeries(line.instance, line.started, line.pipeline, line.source, line.stratum)
        counts: dict[str, int] = {}
        for reason, n in line.dropped.items():
            known_reason = reason if reason in _REASONS else constants.OTHER
            counts[known_reason] = counts.get(known_reason, 0) + n
        last = LastTotals(now, line.calls, line.kept, counts, line.latency_ms)
        previous = self.last.get(key, last if line.started < since else NO_TOTALS)
        if key not in self.last or line.calls >= previous.calls:
            self.last[key] = last
            self._add_difference(key, previous, last)
        if len(self.last) > MOST and now > self._due:
            before = now - SILENT
            for key in [key for key, last in self.last.items() if last.at < before and key.instance != GONE]:
                last = self.last.pop(key)
                totals = self.last.setdefault(key._replace(instance=GONE, started=0.0), LastTotals(0.0, 0, 0, {}, {}))
                totals.calls += last.calls
                totals.kept += last.kept
                add_counts(totals.dropped, last.dropped)
                add_counts(totals.latency, last.latency)
            self._due = now + SILENT / 24

    def _add_difference(self, key: ProducerSeries, previous: LastTotals, last: LastTotals) -> None:
        self._calls[key.pipeline, key.source, key.stratum] += last.calls - previous.calls
        self._kept += last.kept - previous.kept
        _add_difference(self._dropped, previous.dropped, last.dropped)
        if last.latency or previous.latency:
            histogram = self._latency.setdefault((key.pipeline, key.source), {})
            _add_difference(histogram, previous.latency, last.latency)

    def forget_losses(self, instance: str) -> None:
        """Leave out what a producer lost: another process counts that."""
        for key, last in self.last.items():
            if key.instance == instance:
                _add_difference(self._dropped, last.dropped, {})
                last.dropped = {}

    def calls(self) -> dict[tuple[str, str, str], int]:
        """All calls, by pipeline, source and stratum."""
        return dict(self._calls)

    def latency(self) -> dict[tuple[str, str], dict[int, int]]:
        """Calls in log buckets of milliseconds, by pipeline and source."""
        return {key: dict(histogram) for key, histogram in self._latency.items() if histogram}

    def dropped(self) -> Counter[str]:
        """Records that producers report as lost, by reason."""
        return Counter(self._dropped)

    def missing(self, arrived: int) -> int:
        """Records that producers sent and that have not arrived, including those in flight."""
        return max(0, self._kept - self._dropped.total() - arrived)


def _add_difference(mine: dict[T, int], previous: Mapping[T, int], current: Mapping[T, int]) -> None:
    """Add what counts hold beyond their previous values to sums in which those are contained.

    A name that the counts no longer have is removed once its sum is zero.
    """
    if previous == current:
        return
    for key, n in current.items():
        more = n - previous.get(key, 0)
        if more or key not in mine:
            mine[key] = mine.get(key, 0) + more
    for key in previous.keys() - current.keys():
        mine[key] -= previous[key]
        if not mine[key]:
            del mine[key]
