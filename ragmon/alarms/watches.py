"""Which alarms a pipeline has, and how much proof each needs so that all together keep their budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ragmon.core import constants
from ragmon.core.policy import LABELLED, Gate
from ragmon.metrics.base import Metric

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
class Watch:
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
) -> tuple[Watch, ...]:
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


def _gates(gates: Sequence[Gate], metrics: Mapping[str, Metric]) -> list[Watch]:
    found = []
    for gate in gates:
        slow = gate.kind == "quantile_ratio"
        if gate.kind == "distinct" or (slow and (gate.where or gate.gold)) or not (slow or gate.metric in metrics):
            continue  # indexes are watched apart; how long a slice takes is judged in windows alone
        found.append(
            Watch(
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


def _gold(metrics: Mapping[str, Metric]) -> list[Watch]:
    found = []
    for name in GOLD:
        if name in metrics:
            up = metrics[name].better == "higher"
            usual = Watch(f"{name}:baseline", name, constants.PAGE, up, "baseline", z=2.6, margin=0.03, needs_gold=True)
            look = replace(usual, alert=f"{name}:look", severity=constants.LOOK, z=1.64, margin=0.005)
            found += [usual, look, replace(look, alert=f"{name}:paired", kind="paired", at_least=True)]
    return found


def _live(metrics: Collection[str]) -> list[Watch]:
    watch = Watch("", "", constants.LOOK, at_least=False, kind="baseline", z=2.3, margin=0.01)
    up = ("compliance", "citation_scope", "coverage")
    found = [replace(watch, alert=f"{name}:look", metric=name, at_least=name in up) for name in LIVE if name in metrics]
    if "refusal_rate" in metrics:
        found.append(replace(watch, alert="refusal_rate:look", metric="refusal_rate"))
        found.append(replace(watch, alert="refusal_rate:look-low", metric="refusal_rate", at_least=True))
    return [*found, replace(watch, alert=f"{constants.LATENCY}:look", metric=constants.LATENCY)]
