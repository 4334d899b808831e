"""Haystack's own tracer, in the words of OpenInference.

A pipeline, each of its components and each step of an agent is a span. What a component is follows from the name of its
class and from what goes in and out; inputs and outputs are there where `HAYSTACK_CONTENT_TRACING_ENABLED` is true.

Source: haystack-ai 3.4 (`haystack.core.pipeline`, `haystack.components.agents`), opentelemetry-haystack 2.0.

MLflow and Langfuse, in the words of OpenInference: a span of theirs has a type, an input and an output.

MLflow writes every value as JSON, texts too; Langfuse only what is no text.

Sources: mlflow-tracing 3.17 (`mlflow.tracing.constant`), langfuse 5.0 (`langfuse._client.attributes`).

The AI SDK of Vercel, in the words of OpenInference and OpenTelemetry.

`ai.generateText` and its kin are one request, `….doGenerate` and `….doStream` inside it the model calls, `ai.toolCall`
the tools. What the application says of a request is in `ai.telemetry.metadata.…`. AI SDK 7 writes OpenTelemetry's GenAI
conventions (`@ai-sdk/otel`), and what the application says in `ai.settings.context.…`.

Source: AI SDK 6 and 7, "Telemetry".

Spans of tracers with words of their own, in those of OpenInference and OpenTelemetry, which the mapper reads.

What a span says in those words itself is kept: translations only add to it. Messages that a convention writes as events
become the messages of their span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragmon.core import semconv
from ragmon.ingest.spans.span import Event, Span
from ragmon.ingest.spans.tools import as_text, decode, decode_container, mapping

HAYSTACK_PREFIX: Final = "haystack."
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
_HAYSTACK_TOOL_NAME: Final = "haystack.tool.name"
HAYSTACK_KEYS: Final = frozenset(
    {COMPONENT_TYPE, _HAYSTACK_TOOL_NAME, *_COMPONENT_DATA, *_PIPELINE_DATA, *_AGENT_DATA, *_MODEL_DATA, *_TOOL_DATA}
)
_RERANKERS: Final = ("Ranker", "Joiner")
_DOCUMENTS: Final = "documents"
_REPLIES: Final = "replies"
_GIVEN_DOCUMENTS: Final = (_DOCUMENTS, "retrieved_documents")
_OWN_MEMBERS: Final = frozenset({"id", "content", "blob", "score", "embedding", "sparse_embedding", "meta"})
"""The members of a document that are not its metadata, which Haystack writes beside them."""


def translate_haystack(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of Haystack's tracer in OpenInference's words; None where it is none."""
    if not span.name.startswith(HAYSTACK_PREFIX):
        return None
    attributes = span.attributes
    if span.name in _PIPELINES:
        return _plain(attributes, semconv.CHAIN, _PIPELINE_DATA)
    if span.name == _AGENT:
        return _plain(attributes, semconv.AGENT, _AGENT_DATA)
    if span.name == _MODEL_STEP:
        return _haystack_model_call(attributes, _MODEL_DATA)
    if span.name == _TOOL_STEP:
        return _plain(attributes, semconv.TOOL, _TOOL_DATA) | {semconv.TOOL_NAME: attributes.get(_HAYSTACK_TOOL_NAME)}
    return _component(attributes) if span.name == _COMPONENT else {}


def _plain(attributes: Mapping[str, Any], kind: str, data: tuple[str, str]) -> dict[str, Any]:
    given, returned = data
    values = {semconv.INPUT_VALUE: attributes.get(given), semconv.OUTPUT_VALUE: attributes.get(returned)}
    return {semconv.SPAN_KIND: kind, **{key: value for key, value in values.items() if value is not None}}


def _haystack_model_call(attributes: Mapping[str, Any], data: tuple[str, str]) -> dict[str, Any]:
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
        return _haystack_model_call(attributes, _COMPONENT_DATA)
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


