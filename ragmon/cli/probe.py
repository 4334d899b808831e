"""`ragmon probe`: send gold questions through the live pipeline, once or until it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

import click
from click.core import ParameterSource

from ragmon.cli.commands import STDIN
from ragmon.cli.common import settings_and_gold, write
from ragmon.cli.gate import EXIT, check_gold, policy_of
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError, printable_line
from ragmon.core.record import Record
from ragmon.export.text import render_gates, text
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.probe_client import THROTTLED, ProbeCapture, ProbeClient, ProbeCounts, ProbeResult
from ragmon.server.probes import (
    ProbeExporter,
    Prober,
    ProbeWorkers,
    RecordSorter,
    TraceFile,
    chosen_probes,
    key_of,
    probe_exporter,
    questions,
    quota_of,
    run_round,
)

_DELIVERY_INTERVAL: Final = 1.0
"""Seconds between two deliveries of records."""
_PROGRESS_INTERVAL: Final = 5.0
"""Seconds between two progress lines."""


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
    """Send gold questions through the live pipeline: a function of the application, or an address it answers at."""
    _check_options(context, one_round=one_round, judged=judged, output=output)
    settings, gold_sets = settings_and_gold(config, gold)
    specs = chosen_probes(settings, gold_sets, name=name, target=target)
    if judged:
        check_gold(policy_of(settings, None), gold_sets)
    redactions = Redactions(settings)
    with ExitStack() as stack:
        if not one_round:
            return _run_until_signal(
                settings, gold_sets, specs, stack.enter_context(probe_exporter(settings, redactions, output))
            )
        trace_file = stack.enter_context(TraceFile(output)) if output or not judged else None
        records = _run_round(settings, gold_sets, specs, redactions, trace_file)
    return _evaluate_gates(settings, gold_sets, records, form) if judged else 0


def _check_options(context: click.Context, *, one_round: bool, judged: bool, output: str | None) -> None:
    """Reject combinations of options that make no sense.

    Raises:
        click.UsageError: The options are such a combination.
    """
    if judged and not one_round:
        raise click.UsageError("--gate judges one round: add --once", context)
    if judged and output == STDIN:
        raise click.UsageError("--output - and --gate both write to stdout: name a file", context)
    if not judged and context.get_parameter_source("form") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--format does nothing without --gate", context)


def _gold_of(spec: ProbeSpec, gold_sets: Sequence[GoldSet]) -> GoldSet:
    return next(gold for gold in gold_sets if gold.name == spec.gold)


@contextmanager
def _capture(settings: Settings) -> Iterator[ProbeCapture]:
    capture = ProbeCapture(settings)
    try:
        yield capture
    finally:
        capture.close()


def _run_round(
    settings: Settings,
    gold_sets: Sequence[GoldSet],
    specs: Sequence[ProbeSpec],
    redactions: Redactions,
    trace_file: TraceFile | None,
) -> list[Record]:
    """Send every question of every probe once; return the redacted records.

    Raises:
        RagmonError: The application does not respond, or some questions could not be sent.
    """
    records: list[Record] = []

    def keep(record: Record) -> None:
        records.append(redactions(record))
        if trace_file is not None:
            trace_file.submit(records[-1])

    with _capture(settings) as capture:
        for spec in specs:
            client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))
            with closing(client):
                _send_once(spec, _gold_of(spec, gold_sets), client, RecordSorter(keep))
    return records


def _send_once(spec: ProbeSpec, gold: GoldSet, client: ProbeClient, ordered: RecordSorter) -> None:
    gold_questions = questions(gold)
    _print_progress(spec, f"{len(gold_questions)} questions of {gold.name} to {spec.asks}")
    counts, last_progress, is_first = ProbeCounts(), monotonic(), True
    for answered in run_round(ProbeWorkers(client, spec.concurrency), gold_questions):
        if is_first and answered.unreachable:
            raise _unreachable(spec, answered)
        is_first = False
        counts.add(spec.name, answered.result)
        if answered.result != THROTTLED:
            ordered.put(answered.question.place, answered.record)
        if monotonic() >= last_progress + _PROGRESS_INTERVAL:
            last_progress = monotonic()
            _print_progress(spec, f"{ordered.placed} of {len(gold_questions)}")
    ordered.close()
    results = ", ".join(f"{n} {result}" for (_, result), n in sorted(counts.read().items()))
    _print_progress(spec, f"{ordered.placed} of {len(gold_questions)} answered for: {results}")
    if ordered.placed < len(gold_questions):
        hint = f"{spec.concurrency} calls do not return: find out why, or ask over HTTP, where a request can be ended"
        raise RagmonError(f"{len(gold_questions) - ordered.placed} questions could not be sent", hint=hint)


def _print_progress(spec: ProbeSpec, text: str) -> None:
    click.echo(printable_line(f"probe {spec.name}: {text}"), err=True)


def _unreachable(spec: ProbeSpec, answered: ProbeResult) -> RagmonError:
    hint = "is the application running? --target, or [probe.NAME] target, is its address"
    return RagmonError(f"nobody answers at {spec.asks}: {answered.unreachable}", hint=hint)


def _evaluate_gates(settings: Settings, gold_sets: tuple[GoldSet, ...], records: Sequence[Record], form: str) -> int:
    """Evaluate the gates on a round, as `ragmon gate` does on the file of the round."""
    run = Run(ScorerFactory(settings, gold_sets)())
    run.feed(records)
    report = run.report(policy_of(settings, None, seen=run.pipelines()), questions=False)
    write(text(report) if form == "text" else render_gates(report) if form == "md" else report.json() + "\n", None)
    return EXIT[report.verdict]


def _run_until_signal(
    settings: Settings, gold_sets: Sequence[GoldSet], specs: Sequence[ProbeSpec], exporter: ProbeExporter
) -> int:
    """Send questions until a signal stops the command."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    counts, probers = ProbeCounts(), list[Prober]()
    with _capture(settings) as capture:
        for spec in specs:
            client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))
            quota = quota_of(settings, spec)
            gold_questions = questions(_gold_of(spec, gold_sets))
            probers.append(Prober(spec, gold_questions, client, exporter.put, counts=counts, quota=quota))
        for prober in probers:
            prober.start()
            _print_progress(prober.spec, f"asks {prober.spec.asks}, a question every {prober.interval:.3g} s")
        while _next_signal(signals) is None:
            exporter.deliver()
        for prober in probers:
            prober.stop()
    exporter.deliver(everything=True)
    for (name, result), n in sorted(counts.read().items()):
        click.echo(printable_line(f"probe {name}: {n} {result}"), err=True)
    for reason, n in sorted(exporter.lost.items()):
        click.echo(f"{n} records could not be sent ({reason})", err=True)
    return 0


def _next_signal(signals: SimpleQueue[int]) -> int | None:
    try:
        return signals.get(timeout=_DELIVERY_INTERVAL)
    except Empty:
        return None
