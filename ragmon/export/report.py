"""The report of a run: metrics, gates, gold items and drops against a baseline, as JSON data.

A report as a DataFrame of pandas: its metrics, its gates, or the results of its questions, a row each.

A report as a plot of matplotlib: all gates against their thresholds, or one gate over time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from ragmon.alarms.plan import Detectability
from ragmon.core import constants
from ragmon.core.constants import LABEL
from ragmon.core.errors import RagmonError, UnknownNameError, printable, printable_json
from ragmon.core.policy import Outcome, Verdict
from ragmon.export.schema import (
    BaselineDrop,
    DetectableChange,
    GateSummary,
    GoldSummary,
    Interval,
    MetricSummary,
    PredictionSummary,
    RecordCounts,
    ReportData,
    SeriesSummary,
    Weighted,
    gate_summary,
    rounded,
    rounded_flips,
)
from ragmon.gates.coverage import CaptureReport, match_counts
from ragmon.gates.evaluate import bounds
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics import build, facts
from ragmon.metrics.facts import Facts
from ragmon.scoring.cohorts import METRIC, JudgeVersion
from ragmon.scoring.labels import Labelled, Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot
from ragmon.scoring.windows import item_outcome
from ragmon.stats.histograms import MICRO, quantile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class QuestionReport:
    """The outcome of one gold question, in the terms of seed 002's report.

    Attributes:
        qid: The id of the question.
        answered: It was answered.
        hit: A gold id was cited.
        refused: It was refused.
        label: OK, REFUSAL_OK, OVER_REFUSAL, HALLUCINATION, ANS_NO_HIT or NO_ANSWER.
        times: How often the question had this outcome.
        pipeline: The pipeline that answered.
    """

    qid: str
    answered: bool
    hit: bool
    refused: bool
    label: str
    times: int = 1
    pipeline: str = ""


@dataclass(frozen=True)
class Report:
    """The results of a run.

    Attributes:
        version: The version of ragmon that wrote the report.
        snapshot: The metrics.
        outcomes: The gates.
        verdict: The verdict of the whole run.
        digest: Fingerprint of the counts; equal runs have equal digests.
        read: How many records were read.
        scored: How many of them were scored.
        unmatched: How many of them belong to no gold item.
        duplicate: How many repeat a gold question that the same pipeline had already answered.
        rejected: Lines that were no record, and dropped records, by reason.
        unknown: Records with an unknown field, by `field: reason`.
        unscorable: Items that were traced but had no answer in any trace, by gold set.
        questions: One entry per gold item and outcome.
        drops: Comparisons with a baseline.
        notes: Notes for the reader, one line each.
        reach: What live alarms on the gates would detect, and how soon, where the run has times.
        labelled: Statistics of the labels on the run's answers; None where there are no labels.
        predictions: Estimates from labels and a proxy together.
        judges: The versions of judges whose scores the records have.
        captured: What the records have, by pipeline and source.
        histories: The gates over the time of the records, for charts; empty without times, and where nobody asked.
        gates_of: Where the gates are from: a file, a preset, the policy given; "" where nobody asked.

    Example:
        >>> import ragmon
        >>> ragmon.replay([{"question": "Who sails?", "error": "Timeout", "pipeline": "docs"}])
        <Report insufficient: 0 of 8 gates pass, 8 insufficient; 1 records, 1 scored; gates of the preset default>
    """

    version: str
    snapshot: Snapshot
    outcomes: Sequence[Outcome]
    verdict: Verdict
    digest: str
    read: int
    scored: int
    unmatched: int
    duplicate: int
    rejected: Mapping[str, int]
    unscorable: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    questions: Sequence[QuestionReport] = ()
    drops: Sequence[Comparison] = ()
    notes: Sequence[str] = ()
    reach: Sequence[Detectability] = ()
    labelled: Labelled | None = None
    predictions: Sequence[Prediction] = ()
    judges: Sequence[JudgeVersion] = ()
    captured: Sequence[CaptureReport] = ()
    histories: Mapping[GateKey, GateHistory] = field(default_factory=dict)
    gates_of: str = ""

    def __repr__(self) -> str:
        from ragmon.export.text import brief  # noqa: PLC0415 - it renders this class

        return brief(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of the report: the gates with their bars, and the gates over time."""
        from ragmon.export.report_page import fragment  # noqa: PLC0415 - it renders this class

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
            for series in _whole_run(self.snapshot)
            if name in series.metrics
            and pipeline in (None, series.pipeline)
            and source in (None, series.source)
            and gold in (None, series.gold)
        ]
        return max(candidates, key=lambda stat: (stat.n, sum(stat.unassessed.values())), default=Stat())

    @cached_property
    def document(self) -> ReportData:
        """What is written as JSON, and shown as text, as pages and in DataFrames."""
        return ReportData(
            version=self.version,
            gold=[_gold(gold, self.snapshot, self.unscorable) for gold in self.snapshot.golds],
            records=RecordCounts(
                read=self.read,
                scored=self.scored,
                unmatched=self.unmatched,
                duplicate=self.duplicate,
                rejected=dict(sorted(self.rejected.items())),
                unknown=dict(sorted(self.unknown.items())),
            ),
            series=[_series(series) for series in self.snapshot.series],
            latency_ms=latency(self.snapshot),
            captured=list(self.captured),
            gates=[gate_summary(outcome) for outcome in self.outcomes],
            matches=match_counts(self.snapshot),
            baseline=[_drop(comparison) for comparison in self.drops],
            labels=self.labelled,
            judges=list(self.judges),
            predicted=[_predicted(prediction) for prediction in self.predictions],
            detectable=[_detectable(each) for each in self.reach],
            verdict=self.verdict,
            digest=self.digest,
        )

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
        from ragmon.export.report_page import report_page  # noqa: PLC0415 - it renders this class

        return report_page(self, questions)

    def to_markdown(self, questions: int | None = None) -> str:
        """The report as Markdown, as `ragmon replay --format md` writes it.

        Args:
            questions: Rows of the per-question table; None lists all.
        """
        from ragmon.export.text import report_markdown  # noqa: PLC0415 - it renders this class

        return report_markdown(self, questions)

    def to_frame(self, what: Rows = "metrics") -> pd.DataFrame:
        """A DataFrame of pandas.

        Args:
            what: What has a row: `metrics` (of each series), `gates`, or `questions` (each gold question and outcome).

        Returns:
            For `metrics` with `value`, `lower`, `upper` (its 95 % interval), `n`, `sum`, and `unassessed`, the number
            of requests that could not be scored; values are shares in [0, 1].

        Raises:
            RagmonError: There is no such `what`, or pandas is not installed.
        """
        return frame(self, what)

    def plot(self, gate: str | None = None, *, ax: Axes | None = None) -> Axes:
        """A plot of matplotlib: all gates with their intervals against their thresholds, or one gate over time.

        Args:
            gate: The name of a gate, or `pipeline/name`; None plots all gates on shares.
            ax: Where to draw; None makes a new figure.

        Raises:
            RagmonError: matplotlib is not installed, there is no such gate, or nothing to draw.
        """
        return plot(self, gate, ax)


