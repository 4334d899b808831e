"""`ragmon compare`: one release against another; the exit code is the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from ragmon.cli.client import get_json
from ragmon.cli.common import (
    check_inputs,
    config_option,
    form_option,
    gold_option,
    output_option,
    score,
    settings_and_gold,
    write,
)
from ragmon.cli.gate import EXIT, check_gold, number, policy_of, warn_missing_gold
from ragmon.config.load import load
from ragmon.core.escaping import printable_line
from ragmon.export import releases as compared
from ragmon.export.releases import Canary
from ragmon.gates import releases as canary
from ragmon.gates.releases import By
from ragmon.monitor.build import ScorerPlan
from ragmon.monitor.offline import ReleaseSplitter

PATH: Final = "/api/compare"
COMPARE_TIMEOUT: Final = 600.0
"""Seconds a monitor has to score the records of a day again."""


class _Question(NamedTuple):
    """What is asked, of files or of a monitor."""

    by: By
    baseline: str
    candidate: str
    max_drop: float
    pipeline: str | None


@click.command()
@click.argument("traces", nargs=-1)
@click.option("--url", metavar="URL", help="The admin port of a monitor, in place of TRACES: it takes its last day.")
@click.option(
    "--by", type=click.Choice(["build", "index_hash"]), required=True, help="What tells the two releases apart."
)
@click.option("--baseline", metavar="NAME", required=True, help="The release that is known.")
@click.option("--candidate", metavar="NAME", required=True, help="The release in question.")
@gold_option
@config_option
@click.option("--pipeline", metavar="NAME", help="Compare on the gates of this pipeline alone.")
@click.option(
    "--max-drop",
    type=click.FloatRange(0, 1, max_open=True),
    callback=number,
    default=0.02,
    show_default=True,
    help="How much worse a gated metric may be.",
)
@form_option
@output_option
@click.pass_context
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
    """Compare the CANDIDATE's records with the baseline's, on the metrics that have gates: in TRACES or in a monitor.

    Gold questions are paired item by item; runs through a gold set are compared when at most 2 % of its items have no
    trace in either. Other requests are two samples: those of a session, else of a question, are one observation
    ([metrics] cluster). Ask as often as you like while traces come in: the verdict stays valid.

    A monitor compares one pipeline with its own gates and gold: that of the config unless --pipeline names another.

    Exit codes: 0 not worse, 1 worse, 2 undecided, 3 bad input or configuration, or no monitor.
    """
    if baseline == candidate:
        raise click.UsageError(f"--baseline and --candidate are the same: {baseline!r}", context)
    _check_source(context)
    question = _Question(by, baseline, candidate, max_drop, pipeline)
    if url is None:
        result, waiting = _of_files(traces, gold, config, question)
    else:
        result, waiting = _of_monitor(url, config, question), []
    if form == "json":
        for note in result.notes:
            click.echo(f"note: {printable_line(note)}", err=True)
    if waiting:
        warn_missing_gold(waiting)
    write(result.text() if form == "text" else result.markdown() if form == "md" else result.json() + "\n", output)
    return EXIT[result.verdict]


def _check_source(context: click.Context) -> None:
    """See that there is one place the records come from.

    Raises:
        click.UsageError: There is none, or there are two.
    """
    url = context.params["url"]
    if url is None and not context.params["traces"]:
        raise click.UsageError("Missing argument 'TRACES...', or a monitor: --url URL", context)
    if url is not None and context.params["traces"]:
        raise click.UsageError("--url asks a monitor and TRACES are read: give one of them", context)
    if url is not None and context.get_parameter_source("gold") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--gold does not go with --url: the monitor has its own", context)


def _of_files(
    traces: Sequence[str], gold: Sequence[str], config: str | None, question: _Question
) -> tuple[Canary, list[str]]:
    """The comparison of what is in trace files, and the gates that wait for a gold set."""
    by, baseline, candidate, max_drop, pipeline = question
    check_inputs(traces, gold)
    settings, sets = settings_and_gold(config, gold)
    policy = policy_of(settings, pipeline)
    check_gold(policy, sets)
    notes = compared.uncompared_gates(policy)
    releases = ReleaseSplitter(ScorerPlan(settings, sets), by, [baseline, candidate], policy.gates)
    scorer = score(traces, settings, sets, follower=releases).scorer
    pair = releases.release(baseline), releases.release(candidate)
    found = canary.compare(*pair, scorer.table, policy, golds=scorer.gold.infos(), max_drop=max_drop)
    waiting = [one.gate.name for one in found if scorer.table.metrics[one.gate.metric].needs_gold and not sets]
    return Canary(by, baseline, candidate, max_drop, found, [*releases.notes(), *notes]), waiting


def _of_monitor(url: str, config: str | None, question: _Question) -> Canary:
    """The comparison a monitor makes."""
    asked = {
        "pipeline": question.pipeline or load(config).pipeline,
        "by": question.by,
        "baseline": question.baseline,
        "candidate": question.candidate,
        "max_drop": f"{question.max_drop:.15g}",
    }
    return compared.load(get_json(url, PATH, asked, timeout=COMPARE_TIMEOUT))
