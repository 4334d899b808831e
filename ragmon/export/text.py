"""Text for terminals and Markdown: tables, reports, the verdicts of gates, a diagnosis, and a request. Times are UTC.

Names, questions and ids come from outside: in Markdown they are escaped, on a terminal characters that are not
printable are replaced, line by line.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ragmon.alarms.plan import describe, rate_text
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.errors import printable, printable_json, printable_line
from ragmon.export.schema import (
    BaselineDrop,
    GateSummary,
    IncidentSummary,
    QuestionReport,
    ReportData,
    RunResults,
    SeriesSummary,
    gate_summary,
)
from ragmon.gates import coverage
from ragmon.gates.change import REQUESTS, Level, Moved, Side, Stage, Suspect, Why
from ragmon.gates.coverage import FIELDS, FieldShare
from ragmon.gates.incidents import SLOWER, Cause, ChangedGate, Incident, trait_counted_by, trait_of
from ragmon.gates.request import MatchedItem, MetricResult, RequestReport, ShownText
from ragmon.scoring.snapshot import ALL

GAP: Final = 2
_NO_WIDTHS: Final[Mapping[int, int]] = MappingProxyType({})

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Characters that format anywhere, those that format at the start of a line or a word, and those that make a link.
_SPECIAL: Final = re.compile(
    r"[\\`*\[\]|~#@&<>]"
    r"|(?<![^\W_])_|_(?![^\W_])"
    r"|^[-+=:](?=\s|-|=|$)|(?<=\d)[.)](?=\s|$)"
    r"|:(?=//)|(?<=www)\.",
    re.IGNORECASE,
)
QUESTIONS: Final = 200
FLIPS: Final = 20
_MARKS: Final = {"pass": "✅ pass", "fail": "❌ fail", "insufficient": "⚪ insufficient"}
_HEAD: Final = ("gate", "value", "95 % interval", "threshold", "n", "verdict", "why")
WILSON: Final = "for requests like these (Wilson's)"
STRATA: Final = "for all calls, weighted by strata"
SAMPLED: Final = f"for {constants.SAMPLED_TRAFFIC}, not for all calls (Wilson's)"
LIKE_THESE: Final = "for questions like these (each gold item counts once)"
BESIDE_EXACT: Final = f"{LIKE_THESE}; the verdict is on the exact value over this gold set"
FAILURES: Final = 5
GATE_FLIPS: Final = 10
_NARROWEST: Final = 24
"""Columns that reasons need beside the table; where a terminal has fewer, they stand below their gate."""
_ASCII: Final = {ord("≥"): ">=", ord("≤"): "<="}
SUSPECTS: Final = 4
TRAITS: Final = 3
METRICS: Final = 4
TRACES: Final = 5
"""Entries of each that a diagnosis shows."""
LONGEST: Final = 32
WHY_COLUMN: Final = 11
FEW: Final = 0.2
"""Share of the failing requests from which on a trait counts as common to them."""
_TINY: Final = 1e-12
_MOVED: Final = 3.0
"""Standard errors from which on a metric counts as moved."""
_WORDS: Final = {"pass": "passes", "fail": "FAILS", "insufficient": "is undecided"}
_Lines = Iterator[tuple[str, str]]
"""The heading of a line ("" repeats the one above), and its text."""
MIN_BEFORE: Final = 0.01
"""The share of requests with a trait from which on the share before an incident is told."""
REQUEST_COLUMN: Final = 10
LONGEST_CONTEXT: Final = 400
LONGEST_TEXT: Final = 4_000
"""Characters shown of a retrieved text, and of a question or an answer, unless all of it is asked for."""
_LONGEST_LINE: Final = 100_000
_LINES: Final = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_HEADINGS: Final = {
    "fails": "fail",
    "passes": "pass",
    "scores": "scored",
    "unknown": "unassessed",
    "n/a": "outside",
}


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> escape("a|b <script>")
    'a\\|b &lt;script&gt;'
    """
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), printable(text).strip())


