"""What was counted of one build or one index, and how often each score of a metric occurs in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from ragmon import stats
from ragmon.errors import UnknownNameError
from ragmon.rows import Row
from ragmon.scores import ScoreTable
from ragmon.snapshot import ALL, GoldInfo, SeriesStats, Snapshot, take
from ragmon.stats import betting
from ragmon.windows import State

By = Literal["build", "index_hash"]
"""What tells two releases apart."""


def part(state: State, by: By, name: str) -> State:
    """What was counted of one build or index. The series are shared with the whole: they are for reading.

    Args:
        state: What was counted.
        by: What tells them apart.
        name: Which build or index.

    Raises:
        UnknownNameError: No record carries it.
    """
    known = {getattr(key, by) for key in state.series} - {""}
    if name not in known:
        raise UnknownNameError(by.replace("_", " "), name, known)
    kept = State(retention=state.retention, timed_items=state.timed_items)
    kept.newest = state.newest
    kept.series = {key: series for key, series in state.series.items() if getattr(key, by) == name}
    return kept


def look(state: State, table: ScoreTable, golds: Sequence[GoldInfo], gated: Collection[str]) -> Snapshot:
    """Everything that was counted, as one window."""
    return take(state, table, now=state.newest, windows={ALL: None}, golds=golds, gated=gated)


def scores(state: State, table: ScoreTable, series: SeriesStats, metric: str) -> dict[float, float]:
    """How often each score of a metric occurs in a series.

    Of scores that were measured on the text sums are kept: ones and zeros stand for them.

    Args:
        state: What was counted.
        table: The metrics.
        series: Which requests.
        metric: The metric's key.
    """
    found: Counter[int] = Counter()
    n = total = 0
    for row in _rows(state, table, series, metric):
        for score, count in _of_cells(row, table, metric):
            found[score] += count
        for sums in _of_sums(row, table, metric):
            n, total = n + sums[0], total + sums[1]
    seen = {score / stats.MICRO: float(count) for score, count in found.items()}
    for x, share in betting.shares(total / stats.MICRO, n).items():
        seen[x] = seen.get(x, 0.0) + share
    return seen


def _of_cells(row: Row, table: ScoreTable, metric: str) -> Iterator[tuple[int, int]]:
    """The scores that follow from facts, in micro-units, and how often each occurs."""
    place = list(table.metrics).index(metric)
    if not table.metrics[metric].measured:
        for key, count in row.cells.items():
            score = table.scores(key)[place]
            if isinstance(score, int):
                yield score, count


def _of_sums(row: Row, table: ScoreTable, metric: str) -> Iterator[Sequence[int]]:
    """The sums of scores that were measured, and of those a full row spilled."""
    place = list(table.metrics).index(metric)
    for key, sums in row.measures.get(metric, {}).items():
        if isinstance(table.scores(key)[place], int):
            yield sums
    if metric in row.spill:
        yield row.spill[metric]


def _rows(state: State, table: ScoreTable, series: SeriesStats, metric: str) -> Iterator[Row]:
    """The rows a series was read from. What needs gold is never pooled over gold sets."""
    pooled = not series.gold and not table.metrics[metric].needs_gold
    for key, held in state.series.items():
        if (key.pipeline, key.source, key.slice, key.audit) != (series.pipeline, series.source, series.slice, True):
            continue
        if pooled or (key.gold, key.gold_version) == (series.gold, series.gold_version):
            yield from state.window(held, None, state.newest)


def item_means(clusters: Sequence[tuple[int, float]]) -> dict[float, float]:
    """How often each mean score of a gold item occurs: items are the observations, however often they were asked."""
    return dict(Counter(total / n for n, total in clusters))
