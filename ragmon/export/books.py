"""The monitor's own books as Prometheus series: what came in, what became of it, and what it knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ragmon.core import constants, series_names
from ragmon.core.series_names import label
from ragmon.core.version import current
from ragmon.gates import coverage as gold_coverage
from ragmon.gates.coverage import HEAD
from ragmon.reading import Reading
from ragmon.scoring.snapshot import ALL


def families(reading: Reading) -> Iterator[Metric]:
    """Accounting, labels, unassessed requests, gold, builds and the version."""
    yield from accounting(reading)
    yield from labels(reading)
    yield from unassessed(reading)
    yield from overflow(reading)
    yield from known(reading)
    yield from coverage(reading)


def accounting(reading: Reading) -> Iterator[Metric]:
    """Received = scored + ignored + dropped + duplicate + pending, per stage, and what is left over."""
    by_stage, by_reason = ("stage",), ("stage", "reason")
    received = CounterMetricFamily(series_names.RECEIVED, "Records that came in", labels=by_stage)
    scored = CounterMetricFamily(series_names.RECORDS_SCORED, "Records that were counted", labels=by_stage)
    ignored = CounterMetricFamily(series_names.IGNORED, "Records that are not RAG", labels=by_reason)
    dropped = CounterMetricFamily(series_names.DROPPED, "Records that were lost", labels=by_reason)
    duplicate = CounterMetricFamily(series_names.DUPLICATE, "Records that were there already", labels=by_stage)
    pending = GaugeMetricFamily(series_names.PENDING, "Records that wait", labels=by_stage)
    residual = GaugeMetricFamily(series_names.RESIDUAL, "Records unaccounted for; 0", labels=by_stage)
    for stage, books in sorted(reading.books.items()):
        received.add_metric((stage,), books.received)
        scored.add_metric((stage,), books.scored)
        duplicate.add_metric((stage,), books.duplicate)
        pending.add_metric((stage,), books.pending)
        residual.add_metric((stage,), books.residual)
        for family, reasons in ((ignored, books.ignored), (dropped, books.dropped)):
            for reason, n in sorted(reasons.items()):
                family.add_metric((stage, reason), n)
    orphans = CounterMetricFamily(
        series_names.ORPHANS, "What was said outside a traced call", value=reading.captured.orphans
    )
    spans = CounterMetricFamily(series_names.SPANS_DROPPED, "Spans that belong to no record", labels=("reason",))
    for reason, n in sorted(reading.captured.spans.items()):
        spans.add_metric((reason,), n)
    judged = CounterMetricFamily(series_names.JUDGE_CALLS, "Requests before a judge", labels=("judge", "result"))
    for told, n in sorted(reading.captured.judged.items()):
        judged.add_metric(told, n)
    failures = reading.captured.withheld
    withheld = CounterMetricFamily(series_names.REDACTION_FAILURES, "Records without text: a redactor failed", failures)
    yield from (received, scored, ignored, dropped, duplicate, pending, residual, orphans, spans, judged, withheld)


def labels(reading: Reading) -> Iterator[Metric]:
    """What became of the labels people gave, and how many wait for their answers."""
    given = CounterMetricFamily(series_names.LABELS, "Labels people gave", labels=("result",))
    for result, n in sorted(reading.labels.items()):
        given.add_metric((result,), n)
    waiting = GaugeMetricFamily(series_names.LABELS_WAITING, "Labels that wait for their answers")
    waiting.add_metric((), reading.labels_waiting)
    yield from (given, waiting)


def unassessed(reading: Reading) -> Iterator[Metric]:
    """Requests a metric could not be assessed on, by reason, over all time.

    What needs gold is counted where there is gold, all else on all traffic; a question that matched a gold item, or
    whose answer was labelled, is user traffic and a gold draw, and counts for each metric once.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for series in (*reading.snapshot.series, *reading.snapshot.gone):
        if series.window != ALL or series.slice or (series.source in constants.AGAIN and not series.gold):
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


def overflow(reading: Reading) -> Iterator[Metric]:
    """How often a name came that stands under `__other__`; 0 of every kind as long as there is room."""
    family = CounterMetricFamily(
        series_names.NAMES_OVERFLOW, "Names that are not kept apart: they count as __other__", labels=("kind",)
    )
    for kind in constants.NAME_KINDS:
        family.add_metric((kind,), reading.overflow.get(kind, 0))
    yield family


def coverage(reading: Reading) -> Iterator[Metric]:
    """How much of the traffic the gold covers, and how much of the gold each source touched."""
    snapshot = reading.snapshot
    matches = CounterMetricFamily(
        series_names.GOLD_MATCH,
        f"Audit members of user traffic by how their gold item was found; {HEAD}",
        labels=("pipeline", "how"),
    )
    for pipeline, ways in sorted(gold_coverage.ways(snapshot).items()):
        for how, n in ways.items():
            matches.add_metric((label(pipeline), how), n)
    seen = GaugeMetricFamily(
        series_names.GOLD_ITEMS_SEEN,
        "Distinct items of the gold set in force that were asked in the window",
        labels=("pipeline", "source", "gold", "window"),
    )
    for window in dict.fromkeys(series.window for series in snapshot.series if series.window != ALL):
        for one in gold_coverage.covered(snapshot, window):
            seen.add_metric((label(one.pipeline), one.source, label(one.gold), label(window)), one.seen)
    yield from (matches, seen)


def known(reading: Reading) -> Iterator[Metric]:
    """Gold sets, builds, the configuration, the newest score and this version."""
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
    version.add_metric((current(),), 1)
    yield from (info, items, builds, loaded, last, version)
