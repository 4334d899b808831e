"""The report of a run as one HTML file that needs nothing else: summary, gates, charts, questions, how to read it.

It has ids, facts and numbers, and no text of a question or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.core.policy import Outcome
from ragmon.export.markdown import between, percent, value, why
from ragmon.export.pages.assets import asset
from ragmon.export.pages.charts import interval_bar
from ragmon.export.pages.rendering import by_reason, render
from ragmon.export.pages.time_chart import time_chart
from ragmon.export.report import QuestionReport, Report, gate, latency
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison
from ragmon.scoring.items import RIGHT

FEW: Final = 2
"""Windows with a value up to which there is no chart over time."""
FLIPS: Final = 50
"""Flipped gold items that are listed for each gate."""
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


def report_page(
    report: Report, history: Mapping[GateKey, GateHistory] | None = None, questions: int | None = None
) -> str:
    """The report as an HTML file.

    Args:
        report: The report.
        history: Its gates over time; gates without enough windows have no chart.
        questions: Rows of the per-question table; None lists all.
    """
    histories = history or {}
    shown = report.questions if questions is None else report.questions[:questions]
    return render(
        "report.html.jinja",
        title=f"ragmon: {report.verdict}",
        style=_style(),
        script=Markup(asset("report.js").decode()),  # noqa: S704 - a file of this package
        report=report,
        summary=_VERDICTS[report.verdict],
        sentences=list(_sentences(report)),
        gates=[_gate(outcome) for outcome in report.outcomes],
        charts=list(_charts(report.outcomes, histories)),
        golds=report.golds(),
        rejected=by_reason(report.rejected),
        latency=latency(report.snapshot),
        drops=[_drop(drop) for drop in report.drops],
        questions=[_question(question) for question in shown],
        more=len(report.questions) - len(shown),
        outcomes=_OUTCOMES,
    )


def _style() -> Markup:
    return Markup(asset("ragmon.css").decode())  # noqa: S704 - a file of this package


def _sentences(report: Report) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    counts = dict.fromkeys(("pass", "fail", "insufficient"), 0)
    for outcome in report.outcomes:
        counts[outcome.verdict] += 1
    yield (
        f"{len(report.outcomes)} gates: {counts['pass']} are kept, {counts['fail']} are broken, "
        f"{counts['insufficient']} are undecided."
    )
    for outcome in report.outcomes:
        if outcome.verdict == "fail":
            side = "at least" if outcome.gate.at_least else "at most"
            limit = (
                percent(outcome.gate.threshold) if outcome.gate.kind == "threshold" else f"{outcome.gate.threshold:g}"
            )
            yield f"{outcome.gate.name} is {value(outcome)} of {outcome.n}; it should be {side} {limit}."
    worst = [question for question in report.questions if question.label in ("HALLUCINATION", "OVER_REFUSAL")]
    if worst:
        yield f"{len(worst)} gold questions were answered where they should be refused, or refused without need."
    yield f"{report.scored} of {report.read} records could be scored."


def _gate(outcome: Outcome) -> dict[str, Any]:
    """A gate as a row."""
    data, bar = gate(outcome), Markup()
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
        **data,
        "shown": value(outcome),
        "interval": between(outcome) if outcome.lower is not None else "–",
        "bound": f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}",
        "population": f"{outcome.source}, {outcome.gold}" if outcome.gold else outcome.source,
        "why": why(outcome),
        "bar": bar,
    }


def _charts(outcomes: Sequence[Outcome], histories: Mapping[GateKey, GateHistory]) -> Iterator[tuple[str, Markup]]:
    """The gates over time, where the records have times."""
    for outcome in outcomes:
        history = histories.get((outcome.gate.pipeline, outcome.gate.name))
        if history is not None and len(history.values) > FEW:
            name = f"{outcome.gate.pipeline}/{outcome.gate.name}"
            chart = time_chart(
                history, threshold=outcome.gate.threshold, at_least=outcome.gate.at_least, name=f"{name} over time"
            )
            yield name, chart


def _drop(drop: Comparison) -> dict[str, Any]:
    """A comparison with the baseline as a row, and the items that flipped."""
    return {
        "name": f"{drop.gate.pipeline}/{drop.gate.name}",
        "before": percent(drop.before.value),
        "after": percent(drop.after.value),
        "better": f"{-100 * (drop.drop or 0.0):+.1f} points",
        "items": "–" if drop.items is None else f"{len(drop.flips)} of {drop.items}",
        "flips": [(flip.qid, percent(flip.before), percent(flip.after)) for flip in drop.flips[:FLIPS]],
    }


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
