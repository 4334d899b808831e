"""The OTLP exporter: records as spans, a producer's totals as metrics.

A record becomes an `invoke_workflow` root span with the whole record as an attribute, and optional child spans of its
stages. Totals become cumulative sums, and the latency an exponential histogram.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from time import monotonic, time
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ragmon.capture.exporters.http import OtlpHttpClient
from ragmon.core import constants, net, semconv
from ragmon.core.errors import RagmonError
from ragmon.core.log import error_location, warn_once
from ragmon.core.record import Label, Latency, Record, Totals, encode
from ragmon.stats import NOT_POSITIVE, bucket_value

_SCOPE: Final = "ragmon"
_VERSION: Final = net.current_version()
_LATEST: Final = 2**64 - 1
_NANO: Final = 1_000_000_000


def add_attribute(attributes: Any, key: str, value: str | bool | float) -> None:
    """Add an attribute to a message's repeated field; four times as fast as to build it first and copy it."""
    field = attributes.add(key=key).value
    if isinstance(value, str):
        field.string_value = value
    elif isinstance(value, bool):
        field.bool_value = value
    else:
        field.double_value = value


def add_scope(request: Any, kind: str, resource: Mapping[str, str]) -> Any:
    """Add the resource and the scope to a request.

    Args:
        request: The protocol message.
        kind: `spans`, `metrics` or `logs`.
        resource: Attributes of the process.

    Returns:
        The scope, to which spans, metrics or events are added.
    """
    resource_part = getattr(request, f"resource_{kind}").add()
    for key, value in resource.items():
        add_attribute(resource_part.resource.attributes, key, value)
    scope_part = getattr(resource_part, f"scope_{kind}").add()
    scope_part.scope.name = _SCOPE
    scope_part.scope.version = _VERSION
    return scope_part


def nanoseconds(seconds: float) -> int:
    """A time in the protocol's format, an unsigned number of 64 bits; times after the year 2554 are clipped."""
    return min(round(min(seconds, _LATEST / _NANO) * _NANO), _LATEST)


def trace_id(text: str | None) -> bytes | None:
    """The sixteen bytes of a trace id; None if the text is not one."""
    return _id(text, 16)


def span_id(text: str | None) -> bytes | None:
    """The eight bytes of a span id; None if the text is not one."""
    return _id(text, 8)


def _id(text: str | None, size: int) -> bytes | None:
    try:
        id_bytes = bytes.fromhex(text or "")
    except ValueError:
        return None
    return id_bytes if len(id_bytes) == size and any(id_bytes) else None


def new_trace_id() -> bytes:
    """A random trace id; not from `random`, which the application may seed identically in every process."""
    return os.urandom(16)


def new_span_id() -> bytes:
    """A random span id."""
    return os.urandom(8)


SCALE: Final = 7
"""Scale of the exponential histogram: 128 buckets per octave. ragmon's narrowest bucket is wider than one of these,
so each count arrives in a bucket of its own, whose middle identifies ragmon's bucket.
"""
_MILLISECONDS: Final = 1000


def metrics_request(totals: Sequence[Totals], resource: Mapping[str, str]) -> bytes:
    """The protocol message with a producer's totals.

    Args:
        totals: Cumulative counts per pipeline, source and stratum.
        resource: Attributes of the process; the instance id of the counts is added.

    Raises:
        Exception: A count or a bucket is not valid.
    """
    request = ExportMetricsServiceRequest()
    for instance, totals_of_instance in groupby(sorted(totals, key=attrgetter("instance")), attrgetter("instance")):
        scope_part = add_scope(request, "metrics", {**resource, semconv.SERVICE_INSTANCE: instance})
        _add_metrics(scope_part.metrics, list(totals_of_instance))
    body: bytes = request.SerializeToString()
    return body


def _add_metrics(metrics: Any, totals: list[Totals]) -> None:
    requests = _add_sum(metrics, semconv.REQUESTS, "{request}", "All calls, whether they became records or not")
    dropped = _add_sum(metrics, semconv.RECORDS_DROPPED, "{record}", "Records lost in the producer")
    latency = metrics.add(name=semconv.E2E_LATENCY, unit="s", description="Latency of all calls from end to end")
    latency.exponential_histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for line in totals:
        for outcome, n in ((semconv.KEPT, line.kept), (semconv.UNKEPT, max(0, line.calls - line.kept))):
            _add_point(requests, line, {semconv.OUTCOME: outcome}).as_int = n
        for reason, n in sorted(line.dropped.items()):
            _add_point(dropped, line, {semconv.REASON: reason}).as_int = n
        if line.latency_ms:
            _fill_histogram(_add_point(latency.exponential_histogram.data_points, line, {}), line.latency_ms)


