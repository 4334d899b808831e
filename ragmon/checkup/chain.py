"""A real trace through the configured chain: sent, looked for at the server, and the broken link named."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from ragmon.checkup import quarantine
from ragmon.checkup.check import Check
from ragmon.checkup.sending import PIPELINE, send, trial
from ragmon.config.settings import Settings
from ragmon.core.constants import OTHER, TOO_FUTURE, TOO_OLD
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record
from ragmon.remote import TIMEOUT, NoAnswerError, Place, Status, get, place, risen, status

WAIT: Final = 15.0
"""Seconds in which a trace must arrive; a collector sends what it has gathered every few seconds."""
_PAUSE: Final = 0.1
"""Seconds between two looks."""
_SKEW: Final = 2.0
"""Seconds two clocks may differ without being worth a word."""
_CLOCK: Final = (TOO_OLD, TOO_FUTURE)


def chain(settings: Settings, admin: str, wait: float) -> Iterator[Check]:
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
    before, seen = _look(admin)
    record = trial()
    sent = send(settings, there, record)
    yield sent
    if not sent.ok:
        return
    yield seen
    if before is None:
        return
    yield from quarantine.told(before.quarantined)
    after = _await(admin, before, record, wait)
    yield from _told(before, after, record, direct=_is_ragmon(endpoint), wait=wait)
    if _scored(before, after, record):
        yield _metrics(admin)


def _answers(endpoint: str) -> tuple[Place | None, Check]:
    """Where records are sent, if somebody listens there."""
    hint = "start the server, or correct `[export] endpoint`"
    try:
        there = place(endpoint)
        with socket.create_connection((there.host, there.port), timeout=TIMEOUT):
            return there, Check("endpoint", ok=True, told=f"{there} answers")
    except RagmonError as error:
        return None, Check("endpoint", ok=False, told=str(error), hint=hint)
    except OSError as error:
        told = f"nobody answers on {there} ({error.strerror or error})"
        return None, Check("endpoint", ok=False, told=told, hint=hint)


def _look(admin: str) -> tuple[Status | None, Check]:
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
    return found, Check("server", ok=True, told=f"ragmon {found.version} on {place(admin)}{note}")


def _is_ragmon(endpoint: str) -> bool:
    """Whether what takes the records is a `ragmon serve`, and no collector."""
    from ragmon.server.receiver.http import PURPOSE  # noqa: PLC0415 - loads what the server needs

    try:
        return get(endpoint, "/").body.startswith(PURPOSE.partition(":")[0].encode())
    except RagmonError:
        return False


def _await(admin: str, before: Status, record: Record, wait: float) -> Status:
    """How the server stands once the trace is scored, or when the time is up."""
    deadline, found = time.monotonic() + wait, before
    while True:
        with suppress(NoAnswerError):  # it may begin anew
            found = status(admin)
        if _scored(before, found, record) or time.monotonic() >= deadline:
            return found
        time.sleep(_PAUSE)


def _scored(before: Status, after: Status, record: Record) -> bool:
    """Whether the trace is scored: its build answered. Past so many new ones builds and pipelines lose their names."""
    mine = [build for pipeline, build, _ in after.builds if pipeline in (PIPELINE, OTHER)]
    return record.build in mine or (mine[-1:] == [OTHER] and _count(after, "scored") > _count(before, "scored"))


def _count(found: Status, name: str) -> int:
    return sum(getattr(books, name) for books in found.books.values())


def _told(before: Status, after: Status, record: Record, *, direct: bool, wait: float) -> Iterator[Check]:
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
    yield _lost(risen(before.refused, after.refused), direct=direct, wait=wait)


def _dropped(before: Status, after: Status) -> dict[str, int]:
    """What the server dropped in between, by reason."""
    found: dict[str, int] = {}
    for stage, books in after.books.items():
        known = before.books.get(stage)
        found |= risen({} if known is None else dict(known.dropped), dict(books.dropped))
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
        answer = get(admin, "/metrics")
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
