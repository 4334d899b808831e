"""The demo from start to end: traffic, monitor, incident, verdict; a live table on a terminal, else plain lines."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.http_client import Address
from ragmon.core.policy import Outcome
from ragmon.demo.answerer import Application
from ragmon.demo.load import INCIDENTS, Load
from ragmon.demo.pacing import Pacing
from ragmon.export.schema import gate_summary
from ragmon.export.text import bounds_text, value
from ragmon.metrics.base import parse
from ragmon.monitor import install
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation

WIDE: Final = 80
"""Columns of a terminal that fits all columns of the table."""
_STYLES: Final = {"pass": "bold green", "fail": "bold white on red", "insufficient": "yellow"}


class Screen(Protocol):
    """An output that shows the current gates."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Show the gates at this second of the run."""

    def say(self, text: str) -> None:
        """Print a line that stays on the screen."""


def open_screen(console: Console) -> Screen:
    """A live table on a terminal that can move its cursor, else plain lines; FORCE_COLOR has no effect on this."""
    return LiveScreen(console) if console.file.isatty() and not console.is_dumb_terminal else PlainScreen(console)


class LiveScreen:
    """A table that is redrawn on every update."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Draw the table."""
        wide = self._live.console.width >= WIDE
        self._live.update(Group(Text(f"\n{seconds:4.0f} s  {headline}"), table(outcomes, wide=wide)), refresh=True)

    def say(self, text: str) -> None:
        """Print above the table."""
        self._live.console.print(text, highlight=False, markup=False)


class PlainScreen:
    """One line per gate: name, value and verdict; all gates every ten seconds, and a gate whose verdict changes."""

    EVERY: Final = 10.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._headline = ""
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Print the lines that are due."""
        due = seconds >= self._due or headline != self._headline
        if due:
            self._due, self._headline = seconds + self.EVERY, headline
            self.say(f"-- {seconds:.0f} s  {headline}")
        for outcome in outcomes:
            name = outcome.gate.name
            if due or self._verdicts.get(name) != outcome.verdict:
                self.say(f"{name} {value(gate_summary(outcome))} {outcome.verdict}")
            self._verdicts[name] = outcome.verdict

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def table(outcomes: Sequence[Outcome], *, wide: bool = True) -> Table:
    """The gates with value and verdict.

    Args:
        outcomes: The gates.
        wide: Add the columns of interval, threshold, n and source.
    """
    rendered = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    rendered.add_column("gate", no_wrap=True)
    rendered.add_column("value", justify="right", no_wrap=True)
    if wide:
        for column in ("95 % interval", "needs", "n", "source"):
            rendered.add_column(column, justify="left" if column == "source" else "right", no_wrap=True)
    rendered.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        details = (bounds_text(outcome.lower, outcome.upper), needs(outcome), str(outcome.n), outcome.source)
        verdict = Text(outcome.verdict, style=_STYLES[outcome.verdict])
        rendered.add_row(outcome.gate.name, value(gate_summary(outcome)), *(details if wide else ()), verdict)
    return rendered


def needs(outcome: Outcome) -> str:
    """The direction and the threshold of the gate."""
    return f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}"


_FRAME_SECONDS: Final = 0.5
CONFIG: Final = Path(str(resources.files(__package__))) / "ragmon.toml"


@dataclass
class RunEvents:
    """The events of a run; times are seconds from its start, without pauses of the machine.

    Attributes:
        seconds: The planned duration.
        incident: The incident half-way through.
        broken: When the incident started; None before that.
        reds: When each gate failed first, by its name.
        pages: When each alarm paged first, by its name.
        interrupted: Whether the user pressed Ctrl-C.
    """

    seconds: float
    incident: str
    broken: float | None = None
    reds: dict[str, float] = field(default_factory=dict)
    pages: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


def run(seconds: float, incident: str, *, address: str, console: Console) -> bool:
    """Run the demo.

    Args:
        seconds: The duration.
        incident: The fault that is injected half-way (`ragmon.demo.load.INCIDENTS`).
        address: The address of `/metrics`, `host:port`; port 0 for any free port.
        console: The console for all output.

    Returns:
        Whether it ran to its end; False after Ctrl-C.

    Raises:
        RagmonError: The address is in use.
    """
    application = Application()
    log = Path(tempfile.mkdtemp(prefix="ragmon-demo-")) / "trace.jsonl"
    story = RunEvents(seconds, incident)
    alarm_log = logging.getLogger(constants.ALARM_LOG)
    with ExitStack() as stack:
        stack.callback(alarm_log.setLevel, alarm_log.level)
        alarm_log.setLevel(logging.CRITICAL)  # the screen shows the alarms
        installed, monitor = _install(log, address)
        stack.callback(installed.shutdown)
        traffic = Load(application)
        screen = stack.enter_context(open_screen(console))
        _print_introduction(screen, monitor, story)
        pacing = Pacing(seconds, lambda: installed.counters().received)
        traffic.start()
        stack.callback(traffic.stop)
        try:
            _run_loop(screen, monitor, application, story, pacing)
        except KeyboardInterrupt:
            story.interrupted = True
        verdict = _verdict(story, pacing)
    for line in [*verdict, *_summary(installed, monitor, log)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return not story.interrupted


def _install(log: Path, address: str) -> tuple[Installation, Monitor]:
    """Start capture and the monitor."""
    try:
        installed = install.install(settings(log, address), strict=True)
    except RagmonError as error:
        shutil.rmtree(log.parent)
        hint = error.hint if address.endswith(":0") else "give another --port, or none"
        raise RagmonError(str(error), hint=hint) from error
    assert installed.monitor is not None  # noqa: S101 - no sink was given
    return installed, installed.monitor


def settings(log: Path, address: str) -> Settings:
    """The demo's configuration with the given trace log and address; the environment is ignored."""
    loaded = load(CONFIG, environ={})
    host, _, port = address.rpartition(":")
    return replace(
        loaded,
        export=loaded.export.model_copy(update={"jsonl": log}),
        serve=loaded.serve.model_copy(update={"admin": Address(host, int(port))}),
    )


