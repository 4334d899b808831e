"""The receiver in the process of an application that scores: OTLP from the other processes, counted in its monitor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from time import time
from typing import Any, Final, TypeVar

from ragmon.core import constants
from ragmon.core.errors import warn_once
from ragmon.core.record import check_trace_id, parse_label
from ragmon.export.status import SdkStats, StageCounters
from ragmon.ingest.native import NativeRecord, native_record, totals
from ragmon.ingest.otlp import read
from ragmon.ingest.receiver import Encoding, ExportResult, ReceiverApp
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.producers import ProducerTotals

_REMEMBERED: Final = 100_000  # spans: an exporter that gets no response sends them again
# Seconds before its lead in which a process began that the leader counts from the first call on; another leader has
# counted the earlier calls of older processes.
_STARTED_TOGETHER: Final = 10.0
T = TypeVar("T")


class ProcessReceiver:
    """Counts in a monitor what the other processes of its application send.

    Args:
        monitor: The monitor.
        token: The token that the processes send.
        began: When this process began to lead, seconds since the epoch.

    Attributes:
        app: The ASGI application.
    """

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
