"""Attribute values as they come: JSON in text, flattened lists, redacted placeholders.

Instrumentations flatten lists into one attribute per member of an entry, `retrieval.documents.0.document.id`. They are
assembled by column: a list has any number of documents, but each has only three or four members.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ragmon.core import semconv
from ragmon.core.text import Path, clean

KEYS: Final = 4096
"""The maximum number of cached keys; an application that generates keys must not fill the memory."""
MEMO_MAX_CHARS: Final = 200
"""The maximum length of a cached key in characters."""
K = TypeVar("K", str, bytes)
T = TypeVar("T")


class Memo(dict[K, T], Generic[K, T]):
    """A function of text or bytes with a bounded cache: applications use the same few keys all the time.

    Args:
        find: The function.

    >>> length = Memo(len)
    >>> length["four"], list(length)
    (4, ['four'])
    """

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._function: Callable[[K], T] = find

    def __missing__(self, key: K) -> T:
        result = self._function(key)
        if len(self) < KEYS and len(key) <= MEMO_MAX_CHARS:
            self[key] = result
        return result


_DOCUMENTS: Final = f"{semconv.DOCUMENT}."
LISTS: Final = {
    semconv.RETRIEVED: _DOCUMENTS,
    semconv.RERANKER_INPUT: _DOCUMENTS,
    semconv.RERANKER_OUTPUT: _DOCUMENTS,
    semconv.LLM_INPUT: "",
    semconv.LLM_OUTPUT: "",
    semconv.LEGACY_COMPLETIONS: "",
    semconv.ANNOTATIONS: "annotation.",
    semconv.EVALUATIONS: "evaluation.",
    semconv.TRACE_ANNOTATIONS: "annotation.",
}
"""The lists by name, with the prefix that may precede the names of their members."""
ABSENT: Final = object()
"""Stands for a member that an entry does not have."""
_MAX_MEMBERS: Final = 64
"""The maximum number of members that are read, the first ones: every entry has a value in each column."""
_MAX_INDEX_DIGITS: Final = 9
"""The maximum number of digits of a list index; a longer number is no index."""


class Cell(NamedTuple):
    """The place of an attribute's value in a flattened list.

    Attributes:
        name: The list's name.
        member: The member of an entry.
        place: The index of the entry, from 0.
    """

    name: str
    member: str
    place: int


class FlattenedList(msgspec.Struct, frozen=True, gc=False):
    """A flattened list, assembled by column.

    Attributes:
        size: The number of entries.
        is_complete: Whether no index before the last one is missing.
        columns: The values of each member in the order of the entries; `ABSENT` for an entry without the member.
    """

    size: int = 0
    is_complete: bool = True
    columns: Mapping[str, Sequence[Any]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """The entries in order."""
        return [
            {member: column[row] for member, column in self.columns.items() if column[row] is not ABSENT}
            for row in range(self.size)
        ]


_EMPTY_LIST: Final = FlattenedList()


def flattened(attributes: Mapping[str, Any], name: str) -> FlattenedList:
    """The list with one of the names in `LISTS`; empty where there is none.

    >>> flattened({"retrieval.documents.0.document.id": "a", "input.value": "Is it?"}, "retrieval.documents").rows()
    [{'id': 'a'}]
    """
    cells = ((cell, key) for key in attributes if (cell := CELLS[key]) is not None and cell.name == name)
    return table((cell, attributes[key]) for cell, key in cells)


def listed(attributes: Mapping[str, Any], name: str) -> FlattenedList:
    """The list with any name; its members are what follows `name.N.` in the keys.

    >>> listed({"parts.1.text": "b", "parts.0.text": "a", "parts.x": 1, "part": 2}, "parts").rows()
    [{'text': 'a'}, {'text': 'b'}]
    """
    return table((cell, value) for key, value in attributes.items() if (cell := _cell(key, name)) is not None)


def table(cells: Iterable[tuple[Cell, Any]]) -> FlattenedList:
    """Assemble the values of a list."""
    columns: dict[str, dict[int, Any]] = {}
    for (_, member, index), value in cells:
        if member in columns or len(columns) < _MAX_MEMBERS:
            columns.setdefault(member, {})[index] = value
    if not columns:
        return _EMPTY_LIST
    indexes = sorted(set().union(*columns.values()))
    whole = indexes[-1] == len(indexes) - 1
    filled = {name: [column.get(index, ABSENT) for index in indexes] for name, column in columns.items()}
    return FlattenedList(len(indexes), whole, filled)


def _cell(key: str, name: str) -> Cell | None:
    if not key.startswith(f"{name}."):
        return None
    index, _, member = key[len(name) + 1 :].partition(".")
    if not (index.isascii() and index.isdigit() and len(index) <= _MAX_INDEX_DIGITS):
        return None
    return Cell(name, member.removeprefix(LISTS.get(name, "")), int(index))


def _cell_of(key: str) -> Cell | None:
    return next((cell for name in LISTS if (cell := _cell(key, name)) is not None), None)


CELLS: Final = Memo(_cell_of)
"""The place of an attribute in one of the lists, by its key; None where it belongs to none."""


REDACTED: Final = "__REDACTED__"
"""OpenInference's placeholder for redacted values."""
MAX_TEXT_CHARS: Final = 1 << 20
"""The maximum length of a text that is decoded as JSON; a longer one stays text. A thousand documents of one page have
this length; the decoded value takes up to twenty times the memory."""
_JSON_STARTS: Final = frozenset('{["-0123456789')
_JSON_WORDS: Final = frozenset({"true", "false", "null", "NaN", "Infinity"})
"""JSON values that look like words. Decoding a sentence only to see that it is no JSON takes longer than most JSON."""
_BRACKETS: Final = frozenset("{[")
_OPENINGS: Final = ('{"', '[{"', '["', "[[")
_MAX_PART_DEPTH: Final = 5
"""The maximum depth of a text in the parts of a message."""
_NO_MEMBERS: Final[Mapping[str, Any]] = MappingProxyType({})
_NOT_CONTENT: Final = ("reasoning", "thinking", "tool_call", "tool_call_response", "tool_use", "tool_result")
"""The types of message parts that are not part of the text."""
_decode = msgspec.json.Decoder().decode


