"""`ragmon show`: one request, with what was asked, retrieved and answered, and why it scores as it does."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from ragmon.cli.client import get_json, parse_server_url, read_back
from ragmon.cli.common import settings_and_gold, write
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.http_client import Url
from ragmon.core.process import read_token
from ragmon.export.text import request_json, request_text
from ragmon.gates.request import RequestReport
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.monitor.admin import TRACES_PATH
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.queries import SHORTEST, UnknownTraceError, described, in_files, in_journal
from ragmon.server.reader import open_readonly
from ragmon.server.store import journal_file

_TIMEOUT: Final = 60.0
"""Seconds for an answer: a journal may be searched for the beginning of an id."""


def show(
    trace: str,
    files: tuple[str, ...],
    url: str | None,
    state_dir: str | None,
    full: bool,
    form: str,
    gold: tuple[str, ...],
    config: str | None,
) -> int:
    """One request: question, answer, what was retrieved, and every score with its reason, as content was captured."""
    if sum((bool(files), url is not None, state_dir is not None)) > 1:
        raise click.UsageError("FILES, --url and --state-dir are three places: name one of them")
    if not trace.strip():
        hint = f"32 hex digits, or the first {SHORTEST} and more of them; in FILES any id that a record has"
        raise RagmonError(f"TRACE is {shorten(trace)}, which is no trace id", hint=hint)
    if files:
        requests = _of_files(trace, files, config, gold)
    elif url is None and (folder := _journal(state_dir, load(config))) is not None:
        requests = _of_journal(trace, folder, config, gold)
    else:
        requests = _of_server(trace, url, load(config))
    if form == "json":
        write(request_json(requests) + "\n", None)
    else:
        write("\n".join(request_text(request, full=full) for request in requests), None)
    return 0


def _journal(state_dir: str | None, settings: Settings) -> Path | None:
    """The folder of the journal to read; None where none is named and none is on this machine."""
    folder = Path(state_dir or settings.serve.state_dir)
    return folder if state_dir is not None or journal_file(folder).is_file() else None


def _of_files(trace: str, files: Sequence[str], config: str | None, gold: Sequence[str]) -> list[RequestReport]:
    settings, sets = settings_and_gold(config, gold)
    scorer = ScorerFactory(settings, sets)()
    options, spans = file_options(settings), file_span_options(settings)
    intake = ReadSummary()
    try:
        records = in_files(read_files(files, intake, options=options, span_options=spans), trace, settings)
    except UnknownTraceError:
        if not intake.read or (intake.rejections and not intake.readable):
            raise unreadable(files, intake, options) from None
        raise
    return [described(record, scorer, settings, from_file=True) for record in records]


def _of_journal(trace: str, folder: Path, config: str | None, gold: Sequence[str]) -> list[RequestReport]:
    settings, sets = settings_and_gold(config, gold)
    with open_readonly(folder) as journal:
        records = in_journal(journal, trace, settings)
    scorer = ScorerFactory(settings, sets)()
    return [described(record, scorer, settings) for record in records]


def _of_server(trace: str, url: str | None, settings: Settings) -> list[RequestReport]:
    address = url or f"http://{settings.serve.admin}"
    server, token = parse_server_url(address), read_token(settings.serve.token_file)
    headers = {}
    if token is not None and _is_private(server):
        headers = {"Authorization": f"Bearer {token}"}
    elif token is not None:
        click.echo("note: the token is not sent over plain HTTP to another machine, so no content is shown", err=True)
    response = get_json(address, f"{TRACES_PATH}/{quote(trace, safe='')}", {}, timeout=_TIMEOUT, headers=headers)
    requests = response.get("requests")
    found = requests if isinstance(requests, list) else [response]
    return [read_back(request, RequestReport, "request") for request in found]


def _is_private(server: Url) -> bool:
    """Whether nobody between can read what is sent: it is encrypted, or stays on this machine."""
    try:
        loopback = ip_address(server.host).is_loopback
    except ValueError:
        loopback = server.host == "localhost"
    return loopback or server.scheme == "https"
