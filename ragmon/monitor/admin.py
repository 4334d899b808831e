"""The ASGI application of the admin port, which a server and an embedded monitor share.

It shows no content of requests, except those of a server to holders of its token. It is read only, except for the
acknowledgements that an embedded monitor takes from its own machine.
"""

from __future__ import annotations

import asyncio
import gzip
from asyncio import Semaphore
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import unquote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.alarms.plan import describe, detectable_now
from ragmon.config.settings import Settings
from ragmon.core.constants import ACKS_PATH, FOLDED_SECONDS, HOUR
from ragmon.core.errors import (
    RagmonError,
    UnavailableError,
    UnknownIncidentError,
    UnknownNameError,
    log_error,
    nearest,
    printable_json,
    shorten,
)
from ragmon.core.http_server import (
    FORBIDDEN,
    JSON,
    LIMITS,
    LONGEST_ACK,
    UNKNOWN_PATH,
    HTTPError,
    acknowledgement,
    bad_media_type,
    check_size,
    media_type,
    read_body,
)
from ragmon.core.network import HINT, is_ip_or_localhost, is_known
from ragmon.export.families import label
from ragmon.export.pages import (
    CONTENT_SECURITY_POLICY,
    CONTENT_TYPES,
    PATH,
    PATHS,
    GateFindings,
    PipelineHistory,
    SpanChoice,
    asset,
    error_page,
    gate_page,
    gold_page,
    incident_page,
    incidents_page,
    monitor_page,
    overview_page,
    pipeline_page,
    runbook_page,
    usual_window,
)
from ragmon.export.prometheus import Collector
from ragmon.export.status import MonitorSnapshot, status_history
from ragmon.export.text import incident_text
from ragmon.gates.history import ChangeMark, GateHistory, TimeSpan
from ragmon.gates.incidents import Incident, as_incident
from ragmon.monitor.engine import SPANS, MonitorHistory

METHODS: Final = ("GET", "HEAD")
TRACES_PATH: Final = "/api/traces"
TRACE_PAGES_PATH: Final = "/t"
_RETRY: Final = {"Retry-After": "5"}
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Headers of every response."""
PIPELINES_PATH: Final = "/p"
MONITOR_PATH: Final = "/monitor"
INCIDENTS_PATH: Final = "/incidents"
REQUESTS_PATH: Final = "/requests"
GOLD_PATH: Final = "/gold"
_THREADS: Final = 4  # one makes most responses; the others are for comparisons and acknowledgements
_COMPRESSION_LEVEL: Final = 1  # of `/metrics`: higher levels take several times as long and save little
POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a page in one file: the page fetches nothing and has an origin of its own."""

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]
Acknowledge = Callable[[str, str, str, str], bool]
"""Takes alarm, pipeline, reason and person; returns whether the alarm fired."""
T = TypeVar("T")


class JournalQueries(NamedTuple):
    """The functions that answer paths which need a journal.

    `compare` and the traces run beside other requests, so they take the locks they need themselves.
    """

    records: Answer
    why: Answer
    compare: Answer
    trace: Answer
    trace_page: Answer
    requests: Answer


class JsonResponse(JSONResponse):
    """JSON without terminal control characters; a lone surrogate is written as its escape."""

    def render(self, content: Any) -> bytes:
        """The body of the response."""
        return printable_json(content, separators=(",", ":")).encode()


@dataclass(frozen=True)
class AdminView:
    """What an admin port shows of a monitor: functions that are called for each request.

    Attributes:
        moment: The version of the snapshot: while it is equal, the same series are shown again.
        failure: Why the process must be restarted; "" for a healthy process.
        trouble: Why requests cannot be accepted; "" while they can.
        configured: When each later configuration came into force, sorted, seconds since the epoch.
        diagnose: Explains a gate, given its pipeline, its name, and whether it is broken.
        explain: Explains an alarm, given its pipeline, its name, a time, None for now, and the request that asks.
        challenge: What makes a browser ask for the token, where a request wants content and has none.
    """

    snapshot: Callable[[], MonitorSnapshot]
    moment: Callable[[], object]
    status: Callable[[MonitorSnapshot], Mapping[str, Any]]
    history: MonitorHistory
    settings: Callable[[], Settings]
    failure: Callable[[], str] = str
    trouble: Callable[[], str] = str
    note: Callable[[], str] = str
    configured: Callable[[], Sequence[float]] = tuple
    diagnose: Callable[[str, str, bool], GateFindings] = lambda *_: GateFindings()
    explain: Callable[[str, str, float | None, Request], GateFindings] = lambda *_: GateFindings()
    challenge: Callable[[Request], Response | None] = lambda _: None


