"""The comparison of two releases: as text, as Markdown, and as JSON that a client can read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ragmon.core.errors import RagmonError, printable, printable_json
from ragmon.core.policy import ORDER, Policy, Verdict
from ragmon.export.schema import ComparedGate, Share, compared_gate
from ragmon.export.text import escape, markdown_table, percent, text_table
from ragmon.gates.releases import By, Comparison
from ragmon.stats.betting import ALPHA

WORDS: Final[dict[Verdict, str]] = {"pass": "not worse", "fail": "worse", "insufficient": "undecided"}
_MARKS: Final[dict[Verdict, str]] = {"pass": "✅", "fail": "❌", "insufficient": "⚪"}
_HEAD: Final = ("gate", "baseline", "candidate", "items in both", "verdict", "why")


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two releases, as a server answers it.

    Attributes:
        verdict: Worse if one metric is worse; not worse only if that is proven for every metric.
        by: The record field that tells the releases apart.
        max_drop: How much worse a metric may be.
        alpha: Twice the probability of a false `worse`.
    """

    verdict: Verdict
    by: By
    baseline: str
    candidate: str
    max_drop: Share
    alpha: float
    gates: list[ComparedGate]
    notes: list[str] = []

    @classmethod
    def of(
        cls,
        by: By,
        baseline: str,
        candidate: str,
        max_drop: float,
        comparisons: Sequence[Comparison],
        notes: Sequence[str] = (),
    ) -> Canary:
        """The comparison of two releases, gate by gate."""
        return cls(
            verdict=min((comparison.verdict for comparison in comparisons), key=ORDER.index, default="insufficient"),
            by=by,
            baseline=baseline,
            candidate=candidate,
            max_drop=max_drop,
            alpha=ALPHA,
            gates=[compared_gate(comparison) for comparison in comparisons],
            notes=list(notes),
        )

    def json(self) -> str:
        """The comparison as indented JSON, without its notes."""
        data = msgspec.to_builtins(self)
        del data["notes"]
        return printable_json(data, indent=2)

    def text(self) -> str:
        """The comparison as plain text without colour, one line per gate, with the verdict on the last line."""
        rows = [_HEAD, *([printable(cell) for cell in _row(comparison)] for comparison in self.gates)]
        lines = [subject(self), *text_table(rows)]
        lines += [printable(f"note: {note}") for note in remarks(self)]
        return "\n".join([*lines, f"verdict: {WORDS[self.verdict]}"]) + "\n"

    def markdown(self) -> str:
        """The comparison as Markdown, for a CI step summary."""
        rows = [[escape(cell) for cell in _row(comparison)] for comparison in self.gates]
        for row, comparison in zip(rows, self.gates, strict=True):
            row[4] = f"{_MARKS[comparison.verdict]} {row[4]}"
        head = f"# {_MARKS[self.verdict]} {WORDS[self.verdict]}: {escape(subject(self))}\n"
        notes = (f"- {escape(note)}" for note in remarks(self))
        return "\n".join([head, *notes, "", *markdown_table(_HEAD, rows)]) + "\n"


def subject(canary: Canary) -> str:
    """What is compared with what."""
    candidate, baseline = printable(canary.candidate), printable(canary.baseline)
    return f"{canary.by.replace('_', ' ')} {candidate} against {baseline}"


def remarks(canary: Canary) -> list[str]:
    """The notes for the reader; the first is on the probabilities of wrong verdicts."""
    n, error = len(canary.gates), f"{100 * ALPHA / 2:g} %"
    over_all = f" over all {n} gates" if n > 1 else ""
    worse = f"a false `worse` has a probability of at most {error}{over_all}"
    not_worse = f"a false `not worse`, of a drop of {100 * canary.max_drop:g} points, one of at most {error} per gate"
    lines = [f"{worse}; {not_worse}; both hold however often you look"]
    if any(comparison.items is None for comparison in canary.gates):
        lines.append("where no items are paired, a cluster of requests counts as one observation ([metrics] cluster)")
    return [*lines, *canary.notes]


def _row(comparison: ComparedGate) -> tuple[str, ...]:
    items = "–"
    if comparison.items is not None:
        flips = "none flipped"
        if comparison.flips:
            flips = f"{len(comparison.flips)} flipped, {comparison.worse} for the worse"
        items = f"{comparison.items}: {flips}" if comparison.items else "none"
    why = comparison.reason
    if comparison.drop is not None:
        points = f"{100 * abs(comparison.drop):.1f} points"
        change = "equal" if not comparison.drop else f"{points} {'worse' if comparison.drop > 0 else 'better'}"
        why = f"{change}; {why}"
    samples = (
        percent(sample.value) if sample.value is None else f"{percent(sample.value)} of {sample.n:,}"
        for sample in (comparison.baseline, comparison.candidate)
    )
    return comparison.name, *samples, items, WORDS[comparison.verdict], why


def uncompared_gates(policy: Policy) -> list[str]:
    """A note about gates that compare something else than a mean, for which releases are not compared.

    Raises:
        RagmonError: No gate compares a mean.
    """
    others = [gate.name for gate in policy.gates if gate.kind != "threshold"]
    if len(others) == len(policy.gates):
        raise RagmonError("no gate has a metric to compare", hint='[gates] preset = "default", or a gate of your own')
    return [f"not compared: {', '.join(others)}"] if others else []
