"""OpenAI's SDK under OpenTelemetry's own instrumentation, which writes the messages of a call as log records.

    python -m tests.support.instrumented_openai_logs http://HOST:PORT|grpc://HOST:PORT|- [without-content]

Spans and log records go to a receiver with OpenTelemetry's own exporters, each over its own connection. It prints the
exports in base64: those of spans, then those of logs.
"""

from __future__ import annotations

import base64
import json
import os
import sys

import wrapt
from openai import OpenAI
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support import fixed_model
from tests.support.instrumented import ANSWER, QUESTION, exporter_to

_wrap = wrapt.wrap_function_wrapper


def _wrap_with_old_names(module, name, wrapper):
    """Call wrapt as the instrumentation's last release with log records does: wrapt 2 has another name for `module`."""
    return _wrap(module, name, wrapper)


wrapt.wrap_function_wrapper = _wrap_with_old_names
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = str("without-content" not in sys.argv).lower()


def log_exporter_to(place):
    if place.startswith("grpc://"):
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter  # noqa: PLC0415

        return OTLPLogExporter(f"http://{place.removeprefix('grpc://')}", insecure=True)
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415

    return OTLPLogExporter(f"{place}/v1/logs")


def main(place):
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor  # noqa: PLC0415 - once wrapt is as it needs it

    resource = Resource({"service.name": "helpdesk"})
    tracers, loggers = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    spans, records = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(records))
    if place != "-":
        tracers.add_span_processor(BatchSpanProcessor(exporter_to(place)))
        loggers.add_log_record_processor(BatchLogRecordProcessor(log_exporter_to(place)))
    OpenAIInstrumentor().instrument(tracer_provider=tracers, logger_provider=loggers)
    client = OpenAI(api_key="none", base_url=fixed_model.serve(ANSWER))
    messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": QUESTION}]
    client.chat.completions.create(model=fixed_model.MODEL, messages=messages)
    tracers.shutdown()
    loggers.shutdown()
    exports = (encode_spans(spans.get_finished_spans()), encode_logs(records.get_finished_logs()))
    sys.stdout.write(json.dumps([base64.b64encode(export.SerializeToString()).decode() for export in exports]))


if __name__ == "__main__":
    main(sys.argv[1])
