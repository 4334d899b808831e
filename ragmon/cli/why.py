"""`ragmon why`: ask the monitor what broke."""

from __future__ import annotations

from typing import Any, Final

import click
from pydantic_core import PydanticCustomError

from ragmon.cli.http import ask
from ragmon.cli.runs import config_option, write
from ragmon.config.load import load
from ragmon.config.types import duration
from ragmon.export.diagnosis import as_json, render
from ragmon.gates.diagnosis import load as load_why
from ragmon.monitor.embedded import split

PATH: Final = "/api/why"


def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A stretch of time such as `2h` in seconds."""
    if value is None:
        return None
    try:
        return float(duration(value))
    except PydanticCustomError as error:
        hint = "a number and a unit: 500s, 30m, 2h, 1d"
        raise click.BadParameter(f"{value!r} is no stretch of time, which is {hint}") from error


@click.command()
@click.argument("gate", metavar="[PIPELINE/]GATE")
@click.option("--since", callback=seconds, metavar="TIME", help="How far to look back. Default: 2h before the alarm.")
@click.option("--url", metavar="URL", help="The monitor. Default: `[serve] admin` of the config.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to write."
)
@config_option
def why(gate: str, since: float | None, url: str | None, form: str, config: str | None) -> int:
    """Say what broke: since when GATE is worse, what changed with it, and which traces to open. Times are UTC.

    Exit codes: 0, 3 there is no such gate, or no monitor.
    """
    settings = load(config)
    name, pipeline = split(gate, settings.pipeline)
    asked = {"gate": name, "pipeline": pipeline, **({} if since is None else {"since": f"{since:.15g}"})}
    answer = ask(url or f"http://{settings.serve.admin}", PATH, asked)
    found, traces = load_why(answer), _traces(answer.get("traces"))
    link = settings.of(pipeline).links.trace
    write(as_json(found, traces) + "\n" if form == "json" else render(found, traces, link), None)
    return 0


def _traces(given: Any) -> list[dict[str, Any]]:
    return [trace for trace in given if isinstance(trace, dict)] if isinstance(given, list) else []
