"""The `/metrics` endpoint: a collector that shows one snapshot of the monitor per scrape, and the budget of its series.

Metrics are gauges per window, for people, and counters, which add up over replicas: ratios over several replicas come
from the counters. A metric without data has no sample. How many series a metric, a gate or an alarm has follows from
the declared families (`ragmon.export.families`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import fsum
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import Exemplar as Marked

from ragmon import metrics
from ragmon.alarms.pipelines import AlarmState
from ragmon.core import constants
from ragmon.core.constants import JUDGE_PREFIX, LABEL
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.process import current_version
from ragmon.export import families as declared
from ragmon.export.families import Family, label
from ragmon.export.status import MonitorSnapshot, ServerStats
from ragmon.export.text import incident_text
from ragmon.gates import coverage as gold_coverage
from ragmon.gates.evaluate import bounds
from ragmon.metrics.base import is_labelled, judged, parse
from ragmon.scoring.buckets import METRIC
from ragmon.scoring.labels import Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.snapshot import ALL, Exemplar, SeriesStats, Snapshot
from ragmon.stats.histograms import MICRO, bucket_value

_Sampled = GaugeMetricFamily | CounterMetricFamily
_MILLISECONDS: Final = 1000
Bucket = tuple[str, float]
"""An upper bound, and the cumulative count."""


def samples(family: Family, numbers: Iterable[tuple[str | Sequence[str], float]] = ()) -> _Sampled:
    """A declared gauge, or a counter, whose name ends in `_total`, with numbers by label value or by label values."""
    kind = CounterMetricFamily if family.endswith("_total") else GaugeMetricFamily
    found: _Sampled = kind(family, family.text, labels=family.labels)
    for values, number in numbers:
        found.add_metric([label(text) for text in ((values,) if isinstance(values, str) else values)], number)
    return found


def single(family: Family, value: float | None) -> _Sampled:
    """A declared gauge or counter without labels; without a sample where the value is not known."""
    return samples(family, () if value is None else [((), value)])


def histogram(family: Family) -> HistogramMetricFamily:
    """A declared histogram, without samples."""
    return HistogramMetricFamily(family, family.text, labels=family.labels)


class _Family:
    """The series of one metric class."""

    def __init__(self, family: type[metrics.Metric]) -> None:
        series_name, text = f"{declared.PREFIX}{family.name}", family().help
        cut = ("k",) if family.at_k else ()
        self._at_k = family.at_k
        gauges = (declared.VALUE, declared.LOWER, declared.UPPER, declared.SAMPLES)
        sums = (declared.SCORE, declared.SCORED, *(() if family.binary else (declared.SQUARES,)))
        self._gauges = [samples(ending.of(series_name, text, cut)) for ending in gauges]
        self._counters = [samples(ending.of(series_name, text, cut)) for ending in sums]

    def add(self, series: SeriesStats, labels: Sequence[str], k: str, key: str, stat: Stat) -> None:
        # Gauges estimate all calls where their number is known; counters count audit members, which add up.
        labels = (*labels, k) if self._at_k else labels
        if series.window == ALL:
            if stat.n:
                sums = (stat.sum / MICRO, stat.n, stat.squares / MICRO**2)
                for counter_family, number in zip(self._counters, sums, strict=False):
                    counter_family.add_metric(labels, number)
        elif stat.n or key in series.estimates:
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
    in_use = _in_use(snapshot)
    return (series for series in snapshot.series if not series.slice and in_use(series))


def _in_use(snapshot: Snapshot) -> Callable[[SeriesStats], bool]:
    """Whether a series is exported: gauges of the current gold version, counters of all that a window still has."""
    present = {(gold.name, gold.version) for gold in snapshot.golds}
    windowed = {(series.gold, series.gold_version) for series in snapshot.series if series.window != ALL}

    def in_use(series: SeriesStats) -> bool:
        version = (series.gold, series.gold_version)
        if not series.gold_version:  # no gold set, or labels, which have no version
            return True
        return version in present or (series.window == ALL and version in windowed)

    return in_use


def estimands(snapshot: Snapshot) -> Iterator[Metric]:
    """Both intervals of every gated metric over the current gold sets, labelled with their estimand."""
    families = [samples(family) for family in (declared.GOLD_LOWER, declared.GOLD_UPPER, declared.GOLD_N_EFF)]
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
    endings = (declared.PPI, declared.PPI_LOWER, declared.PPI_UPPER)
    families = [samples(ending.of(f"{declared.PREFIX}{METRIC}")) for ending in endings]
    gain = samples(declared.PROXY_GAIN)
    for prediction in predictions:
        pipeline, window, estimate = label(prediction.pipeline), label(prediction.window), prediction.estimate
        if estimate.value is not None and estimate.gain is not None:
            for family, number in zip(families, (estimate.value, estimate.lower, estimate.upper), strict=True):
                family.add_metric((pipeline, LABEL, "", window), number)
            gain.add_metric((pipeline, window, prediction.proxy), estimate.gain)
    yield from (*families, gain)


def slices(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """The gated metrics of every slice, over all time."""
    gated = {(outcome.gate.pipeline, outcome.gate.metric) for outcome in outcomes}
    in_use = _in_use(snapshot)
    sums: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for series in snapshot.series:
        if not series.slice or series.window != ALL or not in_use(series):
            continue
        about = (series.source, label(series.slice), label(series.gold), series.gold_version)
        for key, stat in exported_metrics(series, snapshot):
            if stat.n and (series.pipeline, key) in gated:
                labels = (label(series.pipeline), key, *about)
                # Long label values are cut, so two series may have the same labels.
                total, n, squares = sums.get(labels, (0, 0, 0))
                sums[labels] = (total + stat.sum, n + stat.n, squares + stat.squares)
    squared = [(labels, n / MICRO**2) for labels, (_, _, n) in sums.items() if not parse(labels[1]).binary]
    yield samples(declared.SLICE_SCORE, ((labels, total / MICRO) for labels, (total, _, _) in sums.items()))
    yield samples(declared.SLICE_SCORED, ((labels, n) for labels, (_, n, _) in sums.items()))
    yield samples(declared.SLICE_SQUARES, squared)


def traffic_families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Requests, errors and latency of all calls where they were captured; stages and documents of sampled calls."""
    calls, errors = current.captured.calls, current.captured.errors
    yield samples(declared.REQUESTS, sorted(calls.items()))
    yield samples(declared.ERRORS, sorted(errors.items()))
    yield from latency(current.snapshot, current.captured.latency, current.exemplars)
    documents = histogram(declared.DOCUMENTS)
    for (pipeline, source), counts in sorted(current.retrieved.items()):
        if counts:
            documents.add_metric((label(pipeline), source), *_buckets(counts, declared.DOCUMENTS))
    yield documents


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
    totals, by_stage = dict(sorted(timed.items())), histogram(declared.STAGE_LATENCY)
    for series in snapshot.series:
        if series.window != ALL or series.slice or series.gold or series.source in constants.ALSO_LIVE_SOURCES:
            continue
        for stage, counts in sorted(series.latency.items()):
            if stage != "total":
                labels = (label(series.pipeline), series.source, stage)
                by_stage.add_metric(labels, *_buckets(_seconds(counts), declared.STAGE_LATENCY))
            elif not timed:
                totals[series.pipeline, series.source] = counts
    end_to_end = histogram(declared.LATENCY)
    for (pipeline, source), counts in totals.items():
        buckets, total = _buckets(_seconds(counts), declared.LATENCY)
        marked: list[Bucket | tuple[str, float, Marked]] = [*buckets]
        if exemplar := exemplars.get((pipeline, source)):
            index = next(index for index, (bound, _) in enumerate(buckets) if exemplar.seconds <= float(bound))
            marked[index] = (*buckets[index], Marked({"trace_id": exemplar.trace_id}, exemplar.seconds, exemplar.ts))
        end_to_end.add_metric((label(pipeline), source), marked, total)
    yield from (end_to_end, by_stage)


