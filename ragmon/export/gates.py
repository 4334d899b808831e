"""Gate verdicts for people: a plain table for terminals, Markdown for a CI step summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ragmon.core.escaping import printable
from ragmon.core.policy import Outcome
from ragmon.export.markdown import between, percent, render_gates, value, why
from ragmon.export.report import Report
from ragmon.gates.compare import Drop

FLIPS: Final = 10
"""Flipped items that are named for each gate."""
_HEAD: Final = ("gate", "value", "95 % interval", "threshold", "n", "verdict", "why")


def text(report: Report) -> str:
    """One line per gate, readable without colour, and the verdict on the last line."""
    rows = [_HEAD, *map(_row, report.outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [printable(f"note: {note}") for note in report.notes]
    for drop in report.drops:
        lines += _moved(drop)
    return "\n".join([*lines, f"verdict: {report.verdict}"]) + "\n"


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        printable(f"{outcome.gate.pipeline}/{outcome.gate.name}"),
        value(outcome),
        between(outcome),
        f"{'>=' if outcome.gate.at_least else '<='} {outcome.gate.threshold:g}",
        str(outcome.n),
        outcome.verdict,
        printable(why(outcome)),
    )


def _moved(drop: Drop) -> Iterator[str]:
    """How a gate moved against the baseline, and the first items that flipped."""
    flipped = "" if drop.items is None else f", {len(drop.flips)} of {drop.items} items flipped"
    name = printable(f"{drop.gate.pipeline}/{drop.gate.name}")
    yield f"{name}: {percent(drop.before)} -> {percent(drop.after)} against the baseline{flipped}"
    for flip in drop.flips[:FLIPS]:
        yield f"  {printable(flip.qid)}: {percent(flip.before)} -> {percent(flip.after)}"


def markdown(report: Report) -> str:
    """The gates and what changed against the baseline, as Markdown."""
    return render_gates(report)
