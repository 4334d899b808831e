"""`ragmon probe`: send gold questions through the live pipeline, once or for ever."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

import click
from click.core import ParameterSource

from ragmon.cli.common import STDIN, config_option, form_option, gold_option, settings_and_gold, writable, write
from ragmon.cli.gate import EXIT, check_gold, policy_of
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_line
from ragmon.core.record import Record
from ragmon.export.markdown import markdown, text
from ragmon.gold import GoldSet
from ragmon.monitor.build import Redactions, ScorerPlan
from ragmon.monitor.probes.client import ProbeCapture, ProbeClient
from ragmon.monitor.probes.plan import ProbeExporter, budget_of, chosen_probes, key_of, probe_exporter, questions
from ragmon.monitor.probes.prober import Prober
from ragmon.monitor.probes.question import THROTTLED, Answered, ProbeCounts
from ragmon.monitor.probes.runner import InOrder, ProbeWorkers, TraceFile, run_round
from ragmon.monitor.replay import Run

_LOOK: Final = 1.0
"""Seconds between two deliveries."""
_TELL: Final = 5.0
"""Seconds between two lines of progress."""


@click.command()
@gold_option
@click.option("--target", "-t", metavar="TARGET", help="module:function, or an http(s) address. Default: [probe.*].")
@config_option
@click.option("--name", metavar="NAME", help="The probe that is meant, where the configuration has several.")
@click.option("--once", "one_round", is_flag=True, help="Send each question once, in order, and end.")
@click.option(
    "--output", "-o", metavar="FILE", callback=writable, help="Write traces here (`-`: stdout) in place of [export]."
)
@click.option("--gate", "judged", is_flag=True, help="Judge the gates on the round; the exit code is the verdict.")
@form_option
@click.pass_context
def probe(
    context: click.Context,
    gold: tuple[str, ...],
    target: str | None,
    config: str | None,
    name: str | None,
    one_round: bool,
    output: str | None,
    judged: bool,
    form: str,
) -> int:
    """Send gold questions through the live pipeline: a function of the application, or an address it answers at.

    Without --once it goes on for ever at the rate the configuration says, and sends what comes back to
    `[export] endpoint`, or writes it to --output.

    Exit codes: 0, 3 bad input or configuration, nobody there to answer; with --gate those of `ragmon gate`.
    """
    _check(context, one_round=one_round, judged=judged, output=output)
    settings, sets = settings_and_gold(config, gold)
    specs = chosen_probes(settings, sets, name=name, target=target)
    if judged:
        check_gold(policy_of(settings, None), sets)
    redact = Redactions(settings)
    with ExitStack() as stack:
        if not one_round:
            return _for_ever(settings, sets, specs, stack.enter_context(probe_exporter(settings, redact, output)))
        lines = stack.enter_context(TraceFile(output)) if output or not judged else None
        found = _round(settings, sets, specs, redact, lines)
    return _judge(settings, sets, found, form) if judged else 0


def _check(context: click.Context, *, one_round: bool, judged: bool, output: str | None) -> None:
    """Refuse what cannot be meant.

    Raises:
        click.UsageError: There is such a thing.
    """
    if judged and not one_round:
        raise click.UsageError("--gate judges one round: add --once", context)
    if judged and output == STDIN:
        raise click.UsageError("--output - and --gate both write to stdout: name a file", context)
    if not judged and context.get_parameter_source("form") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--format does nothing without --gate", context)


def _gold_of(spec: ProbeSpec, sets: Sequence[GoldSet]) -> GoldSet:
    return next(gold for gold in sets if gold.name == spec.gold)


@contextmanager
def _capture(settings: Settings) -> Iterator[ProbeCapture]:
    capture = ProbeCapture(settings)
    try:
        yield capture
    finally:
        capture.close()


def _round(
    settings: Settings, sets: Sequence[GoldSet], specs: Sequence[ProbeSpec], redact: Redactions, lines: TraceFile | None
) -> list[Record]:
    """Send every question of every probe once; returns the records as they are written.

    Raises:
        RagmonError: Nobody is there to answer, or questions were left over.
    """
    found: list[Record] = []

    def keep(record: Record) -> None:
        found.append(redact(record))
        if lines is not None:
            lines.submit(found[-1])

    with _capture(settings) as capture:
        for spec in specs:
            client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))
            with closing(client):
                _send_once(spec, _gold_of(spec, sets), client, InOrder(keep))
    return found


def _send_once(spec: ProbeSpec, gold: GoldSet, client: ProbeClient, ordered: InOrder) -> None:
    asked = questions(gold)
    _say(spec, f"{len(asked)} questions of {gold.name} to {spec.asks}")
    counts, told, first = ProbeCounts(), monotonic(), True
    for answered in run_round(ProbeWorkers(client, spec.concurrency), asked):
        if first and answered.unreachable:
            raise _nobody(spec, answered)
        first = False
        counts.add(spec.name, answered.result)
        if answered.result != THROTTLED:
            ordered.put(answered.question.place, answered.record)
        if monotonic() >= told + _TELL:
            told = monotonic()
            _say(spec, f"{ordered.placed} of {len(asked)}")
    ordered.close()
    results = ", ".join(f"{n} {result}" for (_, result), n in sorted(counts.read().items()))
    _say(spec, f"{ordered.placed} of {len(asked)} answered for: {results}")
    if ordered.placed < len(asked):
        hint = f"{spec.concurrency} calls do not return: find out why, or ask over HTTP, where a request can be ended"
        raise RagmonError(f"{len(asked) - ordered.placed} questions could not be sent", hint=hint)


def _say(spec: ProbeSpec, what: str) -> None:
    click.echo(printable_line(f"probe {spec.name}: {what}"), err=True)


def _nobody(spec: ProbeSpec, answered: Answered) -> RagmonError:
    hint = "is the application running? --target, or [probe.NAME] target, is its address"
    return RagmonError(f"nobody answers at {spec.asks}: {answered.unreachable}", hint=hint)


def _judge(settings: Settings, sets: tuple[GoldSet, ...], found: Sequence[Record], form: str) -> int:
    """Judge the gates on a round, as `ragmon gate` would judge its file."""
    run = Run(ScorerPlan(settings, sets)())
    run.feed(found)
    report = run.report(policy_of(settings, None), questions=False)
    write(text(report) if form == "text" else markdown(report) if form == "md" else report.json() + "\n", None)
    return EXIT[report.verdict]


def _for_ever(settings: Settings, sets: Sequence[GoldSet], specs: Sequence[ProbeSpec], out: ProbeExporter) -> int:
    """Send questions until a signal ends it."""
    heard: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: heard.put(number))
    counts, probers = ProbeCounts(), list[Prober]()
    with _capture(settings) as capture:
        for spec in specs:
            client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))
            budget = budget_of(settings, spec)
            asked = questions(_gold_of(spec, sets))
            probers.append(Prober(spec, asked, client, out.put, counts=counts, budget=budget))
        for prober in probers:
            prober.start()
            _say(prober.spec, f"asks {prober.spec.asks}, a question every {prober.interval:.3g} s")
        while _next(heard) is None:
            out.deliver()
        for prober in probers:
            prober.stop()
    out.deliver(everything=True)
    for (name, result), n in sorted(counts.read().items()):
        click.echo(printable_line(f"probe {name}: {n} {result}"), err=True)
    for reason, n in sorted(out.lost.items()):
        click.echo(f"{n} records could not be sent ({reason})", err=True)
    return 0


def _next(heard: SimpleQueue[int]) -> int | None:
    try:
        return heard.get(timeout=_LOOK)
    except Empty:
        return None
