"""Gate verdicts for people: a plain table for terminals, Markdown for a CI step summary."""

from __future__ import annotations

from ragmon.export.markdown import between, percent, render_gates
from ragmon.export.report import Report
from ragmon.gates import Outcome

FLIPS = 10
"""Flipped items that are named for each gate."""


def text(report: Report) -> str:
    """One line per gate, readable without colour, and the verdict on the last line."""
    rows = [("gate", "value", "95 % interval", "threshold", "n", "verdict", "why"), *map(_row, report.outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    for drop in report.drops:
        lines.append(
            f"{drop.gate.name}: {percent(drop.before)} -> {percent(drop.after)} against the baseline"
            + ("" if drop.items is None else f", {len(drop.flips)} of {drop.items} items flipped")
        )
        lines += [f"  {flip.qid}: {percent(flip.before)} -> {percent(flip.after)}" for flip in drop.flips[:FLIPS]]
    return "\n".join([*lines, f"verdict: {report.verdict}"]) + "\n"


def _row(outcome: Outcome) -> tuple[str, str, str, str, str, str, str]:
    needed = f"; about {outcome.needed} needed" if outcome.needed else ""
    return (
        f"{outcome.gate.pipeline}/{outcome.gate.name}",
        percent(outcome.value),
        between(outcome),
        f"{'>=' if outcome.gate.at_least else '<='} {outcome.gate.threshold:g}",
        str(outcome.n),
        outcome.verdict,
        f"{outcome.reason}{needed}",
    )


def markdown(report: Report) -> str:
    """The gates and what changed against the baseline, as Markdown."""
    return render_gates(report)
