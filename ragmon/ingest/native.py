"""What ragmon's own capture sends: native records, and the totals of producers.

A native record is a span that is a whole record. Totals are OTLP metrics (`ragmon.capture.otlp_exporter`).

Source: OpenTelemetry, metrics data model (exponential histograms) and OTLP specification 1.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import Parse, ParseError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from ragmon.core import constants, semconv
from ragmon.core.record import LARGEST, LONGEST_MS, SHORT, Record, Totals, bounded, encode, latencies_in_range
from ragmon.ingest.lines import Rejected, wrong_type
from ragmon.ingest.otlp import MAX_ITEMS, NativeSpan, check_size, parse_message, too_many
from ragmon.ingest.spans.mapper import own_record
from ragmon.ingest.spans.span import OWN_SCOPE
from ragmon.metrics.builtin import AnswerCorrect
from ragmon.stats.histograms import NOT_POSITIVE, bucket

BUCKET_NS: Final = 10_000_000_000
"""Nanoseconds of a step of event time; keys of one step are looked up together."""


class NativeRecord(NamedTuple):
    """A record that arrived as one span, and its journal line; the key is the step of event time, trace and span."""

    key: tuple[int, bytes]
    ended: float
    trace_id: bytes
    record: Record
    line: bytes


def native_record(native: NativeSpan, unknown: dict[str, int]) -> NativeRecord | str:
    """The record in a native span with its key and its line, or the reason why it cannot be read."""
    record = record_in(native, unknown)
    if isinstance(record, str):
        return record
    key = (native.end_ns // BUCKET_NS, native.trace_id + native.span_id)
    return NativeRecord(key, native.end_ns / 1e9, native.trace_id, record, encode(record))


def _note(unknown: dict[str, int], name: str, reason: str, _: str = "", /) -> None:
    unknown[f"{name}|{reason}"] = unknown.get(f"{name}|{reason}", 0) + 1


def record_in(native: NativeSpan, unknown: dict[str, int]) -> Record | str:
    """The record in a native span, or the reason why it cannot be read."""
    record = own_record(native.line, native.trace_id.hex(), native.end_ns, partial(_note, unknown))
    if isinstance(record, str):
        return record
    if record.source == constants.LABEL:  # ratings must come as labels, which are deduplicated
        return constants.INVALID_SCHEMA
    latency = record.latency_ms
    if len(native.line) > SHORT or (latency is not None and not latencies_in_range(latency)):
        record, out_of_range = bounded(record)
        for field_name, reason in out_of_range.items():
            _note(unknown, field_name, reason)
    if record.measures is not None:
        record.measures.pop(AnswerCorrect.name, None)
    if record.source is None:
        record.source = constants.LIVE
    return record


_SECOND: Final = 1e9
_MILLISECONDS: Final = 1000
_CUMULATIVE: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_LAST_BUCKET: Final = bucket(LONGEST_MS)
_SERIES: Final = (semconv.PIPELINE, semconv.SOURCE, semconv.STRATUM)
_COUNTS: Final = {semconv.KEPT: "kept", semconv.UNKEPT: "unkept"}
_METRICS: Final = {
    semconv.REQUESTS: "sum",
    semconv.RECORDS_DROPPED: "sum",
    semconv.E2E_LATENCY: "exponential_histogram",
}


@dataclass
class _Counted:
    """The counts of one producer for one pipeline, source and stratum."""

    kept: int = 0
    unkept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[int, int] = field(default_factory=dict)


_Key = tuple[str, float, float, str, str, str]
"""The instance, its start time, the time of the point, and the series."""


def totals(body: bytes, *, json: bool) -> tuple[list[Totals], int, str]:
    """The totals in a request with metrics; metrics of other programs are ignored.

    Points of one producer, series and time make one totals line, wherever in the request they are. A missing point
    counts as zero. Beside the totals are the number of rejected points, and the details of the first rejection.

    Examples:
        >>> totals(b'{"resourceMetrics": []}', json=True)
        ([], 0, '')
    """
    if json:
        check_size(body, ExportMetricsServiceRequest, json=True)
        if body.lstrip()[:1] != b"{":
            raise Rejected(constants.MALFORMED_JSON, "it is not a JSON object")
        try:
            request = Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
        except UnicodeDecodeError as error:
            raise Rejected(constants.INVALID_UTF8, str(error)) from None
        except (ParseError, ValueError, RecursionError) as error:
            raise Rejected(constants.MALFORMED_JSON, f"it is not a protocol message: {error}") from None
    else:
        request = parse_message(ExportMetricsServiceRequest, body)
    # A collector may reorder or separate the points of one producer, series and time.
    counted: dict[_Key, _Counted] = {}
    points, rejected, first = 0, 0, ""
    own = (
        (_labels(resource_metrics.resource.attributes).get(semconv.SERVICE_INSTANCE), metric)
        for resource_metrics in request.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        if scope_metrics.scope.name == OWN_SCOPE
        for metric in scope_metrics.metrics
        if metric.name in _METRICS
    )
    for instance, metric in own:
        data_kind = metric.WhichOneof("data")
        metric_points = [] if data_kind is None else getattr(metric, data_kind).data_points
        points += len(metric_points)
        if points > MAX_ITEMS:
            raise too_many()
        try:
            _check_type(metric, data_kind)
        except Rejected as rejection:
            rejected, first = rejected + len(metric_points), first or str(rejection)
            continue
        for point in metric_points:
            if not point.flags & _NO_VALUE:
                try:
                    labels = _labels(point.attributes)
                    key = _key(instance, point, labels)
                    _add(counted.get(key) or counted.setdefault(key, _Counted()), metric.name, point, labels)
                except Rejected as rejection:
                    rejected, first = rejected + 1, first or str(rejection)
    lines = [
        Totals(
            ts=ts,
            instance=instance,
            started=started,
            pipeline=pipeline,
            source=source,
            stratum=stratum,
            calls=counts.kept + counts.unkept,
            kept=counts.kept,
            dropped=counts.dropped,
            latency_ms=counts.latency_ms,
        )
        for (instance, started, ts, pipeline, source, stratum), counts in counted.items()
    ]
    return lines, rejected, first


def _check_type(metric: Any, data_kind: str | None) -> None:
    kind = _METRICS[metric.name]
    if data_kind != kind:
        raise wrong_type(metric.name, f"a metric of the kind {kind}", data_kind)
    data = getattr(metric, kind)
    if data.aggregation_temporality != _CUMULATIVE:
        names = {number: name for name, number in AggregationTemporality.items()}
        temporality = names.get(data.aggregation_temporality, data.aggregation_temporality)
        raise wrong_type(metric.name, "cumulative", temporality)
    if kind == "sum" and not data.is_monotonic:
        raise Rejected(constants.INVALID_SCHEMA, f"{metric.name} is a sum that only grows")


def _labels(attributes: Iterable[Any]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes if pair.value.HasField("string_value")}


def _key(instance: str | None, point: Any, labels: Mapping[str, str]) -> _Key:
    if instance is None:
        raise Rejected(constants.INVALID_SCHEMA, f"no {semconv.SERVICE_INSTANCE} says which producer counted")
    pipeline, source, stratum = (_label(labels, name) for name in _SERIES)
    for name in ("start_time_unix_nano", "time_unix_nano"):
        if not getattr(point, name):
            raise wrong_type(name, "a time", 0)
    started, ts = point.start_time_unix_nano / _SECOND, point.time_unix_nano / _SECOND
    return instance, started, ts, pipeline, source, stratum


def _label(labels: Mapping[str, str], name: str) -> str:
    if name not in labels:
        raise Rejected(constants.INVALID_SCHEMA, f"a point has no {name}")
    return labels[name]


def _add(counted: _Counted, metric: str, point: Any, labels: Mapping[str, str]) -> None:
    if metric == semconv.REQUESTS:
        outcome = _label(labels, semconv.OUTCOME)
        if outcome not in _COUNTS:
            raise wrong_type(semconv.OUTCOME, f"one of {', '.join(_COUNTS)}", outcome)
        setattr(counted, _COUNTS[outcome], max(_count(point), getattr(counted, _COUNTS[outcome])))
    elif metric == semconv.RECORDS_DROPPED:
        reason = _label(labels, semconv.REASON)
        counted.dropped[reason] = max(_count(point), counted.dropped.get(reason, 0))
    else:
        buckets = _buckets(point)
        counted.latency_ms = {index: n for index, n in buckets.items() if index <= _LAST_BUCKET}
        too_long = sum(n for index, n in buckets.items() if index > _LAST_BUCKET)
        if too_long:
            raise wrong_type("a latency", f"at most {LONGEST_MS:.0f} ms", f"{too_long} longer ones; the others count")


def _count(point: Any) -> int:
    """The count of a point; a collector may have converted it to a floating-point number."""
    count = point.as_int if point.HasField("as_int") else point.as_double
    if not count >= 0 or count != count // 1:
        raise wrong_type("a count", "a whole number of at least 0", count)
    return _bounded_count(int(count))


def _bounded_count(count: int) -> int:
    """A count that may be added to others."""
    if count > LARGEST:
        raise wrong_type("a count", f"at most {LARGEST}", count)
    return count


def _buckets(point: Any) -> dict[int, int]:
    """The counts by ragmon's own buckets: the middle of each bucket of the exponential histogram identifies one."""
    if any(point.negative.bucket_counts):
        raise Rejected(constants.INVALID_SCHEMA, "a latency is not below zero")
    counts = {NOT_POSITIVE: _bounded_count(point.zero_count)} if point.zero_count else {}
    for index, n in enumerate(point.positive.bucket_counts, point.positive.offset):
        if n:
            try:
                own_bucket = bucket(2.0 ** ((index + 0.5) * 2.0**-point.scale) * _MILLISECONDS)
            except OverflowError:
                raise wrong_type("a latency", "a finite number", f"bucket {index} at scale {point.scale}") from None
            counts[own_bucket] = _bounded_count(counts.get(own_bucket, 0) + n)
    if sum(counts.values()) != point.count:
        raise wrong_type("the sum of a histogram's buckets", f"its count, {point.count}", sum(counts.values()))
    return counts
