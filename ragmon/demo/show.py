"""The demo from start to end: traffic, incident, red gates, summary; a live table on a terminal, else plain lines."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.http_client import Address
from ragmon.core.policy import Outcome
from ragmon.demo.answerer import Application, RagPipeline
from ragmon.demo.load import INCIDENTS, PLANNED_RATE, Load
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
    """One line per gate, its name, value and verdict: all gates under a new headline, then those that change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._headline = ""
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Print the lines that have changed."""
        if headline != self._headline:
            self._headline, self._verdicts = headline, {}
            self.say(f"-- {seconds:.0f} s  {headline}")
        for outcome in outcomes:
            name = outcome.gate.name
            if self._verdicts.get(name) != outcome.verdict:
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


HEALTHY: Final = 15.0
"""Seconds of healthy traffic before the incident; longer until every gate has passed."""
PATIENCE: Final = 60.0
"""Seconds after which a busy machine is waited for no longer: before the incident, and after it for a red gate."""
_FRAME: Final = 0.5
"""Seconds between two looks at the gates."""
CONFIG: Final = Path(str(resources.files(__package__))) / "ragmon.toml"


class Story:
    """A run: healthy traffic, an incident, red gates. Times are seconds since its start.

    Args:
        screen: Where it is told.
        monitor: The monitor of the application.
        pipeline: The pipeline that the incident breaks.
        incident: The fault (`ragmon.demo.load.INCIDENTS`).
    """

    def __init__(self, screen: Screen, monitor: Monitor, pipeline: RagPipeline, incident: str) -> None:
        self._screen = screen
        self._monitor = monitor
        self._pipeline = pipeline
        self._incident = incident
        self._began = monotonic()
        self._broken: float | None = None
        self._reds: dict[str, float] = {}
        self._pages: set[str] = set()

    def introduce(self) -> None:
        """Say what there is to see, in four lines."""
        self._screen.say("A small RAG pipeline answers users, and probes: questions whose answers are known.")
        self._screen.say("ragmon captures every call, scores it and judges the gates, live.")
        traffic = (
            f"{PLANNED_RATE:g} questions a second, and gates over the last {self._monitor.settings.gates()[0].window}"
        )
        self._screen.say(f"Seconds show what else takes minutes: {traffic}.")
        self._screen.say(f"Page: http://{self._monitor.address}/  Ctrl-C ends the demo.")

    def go_on(self) -> None:
        """Show the gates, say what has turned red, and let the incident happen when all gates have passed."""
        now = monotonic() - self._began
        outcomes = self._monitor.outcomes()
        has_passed = all(outcome.verdict == "pass" for outcome in outcomes)
        if self._broken is None and now >= HEALTHY and (has_passed or now >= PATIENCE):
            incident = INCIDENTS[self._incident]
            incident(self._pipeline)
            self._broken = now
            self._screen.say(f"{now:.1f} s  INCIDENT {self._incident}: {_first_line(incident)}")
        for outcome in outcomes:
            if outcome.verdict == "fail" and outcome.gate.name not in self._reds:
                self._reds[outcome.gate.name] = now
                self._screen.say(f"{now:.1f} s  RED {_failed(outcome)}")
        for edge in self._monitor.transitions():
            if (edge.severity, edge.state) == (constants.PAGE, "firing") and edge.alert not in self._pages:
                self._pages.add(edge.alert)
                self._screen.say(f"{now:.1f} s  PAGE {edge.alert}: proven to the budget of false alarms")
        headline = "healthy" if self._broken is None else f"broken by {self._incident}, Ctrl-C ends it"
        self._screen.show(now, headline, outcomes)

    def is_over(self, seconds: float) -> bool:
        """Whether it has lasted so many seconds, and has shown a red gate or waited for one."""
        now = monotonic() - self._began
        return now >= seconds and self._broken is not None and (bool(self._reds) or now >= self._broken + PATIENCE)

    def verdict(self) -> str:
        """What the incident turned red, and when."""
        if self._broken is None:
            return "Stopped before the incident."
        reds = [f"{name} after {seconds - self._broken:.1f} s" for name, seconds in self._reds.items()]
        found = ", ".join(reds) or "no gate. Try again when this machine is less busy"
        return f"{self._incident} at {self._broken:.1f} s turned red: {found}."


def _failed(outcome: Outcome) -> str:
    """A failed gate: name, value, interval, threshold, and what is broken."""
    interval = "" if outcome.lower is None else f" (95 % interval {bounds_text(outcome.lower, outcome.upper)})"
    is_share = outcome.gate.kind == "threshold"
    broken = _first_line(parse(outcome.gate.metric)) if is_share else outcome.reason
    return f"{outcome.gate.name}: {value(gate_summary(outcome))}{interval}, needs {needs(outcome)}: {broken}"


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def run(seconds: float, incident: str, *, port: int | None, console: Console) -> None:
    """Run the demo until Ctrl-C.

    Args:
        seconds: How long at most; it goes on until a gate is red, or a busy machine has been waited for.
        incident: The fault that is injected (`ragmon.demo.load.INCIDENTS`).
        port: The port of the page and of `/metrics`, 0 for any free one; None for ragmon's own, or any if it is taken.
        console: The console for all output.

    Raises:
        RagmonError: The port is in use.
    """
    application = Application()
    log = Path(tempfile.mkdtemp(prefix="ragmon-demo-")) / "trace.jsonl"
    alarm_log = logging.getLogger(constants.ALARM_LOG)
    with ExitStack() as stack:
        stack.callback(alarm_log.setLevel, alarm_log.level)
        alarm_log.setLevel(logging.CRITICAL)  # the screen shows the alarms
        installed, monitor = _install(log, port)
        stack.callback(installed.shutdown)
        screen = stack.enter_context(open_screen(console))
        story = Story(screen, monitor, application.pipeline, incident)
        story.introduce()
        traffic = Load(application)
        traffic.start()
        stack.callback(traffic.stop)
        frame = Event()
        with suppress(KeyboardInterrupt):
            while not story.is_over(seconds):
                story.go_on()
                frame.wait(_FRAME)
    for line in ["", story.verdict(), *_summary(installed, monitor, log)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _install(log: Path, port: int | None) -> tuple[Installation, Monitor]:
    """Start capture and the monitor, with the demo's configuration; the environment is ignored."""
    loaded = load(CONFIG, environ={})
    admin = loaded.serve.admin
    if port is None:
        try:
            socket.create_server((admin.host, admin.port)).close()
        except OSError:
            port = 0
    settings = replace(
        loaded,
        export=loaded.export.model_copy(update={"jsonl": log}),
        serve=loaded.serve.model_copy(update={"admin": Address(admin.host, admin.port if port is None else port)}),
    )
    try:
        installed = install.install(settings, strict=True)
    except RagmonError as error:
        shutil.rmtree(log.parent)
        raise RagmonError(str(error), hint="give another --port, or none") from error
    assert installed.monitor is not None  # noqa: S101 - no sink was given
    return installed, installed.monitor


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
