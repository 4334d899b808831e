"""The quality metrics and the traffic as Prometheus series.

Metrics are gauges per window, for people, and counters, which add up over replicas. Traffic is requests, errors,
latency and the number of retrieved documents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import fsum
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import Exemplar as Marked

from ragmon import metrics
from ragmon.core import constants, series_names
from ragmon.core.constants import JUDGE_PREFIX, LABEL
from ragmon.core.policy import Outcome
from ragmon.core.series_names import Family, label
from ragmon.export.state import MonitorSnapshot, SdkStats
from ragmon.gates.evaluate import bounds
from ragmon.metrics.base import is_labelled, judged, parse
from ragmon.scoring.cohorts import METRIC, JudgeVersion
from ragmon.scoring.labels import Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.snapshot import ALL, Exemplar, SeriesStats, Snapshot
from ragmon.stats.histograms import MICRO, bucket_value


def gauge(family: Family, value: float | None = None) -> GaugeMetricFamily:
    """A declared gauge; with a value if it has no labels, else without samples."""
    return GaugeMetricFamily(family, family.text, value, labels=family.labels or None)


def counter(family: Family, value: float | None = None) -> CounterMetricFamily:
    """A declared counter; with a value if it has no labels, else without samples."""
    return CounterMetricFamily(family, family.text, value, labels=family.labels or None)


def histogram(family: Family) -> HistogramMetricFamily:
    """A declared histogram, without samples."""
    return HistogramMetricFamily(family, family.text, labels=family.labels)


class _Family:
    """The series of one metric class.

    Args:
        family: The metric class.
    """

    def __init__(self, family: type[metrics.Metric]) -> None:
        series_name, text = f"{series_names.PREFIX}{family.name}", family().help
        cut = ("k",) if family.at_k else ()
        self._at_k = family.at_k
        gauges = (series_names.VALUE, series_names.LOWER, series_names.UPPER, series_names.SAMPLES)
        sums = (series_names.SCORE, series_names.SCORED, *(() if family.binary else (series_names.SQUARES,)))
        self._gauges = [gauge(ending.of(series_name, text, cut)) for ending in gauges]
        self._counters = [counter(ending.of(series_name, text, cut)) for ending in sums]

    def add(self, series: SeriesStats, labels: Sequence[str], k: str, key: str, stat: Stat) -> None:
        """Add the metric's statistics in one series; nothing where it has no value.

        Gauges estimate all calls where their number is known; counters count audit members, which add up over replicas.

        Args:
            series: The series.
            labels: Its labels.
            k: The metric's cut-off; "" where it has none.
            key: The metric's key.
            stat: The metric's sums in the series.
        """
        labels = (*labels, k) if self._at_k else labels
        if series.window == ALL:
            if stat.n:
                sums = (stat.sum / MICRO, stat.n, stat.squares / MICRO**2)
                for counter_family, number in zip(self._counters, sums, strict=False):
                    counter_family.add_metric(labels, number)
            return
        if not stat.n and key not in series.estimates:
            return
        estimate = series.estimate(key)
        if estimate.value is not None:
            numbers = (estimate.value, estimate.lower, estimate.upper, estimate.n)
            for gauge_family, number in zip(self._gauges, numbers, strict=True):
                gauge_family.add_metric(labels, number)

    def __iter__(self) -> Iterator[Metric]:
        yield from self._gauges
        yield from self._counters


def quality_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Every metric: gauges per window, counters over all time."""
    seen = {key for series in snapshot.series for key in series.metrics if key.startswith(JUDGE_PREFIX)}
    judges = {name: judged(name.removeprefix(JUDGE_PREFIX)) for name in seen}  # each judge in ragmon.toml is a metric
    by_name = {name: _Family(family) for name, family in sorted({**judges, **metrics.families()}.items())}
    for series in exported_series(snapshot):
        last = series.gold_version if series.window == ALL else label(series.window)
        labels = (label(series.pipeline), series.source, label(series.gold), last)
        for key, stat in exported_metrics(series, snapshot):
            name, _, k = key.partition("@")
            by_name[name].add(series, labels, k, key, stat)
    for family in by_name.values():
        yield from family


def exported_series(snapshot: Snapshot) -> Iterator[SeriesStats]:
    """The series whose metrics are exported: those of no slice, and of gold sets in use."""
    versions = _Versions(snapshot)
    return (series for series in snapshot.series if not series.slice and versions.show(series))