def text_table(
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    widths: Mapping[int, int] = _NO_WIDTHS,
    gap: int = GAP,
) -> list[str]:
    """The lines of a table for a terminal. A column is as wide as its widest cell; control characters are escaped.

    Args:
        rows: The rows, with equally many cells.
        right: The numbers of the columns that are aligned to the right, from 0.
        widths: Fixed widths by the number of the column; a longer cell moves the rest of its line.
        gap: Spaces between two columns.

    >>> text_table([("stage", "scored"), ("ingest", "7")], right=[1])
    ['stage   scored', 'ingest       7']
    """
    cells = [[printable_line(cell) for cell in row] for row in rows]
    longest = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = [(widths.get(n, width), n in right) for n, width in enumerate(longest)]
    return [
        (" " * gap)
        .join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, (width, is_right) in zip(row, columns, strict=True)
        )
        .rstrip()
        for row in cells
    ]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    Args:
        head: The titles of the columns.
        rows: The rows; cells are Markdown, so text from outside is escaped before.

    >>> markdown_table(["gate", "n"], [["mrr", "7"]])
    ['| gate | n |', '| --- | --- |', '| mrr | 7 |']
    """
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def report_markdown(report: RunResults, questions: int | None = QUESTIONS) -> str:
    """The whole report as Markdown, with at most so many rows of the per-question table; None for all."""
    data = report.document
    about = f"{data.records.scored:,} of {data.records.read:,} records scored · digest `{data.digest[:16]}`"
    latency = [
        (escape(stage), *("–" if ms is None else f"{ms:g}" for ms in quantiles.values()))
        for stage, quantiles in data.latency_ms.items()
    ]
    versions = [
        (*map(escape, (judge.pipeline, judge.judge, judge.version)), f"{judge.answers:,}") for judge in data.judges
    ]
    reach = [escape(f"{each.gate.pipeline}/{each.gate.name}: {describe(each)}") for each in report.reach]
    parts = [
        "# RAG quality report\n",
        f"**{_MARKS[data.verdict]}** · {about}\n",
        *_about(data, report.notes),
        *_section("Incidents", _list(escape(f"{each.summary} ({each.severity})") for each in data.incidents)),
        *_gates(data.gates),
        *_drops(data.baseline),
        *_labels(data),
        *_section("Judges", _table(("pipeline", "judge", "version", "answers"), versions)),
        *_metric_tables(data, report.snapshot.gold_metrics),
        *_section("Latency, ms", _table(("stage", "p50", "p95", "p99"), latency)),
        *_captured(data),
        *_section("What live alarms would find at this rate", _list(reach)),
        *_questions(report.questions, questions),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def render_gates(report: RunResults) -> str:
    """The verdict, the gates and the comparison with a baseline, for a CI step summary."""
    data = report.document
    notes = _list(map(escape, report.notes))
    parts = [f"# Gates: {_MARKS[data.verdict]}\n", *notes, *_gates(data.gates), *_drops(data.baseline)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}\n", *lines] if lines else []


def _labels(data: ReportData) -> list[str]:
    labelled = data.labels
    if labelled is None:
        return []
    maturity = (
        "" if labelled.maturity is None else f"; {100 * labelled.maturity:.0f} % of the expected labels have arrived"
    )
    entries = [f"{labelled.labels:,} labels by {labelled.raters:,} raters on {labelled.answers:,} answers{maturity}"]
    if labelled.conflicts:
        entries.append(f"raters disagree on {labelled.conflicts:,} answers: the mean counts")
    if labelled.orphans:
        entries.append(f"{labelled.orphans:,} labelled answers are not among these records")
    if labelled.probes:
        entries.append(f"{labelled.probes:,} answers to gold questions were labelled: gold decides on them")
    for found in data.predicted:
        if found.value is not None and found.gain is not None:
            bounds = f"{found.value:.3f} ({found.lower:.3f} to {found.upper:.3f})"
            worth = f"{found.n:,} labels beside {escape(found.proxy)}, each worth {found.gain:.2f}"
            entries.append(f"{escape(found.pipeline)}: share of correct answers {bounds}, from {worth}")
    return _section("Labels", _list(entries))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table and the empty line after it; nothing where there are no rows."""
    return [*markdown_table(head, rows), ""] if rows else []


def _list(entries: Iterable[str]) -> list[str]:
    lines = [f"- {entry}" for entry in entries]
    return [*lines, ""] if lines else []


def _about(data: ReportData, notes: Sequence[str]) -> list[str]:
    records = data.records
    entries = [escape(note) for note in notes]
    if records.duplicate:
        repeats = number(records.duplicate, "record repeats", "records repeat")
        entries.append(f"{repeats} a gold question that was already answered")
    if records.unmatched:
        unmatched = number(records.unmatched, "record matches", "records match")
        entries.append(f"{unmatched} no gold item: only label-free metrics count them")
    entries += [f"{n:,} rejected: {escape(reason)}" for reason, n in records.rejected.items()]
    entries += [f"{n:,} unknown: {escape(field)}" for field, n in records.unknown.items()]
    for gold in data.gold:
        missing = gold.items - gold.traced
        seen = f"{gold.traced:,} of {gold.items:,} items traced" + (f", {missing:,} missing" if missing else "")
        entries.append(f"gold {escape(gold.name)}, version {escape(gold.version)}: {seen}")
    entries += [
        f"{escape(pipeline)}: {coverage.match_summary(ways)}" for pipeline, ways in sorted(data.matches.items())
    ]
    if any(set(ways) - {constants.UNMATCHED} for ways in data.matches.values()):
        entries.append(constants.HEAD_NOTE)
    return _list(entries)


def _gates(gates: Sequence[GateSummary]) -> list[str]:
    rows = [(*row, _MARKS[verdict], why) for *row, verdict, why in _gate_rows(gates, escape)]
    return _section("Gates", [*_table(_HEAD, rows), *_legend(_kinds(map(interval_kind, gates)), "\n")])


