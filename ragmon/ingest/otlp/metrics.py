"""Producers' totals from OTLP metrics: what `ragmon.capture.exporters.otlp` writes, read back.

Source: OpenTelemetry, metrics data model (exponential histograms) and OTLP specification 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.json_format import Parse, ParseError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from ragmon.core import constants, semconv
from ragmon.core.bounds import LARGEST, LONGEST_MS
from ragmon.core.record import Totals
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp.request import parse_message
from ragmon.ingest.spans.model import OWN_SCOPE
from ragmon.stats import NOT_POSITIVE, bucket

_SECOND: Final = 1e9
_MILLISECONDS: Final = 1000
_CUMULATIVE: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_LONGEST: Final = bucket(LONGEST_MS)
_SERIES: Final = (semconv.PIPELINE, semconv.SOURCE, semconv.STRATUM)
_COUNTS: Final = {semconv.KEPT: "kept", semconv.UNKEPT: "unkept"}


@dataclass
class _Counted:
    """What one producer counted of one pipeline, source and stratum, as far as it was read."""

    kept: int = 0
    unkept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[int, int] = field(default_factory=dict)


_Key = tuple[str, float, float, str, str, str]
"""The instance, when it started and when it was read, and the series."""


@dataclass
class _Reading:
    """Puts the points of a request together: a collector may have sent them in another order, or apart."""

    counted: dict[_Key, _Counted] = field(default_factory=dict)
    rejected: int = 0
    first: str = ""

    def refuse(self, rejected: Rejected, points: int = 1) -> None:
        """Count points that say nothing."""
        self.first = self.first or str(rejected)
        self.rejected += points

    def add(self, instance: Any, metric: Any) -> None:
        """Take in a metric of one instance."""
        put, kind = _METRICS[metric.name]
        found = metric.WhichOneof("data")
        points = [] if found is None else getattr(metric, found).data_points
        try:
            _check(metric, kind, found)
        except Rejected as rejected:
            self.refuse(rejected, len(points))
            return
        for point in points:
            if not point.flags & _NO_VALUE:
                try:
                    labels = _labels(point.attributes)
                    key = _key(instance, point, labels)
                    put(self.counted.get(key) or self.counted.setdefault(key, _Counted()), point, labels)
                except Rejected as rejected:
                    self.refuse(rejected)

    def totals(self) -> Iterator[Totals]:
        """What was counted, in the order it was told."""
        for (instance, started, ts, pipeline, source, stratum), found in self.counted.items():
            yield Totals(
                ts=ts,
                instance=instance,
                started=started,
                pipeline=pipeline,
                source=source,
                stratum=stratum,
                calls=found.kept + found.unkept,
                kept=found.kept,
                dropped=found.dropped,
                latency_ms=found.latency_ms,
            )


def totals(body: bytes, *, json: bool) -> tuple[list[Totals], int, str]:
    """The totals in a request with metrics; other programs' metrics are passed over.

    Points of one producer, series and time make one line, wherever in the request they stand. A point that is not
    there counts nothing.

    Args:
        body: What was received, inflated.
        json: It is JSON; else it is protobuf.

    Returns:
        The totals, how many points of ragmon's metrics were none, and what was wrong with the first of those.

    Raises:
        Rejected: It is no request.

    Example:
        >>> totals(b'{"resourceMetrics": []}', json=True)
        ([], 0, '')
    """
    request = _from_json(body) if json else parse_message(ExportMetricsServiceRequest, body)
    reading = _Reading()
    for process in request.resource_metrics:
        instance = _labels(process.resource.attributes).get(semconv.SERVICE_INSTANCE)
        for scope in process.scope_metrics:
            if scope.scope.name == OWN_SCOPE:
                for metric in scope.metrics:
                    if metric.name in _METRICS:
                        reading.add(instance, metric)
    return list(reading.totals()), reading.rejected, reading.first


def _from_json(body: bytes) -> Any:
    if body.lstrip()[:1] != b"{":
        raise Rejected(constants.MALFORMED_JSON, "it is no JSON object")
    try:
        return Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except UnicodeDecodeError as error:
        raise Rejected(constants.INVALID_UTF8, str(error)) from None
    except (ParseError, ValueError, RecursionError) as error:
        raise Rejected(constants.MALFORMED_JSON, f"it is no protocol message: {error}") from None


def _check(metric: Any, kind: str, found: str | None) -> None:
    """Whether a metric counts as ragmon does.

    Raises:
        Rejected: It does not.
    """
    if found != kind:
        raise wrong_type(metric.name, f"a metric of the kind {kind}", found)
    data = getattr(metric, kind)
    if data.aggregation_temporality != _CUMULATIVE:
        kinds = {number: name for name, number in AggregationTemporality.items()}
        told = kinds.get(data.aggregation_temporality, data.aggregation_temporality)
        raise wrong_type(metric.name, "cumulative", told)
    if kind == "sum" and not data.is_monotonic:
        raise Rejected(constants.INVALID_SCHEMA, f"{metric.name} is a sum that only grows")


def _labels(attributes: Iterable[Any]) -> dict[str, str]:
    """The attributes that are texts."""
    return {pair.key: pair.value.string_value for pair in attributes if pair.value.HasField("string_value")}


def _key(instance: str | None, point: Any, labels: Mapping[str, str]) -> _Key:
    """What a point is about.

    Raises:
        Rejected: It does not say.
    """
    if instance is None:
        raise Rejected(constants.INVALID_SCHEMA, f"no {semconv.SERVICE_INSTANCE} says which producer counted")
    pipeline, source, stratum = (_label(labels, name) for name in _SERIES)
    started, ts = (_moment(name, getattr(point, name)) for name in ("start_time_unix_nano", "time_unix_nano"))
    return instance, started, ts, pipeline, source, stratum


def _label(labels: Mapping[str, str], name: str) -> str:
    if name not in labels:
        raise Rejected(constants.INVALID_SCHEMA, f"a point has no {name}")
    return labels[name]


def _moment(name: str, nanoseconds: int) -> float:
    """Seconds since the epoch."""
    if not nanoseconds:
        raise wrong_type(name, "a time", nanoseconds)
    return nanoseconds / _SECOND


def _requests(counted: _Counted, point: Any, labels: Mapping[str, str]) -> None:
    outcome = _label(labels, semconv.OUTCOME)
    if outcome not in _COUNTS:
        raise wrong_type(semconv.OUTCOME, f"one of {', '.join(_COUNTS)}", outcome)
    setattr(counted, _COUNTS[outcome], max(_count(point), getattr(counted, _COUNTS[outcome])))


def _dropped(counted: _Counted, point: Any, labels: Mapping[str, str]) -> None:
    reason = _label(labels, semconv.REASON)
    counted.dropped[reason] = max(_count(point), counted.dropped.get(reason, 0))


def _latency(counted: _Counted, point: Any, _labels: Mapping[str, str]) -> None:
    found = _buckets(point)
    counted.latency_ms = {place: n for place, n in found.items() if place <= _LONGEST}
    longer = sum(n for place, n in found.items() if place > _LONGEST)
    if longer:
        raise wrong_type("a latency", f"at most {LONGEST_MS:.0f} ms", f"{longer} longer ones; the others count")


def _count(point: Any) -> int:
    """How many; a collector may have made a floating-point number of it."""
    found = point.as_int if point.HasField("as_int") else point.as_double
    if not found >= 0 or found != found // 1:
        raise wrong_type("a count", "a whole number of at least 0", found)
    return _plausible(int(found))


def _plausible(found: int) -> int:
    """A count that may be added to others.

    Raises:
        Rejected: One so large would spoil every sum it is in.
    """
    if found > LARGEST:
        raise wrong_type("a count", f"at most {LARGEST}", found)
    return found


def _buckets(point: Any) -> dict[int, int]:
    """The buckets ragmon counts in: the middle of each of the exponential histogram's tells which one it was.

    Raises:
        Rejected: They hold what no latency is.
    """
    if any(point.negative.bucket_counts):
        raise Rejected(constants.INVALID_SCHEMA, "a latency is not below zero")
    found = {NOT_POSITIVE: _plausible(point.zero_count)} if point.zero_count else {}
    for index, n in enumerate(point.positive.bucket_counts, point.positive.offset):
        if n:
            place = _place(index, point.scale)
            found[place] = _plausible(found.get(place, 0) + n)
    if sum(found.values()) != point.count:
        raise wrong_type("the sum of a histogram's buckets", f"its count, {point.count}", sum(found.values()))
    return found


def _place(index: int, scale: int) -> int:
    try:
        return bucket(2.0 ** ((index + 0.5) * 2.0**-scale) * _MILLISECONDS)
    except OverflowError:
        raise wrong_type("a latency", "a finite number", f"bucket {index} at scale {scale}") from None


_METRICS: Final[Mapping[str, tuple[Callable[[_Counted, Any, Mapping[str, str]], None], str]]] = {
    semconv.REQUESTS: (_requests, "sum"),
    semconv.RECORDS_DROPPED: (_dropped, "sum"),
    semconv.E2E_LATENCY: (_latency, "exponential_histogram"),
}
"""How the points of each metric are read, and what kind it is."""
