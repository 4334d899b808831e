"""What the alarms can find in what time: said before anything happens, so that nobody waits for the impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragmon.alarms.watches import plan
from ragmon.core.policy import Gate
from ragmon.metrics.base import Metric
from ragmon.stats.detection import labels_to_detect, minutes_to_detect

BEYOND: Final = 0.10
"""How far beyond its threshold a gate that says nothing else is worth a page."""


@dataclass(frozen=True)
class Reach:
    """What one gate's alarm finds.

    Attributes:
        gate: The gate.
        at: The level worth a page.
        labels: About how many observations it takes after the metric has gone there; None where it is never found.
        minutes: How long that takes at the present rate; None where the rate is unknown or nothing is ever found.
        per_minute: That rate, in observations a minute; None where it is unknown.
    """

    gate: Gate
    at: float
    labels: float | None
    minutes: float | None
    per_minute: float | None


def reach(
    gates: Sequence[Gate],
    metrics: Mapping[str, Metric],
    rates: Mapping[str, float],
    *,
    false_pages_per_30d: float = 1.0,
    looks_per_day: float = 4.0,
    pipelines: int = 1,
) -> list[Reach]:
    """What the alarms of one pipeline's gates find, gate by gate.

    Args:
        gates: The pipeline's gates.
        metrics: Every metric that is counted.
        rates: Observations a minute, by gate.
        false_pages_per_30d: The budget of pages.
        looks_per_day: The budget of everything less urgent.
        pipelines: How many pipelines share the budgets.

    Source: `ragmon.stats.detection.labels_to_detect`.
    """
    watches = plan(
        gates, metrics, false_pages_per_30d=false_pages_per_30d, looks_per_day=looks_per_day, pipelines=pipelines
    )
    thresholds = {watch.alert: watch.threshold for watch in watches if watch.kind == "gate"}
    return [
        _reach(gate, thresholds[gate.name], rates.get(gate.name))
        for gate in gates
        if gate.kind == "threshold" and gate.name in thresholds
    ]


def _reach(gate: Gate, threshold: float, per_minute: float | None) -> Reach:
    at = worth_a_page(gate)
    per_step = None if per_minute is None else max(1.0, per_minute)
    labels = labels_to_detect(at, gate.threshold, threshold, at_least=gate.at_least, per_step=per_step)
    minutes = None if per_minute is None else minutes_to_detect(labels, per_minute)
    return Reach(gate, at, labels, minutes, per_minute)


def worth_a_page(gate: Gate) -> float:
    """The level worth a page: what the gate says, else 0.10 beyond its threshold."""
    if gate.page_beyond is not None:
        return gate.page_beyond
    return max(0.0, gate.threshold - BEYOND) if gate.at_least else min(1.0, gate.threshold + BEYOND)


def about(found: Reach) -> str:
    """One line for a person.

    >>> about(Reach(Gate("precision", "answer_precision", 0.80, "at_least"), 0.70, 469.0, 156.0, 3.0))
    'a drop to 70 % is found in about 2.6 h (469 observations at 3/min)'
    """
    verb = "drop" if found.gate.at_least else "rise"
    change = f"a {verb} to {100 * found.at:.3g} %"
    if found.labels is None:
        return f"{change} is never found: it lies too close to the gate"
    count = f"{found.labels:,.0f} observations"
    if found.minutes is None or found.per_minute is None:
        return f"{change} takes about {count}"
    return f"{change} is found in about {duration(found.minutes)} ({count} at {found.per_minute:.2g}/min)"


def duration(minutes: float) -> str:
    """A time as people say it.

    >>> duration(0.4), duration(45.2), duration(156.0), duration(6000.0)
    ('1 min', '45 min', '2.6 h', '4.2 days')
    """
    if minutes < 90:
        return f"{max(1, round(minutes))} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
