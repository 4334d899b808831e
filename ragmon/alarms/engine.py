"""The alarms of all pipelines: records are collected minute by minute, and every closed minute is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ragmon.alarms.alarm import Alarm
from ragmon.alarms.pipeline import Edge, PipelineAlarms
from ragmon.alarms.terms import AlarmTerms
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.scoring.minutes import STEP, Steps
from ragmon.scoring.score_table import ScoreTable


@dataclass(frozen=True)
class AlarmState:
    """How one alarm stands.

    Attributes:
        pipeline, alert, metric, severity: Which.
        firing: The end of the step it fires since, seconds since the epoch; None while it is silent.
        evidence: How far it is on its way to firing, in [0, 1].
        level: What the metric is held against, as it is exported; None while its baseline is being learned.
        baseline: `learning`, `growing`, `frozen` or `given`; "" for a gate, which needs none.
        version: Of a baseline that is frozen or given.
    """

    pipeline: str
    alert: str
    metric: str
    severity: str
    firing: float | None
    evidence: float
    level: float | None = None
    baseline: str = ""
    version: str = ""


class Alarms:
    """Alarms with a false-alarm budget, however often anybody looks.

    Args:
        table: The metrics.
        terms: What holds for a pipeline, by its name.
        slices: Slices that some gate guards.

    Attributes:
        steps: Where the scorer leaves what belongs together.
        pipelines: The state of each pipeline that had records.
    """

    def __init__(self, table: ScoreTable, terms: Callable[[str], AlarmTerms], slices: frozenset[str]) -> None:
        self._table = table
        self._terms = terms
        self.steps = Steps(slices, lambda pipeline: terms(pipeline).cluster)
        self.pipelines: dict[str, PipelineAlarms] = {}

    def advance(self, now: float) -> list[Edge]:
        """Judge every minute that ended.

        Args:
            now: Seconds since the epoch, by the clock records arrive by.

        Returns:
            Alarms that began or ended, in the order of time.
        """
        return [edge for pipeline, step in self.steps.close(now) for edge in self.of(pipeline).step(step)]

    def of(self, pipeline: str) -> PipelineAlarms:
        """The alarms of one pipeline, armed when it is new."""
        found = self.pipelines.get(pipeline)
        if found is None:
            found = self.pipelines[pipeline] = PipelineAlarms(pipeline, self._terms(pipeline), self._table)
        return found

    def states(self) -> list[AlarmState]:
        """Every alarm of every pipeline that had records."""
        return [state for pipeline in sorted(self.pipelines) for state in _states(self.pipelines[pipeline])]

    def acknowledge(self, pipeline: str, alert: str) -> list[Edge]:
        """Silence an alarm that fires and arm it again: it starts from nothing.

        Raises:
            UnknownNameError: There is no such pipeline or alarm.
        """
        if pipeline not in self.pipelines:
            raise UnknownNameError("pipeline", pipeline, self.pipelines)
        return self.pipelines[pipeline].acknowledge(alert, self.steps.closed)

    def give_up(self, pipeline: str, now: float) -> list[Edge]:
        """Forget a pipeline; the alarms of it that fire are over.

        Args:
            pipeline: Its name.
            now: When that is, seconds since the epoch.
        """
        found = self.pipelines.pop(pipeline, None)
        return [] if found is None else found.end(int(now) // STEP)

    def dump(self) -> dict[str, Any]:
        """The whole state as plain JSON data: no text, no sessions, no questions."""
        return deepcopy(self.view())

    def view(self) -> dict[str, Any]:
        """What `dump` gives, but parts of it are the state itself: to be written before anything else is counted."""
        pipelines = {name: one.dump() for name, one in self.pipelines.items()}
        return {"steps": self.steps.dump(), "pipelines": pipelines}

    def load(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote; a lost state delays alarms and never raises one."""
        data = deepcopy(data)
        self.steps.restore(data["steps"])
        for name, one in data["pipelines"].items():
            self.of(name).restore(one)


def _states(one: PipelineAlarms) -> list[AlarmState]:
    found = [_state(one, alarm) for alarm in one.alarms.values()]
    for signal in one.drift.signals:
        fires = since(signal.firing)
        evidence = float(fires is not None)
        found.append(AlarmState(one.pipeline, signal.alert, signal.metric, signal.severity, fires, evidence))
    return found


def _state(one: PipelineAlarms, alarm: Alarm) -> AlarmState:
    watch, baseline = alarm.watch, one.baseline_of(alarm.watch)
    return AlarmState(
        one.pipeline,
        watch.alert,
        watch.metric,
        watch.severity,
        since(alarm.firing),
        alarm.evidence,
        one.held_against(watch),
        "" if baseline is None else baseline.state,
        "" if baseline is None else baseline.version,
    )


def since(minute: int | None) -> float | None:
    """The end of a minute in seconds since the epoch."""
    return None if minute is None else float((minute + 1) * STEP)


def plain(edge: Edge) -> dict[str, Any]:
    """An edge as a line of an alerts file."""
    alert = edge.alert if edge.pipeline == constants.DEFAULT_PIPELINE else f"{edge.pipeline}/{edge.alert}"
    return {"ts": edge.ts, "alert": alert, "metric": edge.metric, "severity": edge.severity, "state": edge.state}
