"""Spans of tracers with words of their own, in those of OpenInference and OpenTelemetry, which the mapper reads.

What a span says in those words itself is kept: translations only add to it. Messages that a convention writes as events
become the messages of their span.

Sources: haystack-ai 3.4 (`haystack.core.pipeline`, `haystack.components.agents`), opentelemetry-haystack 2.0;
mlflow-tracing 3.17 (`mlflow.tracing.constant`); langfuse 5.0 (`langfuse._client.attributes`); AI SDK 6 and 7 of Vercel,
"Telemetry".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from ragmon.core import semconv
from ragmon.core.written import as_text, decode, decode_container, mapping
from ragmon.ingest.spans.span import KINDS, Event, Span

Attributes = Mapping[str, Any]
Translation = dict[str, Any]


def _call(kind: str, given: Any, returned: Any) -> Translation:
    return {semconv.SPAN_KIND: kind, semconv.INPUT_VALUE: given, semconv.OUTPUT_VALUE: returned}


# Haystack: a pipeline, each of its components and each step of an agent is a span. What a component is follows from the
# name of its class and from what goes in and out, which is there where `HAYSTACK_CONTENT_TRACING_ENABLED` is true.

_COMPONENT: Final = "haystack.component.run"
_MODEL_STEP: Final = "haystack.agent.step.llm"
_HAYSTACK_SPANS: Final = {
    "haystack.pipeline.run": (semconv.CHAIN, "haystack.pipeline.input_data", "haystack.pipeline.output_data"),
    "haystack.async_pipeline.run": (semconv.CHAIN, "haystack.pipeline.input_data", "haystack.pipeline.output_data"),
    "haystack.agent.run": (semconv.AGENT, "haystack.agent.input", "haystack.agent.output"),
    _MODEL_STEP: (semconv.LLM, "haystack.agent.step.llm.input", "haystack.agent.step.llm.output"),
    "haystack.agent.step.tool": (semconv.TOOL, "haystack.agent.step.tool.input", "haystack.agent.step.tool.output"),
    _COMPONENT: ("", "haystack.component.input", "haystack.component.output"),
}
"""The kind of a span by its name, and the keys of its input and output."""
_COMPONENT_TYPE: Final = "haystack.component.type"
_DOCUMENT_LISTS: Final = ("documents", "retrieved_documents")
_OWN_MEMBERS: Final = frozenset({"id", "content", "blob", "score", "embedding", "sparse_embedding", "meta"})
"""The members of a document that are not its metadata, which Haystack writes beside them."""


def _translate_haystack(span: Span) -> Translation | None:
    if not span.name.startswith("haystack."):
        return None
    if span.name not in _HAYSTACK_SPANS:
        return {}
    kind, given_key, returned_key = _HAYSTACK_SPANS[span.name]
    result = _call(kind, span.attributes.get(given_key), span.attributes.get(returned_key))
    given, returned = (mapping(result[key]) for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE))
    if span.name in (_MODEL_STEP, _COMPONENT):
        name = as_text(span.attributes.get(_COMPONENT_TYPE)) or ""
        gets_documents = any(isinstance(given.get(member), list) for member in _DOCUMENT_LISTS)
        found = returned.get("documents")
        if span.name == _MODEL_STEP or name.endswith("Generator") or "replies" in returned:
            return result | _haystack_model_call(given, returned)
        if name.endswith(("Ranker", "Joiner")) or (name.endswith("Retriever") and gets_documents):
            pool = [document for member in _DOCUMENT_LISTS for document in _flat(given.get(member))]
            pooled = {"query": given.get("query"), "nodes": pool}
            result |= {semconv.SPAN_KIND: semconv.RERANKER, semconv.INPUT_VALUE: pooled}
        # Cleaners, splitters and writers pass documents on too, and answer no query.
        elif name.endswith("Retriever") or (isinstance(found, list) and "query" in given and not gets_documents):
            result[semconv.SPAN_KIND] = semconv.RETRIEVER
        else:
            return {}
        if isinstance(found, list):
            result[semconv.DOCUMENTS] = list(_flat(found))
    return result


def _haystack_model_call(given: Attributes, returned: Attributes) -> Translation:
    """Messages or a prompt in, replies out; the model's name is in the metadata of the reply, or beside plain texts."""
    replies, beside = (returned[key] if isinstance(returned.get(key), list) else [] for key in ("replies", "meta"))
    metadata = [*(mapping(reply).get("meta") for reply in replies[:1]), *beside[:1]]
    models = (mapping(each).get("model") for each in metadata)
    return {
        semconv.SPAN_KIND: semconv.LLM,
        semconv.INPUT_MESSAGES: given.get("messages") or None,
        semconv.LLM_MODEL: next(filter(as_text, models), None),
    }


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


