"""`ragmon baseline`: what all is well looks like, taken from a release run instead of learned in production."""

from __future__ import annotations

import json

import click

from ragmon.cli import Commands
from ragmon.cli.common import (
    check_inputs,
    config_option,
    gold_option,
    output_option,
    score,
    settings_and_gold,
    traces_argument,
    write,
)
from ragmon.core.escaping import printable, printable_json
from ragmon.monitor.build import ScorerPlan
from ragmon.monitor.offline import BaselineRecorder


@click.group(cls=Commands)
def baseline() -> None:
    """What all is well looks like: freeze it."""


@baseline.command("freeze")
@traces_argument
@gold_option
@config_option
@output_option
def freeze_command(traces: tuple[str, ...], gold: tuple[str, ...], config: str | None, output: str | None) -> int:
    """Write the baselines of TRACES, a run that is known to be good, for `[alarms] baseline = { file = "…" }`.

    Every metric alarms compare with its own past, the latency's p95, and how each gold item was answered.

    Exit codes: 0, 3 bad input or configuration.
    """
    check_inputs(traces, gold)
    settings, sets = settings_and_gold(config, gold)
    freezing = BaselineRecorder(settings, ScorerPlan(settings, sets)())
    score(traces, settings, sets, follower=freezing)
    file = freezing.file()
    for name, one in file["pipelines"].items():
        for metric, found in one["metrics"].items():
            click.echo(f"{printable(name)}/{metric}: {found['mean']:.4f} over {found['n']}", err=True)
    click.echo(f"version {file['version']}", err=True)
    write(printable_json(json.dumps(file, indent=1, ensure_ascii=False)) + "\n", output)
    return 0
