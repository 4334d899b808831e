"""A comparison of two releases on its way from a monitor to whoever asked it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ragmon.core.errors import RagmonError
from ragmon.core.policy import Gate, Policy, Verdict
from ragmon.export.canary import Canary
from ragmon.gates.compare import Flip
from ragmon.gates.releases import By, Comparison, Sample


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
        Sample(told.baseline.value, told.baseline.n),
        Sample(told.candidate.value, told.candidate.n),
        told.verdict,
        told.reason,
        told.items,
        tuple(Flip(one.qid, one.before, one.after) for one in told.flips),
    )


def left_out(policy: Policy) -> list[str]:
    """What is said of gates that compare something else than a mean.

    Raises:
        RagmonError: There are no others.
    """
    others = [gate.name for gate in policy.gates if gate.kind != "threshold"]
    if len(others) == len(policy.gates):
        raise RagmonError("no gate has a metric to compare", hint='[gates] preset = "default", or a gate of your own')
    return [f"not compared: {', '.join(others)}"] if others else []