def _gate_rows(gates: Sequence[GateSummary], shown: Callable[[str], str]) -> Iterator[tuple[str, ...]]:
    kinds = _kinds(map(interval_kind, gates))
    for gate in gates:
        interval = bounds_text(gate.lower, gate.upper) + kinds.get(interval_kind(gate), "")
        yield shown(gate.name), value(gate), interval, bound(gate), f"{gate.n:,}", gate.verdict, shown(why(gate))


def number(n: int, one: str, several: str) -> str:
    """A count and its noun.

    >>> number(1, "record", "records"), number(1200, "record", "records")
    ('1 record', '1,200 records')
    """
    return f"{n:,} {one if n == 1 else several}"


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


def interval_kind(gate: GateSummary) -> str:
    """What the interval of a gate's value is about; "" where there is no interval."""
    if gate.lower is None:
        return ""
    if gate.n_eff is None:
        return BESIDE_EXACT
    if gate.estimand == constants.QUESTIONS_LIKE_THESE:
        return LIKE_THESE
    if gate.of == constants.SAMPLED_TRAFFIC:
        return SAMPLED
    return STRATA if gate.of == constants.ALL_CALLS else WILSON


def _kinds(kinds: Iterable[str]) -> dict[str, str]:
    """The mark of each kind of interval in a table: nothing for the most frequent one, then stars."""
    present = Counter(kind for kind in kinds if kind).most_common()
    return {kind: f" {'*' * rank}" if rank else "" for rank, (kind, _) in enumerate(present)}


def _legend(kinds: Mapping[str, str], end: str = "") -> list[str]:
    named = "; ".join(f"{mark} {kind}".strip() for kind, mark in kinds.items())
    return [f"95 % intervals: {named}.{end}"] if named else []


def why(gate: GateSummary) -> str:
    """The reason of a verdict, and how many more observations a decision needs."""
    if not gate.needed:
        return gate.reason
    unit = "gold items" if gate.estimand == constants.QUESTIONS_LIKE_THESE else "samples"
    return f"{gate.reason}; about {gate.needed:,} {unit} needed"


def _drops(drops: Sequence[BaselineDrop]) -> list[str]:
    rows = [
        (escape(drop.name), percent(drop.before), percent(drop.after), f"{better_by(drop.drop)} points", flipped(drop))
        for drop in drops
    ]
    flips = [
        (escape(drop.name), escape(flip.qid), percent(flip.before), percent(flip.after))
        for drop in drops
        for flip in drop.flips[:FLIPS]
    ]
    changes = _table(("gate", "before", "now", "better by", "items flipped"), rows)
    return _section("Against the baseline", [*changes, *_table(("gate", "qid", "before", "now"), flips)])


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


def _metric_tables(data: ReportData, gold_metrics: Collection[str]) -> list[str]:
    lines = []
    for series in data.series:
        if series.window != ALL:
            continue
        shown = {
            name: figures
            for name, figures in series.metrics.items()
            # Metrics that need no gold are in the table of all requests.
            if (figures.n or figures.unassessed) and (not series.gold or name in gold_metrics)
        }
        intervals = {name: interval_of(series, name, data.gates) for name in shown}
        kinds = _kinds(kind for _, kind in intervals.values())
        rows = [
            (
                name,
                percent(figures.value),
                intervals[name][0] + kinds.get(intervals[name][1], ""),
                f"{figures.samples:,}",
                ", ".join(f"{n:,} {escape(reason)}" for reason, n in figures.unassessed.items()),
            )
            for name, figures in shown.items()
        ]
        table = _table(("metric", "value", "95 % interval", "n", "unassessed"), rows)
        lines += _section(escape(title(series)), [*table, *_legend(kinds, "\n")])
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


def _captured(data: ReportData) -> list[str]:
    rows = [
        (escape(f"{each.pipeline}, {each.source}"), f"{each.records:,}", *shares(each.fields)) for each in data.captured
    ]
    gaps = [
        f"{escape(f'{each.pipeline}, {each.source}: {gap.text}')}. To fix it: {escape(gap.remedy)}"
        for each in data.captured
        for gap in each.gaps
        if gap.gates
    ]
    return _section("What is captured", [*_table(("records of", "n", *FIELDS), rows), *_list(gaps)])


def shares(fields: Mapping[str, FieldShare]) -> list[str]:
    """The share of records with each field, as text, in the order of all fields."""
    texts = []
    for name in FIELDS:
        share = fields.get(name)
        ratio = "withheld" if share is None or share.ratio is None else f"{100 * share.ratio:.0f} %"
        texts.append("–" if share is None else ratio)
    return texts


