"""What spans, metrics and events have in common on the wire: attributes, the resource, the scope, ids and times.

A producer's totals as metrics: cumulative sums, and the latency as an exponential histogram.

A record as spans: an `invoke_workflow` root that holds the whole record, and its stages as children.

The sink that sends records to an OTLP receiver.
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
from ragmon.core import constants, semconv, version
from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Label, Latency, Record, Totals, encode
from ragmon.stats import NOT_POSITIVE, bucket_value

_SCOPE: Final = "ragmon"
_VERSION: Final = version.current()
_LATEST: Final = 2**64 - 1
_NANO: Final = 1_000_000_000


def put(attributes: Any, key: str, value: str | bool | float) -> None:
    """Add an attribute to a message's repeated field; four times as fast as building it first and copying it in."""
    held = attributes.add(key=key).value
    if isinstance(value, str):
        held.string_value = value
    elif isinstance(value, bool):
        held.bool_value = value
    else:
        held.double_value = value


def opened(request: Any, kind: str, resource: Mapping[str, str]) -> Any:
    """Say who sends and what program made it.

    Args:
        request: The protocol message.
        kind: `spans`, `metrics` or `logs`.
        resource: Attributes of the process.

    Returns:
        The message's scope, into which spans, metrics or events are written.
    """
    envelope = getattr(request, f"resource_{kind}").add()
    for key, value in resource.items():
        put(envelope.resource.attributes, key, value)
    held = getattr(envelope, f"scope_{kind}").add()
    held.scope.name = _SCOPE
    held.scope.version = _VERSION
    return held


def nanoseconds(seconds: float) -> int:
    """A time as the protocol holds it, an unsigned number of 64 bits: it ends in the year 2554."""
    return min(round(min(seconds, _LATEST / _NANO) * _NANO), _LATEST)


def trace_id(text: str | None) -> bytes | None:
    """The sixteen bytes of a trace id; None where the text is none."""
    return _id(text, 16)


def span_id(text: str | None) -> bytes | None:
    """The eight bytes of a span id; None where the text is none."""
    return _id(text, 8)


def _id(text: str | None, size: int) -> bytes | None:
    try:
        found = bytes.fromhex(text or "")
    except ValueError:
        return None
    return found if len(found) == size and any(found) else None


def new_trace_id() -> bytes:
    """A trace id of its own; not from `random`, which the application may have seeded alike in every process."""
    return os.urandom(16)


def new_span_id() -> bytes:
    """A span id of its own."""
    return os.urandom(8)


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


GENERATE: Final = "generate"


@dataclass(frozen=True)
class SpanWriter:
    """Writes records into a request.

    The root carries the record as one JSON attribute: it is complete alone, no limit on the number of attributes can
    take a document off it, and one attribute costs a tenth of forty. Scalars that backends filter by stand beside it.

    Args:
        conventions: Add OpenTelemetry's and OpenInference's attributes, so that other backends show questions and
            answers where the record has them.
        stages: Add child spans for retrieval and generation.
    """

    conventions: bool = True
    stages: bool = False

    def write(self, spans: Any, record: Record, root_id: str | None = None) -> int:
        """Add a record's spans to a request; a record that cannot be written leaves nothing behind.

        Args:
            spans: The request's repeated field.
            record: What is written.
            root_id: The root's span id, 16 hex digits; None for one of its own.

        Returns:
            About how many bytes it took.

        Raises:
            Exception: A field cannot be written: a lone surrogate, a number that is none.
        """
        line = encode(record)[:-1].decode()
        before = len(spans)
        try:
            self._root(spans, record, line, span_id(root_id) or new_span_id())
            if self.stages:
                self._children(spans, spans[before], record)
        except BaseException:
            del spans[before:]
            raise
        return len(line)

    def _root(self, spans: Any, record: Record, line: str, own_id: bytes) -> None:
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
        held = root.attributes
        put(held, semconv.RAGMON_CONTRACT_VERSION, str(constants.CONTRACT_VERSION))
        put(held, semconv.RAGMON_RECORD, line)
        put(held, semconv.RAGMON_OK, not record.error)
        put(held, semconv.RAGMON_PROBABILITY, 1.0 if record.sampling is None else record.sampling.p)
        if record.qid is not None:
            put(held, semconv.RAGMON_QID, record.qid)
        if record.error:
            root.status.code = Status.STATUS_CODE_ERROR
            put(held, semconv.ERROR_TYPE, record.error)
        if self.conventions:
            put(held, semconv.OPERATION, semconv.INVOKE_WORKFLOW)
            put(held, semconv.WORKFLOW_NAME, pipeline)
            _text(held, record)

    def _children(self, spans: Any, root: Any, record: Record) -> None:
        """The stages; a record says how long they took, not when, so retrieval stands first and generation last."""
        latency = record.latency_ms or Latency()
        if record.retrieved_ids is not None or latency.retrieve is not None:
            child = _child(spans, root, semconv.RETRIEVAL, Span.SPAN_KIND_CLIENT)
            length = nanoseconds((latency.retrieve or 0.0) / _MILLISECONDS)
            child.end_time_unix_nano = min(root.start_time_unix_nano + length, root.end_time_unix_nano)
            if self.conventions:
                _retrieval(child.attributes, record)
        if latency.generate is not None:
            child = _child(spans, root, GENERATE, Span.SPAN_KIND_INTERNAL)
            length = nanoseconds(latency.generate / _MILLISECONDS)
            child.start_time_unix_nano = max(root.end_time_unix_nano - length, root.start_time_unix_nano)


