"""Pipelines without a framework: a search of one's own and a model's SDK, with the decorators that tracers offer."""

# ruff: noqa: PLC0415 - only one of the SDKs is installed
from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial

from tests.support.programs.timetable import INSTRUCTIONS, KEY, SERVICE, messages, model_url, openai_url, prompt, search


def _chat(question, documents, client=None):
    """The answer of OpenAI's chat completions."""
    return (
        _client(client)
        .chat.completions.create(model="fake", messages=messages(question, documents))
        .choices[0]
        .message.content
    )


def _chat_stream(question, documents, client=None):
    chunks = _client(client).chat.completions.create(model="fake", messages=messages(question, documents), stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def _client(made=None):
    from openai import OpenAI

    return (made or OpenAI)(base_url=openai_url, api_key=KEY)


def openai(tracer):
    """OpenAI's SDK; the search leaves no span."""

    def ask(question, session):
        return _chat(question, search(question))

    def stream(question, session):
        return _chat_stream(question, search(question))

    return ask, stream


def responses(tracer):
    """OpenAI's responses; the search leaves no span."""
    client = _client()

    def create(question, **more):
        asked = prompt(question, search(question))
        return client.responses.create(model="fake", instructions=INSTRUCTIONS, input=asked, **more)

    def stream(question, session):
        events = create(question, stream=True)
        return "".join(event.delta for event in events if event.type == "response.output_text.delta")

    return lambda question, session: create(question).output_text, stream


def litellm(tracer):
    """LiteLLM with its callback for OpenTelemetry."""
    import litellm as installed

    installed.callbacks = ["otel"]

    def complete(question, **more):
        return installed.completion(
            model="openai/fake", api_base=openai_url, api_key=KEY, messages=messages(question, search(question)), **more
        )

    def stream(question, session):
        return "".join(chunk.choices[0].delta.content or "" for chunk in complete(question, stream=True))

    return lambda question, session: complete(question).choices[0].message.content, stream


def anthropic(tracer, root=""):
    """Anthropic's SDK; the search leaves no span, the whole one where it has a `root`."""
    from anthropic import Anthropic
    from opentelemetry import trace

    spans = trace.get_tracer("ferries")
    around = partial(spans.start_as_current_span, "answer") if root else nullcontext

    client = Anthropic(base_url=model_url, api_key=KEY)

    def request(question):
        asked = [{"role": "user", "content": prompt(question, search(question))}]
        return {"model": "fake", "max_tokens": 99, "system": INSTRUCTIONS, "messages": asked}

    def stream(question, session):
        with around():
            events = client.messages.create(**request(question), stream=True)
            return "".join(event.delta.text for event in events if event.type == "content_block_delta")

    def ask(question, session):
        with around():
            return client.messages.create(**request(question)).content[0].text

    return ask, stream


def bedrock(tracer):
    """Bedrock's converse; the search leaves no span."""
    import boto3

    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=model_url,
        region_name="eu-west-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=KEY,
    )

    def ask(question, session):
        asked = [{"role": "user", "content": [{"text": prompt(question, search(question))}]}]
        answered = client.converse(modelId="fake", system=[{"text": INSTRUCTIONS}], messages=asked)
        return answered["output"]["message"]["content"][0]["text"]

    return ask


def google_genai(tracer, kind="prompt"):
    """Google's SDK: a search that leaves no span, or a `tool`, a function that the SDK calls."""
    from google import genai
    from google.genai import types

    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=model_url))
    more = {"tools": [search]} if kind == "tool" else {}
    config = types.GenerateContentConfig(system_instruction=INSTRUCTIONS, **more)

    def contents(question):
        return question if kind == "tool" else prompt(question, search(question))

    def ask(question, session):
        return client.models.generate_content(model="fake", contents=contents(question), config=config).text

    def stream(question, session):
        chunks = client.models.generate_content_stream(model="fake", contents=contents(question), config=config)
        return "".join(chunk.text for chunk in chunks if chunk.text)

    return ask if kind == "tool" else (ask, stream)


