"""The report as Markdown, and gate verdicts as plain text for terminals and as Markdown for a CI step summary.

Text from a trace or a gold file is escaped: questions and ids are untrusted.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ragmon.alarms.plan import describe
from ragmon.core import constants
from ragmon.core.errors import printable, printable_line
from ragmon.export.report import QuestionReport, Report
from ragmon.export.schema import BaselineDrop, GateSummary, ReportData, SeriesSummary, gate_summary
from ragmon.export.tables import GAP, escape, markdown_table, text_table
from ragmon.gates import coverage
from ragmon.gates.coverage import FIELDS, FieldShare
from ragmon.scoring.snapshot import ALL

QUESTIONS: Final = 200
"""Rows of the per-question table by default."""
FLIPS: Final = 20
"""Flipped items that are listed for each gate."""

_MARKS: Final = {"pass": "✅ pass", "fail": "❌ fail", "insufficient": "⚪ insufficient"}


def render(report: Report, questions: int | None = QUESTIONS) -> str:
    """The whole report as Markdown.

    Args:
        report: The report.
        questions: Rows of the per-question table; None for all.
    """
    data = report.document
    about = f"{data.records.scored} of {data.records.read} records scored · digest `{data.digest[:16]}`"
    parts = [
        "# RAG quality report\n",
        f"**{_MARKS[data.verdict]}** · {about}\n",
        *_about(data, report.notes),
        *_gates(data.gates),
        *_drops(data.baseline),
        *_labels(data),
        *_judges(data),
        *_metrics(data, report.snapshot.gold_metrics),
        *_latency(data),
        *_captured(data),
        *_reach(report),
        *_questions(report.questions, questions),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def render_gates(report: Report) -> str:
    """The verdict, the gates and the comparison with a baseline, for a CI step summary."""
    data = report.document
    notes = _list(map(escape, report.notes))
    parts = [f"# Gates: {_MARKS[data.verdict]}\n", *notes, *_gates(data.gates), *_drops(data.baseline)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _labels(data: ReportData) -> list[str]:
    """Statistics of the labels, and the estimate from labels and a proxy."""
    labelled = data.labels
    if labelled is None:
        return []
    maturity = "" if labelled.maturity is None else f"; {labelled.maturity:.0%} of those to come are here"
    entries = [f"{labelled.labels} labels by {labelled.raters} raters on {labelled.answers} answers{maturity}"]
    entries += (
        [f"raters say different things of {labelled.conflicts} answers: the mean counts"] if labelled.conflicts else []
    )
    entries += [f"{labelled.orphans} labelled answers are not among these records"] if labelled.orphans else []
    entries += [f"{labelled.probes} answers to gold questions were labelled: gold counts"] if labelled.probes else []
    for found in data.predicted:
        if found.value is not None and found.gain is not None:
            bounds = f"{found.value:.3f} ({found.lower:.3f} to {found.upper:.3f})"
            worth = f"{found.n} labels beside {escape(found.proxy)}, each worth {found.gain:.2f}"
            entries.append(f"{escape(found.pipeline)}: answers that are correct, with a proxy: {bounds}, {worth}")
    return ["## Labels\n", *_list(entries)]


def _judges(data: ReportData) -> list[str]:
    """The versions of judges, whose scores are never put together."""
    rows = [(*map(escape, (judge.pipeline, judge.judge, judge.version)), str(judge.answers)) for judge in data.judges]
    return ["## Judges\n", *_table(("pipeline", "judge", "version", "answers"), rows)] if rows else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table and the empty line after it; nothing where there are no rows."""
    return [*markdown_table(head, rows), ""] if rows else []


def _list(entries: Iterable[str]) -> list[str]:
    lines = [f"- {entry}" for entry in entries]
    return [*lines, ""] if lines else []


