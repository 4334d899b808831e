"""Two runs over the same gold items, paired item by item."""

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
    """Where a gate found its gold items."""

    pipeline: str
    source: str
    gold: str
    slice: str


@dataclass(frozen=True)
class EvaluatedRun:
    """A run and what its gates came to.

    Attributes:
        items: What its gold items did.
        outcomes: Its gates.
    """

    items: Mapping[GoldLocation, Table]
    outcomes: Sequence[Outcome]


@dataclass(frozen=True)
class Flip:
    """A gold item that scores differently from the baseline.

    Attributes:
        qid: The item.
        before, after: Its mean score then and now.
    """

    qid: str
    before: float
    after: float


@dataclass(frozen=True)
class Drop:
    """How a gate's metric moved against the baseline.

    Attributes:
        gate: The gate.
        before, after: The metric then and now; over the items both runs hold where `items` is known.
        items: Items both runs assessed; None where the values were compared as they stand.
        flips: Those of them that changed.
    """

    gate: Gate
    before: float
    after: float
    items: int | None = None
    flips: tuple[Flip, ...] = ()

    @property
    def drop(self) -> float:
        """How much worse it became; negative when it became better."""
        return self.before - self.after if self.gate.at_least else self.after - self.before


def items_of(state: State) -> dict[GoldLocation, Table]:
    """What every gold item of a state did, over all builds and gold versions."""
    found: dict[GoldLocation, Table] = {}
    for key, series in state.series.items():
        if key.gold and key.drawn:
            held = found.setdefault(GoldLocation(key.pipeline, key.source, key.gold, key.slice), {})
            for table in series.items.all():
                add_table(held, table)
    return found


def compare(before: EvaluatedRun, after: EvaluatedRun, table: ScoreTable) -> list[Drop]:
    """How every gate moved: item by item where both runs judged it on a gold set, else by its values.

    Args:
        before: The baseline.
        after: The run in question.
        table: The metrics.

    Returns:
        One entry per gate that has a value in both runs.
    """
    then = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in before.outcomes}
    found = []
    for now in after.outcomes:
        earlier = then.get((now.gate.pipeline, now.gate.name))
        if earlier is not None:
            drop = _paired(before.items.get(_place(earlier)), after.items.get(_place(now)), now.gate, table)
            drop = drop or by_value(now, earlier.value)
            if drop is not None:
                found.append(drop)
    return found


def by_value(now: Outcome, before: float | None) -> Drop | None:
    """The gate's value against an earlier one; None where one of them is unknown, or is no share."""
    if before is None or now.value is None or now.gate.kind != "threshold":
        return None
    return Drop(now.gate, before, now.value)


def _place(outcome: Outcome) -> GoldLocation:
    return GoldLocation(outcome.gate.pipeline, outcome.source, outcome.gold, outcome.gate.where)


def _paired(then: Table | None, now: Table | None, gate: Gate, table: ScoreTable) -> Drop | None:
    """The gate's metric over the items of both runs; None where it is not known item by item."""
    metric = table.metrics.get(gate.metric)
    if then is None or now is None or metric is None or metric.measured:
        return None
    place = list(table.metrics).index(gate.metric)
    shared = sorted(then.keys() & now.keys())
    olds = [item_sums(table, then[qid], place) for qid in shared]
    news = [item_sums(table, now[qid], place) for qid in shared]
    before, after = _mean(olds), _mean(news)
    if before is None or after is None:
        return None
    means = [(qid, _mean([old]), _mean([new])) for qid, old, new in zip(shared, olds, news, strict=True)]
    assessed = [Flip(qid, old, new) for qid, old, new in means if old is not None and new is not None]
    flips = tuple(flip for flip in assessed if flip.before != flip.after)
    return Drop(gate, before, after, len(assessed), flips)


def _mean(sums: Sequence[tuple[int, int]]) -> float | None:
    """The mean score over `(n, sum in micro-units)` pairs."""
    n = sum(count for count, _ in sums)
    return sum(total for _, total in sums) / (n * MICRO) if n else None
