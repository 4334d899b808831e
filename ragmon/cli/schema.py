"""`ragmon schema`: the JSON Schemas of trace logs, gold files and reports, for any language, and of ragmon.toml."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import click

from ragmon.config.schema import config_schema
from ragmon.core.json_schema import Schema
from ragmon.export.schema import report_schema
from ragmon.ingest.gold_files import gold_schema
from ragmon.ingest.lines import trace_schema

SCHEMAS: Final[Mapping[str, Callable[[], Schema]]] = MappingProxyType(
    {"trace": trace_schema, "gold": gold_schema, "report": report_schema, "config": config_schema}
)


def schema_text(name: str) -> str:
    """The text of a schema file."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"


def schema(name: str) -> None:
    """Print a JSON Schema: trace, gold, report or config."""
    click.echo(schema_text(name), nl=False)
