"""The books of one process: what it kept and lost, what it tells of all its calls, and of processes that are gone."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ragmon.capture import runtime
from ragmon.capture.api import DROPPED, Given, LabelSender
from ragmon.capture.counters import DeadProcess, Timings, count_lines, lines_of_dead_process, reap
from ragmon.capture.exporters import base
from ragmon.capture.trace_buffer import RequestAssembler
from ragmon.capture.worker import Worker
from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import MOST, Label, parse_label
from ragmon.export.state import SdkStats, StageCounters
from ragmon.gold.labels.ratings import REJECTED
from ragmon.monitor.build import Redactions
from ragmon.monitor.judges import Panel

_AT_ONCE: Final = 1000
"""Labels that are handed on together."""
_AGAIN: Final = 5.0
"""Seconds after which labels that could not be handed on are tried again."""
EVERY: Final = 10.0
"""Seconds between two reports of all calls."""


class SelfMetrics:
    """Counts of a worker and its runtime, told to whoever takes them.

    Args:
        worker: Counts what was kept.
        calls: Counts all calls.
        sink: Is told of both, where it takes reports.
        folder: Where processes leave their counters; None has none.

    Attributes:
        redactions: What takes text out of records, where they leave the process.
        requests: Requests that are gathered from the application's own spans, where they are.
        labels: What people say of answers, on its way.
        judges: Score answers, where anybody does.
    """

    def __init__(self, worker: Worker, calls: runtime.Runtime, sink: Any, folder: Path | None) -> None:
        self._worker = worker
        self._calls = calls
        self._sink = sink
        self._folder = folder
        self._timings = Timings()
        self._adopted: dict[str, Counter[str]] = {}
        self._due = self._labels_due = 0.0
        self.redactions: Redactions | None = None
        self.requests: RequestAssembler | None = None
        self.labels = LabelSender()
        self.judges: Panel | None = None

    def books(self) -> StageCounters:
        """What capture took in and what became of it, and what was lost in processes that are gone."""
        counts, adopted = self._worker.counts(), sum(list(self._adopted.values()), Counter())
        ignored = Counter() if self.requests is None else Counter(self.requests.ignored)
        return StageCounters(
            counts.received + adopted.total() + ignored.total(),
            counts.sent,
            ignored=ignored,
            dropped=Counter(counts.dropped) + adopted,
            pending=counts.pending,
        )

    def captured(self) -> SdkStats:
        """What capture counted so far."""
        spans = {} if self.requests is None else dict(self.requests.gathering.dropped)
        return SdkStats(
            books=self.books(),
            calls=self._calls.totals(),
            latency=self._latency(),
            errors=self._calls.errors(),
            orphans=runtime.outside_calls(),
            spans=spans,
            labels=dict(self.labels.lost),
            withheld=0 if self.redactions is None else self.redactions.failed,
            judged={} if self.judges is None else self.judges.calls(),
        )

    def _latency(self) -> dict[tuple[str, str], Counter[int]]:
        found: dict[tuple[str, str], Counter[int]] = {}
        for (pipeline, source, _), counts in self._timings.read(self._calls).items():
            found.setdefault((pipeline, source), Counter()).update(counts)
        return found

    def tick(self, asked: bool) -> None:
        """What is done now and then, in the worker's thread: tell of all calls, and of processes that are gone.

        Args:
            asked: Somebody waits for it.
        """
        self._calls.refresh()
        if self.requests is not None:
            self.requests.sweep(asked)
        self._timings.read(self._calls)
        self._hand_on_labels(asked)
        if asked or monotonic() >= self._due:
            self._due = monotonic() + EVERY
            self._report()
            reap(self._folder, self._tell)

    def _hand_on_labels(self, asked: bool) -> None:
        """Hand on what people say of answers; what cannot be handed on now is tried again."""
        if monotonic() < self._labels_due and not asked:
            return
        while self.labels and self._hand_on_some():
            pass

    def _hand_on_some(self) -> bool:
        """Hand on the next labels; returns whether they are gone, and others may follow."""
        told = [(given, label) for given in self.labels.take(_AT_ONCE) if (label := self._label(given)) is not None]
        try:
            taken = base.label(self._sink, [label for _, label in told])
        except Exception as error:  # noqa: BLE001 - a sink may raise anything
            self.labels.lost[DROPPED] += len(told)
            warn_once(f"labels could not be handed on and are dropped: {whereabouts(error)}")
            return True
        if not taken:
            self._labels_due = monotonic() + _AGAIN
            self.labels.put_back(given for given, _ in told)
        return taken

    def _label(self, told: Given) -> Label | None:
        """A label as the application gave it; what is none is counted, once it was."""
        try:
            ids, comment = told["relevant_ids"], told["comment"]
            if isinstance(ids, str):
                raise TypeError("relevant_ids is a text, not several")  # noqa: TRY301 - one way for all that is wrong
            named = None if ids is None else [str(one) for one in islice(ids, MOST + 1)]
            label = parse_label({**told, "relevant_ids": named})
        except (ValueError, TypeError) as error:
            self.labels.lost[REJECTED] += 1
            warn_once(f"ragmon.label was given what is no label: {error}")
            return None
        except Exception as error:  # noqa: BLE001 - ids are foreign code: one label's trouble is not another's
            self.labels.lost[REJECTED] += 1
            warn_once(f"ragmon.label was given ids that cannot be read: {whereabouts(error)}")
            return None
        label.comment = comment if self.redactions is None else self.redactions.comment(comment)
        return label

    def _report(self) -> None:
        """Tell of all calls."""
        timings = self._timings.read(self._calls)
        told = count_lines(self._calls, self._worker.page, timings, self._worker.counts().dropped)
        if told:
            base.export_totals(self._sink, told)

    def _tell(self, lost: DeadProcess) -> bool:
        """Count and tell what was lost in a process that is gone; returns whether it could be told."""
        dropped = Counter(lost.dropped) + self._missing(lost)
        told = base.export_totals(self._sink, lines_of_dead_process(lost, dropped))
        if told:
            self._adopted[lost.instance] = dropped
        return told

    def _missing(self, lost: DeadProcess) -> Counter[str]:
        """Records of a process nobody else counted; one that was being written when it ended may have arrived."""
        missing, doubtful = lost.missing, lost.doubtful
        arrived = base.confirms(self._sink, lost.doubt) if lost.doubt else None
        if arrived is not None:
            missing, doubtful = missing - arrived, doubtful - 1
        return +Counter({constants.PROCESS_DIED: missing - doubtful, constants.UNCONFIRMED: doubtful})
