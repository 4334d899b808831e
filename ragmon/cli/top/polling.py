"""What `ragmon top` reads of a monitor, in a thread of its own, so that a slow monitor delays no key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from time import monotonic, time
from typing import Final

import msgspec

from ragmon.alarms.pipelines import AcknowledgedAlarm
from ragmon.cli.client import STATUS, NoResponseError, read_page
from ragmon.core.errors import RagmonError
from ragmon.export.status import StageCounters, StatusFinding
from ragmon.gates.history import GatePoint, TimeSpan

HISTORY: Final = "/api/history"
REFRESH: Final = 10.0
"""Seconds for which a history is shown: its windows are at least as long."""


class ShownGate(msgspec.Struct):
    """A gate of `/api/status`.

    Attributes:
        pipeline, gate: Its name.
        threshold, direction: What it asks for.
        verdict, reason: How it is judged, and why.
        value, lower, upper: The estimate with its 95 % interval.
        n: Requests in the denominator.
        firing: Since when its alarm fires, seconds since the epoch; None where it does not.
    """

    pipeline: str
    gate: str
    threshold: float
    direction: str
    verdict: str
    reason: str = ""
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    n: int = 0
    firing: float | None = None

    @property
    def at_least(self) -> bool:
        """Whether the threshold is a floor."""
        return self.direction == "at_least"


class JournalSize(msgspec.Struct):
    """The size of a journal.

    Attributes:
        size: Its size in bytes.
        limit: The most that it may have.
    """

    size: int = msgspec.field(name="bytes", default=0)
    limit: int = 0


class OverviewStatus(msgspec.Struct):
    """The part of `/api/status` that is shown.

    Attributes:
        now: The monitor's clock, seconds since the epoch.
        started: When it started.
        last_scored: When it last scored a record; None where it has scored none.
        wrong: What is wrong.
        doubts: Why the figures may be wrong.
        verdicts: How many gates there are of each verdict.
        alarms: The alarms that fire.
        acknowledged: The latest acknowledgements.
        gates: The gates.
        stages: Counters by stage.
        journal: The size of the journal; None where there is none.
        trouble: Why nothing is accepted; "" where it is.
    """

    now: float
    started: float
    wrong: list[StatusFinding]
    doubts: list[StatusFinding]
    verdicts: dict[str, int]
    alarms: list[msgspec.Raw]
    gates: list[ShownGate]
    stages: dict[str, StageCounters] = msgspec.field(name="books")
    acknowledged: list[AcknowledgedAlarm] = []
    last_scored: float | None = None
    journal: JournalSize | None = None
    trouble: str = ""


class ShownHistory(msgspec.Struct):
    """A gate over a span of time."""

    pipeline: str
    gate: str
    points: list[GatePoint]


class HistoryPage(msgspec.Struct):
    """The part of `/api/history` that is shown."""

    span: TimeSpan = TimeSpan("", "", 0, 0)
    gates: list[ShownHistory] = []


@dataclass(frozen=True)
class Overview:
    """The state of a monitor.

    Attributes:
        status: Its status.
        history: The history of its gates.
    """

    status: OverviewStatus
    history: HistoryPage


@dataclass(frozen=True)
class Poll:
    """The latest state of a monitor, and whether it still answers.

    Attributes:
        overview: What it answered last.
        at: When that was, seconds since the epoch by the clock of this machine.
        error: Why there is no newer answer; "" where the latest try was answered.
    """

    overview: Overview
    at: float
    error: str = ""


class OverviewReader:
    """Reads the state of a monitor.

    Args:
        url: The address of its admin port.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._history = HistoryPage()
        self._due = 0.0

    def read(self) -> Overview:
        """The state. A monitor that tells no history is shown without.

        Raises:
            RagmonError: The address is invalid.
            NoResponseError: No monitor responds there.
        """
        status = read_page(self._url, STATUS, OverviewStatus)
        if monotonic() >= self._due:
            with suppress(NoResponseError):
                self._history = read_page(self._url, HISTORY, HistoryPage)
            self._due = monotonic() + REFRESH
        return Overview(status, self._history)


class Poller:
    """Reads the state of a monitor again and again, in a thread.

    Args:
        reader: Reads it once.
        first: The state at the beginning.
        every: Seconds between two readings.
        on_poll: Called in the thread after every try.
    """

    def __init__(self, reader: OverviewReader, first: Poll, every: float, on_poll: Callable[[], None]) -> None:
        self.latest = first
        self._reader = reader
        self._every = every
        self._on_poll = on_poll
        self._stopped = Event()

    def start(self) -> None:
        """Begin; the thread does not keep the process alive."""
        Thread(target=self._run, name="ragmon-top", daemon=True).start()

    def stop(self) -> None:
        """End after the try under way."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self.latest = Poll(self._reader.read(), time())
            except RagmonError as error:
                self.latest = replace(self.latest, error=str(error))
            if not self._stopped.is_set():
                self._on_poll()
