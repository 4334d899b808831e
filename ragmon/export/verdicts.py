"""The gates as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ragmon.gates import Outcome

STATUSES: Final = ("pass", "fail", "insufficient")
_GATE: Final = ("pipeline", "gate")


def families(outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """Threshold, value, bounds, samples and status of every gate; what is unknown has no sample."""
    threshold = GaugeMetricFamily("ragmon_gate_threshold", "The gate's threshold", labels=_GATE)
    value = GaugeMetricFamily("ragmon_gate_value", "The value the gate judges", labels=_GATE)
    lower = GaugeMetricFamily("ragmon_gate_lower", "Lower 95 % bound of the value", labels=_GATE)
    upper = GaugeMetricFamily("ragmon_gate_upper", "Upper 95 % bound of the value", labels=_GATE)
    samples = GaugeMetricFamily("ragmon_gate_samples", "Requests behind the value", labels=_GATE)
    status = GaugeMetricFamily("ragmon_gate_status", "1 for the gate's verdict", labels=(*_GATE, "status"))
    info = GaugeMetricFamily(
        "ragmon_gate_info", "What the gate judges", labels=(*_GATE, "metric", "source", "gold", "direction", "window")
    )
    for outcome in outcomes:
        gate = outcome.gate
        labels = (gate.pipeline, gate.name)
        threshold.add_metric(labels, gate.threshold)
        samples.add_metric(labels, outcome.n)
        for family, number in ((value, outcome.value), (lower, outcome.lower), (upper, outcome.upper)):
            if number is not None:
                family.add_metric(labels, number)
        for name in STATUSES:
            status.add_metric((*labels, name), float(outcome.verdict == name))
        info.add_metric((*labels, gate.metric, outcome.source, outcome.gold, gate.direction, gate.window), 1)
    yield from (family for family in (threshold, value, lower, upper, samples, status, info) if family.samples)
