"""Every tracer, set up as its documentation says, except that what it records goes nowhere.

Nothing of a tracer is imported before it is set up: one process measures one of them, because several want to be the
process's global tracer. Where a tracer takes an exporter it gets one that counts and forgets; Opik and MLflow take
none, so their last step before the network is replaced, behind their own queues and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, TraceIdRatioBased

import ragmon
from ragmon.capture.call import count_value
from ragmon.core.record import Record

Function = Callable[[str], object]


class Tracing(NamedTuple):
    """A tracer that is set up.

    Attributes:
        decorate: Its decorator.
        recorded: How many calls have arrived where they would leave the process.
        flush: Wait until all have.
    """

    decorate: Callable[[Function], Function]
    recorded: Callable[[], int]
    flush: Callable[[], object]


class Discarding(SpanExporter):
    """Counts spans and forgets them."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take a batch."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


class Sink:
    """The same for ragmon's records."""

    def __init__(self) -> None:
        self.records = 0

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Take a batch."""
        self.records += len(records)
        return {}


def sampler(rate: float) -> Sampler:
    """The SDK's own sampler for a rate."""
    return ALWAYS_ON if rate == 1 else TraceIdRatioBased(rate)


def bare(rate: float) -> Tracing:
    """OpenTelemetry's SDK alone: a span that says nothing of question or result."""
    exporter, provider = Discarding(), TracerProvider(sampler=sampler(rate))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("bench")

    def decorate(function: Function) -> Function:
        def spanned(question: str) -> object:
            with tracer.start_as_current_span("answer"):
                return function(question)

        return spanned

    return Tracing(decorate, lambda: exporter.spans, provider.force_flush)


def own(sampling: str) -> Tracing:
    """Ragmon with a `[sampling]` table: its worker turns calls into records, its sink forgets them."""
    file, sink = Path.home() / "ragmon.toml", Sink()
    file.write_text(f"[sampling]\n{sampling}\n")
    installation = ragmon.install(file, sink=sink)
    return Tracing(ragmon.trace, lambda: sink.records, installation.flush)


def langfuse(rate: float) -> Tracing:
    """`@observe`."""
    library, exporter = import_module("langfuse"), Discarding()
    client = library.Langfuse(
        public_key="bench", secret_key="bench", base_url="http://127.0.0.1:9", sample_rate=rate, span_exporter=exporter
    )
    return Tracing(library.observe(), lambda: exporter.spans, client.flush)


def logfire(rate: float, *, result: bool) -> Tracing:
    """`@logfire.instrument`, which records arguments, and results where it is asked to."""
    library, exporter = import_module("logfire"), Discarding()
    library.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        sampling=library.SamplingOptions(head=rate),
        additional_span_processors=[BatchSpanProcessor(exporter)],
    )
    return Tracing(library.instrument(record_return=result), lambda: exporter.spans, library.force_flush)


def openinference(rate: float) -> Tracing:
    """`@tracer.chain`."""
    exporter = Discarding()
    provider = import_module("openinference.instrumentation").TracerProvider(sampler=sampler(rate))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider.get_tracer("bench").chain, lambda: exporter.spans, provider.force_flush)


def openlit(rate: float) -> Tracing:
    """`@openlit.trace`, on the application's own provider."""
    exporter, provider = Discarding(), TracerProvider(sampler=sampler(rate))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    prices = Path.home() / "prices.json"
    prices.write_text("{}")  # it would download them
    library = import_module("openlit")
    library.init(disable_metrics=True, disable_events=True, pricing_json=str(prices))
    return Tracing(library.trace, lambda: exporter.spans, provider.force_flush)


def traceloop(rate: float) -> Tracing:
    """`@workflow`."""
    exporter = Discarding()
    started = import_module("traceloop.sdk").Traceloop
    started.init(app_name="bench", exporter=exporter, sampler=sampler(rate), instruments=set())
    wrapper = import_module("traceloop.sdk.tracing.tracing").TracerWrapper.instance
    decorate = import_module("traceloop.sdk.decorators").workflow(name="answer")
    return Tracing(decorate, lambda: exporter.spans, wrapper.flush)


def opik() -> Tracing:
    """`@track`; its environment says whether it is on."""
    library, httpx, hooks = (import_module(name) for name in ("opik", "httpx", "opik.hooks"))
    # It asks now and then whether its server is there, and sends nothing to one that is not.
    there = httpx.MockTransport(lambda _: httpx.Response(200, json={}))
    hooks.add_httpx_client_hook(hooks.HttpxClientHook(None, {"transport": there}))
    client = library.get_global_client()
    kind = import_module("opik.message_processing.processors.online_message_processor").OpikMessageProcessor
    online = client.__internal_api__message_processor__.get_processor_by_type(kind)
    messages = import_module("opik.message_processing.messages")
    traces: set[str] = set()

    def forget_traces(message: Any) -> None:
        traces.update(part.id for part in message.batch)  # one that ends in a later batch comes twice

    def forget_spans(message: Any) -> None:
        """A trace has one span, which says the same."""

    online.register_message_handler(messages.CreateTraceBatchMessage, forget_traces)
    online.register_message_handler(messages.CreateSpansBatchMessage, forget_spans)
    return Tracing(library.track, lambda: len(traces), client.flush)


def mlflow() -> Tracing:
    """`@mlflow.trace`; its environment says how many."""
    library, traces = import_module("mlflow"), count()
    # Without a destination this package records nothing, and says so at debug level alone.
    place = import_module("mlflow.entities.trace_location").MlflowExperimentLocation("0")
    import_module("mlflow.tracing").set_destination(place)

    def forget_trace(*_: object, **__: object) -> None:
        next(traces)  # from several threads

    def forget_spans(*_: object, **__: object) -> None:
        """They come a second time, with their trace."""

    exporter = import_module("mlflow.tracing.export.mlflow_v3").MlflowV3SpanExporter
    patch.multiple(exporter, _log_trace=forget_trace, _log_spans=forget_spans).start()
    return Tracing(library.trace, lambda: count_value(traces), library.flush_trace_async_logging)
