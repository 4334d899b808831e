"""The report of a run as one HTML file that needs nothing else: summary, gates, charts, questions, how to read it.

It has ids, facts and numbers, and no text of a question or an answer.

The comparison of two releases as one HTML file that needs nothing else: summary, metric by metric, flipped items.

It has ids, facts and numbers, and no text of a question or an answer.

A report in a notebook: a piece of HTML with the verdict, the gates with their bars, and the gates over time.

Its style holds for itself alone, takes text and background of the notebook, and has accents that are seen on white and
on black, since a notebook's theme need not be that of the system. It needs no script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from markupsafe import Markup

from ragmon.core import constants
from ragmon.core.http_client import current_version
from ragmon.export.charts import interval_bar, time_chart
from ragmon.export.comparison import WORDS, Canary, subject
from ragmon.export.pages import asset, by_reason, document, flips_of, render
from ragmon.export.schema import (
    BaselineDrop,
    ComparedGate,
    ComparedSample,
    GateSummary,
    QuestionReport,
    ReportData,
    RunResults,
    gate_summary,
)
from ragmon.export.text import (
    better_by,
    bound,
    bounds_text,
    counts,
    flipped,
    interval_of,
    percent,
    signed,
    threshold,
    title,
    value,
    why,
)
from ragmon.gates.history import GateHistory, GateKey
from ragmon.scoring.snapshot import ALL
from ragmon.scoring.windows import RIGHT
from ragmon.stats.betting import ALPHA

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


def report_page(report: RunResults, questions: int | None = None) -> str:
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
        sentences=list(_report_sentences(data, questions)),
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


def _report_sentences(data: ReportData, questions: Sequence[QuestionReport]) -> Iterator[str]:
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
    return {
        **flips_of(drop),
        "before": percent(drop.before),
        "after": percent(drop.after),
        "better": f"{better_by(drop.drop)} points",
        "items": flipped(drop),
    }


def _metrics(data: ReportData) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
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


_SUMMARIES: Final = {
    "pass": "The candidate is not worse than the baseline by more than is allowed, on every gate that was compared.",
    "fail": "The candidate is worse than the baseline: do not ship it, or find out why first.",
    "insufficient": "It is not decided yet: more requests or gold questions are needed.",
}
"""What the verdict means to somebody who decides."""


def comparison_page(canary: Canary) -> str:
    """The comparison as an HTML file.

    Args:
        canary: The comparison; where it has no intervals, the page has none.
    """
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
        rows=[_row(comparison, canary.max_drop) for comparison in canary.gates],
        version=current_version(),
    )


def _comparison_sentences(canary: Canary) -> Iterator[str]:
    counts = dict.fromkeys(("pass", "fail", "insufficient"), 0)
    for comparison in canary.gates:
        counts[comparison.verdict] += 1
    yield (
        f"{len(canary.gates)} metrics were compared: {counts['fail']} worse, {counts['pass']} not worse, "
        f"{counts['insufficient']} undecided. Worse by up to {100 * canary.max_drop:g} points is allowed."
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


def _row(comparison: ComparedGate, max_drop: float) -> dict[str, Any]:
    found = comparison.intervals
    return {
        **flips_of(comparison),
        "metric": comparison.metric,
        "better": "higher" if comparison.at_least else "lower",
        "before": _sample(comparison.baseline, None if found is None else found.baseline),
        "after": _sample(comparison.candidate, None if found is None else found.candidate),
        "change": "–" if comparison.drop is None else better_by(comparison.drop),
        "bounds": _bounds(comparison),
        "bar": _bar(comparison, max_drop),
        "items": "–" if comparison.items is None else str(comparison.items),
        "flipped": f"{len(comparison.flips)} flipped, {comparison.worse} for the worse" if comparison.flips else "",
        "verdict": comparison.verdict,
        "word": WORDS[comparison.verdict],
        "why": comparison.reason,
    }


def _sample(sample: ComparedSample, bounds: tuple[float, float] | None) -> tuple[str, str]:
    interval = "" if bounds is None else f"{bounds_text(*bounds)}, "
    return percent(sample.value), f"{interval}of {sample.n}"


def _bounds(comparison: ComparedGate) -> str:
    if comparison.intervals is None:
        return "–"
    lower, upper = comparison.intervals.drop
    return f"{signed(-upper)} to {signed(-lower)}"


def _bar(comparison: ComparedGate, max_drop: float) -> Markup:
    if comparison.drop is None:
        return Markup()
    lower, upper = (None, None) if comparison.intervals is None else comparison.intervals.drop
    return interval_bar(
        -comparison.drop,
        None if upper is None else -upper,
        None if lower is None else -lower,
        threshold=-max_drop,
        at_least=True,
        verdict=comparison.verdict,
    )


OPEN: Final = 3
"""Charts up to which all of them are shown at once; of more, those of gates that fail."""


def fragment(report: RunResults) -> str:
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
    rest = [chart for chart in charts if chart not in first]
    return [("", first), (f"{'The other' if first else 'The'} {len(rest)} gates over time", rest)]
