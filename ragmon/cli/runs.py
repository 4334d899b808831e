"""What `replay` and `gate` share: reading the configuration and gold, scoring files, showing progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from ragmon.assembly import ScorerPlan, load_gold
from ragmon.cli import hang_up
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.errors import RagmonError
from ragmon.gold import GoldSet
from ragmon.offline import Duplicates, Run
from ragmon.parallel import run_files

LONG = 64 << 20
"""Bytes of input from which progress is shown."""


def settings_and_gold(config: str | None, gold: Sequence[str]) -> tuple[Settings, tuple[GoldSet, ...]]:
    """The configuration, and the gold named on the command line or, failing that, in it.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is.
    """
    settings = load(config)
    if gold:
        return settings, (GoldSet.load(list(gold) if len(gold) > 1 else gold[0], "gold" if len(gold) > 1 else None),)
    return settings, load_gold(settings.gold)


def score(
    traces: Sequence[str],
    settings: Settings,
    gold: tuple[GoldSet, ...],
    *,
    jobs: int = 1,
    duplicates: Duplicates = "all",
) -> Run:
    """Score trace files, with progress on stderr when they are long and somebody watches.

    Raises:
        InputError: A file cannot be opened.
    """
    plan = ScorerPlan(settings, gold)
    size = sum(os.path.getsize(path) for path in traces if path != "-" and Path(path).is_file())  # noqa: PTH202
    if jobs > 1 or size < LONG or not sys.stderr.isatty():
        return run_files(traces, plan, jobs=jobs, duplicates=duplicates)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scoring", total=size)
        return run_files(traces, plan, duplicates=duplicates, progress=lambda done: bar.update(task, completed=done))


def tell_rejected(run: Run) -> None:
    """Name the first rejected lines on stderr."""
    for example in run.intake.examples:
        click.echo(f"rejected: {example}", err=True)
    more = sum(run.intake.rejected.values()) - len(run.intake.examples)
    if more > 0:
        click.echo(f"rejected: {more} more, counted by reason in the report", err=True)


def write(text: str, output: str | None) -> None:
    """Write a result to a file or to stdout.

    Raises:
        RagmonError: The file cannot be written.
    """
    if output is None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            hang_up()  # and go on: the exit code is the command's verdict, read to the end or not
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RagmonError(f"{output}: cannot be written ({error.strerror})", hint="check folder and rights") from error
