"""What the programs have in common that run a real RAG framework under a real instrumentation.

They are programs of their own, because instrumentations patch a framework for the whole process and some cannot be
taken off again. Each prints one line a run: what the framework returned, the spans the run left, and the record
ragmon's span processor made of them.
"""

from __future__ import annotations

import json
import os
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragmon
from ragmon.capture.span_processor import BufferLimits
from ragmon.core.record import encode
from ragmon.testing import Collected
from tests.support.recorded_spans import from_sdk

QUESTION = "Who ruled Normandy?"
ANSWER = '{"claim": "Rollo did", "citations": ["n#2", "n#0"]}'
MANY = 80
"""Documents whose flattened attributes pass the SDK's limit of 128."""


def exporter_to(place):
    """OpenTelemetry's own exporter, compressed: `http://host:port` or `grpc://host:port`."""
    if place.startswith("grpc://"):
        import grpc  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        address = place.removeprefix("grpc://")
        return OTLPSpanExporter(f"http://{address}", insecure=True, compression=grpc.Compression.Gzip)
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter(f"{place}/v1/traces", compression=Compression.Gzip)


exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
sink = Collected()
if place := os.environ.get("SPANS_TO"):
    provider.add_span_processor(BatchSpanProcessor(exporter_to(place), schedule_delay_millis=100))
processor = ragmon.RagmonSpanProcessor(sink, limits=BufferLimits(idle=0.0))
provider.add_span_processor(processor)


def report(case, ids=None, answer=None, **more):
    """Print one run."""
    spans = [from_sdk(span)._asdict() for span in exporter.get_finished_spans()]
    for span in spans:
        span["attributes"] = dict(span["attributes"])
        span["events"] = [[event.name, dict(event.attributes)] for event in span["events"]]
    processor.force_flush()
    records = [json.loads(encode(record)) for record in sink.records]
    parsed = json.loads(answer) if answer == ANSWER else {"claim": answer, "citations": None}
    told = {"case": case, "question": QUESTION, "ids": ids, "answer": answer, **parsed, **more}
    told |= {"spans": spans, "records": records}
    sys.stdout.write(json.dumps(told) + "\n")
    forget()


def forget():
    """Begin the next run with nothing of the last one."""
    processor.force_flush()
    exporter.clear()
    sink.records.clear()


def main(instrumentors, runs):
    """Do all runs under the convention the command line names, then one whose content stays out of the spans.

    Args:
        instrumentors: By convention.
        runs: Does the runs and returns what asks a question.
    """
    convention = sys.argv[1]
    instrumentor = instrumentors[convention]()
    instrumentor.instrument(tracer_provider=provider)
    ask = runs()
    if convention == "openllmetry":
        os.environ["TRACELOOP_TRACE_CONTENT"] = "false"
    else:
        from openinference.instrumentation import TraceConfig  # noqa: PLC0415

        instrumentor.uninstrument()
        hidden = TraceConfig(hide_inputs=True, hide_outputs=True, hide_llm_invocation_parameters=True)
        instrumentor.instrument(tracer_provider=provider, config=hidden)
    ask(QUESTION)
    report("hidden content")
    provider.shutdown()
