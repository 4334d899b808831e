"""Chat messages in arguments and results: of OpenAI, Anthropic, LangChain, LlamaIndex, Haystack, by their shape."""

from __future__ import annotations

from typing import Any, Final

from ragmon.capture.layouts import is_list, is_str
from ragmon.capture.stored import entries, first, held, plain_text, stored

USER: Final = frozenset({"user", "human"})
ASSISTANT: Final = frozenset({"assistant", "ai", "model", "AIMessageChunk"})
NOT_USER: Final = ASSISTANT | {"system", "developer", "tool"}
_ROLES: Final = ("role", "type", "_role")
_CONTENTS: Final = ("content", "parts", "blocks", "_content")
_MAX_MESSAGES: Final = 256
"""The messages of a list that are read, the last ones."""
_MAX_PARTS: Final = 256
_MAX_DEPTH: Final = 4
"""How deep the text of a message may lie: a part of a content, its text, the value of that."""
_NOT_TEXT: Final = ("reasoning", "thinking", "redacted_thinking", "tool_use", "tool_result")


def last_text(messages: Any, roles: frozenset[str]) -> str | None:
    """The text of the last message of one of the roles that has any.

    >>> last_text([{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": "It is."}], USER)
    'Is it?'
    """
    if not is_list(messages):
        return None
    for entry in reversed((entries(messages) or ())[-_MAX_MESSAGES:]):
        if type(entry) is tuple and len(entry) == 2:  # LangChain's short form
            said = part_text(entry[1]) if is_str(entry[0]) and plain_text(entry[0]) in roles else None
        else:
            said = message_text(entry, roles)
        if said:
            return said
    return None


def message_text(message: Any, roles: frozenset[str] | None = None) -> str | None:
    """The text of a message; None where it has no text, or its role is none of those that are asked for."""
    said_by = role(message)
    is_asked = said_by is not None and (roles is None or said_by in roles)
    return part_text(stored(message, *_CONTENTS)) if is_asked else None


def role(message: Any) -> str | None:
    """The role of a message; None where the value has no content and so is no message."""
    fields = held(message)
    if first(fields, _CONTENTS) is None:
        return None
    # An enumeration of texts becomes a plain text, which has the hash of its value.
    return next((plain_text(name) for field in _ROLES if is_str(name := dict.get(fields, field))), None)


def is_text(part: Any) -> bool:
    """Whether a part of a message is not a step of the model on its way: reasoning, or the call of a tool."""
    fields = held(part)
    kind = first(fields, ("type", "block_type"))
    kind = plain_text(kind) if is_str(kind) else ""
    return not (kind in _NOT_TEXT or kind.endswith(("_call", "_call_output")) or dict.get(fields, "thought") is True)


def part_text(content: Any, depth: int = _MAX_DEPTH) -> str | None:
    """The text of a message's content: a text, or the texts of its parts together."""
    if is_str(content):
        return plain_text(content)
    if not depth:
        return None
    if is_list(content):
        parts = (part_text(part, depth - 1) for part in (entries(content) or ())[:_MAX_PARTS] if part is not None)
        texts = [said for said in parts if said is not None]
        return "".join(texts) if texts else None
    return part_text(stored(content, "text", "content", "value"), depth - 1) if is_text(content) else None