def _questions(questions: Sequence[QuestionReport], limit: int | None) -> list[str]:
    several_pipelines = len({question.pipeline for question in questions}) > 1
    rows = []
    for question in questions[:limit]:
        qid = f"{question.pipeline}/{question.qid}" if several_pipelines else question.qid
        times = f" ×{question.times}" if question.times > 1 else ""
        flags = (str(flag).lower() for flag in (question.answered, question.hit, question.refused))
        rows.append((escape(qid) + times, *flags, f"**{question.label}**"))
    rest = len(questions) - len(rows)
    more = [f"… and {rest:,} more (`--questions all` shows them)\n"] if rest else []
    return _section("Per-question", [*_table(("qid", "answered", "hit", "refusal", "label"), rows), *more])


def counts(report: RunResults) -> str:
    """How many gates and records there are, in a line."""
    verdicts = Counter(outcome.verdict for outcome in report.outcomes)
    gates = f"{len(report.outcomes)} gate{'' if len(report.outcomes) == 1 else 's'}"
    text = f"{verdicts['fail']} of {gates} fail" if verdicts["fail"] else f"{verdicts['pass']} of {gates} pass"
    if verdicts["insufficient"]:
        text += f", {verdicts['insufficient']} insufficient"
    return f"{text}; {number(report.read, 'record', 'records')}, {report.scored:,} scored"


def brief(report: RunResults) -> str:
    """The report in a few lines, which is its `repr`: verdict, counts, and the gates that fail."""
    origin = f"; gates of {printable_line(report.gates_of)}" if report.gates_of else ""
    lines = [f"<Report {report.verdict}: {counts(report)}{origin}>"]
    failing = [gate_summary(outcome) for outcome in report.outcomes if outcome.verdict == "fail"]
    for gate in failing[:FAILURES]:
        asked = f"{'>=' if gate.at_least else '<='} {threshold(gate)}"
        lines.append(f"  {printable(gate.name)}: {value(gate)} of {gate.n:,}, threshold {asked}")
    if len(failing) > FAILURES:
        lines.append(f"  and {len(failing) - FAILURES} more")
    lines += [f"  {incident.summary}" for incident in report.incidents[-FAILURES:]]
    return "\n".join(lines)


def text(report: RunResults) -> str:
    """The gates as plain text without colour, one line each, with the verdict on the last line."""
    lines = [*text_table(_rows(report.document.gates)), *_about_run(report)]
    return "\n".join([*lines, f"verdict: {report.verdict}"]) + "\n"


def terminal_text(report: RunResults, width: int, paint: Callable[[str], str] = str) -> str:
    """The same for a terminal of so many columns: the last column is wrapped, and verdicts are painted."""
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


def _about_run(report: RunResults) -> list[str]:
    data = report.document
    lines = _legend(_kinds(map(interval_kind, data.gates)))
    lines += [f"incident: {each.summary} ({each.severity})" for each in data.incidents]
    lines += [printable(f"note: {note}") for note in report.notes]
    lines += [
        printable_line(f"captured of {each.pipeline}: {gap.finding}. To fix it: {gap.remedy}")
        for each in data.captured
        for gap in each.gaps
        if gap.blocked or (gap.gates and gap.field in (coverage.MARKS, coverage.REPEATED))
    ]
    for drop in data.baseline:
        items = "" if drop.items is None else f", {flipped(drop)} items flipped"
        change = f"{percent(drop.before)} -> {percent(drop.after)}"
        lines.append(f"{printable(drop.name)}: {change} against the baseline{items}")
        lines += [
            f"  {printable(flip.qid)}: {percent(flip.before)} -> {percent(flip.after)}"
            for flip in drop.flips[:GATE_FLIPS]
        ]
    return lines


def _rows(gates: Sequence[GateSummary]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_HEAD]
    for name, shown, interval, asked, *rest in _gate_rows(gates, printable):
        rows.append((name, shown, interval, asked.translate(_ASCII), *rest))
    return rows


def why_json(why: Why, traces: Sequence[Mapping[str, Any]] = ()) -> str:
    """A diagnosis and traces of failing requests as indented JSON."""
    return printable_json({**msgspec.to_builtins(why), "traces": list(traces)}, indent=2)


def why_text(
    why: Why,
    traces: Sequence[Mapping[str, Any]] = (),
    link: str | None = None,
    show: str = "",
    fired: Iterable[tuple[str, str]] = (),
) -> str:
    """A diagnosis as lines of text.

    Args:
        why: The diagnosis.
        traces: Failing requests: `trace_id`, `ts`, `build`, `index_hash` and `traits`, each where it is known.
        link: The URL of a trace, with `{trace_id}` in its place; None shows ids.
        show: The command that shows a trace, with `{trace_id}` in its place; "" names none.
        fired: Alarms of the incident that it explains, and what they fired for.
    """
    clock = _Clock(why.now)
    entries = [
        *_gate(why, clock),
        *_change(why, clock),
        *_common(why),
        *_stretches(why, clock),
        *_suspects(why),
        *_moved_metrics(why),
        *_traffic(why),
        *_traces(traces, link, clock),
    ]
    trace_id = next((str(trace["trace_id"]) for trace in traces if trace.get("trace_id")), "")
    if show and trace_id:
        entries.append(("one of them", show.replace("{trace_id}", _name(trace_id))))
    for n, (alarm, proof) in enumerate(fired):
        entries.append(("" if n else "fired for", f"{_name(alarm)}: {printable(proof, 1000)}"))
    return "\n".join([*text_table(entries, widths={0: WHY_COLUMN}, gap=1), ""])


