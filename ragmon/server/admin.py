"""What a server's admin port answers besides what every monitor does, and the pages of a journal without its server.

A query parameter that is unknown, repeated or malformed is answered with an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from msgspec import to_builtins
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from ragmon.config.settings import Settings
from ragmon.config.units import duration
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError, nearest, shorten
from ragmon.core.http_server import UNKNOWN_PATH, HTTPError
from ragmon.core.process import current_version
from ragmon.export import pages
from ragmon.export.status import MonitorSnapshot, ServerFindings, status
from ragmon.gates.releases import By
from ragmon.gates.request import RequestReport, without_content
from ragmon.ingest.receiver import authorise
from ragmon.monitor.admin import AdminView, Answer, JournalQueries, JsonResponse, admin_app, html, is_local
from ragmon.monitor.embedded import split
from ragmon.monitor.engine import Engine, MonitorHistory
from ragmon.server.failures import FailureQuery
from ragmon.server.queries import MAX_DROP, QueryService, StatusService, UnknownTraceError
from ragmon.server.reader import open_readonly
from ragmon.server.state import Clock, ServerState, recover
from ragmon.server.store import journal_file

OUTCOME: Final = "fail"
"""The only outcome that records can be queried by: requests that keep their gates are in no index."""
LIMIT: Final = 50
_RECORDS: Final = (
    "pipeline",
    "source",
    "gate",
    "metric",
    "outcome",
    "build",
    "index_hash",
    "since",
    "limit",
    "cursor",
)
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")
_SHARE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")
_CHALLENGE: Final = 'Basic realm="the token of the write ports is the password", charset="UTF-8"'
_OTHERS: Final = "the admin port shows content to whoever sends the token of `[serve] token_file`"
_NOBODY: Final = (
    "the admin port shows no content where the server has no `[serve] token_file`; "
    "`ragmon show TRACE --state-dir DIR` reads the journal on its machine"
)


def records(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """A page of the requests that fail a gate."""
    params = _params(given, *_RECORDS)
    if params.get("outcome", OUTCOME) != OUTCOME:
        hint = f"{OUTCOME}: the index holds the requests that alone fail a gate, and no others"
        raise RagmonError(f"outcome is {shorten(params['outcome'])}", hint=hint)
    source = params.get("source")
    if source is not None and source not in constants.SOURCES:
        raise UnknownNameError("source", source, constants.SOURCES)
    pipeline = asking.pipeline_name(params["pipeline"]) if "pipeline" in params else None
    metric = asking.metric(params["metric"]) if "metric" in params else None
    failing = FailureQuery(pipeline=pipeline, metric=metric)
    if "gate" in params:
        pipeline, gate = _gate(asking, params)
        failing = asking.judged(pipeline, gate)
        if metric not in (None, failing.metric):
            raise RagmonError(f"gate {gate} judges {failing.metric}, not {metric}", hint="give one of them")
    since = _seconds(params)
    query = replace(
        failing,
        source=source,
        build=params.get("build"),
        index_hash=params.get("index_hash"),
        since=0.0 if since is None else asking.now() - since,
        limit=_limit(params),
        cursor=params.get("cursor"),
    )
    return asking.records(query)


def why(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """What broke: the diagnosis of a gate."""
    params = _params(given, "gate", "pipeline", "since")
    return asking.why(*_gate(asking, params), _seconds(params))


def compare(asking: QueryService, given: QueryParams) -> dict[str, Any]:
    """Compare one release with another."""
    params = _params(given, "pipeline", "by", "baseline", "candidate", "max_drop", "intervals")
    by: By = "index_hash" if params.get("by") == "index_hash" else "build"
    if params.get("by", by) != by:
        raise RagmonError(f"by is {shorten(params['by'])}", hint=nearest(params["by"], ("build", "index_hash")))
    releases = _required(params, "baseline"), _required(params, "candidate")
    max_drop = params.get("max_drop", str(MAX_DROP))
    if not _SHARE.fullmatch(max_drop) or float(max_drop) >= 1:
        raise RagmonError(f"max_drop is {shorten(max_drop)}", hint="a share below 1: 0.02 is 2 points")
    intervals = params.get("intervals", "false")
    if intervals not in ("true", "false"):
        raise RagmonError(f"intervals is {shorten(intervals)}", hint="true or false")
    pipeline = params.get("pipeline", asking.default_pipeline)
    return asking.compare(pipeline, by, releases, float(max_drop), intervals=intervals == "true")


def trace(asking: QueryService, request: Request, token: str | None) -> dict[str, Any]:
    """The requests of a trace; their content only where the request has the token of the write ports."""
    _params(request.query_params)
    return {"requests": to_builtins(_requests(asking, request, token))}


def _requests(asking: QueryService, request: Request, token: str | None) -> list[RequestReport]:
    given = request.headers.get("authorization", "")
    if given and token is not None:
        authorise(given.encode("latin-1"), token)
    withheld = "" if given and token is not None else _NOBODY if token is None else _OTHERS
    try:
        reports = asking.trace(request.scope["path"].rpartition("/")[2])
    except UnknownTraceError as error:
        raise HTTPError(404, UNKNOWN_PATH, str(error), hint=error.hint) from None
    return [without_content(entry, withheld) for entry in reports] if withheld else reports


def trace_page(asking: QueryService, request: Request, token: str | None) -> Response:
    """The page of a trace; with `text=1` a browser asks for the token, as the password of Basic (RFC 7617).

    The password is asked for over a connection from this machine alone: no other machine can read it there.
    """
    wants_text = "text" in _params(request.query_params, "text")
    given, is_private = request.headers.get("authorization", ""), is_local(request)
    if wants_text and token is not None and is_private:
        try:
            authorise(given.encode("latin-1"), token)
        except HTTPError as error:
            return PlainTextResponse(f"{error}\n", 401, {"WWW-Authenticate": _CHALLENGE})
    reports = _requests(asking, request, token)
    may_ask = token is not None and is_private and not given
    asked = request.scope["path"].rpartition("/")[2]
    return html(pages.trace_page(asked, reports, now=asking.now(), version=current_version(), may_ask=may_ask))


def _params(given: QueryParams, *allowed: str) -> dict[str, str]:
    names = [name for name, _ in given.multi_items()]
    for name in names:
        if name not in allowed:
            hint = nearest(name, allowed)
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=hint)
        if names.count(name) > 1:
            raise RagmonError(f"the parameter {name} is given twice", hint="once")
    return dict(given)


def _required(params: dict[str, str], name: str) -> str:
    if not params.get(name):
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return params[name]


def _gate(asking: QueryService, params: dict[str, str]) -> tuple[str, str]:
    """The pipeline and the gate; `support/precision` names both."""
    gate, pipeline = split(_required(params, "gate"), params.get("pipeline", asking.default_pipeline))
    if pipeline != params.get("pipeline", pipeline):
        message = f"gate names the pipeline {shorten(pipeline)}, and pipeline {shorten(params['pipeline'])}"
        raise RagmonError(message, hint="name it once")
    return pipeline, gate


def _seconds(params: dict[str, str]) -> float | None:
    text = params.get("since")
    if text is None:
        return None
    try:
        seconds = float(text) if _SECONDS.fullmatch(text) else float(duration(text))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds")
    return seconds


def _limit(params: dict[str, str]) -> int:
    text = params.get("limit", str(LIMIT))
    if not _COUNT.fullmatch(text):
        raise RagmonError(f"limit is {shorten(text)}", hint="a number of records, at least 1; a page has 1000 at most")
    return int(text)


def server_admin(views: StatusService, hosts: Collection[str], token: str | None = None) -> ASGIApp:
    """The ASGI application of a server's admin port."""
    asking = QueryService(views.writer, views.folder)
    view = AdminView(
        views.monitor_snapshot,
        views.moment,
        views.status,
        MonitorHistory(views.locked),
        views.settings,
        views.failure,
        views.trouble,
        views.note,
        configured=views.configured,
        diagnose=asking.diagnose,
    )
    return admin_app(view, hosts, journal_queries(asking, token))