def _print_introduction(screen: Screen, monitor: Monitor, story: RunEvents) -> None:
    """Explain the demo in three lines."""
    screen.say("A small RAG pipeline answers users, and probes: questions whose answers are known.")
    screen.say("ragmon captures every call, scores it and judges the gates, live.")
    screen.say(f"In {story.seconds / 2:g} s {story.incident} breaks it. Metrics: http://{monitor.address}/metrics")


def _run_loop(screen: Screen, monitor: Monitor, application: Application, story: RunEvents, pacing: Pacing) -> None:
    """Show the gates until the end of the run, and break the pipeline half-way."""
    tick, waits = Event(), False
    while not tick.wait(_FRAME_SECONDS):
        if pause := pacing.advance():
            screen.say(f"{pacing.now:.1f} s  PAUSE this machine paused for {pause}; the run goes on as much longer")
        outcomes = monitor.outcomes()
        _note_events(screen, monitor, story, outcomes, pacing.now)
        if story.broken is None and pacing.is_over(decided=all(one.verdict != "insufficient" for one in outcomes)):
            _break(screen, application, story, pacing)
            waits = False
        elif story.broken is not None and pacing.is_over(decided=bool(story.reds)):
            break
        elif pacing.is_due and not waits:
            waits = True
            counted = f"{pacing.calls:,} calls of about {pacing.expected_calls:,}"
            screen.say(f"{pacing.now:.1f} s  WAITING for traffic: {counted}; this machine is busy")
        screen.show(pacing.now, "healthy" if story.broken is None else f"broken: {story.incident}", outcomes)
    screen.show(pacing.now, "end", monitor.outcomes())


def _break(screen: Screen, application: Application, story: RunEvents, pacing: Pacing) -> None:
    """Let the incident happen."""
    incident = INCIDENTS[story.incident]
    incident(application.pipeline)
    pacing.begin_second_half()
    story.broken = pacing.now
    screen.say(f"{pacing.now:.1f} s  INCIDENT {story.incident}: {_first_line(incident)}")


def _note_events(screen: Screen, monitor: Monitor, story: RunEvents, outcomes: Sequence[Outcome], now: float) -> None:
    """Print, once each, which gates fail and which alarms page."""
    for outcome in outcomes:
        if outcome.verdict == "fail" and outcome.gate.name not in story.reds:
            story.reds[outcome.gate.name] = now
            screen.say(_failed_gate_line(now, outcome))
    for edge in monitor.transitions():
        if (edge.severity, edge.state) == (constants.PAGE, "firing") and edge.alert not in story.pages:
            story.pages[edge.alert] = now
            screen.say(f"{now:.1f} s  PAGE {edge.alert}: a whole minute of proof, within the budget of false alarms")


def _failed_gate_line(now: float, outcome: Outcome) -> str:
    """The line for a failed gate: name, value, interval, threshold, and the meaning of its metric."""
    interval = "" if outcome.lower is None else f" (95 % interval {bounds_text(outcome.lower, outcome.upper)})"
    headline = f"{now:.1f} s  RED {outcome.gate.name}: {value(gate_summary(outcome))}{interval}, needs {needs(outcome)}"
    is_share = outcome.gate.kind == "threshold"
    return f"{headline}: {_first_line(parse(outcome.gate.metric)) if is_share else outcome.reason}"


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def _verdict(story: RunEvents, pacing: Pacing) -> list[str]:
    """The gates that the incident turned red, and what kept the machine from showing it."""
    if story.broken is None:
        lines = ["", "Stopped before the incident."]
    else:
        reds = [f"{name} after {seconds - story.broken:.1f} s" for name, seconds in story.reds.items()]
        lines = ["", f"{story.incident} at {story.broken:.1f} s turned red: {', '.join(reds) or 'no gate'}."]
        if not (reds or pacing.has_enough_calls or story.interrupted):
            counted = f"{pacing.calls:,} calls, where about {pacing.expected_calls:,} were planned"
            lines.append(f"The incident had too little traffic: {counted}. Try again when this machine is less busy.")
    if pacing.pauses:
        lines.append(f"This machine paused for {', for '.join(map(str, pacing.pauses))}.")
    return lines


def _summary(installed: Installation, monitor: Monitor, log: Path) -> list[str]:
    """The counts, the path of the trace log, and commands to try next."""
    counters = installed.counters()
    config = str(CONFIG)
    return [
        f"{counters.received} calls captured, {counters.scored} scored, {sum(counters.dropped.values())} lost.",
        f"digest {monitor.digest()[:16]}",
        f"Trace log: {log}",
        "The same counts from the log, hence the same digest:",
        f"  {_command('replay', str(log), '--config', config, '--format', 'md', '--questions', '0')}",
        "The same gates on the whole log, as CI would judge it (exit code 1 is a failed gate):",
        f"  {_command('gate', str(log), '--config', config)}",
    ]


def _command(*arguments: str) -> str:
    """A command line for the ragmon that is running, as the user can type it."""
    script = Path(sys.executable).with_name("ragmon")
    on_path = shutil.which("ragmon")
    if on_path is not None and script.exists() and Path(on_path).samefile(script):
        program = ["ragmon"]
    elif script.exists():
        program = [os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)]
    else:
        program = [sys.executable, "-m", "ragmon"]
    return shlex.join([*program, *arguments])
