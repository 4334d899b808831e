"""Commands that ask a monitor or a journal: `why`, `ack`, `show`, `label` and `forget`, and the client they share."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from getpass import getuser
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from time import sleep
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import click
import msgspec
from pydantic_core import PydanticCustomError

from ragmon.cli.options import label_spelling, on_terminal, settings_and_gold, write
from ragmon.config.load import load
from ragmon.config.services import TlsTable, address_of
from ragmon.config.settings import Settings
from ragmon.config.units import duration
from ragmon.core import record
from ragmon.core.addresses import Url, parse_url
from ragmon.core.constants import ACKS_PATH, LABELS_PATH
from ragmon.core.errors import RagmonError, printable_json, printable_line, shorten
from ragmon.core.http_client import HttpResponse, request
from ragmon.core.pacing import MAX_RETRY_AFTER_FOR_USER, OVERLOADED, BackOff, retry_after
from ragmon.core.process import read_token
from ragmon.core.record import Label, Record
from ragmon.export.status import StageCounters
from ragmon.export.text import request_json, request_text, why_json, why_text
from ragmon.gates.change import Why
from ragmon.gates.coverage import CaptureReport
from ragmon.gates.request import RequestReport
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.ingest.labels import read_labels, template
from ragmon.monitor.admin import TRACES_PATH
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.embedded import split
from ragmon.scoring.ratings import queue, rows
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.erasure import erase as take_out
from ragmon.server.queries import SHORTEST, UnknownTraceError, described, in_files, in_journal
from ragmon.server.reader import open_readonly
from ragmon.server.state import entries
from ragmon.server.store import journal_file

TIMEOUT: Final = 10.0
"""Seconds for a request and its response."""
MAX_BODY: Final = 64 << 20
"""Largest response that is read, in bytes."""
STATUS: Final = "/api/status"
WHY_PATH: Final = "/api/why"
QUERY_TIMEOUT: Final = 30.0
"""Seconds for a query that needs no scoring, and its response."""
TRIES: Final = 5
"""How often a post is sent to a monitor that is overloaded, or that its gateway cannot reach."""
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 30.0
"""The longest first pause and the longest pause between two tries, in seconds: a person waits for the command."""
_SHOW_TIMEOUT: Final = 60.0  # seconds: a journal may be searched for the beginning of an id
_BATCH_SIZE: Final = 1000  # labels that one request sends
_EXAMPLE: Final = "http://127.0.0.1:9464"
_TRACE: Final = re.compile(r"[0-9a-fA-F]{32}")
T = TypeVar("T")


class NoResponseError(RagmonError):
    """The server does not respond, or with something else than was asked for."""


class ProducerStats(msgspec.Struct):
    """Totals that producers report: records that have not arrived, and records they dropped, by reason."""

    missing: int = 0
    dropped: dict[str, int] = {}


class QuarantinedItem(msgspec.Struct):
    """A request in quarantine; `step` is what the process did when it ended: `assembling`, `scoring` or `reading`."""

    arrival: float
    step: str
    trace_id: str = ""
    size: int = 0


class JournalStatus(msgspec.Struct):
    """The state of the journal: the number of its newest row."""

    row: int = 0


class ServerStatus(msgspec.Struct):
    """The part of `/api/status` that the commands read.

    Attributes:
        now: The server's clock, seconds since the epoch.
        trouble: Why the server accepts nothing; "" if it does accept.
        spans_dropped: Spans that belong to no record, by reason.
        refused: Requests it rejected, by reason.
        journal: None for a monitor in an application, which has none.
        builds: The latest `(pipeline, build, index_hash)`, the newest of a pipeline last.
        unknown_conventions: Requests that are not read, by the name of their instrumentation.
        tools_without_documents: Requests without a retrieval, by the names of the tools called in them.
        uncovered: Pipelines that have records and no gate.
    """

    version: str
    now: float
    stages: dict[str, StageCounters] = msgspec.field(name="books")
    trouble: str = ""
    spans_dropped: dict[str, int] = {}
    refused: dict[str, int] = {}
    quarantined: list[QuarantinedItem] = []
    producers: ProducerStats = msgspec.field(default_factory=ProducerStats)
    journal: JournalStatus | None = None
    builds: list[tuple[str, str, str]] = []
    captured: list[CaptureReport] = []
    unknown_conventions: dict[str, int] = {}
    tools_without_documents: dict[str, int] = {}
    uncovered: list[str] = []


def parse_server_url(text: str) -> Url:
    """Parse the URL of a server; an address without a scheme is one of http.

    >>> parse_server_url("https://ragmon.example/monitor/").authority, str(parse_server_url("localhost:9464"))
    ('ragmon.example:443', 'http://localhost:9464')
    """
    address = text if "//" in text else f"http://{text.strip()}"
    return parse_url(address, "the server's URL", hint=_EXAMPLE, base=True)


def get_page(
    url: str, path: str, *, timeout: float = TIMEOUT, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Send a GET request."""
    return _send_request("GET", parse_server_url(url), path, timeout=timeout, headers=headers)