def journal_queries(asking: QueryService, token: str | None) -> JournalQueries:
    """What answers the paths that need a journal."""

    def answer(query: Callable[[QueryService, QueryParams], dict[str, Any]]) -> Answer:
        return lambda request: JsonResponse(query(asking, request.query_params))

    return JournalQueries(
        answer(records),
        answer(why),
        answer(compare),
        lambda request: JsonResponse(trace(asking, request, token)),
        lambda request: trace_page(asking, request, token),
    )


class JournalView:
    """The state of a journal at its last row."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        with open_readonly(folder) as journal:
            self.server_state: ServerState = recover(settings, journal)
            (row, newest), oldest = journal.last(), journal.oldest()
        if oldest is None:
            hint = "the state folder of a `ragmon serve` that received data"
            raise RagmonError(f"{folder} holds no row yet", hint=hint)
        self.folder, self.lock = folder, Lock()
        self.clock = Clock(wall=lambda: newest, passed=lambda: 0.0)
        self.queries = QueryService(self, folder)
        self._oldest, self._row = oldest, row
        self.server_state.advance(newest)

    @contextmanager
    def locked(self) -> Iterator[tuple[Engine, float]]:
        """The engine and the time."""
        with self.lock:
            yield self.server_state.engine, self.clock.now()

    def snapshot(self) -> MonitorSnapshot:
        """The state for exporters."""
        with self.lock:
            return self.server_state.monitor_snapshot(self.clock.now(), 0)

    def status(self, current: MonitorSnapshot) -> dict[str, Any]:
        """The data of `/api/status`."""
        settings, size = self.server_state.engine.settings, journal_file(self.folder).stat().st_size
        journal = {
            "bytes": size,
            "limit": int(settings.serve.max_size),
            "row": self._row,
            "oldest": self._oldest,
            "newest": self.clock.now(),
            "checkpoint": None,
            "resets": 0,
        }
        return status(current, settings, self._oldest, ServerFindings(journal=journal))

    def view(self) -> AdminView:
        """What an admin port shows of it."""
        settings = self.server_state.engine.settings
        return AdminView(
            self.snapshot,
            lambda: None,
            self.status,
            MonitorHistory(self.locked),
            lambda: settings,
            diagnose=self.queries.diagnose,
        )
