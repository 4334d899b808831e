"""The rows of gold files, validated strictly, and the gold item of each row.

One table knows the field names of every published shape (`gold_ids` and `gold_citations` are one field, as are `q`
and `question`), so names may be mixed within a file. Unknown fields are ignored, unless they look like a misspelt
known one: a gold file with a misspelt `answerable` must not be read as something else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ragmon.core.gold_item import GoldItem, Match
from ragmon.gold.strict_json import SHAPES, JsonLocation

_MISSPELT: Final = 0.85
"""Similarity from which a name counts as misspelt; `answer` (0.75) and `id` (0.80) stay free for other uses."""

_QUESTION: Final = ("question", "q", "query")
_CITATIONS: Final = ("gold_citations", "gold_ids", "relevant")


class WrongValueError(ValueError):
    """A value of the wrong type, or an empty one.

    Attributes:
        path: Where in the field it stands, such as `[0]`.
        value: The value.
    """

    def __init__(self, problem: str, value: object) -> None:
        super().__init__("is null" if value is None else problem)
        self.path = ""
        self.value = value


def string(value: Any) -> str:
    """A string, which may be empty."""
    if not isinstance(value, str):
        raise WrongValueError("is not a string", value)
    return value


def text(value: Any) -> str:
    """A string that is not blank: an empty phrase would occur in every answer."""
    if not string(value).strip():
        raise WrongValueError("is empty", value)
    return str(value)


def id_string(value: Any) -> str:
    """A string that is not blank; an integer becomes one, a boolean or another number is refused."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise WrongValueError("is neither a string nor an integer", value)
    return text(value)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise WrongValueError("is not a boolean", value)
    return value


def ids(value: Any) -> list[str]:
    """A list of ids."""
    return _list(id_string, value)


def texts(value: Any) -> list[str]:
    """A list of strings that are not blank."""
    return _list(text, value)


def _list(read: Callable[[Any], str], value: Any) -> list[str]:
    if not isinstance(value, list):
        raise WrongValueError("is not a list", value)
    return [_read(read, entry, index) for index, entry in enumerate(value)]


def strings(value: Any) -> dict[str, str]:
    """An object of strings."""
    if not isinstance(value, dict):
        raise WrongValueError("is not an object", value)
    return {string(name): _read(string, entry, name) for name, entry in value.items()}


def _read(read: Callable[[Any], str], entry: Any, place: int | str) -> str:
    """Read an entry of a list or an object; an error names its place."""
    try:
        return read(entry)
    except WrongValueError as wrong:
        wrong.path = f"[{place!r}]"
        raise


class RowField(NamedTuple):
    """A field of a row.

    Attributes:
        read: The value of what the file holds; raises `WrongValueError`.
        hint: What would be right.
        is_required: Neither null nor absent is allowed.
    """

    read: Callable[[Any], Any]
    hint: str
    is_required: bool = False


RowFields = Mapping[str, RowField]

_QUESTION_HINT: Final = "write the question as a string"
_IDS_HINT: Final = 'write a list of ids: ["p1#2"]'
GOLD_ROW: Final[RowFields] = {
    "qid": RowField(
        id_string, 'give every item a permanent id, a non-empty string or an integer: "qid": "A0001"', is_required=True
    ),
    "question": RowField(string, _QUESTION_HINT),
    "q": RowField(string, _QUESTION_HINT),
    "query": RowField(string, _QUESTION_HINT),
    "answerable": RowField(flag, 'write true or false, without quotes: "answerable": true'),
    "gold_claim_substr": RowField(texts, 'write a list of phrases: ["rejects null keys"]'),
    "gold_claim": RowField(string, "write the reference answer as one string"),
    "gold_citations": RowField(ids, _IDS_HINT),
    "gold_ids": RowField(ids, _IDS_HINT),
    "relevant": RowField(ids, _IDS_HINT),
    "gold_contexts": RowField(texts, "write a list of passages"),
    "anchor_section": RowField(id_string, "write the section's id, a string or an integer"),
    "tags": RowField(strings, 'write an object of strings: {"lang": "de"}'),
    "paraphrases": RowField(texts, "write a list of questions"),
    "negatives": RowField(ids, _IDS_HINT),
    "constraints": RowField(texts, "write a list of statements"),
}
"""One question in any of the one-row-per-question shapes."""


