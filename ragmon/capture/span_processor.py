"""`RagmonSpanProcessor`: captures requests from the spans of an application's own tracer.

The processor sees the spans that the application's sampler lets through; with OpenTelemetry's `AlwaysRecordSampler` it
sees all spans. On the application's threads it only buffers them: whole requests become records in the worker's thread.

A request is the outermost span that the processor sees, and all spans below it: spans whose parent it does not see, of
another provider or from before a fork, have one request together. It is finished when all its spans have ended, not
only the outermost one: work that continues in the background belongs to it. How long it waits stands in
`ragmon.ingest.trace_buffer`.

A span may contain requests and be none, as that of a connection or of a loop over a queue. Such a span is known by the
whole requests that ended below it while it lasted `turns` seconds; from then on each span right below it begins a
request.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, final

import msgspec
from opentelemetry import context as otel
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from ragmon.capture.call import (
    Call,
    CaptureSettings,
    SamplingDecision,
    random,
    read_span_context,
    running_call,
    threshold,
    trace_randomness,
)
from ragmon.capture.convert import call_to_record
from ragmon.capture.exporters import BatchExporter, Exporter, Tee
from ragmon.capture.worker import QueuedRecord, Worker
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once
from ragmon.core.record import Record, Sampling
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.core.text import parse
from ragmon.core.written import nonempty_text
from ragmon.ingest.spans.mapper import begins_anew, ended_requests, per_request, to_record
from ragmon.ingest.spans.sampling import UpstreamSampling
from ragmon.ingest.spans.span import (
    UNKNOWN_CONVENTION,
    SpanOptions,
    Trace,
    count_scope,
    count_tools,
    from_sdk_span,
    is_plain,
)
from ragmon.ingest.trace_buffer import DECORATED, LATE, TOO_MANY, BufferedTrace, TraceBuffer, TraceLimits, remember

FULL: Final = "too_many_requests"
"""One more reason why a span is in no record: too many requests are open."""
_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True)
class BufferLimits(TraceLimits):
    """The limits of the requests of one process; times in seconds."""

    idle: float = 0.2
    rootless: float = 5.0
    unended: float = 30.0
    turns: float = 30.0
    age: float = 600.0
    spans: int = 512
    requests: int = 2048


@final
@dataclass(slots=True, eq=False)
class OpenRequest(BufferedTrace):
    """A request whose spans are being collected.

    Attributes:
        trace_id, root: The trace, and its outermost span, or the parent of its outermost spans that nobody sees.
        claimed: A decorated call inside makes its record.
        continues: It goes on below a span of a request that was taken: what is no whole request belonged to that one.
        parents: The parents of its spans.
        containers: Running spans that contain requests and are none.
        looked: When it was last searched for such spans, and how many spans had ended.
    """

    spans: list[Any] = field(default_factory=list)
    open: dict[int, Any] = field(default_factory=dict)
    trace_id: int = 0
    root: int = 0
    claimed: bool = False
    continues: bool = False
    ids: list[int] = field(default_factory=list)
    parents: set[int | None] = field(default_factory=set)
    containers: set[int] = field(default_factory=set)
    looked: tuple[float, int] = (0.0, 0)


@final
class SpanBuffer(TraceBuffer[int, OpenRequest]):
    """The open requests of this process, by the id of their outermost span; `dropped` spans are in no record.

    Every step is one atomic operation on a dictionary, a set or a list, so threads need no lock.
    """

    limits: BufferLimits

    def __init__(self, limits: BufferLimits | None = None, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(limits or BufferLimits())
        self.clock = clock
        self._of: dict[int, OpenRequest] = {}
        self._newest_of: dict[int, OpenRequest] = {}  # by trace
        self._gone: dict[int, None] = {}
        self._refused: dict[int, None] = {}
        self._seen: dict[int, None] = {}
        self.dropped = {LATE: 0, TOO_MANY: 0, FULL: 0}

    def begin(self, span: Any, trace_id: int, span_id: int, parent_id: int | None = None) -> None:
        """A span began, below a parent of this process or as an outermost one."""
        request = None
        if parent_id is not None and parent_id not in self._refused:
            request = self._of.get(parent_id) or self._newest_of.get(trace_id)
            if request is None:
                request = self._begin_request(trace_id, parent_id, continues=parent_id in self._seen)
            elif parent_id in request.containers:
                request = self._begin_request(trace_id, span_id)
        elif parent_id is None:
            request = self._begin_request(trace_id, span_id)
        if request is None:
            self.dropped[FULL] += 1
            remember(self._refused, span_id, _MAX_REMEMBERED)
            return
        request.ids.append(span_id)
        request.parents.add(parent_id)
        self._of[span_id] = request
        request.open[span_id] = span
        request.last = self.clock()

    def _begin_request(self, trace_id: int, root: int, *, continues: bool = False) -> OpenRequest | None:
        if len(self.traces) >= self.limits.requests:
            return None
        now = self.clock()
        request = OpenRequest(now, now, trace_id=trace_id, root=root, continues=continues, looked=(now, 0))
        self.traces[root] = self._of[root] = self._newest_of[trace_id] = request
        return request

    def see(self, span_id: int) -> None:
        """A span is in a record: what begins below it later belonged to that record."""
        remember(self._seen, span_id, _MAX_REMEMBERED)

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span: its record is the record of the request."""
        request = self._of.get(span_id)
        if request is not None:
            request.claimed = True

    def end(self, span_id: int, span: Any) -> None:
        """A span ended."""
        request = self._of.get(span_id)
        if request is None:
            if self._gone.pop(span_id, 0) is None:
                self.dropped[LATE] += 1
            return
        is_root = span_id == request.root
        # Of spans that tell nothing, a stream may have thousands: a quarter of the room is for them.
        is_many = 4 * len(request.spans) >= self.limits.spans and not is_root
        is_left_out = is_many and span_id not in request.parents and is_plain(span)
        if not is_left_out and self.has_room(request, is_root):
            request.spans.append(span)
        else:
            self.dropped[TOO_MANY] += 1
        request.last = self.clock()
        if is_root:
            request.root_ended = request.last
        request.open.pop(span_id, None)

    def lasting(self) -> Iterator[OpenRequest]:
        """The requests whose spans have been running for long, or are many, since they were last looked at."""
        now = self.clock()
        for request in list(self.traces.values()):
            since, n = request.looked
            is_long = now - since >= self.limits.turns or 2 * (len(request.spans) - n) > self.limits.spans
            if is_long and request.open and not request.claimed:
                request.looked = now, len(request.spans)
                yield request

    def part(self, request: OpenRequest, outermost: Any, spans: Iterable[Any]) -> None:
        """Remove the spans of a whole request inside a request; the spans around it contain requests and are none."""
        around = outermost.parent
        while around is not None and around.span_id in request.open:
            request.containers.add(around.span_id)
            around = request.open[around.span_id].parent
        for span in spans:
            request.spans.remove(span)
            request.ids.remove(span.context.span_id)
            self._of.pop(span.context.span_id, None)
            self.see(span.context.span_id)

    def take(self, key: int) -> OpenRequest:
        """Remove and return a request; spans of it that are still open will be late."""
        request = super().take(key)
        for span_id in list(request.open):
            remember(self._gone, span_id, _MAX_REMEMBERED)
        self._of.pop(request.root, None)
        for span_id in request.ids:
            self._of.pop(span_id, None)
            self.see(span_id)
        if self._newest_of.get(request.trace_id) is request:
            del self._newest_of[request.trace_id]
        return request