class Platform(NamedTuple):
    """The keys of a platform's attributes.

    Attributes:
        type: The type of a span; without it a span is none of the platform.
        given: The input.
        returned: The output.
        model: The model's name.
        workflow: The trace's name.
        kinds: OpenInference's kinds by the platform's types, in lower case.
        others: Keys of the conventions by other keys of the platform.
        as_json: Whether texts are written as JSON.
    """

    type: str
    given: str
    returned: str
    model: str
    workflow: str
    kinds: Mapping[str, str]
    others: Mapping[str, str]
    as_json: bool


_KINDS: Final = {
    "chain": semconv.CHAIN,
    "workflow": semconv.CHAIN,
    "agent": semconv.AGENT,
    "retriever": semconv.RETRIEVER,
    "reranker": semconv.RERANKER,
    "llm": semconv.LLM,
    "chat_model": semconv.LLM,
    "generation": semconv.LLM,
    "tool": semconv.TOOL,
    "embedding": semconv.EMBEDDING,
    "guardrail": semconv.GUARDRAIL,
    "evaluator": semconv.EVALUATOR,
}
MLFLOW: Final = Platform(
    type="mlflow.spanType",
    given="mlflow.spanInputs",
    returned="mlflow.spanOutputs",
    model="mlflow.llm.model",
    workflow="mlflow.traceTag.workflow",
    kinds=_KINDS,
    others={
        "mlflow.trace.session": semconv.SESSION,
        "mlflow.traceTag.session_id": semconv.SESSION,
        "mlflow.trace.user": semconv.USER,
        "mlflow.traceTag.user_id": semconv.USER,
        "mlflow.traceTag.qid": semconv.RAGMON_QID,
    },
    as_json=True,
)
LANGFUSE: Final = Platform(
    type="langfuse.observation.type",
    given="langfuse.observation.input",
    returned="langfuse.observation.output",
    model="langfuse.observation.model.name",
    workflow="langfuse.trace.name",
    kinds=_KINDS,
    others={
        "langfuse.session.id": semconv.SESSION,
        "langfuse.user.id": semconv.USER,
        "langfuse.trace.metadata.qid": semconv.RAGMON_QID,
    },
    as_json=False,
)
PLATFORMS: Final = (MLFLOW, LANGFUSE)
PLATFORM_KEYS: Final = frozenset(
    key
    for platform in PLATFORMS
    for key in (*platform[:5], *platform.others)  # the keys are the first five fields
)


