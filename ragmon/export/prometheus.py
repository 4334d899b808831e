"""The `/metrics` endpoint: a collector that shows one snapshot of the monitor per scrape.

The families here are gates, alarms, record counters and server statistics; `ragmon.export.prometheus_quality` has
metrics, traffic and latency. Ratios over several replicas come from the counters; the gauges are for people. A metric
without data has no sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from ragmon.alarms.pipelines import AlarmState
from ragmon.core import constants, series_names
from ragmon.core.http_client import current_version
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.series_names import Family, label
from ragmon.export import prometheus_quality
from ragmon.export.prometheus_quality import counter, gauge
from ragmon.export.state import MonitorSnapshot, ServerStats, StreamStats
from ragmon.gates import coverage as gold_coverage
from ragmon.gates.coverage import CaptureReport
from ragmon.scoring.snapshot import ALL


def accounting_families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Record counters, labels, unassessed requests, overflow, gold sets, captured fields, builds and the version."""
    yield from accounting(current)
    yield from labels(current)
    yield from unassessed(current)
    yield from overflow(current)
    yield from info_families(current)
    yield from coverage(current)
    yield from captured(current.capture)


def accounting(current: MonitorSnapshot) -> Iterator[Metric]:
    """Record counters per stage: received = scored + ignored + dropped + duplicate + pending + residual."""
    received, scored = counter(series_names.RECEIVED), counter(series_names.RECORDS_SCORED)
    ignored, dropped = counter(series_names.IGNORED), counter(series_names.DROPPED)
    duplicate = counter(series_names.DUPLICATE)
    pending, residual = gauge(series_names.PENDING), gauge(series_names.RESIDUAL)
    for stage, counters in sorted(current.stages.items()):
        received.add_metric((stage,), counters.received)
        scored.add_metric((stage,), counters.scored)
        duplicate.add_metric((stage,), counters.duplicate)
        pending.add_metric((stage,), counters.pending)
        residual.add_metric((stage,), counters.residual)
        for family, reasons in ((ignored, counters.ignored), (dropped, counters.dropped)):
            for reason, n in sorted(reasons.items()):
                family.add_metric((stage, reason), n)
    orphans = counter(series_names.ORPHANS, current.captured.orphans)
    spans, judged = counter(series_names.SPANS_DROPPED), counter(series_names.JUDGE_CALLS)
    unread = counter(series_names.UNREAD)
    for labels, n in sorted(current.captured.unread.items()):
        unread.add_metric(labels, n)
    for reason, n in sorted(current.captured.spans.items()):
        spans.add_metric((reason,), n)
    for labels, n in sorted(current.captured.judged.items()):
        judged.add_metric(labels, n)
    withheld = counter(series_names.REDACTION_FAILURES, current.captured.withheld)
    yield from (received, scored, ignored, dropped, duplicate, pending, residual, orphans)
    yield from (unread, spans, judged, withheld)


def labels(current: MonitorSnapshot) -> Iterator[Metric]:
    """Received labels by result, and how many wait for the record they rate."""
    given = counter(series_names.LABELS)
    for result, n in sorted(current.labels.items()):
        given.add_metric((result,), n)
    yield from (given, gauge(series_names.LABELS_WAITING, current.labels_waiting))


def unassessed(current: MonitorSnapshot) -> Iterator[Metric]:
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
    family = counter(series_names.UNASSESSED)
    for labels, n in sorted(counts.items()):
        family.add_metric(labels, n)
    yield family


def overflow(current: MonitorSnapshot) -> Iterator[Metric]:
    """How often a name was counted as `__other__`; 0 for every kind while no cardinality limit is reached."""
    family = counter(series_names.NAMES_OVERFLOW)
    for kind in constants.NAME_KINDS:
        family.add_metric((kind,), current.overflow.get(kind, 0))
    yield family


def coverage(current: MonitorSnapshot) -> Iterator[Metric]:
    """How much of the traffic matches a gold item, and how many gold items each source asked."""
    snapshot = current.snapshot
    matches = counter(series_names.GOLD_MATCH)
    for pipeline, ways in sorted(gold_coverage.match_counts(snapshot).items()):
        for how, n in ways.items():
            matches.add_metric((label(pipeline), how), n)
    seen = gauge(series_names.GOLD_ITEMS_SEEN)
    for window in dict.fromkeys(series.window for series in snapshot.series if series.window != ALL):
        for covered in gold_coverage.covered(snapshot, window):
            seen.add_metric((label(covered.pipeline), covered.source, label(covered.gold), label(window)), covered.seen)
    yield from (matches, seen)


def captured(reports: Sequence[CaptureReport]) -> Iterator[Metric]:
    """The share of records that have each field; what was withheld by a setting is in no share."""
    family = gauge(series_names.CAPTURED_RATIO)
    for report in reports:
        for field, share in report.fields.items():
            if share.ratio is not None:
                family.add_metric((label(report.pipeline), report.source, field), share.ratio)
    yield family