def decode(text: Any) -> Any:
    """Decode a JSON text; None where it is no JSON, was cut off by a limit, or is too long.

    >>> decode('{"score": NaN}'), decode('[1, 2'), decode(7)
    ({'score': nan}, None, None)
    """
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        return None
    if text.lstrip()[:1] not in _JSON_STARTS and text.strip() not in _JSON_WORDS:
        return None
    try:
        return _decode(text)
    except RecursionError:
        return None
    except ValueError:
        return _lenient(text)


def _lenient(text: str) -> Any:
    """Decode JSON as Python writes it, with NaN, infinities and half surrogate pairs; takes ten times as long."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def decode_container(value: Any) -> Any:
    """Decode a mapping or list that is written as JSON; anything else stays unchanged.

    >>> decode_container('["a"]'), decode_container("[sic]"), decode_container('"quoted"')
    (['a'], '[sic]', '"quoted"')
    """
    if is_json(value):
        decoded = decode(value)
        return value if decoded is None else decoded
    return list(value) if isinstance(value, tuple) else value


def is_json(value: Any) -> bool:
    """Whether a value is text that starts like a JSON object or array."""
    return isinstance(value, str) and value.lstrip()[:1] in _BRACKETS


def too_long(value: Any) -> bool:
    """Whether a value is JSON that was not decoded because of its length."""
    return isinstance(value, str) and len(value) > MAX_TEXT_CHARS and is_json(value)


def cut_off(value: Any) -> bool:
    """Whether a text is JSON that was cut off by a limit on its length, not a sentence.

    >>> cut_off('{"answer": "Ye'), cut_off("[sic] Yes."), cut_off('{"answer": "Yes."}')
    (True, False, False)
    """
    return is_json(value) and value.startswith(_OPENINGS) and decode(value) is None


def value_at(value: Any, path: Path) -> Any:
    """The value at the end of a path through JSON; None where the path does not exist.

    >>> value_at({"metadata": {"pages": [7]}}, ("metadata", "pages", 0))
    7
    """
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """The members of an object, which may be written as JSON; empty for anything else."""
    if value is None:
        return _NO_MEMBERS
    decoded = decode_container(value)
    return decoded if type(decoded) is dict or isinstance(decoded, Mapping) else _NO_MEMBERS


def as_text(value: Any) -> str | None:
    """The text of an attribute; None where it is no text, or redacted."""
    if type(value) is str and value.isascii():
        return None if value == REDACTED else value
    return clean(value) if isinstance(value, str) and value != REDACTED else None


def number(value: Any) -> float | None:
    """A finite number, which may be written as text; None for anything else.

    >>> number("0.5"), number(True), number("nan")
    (0.5, None, None)
    """
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (float, int, str)):
        return None
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        return None
    return converted if math.isfinite(converted) else None


def count(value: Any) -> int:
    """A count; 0 where the value is no integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(value: Any, depth: int = _MAX_PART_DEPTH) -> str | None:
    """The text of a message's content: a text, a number as text, or the texts of its parts."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, bool) or not depth:
        return None
    if isinstance(value, int | float):
        return str(value) if number(value) is not None else None
    if isinstance(value, list | tuple):
        texts = [text for part in value if (text := text_of(part, depth - 1)) is not None]
        return "".join(texts) if texts else None
    if isinstance(value, Mapping) and value.get("type") not in _NOT_CONTENT:
        member_texts = (text_of(value.get(name), depth - 1) for name in ("content", "text", "parts"))
        return next((text for text in member_texts if text is not None), None)
    return None


def as_id(value: Any) -> str | None:
    """An id: text, or an integer as text; None for anything else.

    >>> as_id("a"), as_id(7), as_id(True), as_id(""), as_id(7.0)
    ('a', '7', None, None, None)
    """
    if isinstance(value, str):
        return as_text(value) or None
    if not isinstance(value, int):
        return None
    return None if isinstance(value, bool) or number(value) is None else str(value)
