"""Attribute values as they come: JSON in text, flattened lists, redacted placeholders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ragmon.core.text import clean

REDACTED: Final = "__REDACTED__"
"""What OpenInference writes in place of what it was told to hide."""
LONGEST: Final = 1 << 20
"""Characters of an attribute's text that is decoded; what is longer stays a text. A thousand documents of a page each
are as long; what is decoded takes up to twenty times its room."""
_STARTS: Final = frozenset('{["-0123456789')
_WORDS: Final = frozenset({"true", "false", "null", "NaN", "Infinity"})
"""JSON that starts like words. To let the decoder find out that a sentence is no JSON takes longer than most JSON."""
_OBJECTS: Final = frozenset("{[")
_OPENINGS: Final = ('{"', '[{"', '["', "[[")
_NESTED: Final = 5
"""How deep a text may lie in the parts of a message."""
_NO_MEMBERS: Final[Mapping[str, Any]] = MappingProxyType({})
_UNSAID: Final = ("reasoning", "thinking", "tool_call", "tool_call_response", "tool_use", "tool_result")
"""Parts of a message that nobody said to anybody."""
_decode = msgspec.json.Decoder().decode


def decode(text: Any) -> Any:
    """What a JSON text holds; None where it is none, as where a limit cut it off, and where it is too long.

    >>> decode('{"score": NaN}'), decode('[1, 2'), decode(7)
    ({'score': nan}, None, None)
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    if text.lstrip()[:1] not in _STARTS and text.strip() not in _WORDS:
        return None
    try:
        return _decode(text)
    except RecursionError:
        return None
    except ValueError:
        return _lenient(text)


def _lenient(text: str) -> Any:
    """JSON as Python writes it, ten times as slowly: with NaN and infinities, with halves of surrogate pairs."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def opened(value: Any) -> Any:
    """A mapping or list, be it written as JSON; anything else as it is.

    >>> opened('["a"]'), opened("[sic]"), opened('"quoted"')
    (['a'], '[sic]', '"quoted"')
    """
    if is_json(value):
        found = decode(value)
        return value if found is None else found
    return list(value) if isinstance(value, tuple) else value


def is_json(value: Any) -> bool:
    """Whether a value is text that starts like a JSON object or array."""
    return isinstance(value, str) and value.lstrip()[:1] in _OBJECTS


def too_long(value: Any) -> bool:
    """Whether a value is JSON that was not decoded for its length."""
    return isinstance(value, str) and len(value) > LONGEST and is_json(value)


def cut_off(value: Any) -> bool:
    """Whether a text is JSON that a limit on its length cut off, not the words of somebody.

    >>> cut_off('{"answer": "Ye'), cut_off("[sic] Yes."), cut_off('{"answer": "Yes."}')
    (True, False, False)
    """
    return is_json(value) and value.startswith(_OPENINGS) and decode(value) is None


def mapping(value: Any) -> Mapping[str, Any]:
    """The members of an object, be it written as JSON; anything else has none."""
    if value is None:
        return _NO_MEMBERS
    found = opened(value)
    return found if type(found) is dict or isinstance(found, Mapping) else _NO_MEMBERS


def plain(value: Any) -> str | None:
    """A text attribute; None where there is none, or where it was hidden."""
    if type(value) is str and value.isascii():
        return None if value == REDACTED else value
    return clean(value) if isinstance(value, str) and value != REDACTED else None


def number(value: Any) -> float | None:
    """A finite number, be it written as text.

    >>> number("0.5"), number(True), number("nan")
    (0.5, None, None)
    """
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (float, int, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int:
    """A number of things; 0 where it says none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(value: Any, depth: int = _NESTED) -> str | None:
    """The text of a message's content: itself, a number written out, or what its parts say."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool) or not depth:
        return None
    if isinstance(value, int | float):
        return str(value) if number(value) is not None else None
    if isinstance(value, list | tuple):
        texts = [text for part in value if (text := text_of(part, depth - 1)) is not None]
        return "".join(texts) if texts else None
    if isinstance(value, Mapping) and value.get("type") not in _UNSAID:
        said = (text_of(value.get(name), depth - 1) for name in ("content", "text", "parts"))
        return next((text for text in said if text is not None), None)
    return None


def as_id(value: Any) -> str | None:
    """An id: text, or a whole number written out; nothing else is one.

    >>> as_id("a"), as_id(7), as_id(True), as_id(""), as_id(7.0)
    ('a', '7', None, None, None)
    """
    if isinstance(value, str):
        return plain(value) or None
    if not isinstance(value, int):
        return None
    return None if isinstance(value, bool) or number(value) is None else str(value)
