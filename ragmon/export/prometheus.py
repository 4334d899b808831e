"""The `/metrics` endpoint: a collector that shows one snapshot of the monitor per scrape.

The families here are gates, alarms, record counters and server statistics; `ragmon.export.prometheus_quality` has
metrics, traffic and latency. Ratios over several replicas come from the counters; the gauges are for people. A metric
without data has no sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from ragmon.alarms import AlarmState
from ragmon.core import constants, series_names
from ragmon.core.net import current_version
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.series_names import label
from ragmon.export import prometheus_quality
from ragmon.export.state import MonitorSnapshot, ServerStats
from ragmon.gates import coverage as gold_coverage
from ragmon.gates.coverage import HEAD_NOTE
from ragmon.scoring.snapshot import ALL


def accounting_families(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Record counters, labels, unassessed requests, overflow, gold sets, builds and the version."""
    yield from accounting(reading)
    yield from labels(reading)
    yield from unassessed(reading)
    yield from overflow(reading)
    yield from info_families(reading)
    yield from coverage(reading)


def accounting(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Record counters per stage: received = scored + ignored + dropped + duplicate + pending + residual."""
    by_stage, by_reason = ("stage",), ("stage", "reason")
    received = CounterMetricFamily(series_names.RECEIVED, "Records that came in", labels=by_stage)
    scored = CounterMetricFamily(series_names.RECORDS_SCORED, "Records that were counted", labels=by_stage)
    ignored = CounterMetricFamily(series_names.IGNORED, "Records that are not RAG", labels=by_reason)
    dropped = CounterMetricFamily(series_names.DROPPED, "Records that were lost", labels=by_reason)
    duplicate = CounterMetricFamily(series_names.DUPLICATE, "Records that were there already", labels=by_stage)
    pending = GaugeMetricFamily(series_names.PENDING, "Records that wait", labels=by_stage)
    residual = GaugeMetricFamily(series_names.RESIDUAL, "Records unaccounted for; 0", labels=by_stage)
    for stage, counters in sorted(reading.books.items()):
        received.add_metric((stage,), counters.received)
        scored.add_metric((stage,), counters.scored)
        duplicate.add_metric((stage,), counters.duplicate)
        pending.add_metric((stage,), counters.pending)
        residual.add_metric((stage,), counters.residual)
        for family, reasons in ((ignored, counters.ignored), (dropped, counters.dropped)):
            for reason, n in sorted(reasons.items()):
                family.add_metric((stage, reason), n)
    orphans = CounterMetricFamily(
        series_names.ORPHANS, "What was said outside a traced call", value=reading.captured.orphans
    )
    spans = CounterMetricFamily(series_names.SPANS_DROPPED, "Spans that belong to no record", labels=("reason",))
    for reason, n in sorted(reading.captured.spans.items()):
        spans.add_metric((reason,), n)
    judged = CounterMetricFamily(series_names.JUDGE_CALLS, "Requests before a judge", labels=("judge", "result"))
    for labels, n in sorted(reading.captured.judged.items()):
        judged.add_metric(labels, n)
    failures = reading.captured.withheld
    withheld = CounterMetricFamily(series_names.REDACTION_FAILURES, "Records without text: a redactor failed", failures)
    yield from (received, scored, ignored, dropped, duplicate, pending, residual, orphans, spans, judged, withheld)


def labels(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Received labels by result, and how many wait for the record they rate."""
    given = CounterMetricFamily(series_names.LABELS, "Labels people gave", labels=("result",))
    for result, n in sorted(reading.labels.items()):
        given.add_metric((result,), n)
    waiting = GaugeMetricFamily(series_names.LABELS_WAITING, "Labels that wait for their answers")
    waiting.add_metric((), reading.labels_waiting)
    yield from (given, waiting)


def unassessed(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Requests a metric could not be assessed on, by reason, over all time.

    A metric that needs gold is counted over series with gold, every other metric over all traffic. A user question that
    matched a gold item, or whose answer was labelled, is in both kinds of series and counts once for each metric.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for series in (*reading.snapshot.series, *reading.snapshot.gone):
        if series.window != ALL or series.slice or (series.source in constants.ALSO_LIVE_SOURCES and not series.gold):
            continue
        for name, stat in series.metrics.items():
            if (name in reading.snapshot.gold_metrics) == bool(series.gold):
                counts.update({(name, reason): n for reason, n in stat.unassessed.items()})
    family = CounterMetricFamily(
        series_names.UNASSESSED, "Requests that could not be assessed", labels=("metric", "reason")
    )
    for labels, n in sorted(counts.items()):
        family.add_metric(labels, n)
    yield family


def overflow(reading: MonitorSnapshot) -> Iterator[Metric]:
    """How often a name was counted as `__other__`; 0 for every kind while no cardinality limit is reached."""
    family = CounterMetricFamily(
        series_names.NAMES_OVERFLOW, "Names that are not kept apart: they count as __other__", labels=("kind",)
    )
    for kind in constants.NAME_KINDS:
        family.add_metric((kind,), reading.overflow.get(kind, 0))
    yield family


def coverage(reading: MonitorSnapshot) -> Iterator[Metric]:
    """How much of the traffic matches a gold item, and how many gold items each source asked."""
    snapshot = reading.snapshot
    matches = CounterMetricFamily(
        series_names.GOLD_MATCH,
        f"Audit members of user traffic by how their gold item was found; {HEAD_NOTE}",
        labels=("pipeline", "how"),
    )
    for pipeline, ways in sorted(gold_coverage.match_counts(snapshot).items()):
        for how, n in ways.items():
            matches.add_metric((label(pipeline), how), n)
    seen = GaugeMetricFamily(
        series_names.GOLD_ITEMS_SEEN,
        "Distinct items of the gold set in force that were asked in the window",
        labels=("pipeline", "source", "gold", "window"),
    )
    for window in dict.fromkeys(series.window for series in snapshot.series if series.window != ALL):
        for covered in gold_coverage.covered(snapshot, window):
            seen.add_metric((label(covered.pipeline), covered.source, label(covered.gold), label(window)), covered.seen)
    yield from (matches, seen)


def info_families(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Gold sets, builds, the configuration, the time of the last score and the version of ragmon."""
    info = GaugeMetricFamily(series_names.GOLD_INFO, "Gold sets in use; always 1", labels=("gold", "version"))
    items = GaugeMetricFamily(series_names.GOLD_ITEMS, "Items of a gold set", labels=("gold",))
    for gold in reading.snapshot.golds:
        info.add_metric((label(gold.name), gold.version), 1)
        items.add_metric((label(gold.name),), gold.items)
    builds = GaugeMetricFamily(
        series_names.BUILD_SEEN,
        "Builds and indexes that answered last; always 1",
        labels=("pipeline", "build", "index_hash"),
    )
    for labels in reading.builds:
        builds.add_metric([label(text) for text in labels], 1)
    loaded = GaugeMetricFamily(
        series_names.RELOADED,
        "Whether the configuration in force is the one on disk",
        value=float(reading.served is None or reading.served.reloaded),
    )
    last = GaugeMetricFamily(series_names.LAST_SCORED, "When a record was scored last")
    if reading.last_scored is not None:
        last.add_metric((), reading.last_scored)
    version = GaugeMetricFamily(series_names.BUILD_INFO, "This ragmon; always 1", labels=("version",))
    version.add_metric((current_version(),), 1)
    yield from (info, items, builds, loaded, last, version)


def server_families(served: ServerStats) -> Iterator[Metric]:
    """Rejected requests, losses of producers, unknown fields, probes and the journal of a server."""
    yield _counter(series_names.REFUSED, "Requests that were turned away", "reason", served.refused)
    yield _counter(series_names.PRODUCER_DROPPED, "Records that producers lost", "reason", served.lost)
    unknown = CounterMetricFamily(
        series_names.FIELDS_UNKNOWN,
        "Fields that spans of other instrumentations do not tell",
        labels=("field", "reason"),
    )
    for key, n in sorted(served.unknown.items()):
        unknown.add_metric([label(text) for text in key], n)
    yield unknown
    probes = CounterMetricFamily(
        series_names.PROBES, "Gold questions that were due, and what became of them", labels=("probe", "result")
    )
    for (probe, result), n in sorted(served.probes.items()):
        probes.add_metric((label(probe), result), n)
    yield probes
    help_text = "Applications' own records of probes, and whether the reply came too"
    yield _counter(series_names.PROBE_RECORDS, help_text, "result", served.probed)
    resets = CounterMetricFamily(series_names.STATE_RESETS, "Damaged journals that were set aside")
    resets.add_metric((), served.resets)
    jumps = CounterMetricFamily(series_names.CLOCK_JUMPS, "Jumps of the system's clock")
    jumps.add_metric((), served.jumps)
    missing = GaugeMetricFamily(series_names.PRODUCER_MISSING, "Records that were sent and have not come")
    missing.add_metric((), served.missing)
    size = GaugeMetricFamily(series_names.JOURNAL_BYTES, "Bytes of the journal")
    size.add_metric((), served.size)
    writable = GaugeMetricFamily(series_names.JOURNAL_WRITABLE, "Whether the journal can be written")
    writable.add_metric((), float(not served.trouble))
    yield from (resets, jumps, missing, size, writable)


def _counter(name: str, help_text: str, by: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text, labels=(by,))
    for key, n in sorted(counts.items()):
        family.add_metric((label(key),), n)
    return family


_GATE: Final = ("pipeline", "gate")
_DETAILS: Final = ("metric", "source", "gold", "direction", "window", "estimand")


def alarms(states: Sequence[AlarmState]) -> Iterator[Metric]:
    """Whether each alarm fires, its evidence and its baseline; alarms are named after their gate, or `metric:kind`."""
    alarm = GaugeMetricFamily(
        series_names.GATE_ALARM, "1 while the alarm fires; it keeps its false-alarm budget", labels=(*_GATE, "severity")
    )
    evidence = GaugeMetricFamily(
        series_names.GATE_EVIDENCE, "How far the alarm is on its way to firing, 0 to 1, logarithmic", labels=_GATE
    )
    baseline = GaugeMetricFamily(
        series_names.GATE_BASELINE, "What the alarm holds its metric against; absent while it is learned", labels=_GATE
    )
    info = GaugeMetricFamily(
        series_names.GATE_BASELINE_INFO,
        "Where the alarm's baseline comes from: learning, growing, frozen, given; always 1",
        labels=(*_GATE, "state", "version"),
    )
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
    threshold = GaugeMetricFamily(series_names.GATE_THRESHOLD, "What the gate's value must keep", labels=_GATE)
    value = GaugeMetricFamily(series_names.GATE_VALUE, "The value the gate judges", labels=_GATE)
    lower = GaugeMetricFamily(series_names.GATE_LOWER, "Lower 95 % bound of the gate's value", labels=_GATE)
    upper = GaugeMetricFamily(series_names.GATE_UPPER, "Upper 95 % bound of the gate's value", labels=_GATE)
    samples = GaugeMetricFamily(series_names.GATE_SAMPLES, "Requests behind the gate's value", labels=_GATE)
    status = GaugeMetricFamily(
        series_names.GATE_STATUS, "Verdict of the gate: 1 for the one it has, else 0", labels=(*_GATE, "status")
    )
    info = GaugeMetricFamily(series_names.GATE_INFO, "What the gate judges; always 1", labels=(*_GATE, *_DETAILS))
    for outcome in outcomes:
        gate = outcome.gate
        labels = (label(gate.pipeline), label(gate.name))
        threshold.add_metric(labels, gate.threshold)
        samples.add_metric(labels, outcome.n)
        for family, number in ((value, outcome.value), (lower, outcome.lower), (upper, outcome.upper)):
            if number is not None:
                family.add_metric(labels, number)
        for name in sorted(ORDER):
            status.add_metric((*labels, name), float(outcome.verdict == name))
        details = (
            gate.metric,
            outcome.source,
            label(outcome.gold),
            gate.direction,
            label(gate.window),
            outcome.estimand,
        )
        info.add_metric((*labels, *details), 1)
    yield from (threshold, value, lower, upper, samples, status, info)


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
        series = GaugeMetricFamily(series_names.SERIES, "Prometheus series of this scrape")
        series.add_metric((), 1 + sum(len(family.samples) for family in collected))
        return [*collected, series]


class Exposition:
    """The body of `/metrics`, encoded again only when the data changed since the last scrape in the same format.

    Args:
        read: Takes a snapshot.
        moment: The version of the data.
    """

    def __init__(self, read: Callable[[], MonitorSnapshot], moment: Callable[[], object]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Collector(read, moment))
        self._moment = moment
        self._cached: dict[str, tuple[object, bytes]] = {}

    def page(self, accept: str) -> tuple[bytes, str]:
        """The series of the current snapshot, and their content type.

        Args:
            accept: The Accept header; without one, the oldest format is used.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a malformed version in the header
            encode, content_type = choose_encoder("")
        moment = self._moment()
        cached = self._cached.get(content_type)
        if cached is None or cached[0] != moment:
            cached = self._cached[content_type] = (moment, encode(self._registry))
        return cached[1], content_type


def families(reading: MonitorSnapshot) -> Iterator[Metric]:
    """Every family with at least one sample: metrics, slices, traffic, gates, alarms and the monitor's own counters."""
    for part in (
        prometheus_quality.quality_families(reading.snapshot),
        prometheus_quality.estimands(reading.snapshot),
        prometheus_quality.slices(reading.snapshot, reading.outcomes),
        prometheus_quality.predicted(reading.predictions),
        prometheus_quality.traffic_families(reading),
        gate_families(reading.outcomes),
        alarms(reading.alarms),
        accounting_families(reading),
        () if reading.served is None else server_families(reading.served),
    ):
        yield from (family for family in part if family.samples)
