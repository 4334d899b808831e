"""A report as a plot of matplotlib: all gates against their thresholds, or one gate over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ragmon.core.errors import RagmonError, UnknownNameError, printable
from ragmon.export.report import Report
from ragmon.export.schema import GateSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {"pass": "#2da44e", "fail": "#e5534b", "insufficient": "#848d97"}
"""Seen on white and on black."""
_LINE: Final = "#4493f8"


def plot(report: Report, gate: str | None = None, ax: Axes | None = None) -> Axes:
    """The plot.

    Args:
        report: The report.
        gate: The name of a gate, or `pipeline/name`: that gate over time; None: all gates on shares.
        ax: Where to draw; None makes a new figure.

    Raises:
        RagmonError: matplotlib is not installed, there is no such gate, or nothing to draw.
    """
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("plot() needs matplotlib", hint="pip install 'ragmon[notebook]'") from error
    gates = [each for each in report.document.gates if each.value is not None and each.kind == "threshold"]
    named = None if gate is None else _named(report, gate)
    if named is None and not gates:
        raise RagmonError("no gate has a value to plot", hint="`print(report.to_markdown())` says what is missing")
    if named is not None and not _points(report, named):
        hint = "records with `ts` have times; without them, plot() draws all gates"
        raise RagmonError(f"gate {printable(named.name)} has no values over time", hint=hint)
    if ax is None:
        height = 1 + 0.4 * len(gates) if named is None else 3.5
        _, ax = plt.subplots(figsize=(8, height), layout="constrained")
    return _draw_gates(ax, gates) if named is None else _draw_history(ax, report, named)


def _text(gate: GateSummary) -> str:
    """The name as matplotlib shows it: a dollar sign would begin a formula."""
    return printable(gate.name).replace("$", r"\$")


def _named(report: Report, name: str) -> GateSummary:
    """The first gate of a name.

    Raises:
        UnknownNameError: There is none.
    """
    gates = report.document.gates
    found = next((gate for gate in gates if name in (gate.gate, gate.name)), None)
    if found is None:
        raise UnknownNameError("gate", name, [gate.name for gate in gates])
    return found


def _points(report: Report, gate: GateSummary) -> list[Any]:
    """The windows of a gate that have a value."""
    history = report.histories.get((gate.pipeline, gate.gate))
    return [] if history is None else [point for point in history.points if point.value is not None]


def _draw_gates(ax: Axes, gates: list[GateSummary]) -> Axes:
    """Every gate as a line: value and interval as a point with a bar, the threshold as a tick."""
    for row, gate in enumerate(gates):
        value, colour = gate.value or 0.0, _COLOURS[gate.verdict]
        lower, upper = (value if bound is None else bound for bound in (gate.lower, gate.upper))
        ax.hlines(row, lower, upper, color=colour, linewidth=4, alpha=0.5)
        ax.plot([value], [row], "o", color=colour)
        ax.plot([gate.threshold], [row], marker="|", markersize=16, color="0.5")
    ax.set_yticks(range(len(gates)), [f"{_text(gate)}: {gate.verdict}" for gate in gates])
    ax.invert_yaxis()
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("value with its 95 % interval; the tick is the threshold")
    return ax


def _draw_history(ax: Axes, report: Report, gate: GateSummary) -> Axes:
    """A gate over time: the value as a line, its interval as a ribbon, the threshold dashed."""
    step = report.histories[gate.pipeline, gate.gate].span.step
    points = _points(report, gate)
    times: list[Any] = [datetime.fromtimestamp(point.end - step / 2, UTC) for point in points]
    bounded = [(ts, p) for ts, p in zip(times, points, strict=True) if p.lower is not None and p.upper is not None]
    lower, upper = ([getattr(point, side) for _, point in bounded] for side in ("lower", "upper"))
    ax.fill_between([ts for ts, _ in bounded], lower, upper, color=_LINE, alpha=0.2, linewidth=0)
    ax.plot(times, [point.value for point in points], color=_LINE, marker="o", markersize=3)
    ax.axhline(gate.threshold, color="0.5", linestyle="--")
    ax.set_title(_text(gate))
    ax.set_xlabel("UTC")
    ax.tick_params(axis="x", labelrotation=30)
    return ax