# MLflow, Langfuse, LangSmith and Laminar: a span has a type, an input and an output. MLflow and Laminar write every
# value as JSON, texts too; the others only what is no text.

_KINDS: Final = {
    **{kind.casefold(): kind for kind in (*KINDS, semconv.TOOL, semconv.EMBEDDING)},
    "workflow": semconv.CHAIN,
    "chat_model": semconv.LLM,
    "generation": semconv.LLM,
}
_PLATFORMS: Final = {
    "mlflow.spanType": ("mlflow.spanInputs", "mlflow.spanOutputs"),
    "langfuse.observation.type": ("langfuse.observation.input", "langfuse.observation.output"),
    "langsmith.span.kind": ("gen_ai.prompt", "gen_ai.completion"),
    "lmnr.span.type": ("lmnr.span.input", "lmnr.span.output"),
}
"""The keys of input and output by that of the type: a span without a type is none of the platform's own."""
_TEXTS_AS_JSON: Final = ("mlflow.", "lmnr.")
_LEVEL, _ERROR_LEVEL = "langfuse.observation.level", "ERROR"
"""Where Langfuse says that a step failed, beside a status that may be unset."""


def _value(attributes: Attributes, key: str) -> Any:
    raw = attributes.get(key)
    text = decode(raw) if key.startswith(_TEXTS_AS_JSON) else None
    return text if isinstance(text, str) else raw


def _translate_platform(span: Span) -> Translation | None:
    attributes = span.attributes
    type_key = next((key for key in _PLATFORMS if key in attributes), None)
    if type_key is None:
        return None
    kind = _KINDS.get((as_text(_value(attributes, type_key)) or "").casefold())
    given, returned = (_value(attributes, key) for key in _PLATFORMS[type_key])
    held = decode_container(returned)
    if kind == semconv.LLM:
        # Integrations write requests and replies of a model's API as they are.
        asked = decode_container(given)
        if isinstance(asked, Mapping):
            asked = asked.get("messages", asked.get("input", asked))
        if isinstance(asked, str):
            asked = [{"role": "user", "content": asked}]
        return {
            semconv.SPAN_KIND: kind,
            semconv.INPUT_MESSAGES: asked if isinstance(asked, list) else None,
            semconv.OUTPUT_MESSAGES: _replies(held) or None,
            semconv.OUTPUT_VALUE: returned,
        }
    # A span without a kind is a decorated function: one inside another may return documents.
    is_tool = span.parent_id and isinstance(held, list)
    return _call(kind or (semconv.TOOL if is_tool else semconv.CHAIN), given, returned)


def _replies(replied: Any) -> list[Any]:
    """A list of messages, the choices in a reply of OpenAI's, or the texts in one of Pydantic AI."""
    if isinstance(replied, Mapping) and isinstance(replied.get("parts"), list):
        texts = [part for part in replied["parts"] if mapping(part).get("part_kind") == "text"]
        return [{"role": "assistant", "parts": texts}] if texts else []
    entries = replied.get("choices") if isinstance(replied, Mapping) else replied
    return entries if isinstance(entries, list) else []


# The AI SDK of Vercel: `ai.generateText` and its kin are one request, `….doGenerate` and `….doStream` inside it the
# model calls, `ai.toolCall` the tools. The application's own words are in `ai.telemetry.metadata.…`. AI SDK 7 writes
# OpenTelemetry's GenAI conventions (`@ai-sdk/otel`), with the application's words in `ai.settings.context.…`.

