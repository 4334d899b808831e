"""Lists that instrumentations flatten, an attribute for each member of an entry: `retrieval.documents.0.document.id`.

They are put together by column: a list of documents has as many entries as it likes, but three or four members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import semconv
from ragmon.spans.remembered import Remembered

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


class Table(msgspec.Struct, frozen=True, gc=False):
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


class Gathered(dict[str, Any]):
    """Attributes whose flattened lists stand apart: whoever read them has put those together.

    Args:
        alone: The attributes that are part of no list.
        lists: The lists by name.
    """

    __slots__ = ("lists",)

    def __init__(self, alone: Mapping[str, Any], lists: Mapping[str, Table]) -> None:
        super().__init__(alone)
        self.lists = lists


_NONE: Final = Table()


def flattened(attributes: Mapping[str, Any], name: str) -> Table:
    """The list of a name, one of `LISTS`; it has no entries where there is none.

    >>> flattened({"retrieval.documents.0.document.id": "a", "input.value": "Is it?"}, "retrieval.documents").rows()
    [{'id': 'a'}]
    """
    if isinstance(attributes, Gathered):
        return attributes.lists.get(name, _NONE)
    cells = ((cell, key) for key in attributes if (cell := CELLS[key]) is not None and cell.name == name)
    return table((cell, attributes[key]) for cell, key in cells)


def listed(held: Mapping[str, Any], name: str) -> Table:
    """The list of any name: what follows `name.N.` in the keys are the members.

    >>> listed({"parts.1.text": "b", "parts.0.text": "a", "parts.x": 1, "part": 2}, "parts").rows()
    [{'text': 'a'}, {'text': 'b'}]
    """
    return table((cell, value) for key, value in held.items() if (cell := _cell(key, name)) is not None)


def table(cells: Iterable[tuple[Cell, Any]]) -> Table:
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
    return Table(len(places), whole, filled)


def _cell(key: str, name: str) -> Cell | None:
    if not key.startswith(f"{name}."):
        return None
    place, _, member = key[len(name) + 1 :].partition(".")
    if not (place.isascii() and place.isdigit() and len(place) <= _LONGEST_PLACE):
        return None
    return Cell(name, member.removeprefix(LISTS.get(name, "")), int(place))


def _known(key: str) -> Cell | None:
    return next((cell for name in LISTS if (cell := _cell(key, name)) is not None), None)


CELLS: Final = Remembered(_known)
"""Where attributes belong that are part of one of the lists, by their keys; None where one is part of none."""
