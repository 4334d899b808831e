"""Baselines as a file: those of a release run, taken as they are instead of being learned in production.

What the alarms of one pipeline are told: what to guard, how long to learn, which index is one too many.
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
    """What one metric was.

    Attributes:
        n: Observations.
        mean: Their mean, for people.
        total: The sum of their scores, in [0, n].
        p95: For the latency, where slow begins, in milliseconds.
    """

    n: Natural
    mean: Share
    total: Annotated[float, msgspec.Meta(ge=0)]
    p95: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if not self.total <= self.n:
            raise ValueError(f"total {self.total} is more than n {self.n}")


class FrozenPipeline(msgspec.Struct, forbid_unknown_fields=True):
    """What one pipeline was.

    Attributes:
        metrics: By what is compared with them.
        golds: The version of each gold set, by source.
        first: By metric and gold item, its first score in micro-units.
    """

    metrics: dict[str, FrozenMetric]
    golds: dict[str, dict[str, str]] = {}
    first: dict[str, dict[str, Natural]] = {}

    def __post_init__(self) -> None:
        took = self.metrics.get(constants.LATENCY)
        if took is not None and took.p95 is None:
            raise ValueError("the latency has no p95")


def freeze(
    baselines: Mapping[str, Baseline], latency: LatencyBaseline, selector: ObservationSelector
) -> dict[str, Any]:
    """What a pipeline was, as plain JSON data.

    Args:
        baselines: By what is compared with them; those too little was seen of are left out, and will be learned.
        latency: The baseline of the latency.
        selector: What every gold item did first.
    """
    known: dict[str, Any] = {
        name: _one(one.n, one.total) for name, one in sorted(baselines.items()) if one.n >= one.enough
    }
    if latency.p95 is not None:
        known[constants.LATENCY] = {**_one(latency.share.n, latency.share.total), "p95": latency.p95}
    return {
        "metrics": known,
        "golds": selector.golds,
        "first": {name: held for name, held in selector.first.items() if held},
    }


def _one(n: int, total: float) -> dict[str, Any]:
    return {"n": n, "mean": round(total / n, 6), "total": total}


def restore_baseline(
    frozen: FrozenPipeline | None,
    baselines: Mapping[str, Baseline],
    latency: LatencyBaseline,
    selector: ObservationSelector,
) -> None:
    """Put what `freeze` wrote in the place of what would be learned; what it does not know is learned."""
    if frozen is None:
        return
    for name, one in frozen.metrics.items():
        if name == constants.LATENCY and one.p95 is not None:
            latency.give(one.p95, one.n, one.total)
        elif name in baselines and one.n:
            baselines[name].give(one.n, one.total)
    selector.given = {gold: held for golds in frozen.golds.values() for gold, held in golds.items()}
    selector.first = {name: dict(held) for name, held in frozen.first.items()}


def fingerprint(frozen: FrozenPipeline | None) -> str:
    """What tells one given baseline from another; "" where there is none."""
    return "" if frozen is None else version(msgspec.to_builtins(frozen))


def version(pipelines: object) -> str:
    """The fingerprint by which a baseline is named.

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
    """An alarm on the indexes under one build.

    Args:
        limit: So many are right.
        alert, severity: How the alarm on more is called, and how urgent it is.
    """

    limit: int = 1
    alert: str = INDEX_ALERT
    severity: str = constants.TICKET


@dataclass(frozen=True)
class AlarmTerms:
    """What holds for one pipeline.

    Args:
        watches: What is guarded.
        learn: Minutes of traffic before a baseline is used.
        given: What a release run was; None: everything is learned.
        cluster: What makes one observation of several requests.
        indexes: How many indexes under one build are right, and what is raised where there are more.
    """

    watches: Sequence[AlarmRule]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    cluster: Collection[str] = CLUSTER
    indexes: Sequence[IndexTerms] = (IndexTerms(),)


def index_terms(gates: Sequence[Gate]) -> tuple[IndexTerms, ...]:
    """What declared gates on distinct indexes say; without one, a second index is a ticket."""
    declared = [gate for gate in gates if gate.kind == "distinct"]
    return tuple(IndexTerms(int(gate.threshold), gate.name, gate.severity) for gate in declared) or (IndexTerms(),)
