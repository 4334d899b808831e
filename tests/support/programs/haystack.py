"""Pipelines and agents of Haystack."""

# ruff: noqa: PLC0415
from __future__ import annotations

import os

os.environ |= {"HAYSTACK_CONTENT_TRACING_ENABLED": "true", "HAYSTACK_TELEMETRY_ENABLED": "False"}

from haystack import Document, Pipeline, tracing
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

from tests.support import agent_model
from tests.support.programs.timetable import INSTRUCTIONS, SERVICE, openai_url, returned, search

PROMPT = [
    ChatMessage.from_system(INSTRUCTIONS),
    ChatMessage.from_user(
        "{% for document in documents %}[{{ loop.index }}] {{ document.content }}\n{% endfor %}Question: {{ question }}"
    ),
]


def _retriever():
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in agent_model.CORPUS.items()])
    searched = store.bm25_retrieval

    def noting(*given, **named):
        documents = searched(*given, **named)
        returned([{"id": one.id, "score": one.score, "text": one.content} for one in documents])
        return documents

    store.bm25_retrieval = noting
    return InMemoryBM25Retriever(store, top_k=agent_model.TOP_K)


def _own(tracer):
    """Haystack's own tracer."""
    from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer

    tracing.enable_tracing(OpenTelemetryTracer(tracer.provider.get_tracer("haystack")))


def pipeline(tracer, kind=""):
    """A pipeline of BM25, a prompt and a model, with Haystack's `own` tracer, or Langfuse's `connector`."""

    def made(streamed):
        whole = Pipeline()
        whole.add_component("retriever", _retriever())
        whole.add_component("prompt", ChatPromptBuilder(template=PROMPT, required_variables="*"))
        whole.add_component("llm", OpenAIChatGenerator(model="fake", api_base_url=openai_url, **streamed))
        whole.connect("retriever.documents", "prompt.documents")
        whole.connect("prompt.prompt", "llm.messages")
        if kind == "connector":
            from haystack_integrations.components.connectors.langfuse import LangfuseConnector

            whole.add_component("tracer", LangfuseConnector(SERVICE))
        return whole

    if kind == "own":
        _own(tracer)
    whole, streaming = made({}), made({"streaming_callback": lambda chunk: None})

    def ask(question, session):
        answered = whole.run({"retriever": {"query": question}, "prompt": {"question": question}})
        return answered["llm"]["replies"][0].text

    def stream(question, session):
        answered = streaming.run({"retriever": {"query": question}, "prompt": {"question": question}})
        return answered["llm"]["replies"][0].text

    return ask, stream


def agent(tracer, kind="own"):
    """An agent with a tool that returns dicts."""
    from haystack.components.agents import Agent
    from haystack.tools import create_tool_from_function

    _own(tracer)
    model = OpenAIChatGenerator(model="fake", api_base_url=openai_url)
    made = Agent(chat_generator=model, tools=[create_tool_from_function(search)], system_prompt=INSTRUCTIONS)
    return lambda question, session: made.run(messages=[ChatMessage.from_user(question)])["messages"][-1].text
