"""Commands that ask a monitor or a journal: `why`, `ack`, `show`, `label` and `forget`."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from getpass import getuser
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from time import time
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec
from pydantic_core import PydanticCustomError

from ragmon.cli.client import STATUS, ErrorResponseError, get_json, parse_server_url, post_json, read_back, read_page
from ragmon.cli.options import label_spelling, on_terminal, settings_and_gold, write
from ragmon.config.load import load
from ragmon.config.services import TlsTable, address_of
from ragmon.config.settings import Settings
from ragmon.config.units import duration
from ragmon.core import record
from ragmon.core.constants import ACKS_PATH, LABELS_PATH
from ragmon.core.errors import RagmonError, printable_json, printable_line, shorten
from ragmon.core.network import Url
from ragmon.core.process import read_token
from ragmon.core.record import Label, Record
from ragmon.export.text import request_json, request_text, why_json, why_text
from ragmon.gates.change import Why
from ragmon.gates.request import RequestReport
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.ingest.labels import read_labels, template
from ragmon.monitor.admin import TRACES_PATH
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.embedded import check_incident, split
from ragmon.scoring.ratings import queue, rows
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.erasure import erase as take_out
from ragmon.server.queries import SHORTEST, UnknownTraceError, described, in_files, in_journal
from ragmon.server.state import entries
from ragmon.server.store import JournalReader, journal_file

WHY_PATH: Final = "/api/why"
INCIDENTS_PATH: Final = "/api/incidents"
_SHOW_TIMEOUT: Final = 60.0  # seconds: a journal may be searched for the beginning of an id
_BATCH_SIZE: Final = 1000  # labels that one request sends
_TRACE: Final = re.compile(r"[0-9a-fA-F]{32}")


def forget(trace: str | None, tag: str | None, user: str | None, state_dir: str | None, config: str | None) -> int:
    """Take a trace, or all records with a tag or of a user, out of a server's journal and off the disk."""
    if [trace, tag, user].count(None) != 2:
        raise RagmonError(
            "nothing says what to delete", hint="--trace ID, --tag NAME=VALUE or --user NAME, one of them"
        )
    if user == "":
        raise RagmonError("--user names nobody", hint="--user ada, as the records have it")
    if trace is not None and not _TRACE.fullmatch(trace):
        raise RagmonError(f"--trace is not a trace id: {shorten(trace)}", hint="32 hex digits, without dashes")
    parsed_tag = None
    if tag is not None:
        name, _, value = tag.partition("=")
        if not (name and "=" in tag):
            raise RagmonError(f"--tag names no tag and value: {shorten(tag)}", hint="--tag customer=42")
        parsed_tag = name, value
    folder = Path(state_dir or load(config).serve.state_dir)
    erasure = take_out(folder, trace=trace, tag=parsed_tag, user=user)
    erased = {"record": erasure.records, "label": erasure.labels, "waiting span": erasure.spans}
    if erasure.quarantined:  # seldom
        erased["quarantined request"] = erasure.quarantined
    lines = ["forgotten: " + ", ".join(f"{n:,} {kind}{'' if n == 1 else 's'}" for kind, n in erased.items())]
    if not any(erased.values()) and erasure.states:
        lines = ["forgotten: what saved states held of labels"]
    elif not any(erased.values()):
        lines = ["nothing was found"]
    if not erasure.wiped:
        lines.append("another process was reading, so the data may still be on the disk: run the same command again")
    lines += [f"a damaged journal may still hold it; delete that file: {path}" for path in erasure.unread]
    for line in [*lines, "kept: counts, which hold no text; keys and ids of traces, until they expire"]:
        click.echo(printable_line(line))
    return 0


def import_command(
    files: tuple[str, ...], rater: str | None, dry_run: bool, url: str | None, output: str | None, config: str | None
) -> int:
    """Tell a server what FILES (CSV, JSON Lines) say of answers; each file is taken whole or refused whole."""
    settings = load(config)
    spelling = label_spelling(settings.unconfigured.labels, rater)
    labels = [label for path in files for label in read_labels(path, spelling)]
    correct = [float(label.correct) for label in labels if label.correct is not None]
    raters = ", ".join(f"{name} {n:,}" for name, n in Counter(label.rater for label in labels).most_common())
    lines = [
        f"{len(labels):,} labels on {len({label.trace_id for label in labels}):,} answers",
        f"raters: {raters or 'none'}",
    ]
    if correct:
        lines.append(f"correct: {len(correct):,} labels, mean {sum(correct) / len(correct):.3f}")
    given = {name: sum(getattr(label, name) is not None for label in labels) for name in ("answerable", "relevant_ids")}
    lines += [f"{name}: {n:,} labels" for name, n in given.items() if n]
    for line in lines:
        click.echo(printable_line(line), err=not dry_run)
    if dry_run:
        return 0
    if output is not None:
        write("".join(record.encode(label).decode() for label in labels), output)
        return 0
    scheme = "https" if isinstance(settings.serve.tls, TlsTable) else "http"
    address = str(url or address_of(settings.export.endpoint, os.environ) or f"{scheme}://{settings.serve.otlp}")
    accepted = 0
    for start in range(0, len(labels), _BATCH_SIZE):
        body = [json.loads(record.encode(label)) for label in labels[start : start + _BATCH_SIZE]]
        accepted += int(post_json(address, LABELS_PATH, body, settings).get("accepted", 0))
    click.echo(f"{accepted:,} labels accepted")
    return 0