def _about(data: ReportData, notes: Sequence[str]) -> list[str]:
    """Notes and counts a reader needs before the figures."""
    records = data.records
    entries = [escape(note) for note in notes]
    if records.duplicate:
        entries.append(f"{records.duplicate} records repeat a gold question that was already answered")
    if records.unmatched:
        entries.append(f"{records.unmatched} records belong to no gold item: only label-free metrics count them")
    entries += [f"{n} rejected: {escape(reason)}" for reason, n in records.rejected.items()]
    entries += [f"{n} unknown: {escape(field)}" for field, n in records.unknown.items()]
    for gold in data.gold:
        missing = gold.items - gold.traced
        seen = f"{gold.traced} of {gold.items} items traced" + (f", {missing} missing" if missing else "")
        entries.append(f"gold {escape(gold.name)}, version {escape(gold.version)}: {seen}")
    entries += [
        f"{escape(pipeline)}: {coverage.match_summary(ways)}" for pipeline, ways in sorted(data.matches.items())
    ]
    if any(set(ways) - {constants.UNMATCHED} for ways in data.matches.values()):
        entries.append(constants.HEAD_NOTE)
    return _list(entries)


_HEAD: Final = ("gate", "value", "95 % interval", "threshold", "n", "verdict", "why")


def _gates(gates: Sequence[GateSummary]) -> list[str]:
    if not gates:
        return []
    kinds = _kinds(map(interval_kind, gates))
    rows = [
        (
            escape(gate.name),
            value(gate),
            _marked(gate, kinds),
            bound(gate),
            str(gate.n),
            _MARKS[gate.verdict],
            escape(why(gate)),
        )
        for gate in gates
    ]
    return ["## Gates\n", *_table(_HEAD, rows), *([f"{line}\n"] if (line := _legend(kinds)) else [])]


def _marked(gate: GateSummary, kinds: Mapping[str, str]) -> str:
    """The interval of a gate's value with the mark of its kind."""
    return bounds_text(gate.lower, gate.upper) + kinds.get(interval_kind(gate), "")


def percent(value: float | None) -> str:
    """A share in per cent; a dash where there is no data."""
    return "–" if value is None else f"{100 * value:.1f} %"


def value(gate: GateSummary) -> str:
    """A gate's value: a share, a multiple of the baseline, or a number of index hashes."""
    if gate.value is None or gate.kind == "threshold":
        return percent(gate.value)
    return f"{gate.value:.2f} x" if gate.kind == "quantile_ratio" else f"{gate.value:.0f}"


def bounds_text(lower: float | None, upper: float | None) -> str:
    """An interval of shares in per cent; a dash where there is none."""
    return "–" if lower is None or upper is None else f"{100 * lower:.1f} – {100 * upper:.1f} %"


def threshold(gate: GateSummary) -> str:
    """A gate's threshold, as its value is written."""
    if gate.kind == "threshold":
        return f"{100 * gate.threshold:g} %"
    return f"{gate.threshold:g}{' x' if gate.kind == 'quantile_ratio' else ''}"


def bound(gate: GateSummary) -> str:
    """What a gate asks for."""
    return f"{'≥' if gate.at_least else '≤'} {gate.threshold:g}"


WILSON: Final = "Wilson's, of these requests"
STRATA: Final = "of all calls, weighted by strata"
LIKE_THESE: Final = "of questions like these, with gold items as the observations"
BESIDE_EXACT: Final = f"{LIKE_THESE}; the verdict is on this gold set, where the value is exact"


def interval_kind(gate: GateSummary) -> str:
    """What the interval of a gate's value is about; "" where there is no interval."""
    if gate.lower is None:
        return ""
    if gate.n_eff is None:
        return BESIDE_EXACT
    if gate.estimand == constants.QUESTIONS_LIKE_THESE:
        return LIKE_THESE
    return STRATA if gate.of == constants.ALL_CALLS else WILSON


