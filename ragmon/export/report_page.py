"""Reports as HTML: the report of a run and the comparison of two releases as one file, and a report in a notebook.

Pages have ids, facts and numbers, and no text of a question or an answer. The style of the fragment in a notebook holds
for the fragment alone: it takes text and background of the notebook, and its accents are seen on white and on black.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.core.process import current_version
from ragmon.export.charts import interval_bar, time_chart
from ragmon.export.comparison import WORDS, Canary, subject
from ragmon.export.pages import asset, by_reason, document, render
from ragmon.export.schema import (
    ComparedGate,
    GateSummary,
    QuestionReport,
    ReportData,
    RunResults,
    gate_summary,
)
from ragmon.export.text import (
    counts,
    interval_of,
    percent,
    signed,
    threshold,
    title,
    value,
)
from ragmon.gates.history import GateHistory, GateKey
from ragmon.scoring.snapshot import ALL, RIGHT
from ragmon.stats.betting import ALPHA

FEW: Final = 2
"""Windows with a value up to which there is no chart over time."""
_VERDICTS: Final = {
    "pass": "Every gate that could be judged passes.",
    "fail": "A gate fails: do not ship this, or find out why first.",
    "insufficient": "There is not enough data to judge every gate.",
}
_OUTCOMES: Final = {
    "OK": "answered with a gold document",
    "ANS_NO_HIT": "answered without a gold document",
    "REFUSAL_OK": "refused, as it should be",
    "OVER_REFUSAL": "refused, although gold has an answer",
    "HALLUCINATION": "answered, although gold has no answer",
    "NO_ANSWER": "no answer",
}
_BAD: Final = ("HALLUCINATION", "OVER_REFUSAL", "NO_ANSWER")
FROM_FILE: Final = (
    "This page is made from a report in JSON, which has no results of single questions and no gates over time. "
    "`ragmon replay --format html` writes a page with both."
)
_SUMMARIES: Final = {
    "pass": "The candidate is not worse than the baseline by more than is allowed, on every gate that was compared.",
    "fail": "The candidate is worse than the baseline: do not ship it, or find out why first.",
    "insufficient": "It is not decided yet: more requests or gold questions are needed.",
}
OPEN: Final = 3
"""Charts up to which all of them are shown at once; of more, those of gates that fail."""


def report_page(report: RunResults, questions: int | None = None) -> str:
    """The report as an HTML file, with at most so many rows of the per-question table; None lists all."""
    return _page(report.document, report.notes, report.questions, report.histories, questions)


def stored_page(data: ReportData) -> str:
    """The same page of a report that was read from its JSON, which has neither notes nor questions nor histories."""
    return _page(data, [FROM_FILE])


def _page(
    data: ReportData,
    notes: Sequence[str],
    questions: Sequence[QuestionReport] = (),
    histories: Mapping[GateKey, GateHistory] = MappingProxyType({}),
    limit: int | None = None,
) -> str:
    metrics = []
    for series in data.series:
        rows = [
            (
                name,
                percent(figures.value),
                interval_of(series, name, data.gates)[0],
                figures.samples,
                by_reason(figures.unassessed),
            )
            for name, figures in series.metrics.items()
            if figures.n or figures.unassessed
        ]
        if rows and series.window == ALL:
            metrics.append((title(series), rows))
    return document(
        "report.html.jinja",
        script=bool(questions[:limit]),
        title=f"ragmon: {data.verdict}",
        heading="Verdict",
        verdict=data.verdict,
        word=data.verdict,
        summary=_VERDICTS[data.verdict],
        incidents=data.incidents,
        sentences=list(_report_sentences(data, questions)),
        notes=notes,
        gates=[(gate, _bar(gate)) for gate in data.gates],
        charts=list(gate_charts(data.gates, histories)),
        records=data.records,
        golds=data.gold,
        rejected=by_reason(data.records.rejected),
        latency=data.latency_ms,
        drops=data.baseline,
        metrics=metrics,
        questions=questions[:limit],
        words=_OUTCOMES,
        kinds={**dict.fromkeys(RIGHT, "pass"), **dict.fromkeys(_BAD, "fail")},
        default_pipeline=constants.DEFAULT_PIPELINE,
        more=len(questions) - len(questions[:limit]),
        version=data.version,
        digest=data.digest,
    )


def _report_sentences(data: ReportData, questions: Sequence[QuestionReport]) -> Iterator[str]:
    # What a reader without the field's words should know first.
    verdicts = Counter(gate.verdict for gate in data.gates)
    yield (
        f"{len(data.gates)} gates: {verdicts['pass']} pass, {verdicts['fail']} fail, "
        f"{verdicts['insufficient']} are undecided."
    )
    for gate in data.gates:
        if gate.verdict == "fail":
            # The bound may be kept where the value fell against the baseline.
            asked = f"it should be {'at least' if gate.at_least else 'at most'} {threshold(gate)}"
            yield f"{gate.name} is {value(gate)} of {gate.n:,}; {gate.reason if gate.is_kept else asked}."
    worst = [question for question in questions if question.label in ("HALLUCINATION", "OVER_REFUSAL")]
    if worst:
        yield f"{len(worst):,} gold questions were answered but should be refused, or refused but have an answer."
    yield f"{data.records.scored:,} of {data.records.read:,} records could be scored."


def _bar(gate: GateSummary) -> Markup:
    if gate.value is None or gate.kind != "threshold":
        return Markup()
    return interval_bar(
        gate.value,
        gate.lower,
        gate.upper,
        threshold=gate.threshold,
        at_least=gate.at_least,
        verdict=gate.verdict,
    )


def gate_charts(
    gates: Sequence[GateSummary], histories: Mapping[GateKey, GateHistory]
) -> Iterator[tuple[str, GateSummary, Markup]]:
    """The gates over time, where the records have times: name, gate and chart."""
    for gate in gates:
        history = histories.get((gate.pipeline, gate.gate))
        if history is not None and len(history.values) > FEW:
            name, metric = f"{gate.name} over time", gate.metric
            chart = time_chart(history, threshold=gate.threshold, at_least=gate.at_least, name=name, metric=metric)
            yield gate.name, gate, chart


def comparison_page(canary: Canary) -> str:
    """The comparison as an HTML file."""
    return document(
        "comparison.html.jinja",
        title=f"ragmon: {subject(canary)}: {WORDS[canary.verdict]}",
        heading=subject(canary),
        verdict=canary.verdict,
        word=WORDS[canary.verdict],
        summary=_SUMMARIES[canary.verdict],
        sentences=list(_comparison_sentences(canary)),
        notes=canary.notes,
        error=f"{100 * ALPHA / 2:g}",
        baseline=canary.baseline,
        candidate=canary.candidate,
        max_drop=f"{100 * canary.max_drop:g}",
        intervals=any(comparison.intervals for comparison in canary.gates),
        words=WORDS,
        gates=canary.gates,
        rows=[(comparison, *_change(comparison, canary.max_drop)) for comparison in canary.gates],
        version=current_version(),
    )


def _comparison_sentences(canary: Canary) -> Iterator[str]:
    verdicts = Counter(comparison.verdict for comparison in canary.gates)
    yield (
        f"{len(canary.gates)} metrics were compared: {verdicts['fail']} worse, {verdicts['pass']} not worse, "
        f"{verdicts['insufficient']} undecided. Worse by up to {100 * canary.max_drop:g} points is allowed."
    )
    for comparison in canary.gates:
        if comparison.verdict == "fail":
            before, after = percent(comparison.baseline.value), percent(comparison.candidate.value)
            text = f"{comparison.gate} went from {before} to {after}"
            if comparison.flips:
                text += f"; {comparison.worse} of {comparison.items} gold items are worse"
                better = len(comparison.flips) - comparison.worse
                text += f", {better} better" if better else ""
            yield f"{text}."


def _change(comparison: ComparedGate, max_drop: float) -> tuple[str, Markup]:
    """The interval of the change, which is a drop with its sign turned, and its bar."""
    bounds, lower, upper = "–", None, None
    if comparison.intervals is not None:
        lower, upper = (-bound for bound in reversed(comparison.intervals.drop))
        bounds = f"{signed(lower)} to {signed(upper)}"
    if comparison.drop is None:
        return bounds, Markup()
    verdict = comparison.verdict
    bar = interval_bar(-comparison.drop, lower, upper, threshold=-max_drop, at_least=True, verdict=verdict)
    return bounds, bar


def fragment(report: RunResults) -> str:
    """The report as a piece of HTML for a notebook."""
    gates = [gate_summary(outcome) for outcome in report.outcomes]
    charts = list(gate_charts(gates, report.histories))
    first = [chart for chart in charts if len(charts) <= OPEN or chart[1].verdict == "fail"]
    folded = [chart for chart in charts if chart not in first]
    groups = [("", first), (f"{'The other' if first else 'The'} {len(folded)} gates over time", folded)]
    return render(
        "notebook.html.jinja",
        style=Markup(asset("notebook.css").decode()),  # noqa: S704 - a file of this package
        verdict=report.verdict,
        counts=counts(report),
        incidents=report.incidents,
        gates=[(gate, _bar(gate)) for gate in gates],
        groups=[(words, group) for words, group in groups if group],
    )
