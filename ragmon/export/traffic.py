"""Requests, errors, latency and what retrieval brought back, as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import Exemplar as Marked

from ragmon import stats
from ragmon.core import constants, series_names
from ragmon.core.series_names import label
from ragmon.reading import Captured, Reading
from ragmon.scoring.calls import Exemplar
from ragmon.scoring.snapshot import ALL, Snapshot

LATENCY_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the exported latency buckets."""
DOCUMENT_BOUNDS: Final = (0, 1, 2, 3, 5, 10, 20, 50, 100)
"""The same for how many documents came back."""
_MILLISECONDS: Final = 1000
Bucket = tuple[str, float]
"""An upper bound, and how many lie below."""


def families(reading: Reading) -> Iterator[Metric]:
    """Requests, errors and latency of all calls where they were captured; stages and documents of the sampled ones."""
    yield from requests(reading.captured)
    yield from latency(reading.snapshot, reading.captured.latency, reading.exemplars)
    documents = HistogramMetricFamily(
        series_names.DOCUMENTS, "Documents retrieval brought back", labels=("pipeline", "source")
    )
    for (pipeline, source), counts in sorted(reading.retrieved.items()):
        if counts:
            documents.add_metric((label(pipeline), source), *_histogram(counts, DOCUMENT_BOUNDS))
    yield documents


def requests(captured: Captured) -> Iterator[Metric]:
    """All calls, sampled or not."""
    calls = CounterMetricFamily(
        series_names.REQUESTS, "All calls, sampled or not", labels=("pipeline", "source", "stratum")
    )
    errors = CounterMetricFamily(series_names.ERRORS, "Calls that ended in an error", labels=("pipeline", "code"))
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
    """Latency from end to end and per stage. A question that matched a gold item counts as user traffic, once.

    Args:
        snapshot: What was sampled.
        timed: All calls in log buckets of milliseconds, by pipeline and source; empty where nobody timed them.
        exemplars: A trace for the latency from end to end, by pipeline and source; scraped as OpenMetrics alone.
    """
    whole = HistogramMetricFamily(series_names.LATENCY, "Latency of calls", labels=("pipeline", "source"))
    by_stage = HistogramMetricFamily(
        series_names.STAGE_LATENCY, "Latency of a stage of a call", labels=("pipeline", "source", "stage")
    )
    for (pipeline, source), histogram in sorted(timed.items()):
        buckets, total = _histogram(_seconds(histogram), LATENCY_BOUNDS)
        whole.add_metric((label(pipeline), source), _marked(buckets, exemplars.get((pipeline, source))), total)
    for series in snapshot.series:
        if series.window != ALL or series.slice or series.gold or series.source in constants.AGAIN:
            continue
        labels = (label(series.pipeline), series.source)
        for stage, histogram in sorted(series.latency.items()):
            if stage != "total":
                by_stage.add_metric((*labels, stage), *_histogram(_seconds(histogram), LATENCY_BOUNDS))
            elif not timed:
                buckets, total = _histogram(_seconds(histogram), LATENCY_BOUNDS)
                whole.add_metric(labels, _marked(buckets, exemplars.get((series.pipeline, series.source))), total)
    yield from (whole, by_stage)


def _marked(buckets: Sequence[Bucket], found: Exemplar | None) -> list[Bucket | tuple[str, float, Marked]]:
    """Buckets, that of the exemplar's time with the exemplar."""
    if found is None:
        return list(buckets)
    place = next(place for place, (bound, _) in enumerate(buckets) if found.seconds <= float(bound))
    marked = Marked({"trace_id": found.trace_id}, found.seconds, found.ts)
    return [*buckets[:place], (*buckets[place], marked), *buckets[place + 1 :]]


def _seconds(histogram: Mapping[int, int]) -> dict[float, int]:
    return {stats.bucket_value(index) / _MILLISECONDS: n for index, n in histogram.items()}


def _histogram(counts: Mapping[int, int] | Mapping[float, int], bounds: Sequence[float]) -> tuple[list[Bucket], float]:
    """Cumulative Prometheus buckets, and the sum, of counts by value."""
    held = [0] * (len(bounds) + 1)
    for value, n in counts.items():
        held[next((place for place, bound in enumerate(bounds) if value <= bound), len(bounds))] += n
    limits = [*map(str, map(float, bounds)), "+Inf"]
    buckets = [(limit, float(n)) for limit, n in zip(limits, accumulate(held), strict=True)]
    return buckets, sum(value * n for value, n in counts.items())
