"""Scores for a tracing backend: events of OpenTelemetry's log signal, or spans that carry them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, time_ns
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext

from ragmon.capture.exporters import Scored
from ragmon.capture.otlp_exporter import (
    SCOPE,
    OtlpSession,
    ProcessResource,
    SendResult,
    exporter,
    new_span,
    span_id,
    trace_id,
)
from ragmon.core import constants, semconv

TIMEOUT: Final = 10.0
_HAS_EVENT_NAME: Final = "event_name" in LogRecord.DESCRIPTOR.fields_by_name
"""Whether the installed messages know the field: those before 1.35 have the attribute only."""
_CARRIER: Final = "ragmon scores"
_CODE: Final = "CODE"
"""OpenInference's kind of a score computed by code, not by a person or a model."""


class ScoreExporter:
    """Sends scores as `gen_ai.evaluation.result` events over OTLP/HTTP.

    Args:
        endpoint: The backend's base address, `http://host:port`.
        resource: Attributes of the scoring process.
        carriers: Also send OpenInference EVALUATOR spans: each has one link, to the scored span.

    Raises:
        RagmonError: The endpoint, the token or the certificate file is not valid.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        resource: Mapping[str, str],
        carriers: bool = False,
        timeout: float = TIMEOUT,
        certificate: str | None = None,
    ) -> None:
        self._session = OtlpSession(endpoint, token=token, certificate=certificate)
        self._spans = exporter(OTLPSpanExporter, "traces", self._session)
        self._resource = ProcessResource(resource)
        self._carriers = carriers
        self._timeout = timeout

    def deliver(self, scored: Sequence[Scored]) -> Mapping[str, int]:
        """Send scores; returns how many events and carrier spans were lost, by reason. Called from one thread.

        A trace without a span id gets only the event, as a carrier span must link to a span.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        sendable = list(_sendable(scored, lost))
        now = time_ns()
        if events := sum(len(trace_scores.scores) for trace_scores in sendable):
            result = self._session.deliver("logs", self._events(sendable, now), deadline)
            _count(result, events, (ExportLogsServiceResponse, "rejected_log_records"), lost)
        linked = [trace_scores for trace_scores in sendable if span_id(trace_scores.span_id) is not None]
        if self._carriers and linked:
            spans = [_carrier(trace_scores, self._resource, now) for trace_scores in linked]
            result = self._session.run(lambda: self._spans.export(spans), deadline)
            _count(result, len(spans), (ExportTraceServiceResponse, "rejected_spans"), lost)
        return dict(lost)

    def close(self) -> None:
        """Abort the running request and send no more; may be called from any thread."""
        self._session.close()

    def _events(self, scored: Sequence[Scored], now: int) -> bytes:
        # OpenTelemetry's exporter of logs is not a public part of its library.
        request = ExportLogsServiceRequest()
        process = request.resource_logs.add()
        for key, text in (self._resource.attributes or {}).items():
            process.resource.attributes.add(key=key).value.string_value = str(text)
        scope = process.scope_logs.add()
        scope.scope.name, scope.scope.version = SCOPE.name, SCOPE.version or ""
        for trace_scores in scored:
            span = span_id(trace_scores.span_id)
            for name, value, label in trace_scores.scores:
                event = scope.log_records.add(
                    time_unix_nano=now,
                    observed_time_unix_nano=now,
                    severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
                    trace_id=bytes.fromhex(trace_scores.trace_id),
                    span_id=b"" if span is None else span.to_bytes(8),
                )
                if _HAS_EVENT_NAME:
                    event.event_name = semconv.EVALUATION
                else:
                    event.attributes.add(key="event.name").value.string_value = semconv.EVALUATION
                event.attributes.add(key=semconv.EVALUATION_NAME).value.string_value = name
                event.attributes.add(key=semconv.EVALUATION_SCORE).value.double_value = float(value)
                if label is not None:
                    event.attributes.add(key=semconv.EVALUATION_LABEL).value.string_value = label
        body: bytes = request.SerializeToString()
        return body


def _count(result: SendResult, n: int, rejections: tuple[Any, str], lost: Counter[str]) -> None:
    if result.reason is not None:
        lost[result.reason] += n
    elif rejected := result.rejected(*rejections):
        lost[constants.EXPORT_REFUSED] += min(n, rejected)


def _sendable(scored: Sequence[Scored], lost: Counter[str]) -> Iterator[Scored]:
    for trace_scores in scored:
        if trace_id(trace_scores.trace_id) is None:
            lost[constants.INVALID_SCHEMA] += len(trace_scores.scores)
            continue
        valid = []
        for name, value, label in trace_scores.scores:
            if not math.isfinite(value):
                lost[constants.NON_FINITE] += 1
                continue
            try:
                f"{name}{label}".encode()
            except UnicodeEncodeError:
                lost[constants.INVALID_UTF8] += 1
            else:
                valid.append((name, value, label))
        if valid:
            yield trace_scores._replace(scores=valid)


def _carrier(trace_scores: Scored, resource: ProcessResource, now: int) -> ReadableSpan:
    # OpenInference requires this form for feedback that comes later.
    attributes: dict[str, str | bool | float] = {semconv.SPAN_KIND: semconv.EVALUATOR, semconv.RAGMON_INTERNAL: True}
    for number, (name, value, label) in enumerate(trace_scores.scores):
        annotation: dict[str, str | float | None] = {
            "name": name,
            "score": float(value),
            "label": label,
            "annotator_kind": _CODE,
        }
        for field, field_value in annotation.items():
            if field_value is not None:
                attributes[f"{semconv.ANNOTATIONS}.{number}.annotation.{field}"] = field_value
    scored = SpanContext(trace_id(trace_scores.trace_id) or 0, span_id(trace_scores.span_id) or 0, is_remote=False)
    return new_span(_CARRIER, resource, attributes, (now, now), links=[Link(scored)])
