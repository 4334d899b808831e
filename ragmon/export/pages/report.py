"""The report of a run as one HTML file that needs nothing else: summary, gates, charts, questions, how to read it.

It has ids, facts and numbers, and no text of a question or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.core.policy import Outcome
from ragmon.export.markdown import better_by, between, bounds_text, percent, threshold, value, why
from ragmon.export.pages.charts import interval_bar
from ragmon.export.pages.document import document, flips_of
from ragmon.export.pages.rendering import by_reason
from ragmon.export.pages.time_chart import time_chart
from ragmon.export.report import QuestionReport, Report
from ragmon.export.report_content import MetricFigures, ReportContent, SeriesFigures, content_of
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison
from ragmon.scoring.windows import RIGHT

FEW: Final = 2
"""Windows with a value up to which there is no chart over time."""
_VERDICTS: Final = {
    "pass": "Every gate that could be judged is kept.",
    "fail": "A gate is broken: do not ship this, or find out why first.",
    "insufficient": "There is not enough data to judge every gate.",
}
"""What the verdict of a run means to somebody who decides."""
_OUTCOMES: Final = {
    "OK": "answered with a gold document",
    "ANS_NO_HIT": "answered without a gold document",
    "REFUSAL_OK": "refused, rightly",
    "OVER_REFUSAL": "refused, although gold has an answer",
    "HALLUCINATION": "answered, although gold has no answer",
    "NO_ANSWER": "no answer",
}
"""The outcomes of questions in words; the first three are as they should be, but for the second."""
_FROM_FILE: Final = (
    "This page is made from a report in JSON, which has no results of single questions and no gates over time. "
    "`ragmon replay --format html` writes a page with both."
)


def report_page(report: Report, questions: int | None = None) -> str:
    """The report as an HTML file.

    Args:
        report: The report; gates without enough windows in its `histories` have no chart.
        questions: Rows of the per-question table; None lists all.
    """
    return content_page(content_of(report), questions)


def content_page(content: ReportContent, questions: int | None = None) -> str:
    """The same page from what is known of a report, such as one that was read from its JSON.

    Args:
        content: What is known of it.
        questions: Rows of the per-question table; None lists all.
    """
    shown = content.questions if questions is None else content.questions[:questions]
    return document(
        "report.html.jinja",
        script=bool(shown),
        title=f"ragmon: {content.verdict}",
        heading="Verdict",
        verdict=content.verdict,
        word=content.verdict,
        summary=_VERDICTS[content.verdict],
        sentences=list(_sentences(content)),
        notes=[*content.notes, *([_FROM_FILE] if content.from_file else [])],
        gates=[gate_row(outcome) for outcome in content.outcomes],
        charts=list(gate_charts(content.outcomes, content.histories)),
        records=content.records,
        golds=content.golds,
        rejected=by_reason(content.records.rejected),
        latency=content.latency,
        drops=[_drop(drop) for drop in content.drops],
        metrics=list(_metrics(content)),
        questions=[_question(question) for question in shown],
        more=len(content.questions) - len(shown),
        version=content.version,
        digest=content.digest,
    )


def _sentences(content: ReportContent) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    counts = dict.fromkeys(("pass", "fail", "insufficient"), 0)
    for outcome in content.outcomes:
        counts[outcome.verdict] += 1
    yield (
        f"{len(content.outcomes)} gates: {counts['pass']} are kept, {counts['fail']} are broken, "
        f"{counts['insufficient']} are undecided."
    )
    for outcome in content.outcomes:
        if outcome.verdict == "fail":
            yield _failure(outcome)
    worst = [question for question in content.questions if question.label in ("HALLUCINATION", "OVER_REFUSAL")]
    if worst:
        yield f"{len(worst)} gold questions were answered where they should be refused, or refused without need."
    yield f"{content.records.scored} of {content.records.read} records could be scored."


def _failure(outcome: Outcome) -> str:
    """Why a gate is broken: the bound, or the drop against the baseline where the bound is kept."""
    name, shown = outcome.gate.name, f"{value(outcome)} of {outcome.n}"
    if outcome.value is not None and outcome.gate.holds(outcome.value):
        return f"{name} is {shown}; {outcome.reason}."
    return f"{name} is {shown}; it should be {'at least' if outcome.gate.at_least else 'at most'} {threshold(outcome)}."


def gate_row(outcome: Outcome) -> dict[str, Any]:
    """A gate as a row of the page, with its bar."""
    bar = Markup()
    if outcome.value is not None and outcome.gate.kind == "threshold":
        bar = interval_bar(
            outcome.value,
            outcome.lower,
            outcome.upper,
            threshold=outcome.gate.threshold,
            at_least=outcome.gate.at_least,
            verdict=outcome.verdict,
        )
    return {
        "name": f"{outcome.gate.pipeline}/{outcome.gate.name}",
        "verdict": outcome.verdict,
        "shown": value(outcome),
        "interval": between(outcome),
        "bound": f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}",
        "n": outcome.n,
        "population": f"{outcome.source}, {outcome.gold}" if outcome.gold else outcome.source,
        "why": why(outcome),
        "bar": bar,
    }


def gate_charts(
    outcomes: Sequence[Outcome], histories: Mapping[GateKey, GateHistory]
) -> Iterator[tuple[str, Outcome, Markup]]:
    """The gates over time, where the records have times: name, outcome and chart."""
    for outcome in outcomes:
        history = histories.get((outcome.gate.pipeline, outcome.gate.name))
        if history is not None and len(history.values) > FEW:
            name = f"{outcome.gate.pipeline}/{outcome.gate.name}"
            chart = time_chart(
                history, threshold=outcome.gate.threshold, at_least=outcome.gate.at_least, name=f"{name} over time"
            )
            yield name, outcome, chart


def _drop(drop: Comparison) -> dict[str, Any]:
    """A comparison with the baseline as a row, and the items that flipped."""
    return {
        **flips_of(drop),
        "before": percent(drop.before.value),
        "after": percent(drop.after.value),
        "better": f"{better_by(drop)} points",
        "items": "–" if drop.items is None else f"{len(drop.flips)} of {drop.items}",
    }


def _metrics(content: ReportContent) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The metrics of each series that has any: its title, and a row a metric."""
    for series in content.series:
        shown = {name: figures for name, figures in series.metrics.items() if figures.n or figures.unassessed}
        if shown:
            gold = f", gold {series.gold}" if series.gold else ""
            parts = [part for part in (series.slice, f"of {series.of}" if series.of else "") if part]
            title = ", ".join([f"{series.pipeline}, source {series.source}{gold}", *parts])
            yield title, [_metric(series, name, figures, content.outcomes) for name, figures in shown.items()]


def _metric(series: SeriesFigures, name: str, figures: MetricFigures, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """A metric as a row; its interval is that of the gate on the same number where there is one."""
    bounds = figures.lower, figures.upper
    for outcome in outcomes:
        gate = outcome.gate
        if (gate.metric, gate.pipeline, outcome.source, outcome.gold, outcome.n, outcome.value) == (
            name,
            series.pipeline,
            series.source,
            series.gold,
            figures.n,
            figures.value,
        ):
            bounds = outcome.lower, outcome.upper
    interval = bounds_text(*bounds)
    return name, percent(figures.value), interval, str(figures.n), by_reason(figures.unassessed)


def _question(question: QuestionReport) -> dict[str, Any]:
    """A question as a row; the class of its outcome is good, bad or neither."""
    bad = ("HALLUCINATION", "OVER_REFUSAL", "NO_ANSWER")
    kind = "pass" if question.label in RIGHT else "fail" if question.label in bad else "insufficient"
    return {
        "qid": question.qid,
        "pipeline": question.pipeline or constants.DEFAULT_PIPELINE,
        "label": question.label,
        "words": _OUTCOMES.get(question.label, ""),
        "times": question.times,
        "kind": kind,
    }