def _send_request(
    method: str,
    server: Url,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    tls: ssl.SSLContext | None = None,
) -> HttpResponse:
    page, _, query = path.partition("?")
    url = server._replace(path=server.path + page, query=query)
    try:
        response = request(method, url, body=body, headers=headers, timeout=timeout, max_body=MAX_BODY, tls=tls)
    except OSError as error:
        hint = f"is it running? Its address, such as {_EXAMPLE}"
        if "certificate" in str(error):
            hint = "SSL_CERT_FILE names the certificates to trust; `[serve] tls` the server's own"
        raise NoResponseError(f"nobody answers on {server.authority} ({error})", hint=hint) from error
    if response.is_cut:
        message = f"the answer of {server.authority} is larger than {MAX_BODY} bytes"
        raise NoResponseError(message, hint=f"is this the address of ragmon? Such as {_EXAMPLE}")
    return response


def status(url: str) -> ServerStatus:
    """The status of a server."""
    return read_page(url, STATUS, ServerStatus)


class _Captured(msgspec.Struct):
    """The part of `/api/status` that every monitor has."""

    captured: list[CaptureReport]


def captured(url: str) -> list[CaptureReport]:
    """The capture reports of a monitor, a server's or one in an application."""
    return read_page(url, STATUS, _Captured).captured


def read_page(url: str, path: str, part: type[T]) -> T:
    """The part of a JSON page that a command reads."""
    response = get_page(url, path)
    try:
        if response.status == HTTPStatus.OK:
            return msgspec.json.decode(response.body, type=part)
        reason = f"it answered with status {response.status}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    message = f"what answers on {parse_server_url(url).authority} is not the admin port of `ragmon serve` ({reason})"
    raise NoResponseError(message, hint="`[serve] admin` of the server's configuration says where that is")


def read_back(data: object, kind: type[T], what: str) -> T:
    """The answer of a monitor as the class it was made of, without unknown members; messages call it `what`."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise RagmonError(f"this is no {what}: {error}", hint="is the monitor of this version?") from error


def counter_delta(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The increase of each counter between two readings.

    >>> counter_delta({"late": 1}, {"late": 3, "too_old": 1})
    {'late': 2, 'too_old': 1}
    """
    return {reason: n - before.get(reason, 0) for reason, n in after.items() if n > before.get(reason, 0)}