def translate_platform(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of MLflow or Langfuse in OpenInference's words; None where it is none."""
    attributes = span.attributes
    platform = next((platform for platform in PLATFORMS if platform.type in attributes), None)
    if platform is None:
        return None

    def value(key: str) -> Any:
        raw = attributes.get(key)
        decoded = decode(raw) if platform.as_json else None
        return decoded if isinstance(decoded, str) else raw

    kind = platform.kinds.get((as_text(value(platform.type)) or "").casefold())
    given, returned = value(platform.given), value(platform.returned)
    result = {semconv.SPAN_KIND: kind, semconv.WORKFLOW_NAME: value(platform.workflow)}
    if kind == semconv.LLM:
        result |= _platform_model_call(given, returned)
    elif kind is not None or span.parent_id is None:
        # A span without a kind that holds the request, as a decorated function, is the workflow.
        result |= {
            semconv.SPAN_KIND: kind or semconv.CHAIN,
            semconv.INPUT_VALUE: given,
            semconv.OUTPUT_VALUE: returned,
        }
    result[semconv.LLM_MODEL] = value(platform.model)
    result |= {meaning: value(key) for key, meaning in platform.others.items() if key in attributes}
    return {key: value for key, value in result.items() if value is not None}


def _platform_model_call(given: Any, returned: Any) -> dict[str, Any]:
    """Messages in, a text or a message out; integrations write requests and replies of a model's API as they are."""
    asked, replied = decode_container(given), decode_container(returned)
    if isinstance(asked, Mapping):
        asked = asked.get("messages", asked.get("input", asked))
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    return {
        semconv.INPUT_MESSAGES: asked if isinstance(asked, list) else None,
        semconv.OUTPUT_MESSAGES: list(_replies(replied)) or None,
        semconv.OUTPUT_VALUE: returned,
    }


def _replies(replied: Any) -> Iterable[Any]:
    """The messages of OpenAI's reply, `{"choices": [{"message": …}]}`, or of a list of them."""
    if not isinstance(replied, Mapping):
        return replied if isinstance(replied, list) else ()
    choices = replied.get("choices")
    entries = choices if isinstance(choices, list) else ()
    return [entry["message"] for entry in entries if isinstance(entry, Mapping) and "message" in entry]


VERCEL_PREFIX: Final = "ai."
OPERATION_ID: Final = "ai.operationId"
METADATA_PREFIX: Final = "ai.telemetry.metadata."
CONTEXT_PREFIX: Final = "ai.settings.context."
_FUNCTION: Final = "ai.telemetry.functionId"
_PROMPT: Final = "ai.prompt"
_MESSAGES: Final = "ai.prompt.messages"
_TEXT: Final = "ai.response.text"
_OBJECT: Final = "ai.response.object"
_TOOL: Final = "ai.toolCall"
_VERCEL_TOOL_NAME: Final = "ai.toolCall.name"
_ARGUMENTS: Final = "ai.toolCall.args"
_RESULT: Final = "ai.toolCall.result"
_EMBED: Final = "ai.embed"
_MODEL: Final = "ai.model.id"
_USED_MODEL: Final = "ai.response.model"
VERCEL_KEYS: Final = frozenset(
    {
        OPERATION_ID,
        _FUNCTION,
        _PROMPT,
        _MESSAGES,
        _TEXT,
        _OBJECT,
        _VERCEL_TOOL_NAME,
        _ARGUMENTS,
        _RESULT,
        _MODEL,
        _USED_MODEL,
    }
)
_REQUESTS: Final = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject", "ai.agent")
_CALLS: Final = (".doGenerate", ".doStream")
_VERCEL_MEMBERS: Final = {
    "sessionId": semconv.SESSION,
    "session_id": semconv.SESSION,
    "conversationId": semconv.SESSION,
    "threadId": semconv.SESSION,
    "chatId": semconv.SESSION,
    "userId": semconv.USER,
    "user_id": semconv.USER,
    "qid": semconv.RAGMON_QID,
}
"""Members of the metadata that stand for attributes of the conventions."""


def translate_vercel(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of the AI SDK in the conventions' words; None where it is none."""
    operation = as_text(span.attributes.get(OPERATION_ID))
    if operation is None:
        return _named(span.attributes, CONTEXT_PREFIX) or None
    if not operation.startswith(VERCEL_PREFIX):
        return None
    result = _about_the_request(span.attributes)
    if operation.startswith(_EMBED):
        result[semconv.SPAN_KIND] = semconv.EMBEDDING
    elif operation.endswith(_CALLS):
        result |= _vercel_model_call(span.attributes)
    elif operation in _REQUESTS:
        result |= _request(span.attributes)
    elif operation == _TOOL:
        result |= {
            semconv.SPAN_KIND: semconv.TOOL,
            semconv.TOOL_NAME: span.attributes.get(_VERCEL_TOOL_NAME),
            semconv.INPUT_VALUE: span.attributes.get(_ARGUMENTS),
            semconv.OUTPUT_VALUE: span.attributes.get(_RESULT),
        }
    return {key: value for key, value in result.items() if value is not None}


def _about_the_request(attributes: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key.removeprefix(METADATA_PREFIX): attributes[key] for key in attributes if key.startswith(METADATA_PREFIX)
    }
    return {
        **_named(attributes, METADATA_PREFIX),
        semconv.METADATA: metadata or None,
        semconv.WORKFLOW_NAME: attributes.get(_FUNCTION),
    }


def _named(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    names = ((key.removeprefix(prefix), key) for key in attributes if key.startswith(prefix))
    return {_VERCEL_MEMBERS[member]: attributes[key] for member, key in names if member in _VERCEL_MEMBERS}


def _vercel_model_call(attributes: Mapping[str, Any]) -> dict[str, Any]:
    text = attributes.get(_TEXT, attributes.get(_OBJECT))
    return {
        semconv.SPAN_KIND: semconv.LLM,
        semconv.INPUT_MESSAGES: attributes.get(_MESSAGES),
        semconv.OUTPUT_MESSAGES: None if text is None else [{"role": "assistant", "content": text}],
        semconv.LLM_MODEL: attributes.get(_USED_MODEL, attributes.get(_MODEL)),
    }


def _request(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A whole request: its prompt is a text or a list of messages, beside the system's."""
    given = mapping(attributes.get(_PROMPT))
    prompt = decode_container(given.get("prompt"))
    messages = given.get("messages") or (prompt if isinstance(prompt, list) else None)
    return {
        semconv.SPAN_KIND: semconv.CHAIN,
        semconv.INPUT_VALUE: {"question": prompt} if prompt and not messages else None,
        semconv.INPUT_MESSAGES: messages,
        semconv.OUTPUT_VALUE: attributes.get(_TEXT, attributes.get(_OBJECT)),
        semconv.LLM_MODEL: attributes.get(_MODEL),
    }


READERS: Final = (translate_haystack, translate_vercel, translate_platform)
"""Each gives the attributes of a span in the words that are read, or None where the span is none of its tracer."""
KEYS: Final = HAYSTACK_KEYS | VERCEL_KEYS | PLATFORM_KEYS
KEY_PREFIXES: Final = (METADATA_PREFIX, CONTEXT_PREFIX)
_ROLES: Final = {
    semconv.SYSTEM_EVENT: "system",
    semconv.USER_EVENT: "user",
    semconv.ASSISTANT_EVENT: "assistant",
    semconv.TOOL_EVENT: "tool",
    semconv.CHOICE_EVENT: "assistant",
}
MESSAGE_EVENTS: Final = frozenset({semconv.INFERENCE_DETAILS, *_ROLES})
EVENT_KEYS: Final = frozenset({semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, "content", "message", "role"})
_MESSAGE_MEMBERS: Final = frozenset({"role", "content", "parts", "text"})
_LISTS: Final = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)


def translated(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of any tracer, in the words that the mapper reads."""
    return map(_translated, spans)


def _translated(span: Span) -> Span:
    added = next((result for read in READERS if (result := read(span)) is not None), None)
    if added is not None:
        # A tracer's kind that means nothing here is known all the same.
        added.setdefault(semconv.SPAN_KIND, "")
    if span.events and not any(key in span.attributes or (added and key in added) for key in _LISTS):
        added = {**(added or {}), **_messages_in(span.events)}
    if not added:
        return span
    return span._replace(attributes={**added, **span.attributes})


def _messages_in(events: Sequence[Event]) -> dict[str, Any]:
    given: list[Any] = []
    returned: list[Any] = []
    for event in events:
        if event.name == semconv.INFERENCE_DETAILS:
            return {key: event.attributes[key] for key in _LISTS if key in event.attributes}
        if event.name in _ROLES:
            message = _message(event.attributes, _ROLES[event.name])
            (returned if event.name == semconv.CHOICE_EVENT else given).append(message)
    return {
        key: messages
        for key, messages in zip(_LISTS, (given, returned), strict=True)
        if any(message["content"] is not None for message in messages)  # else their content was not captured
    }


def _message(attributes: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The message in an event; its content is a text, or a message or its parts written as JSON."""
    raw = attributes.get("content", attributes.get("message"))
    content = decode_container(raw)
    if isinstance(content, Mapping):
        content = (
            content.get("content", content if content.keys() & _MESSAGE_MEMBERS - {"role"} else None)
            if _is_part(content)
            else raw
        )
    elif isinstance(content, list) and not all(map(_is_part, content)):
        content = raw
    return {"role": role, "content": content}


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.keys() & _MESSAGE_MEMBERS)
