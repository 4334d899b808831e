"""Scores, sent to the tracing backend where the scored traces are: evaluation events, and carrier spans."""

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
from ragmon.capture.exporters.otlp import new_span_id, new_trace_id, opened, put, span_id, trace_id
from ragmon.core import constants, semconv

TIMEOUT: Final = 10.0
_CARRIER: Final = "ragmon scores"
_CODE: Final = "CODE"
"""OpenInference's kind of a score that neither a person nor a model gave."""
_REFUSED: Final[dict[str, tuple[Any, str]]] = {
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
}
"""Where a receiver says how much of a request it refused."""


class Scored(NamedTuple):
    """The scores of one trace.

    Attributes:
        trace_id: 32 hex digits.
        span_id: The span that was scored, 16 hex digits; None where only the trace is known.
        scores: Each one's name, value, and label (`pass`, `fail`) if it has one.
    """

    trace_id: str
    span_id: str | None
    scores: Sequence[tuple[str, float, str | None]]


class ScoreExporter:
    """Sends scores as `gen_ai.evaluation.result` events over OTLP/HTTP.

    Args:
        endpoint: The backend's base address, `http://host:port`.
        token: Its bearer token; None where it wants none.
        resource: Attributes of the process that scored.
        carriers: Send OpenInference EVALUATOR spans as well: each has one link, to the span that was scored.
        timeout: Seconds one call of `deliver` may take, retries included.
        certificate: A file of certificates to trust in place of the system's.

    Raises:
        RagmonError: The endpoint, the token or the certificate file cannot be used.
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
        self._peer = OtlpHttpClient(endpoint, token=token, certificate=certificate)
        self._resource = dict(resource)
        self._carriers = carriers
        self._timeout = timeout

    def deliver(self, scored: Sequence[Scored]) -> Mapping[str, int]:
        """Send scores; called from one thread.

        Args:
            scored: The scores of some traces. A carrier span needs the span it links to: without a span id there is
                the event alone.

        Returns:
            How many events and carrier spans were lost, by reason; empty when the backend took them all.
        """
        deadline = monotonic() + self._timeout
        lost: Counter[str] = Counter()
        found = list(_sendable(scored, lost))
        now = time_ns()
        events = ExportLogsServiceRequest()
        _events(opened(events, "logs", self._resource).log_records, found, now)
        self._send("logs", events, sum(len(each.scores) for each in found), deadline, lost)
        linked = [each for each in found if span_id(each.span_id) is not None]
        if self._carriers and linked:
            spans = ExportTraceServiceRequest()
            _carriers(opened(spans, "spans", self._resource).spans, linked, now)
            self._send("traces", spans, len(linked), deadline, lost)
        return dict(lost)

    def close(self) -> None:
        """End what is under way, from whatever thread, and send no more."""
        self._peer.close()

    def _send(self, signal: str, request: Any, n: int, deadline: float, lost: Counter[str]) -> None:
        if not n:
            return
        answer = self._peer.post(signal, request.SerializeToString(), deadline)
        if answer.reason is not None:
            lost[answer.reason] += n
        elif refused := answer.rejected(*_REFUSED[signal]):
            lost[constants.EXPORT_REFUSED] += min(n, refused)


def _sendable(scored: Sequence[Scored], lost: Counter[str]) -> Iterator[Scored]:
    """What can be sent: a score is a number, of a trace that has an id."""
    for found in scored:
        if trace_id(found.trace_id) is None:
            lost[constants.INVALID_SCHEMA] += len(found.scores)
            continue
        fit = []
        for score in found.scores:
            if (reason := _unfit(*score)) is None:
                fit.append(score)
            else:
                lost[reason] += 1
        if fit:
            yield found._replace(scores=fit)


def _unfit(name: str, value: float, label: str | None) -> str | None:
    """Why a score cannot be sent; None where it can."""
    if not math.isfinite(value):
        return constants.NON_FINITE
    try:
        f"{name}{label}".encode()
    except UnicodeEncodeError:
        return constants.INVALID_UTF8
    return None


def _events(events: Any, scored: Sequence[Scored], now: int) -> None:
    for found in scored:
        for name, value, label in found.scores:
            event = events.add(
                event_name=semconv.EVALUATION,
                time_unix_nano=now,
                observed_time_unix_nano=now,
                severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
                trace_id=trace_id(found.trace_id),
                span_id=span_id(found.span_id),
            )
            put(event.attributes, semconv.EVALUATION_NAME, name)
            put(event.attributes, semconv.EVALUATION_SCORE, float(value))
            if label is not None:
                put(event.attributes, semconv.EVALUATION_LABEL, label)


def _carriers(spans: Any, scored: Sequence[Scored], now: int) -> None:
    """Spans whose only link leads to what was scored, as OpenInference wants feedback that comes later."""
    for found in scored:
        carrier = spans.add(
            trace_id=new_trace_id(),
            span_id=new_span_id(),
            name=_CARRIER,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=now,
            end_time_unix_nano=now,
        )
        carrier.links.add(trace_id=trace_id(found.trace_id), span_id=span_id(found.span_id))
        put(carrier.attributes, semconv.SPAN_KIND, semconv.EVALUATOR)
        put(carrier.attributes, semconv.RAGMON_INTERNAL, value=True)
        for number, (name, value, label) in enumerate(found.scores):
            told: dict[str, str | float | None] = {
                "name": name,
                "score": float(value),
                "label": label,
                "annotator_kind": _CODE,
            }
            for field, said in told.items():
                if said is not None:
                    put(carrier.attributes, f"{semconv.ANNOTATIONS}.{number}.annotation.{field}", said)