class ErrorResponseError(RagmonError):
    """A monitor responded with an error, or with something other than a JSON object."""

    def __init__(self, message: str, status: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def get_json(
    url: str,
    path: str,
    params: Mapping[str, str],
    *,
    timeout: float = QUERY_TIMEOUT,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Query the admin port of a monitor."""
    query = f"?{urlencode(params)}" if params else ""
    return _json_object(get_page(url, path + query, timeout=timeout, headers=headers), parse_server_url(url))


def post_json(url: str, path: str, body: object, settings: Settings, *, reads: bool = False) -> dict[str, Any]:
    """Post JSON to a monitor; retry a few times if it is overloaded.

    A write port gets the token; an admin port (`reads`) takes no token and may have no TLS.
    """
    server, token = parse_server_url(url), None if reads else read_token(settings.serve.token_file)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    content, tls, own = json.dumps(body).encode(), ssl.create_default_context(), settings.serve.tls
    if isinstance(own, TlsTable) and Path(own.cert).is_file():
        tls.load_verify_locations(own.cert)
    back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE, max_retry_after=MAX_RETRY_AFTER_FOR_USER)
    for attempt in range(1, TRIES + 1):
        response = _send_request("POST", server, path, body=content, headers=headers, timeout=QUERY_TIMEOUT, tls=tls)
        if response.status not in OVERLOADED or attempt == TRIES:
            break
        seconds = back_off.pause(retry_after(response.headers.get("Retry-After")))
        authority = printable_line(server.authority)
        click.echo(f"{authority} answered {response.status}: trying again in {seconds:.0f} s", err=True)
        sleep(seconds)
    return _json_object(response, server)


def _json_object(response: HttpResponse, server: Url) -> dict[str, Any]:
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        value = None
    if response.status == HTTPStatus.OK and isinstance(value, dict):
        return value
    fields = value if isinstance(value, dict) else {}
    message = str(fields.get("error") or f"{server.authority} answered {response.status}")
    hint = str(fields.get("hint") or "--url names a monitor of another kind?")
    raise ErrorResponseError(message, response.status, hint=hint)


def forget(trace: str | None, tag: str | None, user: str | None, state_dir: str | None, config: str | None) -> int:
    """Take a trace, or all records with a tag or of a user, out of a server's journal and off the disk."""
    if [trace, tag, user].count(None) != 2:
        raise RagmonError("what is to be forgotten?", hint="--trace ID, --tag NAME=VALUE or --user NAME, one of them")
    if user == "":
        raise RagmonError("--user names nobody", hint="--user ada, as the records have it")
    if trace is not None and not _TRACE.fullmatch(trace):
        raise RagmonError(f"--trace is no trace id: {shorten(trace)}", hint="32 hex digits, without dashes")
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
    lines = ["forgotten: " + ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in erased.items())]
    if not any(erased.values()) and erasure.states:
        lines = ["forgotten: what saved states told of labels"]
    elif not any(erased.values()):
        lines = ["nothing was found"]
    if not erasure.wiped:
        lines.append("somebody read all the while, and it may be on the disk still: the same again wipes it")
    lines += [f"a damaged journal may hold it still; it can only be deleted: {path}" for path in erasure.unread]
    for line in [*lines, "stays: counts, which hold no text; keys and ids of traces, until they expire"]:
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
    raters = ", ".join(f"{name} {n}" for name, n in Counter(label.rater for label in labels).most_common())
    lines = [
        f"{len(labels)} labels on {len({label.trace_id for label in labels})} answers",
        f"raters: {raters or 'none'}",
    ]
    if correct:
        lines.append(f"correct: {len(correct)} labels, mean {sum(correct) / len(correct):.3f}")
    given = {name: sum(getattr(label, name) is not None for label in labels) for name in ("answerable", "relevant_ids")}
    lines += [f"{name}: {n} labels" for name, n in given.items() if n]
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
    click.echo(f"{accepted} labels taken")
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
        with open_readonly(Path(state_dir or settings.serve.state_dir)) as journal:
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
        raise RagmonError(f"TRACE is {shorten(trace)}, which is no trace id", hint=hint)
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
            with open_readonly(folder) as journal:
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
    """Silence ALARM and arm it again: it starts from nothing, and fires anew if the fault lasts."""
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
    effect = "silenced, and armed again" if response.get("fired") else "was silent; it starts from nothing"
    click.echo(f"{printable_line(pipeline)}/{printable_line(alert)}: {effect}")
    return 0


def seconds(value: str) -> float:
    """Parse a duration such as `2h` into seconds."""
    try:
        return float(duration(value))
    except PydanticCustomError as error:
        hint = "a number and a unit: 500s, 30m, 2h, 1d"
        raise click.BadParameter(f"{value!r} is no stretch of time, which is {hint}", param_hint="'--since'") from error


def why(gate: str, since: str | None, url: str | None, form: str, config: str | None) -> int:
    """Say what broke: since when it is worse, what changed with it, and which traces to open. Times are UTC."""
    settings = load(config)
    name, pipeline = split(gate, settings.pipeline)
    params = {"gate": name, "pipeline": pipeline, **({} if since is None else {"since": f"{seconds(since):.15g}"})}
    response = get_json(url or f"http://{settings.serve.admin}", WHY_PATH, params)
    diagnosis, listed = read_back(response, Why, "explanation of a gate"), response.get("traces")
    traces = [trace for trace in listed if isinstance(trace, dict)] if isinstance(listed, list) else []
    link = settings.of(pipeline).links.trace
    show = "ragmon show {trace_id}" + ("" if url is None else f" --url {url}")
    write(why_json(diagnosis, traces) + "\n" if form == "json" else why_text(diagnosis, traces, link, show), None)
    return 0
