"""`ragmon compare`: one release against another; the exit code is the verdict."""

from __future__ import annotations

import click

from ragmon import canary
from ragmon.assembly import ScorerPlan
from ragmon.canary import By
from ragmon.cli import printable
from ragmon.cli.gate import EXIT, check_gold, number, policy_of, tell_missing_gold
from ragmon.cli.runs import (
    check_inputs,
    config_option,
    form_option,
    gold_option,
    output_option,
    score,
    settings_and_gold,
    traces_argument,
    write,
)
from ragmon.errors import RagmonError
from ragmon.export.canary import Canary
from ragmon.gates import Policy
from ragmon.releasing import Releases


@click.command()
@traces_argument
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
    """Compare the CANDIDATE's records in TRACES with the baseline's, on the metrics that have gates.

    Gold questions are paired item by item; runs through a gold set are compared when at most 2 % of its items have no
    trace in either. Other requests are two samples: those of a session, else of a question, are one observation
    ([metrics] cluster). Ask as often as you like while traces come in: the verdict stays valid.

    Exit codes: 0 not worse, 1 worse, 2 undecided, 3 bad input or configuration.
    """
    if baseline == candidate:
        raise click.UsageError(f"--baseline and --candidate are the same: {baseline!r}", context)
    check_inputs(traces, gold)
    settings, sets = settings_and_gold(config, gold)
    policy = policy_of(settings, pipeline)
    check_gold(policy, sets)
    notes = _left_out(policy)
    releases = Releases(ScorerPlan(settings, sets), by, [baseline, candidate], policy.gates)
    scorer = score(traces, settings, sets, follower=releases).scorer
    pair = releases.release(baseline), releases.release(candidate)
    found = canary.compare(*pair, scorer.table, policy, golds=scorer.gold.infos(), max_drop=max_drop)
    result = Canary(by, baseline, candidate, max_drop, found, [*releases.notes(), *notes])
    if form == "json":
        for note in result.notes:
            click.echo(f"note: {printable(note)}", err=True)
    waiting = [one.gate.name for one in found if scorer.table.metrics[one.gate.metric].needs_gold]
    if waiting and not sets:
        tell_missing_gold(waiting)
    write(result.text() if form == "text" else result.markdown() if form == "md" else result.json() + "\n", output)
    return EXIT[result.verdict]


def _left_out(policy: Policy) -> list[str]:
    """What is said of gates that compare something else than a mean.

    Raises:
        RagmonError: There are no others.
    """
    others = [gate.name for gate in policy.gates if gate.kind != "threshold"]
    if len(others) == len(policy.gates):
        raise RagmonError("no gate has a metric to compare", hint='[gates] preset = "default", or a gate of your own')
    return [f"not compared: {', '.join(others)}"] if others else []
