"""Monitors to beat: the usual alert rules on the gates of the published evaluation page.

Every minute they look at the probes of the last fifteen minutes. `point` fires where the share itself breaks the gate;
`point, 5m` waits, as with `for: 5m` in a Prometheus rule, until it has done so for five minutes; `wilson` fires where
the 95 % interval lies on the wrong side as a whole. Every alert is a page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from bench.scenario.published import scores
from bench.scenario.stream import Stream
from bench.scenario.verdicts import Edge
from ragmon.config.gates import PRESETS
from ragmon.core.constants import PROBE
from ragmon.core.policy import Gate
from ragmon.stats.intervals import wilson

STEP: Final = 60.0
"""Seconds between two looks."""
WINDOW: Final = 900.0
"""Seconds a look sees."""
FEWEST: Final = 10
"""Observations below which a window says nothing."""
HOLD: Final = 300.0
"""Seconds a patient rule waits."""
GATES: Final = PRESETS["wfgy-eval"]

Breaks = Callable[[int, int, Gate], bool]
"""Whether so many ones among so many observations break a gate."""


def by_point(ones: int, n: int, gate: Gate) -> bool:
    """The share breaks the gate, however little there is behind it."""
    return ones / n < gate.threshold if gate.direction == "at_least" else ones / n > gate.threshold


def by_wilson(ones: int, n: int, gate: Gate) -> bool:
    """The whole of the share's interval breaks it."""
    lower, upper = wilson(ones, n)
    return upper < gate.threshold if gate.direction == "at_least" else lower > gate.threshold


def watch(stream: Stream, breaks: Breaks, hold: float = 0.0) -> list[Edge]:
    """Look at a stream from its start to its end.

    Args:
        stream: The stream.
        breaks: The rule.
        hold: Seconds a gate must have been broken before the alert fires.
    """
    seen = _observed(stream)
    edges = [edge for gate in GATES for edge in _edges(gate, _looks(stream, seen[gate.metric], gate, breaks), hold)]
    return sorted(edges, key=lambda edge: edge["ts"])


def _observed(stream: Stream) -> dict[str, list[tuple[float, int]]]:
    """By metric, when a probe counted and as what."""
    items = {item.qid: item for item in stream.gold}
    seen: dict[str, list[tuple[float, int]]] = {gate.metric: [] for gate in GATES}
    for record in stream.records():
        if record.source == PROBE and record.qid is not None and record.ts is not None:
            for metric, score in scores(record.answer_json, record.retrieved_ids or (), items[record.qid]).items():
                seen[metric].append((record.ts, score))
    return seen


def _looks(
    stream: Stream, seen: Sequence[tuple[float, int]], gate: Gate, breaks: Breaks
) -> Iterator[tuple[float, bool]]:
    """At each look, whether the gate is broken."""
    times, sums = [ts for ts, _ in seen], [0, *accumulate(score for _, score in seen)]
    for minute in range(1, int((stream.end - stream.start) / STEP)):
        now = stream.start + minute * STEP
        first, last = bisect_right(times, now - WINDOW), bisect_right(times, now)
        n = last - first
        yield now, n >= FEWEST and breaks(sums[last] - sums[first], n, gate)


def _edges(gate: Gate, looks: Iterator[tuple[float, bool]], hold: float) -> Iterator[Edge]:
    since: float | None = None
    fires = False
    for now, broken in looks:
        since = (now if since is None else since) if broken else None
        fired, fires = fires, since is not None and now - since >= hold
        if fired != fires:
            yield Edge(
                ts=now,
                alert=gate.name,
                metric=gate.metric,
                severity="page",
                state="firing" if fires else "resolved",
            )


REFERENCES: Final[Mapping[str, Callable[[Stream], list[Edge]]]] = MappingProxyType(
    {
        "point": partial(watch, breaks=by_point),
        "point, 5m": partial(watch, breaks=by_point, hold=HOLD),
        "wilson": partial(watch, breaks=by_wilson),
    }
)
"""By name."""
