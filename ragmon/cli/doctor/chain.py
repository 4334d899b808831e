"""One record on its way: sent as the application sends its own, and why that fails where it does.

Requests that are set aside, since the process ended or froze twice while it worked on each of them.

A real trace through the configured chain: sent, looked for at the server, and the broken link named.
"""

from __future__ import annotations

import logging
import re
import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

from ragmon.cli.client import (
    TIMEOUT,
    NoAnswerError,
    QuarantinedItem,
    ServerAddress,
    ServerStatus,
    counter_delta,
    get_page,
    parse_server_address,
    status,
)
from ragmon.cli.doctor.local import Check
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import OTHER, TOO_FUTURE, TOO_OLD
from ragmon.core.errors import RagmonError
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.monitor.build import Redactions
from ragmon.monitor.exporting import Redacting, server
from ragmon.server.journal import open_readonly

PIPELINE: Final = "ragmon-doctor"
"""Nobody's pipeline."""
TAGS: Final = {"ragmon": "doctor"}
EXPORTER: Final = "exporter"
_IN_NO_ESTIMATE: Final = Sampling(audit=False, stratum=constants.UNKNOWN_WEIGHT)
"""Such a record is counted and scored, and no metric, gate or alarm reads it."""
_HANDSHAKE: Final = 3.0
"""Seconds to wait for an answer to a TLS handshake."""
_STATUS: Final = re.compile(r"status (\d{3})")
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "`[serve] token_file` here and there must hold the same token",
    HTTPStatus.FORBIDDEN: "ask for an address or localhost, or give both sides a token; a proxy may refuse it too",
    HTTPStatus.NOT_FOUND: "`[export] endpoint` is the base address of an OTLP/HTTP receiver, without /v1/traces",
    HTTPStatus.METHOD_NOT_ALLOWED: "this is a web server and no OTLP/HTTP receiver: correct `[export] endpoint`",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "a record of 1 KB is too large: raise the limit of the proxy in between",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "it takes no protobuf, or no gzip: name a receiver of OTLP over HTTP",
    HTTPStatus.TOO_MANY_REQUESTS: "it has too much to do: give it more, or sample less",
    HTTPStatus.SERVICE_UNAVAILABLE: "it can write nothing at the moment: its log and `/readyz` say why",
}


def trial_record() -> Record:
    """A healthy answer that says nothing of anybody, with an id and a build of its own."""
    return Record(
        v=constants.CONTRACT_VERSION,
        trace_id=secrets.token_hex(16),
        ts=time.time(),
        pipeline=PIPELINE,
        source=constants.PROBE,
        build=f"doctor-{secrets.token_hex(4)}",
        retrieved_ids=["ragmon-doctor"],
        answer_json=Answer(claim="yes", citations=["ragmon-doctor"]),
        latency_ms=Latency(total=1.0),
        sampling=_IN_NO_ESTIMATE,
        tags=dict(TAGS),
    )


def send_record(settings: Settings, place: ServerAddress, record: Record) -> Check:
    """Send a record with the configured token through the exporter that applications send through.

    Args:
        settings: The configuration, with an endpoint.
        place: The endpoint.
        record: What is sent.
    """
    try:
        sink = server(settings, cache(lambda: Redactions(settings)))
    except RagmonError as error:
        return Check(EXPORTER, ok=False, told=f"not tried: {error}", hint=error.hint)
    assert isinstance(sink, Redacting)  # noqa: S101 - there is an endpoint
    with _heard() as said, closing(sink):
        lost = sink.deliver([record])
    if not lost:
        return Check(EXPORTER, ok=True, told=f"{place} took a trace")
    why = " ".join(said) or f"{place} said no to the record itself ({', '.join(lost)})"
    return Check(EXPORTER, ok=False, told=why, hint=_hint(why, place))


def _hint(why: str, place: ServerAddress) -> str:
    """What would be right."""
    found = _STATUS.search(why)
    if found is not None:
        return _HINTS.get(int(found[1]), "its log says why")
    if "does not answer in time" in why:
        return "its log; or something in between takes requests and passes none on"
    if "certificate is not trusted" in why:
        return "SSL_CERT_FILE names a file of the certificates to trust, for this command as for the application"
    if place.tls:
        return "" if _speaks_tls(place) else "it does not speak TLS: write http:// in `[export] endpoint`"
    return (
        "it speaks TLS: write https:// in `[export] endpoint`" if _speaks_tls(place) else "correct `[export] endpoint`"
    )


