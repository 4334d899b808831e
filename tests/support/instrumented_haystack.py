"""Haystack under its own tracer or OpenInference: BM25 in memory, and OpenAI's chat generator."""

from __future__ import annotations

import os
import sys

from tests.support import fixed_model
from tests.support.instrumented import ANSWER, QUESTION, forget, provider, report

if sys.argv[1] != "own-default":
    os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"  # read when Haystack is imported
os.environ |= {"OPENAI_API_KEY": "none", "HAYSTACK_TELEMETRY_ENABLED": "False"}

from haystack import Document, Pipeline, tracing
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

TEXTS = ["Rollo ruled Normandy first", "Rouen is in Normandy", "Who was William the Bastard"]
REFUSAL = "not in context"
PROMPT = [
    ChatMessage.from_system("Answer from the documents alone."),
    ChatMessage.from_user("{% for d in documents %}{{ d.content }}\n{% endfor %}Question: {{ question }}"),
]


def pipeline(answer):
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=f"n#{n}", content=text, meta={"page": n}) for n, text in enumerate(TEXTS)])
    made = Pipeline()
    made.add_component("retriever", InMemoryBM25Retriever(store, top_k=3))
    made.add_component("prompt", ChatPromptBuilder(template=PROMPT, required_variables="*"))
    made.add_component("llm", OpenAIChatGenerator(model=fixed_model.MODEL, api_base_url=fixed_model.serve(answer)))
    made.connect("retriever.documents", "prompt.documents")
    made.connect("prompt.prompt", "llm.messages")
    return made


def ask(made):
    inputs = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    answered = made.run(inputs, include_outputs_from={"retriever"})
    return answered["retriever"]["documents"], answered["llm"]["replies"][0].text


def instrument(tracer):
    if tracer == "openinference":
        from openinference.instrumentation.haystack import HaystackInstrumentor  # noqa: PLC0415

        HaystackInstrumentor().instrument(tracer_provider=provider)
    else:
        from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer  # noqa: PLC0415

        tracing.enable_tracing(OpenTelemetryTracer(provider.get_tracer("haystack")))


def main():
    instrument(sys.argv[1])
    for case, answer in (("invoke", ANSWER), ("refusal", REFUSAL)):
        made = pipeline(answer)
        forget()
        documents, text = ask(made)
        contexts = [document.content for document in documents]
        report(case, [document.id for document in documents], text, contexts=contexts)


if __name__ == "__main__":
    main()
