"""Alarms over trace files: the detectors of the live monitor, with the records' own time as the time they came."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ragmon.alarms import Alarms, Edge, plain
from ragmon.alarms.baselines import GOLD_ENOUGH, LIVE_ENOUGH
from ragmon.alarms.engine import PipelineAlarms
from ragmon.alarms.frozen import freeze
from ragmon.arming import arm, frozen_file
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_json
from ragmon.core.record import Label, Line
from ragmon.scoring.scorer import Scorer

HOLD: Final = 600.0
"""Seconds a minute stays open for records that stand later in the file."""


class _Minutes(ABC):
    """Follows a replay, and tells when a minute is over because all its records have been scored.

    Args:
        settings: The configuration.
        scorer: What scores the records; from now on it keeps the records of a minute together.

    Attributes:
        untimed: Records that carry no time, and belong to no minute.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        self.scorer = scorer
        self.untimed = 0
        self._alarms: Alarms = arm(settings, scorer.table)
        scorer.steps = self._alarms.steps

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records on.

        Args:
            records: In the order of time, give or take ten minutes.
        """
        newest = 0.0
        for record in records:
            yield record
            if isinstance(record, Label):
                continue
            if record.ts is None:
                self.untimed += 1
            elif record.ts > newest:
                newest = record.ts
                self._until(newest - HOLD)
        self._until(float("inf"))

    @abstractmethod
    def _until(self, now: float) -> None:
        """Take in the minutes that ended before a time."""


class Watching(_Minutes):
    """Alarms that follow a replay.

    Attributes:
        edges: What began and ended so far, in the order of time.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        super().__init__(settings, scorer)
        self.edges: list[Edge] = []

    def _until(self, now: float) -> None:
        self.edges += self._alarms.advance(now)

    def notes(self) -> list[str]:
        """What a reader of the edges should know."""
        found = []
        if self.untimed:
            found.append(f"{self.untimed} records carry no time and are in no alarm")
        if self._alarms.steps.late:
            late = f"{self._alarms.steps.late} records stand more than ten minutes behind later ones"
            found.append(f"{late}: alarms counted them in a later minute; sort the traces by time")
        return found

    def lines(self) -> str:
        """The edges as JSON lines."""
        return "".join(printable_json(json.dumps(plain(edge), ensure_ascii=False)) + "\n" for edge in self.edges)


class Freezing(_Minutes):
    """Baselines taken from a release run: everything in it is what all is well looks like."""

    def _until(self, now: float) -> None:
        for pipeline, step in self._alarms.steps.close(now):
            self._alarms.of(pipeline).absorb(step)

    def file(self) -> dict[str, Any]:
        """What the baseline file will hold.

        Raises:
            RagmonError: There is too little to be a baseline of anything.
        """
        found = {name: _frozen(one) for name, one in sorted(self._alarms.pipelines.items())}
        if not any(one["metrics"] for one in found.values()):
            hint = f"{GOLD_ENOUGH} answers to gold questions or {LIVE_ENOUGH} requests with their times"
            untimed = f"; {self.untimed} records carry no time" if self.untimed else ""
            raise RagmonError(f"the traces are no baseline of any metric{untimed}", hint=hint)
        return frozen_file(found)


def _frozen(one: PipelineAlarms) -> dict[str, Any]:
    one.latency.settle()
    return freeze(one.baselines, one.latency, one.sight)
