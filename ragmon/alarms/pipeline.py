"""The alarms of one pipeline: a minute of its records is a step, and a step may start or end an alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ragmon.alarms.baselines import (
    CHRONIC_MINUTES,
    GOLD_ENOUGH,
    GOLD_FULL,
    LIVE_ENOUGH,
    LIVE_FULL,
    PAUSE_EVIDENCE,
    AlarmTerms,
    Baseline,
    BaselineState,
    FrozenPipeline,
    LatencyBaseline,
    LatencyState,
    fingerprint,
    restore_baseline,
)
from ragmon.alarms.clusters import ClusterMemory, ClusterState, StepClusters
from ragmon.alarms.detector import Alarm, Change, DetectionState
from ragmon.alarms.drift import Drift, DriftSignal, DriftState
from ragmon.alarms.observations import (
    NOTHING,
    Conventions,
    Observations,
    ObservationSelector,
    SelectorState,
    SourceSwitch,
    StepObservations,
)
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.steps import STEP, Step


@dataclass(frozen=True)
class AlarmTransition:
    """An alarm that started or stopped firing.

    Attributes:
        ts: The end of the step that decided it, seconds since the epoch.
        pipeline, alert, metric: Which alarm.
        severity: page, look or ticket.
        state: The new state.
    """

    ts: float
    pipeline: str
    alert: str
    metric: str
    severity: str
    state: Literal["firing", "resolved"]


class PipelineState(msgspec.Struct):
    """The saved form of `PipelineAlarms`.

    Attributes:
        alarms: By alert name.
        baselines: By `baseline_name`.
        latency: By the source of the requests; None is the source of user traffic.
        frozen_version: The version of the frozen baseline; "" where there is none.
        selector: What was chosen to be judged.
        drift: The drift alarms.
        cited, in_gold: What it has shown (`Conventions`).
        place: The place of an unconfigured pipeline in the false-alarm budget; 0 where none was given.
        clusters: The sessions and questions that were counted.
    """

    alarms: dict[str, DetectionState] = {}
    baselines: dict[str, BaselineState] = {}
    latency: list[tuple[str | None, LatencyState]] = []
    frozen_version: str = ""
    selector: SelectorState = msgspec.field(default_factory=SelectorState)
    drift: DriftState = msgspec.field(default_factory=DriftState)
    cited: bool = False
    in_gold: bool | None = None
    place: int = 0
    clusters: ClusterState = msgspec.field(default_factory=ClusterState)


class PipelineAlarms:
    """The state of a pipeline's alarms.

    Args:
        pipeline: The pipeline's name.
        terms: The alarm rules and baseline settings of the pipeline.
        table: The metrics.
        state: Its saved state, where it continues; alarms and baselines that are new since then start empty.
        place: Its place in the false-alarm budget (`ragmon.alarms.plan.budget_divisor`); 0 for a configured pipeline.

    Attributes:
        alarms: By alert name.
        baselines: By `baseline_name` of the rules that use them.
        latency: The baseline of the latency.
        drift: The drift alarms.
        selector: Chooses the observations that rules judge.
    """

    def __init__(
        self, pipeline: str, terms: AlarmTerms, table: ScoreTable, state: PipelineState | None = None, *, place: int = 0
    ) -> None:
        saved = state or PipelineState()
        self.pipeline = pipeline
        self._table, self._conventions = table, Conventions(saved.cited, saved.in_gold, terms.citations_required)
        self.place = place
        self.alarms = {rule.alert: Alarm(rule, saved.alarms.get(rule.alert)) for rule in terms.rules}
        self.drift = Drift(terms, saved.drift)
        self.selector = ObservationSelector(table, saved.selector)
        self.baselines: dict[str, Baseline] = {}
        self._rules: dict[str, AlarmRule] = {}
        self._clusters = ClusterMemory(saved.clusters)
        learned = dict(saved.latency)
        self._latencies = {
            source: LatencyBaseline(terms.learn, learned.get(source))
            for source in (None, *(rule.source for rule in terms.rules if rule.metric == constants.LATENCY))
        }
        self.latency = self._latencies[None]
        for rule in terms.rules:
            self._attach(rule, terms.learn, saved.baselines)
        self._frozen_version = fingerprint(terms.given)
        if terms.given is not None:
            self._give(terms.given, saved)

    def _attach(self, rule: AlarmRule, learn: int, saved: Mapping[str, BaselineState]) -> None:
        """Give a rule its baseline; rules on the same observations share one."""
        name = baseline_name(rule)
        if rule.metric != constants.LATENCY and rule.kind != "gate" and name not in self.baselines:
            enough, full = (GOLD_ENOUGH, GOLD_FULL) if rule.needs_gold else (LIVE_ENOUGH, LIVE_FULL)
            self.baselines[name] = Baseline(enough=enough, full=full, learn=learn, learned=saved.get(name))
            self._rules[name] = rule

    def _give(self, frozen: FrozenPipeline, saved: PipelineState) -> None:
        """Use the baselines of a file, unless the saved state has used them already."""
        if saved.frozen_version != self._frozen_version:
            restore_baseline(frozen, self.baselines, self.latency)
            self.selector.give(frozen.golds, frozen.first)
        else:
            new = {name: baseline for name, baseline in self.baselines.items() if name not in saved.baselines}
            restore_baseline(frozen, new, None)

    def step(self, step: Step) -> list[AlarmTransition]:
        """Process one step.

        Args:
            step: The pipeline's records of a minute, later than any before.

        Returns:
            The transitions, in the order of the rules.
        """
        transitions = self._restart(self.selector.turn(step), step.minute)
        self._conventions.see(step)
        clusters = self._clusters.open(step)
        observations = self._observe(step, clusters)
        for alarm in self.alarms.values():
            current = observations[observation_key(alarm.rule)].keeping(at_least=alarm.rule.at_least)
            change = self._judge(alarm, step.minute, current)
            if change is not None:
                transitions.append(self._transition(alarm.rule, step.minute, change))
        self._learn(step, observations, clusters)
        self._clusters.close()
        for signal in self.drift.step(step, self.selector.user_source):
            state: Change = "resolved" if signal.firing is None else "firing"
            transitions.append(self._transition(signal, step.minute, state))
        return transitions

    def absorb(self, step: Step) -> None:
        """Learn a step at once, without judging it: it belongs to a run that is known to be good."""
        self._restart(self.selector.turn(step), step.minute)
        self._conventions.see(step)
        clusters = self._clusters.open(step)
        observations = self._observe(step, clusters)
        self._clusters.close()
        self.latency.absorb(self._latencies_of(step, None, clusters))
        for name, baseline in self.baselines.items():
            baseline.absorb(observations[observation_key(self._rules[name])].assessed)

    def _observe(self, step: Step, clusters: StepClusters) -> dict[tuple[object, ...], StepObservations]:
        """The observations of the step for every rule, by `observation_key`."""
        freeze = not self._has_recent_alarm(step.minute)
        observations: dict[tuple[object, ...], StepObservations] = {}
        for alarm in self.alarms.values():
            rule = alarm.rule
            key = observation_key(rule)
            if key in observations:
                continue
            if rule.metric == constants.LATENCY:
                slow = self._latencies[rule.source].of(self._latencies_of(step, rule.source, clusters), rule.ratio)
                observations[key] = StepObservations(slow, slow, slow)
            elif not self._conventions.apply_to(self._table.metrics[rule.metric]):
                observations[key] = NOTHING
            elif rule.kind == "paired":
                observations[key] = self.selector.paired(step, rule, clusters, freeze=freeze)
            else:
                observations[key] = self.selector.of(step, rule, clusters)
        return observations

    def _latencies_of(self, step: Step, source: str | None, clusters: StepClusters) -> Sequence[Sequence[float]]:
        """The latencies of the step's requests from a source, by cluster; None is the source of user traffic.

        While the p95 is learned, they are those of all requests and no observations yet.
        """
        name = source or self.selector.user_source
        values = step.latency.get(name, {})
        return list(values.values()) if self._latencies[source].p95 is None else clusters.latencies(name, values)

    def _judge(self, alarm: Alarm, minute: int, observations: Observations) -> Change | None:
        """The transition that a step causes in an alarm; None without one."""
        rule = alarm.rule
        level = self._level(rule)
        if level is None or not observations.n:
            return None
        return alarm.step(minute, observations if rule.at_least else observations.turned, level)

    def _level(self, rule: AlarmRule) -> float | None:
        """The lower bound for the mean, after an upper bound was inverted; None while the baseline is learned."""
        if rule.kind == "gate":
            return rule.level if rule.at_least else 1.0 - rule.level
        is_latency = rule.metric == constants.LATENCY
        baseline = self._latencies[rule.source].share if is_latency else self.baselines[baseline_name(rule)]
        return baseline.level(rule.z, rule.margin, at_least=rule.at_least)

    def _learn(
        self, step: Step, observations: Mapping[tuple[object, ...], StepObservations], clusters: StepClusters
    ) -> None:
        """Update the baselines, but only while no recent alarm fires."""
        if self._has_recent_alarm(step.minute):
            for baseline in self.baselines.values():
                baseline.forget()
            for latency in self._latencies.values():
                latency.forget()
            return
        suspicious = {
            baseline_name(alarm.rule)
            for alarm in self.alarms.values()
            if alarm.firing is None and alarm.evidence > PAUSE_EVIDENCE
        }
        for name, baseline in self.baselines.items():
            current = observations[observation_key(self._rules[name])].assessed
            if current.n:
                baseline.see(step.minute, current)
            if name not in suspicious:
                baseline.learn(step.minute)
        for source, latency in self._latencies.items():
            latency.see(step.minute, self._latencies_of(step, source, clusters))
            if constants.LATENCY not in suspicious:
                latency.learn(step.minute)

    def _has_recent_alarm(self, minute: int) -> bool:
        """Whether an alarm fires that is not chronic: a gate that never passed would stop all learning for ever."""
        return any(
            alarm.firing is not None and (alarm.rule.kind != "gate" or minute - alarm.firing < CHRONIC_MINUTES)
            for alarm in self.alarms.values()
        )

    def _restart(self, switch: SourceSwitch, minute: int) -> list[AlarmTransition]:
        """Reset the alarms and baselines whose source or gold set changed: the population is another one.

        Args:
            switch: What changed.
            minute: When.
        """
        if switch == SourceSwitch():
            return []
        resolved: list[AlarmRule | DriftSignal] = []
        for alarm in self.alarms.values():
            if self.selector.concerns(switch, alarm.rule):
                resolved += [alarm.rule] if alarm.firing is not None else []
                alarm.clear()
        for name, baseline in self.baselines.items():
            if self.selector.concerns(switch, self._rules[name]):
                baseline.restart()
        if False in switch.sources:
            self.latency.restart()
            resolved += self.drift.restart()
        return [self._transition(rule, minute, "resolved") for rule in resolved]

    def _transition(self, rule: AlarmRule | DriftSignal, minute: int, state: Change) -> AlarmTransition:
        return AlarmTransition(float((minute + 1) * STEP), self.pipeline, rule.alert, rule.metric, rule.severity, state)

    def acknowledge(self, alert: str, minute: int) -> list[AlarmTransition]:
        """Silence an alarm and restart its detector from nothing.

        Raises:
            UnknownNameError: There is no such alarm.
        """
        rules: dict[str, AlarmRule | DriftSignal] = {name: alarm.rule for name, alarm in self.alarms.items()}
        rules |= {signal.alert: signal for signal in self.drift.signals}
        if alert not in rules:
            raise UnknownNameError("alarm", alert, rules)
        if alert in self.alarms:
            fired = self.alarms[alert].firing is not None
            self.alarms[alert].clear()
        else:
            fired = self.drift.clear(alert)
        return [self._transition(rules[alert], minute, "resolved")] if fired else []

    def end(self, minute: int) -> list[AlarmTransition]:
        """`resolved` transitions of every alarm that fires: the pipeline is being removed."""
        firing: list[AlarmRule | DriftSignal] = [
            alarm.rule for alarm in self.alarms.values() if alarm.firing is not None
        ]
        firing += [signal for signal in self.drift.signals if signal.firing is not None]
        return [self._transition(rule, minute, "resolved") for rule in firing]

    def held_against(self, rule: AlarmRule) -> float | None:
        """The level a rule compares its metric with, as exported; None while the baseline is learned."""
        level = self._level(rule)
        return level if level is None or rule.at_least else 1.0 - level

    def baseline_of(self, rule: AlarmRule) -> Baseline | None:
        """The baseline of a rule; None where it needs none."""
        if rule.metric == constants.LATENCY:
            return self._latencies[rule.source].share
        return None if rule.kind == "gate" else self.baselines[baseline_name(rule)]

    def dump(self) -> PipelineState:
        """The alarms in their saved form; they are not copied."""
        return PipelineState(
            alarms={name: alarm.state for name, alarm in self.alarms.items()},
            baselines={name: baseline.learned for name, baseline in self.baselines.items()},
            latency=[(source, latency.learned) for source, latency in self._latencies.items()],
            frozen_version=self._frozen_version,
            selector=self.selector.state,
            drift=self.drift.dump(),
            cited=self._conventions.cited,
            in_gold=self._conventions.in_gold,
            place=self.place,
            clusters=self._clusters.state,
        )


def baseline_name(rule: AlarmRule) -> str:
    """The baseline of a rule: one for every severity and both directions of the same observations."""
    return f"{rule.metric}:paired" if rule.kind == "paired" else rule.metric


def observation_key(rule: AlarmRule) -> tuple[object, ...]:
    """The key of a rule's observations: rules with equal keys judge the same observations."""
    return rule.metric, rule.kind == "paired", rule.source, rule.gold, rule.where, rule.needs_gold, rule.ratio


def minute_end(minute: int | None) -> float | None:
    """The end of a minute in seconds since the epoch."""
    return None if minute is None else float((minute + 1) * STEP)


def as_alert_line(edge: AlarmTransition) -> dict[str, Any]:
    """A transition as a line of an alerts file."""
    alert = edge.alert if edge.pipeline == constants.DEFAULT_PIPELINE else f"{edge.pipeline}/{edge.alert}"
    return {"ts": edge.ts, "alert": alert, "metric": edge.metric, "severity": edge.severity, "state": edge.state}