_BROKEN: Final = {
    "": "{metric} is worse",
    SLOWER: "requests are slower",
    "ended in an error": "requests end in an error",
    "took longer than allowed": "requests take longer than allowed",
    "retrieved nothing": "retrieval finds nothing",
    "retrieved no gold document": "retrieval misses the right documents",
    "gave no answer": "requests get no answer",
    "refused what can be answered": "answerable questions are refused",
    "answered what cannot be answered": "unanswerable questions are answered",
    "refused": "more requests are refused",
    "refused in its own words": "more requests are refused in other words",
    "said something else than the gold claim": "answers differ from the gold answers",
    "said what is not in the contexts": "answers say what the retrieved documents do not",
    "cited no gold document": "answers cite the wrong documents",
    "cited what was not retrieved": "answers cite documents that were not retrieved",
    "cited nothing that was retrieved": "answers cite none of the retrieved documents",
    "broke the answer format": "answers break the format",
}
"""What is wrong, by the trait of failing requests that explains it."""
_DIMENSIONS: Final = {"index_hash": "index", "build and index_hash": "build and index", "gold_version": "gold version"}


def incident_text(incident: Incident, now: float) -> str:
    """An incident in one sentence: whose it is, since when, what is wrong, what came with it, how many it touches."""
    clock, cause = _Clock(now), incident.cause
    when = f"since {clock.minute(incident.since)} UTC"
    if incident.ended is not None:
        when = f"{clock.minute(incident.since)} to {clock.minute(incident.ended)} UTC"
    what = _BROKEN[trait_of(incident)].format(metric=printable(incident.metrics[0]))
    return f"{_name(incident.pipeline)}: {when} {what}{'' if cause is None else _extent(cause)}"


def change_text(changed: ChangedGate, now: float) -> str:
    """A change of a gate that is not judged yet, in a sentence of the same kind."""
    gate, cause = changed.outcome.gate, changed.cause
    when = "" if cause.began is None else f"since {_Clock(now).minute(cause.began)} UTC "
    what = _BROKEN[cause.trait or trait_counted_by(gate.metric)].format(metric=printable(gate.metric))
    unknown = f"{_name(gate.name)} has too little data for a verdict"
    if gate.kind == "quantile_ratio":
        unknown = "ragmon is still learning what is usual"
    return f"{_name(gate.pipeline)}: {when}{what}{_extent(cause)}; {unknown}"


def _extent(cause: Cause) -> str:
    """What came with a change, and how many requests it touches."""
    suspect = share = ""
    if cause.suspects:
        dimension, name = cause.suspects[0]
        suspect = f" ({_DIMENSIONS.get(dimension, printable(dimension))} {_name(name)})"
    if cause.share is not None:
        before = cause.share_before or 0.0
        share = f", {cause.share:.0%} of {'gold questions' if cause.of_gold else 'requests'}"
        share += f" ({before:.0%} before)" if before >= MIN_BEFORE else ""
    return f"{suspect}{share.replace('%', ' %')}"


def incident_summary(incident: Incident, now: float) -> IncidentSummary:
    """An incident as a report has it; `now` is the end of the run, in seconds since the epoch."""
    return IncidentSummary(
        incident=incident.name,
        pipeline=incident.pipeline,
        severity=incident.severity,
        metrics=list(incident.metrics),
        began=incident.began,
        ended=incident.ended,
        summary=incident_text(incident, now),
        proofs=incident.proofs,
    )


class _Clock:
    """Formats times; those of another day than `now` with their date."""

    def __init__(self, now: float) -> None:
        self._today = _utc(now).date()

    def minute(self, ts: float) -> str:
        at = _utc(ts)
        return f"{at:%H:%M}" if at.date() == self._today else f"{at:%Y-%m-%d %H:%M}"

    def second(self, ts: float) -> str:
        return f"{self.minute(ts)}:{_utc(ts):%S}"


def _utc(ts: float) -> datetime:
    return datetime.fromtimestamp(ts, UTC)


