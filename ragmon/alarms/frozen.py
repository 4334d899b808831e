"""Frozen baselines and alarm settings.

A baseline file holds the baselines of a release run; they are used as they are instead of being learned in production.
`AlarmTerms` holds the alarm settings of one pipeline: its rules, the learning time, and how many indexes are allowed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from ragmon.alarms.baselines import Baseline, LatencyBaseline
from ragmon.alarms.observations import ObservationSelector
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.scoring.minutes import CLUSTER

VERSION: Final = 1
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
SHOWN: Final = 8
"""Hex digits of a baseline's version."""


class FrozenMetric(msgspec.Struct, forbid_unknown_fields=True):
    """The baseline of one metric.

    Attributes:
        n: The number of observations.
        mean: Their mean, for human readers.
        total: The sum of their scores, in [0, n].
        p95: For the latency: the limit above which a request is slow, in milliseconds.
    """

    n: Natural
    mean: Share
    total: Annotated[float, msgspec.Meta(ge=0)]
    p95: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if not self.total <= self.n:
            raise ValueError(f"total {self.total} is more than n {self.n}")


class FrozenPipeline(msgspec.Struct, forbid_unknown_fields=True):
    """The baselines of one pipeline.

    Attributes:
        metrics: By baseline name.
        golds: The version of each gold set, by source.
        first: By metric and gold item, its first score in micro-units.
    """

    metrics: dict[str, FrozenMetric]
    golds: dict[str, dict[str, str]] = {}
    first: dict[str, dict[str, Natural]] = {}

    def __post_init__(self) -> None:
        latency = self.metrics.get(constants.LATENCY)
        if latency is not None and latency.p95 is None:
            raise ValueError("the latency has no p95")


def freeze(
    baselines: Mapping[str, Baseline], latency: LatencyBaseline, selector: ObservationSelector
) -> dict[str, Any]:
    """The baselines of a pipeline as plain JSON data.

    Args:
        baselines: By name; those with too few observations are left out, and will be learned.
        latency: The baseline of the latency.
        selector: Holds the first score of every gold item.
    """
    metrics: dict[str, Any] = {
        name: _metric(baseline.n, baseline.total)
        for name, baseline in sorted(baselines.items())
        if baseline.n >= baseline.enough
    }
    if latency.p95 is not None:
        metrics[constants.LATENCY] = {**_metric(latency.share.n, latency.share.total), "p95": latency.p95}
    return {
        "metrics": metrics,
        "golds": selector.golds,
        "first": {name: scores for name, scores in selector.first.items() if scores},
    }


def _metric(n: int, total: float) -> dict[str, Any]:
    return {"n": n, "mean": round(total / n, 6), "total": total}


def restore_baseline(
    frozen: FrozenPipeline | None,
    baselines: Mapping[str, Baseline],
    latency: LatencyBaseline,
    selector: ObservationSelector,
) -> None:
    """Replace baselines by those that `freeze` wrote; the others are learned."""
    if frozen is None:
        return
    for name, metric in frozen.metrics.items():
        if name == constants.LATENCY and metric.p95 is not None:
            latency.give(metric.p95, metric.n, metric.total)
        elif name in baselines and metric.n:
            baselines[name].give(metric.n, metric.total)
    selector.given = {gold: gold_version for golds in frozen.golds.values() for gold, gold_version in golds.items()}
    selector.first = {name: dict(scores) for name, scores in frozen.first.items()}


def fingerprint(frozen: FrozenPipeline | None) -> str:
    """The version of a frozen baseline; "" where there is none."""
    return "" if frozen is None else version(msgspec.to_builtins(frozen))


def version(pipelines: object) -> str:
    """The version of a baseline file: a hash of its content.

    >>> version({})
    '44136fa3'
    """
    canonical = json.dumps(pipelines, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:SHOWN]


LEARN: Final = 60
"""Minutes of traffic before a baseline is used."""
INDEX_ALERT: Final = f"{constants.INDEX_HASH}:drift"


@dataclass(frozen=True)
class IndexTerms:
    """An alarm on the number of indexes under one build.

    Args:
        limit: The number of indexes that is allowed.
        alert, severity: The name and severity of the alarm.
    """

    limit: int = 1
    alert: str = INDEX_ALERT
    severity: str = constants.TICKET


@dataclass(frozen=True)
class AlarmTerms:
    """The alarm settings of one pipeline.

    Args:
        watches: The alarm rules.
        learn: Minutes of traffic before a baseline is used.
        given: The baselines of a release run; None: everything is learned.
        cluster: The fields whose value groups several requests into one observation.
        indexes: The alarms on the number of indexes under one build.
    """

    watches: Sequence[AlarmRule]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    cluster: Collection[str] = CLUSTER
    indexes: Sequence[IndexTerms] = (IndexTerms(),)


def index_terms(gates: Sequence[Gate]) -> tuple[IndexTerms, ...]:
    """The index alarms of declared gates on distinct indexes; without one, a second index is a ticket."""
    declared = [gate for gate in gates if gate.kind == "distinct"]
    return tuple(IndexTerms(int(gate.threshold), gate.name, gate.severity) for gate in declared) or (IndexTerms(),)
