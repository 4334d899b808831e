"""The rows of gold files, validated strictly, and the gold item of each row.

One model knows the field names of every published shape (`gold_ids` and `gold_citations` are one field, as are `q`
and `question`), so names may be mixed within a file. Unknown fields are ignored, unless they look like a misspelt
known one: a gold file with a misspelt `answerable` must not be read as something else.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from ragmon.core.gold_item import GoldItem, Match
from ragmon.gold.strict_json import SHAPES, JsonLocation

_MISSPELT: Final = 0.85
"""Similarity from which a name counts as misspelt; `answer` (0.75) and `id` (0.80) stay free for other uses."""

_QUESTION: Final = ("question", "q", "query")
_CITATIONS: Final = ("gold_citations", "gold_ids", "relevant")
_TYPE_ERRORS: Final = {
    "missing": "is missing",
    "bool_type": "is not a boolean",
    "dict_type": "is not an object",
    "list_type": "is not a list",
    "string_type": "is not a string",
}


def _not_blank(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("blank", "is empty")
    return value


def _as_id(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise PydanticCustomError("id", "is neither a string nor an integer")
    return _not_blank(value)


Id = Annotated[str, BeforeValidator(_as_id)]
"""A non-empty string; an integer becomes one, a boolean or another number is refused."""
Text = Annotated[str, BeforeValidator(_not_blank)]
"""A string that is not blank: an empty phrase would occur in every answer."""


class FileRow(BaseModel):
    """A row of a gold file; the description of each field is the hint when its value is wrong."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class GoldRow(FileRow):
    """One question in any of the one-row-per-question shapes."""

    qid: Id = Field(description='give every item a permanent id, a non-empty string or an integer: "qid": "A0001"')
    question: str | None = Field(default=None, description="write the question as a string")
    q: str | None = Field(default=None, description="write the question as a string")
    query: str | None = Field(default=None, description="write the question as a string")
    answerable: bool | None = Field(default=None, description='write true or false, without quotes: "answerable": true')
    gold_claim_substr: list[Text] | None = Field(
        default=None, description='write a list of phrases: ["rejects null keys"]'
    )
    gold_claim: str | None = Field(default=None, description="write the reference answer as one string")
    gold_citations: list[Id] | None = Field(default=None, description='write a list of ids: ["p1#2"]')
    gold_ids: list[Id] | None = Field(default=None, description='write a list of ids: ["p1#2"]')
    relevant: list[Id] | None = Field(default=None, description='write a list of ids: ["p1#2"]')
    gold_contexts: list[Text] | None = Field(default=None, description="write a list of passages")
    anchor_section: Id | None = Field(default=None, description="write the section's id, a string or an integer")
    tags: dict[str, str] | None = Field(default=None, description='write an object of strings: {"lang": "de"}')
    paraphrases: list[Text] | None = Field(default=None, description="write a list of questions")
    negatives: list[Id] | None = Field(default=None, description='write a list of ids: ["p1#2"]')
    constraints: list[Text] | None = Field(default=None, description="write a list of statements")


AnyRow = TypeVar("AnyRow", bound=FileRow)


def read_row(model: type[AnyRow], place: JsonLocation, raw: Any) -> AnyRow:
    """Validate one JSON object.

    Args:
        model: The model of the row.
        place: The location of the row.
        raw: The decoded JSON.

    Raises:
        GoldError: It is not an object, a field has the wrong type, or the name of a field is misspelt.
    """
    if not isinstance(raw, dict):
        raise place.error("not a JSON object", raw, SHAPES)
    field_names = tuple(model.model_fields)
    for name in raw:
        if name not in model.model_fields and (intended := _intended_field(name, field_names)):
            raise place.error("misspelt field", name, f"did you mean {intended}?")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        value = None if problem["type"] == "missing" else problem["input"]
        hint = model.model_fields[str(problem["loc"][0])].description or ""
        raise place.error(_describe(problem), value, hint) from error


def _describe(problem: ErrorDetails) -> str:
    field, *rest = problem["loc"]
    where = str(field) + "".join(f"[{step!r}]" for step in rest)
    if problem["input"] is None:
        return f"{where} is null"
    return f"{where} {_TYPE_ERRORS.get(problem['type'], problem['msg'])}"


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
    row = read_row(GoldRow, place, raw)
    names_documents = any(getattr(row, name) is not None for name in (*_CITATIONS, "gold_contexts", "anchor_section"))
    if raw.get("citations") and not names_documents:
        hint = "gold_citations: the ids of the documents that hold the answer; citations are those of an answer"
        raise place.error("citations is no field of gold", raw["citations"], hint)
    return GoldItem(
        qid=row.qid,
        question=_first_given(row, _QUESTION, place) or "",
        answerable=_answerable(row, place),
        claim_substrings=_tuple_or_none(row.gold_claim_substr),
        gold_claim=row.gold_claim or None,
        citations=_tuple_or_none(_first_given(row, _CITATIONS, place)),
        contexts=_tuple_or_none(row.gold_contexts),
        tags=row.tags or {},
        paraphrases=tuple(row.paraphrases or ()),
        negatives=tuple(row.negatives or ()),
        constraints=tuple(row.constraints or ()),
        match=match,
    )


def _tuple_or_none(values: list[str] | None) -> tuple[str, ...] | None:
    """The values as a tuple. An absent list, null and [] mean the same, so they must give the same version."""
    return tuple(values) if values else None


def _first_given(row: GoldRow, names: tuple[str, ...], place: JsonLocation) -> Any:
    """The value of a field that has several names; if more than one is given, the values must be equal."""
    given = {name: getattr(row, name) for name in names if getattr(row, name) is not None}
    values = list(given.values())
    for value in values[1:]:
        if value != values[0]:
            raise place.error(f"{' and '.join(given)} differ", value, "these are names of one field: keep one")
    return values[0] if values else None


def _answerable(row: GoldRow, place: JsonLocation) -> bool:
    if row.answerable is not None:
        return row.answerable
    # The shapes for retrieval alone have no such field: they name the documents that hold the answer.
    if row.relevant or row.gold_contexts:
        return True
    raise place.error("answerable is missing", hint=GoldRow.model_fields["answerable"].description or "")