def _gate(why: Why, clock: _Clock) -> _Lines:
    gate = why.gate
    fires = "silent" if why.firing is None else f"fires since {clock.minute(why.firing)}"
    parts = [gate.source, f"gold {_name(gate.gold)}" if gate.gold else "", _name(gate.slice) if gate.slice else ""]
    reads = ", ".join(part for part in parts if part)
    now = f"now {_utc(why.now):%Y-%m-%d %H:%M} UTC"
    if gate.derived:
        yield "alarm", f"{_name(gate.pipeline)}/{_name(gate.name)} {fires.replace('silent', 'is silent')}"
        yield "", printable(gate.alarm, 1000)
        yield "", f"{printable(gate.metric)} of {reads}; {now}"
        return
    side = "at least" if gate.direction == "at_least" else "at most"
    share = gate.kind == "threshold"
    value = percent(gate.value) if share or gate.value is None else f"{gate.value:.3g}"
    value += " x" if gate.kind == "quantile_ratio" and gate.value is not None else ""
    # An alarm that fires is about another stretch of time than the window: an interval of that may seem to deny it.
    bounded = why.firing is None or gate.verdict == "fail"
    known = bounded and gate.lower is not None and gate.upper is not None
    bounds = f" ({bounds_text(gate.lower or 0.0, gate.upper or 0.0)})" if known else ""
    head = (
        f"{value}{bounds} of {gate.n:,}, should be {side} {percent(gate.threshold) if share else f'{gate.threshold:g}'}"
    )
    yield "gate", f"{_name(gate.pipeline)}/{_name(gate.name)} {_WORDS[gate.verdict]}: {head}"
    yield "", f"{printable(gate.metric)} of {reads}; its alarm {fires}; {now}"
    if gate.alarm:
        yield "", f"its alarm: {printable(gate.alarm, 1000)}"


def _change(why: Why, clock: _Clock) -> _Lines:
    change, before, after = why.change, why.before, why.after
    if why.measure == REQUESTS:  # a distribution moved: no request is good or bad
        if change.began is not None:
            yield "moved since", f"{clock.minute(change.began)} UTC, {(why.now - change.began) / 60:.0f} min ago"
        return
    if change.began is None or before is None:
        yield "no change", f"{printable(change.reason)} (since {clock.minute(why.begin)} UTC)"
        yield "value", f"{_side(after)}; {_outcomes(after)}"
        return
    within = ""
    if change.earliest is not None and change.latest is not None:
        first, last = clock.minute(change.earliest), clock.minute(change.latest)
        within = f" (between {first} and {last})" if first != last else ""
    ago = (why.now - change.began) / 60
    certainty = f"p <= {max(change.p, _TINY):.0e}, {change.places} points in time tested"
    yield "worse since", f"{clock.minute(change.began)} UTC, {ago:.0f} min ago{within}; {certainty}"
    yield "before", f"{printable(why.measure)} {_side(before)}; {_outcomes(before)}"
    yield "since then", f"{printable(why.measure)} {_side(after)}; {_outcomes(after)}"
    if why.end < why.now - BUCKET_SECONDS:
        yield "", f"until {clock.minute(why.end)} UTC: it has been better since"


def _side(side: Side) -> str:
    bounds = "" if side.lower is None or side.upper is None else f" ({bounds_text(side.lower, side.upper)})"
    return f"{percent(side.value)}{bounds} of {side.n:,}"


def _outcomes(side: Side) -> str:
    parts = [] if side.failed is None else [f"{side.passed:,} passed, {side.failed:,} failed"]
    parts += [f"{n:,} unassessed: {printable(reason)}" for reason, n in sorted(side.unassessed.items())]
    return ", ".join(parts) or f"{side.scored:,} scored"


def _common(why: Why) -> _Lines:
    if why.before is None:
        common = sorted((trait for trait in why.traits if trait.of_failing >= FEW), key=lambda trait: -trait.of_failing)
        texts = [f"{printable(trait.name)} ({percent(trait.of_failing)})" for trait in common[:TRAITS]]
        if texts:
            yield "failing", "; ".join(texts)
        return
    # First the trait that happened first in the pipeline; failing requests may be unknown.
    main = [trait for trait in why.traits if trait.name == why.mechanism]
    others = [
        trait
        for trait in why.traits
        if trait.name != why.mechanism
        and trait.by >= _MOVED
        and (trait.failing is None or not trait.failing.n or trait.of_failing >= FEW)
    ]
    for index, trait in enumerate([*main, *others][:TRAITS]):
        share = (
            f"; {percent(trait.of_failing)} of the failing requests"
            if trait.failing is not None and trait.failing.n
            else ""
        )
        yield "" if index else "what broke", f"{printable(trait.name)}: {_from_to(trait)}{share}"


def _stretches(why: Why, clock: _Clock) -> _Lines:
    """Every failing request of the time range: how many in which stretch, and how many at other times."""
    if not why.failed or not why.stretches:
        return
    parts = []
    for stretch in why.stretches:
        trait = f" ({printable(stretch.trait)})" if stretch.trait else ""
        parts.append(f"{stretch.failed:,} from {clock.minute(stretch.begin)} to {clock.minute(stretch.end)}{trait}")
    parts.append(f"{why.failed - sum(stretch.failed for stretch in why.stretches):,} at other times")
    yield "all failing", f"{why.failed:,}: {'; '.join(parts)}"


