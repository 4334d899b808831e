"""The self-metrics of capture in one process: kept and lost records, counts of all calls and of dead processes."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ragmon.capture import exporters
from ragmon.capture.call import Runtime, outside_calls
from ragmon.capture.counters import DeadProcess, Timings, count_lines, lines_of_dead_process, reap
from ragmon.capture.objects import unread
from ragmon.capture.span_processor import RequestAssembler
from ragmon.capture.trace import DROPPED, Given, LabelSender
from ragmon.capture.worker import Worker
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once
from ragmon.core.record import MAX_IDS, Label, parse_label
from ragmon.export.status import SdkStats, StageCounters
from ragmon.monitor.build import Redactions
from ragmon.monitor.judges import Panel
from ragmon.monitor.sharing import SharedMonitor
from ragmon.scoring.ratings import REJECTED

_BATCH_SIZE: Final = 1000
"""Labels in one batch."""
_RETRY_AFTER: Final = 5.0
"""Seconds before rejected labels are retried."""
EVERY: Final = 10.0
"""Seconds between two reports of all calls."""


class SelfMetrics:
    """Counts of a worker and its runtime, exported to the sink.

    Args:
        worker: Counts the kept calls.
        calls: Counts all calls.
        sink: The exporter that gets both counts, if it accepts reports.
        folder: Where processes leave their counter files; None: there are none.

    Attributes:
        redactions: Removes text from records, where they leave the process.
        requests: Assembles requests from the application's own spans; None where it does not.
        labels: The queue of labels to export.
        judges: The judges, if there are any.
        shared: The monitor that the processes of the application share; None where records go elsewhere.
    """

    def __init__(self, worker: Worker, calls: Runtime, sink: Any, folder: Path | None) -> None:
        self._worker = worker
        self._calls = calls
        self._sink = sink
        self._folder = folder
        self._timings = Timings()
        self._lost_in_dead: dict[str, Counter[str]] = {}
        self._due = self._labels_due = 0.0
        self.redactions: Redactions | None = None
        self.requests: RequestAssembler | None = None
        self.labels = LabelSender()
        self.judges: Panel | None = None
        self.shared: SharedMonitor | None = None

    def counters(self) -> StageCounters:
        """The stage counters of capture, including records lost in dead processes."""
        counts, lost = self._worker.counts(), sum(list(self._lost_in_dead.values()), Counter())
        ignored = Counter() if self.requests is None else Counter(self.requests.ignored)
        return StageCounters(
            counts.received + lost.total() + ignored.total(),
            counts.sent,
            ignored=ignored,
            dropped=Counter(counts.dropped) + lost,
            pending=counts.pending,
        )

    def captured(self) -> SdkStats:
        """The SDK statistics so far."""
        spans = {} if self.requests is None else dict(self.requests.gathering.dropped)
        return SdkStats(
            counters=self.counters(),
            calls=self._calls.totals(),
            latency=self._latency(),
            errors=self._calls.errors(),
            orphans=outside_calls(),
            unread=dict(unread),
            spans=spans,
            labels=dict(self.labels.dropped),
            withheld=0 if self.redactions is None else self.redactions.failed,
            judged={} if self.judges is None else self.judges.calls(),
            scopes={} if self.requests is None else dict(self.requests.scopes),
            tools={} if self.requests is None else dict(self.requests.tools),
        )

    def _latency(self) -> dict[tuple[str, str], Counter[int]]:
        histograms: dict[tuple[str, str], Counter[int]] = {}
        for (pipeline, source, _), counts in self._timings.read(self._calls).items():
            histograms.setdefault((pipeline, source), Counter()).update(counts)
        return histograms

    def tick(self, asked: bool) -> None:
        """Periodic work in the worker's thread: export queued labels and the counts of all calls and of dead processes.

        Args:
            asked: A caller waits for it; do everything now.
        """
        self._calls.refresh()
        if self.requests is not None:
            self.requests.sweep(asked)
        self._timings.read(self._calls)
        self._export_labels(asked)
        try:
            if asked or monotonic() >= self._due:
                self._due = monotonic() + EVERY
                self._export_counts()
                if self.shared is None or self.shared.is_leader:  # it shows the losses of all processes
                    reap(self._folder, self._export_dead_process)
        finally:
            if self.shared is not None:
                self.shared.tick(asked)

    def _export_labels(self, asked: bool) -> None:
        """Export queued labels; those that the sink does not accept now are retried."""
        if monotonic() < self._labels_due and not asked:
            return
        while self.labels and self._export_label_batch():
            pass

    def _export_label_batch(self) -> bool:
        """Export one batch of labels; returns whether it is done, so that the next one may follow."""
        batch = [(given, label) for given in self.labels.take(_BATCH_SIZE) if (label := self._label(given)) is not None]
        try:
            accepted = exporters.label(self._sink, [label for _, label in batch])
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything
            self.labels.dropped[DROPPED] += len(batch)
            warn_once(f"labels could not be handed on and are dropped: {error_location(error)}")
            return True
        if not accepted:
            self._labels_due = monotonic() + _RETRY_AFTER
            self.labels.put_back(given for given, _ in batch)
        return accepted

    def _label(self, given: Given) -> Label | None:
        """The label from the application's arguments; None if it is invalid, which is counted."""
        try:
            ids, comment = given["relevant_ids"], given["comment"]
            if isinstance(ids, str):
                raise TypeError("relevant_ids is a text, not several")  # noqa: TRY301 - one path for all invalid labels
            relevant_ids = None if ids is None else [str(item) for item in islice(ids, MAX_IDS + 1)]
            label = parse_label({**given, "relevant_ids": relevant_ids})
        except (ValueError, TypeError) as error:
            self.labels.dropped[REJECTED] += 1
            warn_once(f"ragmon.label was given what is no label: {error}")
            return None
        except Exception as error:  # noqa: BLE001 - ids are third-party objects: one bad label must not stop the others
            self.labels.dropped[REJECTED] += 1
            warn_once(f"ragmon.label was given ids that cannot be read: {error_location(error)}")
            return None
        label.comment = comment if self.redactions is None else self.redactions.comment(comment)
        return label

    def _export_counts(self) -> None:
        """Export the counts of all calls."""
        timings = self._timings.read(self._calls)
        lines = count_lines(self._calls, self._worker.counter_file, timings, self._worker.counts().dropped)
        if lines:
            exporters.export_totals(self._sink, lines)

    def _export_dead_process(self, process: DeadProcess) -> bool:
        """Count and export the losses of a dead process; returns whether the sink accepted them."""
        dropped = Counter(process.dropped) + self._missing(process)
        accepted = exporters.export_totals(self._sink, lines_of_dead_process(process, dropped))
        if accepted:
            self._lost_in_dead[process.instance] = dropped
            if self.shared is not None:
                self.shared.end_of(process.instance)
        return accepted

    def _missing(self, process: DeadProcess) -> Counter[str]:
        """A dead process's uncounted losses; a record that was being exported when it died may have arrived."""
        missing, doubtful = process.missing, process.doubtful
        arrived = exporters.confirms(self._sink, process.doubt) if process.doubt else None
        if arrived is not None:
            missing, doubtful = missing - arrived, doubtful - 1
        return +Counter({constants.PROCESS_DIED: missing - doubtful, constants.UNCONFIRMED: doubtful})
