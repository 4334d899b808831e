"""A Haystack pipeline under Haystack's own OpenTelemetry tracer; ragmon reads its spans."""

import os

os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"  # before Haystack is imported; without it no span has texts

import ragmon
from haystack import Document, Pipeline, component, tracing
from haystack.components.builders import ChatPromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}
QUESTIONS = [f"Where does ferry {number} leave?" for number in range(100)]
PROMPT = [
    ChatMessage.from_user("{% for doc in documents %}{{ doc.content }}\n{% endfor %}Question: {{ question }}"),
]


@component
class FakeChatGenerator:
    """A stand-in for OpenAIChatGenerator, so that this runs without a key: it repeats the first passage.

    BROKEN=1 is the day on which a change of the instructions makes it refuse everything.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict:
        """Answer the last message."""
        said = "not in context" if os.environ.get("BROKEN") else messages[-1].text.splitlines()[0]
        return {"replies": [ChatMessage.from_assistant(said)]}


def build():
    """The pipeline: retrieve, fill the prompt, ask the model."""
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in TEXTS.items()])
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=2))
    pipeline.add_component("prompt_builder", ChatPromptBuilder(template=PROMPT, required_variables="*"))
    pipeline.add_component("llm", FakeChatGenerator())
    pipeline.connect("retriever.documents", "prompt_builder.documents")
    pipeline.connect("prompt_builder.prompt", "llm.messages")
    return pipeline


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "ferry-handbook"}))
    tracing.enable_tracing(OpenTelemetryTracer(provider.get_tracer("haystack")))
    installation = ragmon.install(provider=provider)

    pipeline = build()
    for question in QUESTIONS:
        pipeline.run({"retriever": {"query": question}, "prompt_builder": {"question": question}})

    installation.flush()
    for outcome in installation.monitor.outcomes():
        print(outcome.gate.name, outcome.verdict, "-", outcome.reason)