def _seconds(counts: Mapping[int, int]) -> dict[float, int]:
    return {bucket_value(index) / _MILLISECONDS: n for index, n in counts.items()}


@cache
def _limits(bounds: tuple[float, ...]) -> list[str]:
    return [*map(str, map(float, bounds)), "+Inf"]


def _buckets(counts: Mapping[int, int] | Mapping[float, int], family: Family) -> tuple[list[Bucket], float]:
    bounds = family.bounds
    counts_by_bucket = [0] * (len(bounds) + 1)
    for value, n in counts.items():
        counts_by_bucket[bisect_left(bounds, value)] += n
    buckets = [(limit, float(n)) for limit, n in zip(_limits(bounds), accumulate(counts_by_bucket), strict=True)]
    return buckets, fsum(value * n for value, n in counts.items())  # rounded once, whatever came first


def accounting_families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Record counters, labels, unassessed requests, overflow, gold sets, captured fields, builds and the version.

    Per stage: received = scored + ignored + dropped + duplicate + pending + residual.
    """
    stages, captured = sorted(current.stages.items()), current.captured
    yield samples(declared.RECEIVED, ((stage, n.received) for stage, n in stages))
    yield samples(declared.RECORDS_SCORED, ((stage, n.scored) for stage, n in stages))
    ignored = (((stage, reason), n) for stage, counts in stages for reason, n in sorted(counts.ignored.items()))
    yield samples(declared.IGNORED, ignored)
    dropped = (((stage, reason), n) for stage, counts in stages for reason, n in sorted(counts.dropped.items()))
    yield samples(declared.DROPPED, dropped)
    yield samples(declared.DUPLICATE, ((stage, n.duplicate) for stage, n in stages))
    yield samples(declared.PENDING, ((stage, n.pending) for stage, n in stages))
    yield samples(declared.RESIDUAL, ((stage, n.residual) for stage, n in stages))
    yield single(declared.ORPHANS, captured.orphans)
    yield samples(declared.UNREAD, sorted(captured.unread.items()))
    yield samples(declared.SPANS_DROPPED, sorted(captured.spans.items()))
    yield samples(declared.JUDGE_CALLS, sorted(captured.judged.items()))
    yield single(declared.REDACTION_FAILURES, captured.withheld)
    yield samples(declared.LABELS, sorted(current.labels.items()))
    yield single(declared.LABELS_WAITING, current.labels_waiting)
    yield unassessed(current)
    # 0 for every kind of name while no cardinality limit is reached
    yield samples(declared.NAMES_OVERFLOW, ((kind, current.overflow.get(kind, 0)) for kind in constants.NAME_KINDS))
    golds = current.snapshot.golds
    yield samples(declared.GOLD_INFO, (((gold.name, gold.version), 1) for gold in golds))
    yield samples(declared.GOLD_ITEMS, ((gold.name, gold.items) for gold in golds))
    yield samples(declared.BUILD_SEEN, ((build, 1) for build in current.builds))
    yield single(declared.RELOADED, float(current.reloaded if current.served is None else current.served.reloaded))
    yield single(declared.LAST_SCORED, current.last_scored)
    yield samples(declared.BUILD_INFO, [(current_version(), 1)])
    yield from coverage(current.snapshot)
    ratios = (
        ((report.pipeline, report.source, field), share.ratio)
        for report in current.capture
        for field, share in report.fields.items()
        if share.ratio is not None  # withheld by a setting
    )
    yield samples(declared.CAPTURED_RATIO, ratios)


def unassessed(current: MonitorSnapshot) -> Metric:
    """Requests a metric could not be assessed on, by reason, over all time.

    A metric that needs gold is counted over series with gold, every other metric over all traffic. A user question that
    matched a gold item, or whose answer was labelled, is in both kinds of series and counts once for each metric.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for series in (*current.snapshot.series, *current.snapshot.gone):
        if series.window != ALL or series.slice or (series.source in constants.ALSO_LIVE_SOURCES and not series.gold):
            continue
        for name, stat in series.metrics.items():
            if (name in current.snapshot.gold_metrics) == bool(series.gold):
                counts.update({(name, reason): n for reason, n in stat.unassessed.items()})
    return samples(declared.UNASSESSED, sorted(counts.items()))