def _suspects(why: Why) -> _Lines:
    for index, suspect in enumerate(why.suspects[:SUSPECTS]):
        name = f"{_name(suspect.dimension)} {_name(suspect.name)}"
        yield "" if index else "suspect", f"{name}: {evidence(suspect, why)}"
    for note in why.notes:
        yield "note", printable(note)


def evidence(suspect: Suspect, why: Why) -> str:
    """What speaks for a suspect of a diagnosis."""
    clock = _Clock(why.now)
    since = "" if suspect.first_seen is None else f"first seen {clock.minute(suspect.first_seen)}, "
    beside = f", without it {_level(suspect.rest_after)}" if suspect.rest_after.n else ""
    if suspect.how == "slower":
        return "; ".join(_stage_latency(stage) for stage in why.stages if stage.name == suspect.name)
    if suspect.how == "elsewhere":
        return f"{since}in requests of other sources: those of {printable(why.gate.source)} carry none"
    if suspect.how == "inside":
        rest = f"the rest {percent(suspect.rest_before.value)} -> {percent(suspect.rest_after.value)}"
        return f"{_level(suspect.before)} -> {_level(suspect.after)}; {rest}"
    if why.before is None:
        return f"{_level(suspect.after)}, all others {_level(suspect.rest_after)}, over the whole time"
    if suspect.how == "carries":
        since += f"its share rose from {percent(suspect.share_before)}"
        return f"{since} to {percent(suspect.share_after)}; with it {_level(suspect.after)}{beside}"
    answers = f"in {percent(suspect.share_after)} of requests since"
    return f"{since}{answers}; with it {_level(suspect.after)}{beside}, before it {_level(suspect.rest_before)}"


def _moved_metrics(why: Why) -> _Lines:
    """Other metrics that moved, one of each family: metrics whose names begin alike carry the same information."""

    def family(metric: str) -> str:
        return metric.partition("@")[0].partition("_")[0]

    moved: dict[str, Moved] = {}
    for metric in why.metrics:
        if abs(metric.by) >= _MOVED and family(metric.name) != family(why.gate.metric):
            moved.setdefault(family(metric.name), metric)
    texts = [f"{printable(metric.name)} {_from_to(metric)}" for metric in list(moved.values())[:METRICS]]
    if texts:
        yield "with it", "; ".join(texts)


def _traffic(why: Why) -> _Lines:
    latencies = "; ".join(_stage_latency(stage) for stage in why.stages)
    if latencies:
        yield "time", latencies
    known_before = why.before is not None and not (why.measure == REQUESTS and why.change.began is None)
    before = f"{rate_text(why.before.per_minute)} -> " if why.before is not None and known_before else ""
    yield "traffic", f"{before}{rate_text(why.after.per_minute)} requests a minute"


def _stage_latency(stage: Stage) -> str:
    def milliseconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"

    texts = []
    for name in ("p50", "p95"):
        before, after = getattr(stage.before, name), getattr(stage.after, name)
        since = "" if before is None else f"{milliseconds(before)} -> "
        texts.append(f"{name} {since}{milliseconds(after)}")
    return f"{printable(stage.name)} {', '.join(texts)} ms"


def _traces(traces: Sequence[Mapping[str, Any]], link: str | None, clock: _Clock) -> _Lines:
    for index, trace in enumerate(traces[:TRACES]):
        ts, trace_id = trace.get("ts"), str(trace.get("trace_id") or "")
        parts = [clock.second(ts)] if isinstance(ts, int | float) else []
        parts.append(_name(trace_id) if link is None else link.replace("{trace_id}", quote(trace_id, safe="")))
        parts += [f"{key} {_name(str(trace[key]))}" for key in ("build", "index_hash") if trace.get(key)]
        traits = trace.get("traits")
        if isinstance(traits, list | tuple) and traits:
            parts.append(printable(", ".join(map(str, traits))))
        yield "" if index else "traces", "  ".join(parts)


def _from_to(moved: Moved) -> str:
    return f"{percent(moved.before.value)} -> {percent(moved.after.value)}"


def _level(level: Level) -> str:
    return percent(level.value) if level.value is None else f"{percent(level.value)} of {level.n:,}"


def _name(text: str) -> str:
    shown = printable(text)
    if not shown.strip():
        return "(none)"
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def request_json(requests: Sequence[RequestReport]) -> str:
    """Requests as indented JSON."""
    return printable_json({"requests": msgspec.to_builtins(requests)}, indent=2)


def request_text(request: RequestReport, *, full: bool = False) -> str:
    """A request as lines of text; `full` shows long texts as a whole."""
    citations = "(no list of citations was captured)"
    if request.citations is not None:
        citations = ", ".join(map(printable, request.citations)) or "nothing"
    entries = [
        *_head(request),
        *_text("question", request.question, full=full),
        *_text("answer", request.answer, full=full),
        ("cites", citations),
        *_documents(request, full=full),
        *_gold(request.gold),
        *_metric_lines(request.metrics),
        *([("note", request.withheld)] if request.withheld else []),
    ]
    lines = [f"{heading:<{REQUEST_COLUMN}}{text}".rstrip() for heading, text in entries]
    return "\n".join([*lines, ""])


