"""Snapshots: the metrics of every series and window at one moment, immutable; and histories of such moments.

Series are read group by group, and what did not change since the last snapshot is not read again. A point of a history
is a window like any other, so it has the value and the interval that a gate would have had then; late records count.
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
    BUCKET_SECONDS,
    DROPPED_PIPELINES,
    EXPORTED_TRAFFIC,
    FOLDED_SECONDS,
    HOUR,
    LIVE,
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
    """An exemplar of a latency series."""

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """The newest exemplar by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Keep the trace of a counted record that arrived now, if it was exported and its latency is known."""
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def add(self, key: tuple[str, str], exemplar: Exemplar) -> None:
        """Keep an exemplar of a pipeline and source that another process saw, if it is newer."""
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


@dataclass(frozen=True)
class SeriesStats:
    """The statistics of one series over one window.

    Attributes:
        pipeline, source, slice: The key of the series.
        gold, gold_version: Which gold set; "" for all requests.
        clusters: For gated metrics of a gold set, how many gold items have equal scores; scores measured on text are
            not kept per item.
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
        """The series with these labels, None where there is none; for a gold set in use, only its current version.

        `gold` is "" for all requests, and None for the gold set with the most records; `where` is the slice.
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
    """Take a snapshot of a state, in windows of spans in seconds by name; a span of None is everything.

    Of gated metrics, gates need sums per item. A reader of the same state, table and gated metrics remembers what it
    read before.
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
    matched = {(pipeline, how): n for (pipeline, how), n in state.matched.items() if pipeline != DROPPED_PIPELINES}
    return Snapshot(
        now,
        tuple(series),
        tuple(golds),
        *_builds_and_metrics(state, table),
        matched=matched,
        gone=tuple(gone),
        uncited={pipeline: answers for pipeline, (answers, citing) in state.answers.items() if not citing},
        citing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.cites),
        strange_ids=state.captured.strange_ids(),
        comparing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.compares_ids),
    )


def _builds_and_metrics(state: State, table: ScoreTable) -> tuple[tuple[tuple[str, str, str], ...], frozenset[str]]:
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    return tuple(builds), frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)


class _Group(NamedTuple):
    """The key of series that are read together: all gold sets, builds and strata."""

    pipeline: str
    source: str
    slice: str


@dataclass
class _GroupCache:
    """What is kept of a group from one reading to the next."""

    results: list[tuple[object, list[SeriesStats]]] = field(default_factory=list)
    sums: WindowSums = field(default_factory=WindowSums)
    items: dict[tuple[str, str], ItemWindows] = field(default_factory=dict)


_Totals = tuple[Mapping[CallKey, Count], Mapping[CallKey, Count]]
"""All calls of a window; and the same since each producer's first report, which differs only for the window of
everything.
"""


