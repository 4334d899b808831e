"""The alarms of one pipeline: a step in, edges out; no clock, no files, no chance.

The alarms of all pipelines: records are collected minute by minute, and every closed minute is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from ragmon.alarms.baselines import (
    CHRONIC,
    GOLD_ENOUGH,
    GOLD_FULL,
    LIVE_ENOUGH,
    LIVE_FULL,
    PAUSE,
    Baseline,
    LatencyBaseline,
)
from ragmon.alarms.detector import Alarm, Change
from ragmon.alarms.drift import Drift, DriftSignal
from ragmon.alarms.frozen import AlarmTerms, fingerprint, restore_baseline
from ragmon.alarms.observations import Observations, ObservationSelector, SourceSwitch
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.scoring.minutes import STEP, MinuteBatches, Step
from ragmon.scoring.score_table import ScoreTable


@dataclass(frozen=True)
class AlarmTransition:
    """An alarm that began or ended.

    Attributes:
        ts: The end of the step that decided it, seconds since the epoch.
        pipeline, alert, metric: What it is about.
        severity: page, look or ticket.
        state: What it became.
    """

    ts: float
    pipeline: str
    alert: str
    metric: str
    severity: str
    state: Literal["firing", "resolved"]


class PipelineAlarms:
    """The state of a pipeline's alarms.

    Args:
        pipeline: Its name.
        terms: What is guarded, and how.
        table: The metrics.

    Attributes:
        alarms: By the name of their alert.
        baselines: By what is compared with them.
        latency: The baseline of the latency.
        drift: What is told as a ticket.
        selector: What is looked at.
    """

    def __init__(self, pipeline: str, terms: AlarmTerms, table: ScoreTable) -> None:
        self.pipeline = pipeline
        self.alarms = {watch.alert: Alarm(watch) for watch in terms.watches}
        self.latency = LatencyBaseline(terms.learn)
        self.baselines: dict[str, Baseline] = {}
        self.drift = Drift(terms)
        self.selector = ObservationSelector(table)
        self._given = terms.given
        self._watching: dict[str, AlarmRule] = {}
        self._latencies: dict[str | None, LatencyBaseline] = {None: self.latency}
        for alarm in self.alarms.values():
            self._attach(alarm, terms.learn)
        restore_baseline(self._given, self.baselines, self.latency, self.selector)

    def _attach(self, alarm: Alarm, learn: int) -> None:
        """Give an alarm the baseline it shares with all others on the same observations."""
        watch = alarm.watch
        if watch.metric == constants.LATENCY:
            self._latencies.setdefault(watch.source, LatencyBaseline(learn))
        elif watch.kind != "gate" and baseline_name(watch) not in self.baselines:
            name = baseline_name(watch)
            enough, full = (GOLD_ENOUGH, GOLD_FULL) if watch.needs_gold else (LIVE_ENOUGH, LIVE_FULL)
            self.baselines[name] = Baseline(enough=enough, full=full, learn=learn)
            self._watching[name] = watch

    def step(self, step: Step) -> list[AlarmTransition]:
        """Take in one step.

        Args:
            step: The pipeline's records of a minute, later than any before.

        Returns:
            What changed, in the order of the watches.
        """
        edges = self._restart(self.selector.turn(step), step.minute)
        seen = self._see(step)
        for alarm in self.alarms.values():
            change = self._judge(alarm, step.minute, seen[observation_key(alarm.watch)])
            if change is not None:
                edges.append(self._edge(alarm.watch, step.minute, change))
        self._learn(step, seen)
        for signal in self.drift.step(step, self.selector.sources.get(False, "")):
            state: Change = "resolved" if signal.firing is None else "firing"
            edges.append(self._edge(signal, step.minute, state))
        return edges

    def absorb(self, step: Step) -> None:
        """Learn a step at once, and judge nothing: it belongs to a run that is known to be good."""
        self._restart(self.selector.turn(step), step.minute)
        seen = self._see(step)
        self.latency.absorb(self._took(step, None))
        for name, baseline in self.baselines.items():
            baseline.absorb(seen[observation_key(self._watching[name])])

    def _see(self, step: Step) -> dict[tuple[object, ...], Observations]:
        """What the step says, for everything that is looked at."""
        quiet = not self._acute(step.minute)
        found: dict[tuple[object, ...], Observations] = {}
        for alarm in self.alarms.values():
            watch = alarm.watch
            key = observation_key(watch)
            if key in found:
                continue
            if watch.metric == constants.LATENCY:
                found[key] = self._latencies[watch.source].of(self._took(step, watch.source), watch.ratio)
            elif watch.kind == "paired":
                found[key] = self.selector.paired(step, watch, freeze=quiet)
            else:
                found[key] = self.selector.of(step, watch)
        return found

    def _took(self, step: Step, source: str | None) -> list[list[float]]:
        """How long the step's requests of a source took, by cluster; None is where users are."""
        return list(step.latency.get(source or self.selector.sources.get(False, ""), {}).values())

    def _judge(self, alarm: Alarm, minute: int, seen: Observations) -> Change | None:
        """Whether a step changes an alarm."""
        watch = alarm.watch
        level = self._level(watch)
        if level is None or not seen.n:
            return None
        return alarm.step(minute, seen if watch.at_least else seen.turned, level)

    def _level(self, watch: AlarmRule) -> float | None:
        """What the mean should be at least, after turning; None while nobody knows."""
        if watch.kind == "gate":
            return watch.level if watch.at_least else 1.0 - watch.level
        slow = watch.metric == constants.LATENCY
        baseline = self._latencies[watch.source].share if slow else self.baselines[baseline_name(watch)]
        return baseline.level(watch.z, watch.margin, at_least=watch.at_least)

    def _learn(self, step: Step, seen: Mapping[tuple[object, ...], Observations]) -> None:
        """Learn what all is well looks like, and only while all is well."""
        if self._acute(step.minute):
            for baseline in self.baselines.values():
                baseline.forget()
            for latency in self._latencies.values():
                latency.forget()
            return
        suspicious = {
            baseline_name(alarm.watch)
            for alarm in self.alarms.values()
            if alarm.firing is None and alarm.evidence > PAUSE
        }
        for name, baseline in self.baselines.items():
            now = seen[observation_key(self._watching[name])]
            if now.n:
                baseline.see(step.minute, now)
            if name not in suspicious:
                baseline.learn(step.minute)
        for source, latency in self._latencies.items():
            latency.see(step.minute, self._took(step, source))
            if constants.LATENCY not in suspicious:
                latency.learn(step.minute)

    def _acute(self, minute: int) -> bool:
        """Whether anything is wrong that was not before: a gate nobody ever kept would stop all learning for ever."""
        return any(
            alarm.firing is not None and (alarm.watch.kind != "gate" or minute - alarm.firing < CHRONIC)
            for alarm in self.alarms.values()
        )

    def _restart(self, turn: SourceSwitch, minute: int) -> list[AlarmTransition]:
        """Start anew what looks at another source or another gold set: it is another population.

        Args:
            turn: What changed.
            minute: When.
        """
        if turn == SourceSwitch():
            return []
        over: list[AlarmRule | DriftSignal] = []
        for alarm in self.alarms.values():
            if self.selector.concerns(turn, alarm.watch):
                over += [alarm.watch] if alarm.firing is not None else []
                alarm.clear()
        for name, baseline in self.baselines.items():
            if self.selector.concerns(turn, self._watching[name]):
                baseline.restart()
        if False in turn.sources:
            self.latency.restart()
            over += self.drift.restart()
        return [self._edge(what, minute, "resolved") for what in over]

    def _edge(self, what: AlarmRule | DriftSignal, minute: int, change: Change) -> AlarmTransition:
        return AlarmTransition(
            float((minute + 1) * STEP), self.pipeline, what.alert, what.metric, what.severity, change
        )

    def acknowledge(self, alert: str, minute: int) -> list[AlarmTransition]:
        """Silence an alarm and arm it again.

        Raises:
            UnknownNameError: There is no such alarm.
        """
        found: dict[str, AlarmRule | DriftSignal] = {name: alarm.watch for name, alarm in self.alarms.items()}
        found |= {signal.alert: signal for signal in self.drift.signals}
        if alert not in found:
            raise UnknownNameError("alarm", alert, found)
        if alert in self.alarms:
            fired = self.alarms[alert].firing is not None
            self.alarms[alert].clear()
        else:
            fired = self.drift.clear(alert)
        return [self._edge(found[alert], minute, "resolved")] if fired else []

    def end(self, minute: int) -> list[AlarmTransition]:
        """The end of every alarm that fires: its pipeline is given up."""
        firing: list[AlarmRule | DriftSignal] = [
            alarm.watch for alarm in self.alarms.values() if alarm.firing is not None
        ]
        firing += [signal for signal in self.drift.signals if signal.firing is not None]
        return [self._edge(what, minute, "resolved") for what in firing]

    def held_against(self, watch: AlarmRule) -> float | None:
        """What a watch holds its metric against, as it is exported; None while nobody knows."""
        level = self._level(watch)
        return level if level is None or watch.at_least else 1.0 - level

    def baseline_of(self, watch: AlarmRule) -> Baseline | None:
        """The baseline of a watch; None where it needs none."""
        if watch.metric == constants.LATENCY:
            return self._latencies[watch.source].share
        return None if watch.kind == "gate" else self.baselines[baseline_name(watch)]

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "alarms": {name: alarm.dump() for name, alarm in self.alarms.items()},
            "baselines": {name: baseline.dump() for name, baseline in self.baselines.items()},
            "latency": [[source, latency.dump()] for source, latency in self._latencies.items()],
            "given": fingerprint(self._given),
            "sight": self.selector.dump(),
            "drift": self.drift.dump(),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote; alarms and baselines that are new since then start from nothing."""
        for name, alarm in data["alarms"].items():
            if name in self.alarms:
                self.alarms[name].restore(alarm)
        for name, baseline in data["baselines"].items():
            if name in self.baselines:
                self.baselines[name].restore(baseline)
        for source, latency in data["latency"]:
            if source in self._latencies:
                self._latencies[source].restore(latency)
        self.selector.restore(data["sight"])
        self.drift.restore(data["drift"])
        if self._given is not None and data["given"] != fingerprint(self._given):
            restore_baseline(self._given, self.baselines, self.latency, self.selector)


def baseline_name(watch: AlarmRule) -> str:
    """What a watch is compared with: one baseline for every tier and both directions of the same observations."""
    return f"{watch.metric}:paired" if watch.kind == "paired" else watch.metric


def observation_key(watch: AlarmRule) -> tuple[object, ...]:
    """What makes two watches look at the same observations."""
    return watch.metric, watch.kind == "paired", watch.source, watch.gold, watch.where, watch.needs_gold, watch.ratio


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


class AlarmEngine:
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
        self.steps = MinuteBatches(slices, lambda pipeline: terms(pipeline).cluster)
        self.pipelines: dict[str, PipelineAlarms] = {}

    def advance(self, now: float) -> list[AlarmTransition]:
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

    def acknowledge(self, pipeline: str, alert: str) -> list[AlarmTransition]:
        """Silence an alarm that fires and arm it again: it starts from nothing.

        Raises:
            UnknownNameError: There is no such pipeline or alarm.
        """
        if pipeline not in self.pipelines:
            raise UnknownNameError("pipeline", pipeline, self.pipelines)
        return self.pipelines[pipeline].acknowledge(alert, self.steps.closed)

    def give_up(self, pipeline: str, now: float) -> list[AlarmTransition]:
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
        fires = minute_end(signal.firing)
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
        minute_end(alarm.firing),
        alarm.evidence,
        one.held_against(watch),
        "" if baseline is None else baseline.state,
        "" if baseline is None else baseline.version,
    )


def minute_end(minute: int | None) -> float | None:
    """The end of a minute in seconds since the epoch."""
    return None if minute is None else float((minute + 1) * STEP)


def as_alert_line(edge: AlarmTransition) -> dict[str, Any]:
    """An edge as a line of an alerts file."""
    alert = edge.alert if edge.pipeline == constants.DEFAULT_PIPELINE else f"{edge.pipeline}/{edge.alert}"
    return {"ts": edge.ts, "alert": alert, "metric": edge.metric, "severity": edge.severity, "state": edge.state}
