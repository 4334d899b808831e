"""The JSON Schema of a row of a gold file: an object a line, or an element of a JSON array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ragmon.core.json_schema import DRAFT, Schema, identifier
from ragmon.gold.schema import GOLD_ROW, flag, id_string, ids, string, strings, text, texts
from ragmon.gold.tables import OWN_MEMBERS

_ID: Final = {"type": ["string", "integer"], "pattern": r"\S"}
_TEXT: Final = {"type": "string", "pattern": r"\S"}
_TYPES: Final[Mapping[Callable[[Any], Any], Schema]] = {
    id_string: _ID,
    text: _TEXT,
    string: {"type": "string"},
    flag: {"type": "boolean"},
    ids: {"type": "array", "items": _ID},
    texts: {"type": "array", "items": _TEXT},
    strings: {"type": "object", "additionalProperties": {"type": "string"}},
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
"""What each field holds. The hints of `GOLD_ROW` are for a value that is wrong."""


def gold_schema() -> Schema:
    """The JSON Schema of one gold item as an object."""
    own = {"anyOf": [{"required": [name]} for name in sorted(OWN_MEMBERS)]}
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
        "else": {"not": {"propertyNames": {"enum": list(GOLD_ROW)}}},
        "$defs": {"GoldItem": _item({name: _TYPES[field.read] for name, field in GOLD_ROW.items()})},
    }


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