def _kinds(kinds: Iterable[str]) -> dict[str, str]:
    """The mark of each kind of interval in a table: nothing for the most frequent one, then stars."""
    present = Counter(kind for kind in kinds if kind).most_common()
    return {kind: f" {'*' * place}" if place else "" for place, (kind, _) in enumerate(present)}


def _legend(kinds: Mapping[str, str]) -> str:
    """The kinds of the intervals in a table, each named once."""
    named = "; ".join(f"{mark} {kind}".strip() for kind, mark in kinds.items())
    return f"95 % intervals: {named}." if named else ""


def why(gate: GateSummary) -> str:
    """The reason of a verdict, and how many more observations a decision needs."""
    if not gate.needed:
        return gate.reason
    unit = " gold items" if gate.estimand == constants.QUESTIONS_LIKE_THESE else ""
    return f"{gate.reason}; about {gate.needed}{unit} needed"


def _drops(drops: Sequence[BaselineDrop]) -> list[str]:
    """The change of each gate against the baseline, and the items that flipped."""
    if not drops:
        return []
    rows = [
        (escape(drop.name), percent(drop.before), percent(drop.after), f"{better_by(drop.drop)} points", flipped(drop))
        for drop in drops
    ]
    flips = [
        (escape(drop.name), escape(flip.qid), percent(flip.before), percent(flip.after))
        for drop in drops
        for flip in drop.flips[:FLIPS]
    ]
    lines = ["## Against the baseline\n", *_table(("gate", "before", "now", "better by", "items flipped"), rows)]
    return [*lines, *_table(("gate", "qid", "before", "now"), flips)]


def flipped(drop: BaselineDrop) -> str:
    """How many gold items flipped, of how many; a dash where that is not known."""
    return "–" if drop.items is None else f"{len(drop.flips)} of {drop.items}"


def better_by(drop: float | None) -> str:
    """By how many points a metric is better than before, given how much worse it is."""
    return signed(-(drop or 0.0))


def signed(change: float) -> str:
    """A change of a share in points, with its sign.

    >>> signed(0.071), signed(-0.0)
    ('+7.1', '+0.0')
    """
    return f"{round(100 * change, 1) + 0.0:+.1f}"


def _metrics(data: ReportData, gold_metrics: Collection[str]) -> list[str]:
    lines = []
    for series in data.series:
        if series.window == ALL:
            shown = {name: figures for name, figures in series.metrics.items() if figures.n or figures.unassessed}
            if series.gold:  # metrics that need no gold are in the table of all requests
                shown = {name: figures for name, figures in shown.items() if name in gold_metrics}
            intervals = {name: interval_of(series, name, data.gates) for name in shown}
            kinds = _kinds(kind for _, kind in intervals.values())
            rows = [
                (
                    name,
                    percent(figures.value),
                    interval + kinds.get(kind, ""),
                    str(figures.samples),
                    ", ".join(f"{n} {escape(reason)}" for reason, n in figures.unassessed.items()),
                )
                for name, figures in shown.items()
                for interval, kind in (intervals[name],)
            ]
            if rows:
                lines += [f"## {escape(title(series))}\n"]
                lines += _table(("metric", "value", "95 % interval", "n", "unassessed"), rows)
                lines += [f"{legend}\n"] if (legend := _legend(kinds)) else []
    return lines


def interval_of(series: SeriesSummary, name: str, gates: Sequence[GateSummary]) -> tuple[str, str]:
    """The interval of a metric and its kind: that of the gate on the same number where there is one."""
    figures = series.metrics[name]
    if figures.value is None:
        return bounds_text(None, None), ""
    own = (name, series.pipeline, series.source, figures.samples, figures.value)
    for gate in gates:
        same = (gate.metric, gate.pipeline, gate.source, gate.n, gate.value)
        if same == own and gate.lower is not None:
            return bounds_text(gate.lower, gate.upper), interval_kind(gate)
    return bounds_text(figures.lower, figures.upper), WILSON if figures.weighted is None else STRATA