def _add_sum(metrics: Any, name: str, unit: str, description: str) -> Any:
    """The data points of a new cumulative, monotonic sum."""
    metric_sum = metrics.add(name=name, unit=unit, description=description).sum
    metric_sum.is_monotonic = True
    metric_sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    return metric_sum.data_points


def _add_point(points: Any, line: Totals, labels: Mapping[str, str]) -> Any:
    point = points.add(start_time_unix_nano=nanoseconds(line.started), time_unix_nano=nanoseconds(line.ts))
    series = {semconv.PIPELINE: line.pipeline, semconv.SOURCE: line.source, semconv.STRATUM: line.stratum}
    for key, value in {**series, **labels}.items():
        add_attribute(point.attributes, key, value)
    return point


def _fill_histogram(point: Any, histogram: Mapping[int, int]) -> None:
    """Fill a histogram point; its sum is computed from the middle of each bucket and exact within 0.8 %."""
    point.scale = SCALE
    point.count = sum(histogram.values())
    point.sum = math.fsum(seconds * n for seconds, n in _bucket_seconds(histogram))
    point.zero_count = histogram.get(NOT_POSITIVE, 0)
    counts = {_index(seconds): n for seconds, n in _bucket_seconds(histogram) if seconds}
    if counts:
        first, last = min(counts), max(counts)
        point.positive.offset = first
        point.positive.bucket_counts.extend(counts.get(index, 0) for index in range(first, last + 1))


def _bucket_seconds(histogram: Mapping[int, int]) -> Iterator[tuple[float, int]]:
    return ((bucket_value(index) / _MILLISECONDS, n) for index, n in histogram.items())


def _index(value: float) -> int:
    """The exponential bucket `(2^(i/2^scale), 2^((i+1)/2^scale)]` of a value (OpenTelemetry metrics data model)."""
    return math.ceil(math.log2(value) * 2**SCALE) - 1


GENERATE: Final = "generate"


@dataclass(frozen=True)
class SpanWriter:
    """Writes records into a request as spans.

    The root span carries the record as one JSON attribute: it is complete by itself, no limit on the number of
    attributes can cut a document off, and one attribute costs a tenth of forty. Scalars that backends filter by are
    also attributes of their own.

    Args:
        conventions: Add OpenTelemetry's and OpenInference's attributes, so that other backends show questions and
            answers where the record has them.
        stages: Add child spans for retrieval and generation.
    """

    conventions: bool = True
    stages: bool = False

    def write(self, spans: Any, record: Record, root_id: str | None = None) -> int:
        """Add a record's spans to a request; a record that cannot be written leaves no span in it.

        Args:
            spans: The request's repeated field.
            record: The record.
            root_id: The root's span id, 16 hex digits; None for a random one.

        Returns:
            Approximate size in bytes.

        Raises:
            Exception: A field cannot be written: a lone surrogate, a number that is not finite.
        """
        line = encode(record)[:-1].decode()
        first_index = len(spans)
        try:
            self._add_root(spans, record, line, span_id(root_id) or new_span_id())
            if self.stages:
                self._add_stages(spans, spans[first_index], record)
        except BaseException:
            del spans[first_index:]
            raise
        return len(line)

    def _add_root(self, spans: Any, record: Record, line: str, own_id: bytes) -> None:
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        latency = record.latency_ms or Latency()
        end = time() if record.ts is None else record.ts
        root = spans.add(
            trace_id=trace_id(record.trace_id) or new_trace_id(),
            span_id=own_id,
            parent_span_id=span_id(record.parent_span_id) or b"",
            name=f"{semconv.INVOKE_WORKFLOW} {pipeline}",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=nanoseconds(max(0.0, end - (latency.total or 0.0) / _MILLISECONDS)),
            end_time_unix_nano=nanoseconds(end),
        )
        attributes = root.attributes
        add_attribute(attributes, semconv.RAGMON_CONTRACT_VERSION, str(constants.CONTRACT_VERSION))
        add_attribute(attributes, semconv.RAGMON_RECORD, line)
        add_attribute(attributes, semconv.RAGMON_OK, not record.error)
        add_attribute(attributes, semconv.RAGMON_PROBABILITY, 1.0 if record.sampling is None else record.sampling.p)
        if record.qid is not None:
            add_attribute(attributes, semconv.RAGMON_QID, record.qid)
        if record.error:
            root.status.code = Status.STATUS_CODE_ERROR
            add_attribute(attributes, semconv.ERROR_TYPE, record.error)
        if self.conventions:
            add_attribute(attributes, semconv.OPERATION, semconv.INVOKE_WORKFLOW)
            add_attribute(attributes, semconv.WORKFLOW_NAME, pipeline)
            _add_texts(attributes, record)

    def _add_stages(self, spans: Any, root: Any, record: Record) -> None:
        """Add the stages; a record has their durations only, so retrieval is first and generation last."""
        latency = record.latency_ms or Latency()
        if record.retrieved_ids is not None or latency.retrieve is not None:
            child = _add_child(spans, root, semconv.RETRIEVAL, Span.SPAN_KIND_CLIENT)
            length = nanoseconds((latency.retrieve or 0.0) / _MILLISECONDS)
            child.end_time_unix_nano = min(root.start_time_unix_nano + length, root.end_time_unix_nano)
            if self.conventions:
                _add_retrieval(child.attributes, record)
        if latency.generate is not None:
            child = _add_child(spans, root, GENERATE, Span.SPAN_KIND_INTERNAL)
            length = nanoseconds(latency.generate / _MILLISECONDS)
            child.start_time_unix_nano = max(root.end_time_unix_nano - length, root.start_time_unix_nano)


