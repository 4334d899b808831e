"""The comparison of two releases: as text, as Markdown, and as JSON that a client can read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable, printable_json
from ragmon.core.policy import ORDER, Gate, Policy, Verdict
from ragmon.export.markdown import percent
from ragmon.export.report import flips, rounded
from ragmon.export.tables import escape, markdown_table, text_table
from ragmon.gates.releases import By, Comparison, Flip, ReleaseIntervals, ReleaseSample
from ragmon.stats.betting import ALPHA

WORDS: Final[dict[Verdict, str]] = {"pass": "not worse", "fail": "worse", "insufficient": "undecided"}
_MARKS: Final[dict[Verdict, str]] = {"pass": "✅", "fail": "❌", "insufficient": "⚪"}
_HEAD: Final = ("gate", "baseline", "candidate", "items in both", "verdict", "why")


@dataclass(frozen=True)
class Canary:
    """A comparison of two releases.

    Attributes:
        by: The record field that tells the releases apart.
        baseline: The known release.
        candidate: The release under test.
        max_drop: How much worse a metric may be.
        comparisons: One per gate.
        notes: Notes for the reader, one line each.
    """

    by: By
    baseline: str
    candidate: str
    max_drop: float
    comparisons: Sequence[Comparison]
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        """Worse if one metric is worse; not worse only if that is proven for every metric."""
        return min((comparison.verdict for comparison in self.comparisons), key=ORDER.index, default="insufficient")

    def data(self) -> dict[str, Any]:
        """The comparison as plain JSON data."""
        return {
            "verdict": self.verdict,
            "by": self.by,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "max_drop": self.max_drop,
            "alpha": ALPHA,
            "gates": [_gate(comparison) for comparison in self.comparisons],
        }

    def json(self) -> str:
        """The comparison as indented JSON."""
        text = json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False)
        return printable_json(text)

    def text(self) -> str:
        """The comparison as plain text without colour, one line per gate, with the verdict on the last line."""
        rows = [_HEAD, *([printable(cell) for cell in _row(comparison)] for comparison in self.comparisons)]
        lines = [subject(self), *text_table(rows)]
        lines += [printable(f"note: {note}") for note in remarks(self)]
        return "\n".join([*lines, f"verdict: {WORDS[self.verdict]}"]) + "\n"

    def markdown(self) -> str:
        """The comparison as Markdown, for a CI step summary."""
        rows = [[escape(cell) for cell in _row(comparison)] for comparison in self.comparisons]
        for row, comparison in zip(rows, self.comparisons, strict=True):
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
    n, error = len(canary.comparisons), f"{100 * ALPHA / 2:g} %"
    shared = f", shared by {n} gates" if n > 1 else ""
    worse = f"a false `worse` at all: {error} at most{shared}"
    not_worse = f"a false `not worse` of a gate (a drop of {100 * canary.max_drop:g} points): {error} at most"
    lines = [f"{worse}; {not_worse}; at all looks together"]
    if any(comparison.items is None for comparison in canary.comparisons):
        lines.append("where no items are paired, a cluster of requests is one observation ([metrics] cluster)")
    return [*lines, *canary.notes]


def _row(comparison: Comparison) -> tuple[str, ...]:
    name = f"{comparison.gate.pipeline}/{comparison.gate.name}"
    return (
        name,
        _sample(comparison.before),
        _sample(comparison.after),
        _items(comparison),
        WORDS[comparison.verdict],
        _why(comparison),
    )


def _sample(sample: ReleaseSample) -> str:
    return percent(sample.value) if sample.value is None else f"{percent(sample.value)} of {sample.n}"


def _items(comparison: Comparison) -> str:
    """How many gold items were assessed in both releases, and how many of them changed."""
    if comparison.items is None:
        return "–"
    flips = f"{len(comparison.flips)} flipped, {comparison.worse} for the worse" if comparison.flips else "none flipped"
    return f"{comparison.items}: {flips}" if comparison.items else "none"


def _why(comparison: Comparison) -> str:
    """How the candidate compares, and the reason of the verdict."""
    if comparison.drop is None:
        return comparison.reason
    points = f"{100 * abs(comparison.drop):.1f} points"
    change = "equal" if not comparison.drop else f"{points} {'worse' if comparison.drop > 0 else 'better'}"
    return f"{change}; {comparison.reason}"


def _gate(comparison: Comparison) -> dict[str, Any]:
    return {
        "pipeline": comparison.gate.pipeline,
        "gate": comparison.gate.name,
        "metric": comparison.gate.metric,
        "source": comparison.source,
        "gold": comparison.gold,
        "direction": comparison.gate.direction,
        "baseline": {"value": rounded(comparison.before.value), "n": comparison.before.n},
        "candidate": {"value": rounded(comparison.after.value), "n": comparison.after.n},
        "drop": rounded(comparison.drop),
        **({"intervals": _intervals(comparison.intervals)} if comparison.intervals else {}),
        "items": comparison.items,
        "flips": flips(comparison),
        "verdict": comparison.verdict,
        "reason": comparison.reason,
    }


def _intervals(found: ReleaseIntervals) -> dict[str, list[float | None]]:
    names = {"baseline": found.before, "candidate": found.after, "drop": found.drop}
    return {name: [rounded(lower), rounded(upper)] for name, (lower, upper) in names.items()}


_Share = Annotated[float, Meta(ge=0, le=1)]
_Change = Annotated[float, Meta(ge=-1, le=1)]


class _Intervals(msgspec.Struct):
    baseline: tuple[_Share, _Share]
    candidate: tuple[_Share, _Share]
    drop: tuple[_Change, _Change]


class _Side(msgspec.Struct):
    value: _Share | None
    n: int


class _Flip(msgspec.Struct):
    qid: str
    before: _Share
    after: _Share


class _Compared(msgspec.Struct):
    pipeline: str
    gate: str
    metric: str
    source: str
    gold: str
    direction: Literal["at_least", "at_most"]
    baseline: _Side
    candidate: _Side
    verdict: Verdict
    reason: str
    items: int | None = None
    flips: list[_Flip] = []
    intervals: _Intervals | None = None


class _Document(msgspec.Struct):
    by: By
    baseline: str
    candidate: str
    max_drop: _Share
    gates: list[_Compared]
    notes: list[str] = []


def answer(canary: Canary) -> dict[str, Any]:
    """A comparison as plain JSON data, including its notes."""
    return {**canary.data(), "notes": list(canary.notes)}


def load(data: Any) -> Canary:
    """The comparison that `answer` wrote.

    Args:
        data: Plain JSON data; unknown fields are ignored.

    Raises:
        RagmonError: The data is no comparison of releases.
    """
    try:
        document = msgspec.convert(data, _Document)
    except msgspec.ValidationError as error:
        hint = "is the monitor of this version?"
        raise RagmonError(f"this is no comparison of releases: {error}", hint=hint) from error
    comparisons = [_comparison(gate) for gate in document.gates]
    return Canary(document.by, document.baseline, document.candidate, document.max_drop, comparisons, document.notes)


def _comparison(gate: _Compared) -> Comparison:
    """The comparison of one gate. The threshold is not transmitted, because releases are compared with each other."""
    found = gate.intervals
    return Comparison(
        Gate(gate.gate, gate.metric, 0.0, gate.direction, pipeline=gate.pipeline),
        gate.source,
        gate.gold,
        ReleaseSample(gate.baseline.value, gate.baseline.n),
        ReleaseSample(gate.candidate.value, gate.candidate.n),
        gate.verdict,
        gate.reason,
        gate.items,
        tuple(Flip(flip.qid, flip.before, flip.after) for flip in gate.flips),
        None if found is None else ReleaseIntervals(found.baseline, found.candidate, found.drop),
    )


def uncompared_gates(policy: Policy) -> list[str]:
    """A note about gates that compare something else than a mean, for which releases are not compared.

    Raises:
        RagmonError: No gate compares a mean.
    """
    others = [gate.name for gate in policy.gates if gate.kind != "threshold"]
    if len(others) == len(policy.gates):
        raise RagmonError("no gate has a metric to compare", hint='[gates] preset = "default", or a gate of your own')
    return [f"not compared: {', '.join(others)}"] if others else []
