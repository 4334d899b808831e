"""The history of gates: the value and the interval they had in each of many windows, as their verdicts see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragmon.core.policy import Policy
from ragmon.gates.evaluate import evaluate
from ragmon.scoring.snapshot import POINT, Snapshot

GateKey = tuple[str, str]
"""A pipeline and the name of one of its gates."""


@dataclass(frozen=True)
class GatePoint:
    """A gate in one window.

    Attributes:
        end: The end of the window, seconds since the epoch.
        value: The estimate; None without data.
        lower: The lower end of its 95 % interval; None without one.
        upper: The upper end.
        n: Requests in the denominator.
        source: What was judged.
    """

    end: int
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    source: str


@dataclass(frozen=True)
class TimeSpan:
    """A span of time up to now, in equal windows.

    Attributes:
        name: Its name in addresses.
        words: What a reader calls it.
        seconds: Its length.
        step: The length of a window, seconds.
    """

    name: str
    words: str
    seconds: int
    step: int


class ChangeMark(NamedTuple):
    """A change that a gate's value may follow.

    Attributes:
        ts: When, seconds since the epoch.
        kind: What changed: `build`, `index`, `gold NAME` or `configuration`.
        name: To what; "" where there is nothing to name.
    """

    ts: float
    kind: str
    name: str = ""


@dataclass(frozen=True)
class GateHistory:
    """A gate over a span of time.

    Attributes:
        span: The span.
        now: Its end, seconds since the epoch.
        points: The points, in order of time; windows that were not read yet are missing.
        alarms: When its alarm fired: from and to, seconds since the epoch.
        marks: What changed meanwhile, in order of time.
    """

    span: TimeSpan
    now: float
    points: list[GatePoint]
    alarms: Sequence[tuple[float, float]] = ()
    marks: Sequence[ChangeMark] = ()

    @property
    def values(self) -> list[float]:
        """The values that are not missing, in order of time."""
        return [point.value for point in self.points if point.value is not None]


def gate_points(snapshot: Snapshot, policies: Iterable[Policy]) -> dict[GateKey, GatePoint]:
    """The points of every gate in one window. Gates on distinct values have none: those are not counted by time.

    Args:
        snapshot: The window, from `ragmon.scoring.snapshot.take_history`.
        policies: The policies of the pipelines.
    """
    points: dict[GateKey, GatePoint] = {}
    for policy in policies:
        gates = (replace(gate, window=POINT) for gate in policy.gates if gate.kind != "distinct")
        at_point = replace(policy, gates=tuple(gates))
        for outcome in evaluate(snapshot, at_point):
            point = GatePoint(
                int(snapshot.now) + 1, outcome.value, outcome.lower, outcome.upper, outcome.n, outcome.source
            )
            points[outcome.gate.pipeline, outcome.gate.name] = point
    return points
