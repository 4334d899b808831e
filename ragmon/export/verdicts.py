"""Gates and alarms as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ragmon.alarms import AlarmState
from ragmon.core import series_names
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.series_names import label

_GATE: Final = ("pipeline", "gate")
_WHAT: Final = ("metric", "source", "gold", "direction", "window", "estimand")


def alarms(states: Sequence[AlarmState]) -> Iterator[Metric]:
    """Whether each alarm fires, and how far it is on its way: gates by their name, baselines as `metric:what`."""
    alarm = GaugeMetricFamily(
        series_names.GATE_ALARM, "1 while the alarm fires; it keeps its false-alarm budget", labels=(*_GATE, "severity")
    )
    evidence = GaugeMetricFamily(
        series_names.GATE_EVIDENCE, "How far the alarm is on its way to firing, 0 to 1, logarithmic", labels=_GATE
    )
    held = GaugeMetricFamily(
        series_names.GATE_BASELINE, "What the alarm holds its metric against; absent while it is learned", labels=_GATE
    )
    info = GaugeMetricFamily(
        series_names.GATE_BASELINE_INFO,
        "Where the alarm's baseline comes from: learning, growing, frozen, given; always 1",
        labels=(*_GATE, "state", "version"),
    )
    for state in states:
        labels = (label(state.pipeline), label(state.alert))
        if state.baseline:
            info.add_metric((*labels, state.baseline, state.version), 1)
            if state.level is not None:
                held.add_metric(labels, state.level)
        alarm.add_metric((*labels, state.severity), float(state.firing is not None))
        evidence.add_metric(labels, state.evidence)
    yield from (alarm, evidence, held, info)


def families(outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """Threshold, value, bounds, samples and status of every gate; what is unknown has no sample."""
    threshold = GaugeMetricFamily(series_names.GATE_THRESHOLD, "What the gate's value must keep", labels=_GATE)
    value = GaugeMetricFamily(series_names.GATE_VALUE, "The value the gate judges", labels=_GATE)
    lower = GaugeMetricFamily(series_names.GATE_LOWER, "Lower 95 % bound of the gate's value", labels=_GATE)
    upper = GaugeMetricFamily(series_names.GATE_UPPER, "Upper 95 % bound of the gate's value", labels=_GATE)
    samples = GaugeMetricFamily(series_names.GATE_SAMPLES, "Requests behind the gate's value", labels=_GATE)
    status = GaugeMetricFamily(
        series_names.GATE_STATUS, "Verdict of the gate: 1 for the one it has, else 0", labels=(*_GATE, "status")
    )
    info = GaugeMetricFamily(series_names.GATE_INFO, "What the gate judges; always 1", labels=(*_GATE, *_WHAT))
    for outcome in outcomes:
        gate = outcome.gate
        labels = (label(gate.pipeline), label(gate.name))
        threshold.add_metric(labels, gate.threshold)
        samples.add_metric(labels, outcome.n)
        for family, number in ((value, outcome.value), (lower, outcome.lower), (upper, outcome.upper)):
            if number is not None:
                family.add_metric(labels, number)
        for name in sorted(ORDER):
            status.add_metric((*labels, name), float(outcome.verdict == name))
        judged = (
            gate.metric,
            outcome.source,
            label(outcome.gold),
            gate.direction,
            label(gate.window),
            outcome.estimand,
        )
        info.add_metric((*labels, *judged), 1)
    yield from (threshold, value, lower, upper, samples, status, info)