_SPAN_SIZE: Final = 2048


class RequestAssembler:
    """Turns the spans of requests into records; traces of less randomness than `lowest` are not collected."""

    def __init__(
        self, worker: Worker, settings: CaptureSettings, options: SpanOptions, limits: BufferLimits | None = None
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._options = options
        self._limits = limits
        self._threshold = threshold(settings.rate)
        self.lowest = 0 if any(settings.keep.values()) else self._threshold
        self._closing = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset in a forked child."""
        self.gathering = SpanBuffer(self._limits)
        self.ignored: Counter[str] = Counter()
        self.scopes: dict[str, int] = {}
        self.tools: dict[str, int] = {}
        self._upstream, self._sees_all = UpstreamSampling(), False

    def sweep(self, asked: bool = False) -> None:
        """Convert and submit finished requests, in the worker's thread; without lingering if a flush waits."""
        buffer, hurried = self.gathering, asked or self._closing
        for request in buffer.lasting():
            self._read(request, self._convert_ended)
        for _, request in buffer.due(buffer.clock(), hurried=hurried, everything=self._closing):
            self._read(request, self._convert)

    def _read(self, request: OpenRequest, convert: Callable[[OpenRequest], None]) -> None:
        try:
            convert(request)
        except Exception as error:  # noqa: BLE001 - attributes are third-party data
            self.ignored[constants.INVALID_SCHEMA] += 1
            warn_once(f"a request's spans could not be read: {error_location(error)}")

    def awaken(self) -> None:
        """Start the worker's thread if needed: a fork does not copy it."""
        self._worker.start()

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span; the spans around it make no record of their own."""
        self.gathering.claim(span_id)

    def _convert_ended(self, request: OpenRequest) -> None:
        """Convert the whole requests inside spans that last, and go on collecting the others."""
        ended, running = list(request.spans), list(request.open.values())
        by_id = {f"{span.context.span_id:016x}": span for span in ended}
        ids = {f"{span.context.span_id:016x}" for span in running}
        for turn in ended_requests(map(from_sdk_span, (*ended, *running)), ids, self._options):
            spans = [by_id[span.span_id] for span in turn.spans]
            self.gathering.part(request, by_id[turn.outermost[0].span_id], spans)
            self._submit(turn, spans, request)

    def _convert(self, request: OpenRequest) -> None:
        if request.claimed:
            self.ignored[DECORATED] += 1
            return
        for trace in per_request(map(from_sdk_span, request.spans), self._options):
            if request.continues and not begins_anew(trace):
                self.gathering.dropped[LATE] += len(trace.spans)
                continue
            self._submit(trace, request.spans, request)

    def _submit(self, trace: Trace, spans: Sequence[Any], request: OpenRequest) -> None:
        own = next((span for span in spans if span.context.span_id == int(trace.first.span_id, 16)), None)
        attributes = {} if own is None else own.resource.attributes
        service, build = (nonempty_text(attributes.get(key)) for key in ("service.name", "service.version"))
        result = to_record(trace, self._options, service=service, build=build)
        record = result.record
        if record is None:
            self.ignored[result.reason] += 1
            if result.reason == UNKNOWN_CONVENTION:
                count_scope(self.scopes, result.scope)
            return
        count_tools(self.tools, result.tools)
        decision, stratum = self._decision(spans[-1]), self._stratum(record)
        keep = self._settings.keep.get(stratum, 0.0)
        if not decision.audit and random() >= keep:
            return
        sampling = Sampling(audit=decision.audit, stratum=stratum, p_audit=decision.p_audit, p=decision.p(keep))
        # Where unsampled spans are seen as well, the sampler has thinned nothing here.
        self._sees_all = self._sees_all or trace.first.sampled is False
        if not (self._settings.keep or self._sees_all):
            sampling = self._upstream.of(trace, record.pipeline or "", self._settings.rate) or sampling
        partial, why = record.partial or not request.complete, dict(result.missing) or None
        record = msgspec.structs.replace(record, partial=partial, sampling=sampling, why_unknown=why)
        self._worker.submit(QueuedRecord(record, _SPAN_SIZE * len(trace.spans)))

    def _decision(self, span: Any) -> SamplingDecision:
        # If the application's sampler states its threshold, only sampled traces count.
        parent = read_span_context(span.context)
        respected = parent.sampled and parent.rejected is not None
        decision = parent.decision(self._settings.rate, self._threshold, respected=respected)
        return decision if decision is not None else SamplingDecision(audit=False, p_audit=0.0)

    def _stratum(self, record: Record) -> str:
        settings = self._settings
        if not settings.keep:
            return constants.REST
        if record.error is not None:
            return "error"
        claim = record.answer_json.claim if record.answer_json is not None else None
        if claim is not None and (
            claim.strip().casefold() in settings.refusals or (settings.refuses is not None and settings.refuses(claim))
        ):
            return "refusal"
        total = record.latency_ms.total if record.latency_ms is not None else None
        slow_above = float("inf") if settings.slow_above is None else settings.slow_above
        return "slow" if total is not None and total > 1000 * slow_above else constants.REST

    def flush(self, timeout: float) -> bool:
        """Deliver the records of finished requests within a timeout, in seconds; returns whether it was in time."""
        return self._worker.flush(timeout)

    def end(self) -> None:
        """From now on, finish every request at the next sweep."""
        self._closing = True


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
        pipeline: The pipeline's name; None takes the service's.
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
            settings = CaptureSettings(rate, keep or {}, slow_above=slow_above)
            self._worker = Worker(call_to_record, self._exporter, every=lambda asked: self._requests.sweep(asked=asked))
            requests = RequestAssembler(self._worker, settings, SpanOptions(path, pipeline=pipeline), limits)
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
                buffer.see(context.span_id)
                if len(self._calls) > OPEN:  # spans that never end must not keep calls forever
                    self._calls.pop(next(iter(self._calls)), None)
            elif call is None and trace_randomness(context) >= self._requests.lowest:
                self._requests.awaken()
                buffer.begin(span, context.trace_id, context.span_id, local_parent_id)
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
