"""Snapshots: the metrics of every series and window at one moment, immutable; and histories of such moments.

Series are read group by group, and what did not change since the last snapshot is not read again. A point of a history
is a window like any other, so it has the value and the interval that a gate would have had then. Where a window lies in
the past, late records are counted in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import inf, isfinite
from types import MappingProxyType
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import (
    ALL_CALLS,
    ALSO_LIVE_SOURCES,
    DROPPED_PIPELINES,
    EXPORTED_TRAFFIC,
    FOLDED,
    HOUR,
    LIVE,
    STEP,
    UNKNOWN_WEIGHT,
)
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.facts import IDS
from ragmon.scoring.buckets import MODEL_SLICE, Bucket, Series, SeriesKey, State, edges, merged
from ragmon.scoring.calls import CallKey, Count, by_stratum
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.windows import Clusters, ItemWindows, Kind, Window, WindowSums, kind_of
from ragmon.stats.strata import Estimate

_ID: Final = re.compile(r"[0-9a-f]{32}")


class Exemplar(NamedTuple):
    """An exemplar of a latency series.

    Attributes:
        trace_id: 32 hex digits.
        seconds: The latency of its call.
        ts: When it arrived, seconds since the epoch.
    """

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """The newest exemplar by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Keep a record's trace, if it was exported and its latency is known.

        Args:
            record: The record, already counted.
            now: When it arrived, seconds since the epoch.
        """
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def add(self, key: tuple[str, str], exemplar: Exemplar) -> None:
        """Keep an exemplar of a pipeline and source that another process saw, if it is newer.

        Args:
            key: The pipeline and the source.
            exemplar: The exemplar.
        """
        known = self._newest.get(key)
        if known is None or exemplar.ts >= known.ts:
            self._newest[key] = exemplar

    def forget(self, pipeline: str) -> None:
        """Remove the exemplars of a pipeline."""
        self._newest = {key: exemplar for key, exemplar in self._newest.items() if key[0] != pipeline}

    def newest(self) -> dict[tuple[str, str], Exemplar]:
        """The exemplars by pipeline and source."""
        return dict(self._newest)


ALL: Final = "all"
"""The name of the window that holds everything counted so far."""


@dataclass(frozen=True)
class SeriesStats:
    """The statistics of one series over one window.

    Attributes:
        pipeline, source, slice: The key of the series.
        gold, gold_version: Which gold set; "" for all requests.
        window: The name of the window, `all` for everything.
        metrics: The statistics by metric key.
        latency: By stage, log-bucket counts of milliseconds.
        clusters: For gated metrics of a gold set, how many gold items have equal scores; scores measured on text are
            not kept per item.
        traced: How many distinct gold items were seen.
        records: How many records were counted.
        end: The end of the window, seconds since the epoch, where windows of several moments are compared.
        estimates: For live traffic whose calls were all counted, the metrics over all calls, weighted by stratum; empty
            otherwise. `metrics` covers audit members only.
        of: For live traffic, the population of the numbers: all calls, or exported traffic where calls were not all
            counted.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    slice: str
    metrics: Mapping[str, Stat]
    latency: Mapping[str, Mapping[int, int]]
    clusters: Mapping[str, Clusters]
    traced: int
    records: int
    end: int | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    of: str = ""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval: over all calls where known, else over the audit members."""
        estimate = self.estimates.get(metric)
        return estimate if estimate is not None else self.metrics[metric].estimate


@dataclass(frozen=True)
class Snapshot:
    """All series in all windows at one moment.

    Attributes:
        now: When it was taken, seconds since the epoch.
        series: All series in all windows.
        golds: The gold sets in use.
        builds: The known `(pipeline, build, index_hash)`, sorted.
        gold_metrics: The metrics that need a gold item.
        maturity: By pipeline, the share of the expected labels that has arrived, where known.
        matched: Audit members of live traffic that have a gold item, by pipeline and kind of match.
        gone: The series of removed pipelines, summed over all time, for totals that name no pipeline.
        uncited: The number of answers of each pipeline that never cited anything.
        citing_metrics: The metrics that say nothing of such a pipeline.
        strange_ids: The number of retrieved ids of each pipeline of which none ever occurred in gold.
        comparing_metrics: The metrics that say nothing of such a pipeline.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()
    maturity: Mapping[str, float] = field(default_factory=dict)
    matched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[SeriesStats, ...] = ()
    uncited: Mapping[str, int] = field(default_factory=dict)
    citing_metrics: frozenset[str] = frozenset()
    strange_ids: Mapping[str, int] = field(default_factory=dict)
    comparing_metrics: frozenset[str] = frozenset()

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels.

        Args:
            pipeline: The pipeline.
            source: The source.
            window: The window's name.
            gold: The gold set; "" for all requests, None for the gold set with the most records.
            where: The slice.

        Returns:
            The series, None where there is none; for a gold set in use, only its current version.
        """
        versions = {gold.name: gold.version for gold in self.golds}
        candidates = [
            s
            for s in self._by_labels.get((pipeline, source, window, where), ())
            if (s.gold == gold if gold is not None else s.gold != "")
            and s.gold_version == versions.get(s.gold, s.gold_version)
        ]
        return max(candidates, key=lambda s: s.records, default=None)

    @cached_property
    def _by_labels(self) -> Mapping[tuple[str, str, str, str], Sequence[SeriesStats]]:
        """The series by pipeline, source, window and slice."""
        by_labels: dict[tuple[str, str, str, str], list[SeriesStats]] = {}
        for series in self.series:
            by_labels.setdefault((series.pipeline, series.source, series.window, series.slice), []).append(series)
        return by_labels


SLACK: Final = 1.25
FEW: Final = 20
"""Records may differ from the number that producers report as kept by 25 % and 20: reports are ten seconds late."""


def take_snapshot(
    state: State,
    table: ScoreTable,
    *,
    now: float,
    windows: Mapping[str, int | None],
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
    reader: SeriesReader | None = None,
) -> Snapshot:
    """Take a snapshot of a state.

    Args:
        state: The state.
        table: The metrics.
        now: Seconds since the epoch.
        windows: Spans in seconds by name; None is everything.
        golds: The gold sets in use.
        gated: Metrics whose sums per item are needed by gates.
        reader: Remembers what it read before; it has the state, table and gated metrics that are given here.
    """
    reader = SeriesReader(state, table, tuple(gated)) if reader is None else reader
    reader.refresh()
    all_windows = [Window(name, span, now) for name, span in windows.items()]
    totals = [window_totals(state, span, now) for span in windows.values()]
    series: list[SeriesStats] = []
    gone: list[SeriesStats] = []
    for group, keys in reader.groups.items():
        target = gone if group.pipeline == DROPPED_PIPELINES else series
        target += chain.from_iterable(reader.read(group, keys, all_windows, totals))
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    matched = {(pipeline, how): n for (pipeline, how), n in state.matched.items() if pipeline != DROPPED_PIPELINES}
    return Snapshot(
        now,
        tuple(series),
        tuple(golds),
        tuple(builds),
        needs_gold,
        matched=matched,
        gone=tuple(gone),
        uncited={pipeline: answers for pipeline, (answers, citing) in state.answers.items() if not citing},
        citing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.cites),
        strange_ids=state.captured.strange_ids(),
        comparing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.compares_ids),
    )


class _Group(NamedTuple):
    """The key of series that are read together: all gold sets, builds and strata."""

    pipeline: str
    source: str
    slice: str


@dataclass
class _Part:
    """The counts of one gold set of a group, or of requests without gold; its bucket is for reading alone."""

    bucket: Bucket = field(default_factory=Bucket)
    clusters: Mapping[str, Clusters] = field(default_factory=dict)
    traced: int = 0


@dataclass
class _GroupCache:
    """What is kept of a group from one reading to the next.

    Attributes:
        results: The statistics by window, with what they depend on.
        sums: The sums of its buckets.
        items: The items of its gold sets, by name and version.
    """

    results: list[tuple[object, list[SeriesStats]]] = field(default_factory=list)
    sums: WindowSums = field(default_factory=WindowSums)
    items: dict[tuple[str, str], ItemWindows] = field(default_factory=dict)


_Totals = tuple[Mapping[CallKey, Count], Mapping[CallKey, Count]]
"""All calls of a window; and the same since each producer's first report, which differs only for the window of
everything.
"""


class SeriesReader:
    """Reads the groups of a state; caches what did not change since the same windows were read before.

    Args:
        state: The state.
        table: The metrics.
        gated: Metrics whose sums per item are needed by gates.

    Attributes:
        state, gated: The same.
        groups: The keys of the series, by group.
    """

    def __init__(self, state: State, table: ScoreTable, gated: tuple[str, ...]) -> None:
        self.groups: dict[_Group, list[SeriesKey]] = {}
        self._keys: frozenset[SeriesKey] = frozenset()
        self.state = state
        self.gated = gated
        self._table = table
        self._cache: dict[_Group, _GroupCache] = {}

    def refresh(self) -> None:
        """Update the groups; what was cached of removed series is dropped."""
        if self._keys == self.state.series.keys():
            return
        self._keys = frozenset(self.state.series)
        self.groups = {}
        for key in sorted(key for key in self._keys if not key.slice.startswith(MODEL_SLICE)):
            self.groups.setdefault(_Group(key.pipeline, key.source, key.slice), []).append(key)
        self._cache = {group: cached for group, cached in self._cache.items() if group in self.groups}

    def read(
        self, group: _Group, keys: Sequence[SeriesKey], windows: Sequence[Window], totals: Sequence[_Totals]
    ) -> list[list[SeriesStats]]:
        """The statistics of a group by window, given all calls of each window."""
        series = {key: self.state.series[key] for key in keys}
        changed = max(each.changed for each in series.values())
        cached = self._cache.setdefault(group, _GroupCache())
        results: list[tuple[object, list[SeriesStats]]] = []
        buckets: list[dict[Kind, Bucket]] = []
        for place, (window, in_window) in enumerate(zip(windows, totals, strict=True)):
            calls, since = (
                (by_stratum(part, group.pipeline, group.source) if group.source == LIVE else {}) for part in in_window
            )
            cache_key = (changed, window.name, window.begin, window.end, calls, since)
            if place < len(cached.results) and cached.results[place][0] == cache_key:
                results.append(cached.results[place])
                continue
            if not buckets:
                buckets = cached.sums.read(series, windows)
                self._read_items(cached, series, windows)
            parts, strata = _parts(group, keys, cached, (place, window.name), buckets[place])
            traffic = _traffic(group, strata, calls, since, self._table)
            results.append((cache_key, list(_stats_of(parts, self._table, group, window.name, traffic))))
        cached.results = results
        return [window_series for _, window_series in results]

    def _read_items(self, cached: _GroupCache, series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> None:
        """Bring the items of the gold sets of a group up to date."""
        by_gold: dict[tuple[str, str], dict[SeriesKey, Series]] = {}
        for key, each in series.items():
            if key.drawn and key.gold:
                by_gold.setdefault((key.gold, key.gold_version), {})[key] = each
        cached.items = {gold: cached.items.get(gold) or ItemWindows(self._table, self.gated) for gold in by_gold}
        for gold, items in cached.items.items():
            items.read(by_gold[gold], windows)


def _parts(
    group: _Group,
    keys: Sequence[SeriesKey],
    cached: _GroupCache,
    window: tuple[int, str],
    buckets: Mapping[Kind, Bucket],
) -> tuple[dict[tuple[str, str], _Part], dict[str, Bucket]]:
    """The counts of one window by gold set and version, and by stratum.

    Parts hold audit members only: a call that was kept for its outcome says nothing about the frequency of the outcome.
    """
    by_gold: dict[tuple[str, str], list[Bucket]] = {("", ""): []}
    by_stratum: dict[str, list[Bucket]] = {}
    for kind in dict.fromkeys(map(kind_of, keys)):
        bucket = buckets.get(kind)
        if kind.drawn:
            by_gold.setdefault((kind.gold, kind.gold_version), []).extend(() if bucket is None else (bucket,))
        if bucket is not None and group.source == LIVE:
            by_stratum.setdefault(kind.stratum, []).append(bucket)
    parts = {gold: _Part(merged(found)) for gold, found in by_gold.items()}
    for gold, items in cached.items.items():
        part = parts.setdefault(gold, _Part())
        part.clusters, part.traced = items.clusters(window), items.traced(window)
    return parts, {stratum: merged(found) for stratum, found in by_stratum.items()}


class _Traffic(NamedTuple):
    """The population of a group's numbers, and the estimates over all calls."""

    of: str = ""
    estimates: Mapping[str, Estimate] = MappingProxyType({})


