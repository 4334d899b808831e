"""What the demo shows: a live table on a terminal, plain lines anywhere else.

The demo from start to end: traffic, monitor, incident, verdict.
"""

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
from time import monotonic
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.types import Address
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.policy import Outcome
from ragmon.demo.answerer import Application
from ragmon.demo.load import INCIDENTS, Load
from ragmon.export.markdown import between, value
from ragmon.metrics.base import parse
from ragmon.monitor import install
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation

WIDE: Final = 80
"""Columns of a terminal that holds the whole table."""
_STYLES: Final = {"pass": "bold green", "fail": "bold white on red", "insufficient": "yellow"}


class Screen(Protocol):
    """Shows the gates as they are now."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Show the gates at a moment."""

    def say(self, text: str) -> None:
        """Say something that stays on screen."""


def open_screen(console: Console) -> Screen:
    """A live table on a terminal that can move its cursor, else plain lines; whatever FORCE_COLOR says of colours."""
    return LiveScreen(console) if console.file.isatty() and not console.is_dumb_terminal else PlainScreen(console)


class LiveScreen:
    """A table that is drawn anew every time."""

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
    """One line a gate: its name, value and verdict; only now and then, and whenever something changes."""

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
                self.say(f"{name} {value(outcome)} {outcome.verdict}")
            self._verdicts[name] = outcome.verdict

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def table(outcomes: Sequence[Outcome], *, wide: bool = True) -> Table:
    """The gates with value and verdict.

    Args:
        outcomes: The gates.
        wide: There is room for source, interval, threshold and n as well.
    """
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("gate", no_wrap=True)
    shown.add_column("value", justify="right", no_wrap=True)
    if wide:
        for column in ("95 % interval", "needs", "n", "source"):
            shown.add_column(column, justify="left" if column == "source" else "right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        details = (between(outcome), needs(outcome), str(outcome.n), outcome.source)
        verdict = Text(outcome.verdict, style=_STYLES[outcome.verdict])
        shown.add_row(outcome.gate.name, value(outcome), *(details if wide else ()), verdict)
    return shown


def needs(outcome: Outcome) -> str:
    """What the gate asks for, in the way ragmon.toml writes it."""
    return f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}"


_FRAME: Final = 0.5
CONFIG: Final = Path(str(resources.files(__package__))) / "ragmon.toml"


@dataclass
class Story:
    """What happened in a run.

    Attributes:
        seconds: How long it is to last.
        incident: What breaks half-way.
        broken: When it broke, seconds from the start; None before.
        reds: When each gate turned red, by its name.
        pages: When each alarm rang, by its name.
        interrupted: Somebody pressed Ctrl-C.
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
        seconds: How long.
        incident: The fault put in half-way (`ragmon.demo.load.INCIDENTS`).
        address: Where `/metrics` is served, `host:port`; port 0 for any free one.
        console: Where it is shown.

    Returns:
        Whether it ran to its end; False after Ctrl-C.

    Raises:
        ModuleNotFoundError: bm25s is not installed.
        RagmonError: The address is taken.
    """
    application = Application()
    log = Path(tempfile.mkdtemp(prefix="ragmon-demo-")) / "trace.jsonl"
    story = Story(seconds, incident)
    alarm_log = logging.getLogger(constants.ALARM_LOG)
    with ExitStack() as stack:
        stack.callback(alarm_log.setLevel, alarm_log.level)
        alarm_log.setLevel(logging.CRITICAL)  # the screen tells of alarms
        installed, monitor = _install(log, address)
        stack.callback(installed.shutdown)
        traffic = Load(application)
        screen = stack.enter_context(open_screen(console))
        _introduce(screen, monitor, story)
        traffic.start()
        stack.callback(traffic.stop)
        try:
            _watch(screen, monitor, application, story)
        except KeyboardInterrupt:
            story.interrupted = True
    for line in _summary(story, installed, monitor, log):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return not story.interrupted


def _install(log: Path, address: str) -> tuple[Installation, Monitor]:
    """Start the monitor and capture."""
    try:
        installed = install.install(settings(log, address))
    except RagmonError as error:
        shutil.rmtree(log.parent)
        hint = error.hint if address.endswith(":0") else "give another --port, or none"
        raise RagmonError(str(error), hint=hint) from error
    assert installed.monitor is not None  # noqa: S101 - no sink was given
    return installed, installed.monitor