def read_row(fields: RowFields, place: JsonLocation, raw: Any) -> dict[str, Any]:
    """The values of one JSON object by field, without fields that are absent or null.

    Args:
        fields: The fields of the row.
        place: The location of the row.
        raw: The decoded JSON.

    Raises:
        GoldError: It is not an object, a field has the wrong type, or the name of a field is misspelt.
    """
    if not isinstance(raw, dict):
        raise place.error("not a JSON object", raw, SHAPES)
    for name in raw:
        if name not in fields and (intended := _intended_field(name, tuple(fields))):
            raise place.error("misspelt field", name, f"did you mean {intended}?")
    row = {}
    for name, field in fields.items():
        value = raw.get(name)
        if value is None and not field.is_required:
            continue
        if name not in raw:
            raise place.error(f"{name} is missing", hint=field.hint)
        try:
            row[name] = field.read(value)
        except WrongValueError as wrong:
            raise place.error(f"{name}{wrong.path} {wrong}", wrong.value, field.hint) from wrong
    return row


@lru_cache(maxsize=256)
def _intended_field(name: str, field_names: tuple[str, ...]) -> str | None:
    """The known field whose name is misspelt; None where the name is a different one."""
    plain = re.sub(r"[\W_]", "", name).casefold()
    equal = [field for field in field_names if field.replace("_", "") == plain]
    return next(iter(equal or difflib.get_close_matches(name.casefold(), field_names, n=1, cutoff=_MISSPELT)), None)


def read_item(place: JsonLocation, raw: Any, match: Match) -> GoldItem:
    """The gold item of one row.

    Args:
        place: The location of the row.
        raw: The decoded JSON.
        match: How its gold texts are compared with contexts.

    Raises:
        GoldError: The row is not a valid gold row.
    """
    row = read_row(GOLD_ROW, place, raw)
    if raw.get("citations") and row.keys().isdisjoint((*_CITATIONS, "gold_contexts", "anchor_section")):
        hint = "gold_citations: the ids of the documents that hold the answer; citations are those of an answer"
        raise place.error("citations is no field of gold", raw["citations"], hint)
    return GoldItem(
        qid=row["qid"],
        question=_first_given(row, _QUESTION, place) or "",
        answerable=_answerable(row, place),
        claim_substrings=_tuple_or_none(row.get("gold_claim_substr")),
        gold_claim=row.get("gold_claim") or None,
        citations=_tuple_or_none(_first_given(row, _CITATIONS, place)),
        contexts=_tuple_or_none(row.get("gold_contexts")),
        tags=row.get("tags", {}),
        paraphrases=tuple(row.get("paraphrases", ())),
        negatives=tuple(row.get("negatives", ())),
        constraints=tuple(row.get("constraints", ())),
        match=match,
    )


def _tuple_or_none(values: list[str] | None) -> tuple[str, ...] | None:
    """The values as a tuple. An absent list, null and [] mean the same, so they must give the same version."""
    return tuple(values) if values else None


def _first_given(row: Mapping[str, Any], names: tuple[str, ...], place: JsonLocation) -> Any:
    """The value of a field that has several names; if more than one is given, the values must be equal."""
    given = {name: row[name] for name in names if name in row}
    values = list(given.values())
    for value in values[1:]:
        if value != values[0]:
            raise place.error(f"{' and '.join(given)} differ", value, "these are names of one field: keep one")
    return values[0] if values else None


def _answerable(row: Mapping[str, Any], place: JsonLocation) -> bool:
    if "answerable" in row:
        return bool(row["answerable"])
    # The shapes for retrieval alone have no such field: they name the documents that hold the answer.
    if row.get("relevant") or row.get("gold_contexts"):
        return True
    raise place.error("answerable is missing", hint=GOLD_ROW["answerable"].hint)
