"""The comparison of a run with a baseline, paired by gold item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragmon.core.policy import Gate, Outcome
from ragmon.scoring.counts import Table, add_table
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import item_sums
from ragmon.scoring.windows import State
from ragmon.stats import MICRO


class GoldLocation(NamedTuple):
    """The pipeline, source, gold set and slice of a gate's gold items."""

    pipeline: str
    source: str
    gold: str
    slice: str


@dataclass(frozen=True)
class EvaluatedRun:
    """A run and the outcomes of its gates.

    Attributes:
        items: The counts of its gold items.
        outcomes: The outcomes of its gates.
    """

    items: Mapping[GoldLocation, Table]
    outcomes: Sequence[Outcome]


@dataclass(frozen=True)
class Flip:
    """A gold item whose score differs from the baseline's.

    Attributes:
        qid: The item.
        before, after: Its mean score in the baseline and in the run.
    """

    qid: str
    before: float
    after: float


@dataclass(frozen=True)
class Drop:
    """The change of a gate's metric against the baseline.

    Attributes:
        gate: The gate.
        before, after: The metric in the baseline and in the run; over the items of both runs where `items` is not None.
        items: Items that both runs assessed; None where the gate's values were compared.
        flips: Those of them whose scores differ.
    """

    gate: Gate
    before: float
    after: float
    items: int | None = None
    flips: tuple[Flip, ...] = ()

    @property
    def drop(self) -> float:
        """How much worse the metric became; negative if it became better."""
        return self.before - self.after if self.gate.at_least else self.after - self.before


def items_of(state: State) -> dict[GoldLocation, Table]:
    """The counts of every gold item, over all builds and gold versions."""
    tables: dict[GoldLocation, Table] = {}
    for key, series in state.series.items():
        if key.gold and key.drawn:
            merged = tables.setdefault(GoldLocation(key.pipeline, key.source, key.gold, key.slice), {})
            for table in series.items.all():
                add_table(merged, table)
    return tables


def compare(before: EvaluatedRun, after: EvaluatedRun, table: ScoreTable) -> list[Drop]:
    """Compare the metric of every gate: by item where both runs judged it on a gold set, else by its value.

    Args:
        before: The baseline.
        after: The run to compare.
        table: The metrics.

    Returns:
        One entry per gate that has a value in both runs.
    """
    baseline = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in before.outcomes}
    drops = []
    for outcome in after.outcomes:
        previous = baseline.get((outcome.gate.pipeline, outcome.gate.name))
        if previous is not None:
            drop = _paired(before.items.get(_place(previous)), after.items.get(_place(outcome)), outcome.gate, table)
            drop = drop or by_value(outcome, previous.value)
            if drop is not None:
                drops.append(drop)
    return drops


def by_value(now: Outcome, before: float | None) -> Drop | None:
    """The change of a gate's value; None where a value is unknown or the gate is not on a share."""
    if before is None or now.value is None or now.gate.kind != "threshold":
        return None
    return Drop(now.gate, before, now.value)


def _place(outcome: Outcome) -> GoldLocation:
    return GoldLocation(outcome.gate.pipeline, outcome.source, outcome.gold, outcome.gate.where)


def _paired(baseline: Table | None, run: Table | None, gate: Gate, table: ScoreTable) -> Drop | None:
    """The gate's metric over the items of both runs; None where scores are not kept by item."""
    metric = table.metrics.get(gate.metric)
    if baseline is None or run is None or metric is None or metric.measured:
        return None
    place = list(table.metrics).index(gate.metric)
    shared = sorted(baseline.keys() & run.keys())
    sums_before = [item_sums(table, baseline[qid], place) for qid in shared]
    sums_after = [item_sums(table, run[qid], place) for qid in shared]
    before, after = _mean(sums_before), _mean(sums_after)
    if before is None or after is None:
        return None
    means = [(qid, _mean([old]), _mean([new])) for qid, old, new in zip(shared, sums_before, sums_after, strict=True)]
    assessed = [Flip(qid, old, new) for qid, old, new in means if old is not None and new is not None]
    flips = tuple(flip for flip in assessed if flip.before != flip.after)
    return Drop(gate, before, after, len(assessed), flips)


def _mean(sums: Sequence[tuple[int, int]]) -> float | None:
    """The mean score over `(n, sum in micro-units)` pairs."""
    n = sum(count for count, _ in sums)
    return sum(total for _, total in sums) / (n * MICRO) if n else None
