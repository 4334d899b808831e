"""Messages to and from a model, in the shapes conventions and frameworks write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ragmon.core import semconv
from ragmon.spans.flattened import flattened, listed
from ragmon.spans.model import Span
from ragmon.spans.values import mapping, opened, text_of

USER: Final = "user"
ASSISTANT: Final = "assistant"
_ROLES: Final = {"human": USER, "HumanMessageChunk": USER, "ai": ASSISTANT, "AIMessageChunk": ASSISTANT}
"""LangChain's words for them."""
_MEMBER: Final = f"{semconv.MESSAGE}."
_LISTS: Final = 3
"""How deep lists of messages lie in each other: LangChain writes batches of batches."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """Who said what; a role nobody named is ""."""

    role: str
    text: str | None


def message(value: Any) -> Message | None:
    """One message: a mapping with a role or LangChain's `type`, its serialised object, or a pair of role and text."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return Message(_ROLES.get(value[0], value[0]), text_of(value[1]))
    held = mapping(value) if isinstance(value, Mapping) else {}
    if held.get("lc") == 1:
        held = mapping(held.get("kwargs"))
    inner = mapping(held.get("data")) or held
    role = next((role for name in ("role", "type") if isinstance(role := held.get(name), str)), None)
    if role is None or not {"content", "parts"} & set(inner):
        return None
    said = inner["content"] if inner.get("content") is not None else inner.get("parts")
    return Message(_ROLES.get(role, role), text_of(said))


def messages(value: Any, depth: int = _LISTS) -> list[Message]:
    """The messages in a list, be it written as JSON; anything else holds none."""
    found = None if value is None else opened(value)
    if not isinstance(found, list) or not depth:
        return []
    said: list[Message] = []
    for entry in found:
        one = message(entry)
        said += [one] if one is not None else messages(entry, depth - 1) if isinstance(entry, list) else []
    return said


def _flat(span: Span, name: str, member: str = "") -> list[Message]:
    """The messages in flattened attributes: `name.N.role`, or `name.N.member.role`."""
    entries = flattened(span.attributes, name)
    said = []
    for entry in entries.rows() if entries.size else ():
        role, text = entry.get(f"{member}role"), text_of(entry.get(f"{member}content"))
        if text is None:
            parts = listed(entry, f"{member}contents").rows()
            text = text_of([part.get("message_content.text") for part in parts])
        said.append(Message(role if isinstance(role, str) else "", text))
    return said


def asked(span: Span) -> list[Message]:
    """What a span's input messages say."""
    return messages(span.attributes.get(semconv.INPUT_MESSAGES)) or _flat(span, semconv.LLM_INPUT, _MEMBER)


def answered(span: Span) -> list[Message]:
    """What a span's output messages say."""
    return (
        messages(span.attributes.get(semconv.OUTPUT_MESSAGES))
        or _flat(span, semconv.LLM_OUTPUT, _MEMBER)
        or _flat(span, semconv.LEGACY_COMPLETIONS)
    )


def last(said: list[Message], *roles: str) -> str | None:
    """The last text somebody said."""
    for one in reversed(said):
        if one.role in roles and one.text is not None:
            return one.text
    return None