def _child(spans: Any, root: Any, name: str, kind: Any) -> Any:
    return spans.add(
        trace_id=root.trace_id,
        span_id=new_span_id(),
        parent_span_id=root.span_id,
        name=name,
        kind=kind,
        start_time_unix_nano=root.start_time_unix_nano,
        end_time_unix_nano=root.end_time_unix_nano,
    )


def _text(held: Any, record: Record) -> None:
    """Question and answer, where the record has them."""
    claim = None if record.answer_json is None else record.answer_json.claim
    if record.q is None and claim is None:
        return
    put(held, semconv.SPAN_KIND, semconv.CHAIN)
    if record.q is not None:
        put(held, semconv.INPUT_VALUE, record.q)
        put(held, semconv.INPUT_MESSAGES, _json([_message("user", record.q)]))
    if claim is not None:
        put(held, semconv.OUTPUT_VALUE, claim)
        put(held, semconv.OUTPUT_MESSAGES, _json([{**_message("assistant", claim), "finish_reason": "stop"}]))


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _retrieval(held: Any, record: Record) -> None:
    """What was asked and found, the documents as one string: a list of attributes loses its head past 128."""
    put(held, semconv.OPERATION, semconv.RETRIEVAL)
    put(held, semconv.SPAN_KIND, semconv.RETRIEVER)
    if record.q is not None:
        put(held, semconv.QUERY_TEXT, record.q)
    if record.retrieved_ids is None:
        return
    scores, texts = record.scores or [], record.contexts or []
    documents: list[dict[str, Any]] = [{"id": found} for found in record.retrieved_ids]
    for document, score in zip(documents, scores, strict=False):
        document["score"] = score
    for document, text in zip(documents, texts, strict=False):
        document["content"] = text
    put(held, semconv.DOCUMENTS, _json(documents))


def _json(value: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(value).decode()


JSON: Final = "application/json"
TIMEOUT: Final = 10.0
REQUEST_SIZE: Final = 2 << 20
"""Bytes of records from which on the next ones go into another request; receivers take at least 4 MiB."""


class OtlpExporter:
    """Sends records as spans and totals as metrics over OTLP/HTTP.

    It sends what it is given: text that must not leave the process has to be taken out before.

    Args:
        endpoint: The receiver's base address, `http://host:port`.
        token: Its bearer token; None where it wants none.
        resource: Attributes of the process: `service.name`, `service.instance.id` and the like.
        conventions: Add OpenTelemetry's and OpenInference's attributes beside ragmon's own.
        stages: Add child spans for retrieval and generation.
        timeout: Seconds one call of `deliver` or `report` may take, retries included.
        certificate: A file of certificates to trust in place of the system's.

    Raises:
        RagmonError: The endpoint, the token or the certificate file cannot be used.

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
        self._peer = OtlpHttpClient(endpoint, token=token, certificate=certificate)
        self._writer = SpanWriter(conventions=conventions, stages=stages)
        self._resource = dict(resource)
        self._timeout = timeout

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Send records, in order; called from one thread.

        Args:
            records: A batch.

        Returns:
            How many were lost, by reason; empty when the receiver took them all. Where it refuses spans and there are
            several to a record, as many records are counted, at most all: it does not say which.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        for body, n in self._requests(records, lost):
            answer = self._peer.post("traces", body, deadline)
            if answer.reason is not None:
                lost[answer.reason] += n
            elif rejected := answer.rejected(ExportTraceServiceResponse, "rejected_spans"):
                lost[constants.EXPORT_REFUSED] += min(n, rejected)
        return dict(lost)

    def report(self, totals: Sequence[Totals]) -> bool:
        """Send a producer's totals, once: they are cumulative, so the next report says all that this one said.

        Args:
            totals: The counts.

        Returns:
            Whether the receiver took all of them.
        """
        deadline = monotonic() + self._timeout
        try:
            body = metrics_request(totals, self._resource)
        except Exception as error:  # noqa: BLE001 - the worker's thread must live
            warn_once(f"totals could not be sent: {whereabouts(error)}")
            return False
        answer = self._peer.post("metrics", body, deadline, retry=False)
        return answer.reason is None and not answer.rejected(ExportMetricsServiceResponse, "rejected_data_points")

    def label(self, labels: Sequence[Label]) -> bool:
        """Send what people say of answers, once; returns whether the receiver took it, or whether to try again.

        Raises:
            RagmonError: It refused it: only a ragmon server takes labels.
        """
        deadline = monotonic() + self._timeout
        for body in _arrays([msgspec.json.encode(one) for one in labels]):
            answer = self._peer.post("labels", body, deadline, retry=False, kind=JSON)
            if answer.reason == constants.EXPORT_REFUSED:
                raise RagmonError("labels were refused", hint="[export] endpoint names a ragmon server")
            if answer.reason is not None:
                return False
        return True

    def close(self) -> None:
        """End what is under way, from whatever thread, and send no more; what is delivered afterwards is lost."""
        self._peer.close()

    def _requests(self, records: Sequence[Record], lost: Counter[str]) -> Iterator[tuple[bytes, int]]:
        """Requests of a size receivers take, each with the number of its records."""
        request, spans = self._request()
        size = n = 0
        for record in records:
            try:
                size += self._writer.write(spans, record)
            except Exception as error:  # noqa: BLE001 - one record's trouble is not another's
                warn_once(f"a record could not be sent and is dropped: {whereabouts(error)}")
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
        return request, opened(request, "spans", self._resource).spans


def _arrays(items: Iterable[bytes]) -> Iterator[bytes]:
    """JSON arrays of a size receivers take."""
    held: list[bytes] = []
    size = 0
    for item in items:
        held.append(item)
        size += len(item)
        if size >= REQUEST_SIZE:
            yield b"[%b]" % b",".join(held)
            held, size = [], 0
    if held:
        yield b"[%b]" % b",".join(held)
