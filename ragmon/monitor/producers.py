"""Totals that producers report of all their calls, and the receiver of what other processes of an application send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core import constants
from ragmon.core.errors import warn_once
from ragmon.core.record import Totals, check_trace_id, parse_label
from ragmon.export.status import SdkStats, StageCounters
from ragmon.ingest.native import NativeRecord, native_record, totals
from ragmon.ingest.otlp import read
from ragmon.ingest.receiver import Encoding, ExportResult, ReceiverApp
from ragmon.stats.histograms import add_counts

if TYPE_CHECKING:
    from ragmon.monitor.embedded import Monitor

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
    """The latest totals of a producer, and when they arrived, seconds since the epoch."""

    at: float
    calls: int
    kept: int
    dropped: dict[str, int]
    latency: dict[int, int]


NO_TOTALS: Final = LastTotals(0.0, 0, 0, {}, {})
"""The totals of a producer that has reported nothing."""


class ProducerTotals(msgspec.Struct, dict=True):
    """The latest totals of every producer, and their sums, which change by the difference that a report makes.

    The sums follow from the totals, and a checkpoint holds none.
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

        The producer's clock may be wrong. A producer that began to count before `since` is counted from its first
        totals on.
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


_REMEMBERED: Final = 100_000  # spans: an exporter that gets no response sends them again
# Seconds before its lead in which a process began that the leader counts from the first call on; another leader has
# counted the earlier calls of older processes.
_STARTED_TOGETHER: Final = 10.0


class ProcessReceiver:
    """Counts in a monitor what the other processes of its application send, since this one began to lead."""

    def __init__(self, monitor: Monitor, token: str, began: float) -> None:
        self.app = ReceiverApp(self, token=token)
        self._monitor = monitor
        self._since = began - _STARTED_TOGETHER
        self._lock = Lock()
        self._seen: dict[bytes, None] = {}
        self._delivered = 0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._producers = ProducerTotals()

    def stats(self) -> SdkStats:
        """What the other processes captured: records that arrived here and those they lost, and all their calls."""
        with self._lock:
            dropped = self._producers.dropped()
            return SdkStats(
                counters=StageCounters(self._delivered + dropped.total(), self._delivered, dropped=dropped),
                calls=self._producers.calls(),
                latency=self._producers.latency(),
                errors=dict(self._errors),
            )

    def end_of(self, instance: str) -> None:
        """Note that a process died: another process counts its losses from now on."""
        with self._lock:
            self._producers.forget_losses(instance)

    def traces(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Score records; a record that comes twice is scored once."""
        batch, rejected = read(body, json=encoding is Encoding.JSON), 0
        for native in batch.native:
            received = native_record(native, {})
            if not isinstance(received, NativeRecord):
                rejected += 1
                continue
            record, span = received.record, received.key[1]
            with self._lock:
                if span in self._seen:
                    continue
                self._seen[span] = None
                if len(self._seen) > _REMEMBERED:
                    del self._seen[next(iter(self._seen))]
                self._monitor.submit(record)
                self._delivered += 1
                if record.error:
                    self._errors[record.pipeline or constants.DEFAULT_PIPELINE, record.error] += 1
        return _done(ExportResult(rejected, batch.first))

    def metrics(self, body: bytes, encoding: Encoding) -> Future[ExportResult]:
        """Count the totals of a process."""
        lines, rejected, message = totals(body, json=encoding is Encoding.JSON)
        self._monitor.report(lines)
        with self._lock:
            for line in lines:
                self._producers.see(line, time(), self._since)
        return _done(ExportResult(rejected, message))

    def labels(self, labels: Sequence[Any]) -> Future[ExportResult]:
        """Join labels with answers."""
        self._monitor.label([check_trace_id(parse_label(label)) for label in labels])
        return _done(ExportResult())

    def acknowledge(self, pipeline: str, alert: str, reason: str, by: str = "") -> Future[bool]:
        """Silence an alarm."""
        return _done(self._monitor.acknowledge(alert, pipeline, reason, by))

    def refuse(self, reason: str) -> None:
        """Log that a request was rejected; the process that sent it counts the loss."""
        warn_once(f"a request of another process of this application was rejected: {reason}")


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future
