"""`ragmon view`: the pages of a monitor on a journal or on trace files, or the page of a report, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Final

import click
from starlette.types import ASGIApp

from ragmon.cli.client import read_back
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.errors import InputError, RagmonError
from ragmon.core.http_client import Address, own_names
from ragmon.core.http_server import HttpServer
from ragmon.core.record import Label, Record, Totals
from ragmon.export.comparison import Canary
from ragmon.export.pages import GENERATOR
from ragmon.export.report_page import comparison_page, stored_page
from ragmon.export.schema import load_report
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.monitor.admin import admin_app, document_app
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.embedded import Monitor, parse_listen_address
from ragmon.monitor.replay import read_report
from ragmon.server.admin import JournalView, journal_queries

GRACE: Final = 1.0
"""Seconds that open requests get at the end."""
CONNECTIONS: Final = 64
HEAD: Final = 1000
"""Characters in which a page says what wrote it."""


def view(paths: tuple[str, ...], listen: str, config: str | None) -> int:
    """Open the pages of a monitor on what was recorded: gates, charts, metrics, and where every record went."""
    settings, address = load(config), parse_listen_address(listen)
    folder, single = Path(paths[0]), len(paths) == 1
    if single and folder.is_dir():
        stop, place = _serve_journal(settings, folder, address)
    elif single and (page := report_page_of(paths[0])) is not None:
        stop, place = _serve(document_app(page, own_names(settings.serve.hosts)), address)
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
    return _serve(app, address)


def _serve(app: ASGIApp, address: Address) -> tuple[Callable[[], object], str]:
    """Serve an application; returns what ends it, and its address."""
    server = HttpServer(app, address, tls=None, name="view", connections=CONNECTIONS)
    server.start()
    return lambda: server.stop(GRACE), str(server.address)


def _serve_traces(settings: Settings, paths: Sequence[str], listen: str) -> tuple[Callable[[], object], str]:
    """Serve the pages of trace files; returns what ends them, and their address."""
    monitor = monitor_of(settings, paths).start(listen)
    return monitor.stop, str(monitor.address)


def report_page_of(path: str) -> str | None:
    """The page of a report or of a comparison; None where the path is another thing, such as traces.

    Args:
        path: A file in JSON, or one in HTML that ragmon wrote, which is shown as it is.

    Raises:
        InputError: A file in HTML or JSON is not readable, or is not a report of ragmon.
    """
    if not path.endswith((".json", ".html", ".htm")):
        return None
    if not path.endswith(".json"):
        return _checked_page(path)
    data = read_report(path, "the report")
    if data is None:
        return None
    if "candidate" not in data:
        return stored_page(load_report(data, path))
    try:
        return comparison_page(read_back(data, Canary, "comparison of releases"))
    except RagmonError as error:
        raise InputError(str(error), path=path, hint="`ragmon compare --format json` writes one") from error


def _checked_page(path: str) -> str:
    """A page that ragmon wrote.

    Raises:
        InputError: It cannot be read, or ragmon did not write it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"the page cannot be read ({reason})", path=path, hint="check name and rights") from error
    if f'<meta name="generator" content="{GENERATOR}' not in text[:HEAD]:
        hint = "`ragmon replay --format html` and `ragmon compare --format html` write pages"
        raise InputError("this is no page of ragmon", path=path, hint=hint)
    return text


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
