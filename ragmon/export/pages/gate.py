"""The page of a gate: its history as a chart, what broke it, and the requests that fail it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ragmon.core.series_names import label
from ragmon.export.pages.overview import REFRESH, gate_row
from ragmon.export.pages.pipeline import PipelineHistory
from ragmon.export.pages.rendering import query, render
from ragmon.export.pages.time_chart import time_chart
from ragmon.export.prometheus_quality import exported_metrics, exported_series
from ragmon.export.state import MonitorSnapshot
from ragmon.gates.history import GateHistory, GatePoint, TimeSpan

ROOT: Final = "../../"
"""From this page to the overview."""
_FILTERS: Final = {"build": "build", "index_hash": "index", "where": "slice"}
"""What a reader calls the fields that requests are filtered by."""
MOST_CHOICES: Final = 12
"""Builds, indexes or slices that are offered as filters; the newest."""


@dataclass(frozen=True)
class GateFindings:
    """What is known of why a gate is broken.

    Attributes:
        text: The diagnosis in words, as `ragmon why` prints it; "" where the gate is not broken.
        requests: The newest requests that fail the gate, as `/api/records` lists them; None without a journal.
        note: Why there is no diagnosis or no list, in a sentence.
        cursor: Where the next page of requests begins; None where there is none.
    """

    text: str = ""
    requests: Sequence[Mapping[str, Any]] | None = None
    note: str = ""
    cursor: str | None = None


class RequestFilter(NamedTuple):
    """Which of the requests that fail a gate are listed.

    Attributes:
        build: Only those of this build; "" for any.
        index_hash: Only those of this index; "" for any.
        where: Only those of this slice, `tag=value`; "" for any.
        cursor: Where the page begins; "" for the newest.
    """

    build: str = ""
    index_hash: str = ""
    where: str = ""
    cursor: str = ""


@dataclass(frozen=True)
class GateDetails:
    """What else the page of a gate shows.

    Attributes:
        diagnosis: What is known of why the gate is broken.
        detectable: What its alarm finds and how soon, in words; "" where nothing is known of it.
        current: The state of the monitor.
        of_pipeline: The gate's pipeline over time.
        shown: Which of the failing requests are listed.
    """

    diagnosis: GateFindings
    detectable: str
    current: MonitorSnapshot
    of_pipeline: PipelineHistory
    shown: RequestFilter


def page(
    status: Mapping[str, Any],
    gate: Mapping[str, Any],
    history: GateHistory,
    spans: Iterable[TimeSpan],
    details: GateDetails,
) -> str:
    """The page of a gate as HTML.

    Args:
        status: The data of `/api/status`.
        gate: The gate in it.
        history: The gate over time.
        spans: What else it can be shown over.
        details: What else is shown.
    """
    at_least, name = gate["direction"] == "at_least", f"{gate['pipeline']}/{gate['gate']}"
    return render(
        "gate.html.jinja",
        now=status["now"],
        version=status["version"],
        root=ROOT,
        title=f"ragmon: {name} {_state(gate)}",
        gate=gate_row(gate, None),
        history=history,
        chart=time_chart(history, threshold=gate["threshold"], at_least=at_least, name=f"{name}, {history.span.words}"),
        points=[_point(point) for point in reversed(history.points) if point.n],
        spans=list(spans),
        here=label(gate["pipeline"]),
        drawn=_drawn(gate, history),
        changes=list(enumerate(history.marks, 1)),
        sources=list(_by_source(gate, details)),
        detectable=details.detectable,
        diagnosis=details.diagnosis,
        filters=list(_filters(gate["pipeline"], details)),
        more=_more(history.span.name, details),
        refresh=REFRESH,
    )


def _state(gate: Mapping[str, Any]) -> str:
    verdict = {"pass": "passes", "fail": "fails", "insufficient": "is undecided"}[gate["verdict"]]
    return verdict if gate["firing"] is None else f"{verdict}, its alarm fires"


def _drawn(gate: Mapping[str, Any], history: GateHistory) -> dict[str, Any]:
    """What the script draws: the same numbers as the chart and the table."""
    points = history.points
    return {
        "begin": history.now - history.span.seconds,
        "end": history.now,
        "step": history.span.step,
        "threshold": gate["threshold"],
        "at_least": gate["direction"] == "at_least",
        "times": [point.end - history.span.step / 2 for point in points],
        "value": [point.value for point in points],
        "lower": [point.lower for point in points],
        "upper": [point.upper for point in points],
        "n": [point.n for point in points],
        "alarms": [list(span) for span in history.alarms],
        "marks": [mark.ts for mark in history.marks],
    }


def _by_source(gate: Mapping[str, Any], details: GateDetails) -> Iterator[dict[str, Any]]:
    """The gate's metric from every source that has it, in the gate's window."""
    snapshot, key = details.current.snapshot, gate["metric"]
    for series in exported_series(snapshot):
        if series.pipeline != gate["pipeline"] or series.window != gate["window"]:
            continue
        if key not in dict(exported_metrics(series, snapshot)):
            continue
        estimate = series.estimate(key)
        if estimate.value is not None:
            yield {
                "source": f"{series.source}, {series.gold}" if series.gold else series.source,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "n": estimate.n,
                "line": details.of_pipeline.metric((series.source, series.gold), key, gate["threshold"]),
            }


def _filters(pipeline: str, details: GateDetails) -> Iterator[dict[str, Any]]:
    """The builds, indexes and slices that the list of requests can be narrowed to, as links."""
    builds = [(build, index) for name, build, index in details.current.builds if name == pipeline]
    slices = {series.slice for series in details.current.snapshot.series if series.pipeline == pipeline}
    names = {
        "build": [build for build, _ in builds],
        "index_hash": [index for _, index in builds],
        "where": sorted(slices),
    }
    shown = details.shown._replace(cursor="")._asdict()
    for field, values in names.items():
        choices = [name for name in dict.fromkeys(values) if name][:MOST_CHOICES]
        if len(choices) > 1 or shown[field]:
            links = [(name, query({**shown, field: name}), name == shown[field]) for name in choices]
            yield {
                "field": _FILTERS[field],
                "all": query({**shown, field: ""}),
                "any": not shown[field],
                "links": links,
            }


def _more(span: str, details: GateDetails) -> str:
    """The address of the next page of requests; "" where there is none."""
    if details.diagnosis.cursor is None:
        return ""
    return query({"span": span, **details.shown._replace(cursor=details.diagnosis.cursor)._asdict()})


def _point(point: GatePoint) -> dict[str, Any]:
    """A window as a row of figures."""
    return {
        "end": point.end,
        "value": "–" if point.value is None else f"{point.value:.3f}",
        "interval": "–" if point.lower is None else f"{point.lower:.3f} to {point.upper:.3f}",
        "n": point.n,
        "source": point.source,
    }