def names_in_path(scope: Scope) -> tuple[str, ...]:
    """The label of the pipeline, and the gate if there is one, in the path of a request; none in another path."""
    raw = scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
    _, first, *names = raw.split("/") if raw.startswith("/") else ("", "")
    return tuple(map(unquote, names)) if f"/{first}" == PIPELINES_PATH and all(names) else ()


def html(text: str) -> Response:
    """The response with a page and its Content-Security-Policy."""
    return HTMLResponse(text, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def overview(view: AdminView, request: Request) -> Response:
    """The overview of all gates."""
    status, asked = view.status(view.snapshot()), request.query_params.get("span", "")
    span, history = view.history.overview(asked)
    return html(overview_page(status, history, _choice(span, asked), view.history.unread))


def monitor(view: AdminView, _: Request) -> Response:
    """The page of the monitor itself."""
    current = view.snapshot()
    return html(monitor_page(view.status(current), current, view.settings()))


def incidents(view: AdminView, _: Request) -> Response:
    """The page of incidents and alarms."""
    transitions, current = view.history.transitions(), view.snapshot()
    return html(incidents_page(view.status(current), current, view.settings(), transitions))


def incidents_json(view: AdminView, _: Request) -> Response:
    """The incidents, the newest first."""
    current = view.snapshot()
    listed = [
        {**as_incident(incident), "summary": incident_text(incident, current.snapshot.now)}
        for incident in reversed(current.incidents)
    ]
    return JsonResponse({"incidents": listed})


def incident(view: AdminView, request: Request) -> Response:
    """The page of an incident."""
    if (challenge := view.challenge(request)) is not None:
        return challenge
    current, asked = view.snapshot(), request.path_params["name"]
    found = next((entry for entry in current.incidents if entry.name == asked), None)
    if found is None:
        raise UnknownIncidentError(asked, [entry.name for entry in current.incidents])
    span, until = _span_of(found, current.snapshot.now)
    _, histories = view.history.of_pipeline(found.pipeline, span.name, until)
    status, names = view.status(current), [alarm.partition(":")[0] for alarm in (found.alarm, *found.alarms)]
    gates = {gate["gate"]: gate for gate in status["gates"] if gate["pipeline"] == found.pipeline}
    gate = next((gates[name] for name in names if name in gates and (found.pipeline, name) in histories), None)
    history = None if gate is None else histories[found.pipeline, gate["gate"]]
    diagnosis = view.explain(found.pipeline, found.alarm, found.ended, request)
    transitions = view.history.transitions()
    return html(incident_page(status, found, gate, history, diagnosis, transitions))


def _span_of(incident: Incident, now: float) -> tuple[TimeSpan, float]:
    """The span of time in which the page shows an incident, and the end of the span."""
    lasts = (incident.ended or now) - incident.since
    whole = now - incident.since < HOUR  # later, windows of less than five minutes are folded
    spans = [span for span in SPANS.values() if whole or span.step >= FOLDED_SECONDS]
    span = next((span for span in spans if span.seconds >= 1.2 * lasts), spans[-1])
    after = (span.seconds - lasts) / 3  # the rest of the span comes before
    return span, now if incident.ended is None else min(now, incident.ended + after)


def moment(text: str, name: str) -> float:
    """The time, in seconds since the epoch, that a parameter names; UTC where it names no other zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RagmonError(f"{name} is {shorten(text)}", hint="a time in UTC: 2026-11-28 00:12") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def gold(view: AdminView, request: Request) -> Response:
    """The page of gold, labels and judges."""
    reader = view.history.gold
    found = reader.findings(request.query_params.get("span", ""))
    current = view.snapshot()
    return html(gold_page(view.status(current), current, view.settings(), found, reader.spans()))


def pipeline_or_gate(view: AdminView, request: Request) -> Response:
    """The page of a pipeline or of a gate, as the path says."""
    return gate(view, request) if len(names_in_path(request.scope)) == 2 else pipeline(view, request)


def pipeline(view: AdminView, request: Request) -> Response:
    """The page of a pipeline."""
    current, settings = view.snapshot(), view.settings()
    status = view.status(current)
    asked = "/".join(names_in_path(request.scope))
    with_records = {series.pipeline for series in current.snapshot.series}
    by_label = {label(name): name for name in (*settings.pipelines, *sorted(with_records))}
    if asked not in by_label:
        message = f"there is no pipeline {shorten(asked)}"
        raise HTTPError(404, UNKNOWN_PATH, message, hint=nearest(asked, list(by_label)))
    name, windows = by_label[asked], list(settings.windows)
    window = request.query_params.get("window") or usual_window(status["gates"], name, windows)
    if window not in windows:
        raise UnknownNameError("window", window, windows)
    asked = request.query_params.get("span", "")
    history = PipelineHistory(*view.history.series_of(name, asked))
    return html(pipeline_page(status, current, name, windows, window, history, _choice(history.span, asked)))


def _choice(span: TimeSpan, asked: str, *, is_past: bool = False) -> SpanChoice:
    # Of the past there are windows of five minutes and more.
    spans = [each for each in SPANS.values() if not is_past or each.step >= FOLDED_SECONDS]
    return SpanChoice(span, spans, f"?span={span.name}" if asked else "")


def gate(view: AdminView, request: Request) -> Response:
    """The page of a gate."""
    current, names = view.snapshot(), names_in_path(request.scope)
    status = view.status(current)
    found = next((gate for gate in status["gates"] if (label(gate["pipeline"]), gate["gate"]) == names), None)
    if found is None:
        shown = [f"{label(gate['pipeline'])}/{gate['gate']}" for gate in status["gates"]]
        name = "/".join(names)
        raise HTTPError(404, UNKNOWN_PATH, f"there is no gate {shorten(name)}", hint=nearest(name, shown))
    asked, key = request.query_params.get("span", ""), (found["pipeline"], found["gate"])
    chosen = request.query_params.get("until", "")
    until = min(status["now"], moment(chosen, "until")) if chosen else status["now"]
    span, histories = view.history.of_pipeline(found["pipeline"], asked, until)
    counted = [point.end for point in histories[key].points if point.n] if key in histories else []
    if counted and not asked:  # the shortest span that holds what was counted
        age = until - counted[0]
        shorter = next(shorter.name for shorter in SPANS.values() if shorter.seconds >= min(age, span.seconds))
        span, histories = view.history.of_pipeline(found["pipeline"], shorter, until)
    history = histories.get(key, GateHistory(span, until, []))
    begin = history.now - span.seconds
    reloads = [ChangeMark(ts, "configuration") for ts in view.configured() if begin <= ts <= history.now]
    history = replace(history, marks=sorted([*history.marks, *reloads]))
    pipeline, gate = found["pipeline"], found["gate"]
    has_changed = any(
        (each.outcome.gate.pipeline, each.outcome.gate.name) == (pipeline, gate) for each in current.changed
    )
    is_broken = has_changed or found["verdict"] == "fail" or found["firing"] is not None
    outcome = next((o for o in current.outcomes if (o.gate.pipeline, o.gate.name) == (pipeline, gate)), None)
    reach = None if outcome is None else detectable_now(view.settings(), current.outcomes, outcome)
    page = gate_page(
        status,
        found,
        history,
        _choice(span, asked, is_past=bool(chosen)),
        diagnosis=view.diagnose(pipeline, gate, is_broken),
        detectable="" if reach is None else describe(reach),
        current=current,
        of_pipeline=PipelineHistory(*view.history.series_of(pipeline, span.name, until)),
        has_changed=has_changed,
    )
    return html(page)


def admin_app(
    view: AdminView,
    hosts: Collection[str],
    queries: JournalQueries | None = None,
    acknowledge: Acknowledge | None = None,
) -> ASGIApp:
    """The ASGI application of an admin port.

    Without `queries` there is no journal; with `acknowledge` None a write port takes acknowledgements.
    """
    registry = CollectorRegistry()
    registry.register(Collector(view.snapshot, view.moment))
    served = True
    if queries is None:
        trace_log = "`ragmon show TRACE FILE` reads the trace log of `[export] jsonl`; `ragmon serve` keeps a journal"
        no_query = partial(_no_journal, "`ragmon serve` keeps one, and answers this")
        no_trace = partial(_no_journal, trace_log)
        queries = JournalQueries(no_query, no_query, no_query, no_trace, no_trace, no_query)
        served = False
    # Each response but a few needs the lock of the counts, so one at a time waits for it.
    pool, lock = ThreadPoolExecutor(_THREADS, "ragmon-admin"), Semaphore()
    answers: dict[str, Answer] = {
        "/": partial(overview, view),
        MONITOR_PATH: partial(monitor, view),
        INCIDENTS_PATH: partial(incidents, view),
        GOLD_PATH: partial(gold, view),
        "/metrics": partial(_metrics, registry),
        "/api/status": lambda _: JsonResponse(view.status(view.snapshot())),
        "/api/history": lambda _: JsonResponse(status_history(*view.history.overview())),
        "/api/incidents": partial(incidents_json, view),
        "/api/records": queries.records,
        "/api/why": queries.why,
    }
    endpoints = {path: _in_thread(answer, pool, lock) for path, answer in answers.items()}
    endpoints[PATH] = _in_thread(lambda _: html(runbook_page(served=served)), pool, nullcontext())
    for path, name in PATHS.items():
        endpoints[path] = _in_thread(partial(_asset, name), pool, nullcontext())
    endpoints["/api/compare"] = _in_thread(queries.compare, pool, nullcontext())
    endpoints[REQUESTS_PATH] = _in_thread(queries.requests, pool, nullcontext())
    endpoints["/healthz"] = _immediate(view.failure)
    endpoints["/readyz"] = _immediate(view.trouble, view.note)
    for path, answer in ((TRACES_PATH, queries.trace), (TRACE_PAGES_PATH, queries.trace_page)):
        endpoints[path + "/{trace}"] = _in_thread(answer, pool, nullcontext())
    endpoints[INCIDENTS_PATH + "/{name:path}"] = _in_thread(partial(incident, view), pool, lock)
    endpoints[PIPELINES_PATH + "/{names:path}"] = _in_thread(partial(pipeline_or_gate, view), pool, lock)
    routes = [Route(path, _guarded(endpoint)) for path, endpoint in endpoints.items()]
    if acknowledge is not None:
        routes.append(Route(ACKS_PATH, _guarded(_acknowledgements(acknowledge, pool)), methods=["POST"]))
    paths = {route.path.partition("/{")[0] for route in routes} - PATHS.keys()

    async def unknown_path(request: Request, _: Exception) -> Response:
        """Answer unknown paths, and methods that would change something."""
        path = request.scope["path"]
        if acknowledge is not None and path == ACKS_PATH:
            return _error(405, "acknowledgements are sent with POST", "`ragmon ack` does it", Allow="POST")
        if request.method not in METHODS:
            write_port = "POST labels and acknowledgements to the write port: `[serve] otlp`"
            hint = write_port if acknowledge is None else f"POST acknowledgements to {ACKS_PATH}"
            return _error(405, "this port only reads", hint, Allow=", ".join(METHODS))
        return _answer(request, 404, f"there is nothing at {shorten(path)}", nearest(path, _alike(path, paths)))

    handlers: dict[Any, Any] = {404: unknown_path, 405: unknown_path, HTTPError: _failed, RagmonError: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return check_origin(app, hosts)


def _alike(path: str, paths: Collection[str]) -> list[str]:
    """The paths of the API for a path of the API, and the pages for any other."""
    return [each for each in paths if each.startswith("/api/") == path.startswith("/api/")]


def check_origin(app: ASGIApp, hosts: Collection[str]) -> ASGIApp:
    """An application that rejects requests from web pages, whose authors could read the data.

    A page of another site sends `Origin`; one that uses DNS rebinding sends its own name in `Host`.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        handler = app
        if "origin" in headers:
            handler = _error(403, "requests from web pages are refused", "programs and links send no Origin")
        elif "host" in headers and not is_known(headers["host"], hosts):  # HTTP/1.0 health checks send no Host
            handler = _error(403, "this server is not known by that name", HINT)
        await handler(scope, receive, send)

    return checked


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except (HTTPError, RagmonError):
            raise
        except ClientDisconnect:
            return Response()  # nobody reads it
        except Exception as error:  # noqa: BLE001 - an error in one request must not affect others
            log_error(f"{request.scope['path']} could not be answered", error)
            return _error(500, "an error in ragmon", "the log says where")
        response.headers.update(HEADERS)
        return response

    return guarded


def _in_thread(answer: Answer, pool: ThreadPoolExecutor, lock: AbstractAsyncContextManager[Any]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        async with lock:
            return await _run(pool, answer, request)

    return endpoint


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *args: object) -> T:
    # Python ends this pool with the process; anyio's threads would keep it alive.
    try:
        future = asyncio.get_running_loop().run_in_executor(pool, function, *args)
    except RuntimeError as error:
        raise UnavailableError("the process is ending", hint="ask again when it is back") from error
    return await future


def _immediate(trouble: Callable[[], str], note: Callable[[], str] = str) -> Endpoint:
    # It waits for no lock: an orchestrator kills a server that does not answer.
    async def endpoint(_: Request) -> Response:
        error = trouble()
        remark = note()
        body = f"ok\n{remark}" if remark else "ok"
        return PlainTextResponse(f"{error or body}\n", 503 if error else 200)

    return endpoint


def _acknowledgements(acknowledge: Acknowledge, pool: ThreadPoolExecutor) -> Endpoint:
    # Browsers send no JSON across sites unasked, so JSON alone is accepted.
    async def endpoint(request: Request) -> Response:
        check_is_local(request, "acknowledgements are accepted only from this machine", "`ragmon ack` there")
        if media_type(request.headers) != JSON:
            raise bad_media_type(request.headers, JSON)
        check_size(request.headers, LONGEST_ACK)
        given = acknowledgement(await read_body(request, LONGEST_ACK, LIMITS.deadline))
        fired = await _run(pool, acknowledge, given.alert, given.pipeline, given.reason, given.by)
        return JsonResponse({"fired": fired})

    return endpoint


def check_is_local(request: Request, message: str, hint: str) -> None:
    """Reject a request (403) unless it comes from this machine and was meant for this machine."""
    if not is_local(request):
        raise HTTPError(403, FORBIDDEN, message, hint=hint)
    if not is_ip_or_localhost(request.headers.get("host", "")):
        raise HTTPError(
            403,
            FORBIDDEN,
            "requests from web pages are refused",
            hint="ask from a terminal, by an address or `localhost`",
        )


def is_local(request: Request) -> bool:
    """Whether a request is from this machine."""
    try:
        ip = ip_address("" if request.client is None else request.client.host)
    except ValueError:
        return False
    return bool((getattr(ip, "ipv4_mapped", None) or ip).is_loopback)


def _asset(name: str, _: Request) -> Response:
    return Response(asset(name), media_type=CONTENT_TYPES[name])


def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except (TypeError, ValueError):  # a malformed version in the header
        encode, content_type = choose_encoder("")
    body = encode(registry)
    headers = {"Content-Type": content_type}
    if gzip_accepted(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, _COMPRESSION_LEVEL)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers)


