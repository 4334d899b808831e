"""Haystack's own tracer, in the words of OpenInference.

A pipeline, each of its components and each step of an agent is a span. What a component is follows from the name of its
class and from what goes in and out; inputs and outputs are there where `HAYSTACK_CONTENT_TRACING_ENABLED` is true.

Source: haystack-ai 3.4 (`haystack.core.pipeline`, `haystack.components.agents`), opentelemetry-haystack 2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ragmon.core import semconv
from ragmon.ingest.spans.model import Span
from ragmon.ingest.spans.values import as_text, decode_container, mapping

PREFIX: Final = "haystack."
"""The start of the names of all its spans, and of the keys of their attributes."""
COMPONENT_TYPE: Final = "haystack.component.type"
_COMPONENT: Final = "haystack.component.run"
_COMPONENT_DATA: Final = ("haystack.component.input", "haystack.component.output")
_PIPELINES: Final = ("haystack.pipeline.run", "haystack.async_pipeline.run")
_PIPELINE_DATA: Final = ("haystack.pipeline.input_data", "haystack.pipeline.output_data")
_AGENT: Final = "haystack.agent.run"
_AGENT_DATA: Final = ("haystack.agent.input", "haystack.agent.output")
_MODEL_STEP: Final = "haystack.agent.step.llm"
_MODEL_DATA: Final = ("haystack.agent.step.llm.input", "haystack.agent.step.llm.output")
_TOOL_STEP: Final = "haystack.agent.step.tool"
_TOOL_DATA: Final = ("haystack.agent.step.tool.input", "haystack.agent.step.tool.output")
_TOOL_NAME: Final = "haystack.tool.name"
KEYS: Final = frozenset(
    {COMPONENT_TYPE, _TOOL_NAME, *_COMPONENT_DATA, *_PIPELINE_DATA, *_AGENT_DATA, *_MODEL_DATA, *_TOOL_DATA}
)
"""The keys of the attributes that are read."""
_RERANKERS: Final = ("Ranker", "Joiner")
_DOCUMENTS: Final = "documents"
_REPLIES: Final = "replies"
_GIVEN_DOCUMENTS: Final = (_DOCUMENTS, "retrieved_documents")
_OWN_MEMBERS: Final = frozenset({"id", "content", "blob", "score", "embedding", "sparse_embedding", "meta"})
"""The members of a document that are not its metadata, which Haystack writes beside them."""


def translate(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of Haystack's tracer in OpenInference's words; None where it is none."""
    if not span.name.startswith(PREFIX):
        return None
    attributes = span.attributes
    if span.name in _PIPELINES:
        return _plain(attributes, semconv.CHAIN, _PIPELINE_DATA)
    if span.name == _AGENT:
        return _plain(attributes, semconv.AGENT, _AGENT_DATA)
    if span.name == _MODEL_STEP:
        return _model_call(attributes, _MODEL_DATA)
    if span.name == _TOOL_STEP:
        return _plain(attributes, semconv.TOOL, _TOOL_DATA) | {semconv.TOOL_NAME: attributes.get(_TOOL_NAME)}
    return _component(attributes) if span.name == _COMPONENT else {}


def _plain(attributes: Mapping[str, Any], kind: str, data: tuple[str, str]) -> dict[str, Any]:
    given, returned = data
    values = {semconv.INPUT_VALUE: attributes.get(given), semconv.OUTPUT_VALUE: attributes.get(returned)}
    return {semconv.SPAN_KIND: kind, **{key: value for key, value in values.items() if value is not None}}


def _model_call(attributes: Mapping[str, Any], data: tuple[str, str]) -> dict[str, Any]:
    """A model call: messages or a prompt in, replies out, the model's name in their metadata."""
    given, returned = mapping(attributes.get(data[0])), mapping(attributes.get(data[1]))
    result = _plain(attributes, semconv.LLM, data)
    if given.get("messages"):
        result[semconv.INPUT_MESSAGES] = given["messages"]
    replies = returned.get(_REPLIES)
    if isinstance(replies, list) and replies:
        model = mapping(mapping(replies[0]).get("meta")).get("model") or _model_beside(returned)
        if as_text(model):
            result[semconv.LLM_MODEL] = model
    return result


def _model_beside(returned: Mapping[str, Any]) -> Any:
    """The model of generators whose replies are plain text: it stands in a list of metadata beside them."""
    metadata = returned.get("meta")
    return mapping(metadata[0]).get("model") if isinstance(metadata, list) and metadata else None


def _component(attributes: Mapping[str, Any]) -> dict[str, Any]:
    name = as_text(attributes.get(COMPONENT_TYPE)) or ""
    given, returned = (mapping(attributes.get(key)) for key in _COMPONENT_DATA)
    if name.endswith("Generator") or _REPLIES in returned:
        return _model_call(attributes, _COMPONENT_DATA)
    gets_documents = any(isinstance(given.get(member), list) for member in _GIVEN_DOCUMENTS)
    found = returned.get(_DOCUMENTS)
    if name.endswith(_RERANKERS) or (name.endswith("Retriever") and gets_documents):
        pool = [document for member in _GIVEN_DOCUMENTS for document in _flat(given.get(member))]
        asked = {"query": given.get("query"), "nodes": pool}
        result = _plain(attributes, semconv.RERANKER, _COMPONENT_DATA) | {semconv.INPUT_VALUE: asked}
    # Cleaners, splitters and writers pass documents on too, and answer no query.
    elif name.endswith("Retriever") or (isinstance(found, list) and "query" in given and not gets_documents):
        result = _plain(attributes, semconv.RETRIEVER, _COMPONENT_DATA)
    else:
        return {}
    if isinstance(found, list):
        result[semconv.DOCUMENTS] = list(_flat(found))
    return result


def _flat(documents: Any) -> Iterator[Any]:
    """Documents with their metadata in a member of its own; a joiner gets lists of lists of them."""
    for entry in documents if isinstance(documents, list) else ():
        document = decode_container(entry)
        if isinstance(document, list):
            yield from _flat(document)
        elif isinstance(document, Mapping):
            metadata = {key: value for key, value in document.items() if key not in _OWN_MEMBERS}
            own = {key: document[key] for key in ("id", "content", "score") if key in document}
            yield {**own, "metadata": {**mapping(document.get("meta")), **metadata}}
        else:
            yield document