def _head(request: RequestReport) -> _Lines:
    at = "at an unknown time" if request.ts is None else f"{_utc(request.ts):%Y-%m-%d %H:%M:%S} UTC"
    yield "trace", f"{printable(request.trace_id) or '(no id)'}  {at}"
    if request.link:
        yield "", printable(request.link, 2000)
    about = [request.pipeline, request.source, "" if request.kept == "audit" else f"kept as {request.kept}"]
    named = [("build", request.build), ("index", request.index_hash), ("model", request.model)]
    named += [("session", request.session), ("user", request.user)]
    about += [f"{name} {value}" for name, value in named if value]
    about += [f"{tag}={value}" for tag, value in (request.tags or {}).items()]
    yield "request", printable(", ".join(filter(None, about)), 2000)
    if request.latency_ms:
        yield "time", ", ".join(f"{stage} {ms:.0f} ms" for stage, ms in request.latency_ms.items())
    if request.error:
        yield "ended", f"in an error: {printable(request.error)}"
    elif request.ended:
        yield "ended", printable(request.ended)


def _text(heading: str, shown: ShownText, *, full: bool) -> _Lines:
    if shown.text is None:
        size = "" if shown.chars is None else f"{shown.chars} characters, "
        yield heading, f"({size}{printable(shown.note, 2000)})"
        return
    for index, line in enumerate(_shortened(shown.text, LONGEST_TEXT, full=full) or ["(empty)"]):
        yield "" if index else heading, line
    if shown.note:
        yield "", f"({printable(shown.note)})"


def _printable_lines(text: str) -> list[str]:
    return [printable(line, _LONGEST_LINE) for line in _LINES.split(text.replace("\t", "    ")) if line.strip()]


def _documents(request: RequestReport, *, full: bool) -> _Lines:
    documents = request.documents
    if documents is None:
        yield "retrieved", f"({printable(request.documents_note, 2000)})"
        return
    retrieved = number(len(documents), "document", "documents") if documents else "nothing"
    before = "" if request.candidates is None else f", of {request.candidates} before reranking"
    yield "retrieved", f"{retrieved}{before}"
    rows = [
        (
            f"{each.rank}",
            "(no id)" if each.id is None else printable(each.id),
            "" if each.score is None else f"{each.score:.4g}",
            ", ".join(mark for mark, is_so in (("gold", each.gold), ("cited", each.cited)) if is_so),
        )
        for each in documents
    ]
    for line, document in zip(text_table(rows, right=[0]), documents, strict=True):
        yield "", f"  {line}"
        if document.text is not None:
            for text in _shortened(document.text, LONGEST_CONTEXT, full=full):
                yield "", f"       {text}"
    if request.documents_note and documents:
        yield "", f"({printable(request.documents_note, 2000)})"


def _shortened(text: str, most: int, *, full: bool) -> list[str]:
    if full or len(text) <= most:
        return _printable_lines(text)
    return [*_printable_lines(text[:most]), f"… ({len(text):,} characters; --full shows all)"]


def _gold(item: MatchedItem | None) -> _Lines:
    if item is None:
        yield "gold", "no gold item matches the question"
        return
    version = f" {item.version}" if item.version else ""
    yield "gold", printable(f"{item.qid} of {item.gold or 'gold'}{version}, found by {item.how}", 2000)
    if item.question:
        yield "", f"question: {printable(item.question, 2000)}"
    if not item.answerable:
        yield "", "unanswerable: the right answer is a refusal"
        return
    if item.documents:
        yield "", f"documents: {', '.join(map(printable, item.documents))}"
    if item.texts:
        yield "", f"texts: {item.texts}"
    if item.claims:
        yield "", f"a right answer contains: {' or '.join(repr(printable(claim)) for claim in item.claims)}"


def _metric_lines(metrics: Sequence[MetricResult]) -> _Lines:
    """Scores that break a gate first, then the others, what is unassessed, and what does not apply.

    Metrics with the same score for the same reason share a line: a metric and its cuts often do. Without a score, the
    cuts go without saying.
    """
    for heading, outcome in _HEADINGS.items():
        lines: dict[tuple[str, tuple[str, ...], str], list[str]] = {}  # by score, gates and reason
        for result in metrics:
            if result.outcome == outcome:
                score = "" if result.score is None else f" {result.score:.4g}"
                lines.setdefault((score, result.gates, result.why), []).append(result.metric)
        for index, ((score, gates, reason), keys) in enumerate(lines.items()):
            names = keys
            if not score:
                names = [name for name in keys if "@" not in name or name.partition("@")[0] not in keys]
            broken = f" (gate {', '.join(gates)})" if gates else ""
            because = f": {reason}" if reason else ""
            yield "" if index else heading, printable(f"{', '.join(names)}{score}{broken}{because}", 2000)