def queue_command(
    traces: tuple[str, ...],
    state_dir: str | None,
    limit: int,
    text: bool,
    form: str,
    output: str | None,
    config: str | None,
) -> int:
    """Answers worth a label, as a sheet that `ragmon label import` reads: from TRACES, else from a server's journal."""
    settings = load(config)
    if traces:
        options, spans = file_options(settings), file_span_options(settings)
        candidates = queue(read_files(traces, ReadSummary(), options=options, span_options=spans), limit)
    else:
        with JournalReader(Path(state_dir or settings.serve.state_dir)) as journal:
            lines = (entry for row in journal.rows() for entry in entries(row.lines))
            candidates = queue((line for line in lines if isinstance(line, Record | Label)), limit)
    sheet_rows = rows(candidates, settings.unconfigured.links.trace, text=text)
    if form == "csv":
        write(template(sheet_rows, label_spelling(settings.unconfigured.labels)), output)
    else:
        write("".join(printable_json(row) + "\n" for row in sheet_rows), output)
    if candidates and on_terminal(output):
        source = printable_line(" ".join(traces) or f"--state-dir {state_dir or settings.serve.state_dir}")
        click.echo(f"one of them: ragmon show {printable_line(str(candidates[0].trace_id))} {source}", err=True)
    return 0


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
        raise RagmonError(f"TRACE is {shorten(trace)}, which is not a trace id", hint=hint)
    if files:
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
        requests = [described(record, scorer, settings, from_file=True) for record in records]
    else:
        settings = load(config)
        folder = Path(state_dir or settings.serve.state_dir)
        if url is None and (state_dir is not None or journal_file(folder).is_file()):
            settings, sets = settings_and_gold(config, gold)
            with JournalReader(folder) as journal:
                records = in_journal(journal, trace, settings)
            scorer = ScorerFactory(settings, sets)()
            requests = [described(record, scorer, settings) for record in records]
        else:
            requests = _of_server(trace, url or f"http://{settings.serve.admin}", settings)
    if form == "json":
        write(request_json(requests) + "\n", None)
    else:
        write("\n".join(request_text(request, full=full) for request in requests), None)
    return 0


def _of_server(trace: str, address: str, settings: Settings) -> list[RequestReport]:
    server, token = parse_server_url(address), read_token(settings.serve.token_file)
    headers = {}
    if token is not None and _is_private(server):
        headers = {"Authorization": f"Bearer {token}"}
    elif token is not None:
        click.echo("note: the token is not sent over plain HTTP to another machine, so no content is shown", err=True)
    response = get_json(address, f"{TRACES_PATH}/{quote(trace, safe='')}", {}, timeout=_SHOW_TIMEOUT, headers=headers)
    requests = response.get("requests")
    found = requests if isinstance(requests, list) else [response]
    return [read_back(request, RequestReport, "request") for request in found]


def _is_private(server: Url) -> bool:
    # Nobody between can read the request: it is encrypted, or stays on this machine.
    try:
        loopback = ip_address(server.host).is_loopback
    except ValueError:
        loopback = server.host == "localhost"
    return loopback or server.scheme == "https"