_OPERATION_ID: Final = "ai.operationId"
_PROMPT: Final = "ai.prompt"
_TEXT: Final = "ai.response.text"
_OBJECT: Final = "ai.response.object"
_REQUESTS: Final = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject", "ai.agent")


def _translate_vercel(span: Span) -> Translation | None:
    attributes = span.attributes
    operation = as_text(attributes.get(_OPERATION_ID))
    if operation is None or not operation.startswith("ai."):
        return None
    returned = attributes.get(_TEXT, attributes.get(_OBJECT))
    if operation.startswith("ai.embed"):
        return {semconv.SPAN_KIND: semconv.EMBEDDING}
    if operation.endswith((".doGenerate", ".doStream")):
        replies = None if returned is None else [{"role": "assistant", "content": returned}]
        return {semconv.SPAN_KIND: semconv.LLM, semconv.OUTPUT_MESSAGES: replies}
    if operation in _REQUESTS:
        # The prompt is a text or a list of messages, beside the system's.
        given = mapping(attributes.get(_PROMPT))
        prompt = decode_container(given.get("prompt"))
        messages = given.get("messages") or (prompt if isinstance(prompt, list) else None)
        question = {"question": prompt} if prompt and not messages else None
        return _call(semconv.CHAIN, question, returned) | {semconv.INPUT_MESSAGES: messages}
    return {semconv.SPAN_KIND: semconv.TOOL if operation == "ai.toolCall" else None}


# Logfire and Pydantic AI before version 1: messages are events in one attribute, JSON in which each names itself.

_EVENT_LISTS: Final = ("all_messages_events", "events")
_TOOL_RESPONSE: Final = "tool_response"
_RESPONSE: Final = "response"
_LOGFIRE_NAME, _LOGFIRE_GROUP = "name", "group_id"
_LOGFIRE_KINDS: Final = {
    "Function: {name}": semconv.TOOL,
    "Agent run: {name!r}": semconv.AGENT,
    "OpenAI Agents trace: {name}": semconv.CHAIN,
}
"""The kind of a span by its name, of which Logfire leaves the template."""
_LOGFIRE_SCOPE, _LOGFIRE_FUNCTION, _LOGFIRE_RETURNED = "logfire", "code.function", "return"
"""A function under `@logfire.instrument(record_return=True)`; one that returns a list may be a search."""


def _translate_logfire(span: Span) -> Translation | None:
    attributes = span.attributes
    if span.name in _LOGFIRE_KINDS:
        named = {semconv.TOOL_NAME: attributes.get(_LOGFIRE_NAME), semconv.SESSION: attributes.get(_LOGFIRE_GROUP)}
        return _call(_LOGFIRE_KINDS[span.name], attributes.get("input"), attributes.get("output")) | named
    if span.scope == _LOGFIRE_SCOPE and isinstance(decode_container(attributes.get(_LOGFIRE_RETURNED)), list):
        returned = _call(semconv.TOOL, None, attributes[_LOGFIRE_RETURNED])
        return returned | {semconv.TOOL_NAME: attributes.get(_LOGFIRE_FUNCTION)}
    if _TOOL_RESPONSE in attributes:
        return _call(semconv.TOOL, None, attributes[_TOOL_RESPONSE])
    for key in _EVENT_LISTS:
        listed = decode_container(attributes.get(key))
        if isinstance(listed, list):
            events = [Event(str(entry.get("event.name")), entry) for entry in listed if isinstance(entry, Mapping)]
            return _messages_in(events) | {semconv.OUTPUT_VALUE: attributes.get(_RESPONSE)}
    return None


# Google's ADK before version 2: requests and replies of Gemini's API, as JSON.

_ADK_SCOPE: Final = "gcp.vertex.agent"
_ADK_REQUEST, _ADK_REPLY = f"{_ADK_SCOPE}.llm_request", f"{_ADK_SCOPE}.llm_response"
_ADK_RETURNED: Final = f"{_ADK_SCOPE}.tool_response"