def _speaks_tls(place: ServerAddress) -> bool:
    """Whether it answers a TLS handshake; whose certificate it has does not matter here."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((place.host, place.port), timeout=_HANDSHAKE) as plain, asking.wrap_socket(plain):
            return True
    except OSError:
        return False


class _Listener(logging.Handler):
    """Keeps what is said.

    Args:
        said: Where.
    """

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self._said.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the exporter warns of inside the block: it tells its log alone why it fails."""
    said: list[str] = []
    listener, log = _Listener(said), logging.getLogger("ragmon")
    log.addHandler(listener)
    try:
        yield said
    finally:
        log.removeHandler(listener)


QUARANTINE: Final = "set aside"
SHOWN: Final = 5
"""Requests that are named, the newest."""
HINT: Final = "docs/runbook.md, RagmonDropsRecords, says how to look at one; `ragmon forget --trace` deletes it"


def on_disk(settings: Settings) -> Iterator[Check]:
    """What a journal on this machine holds aside, where there is one.

    Args:
        settings: The configuration, of a server.
    """
    try:
        with open_readonly(Path(settings.serve.state_dir)) as journal:
            found = [QuarantinedItem(one.arrival, one.step, one.trace_id, one.size) for one in journal.quarantined()]
    except RagmonError:  # no server keeps its journal here
        return
    yield from quarantine_checks(found)


def quarantine_checks(found: Iterable[QuarantinedItem]) -> Iterator[Check]:
    """What is said of requests that are set aside; nothing where there are none.

    Args:
        found: The requests, in the order in which they were set aside.
    """
    newest = list(found)[::-1]
    if not newest:
        return
    more = f" and {len(newest) - SHOWN} more" if len(newest) > SHOWN else ""
    names = ", ".join(map(_name, newest[:SHOWN]))
    yield Check(QUARANTINE, ok=True, told=f"after the process ended over it twice: {names}{more}", hint=HINT)


