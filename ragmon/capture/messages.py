"""Chat messages in arguments and results: of OpenAI, Anthropic, LangChain, LlamaIndex, Haystack, by their shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ragmon.capture.stored import is_list, is_str, stored
from ragmon.core.text import clean

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
    for entry in islice(reversed(messages), _MAX_MESSAGES):
        if type(entry) is tuple and len(entry) == 2:  # LangChain's short form
            text = part_text(entry[1]) if is_str(entry[0]) and entry[0] in roles else None
        else:
            text = part_text(stored(entry, *_CONTENTS)) if role(entry) in roles else None
        if text:
            return text
    return None


def role(message: Any) -> str | None:
    """The role of a message; None where the value has no content and so is no message."""
    if stored(message, *_CONTENTS) is None:
        return None
    # An enumeration of texts becomes a plain text, which has the hash of its value.
    return next((clean(name) for field in _ROLES if is_str(name := stored(message, field))), None)


def is_text(part: Any) -> bool:
    """Whether a part of a message is not a step of the model on its way: reasoning, or the call of a tool."""
    kind = stored(part, "type", "block_type")
    return not is_str(kind) or not (kind in _NOT_TEXT or kind.endswith(("_call", "_call_output")))


def part_text(content: Any, depth: int = _MAX_DEPTH) -> str | None:
    """The text of a message's content: a text, or the texts of its parts together."""
    if is_str(content):
        return clean(content)
    if not depth:
        return None
    if is_list(content):
        texts = [text for text in _part_texts(content, depth) if text is not None]
        return "".join(texts) if texts else None
    return part_text(stored(content, "text", "content", "value"), depth - 1) if is_text(content) else None


def _part_texts(parts: list[Any] | tuple[Any, ...], depth: int) -> Iterator[str | None]:
    return (part_text(part, depth - 1) for part in islice(parts, _MAX_PARTS) if part is not None)