def coverage(snapshot: Snapshot) -> Iterator[Metric]:
    """How much of the traffic matches a gold item, and how many gold items each source asked."""
    matches = gold_coverage.match_counts(snapshot)
    ways = (((pipeline, how), n) for pipeline, found in sorted(matches.items()) for how, n in found.items())
    yield samples(declared.GOLD_MATCH, ways)
    seen = samples(declared.GOLD_ITEMS_SEEN)
    for window in dict.fromkeys(series.window for series in snapshot.series if series.window != ALL):
        for covered in gold_coverage.covered(snapshot, window):
            seen.add_metric((label(covered.pipeline), covered.source, label(covered.gold), label(window)), covered.seen)
    yield seen


def server_families(served: ServerStats) -> Iterator[Metric]:
    """Rejected requests, losses of producers, unknown fields, probes and the journal of a server."""
    yield samples(declared.REFUSED, sorted(served.refused.items()))
    yield samples(declared.PRODUCER_DROPPED, sorted(served.lost.items()))
    yield samples(declared.FIELDS_UNKNOWN, sorted(served.unknown.items()))
    yield samples(declared.PROBES, sorted(served.probes.items()))
    yield samples(declared.BURSTS, sorted(served.bursts.items()))
    yield samples(declared.PROBE_RECORDS, sorted(served.probed.items()))
    yield single(declared.STATE_RESETS, served.resets)
    yield single(declared.CLOCK_JUMPS, served.jumps)
    yield single(declared.PRODUCER_MISSING, served.missing)
    yield single(declared.JOURNAL_BYTES, served.size)
    yield single(declared.JOURNAL_WRITABLE, float(not served.trouble))
    if served.stream is not None:
        yield single(declared.WATERMARK, served.stream.watermark)
        yield samples(declared.PARTITION_BEHIND, sorted(served.stream.behind.items()))
        yield samples(declared.CHUNKS, sorted(served.stream.chunks.items()))
        yield single(declared.STREAM_LOST, served.stream.lost)
        yield single(declared.STREAM_CONFIGS, served.stream.configs)


