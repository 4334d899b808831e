"""`ragmon doctor`: check gold, baselines and every link of the chain to `/metrics`; show what alarms can detect.

    a call -> capture -> exporter -> (collector) -> `ragmon serve` -> journal -> scored -> `/metrics`

The links up to the exporter are checked in this process. If records are exported to a server, a trial record is sent as
the application sends its own, and looked for there; the first broken link is named.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

import click

from ragmon.alarms.plan import duration
from ragmon.cli.client import (
    TIMEOUT,
    NoResponseError,
    QuarantinedItem,
    ServerStatus,
    counter_delta,
    get_page,
    parse_server_url,
    status,
)
from ragmon.cli.commands import WAIT
from ragmon.cli.doctor_checks import (
    CAPTURED,
    RATES,
    Check,
    captured_checks,
    detectability,
    instrumentations,
    local_checks,
    place_checks,
    probes,
    stream_checks,
)
from ragmon.config.load import check, load
from ragmon.config.services import address_of
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import DOCTOR_PIPELINE, OTHER, TOO_FUTURE, TOO_OLD
from ragmon.core.errors import RagmonError, printable_line, shorten
from ragmon.core.network import Url, parse_url
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.export.status import most_frequent, retriever_hint
from ragmon.export.text import text_table
from ragmon.gates.coverage import EARLY, HALF
from ragmon.ingest.spans.span import NOT_RAG, UNKNOWN_CONVENTION
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.exporting import server
from ragmon.server.store import JournalReader

TAGS: Final = {"ragmon": "doctor"}
EXPORTER: Final = "exporter"
QUARANTINE: Final = "set aside"
CONVENTIONS: Final = "spans"
TOOLS: Final = "tools"
SHOWN: Final = 5
"""Requests, instrumentations or tools that are named, at most."""
HINT: Final = "docs/runbook.md, RagmonRecordsDropped, says how to look at one; `ragmon forget --trace` deletes it"
NO_RECORD: Final = (NOT_RAG, UNKNOWN_CONVENTION)
NOTHING_READ: Final = (
    "no span retrieves or calls a model: instrument the model's client and the retriever, or decorate the call with"
    " @ragmon.trace; docs/how-to/spans.md"
)
NOT_READ: Final = (
    "docs/integrations/instrumentations.md has what is read; record these calls with OpenInference or OpenTelemetry's"
    " GenAI instrumentation, or decorate them with @ragmon.trace"
)
# A record sampled like this is counted and scored, but no metric, gate or alarm reads it.
_EXCLUDED_SAMPLING: Final = Sampling(audit=False, stratum=constants.UNKNOWN_WEIGHT)
_HANDSHAKE_TIMEOUT: Final = 3.0  # seconds, of TLS
_POLL_INTERVAL: Final = 0.1  # seconds between two readings of the server's status
_CLOCK_TOLERANCE: Final = 2.0  # seconds by which two clocks may differ without a note
_CLOCK_REASONS: Final = frozenset((TOO_OLD, TOO_FUTURE))
_STATUS: Final = re.compile(r"status (\d{3})")
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "`[serve] token_file` here and there must hold the same token",
    HTTPStatus.FORBIDDEN: "ask for an address or localhost, or give both sides a token; a proxy may refuse it too",
    HTTPStatus.NOT_FOUND: "`[export] endpoint` is the base address of an OTLP/HTTP receiver, without /v1/traces",
    HTTPStatus.METHOD_NOT_ALLOWED: "this is a web server and no OTLP/HTTP receiver: correct `[export] endpoint`",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "a record of 1 KB is too large: raise the limit of the proxy in between",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "it accepts no protobuf, or no gzip: name a receiver of OTLP over HTTP",
    HTTPStatus.TOO_MANY_REQUESTS: "it is overloaded: give it more resources, or sample less",
    HTTPStatus.SERVICE_UNAVAILABLE: "it cannot write at the moment: its log and `/readyz` say why",
}


def trial_record() -> Record:
    """A healthy record without user data, with a unique trace id and build."""
    return Record(
        v=constants.CONTRACT_VERSION,
        trace_id=secrets.token_hex(16),
        ts=time.time(),
        pipeline=DOCTOR_PIPELINE,
        source=constants.PROBE,
        build=f"doctor-{secrets.token_hex(4)}",
        retrieved_ids=["ragmon-doctor"],
        answer_json=Answer(claim="yes", citations=["ragmon-doctor"]),
        latency_ms=Latency(total=1.0),
        sampling=_EXCLUDED_SAMPLING,
        tags=dict(TAGS),
    )


class _MessageHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def send_record(settings: Settings, endpoint: Url, record: Record) -> Check:
    """Send a record with the configured token, through the exporter that applications use."""
    try:
        sink = server(settings, cache(lambda: Redactions(settings)))
    except RagmonError as error:
        return Check(EXPORTER, ok=False, finding=f"not tried: {error}", hint=error.hint)
    assert sink is not None  # noqa: S101 - there is an endpoint
    handler, log = _MessageHandler(), logging.getLogger("ragmon")
    log.addHandler(handler)  # the exporter writes the reason of a failure to its log alone
    try:
        with closing(sink):
            dropped = sink.deliver([record])
    finally:
        log.removeHandler(handler)
    if not dropped:
        return Check(EXPORTER, ok=True, finding=f"{endpoint.authority} took a trace")
    refused = f"{endpoint.authority} refused the record itself ({', '.join(dropped)})"
    reason = " ".join(handler.messages) or refused
    return Check(EXPORTER, ok=False, finding=reason, hint=_hint(reason, endpoint))


def _hint(reason: str, address: Url) -> str:
    status_code = _STATUS.search(reason)
    if status_code is not None:
        return _HINTS.get(int(status_code[1]), "its log says why")
    if "does not answer in time" in reason:
        return "read its log; or something in between takes requests and passes none on"
    if "certificate is not trusted" in reason:
        return "`[export] certificate` names a file of the certificates to trust"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:  # a TLS handshake, with any certificate
        with (
            socket.create_connection((address.host, address.port), _HANDSHAKE_TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=address.host),
        ):
            return "" if address.scheme == "https" else "it speaks TLS: write https:// in `[export] endpoint`"
    except OSError:
        is_tls = address.scheme == "https"
        return (
            "it does not speak TLS: write http:// in `[export] endpoint`" if is_tls else "correct `[export] endpoint`"
        )


def local_quarantine(settings: Settings) -> Iterator[Check]:
    """List the quarantined requests of the journal on this machine, if there is one."""
    try:
        with JournalReader(Path(settings.serve.state_dir)) as journal:
            requests = [
                QuarantinedItem(request.arrival, request.step, request.trace_id, request.size)
                for request in journal.quarantined()
            ]
    except RagmonError:  # there is no journal on this machine
        return
    yield from quarantine_checks(requests)


def quarantine_checks(quarantined: Iterable[QuarantinedItem]) -> Iterator[Check]:
    """Name the newest requests in quarantine, over each of which the process ended or froze twice."""
    newest = list(quarantined)[::-1]
    if not newest:
        return
    remainder = f" and {len(newest) - SHOWN} more" if len(newest) > SHOWN else ""
    names = []
    for request in newest[:SHOWN]:
        arrived = datetime.fromtimestamp(request.arrival, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        trace = f"trace {request.trace_id}" if request.trace_id else "a line without a trace"
        names.append(f"{trace}, {request.size} bytes, arrived {arrived}, failed while {request.step}")
    finding = f"because the process ended over it twice: {', '.join(names)}{remainder}"
    yield Check(QUARANTINE, ok=True, finding=finding, hint=HINT)


def request_checks(found: ServerStatus) -> Iterator[Check]:
    """Say how many requests made no record, and why; bad where none did, or most are of unknown conventions."""
    ignored = Counter[str]()
    for counters in found.stages.values():
        ignored.update({reason: n for reason, n in counters.ignored.items() if reason in NO_RECORD})
    unread, unknown = ignored.total(), found.unknown_conventions
    scored = max((counters.scored for counters in found.stages.values()), default=0)
    if unread and not found.captured:
        finding = f"nothing: {unread} of {unread} requests made no record: {_listed(ignored)}"
        yield Check(CAPTURED, ok=unread < EARLY, finding=finding, hint="" if unknown else NOTHING_READ)
    if unknown:
        finding = f"no record is made of requests by {most_frequent(unknown, SHOWN)}"
        is_most = ignored[UNKNOWN_CONVENTION] > HALF * (scored + unread)
        yield Check(CONVENTIONS, ok=not is_most or unread < EARLY, finding=finding, hint=NOT_READ)
    elif found.captured and unread > HALF * (scored + unread):
        finding = f"{unread} of {scored + unread} requests made no record: {_listed(ignored)}"
        yield Check(CONVENTIONS, ok=True, finding=finding, hint=NOTHING_READ)


def tool_checks(tools: Mapping[str, int]) -> Iterator[Check]:
    """Name the tools of requests without a retrieval, and the setting that makes retrievers of them."""
    if tools:
        named = most_frequent(tools, SHOWN)
        finding = f"no_retrieval: requests called tools, and none returned a list of documents: {named}"
        yield Check(TOOLS, ok=True, finding=finding, hint=retriever_hint(tools))


def traffic_checks(found: ServerStatus) -> Iterator[Check]:
    """What a running monitor made of its requests: what it captures, what it does not read, what has no gates."""
    yield from captured_checks(found.captured)
    yield from place_checks(found.needed_series)
    yield from request_checks(found)
    yield from tool_checks(found.tools_without_documents)
    for name in found.uncovered:
        finding = f"pipeline {shorten(name)} has records, but no gates and no rules"
        yield Check("gates", ok=False, finding=finding, hint="[gates] at the top level, or [pipelines.NAME.gates]")


def running_monitor(admin: str) -> Iterator[Check]:
    """What the monitor on the admin port makes of its requests; no fault if no monitor runs."""
    try:
        found = list(traffic_checks(status(admin)))
    except NoResponseError:
        finding = f"not known: no monitor answers on {parse_server_url(admin).authority}"
        hint = "start the application, send it requests, and run doctor again; --admin-url names another address"
        yield Check(CAPTURED, ok=None, finding=finding, hint=hint)
    except RagmonError as error:
        yield Check(CAPTURED, ok=False, finding=str(error), hint=error.hint)
    else:
        if not any(check.name == CAPTURED for check in found):
            hint = "send requests; put `@ragmon.trace` below `@app.post`, else the framework calls the bare function"
            yield Check(CAPTURED, ok=None, finding="nothing yet: the monitor has no records", hint=hint)
        yield from found


def chain_checks(settings: Settings, admin: str, wait: float) -> Iterator[Check]:
    """Check every link from the exporter to `/metrics`; stop after the first broken one."""
    endpoint = str(address_of(settings.export.endpoint, os.environ))
    hint = "start the server, or correct `[export] endpoint`"
    try:
        address = parse_url(endpoint, "the export endpoint", hint=hint, base=True)
    except RagmonError as error:
        yield Check("endpoint", ok=False, finding=str(error), hint=hint)
        return
    try:
        socket.create_connection((address.host, address.port), TIMEOUT).close()
    except OSError as error:
        message = f"no answer from {address.authority} ({error.strerror or error})"
        yield Check("endpoint", ok=False, finding=message, hint=hint)
        return
    yield Check("endpoint", ok=True, finding=f"{address.authority} answers")
    before, visible = _server_status(admin)
    record = trial_record()
    delivery = send_record(settings, address, record)
    yield delivery
    if not delivery.ok:
        return
    yield visible
    if before is None:
        return
    yield from quarantine_checks(before.quarantined)
    yield from traffic_checks(before)
    deadline, after = time.monotonic() + wait, before
    while True:
        with suppress(NoResponseError):  # it may be restarting
            after = status(admin)
        if _scored(before, after, record) or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_INTERVAL)
    if not _scored(before, after, record):
        yield _not_scored(before, after, endpoint, wait)
        return
    row = 0 if after.journal is None else after.journal.row
    yield Check("journal", ok=True, finding=f"it is in row {row} or one before it")
    yield Check("scored", ok=True, finding=f"as pipeline {DOCTOR_PIPELINE}, which no metric, gate or alarm reads")
    yield _metrics(admin)


def _server_status(admin: str) -> tuple[ServerStatus | None, Check]:
    try:
        server_status = status(admin)
    except RagmonError as error:
        message = f"what became of the trace cannot be seen: {error}"
        return None, Check("server", ok=False, finding=message, hint=f"--admin-url URL; {error.hint}")
    authority = parse_server_url(admin).authority
    if server_status.journal is None:
        message = f"{authority} is the monitor in an application, which takes no records"
        hint = "--admin-url names the admin port of `ragmon serve`"
        return None, Check("server", ok=False, finding=message, hint=hint)
    if server_status.trouble:
        message = f"it accepts nothing: {server_status.trouble}"
        return None, Check("server", ok=False, finding=message, hint="its log says why")
    message, offset = f"ragmon {server_status.version} on {authority}", server_status.now - time.time()
    if abs(offset) > _CLOCK_TOLERANCE:
        message += f"; its clock is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}"
    return server_status, Check("server", ok=True, finding=message)


def _scored(before: ServerStatus, after: ServerStatus, record: Record) -> bool:
    # Its build is listed. Beyond a number of new names the server lists builds and pipelines as OTHER; then the scored
    # count must have grown.
    builds = [build for pipeline, build, _ in after.builds if pipeline in (DOCTOR_PIPELINE, OTHER)]
    return record.build in builds or (builds[-1:] == [OTHER] and _count(after, "scored") > _count(before, "scored"))


def _count(server_status: ServerStatus, name: str) -> int:
    return sum(getattr(counters, name) for counters in server_status.stages.values())


def _not_scored(before: ServerStatus, after: ServerStatus, endpoint: str, wait: float) -> Check:
    # What happened to a trace that the endpoint accepted.
    if after.trouble:
        message = f"it cannot be written: {after.trouble}"
        return Check("journal", ok=False, finding=message, hint="the server's log says why")
    dropped = _dropped(before, after)
    if dropped and _count(after, "received") > _count(before, "received"):
        is_late = dropped.keys() & _CLOCK_REASONS
        hint = "compare the clocks of this machine and the server's" if is_late else "its log says why"
        message = f"something arrived and was dropped: {_listed(dropped)}"
        return Check("scored", ok=False, finding=message, hint=hint)
    from ragmon.ingest.receiver import PURPOSE  # noqa: PLC0415 - imports the dependencies of the server

    is_ragmon = False
    with suppress(RagmonError):
        is_ragmon = get_page(endpoint, "/").body.startswith(PURPOSE.partition(":")[0].encode())
    refused = counter_delta(before.refused, after.refused)
    if is_ragmon:
        message = "a `ragmon serve` took the trace, but not the one at this admin port"
        hint = "pass its admin port with --admin-url, or correct `[export] endpoint`"
    elif refused:
        message = f"the collector's requests are turned away: {_listed(refused)}"
        hint = "give its exporter the server's token and protocol"
    else:
        message = f"what took the trace is not a `ragmon serve`: a collector? It passed nothing on within {wait:g} s"
        hint = "look at its log and its exporter; raise --wait if it batches for longer"
    return Check("arrived", ok=False, finding=message, hint=hint)


def _dropped(before: ServerStatus, after: ServerStatus) -> dict[str, int]:
    dropped: Counter[str] = Counter()
    for stage, counters in after.stages.items():
        earlier = before.stages.get(stage)
        dropped.update(counter_delta({} if earlier is None else dict(earlier.dropped), dict(counters.dropped)))
    return dropped


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))


def _metrics(admin: str) -> Check:
    try:
        response = get_page(admin, "/metrics")
    except RagmonError as error:
        return Check("metrics", ok=False, finding=str(error), hint=error.hint)
    lines = response.body.decode(errors="replace").splitlines()
    if response.status != HTTPStatus.OK:
        message = f"/metrics answered with status {response.status}"
        return Check("metrics", ok=False, finding=message, hint="the server's log says why")
    if not any(f'pipeline="{DOCTOR_PIPELINE}"' in line for line in lines):
        message = "the trace was scored but is not on /metrics"
        return Check("metrics", ok=False, finding=message, hint="report this: it is a bug")
    return Check("metrics", ok=True, finding=f"it is seen among {len(lines)} lines of /metrics")


def checks(settings: Settings, *, admin: str | None = None, wait: float = WAIT) -> Iterator[Check]:
    """Check everything a monitor needs, in the order in which a record passes it."""
    yield from local_checks(settings)
    yield from probes(settings)
    yield from stream_checks(settings)
    admin = admin or f"http://{settings.serve.admin}"
    if settings.export.endpoint is not None:
        yield from chain_checks(settings, admin, wait)
        return
    yield from local_quarantine(settings)
    message = "not tried: there is no `[export] endpoint`, records stay in this process"
    yield Check("server", ok=None, finding=message)
    yield from running_monitor(admin)


def doctor(context: click.Context, config: str | None, rate: float | None, admin_url: str | None, wait: float) -> None:
    """Try the chain from a call to /metrics, and say what the alarms can find in what time."""
    problems = check(config)
    for problem in problems:
        click.echo(f"config    bad   {printable_line(str(problem))}")
    if problems:
        context.exit(1)
    settings = load(config)
    click.echo(f"config    ok    {settings.path or 'no ragmon.toml, the defaults are in force'}")
    bad = False
    for result in checks(settings, admin=admin_url, wait=wait):
        bad |= result.ok is False
        word = "–" if result.ok is None else "ok" if result.ok else "bad"
        click.echo(f"{result.name:<9} {word:<3}   {printable_line(result.finding)}")
        if result.hint:
            click.echo(f"{'':15} hint: {printable_line(result.hint)}")
    installed = instrumentations(settings)
    if installed:
        click.echo("\nInstrumentations installed here, and what their spans lack:")
    for instrumentation in installed:
        lost = printable_line(instrumentation.loss or instrumentation.note or "nothing")
        click.echo(f"{instrumentation.name}: {lost}")
        if instrumentation.packages:
            click.echo(f"{'':6}{printable_line(', '.join(instrumentation.packages))}")
        if instrumentation.hint:
            click.echo(f"{'':6}hint: {printable_line(instrumentation.hint)}")
    rates = RATES if rate is None else (rate,)
    columns = [detectability(settings, rate) for rate in rates]
    rows = [("gate", "holds", "goes to", *(f"{rate:g}/min" for rate in rates))]
    for by_rate in zip(*columns, strict=True):
        gate = by_rate[0].gate
        name = gate.name if len(settings.expected_pipelines) == 1 else f"{gate.pipeline}/{gate.name}"
        holds = f"{'>=' if gate.at_least else '<='} {gate.threshold:g}"
        times = ["never" if found.minutes is None else duration(found.minutes) for found in by_rate]
        rows.append((name, holds, f"{by_rate[0].at:g}", *times))
    if columns[0]:
        click.echo("\nHow long a change takes to raise an alarm, by observations a minute:")
        click.echo("\n".join(text_table(rows)))
    context.exit(1 if bad else 0)
