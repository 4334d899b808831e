"""JSON Schemas (draft 2020-12) of types: what msgspec says of them, with the sentences of their docstrings.

A docstring of this project has a summary first and the attributes below a line `Attributes:` or `Args:`. The schemas
are printed by `ragmon schema` and committed in docs/reference/schema.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_ENTRY: Final = re.compile(r"([a-z0-9_, ]+): (.*)")
_SECTION: Final = re.compile(r"^(?:Attributes|Args):\n", re.MULTILINE)


def summary(docstring: str) -> str:
    """What a class is, in one line: its docstring up to the list of attributes.

    >>> from ragmon.core.record import Answer
    >>> summary(Answer.__doc__)
    'The answer of the pipeline.'
    """
    return " ".join(_SECTION.split(inspect.cleandoc(docstring))[0].split())


def attribute_notes(docstring: str) -> dict[str, str]:
    """The sentence of each attribute in the docstring of a class.

    >>> from ragmon.core.record import Tombstone
    >>> attribute_notes(Tombstone.__doc__)
    {'was': 'The kind of the erased entry: `record`, `label`, or one of `SAMPLES`.'}
    """
    found: dict[str, str] = {}
    names: list[str] = []
    _, *sections = _SECTION.split(inspect.cleandoc(docstring))
    for line in "".join(sections[:1]).splitlines():
        entry = _ENTRY.match(line.strip()) if line.startswith("    ") and not line.startswith("     ") else None
        if entry is not None:
            names = entry.group(1).split(", ")
            found |= dict.fromkeys(names, entry.group(2))
        elif names and line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_CODE: Final = re.compile(r"`[^`]*`|\bNone\b|\bTrue\b|\bFalse\b")
_JSON: Final = {"None": "null", "True": "true", "False": "false"}


def identifier(name: str, version: int) -> str:
    """The `$id` of a schema: a name, not an address.

    >>> identifier("trace", 1)
    'urn:ragmon:schema:trace:1'
    """
    return f"urn:ragmon:schema:{name}:{version}"


def definitions(*models: Any) -> dict[str, Schema]:
    """The schemas of classes and of all classes in them, by name.

    Args:
        models: Structs or dataclasses, each with a docstring. What is unknown to a class is allowed: later versions add
            members.
    """
    _, components = msgspec.json.schema_components(models, ref_template="#/$defs/{name}")
    schemas: dict[str, Schema] = {}
    for name, schema in components.items():
        docstring, properties = schema["description"], schema["properties"]
        notes = attribute_notes(docstring)
        in_order = [key for key in notes if key in properties] + [key for key in properties if key not in notes]
        schemas[name] = {
            "description": in_json(summary(docstring)),
            "type": "object",
            "properties": {key: described(properties[key], notes.get(key, "")) for key in in_order},
            **({"required": schema["required"]} if schema.get("required") else {}),
        }
    return schemas


def described(schema: Mapping[str, Any], note: str) -> Schema:
    """A schema with a sentence before it; without a default of null, which says nothing."""
    kept = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    return ({"description": in_json(note)} if note else {}) | kept


def in_json(text: str) -> str:
    """A sentence of a docstring with the words of JSON.

    >>> in_json("A list; None: not captured.")
    'A list; null: not captured.'
    """
    return _CODE.sub(lambda word: _JSON.get(word[0], word[0]), text)