class SeriesReader:
    """Reads the groups of a state; caches what did not change since the same windows were read before."""

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
        for index, (window, in_window) in enumerate(zip(windows, totals, strict=True)):
            calls, since = (
                (by_stratum(part, group.pipeline, group.source) if group.source == LIVE else {}) for part in in_window
            )
            cache_key = (changed, window.name, window.begin, window.end, calls, since)
            if index < len(cached.results) and cached.results[index][0] == cache_key:
                results.append(cached.results[index])
                continue
            if not buckets:
                buckets = cached.sums.read(series, windows)
                by_gold: dict[tuple[str, str], dict[SeriesKey, Series]] = {}
                for key, each in series.items():
                    if key.drawn and key.gold:
                        by_gold.setdefault((key.gold, key.gold_version), {})[key] = each
                cached.items = {
                    gold: cached.items.get(gold) or ItemWindows(self._table, self.gated) for gold in by_gold
                }
                for gold, items in cached.items.items():
                    items.read(by_gold[gold], windows)
            kinds = {kind: buckets[index].get(kind) for kind in dict.fromkeys(map(kind_of, keys))}
            results.append((cache_key, list(self._stats(group, cached, (index, window.name), kinds, calls, since))))
        cached.results = results
        return [window_series for _, window_series in results]

    def _stats(
        self,
        group: _Group,
        cached: _GroupCache,
        window: tuple[int, str],
        buckets: Mapping[Kind, Bucket | None],
        calls: Mapping[str, Count],
        since: Mapping[str, Count],
    ) -> Iterator[SeriesStats]:
        # One series over all requests, and one of each gold set version over its requests. Both hold audit members
        # only: a call that was kept for its outcome says nothing about the frequency of the outcome.
        by_gold: dict[tuple[str, str], list[Bucket]] = {("", ""): [], **{gold: [] for gold in cached.items}}
        strata: dict[str, list[Bucket]] = {}
        for kind, bucket in buckets.items():
            if kind.drawn:
                by_gold.setdefault((kind.gold, kind.gold_version), []).extend([] if bucket is None else [bucket])
            if bucket is not None and group.source == LIVE:
                strata.setdefault(kind.stratum, []).append(bucket)
        parts = {gold: merged(of_gold) for gold, of_gold in by_gold.items()}
        all_requests = merged([bucket for bucket in parts.values() if bucket.count])
        by_strata = {stratum: merged(of_stratum) for stratum, of_stratum in strata.items()}
        population, estimates = self._estimates(group, by_strata, calls, since)
        of_all = self._table.of(all_requests)
        for (gold, version), part in sorted(parts.items()):
            bucket = part if gold else all_requests
            if not (bucket.count or (estimates and not gold)):
                continue
            metrics = of_all if part is all_requests else self._table.of(part)
            if not gold:  # gold sets are never pooled: metrics that need gold count requests without a gold item
                needing = self._table.metrics.items()
                metrics = {name: (metrics if metric.needs_gold else of_all)[name] for name, metric in needing}
            items = cached.items.get((gold, version))
            yield SeriesStats(
                pipeline=group.pipeline,
                source=group.source,
                gold=gold,
                gold_version=version,
                window=window[1],
                slice=group.slice,
                metrics=MappingProxyType(metrics),
                latency=MappingProxyType({stage: dict(counts) for stage, counts in bucket.latency.items()}),
                clusters=MappingProxyType({} if items is None else items.clusters(window)),
                traced=0 if items is None else items.traced(window),
                records=bucket.count,
                estimates={} if gold else estimates,
                of=population,
            )

    def _estimates(
        self, group: _Group, buckets: Mapping[str, Bucket], calls: Mapping[str, Count], since: Mapping[str, Count]
    ) -> tuple[str, Mapping[str, Estimate]]:
        # The population of the numbers, and the estimates over all calls. There are none where the calls were not all
        # counted, or all had the same sampling probability. A truncated trace log holds fewer records than its
        # producers had kept by then: their counts before the first report belong to an earlier log.
        if group.source != LIVE:
            return "", {}
        records = sum(bucket.count for stratum, bucket in buckets.items() if stratum != UNKNOWN_WEIGHT)
        if not group.slice and sum(count.kept for count in calls.values()) > SLACK * records + FEW:
            calls = since
        kept = sum(count.kept for count in calls.values())
        if not calls or records > SLACK * kept + FEW:  # other records come from producers that report no totals
            return EXPORTED_TRAFFIC, {}
        if group.slice or len({*calls, *buckets}) == 1:
            return ALL_CALLS, {}
        sizes = {stratum: count.calls for stratum, count in calls.items()}
        return ALL_CALLS, weighted(buckets, sizes, self._table)


def window_totals(state: State, span: int | None, now: float) -> _Totals:
    """All calls of a window, and those since each producer's first report."""
    if span is None:
        return state.calls.totals(), state.calls.since(None, inf)
    totals = state.calls.since(*edges(span, now))
    return totals, totals


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


def point_ends(now: float, span: int, step: int) -> list[int]:
    """The ends of windows that cover a span up to now: multiples of the step, the last of them the first after now.

    The step is in seconds: up to an hour a multiple of 10, otherwise of 300.

    Raises:
        ValueError: The windows cannot lie on the edges of buckets.

    >>> point_ends(7201.0, 3600, 1800)
    [7200, 9000]
    """
    grain = BUCKET_SECONDS if step <= HOUR else FOLDED_SECONDS
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

    The windows have the ends of `point_ends`; of the pipelines, None reads all.
    """
    windows = [Window(POINT, step, end - 1) for end in ends]
    totals = [window_totals(state, step, end - 1) for end in ends]
    points: list[list[SeriesStats]] = [[] for _ in ends]
    reader = SeriesReader(state, table, tuple(gated))
    reader.refresh()
    for group, keys in reader.groups.items():
        if group.pipeline == DROPPED_PIPELINES or (pipelines is not None and group.pipeline not in pipelines):
            continue
        for point, series in zip(points, reader.read(group, keys, windows, totals), strict=True):
            point.extend(series)
    common = (tuple(golds), *_builds_and_metrics(state, table))
    return [Snapshot(end - 1, tuple(series), *common) for end, series in zip(ends, points, strict=True)]