def title(series: SeriesSummary) -> str:
    """What a series is of."""
    about = [f"pipeline {series.pipeline}", f"source {series.source}"]
    about += [f"gold {series.gold} {series.gold_version}"] if series.gold else []
    about += [series.slice] if series.slice else []
    about += [f"of {series.of}"] if series.of else []
    return ", ".join(about)


def _latency(data: ReportData) -> list[str]:
    rows = [
        (escape(stage), *(f"{ms:g}" if ms is not None else "–" for ms in quantiles.values()))
        for stage, quantiles in data.latency_ms.items()
    ]
    return ["## Latency, ms\n", *_table(("stage", "p50", "p95", "p99"), rows)] if rows else []


def _captured(data: ReportData) -> list[str]:
    """The share of records that have each field, and the gaps that gates suffer from."""
    rows = [
        (escape(f"{each.pipeline}, {each.source}"), str(each.records), *shares(each.fields)) for each in data.captured
    ]
    gaps = [
        f"{escape(f'{each.pipeline}, {each.source}: {gap.text}')}. To mend it: {escape(gap.remedy)}"
        for each in data.captured
        for gap in each.gaps
        if gap.gates
    ]
    return ["## What is captured\n", *_table(("records of", "n", *FIELDS), rows), *_list(gaps)] if rows else []


def shares(fields: Mapping[str, FieldShare]) -> list[str]:
    """The share of records with each field, as text, in the order of all fields."""
    return [_share(fields.get(name)) for name in FIELDS]


def _share(share: FieldShare | None) -> str:
    if share is None:
        return "–"
    return "withheld" if share.ratio is None else f"{100 * share.ratio:.0f} %"


def _reach(report: Report) -> list[str]:
    lines = _list(escape(f"{each.gate.pipeline}/{each.gate.name}: {describe(each)}") for each in report.reach)
    return ["## What live alarms would find at this rate\n", *lines] if lines else []


def _questions(questions: Sequence[QuestionReport], limit: int | None) -> list[str]:
    if not questions:
        return []
    shown = questions if limit is None else questions[:limit]
    several = len({question.pipeline for question in questions}) > 1
    rows = [_question(question, named=several) for question in shown]
    rest = len(questions) - len(shown)
    more = [f"… and {rest} more (`--questions all` shows them)\n"] if rest else []
    return ["## Per-question\n", *_table(("qid", "answered", "hit", "refusal", "label"), rows), *more]


def _question(question: QuestionReport, *, named: bool) -> tuple[str, ...]:
    """One row; with several pipelines, the question is prefixed with its pipeline."""
    qid = f"{question.pipeline}/{question.qid}" if named else question.qid
    times = f" ×{question.times}" if question.times > 1 else ""
    flags = (str(flag).lower() for flag in (question.answered, question.hit, question.refused))
    return escape(qid) + times, *flags, f"**{question.label}**"


FAILURES: Final = 5
"""Gates that fail and are named in the `repr` of a report."""


def counts(report: Report) -> str:
    """How many gates and records there are, in a line."""
    verdicts = Counter(outcome.verdict for outcome in report.outcomes)
    gates = f"{len(report.outcomes)} gate{'' if len(report.outcomes) == 1 else 's'}"
    text = f"{verdicts['fail']} of {gates} fail" if verdicts["fail"] else f"{verdicts['pass']} of {gates} pass"
    if verdicts["insufficient"]:
        text += f", {verdicts['insufficient']} insufficient"
    return f"{text}; {report.read:,} records, {report.scored:,} scored"


