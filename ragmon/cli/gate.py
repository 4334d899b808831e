"""`ragmon gate`: evaluate the gates on a run; the exit code is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import click
from click.core import ParameterSource

from ragmon.cli.common import (
    check_inputs,
    check_max_drop,
    gate_table,
    score,
    settings_and_gold,
    write,
)
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, UnknownNameError, printable_line
from ragmon.core.policy import Estimand, Policy, verdict_of
from ragmon.export.report import Report
from ragmon.export.text import render_gates
from ragmon.gates.releases import judge
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.tables import TableOptions
from ragmon.monitor.replay import BaselineRun, Duplicates, ReleaseSplitter, Run, report_of
from ragmon.scoring.scorer import ScorerFactory

EXIT: Final = {"pass": 0, "fail": 1, "insufficient": 2}


def gate(
    context: click.Context,
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    pipeline: str | None,
    estimand: Estimand | None,
    baseline: str | None,
    max_drop: float,
    since_build: str | None,
    on_insufficient: str | None,
    form: str,
    output: str | None,
    jobs: int | None,
    duplicates: Duplicates,
    labels: tuple[str, ...],
    tables: TableOptions,
    no_color: bool,
) -> int:
    """Judge the gates on TRACES."""
    check_max_drop(context)
    if since_build is not None:
        _check_since_build(context)
    check_inputs(traces, gold if baseline is None else (*gold, baseline))
    settings, gold_sets = settings_and_gold(config, gold, tables)
    check_gold(settings.policy(pipeline), gold_sets)
    policy_for = partial(policy_of, settings, pipeline, estimand=estimand, on_insufficient=on_insufficient)

    def score_files(paths: Sequence[str]) -> Run:
        return score(paths, settings, gold_sets, jobs=jobs, duplicates=duplicates, labels=labels, tables=tables)

    baseline_run = None if baseline is None else BaselineRun.read(baseline, score_files)
    if since_build is not None:
        report = _report_since_build(traces, ScorerFactory(settings, gold_sets), policy_for, since_build, tables)
    else:
        run = score_files(traces)
        policy = policy_for(seen=run.pipelines())
        report = report_of(run, policy, baseline_run, max_drop=max_drop, questions=False)
    _print_notes(report, gold_sets, notes=form == "json")
    if form == "text":
        write(gate_table(report, output, no_color=no_color), output)
    else:
        write(render_gates(report) if form == "md" else report.json() + "\n", output)
    return EXIT[report.verdict]


def _check_since_build(context: click.Context) -> None:
    """Reject options that do not go with --since-build.

    Raises:
        click.UsageError: One of them was given.
    """
    reasons = {
        "baseline": "it holds for one look; `ragmon compare` holds for all",
        "duplicates": "it chooses among the answers of all builds",
        "jobs": "one process keeps the requests of a session together",
        "labels": "they come too late to be looked at as often as one likes",
    }
    for name, reason in reasons.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} does not go with --since-build: {reason}", context)


def _report_since_build(
    traces: Sequence[str],
    plan: ScorerFactory,
    policy_for: Callable[..., Policy],
    build: str,
    tables: TableOptions,
) -> Report:
    """The report on the records of one build.

    Raises:
        RagmonError: No record is of the build, or no gate can be judged on a build alone.
    """
    _without_baseline_gates(policy_for())  # before any file is read
    releases = ReleaseSplitter(plan, "build", [build], plan.settings.gates())
    run = score(traces, plan.settings, plan.gold, scorer=releases.scorer, tables=tables)
    release, scorer = releases.release(build), run.scorer
    scorer.restore(release.state)
    policy, notes = _without_baseline_gates(policy_for(seen=run.pipelines()))
    outcomes = judge(release, scorer.table, policy, golds=scorer.gold.infos())
    build_notes = [
        f"records of build {build} alone; the gates' intervals hold at all looks together, those of the series at one",
        "a cluster of requests is one observation ([metrics] cluster)",
    ]
    report = run.report(policy, questions=False, notes=[*build_notes, *releases.notes(), *notes])
    series = tuple(replace(series_snapshot, of="") for series_snapshot in report.snapshot.series)
    return replace(
        report,
        snapshot=replace(report.snapshot, series=series),
        outcomes=outcomes,
        verdict=verdict_of(outcomes, policy),
    )


def _without_baseline_gates(policy: Policy) -> tuple[Policy, list[str]]:
    """The policy without gates that need a baseline, and a note that names them.

    Raises:
        RagmonError: There are no other gates.
    """
    gates = tuple(gate for gate in policy.gates if gate.kind != "quantile_ratio")
    left_out = [gate.name for gate in policy.gates if gate.kind == "quantile_ratio"]
    if left_out and not gates:
        hint = "without --since-build, with --baseline FILE"
        raise RagmonError(f"no gate can be judged on a build alone: {', '.join(left_out)}", hint=hint)
    return replace(policy, gates=gates), [f"not judged: {', '.join(left_out)} (no baseline)"] if left_out else []


def policy_of(
    settings: Settings,
    pipeline: str | None,
    *,
    seen: Collection[str] | None = None,
    estimand: Estimand | None = None,
    on_insufficient: str | None = None,
) -> Policy:
    """The configured policy with the changes of the command line.

    Args:
        settings: The configuration.
        pipeline: Judge this pipeline alone; None for all.
        seen: The pipelines that have records; None before any was read.
        estimand: What a gold number stands for; None for the configured one.
        on_insufficient: How an insufficient verdict counts; None as configured.

    Raises:
        UnknownNameError: There is no such pipeline.
    """
    known = {*settings.expected_pipelines, *(seen or ())}
    if pipeline is not None and seen is not None and pipeline not in known:
        raise UnknownNameError("pipeline", pipeline, known)
    policy = settings.policy(pipeline, seen=seen or ())
    if estimand is not None:
        policy = replace(policy, gates=tuple(replace(gate, estimand=estimand) for gate in policy.gates))
    if on_insufficient is not None:
        policy = replace(policy, on_insufficient="fail" if on_insufficient == "fail" else "pass")
    return policy


def check_gold(policy: Policy, sets: Sequence[GoldSet]) -> None:
    """Reject gates on a gold set that `--gold` has replaced: they would wait for data that cannot arrive.

    Raises:
        UnknownNameError: A gate names a gold set that is not loaded.
    """
    loaded = [gold.name for gold in sets]
    for gate in policy.gates:
        if gate.gold is not None and gate.gold not in loaded:
            raise UnknownNameError(f"gold set of gate {gate.name}", gate.gold, loaded)


def _print_notes(report: Report, sets: Sequence[GoldSet], *, notes: bool) -> None:
    """Print to stderr what the output does not hold: notes (only for JSON), and that gold is missing."""
    if notes:
        for note in report.notes:
            click.echo(f"note: {printable_line(note)}", err=True)
    without_gold = [
        outcome.gate.name for outcome in report.outcomes if outcome.gate.metric in report.snapshot.gold_metrics
    ]
    if without_gold and not sets:
        warn_missing_gold(without_gold)


def warn_missing_gold(gates: Sequence[str]) -> None:
    """Print to stderr which gates cannot be evaluated without gold."""
    click.echo(f"note: no gold set, and {len(gates)} gates need one: {', '.join(gates)}", err=True)
    click.echo("hint: --gold FILE, or [gold.NAME] in ragmon.toml", err=True)
