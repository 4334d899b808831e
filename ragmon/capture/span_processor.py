"""`RagmonSpanProcessor`: whole requests from the spans of an application's own tracer.

It stands in the application's TracerProvider beside whatever exports there, and sees what the application's sampler
lets through; with OpenTelemetry's `AlwaysRecordSampler` that is everything. On the application's threads it compares
and remembers; a thread of its own does the rest.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Final

from opentelemetry import context as otel
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from ragmon.capture.call import Call, running_call
from ragmon.capture.convert import to_record
from ragmon.capture.exporters.base import BatchExporter, Exporter, Tee
from ragmon.capture.parent import trace_randomness
from ragmon.capture.trace_buffer import ORPHAN, BufferLimits, RequestAssembler, SpanSettings
from ragmon.capture.worker import Worker
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.paths import parse
from ragmon.core.semconv import RAGMON_INTERNAL

OPEN: Final = 10_000
"""Spans inside decorated calls that may be open at once."""
DRAIN: Final = 5.0
"""Seconds the shutdown waits for records on their way."""
_SUPPRESSED: Final = getattr(otel, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


class RagmonSpanProcessor(SpanProcessor):
    """Gathers spans into requests.

    Spans below a call under `@ragmon.trace` belong to that call, and fill what it does not know. Spans without one make
    a request by themselves, kept by the draw its trace id is. Spans of ragmon's own work are never traffic.

    Args:
        sink: Where records go.
        rate: Share of requests that are kept, by the draw their trace id is.
        keep: Rates at which others are kept for their outcome, by stratum: `error`, `refusal`, `slow`.
        slow_above: Seconds above which a request counts as slow.
        pipeline: The pipeline's name; None takes the workflow's, then the service's.
        id_from: Dotted path from a document to its id.
        limits: How long and how much is waited for.
        requests: What becomes of requests, in place of all of these; `ragmon.install(provider=...)` brings its own.

    Raises:
        RagmonError: `id_from` is no path.

    Example:
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
        self._sink = Tee() if sink is None else sink
        if requests is None:
            path = None if id_from is None else parse(id_from, "id_from")
            asked = SpanSettings(
                rate, keep or {}, slow_above, pipeline=pipeline, id_from=path, limits=limits or BufferLimits()
            )
            self._worker = Worker(to_record, self._sink, every=self._sweep)
            requests = RequestAssembler(self._worker, asked)
        self._requests = requests
        self._calls: dict[int, Call] = {}
        self._apart: set[int] = set()
        self._on = True
        if self._worker is not None:
            self._worker.start()
            again = weakref.WeakMethod(self._reset_after_fork)
            os.register_at_fork(after_in_child=lambda: (method := again()) and method())

    def _reset_after_fork(self) -> None:
        self._calls.clear()
        self._requests.reset_after_fork()
        if self._worker is not None:
            self._worker.reset_after_fork(self._sink)
            self._worker.start()

    def _sweep(self, asked: bool) -> None:
        self._requests.sweep(asked)

    def on_start(self, span: Span, parent_context: otel.Context | None = None) -> None:
        """A span began; called on the application's thread."""
        try:
            if self._on:
                self._begin(span, parent_context)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application must not see it
            warn_once(f"a span could not be followed: {whereabouts(error)}")

    def _begin(self, span: Span, parent_context: otel.Context | None) -> None:
        own, parent = span.context, span.parent
        if own is None or otel.get_value(_SUPPRESSED, parent_context):
            return
        above = None if parent is None or parent.is_remote else parent.span_id
        if above in self._apart or (span.attributes or {}).get(RAGMON_INTERNAL):
            self._apart.add(own.span_id)
            return
        gathering, call = self._requests.gathering, running_call()
        if isinstance(call, Call):
            call.open += 1
            self._calls[own.span_id] = call
            if len(self._calls) > OPEN:  # spans nobody ends must not hold calls for ever
                self._calls.pop(next(iter(self._calls)), None)
        elif call is None and trace_randomness(own) >= self._requests.lowest:
            if above is None:
                self._requests.awaken()
                gathering.begin_request(own.trace_id, own.span_id)
            elif not gathering.begin(own.span_id, above):
                gathering.dropped[ORPHAN] += 1

    def on_end(self, span: ReadableSpan) -> None:
        """A span ended; called on the application's thread."""
        try:
            own = span.context
            if own is None:
                return
            if not self._on:
                return
            gathering, call = self._requests.gathering, self._calls.pop(own.span_id, None)
            if call is not None:
                if call.spans is None:
                    call.spans = []
                if len(call.spans) < gathering.limits.spans:
                    call.spans.append(span)
                call.open -= 1
            elif own.span_id in self._apart:
                self._apart.discard(own.span_id)
            else:
                gathering.end(own.span_id, span)
        except Exception as error:  # noqa: BLE001 - as above
            warn_once(f"a span could not be followed: {whereabouts(error)}")

    def shutdown(self) -> None:
        """Take every request as it is, and deliver; called once, by the provider."""
        if self._on:
            self.switch_off()
            self._requests.end()
            self._requests.flush(DRAIN)
            if self._worker is not None:
                self._worker.stop(DRAIN)
                self._worker.page.close()

    def switch_off(self) -> None:
        """Look at no more spans; a provider cannot be told to let a processor go."""
        self._on = False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Deliver the requests that are over.

        Args:
            timeout_millis: Milliseconds it may take, and no more.

        Returns:
            Whether there was time for all of it.
        """
        return self._requests.flush(timeout_millis / 1000)
