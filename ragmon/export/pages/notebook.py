"""A report in a notebook: a piece of HTML with the verdict, the gates with their bars, and the gates over time.

Its style holds for itself alone, takes text and background of the notebook, and has accents that are seen on white and
on black, since a notebook's theme need not be that of the system. It needs no script.
"""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from ragmon.export.markdown import counts
from ragmon.export.pages.assets import asset
from ragmon.export.pages.rendering import render
from ragmon.export.pages.report import gate_charts, gate_row
from ragmon.export.report import Report
from ragmon.export.schema import GateSummary, gate_summary

OPEN: Final = 3
"""Charts up to which all of them are shown at once; of more, those of gates that fail."""


def fragment(report: Report) -> str:
    """The report as a piece of HTML.

    Args:
        report: The report.
    """
    gates = [gate_summary(outcome) for outcome in report.outcomes]
    charts = list(gate_charts(gates, report.histories))
    first = [chart for chart in charts if len(charts) <= OPEN or chart[1].verdict == "fail"]
    return render(
        "notebook.html.jinja",
        style=Markup(asset("notebook.css").decode()),  # noqa: S704 - a file of this package
        verdict=report.verdict,
        counts=counts(report),
        gates=[gate_row(gate) for gate in gates],
        groups=[(words, group) for words, group in _groups(first, charts) if group],
    )


_Charts = list[tuple[str, GateSummary, Markup]]


def _groups(first: _Charts, charts: _Charts) -> list[tuple[str, _Charts]]:
    """The charts that are shown at once, under no heading, and those that are folded."""
    rest = [chart for chart in charts if chart not in first]
    return [("", first), (f"{'The other' if first else 'The'} {len(rest)} gates over time", rest)]
