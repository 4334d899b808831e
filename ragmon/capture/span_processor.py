"""`RagmonSpanProcessor`: captures requests from the spans of an application's own tracer.

The processor sees the spans that the application's sampler lets through; with OpenTelemetry's `AlwaysRecordSampler` it
sees all spans. On the application's threads it only buffers spans (`ragmon.capture.request_assembler`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Final

from opentelemetry import context as otel
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from ragmon.capture.call import (
    Call,
    running_call,
    trace_randomness,
)
from ragmon.capture.convert import call_to_record
from ragmon.capture.exporters import BatchExporter, Exporter, Tee
from ragmon.capture.request_assembler import ORPHAN, BufferLimits, RequestAssembler, SpanSettings
from ragmon.capture.worker import Worker
from ragmon.core.errors import error_location, warn_once
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.core.text import parse

OPEN: Final = 10_000
DRAIN: Final = 5.0
_SUPPRESSED: Final = getattr(otel, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


class RagmonSpanProcessor(SpanProcessor):
    """Assembles spans into requests.

    Spans below a call under `@ragmon.trace` belong to that call and fill missing fields of its record. Other spans make
    a request of their own, sampled by the randomness of its trace id. Spans of ragmon's own work never count as
    traffic.

    Args:
        sink: The exporter of the records.
        rate: Share of requests that are kept, by the randomness of their trace id.
        keep: Rates at which other requests are kept for their outcome, by stratum: `error`, `refusal`, `slow`.
        slow_above: Seconds above which a request counts as slow.
        pipeline: The pipeline's name; None takes the workflow's name, then the service's.
        id_from: Dotted path from a document to its id.
        limits: Limits of time and number of the span buffer.
        requests: The assembler to use, in place of all these settings; `ragmon.install(provider=...)` passes its own.

    Raises:
        RagmonError: `id_from` is not a valid path.

    Examples:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> import ragmon
        >>> sink, provider = ragmon.testing.Collected(), TracerProvider(shutdown_on_exit=False)
        >>> provider.add_span_processor(ragmon.RagmonSpanProcessor(sink, pipeline="docs"))
        >>> with provider.get_tracer("app").start_as_current_span("retrieval") as span:
        ...     span.set_attribute("gen_ai.operation.name", "retrieval")
        ...     span.set_attribute("gen_ai.retrieval.documents", '[{"id": "d1"}]')
        >>> provider.shutdown()
        >>> [record.retrieved_ids for record in sink.records]
        [['d1']]
    """

    def __init__(
        self,
        sink: Exporter | BatchExporter | None = None,
        *,
        rate: float = 1.0,
        keep: Mapping[str, float] | None = None,
        slow_above: float = float("inf"),
        pipeline: str | None = None,
        id_from: str | None = None,
        limits: BufferLimits | None = None,
        requests: RequestAssembler | None = None,
    ) -> None:
        self._worker: Worker | None = None
        self._exporter = Tee() if sink is None else sink
        if requests is None:
            path = None if id_from is None else parse(id_from, "id_from")
            settings = SpanSettings(
                rate, keep or {}, slow_above, pipeline=pipeline, id_from=path, limits=limits or BufferLimits()
            )
            self._worker = Worker(call_to_record, self._exporter, every=lambda asked: self._requests.sweep(asked=asked))
            requests = RequestAssembler(self._worker, settings)
        self._requests = requests
        self._calls: dict[int, Call] = {}
        self._internal: set[int] = set()
        self._enabled = True
        if self._worker is not None:
            self._worker.start()
            reset = weakref.WeakMethod(self._reset_after_fork)
            os.register_at_fork(after_in_child=lambda: (method := reset()) and method())

    def _reset_after_fork(self) -> None:
        self._calls.clear()
        self._requests.reset_after_fork()
        if self._worker is not None:
            self._worker.reset_after_fork(self._exporter)
            self._worker.start()

    def on_start(self, span: Span, parent_context: otel.Context | None = None) -> None:
        """A span began; called on the application's thread."""
        try:
            context, parent = span.context, span.parent
            if not self._enabled or context is None or otel.get_value(_SUPPRESSED, parent_context):
                return
            local_parent_id = None if parent is None or parent.is_remote else parent.span_id
            if local_parent_id in self._internal or (span.attributes or {}).get(RAGMON_INTERNAL):
                self._internal.add(context.span_id)
                return
            buffer, call = self._requests.gathering, running_call()
            if isinstance(call, Call):
                call.open += 1
                self._calls[context.span_id] = call
                if len(self._calls) > OPEN:  # spans that never end must not keep calls forever
                    self._calls.pop(next(iter(self._calls)), None)
            elif call is None and trace_randomness(context) >= self._requests.lowest:
                if local_parent_id is None:
                    self._requests.awaken()
                    buffer.begin_request(context.trace_id, context.span_id)
                elif not buffer.begin(context.span_id, local_parent_id):
                    buffer.dropped[ORPHAN] += 1
        except Exception as error:  # noqa: BLE001 - the application must not see it
            warn_once(f"a span could not be followed: {error_location(error)}")

    def on_end(self, span: ReadableSpan) -> None:
        """A span ended; called on the application's thread."""
        try:
            context = span.context
            if context is None or not self._enabled:
                return
            buffer, call = self._requests.gathering, self._calls.pop(context.span_id, None)
            if call is not None:
                if call.spans is None:
                    call.spans = []
                if len(call.spans) < buffer.limits.spans:
                    call.spans.append(span)
                call.open -= 1
            elif context.span_id in self._internal:
                self._internal.discard(context.span_id)
            else:
                buffer.end(context.span_id, span)
        except Exception as error:  # noqa: BLE001 - as above
            warn_once(f"a span could not be followed: {error_location(error)}")

    def shutdown(self) -> None:
        """Finish every request as it is, and deliver the records; called once, by the provider."""
        if self._enabled:
            self.switch_off()
            self._requests.end()
            self._requests.flush(DRAIN)
            if self._worker is not None:
                self._worker.stop(DRAIN)
                self._worker.counter_file.close()

    def switch_off(self) -> None:
        """Ignore all further spans; a provider offers no way to remove a processor."""
        self._enabled = False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Deliver the records of finished requests; returns whether it was in time."""
        return self._requests.flush(timeout_millis / 1000)