def _whole_run(snapshot: Snapshot) -> Iterator[SeriesStats]:
    """The series over the whole run, slices excluded."""
    return (series for series in snapshot.series if series.window == ALL and not series.slice)


def _gold(gold: GoldInfo, snapshot: Snapshot, unscorable: Mapping[str, int]) -> GoldSummary:
    series = (each for each in _whole_run(snapshot) if (each.gold, each.gold_version) == (gold.name, gold.version))
    return GoldSummary(
        name=gold.name,
        version=gold.version,
        items=gold.items,
        traced=max((each.traced for each in series), default=0),
        unscorable=unscorable.get(gold.name, 0),
    )


def _metric(series: SeriesStats, name: str) -> MetricSummary:
    """One metric of a series; value and bounds estimate all calls where their number is known."""
    stat, estimate = series.metrics[name], series.estimate(name)
    has_value = estimate.value is not None
    is_weighted = name in series.estimates
    return MetricSummary(
        value=rounded(estimate.value),
        lower=rounded(estimate.lower) if has_value else None,
        upper=rounded(estimate.upper) if has_value else None,
        n=stat.n,
        sum=round(stat.sum / MICRO, 6),
        unassessed=dict(sorted(stat.unassessed.items())),
        estimands=_estimands(series, name) if name in series.clusters else None,
        weighted=Weighted(n=estimate.n, n_eff=round(estimate.n_eff, 1)) if is_weighted else None,
    )


def _estimands(series: SeriesStats, name: str) -> dict[str, Interval]:
    """The intervals of a gold metric; none where nothing was scored."""
    return {
        estimand: Interval(lower=rounded(found.lower), upper=rounded(found.upper), n_eff=round(found.n_eff, 1))
        for estimand, found in bounds(series, name).items()
    }


def _series(series: SeriesStats) -> SeriesSummary:
    names = (name for name in SeriesSummary.__struct_fields__ if name != "metrics")
    about: dict[str, Any] = {name: getattr(series, name) for name in names}
    return SeriesSummary(**about, metrics={name: _metric(series, name) for name in series.metrics})


def _drop(comparison: Comparison) -> BaselineDrop:
    return BaselineDrop(
        pipeline=comparison.gate.pipeline,
        gate=comparison.gate.name,
        before=rounded(comparison.before.value),
        after=rounded(comparison.after.value),
        drop=rounded(comparison.drop),
        items=comparison.items,
        flips=rounded_flips(comparison),
    )