def alarms(states: Sequence[AlarmState]) -> Iterator[Metric]:
    """Whether each alarm fires, its evidence and its baseline; alarms are named after their gate, or `metric:kind`."""
    alarm, evidence = samples(declared.GATE_ALARM), samples(declared.GATE_EVIDENCE)
    baseline, info = samples(declared.GATE_BASELINE), samples(declared.GATE_BASELINE_INFO)
    for state in states:
        labels = (label(state.pipeline), label(state.alert))
        if state.baseline:
            info.add_metric((*labels, state.baseline, state.version), 1)
            if state.level is not None:
                baseline.add_metric(labels, state.level)
        alarm.add_metric((*labels, state.severity), float(state.firing is not None))
        evidence.add_metric(labels, state.evidence)
    yield from (alarm, evidence, baseline, info)


def incidents(current: MonitorSnapshot) -> Iterator[Metric]:
    """The incidents that last, each with its sentence."""
    lasts, info = samples(declared.INCIDENT), samples(declared.INCIDENT_INFO)
    for incident in current.incidents:
        if incident.ended is None:
            labels = (label(incident.pipeline), label(incident.name))
            severity = constants.PAGE if incident.severity == "confirmed" else constants.TICKET
            lasts.add_metric((*labels, severity), 1)
            info.add_metric((*labels, label(incident.alarm), incident_text(incident, current.snapshot.now)), 1)
    yield from (lasts, info)


def gate_families(outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """Threshold, value, bounds, samples and verdict of every gate; an unknown number has no sample."""
    threshold, value = samples(declared.GATE_THRESHOLD), samples(declared.GATE_VALUE)
    lower, upper = samples(declared.GATE_LOWER), samples(declared.GATE_UPPER)
    requests, unknown = samples(declared.GATE_SAMPLES), samples(declared.GATE_UNKNOWN)
    status, info = samples(declared.GATE_STATUS), samples(declared.GATE_INFO)
    for outcome in outcomes:
        gate = outcome.gate
        labels = (label(gate.pipeline), label(gate.name))
        threshold.add_metric(labels, gate.threshold)
        requests.add_metric(labels, outcome.n)
        unknown.add_metric(labels, outcome.unknown)
        for family, number in ((value, outcome.value), (lower, outcome.lower), (upper, outcome.upper)):
            if number is not None:
                family.add_metric(labels, number)
        for name in sorted(ORDER):
            status.add_metric((*labels, name), float(outcome.applicable and outcome.verdict == name))
        series = (gate.metric, outcome.source, label(outcome.gold))
        info.add_metric((*labels, *series, gate.direction, label(gate.window), outcome.estimand), 1)
    yield from (threshold, value, lower, upper, requests, unknown, status, info)


class Collector:
    """A prometheus_client collector over snapshots of the monitor.

    Args:
        read: Takes a snapshot.
        moment: The version of the data: while it is equal, the series of the last snapshot are returned again. None
            takes a snapshot each time.
    """

    def __init__(self, read: Callable[[], MonitorSnapshot], moment: Callable[[], object] | None = None) -> None:
        self._read = read
        self._moment = moment
        self._cached: tuple[object, list[Metric]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing, because registering the collector must not take a snapshot."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All series of the current snapshot, and how many there are."""
        moment = None if self._moment is None else self._moment()
        if self._moment is None or self._cached is None or self._cached[0] != moment:
            collected = list(families(self._read()))
            series = single(declared.SERIES, 1 + sum(len(family.samples) for family in collected))
            self._cached = (moment, [*collected, series])
        return self._cached[1]


def families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Every family with at least one sample."""
    for part in (
        quality_families(current.snapshot),
        estimands(current.snapshot),
        slices(current.snapshot, current.outcomes),
        predicted(current.predictions),
        [samples(declared.JUDGE_INFO, (((j.pipeline, j.judge, j.version), 1) for j in current.judges))],
        traffic_families(current),
        gate_families(current.outcomes),
        alarms(current.alarms),
        incidents(current),
        accounting_families(current),
        () if current.served is None else server_families(current.served),
    ):
        yield from (family for family in part if family.samples)
