"""`ragmon generate`: Prometheus rules and Grafana dashboards of ragmon.toml. `ragmon schema`: JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click

from ragmon.cli.options import write
from ragmon.config.load import load
from ragmon.config.settings import config_schema
from ragmon.core.errors import RagmonError, UnknownNameError, printable_line
from ragmon.core.json_schema import Schema
from ragmon.export.rules import Form, render, rule_groups
from ragmon.export.schema import report_schema
from ragmon.ingest.gold_files import gold_schema
from ragmon.ingest.lines import trace_schema

DIFFERS: Final = 1


def compare(files: Mapping[Path, str]) -> int:
    """Print the names of files that are missing or have another content."""
    differ = 0
    for path, text in files.items():
        existing = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if existing != text:
            differ = DIFFERS
            click.echo(f"{printable_line(str(path))}: {'missing' if existing is None else 'out of date'}")
    return differ


SDK: Final = "grafana_foundation_sdk"
FIRST: Final = "overview"


def dashboard(config: str | None, output: str | None, name: str | None, check: bool) -> int:
    """Write Grafana dashboards of the gates, metrics and judges of ragmon.toml."""
    if check and output is None:
        raise click.UsageError("--check compares with files: name their folder with --output DIR")
    if output is not None and name is not None:
        raise click.UsageError("--name is for stdout, --output writes all: give one of them")
    try:
        from ragmon.export.dashboards import generate  # noqa: PLC0415 - the SDK is optional
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != SDK:
            raise
        hint = "pip install 'ragmon[dashboard]'"
        raise RagmonError("dashboards are made with Grafana's SDK, which is not installed", hint=hint) from missing
    dashboards = generate(load(config))
    if output is None:
        uid = f"ragmon-{name or FIRST}"
        if uid not in dashboards:
            raise UnknownNameError("dashboard", str(name), [key.removeprefix("ragmon-") for key in dashboards])
        click.echo(dashboards[uid], nl=False)
        return 0
    files = {Path(output) / f"{uid}.json": text for uid, text in dashboards.items()}
    if check:
        return compare(files)
    Path(output).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        click.echo(printable_line(str(path)), err=True)
    return 0


def rules(
    config: str | None,
    output: str | None,
    check: bool,
    form: Form,
    configured_only: bool,
    selector: str,
    by: tuple[str, ...],
) -> int:
    """Write recording rules and alerts."""
    groups = rule_groups(load(config), configured_only=configured_only, selector=selector, by=by)
    text = render(groups, form)
    if not check:
        write(text, output)
        return 0
    if output is None:
        raise click.UsageError("--check needs --output: the file to compare with")
    return compare({Path(output): text})


SCHEMAS: Final[Mapping[str, Callable[[], Schema]]] = MappingProxyType(
    {"trace": trace_schema, "gold": gold_schema, "report": report_schema, "config": config_schema}
)


def schema_text(name: str) -> str:
    """The text of a schema file."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"


def schema(name: str) -> None:
    """Print a JSON Schema: trace, gold, report or config."""
    click.echo(schema_text(name), nl=False)
