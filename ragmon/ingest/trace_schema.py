"""The JSON Schema of a line of a trace log: what the reader accepts, which is more than the trace contract asks for.

The contract's own types come from the structs of `ragmon.core.record`. Where the reader also converts values of other
programs (a number as an id, ISO 8601 as a time), the schema allows them too. It never rejects a line that is read.
"""

from __future__ import annotations

from typing import Any, Final

from ragmon.core import constants
from ragmon.core.constants import CONTRACT_VERSION
from ragmon.core.json_schema import DRAFT, Schema, attribute_notes, definitions, described, identifier
from ragmon.core.record import (
    FIELDS,
    LARGEST,
    LATEST,
    LONGEST_COMMENT,
    MAX_ID_CHARS,
    MAX_IDS,
    Answer,
    Label,
    Record,
    Sampling,
    TextFacts,
    Totals,
)

_NULL: Final[Schema] = {"type": "null"}
_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
_TEXT: Final[Schema] = {"type": ["string", "number", "null"]}
_ID: Final[Schema] = {"type": ["string", "integer", "null"]}
_DOCUMENT: Final[Schema] = {
    "type": ["string", "integer", "object"],
    "properties": {"id": {"type": ["string", "integer"]}},
}
_IDS: Final[Schema] = {"type": ["array", "null"], "items": _DOCUMENT}
_VERDICT: Final[Schema] = {
    "anyOf": [
        {"type": "boolean"},
        {
            "type": ["string", "integer"],
            "pattern": r"^\s*([Yy][Ee][Ss]|[Nn][Oo]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[01])\s*$",
        },
        {"type": "object", "required": ["verdict"]},
    ]
}


def _map(values: Schema) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": values}


def _list(items: str) -> Schema:
    return {"type": ["array", "null"], "items": {"type": items}}


def _or_null(name: str) -> Schema:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, _NULL]}


_RECORD: Final[dict[str, Schema]] = {
    "v": {"anyOf": [{"const": CONTRACT_VERSION}, {"type": ["string", "null"]}]},
    "kind": _NULL,
    "trace_id": _TEXT,
    "ts": {"type": ["number", "string", "null"], "minimum": 0, "exclusiveMaximum": LATEST},
    "pipeline": _TEXT,
    "source": {"enum": [*constants.SOURCES, None]},
    "qid": _ID,
    "q": _TEXT,
    "retrieved_ids": _IDS,
    "candidate_ids": _IDS,
    "scores": _list("number"),
    "contexts": _list("string"),
    "answer_json": _or_null("Answer"),
    "error": {},
    "latency_ms": {
        "type": ["object", "number", "null"],
        "properties": {"total": _NUMBER, "retrieve": _NUMBER, "generate": _NUMBER},
    },
    "index_hash": _TEXT,
    "build": _TEXT,
    "session": _TEXT,
    "sampling": _or_null("Sampling"),
    "facts": _or_null("TextFacts"),
    "partial": _FLAG,
    "ended": {},
    "exported": _FLAG,
    "parent_span_id": {},
    "tags": _map({"type": ["string", "number", "boolean", "null"]}),
    "verdicts": {"type": ["array", "null"], "items": _VERDICT},
    "measures": _map({"type": "number"}),
    "matched": {},
    "probe": _FLAG,
    "model": {},
    "user": {},
    "judge_versions": _map({"type": "string"}),
}
"""What the reader accepts in each member of a record; an empty schema: it reads a text and passes over other values."""

_MORE: Final = {
    "v": "The version of the contract: write 1. Absent, null or a text: a line of another program.",
    "ts": "Seconds, not milliseconds; ISO 8601 is read too.",
    "qid": "A whole number is read as its digits.",
    "retrieved_ids": "An entry may be an object with an `id`.",
    "candidate_ids": "An entry may be an object with an `id`.",
    "latency_ms": "A number is the total.",
    "verdicts": "true and false, yes and no, or objects with a `verdict`.",
    "probe": "true: the source is `probe`. Older logs have it instead of a source.",
}
"""What to say beside the sentences of the docstring."""


def trace_schema() -> Schema:
    """The JSON Schema of one line of a trace log."""
    defs = definitions(Answer, Sampling, TextFacts, Totals, Label, Record)
    notes = {name: note for name, note in attribute_notes(Record.__doc__ or "").items() if name != "v"}
    properties = {
        name: described(schema, " ".join(filter(None, (notes.get(name), _MORE.get(name)))))
        for name, schema in _RECORD.items()
    }
    defs["Record"]["properties"] = properties
    defs["Answer"]["properties"]["claim"] |= {"anyOf": [_TEXT]}
    citations = {"anyOf": [_IDS, {"not": {"type": "array"}}]}
    defs["Answer"]["properties"]["citations"] |= citations
    del defs["Latency"]
    return {
        "$schema": DRAFT,
        "$id": identifier("trace", CONTRACT_VERSION),
        "title": "A line of a trace log of ragmon",
        "description": (
            "One JSON object on one line: a record of one request, a producer's totals, or a person's label. Members "
            "that are not listed are allowed; those that ragmon does not know are passed over."
        ),
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("Record", "Totals", "Label")],
        "$defs": {
            "Record": defs.pop("Record"),
            "Totals": _totals(defs.pop("Totals")),
            "Label": _label(defs.pop("Label")),
        }
        | defs,
    }


def _totals(schema: Schema) -> Schema:
    """Totals, with the limits that the reader checks."""
    properties = schema["properties"]
    properties["kind"] = {"const": "totals"}
    count = {"type": "integer", "minimum": 0, "maximum": LARGEST}
    for name in ("calls", "kept"):
        properties[name] |= count
    for name in ("dropped", "latency_ms"):
        properties[name]["additionalProperties"] = count
    properties["latency_ms"]["propertyNames"] = {"pattern": "^-?[0-9]+$"}
    return schema | {"required": ["kind", *schema["required"]]}


def _label(schema: Schema) -> Schema:
    """A label, with the limits of `ragmon.core.record.parse_label`."""
    properties: dict[str, Any] = schema["properties"]
    name = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
    properties["kind"] = {"const": "label"}
    properties["trace_id"] |= name
    properties["rater"] |= name
    properties["correct"] |= {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": 0, "maximum": 1}, _NULL]}
    ids = {"type": "array", "items": {"type": "string", "maxLength": MAX_ID_CHARS}, "maxItems": MAX_IDS - 2}
    properties["relevant_ids"] |= {"anyOf": [ids, _NULL]}
    properties["comment"] |= {"anyOf": [{"type": "string", "maxLength": LONGEST_COMMENT}, _NULL]}
    for added in ("answer", "arrived"):  # what a journal or a chunk adds; in a line that is sent it is passed over
        del properties[added]
    said = [{"required": [name], "properties": {name: {"not": _NULL}}} for name in FIELDS]
    return schema | {"anyOf": said}
