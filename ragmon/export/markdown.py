"""The report as Markdown, and gate verdicts as plain text for terminals and as Markdown for a CI step summary.

Text from a trace or a gold file is escaped: questions and ids are untrusted.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ragmon.alarms.plan import describe
from ragmon.core import constants
from ragmon.core.escaping import printable, printable_line
from ragmon.core.policy import Outcome
from ragmon.export.report import QuestionReport, Report, latency
from ragmon.export.tables import GAP, escape, markdown_table, text_table
from ragmon.gates import coverage
from ragmon.gates.captured import FieldShare
from ragmon.gates.needs import FIELDS
from ragmon.gates.releases import Comparison
from ragmon.scoring.snapshot import ALL, SeriesStats

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
    about = f"{report.scored} of {report.read} records scored · digest `{report.digest[:16]}`"
    parts = [
        "# RAG quality report\n",
        f"**{_MARKS[report.verdict]}** · {about}\n",
        *_about(report),
        *_gates(report.outcomes),
        *_drops(report),
        *_labels(report),
        *_judges(report),
        *_metrics(report),
        *_latency(report),
        *_captured(report),
        *_reach(report),
        *_questions(report.questions, questions),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def render_gates(report: Report) -> str:
    """The verdict, the gates and the comparison with a baseline, for a CI step summary."""
    notes = _list(escape(note) for note in report.notes)
    parts = [f"# Gates: {_MARKS[report.verdict]}\n", *notes, *_gates(report.outcomes), *_drops(report)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _labels(report: Report) -> list[str]:
    """Statistics of the labels, and the estimate from labels and a proxy."""
    labelled = report.labelled
    if labelled is None:
        return []
    maturity = "" if labelled.maturity is None else f"; {labelled.maturity:.0%} of those to come are here"
    entries = [f"{labelled.labels} labels by {labelled.raters} raters on {labelled.answers} answers{maturity}"]
    entries += (
        [f"raters say different things of {labelled.conflicts} answers: the mean counts"] if labelled.conflicts else []
    )
    entries += [f"{labelled.orphans} labelled answers are not among these records"] if labelled.orphans else []
    entries += [f"{labelled.probes} answers to gold questions were labelled: gold counts"] if labelled.probes else []
    for prediction in report.predictions:
        proxy, estimate = escape(prediction.proxy), prediction.estimate
        if estimate.value is not None and estimate.gain is not None:
            bounds = f"{estimate.value:.3f} ({estimate.lower:.3f} to {estimate.upper:.3f})"
            worth = f"{estimate.n} labels beside {proxy}, each worth {estimate.gain:.2f}"
            entries.append(f"{escape(prediction.pipeline)}: answers that are correct, with a proxy: {bounds}, {worth}")
    return ["## Labels\n", *_list(entries)]


def _judges(report: Report) -> list[str]:
    """The versions of judges, whose scores are never put together."""
    rows = [(*map(escape, (judge.pipeline, judge.judge, judge.version)), str(judge.answers)) for judge in report.judges]
    return ["## Judges\n", *_table(("pipeline", "judge", "version", "answers"), rows)] if rows else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table and the empty line after it; nothing where there are no rows."""
    return [*markdown_table(head, rows), ""] if rows else []


def _list(entries: Iterable[str]) -> list[str]:
    lines = [f"- {entry}" for entry in entries]
    return [*lines, ""] if lines else []


def _about(report: Report) -> list[str]:
    """Notes and counts a reader needs before the figures."""
    entries = [escape(note) for note in report.notes]
    if report.duplicate:
        entries.append(f"{report.duplicate} records repeat a gold question that was already answered")
    if report.unmatched:
        entries.append(f"{report.unmatched} records belong to no gold item: only label-free metrics count them")
    entries += [f"{n} rejected: {escape(reason)}" for reason, n in sorted(report.rejected.items())]
    entries += [f"{n} unknown: {escape(field)}" for field, n in sorted(report.unknown.items())]
    for gold in report.golds():
        missing = gold["items"] - gold["traced"]
        seen = f"{gold['traced']} of {gold['items']} items traced" + (f", {missing} missing" if missing else "")
        entries.append(f"gold {escape(gold['name'])}, version {escape(gold['version'])}: {seen}")
    ways_by_pipeline = coverage.match_counts(report.snapshot)
    entries += [
        f"{escape(pipeline)}: {coverage.match_summary(ways)}" for pipeline, ways in sorted(ways_by_pipeline.items())
    ]
    if any(set(ways) - {constants.UNMATCHED} for ways in ways_by_pipeline.values()):
        entries.append(constants.HEAD_NOTE)
    return _list(entries)