def _traffic(
    group: _Group,
    buckets: Mapping[str, Bucket],
    calls: Mapping[str, Count],
    since: Mapping[str, Count],
    table: ScoreTable,
) -> _Traffic:
    """What is known of all calls of live traffic.

    There are no estimates where the calls were not all counted, or all had the same sampling probability. A truncated
    trace log holds fewer records than its producers had kept by then: their counts before the first report belong to an
    earlier log.

    Args:
        group: The group.
        buckets: Its records by stratum.
        calls: All its calls by stratum.
        since: Its calls since the first report of each producer; the same as `calls` for a bounded window.
        table: The metrics.
    """
    if group.source != LIVE:
        return _Traffic()
    records = sum(bucket.count for stratum, bucket in buckets.items() if stratum != UNKNOWN_WEIGHT)
    if not group.slice and sum(count.kept for count in calls.values()) > SLACK * records + FEW:
        calls = since
    kept = sum(count.kept for count in calls.values())
    if not calls or records > SLACK * kept + FEW:  # other records come from producers that report no totals
        return _Traffic(EXPORTED_TRAFFIC)
    if group.slice or len({*calls, *buckets}) == 1:
        return _Traffic(ALL_CALLS)
    return _Traffic(ALL_CALLS, weighted(buckets, {stratum: count.calls for stratum, count in calls.items()}, table))


