"""The report as Markdown: gates, metrics, and the per-question table of seed 002.

Whatever came from a trace or a gold file is escaped: questions and ids are untrusted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ragmon.export.report import Question, Report, latency
from ragmon.gates import Outcome
from ragmon.scores import Stat
from ragmon.snapshot import ALL

QUESTIONS: Final = 200
"""Rows of the per-question table where nobody asked for more."""
FLIPS: Final = 20
"""Flipped items that are listed for each gate."""
_MARKS: Final = {"pass": "✅ pass", "fail": "❌ fail", "insufficient": "⚪ insufficient"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> escape("a|b <script>")
    'a\\|b \\<script\\>'
    """
    printable = text.encode("utf-8", "replace").decode("utf-8")
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", printable))


def render(report: Report, questions: int | None = QUESTIONS) -> str:
    """The whole report.

    Args:
        report: What was found.
        questions: Rows of the per-question table; None for all.
    """
    parts = [
        "# RAG quality report\n",
        f"**{_MARKS[report.verdict]}** · {report.scored} of {report.read} records scored"
        + f" · digest `{report.digest[:16]}`\n",
        *_records(report),
        *_gates(report.outcomes),
        *_drops(report),
        *_metrics(report),
        *_latency(report),
        *_questions(report.questions, questions),
    ]
    return "\n".join(parts) + "\n"


def render_gates(report: Report) -> str:
    """The verdict, the gates and the comparison with a baseline: what a CI step summary needs."""
    return "\n".join([f"# Gates: {_MARKS[report.verdict]}\n", *_gates(report.outcomes), *_drops(report)]) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [" | ".join(row) for row in rows]
    if not lines:
        return []
    return [f"| {' | '.join(head)} |", f"|{'|'.join(' --- ' for _ in head)}|", *(f"| {line} |" for line in lines), ""]


def _records(report: Report) -> list[str]:
    lines = [f"- {escape(note)}" for note in report.notes]
    if report.duplicate:
        lines.append(f"- {report.duplicate} records repeat a gold question that was already answered")
    if report.unmatched:
        lines.append(f"- {report.unmatched} records belong to no gold item: only label-free metrics count them")
    lines += [f"- {n} rejected: {reason}" for reason, n in sorted(report.rejected.items())]
    for gold in report.data()["gold"]:
        missing = gold["items"] - gold["traced"]
        seen = f"{gold['traced']} of {gold['items']} items traced" + (f", {missing} missing" if missing else "")
        lines.append(f"- gold `{escape(gold['name'])}` version `{gold['version']}`: {seen}")
    return [*lines, ""] if lines else []


def _gates(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    rows = [
        (
            escape(f"{o.gate.pipeline}/{o.gate.name}"),
            percent(o.value),
            between(o),
            f"{'≥' if o.gate.at_least else '≤'} {o.gate.threshold:g}",
            str(o.n),
            _MARKS[o.verdict],
            escape(o.reason + (f"; about {o.needed} needed" if o.needed else "")),
        )
        for o in outcomes
    ]
    return ["## Gates\n", *_table(("gate", "value", "95 % interval", "threshold", "n", "verdict", "why"), rows)]


def percent(value: float | None) -> str:
    """A share as people read it; a dash where there is no data."""
    return "–" if value is None else f"{100 * value:.1f} %"


def between(outcome: Outcome) -> str:
    """An interval as people read it."""
    if outcome.lower is None or outcome.upper is None:
        return "exact" if outcome.value is not None else "–"
    return f"{100 * outcome.lower:.1f} – {100 * outcome.upper:.1f} %"


def _drops(report: Report) -> list[str]:
    """What changed against the baseline, gate by gate, and the items that flipped."""
    if not report.drops:
        return []
    rows = [
        (
            escape(f"{d.gate.pipeline}/{d.gate.name}"),
            percent(d.before),
            percent(d.after),
            f"{-100 * d.drop:+.1f} points",
            "–" if d.items is None else f"{len(d.flips)} of {d.items}",
        )
        for d in report.drops
    ]
    flips = [
        (escape(f.gate), escape(f.qid), percent(f.before), percent(f.after))
        for d in report.drops
        for f in d.flips[:FLIPS]
    ]
    lines = ["## Against the baseline\n", *_table(("gate", "before", "now", "better by", "items flipped"), rows)]
    return [*lines, *_table(("gate", "qid", "before", "now"), flips)]


def _metrics(report: Report) -> list[str]:
    lines = []
    for series in report.snapshot.series:
        if series.window != ALL:
            continue
        shown = {name: stat for name, stat in series.metrics.items() if _shown(stat)}
        if series.gold:  # what needs no gold stands under all requests already
            shown = {name: stat for name, stat in shown.items() if name in report.snapshot.gold_metrics}
        rows = [(name, percent(stat.value), *_stat(stat)) for name, stat in shown.items()]
        if rows:
            about = [f"pipeline {series.pipeline}", f"source {series.source}"]
            about += [f"gold {series.gold} {series.gold_version}"] if series.gold else []
            about += [series.slice] if series.slice else []
            lines += [f"## {escape(', '.join(about))}\n"]
            lines += _table(("metric", "value", "95 % interval", "n", "unassessed"), rows)
    return lines


def _shown(stat: Stat) -> bool:
    return bool(stat.n or stat.unassessed)


def _stat(stat: Stat) -> tuple[str, str, str]:
    interval = stat.interval
    shown = "–" if interval is None else f"{100 * interval[0]:.1f} – {100 * interval[1]:.1f} %"
    return shown, str(stat.n), ", ".join(f"{n} {reason}" for reason, n in sorted(stat.unassessed.items()))


def _latency(report: Report) -> list[str]:
    found = latency(report.snapshot)
    rows = [(stage, *(f"{ms:g}" if ms is not None else "–" for ms in of.values())) for stage, of in found.items()]
    return ["## Latency, ms\n", *_table(("stage", "p50", "p95", "p99"), rows)] if rows else []


def _questions(questions: Sequence[Question], limit: int | None) -> list[str]:
    if not questions:
        return []
    shown = questions if limit is None else questions[:limit]
    rows = [
        (
            escape(q.qid) + (f" ×{q.times}" if q.times > 1 else ""),
            str(q.answered).lower(),
            str(q.hit).lower(),
            str(q.refused).lower(),
            f"**{q.label}**",
        )
        for q in shown
    ]
    rest = len(questions) - len(shown)
    more = [f"… and {rest} more (`--questions all` shows them)\n"] if rest else []
    return ["## Per-question\n", *_table(("qid", "answered", "hit", "refusal", "label"), rows), *more]
