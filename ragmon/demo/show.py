"""The demo from start to end: traffic, monitor, incident, verdict."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from rich.console import Console

from ragmon import installation
from ragmon.config.kinds import Address
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.demo.application import Application
from ragmon.demo.incidents import INCIDENTS
from ragmon.demo.load import Load
from ragmon.demo.screen import Screen, open_screen
from ragmon.installation import Installation
from ragmon.monitor import Monitor

_FRAME: Final = 1.0


def settings(folder: Path, address: str) -> tuple[Settings, str]:
    """The demo's configuration with a trace log of its own, and the path of its gold file."""
    home = resources.files(__package__)
    config = Path(str(home / "ragmon.toml"))
    found = load(config, environ={})
    host, _, port = address.rpartition(":")
    found = replace(
        found,
        export=found.export.model_copy(update={"jsonl": folder / "trace.jsonl"}),
        serve=found.serve.model_copy(update={"admin": Address(host, int(port))}),
    )
    return found, str(home / "gold.jsonl")


def run(seconds: float, incident: str, *, address: str, console: Console) -> None:
    """Run the demo.

    Args:
        seconds: How long.
        incident: The fault put in half-way (`ragmon.demo.incidents.INCIDENTS`).
        address: Where `/metrics` is served, `host:port`; port 0 for any free one.
        console: Where it is shown.
    """
    folder = Path(tempfile.mkdtemp(prefix="ragmon-demo-"))
    found, gold = settings(folder, address)
    application = Application()
    with ExitStack() as stack:
        installed = installation.install(found)
        stack.callback(installed.shutdown)
        monitor = installed.monitor
        assert monitor is not None  # noqa: S101 - no sink was given
        load_ = Load(application)
        screen = stack.enter_context(open_screen(console))
        screen.say(f"A small RAG pipeline answers users and gold probes; /metrics: http://{monitor.address}/metrics")
        load_.start()
        stack.callback(load_.stop)
        reds = _watch(screen, monitor, application, seconds, incident)
        load_.stop()
        installed.shutdown()
    _sum_up(console, installed, monitor, reds, folder, gold)


def _watch(
    screen: Screen, monitor: Monitor, application: Application, seconds: float, incident: str
) -> dict[str, float]:
    """Show the gates until the time is up, break the pipeline half-way; when each gate turned red, by its name."""
    started, broken, reds = monotonic(), False, dict[str, float]()
    tick = Event()
    while (now := monotonic() - started) < seconds:
        if not broken and now >= seconds / 2:
            INCIDENTS[incident](application.pipeline)
            broken = True
            screen.say(f"{now:4.0f} s  INCIDENT: {incident}: {_first_line(incident)}")
        outcomes = monitor.outcomes()
        for outcome in outcomes:
            if outcome.verdict == "fail" and outcome.gate.name not in reds:
                reds[outcome.gate.name] = now
                screen.say(f"{now:4.0f} s  RED: {outcome.gate.name}: {outcome.reason}")
        screen.show(now, f"incident: {incident}" if broken else "healthy", outcomes)
        tick.wait(_FRAME)
    screen.show(seconds, "end", monitor.outcomes())
    return reds


def _first_line(incident: str) -> str:
    return (INCIDENTS[incident].__doc__ or "").strip().splitlines()[0]


def _sum_up(
    console: Console, installed: Installation, monitor: Monitor, reds: dict[str, float], folder: Path, gold: str
) -> None:
    books = installed.books()
    log = folder / "trace.jsonl"
    lines = [
        f"red gates: {', '.join(f'{name} at {at:.0f} s' for name, at in reds.items()) or 'none'}",
        f"calls kept {books.received}, scored {books.scored}, lost {sum(books.dropped.values())}",
        f"digest {monitor.digest()}",
        f"the same from the trace log: ragmon replay {log} --gold {gold} --format md",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