def _translate_adk(span: Span) -> Translation | None:
    if span.scope != _ADK_SCOPE:
        return None
    attributes = span.attributes
    asked, replied = mapping(attributes.get(_ADK_REQUEST)), mapping(attributes.get(_ADK_REPLY))
    if asked or replied:
        messages = {semconv.INPUT_MESSAGES: asked.get("contents"), semconv.OUTPUT_MESSAGES: [replied.get("content")]}
        return {semconv.SPAN_KIND: semconv.LLM, **messages}
    is_agent = span.name.startswith("agent_run") or semconv.OPERATION not in attributes
    return {semconv.SPAN_KIND: semconv.AGENT} if is_agent and _ADK_RETURNED not in attributes else {}


# LlamaIndex's own tracer: a span has the events of LlamaIndex, and nothing else.

_LLAMA_INDEX_SCOPE: Final = "llamaindex.opentelemetry.tracer"
_LLAMA_INDEX_EVENTS: Final = {
    "QueryStartEvent": (semconv.CHAIN, {semconv.INPUT_VALUE: "query"}),
    "QueryEndEvent": (semconv.CHAIN, {semconv.OUTPUT_VALUE: "response.response"}),
    "RetrievalStartEvent": (semconv.RETRIEVER, {semconv.INPUT_VALUE: "str_or_query_bundle.query_str"}),
    "RetrievalEndEvent": (semconv.RETRIEVER, {semconv.DOCUMENTS: "nodes"}),
    "ReRankEndEvent": (semconv.RERANKER, {semconv.DOCUMENTS: "nodes"}),
    "LLMChatEndEvent": (
        semconv.LLM,
        {semconv.INPUT_MESSAGES: "messages", semconv.OUTPUT_MESSAGES: "response.message.blocks"},
    ),
}
"""The kind of a span by its events, and what their attributes mean."""


def _translate_llama_index(span: Span) -> Translation | None:
    if span.scope != _LLAMA_INDEX_SCOPE:
        return None
    result: Translation = {}
    for event in span.events:
        kind, meanings = _LLAMA_INDEX_EVENTS.get(event.name, ("", {}))
        if kind:
            result[semconv.SPAN_KIND] = kind
        result |= {meaning: event.attributes.get(key) for meaning, key in meanings.items()}
    if (blocks := result.get(semconv.OUTPUT_MESSAGES)) is not None:
        result[semconv.OUTPUT_MESSAGES] = [{"role": "assistant", "content": decode_container(blocks)}]
    return result


_TRANSLATIONS: Final = (
    _translate_llama_index,
    _translate_haystack,
    _translate_vercel,
    _translate_platform,
    _translate_logfire,
    _translate_adk,
)
_MEANINGS: Final = {
    _ADK_RETURNED: semconv.OUTPUT_VALUE,
    f"{_ADK_SCOPE}.session_id": semconv.SESSION,
    "haystack.tool.name": semconv.TOOL_NAME,
    "langfuse.observation.model.name": semconv.LLM_MODEL,
    "langfuse.session.id": semconv.SESSION,
    "langfuse.trace.name": semconv.WORKFLOW_NAME,
    "langfuse.user.id": semconv.USER,
    "langsmith.trace.name": semconv.WORKFLOW_NAME,
    "mastra.agent_run.input": semconv.INPUT_VALUE,
    "mlflow.llm.model": semconv.LLM_MODEL,
    "mlflow.trace.session": semconv.SESSION,
    "mlflow.trace.user": semconv.USER,
    "mlflow.traceTag.workflow": semconv.WORKFLOW_NAME,
    "ai.model.id": semconv.LLM_MODEL,
    "ai.prompt.messages": semconv.INPUT_MESSAGES,
    "ai.response.model": semconv.RESPONSE_MODEL,
    "ai.telemetry.functionId": semconv.WORKFLOW_NAME,
    "ai.toolCall.args": semconv.INPUT_VALUE,
    "ai.toolCall.name": semconv.TOOL_NAME,
    "ai.toolCall.result": semconv.OUTPUT_VALUE,
}
"""The attributes of tracers that another name alone makes readable; of two with one meaning the later counts."""
KEYS: Final = frozenset(
    {
        *(*_MEANINGS, *_PLATFORMS, *chain.from_iterable(_PLATFORMS.values()), _LEVEL),
        *(_COMPONENT_TYPE, *(key for _, *keys in _HAYSTACK_SPANS.values() for key in keys)),
        *(_OPERATION_ID, _PROMPT, _TEXT, _OBJECT, _ADK_REQUEST, _ADK_REPLY),
        *(*_EVENT_LISTS, _TOOL_RESPONSE, _RESPONSE, _LOGFIRE_NAME, _LOGFIRE_GROUP, "input", "output"),
        *(_LOGFIRE_FUNCTION, _LOGFIRE_RETURNED),
    }
)
"""The keys of the attributes that are read here."""

