"""One release against another, for people and for programs.

A comparison of two releases on its way from a monitor to whoever asked it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable, printable_json
from ragmon.core.policy import ORDER, Gate, Policy, Verdict
from ragmon.export.markdown import escape, percent
from ragmon.export.report import rounded
from ragmon.gates.compare import Flip
from ragmon.gates.releases import By, Comparison, ReleaseSample
from ragmon.stats.betting import ALPHA

WORDS: Final[dict[Verdict, str]] = {"pass": "not worse", "fail": "worse", "insufficient": "undecided"}
_MARKS: Final[dict[Verdict, str]] = {"pass": "✅", "fail": "❌", "insufficient": "⚪"}
_HEAD: Final = ("gate", "baseline", "candidate", "items in both", "verdict", "why")


@dataclass(frozen=True)
class Canary:
    """A comparison of two releases.

    Attributes:
        by: What tells them apart.
        baseline: The release that is known.
        candidate: The release in question.
        max_drop: How much worse a metric may be.
        comparisons: One per gate.
        notes: What a reader should know, one line each.
    """

    by: By
    baseline: str
    candidate: str
    max_drop: float
    comparisons: Sequence[Comparison]
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        """Worse in one metric is worse; not worse has to be proven of every one."""
        return min((found.verdict for found in self.comparisons), key=ORDER.index, default="insufficient")

    def data(self) -> dict[str, Any]:
        """The comparison as plain JSON data."""
        return {
            "verdict": self.verdict,
            "by": self.by,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "max_drop": self.max_drop,
            "alpha": ALPHA,
            "gates": [_gate(found) for found in self.comparisons],
        }

    def json(self) -> str:
        """The comparison as indented JSON."""
        text = json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False)
        return printable_json(text)

    def text(self) -> str:
        """One line per gate, readable without colour, and the verdict on the last line."""
        rows = [_HEAD, *([printable(cell) for cell in _row(found)] for found in self.comparisons)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [printable(self._title())]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [printable(f"note: {note}") for note in self._notes()]
        return "\n".join([*lines, f"verdict: {WORDS[self.verdict]}"]) + "\n"

    def markdown(self) -> str:
        """The same as Markdown, for a CI step summary."""
        rows = [[escape(cell) for cell in _row(found)] for found in self.comparisons]
        for row, found in zip(rows, self.comparisons, strict=True):
            row[4] = f"{_MARKS[found.verdict]} {row[4]}"
        head = f"# {_MARKS[self.verdict]} {WORDS[self.verdict]}: {escape(self._title())}\n"
        table = [_HEAD, ["---"] * len(_HEAD), *rows]
        lines = [f"| {' | '.join(row)} |" for row in table]
        return "\n".join([head, *(f"- {escape(note)}" for note in self._notes()), "", *lines]) + "\n"

    def _title(self) -> str:
        return f"{self.by.replace('_', ' ')} {self.candidate} against {self.baseline}"

    def _notes(self) -> list[str]:
        n, error = len(self.comparisons), f"{100 * ALPHA / 2:g} %"
        shared = f", shared by {n} gates" if n > 1 else ""
        worse = f"a false `worse` at all: {error} at most{shared}"
        not_worse = f"a false `not worse` of a gate (a drop of {100 * self.max_drop:g} points): {error} at most"
        found = [f"{worse}; {not_worse}; at all looks together"]
        if any(one.items is None for one in self.comparisons):
            found.append("where no items are paired, a cluster of requests is one observation ([metrics] cluster)")
        return [*found, *self.notes]


def _row(found: Comparison) -> tuple[str, ...]:
    name = f"{found.gate.pipeline}/{found.gate.name}"
    return name, _sample(found.before), _sample(found.after), _items(found), WORDS[found.verdict], _why(found)


def _sample(sample: ReleaseSample) -> str:
    return percent(sample.value) if sample.value is None else f"{percent(sample.value)} of {sample.n}"


def _items(found: Comparison) -> str:
    """How many gold items were assessed in both, and how many of them changed."""
    if found.items is None:
        return "–"
    flips = f"{len(found.flips)} flipped, {found.worse} for the worse" if found.flips else "none flipped"
    return f"{found.items}: {flips}" if found.items else "none"


def _why(found: Comparison) -> str:
    """The reason, and where the candidate stands."""
    if found.drop is None:
        return found.reason
    points = f"{100 * abs(found.drop):.1f} points"
    moved = "equal" if not found.drop else f"{points} {'worse' if found.drop > 0 else 'better'}"
    return f"{moved}; {found.reason}"


def _gate(found: Comparison) -> dict[str, Any]:
    return {
        "pipeline": found.gate.pipeline,
        "gate": found.gate.name,
        "metric": found.gate.metric,
        "source": found.source,
        "gold": found.gold,
        "direction": found.gate.direction,
        "baseline": {"value": rounded(found.before.value), "n": found.before.n},
        "candidate": {"value": rounded(found.after.value), "n": found.after.n},
        "drop": rounded(found.drop),
        "items": found.items,
        "flips": [{"qid": f.qid, "before": rounded(f.before), "after": rounded(f.after)} for f in found.flips],
        "verdict": found.verdict,
        "reason": found.reason,
    }


class _Side(msgspec.Struct):
    value: float | None
    n: int


class _Flip(msgspec.Struct):
    qid: str
    before: float
    after: float


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


class _Answer(msgspec.Struct):
    by: By
    baseline: str
    candidate: str
    max_drop: float
    gates: list[_Compared]
    notes: list[str] = []


def answer(found: Canary) -> dict[str, Any]:
    """A comparison as plain JSON data, with the notes that stand beside it."""
    return {**found.data(), "notes": list(found.notes)}


def load(data: Any) -> Canary:
    """The comparison `answer` wrote.

    Args:
        data: Plain JSON data; fields that are not known are passed over.

    Raises:
        RagmonError: It is none.
    """
    try:
        told = msgspec.convert(data, _Answer)
    except msgspec.ValidationError as error:
        hint = "is the monitor of this version?"
        raise RagmonError(f"this is no comparison of releases: {error}", hint=hint) from error
    found = [_comparison(one) for one in told.gates]
    return Canary(told.by, told.baseline, told.candidate, told.max_drop, found, told.notes)


def _comparison(told: _Compared) -> Comparison:
    """A gate's part; its threshold is not told, since releases are held against each other and not against it."""
    return Comparison(
        Gate(told.gate, told.metric, 0.0, told.direction, pipeline=told.pipeline),
        told.source,
        told.gold,
        ReleaseSample(told.baseline.value, told.baseline.n),
        ReleaseSample(told.candidate.value, told.candidate.n),
        told.verdict,
        told.reason,
        told.items,
        tuple(Flip(one.qid, one.before, one.after) for one in told.flips),
    )


def uncompared_gates(policy: Policy) -> list[str]:
    """What is said of gates that compare something else than a mean.

    Raises:
        RagmonError: There are no others.
    """
    others = [gate.name for gate in policy.gates if gate.kind != "threshold"]
    if len(others) == len(policy.gates):
        raise RagmonError("no gate has a metric to compare", hint='[gates] preset = "default", or a gate of your own')
    return [f"not compared: {', '.join(others)}"] if others else []