def _add_child(spans: Any, root: Any, name: str, kind: Any) -> Any:
    return spans.add(
        trace_id=root.trace_id,
        span_id=new_span_id(),
        parent_span_id=root.span_id,
        name=name,
        kind=kind,
        start_time_unix_nano=root.start_time_unix_nano,
        end_time_unix_nano=root.end_time_unix_nano,
    )


def _add_texts(attributes: Any, record: Record) -> None:
    """Add question and answer, if the record has them."""
    claim = None if record.answer_json is None else record.answer_json.claim
    if record.q is None and claim is None:
        return
    add_attribute(attributes, semconv.SPAN_KIND, semconv.CHAIN)
    if record.q is not None:
        add_attribute(attributes, semconv.INPUT_VALUE, record.q)
        add_attribute(attributes, semconv.INPUT_MESSAGES, _json([_message("user", record.q)]))
    if claim is not None:
        add_attribute(attributes, semconv.OUTPUT_VALUE, claim)
        add_attribute(
            attributes, semconv.OUTPUT_MESSAGES, _json([{**_message("assistant", claim), "finish_reason": "stop"}])
        )


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _add_retrieval(attributes: Any, record: Record) -> None:
    """Add query and documents, the documents as one string: a list of attributes loses its head past 128."""
    add_attribute(attributes, semconv.OPERATION, semconv.RETRIEVAL)
    add_attribute(attributes, semconv.SPAN_KIND, semconv.RETRIEVER)
    if record.q is not None:
        add_attribute(attributes, semconv.QUERY_TEXT, record.q)
    if record.retrieved_ids is None:
        return
    scores, texts = record.scores or [], record.contexts or []
    documents: list[dict[str, Any]] = [{"id": document_id} for document_id in record.retrieved_ids]
    for document, score in zip(documents, scores, strict=False):
        document["score"] = score
    for document, text in zip(documents, texts, strict=False):
        document["content"] = text
    add_attribute(attributes, semconv.DOCUMENTS, _json(documents))


