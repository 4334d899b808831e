"""MLflow's own tracing: functions with a span type, the retriever's result as MLflow's documents."""

from __future__ import annotations

import os

# MLflow sends its spans there; nobody listens, and what is sent is read from its provider.
os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://127.0.0.1:9/v1/traces"
os.environ |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_DISABLE_TELEMETRY": "true"}

import mlflow
from mlflow.entities import Document, SpanType
from mlflow.tracing.provider import get_bridged_tracer_provider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.support.instrumented import ANSWER, QUESTION, exporter, report

SESSION = "conversation-7"
DOCUMENTS = [
    Document(id=f"n#{n}", page_content=text, metadata={"page": n, "doc_uri": f"pages/{n}"})
    for n, text in enumerate(["Rollo ruled Normandy first", "Rouen is in Normandy"])
]


@mlflow.trace(span_type=SpanType.RETRIEVER)
def search(query):
    return DOCUMENTS


@mlflow.trace(span_type=SpanType.CHAT_MODEL)
def chat(messages):
    mlflow.get_current_active_span().set_attribute("mlflow.llm.model", "fixed-1")
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}}]}


@mlflow.trace(span_type=SpanType.CHAIN, name="support")
def ask(question):
    mlflow.update_current_trace(session_id=SESSION, user="user-1")
    documents = search(question)
    messages = [{"role": "system", "content": str(documents)}, {"role": "user", "content": question}]
    return chat(messages)["choices"][0]["message"]["content"]


def main():
    get_bridged_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    answer = ask(QUESTION)
    ids, contexts = [document.id for document in DOCUMENTS], [document.page_content for document in DOCUMENTS]
    report("invoke", ids, answer, contexts=contexts, session=SESSION)


if __name__ == "__main__":
    main()
