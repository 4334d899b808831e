"""`ragmon doctor`: check gold, baselines and every link of the chain to `/metrics`; show what alarms can detect.

    a call -> capture -> exporter -> (collector) -> `ragmon serve` -> journal -> scored -> `/metrics`

The links up to the exporter are checked in this process. If records are exported to a server, one trial record is sent
there and looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from ragmon.alarms.plan import Detectability, duration
from ragmon.cli.commands import WAIT
from ragmon.cli.doctor.captured import running_monitor
from ragmon.cli.doctor.chain import chain_checks, local_quarantine
from ragmon.cli.doctor.local import RATES, Check, Instrumentation, detectability, instrumentations, local_checks, probes
from ragmon.cli.doctor.stream import stream_checks
from ragmon.config.load import check, load
from ragmon.config.settings import Settings
from ragmon.core.errors import printable_line
from ragmon.export.text import text_table

__all__ = ["RATES", "WAIT", "Check", "Instrumentation", "checks", "detectability", "instrumentations"]


def checks(settings: Settings, *, admin: str | None = None, wait: float = WAIT) -> Iterator[Check]:
    """Check everything a monitor needs, in the order in which a record passes it.

    Args:
        settings: The configuration, without problems.
        admin: The address of the server's admin port; None for the one of the configuration.
        wait: Seconds within which the trial record must arrive.
    """
    yield from local_checks(settings)
    yield from probes(settings)
    yield from stream_checks(settings)
    if settings.export.endpoint is None:
        yield from local_quarantine(settings)
    if settings.export.endpoint is not None:
        yield from chain_checks(settings, admin or f"http://{settings.serve.admin}", wait)
    else:
        yield Check(
            "server", ok=True, finding="not tried: there is no `[export] endpoint`, records stay in this process"
        )
        yield from running_monitor(admin or f"http://{settings.serve.admin}")


def doctor(context: click.Context, config: str | None, rate: float | None, admin_url: str | None, wait: float) -> None:
    """Try the chain from a call to /metrics, and say what the alarms can find in what time."""
    problems = check(config)
    for problem in problems:
        click.echo(f"config    bad   {printable_line(str(problem))}")
    if problems:
        context.exit(1)
    settings = load(config)
    click.echo(f"config    ok    {settings.path or 'no ragmon.toml, the defaults hold'}")
    bad = False
    for result in checks(settings, admin=admin_url, wait=wait):
        bad |= not result.ok
        click.echo(f"{result.name:<9} {'ok ' if result.ok else 'bad'}   {printable_line(result.finding)}")
        if result.hint:
            click.echo(f"{'':15} hint: {printable_line(result.hint)}")
    _print_instrumentations(settings)
    _print_detectability(settings, RATES if rate is None else (rate,))
    context.exit(1 if bad else 0)


def _print_instrumentations(settings: Settings) -> None:
    """Print what is lost from the spans of other instrumentations."""
    installed = instrumentations(settings)
    if installed:
        click.echo("\nInstrumentations that are installed here, and what is lost of their spans:")
    for instrumentation in installed:
        click.echo(
            f"{instrumentation.name}: {printable_line(instrumentation.loss or instrumentation.note or 'nothing')}"
        )
        if instrumentation.packages:
            click.echo(f"{'':6}{printable_line(', '.join(instrumentation.packages))}")
        if instrumentation.hint:
            click.echo(f"{'':6}hint: {printable_line(instrumentation.hint)}")


def _print_detectability(settings: Settings, rates: Sequence[float]) -> None:
    """Print how soon alarms detect a change: a line per gate, a column per rate."""
    columns = [detectability(settings, rate) for rate in rates]
    if not columns[0]:
        return
    click.echo("\nHow long a change takes to raise an alarm, by observations a minute:")
    rows = [("gate", "holds", "goes to", *(f"{rate:g}/min" for rate in rates))]
    for row_number, detectable in enumerate(columns[0]):
        gate = detectable.gate
        name = gate.name if len(settings.expected_pipelines) == 1 else f"{gate.pipeline}/{gate.name}"
        holds = f"{'>=' if gate.at_least else '<='} {gate.threshold:g}"
        rows.append((name, holds, f"{detectable.at:g}", *(_time_to_alarm(column[row_number]) for column in columns)))
    click.echo("\n".join(text_table(rows)))


def _time_to_alarm(detectable: Detectability) -> str:
    return "never" if detectable.minutes is None else duration(detectable.minutes)
