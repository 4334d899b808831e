"""The report of a run as one HTML file that needs nothing else: summary, gates, charts, questions, how to read it.

It has ids, facts and numbers, and no text of a question or an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.export.markdown import (
    better_by,
    bound,
    bounds_text,
    flipped,
    interval_of,
    percent,
    threshold,
    title,
    value,
    why,
)
from ragmon.export.pages.charts import interval_bar
from ragmon.export.pages.document import document, flips_of
from ragmon.export.pages.rendering import by_reason
from ragmon.export.pages.time_chart import time_chart
from ragmon.export.report import QuestionReport, Report
from ragmon.export.schema import BaselineDrop, GateSummary, ReportData
from ragmon.gates.history import GateHistory, GateKey
from ragmon.scoring.snapshot import ALL
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
FROM_FILE: Final = (
    "This page is made from a report in JSON, which has no results of single questions and no gates over time. "
    "`ragmon replay --format html` writes a page with both."
)


def report_page(report: Report, questions: int | None = None) -> str:
    """The report as an HTML file.

    Args:
        report: The report; gates without enough windows in its `histories` have no chart.
        questions: Rows of the per-question table; None lists all.
    """
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
    shown = questions[:limit]
    return document(
        "report.html.jinja",
        script=bool(shown),
        title=f"ragmon: {data.verdict}",
        heading="Verdict",
        verdict=data.verdict,
        word=data.verdict,
        summary=_VERDICTS[data.verdict],
        sentences=list(_sentences(data, questions)),
        notes=notes,
        gates=[gate_row(gate) for gate in data.gates],
        charts=list(gate_charts(data.gates, histories)),
        records=data.records,
        golds=data.gold,
        rejected=by_reason(data.records.rejected),
        latency=data.latency_ms,
        drops=[_drop(drop) for drop in data.baseline],
        metrics=list(_metrics(data)),
        questions=[_question(question) for question in shown],
        more=len(questions) - len(shown),
        version=data.version,
        digest=data.digest,
    )


def _sentences(data: ReportData, questions: Sequence[QuestionReport]) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    verdicts = Counter(gate.verdict for gate in data.gates)
    yield (
        f"{len(data.gates)} gates: {verdicts['pass']} are kept, {verdicts['fail']} are broken, "
        f"{verdicts['insufficient']} are undecided."
    )
    for gate in data.gates:
        if gate.verdict == "fail":
            yield _failure(gate)
    worst = [question for question in questions if question.label in ("HALLUCINATION", "OVER_REFUSAL")]
    if worst:
        yield f"{len(worst)} gold questions were answered where they should be refused, or refused without need."
    yield f"{data.records.scored} of {data.records.read} records could be scored."


def _failure(gate: GateSummary) -> str:
    """Why a gate is broken: the bound, or the drop against the baseline where the bound is kept."""
    shown = f"{gate.gate} is {value(gate)} of {gate.n}"
    if gate.is_kept:
        return f"{shown}; {gate.reason}."
    return f"{shown}; it should be {'at least' if gate.at_least else 'at most'} {threshold(gate)}."


def gate_row(gate: GateSummary) -> dict[str, Any]:
    """A gate as a row of the page, with its bar."""
    bar = Markup()
    if gate.value is not None and gate.kind == "threshold":
        bar = interval_bar(
            gate.value,
            gate.lower,
            gate.upper,
            threshold=gate.threshold,
            at_least=gate.at_least,
            verdict=gate.verdict,
        )
    return {
        "name": gate.name,
        "verdict": gate.verdict,
        "shown": value(gate),
        "interval": bounds_text(gate.lower, gate.upper),
        "bound": bound(gate),
        "n": gate.n,
        "population": f"{gate.source}, {gate.gold}" if gate.gold else gate.source,
        "why": why(gate),
        "bar": bar,
    }


def gate_charts(
    gates: Sequence[GateSummary], histories: Mapping[GateKey, GateHistory]
) -> Iterator[tuple[str, GateSummary, Markup]]:
    """The gates over time, where the records have times: name, gate and chart."""
    for gate in gates:
        history = histories.get((gate.pipeline, gate.gate))
        if history is not None and len(history.values) > FEW:
            chart = time_chart(history, threshold=gate.threshold, at_least=gate.at_least, name=f"{gate.name} over time")
            yield gate.name, gate, chart


def _drop(drop: BaselineDrop) -> dict[str, Any]:
    """A comparison with the baseline as a row, and the items that flipped."""
    return {
        **flips_of(drop),
        "before": percent(drop.before),
        "after": percent(drop.after),
        "better": f"{better_by(drop.drop)} points",
        "items": flipped(drop),
    }


def _metrics(data: ReportData) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The metrics of each series that has any: its title, and a row a metric."""
    for series in data.series:
        rows: list[tuple[str, ...]] = [
            (
                name,
                percent(figures.value),
                interval_of(series, name, data.gates)[0],
                str(figures.samples),
                by_reason(figures.unassessed),
            )
            for name, figures in series.metrics.items()
            if figures.n or figures.unassessed
        ]
        if rows and series.window == ALL:
            yield title(series), rows


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
