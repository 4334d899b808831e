"""`ragmon config`: check ragmon.toml, or show every value of the resolved configuration with its origin."""

from __future__ import annotations

import os
from typing import Final

import click

from ragmon.config.load import check, find, load
from ragmon.config.masking import masked_values, toml_text
from ragmon.config.problems import Problem
from ragmon.config.settings import Settings
from ragmon.core.escaping import printable, printable_json, printable_line
from ragmon.export.tables import text_table
from ragmon.monitor.series_budget import expected_series

SERIES: Final = "prometheus.series"
"""The row with the expected number of series."""


def rows(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Args:
        settings: The configuration.

    Returns:
        `(dotted key, value as in ragmon.toml, origin)`; the value is None if it is not set. A gate that names no source
        has its default one. The last row is the expected number of Prometheus series.
    """
    return [*masked_values(settings), (SERIES, expected_series(settings), "estimate")]


PROBLEMS: Final = 1
WIDE: Final = 40
"""Width of the value column; a longer value shifts only its own origin to the right."""


def check_command(context: click.Context, path: str | None) -> None:
    """Name every problem with its line and what would be right."""
    problems = check(path)
    for problem in problems:
        click.echo(_problem_text(problem))
    file = find(path, os.environ)
    name = "no ragmon.toml here, the defaults hold" if file is None else str(file)
    click.echo(f"{printable(name)}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}", err=True)
    context.exit(PROBLEMS if problems else 0)


def show_command(context: click.Context, path: str | None, form: str) -> None:
    """Print every value with its origin: default, file and line, or the environment. Secrets are masked."""
    problems = check(path)
    for problem in problems:
        click.echo(f"error: {_problem_text(problem)}", err=True)
    if problems:
        context.exit(PROBLEMS)
    value_rows = rows(load(path))
    if form == "json":
        values = {key: {"value": value, "origin": origin} for key, value, origin in value_rows}
        click.echo(printable_json(values, indent=2))
        return
    lines = [(key, toml_text(value), origin) for key, value, origin in value_rows]
    click.echo("\n".join(text_table(lines, widths={1: WIDE})))


def _problem_text(problem: Problem) -> str:
    message = printable_line(str(problem))
    return f"{message}\nhint: {printable_line(problem.hint)}" if problem.hint else message