def decorated(tracer, whose):
    """OpenAI's SDK, and functions under the decorators of a tracer.

    Args:
        tracer: The tracer.
        whose: The name of the function here that decorates the search and the whole.
    """
    retriever, whole, client = globals()[f"_{whose}"](tracer)
    retrieve = retriever(search)

    @whole
    def answer(question, session):
        return _chat(question, retrieve(question), client)

    @whole
    def answer_streamed(question, session):
        return _chat_stream(question, retrieve(question), client)

    return answer, answer_streamed


def _traceloop(tracer):
    from traceloop.sdk.decorators import task, workflow

    return task(name="retrieve"), workflow(name="timetable"), None


def _phoenix(tracer):
    spans = tracer.provider.get_tracer("ferries")

    def retriever(function):
        import json

        from opentelemetry import trace

        @spans.start_as_current_span("retrieve", openinference_span_kind="retriever")
        def retrieve(query):
            documents = function(query)
            span = trace.get_current_span()
            span.set_attribute("input.value", query)
            for place, one in enumerate(documents):
                span.set_attribute(f"retrieval.documents.{place}.document.id", one["id"])
                span.set_attribute(f"retrieval.documents.{place}.document.content", one["text"])
                span.set_attribute(f"retrieval.documents.{place}.document.score", one["score"])
            span.set_attribute("output.value", json.dumps([one["id"] for one in documents]))
            return documents

        return retrieve

    return retriever, spans.chain, None


def _logfire(tracer):
    import logfire

    traced = logfire.instrument(record_return=True)
    return traced, traced, None


def _langfuse(tracer):
    from langfuse import observe

    try:
        from langfuse.openai import OpenAI
    except ImportError:
        OpenAI = None  # noqa: N806 - a class
    return observe(as_type="retriever"), observe(name="answer"), OpenAI


def _langfuse_untyped(tracer):
    """The decorator alone, as the quickstart has it."""
    _, whole, client = _langfuse(tracer)
    from langfuse import observe

    return observe(name="retrieve"), whole, client


def _mlflow(tracer):
    import mlflow
    from mlflow.entities import Document, SpanType

    def retriever(function):
        @mlflow.trace(span_type=SpanType.RETRIEVER)
        def retrieve(query):
            return [
                Document(id=one["id"], page_content=one["text"], metadata={"score": one["score"]})
                for one in function(query)
            ]

        return lambda query: [{"text": document.page_content} for document in retrieve(query)]

    def whole(function):
        @mlflow.trace(span_type=SpanType.CHAIN, name=function.__name__)
        def answer(question):
            mlflow.update_current_trace(session_id=answer.session)
            return function(question, None)

        def ask(question, session):
            answer.session = session
            return answer(question)

        return ask

    return retriever, whole, None


def _openlit(tracer):
    import openlit

    return openlit.trace, openlit.trace, None


def _laminar(tracer):
    from lmnr import Laminar, observe

    def whole(function):
        @observe(name=function.__name__)
        def answer(question, session):
            Laminar.set_trace_session_id(session)
            return function(question, session)

        return answer

    return observe(name="retrieve", span_type="TOOL"), whole, None


def trulens(tracer):
    """A class whose methods TruLens instruments; a conversation is its own name of a session."""
    from trulens.apps.app import TruApp
    from trulens.core.otel.instrument import instrument
    from trulens.otel.semconv.trace import SpanAttributes

    def of_retrieval(returned, raised, *arguments, **_):
        contexts = [one["text"] for one in returned or ()]
        return {
            SpanAttributes.RETRIEVAL.QUERY_TEXT: arguments[-1],
            SpanAttributes.RETRIEVAL.RETRIEVED_CONTEXTS: contexts,
        }

    class Rag:
        @instrument(span_type=SpanAttributes.SpanType.RETRIEVAL, attributes=of_retrieval)
        def retrieve(self, query):
            return search(query)

        @instrument(span_type=SpanAttributes.SpanType.GENERATION)
        def generate(self, question, documents):
            return _chat(question, documents)

        @instrument()
        def answer(self, question):
            return self.generate(question, self.retrieve(question))

    rag = Rag()
    app = TruApp(rag, app_name=SERVICE, app_version="1", main_method=rag.answer)

    def ask(question, session):
        with app(conversation_id=session):
            return rag.answer(question)

    return ask


