"""`ragmon gate`: judge the gates on a run; the exit code is the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import click

from ragmon.baseline import against
from ragmon.cli.runs import score, settings_and_gold, tell_rejected, write
from ragmon.config.settings import Settings
from ragmon.errors import UnknownNameError
from ragmon.export.gates import markdown, text
from ragmon.gates import Estimand, Policy

EXIT: Final = {"pass": 0, "fail": 1, "insufficient": 2}


@click.command()
@click.argument("traces", nargs=-1, required=True)
@click.option("--gold", "-g", multiple=True, help="Gold file. Default: [gold.*] of the config.")
@click.option("--config", "-c", help="ragmon.toml. Default: RAGMON_CONFIG, then ./ragmon.toml.")
@click.option("--pipeline", help="Judge the gates of this pipeline alone.")
@click.option(
    "--estimand",
    type=click.Choice(["gold_set", "questions_like_these"]),
    help="What a gold number stands for. Default: gold_set, the exact value over this set.",
)
@click.option("--baseline", help="An earlier report (JSON) or earlier traces; a drop beyond --max-drop fails.")
@click.option("--max-drop", type=click.FloatRange(0, 1), default=0.02, show_default=True)
@click.option(
    "--on-insufficient", type=click.Choice(["fail", "pass"]), help="Count insufficient as this. Default: exit 2."
)
@click.option("--format", "form", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
@click.option("--output", "-o", help="File to write. Default: stdout.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--duplicates", type=click.Choice(["all", "last", "first"]), default="all", show_default=True)
def gate(
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    pipeline: str | None,
    estimand: Estimand | None,
    baseline: str | None,
    max_drop: float,
    on_insufficient: str | None,
    form: str,
    output: str | None,
    jobs: int,
    duplicates: str,
) -> int:
    """Judge the gates on TRACES.

    Exit codes: 0 pass, 1 fail, 2 insufficient, 3 bad input or configuration.
    """
    settings, sets = settings_and_gold(config, gold)
    policy = _policy(settings, pipeline, estimand, on_insufficient)
    run = score(traces, settings, sets, jobs=jobs, duplicates=duplicates)  # type: ignore[arg-type]
    tell_rejected(run)
    report = run.report(policy)
    if baseline is not None:
        report = against(report, run, baseline, policy, lambda paths: score(paths, settings, sets), max_drop=max_drop)
    write(text(report) if form == "text" else markdown(report) if form == "md" else report.json() + "\n", output)
    return EXIT[report.verdict]


def _policy(settings: Settings, pipeline: str | None, estimand: Estimand | None, on_insufficient: str | None) -> Policy:
    """The configured policy with what the command line changes."""
    if pipeline is not None and pipeline not in settings.pipelines:
        raise UnknownNameError("pipeline", pipeline, settings.pipelines)
    policy = settings.policy(pipeline)
    if estimand is not None:
        policy = replace(policy, gates=tuple(replace(gate, estimand=estimand) for gate in policy.gates))
    if on_insufficient is not None:
        policy = replace(policy, on_insufficient="fail" if on_insufficient == "fail" else "pass")
    return policy
