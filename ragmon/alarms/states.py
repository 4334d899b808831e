"""What is shown of an alarm: whether it fires, since when, on what evidence, and what it compares with."""

from __future__ import annotations

from dataclasses import dataclass

from ragmon.alarms.detector import Alarm
from ragmon.alarms.pipeline import PipelineAlarms, minute_end
from ragmon.alarms.plan import AlarmRule
from ragmon.alarms.proof import ShownProof, shown


@dataclass(frozen=True)
class AlarmState:
    """The state of one alarm.

    Attributes:
        pipeline, alert, metric, severity: Which alarm.
        firing: The end of the step since which it fires, seconds since the epoch; None while it is silent.
        evidence: How close it is to firing, in [0, 1].
        level: The level the metric is compared with, as exported; None while its baseline is being learned.
        baseline: `learning`, `growing`, `frozen` or `given`; "" for a gate, which needs none.
        version: Of a baseline that is frozen or given.
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
    states = [_state(alarms, rule, alarm) for rule, alarm in alarms.judged()]
    for signal in alarms.drift.signals:
        firing = minute_end(signal.firing)
        evidence = float(firing is not None)
        states.append(AlarmState(alarms.pipeline, signal.alert, signal.metric, signal.severity, firing, evidence))
    return states


def _state(alarms: PipelineAlarms, rule: AlarmRule, alarm: Alarm) -> AlarmState:
    baseline = alarms.baseline_of(rule)
    return AlarmState(
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
