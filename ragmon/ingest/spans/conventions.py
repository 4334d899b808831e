"""Spans of tracers with words of their own, in those of OpenInference and OpenTelemetry, which the mapper reads.

What a span says in those words itself is kept: translations only add to it. Messages that a convention writes as events
become the messages of their span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ragmon.core import semconv
from ragmon.ingest.spans import haystack, platforms, vercel
from ragmon.ingest.spans.model import Event, Span
from ragmon.ingest.spans.values import decode_container

READERS: Final = (haystack.translate, vercel.translate, platforms.translate)
"""Each gives the attributes of a span in the words that are read, or None where the span is none of its tracer."""
KEYS: Final = haystack.KEYS | vercel.KEYS | platforms.KEYS
"""The keys of the attributes that they read."""
KEY_PREFIXES: Final = (vercel.METADATA_PREFIX, vercel.CONTEXT_PREFIX)
"""The prefixes of further keys that they read."""
_ROLES: Final = {
    semconv.SYSTEM_EVENT: "system",
    semconv.USER_EVENT: "user",
    semconv.ASSISTANT_EVENT: "assistant",
    semconv.TOOL_EVENT: "tool",
    semconv.CHOICE_EVENT: "assistant",
}
"""The role of the message in an event, by the event's name."""
MESSAGE_EVENTS: Final = frozenset({semconv.INFERENCE_DETAILS, *_ROLES})
EVENT_KEYS: Final = frozenset({semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, "content", "message", "role"})
"""The events that hold messages, and their attributes."""
_MEMBERS: Final = frozenset({"role", "content", "parts", "text"})
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
    """The messages in the events of a span, by the keys they have as attributes."""
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
        content = _content_of(content) if _is_part(content) else raw
    elif isinstance(content, list) and not all(map(_is_part, content)):
        content = raw
    return {"role": role, "content": content}


def _content_of(message: Mapping[str, Any]) -> Any:
    """The content of a message; a part of one is its own. None where the message has a role alone."""
    return message.get("content", message if message.keys() & _MEMBERS - {"role"} else None)


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.keys() & _MEMBERS)