class _Versions:
    """Which versions of the gold sets are exported: gauges of the current one, counters of all that a window still has.

    Args:
        snapshot: The snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._present = {(gold.name, gold.version) for gold in snapshot.golds}
        self._windowed = {(series.gold, series.gold_version) for series in snapshot.series if series.window != ALL}

    def show(self, series: SeriesStats) -> bool:
        """Whether a series is exported."""
        version = (series.gold, series.gold_version)
        if not series.gold_version:  # no gold set, or labels, which have no version
            return True
        return version in self._present or (series.window == ALL and version in self._windowed)


def estimands(snapshot: Snapshot) -> Iterator[Metric]:
    """Both intervals of every gated metric over the current gold sets, labelled with their estimand."""
    families = (
        gauge(series_names.GOLD_LOWER),
        gauge(series_names.GOLD_UPPER),
        gauge(series_names.GOLD_N_EFF),
    )
    present = {(gold.name, gold.version) for gold in snapshot.golds}
    for series in snapshot.series:
        replaced = series.gold_version and (series.gold, series.gold_version) not in present
        if series.slice or series.window == ALL or replaced:
            continue
        for metric in series.clusters:
            labels_of_series = (label(series.pipeline), metric, series.source, label(series.gold), label(series.window))
            for estimand, interval in bounds(series, metric).items():
                for family, number in zip(families, interval, strict=True):
                    family.add_metric((*labels_of_series, estimand), number)
    yield from families


def exported_metrics(series: SeriesStats, snapshot: Snapshot) -> Iterator[tuple[str, Stat]]:
    """The metrics a series is exported for: with gold those that need it, without gold all others.

    Series of labels without gold have the label metrics only: labelled answers are no sample for other metrics.
    """
    for key, stat in series.metrics.items():
        covered = series.source != LABEL or series.gold or is_labelled(key)
        if covered and (key in snapshot.gold_metrics) == bool(series.gold):
            yield key, stat


def predicted(predictions: Sequence[Prediction]) -> Iterator[Metric]:
    """Estimates from labels and a proxy: values with their intervals, and how much the proxy helps."""
    series_name = f"{series_names.PREFIX}{METRIC}"
    endings = (series_names.PPI, series_names.PPI_LOWER, series_names.PPI_UPPER)
    value, lower, upper = (gauge(ending.of(series_name)) for ending in endings)
    gain = gauge(series_names.PROXY_GAIN)
    for prediction in predictions:
        labels = (label(prediction.pipeline), LABEL, "", label(prediction.window))
        estimate = prediction.estimate
        if estimate.value is not None and estimate.gain is not None:
            for family, number in ((value, estimate.value), (lower, estimate.lower), (upper, estimate.upper)):
                family.add_metric(labels, number)
            gain.add_metric((label(prediction.pipeline), label(prediction.window), prediction.proxy), estimate.gain)
    yield from (value, lower, upper, gain)


def judge_versions(judges: Sequence[JudgeVersion]) -> Iterator[Metric]:
    """The versions of judges."""
    info = gauge(series_names.JUDGE_INFO)
    for judge in judges:
        info.add_metric((label(judge.pipeline), label(judge.judge), label(judge.version)), 1)
    yield info


def slices(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """The gated metrics of every slice, over all time."""
    gated = {(outcome.gate.pipeline, outcome.gate.metric) for outcome in outcomes}
    versions = _Versions(snapshot)
    sums: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for series in snapshot.series:
        if not series.slice or series.window != ALL or not versions.show(series):
            continue
        gold_labels = (label(series.gold), series.gold_version)
        for key, stat in exported_metrics(series, snapshot):
            if stat.n and (series.pipeline, key) in gated:
                labels: tuple[str, ...] = (
                    label(series.pipeline),
                    key,
                    series.source,
                    label(series.slice),
                    *gold_labels,
                )
                # Long label values are cut, so two series may have the same labels.
                total, n, squares = sums.get(labels, (0, 0, 0))
                sums[labels] = (total + stat.sum, n + stat.n, squares + stat.squares)
    names = (series_names.SLICE_SCORE, series_names.SLICE_SCORED, series_names.SLICE_SQUARES)
    score, scored, squared = (counter(name) for name in names)
    for labels, (total, n, squares) in sums.items():
        score.add_metric(labels, total / MICRO)
        scored.add_metric(labels, n)
        if not parse(labels[1]).binary:
            squared.add_metric(labels, squares / MICRO**2)
    yield from (score, scored, squared)


_MILLISECONDS: Final = 1000
Bucket = tuple[str, float]
"""An upper bound, and the cumulative count."""


def traffic_families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Requests, errors and latency of all calls where they were captured; stages and documents of sampled calls."""
    yield from requests(current.captured)
    yield from latency(current.snapshot, current.captured.latency, current.exemplars)
    documents = histogram(series_names.DOCUMENTS)
    for (pipeline, source), counts in sorted(current.retrieved.items()):
        if counts:
            documents.add_metric((label(pipeline), source), *_buckets(counts, series_names.DOCUMENTS))
    yield documents


