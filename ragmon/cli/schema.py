"""`ragmon schema`: the JSON Schemas of trace logs, gold files and reports, for programs in any language."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import click

from ragmon.core.json_schema import Schema
from ragmon.export.schema import report_schema
from ragmon.gold.gold_schema import gold_schema
from ragmon.ingest.trace_schema import trace_schema

SCHEMAS: Final[Mapping[str, Callable[[], Schema]]] = MappingProxyType(
    {"trace": trace_schema, "gold": gold_schema, "report": report_schema}
)


def schema_text(name: str) -> str:
    """The text of a schema file."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"


def schema(name: str) -> None:
    """Print a JSON Schema (draft 2020-12): trace, gold or report."""
    click.echo(schema_text(name), nl=False)