def settings(log: Path, address: str) -> Settings:
    """The demo's configuration with a trace log and an address of its own; the environment has no say in it."""
    found = load(CONFIG, environ={})
    host, _, port = address.rpartition(":")
    return replace(
        found,
        export=found.export.model_copy(update={"jsonl": log}),
        serve=found.serve.model_copy(update={"admin": Address(host, int(port))}),
    )


def _introduce(screen: Screen, monitor: Monitor, story: Story) -> None:
    """What runs here, in three lines."""
    screen.say("A small RAG pipeline answers users, and probes: questions whose answers are known.")
    screen.say("ragmon captures every call, scores it and judges the gates, live.")
    screen.say(f"In {story.seconds / 2:g} s {story.incident} breaks it. Metrics: http://{monitor.address}/metrics")


def _watch(screen: Screen, monitor: Monitor, application: Application, story: Story) -> None:
    """Show the gates until the time is up, and break the pipeline half-way."""
    started, tick = monotonic(), Event()
    while not tick.wait(_FRAME) and (now := monotonic() - started) < story.seconds:
        if story.broken is None and now >= story.seconds / 2:
            INCIDENTS[story.incident](application.pipeline)
            story.broken = now
            screen.say(f"{now:.1f} s  INCIDENT {story.incident}: {_first_line(INCIDENTS[story.incident])}")
        outcomes = monitor.outcomes()
        for outcome in outcomes:
            if outcome.verdict == "fail" and outcome.gate.name not in story.reds:
                story.reds[outcome.gate.name] = now
                screen.say(_red(now, outcome))
        for edge in monitor.edges():
            if (edge.severity, edge.state) == (constants.PAGE, "firing") and edge.alert not in story.pages:
                story.pages[edge.alert] = now
                screen.say(
                    f"{now:.1f} s  PAGE {edge.alert}: a whole minute of proof, within the budget of false alarms"
                )
        screen.show(now, "healthy" if story.broken is None else f"broken: {story.incident}", outcomes)
    screen.show(story.seconds, "end", monitor.outcomes())


def _red(now: float, outcome: Outcome) -> str:
    """Which gate turned red, its value, interval and threshold, and what it stands for."""
    interval = "" if outcome.lower is None else f" (95 % interval {between(outcome)})"
    told = f"{now:.1f} s  RED {outcome.gate.name}: {value(outcome)}{interval}, needs {needs(outcome)}"
    is_share = outcome.gate.kind == "threshold"
    return f"{told}: {_first_line(parse(outcome.gate.metric)) if is_share else outcome.reason}"


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def _summary(story: Story, installed: Installation, monitor: Monitor, log: Path) -> list[str]:
    """What happened, where the trace log lies, and what to try next."""
    books = installed.books()
    config = str(CONFIG)
    return [
        "",
        _verdict(story),
        f"{books.received} calls captured, {books.scored} scored, {sum(books.dropped.values())} lost.",
        f"digest {monitor.digest()[:16]}",
        f"Trace log: {log}",
        "The same counts from the log, hence the same digest:",
        f"  {_command('replay', str(log), '--config', config, '--format', 'md', '--questions', '0')}",
        "The same gates on the whole log, as CI would judge it (exit code 1 is a failed gate):",
        f"  {_command('gate', str(log), '--config', config)}",
    ]


def _verdict(story: Story) -> str:
    if story.broken is None:
        return "Stopped before the incident."
    reds = [f"{name} after {at - story.broken:.1f} s" for name, at in story.reds.items()]
    return f"{story.incident} at {story.broken:.1f} s turned red: {', '.join(reds) or 'no gate'}."


def _command(*arguments: str) -> str:
    """A command line of this very ragmon, the way it can be typed here."""
    script = Path(sys.executable).with_name("ragmon")
    found = shutil.which("ragmon")
    if found is not None and script.exists() and Path(found).samefile(script):
        program = ["ragmon"]
    elif script.exists():
        program = [os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)]
    else:
        program = [sys.executable, "-m", "ragmon"]
    return shlex.join([*program, *arguments])
