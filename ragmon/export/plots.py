"""A report as a plot of matplotlib: all gates against their thresholds, or one gate over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.escaping import printable
from ragmon.core.policy import Outcome
from ragmon.export.report import Report

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
    outcomes = [
        outcome for outcome in report.outcomes if outcome.value is not None and outcome.gate.kind == "threshold"
    ]
    outcome = None if gate is None else _named(report, gate)
    if outcome is None and not outcomes:
        raise RagmonError("no gate has a value to plot", hint="`print(report.to_markdown())` says what is missing")
    if outcome is not None and not _points(report, outcome):
        hint = "records with `ts` have times; without them, plot() draws all gates"
        raise RagmonError(f"gate {printable(_name(outcome))} has no values over time", hint=hint)
    if ax is None:
        height = 1 + 0.4 * len(outcomes) if outcome is None else 3.5
        _, ax = plt.subplots(figsize=(8, height), layout="constrained")
    return _draw_gates(ax, outcomes) if outcome is None else _draw_history(ax, report, outcome)


def _name(outcome: Outcome) -> str:
    return f"{outcome.gate.pipeline}/{outcome.gate.name}"


def _text(outcome: Outcome) -> str:
    """The name as matplotlib shows it: a dollar sign would begin a formula."""
    return printable(_name(outcome)).replace("$", r"\$")


def _named(report: Report, name: str) -> Outcome:
    """The first gate of a name.

    Raises:
        UnknownNameError: There is none.
    """
    found = next((outcome for outcome in report.outcomes if name in (outcome.gate.name, _name(outcome))), None)
    if found is None:
        raise UnknownNameError("gate", name, map(_name, report.outcomes))
    return found


def _points(report: Report, outcome: Outcome) -> list[Any]:
    """The windows of a gate that have a value."""
    history = report.histories.get((outcome.gate.pipeline, outcome.gate.name))
    return [] if history is None else [point for point in history.points if point.value is not None]


def _draw_gates(ax: Axes, outcomes: list[Outcome]) -> Axes:
    """Every gate as a line: value and interval as a point with a bar, the threshold as a tick."""
    for row, outcome in enumerate(outcomes):
        value, colour = outcome.value or 0.0, _COLOURS[outcome.verdict]
        lower, upper = (value if bound is None else bound for bound in (outcome.lower, outcome.upper))
        ax.hlines(row, lower, upper, color=colour, linewidth=4, alpha=0.5)
        ax.plot([value], [row], "o", color=colour)
        ax.plot([outcome.gate.threshold], [row], marker="|", markersize=16, color="0.5")
    ax.set_yticks(range(len(outcomes)), [f"{_text(outcome)}: {outcome.verdict}" for outcome in outcomes])
    ax.invert_yaxis()
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("value with its 95 % interval; the tick is the threshold")
    return ax


def _draw_history(ax: Axes, report: Report, outcome: Outcome) -> Axes:
    """A gate over time: the value as a line, its interval as a ribbon, the threshold dashed."""
    step = report.histories[outcome.gate.pipeline, outcome.gate.name].span.step
    points = _points(report, outcome)
    times: list[Any] = [datetime.fromtimestamp(point.end - step / 2, UTC) for point in points]
    bounded = [(ts, p) for ts, p in zip(times, points, strict=True) if p.lower is not None and p.upper is not None]
    lower, upper = ([getattr(point, side) for _, point in bounded] for side in ("lower", "upper"))
    ax.fill_between([ts for ts, _ in bounded], lower, upper, color=_LINE, alpha=0.2, linewidth=0)
    ax.plot(times, [point.value for point in points], color=_LINE, marker="o", markersize=3)
    ax.axhline(outcome.gate.threshold, color="0.5", linestyle="--")
    ax.set_title(_text(outcome))
    ax.set_xlabel("UTC")
    ax.tick_params(axis="x", labelrotation=30)
    return ax
