"""Two runs over the same gold items, paired item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragmon.facts import Key
from ragmon.gates import Gate
from ragmon.rows import add_counts
from ragmon.scores import ScoreTable
from ragmon.stats import MICRO
from ragmon.windows import State

Items = Mapping[tuple[str, str], Mapping[Key, int]]
"""Facts by pipeline and qid."""


@dataclass(frozen=True)
class Flip:
    """A gold item that answers differently from the baseline.

    Attributes:
        gate: The gate whose metric changed.
        qid: The item.
        before, after: Its mean score then and now.
    """

    gate: str
    qid: str
    before: float
    after: float


@dataclass(frozen=True)
class Drop:
    """How a gate's metric moved against the baseline.

    Attributes:
        gate: The gate.
        before, after: The metric then and now; over the items both runs hold where `items` is known.
        items: Items both runs assessed; None where the baseline is a report and holds no items.
        flips: The items that changed.
    """

    gate: Gate
    before: float
    after: float
    items: int | None
    flips: tuple[Flip, ...]

    @property
    def drop(self) -> float:
        """How much worse it became; negative when it became better."""
        return self.before - self.after if self.gate.at_least else self.after - self.before


def items_of(state: State) -> dict[tuple[str, str], dict[Key, int]]:
    """The facts of every gold item of a state, whichever way its records came."""
    found: dict[tuple[str, str], dict[Key, int]] = {}
    for key, series in state.series.items():
        if key.slice:
            continue
        for table in series.items.all():
            for qid, facts in table.items():
                add_counts(found.setdefault((key.pipeline, qid), {}), facts)
    return found


def paired(before: State, after: State, table: ScoreTable, gates: Sequence[Gate]) -> list[Drop]:
    """Compare two runs on the items both of them assessed.

    Args:
        before: The baseline.
        after: The run in question.
        table: The metrics.
        gates: Whose metrics are compared; those without gold metrics are left out.
    """
    then, now = items_of(before), items_of(after)
    return [drop for gate in gates if (drop := _pair(gate, then, now, table)) is not None]


def _pair(gate: Gate, then: Items, now: Items, table: ScoreTable) -> Drop | None:
    metric = table.metrics.get(gate.metric)
    if metric is None or not metric.needs_gold:
        return None
    place = list(table.metrics).index(gate.metric)
    sums = [0.0, 0, 0.0, 0]
    flips, pairs = [], 0
    for key in sorted(then.keys() & now.keys()):
        if key[0] != gate.pipeline:
            continue
        old, new = _mean(then[key], place, table), _mean(now[key], place, table)
        sums[0] += old[0]
        sums[1] += old[1]
        sums[2] += new[0]
        sums[3] += new[1]
        if old[1] and new[1]:
            pairs += 1
            if old[0] / old[1] != new[0] / new[1]:
                flips.append(Flip(gate.name, key[1], old[0] / old[1], new[0] / new[1]))
    if not (sums[1] and sums[3]):
        return None
    return Drop(gate, sums[0] / sums[1], sums[2] / sums[3], pairs, tuple(flips))


def _mean(facts: Mapping[Key, int], place: int, table: ScoreTable) -> tuple[float, int]:
    """Sum of scores and denominator of one item."""
    scored = [(score, n) for key, n in facts.items() if isinstance(score := table.scores(key)[place], int)]
    return sum(score * n for score, n in scored) / MICRO, sum(n for _, n in scored)
