"""The alarms of all pipelines: a minute of a pipeline's records is a step, and a step may start or end an alarm.

No clock, no files, no randomness: the same steps give the same transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Final, Literal

import msgspec

from ragmon.alarms.baselines import (
    CHRONIC_MINUTES,
    GOLD,
    LEARN,
    LIVE,
    PAUSE_EVIDENCE,
    AlarmSettings,
    Baseline,
    FrozenMetric,
    FrozenPipeline,
    LatencyBaseline,
    index_limits,
    read_frozen,
    version,
)
from ragmon.alarms.detector import Alarm, Change, ShownProof, shown
from ragmon.alarms.drift import Drift, DriftMonitors, DriftSignal
from ragmon.alarms.observations import (
    NOTHING,
    ClusterMemory,
    Conventions,
    ObservationSelector,
    Selection,
    SourceSwitch,
    StepClusters,
    StepObservations,
)
from ragmon.alarms.plan import AlarmBudget, AlarmRule, plan
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.scoring.minutes import MINUTE, Minute, MinuteBatches, Minutes
from ragmon.scoring.score_table import ScoreTable

MAX_ALARMS: Final = 100
LONGEST_REASON: Final = 1000  # characters of a reason that are kept; a journal has all of it
SHOWN: Final = 7 * 86_400.0  # seconds for which an acknowledgement is shown
FIRST_LEVEL: Final = 0.75
"""What gold items must keep of their first answers while that is learned: an item that is right with probability p was
right and is wrong with p (1 - p), which is a quarter at most."""
_USERS: Final = ""  # stands for the source of user traffic, whichever that is


class AcknowledgedAlarm(msgspec.Struct, frozen=True):
    """The last acknowledgement of an alarm.

    Attributes:
        by: Who acknowledged it; "" where nobody is named.
        at: When, seconds since the epoch.
        fired: Whether the alarm fired then; else it only starts from nothing.
        until: When the alarm fired anew, seconds since the epoch; None as long as the acknowledgement holds.
    """

    pipeline: str
    alert: str
    by: str
    reason: str
    at: float
    fired: bool
    until: float | None = None


class Acknowledgements(msgspec.Struct):
    """The last acknowledgement of each alarm, by pipeline and alarm, the newest last."""

    by_alarm: dict[tuple[str, str], AcknowledgedAlarm] = {}

    def add(self, entry: AcknowledgedAlarm) -> None:
        """Add an acknowledgement; it replaces the one before of the same alarm."""
        key = entry.pipeline, entry.alert
        self.by_alarm.pop(key, None)
        self.by_alarm[key] = msgspec.structs.replace(entry, reason=entry.reason[:LONGEST_REASON])
        while len(self.by_alarm) > MAX_ALARMS:
            del self.by_alarm[next(iter(self.by_alarm))]

    def see(self, transitions: Iterable[AlarmTransition]) -> None:
        """End the acknowledgements of the alarms that fire anew."""
        for transition in transitions:
            key = transition.pipeline, transition.alert
            entry = self.by_alarm.get(key)
            if entry is not None and entry.until is None and transition.state == "firing":
                self.by_alarm[key] = msgspec.structs.replace(entry, until=transition.ts)

    def shown(self, now: float) -> list[AcknowledgedAlarm]:
        """The acknowledgements of the last days, the newest first; `now` is in seconds since the epoch."""
        return [entry for entry in reversed(self.by_alarm.values()) if entry.at > now - SHOWN]


@dataclass(frozen=True)
class AlarmTransition:
    """An alarm that started or stopped firing.

    Attributes:
        ts: The end of the step that decided it, seconds since the epoch.
        since: The beginning of what a firing alarm is proven by, seconds since the epoch; None for one on drift.
        proof: What that is, in words; "" for one on drift.
    """

    ts: float
    pipeline: str
    alert: str
    metric: str
    severity: str
    state: Literal["firing", "resolved"]
    since: float | None = None
    proof: str = ""


class PipelineState(msgspec.Struct):
    """What the alarms of a pipeline have seen.

    Attributes:
        alarms: By alert name.
        baselines: By `baseline_name` of the rules that use them.
        latency: The baselines of the latency by the source of the requests; "" is the source of user traffic.
        frozen_version: The version of the frozen baseline; "" where there is none.
        place: The place of an unconfigured pipeline in the false-alarm budget; 0 where none was given.
    """

    alarms: dict[str, Alarm] = {}
    baselines: dict[str, Baseline] = {}
    latency: dict[str, LatencyBaseline] = {}
    frozen_version: str = ""
    selection: Selection = msgspec.field(default_factory=Selection)
    drift: DriftMonitors = msgspec.field(default_factory=DriftMonitors)
    conventions: Conventions = msgspec.field(default_factory=Conventions)
    clusters: ClusterMemory = msgspec.field(default_factory=ClusterMemory)
    place: int = 0


class PipelineAlarms:
    """The alarms of a pipeline.

    Args:
        state: What they have seen, where they continue; alarms and baselines that are new start empty.
        place: Its place in the false-alarm budget (`ragmon.alarms.plan.AlarmBudget`); 0 for a configured pipeline.

    Attributes:
        rules: By alert name.
    """

    def __init__(
        self,
        pipeline: str,
        settings: AlarmSettings,
        table: ScoreTable,
        state: PipelineState | None = None,
        *,
        place: int = 0,
    ) -> None:
        self.pipeline = pipeline
        self.rules = {rule.alert: rule for rule in settings.rules}
        self.state = state = state or PipelineState()
        self._settings, self._table = settings, table
        self._learned: dict[str, AlarmRule] = {}
        sources = [_USERS]
        for rule in settings.rules:
            if rule.metric == constants.LATENCY:
                sources.append(rule.source or _USERS)
            elif rule.kind != "gate":  # rules on the same observations share a baseline
                self._learned.setdefault(baseline_name(rule), rule)
        known = frozenset(state.baselines)
        state.place = place
        state.alarms = {alert: state.alarms.get(alert, Alarm()) for alert in self.rules}
        state.baselines = {name: state.baselines.get(name, Baseline()) for name in self._learned}
        state.latency = {source: state.latency.get(source, LatencyBaseline()) for source in sources}
        self.drift = Drift(settings, state.drift)
        self.selector = ObservationSelector(table, state.selection)
        used, state.frozen_version = state.frozen_version, ""
        frozen = settings.given
        if frozen is None:
            return
        # The baselines of a file: all of them at first, and later those of metrics without a baseline so far.
        state.frozen_version = version(msgspec.to_builtins(frozen))
        is_new = used != state.frozen_version
        for name, metric in frozen.metrics.items():
            if name == constants.LATENCY and is_new and metric.p95 is not None:
                state.latency[_USERS].give(metric.p95, metric.n, metric.total)
            elif name in state.baselines and metric.n and (is_new or name not in known):
                state.baselines[name].give(metric.n, metric.total)
        if is_new:
            self.selector.give(frozen.golds, frozen.first)

    def freeze(self) -> FrozenPipeline:
        """The baselines as a file holds them; those with too few observations are left out, and will be learned."""
        state, users = self.state, self.state.latency[_USERS]
        users.finalise()
        metrics = {
            name: FrozenMetric.of(baseline)
            for name, baseline in sorted(state.baselines.items())
            if baseline.n >= (GOLD if self._learned[name].needs_gold else LIVE).used
        }
        if users.p95 is not None:
            metrics[constants.LATENCY] = FrozenMetric.of(users.share, users.p95)
        first = {name: scores for name, scores in state.selection.first.items() if scores}
        return FrozenPipeline(metrics, state.selection.golds, first)

    def step(self, step: Minute) -> list[AlarmTransition]:
        """Process the pipeline's records of a minute, later than any before; returns the transitions."""
        transitions = self._restart(self.selector.turn(step), step.minute)
        self.state.conventions.see(step)
        clusters = self.state.clusters.open(step)
        observations = self._observe(step, clusters)
        for rule, alarm in self.judged():
            current = observations[observation_key(rule)].keeping(at_least=rule.at_least)
            level = self._level(rule)
            if level is not None and current.n:
                change = alarm.step(rule, step.minute, current if rule.at_least else current.turned, level)
                if change is not None:
                    transitions.append(self._transition(rule, step.minute, change))
        self._learn(step, observations, clusters)
        self.state.clusters.close()
        for signal in self.drift.step(step, self.selector.user_source):
            state: Change = "resolved" if signal.firing is None else "firing"
            transitions.append(self._transition(signal, step.minute, state))
        return transitions

    def absorb(self, step: Minute) -> None:
        """Learn a step at once, without judging it: it belongs to a run that is known to be good."""
        self._restart(self.selector.turn(step), step.minute)
        self.state.conventions.see(step)
        clusters = self.state.clusters.open(step)
        observations = self._observe(step, clusters)
        self.state.clusters.close()
        self.state.latency[_USERS].absorb(self._latencies_of(step, _USERS, clusters))
        for name, baseline in self.state.baselines.items():
            baseline.absorb(observations[observation_key(self._learned[name])].assessed)

    def _observe(self, step: Minute, clusters: StepClusters) -> dict[tuple[object, ...], StepObservations]:
        freeze = not self._has_recent_alarm(step.minute)
        required, conventions = self._settings.citations_required, self.state.conventions
        observations: dict[tuple[object, ...], StepObservations] = {}
        for rule in self.rules.values():
            key = observation_key(rule)
            if key in observations:
                continue
            if rule.metric == constants.LATENCY:
                source = rule.source or _USERS
                slow = self.state.latency[source].of(self._latencies_of(step, source, clusters), rule.ratio)
                observations[key] = StepObservations(slow, slow, slow)
            elif not (required or conventions.apply_to(self._table.metrics[rule.metric])):
                observations[key] = NOTHING
            elif rule.kind == "paired":
                observations[key] = self.selector.paired(step, rule, clusters, freeze=freeze)
            else:
                observations[key] = self.selector.of(step, rule, clusters)
        return observations

    def _latencies_of(self, step: Minute, source: str, clusters: StepClusters) -> Sequence[list[float]]:
        """The latencies of the step's requests from a source, by cluster; "" is the source of user traffic.

        While the p95 is learned, they are those of all requests and no observations yet.
        """
        name = source or self.selector.user_source
        values = step.latency.get(name, {})
        return list(values.values()) if self.state.latency[source].p95 is None else clusters.latencies(name, values)

    def _level(self, rule: AlarmRule) -> float | None:
        # The lower bound for the mean, after an upper bound was inverted; None while the baseline is learned.
        baseline = self.baseline_of(rule)
        if rule.kind == "gate" or baseline is None:
            return rule.level if rule.at_least else 1.0 - rule.level
        level = baseline.level(rule.z, rule.margin, at_least=rule.at_least)
        return FIRST_LEVEL if level is None and rule.repeats else level

    def _learn(
        self, step: Minute, observations: Mapping[tuple[object, ...], StepObservations], clusters: StepClusters
    ) -> None:
        state, minute, period = self.state, step.minute, self._settings.learn
        if self._has_recent_alarm(minute):
            for baseline in state.baselines.values():
                baseline.forget()
            for latency in state.latency.values():
                latency.forget()
            return
        suspicious = {
            baseline_name(rule)
            for rule, alarm in self.judged()
            if alarm.firing is None and alarm.evidence(rule) > PAUSE_EVIDENCE
        }
        for name, baseline in state.baselines.items():
            rule = self._learned[name]
            current = observations[observation_key(rule)].assessed
            if current.n:
                baseline.see(minute, current)
            if name not in suspicious:
                baseline.learn(minute, GOLD if rule.needs_gold else LIVE, period)
        for source, latency in state.latency.items():
            latency.see(minute, self._latencies_of(step, source, clusters))
            if constants.LATENCY not in suspicious:
                latency.learn(minute, period)

    def _has_recent_alarm(self, minute: int) -> bool:
        # One that is not chronic: a gate that never passed would stop all learning for ever.
        return any(
            alarm.firing is not None and (rule.kind != "gate" or minute - alarm.firing < CHRONIC_MINUTES)
            for rule, alarm in self.judged()
        )

    def _restart(self, switch: SourceSwitch, minute: int) -> list[AlarmTransition]:
        # The population is another one where source or gold set changed.
        if switch == SourceSwitch():
            return []
        resolved: list[AlarmRule | DriftSignal] = []
        for rule, alarm in self.judged():
            if self.selector.concerns(switch, rule):
                resolved += [rule] if alarm.firing is not None else []
                alarm.clear()
        for name, learned in self._learned.items():
            if self.selector.concerns(switch, learned):
                self.state.baselines[name] = Baseline()
        if False in switch.sources:
            self.state.latency[_USERS] = LatencyBaseline()
            resolved += self.drift.restart()
        return [self._transition(rule, minute, "resolved") for rule in resolved]

    def _transition(self, rule: AlarmRule | DriftSignal, minute: int, state: Change) -> AlarmTransition:
        since, text = None, ""
        if isinstance(rule, AlarmRule) and (proof := self.state.alarms[rule.alert].proof) is not None:
            since, text = float(proof.begin * MINUTE), shown(proof, rule).text
        ts = float((minute + 1) * MINUTE)
        return AlarmTransition(ts, self.pipeline, rule.alert, rule.metric, rule.severity, state, since, text)

    def acknowledge(self, alert: str, minute: int) -> list[AlarmTransition]:
        """Silence an alarm and restart its detector from nothing.

        Raises:
            UnknownNameError: There is no such alarm.
        """
        watched: dict[str, AlarmRule | DriftSignal] = {**self.rules}
        watched |= {signal.alert: signal for signal in self.drift.signals}
        if alert not in watched:
            raise UnknownNameError("alarm", alert, watched)
        if alert in self.rules:
            fired = self.state.alarms[alert].firing is not None
            self.state.alarms[alert].clear()
        else:
            fired = self.drift.clear(alert)
        return [self._transition(watched[alert], minute, "resolved")] if fired else []

    def end(self, minute: int) -> list[AlarmTransition]:
        """`resolved` transitions of every alarm that fires: the pipeline is being removed."""
        firing: list[AlarmRule | DriftSignal] = [rule for rule, alarm in self.judged() if alarm.firing is not None]
        firing += [signal for signal in self.drift.signals if signal.firing is not None]
        return [self._transition(rule, minute, "resolved") for rule in firing]

    def judged(self) -> Iterator[tuple[AlarmRule, Alarm]]:
        """Every rule with its alarm."""
        return zip(self.rules.values(), self.state.alarms.values(), strict=True)

    def held_against(self, rule: AlarmRule) -> float | None:
        """The level a rule compares its metric with, as exported; None while the baseline is learned."""
        level = self._level(rule)
        return level if level is None or rule.at_least else 1.0 - level

    def baseline_of(self, rule: AlarmRule) -> Baseline | None:
        """The baseline of a rule; None where it needs none."""
        if rule.metric == constants.LATENCY:
            return self.state.latency[rule.source or _USERS].share
        return None if rule.kind == "gate" else self.state.baselines[baseline_name(rule)]


