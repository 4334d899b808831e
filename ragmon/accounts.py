"""The books of one process: what it kept and lost, what it tells of all its calls, and of processes that are gone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ragmon import names
from ragmon.capture import runtime, sinks
from ragmon.capture.pages import Lost, adopt
from ragmon.capture.totals import Timings, lines, lines_of_lost
from ragmon.capture.worker import Worker
from ragmon.reading import Books, Captured

EVERY: Final = 10.0
"""Seconds between two reports of all calls."""


class Accounts:
    """Counts of a worker and its runtime, told to whoever takes them.

    Args:
        worker: Counts what was kept.
        calls: Counts all calls.
        sink: Is told of both, where it takes reports.
        folder: Where processes leave their counters; None has none.
    """

    def __init__(self, worker: Worker, calls: runtime.Runtime, sink: Any, folder: Path | None) -> None:
        self._worker = worker
        self._calls = calls
        self._sink = sink
        self._folder = folder
        self._timings = Timings()
        self._adopted: Counter[str] = Counter()
        self._due = 0.0

    def books(self) -> Books:
        """What capture took in and what became of it, and what was lost in processes that are gone."""
        counts, adopted = self._worker.counts(), Counter(self._adopted)
        dropped = Counter(counts.dropped) + adopted
        return Books(counts.received + adopted.total(), counts.sent, dropped=dropped, pending=counts.pending)

    def captured(self) -> Captured:
        """What capture counted so far."""
        return Captured(self.books(), self._calls.totals(), self._calls.errors(), runtime.orphans())

    def look_around(self) -> None:
        """What is done now and then: tell of all calls, and of processes that are gone."""
        self._calls.look_for_parents()
        if monotonic() >= self._due:
            self._due = monotonic() + EVERY
            self.report()
            self.adopt()

    def report(self) -> None:
        """Tell of all calls."""
        timings = self._timings.read(self._calls)
        told = lines(self._calls, self._worker.page, timings, self._worker.counts().dropped)
        if told:
            sinks.report(self._sink, told)

    def adopt(self) -> None:
        """Count and tell what was lost in processes that are gone."""
        for lost in adopt(self._folder):
            found = self._missing(lost)
            self._adopted.update(found)
            sinks.report(self._sink, lines_of_lost(lost, Counter(lost.dropped) + found))

    def _missing(self, lost: Lost) -> Counter[str]:
        """Records of a process nobody else counted; one that was being written when it ended may have arrived."""
        missing, doubtful = lost.missing, lost.doubtful
        arrived = sinks.holds(self._sink, lost.doubt) if lost.doubt else None
        if arrived is not None:
            missing, doubtful = missing - arrived, doubtful - 1
        return +Counter({names.PROCESS_DIED: missing - doubtful, names.UNCONFIRMED: doubtful})
