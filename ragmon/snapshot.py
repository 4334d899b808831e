"""What readers read: the metrics of every series and window at one moment, immutable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ragmon import stats
from ragmon.errors import Unassessed
from ragmon.facts import Facts, Key
from ragmon.metrics.base import Metric
from ragmon.rows import Row
from ragmon.tables import Table, add_table
from ragmon.windows import SeriesKey, State

ALL: Final = "all"
"""The window that holds everything counted so far."""
_MEMO: Final = 65_536

Score = int | str | None
"""Micro-units, the reason it is unknown, or None: not in the denominator."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A mean and what stands behind it.

    Attributes:
        n: Requests in the denominator.
        sum: Sum of their scores in micro-units.
        squares: Sum of the squares.
        unassessed: Requests that belong in it but could not be scored, by reason.
    """

    n: int = 0
    sum: int = 0
    squares: int = 0
    unassessed: Mapping[str, int] = field(default_factory=dict)

    @property
    def value(self) -> float | None:
        """The mean; None where nothing was scored: an empty denominator is no data, never 0 or 1."""
        return self.sum / (self.n * stats.MICRO) if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the mean; None where nothing was scored."""
        return stats.wilson(self.sum / stats.MICRO, self.n) if self.n else None


@dataclass(frozen=True)
class SeriesStats:
    """One series over one window.

    Attributes:
        pipeline, source, slice: Which requests.
        gold, gold_version: Which gold set; "" for all requests.
        window: Its name, `all` for everything.
        metrics: By metric key.
        latency: By stage, log-bucket counts of milliseconds.
        clusters: For gated gold metrics, `(n, sum of scores)` of every gold item.
        traced: How many distinct gold items were seen.
        records: How many records were counted.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    slice: str
    metrics: Mapping[str, Stat]
    latency: Mapping[str, Mapping[int, int]]
    clusters: Mapping[str, Sequence[tuple[int, float]]]
    traced: int
    records: int


@dataclass(frozen=True)
class GoldInfo:
    """A gold set in use."""

    name: str
    version: str
    items: int


@dataclass(frozen=True)
class Snapshot:
    """Everything readers may ask at one moment.

    Attributes:
        now: When it was taken, seconds since the epoch.
        series: All series in all windows.
        golds: The gold sets in use.
        builds: `(pipeline, build, index_hash)` seen, in the order of their names.
        gold_metrics: The metrics that need a gold item.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels; `gold=None` takes the one gold set that has the most records."""
        found = [
            s
            for s in self.series
            if (s.pipeline, s.source, s.window, s.slice) == (pipeline, source, window, where)
            and (s.gold == gold if gold is not None else s.gold != "")
        ]
        return max(found, key=lambda s: s.records, default=None)


class ScoreTable:
    """The scores of facts, computed once for each tuple of facts.

    Args:
        metrics: By key.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = dict(metrics)
        self._memo: dict[Key, tuple[Score, ...]] = {}

    def scores(self, key: Key) -> tuple[Score, ...]:
        """One score per metric, in the order of `metrics`; measured ones say here only whether they apply."""
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            facts = Facts._make(key)
            found = self._memo[key] = tuple(_score(metric, facts) for metric in self.metrics.values())
        return found

    def read(self, rows: Iterable[Row]) -> dict[str, Stat]:
        """Every metric over the sum of the rows."""
        total = Row()
        for row in rows:
            total.merge(row)
        return self.of(total)

    def of(self, row: Row) -> dict[str, Stat]:
        """Every metric of one row."""
        sums = [[0, 0, 0] for _ in self.metrics]
        unassessed: list[dict[str, int]] = [{} for _ in self.metrics]
        measured = [row.measures.get(metric.key) if metric.measured else None for metric in self.metrics.values()]
        is_measured = [metric.measured for metric in self.metrics.values()]
        for key, count in row.cells.items():
            for i, score in enumerate(self.scores(key)):
                if score is None:
                    continue
                if isinstance(score, str):
                    unassessed[i][score] = unassessed[i].get(score, 0) + count
                elif not is_measured[i]:
                    held = sums[i]
                    held[0] += count
                    held[1] += count * score
                    held[2] += count * score * score
                elif (cells := measured[i]) is not None and key in cells:
                    sums[i] = [a + b for a, b in zip(sums[i], cells[key], strict=True)]
        found = {}
        for i, name in enumerate(self.metrics):
            n, total, squares = sums[i]
            for spilled, (count, more, more_squares) in row.spill.items():
                metric, _, reason = spilled.partition("|")
                if metric == name and reason:
                    unassessed[i][reason] = unassessed[i].get(reason, 0) + count
                elif metric == name:
                    n, total, squares = n + count, total + more, squares + more_squares
            found[name] = Stat(n, total, squares, unassessed[i])
        return found

    def spill(self, row: Row, key: Key, measured: Mapping[str, int]) -> None:
        """Add a request to a row that is full: its scores are kept, its facts are not."""
        row.spilled += 1
        for (name, metric), score in zip(self.metrics.items(), self.scores(key), strict=True):
            value = measured.get(name) if metric.measured and isinstance(score, int) else score
            if isinstance(value, str):
                row.spill.setdefault(f"{name}|{value}", [0, 0, 0])[0] += 1
            elif value is not None:
                held = row.spill.setdefault(name, [0, 0, 0])
                held[0] += 1
                held[1] += value
                held[2] += value * value