def info_families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Gold sets, builds, the configuration, the time of the last score and the version of ragmon."""
    info, items = gauge(series_names.GOLD_INFO), gauge(series_names.GOLD_ITEMS)
    for gold in current.snapshot.golds:
        info.add_metric((label(gold.name), gold.version), 1)
        items.add_metric((label(gold.name),), gold.items)
    builds = gauge(series_names.BUILD_SEEN)
    for labels in current.builds:
        builds.add_metric([label(text) for text in labels], 1)
    loaded = gauge(
        series_names.RELOADED, float(current.reloaded if current.served is None else current.served.reloaded)
    )
    last = gauge(series_names.LAST_SCORED, current.last_scored)
    version = gauge(series_names.BUILD_INFO)
    version.add_metric((current_version(),), 1)
    yield from (info, items, builds, loaded, last, version)


def server_families(served: ServerStats) -> Iterator[Metric]:
    """Rejected requests, losses of producers, unknown fields, probes and the journal of a server."""
    yield _by_label(series_names.REFUSED, served.refused)
    yield _by_label(series_names.PRODUCER_DROPPED, served.lost)
    unknown = counter(series_names.FIELDS_UNKNOWN)
    for key, n in sorted(served.unknown.items()):
        unknown.add_metric([label(text) for text in key], n)
    yield unknown
    probes = counter(series_names.PROBES)
    for (probe, result), n in sorted(served.probes.items()):
        probes.add_metric((label(probe), result), n)
    yield probes
    yield _by_label(series_names.PROBE_RECORDS, served.probed)
    yield counter(series_names.STATE_RESETS, served.resets)
    yield counter(series_names.CLOCK_JUMPS, served.jumps)
    yield gauge(series_names.PRODUCER_MISSING, served.missing)
    yield gauge(series_names.JOURNAL_BYTES, served.size)
    yield gauge(series_names.JOURNAL_WRITABLE, float(not served.trouble))
    if served.stream is not None:
        yield from stream_families(served.stream)


def stream_families(stream: StreamStats) -> Iterator[Metric]:
    """How far the partitions of a log were added up."""
    yield gauge(series_names.WATERMARK, stream.watermark)
    behind = gauge(series_names.PARTITION_BEHIND)
    for partition, seconds in sorted(stream.behind.items()):
        behind.add_metric((label(partition),), seconds)
    yield behind
    yield _by_label(series_names.CHUNKS, stream.chunks)
    yield counter(series_names.STREAM_LOST, stream.lost)
    yield gauge(series_names.STREAM_CONFIGS, stream.configs)


def _by_label(family: Family, counts: Mapping[str, int]) -> Metric:
    """A counter with one label, given its counts by the value of the label."""
    labelled = counter(family)
    for value, n in sorted(counts.items()):
        labelled.add_metric((label(value),), n)
    return labelled


def alarms(states: Sequence[AlarmState]) -> Iterator[Metric]:
    """Whether each alarm fires, its evidence and its baseline; alarms are named after their gate, or `metric:kind`."""
    alarm, evidence = gauge(series_names.GATE_ALARM), gauge(series_names.GATE_EVIDENCE)
    baseline, info = gauge(series_names.GATE_BASELINE), gauge(series_names.GATE_BASELINE_INFO)
    for state in states:
        labels = (label(state.pipeline), label(state.alert))
        if state.baseline:
            info.add_metric((*labels, state.baseline, state.version), 1)
            if state.level is not None:
                baseline.add_metric(labels, state.level)
        alarm.add_metric((*labels, state.severity), float(state.firing is not None))
        evidence.add_metric(labels, state.evidence)
    yield from (alarm, evidence, baseline, info)


def gate_families(outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """Threshold, value, bounds, samples and verdict of every gate; an unknown number has no sample."""
    threshold, value = gauge(series_names.GATE_THRESHOLD), gauge(series_names.GATE_VALUE)
    lower, upper = gauge(series_names.GATE_LOWER), gauge(series_names.GATE_UPPER)
    samples, unknown = gauge(series_names.GATE_SAMPLES), gauge(series_names.GATE_UNKNOWN)
    status, info = gauge(series_names.GATE_STATUS), gauge(series_names.GATE_INFO)
    for outcome in outcomes:
        gate = outcome.gate
        labels = (label(gate.pipeline), label(gate.name))
        threshold.add_metric(labels, gate.threshold)
        samples.add_metric(labels, outcome.n)
        unknown.add_metric(labels, outcome.unknown)
        for family, number in ((value, outcome.value), (lower, outcome.lower), (upper, outcome.upper)):
            if number is not None:
                family.add_metric(labels, number)
        for name in sorted(ORDER):
            status.add_metric((*labels, name), float(outcome.applicable and outcome.verdict == name))
        details = (
            gate.metric,
            outcome.source,
            label(outcome.gold),
            gate.direction,
            label(gate.window),
            outcome.estimand,
        )
        info.add_metric((*labels, *details), 1)
    yield from (threshold, value, lower, upper, samples, unknown, status, info)


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
        if self._moment is None:
            return self._collect()
        moment = self._moment()
        if self._cached is None or self._cached[0] != moment:
            self._cached = (moment, self._collect())
        return self._cached[1]

    def _collect(self) -> list[Metric]:
        collected = list(families(self._read()))
        series = gauge(series_names.SERIES, 1 + sum(len(family.samples) for family in collected))
        return [*collected, series]


def families(current: MonitorSnapshot) -> Iterator[Metric]:
    """Every family with at least one sample: metrics, slices, traffic, gates, alarms and the monitor's own counters."""
    for part in (
        prometheus_quality.quality_families(current.snapshot),
        prometheus_quality.estimands(current.snapshot),
        prometheus_quality.slices(current.snapshot, current.outcomes),
        prometheus_quality.predicted(current.predictions),
        prometheus_quality.judge_versions(current.judges),
        prometheus_quality.traffic_families(current),
        gate_families(current.outcomes),
        alarms(current.alarms),
        accounting_families(current),
        () if current.served is None else server_families(current.served),
    ):
        yield from (family for family in part if family.samples)