def _gates(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    kinds = _kinds(map(interval_kind, outcomes))
    rows = [
        (
            escape(f"{o.gate.pipeline}/{o.gate.name}"),
            value(o),
            between(o) + kinds.get(interval_kind(o), ""),
            f"{'≥' if o.gate.at_least else '≤'} {o.gate.threshold:g}",
            str(o.n),
            _MARKS[o.verdict],
            escape(why(o)),
        )
        for o in outcomes
    ]
    table = _table(("gate", "value", "95 % interval", "threshold", "n", "verdict", "why"), rows)
    return ["## Gates\n", *table, *([f"{line}\n"] if (line := _legend(kinds)) else [])]


def percent(value: float | None) -> str:
    """A share in per cent; a dash where there is no data."""
    return "–" if value is None else f"{100 * value:.1f} %"


def value(outcome: Outcome) -> str:
    """A gate's value: a share, a multiple of the baseline, or a number of index hashes."""
    if outcome.value is None or outcome.gate.kind == "threshold":
        return percent(outcome.value)
    return f"{outcome.value:.2f} x" if outcome.gate.kind == "quantile_ratio" else f"{outcome.value:.0f}"


def between(outcome: Outcome) -> str:
    """The interval of a gate's value."""
    return bounds_text(outcome.lower, outcome.upper)


def bounds_text(lower: float | None, upper: float | None) -> str:
    """An interval of shares in per cent; a dash where there is none."""
    return _interval(None if lower is None or upper is None else (lower, upper))


def threshold(outcome: Outcome) -> str:
    """A gate's threshold, as its value is written.

    >>> from ragmon.core.policy import Gate
    >>> threshold(Outcome(Gate("g", "m", 0.8, "at_least"), "live", "", "", 0.9, None, None, 9, None, "pass", ""))
    '80 %'
    """
    if outcome.gate.kind == "threshold":
        return f"{100 * outcome.gate.threshold:g} %"
    return f"{outcome.gate.threshold:g}{' x' if outcome.gate.kind == 'quantile_ratio' else ''}"


def _interval(bounds: tuple[float, float] | None) -> str:
    return "–" if bounds is None else f"{100 * bounds[0]:.1f} – {100 * bounds[1]:.1f} %"


WILSON: Final = "Wilson's, of these requests"
STRATA: Final = "of all calls, weighted by strata"
LIKE_THESE: Final = "of questions like these, with gold items as the observations"
BESIDE_EXACT: Final = f"{LIKE_THESE}; the verdict is on this gold set, where the value is exact"


def interval_kind(outcome: Outcome) -> str:
    """What the interval of a gate's value is about; "" where there is no interval."""
    if outcome.lower is None:
        return ""
    if outcome.n_eff is None:
        return BESIDE_EXACT
    if outcome.estimand == constants.QUESTIONS_LIKE_THESE:
        return LIKE_THESE
    return STRATA if outcome.of == constants.ALL_CALLS else WILSON


def _kinds(kinds: Iterable[str]) -> dict[str, str]:
    """The mark of each kind of interval in a table: nothing for the most frequent one, then stars."""
    present = Counter(kind for kind in kinds if kind).most_common()
    return {kind: f" {'*' * place}" if place else "" for place, (kind, _) in enumerate(present)}


def _legend(kinds: Mapping[str, str]) -> str:
    """The kinds of the intervals in a table, each named once."""
    named = "; ".join(f"{mark} {kind}".strip() for kind, mark in kinds.items())
    return f"95 % intervals: {named}." if named else ""


def why(outcome: Outcome) -> str:
    """The reason of a verdict, and how many more observations a decision needs."""
    if not outcome.needed:
        return outcome.reason
    unit = " gold items" if outcome.estimand == constants.QUESTIONS_LIKE_THESE else ""
    return f"{outcome.reason}; about {outcome.needed}{unit} needed"


def _drops(report: Report) -> list[str]:
    """The change of each gate against the baseline, and the items that flipped."""
    if not report.drops:
        return []
    rows = [
        (
            escape(f"{d.gate.pipeline}/{d.gate.name}"),
            percent(d.before.value),
            percent(d.after.value),
            f"{better_by(d)} points",
            "–" if d.items is None else f"{len(d.flips)} of {d.items}",
        )
        for d in report.drops
    ]
    flips = [
        (escape(f"{d.gate.pipeline}/{d.gate.name}"), escape(f.qid), percent(f.before), percent(f.after))
        for d in report.drops
        for f in d.flips[:FLIPS]
    ]
    lines = ["## Against the baseline\n", *_table(("gate", "before", "now", "better by", "items flipped"), rows)]
    return [*lines, *_table(("gate", "qid", "before", "now"), flips)]


def better_by(comparison: Comparison) -> str:
    """By how many points a metric is better than before; negative where it is worse."""
    return signed(-(comparison.drop or 0.0))


def signed(change: float) -> str:
    """A change of a share in points, with its sign.

    >>> signed(0.071), signed(-0.0)
    ('+7.1', '+0.0')
    """
    return f"{round(100 * change, 1) + 0.0:+.1f}"


def _metrics(report: Report) -> list[str]:
    lines = []
    for series in report.snapshot.series:
        if series.window == ALL:
            shown = {name: stat for name, stat in series.metrics.items() if stat.n or stat.unassessed}
            if series.gold:  # metrics that need no gold are in the table of all requests
                shown = {name: stat for name, stat in shown.items() if name in report.snapshot.gold_metrics}
            intervals = {name: _interval_of(series, name, report.outcomes) for name in shown}
            kinds = _kinds(kind for _, kind in intervals.values())
            rows = [_metric(series, name, *intervals[name], kinds) for name in shown]
            if rows:
                lines += [f"## {escape(_title(series))}\n"]
                lines += _table(("metric", "value", "95 % interval", "n", "unassessed"), rows)
                lines += [f"{legend}\n"] if (legend := _legend(kinds)) else []
    return lines


_Interval = tuple[float, float] | None


def _interval_of(series: SeriesStats, name: str, outcomes: Sequence[Outcome]) -> tuple[_Interval, str]:
    """The interval of a metric and its kind: that of the gate on the same number where there is one."""
    estimate = series.estimate(name)
    if estimate.value is None:
        return None, ""
    for outcome in outcomes:
        gate = outcome.gate
        same = (gate.metric, gate.pipeline, outcome.source, gate.where, outcome.n, outcome.value)
        own = (name, series.pipeline, series.source, series.slice, estimate.n, estimate.value)
        if same == own and outcome.lower is not None and outcome.upper is not None:
            return (outcome.lower, outcome.upper), interval_kind(outcome)
    return (estimate.lower, estimate.upper), STRATA if name in series.estimates else WILSON


def _title(series: SeriesStats) -> str:
    about = [f"pipeline {series.pipeline}", f"source {series.source}"]
    about += [f"gold {series.gold} {series.gold_version}"] if series.gold else []
    about += [series.slice] if series.slice else []
    about += [f"of {series.of}"] if series.of else []
    return ", ".join(about)


def _metric(
    series: SeriesStats, name: str, interval: _Interval, kind: str, kinds: Mapping[str, str]
) -> tuple[str, ...]:
    stat, estimate = series.metrics[name], series.estimate(name)
    unassessed = ", ".join(f"{n} {escape(reason)}" for reason, n in sorted(stat.unassessed.items()))
    return name, percent(estimate.value), _interval(interval) + kinds.get(kind, ""), str(estimate.n), unassessed


def _latency(report: Report) -> list[str]:
    stages = latency(report.snapshot)
    rows = [
        (escape(stage), *(f"{ms:g}" if ms is not None else "–" for ms in quantiles.values()))
        for stage, quantiles in stages.items()
    ]
    return ["## Latency, ms\n", *_table(("stage", "p50", "p95", "p99"), rows)] if rows else []


def _captured(report: Report) -> list[str]:
    """The share of records that have each field, and the gaps that gates suffer from."""
    rows = [
        (escape(f"{each.pipeline}, {each.source}"), str(each.records), *shares(each.fields)) for each in report.captured
    ]
    gaps = [
        f"{escape(f'{each.pipeline}, {each.source}: {gap.text}')}. To mend it: {escape(gap.remedy)}"
        for each in report.captured
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
    failing = [outcome for outcome in report.outcomes if outcome.verdict == "fail"]
    for outcome in failing[:FAILURES]:
        name = printable(f"{outcome.gate.pipeline}/{outcome.gate.name}")
        bound = f"{'>=' if outcome.gate.at_least else '<='} {threshold(outcome)}"
        lines.append(f"  {name}: {value(outcome)} of {outcome.n:,}, threshold {bound}")
    if len(failing) > FAILURES:
        lines.append(f"  and {len(failing) - FAILURES} more")
    return "\n".join(lines)


GATE_FLIPS: Final = 10
"""Flipped items that are named for each gate."""
_NARROWEST: Final = 24
"""Columns that reasons need beside the table; where a terminal has fewer, they stand below their gate."""
_HEAD: Final = ("gate", "value", "95 % interval", "threshold", "n", "verdict", "why")


def text(report: Report) -> str:
    """The gates as plain text without colour, one line each, with the verdict on the last line."""
    kinds = _kinds(map(interval_kind, report.outcomes))
    rows = [_row(outcome, kinds) for outcome in report.outcomes]
    lines = [*text_table([_HEAD, *rows]), *_about_run(report)]
    return "\n".join([*lines, f"verdict: {report.verdict}"]) + "\n"


def terminal_text(report: Report, width: int, paint: Callable[[str], str] = str) -> str:
    """The same for a terminal: the last column is wrapped within its width, and verdicts are painted.

    Args:
        report: The report.
        width: The columns of the terminal.
        paint: Gives a verdict its colour.
    """
    kinds = _kinds(map(interval_kind, report.outcomes))
    rows = [_HEAD, *(_row(outcome, kinds) for outcome in report.outcomes)]
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
    legend = _legend(_kinds(map(interval_kind, report.outcomes)))
    lines = [*([legend] if legend else []), *(printable(f"note: {note}") for note in report.notes)]
    lines += [
        printable_line(f"captured of {each.pipeline}: {gap.finding}. To mend it: {gap.remedy}")
        for each in report.captured
        for gap in each.gaps
        if gap.blocked
    ]
    for drop in report.drops:
        lines += _moved(drop)
    return lines


def _row(outcome: Outcome, kinds: Mapping[str, str]) -> tuple[str, ...]:
    return (
        printable(f"{outcome.gate.pipeline}/{outcome.gate.name}"),
        value(outcome),
        between(outcome) + kinds.get(interval_kind(outcome), ""),
        f"{'>=' if outcome.gate.at_least else '<='} {outcome.gate.threshold:g}",
        str(outcome.n),
        outcome.verdict,
        printable(why(outcome)),
    )


def _moved(drop: Comparison) -> Iterator[str]:
    """How a gate changed against the baseline, and the first items that flipped."""
    flipped = "" if drop.items is None else f", {len(drop.flips)} of {drop.items} items flipped"
    name = printable(f"{drop.gate.pipeline}/{drop.gate.name}")
    yield f"{name}: {percent(drop.before.value)} -> {percent(drop.after.value)} against the baseline{flipped}"
    for flip in drop.flips[:GATE_FLIPS]:
        yield f"  {printable(flip.qid)}: {percent(flip.before)} -> {percent(flip.after)}"


def markdown(report: Report) -> str:
    """The gates and their changes against the baseline, as Markdown."""
    return render_gates(report)