def window_totals(state: State, span: int | None, now: float) -> _Totals:
    """All calls of a window, and those since each producer's first report."""
    if span is None:
        return state.calls.totals(), state.calls.since(None, inf)
    totals = state.calls.since(*edges(span, now))
    return totals, totals


def _stats_of(
    parts: Mapping[tuple[str, str], _Part],
    table: ScoreTable,
    group: _Group,
    window: str,
    traffic: _Traffic,
) -> Iterator[SeriesStats]:
    """The series of a group: one over all requests, and one per gold set version over its requests only."""
    with_buckets = [part.bucket for part in parts.values() if part.bucket.count]
    all_requests = merged(with_buckets)
    of_all = table.of(all_requests)

    def statistics(bucket: Bucket) -> Mapping[str, Stat]:
        return (
            of_all if bucket is all_requests else table.of(bucket)
        )  # the only bucket of a window is all requests as well

    for (gold, version), part in sorted(parts.items()):
        bucket = part.bucket if gold else all_requests
        if bucket.count or (traffic.estimates and not gold):
            yield SeriesStats(
                pipeline=group.pipeline,
                source=group.source,
                gold=gold,
                gold_version=version,
                window=window,
                slice=group.slice,
                metrics=MappingProxyType(
                    statistics(bucket) if gold else _metrics_of_all(table, of_all, statistics(part.bucket))
                ),
                latency=MappingProxyType({stage: dict(counts) for stage, counts in bucket.latency.items()}),
                clusters=MappingProxyType(part.clusters),
                traced=part.traced,
                records=bucket.count,
                estimates={} if gold else traffic.estimates,
                of=traffic.of,
            )


