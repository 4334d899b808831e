"""The exporter of scores to a tracing backend that has the scored traces: evaluation events, and carrier spans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, time_ns
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.capture.exporters.http import OtlpHttpClient
from ragmon.capture.exporters.otlp import add_attribute, add_scope, new_span_id, new_trace_id, span_id, trace_id
from ragmon.core import constants, semconv

TIMEOUT: Final = 10.0
_CARRIER: Final = "ragmon scores"
_CODE: Final = "CODE"
"""OpenInference's kind of a score computed by code, not by a person or a model."""
_REJECTED_COUNT: Final[dict[str, tuple[Any, str]]] = {
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
}
"""For each signal, the response class and the field that counts rejected items."""


class Scored(NamedTuple):
    """The scores of one trace.

    Attributes:
        trace_id: 32 hex digits.
        span_id: The scored span, 16 hex digits; None if only the trace is known.
        scores: Name, value and label (`pass`, `fail`) or None of each score.
    """

    trace_id: str
    span_id: str | None
    scores: Sequence[tuple[str, float, str | None]]


class ScoreExporter:
    """Sends scores as `gen_ai.evaluation.result` events over OTLP/HTTP.

    Args:
        endpoint: The backend's base address, `http://host:port`.
        token: Its bearer token; None if it needs none.
        resource: Attributes of the scoring process.
        carriers: Also send OpenInference EVALUATOR spans: each has one link, to the scored span.
        timeout: Seconds one call of `deliver` may take, retries included.
        certificate: A PEM file of trusted certificates; None uses the system's.

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
        self._client = OtlpHttpClient(endpoint, token=token, certificate=certificate)
        self._resource = dict(resource)
        self._carriers = carriers
        self._timeout = timeout

    def deliver(self, scored: Sequence[Scored]) -> Mapping[str, int]:
        """Send scores; called from one thread.

        Args:
            scored: The scores of some traces. A trace without a span id gets only the event, as a carrier span must
                link to a span.

        Returns:
            How many events and carrier spans were lost, by reason; empty if the backend accepted them all.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        sendable = list(_sendable(scored, lost))
        now = time_ns()
        events = ExportLogsServiceRequest()
        _add_events(add_scope(events, "logs", self._resource).log_records, sendable, now)
        self._send("logs", events, sum(len(trace_scores.scores) for trace_scores in sendable), deadline, lost)
        linked = [trace_scores for trace_scores in sendable if span_id(trace_scores.span_id) is not None]
        if self._carriers and linked:
            spans = ExportTraceServiceRequest()
            _carriers(add_scope(spans, "spans", self._resource).spans, linked, now)
            self._send("traces", spans, len(linked), deadline, lost)
        return dict(lost)

    def close(self) -> None:
        """Abort the running request and send no more; may be called from any thread."""
        self._client.close()

    def _send(self, signal: str, request: Any, n: int, deadline: float, lost: Counter[str]) -> None:
        if not n:
            return
        result = self._client.post(signal, request.SerializeToString(), deadline)
        if result.reason is not None:
            lost[result.reason] += n
        elif rejected := result.rejected(*_REJECTED_COUNT[signal]):
            lost[constants.EXPORT_REFUSED] += min(n, rejected)


def _sendable(scored: Sequence[Scored], lost: Counter[str]) -> Iterator[Scored]:
    """The scores that can be sent: finite numbers, of traces with a valid id."""
    for trace_scores in scored:
        if trace_id(trace_scores.trace_id) is None:
            lost[constants.INVALID_SCHEMA] += len(trace_scores.scores)
            continue
        valid = []
        for score in trace_scores.scores:
            if (reason := _invalid_reason(*score)) is None:
                valid.append(score)
            else:
                lost[reason] += 1
        if valid:
            yield trace_scores._replace(scores=valid)


def _invalid_reason(name: str, value: float, label: str | None) -> str | None:
    """Why a score cannot be sent; None if it can."""
    if not math.isfinite(value):
        return constants.NON_FINITE
    try:
        f"{name}{label}".encode()
    except UnicodeEncodeError:
        return constants.INVALID_UTF8
    return None


def _add_events(events: Any, scored: Sequence[Scored], now: int) -> None:
    for trace_scores in scored:
        for name, value, label in trace_scores.scores:
            event = events.add(
                event_name=semconv.EVALUATION,
                time_unix_nano=now,
                observed_time_unix_nano=now,
                severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
                trace_id=trace_id(trace_scores.trace_id),
                span_id=span_id(trace_scores.span_id),
            )
            add_attribute(event.attributes, semconv.EVALUATION_NAME, name)
            add_attribute(event.attributes, semconv.EVALUATION_SCORE, float(value))
            if label is not None:
                add_attribute(event.attributes, semconv.EVALUATION_LABEL, label)


def _carriers(spans: Any, scored: Sequence[Scored], now: int) -> None:
    """Add spans whose only link is to the scored span, as OpenInference requires for later feedback."""
    for trace_scores in scored:
        carrier = spans.add(
            trace_id=new_trace_id(),
            span_id=new_span_id(),
            name=_CARRIER,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=now,
            end_time_unix_nano=now,
        )
        carrier.links.add(trace_id=trace_id(trace_scores.trace_id), span_id=span_id(trace_scores.span_id))
        add_attribute(carrier.attributes, semconv.SPAN_KIND, semconv.EVALUATOR)
        add_attribute(carrier.attributes, semconv.RAGMON_INTERNAL, value=True)
        for number, (name, value, label) in enumerate(trace_scores.scores):
            annotation: dict[str, str | float | None] = {
                "name": name,
                "score": float(value),
                "label": label,
                "annotator_kind": _CODE,
            }
            for field, field_value in annotation.items():
                if field_value is not None:
                    add_attribute(carrier.attributes, f"{semconv.ANNOTATIONS}.{number}.annotation.{field}", field_value)