def _score(metric: Metric, facts: Facts) -> Score:
    try:
        if metric.measured:
            return 1 if metric.applies(facts) else None
        score = metric.score(facts)
    except Unassessed as unknown:
        return unknown.reason
    return None if score is None else stats.micro(score)


def take(
    state: State,
    table: ScoreTable,
    *,
    now: float,
    windows: Mapping[str, int | None],
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
) -> Snapshot:
    """Read a state.

    Args:
        state: What was counted.
        table: The metrics.
        now: Seconds since the epoch.
        windows: Spans in seconds by name; None is everything.
        golds: The gold sets in use.
        gated: Metric keys whose per-item sums gates need.
    """
    groups: dict[tuple[str, str, str], list[SeriesKey]] = {}
    for key in sorted(state.series):
        groups.setdefault((key.pipeline, key.source, key.slice), []).append(key)
    found: list[SeriesStats] = []
    for keys in groups.values():
        for name, span in windows.items():
            found += _group(state, table, keys, name, span, now, gated)
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    return Snapshot(now, tuple(found), tuple(golds), tuple(builds), needs_gold)


def _group(
    state: State,
    table: ScoreTable,
    keys: Sequence[SeriesKey],
    window: str,
    span: int | None,
    now: float,
    gated: Collection[str],
) -> list[SeriesStats]:
    """All series of one pipeline, source and slice: one over every request, one per gold set version.

    In the first, metrics without gold count all requests; in a gold set's, all metrics count its requests alone.

    Estimates read audit members alone: a call kept for its outcome says nothing about how common the outcome is.
    """
    by_gold: dict[tuple[str, str], Row] = {("", ""): Row()}
    traced: dict[tuple[str, str], Table] = {}
    for key in (k for k in keys if k.audit):
        series = state.series[key]
        row = by_gold.setdefault((key.gold, key.gold_version), Row())
        for part in state.window(series, span, now):
            row.merge(part)
        items = traced.setdefault((key.gold, key.gold_version), {})
        for seen in state.items(series, span, now):
            add_table(items, seen)
    whole = Row()
    for row in by_gold.values():
        whole.merge(row)
    first = keys[0]
    result = []
    for (gold, version), row in sorted(by_gold.items()):
        stats_of = table.of(row)
        counted = row if gold else whole
        if not gold:
            free = table.of(whole)
            stats_of = {n: stats_of[n] if table.metrics[n].needs_gold else free[n] for n in stats_of}
        if not counted.count:
            continue
        items = traced.get((gold, version), {})
        result.append(
            SeriesStats(
                pipeline=first.pipeline,
                source=first.source,
                gold=gold,
                gold_version=version,
                window=window,
                slice=first.slice,
                metrics=MappingProxyType(stats_of),
                latency=MappingProxyType(counted.latency),
                clusters=_clusters(table, items, gated) if gold else {},
                traced=len(items),
                records=counted.count,
            )
        )
    return result


def _clusters(
    table: ScoreTable, items: Mapping[str, Mapping[Key, int]], gated: Collection[str]
) -> dict[str, list[tuple[int, float]]]:
    """Per gated metric, `(n, sum of scores)` of every item."""
    wanted = [(i, name) for i, name in enumerate(table.metrics) if name in gated]
    found: dict[str, list[tuple[int, float]]] = {name: [] for _, name in wanted}
    for facts in items.values():
        scored = [(table.scores(key), count) for key, count in facts.items()]
        for i, name in wanted:
            known = [(scores[i], count) for scores, count in scored]
            pairs = [(score, count) for score, count in known if isinstance(score, int)]
            if pairs:
                found[name].append((sum(n for _, n in pairs), sum(s * n for s, n in pairs) / stats.MICRO))
    return found