_ROLES: Final = {
    semconv.SYSTEM_EVENT: "system",
    semconv.USER_EVENT: "user",
    semconv.ASSISTANT_EVENT: "assistant",
    semconv.TOOL_EVENT: "tool",
    semconv.CHOICE_EVENT: "assistant",
}
MESSAGE_EVENTS: Final = frozenset({semconv.INFERENCE_DETAILS, *_ROLES})
_MESSAGE_KEYS: Final = frozenset({semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, "content", "message", "role"})
EVENT_KEYS: Final = {
    **dict.fromkeys(MESSAGE_EVENTS, _MESSAGE_KEYS),
    **{name: frozenset(meanings.values()) for name, (_, meanings) in _LLAMA_INDEX_EVENTS.items()},
}
"""The attributes of events that are read here, by the event."""
_MESSAGE_MEMBERS: Final = frozenset({"role", "content", "parts", "text"})
_LISTS: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)


def translated(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of any tracer, in the words that the mapper reads."""
    for span in spans:
        values = (
            (meaning, _value(span.attributes, key)) for key, meaning in _MEANINGS.items() if key in span.attributes
        )
        added = {meaning: value for meaning, value in values if value is not None}
        translation = next((found for read in _TRANSLATIONS if (found := read(span)) is not None), None)
        if translation is not None:
            # A tracer's kind that means nothing here is known all the same.
            added[semconv.SPAN_KIND] = ""
            added |= {key: value for key, value in translation.items() if value is not None}
        if span.events and not any(key in span.attributes or key in added for key in _LISTS):
            added |= _messages_in(span.events)
        failed = span.failed or span.attributes.get(_LEVEL) == _ERROR_LEVEL
        is_known = not added and failed == span.failed
        yield span if is_known else span._replace(attributes={**added, **span.attributes}, failed=failed)


def _messages_in(events: Sequence[Event]) -> Translation:
    messages: dict[str, list[Any]] = {key: [] for key in _LISTS}
    for event in events:
        if event.name == semconv.INFERENCE_DETAILS:
            return {key: event.attributes[key] for key in _LISTS if key in event.attributes}
        if event.name in _ROLES:
            key = semconv.OUTPUT_MESSAGES if event.name == semconv.CHOICE_EVENT else semconv.INPUT_MESSAGES
            messages[key].append(_message(event.attributes, _ROLES[event.name]))
    # Messages without any content were not captured.
    return {key: found for key, found in messages.items() if any(message["content"] is not None for message in found)}


def _message(attributes: Attributes, role: str) -> Translation:
    """The message in an event; its content is a text, or a message or its parts written as JSON."""
    raw = attributes.get("content", attributes.get("message"))
    content = decode_container(raw)
    content = mapping(content).get("message", content)  # in a choice
    entries = [content] if isinstance(content, Mapping) else content if isinstance(content, list) else []
    if not all(map(_is_part, entries)):
        content = raw
    elif isinstance(content, Mapping):
        content = content.get("content", content if content.keys() & _MESSAGE_MEMBERS - {"role"} else None)
    return {"role": role, "content": content}


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.keys() & _MESSAGE_MEMBERS)