def vectors(tracer, store):
    """OpenAI's SDK, and a search in a vector store.

    Args:
        tracer: The tracer.
        store: The name of the function here that fills the store and searches it.
    """
    from tests.support.programs.timetable import returned

    find = globals()[f"_{store}"]()

    def retrieve(question):
        documents = find(question)
        returned(documents)
        return documents

    def ask(question, session):
        with tracer.provider.get_tracer("ferries").start_as_current_span("answer"):
            return _chat(question, retrieve(question))

    def stream(question, session):
        with tracer.provider.get_tracer("ferries").start_as_current_span("answer"):
            return _chat_stream(question, retrieve(question))

    return ask, stream


def _chroma():
    import chromadb

    from tests.support.agent_model import CORPUS, TOP_K
    from tests.support.programs.timetable import vector

    collection = chromadb.EphemeralClient().create_collection(SERVICE)
    collection.add(
        ids=list(CORPUS), documents=list(CORPUS.values()), embeddings=[vector(text) for text in CORPUS.values()]
    )

    def find(question):
        hits = collection.query(query_embeddings=[vector(question)], n_results=TOP_K)
        return [
            {"id": name, "score": distance, "text": text}
            for name, distance, text in zip(hits["ids"][0], hits["distances"][0], hits["documents"][0], strict=True)
        ]

    return find


def _qdrant():
    from qdrant_client import QdrantClient, models

    from tests.support.agent_model import CORPUS, TOP_K
    from tests.support.programs.timetable import vector

    client = QdrantClient(":memory:")
    size = len(vector(""))
    client.create_collection(SERVICE, vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=number, vector=vector(text), payload={"name": name, "text": text})
        for number, (name, text) in enumerate(CORPUS.items())
    ]
    client.upsert(SERVICE, points)

    def find(question):
        hits = client.query_points(SERVICE, query=vector(question), limit=TOP_K).points
        return [{"id": hit.payload["name"], "score": hit.score, "text": hit.payload["text"]} for hit in hits]

    return find


def _milvus():
    from tempfile import mkdtemp

    from pymilvus import DataType, MilvusClient

    from tests.support.agent_model import CORPUS, TOP_K
    from tests.support.programs.timetable import vector

    client = MilvusClient(os.path.join(mkdtemp(), "ferries.db"))  # noqa: PTH118 - as its users write
    schema = client.create_schema()
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=99)
    schema.add_field("text", DataType.VARCHAR, max_length=999)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=len(vector("")))
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="COSINE")
    client.create_collection(SERVICE, schema=schema, index_params=index)
    client.insert(SERVICE, [{"id": name, "text": text, "vector": vector(text)} for name, text in CORPUS.items()])

    def find(question):
        (hits,) = client.search(SERVICE, data=[vector(question)], limit=TOP_K, output_fields=["text"])
        return [{"id": hit["id"], "score": hit["distance"], "text": hit["entity"]["text"]} for hit in hits]

    return find


def _lancedb():
    from tempfile import mkdtemp

    import lancedb

    from tests.support.agent_model import CORPUS, TOP_K
    from tests.support.programs.timetable import vector

    rows = [{"id": name, "text": text, "vector": vector(text)} for name, text in CORPUS.items()]
    table = lancedb.connect(mkdtemp()).create_table(SERVICE, rows)

    def find(question):
        hits = table.search(vector(question)).limit(TOP_K).to_list()
        return [{"id": hit["id"], "score": hit["_distance"], "text": hit["text"]} for hit in hits]

    return find
