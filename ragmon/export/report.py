"""The report that `ragmon.replay` returns: its renderings, and the results of questions that it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from ragmon.core.constants import LABEL
from ragmon.core.errors import RagmonError, UnknownNameError, printable, printable_json
from ragmon.export.schema import GateSummary, QuestionReport, RunResults, SeriesSummary, whole_run
from ragmon.export.text import brief, report_markdown
from ragmon.metrics import build, facts
from ragmon.metrics.facts import Facts
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import item_outcome

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Rows = Literal["metrics", "gates", "questions"]
"""What has a row in a DataFrame."""
_SERIES: Final = tuple(name for name in SeriesSummary.__struct_fields__ if name != "metrics")
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "metrics": (*_SERIES, "metric", "value", "lower", "upper", "n", "sum", "unassessed"),
    "gates": GateSummary.__struct_fields__,
    "questions": tuple(field.name for field in fields(QuestionReport)),
}
# Visible on white and on black.
_COLOURS: Final = {"pass": "#2da44e", "fail": "#e5534b", "insufficient": "#848d97"}
_LINE: Final = "#4493f8"
_CACHED_KEYS: Final = 16_384
"""Facts whose outcome is cached: many questions have the same few."""


@dataclass(frozen=True)
class Report(RunResults):
    """The results of a run. `RunResults` lists its attributes.

    Example:
        >>> import ragmon
        >>> ragmon.replay([{"question": "Who sails?", "error": "Timeout", "pipeline": "docs"}])
        <Report insufficient: 0 of 8 gates pass, 8 insufficient; 1 record, 1 scored; gates of the preset default>
    """

    def __repr__(self) -> str:
        return brief(self)

    def _repr_html_(self) -> str:  # what a notebook shows
        from ragmon.export.report_page import fragment  # noqa: PLC0415 - templates and charts take long to load

        return fragment(self)

    def metric(
        self, name: str, *, pipeline: str | None = None, source: str | None = None, gold: str | None = None
    ) -> Stat:
        """A metric over the whole run, from the series with most requests; an empty one where no series has it.

        Printed, it is a line: the value with its 95 % interval, of how many requests, and how many were not assessed.

        Args:
            name: Its key, such as `recall@5`.
            pipeline: The pipeline; None takes any.
            source: The source; None takes any.
            gold: The gold set of the requests; None takes all requests, or any gold set.

        Raises:
            UnknownNameError: There is no such metric.

        Example:
            >>> import ragmon
            >>> print(ragmon.replay([ragmon.testing.make_record()] * 40).metric("citation_scope"))
            <Stat 1 (0.9124 to 1) of 40>
        """
        known = {key for series in self.snapshot.series for key in series.metrics} | build().keys()
        if name not in known:
            raise UnknownNameError("metric", name, known)
        candidates = [
            series.metrics[name]
            for series in whole_run(self.snapshot)
            if name in series.metrics
            and pipeline in (None, series.pipeline)
            and source in (None, series.source)
            and gold in (None, series.gold)
        ]
        return max(candidates, key=lambda stat: (stat.n, sum(stat.unassessed.values())), default=Stat())

    def data(self) -> dict[str, Any]:
        """The report as plain JSON data, as `report.schema.json` says."""
        data: dict[str, Any] = msgspec.to_builtins(self.document)
        return data

    def golds(self) -> list[dict[str, Any]]:
        """The coverage of each gold set as plain JSON data; of several pipelines, the highest."""
        golds: list[dict[str, Any]] = msgspec.to_builtins(self.document.gold)
        return golds

    def json(self) -> str:
        """The report as indented JSON."""
        return printable_json(self.data(), indent=2)

    def to_html(self, questions: int | None = None) -> str:
        """The report as a page in one file, as `ragmon replay --format html` writes it.

        Args:
            questions: Rows of the per-question table; None lists all.
        """
        from ragmon.export.report_page import report_page  # noqa: PLC0415 - as above

        return report_page(self, questions)

    def to_markdown(self, questions: int | None = None) -> str:
        """The report as Markdown, as `ragmon replay --format md` writes it.

        Args:
            questions: Rows of the per-question table; None lists all.
        """
        return report_markdown(self, questions)

    def to_frame(self, what: Rows = "metrics") -> pd.DataFrame:
        """A DataFrame of pandas.

        Args:
            what: What has a row: `metrics` (of each series), `gates`, or `questions` (each gold question and outcome).

        Returns:
            For `metrics` with `value`, `lower`, `upper` (its 95 % interval), `n`, `sum`, and `unassessed`, the number
            of requests that could not be scored; values are shares in [0, 1]. Metrics without a value come last.

        Raises:
            RagmonError: There is no such `what`, or pandas is not installed.
        """
        if what not in _COLUMNS:
            raise UnknownNameError("table of a report", what, _COLUMNS)
        try:
            import pandas as pd  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise RagmonError("to_frame() needs pandas", hint="pip install 'ragmon[notebook]'") from error
        rows: Iterable[Mapping[str, Any]]
        if what == "metrics":
            metrics = (
                {
                    **structs.asdict(series),
                    "metric": name,
                    **structs.asdict(figures),
                    "unassessed": sum(figures.unassessed.values()),
                }
                for series in self.document.series
                for name, figures in series.metrics.items()
            )
            rows = sorted(metrics, key=lambda row: row["value"] is None)
        elif what == "gates":
            rows = map(structs.asdict, self.document.gates)
        else:
            rows = map(asdict, self.questions)
        return pd.DataFrame(list(rows), columns=list(_COLUMNS[what]))

    def plot(self, gate: str | None = None, *, ax: Axes | None = None) -> Axes:
        """A plot of matplotlib: all gates with their intervals against their thresholds, or one gate over time.

        Args:
            gate: The name of a gate, or `pipeline/name`; None plots all gates on shares.
            ax: Where to draw; None makes a new figure.

        Raises:
            RagmonError: matplotlib is not installed, there is no such gate, or nothing to draw.
        """
        try:
            from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise RagmonError("plot() needs matplotlib", hint="pip install 'ragmon[notebook]'") from error
        gates = self.document.gates
        if gate is None:
            drawn = [each for each in gates if each.value is not None and each.kind == "threshold"]
            if not drawn:
                raise RagmonError(
                    "no gate has a value to plot", hint="`print(report.to_markdown())` says what is missing"
                )
            if ax is None:
                _, ax = plt.subplots(figsize=(8, 1 + 0.4 * len(drawn)), layout="constrained")
            return _plot_gates(ax, drawn)
        named = next((each for each in gates if gate in (each.gate, each.name)), None)
        if named is None:
            raise UnknownNameError("gate", gate, [each.name for each in gates])
        history = self.histories.get((named.pipeline, named.gate))
        points: list[Any] = [] if history is None else [point for point in history.points if point.value is not None]
        if history is None or not points:
            hint = "records with `ts` have times; without them, plot() draws all gates"
            raise RagmonError(f"gate {printable(named.name)} has no values over time", hint=hint)
        if ax is None:
            _, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
        return _plot_history(ax, named, points, history.span.step)


def _plot_gates(ax: Axes, gates: Sequence[GateSummary]) -> Axes:
    for row, gate in enumerate(gates):
        value, colour = gate.value or 0.0, _COLOURS[gate.verdict]
        lower, upper = (value if bound is None else bound for bound in (gate.lower, gate.upper))
        ax.hlines(row, lower, upper, color=colour, linewidth=4, alpha=0.5)
        ax.plot([value], [row], "o", color=colour)
        ax.plot([gate.threshold], [row], marker="|", markersize=16, color="0.5")
    ax.set_yticks(range(len(gates)), [f"{_plot_text(gate)}: {gate.verdict}" for gate in gates])
    ax.invert_yaxis()
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("value with its 95 % interval; the tick is the threshold")
    return ax


def _plot_history(ax: Axes, gate: GateSummary, points: Sequence[Any], step: float) -> Axes:
    times: list[Any] = [datetime.fromtimestamp(point.end - step / 2, UTC) for point in points]
    bounded = [(ts, p) for ts, p in zip(times, points, strict=True) if p.lower is not None and p.upper is not None]
    lower, upper = ([getattr(point, side) for _, point in bounded] for side in ("lower", "upper"))
    ax.fill_between([ts for ts, _ in bounded], lower, upper, color=_LINE, alpha=0.2, linewidth=0)
    ax.plot(times, [point.value for point in points], color=_LINE, marker="o", markersize=3)
    ax.axhline(gate.threshold, color="0.5", linestyle="--")
    ax.set_title(_plot_text(gate))
    ax.set_xlabel("UTC")
    ax.tick_params(axis="x", labelrotation=30)
    return ax


def _plot_text(gate: GateSummary) -> str:
    return printable(gate.name).replace("$", r"\$")  # a dollar sign would begin a formula of matplotlib


class TracedItem(NamedTuple):
    """A gold item with at least one trace, in one series."""

    pipeline: str
    source: str
    gold: str
    qid: str


def traced_items(scorer: Scorer) -> Iterator[tuple[TracedItem, Mapping[facts.Key, int]]]:
    """Every traced gold item with its counts by facts. Label series are left out: they have no items of a gold set."""
    for key, series in scorer.state.series.items():
        if key.audit and not key.slice and key.source != LABEL:
            for table in series.items():
                for qid, counts in table.items():
                    yield TracedItem(key.pipeline, key.source, key.gold, qid), counts


def repeated(scorer: Scorer) -> int:
    """How many records repeat a question that the same pipeline already answered under the same source."""
    requests, items = 0, set[TracedItem]()
    for item, counts in traced_items(scorer):
        requests += sum(counts.values())
        items.add(item)
    return requests - len(items)


def unscorable(scorer: Scorer) -> dict[str, int]:
    """How many traced items never had an answer, by gold set."""
    answered: dict[tuple[str, str], bool] = {}
    for item, counts in traced_items(scorer):
        question = item.gold, item.qid
        if not answered.get(question):
            answered[question] = any(flags & (facts.SHIPPED | facts.REFUSED) for flags, *_ in counts)
    return dict(Counter(gold for (gold, _), has_answer in answered.items() if not has_answer))


def questions_of(scorer: Scorer) -> list[QuestionReport]:
    """The per-question table in the order of the gold sets, with the number of times each question had each outcome."""
    item_keys = ((gold.name, item.qid) for gold in scorer.gold.sets for item in gold)
    order = {key: index for index, key in enumerate(item_keys)}
    times: dict[tuple[int, str, str], Counter[tuple[str, bool, bool, bool]]] = {}
    for item, counts in traced_items(scorer):
        row = (order.get((item.gold, item.qid), len(order)), item.pipeline, item.qid)
        outcomes = times.setdefault(row, Counter())
        for key, n in counts.items():
            outcomes[_outcome(key)] += n
    return [
        QuestionReport(qid, answered, hit, refused, label, n, pipeline)
        for (_, pipeline, qid), outcomes in sorted(times.items(), key=itemgetter(0))
        for (label, answered, hit, refused), n in sorted(outcomes.items())
    ]


@lru_cache(_CACHED_KEYS)
def _outcome(key: facts.Key) -> tuple[str, bool, bool, bool]:
    """The label, and whether the question was answered, hit gold and was refused; questions' rows are in this order."""
    observed = Facts._make(key)
    shipped, hit, refused = observed.has(facts.SHIPPED), observed.has(facts.HITS), observed.has(facts.REFUSED)
    return item_outcome(observed), shipped, hit, refused