def baseline_name(rule: AlarmRule) -> str:
    """The baseline of a rule: one for every severity and both directions of the same observations."""
    if rule.kind != "paired":
        return rule.metric
    return f"{rule.metric}:{'flipped' if rule.repeats else 'paired'}"


def observation_key(rule: AlarmRule) -> tuple[object, ...]:
    """The key of a rule's observations: rules with equal keys judge the same observations."""
    return rule.metric, baseline_name(rule), rule.source, rule.gold, rule.where, rule.needs_gold, rule.ratio


def minute_end(minute: int | None) -> float | None:
    """The end of a minute in seconds since the epoch."""
    return None if minute is None else float((minute + 1) * MINUTE)


def as_alert_line(edge: AlarmTransition) -> dict[str, Any]:
    """A transition as a line of an alerts file."""
    alert = edge.alert if edge.pipeline == constants.DEFAULT_PIPELINE else f"{edge.pipeline}/{edge.alert}"
    return {"ts": edge.ts, "alert": alert, "metric": edge.metric, "severity": edge.severity, "state": edge.state}


@dataclass(frozen=True)
class AlarmState:
    """The state of one alarm.

    Attributes:
        firing: The end of the step since which it fires, seconds since the epoch; None while it is silent.
        evidence: How close it is to firing, in [0, 1].
        level: The level the metric is compared with, as exported; None while its baseline is being learned.
        baseline: `learning`, `growing`, `frozen` or `given`; "" for a gate, which needs none.
        proof: What it fired for; None while it is silent, and for an alarm on drift, which counts no failures.
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
    proof: ShownProof | None = None


def states_of(alarms: PipelineAlarms) -> list[AlarmState]:
    """The state of every alarm of a pipeline."""
    states = []
    for rule, alarm in alarms.judged():
        baseline = alarms.baseline_of(rule)
        state = AlarmState(
            alarms.pipeline,
            rule.alert,
            rule.metric,
            rule.severity,
            minute_end(alarm.firing),
            alarm.evidence(rule),
            alarms.held_against(rule),
            "" if baseline is None else baseline.phase,
            "" if baseline is None else baseline.version,
            None if alarm.proof is None else shown(alarm.proof, rule),
        )
        states.append(state)
    for signal in alarms.drift.signals:
        firing = minute_end(signal.firing)
        evidence = float(firing is not None)
        states.append(AlarmState(alarms.pipeline, signal.alert, signal.metric, signal.severity, firing, evidence))
    return states


class AlarmsState(msgspec.Struct):
    """What an `AlarmEngine` has seen: the open minutes, and the alarms by pipeline. It holds no text."""

    steps: Minutes
    pipelines: dict[str, PipelineState]


class AlarmEngine:
    """The alarms of all pipelines, in their initial state. The false-alarm budget holds however often it is read.

    Configured pipelines have place 0 in the budget. Every other pipeline takes the first free place from 1 on when its
    first minute closes, and gives it back when it is removed.

    Attributes:
        steps: Collects the scored records by minute.

    Raises:
        ConfigError: A baseline file cannot be read, or is invalid.
    """

    def __init__(self, settings: Settings, table: ScoreTable) -> None:
        self._settings, self._table = settings, table
        pipelines = (settings.unconfigured, *settings.pipelines.values())
        files = {path for pipeline in pipelines if (path := pipeline.alarms.baseline.file) is not None}
        self._frozen = {path: read_frozen(path) for path in files}
        slices = {gate.where for pipeline in pipelines for gate in pipeline.resolved_gates if gate.where}
        self.steps = MinuteBatches(slices, lambda pipeline: settings.of(pipeline).metrics.cluster)
        self.pipelines: dict[str, PipelineAlarms] = {}

    def advance(self, now: float) -> list[AlarmTransition]:
        """Judge every minute that ended, on the clock of record arrival; the transitions are in the order of time."""
        return [transition for pipeline, step in self.steps.close(now) for transition in self.of(pipeline).step(step)]

    def of(self, pipeline: str) -> PipelineAlarms:
        """The alarms of one pipeline, created on first use."""
        alarms = self.pipelines.get(pipeline)
        if alarms is None:
            alarms = self.pipelines[pipeline] = self._new(pipeline, None)
        return alarms

    def _new(self, name: str, saved: PipelineState | None) -> PipelineAlarms:
        # At the place it had if that is free, else at the first free one.
        settings, place = self._settings, 0
        if name not in settings.pipelines:
            taken = {alarms.state.place for alarms in self.pipelines.values()}
            place = 0 if saved is None or saved.place in taken else saved.place
            place = place or next(number for number in count(1) if number not in taken)
        pipeline = settings.of(name)
        budget, baseline = AlarmBudget.of(pipeline.alarms, len(settings.pipelines), place), pipeline.alarms.baseline
        alarm_settings = AlarmSettings(
            plan(pipeline.resolved_gates, self._table.metrics, budget),
            learn=LEARN if baseline.learn is None else max(1, round(float(baseline.learn) / 60)),
            given=None if baseline.file is None else self._frozen[baseline.file].get(pipeline.name),
            indexes=index_limits(pipeline.resolved_gates),
            citations_required=bool(pipeline.metrics.citations_required),
        )
        return PipelineAlarms(name, alarm_settings, self._table, saved, place=place)

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
        return self.pipelines[pipeline].acknowledge(alert, self.steps.state.closed)

    def give_up(self, pipeline: str, now: float) -> list[AlarmTransition]:
        """Remove a pipeline; its firing alarms are resolved."""
        alarms = self.pipelines.pop(pipeline, None)
        return [] if alarms is None else alarms.end(int(now) // MINUTE)

    @property
    def state(self) -> AlarmsState:
        """What was seen, as it is kept: encode it before anything else is counted."""
        return AlarmsState(self.steps.state, {name: alarms.state for name, alarms in self.pipelines.items()})

    def restore(self, state: AlarmsState) -> None:
        """Go on from a state. A lost state delays alarms and never raises one."""
        self.steps.state = state.steps
        self.pipelines = {}
        by_place = sorted(state.pipelines.items(), key=lambda entry: (entry[1].place or inf, entry[0]))
        for name, saved in by_place:  # who has a place keeps it
            self.pipelines[name] = self._new(name, saved)
