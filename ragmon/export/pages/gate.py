"""The page of a gate: its history as a chart, what broke it, and the requests that fail it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ragmon.core.series_names import label
from ragmon.export.pages.overview import REFRESH, gate_row
from ragmon.export.pages.rendering import render
from ragmon.export.pages.time_chart import time_chart
from ragmon.gates.history import GateHistory, GatePoint, TimeSpan

ROOT: Final = "../../"
"""From this page to the overview."""


@dataclass(frozen=True)
class GateFindings:
    """What is known of why a gate is broken.

    Attributes:
        text: The diagnosis in words, as `ragmon why` prints it; "" where the gate is not broken.
        requests: The newest requests that fail the gate, as `/api/records` lists them; None without a journal.
        note: Why there is no diagnosis or no list, in a sentence.
    """

    text: str = ""
    requests: Sequence[Mapping[str, Any]] | None = None
    note: str = ""


def page(
    status: Mapping[str, Any],
    gate: Mapping[str, Any],
    history: GateHistory,
    spans: Iterable[TimeSpan],
    diagnosis: GateFindings,
) -> str:
    """The page of a gate as HTML.

    Args:
        status: The data of `/api/status`.
        gate: The gate in it.
        history: The gate over time.
        spans: What else it can be shown over.
        diagnosis: What is known of why it is broken.
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
        diagnosis=diagnosis,
        refresh=REFRESH,
    )


def _state(gate: Mapping[str, Any]) -> str:
    verdict = {"pass": "passes", "fail": "fails", "insufficient": "is undecided"}[gate["verdict"]]
    return verdict if gate["firing"] is None else f"{verdict}, its alarm fires"


def _point(point: GatePoint) -> dict[str, Any]:
    """A window as a row of figures."""
    return {
        "end": point.end,
        "value": "–" if point.value is None else f"{point.value:.3f}",
        "interval": "–" if point.lower is None else f"{point.lower:.3f} to {point.upper:.3f}",
        "n": point.n,
        "source": point.source,
    }
