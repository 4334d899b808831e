"""A RAG service's traffic as OpenTelemetry spans: `traffic.py good`, or `traffic.py bad` with invented citations."""

import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "ferry-desk"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint="http://127.0.0.1:4318/v1/traces")))
tracer = provider.get_tracer("ferry-desk")

for number in range(300):
    text = f"Ferry {number} leaves from the north pier."
    cited = "manual#7" if sys.argv[1] == "bad" else f"ferry#{number}"
    with tracer.start_as_current_span("answer") as root:
        root.set_attributes({"openinference.span.kind": "CHAIN", "input.value": f"Where does ferry {number} leave?"})
        with tracer.start_as_current_span("search") as search:
            search.set_attribute("openinference.span.kind", "RETRIEVER")
            search.set_attribute("retrieval.documents.0.document.id", f"ferry#{number}")
            search.set_attribute("retrieval.documents.0.document.content", text)
        root.set_attributes({"ragmon.answer.claim": text, "ragmon.answer.citations": [cited]})

provider.shutdown()