def _detectable(found: Detectability) -> DetectableChange:
    return DetectableChange(
        pipeline=found.gate.pipeline,
        gate=found.gate.name,
        at=rounded(found.at),
        observations=None if found.labels is None else round(found.labels),
        per_minute=rounded(found.per_minute, 3),
        minutes=rounded(found.minutes, 1),
    )


def latency(snapshot: Snapshot, pipeline: str | None = None) -> dict[str, dict[str, float | None]]:
    """Latency quantiles in milliseconds per stage over the whole run, of one pipeline or of all."""
    merged: dict[str, Counter[int]] = {}
    for series in _whole_run(snapshot):
        # Requests that matched a gold item or were labelled are counted under `live` as well.
        if not series.gold and series.source not in constants.ALSO_LIVE_SOURCES and pipeline in (None, series.pipeline):
            for stage, histogram in series.latency.items():
                merged.setdefault(stage, Counter()).update(histogram)
    return {
        stage: {name: rounded(quantile(histogram, q), 1) for name, q in QUANTILES.items()}
        for stage, histogram in sorted(merged.items())
    }


def _predicted(prediction: Prediction) -> PredictionSummary:
    names = ("value", "lower", "upper", "n_eff", "gain")
    numbers: dict[str, Any] = {name: rounded(getattr(prediction.estimate, name)) for name in names}
    return PredictionSummary(
        pipeline=prediction.pipeline, metric=METRIC, proxy=prediction.proxy, n=prediction.estimate.n, **numbers
    )


_KNOWN_KEYS: Final = 16_384
"""Facts whose outcome is cached: many questions have the same few."""


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
    places = {key: place for place, key in enumerate(item_keys)}
    times: dict[tuple[int, str, str], dict[_Outcome, int]] = {}
    for item, counts in traced_items(scorer):
        outcomes = times.setdefault((places.get((item.gold, item.qid), len(places)), item.pipeline, item.qid), {})
        for key, n in counts.items():
            outcome = _outcome(key)
            outcomes[outcome] = outcomes.get(outcome, 0) + n
    return [
        QuestionReport(qid, outcome.answered, outcome.hit, outcome.refused, outcome.label, n, pipeline)
        for (_, pipeline, qid), outcomes in sorted(times.items(), key=itemgetter(0))
        for outcome, n in sorted(outcomes.items())
    ]


class _Outcome(NamedTuple):
    """What a question's row says of its outcome; rows of one question are in this order."""

    label: str
    answered: bool
    hit: bool
    refused: bool


@lru_cache(_KNOWN_KEYS)
def _outcome(key: facts.Key) -> _Outcome:
    observed = Facts._make(key)
    shipped, refused, hit = observed.has(facts.SHIPPED), observed.has(facts.REFUSED), observed.has(facts.HITS)
    return _Outcome(item_outcome(observed), shipped, hit, refused)


Rows = Literal["metrics", "gates", "questions"]
"""What has a row."""
_SERIES: Final = tuple(name for name in SeriesSummary.__struct_fields__ if name != "metrics")
_METRICS: Final = (*_SERIES, "metric", "value", "lower", "upper", "n", "sum", "unassessed")
_QUESTIONS: Final = tuple(field.name for field in fields(QuestionReport))


def frame(report: Report, what: Rows) -> pd.DataFrame:
    """The DataFrame.

    Args:
        report: The report.
        what: What has a row.

    Raises:
        RagmonError: There is no such `what`, or pandas is not installed.
    """
    if what not in _TABLES:
        raise UnknownNameError("table of a report", what, _TABLES)
    try:
        import pandas as pd  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("to_frame() needs pandas", hint="pip install 'ragmon[notebook]'") from error
    columns, rows = _TABLES[what]
    return pd.DataFrame(list(rows(report)), columns=list(columns))


def _metrics(report: Report) -> Iterator[Mapping[str, Any]]:
    for series in report.document.series:
        for name, figures in series.metrics.items():
            unassessed = sum(figures.unassessed.values())
            yield {**structs.asdict(series), "metric": name, **structs.asdict(figures), "unassessed": unassessed}


def _gates(report: Report) -> Iterator[Mapping[str, Any]]:
    return map(structs.asdict, report.document.gates)


def _questions(report: Report) -> Iterator[Mapping[str, Any]]:
    return map(asdict, report.questions)


_TABLES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Report], Iterator[Mapping[str, Any]]]]]] = {
    "metrics": (_METRICS, _metrics),
    "gates": (GateSummary.__struct_fields__, _gates),
    "questions": (_QUESTIONS, _questions),
}
"""The columns and the rows of each table."""


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
