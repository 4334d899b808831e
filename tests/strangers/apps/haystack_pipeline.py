"""A Haystack pipeline under Haystack's own OpenTelemetry tracer."""

import os
import sys

os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"
os.environ["OPENAI_API_KEY"] = "unused"

import model_server
import ragmon
from handbook import PASSAGES
from haystack import Document, Pipeline, tracing
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
from opentelemetry.sdk.trace import TracerProvider

PROMPT = [
    ChatMessage.from_system("Answer from the documents alone."),
    ChatMessage.from_user("{% for doc in documents %}{{ doc.content }}\n{% endfor %}Question: {{ question }}"),
]


def build():
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in PASSAGES.items()])
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=4))
    pipeline.add_component("prompt_builder", ChatPromptBuilder(template=PROMPT, required_variables="*"))
    pipeline.add_component("llm", OpenAIChatGenerator(model="local", api_base_url=model_server.start()))
    pipeline.connect("retriever.documents", "prompt_builder.documents")
    pipeline.connect("prompt_builder.prompt", "llm.messages")
    return pipeline


if __name__ == "__main__":
    provider = TracerProvider()
    tracing.enable_tracing(OpenTelemetryTracer(provider.get_tracer("haystack")))
    ragmon.install(provider=provider)
    pipeline = build()
    for line in sys.stdin:
        question = line.strip()
        result = pipeline.run({"retriever": {"query": question}, "prompt_builder": {"question": question}})
        print(result["llm"]["replies"][0].text, flush=True)
