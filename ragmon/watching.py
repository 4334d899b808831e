"""Alarms over trace files: the detectors of the live monitor, with the records' own time as the time they came."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ragmon.alarms import Alarms, Edge, plain
from ragmon.alarms.baselines import GOLD_ENOUGH, LIVE_ENOUGH
from ragmon.alarms.frozen import freeze
from ragmon.alarms.pipeline import PipelineAlarms
from ragmon.arming import arm, frozen_file
from ragmon.config.settings import Settings
from ragmon.contract import Record, Totals
from ragmon.errors import RagmonError
from ragmon.scorer import Scorer

HOLD: Final = 600.0
"""Seconds a minute stays open for records that stand later in the file."""


class Watching:
    """Alarms that follow a replay.

    Args:
        settings: The configuration.
        scorer: What scores the records; from now on it keeps the records of a minute together.

    Attributes:
        edges: What began and ended so far, in the order of time.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        self.scorer = scorer
        self.edges: list[Edge] = []
        self._alarms: Alarms = arm(settings, scorer.table)
        self.steps = scorer.steps = self._alarms.steps
        self._untimed = 0

    def follow(self, records: Iterable[Record | Totals]) -> Iterator[Record | Totals]:
        """Pass records on, and judge every minute when its records have been scored.

        Args:
            records: In the order of time, give or take ten minutes.
        """
        newest = 0.0
        for record in records:
            yield record
            if record.ts is None:
                self._untimed += 1
            elif record.ts > newest:
                newest = record.ts
                self.edges += self._alarms.advance(newest - HOLD)
        self.edges += self._alarms.advance(float("inf"))

    def notes(self) -> list[str]:
        """What a reader of the edges should know."""
        found = []
        if self._untimed:
            found.append(f"{self._untimed} records carry no time and are in no alarm")
        if self._alarms.steps.late:
            late = f"{self._alarms.steps.late} records stand more than ten minutes behind later ones"
            found.append(f"{late}: alarms counted them in a later minute; sort the traces by time")
        return found

    def lines(self) -> str:
        """The edges as JSON lines."""
        return "".join(json.dumps(plain(edge), ensure_ascii=False) + "\n" for edge in self.edges)


class Freezing:
    """Baselines taken from a release run: everything in it is what all is well looks like.

    Args:
        settings: The configuration.
        scorer: What scores the records.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        self.scorer = scorer
        self._alarms = arm(settings, scorer.table)
        scorer.steps = self._alarms.steps
        self._untimed = 0

    def follow(self, records: Iterable[Record | Totals]) -> Iterator[Record | Totals]:
        """Pass records on, and take in every minute when its records have been scored."""
        newest = 0.0
        for record in records:
            yield record
            if record.ts is None:
                self._untimed += 1
            elif record.ts > newest:
                newest = record.ts
                self._absorb(newest - HOLD)
        self._absorb(float("inf"))

    def _absorb(self, now: float) -> None:
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
            untimed = f"; {self._untimed} records carry no time" if self._untimed else ""
            raise RagmonError(f"the traces are no baseline of any metric{untimed}", hint=hint)
        return frozen_file(found)


def _frozen(one: PipelineAlarms) -> dict[str, Any]:
    one.latency.settle()
    return freeze(one.baselines, one.latency, one.sight)