def brief(report: Report) -> str:
    """The report in a few lines, which is its `repr`: verdict, counts, and the gates that fail."""
    origin = f"; gates of {printable_line(report.gates_of)}" if report.gates_of else ""
    lines = [f"<Report {report.verdict}: {counts(report)}{origin}>"]
    failing = [gate_summary(outcome) for outcome in report.outcomes if outcome.verdict == "fail"]
    for gate in failing[:FAILURES]:
        asked = f"{'>=' if gate.at_least else '<='} {threshold(gate)}"
        lines.append(f"  {printable(gate.name)}: {value(gate)} of {gate.n:,}, threshold {asked}")
    if len(failing) > FAILURES:
        lines.append(f"  and {len(failing) - FAILURES} more")
    return "\n".join(lines)


GATE_FLIPS: Final = 10
"""Flipped items that are named for each gate."""
_NARROWEST: Final = 24
"""Columns that reasons need beside the table; where a terminal has fewer, they stand below their gate."""


def text(report: Report) -> str:
    """The gates as plain text without colour, one line each, with the verdict on the last line."""
    lines = [*text_table(_rows(report.document.gates)), *_about_run(report)]
    return "\n".join([*lines, f"verdict: {report.verdict}"]) + "\n"


def terminal_text(report: Report, width: int, paint: Callable[[str], str] = str) -> str:
    """The same for a terminal: the last column is wrapped within its width, and verdicts are painted.

    Args:
        report: The report.
        width: The columns of the terminal.
        paint: Gives a verdict its colour.
    """
    rows = _rows(report.document.gates)
    starts = text_table([row[:-1] for row in rows])
    indent = max(len(start) for start in starts) + GAP
    if width - indent < _NARROWEST:
        indent = 2 * GAP
    lines = []
    for start, (*_, verdict, reason) in zip(starts, rows, strict=True):
        first, *more = textwrap.wrap(reason, max(width - indent, _NARROWEST)) or [""]
        painted = start.removesuffix(verdict) + (verdict if verdict == _HEAD[-2] else paint(verdict))
        if indent > len(start):
            lines.append(painted + " " * (indent - len(start)) + first if first else painted)
        else:
            lines += [painted, *([" " * indent + first] if first and reason != _HEAD[-1] else [])]
        lines += [" " * indent + line for line in more]
    about = [part for line in _about_run(report) for part in textwrap.wrap(line, width, subsequent_indent="  ")]
    return "\n".join([*lines, *about, f"verdict: {paint(report.verdict)}"]) + "\n"


def _about_run(report: Report) -> list[str]:
    """The kinds of the intervals, the notes, what records lack so that gates cannot be judged, and the changes."""
    data = report.document
    legend = _legend(_kinds(map(interval_kind, data.gates)))
    lines = [*([legend] if legend else []), *(printable(f"note: {note}") for note in report.notes)]
    lines += [
        printable_line(f"captured of {each.pipeline}: {gap.finding}. To mend it: {gap.remedy}")
        for each in data.captured
        for gap in each.gaps
        if gap.blocked
    ]
    for drop in data.baseline:
        lines += _moved(drop)
    return lines


def _rows(gates: Sequence[GateSummary]) -> list[tuple[str, ...]]:
    """The gates as a table for a terminal."""
    kinds = _kinds(map(interval_kind, gates))
    rows = (
        (
            printable(gate.name),
            value(gate),
            _marked(gate, kinds),
            bound(gate).translate(_ASCII),
            str(gate.n),
            gate.verdict,
            printable(why(gate)),
        )
        for gate in gates
    )
    return [_HEAD, *rows]


_ASCII: Final = {ord("≥"): ">=", ord("≤"): "<="}


def _moved(drop: BaselineDrop) -> Iterator[str]:
    """How a gate changed against the baseline, and the first items that flipped."""
    items = "" if drop.items is None else f", {flipped(drop)} items flipped"
    yield f"{printable(drop.name)}: {percent(drop.before)} -> {percent(drop.after)} against the baseline{items}"
    for flip in drop.flips[:GATE_FLIPS]:
        yield f"  {printable(flip.qid)}: {percent(flip.before)} -> {percent(flip.after)}"
