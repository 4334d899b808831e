"""The report of a run as one HTML file that needs nothing else: summary, gates, charts, questions, how to read it.

It has ids, facts and numbers, and no text of a question or an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.core.errors import InputError
from ragmon.core.policy import Outcome
from ragmon.export.markdown import percent
from ragmon.export.pages.assets import asset
from ragmon.export.pages.charts import interval_bar
from ragmon.export.pages.rendering import by_reason, render
from ragmon.export.pages.time_chart import time_chart
from ragmon.export.report import QuestionReport, Report
from ragmon.gates.history import GateHistory, GateKey

FEW: Final = 2
"""Windows with a value up to which there is no chart over time."""
FLIPS: Final = 50
"""Flipped gold items that are listed for each gate."""
_WRONG: Final = ("HALLUCINATION", "OVER_REFUSAL")
"""The outcomes of gold questions that a reader should know first."""
_COUNTED: Final = (constants.LATENCY, constants.INDEX_HASH)
"""The metrics of gates whose value is no share."""
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
    """The report of a run as an HTML file.

    Args:
        report: The report.
        history: Its gates over time; gates without enough windows have no chart.
        questions: Rows of the per-question table; None lists all.
    """
    shown = report.questions if questions is None else report.questions[:questions]
    return _page(
        report.data(),
        notes=report.notes,
        charts=list(gate_charts(report.outcomes, history or {})),
        questions=[_question(question) for question in shown],
        unlisted=len(report.questions) - len(shown),
        wrong=sum(question.label in _WRONG for question in report.questions),
    )


def saved_report_page(data: Mapping[str, Any]) -> str:
    """A report that was written as JSON as an HTML file: without charts over time and single questions.

    Args:
        data: What `ragmon replay --format json` wrote.

    Raises:
        InputError: It is no report.
    """
    note = "Read from a report in JSON, which has no windows and no single questions."
    try:
        return _page(data, notes=[note], charts=[], questions=[], unlisted=0, wrong=0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "what `ragmon replay --format json` writes"
        raise InputError(f"this is no report of ragmon: {error!r}", hint=hint) from error


def _page(
    data: Mapping[str, Any],
    *,
    notes: Sequence[str],
    charts: Sequence[tuple[str, Markup]],
    questions: Sequence[Mapping[str, Any]],
    unlisted: int,
    wrong: int,
) -> str:
    """A report as HTML, from its plain data."""
    verdict = data["verdict"]
    return render(
        "report.html.jinja",
        title=f"ragmon: {verdict}",
        heading="Verdict",
        verdict=verdict,
        verdict_text=verdict,
        style=style(),
        script=Markup(asset("report.js").decode()),  # noqa: S704 - a file of this package
        version=data["version"],
        digest=data["digest"],
        notes=notes,
        summary=_VERDICTS[verdict],
        sentences=list(_sentences(data, wrong)),
        gates=[gate_row(gate) for gate in data["gates"]],
        charts=charts,
        golds=data["gold"],
        records=data["records"],
        rejected=by_reason(data["records"]["rejected"]),
        latency=data["latency_ms"],
        drops=[_drop(drop) for drop in data.get("baseline", ())],
        questions=questions,
        more=unlisted,
    )


def style() -> Markup:
    """The style sheet, for a page that is one file."""
    return Markup(asset("ragmon.css").decode())  # noqa: S704 - a file of this package


def _sentences(data: Mapping[str, Any], wrong: int) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    counts = Counter(gate["verdict"] for gate in data["gates"])
    yield (
        f"{len(data['gates'])} gates: {counts['pass']} are kept, {counts['fail']} are broken, "
        f"{counts['insufficient']} are undecided."
    )
    for gate in data["gates"]:
        if gate["verdict"] == "fail":
            side = "at least" if gate["direction"] == "at_least" else "at most"
            limit = percent(gate["threshold"]) if _is_share(gate) else f"{gate['threshold']:g}"
            yield f"{gate['gate']} is {figure(gate)} of {gate['n']}; it should be {side} {limit}."
    if wrong:
        yield f"{wrong} gold questions were answered where they should be refused, or refused without need."
    yield f"{data['records']['scored']} of {data['records']['read']} records could be scored."


def _is_share(gate: Mapping[str, Any]) -> bool:
    """Whether a gate judges a share: the others compare a latency with its baseline, or count index hashes."""
    return gate["metric"] not in _COUNTED


def figure(gate: Mapping[str, Any]) -> str:
    """The value of a gate from the data of a report: a share, a multiple of the baseline, or a number of hashes."""
    if gate["value"] is None or _is_share(gate):
        return percent(gate["value"])
    return f"{gate['value']:.2f} x" if gate["metric"] == constants.LATENCY else f"{gate['value']:.0f}"


def gate_row(gate: Mapping[str, Any]) -> dict[str, Any]:
    """A gate as a row.

    Args:
        gate: Its part of the data of a report.
    """
    at_least, bar = gate["direction"] == "at_least", Markup()
    lower, upper = gate["lower"], gate["upper"]
    if gate["value"] is not None and _is_share(gate):
        bar = interval_bar(
            gate["value"], lower, upper, threshold=gate["threshold"], at_least=at_least, verdict=gate["verdict"]
        )
    like_these = gate["estimand"] == constants.QUESTIONS_LIKE_THESE
    needed = f"; about {gate['needed']}{' gold items' if like_these else ''} needed" if gate["needed"] else ""
    return {
        **gate,
        "shown": figure(gate),
        "interval": "–" if lower is None else f"{100 * lower:.1f} – {100 * upper:.1f} %",
        "bound": f"{'≥' if at_least else '≤'} {gate['threshold']:g}",
        "population": f"{gate['source']}, {gate['gold']}" if gate["gold"] else gate["source"],
        "why": f"{gate['reason']}{needed}",
        "bar": bar,
    }


def gate_charts(outcomes: Sequence[Outcome], histories: Mapping[GateKey, GateHistory]) -> Iterator[tuple[str, Markup]]:
    """The names and charts of the gates over time, where the records have times.

    Args:
        outcomes: The gates.
        histories: Their histories.
    """
    for outcome in outcomes:
        history = histories.get((outcome.gate.pipeline, outcome.gate.name))
        if history is not None and len(history.values) > FEW:
            name = f"{outcome.gate.pipeline}/{outcome.gate.name}"
            chart = time_chart(
                history, threshold=outcome.gate.threshold, at_least=outcome.gate.at_least, name=f"{name} over time"
            )
            yield name, chart


def _drop(drop: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison with the baseline as a row, and the items that flipped."""
    flips = drop["flips"]
    return {
        "name": f"{drop['pipeline']}/{drop['gate']}",
        "before": percent(drop["before"]),
        "after": percent(drop["after"]),
        "better": f"{-100 * (drop['drop'] or 0.0):+.1f} points",
        "items": "–" if drop["items"] is None else f"{len(flips)} of {drop['items']}",
        "flips": [(flip["qid"], percent(flip["before"]), percent(flip["after"])) for flip in flips[:FLIPS]],
    }


def _question(question: QuestionReport) -> dict[str, Any]:
    """A question as a row; the class of its outcome is good, bad or neither."""
    good, bad = ("OK", "REFUSAL_OK"), ("HALLUCINATION", "OVER_REFUSAL", "NO_ANSWER")
    kind = "pass" if question.label in good else "fail" if question.label in bad else "insufficient"
    return {
        "qid": question.qid,
        "pipeline": question.pipeline or constants.DEFAULT_PIPELINE,
        "label": question.label,
        "words": _OUTCOMES.get(question.label, ""),
        "times": question.times,
        "kind": kind,
    }
