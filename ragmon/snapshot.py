"""What readers read: the metrics of every series and window at one moment, immutable."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from ragmon import stats
from ragmon.facts import Key
from ragmon.names import ALL_CALLS, EXPORTED_TRAFFIC, GONE, LIVE, UNKNOWN_WEIGHT
from ragmon.rows import Row
from ragmon.scores import ScoreTable, Stat
from ragmon.stats.strata import Estimate
from ragmon.tables import Table, add_table
from ragmon.traffic import Count, by_stratum
from ragmon.weighting import weighted
from ragmon.windows import SeriesKey, State

SLACK: Final = 1.25
FEW: Final = 20
"""Records and what their producers say they kept may differ by a quarter and twenty: reports are ten seconds late."""
ALL: Final = "all"
"""The window that holds everything counted so far."""


@dataclass(frozen=True)
class SeriesStats:
    """One series over one window.

    Attributes:
        pipeline, source, slice: Which requests.
        gold, gold_version: Which gold set; "" for all requests.
        window: Its name, `all` for everything.
        metrics: By metric key.
        latency: By stage, log-bucket counts of milliseconds.
        clusters: For gated metrics of a gold set, `(n, sum of scores)` of every gold item; those that are measured on
            the text are not kept item by item.
        traced: How many distinct gold items were seen.
        records: How many records were counted.
        end: Where the window ends, seconds since the epoch, when windows at several moments stand side by side.
        estimates: For user traffic whose calls were all counted, the metrics over all of them, weighted by stratum;
            elsewhere empty. `metrics` counts audit members alone.
        of: For user traffic, what its numbers are of: all calls, or exported traffic where nobody counted all.
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
    end: int | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    of: str = ""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval: over all calls where they are known, else over the audit members."""
        weighted = self.estimates.get(metric)
        return weighted if weighted is not None else self.metrics[metric].estimate


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
        maturity: Of labels by the time of their answers, by pipeline: the share of those to come that is here, where
            it is known.
        matched: Audit members of user traffic that have a gold item, by pipeline and how it was found.
        gone: Over all time, the series of pipelines that were given up, together: for sums that name no pipeline.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()
    maturity: Mapping[str, float] = field(default_factory=dict)
    matched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[SeriesStats, ...] = ()

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels.

        Args:
            pipeline: Whose requests.
            source: Of which source.
            window: The window's name.
            gold: The gold set; "" for all requests, None for the gold set that has the most records.
            where: The slice.

        Returns:
            The series, None where there is none; of a gold set that is in use only its present version.
        """
        versions = {gold.name: gold.version for gold in self.golds}
        found = [
            s
            for s in self.series
            if (s.pipeline, s.source, s.window, s.slice) == (pipeline, source, window, where)
            and (s.gold == gold if gold is not None else s.gold != "")
            and s.gold_version == versions.get(s.gold, s.gold_version)
        ]
        return max(found, key=lambda s: s.records, default=None)


class _Group(NamedTuple):
    """Series that are read together: those of all gold sets, builds and strata."""

    pipeline: str
    source: str
    slice: str


@dataclass
class _Part:
    """What was counted for one gold set of a group, or without any."""

    row: Row = field(default_factory=Row)
    items: Table = field(default_factory=dict)


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
    groups: dict[_Group, list[SeriesKey]] = {}
    for key in sorted(state.series):
        groups.setdefault(_Group(key.pipeline, key.source, key.slice), []).append(key)
    found: list[SeriesStats] = []
    gone: list[SeriesStats] = []
    for group, keys in groups.items():
        for window, span in windows.items():
            parts = _parts(state, keys, span, now)
            traffic = _traffic(state, keys, group, span, now, table)
            read = gone if group.pipeline == GONE else found
            read += _read(parts, table, group, window, gated, traffic)
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    matched = {(pipeline, how): n for (pipeline, how), n in state.matched.items() if pipeline != GONE}
    return Snapshot(now, tuple(found), tuple(golds), tuple(builds), needs_gold, matched=matched, gone=tuple(gone))


def _parts(state: State, keys: Sequence[SeriesKey], span: int | None, now: float) -> dict[tuple[str, str], _Part]:
    """What one window holds, by gold set and version.

    Counts are of audit members alone: a call kept for its outcome says nothing about how common the outcome is.
    """
    parts = {("", ""): _Part()}
    for key in (key for key in keys if key.drawn):
        part = parts.setdefault((key.gold, key.gold_version), _Part())
        series = state.series[key]
        for row in state.window(series, span, now):
            part.row.merge(row)
        for items in state.items(series, span, now):
            add_table(part.items, items)
    return parts


