"""The AI SDK of Vercel, in the words of OpenInference and OpenTelemetry.

`ai.generateText` and its kin are one request, `….doGenerate` and `….doStream` inside it the model calls, `ai.toolCall`
the tools. What the application says of a request is in `ai.telemetry.metadata.…`. AI SDK 7 writes OpenTelemetry's GenAI
conventions (`@ai-sdk/otel`), and what the application says in `ai.settings.context.…`.

Source: AI SDK 6 and 7, "Telemetry".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ragmon.core import semconv
from ragmon.ingest.spans.model import Span
from ragmon.ingest.spans.values import as_text, decode_container, mapping

PREFIX: Final = "ai."
"""The start of the names of all its spans."""
OPERATION_ID: Final = "ai.operationId"
METADATA_PREFIX: Final = "ai.telemetry.metadata."
CONTEXT_PREFIX: Final = "ai.settings.context."
_FUNCTION: Final = "ai.telemetry.functionId"
_PROMPT: Final = "ai.prompt"
_MESSAGES: Final = "ai.prompt.messages"
_TEXT: Final = "ai.response.text"
_OBJECT: Final = "ai.response.object"
_TOOL: Final = "ai.toolCall"
_TOOL_NAME: Final = "ai.toolCall.name"
_ARGUMENTS: Final = "ai.toolCall.args"
_RESULT: Final = "ai.toolCall.result"
_EMBED: Final = "ai.embed"
_MODEL: Final = "ai.model.id"
_USED_MODEL: Final = "ai.response.model"
KEYS: Final = frozenset(
    {OPERATION_ID, _FUNCTION, _PROMPT, _MESSAGES, _TEXT, _OBJECT, _TOOL_NAME, _ARGUMENTS, _RESULT, _MODEL, _USED_MODEL}
)
"""The keys of the attributes that are read."""
_REQUESTS: Final = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject", "ai.agent")
_CALLS: Final = (".doGenerate", ".doStream")
_MEMBERS: Final = {
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


def translate(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of the AI SDK in the conventions' words; None where it is none."""
    operation = as_text(span.attributes.get(OPERATION_ID))
    if operation is None:
        return _named(span.attributes, CONTEXT_PREFIX) or None
    if not operation.startswith(PREFIX):
        return None
    result = _about_the_request(span.attributes)
    if operation.startswith(_EMBED):
        result[semconv.SPAN_KIND] = semconv.EMBEDDING
    elif operation.endswith(_CALLS):
        result |= _model_call(span.attributes)
    elif operation in _REQUESTS:
        result |= _request(span.attributes)
    elif operation == _TOOL:
        result |= {
            semconv.SPAN_KIND: semconv.TOOL,
            semconv.TOOL_NAME: span.attributes.get(_TOOL_NAME),
            semconv.INPUT_VALUE: span.attributes.get(_ARGUMENTS),
            semconv.OUTPUT_VALUE: span.attributes.get(_RESULT),
        }
    return {key: value for key, value in result.items() if value is not None}


def _about_the_request(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The session, the user and other members of the metadata, and the name the application gave the function."""
    metadata = {
        key.removeprefix(METADATA_PREFIX): attributes[key] for key in attributes if key.startswith(METADATA_PREFIX)
    }
    return {
        **_named(attributes, METADATA_PREFIX),
        semconv.METADATA: metadata or None,
        semconv.WORKFLOW_NAME: attributes.get(_FUNCTION),
    }


def _named(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The members under a prefix that stand for attributes of the conventions."""
    names = ((key.removeprefix(prefix), key) for key in attributes if key.startswith(prefix))
    return {_MEMBERS[member]: attributes[key] for member, key in names if member in _MEMBERS}


def _model_call(attributes: Mapping[str, Any]) -> dict[str, Any]:
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
