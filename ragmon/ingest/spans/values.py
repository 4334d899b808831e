"""What was found out about a key, for the next span that has it: applications write the same few keys all day.

Lists that instrumentations flatten, an attribute for each member of an entry: `retrieval.documents.0.document.id`.

They are put together by column: a list of documents has as many entries as it likes, but three or four members.

Attribute values as they come: JSON in text, flattened lists, redacted placeholders.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ragmon.core import semconv
from ragmon.core.text import clean

KEYS: Final = 4096
"""Keys that are remembered; who makes up more of them must not fill the memory."""
MEMO_MAX_CHARS: Final = 200
"""Characters of a key that is remembered."""
K = TypeVar("K", str, bytes)
T = TypeVar("T")


class Memo(dict[K, T], Generic[K, T]):
    """A function of a text, or of bytes, whose first results are kept.

    Args:
        find: The function.

    >>> length = Memo(len)
    >>> length["four"], list(length)
    (4, ['four'])
    """

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._find: Callable[[K], T] = find

    def __missing__(self, key: K) -> T:
        found = self._find(key)
        if len(self) < KEYS and len(key) <= MEMO_MAX_CHARS:
            self[key] = found
        return found


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
"""The lists by name, and what may stand before the names of their members."""
ABSENT: Final = object()
"""What an entry has in place of a member it does not have."""
_MEMBERS: Final = 64
"""Members of an entry that are read, the first ones: every entry has a place in each column."""
_LONGEST_PLACE: Final = 9
"""Digits of a place in a list; a longer number is no place."""


class Cell(NamedTuple):
    """Where the value of an attribute belongs.

    Attributes:
        name: The list's name.
        member: The member of an entry.
        place: The entry, from 0.
    """

    name: str
    member: str
    place: int


class FlattenedList(msgspec.Struct, frozen=True, gc=False):
    """A flattened list.

    Attributes:
        size: How many entries it has.
        whole: No place before the last one is empty.
        columns: The values of each member in the order of the entries, `ABSENT` where one has none.
    """

    size: int = 0
    whole: bool = True
    columns: Mapping[str, Sequence[Any]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """The entries in their order."""
        return [
            {member: column[row] for member, column in self.columns.items() if column[row] is not ABSENT}
            for row in range(self.size)
        ]


class GroupedAttributes(dict[str, Any]):
    """Attributes whose flattened lists stand apart: whoever read them has put those together.

    Args:
        alone: The attributes that are part of no list.
        lists: The lists by name.
    """

    __slots__ = ("lists",)

    def __init__(self, alone: Mapping[str, Any], lists: Mapping[str, FlattenedList]) -> None:
        super().__init__(alone)
        self.lists = lists


_NONE: Final = FlattenedList()


def flattened(attributes: Mapping[str, Any], name: str) -> FlattenedList:
    """The list of a name, one of `LISTS`; it has no entries where there is none.

    >>> flattened({"retrieval.documents.0.document.id": "a", "input.value": "Is it?"}, "retrieval.documents").rows()
    [{'id': 'a'}]
    """
    if isinstance(attributes, GroupedAttributes):
        return attributes.lists.get(name, _NONE)
    cells = ((cell, key) for key in attributes if (cell := CELLS[key]) is not None and cell.name == name)
    return table((cell, attributes[key]) for cell, key in cells)


def listed(held: Mapping[str, Any], name: str) -> FlattenedList:
    """The list of any name: what follows `name.N.` in the keys are the members.

    >>> listed({"parts.1.text": "b", "parts.0.text": "a", "parts.x": 1, "part": 2}, "parts").rows()
    [{'text': 'a'}, {'text': 'b'}]
    """
    return table((cell, value) for key, value in held.items() if (cell := _cell(key, name)) is not None)


def table(cells: Iterable[tuple[Cell, Any]]) -> FlattenedList:
    """The values of a list put together."""
    columns: dict[str, dict[int, Any]] = {}
    for (_, member, place), value in cells:
        if member in columns or len(columns) < _MEMBERS:
            columns.setdefault(member, {})[place] = value
    if not columns:
        return _NONE
    places = sorted(set().union(*columns.values()))
    whole = places[-1] == len(places) - 1
    filled = {name: [column.get(place, ABSENT) for place in places] for name, column in columns.items()}
    return FlattenedList(len(places), whole, filled)


def _cell(key: str, name: str) -> Cell | None:
    if not key.startswith(f"{name}."):
        return None
    place, _, member = key[len(name) + 1 :].partition(".")
    if not (place.isascii() and place.isdigit() and len(place) <= _LONGEST_PLACE):
        return None
    return Cell(name, member.removeprefix(LISTS.get(name, "")), int(place))


def _known(key: str) -> Cell | None:
    return next((cell for name in LISTS if (cell := _cell(key, name)) is not None), None)


CELLS: Final = Memo(_known)
"""Where attributes belong that are part of one of the lists, by their keys; None where one is part of none."""


REDACTED: Final = "__REDACTED__"
"""What OpenInference writes in place of what it was told to hide."""
MAX_TEXT_CHARS: Final = 1 << 20
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
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
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
    return isinstance(value, str) and len(value) > MAX_TEXT_CHARS and is_json(value)


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