class _Traffic(NamedTuple):
    """What is known of the calls behind a group's records."""

    of: str = ""
    estimates: Mapping[str, Estimate] = MappingProxyType({})


def _traffic(
    state: State, keys: Sequence[SeriesKey], group: _Group, span: int | None, now: float, table: ScoreTable
) -> _Traffic:
    """What is known of all calls of user traffic: no estimates where nobody counted them, or all were drawn alike."""
    if group.source != LIVE:
        return _Traffic()
    rows: dict[str, Row] = {}
    for key in keys:
        for row in state.window(state.series[key], span, now):
            rows.setdefault(key.stratum, Row()).merge(row)
    records = sum(row.count for stratum, row in rows.items() if stratum != UNKNOWN_WEIGHT)
    calls = _calls(state, group, span, now, records)
    kept = sum(count.kept for count in calls.values())
    if not calls or records > SLACK * kept + FEW:  # the rest comes from producers that tell nothing
        return _Traffic(EXPORTED_TRAFFIC)
    if group.slice or len({*calls, *rows}) == 1:
        return _Traffic(ALL_CALLS)
    return _Traffic(ALL_CALLS, weighted(rows, {stratum: count.calls for stratum, count in calls.items()}, table))


def _calls(state: State, group: _Group, span: int | None, now: float, records: int) -> dict[str, Count]:
    """All calls behind a group's records, by stratum.

    A trace log that was cut holds fewer records than its producers kept by then: what they counted before its first
    report belongs to an earlier one.
    """
    if span is not None:
        return by_stratum(state.totals(span, now), group.pipeline, group.source)
    calls = by_stratum(state.calls.whole(), group.pipeline, group.source)
    if not group.slice and sum(count.kept for count in calls.values()) > SLACK * records + FEW:
        return by_stratum(state.calls.since(None, inf), group.pipeline, group.source)
    return calls


def _read(
    parts: Mapping[tuple[str, str], _Part],
    table: ScoreTable,
    group: _Group,
    window: str,
    gated: Collection[str],
    traffic: _Traffic,
) -> Iterator[SeriesStats]:
    """The series of a group: one over every request, and one per gold set version over its requests alone."""
    whole = Row()
    for part in parts.values():
        whole.merge(part.row)
    for (gold, version), part in sorted(parts.items()):
        row = part.row if gold else whole
        if row.count or (traffic.estimates and not gold):
            yield SeriesStats(
                pipeline=group.pipeline,
                source=group.source,
                gold=gold,
                gold_version=version,
                window=window,
                slice=group.slice,
                metrics=MappingProxyType(table.of(row) if gold else _over_all(whole, part.row, table)),
                latency=MappingProxyType(row.latency),
                clusters=MappingProxyType(_clusters(table, part.items, gated) if gold else {}),
                traced=len(part.items),
                records=row.count,
                estimates={} if gold else traffic.estimates,
                of=traffic.of,
            )


def _over_all(whole: Row, without_gold: Row, table: ScoreTable) -> dict[str, Stat]:
    """The metrics over all requests. Gold sets are never pooled: what needs gold counts those without a gold item."""
    everything, rest = table.of(whole), table.of(without_gold)
    return {name: rest[name] if metric.needs_gold else everything[name] for name, metric in table.metrics.items()}


def _clusters(
    table: ScoreTable, items: Mapping[str, Mapping[Key, int]], gated: Collection[str]
) -> dict[str, list[tuple[int, float]]]:
    """Per gated metric, `(n, sum of scores)` of every item that is in its denominator."""
    wanted = [(i, m.key) for i, m in enumerate(table.metrics.values()) if m.key in gated and not m.measured]
    found: dict[str, list[tuple[int, float]]] = {name: [] for _, name in wanted}
    for facts in items.values():
        for place, name in wanted:
            n, total = item_sums(table, facts, place)
            if n:
                found[name].append((n, total / stats.MICRO))
    return found


def item_sums(table: ScoreTable, facts: Mapping[Key, int], place: int) -> tuple[int, int]:
    """How often an item is in a metric's denominator, and the sum of its scores there, in micro-units.

    Args:
        table: The metrics.
        facts: What was seen of the item.
        place: The metric's place in the table.
    """
    scored = [(score, n) for key, n in facts.items() if isinstance(score := table.scores(key)[place], int)]
    return sum(n for _, n in scored), sum(score * n for score, n in scored)