def _no_journal(hint: str, _: Request) -> NoReturn:
    raise HTTPError(404, UNKNOWN_PATH, "an embedded monitor has no journal", hint=hint)


async def _failed(request: Request, error: HTTPError | RagmonError) -> Response:
    if isinstance(error, HTTPError):
        return _answer(request, error.status, str(error), error.hint)
    if isinstance(error, UnavailableError):
        return _answer(request, 503, str(error), error.hint, **_RETRY)
    return _answer(request, 404 if isinstance(error, UnknownNameError) else 400, str(error), error.hint)


def _answer(request: Request, status: int, error: str, hint: str, **headers: str) -> Response:
    """An error as a page for a browser, as JSON for others."""
    path = request.scope["path"]
    if "text/html" not in request.headers.get("accept", "") or path.startswith("/api/"):
        return _error(status, error, hint, **headers)
    page = html(error_page(error, hint, path))
    page.status_code = status
    page.headers.update(HEADERS | headers)
    return page


def _error(status: int, error: str, hint: str, **headers: str) -> Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return JsonResponse({"error": error, "hint": hint}, status, headers=HEADERS | header_fields)


def document_app(text: str, hosts: Collection[str]) -> ASGIApp:
    """An application that answers `/` with a page."""

    async def page(_: Request) -> Response:
        return HTMLResponse(text, headers=HEADERS | {"Content-Security-Policy": POLICY})

    return check_origin(Starlette(routes=[Route("/", page)]), hosts)
