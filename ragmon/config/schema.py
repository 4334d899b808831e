"""The JSON Schema of ragmon.toml, for editors: what a file may hold, with the sentences and defaults of the models.

It is draft 7, which Taplo and the editors that use it read. What needs more than one key or file, `ragmon config check`
says.
"""

from __future__ import annotations

from typing import Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema, NullableSchema, WithDefaultSchema

from ragmon.config.load import plain
from ragmon.config.settings import ConfigDocument
from ragmon.core.json_schema import Schema, identifier, summary

DRAFT: Final = "http://json-schema.org/draft-07/schema#"


class _Writer(GenerateJsonSchema):
    """TOML has no null; and a table need not be complete, because another file may extend it."""

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        inner, default = self.generate_inner(schema["schema"]), plain(schema.get("default"))
        return inner if default is None or "$ref" in inner else {**inner, "default": default}

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        model, written = schema["cls"], super().model_schema(schema)
        notes = model.notes()
        for name, value in written["properties"].items():
            value.pop("title", None)
            written["properties"][name] = ({"description": notes[name]} if name in notes else {}) | value
        kept = ("type", "properties", "additionalProperties")
        return {"description": summary(model.__doc__ or ""), **{key: written[key] for key in kept}}


def config_schema() -> Schema:
    """The schema of a file."""
    written = ConfigDocument.model_json_schema(schema_generator=_Writer, ref_template="#/definitions/{model}")
    tables = written.pop("$defs")
    return {"$schema": DRAFT, "$id": identifier("config", 1), "title": "ragmon.toml", **written, "definitions": tables}