def _name(one: QuarantinedItem) -> str:
    moment = datetime.fromtimestamp(one.arrival, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    trace = f"trace {one.trace_id}" if one.trace_id else "a line without a trace"
    return f"{trace}, {one.size} bytes, came {moment}, while {one.step}"


WAIT: Final = 15.0
"""Seconds in which a trace must arrive; a collector sends what it has gathered every few seconds."""
_PAUSE: Final = 0.1
"""Seconds between two looks."""
_SKEW: Final = 2.0
"""Seconds two clocks may differ without being worth a word."""
_CLOCK: Final = (TOO_OLD, TOO_FUTURE)


def chain_checks(settings: Settings, admin: str, wait: float) -> Iterator[Check]:
    """Try every link from the exporter to `/metrics`; the first that is broken is the last that is told.

    Args:
        settings: The configuration, with an endpoint.
        admin: The address of the server's admin port.
        wait: Seconds in which a trace must arrive.
    """
    endpoint = str(settings.export.endpoint)
    there, answers = _answers(endpoint)
    yield answers
    if there is None:
        return
    before, seen = _server_status(admin)
    record = trial_record()
    sent = send_record(settings, there, record)
    yield sent
    if not sent.ok:
        return
    yield seen
    if before is None:
        return
    yield from quarantine_checks(before.quarantined)
    after = _await(admin, before, record, wait)
    yield from _told(before, after, record, direct=_is_ragmon(endpoint), wait=wait)
    if _scored(before, after, record):
        yield _metrics(admin)


def _answers(endpoint: str) -> tuple[ServerAddress | None, Check]:
    """Where records are sent, if somebody listens there."""
    hint = "start the server, or correct `[export] endpoint`"
    try:
        there = parse_server_address(endpoint)
        with socket.create_connection((there.host, there.port), timeout=TIMEOUT):
            return there, Check("endpoint", ok=True, told=f"{there} answers")
    except RagmonError as error:
        return None, Check("endpoint", ok=False, told=str(error), hint=hint)
    except OSError as error:
        told = f"nobody answers on {there} ({error.strerror or error})"
        return None, Check("endpoint", ok=False, told=told, hint=hint)


def _server_status(admin: str) -> tuple[ServerStatus | None, Check]:
    """How the server stands, and whether that can be seen."""
    try:
        found = status(admin)
    except RagmonError as error:
        told = f"it cannot be seen what became of the trace: {error}"
        return None, Check("server", ok=False, told=told, hint=f"--admin-url URL; {error.hint}")
    if found.trouble:
        return None, Check("server", ok=False, told=f"it takes nothing: {found.trouble}", hint="its log says why")
    ahead = found.now - time.time()
    note = f"; its clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}" if abs(ahead) > _SKEW else ""
    return found, Check("server", ok=True, told=f"ragmon {found.version} on {parse_server_address(admin)}{note}")


def _is_ragmon(endpoint: str) -> bool:
    """Whether what takes the records is a `ragmon serve`, and no collector."""
    from ragmon.server.receiver.http import PURPOSE  # noqa: PLC0415 - loads what the server needs

    try:
        return get_page(endpoint, "/").body.startswith(PURPOSE.partition(":")[0].encode())
    except RagmonError:
        return False


def _await(admin: str, before: ServerStatus, record: Record, wait: float) -> ServerStatus:
    """How the server stands once the trace is scored, or when the time is up."""
    deadline, found = time.monotonic() + wait, before
    while True:
        with suppress(NoAnswerError):  # it may begin anew
            found = status(admin)
        if _scored(before, found, record) or time.monotonic() >= deadline:
            return found
        time.sleep(_PAUSE)


def _scored(before: ServerStatus, after: ServerStatus, record: Record) -> bool:
    """Whether the trace is scored: its build answered. Past so many new ones builds and pipelines lose their names."""
    mine = [build for pipeline, build, _ in after.builds if pipeline in (PIPELINE, OTHER)]
    return record.build in mine or (mine[-1:] == [OTHER] and _count(after, "scored") > _count(before, "scored"))


def _count(found: ServerStatus, name: str) -> int:
    return sum(getattr(books, name) for books in found.books.values())


def _told(before: ServerStatus, after: ServerStatus, record: Record, *, direct: bool, wait: float) -> Iterator[Check]:
    """What became of a trace that somebody took.

    Args:
        before: How the server stood before it was sent.
        after: How it stands now.
        record: The trace.
        direct: A `ragmon serve` took it.
        wait: Seconds it was waited for.
    """
    if _scored(before, after, record):
        yield Check("journal", ok=True, told=f"it is in row {after.journal.row} or one before it")
        yield Check("scored", ok=True, told=f"as pipeline {PIPELINE}, which no metric, gate or alarm reads")
        return
    if after.trouble:
        yield Check(
            "journal", ok=False, told=f"it cannot be written: {after.trouble}", hint="the server's log says why"
        )
        return
    dropped = _dropped(before, after)
    if dropped and _count(after, "received") > _count(before, "received"):
        yield Check(
            "scored", ok=False, told=f"something arrived and was dropped: {_listed(dropped)}", hint=_why(dropped)
        )
        return
    yield _lost(counter_delta(before.refused, after.refused), direct=direct, wait=wait)


def _dropped(before: ServerStatus, after: ServerStatus) -> dict[str, int]:
    """What the server dropped in between, by reason."""
    found: dict[str, int] = {}
    for stage, books in after.books.items():
        known = before.books.get(stage)
        found |= counter_delta({} if known is None else dict(known.dropped), dict(books.dropped))
    return found


def _why(dropped: dict[str, int]) -> str:
    return "compare the clocks of this machine and the server's" if dropped.keys() & set(_CLOCK) else "its log says why"


def _lost(refused: dict[str, int], *, direct: bool, wait: float) -> Check:
    """Somebody took the trace, and it did not come."""
    if direct:
        told = "a `ragmon serve` took the trace, and it is not the one that was asked"
        hint = "--admin-url names its admin port, or `[export] endpoint` leads to another server"
        return Check("arrived", ok=False, told=told, hint=hint)
    told = f"what took the trace is no `ragmon serve`: a collector? It passed nothing on within {wait:g} s"
    if refused:
        told = f"the collector's requests are turned away: {_listed(refused)}"
        hint = "give its exporter the server's token and protocol"
        return Check("arrived", ok=False, told=told, hint=hint)
    return Check("arrived", ok=False, told=told, hint="its log and its exporter; --wait, where it gathers for longer")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))


def _metrics(admin: str) -> Check:
    """Whether the trace is seen where Prometheus looks."""
    try:
        answer = get_page(admin, "/metrics")
    except RagmonError as error:
        return Check("metrics", ok=False, told=str(error), hint=error.hint)
    lines = answer.body.decode(errors="replace").splitlines()
    if answer.status != HTTPStatus.OK:
        told = f"/metrics answered with status {answer.status}"
        return Check("metrics", ok=False, told=told, hint="the server's log says why")
    if not any(f'pipeline="{PIPELINE}"' in line for line in lines):
        return Check(
            "metrics", ok=False, told="the trace is scored and not on /metrics", hint="report this: it is a bug"
        )
    return Check("metrics", ok=True, told=f"it is seen among {len(lines)} lines of /metrics")