def ack(alarm: str, reason: str, by: str | None, url: str | None, config: str | None) -> int:
    """Silence an alarm, or every alarm of an incident, and reset it; it fires again if the fault persists."""
    settings = load(config)
    alert, pipeline = split(alarm, settings.pipeline)
    if by is None:
        by = ""
        with suppress(OSError, KeyError, ImportError):  # some containers have no login
            by = getuser()
    body = {"gate": alert, "pipeline": pipeline, "reason": reason, "by": by}
    # Without an address it goes to the server that records are exported to, else to `[serve]`: a monitor in the
    # application takes acknowledgements at its admin port; a server rejects them there with 405 (method not allowed)
    # and takes them at its write port.
    address = url or address_of(settings.export.endpoint, os.environ)
    admin = f"http://{settings.serve.admin}"
    try:
        response = post_json(str(address or admin), ACKS_PATH, body, settings, reads=not address)
    except ErrorResponseError as error:
        if address or error.status != HTTPStatus.METHOD_NOT_ALLOWED:
            raise
        scheme = "https" if isinstance(settings.serve.tls, TlsTable) else "http"
        response = post_json(f"{scheme}://{settings.serve.otlp}", ACKS_PATH, body, settings)
    effect = "silenced and reset" if response.get("fired") else "was silent; reset"
    click.echo(f"{printable_line(alarm)}: {effect}")
    return 0


def seconds(value: str) -> float:
    """Parse a duration such as `2h`, or a time in UTC such as `2026-11-28 00:12`, into seconds before now."""
    with suppress(PydanticCustomError):
        return float(duration(value))
    with suppress(ValueError):
        moment = datetime.fromisoformat(value)
        back = time() - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if back > 0:
            return back
    hint = "a duration (500s, 30m, 2h, 1d) or a time in the past (2026-11-28 00:12, UTC)"
    raise click.BadParameter(f"{value!r} is not a time to look back to: {hint}", param_hint="'--since'")


class _Incident(msgspec.Struct):
    """An incident, as far as a diagnosis begins with it."""

    incident: str
    pipeline: str
    alarm: str
    summary: str
    ended: float | None
    proofs: dict[str, str] = {}


class _Incidents(msgspec.Struct):
    """The incidents of a monitor, the newest first."""

    incidents: list[_Incident]


class _Gate(msgspec.Struct):
    """A gate of a monitor."""

    pipeline: str
    gate: str


class _Gates(msgspec.Struct):
    """The gates of a monitor."""

    gates: list[_Gate]


def _incidents_of(address: str, name: str, unknown: RagmonError) -> list[_Incident]:
    """The incidents with a name, or those of a pipeline: the lasting ones, else the newest.

    Raises:
        RagmonError: There is none: `unknown`, which the monitor answered, unless a pipeline or an incident was meant.
    """
    try:
        listed = read_back(get_json(address, INCIDENTS_PATH, {}), _Incidents, "list of incidents").incidents
        gates = read_page(address, STATUS, _Gates).gates
    except RagmonError:
        raise unknown from None
    found = [entry for entry in listed if name in (entry.incident, entry.pipeline)]
    if found:
        return [entry for entry in found if entry.ended is None] or found[:1]
    check_incident("", name, {entry.incident: entry.ended for entry in listed})
    if names := [entry.gate for entry in gates if entry.pipeline == name]:
        hint = f"`ragmon why {name}/GATE` explains a gate, one of: {', '.join(names)}"
        raise RagmonError(f"{name} has no incident", hint=hint)
    raise unknown


def why(gate: str, since: str | None, url: str | None, form: str, config: str | None) -> int:
    """Say what broke: since when, how much worse, what came with it, and which traces to open. Times are UTC."""
    settings = load(config)
    address = url or f"http://{settings.serve.admin}"
    back = {} if since is None else {"since": f"{seconds(since):.3f}"}

    def explained(name: str, pipeline: str) -> dict[str, Any]:
        return get_json(address, WHY_PATH, {"gate": name, "pipeline": pipeline, **back})

    name, pipeline = split(gate, settings.pipeline)
    incidents: list[_Incident] = []
    try:
        response = explained(name, pipeline)
    except ErrorResponseError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        incidents = _incidents_of(address, gate, error)
        pipeline, ended = incidents[0].pipeline, incidents[0].ended
        if ended is not None and not back:
            back["at"] = datetime.fromtimestamp(ended, UTC).isoformat()
        response = explained(incidents[0].alarm, pipeline)
    diagnosis, listed = read_back(response, Why, "explanation of a gate"), response.get("traces")
    traces = [trace for trace in listed if isinstance(trace, dict)] if isinstance(listed, list) else []
    link = settings.of(pipeline).links.trace
    show = "ragmon show {trace_id}" + ("" if url is None else f" --url {url}")
    fired = [proof for entry in incidents for proof in entry.proofs.items()]
    text = why_json(diagnosis, traces) + "\n" if form == "json" else why_text(diagnosis, traces, link, show, fired)
    sentences = "" if form == "json" else "".join(f"{printable_line(entry.summary)}\n" for entry in incidents)
    write(sentences + text, None)
    return 0
