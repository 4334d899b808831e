"""Which alarms a pipeline has, and how much proof each needs so that all together keep their budget.

What the alarms can find in what time: said before anything happens, so that nobody waits for the impossible.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ragmon.core import constants
from ragmon.core.policy import LABELLED, Gate
from ragmon.metrics.base import Metric
from ragmon.stats.detection import labels_to_detect, minutes_to_detect

Kind = Literal["gate", "baseline", "paired"]

PAGE_STEPS: Final = 30 * 24 * 60
"""Minutes a page budget is stated over."""
LOOK_STEPS: Final = 24 * 60
"""Minutes a look budget is stated over."""
LEAST: Final = 20.0
"""Wealth below this is no proof, however large the budget."""
SLOW: Final = 0.05
"""Share of requests above the p95."""

GOLD: Final = ("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "hit_rate")
"""Gold metrics that are compared with their own past."""
LIVE: Final = ("refusal_like_rate", "compliance", "citation_scope", "coverage", "empty_retrieval_rate", "error_rate")
"""Label-free metrics that are, on their bad side; the refusal rate on both."""


@dataclass(frozen=True)
class AlarmRule:
    """What one alarm guards.

    Args:
        alert: Its name, unique in its pipeline.
        metric: The metric key, or `latency`.
        severity: `page`, `look` or `ticket`.
        at_least: It guards against a fall; else against a rise. Item by item, what is guarded is not becoming worse.
        kind: Against a gate, against the metric's own baseline, or item by item against each item's first answer.
        level: The gate's threshold.
        z: Normal quantile of the baseline's bound.
        margin: How far beyond that bound a change matters.
        source, gold, where: What a gate names; None takes the first source and gold set that has data.
        needs_gold: The metric is computed on gold items.
        ratio: For latency: how many times the baseline's p95 counts as slow.
        threshold: The wealth at which it fires.
    """

    alert: str
    metric: str
    severity: str
    at_least: bool
    kind: Kind
    level: float = 0.0
    z: float = 0.0
    margin: float = 0.0
    source: str | None = None
    gold: str | None = None
    where: str = ""
    needs_gold: bool = False
    ratio: float = 1.0
    threshold: float = 0.0


def plan(
    gates: Sequence[Gate],
    metrics: Mapping[str, Metric],
    *,
    false_pages_per_30d: float = 1.0,
    looks_per_day: float = 4.0,
    pipelines: int = 1,
) -> tuple[AlarmRule, ...]:
    """The watches of a pipeline.

    Pages: every declared gate, and gold metrics far below their baseline. Looks: gold metrics a little below it, item
    by item too, and label-free metrics off theirs.

    Args:
        gates: The pipeline's gates.
        metrics: Every metric that is counted.
        false_pages_per_30d: The budget of pages, over all pipelines.
        looks_per_day: The budget of everything less urgent.
        pipelines: How many pipelines share them.
    """
    declared = _gates(gates, metrics)
    taken = {gate.name for gate in gates}
    own = [replace(w, alert=f"{w.alert}:own") if w.alert in taken else w for w in (*_gold(metrics), *_live(metrics))]
    watches = [*declared, *own]
    pages = sum(watch.severity == constants.PAGE for watch in watches) * pipelines
    others = len(watches) * pipelines - pages
    page = max(LEAST, pages * PAGE_STEPS / false_pages_per_30d)
    look = max(LEAST, others * LOOK_STEPS / looks_per_day)
    return tuple(replace(watch, threshold=page if watch.severity == constants.PAGE else look) for watch in watches)


def _gates(gates: Sequence[Gate], metrics: Mapping[str, Metric]) -> list[AlarmRule]:
    found = []
    for gate in gates:
        slow = gate.kind == "quantile_ratio"
        if gate.kind == "distinct" or (slow and (gate.where or gate.gold)) or not (slow or gate.metric in metrics):
            continue  # indexes are watched apart; how long a slice takes is judged in windows alone
        found.append(
            AlarmRule(
                gate.name,
                gate.metric,
                gate.severity,
                gate.at_least and not slow,
                "gate",
                level=SLOW if slow else gate.threshold,
                source=gate.source or (constants.LABEL if gate.metric in LABELLED else None),
                gold=gate.gold,
                where=gate.where,
                needs_gold=not slow and (metrics[gate.metric].needs_gold or gate.gold is not None),
                ratio=gate.threshold if slow else 1.0,
            )
        )
    return found


def _gold(metrics: Mapping[str, Metric]) -> list[AlarmRule]:
    found = []
    for name in GOLD:
        if name in metrics:
            up = metrics[name].better == "higher"
            usual = AlarmRule(
                f"{name}:baseline", name, constants.PAGE, up, "baseline", z=2.6, margin=0.03, needs_gold=True
            )
            look = replace(usual, alert=f"{name}:look", severity=constants.LOOK, z=1.64, margin=0.005)
            found += [usual, look, replace(look, alert=f"{name}:paired", kind="paired", at_least=True)]
    return found


def _live(metrics: Collection[str]) -> list[AlarmRule]:
    watch = AlarmRule("", "", constants.LOOK, at_least=False, kind="baseline", z=2.3, margin=0.01)
    up = ("compliance", "citation_scope", "coverage")
    found = [replace(watch, alert=f"{name}:look", metric=name, at_least=name in up) for name in LIVE if name in metrics]
    if "refusal_rate" in metrics:
        found.append(replace(watch, alert="refusal_rate:look", metric="refusal_rate"))
        found.append(replace(watch, alert="refusal_rate:look-low", metric="refusal_rate", at_least=True))
    return [*found, replace(watch, alert=f"{constants.LATENCY}:look", metric=constants.LATENCY)]


BEYOND: Final = 0.10
"""How far beyond its threshold a gate that says nothing else is worth a page."""


@dataclass(frozen=True)
class Detectability:
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
) -> list[Detectability]:
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


def _reach(gate: Gate, threshold: float, per_minute: float | None) -> Detectability:
    at = worth_a_page(gate)
    per_step = None if per_minute is None else max(1.0, per_minute)
    labels = labels_to_detect(at, gate.threshold, threshold, at_least=gate.at_least, per_step=per_step)
    minutes = None if per_minute is None else minutes_to_detect(labels, per_minute)
    return Detectability(gate, at, labels, minutes, per_minute)


def worth_a_page(gate: Gate) -> float:
    """The level worth a page: what the gate says, else 0.10 beyond its threshold."""
    if gate.page_beyond is not None:
        return gate.page_beyond
    return max(0.0, gate.threshold - BEYOND) if gate.at_least else min(1.0, gate.threshold + BEYOND)


def describe(found: Detectability) -> str:
    """One line for a person.

    >>> describe(Detectability(Gate("precision", "answer_precision", 0.80, "at_least"), 0.70, 469.0, 156.0, 3.0))
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
