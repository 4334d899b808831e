"""`ragmon compare`: compare two releases; the exit code is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from ragmon.cli.client import get_json, read_back
from ragmon.cli.common import (
    check_inputs,
    score,
    settings_and_gold,
    write,
)
from ragmon.cli.gate import EXIT, check_gold, policy_of, warn_missing_gold
from ragmon.config.load import load
from ragmon.core.errors import printable_line
from ragmon.export.comparison import Canary, uncompared_gates
from ragmon.export.report_page import comparison_page
from ragmon.gates import releases
from ragmon.gates.releases import By
from ragmon.monitor.replay import ReleaseSplitter
from ragmon.scoring.scorer import ScorerFactory

PATH: Final = "/api/compare"
_FORMS: Final[Mapping[str, Callable[[Canary], str]]] = {
    "text": Canary.text,
    "md": Canary.markdown,
    "json": lambda result: result.json() + "\n",
    "html": comparison_page,
}
COMPARE_TIMEOUT: Final = 600.0
"""Seconds to wait for a monitor that scores the records of a day again."""


class _Comparison(NamedTuple):
    """The comparison to make, on files or by a monitor."""

    by: By
    baseline: str
    candidate: str
    max_drop: float
    pipeline: str | None
    intervals: bool


def compare(
    context: click.Context,
    traces: tuple[str, ...],
    url: str | None,
    by: By,
    baseline: str,
    candidate: str,
    gold: tuple[str, ...],
    config: str | None,
    pipeline: str | None,
    max_drop: float,
    form: str,
    output: str | None,
) -> int:
    """Compare the candidate's records with the baseline's, on the metrics that have gates."""
    if baseline == candidate:
        raise click.UsageError(f"--baseline and --candidate are the same: {baseline!r}", context)
    _check_source(context)
    comparison = _Comparison(by, baseline, candidate, max_drop, pipeline, form == "html")
    if url is None:
        result, without_gold = _compare_files(traces, gold, config, comparison)
    else:
        result, without_gold = _compare_by_monitor(url, config, comparison), []
    if form == "json":
        for note in result.notes:
            click.echo(f"note: {printable_line(note)}", err=True)
    if without_gold:
        warn_missing_gold(without_gold)
    write(_FORMS[form](result), output)
    return EXIT[result.verdict]


def _check_source(context: click.Context) -> None:
    """Check that the command line names exactly one source of records.

    Raises:
        click.UsageError: It names none or two.
    """
    url = context.params["url"]
    if url is None and not context.params["traces"]:
        raise click.UsageError("Missing argument 'TRACES...', or a monitor: --url URL", context)
    if url is not None and context.params["traces"]:
        raise click.UsageError("--url asks a monitor and TRACES are read: give one of them", context)
    if url is not None and context.get_parameter_source("gold") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--gold does not go with --url: the monitor has its own", context)


def _compare_files(
    traces: Sequence[str], gold: Sequence[str], config: str | None, comparison: _Comparison
) -> tuple[Canary, list[str]]:
    """The comparison of records in trace files, and the gates that lack a gold set."""
    by, baseline, candidate, max_drop, pipeline, intervals = comparison
    check_inputs(traces, gold)
    settings, gold_sets = settings_and_gold(config, gold)
    check_gold(settings.policy(pipeline), gold_sets)
    uncompared_gates(settings.policy(pipeline))  # before any file is read
    splitter = ReleaseSplitter(ScorerFactory(settings, gold_sets), by, [baseline, candidate], settings.gates())
    run = score(traces, settings, gold_sets, scorer=splitter.scorer)
    scorer, pair = run.scorer, (splitter.release(baseline), splitter.release(candidate))
    policy = policy_of(settings, pipeline, seen=run.pipelines())
    notes = uncompared_gates(policy)
    golds = scorer.gold.infos()
    outcomes = releases.compare(*pair, scorer.table, policy, golds=golds, max_drop=max_drop, intervals=intervals)
    without_gold = [
        outcome.gate.name
        for outcome in outcomes
        if scorer.table.metrics[outcome.gate.metric].needs_gold and not gold_sets
    ]
    return Canary.of(by, baseline, candidate, max_drop, outcomes, [*splitter.notes(), *notes]), without_gold


def _compare_by_monitor(url: str, config: str | None, comparison: _Comparison) -> Canary:
    """The comparison made by a monitor."""
    params = {
        "pipeline": comparison.pipeline or load(config).pipeline,
        "by": comparison.by,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "max_drop": f"{comparison.max_drop:.15g}",
        **({"intervals": "true"} if comparison.intervals else {}),
    }
    return read_back(get_json(url, PATH, params, timeout=COMPARE_TIMEOUT), Canary, "comparison of releases")
