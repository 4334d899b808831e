"""`ragmon view`: the pages of a monitor on a journal or on trace files, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Final

import click

from ragmon.cli.common import config_option
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.types import Address
from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.net import own_names
from ragmon.core.record import Label, Record, Totals
from ragmon.ingest.files import read_files, unreadable
from ragmon.ingest.summary import ReadSummary
from ragmon.monitor.build import file_options, file_span_options
from ragmon.monitor.embedded import Monitor, parse_listen_address
from ragmon.monitor.http.admin import admin_app
from ragmon.monitor.http.listener import HttpServer
from ragmon.server.api import journal_queries
from ragmon.server.viewing import JournalView

GRACE: Final = 1.0
"""Seconds that open requests get at the end."""
CONNECTIONS: Final = 64


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="JOURNAL|TRACES...")
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Port 0 is any free one.")
@config_option
def view(paths: tuple[str, ...], listen: str, config: str | None) -> int:
    """Open the pages of a monitor on what was recorded: gates, charts, metrics, and where every record went.

    JOURNAL is the state folder of a server, shown as it was at its last row; a server may be running on it. TRACES are
    trace files, shown as they were at the time of the newest record. Nothing is written. Ctrl-C ends it.

    Exit codes: 0, 3 there is nothing to show, or it cannot be read.
    """
    settings, address = load(config), parse_listen_address(listen)
    folder = Path(paths[0])
    if len(paths) == 1 and folder.is_dir():
        stop, place = _serve_journal(settings, folder, address)
    else:
        stop, place = _serve_traces(settings, paths, listen)
    click.echo(f"http://{place}/")
    try:
        Event().wait()
    except KeyboardInterrupt:
        stop()
    return 0


def _serve_journal(settings: Settings, folder: Path, address: Address) -> tuple[Callable[[], object], str]:
    """Serve the pages of a journal; returns what ends them, and their address."""
    shown = JournalView(settings, folder)
    app = admin_app(shown.view(), own_names(settings.serve.hosts), journal_queries(shown.queries, None))
    server = HttpServer(app, address, tls=None, name="view", connections=CONNECTIONS)
    server.start()
    return lambda: server.stop(GRACE), str(server.address)


def _serve_traces(settings: Settings, paths: Sequence[str], listen: str) -> tuple[Callable[[], object], str]:
    """Serve the pages of trace files; returns what ends them, and their address."""
    monitor = monitor_of(settings, paths).start(listen)
    return monitor.stop, str(monitor.address)


def monitor_of(settings: Settings, paths: Sequence[str]) -> Monitor:
    """A monitor that has scored trace files in the order of their times; its clock stands still after the newest.

    What has no time is taken to be as new as the newest.

    Args:
        settings: The configuration.
        paths: The files.

    Raises:
        InputError: There is no record in them.
    """
    intake = ReadSummary()
    options, spans = file_options(settings), file_span_options(settings)
    entries = list(read_files(paths, intake, options=options, span_options=spans))
    if not any(isinstance(entry, Record) for entry in entries):
        raise unreadable(paths, intake, options)
    newest = max((entry.ts for entry in entries if entry.ts is not None), default=time.time())
    timed = sorted(((newest if entry.ts is None else entry.ts, entry) for entry in entries), key=itemgetter(0))
    moment = [timed[0][0]]
    monitor = Monitor(settings, clock=lambda: moment[0])
    for ts, entry in timed:
        moment[0] = ts
        if isinstance(entry, Totals):
            monitor.report([entry])
        elif isinstance(entry, Label):
            monitor.label([entry])
        else:
            entry.source = entry.source or constants.LIVE  # gates look at live traffic
            monitor.submit(entry)
    moment[0] += STEP
    return monitor
