"""A report that a notebook shows: as a line, as a picture, as a DataFrame, as a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

from markupsafe import Markup

from ragmon.core.errors import RagmonError
from ragmon.export.markdown import render as as_markdown
from ragmon.export.pages.assets import asset
from ragmon.export.pages.rendering import render
from ragmon.export.pages.report import figure, gate_charts, gate_row, report_page
from ragmon.export.report import Report
from ragmon.gates.history import GateHistory, GateKey
from ragmon.scoring.snapshot import ALL

NAMED: Final = 3
"""Failing gates that the short form of a report names."""
_COLORS: Final = {"pass": "#2da44e", "fail": "#cf222e", "insufficient": "#8b949e"}


@dataclass(frozen=True, repr=False)
class RunReport(Report):
    """What `ragmon.replay` returns: a report that shows itself.

    The last line of a notebook's cell shows its gates and charts; `print` shows one line.

    Attributes:
        histories: The gates over the time of the records, by pipeline and name; empty where records have no time.

    Example:
        >>> import ragmon
        >>> trace = {"qid": "a", "retrieved_ids": ["d1"], "answer_json": {"claim": "yes", "citations": ["d1"]}}
        >>> ragmon.replay([trace])
        <Report insufficient: 0 of 8 gates fail, 8 insufficient; 1 of 1 records scored>
    """

    histories: Mapping[GateKey, GateHistory] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = Counter(outcome.verdict for outcome in self.outcomes)
        undecided = f", {counts['insufficient']} insufficient" if counts["insufficient"] else ""
        failing = [
            f"{gate['gate']} {figure(gate)} ({'≥' if gate['direction'] == 'at_least' else '≤'} {gate['threshold']:g})"
            for gate in self.data()["gates"]
            if gate["verdict"] == "fail"
        ]
        more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
        named = f": {', '.join(failing[:NAMED])}{more}" if failing else ""
        return (
            f"<Report {self.verdict}: {counts['fail']} of {len(self.outcomes)} gates fail{undecided}{named}; "
            f"{self.scored} of {self.read} records scored>"
        )

    def _repr_html_(self) -> str:
        """The gates with their intervals and their charts over time, for a notebook."""
        return render(
            "notebook.html.jinja",
            style=Markup(asset("notebook.css").decode()),  # noqa: S704 - a file of this package
            report=self,
            gates=[gate_row(gate) for gate in self.data()["gates"]],
            charts=list(gate_charts(self.outcomes, self.histories)),
        )

    def to_html(self) -> str:
        """The report as one HTML file, as `ragmon replay --format html` writes it."""
        return report_page(self, self.histories)

    def to_markdown(self) -> str:
        """The report as Markdown, as `ragmon replay --format md` writes it."""
        return as_markdown(self)

    def to_frame(self, what: Literal["metrics", "gates", "questions"] = "metrics") -> Any:
        """The report as a DataFrame of pandas.

        Args:
            what: `metrics`: a row a metric of a series, over the whole run; `gates`: a row a gate; `questions`: a row
                a gold question and outcome.

        Raises:
            RagmonError: There is no such table, or pandas is not installed.
        """
        tables = {"metrics": self._metric_rows, "gates": self._gate_rows, "questions": self._question_rows}
        if what not in tables:
            raise RagmonError(f"what={what!r} is no table of a report", hint=f"one of {', '.join(tables)}")
        return _package("pandas", "a DataFrame").DataFrame(list(tables[what]()))

    def plot(self, ax: Any = None) -> Any:
        """The gates with their intervals against their thresholds, drawn by matplotlib.

        Args:
            ax: The axes to draw on; None makes new ones.

        Returns:
            The axes.

        Raises:
            RagmonError: matplotlib is not installed.
        """
        ax = ax or _package("matplotlib.pyplot", "a plot").subplots()[1]
        shown = [outcome for outcome in self.outcomes if outcome.value is not None and outcome.gate.kind == "threshold"]
        for place, outcome in enumerate(reversed(shown)):
            color = _COLORS[outcome.verdict]
            if outcome.lower is not None and outcome.upper is not None:
                ax.plot([outcome.lower, outcome.upper], [place, place], color=color, linewidth=6, alpha=0.4)
            ax.plot([outcome.value], [place], "o", color=color)
            ax.plot([outcome.gate.threshold], [place], "|", color="black", markersize=16)
        ax.set_yticks(range(len(shown)), [outcome.gate.name for outcome in reversed(shown)])
        ax.set_xlim(-0.02, 1.02)
        ax.set_xlabel("value and 95 % interval; the stroke is the threshold")
        return ax

    def _metric_rows(self) -> Iterator[dict[str, Any]]:
        for series in self.data()["series"]:
            if series["window"] == ALL:
                names = {name: series.get(name, "") for name in ("pipeline", "source", "gold", "slice")}
                for key, stat in series["metrics"].items():
                    figures = {name: stat[name] for name in ("value", "lower", "upper", "n")}
                    yield {**names, "metric": key, **figures, "unassessed": sum(stat["unassessed"].values())}

    def _gate_rows(self) -> Iterator[dict[str, Any]]:
        yield from self.data()["gates"]

    def _question_rows(self) -> Iterator[dict[str, Any]]:
        for question in self.questions:
            yield {
                "qid": question.qid,
                "outcome": question.label,
                "times": question.times,
                "pipeline": question.pipeline,
            }


def _package(name: str, what: str) -> ModuleType:
    """A package that only this needs.

    Raises:
        RagmonError: It is not installed.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        hint = "pip install 'ragmon[table]'" if package == "pandas" else f"pip install {package}"
        raise RagmonError(f"{what} needs {package}, which is not installed", hint=hint) from error
