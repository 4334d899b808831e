"""A producer's totals as metrics: cumulative sums, and the latency as an exponential histogram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from ragmon.capture.otlp.wire import nanoseconds, opened, put
from ragmon.core import semconv
from ragmon.core.record import Totals
from ragmon.stats import NOT_POSITIVE, bucket_value

SCALE: Final = 7
"""Of the exponential histogram: 128 buckets an octave. ragmon's narrowest bucket is wider than one of these, so every
count arrives in a bucket of its own, and the middle of that one tells which it was."""
_MILLISECONDS: Final = 1000


def metrics_request(totals: Sequence[Totals], resource: Mapping[str, str]) -> bytes:
    """The protocol message that says how much a producer counted.

    Args:
        totals: Cumulative counts per pipeline, source and stratum.
        resource: Attributes of the process; the instance that counted is added.

    Raises:
        Exception: A count or a bucket is none.
    """
    request = ExportMetricsServiceRequest()
    for instance, found in groupby(sorted(totals, key=attrgetter("instance")), attrgetter("instance")):
        held = opened(request, "metrics", {**resource, semconv.SERVICE_INSTANCE: instance})
        _write(held.metrics, list(found))
    body: bytes = request.SerializeToString()
    return body


def _write(metrics: Any, totals: list[Totals]) -> None:
    requests = _sum(metrics, semconv.REQUESTS, "{request}", "All calls, whether they became records or not")
    dropped = _sum(metrics, semconv.RECORDS_DROPPED, "{record}", "Records lost in the producer")
    latency = metrics.add(name=semconv.E2E_LATENCY, unit="s", description="Latency of all calls from end to end")
    latency.exponential_histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for found in totals:
        for outcome, n in ((semconv.KEPT, found.kept), (semconv.UNKEPT, max(0, found.calls - found.kept))):
            _point(requests, found, {semconv.OUTCOME: outcome}).as_int = n
        for reason, n in sorted(found.dropped.items()):
            _point(dropped, found, {semconv.REASON: reason}).as_int = n
        if found.latency_ms:
            _fill(_point(latency.exponential_histogram.data_points, found, {}), found.latency_ms)


def _sum(metrics: Any, name: str, unit: str, description: str) -> Any:
    """The points of a sum that only grows."""
    held = metrics.add(name=name, unit=unit, description=description).sum
    held.is_monotonic = True
    held.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    return held.data_points


def _point(points: Any, found: Totals, labels: Mapping[str, str]) -> Any:
    point = points.add(start_time_unix_nano=nanoseconds(found.started), time_unix_nano=nanoseconds(found.ts))
    series = {semconv.PIPELINE: found.pipeline, semconv.SOURCE: found.source, semconv.STRATUM: found.stratum}
    for key, value in {**series, **labels}.items():
        put(point.attributes, key, value)
    return point


def _fill(point: Any, histogram: Mapping[int, int]) -> None:
    """Count, sum and buckets; the sum is taken over the middles of the buckets and right within 0.8 %."""
    point.scale = SCALE
    point.count = sum(histogram.values())
    point.sum = math.fsum(seconds * n for seconds, n in _seconds(histogram))
    point.zero_count = histogram.get(NOT_POSITIVE, 0)
    counts = {_index(seconds): n for seconds, n in _seconds(histogram) if seconds}
    if counts:
        first, last = min(counts), max(counts)
        point.positive.offset = first
        point.positive.bucket_counts.extend(counts.get(index, 0) for index in range(first, last + 1))


def _seconds(histogram: Mapping[int, int]) -> Iterator[tuple[float, int]]:
    return ((bucket_value(index) / _MILLISECONDS, n) for index, n in histogram.items())


def _index(value: float) -> int:
    """The exponential bucket `(2^(i/2^scale), 2^((i+1)/2^scale)]` of a value (OpenTelemetry metrics data model)."""
    return math.ceil(math.log2(value) * 2**SCALE) - 1