def _metrics_of_all(table: ScoreTable, of_all: Mapping[str, Stat], without_gold: Mapping[str, Stat]) -> dict[str, Stat]:
    """The metrics over all requests.

    Gold sets are never pooled: metrics that need gold count requests without a gold item.
    """
    return {name: without_gold[name] if metric.needs_gold else of_all[name] for name, metric in table.metrics.items()}


def retrieved_counts(state: State) -> dict[tuple[str, str], Counter[int]]:
    """How many audit members retrieved how many documents; matches and labels are skipped, as they repeat requests."""
    by_source: dict[tuple[str, str], Counter[int]] = {}
    for key, series in state.series.items():
        if key.slice or not key.audit or key.source in ALSO_LIVE_SOURCES or key.pipeline == DROPPED_PIPELINES:
            continue
        counts = by_source.setdefault((key.pipeline, key.source), Counter())
        for bucket in series.buckets():
            for facts, n in bucket.cells.items():
                flags, _, length, *_ = facts
                if flags & IDS:
                    counts[length] += n
    return by_source


POINT: Final = "point"
"""The name of the window of a point."""


def point_ends(now: float, span: int, step: int) -> list[int]:
    """The ends of the windows that cover a span of time up to now.

    Args:
        now: Seconds since the epoch.
        span: How far back the first one begins, seconds.
        step: The length of a window, seconds: up to an hour a multiple of 10, otherwise of 300.

    Returns:
        Multiples of the step, the last of them the first after now.

    Raises:
        ValueError: The windows cannot lie on the edges of buckets.

    >>> point_ends(7201.0, 3600, 1800)
    [7200, 9000]
    """
    grain = STEP if step <= HOUR else FOLDED
    if step <= 0 or step % grain:
        raise ValueError(f"step is {step}: it must be a multiple of {grain} seconds")
    last = (int(now) // step + 1) * step
    return list(range(last - step * max(1, span // step) + step, last + 1, step))


def take_history(
    state: State,
    table: ScoreTable,
    *,
    ends: Sequence[int],
    step: int,
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
    pipelines: Collection[str] | None = None,
) -> list[Snapshot]:
    """The snapshots of a history, one a window, each of which has the name `point`.

    Args:
        state: The counts.
        table: The metrics.
        ends: The ends of the windows, seconds since the epoch, from `point_ends`.
        step: The length of a window, seconds.
        golds: The gold sets in use.
        gated: Metrics whose sums per item are needed by gates.
        pipelines: The pipelines to read; None reads all.
    """
    windows = [Window(POINT, step, end - 1) for end in ends]
    totals = [window_totals(state, step, end - 1) for end in ends]
    points: list[list[SeriesStats]] = [[] for _ in ends]
    reader = SeriesReader(state, table, tuple(gated))
    reader.refresh()
    for group, keys in reader.groups.items():
        if group.pipeline == DROPPED_PIPELINES or (pipelines is not None and group.pipeline not in pipelines):
            continue
        for place, series in enumerate(reader.read(group, keys, windows, totals)):
            points[place] += series
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    return [
        Snapshot(end - 1, tuple(series), tuple(golds), tuple(builds), needs_gold)
        for end, series in zip(ends, points, strict=True)
    ]
