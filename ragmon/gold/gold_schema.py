"""The JSON Schema of a row of a gold file: an object a line, or an element of a JSON array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args, get_type_hints

from ragmon.core.json_schema import DRAFT, Schema, identifier
from ragmon.gold.schema import GoldRow, Id, Text
from ragmon.gold.tables import OWN_MEMBERS

_TYPES: Final[Mapping[Any, Schema]] = {
    Id: {"type": ["string", "integer"], "pattern": r"\S"},
    Text: {"type": "string", "pattern": r"\S"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list[Id]: {"type": "array", "items": {"type": ["string", "integer"], "pattern": r"\S"}},
    list[Text]: {"type": "array", "items": {"type": "string", "pattern": r"\S"}},
    dict[str, str]: {"type": "object", "additionalProperties": {"type": "string"}},
}
_NOTES: Final = {
    "qid": "A permanent id. A whole number is read as its digits.",
    "question": "The question. `q` and `query` are other names of it.",
    "q": "The same as `question`.",
    "query": "The same as `question`.",
    "answerable": "Whether the corpus holds the answer. May be left out where `relevant` or `gold_contexts` names it.",
    "gold_claim_substr": "Phrases; an answer that holds one of them is right.",
    "gold_claim": "A complete reference answer.",
    "gold_citations": "The ids of the documents that hold the answer. `gold_ids` and `relevant` are other names of it.",
    "gold_ids": "The same as `gold_citations`.",
    "relevant": "The same as `gold_citations`.",
    "gold_contexts": "The passages that hold the answer, where documents have no ids.",
    "anchor_section": "Read, not scored.",
    "tags": "Slices the question belongs to.",
    "paraphrases": "Other wordings of the question.",
    "negatives": "Ids that look relevant and are not.",
    "constraints": "Statements for other checks; kept, not scored.",
}
"""What each field holds. The descriptions of `GoldRow` are hints for a value that is wrong."""


def gold_schema() -> Schema:
    """The JSON Schema of one gold item as an object."""
    hints = get_type_hints(GoldRow, include_extras=True)
    own = {"anyOf": [{"required": [name]} for name in sorted(OWN_MEMBERS)]}
    names = list(GoldRow.model_fields)
    return {
        "$schema": DRAFT,
        "$id": identifier("gold", 1),
        "title": "A gold item of ragmon",
        "description": (
            "One question whose answer is known: a line of a JSON Lines file, or an element of a JSON array. Rows with "
            "the names of Ragas or DeepEval, such as `user_input` and `reference`, are read too and are not described "
            "here. So are tables, TREC qrels and the three files of seed 004, which are not JSON rows."
        ),
        "type": "object",
        "if": own,
        "then": {"$ref": "#/$defs/GoldItem"},
        "else": {"not": {"propertyNames": {"enum": names}}},
        "$defs": {"GoldItem": _item({name: _TYPES[_plain(hints[name])] for name in names})},
    }


def _plain(hint: Any) -> Any:
    """The type of a field that may be null."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and hint not in _TYPES else hint


def _item(types: Mapping[str, Schema]) -> Schema:
    """A row in the names of gold files."""
    properties = {
        name: {"description": _NOTES[name], **(schema if name == "qid" else {"anyOf": [schema, {"type": "null"}]})}
        for name, schema in types.items()
    }
    not_null = {"properties": {"answerable": {"type": "boolean"}}, "required": ["answerable"]}
    named = [
        {"properties": {name: {"type": "array", "minItems": 1}}, "required": [name]}
        for name in ("relevant", "gold_contexts")
    ]
    return {
        "description": "A row in the names of gold files.",
        "type": "object",
        "properties": properties,
        "required": ["qid"],
        "anyOf": [not_null, *named],
    }