def requests(captured: SdkStats) -> Iterator[Metric]:
    """Requests and errors of all calls, sampled or not."""
    calls, errors = counter(series_names.REQUESTS), counter(series_names.ERRORS)
    for (pipeline, source, stratum), n in sorted(captured.calls.items()):
        calls.add_metric((label(pipeline), source, stratum), n)
    for (pipeline, code), n in sorted(captured.errors.items()):
        errors.add_metric((label(pipeline), label(code)), n)
    yield from (calls, errors)


def latency(
    snapshot: Snapshot,
    timed: Mapping[tuple[str, str], Mapping[int, int]],
    exemplars: Mapping[tuple[str, str], Exemplar],
) -> Iterator[Metric]:
    """Latency end to end and per stage. A user question that matched a gold item counts once, as user traffic.

    Args:
        snapshot: Statistics of the sampled calls.
        timed: All calls in log buckets of milliseconds, by pipeline and source; empty where calls were not timed.
        exemplars: A trace for the end-to-end latency, by pipeline and source; exported in OpenMetrics only.
    """
    end_to_end, by_stage = histogram(series_names.LATENCY), histogram(series_names.STAGE_LATENCY)
    for (pipeline, source), counts in sorted(timed.items()):
        buckets, total = _buckets(_seconds(counts), series_names.LATENCY)
        end_to_end.add_metric(
            (label(pipeline), source), _with_exemplar(buckets, exemplars.get((pipeline, source))), total
        )
    for series in snapshot.series:
        if series.window != ALL or series.slice or series.gold or series.source in constants.ALSO_LIVE_SOURCES:
            continue
        labels = (label(series.pipeline), series.source)
        for stage, counts in sorted(series.latency.items()):
            if stage != "total":
                by_stage.add_metric((*labels, stage), *_buckets(_seconds(counts), series_names.STAGE_LATENCY))
            elif not timed:
                buckets, total = _buckets(_seconds(counts), series_names.LATENCY)
                end_to_end.add_metric(
                    labels, _with_exemplar(buckets, exemplars.get((series.pipeline, series.source))), total
                )
    yield from (end_to_end, by_stage)


def _with_exemplar(buckets: Sequence[Bucket], exemplar: Exemplar | None) -> list[Bucket | tuple[str, float, Marked]]:
    """The buckets, with the exemplar on the bucket of its latency."""
    if exemplar is None:
        return list(buckets)
    place = next(place for place, (bound, _) in enumerate(buckets) if exemplar.seconds <= float(bound))
    marked = Marked({"trace_id": exemplar.trace_id}, exemplar.seconds, exemplar.ts)
    return [*buckets[:place], (*buckets[place], marked), *buckets[place + 1 :]]


def _seconds(counts: Mapping[int, int]) -> dict[float, int]:
    return {bucket_value(index) / _MILLISECONDS: n for index, n in counts.items()}


@cache
def _limits(bounds: tuple[float, ...]) -> list[str]:
    return [*map(str, map(float, bounds)), "+Inf"]


def _buckets(counts: Mapping[int, int] | Mapping[float, int], family: Family) -> tuple[list[Bucket], float]:
    """The cumulative buckets of a histogram and the sum of its values, from counts by value."""
    bounds = family.bounds
    counts_by_bucket = [0] * (len(bounds) + 1)
    for value, n in counts.items():
        counts_by_bucket[bisect_left(bounds, value)] += n
    buckets = [(limit, float(n)) for limit, n in zip(_limits(bounds), accumulate(counts_by_bucket), strict=True)]
    return buckets, fsum(value * n for value, n in counts.items())  # rounded once, whatever came first
