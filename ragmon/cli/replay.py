"""`ragmon replay`: score trace files and report, or print what a published scorer would."""

from __future__ import annotations

import click

from ragmon.cli import BAD_INPUT
from ragmon.cli.runs import score, settings_and_gold, tell_rejected, write
from ragmon.export.markdown import render
from ragmon.offline import Duplicates

COMPAT = ("seed-000", "seed-001", "seed-002", "seed-003", "seed-004")


def _questions(_: click.Context, __: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a number nor `all`")


@click.command()
@click.argument("traces", nargs=-1, required=True)
@click.option(
    "--gold", "-g", multiple=True, help="Gold file, or seed 004's directory. Default: [gold.*] of the config."
)
@click.option("--config", "-c", help="ragmon.toml. Default: RAGMON_CONFIG, then ./ragmon.toml.")
@click.option("--format", "form", type=click.Choice(["json", "md"]), default="json", show_default=True)
@click.option("--output", "-o", help="File to write. Default: stdout.")
@click.option("--windows", is_flag=True, help="Add every window span at every 5-minute step.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--duplicates",
    type=click.Choice(["all", "last", "first"]),
    default="all",
    show_default=True,
    help="Which record of a gold question counts.",
)
@click.option("--questions", callback=_questions, default="200", show_default=True, help="Rows per question, or `all`.")
@click.option("--compat", type=click.Choice(COMPAT), help="Print what this published scorer prints.")
@click.option("--k", type=click.IntRange(1), help="Compat: cut of recall@k.")
@click.option("--gates", help="Compat seed-000: precision=0.80,chr=0.75,under=0.05,over=0.10")
@click.option("--max-queries", "-n", type=click.IntRange(0), default=0, help="Compat seed-004: 0 for all.")
@click.option("--skip-generation", is_flag=True, help="Compat seed-004: retrieval metrics only.")
@click.option("--include-details", is_flag=True, help="Compat seed-004: per-query results.")
@click.option("--threshold", type=float, help="Compat seed-001 and seed-004.")
@click.option("--strict", is_flag=True, help="Compat seed-001: only a perfect ranking passes.")
def replay(
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    form: str,
    output: str | None,
    windows: bool,
    jobs: int,
    duplicates: Duplicates,
    questions: int | None,
    compat: str | None,
    **published: object,
) -> int:
    """Score TRACES (.jsonl, .gz, .zst, TREC runs, `-` for stdin) and report.

    The same scorer and gates as live traffic, on a whole run: a value over a gold set is exact.
    """
    if compat:
        return _compat(compat, traces, gold, output, published)
    settings, sets = settings_and_gold(config, gold)
    run = score(traces, settings, sets, jobs=jobs, duplicates=duplicates)
    tell_rejected(run)
    report = run.report(settings.policy(), windows=windows, questions=form == "md")
    write(report.json() + "\n" if form == "json" else render(report, questions), output)
    return 0


def _compat(
    mode: str, traces: tuple[str, ...], gold: tuple[str, ...], output: str | None, published: dict[str, object]
) -> int:
    """What the published scorer prints; where it would crash, why, and exit code 3."""
    from ragmon.compat import Options, run  # noqa: PLC0415 - a room of its own, loaded only for this

    result = run(mode, traces, gold, Options(**published))  # type: ignore[arg-type]
    if result.error is not None:
        click.echo(f"error: {result.error}", err=True)
        return BAD_INPUT
    write(result.text, output)
    return 0
