"""What several commands share: options, scoring with progress, configuration and gold, writing results, terminals."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from ragmon.cli.commands import STDIN
from ragmon.cli.main import discard_stdout
from ragmon.config.load import load
from ragmon.config.services import LabelsTable
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, printable_line
from ragmon.export.report import Report
from ragmon.export.text import terminal_text, text
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.ingest.gold import GoldSet, gold_of
from ragmon.ingest.labels import LabelSpelling, read_labels
from ragmon.ingest.tables import USUAL, TableOptions
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.replay import Duplicates, Follower, MakeScorer, Run, embedding, join_labels, run_files
from ragmon.scoring.scorer import Scorer, ScorerFactory

LARGE: Final = 64 << 20
"""Bytes of input from which on progress is shown, and all free cores score."""
_COLOURS: Final = {"pass": "green", "fail": "red", "insufficient": "yellow"}


@contextmanager
def progress_bar(size: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr that disappears when the block ends; call the result with the bytes read so far."""
    from rich import console, progress  # noqa: PLC0415 - most runs are over before there is progress to show

    rates = (progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn())
    columns, terminal = ("{task.description}", progress.BarColumn(), *rates), console.Console(stderr=True)
    # A thread that refreshes the bar would keep processes from being forked (`run_files`).
    with progress.Progress(*columns, console=terminal, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("scoring", total=size)
        yield lambda bytes_read: bar.update(task, completed=bytes_read, refresh=True)


def check_max_drop(context: click.Context) -> None:
    """Reject --max-drop where there is nothing to drop from."""
    if context.params["baseline"] is None and context.get_parameter_source("max_drop") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--max-drop does nothing without --baseline", context)


def settings_and_gold(
    config: str | None, gold: Sequence[str], tables: TableOptions = USUAL
) -> tuple[Settings, tuple[GoldSet, ...]]:
    """The configuration, and the gold sets of the command line or, if it names none, of the configuration."""
    settings = load(config)
    return settings, gold_of(settings, gold, tables)


def check_inputs(traces: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse to read standard input twice, and warn about a file that is named twice."""
    if [*traces, *others].count(STDIN) > 1:
        raise RagmonError("standard input is named more than once: '-'", hint="it can be read once: name files")
    files = [path for path in traces if path != STDIN]
    for path in sorted({path for path in files if [*map(os.path.realpath, files)].count(os.path.realpath(path)) > 1}):
        click.echo(
            f"note: {printable_line(path)} is read more than once, and every record of it counts again", err=True
        )


def usual_jobs(size: int) -> int:
    """The number of processes that score files of so many bytes where the user names none: the free cores, or 1."""
    if size <= LARGE:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, size // (LARGE // 2))


def score(
    traces: Sequence[str],
    settings: Settings,
    gold: tuple[GoldSet, ...],
    *,
    jobs: int | None = None,
    duplicates: Duplicates = "all",
    scorer: Scorer | None = None,
    follower: Follower | None = None,
    labels: Sequence[str] = (),
    tables: TableOptions = USUAL,
) -> Run:
    """Score trace files; show progress if they are long and stderr is a terminal, and list rejected lines.

    `jobs` None is the usual number of processes. A `scorer` scores in one process; a `follower` brings its own.
    """
    tables = file_options(settings, tables)
    spelling = label_spelling(settings.unconfigured.labels)
    given_labels = [label for path in labels for label in read_labels(path, spelling)]
    plan: MakeScorer = ScorerFactory(settings, gold) if scorer is None else lambda: scorer
    follow = embedding(settings, gold)
    size = sum(os.path.getsize(path) for path in traces if path != STDIN and Path(path).is_file())  # noqa: PTH202
    if follow is not None and jobs is not None and jobs > 1:
        click.echo("note: questions are matched by meaning ([gold] embed), so one process reads the traces", err=True)
    if follow is not None or scorer is not None:
        jobs = 1
    spans = file_span_options(settings)
    is_quiet = size < LARGE or not sys.stderr.isatty()
    with nullcontext() if is_quiet else progress_bar(size) as progress:
        run = run_files(
            traces,
            plan,
            jobs=usual_jobs(size) if jobs is None else jobs,
            duplicates=duplicates,
            progress=progress,
            follow=follow,
            follower=follower,
            options=tables,
            span_options=spans,
        )
    if run.intake.rejections and not run.intake.readable:
        raise unreadable(traces, run.intake, tables)
    for example in run.intake.examples:
        click.echo(f"rejected: {printable_line(str(example))}", err=True)
    unlisted = sum(run.intake.rejected.values()) - len(run.intake.examples)
    if unlisted > 0:
        click.echo(f"rejected: {unlisted} more, counted by reason in the report", err=True)
    for note in run.intake.sentences(examples=True):
        click.echo(f"note: {printable_line(note)}", err=True)
    if labels_to_join := [*run.labels, *given_labels]:
        if STDIN in traces:
            click.echo("note: answers that came over standard input cannot be labelled: it is read once", err=True)
        # The traces are read again, since a label comes after the answer it rates.
        files = [path for path in traces if path != STDIN]
        lines = read_files(files, ReadSummary(), options=tables, span_options=spans)
        join_labels(run, labels_to_join, lines, settings)
    return run


def label_spelling(table: LabelsTable, rater: str | None = None) -> LabelSpelling:
    """The columns and the words for true and false of label files, from the configuration."""
    return LabelSpelling(dict(table.column), table.values.true, table.values.false, rater)


def write(text: str, output: str | None) -> None:
    """Write a result to a file or to stdout."""
    try:
        if output is not None and output != STDIN:
            Path(output).write_text(text, encoding="utf-8")
        elif sys.stdout is not None:  # it is None if the caller has closed it
            sys.stdout.write(text)
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()  # and continue: the exit code is the verdict, also if not all of the output was read
    except OSError as error:
        target = output or "standard output"
        raise RagmonError(f"{target}: cannot be written ({error.strerror})", hint="check space and rights") from error


def on_terminal(output: str | None) -> bool:
    """Whether a result that goes to `output`, or to stdout, is seen on a terminal."""
    return output is None and sys.stdout is not None and sys.stdout.isatty()


def gate_table(report: Report, output: str | None, *, no_color: bool) -> str:
    """The gates as text: as wide as the terminal and in colour there, plain and unwrapped elsewhere."""
    if not on_terminal(output):
        return text(report)
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    coloured = str if plain else lambda verdict: click.style(verdict, fg=_COLOURS.get(verdict))
    return terminal_text(report, shutil.get_terminal_size().columns, coloured)
