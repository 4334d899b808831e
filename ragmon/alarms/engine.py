"""The alarms of all pipelines: records are collected minute by minute, and every closed minute is one step.

No clock, no files, no randomness: the same steps give the same transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from math import inf

import msgspec

from ragmon.alarms.baselines import AlarmTerms
from ragmon.alarms.pipeline import AlarmTransition, PipelineAlarms, PipelineState
from ragmon.alarms.states import AlarmState, states_of
from ragmon.core.errors import UnknownNameError
from ragmon.scoring.minutes import MinuteBatches, MinutesState
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.steps import STEP


class AlarmsState(msgspec.Struct):
    """What an `AlarmEngine` has seen: the open minutes, and the alarms by pipeline. It holds no text."""

    steps: MinutesState
    pipelines: dict[str, PipelineState]


class AlarmEngine:
    """The alarms of all pipelines. The false-alarm budget holds however often the state is read.

    Args:
        table: The metrics.
        terms: Returns the alarm settings of a pipeline at a place in the false-alarm budget.
        slices: Slices with at least one gate.
        configured: Pipelines with a share of the budget of their own, at place 0. Every other pipeline takes the first
            free place from 1 on when its first minute closes, and gives it back when it is removed.

    Attributes:
        steps: Collects the scored records by minute.
        pipelines: The state of each pipeline that had records.
    """

    def __init__(
        self,
        table: ScoreTable,
        terms: Callable[[str, int], AlarmTerms],
        slices: frozenset[str],
        configured: Collection[str] = (),
    ) -> None:
        self._table = table
        self._terms = terms
        self._configured = frozenset(configured)
        self.steps = MinuteBatches(slices, lambda pipeline: terms(pipeline, 0).cluster)
        self.pipelines: dict[str, PipelineAlarms] = {}

    def advance(self, now: float) -> list[AlarmTransition]:
        """Judge every minute that ended.

        Args:
            now: Seconds since the epoch, on the clock of record arrival.

        Returns:
            The transitions, in the order of time.
        """
        return [transition for pipeline, step in self.steps.close(now) for transition in self.of(pipeline).step(step)]

    def of(self, pipeline: str) -> PipelineAlarms:
        """The alarms of one pipeline, created on first use."""
        alarms = self.pipelines.get(pipeline)
        if alarms is None:
            alarms = self.pipelines[pipeline] = self._new(pipeline, None)
        return alarms

    def _new(self, pipeline: str, saved: PipelineState | None) -> PipelineAlarms:
        """The alarms of a pipeline, at the place it had if that is free, else at the first free one."""
        place = 0
        if pipeline not in self._configured:
            taken = {alarms.state.place for alarms in self.pipelines.values()}
            place = 0 if saved is None or saved.place in taken else saved.place
            place = place or next(number for number in count(1) if number not in taken)
        return PipelineAlarms(pipeline, self._terms(pipeline, place), self._table, saved, place=place)

    def states(self) -> list[AlarmState]:
        """The state of every alarm of every pipeline that had records."""
        return [state for pipeline in sorted(self.pipelines) for state in states_of(self.pipelines[pipeline])]

    def acknowledge(self, pipeline: str, alert: str) -> list[AlarmTransition]:
        """Silence an alarm that fires and restart its detector from nothing.

        Raises:
            UnknownNameError: There is no such pipeline or alarm.
        """
        if pipeline not in self.pipelines:
            raise UnknownNameError("pipeline", pipeline, self.pipelines)
        return self.pipelines[pipeline].acknowledge(alert, self.steps.closed)

    def give_up(self, pipeline: str, now: float) -> list[AlarmTransition]:
        """Remove a pipeline; its firing alarms are resolved.

        Args:
            pipeline: The pipeline's name.
            now: Seconds since the epoch.
        """
        alarms = self.pipelines.pop(pipeline, None)
        return [] if alarms is None else alarms.end(int(now) // STEP)

    @property
    def state(self) -> AlarmsState:
        """What was seen, as it is kept: encode it before anything else is counted."""
        return AlarmsState(self.steps.dump(), {name: alarms.state for name, alarms in self.pipelines.items()})

    def restore(self, state: AlarmsState) -> None:
        """Go on from a state. A lost state delays alarms and never raises one."""
        self.steps.restore(state.steps)
        self.pipelines = {}
        by_place = sorted(state.pipelines.items(), key=lambda entry: (entry[1].place or inf, entry[0]))
        for name, saved in by_place:  # who has a place keeps it
            self.pipelines[name] = self._new(name, saved)
