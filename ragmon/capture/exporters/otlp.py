"""The OTLP exporter: records as spans, a producer's totals as metrics, by OpenTelemetry's exporters over HTTP.

A record becomes an `invoke_workflow` root span with the whole record as an attribute, and optional child spans of its
stages. Totals become cumulative sums, and the latency an exponential histogram. Spans and metrics are made here and not
by a tracer or a meter: those take their limits from the application's variables.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import groupby
from operator import attrgetter
from time import monotonic, time
from typing import Any, Final, TypeVar

import msgspec
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from ragmon.capture.exporters.http import TIMEOUT, OtlpSession, apart
from ragmon.core import constants, semconv
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.http_client import current_version
from ragmon.core.record import Label, Latency, Record, Totals, encode
from ragmon.stats.histograms import NOT_POSITIVE, bucket_value

SCOPE: Final = InstrumentationScope("ragmon", current_version())
_UNSET: Final = Status(StatusCode.UNSET)
_FAILED: Final = Status(StatusCode.ERROR)
_LATEST: Final = 2**64 - 1
_NANO: Final = 1_000_000_000


class ProcessResource(Resource):
    """Attributes of the process, and nothing that the SDK detects; hashed once, and not anew for each span."""

    def __hash__(self) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = super().__hash__()
        return int(found)


def nanoseconds(seconds: float) -> int:
    """A time in the protocol's format, an unsigned number of 64 bits; times after the year 2554 are clipped.

    Raises:
        ValueError: It is negative, or not a number.
    """
    found = min(round(min(seconds, _LATEST / _NANO) * _NANO), _LATEST)
    if found < 0:
        raise ValueError("a time before 1970")
    return found


def trace_id(text: str | None) -> int | None:
    """The number of a trace id; None if the text is not one."""
    return _id(text, 16)


def span_id(text: str | None) -> int | None:
    """The number of a span id; None if the text is not one."""
    return _id(text, 8)


def _id(text: str | None, size: int) -> int | None:
    try:
        id_bytes = bytes.fromhex(text or "")
    except ValueError:
        return None
    return int.from_bytes(id_bytes) or None if len(id_bytes) == size else None


def new_span(
    name: str,
    resource: Resource,
    attributes: Mapping[str, str | bool | float],
    times: tuple[int, int],
    *,
    trace: int | None = None,
    parent: int | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    status: Status = _UNSET,
    links: Sequence[Link] = (),
) -> ReadableSpan:
    """A span that has ended.

    Args:
        name: Its name.
        resource: Of the process.
        attributes: Its attributes.
        times: Its start and its end in nanoseconds.
        trace: Its trace's id; None for a random one. Not from `random`, which an application may seed identically in
            every process.
        parent: Its parent's id in this trace.
        kind: Its kind.
        status: Its status.
        links: Its links.
    """
    trace = trace or int.from_bytes(os.urandom(16))
    return ReadableSpan(
        name,
        SpanContext(trace, int.from_bytes(os.urandom(8)), is_remote=False),
        None if parent is None else SpanContext(trace, parent, is_remote=False),
        resource,
        attributes,
        links=links,
        kind=kind,
        status=status,
        start_time=times[0],
        end_time=times[1],
        instrumentation_scope=SCOPE,
    )


SCALE: Final = 7
"""Scale of the exponential histogram: 128 buckets per octave. ragmon's narrowest bucket is wider than one of these,
so each count arrives in a bucket of its own, whose middle identifies ragmon's bucket.
"""
_MILLISECONDS: Final = 1000


def metrics_data(totals: Sequence[Totals], resource: Mapping[str, str]) -> MetricsData:
    """A producer's totals as OpenTelemetry's metrics.

    Args:
        totals: Cumulative counts per pipeline, source and stratum.
        resource: Attributes of the process; the instance id of the counts is added.

    Raises:
        Exception: A count or a bucket is not valid.
    """
    found = []
    for instance, totals_of_instance in groupby(sorted(totals, key=attrgetter("instance")), attrgetter("instance")):
        attributes = ProcessResource({**resource, semconv.SERVICE_INSTANCE: instance})
        metrics = ScopeMetrics(SCOPE, _metrics(list(totals_of_instance)), "")
        found.append(ResourceMetrics(attributes, [metrics], ""))
    return MetricsData(found)


def _metrics(totals: list[Totals]) -> list[Metric]:
    requests = [
        NumberDataPoint(**_series(line, {semconv.OUTCOME: outcome}), value=n)
        for line in totals
        for outcome, n in ((semconv.KEPT, line.kept), (semconv.UNKEPT, max(0, line.calls - line.kept)))
    ]
    dropped = [
        NumberDataPoint(**_series(line, {semconv.REASON: reason}), value=n)
        for line in totals
        for reason, n in sorted(line.dropped.items())
    ]
    latency = [_histogram(line, line.latency_ms) for line in totals if line.latency_ms]
    cumulative = AggregationTemporality.CUMULATIVE
    metrics = (
        (
            semconv.REQUESTS,
            "All calls, whether they became records or not",
            "{request}",
            Sum(requests, cumulative, is_monotonic=True),
        ),
        (
            semconv.RECORDS_DROPPED,
            "Records lost in the producer",
            "{record}",
            Sum(dropped, cumulative, is_monotonic=True),
        ),
        (semconv.E2E_LATENCY, "Latency of all calls from end to end", "s", ExponentialHistogram(latency, cumulative)),
    )
    return [Metric(name, text, unit, data) for name, text, unit, data in metrics if data.data_points]


def _series(line: Totals, labels: Mapping[str, str]) -> dict[str, Any]:
    """What every point of a line has."""
    series = {semconv.PIPELINE: line.pipeline, semconv.SOURCE: line.source, semconv.STRATUM: line.stratum}
    return {
        "attributes": {**series, **labels},
        "start_time_unix_nano": nanoseconds(line.started),
        "time_unix_nano": nanoseconds(line.ts),
    }


def _histogram(line: Totals, histogram: Mapping[int, int]) -> ExponentialHistogramDataPoint:
    """A histogram point; its sum is computed from the middle of each bucket and exact within 0.8 %."""
    seconds = {bucket_value(index) / _MILLISECONDS: n for index, n in histogram.items()}
    counts = {_index(value): n for value, n in seconds.items() if value}
    first, last = (min(counts), max(counts)) if counts else (0, -1)
    return ExponentialHistogramDataPoint(
        **_series(line, {}),
        count=sum(histogram.values()),
        sum=math.fsum(value * n for value, n in seconds.items()),
        scale=SCALE,
        zero_count=histogram.get(NOT_POSITIVE, 0),
        positive=Buckets(first, [counts.get(index, 0) for index in range(first, last + 1)]),
        negative=Buckets(0, []),
        flags=0,
        min=min(seconds),
        max=max(seconds),
    )


def _index(value: float) -> int:
    """The exponential bucket `(2^(i/2^scale), 2^((i+1)/2^scale)]` of a value (OpenTelemetry metrics data model)."""
    return math.ceil(math.log2(value) * 2**SCALE) - 1


GENERATE: Final = "generate"


@dataclass(frozen=True)
class SpanWriter:
    """Makes spans of records.

    The root span carries the record as one JSON attribute: it is complete by itself, no limit on the number of
    attributes can cut a document off, and one attribute costs a tenth of forty. Scalars that backends filter by are
    also attributes of their own.

    Args:
        resource: Attributes of the process.
        conventions: Add OpenTelemetry's and OpenInference's attributes, so that other backends show questions and
            answers where the record has them.
        stages: Add child spans for retrieval and generation.
    """

    resource: Resource
    conventions: bool = True
    stages: bool = False

    def spans(self, record: Record) -> tuple[list[ReadableSpan], int]:
        """The spans of a record, its root first, and their approximate size in bytes.

        Every text of the spans is one of the record, so what can be encoded as JSON can be encoded as attributes.

        Raises:
            Exception: A field cannot be written: a lone surrogate, a number that is not finite.
        """
        line = encode(record)[:-1].decode()
        root = self._root(record, line)
        return [root, *self._stages(root, record)] if self.stages else [root], len(line)

    def _root(self, record: Record, line: str) -> ReadableSpan:
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        latency = record.latency_ms or Latency()
        end = time() if record.ts is None else record.ts
        attributes: dict[str, str | bool | float] = {
            semconv.RAGMON_CONTRACT_VERSION: str(constants.CONTRACT_VERSION),
            semconv.RAGMON_RECORD: line,
            semconv.RAGMON_OK: not record.error,
            semconv.RAGMON_PROBABILITY: 1.0 if record.sampling is None else float(record.sampling.p),
        }
        if record.qid is not None:
            attributes[semconv.RAGMON_QID] = record.qid
        if record.error:
            attributes[semconv.ERROR_TYPE] = record.error
        if self.conventions:
            attributes[semconv.OPERATION] = semconv.INVOKE_WORKFLOW
            attributes[semconv.WORKFLOW_NAME] = pipeline
            _add_texts(attributes, record)
        return new_span(
            f"{semconv.INVOKE_WORKFLOW} {pipeline}",
            self.resource,
            attributes,
            (nanoseconds(max(0.0, end - (latency.total or 0.0) / _MILLISECONDS)), nanoseconds(end)),
            trace=trace_id(record.trace_id),
            parent=span_id(record.parent_span_id),
            status=_FAILED if record.error else _UNSET,
        )

    def _stages(self, root: ReadableSpan, record: Record) -> Iterator[ReadableSpan]:
        """The stages; a record has their durations only, so retrieval is first and generation last."""
        latency, (start, end) = record.latency_ms or Latency(), _times(root)
        if record.retrieved_ids is not None or latency.retrieve is not None:
            length = nanoseconds((latency.retrieve or 0.0) / _MILLISECONDS)
            attributes = _retrieval(record) if self.conventions else {}
            yield _child(root, semconv.RETRIEVAL, attributes, (start, min(start + length, end)), SpanKind.CLIENT)
        if latency.generate is not None:
            length = nanoseconds(latency.generate / _MILLISECONDS)
            yield _child(root, GENERATE, {}, (max(end - length, start), end), SpanKind.INTERNAL)


def _times(span: ReadableSpan) -> tuple[int, int]:
    return span.start_time or 0, span.end_time or 0


def _child(
    root: ReadableSpan, name: str, attributes: Mapping[str, str | bool | float], times: tuple[int, int], kind: SpanKind
) -> ReadableSpan:
    own = root.context
    return new_span(name, root.resource, attributes, times, trace=own.trace_id, parent=own.span_id, kind=kind)


def _add_texts(attributes: dict[str, str | bool | float], record: Record) -> None:
    """Add question and answer, if the record has them."""
    claim = None if record.answer_json is None else record.answer_json.claim
    if record.q is None and claim is None:
        return
    attributes[semconv.SPAN_KIND] = semconv.CHAIN
    if record.q is not None:
        attributes[semconv.INPUT_VALUE] = record.q
        attributes[semconv.INPUT_MESSAGES] = _json([_message("user", record.q)])
    if claim is not None:
        attributes[semconv.OUTPUT_VALUE] = claim
        attributes[semconv.OUTPUT_MESSAGES] = _json([{**_message("assistant", claim), "finish_reason": "stop"}])


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _retrieval(record: Record) -> dict[str, str | bool | float]:
    """Query and documents, the documents as one string: a list of attributes loses its head past 128."""
    attributes: dict[str, str | bool | float] = {
        semconv.OPERATION: semconv.RETRIEVAL,
        semconv.SPAN_KIND: semconv.RETRIEVER,
    }
    if record.q is not None:
        attributes[semconv.QUERY_TEXT] = record.q
    if record.retrieved_ids is not None:
        scores, texts = record.scores or [], record.contexts or []
        documents: list[dict[str, Any]] = [{"id": document_id} for document_id in record.retrieved_ids]
        for document, score in zip(documents, scores, strict=False):
            document["score"] = score
        for document, text in zip(documents, texts, strict=False):
            document["content"] = text
        attributes[semconv.DOCUMENTS] = _json(documents)
    return attributes


def _json(value: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(value).decode()


JSON: Final = "application/json"
REQUEST_SIZE: Final = 2 << 20
"""Bytes of records after which a new request is started; receivers accept at least 4 MiB."""
AnyExporter = TypeVar("AnyExporter", OTLPSpanExporter, OTLPMetricExporter)


def exporter(kind: Callable[..., AnyExporter], signal: str, session: OtlpSession) -> AnyExporter:
    """An exporter of OpenTelemetry that sends through a session, whatever the application's variables say.

    Args:
        kind: Its class.
        signal: What it exports.
        session: The session, which compresses, sends and tries again.
    """
    later: dict[str, Any] = {"meter_provider": NoOpMeterProvider(), "max_request_size": 0}  # since 1.42 and since 1.45
    known = signature(kind).parameters
    with apart(session):  # it complains of variables that are not for it
        return kind(
            endpoint=session.address(signal),
            headers={"User-Agent": "ragmon"},
            timeout=int(TIMEOUT),
            compression=Compression.NoCompression,
            session=session,
            **{name: value for name, value in later.items() if name in known},
        )


class OtlpExporter:
    """Exports records as spans and totals as metrics over OTLP/HTTP.

    It exports records as they are: text that must not leave the process has to be removed before.

    Args:
        endpoint: The receiver's base address, `http://host:port`, or a session with it, which has all but the rest of
            these arguments.
        metrics: The session with the receiver of totals, where that is another one.
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
        endpoint: str | OtlpSession,
        *,
        metrics: OtlpSession | None = None,
        token: str | None = None,
        resource: Mapping[str, str],
        conventions: bool = True,
        stages: bool = False,
        timeout: float = TIMEOUT,
        certificate: str | None = None,
    ) -> None:
        self._session = (
            endpoint
            if isinstance(endpoint, OtlpSession)
            else OtlpSession(endpoint, token=token, certificate=certificate, timeout=timeout)
        )
        self._metrics_session = metrics or self._session
        self._spans = exporter(OTLPSpanExporter, "traces", self._session)
        self._metrics = exporter(OTLPMetricExporter, "metrics", self._metrics_session)
        self._resource = dict(resource)
        self._writer = SpanWriter(ProcessResource(self._resource), conventions=conventions, stages=stages)

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Send records, in order; called from one thread.

        Args:
            records: A batch.

        Returns:
            How many were lost, by reason; empty if the receiver accepted them all. If it rejects spans and a record has
                several, as many records as spans are counted, at most all: it does not say which.
        """
        deadline = monotonic() + self._session.timeout
        lost: Counter[str] = Counter()
        for spans, n in self._batches(records, lost):
            result = self._session.run(lambda spans=spans: self._spans.export(spans), deadline)  # type: ignore[misc]
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
        deadline = monotonic() + self._metrics_session.timeout
        try:
            data = metrics_data(totals, self._resource)
        except Exception as error:  # noqa: BLE001 - the worker's thread must go on
            warn_once(f"totals could not be sent: {error_location(error)}")
            return False
        result = self._metrics_session.run(lambda: self._metrics.export(data), deadline, retry=False)
        return result.reason is None and not result.rejected(ExportMetricsServiceResponse, "rejected_data_points")

    def label(self, labels: Sequence[Label]) -> bool:
        """Send ratings of answers, without retry; returns whether the receiver accepted them: if not, try again.

        Raises:
            RagmonError: It rejected them: only a ragmon server accepts labels.
        """
        deadline = monotonic() + self._session.timeout
        for body in _arrays([msgspec.json.encode(rating) for rating in labels]):
            result = self._session.deliver("labels", body, deadline, retry=False, kind=JSON)
            if result.reason == constants.EXPORT_REFUSED:
                raise RagmonError("labels were refused", hint="[export] endpoint names a ragmon server")
            if result.reason is not None:
                return False
        return True

    def reset_after_fork(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        self._session.reset_after_fork()

    def close(self) -> None:
        """Abort the running request and send no more; any thread may call it. Records delivered later are lost."""
        self._session.close()
        self._metrics_session.close()

    def _batches(self, records: Sequence[Record], lost: Counter[str]) -> Iterator[tuple[list[ReadableSpan], int]]:
        """Spans of requests no larger than receivers accept, each with the number of its records."""
        batch: list[ReadableSpan] = []
        size = n = 0
        for record in records:
            try:
                spans, length = self._writer.spans(record)
            except Exception as error:  # noqa: BLE001 - the other records must be sent
                warn_once(f"a record could not be sent and is dropped: {error_location(error)}")
                lost[constants.INVALID_SCHEMA] += 1
                continue
            batch += spans
            size += length
            n += 1
            if size >= REQUEST_SIZE:
                yield batch, n
                batch, size, n = [], 0, 0
        if n:
            yield batch, n


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
