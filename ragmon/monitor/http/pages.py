"""The pages of the admin port: what each of them shows is read here, and drawn by `ragmon.export.pages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from ragmon.alarms.plan import describe
from ragmon.config.load import defaults
from ragmon.config.settings import Settings
from ragmon.core.errors import UnknownNameError, nearest, shorten
from ragmon.core.http_server import UNKNOWN_PATH, HTTPError
from ragmon.core.series_names import label
from ragmon.export.pages import alarms as alarms_page
from ragmon.export.pages import assets
from ragmon.export.pages import gate as gate_page
from ragmon.export.pages import gold as gold_page
from ragmon.export.pages import monitor as monitor_page
from ragmon.export.pages import overview as overview_page
from ragmon.export.pages import pipeline as pipeline_page
from ragmon.export.pages.gate import GateDetails, GateFindings, RequestFilter
from ragmon.export.pages.pipeline import PipelineHistory
from ragmon.export.state import MonitorSnapshot
from ragmon.gates.history import ChangeMark, GateHistory
from ragmon.monitor.detectability import detectable_now
from ragmon.monitor.history import SPANS, MonitorHistory

PIPELINES_PATH: Final = "/p"
MONITOR_PATH: Final = "/monitor"
ALARMS_PATH: Final = "/alarms"
GOLD_PATH: Final = "/gold"


@dataclass(frozen=True)
class AdminView:
    """What an admin port shows of a monitor: functions that are called for each request.

    Attributes:
        snapshot: Takes a snapshot.
        moment: The version of the snapshot: while it is equal, the same series are shown again.
        status: The data of `/api/status`, given a snapshot.
        history: What tells how gates were in the past; None shows no history.
        settings: The configuration in force.
        configured: When another configuration came into force, seconds since the epoch, in order of time.
        diagnose: Tells why a gate is broken, given its pipeline, its name, whether it is broken, and which of the
            failing requests to list.
        failure: Why the process must be restarted; "" where it need not be.
        trouble: Why requests cannot be accepted; "" where they can.
        note: What else to say where requests can be accepted.
    """

    snapshot: Callable[[], MonitorSnapshot]
    moment: Callable[[], object]
    status: Callable[[MonitorSnapshot], Mapping[str, Any]]
    failure: Callable[[], str] = str
    trouble: Callable[[], str] = str
    note: Callable[[], str] = str
    history: MonitorHistory | None = None
    settings: Callable[[], Settings] = defaults
    configured: Callable[[], Sequence[float]] = tuple
    diagnose: Callable[[str, str, bool, RequestFilter], GateFindings] = lambda *_: GateFindings()


def names_of(scope: Scope) -> tuple[str, ...]:
    """The label of the pipeline, and the gate if there is one, in the path of a request; none in another path."""
    raw = scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
    _, first, *names = raw.split("/") if raw.startswith("/") else ("", "")
    return tuple(map(unquote, names)) if f"/{first}" == PIPELINES_PATH and all(names) else ()


def html(text: str) -> Response:
    """A page, with the Content-Security-Policy that says what it may fetch and run."""
    return HTMLResponse(text, headers={"Content-Security-Policy": assets.POLICY})


def overview(view: AdminView, _: Request) -> Response:
    """The overview of all gates."""
    status = view.status(view.snapshot())
    if view.history is None:
        return html(overview_page.page(status))
    span, history = view.history.overview()
    return html(overview_page.page(status, history, span.words))


def monitor(view: AdminView, _: Request) -> Response:
    """The page of the monitor itself."""
    current = view.snapshot()
    return html(monitor_page.page(view.status(current), current, view.settings()))


def alarms(view: AdminView, _: Request) -> Response:
    """The page of alarms."""
    transitions = [] if view.history is None else view.history.transitions()
    current = view.snapshot()
    return html(alarms_page.page(view.status(current), current, view.settings(), transitions))


def gold(view: AdminView, request: Request) -> Response:
    """The page of gold, labels and judges.

    Raises:
        HTTPError: This monitor keeps no history (404).
        UnknownNameError: There is no such span of time.
    """
    if view.history is None:
        message = "this monitor keeps no history of gold items"
        raise HTTPError(404, UNKNOWN_PATH, message, hint="/metrics has their means")
    reader = view.history.gold
    found = reader.findings(request.query_params.get("span", ""))
    current = view.snapshot()
    return html(gold_page.page(view.status(current), current, view.settings(), found, reader.spans()))


def pipeline_or_gate(view: AdminView, request: Request) -> Response:
    """The page of what the path names: a pipeline, or a gate of one.

    Raises:
        HTTPError: There is no such thing (404).
        UnknownNameError: There is no such window or span of time.
    """
    return gate(view, request) if len(names_of(request.scope)) == 2 else pipeline(view, request)


def pipeline(view: AdminView, request: Request) -> Response:
    """The page of a pipeline.

    Raises:
        HTTPError: There is no such pipeline (404).
        UnknownNameError: There is no such window.
    """
    current, settings = view.snapshot(), view.settings()
    status = view.status(current)
    asked = "/".join(names_of(request.scope))
    with_records = {series.pipeline for series in current.snapshot.series}
    by_label = {label(name): name for name in (*settings.pipelines, *sorted(with_records))}
    if asked not in by_label or view.history is None:
        message = f"there is no pipeline {shorten(asked)}"
        raise HTTPError(404, UNKNOWN_PATH, message, hint=nearest(asked, list(by_label)))
    name, windows = by_label[asked], list(settings.windows)
    window = request.query_params.get("window") or pipeline_page.usual_window(status["gates"], name, windows)
    if window not in windows:
        raise UnknownNameError("window", window, windows)
    history = PipelineHistory(*view.history.series_of(name))
    return html(pipeline_page.page(status, current, name, windows, window, history))


def gate(view: AdminView, request: Request) -> Response:
    """The page of a gate.

    Raises:
        HTTPError: There is no such gate (404).
        UnknownNameError: There is no such span of time.
    """
    current, names = view.snapshot(), names_of(request.scope)
    status = view.status(current)
    found = next((gate for gate in status["gates"] if (label(gate["pipeline"]), gate["gate"]) == names), None)
    if found is None or view.history is None:
        shown = [f"{label(gate['pipeline'])}/{gate['gate']}" for gate in status["gates"]]
        name = "/".join(names)
        raise HTTPError(404, UNKNOWN_PATH, f"there is no gate {shorten(name)}", hint=nearest(name, shown))
    span, histories = view.history.of_pipeline(found["pipeline"], request.query_params.get("span", ""))
    history = histories.get((found["pipeline"], found["gate"]), GateHistory(span, status["now"], []))
    begin = history.now - span.seconds
    reloads = [ChangeMark(ts, "configuration") for ts in view.configured() if ts >= begin]
    history = replace(history, marks=sorted([*history.marks, *reloads]))
    details = _details(view, current, view.history, found, request)
    return html(gate_page.page(status, found, history, SPANS.values(), details))


def _details(
    view: AdminView, current: MonitorSnapshot, history: MonitorHistory, gate: Mapping[str, Any], request: Request
) -> GateDetails:
    """What the page of a gate shows beside its history."""
    names = (gate["pipeline"], gate["gate"])
    shown = RequestFilter(**{name: request.query_params.get(name, "") for name in RequestFilter._fields})
    is_broken = gate["verdict"] == "fail" or gate["firing"] is not None
    outcome = next((o for o in current.outcomes if (o.gate.pipeline, o.gate.name) == names), None)
    reach = None if outcome is None else detectable_now(view.settings(), current.outcomes, outcome)
    return GateDetails(
        view.diagnose(*names, is_broken, shown),
        "" if reach is None else describe(reach),
        current,
        PipelineHistory(*history.series_of(gate["pipeline"])),
        shown,
    )
