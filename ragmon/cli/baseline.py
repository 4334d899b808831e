"""`ragmon baseline`: freeze the baselines of alarms from a release run, instead of learning them in production."""

from __future__ import annotations

import click

from ragmon.cli.common import (
    check_inputs,
    score,
    settings_and_gold,
    write,
)
from ragmon.core.errors import printable, printable_json
from ragmon.monitor.replay import BaselineRecorder
from ragmon.scoring.scorer import ScorerFactory


def freeze_command(traces: tuple[str, ...], gold: tuple[str, ...], config: str | None, output: str | None) -> int:
    """Write the baselines of TRACES, a run that is known to be good, for `[alarms] baseline = { file = "…" }`."""
    check_inputs(traces, gold)
    settings, gold_sets = settings_and_gold(config, gold)
    recorder = BaselineRecorder(ScorerFactory(settings, gold_sets))
    score(traces, settings, gold_sets, follower=recorder)
    file = recorder.file()
    for name, baselines in file["pipelines"].items():
        for metric, stats in baselines["metrics"].items():
            click.echo(f"{printable(name)}/{metric}: {stats['mean']:.4f} over {stats['n']}", err=True)
    click.echo(f"version {file['version']}", err=True)
    write(printable_json(file, indent=1) + "\n", output)
    return 0