def _json(value: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(value).decode()


JSON: Final = "application/json"
TIMEOUT: Final = 10.0
REQUEST_SIZE: Final = 2 << 20
"""Bytes of records after which a new request is started; receivers accept at least 4 MiB."""


class OtlpExporter:
    """Exports records as spans and totals as metrics over OTLP/HTTP.

    It exports records as they are: text that must not leave the process has to be removed before.

    Args:
        endpoint: The receiver's base address, `http://host:port`.
        token: Its bearer token; None if it needs none.
        resource: Attributes of the process: `service.name`, `service.instance.id` and the like.
        conventions: Add OpenTelemetry's and OpenInference's attributes beside ragmon's own.
        stages: Add child spans for retrieval and generation.
        timeout: Seconds one call of `deliver` or `report` may take, retries included.
        certificate: A PEM file of trusted certificates; None uses the system's.

    Raises:
        RagmonError: The endpoint, the token or the certificate file is not valid.

    >>> sink = OtlpExporter("http://127.0.0.1:9", resource={"service.name": "docs"}, timeout=0.05)
    >>> sink.deliver([Record(qid="a")])
    {'export_failed': 1}
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        resource: Mapping[str, str],
        conventions: bool = True,
        stages: bool = False,
        timeout: float = TIMEOUT,
        certificate: str | None = None,
    ) -> None:
        self._client = OtlpHttpClient(endpoint, token=token, certificate=certificate)
        self._writer = SpanWriter(conventions=conventions, stages=stages)
        self._resource = dict(resource)
        self._timeout = timeout

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Send records, in order; called from one thread.

        Args:
            records: A batch.

        Returns:
            How many were lost, by reason; empty if the receiver accepted them all. If it rejects spans and a record has
                several, as many records as spans are counted, at most all: it does not say which.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        for body, n in self._requests(records, lost):
            result = self._client.post("traces", body, deadline)
            if result.reason is not None:
                lost[result.reason] += n
            elif rejected := result.rejected(ExportTraceServiceResponse, "rejected_spans"):
                lost[constants.EXPORT_REFUSED] += min(n, rejected)
        return dict(lost)

    def report(self, totals: Sequence[Totals]) -> bool:
        """Send a producer's totals, without retry: they are cumulative, so the next report includes them.

        Args:
            totals: The counts.

        Returns:
            Whether the receiver accepted all of them.
        """
        deadline = monotonic() + self._timeout
        try:
            body = metrics_request(totals, self._resource)
        except Exception as error:  # noqa: BLE001 - the worker's thread must go on
            warn_once(f"totals could not be sent: {error_location(error)}")
            return False
        result = self._client.post("metrics", body, deadline, retry=False)
        return result.reason is None and not result.rejected(ExportMetricsServiceResponse, "rejected_data_points")

    def label(self, labels: Sequence[Label]) -> bool:
        """Send ratings of answers, without retry; returns whether the receiver accepted them: if not, try again.

        Raises:
            RagmonError: It rejected them: only a ragmon server accepts labels.
        """
        deadline = monotonic() + self._timeout
        for body in _arrays([msgspec.json.encode(rating) for rating in labels]):
            result = self._client.post("labels", body, deadline, retry=False, kind=JSON)
            if result.reason == constants.EXPORT_REFUSED:
                raise RagmonError("labels were refused", hint="[export] endpoint names a ragmon server")
            if result.reason is not None:
                return False
        return True

    def close(self) -> None:
        """Abort the running request and send no more; any thread may call it. Records delivered later are lost."""
        self._client.close()

    def _requests(self, records: Sequence[Record], lost: Counter[str]) -> Iterator[tuple[bytes, int]]:
        """Requests no larger than receivers accept, each with the number of its records."""
        request, spans = self._request()
        size = n = 0
        for record in records:
            try:
                size += self._writer.write(spans, record)
            except Exception as error:  # noqa: BLE001 - the other records must be sent
                warn_once(f"a record could not be sent and is dropped: {error_location(error)}")
                lost[constants.INVALID_SCHEMA] += 1
                continue
            n += 1
            if size >= REQUEST_SIZE:
                yield request.SerializeToString(), n
                request, spans = self._request()
                size = n = 0
        if n:
            yield request.SerializeToString(), n

    def _request(self) -> tuple[Any, Any]:
        request = ExportTraceServiceRequest()
        return request, add_scope(request, "spans", self._resource).spans


def _arrays(items: Iterable[bytes]) -> Iterator[bytes]:
    """JSON arrays no larger than receivers accept."""
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item)
        if size >= REQUEST_SIZE:
            yield b"[%b]" % b",".join(batch)
            batch, size = [], 0
    if batch:
        yield b"[%b]" % b",".join(batch)
