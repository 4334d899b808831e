"""Where to look: which measure, which gold version, and which of several changes is the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragmon.core.policy import Outcome
from ragmon.scoring.score_table import ScoreTable
from ragmon.stats import MICRO
from ragmon.why.change import Point, Sums, locate
from ragmon.why.levels import added
from ragmon.why.look import Look, first_seen
from ragmon.why.measures import OCTAVES, Measure, Metric, SameIndex, Within
from ragmon.why.model import Change
from ragmon.why.parts import GOLD_VERSION, INDEX


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        look: The stretch of time around the change, and of what.
        measure: What is followed.
        change: When it became worse.
    """

    look: Look
    measure: Measure
    change: Change


class _Episode(NamedTuple):
    """A change for the worse, and the stretch around it in which nothing became better.

    Attributes:
        begin: Where it starts; None: with the first step.
        end: Where it became better again; None: it did not.
    """

    change: Change
    begin: float | None = None
    end: float | None = None


def search(look: Look, outcome: Outcome, table: ScoreTable) -> Found:
    """When a gate's metric became worse for the last time.

    A change among requests of the newest gold version alone is looked for first: what is left is one of the version.

    Args:
        look: The whole stretch.
        outcome: The gate.
        table: The metrics.
    """
    versions = _versions(look)
    if look.reads.gold and len(versions) > 1:
        found = _clearest(replace(look, version=versions[-1]), outcome, table)
        if found.change.began is not None:
            return found
    return _clearest(look, outcome, table)


def _clearest(look: Look, outcome: Outcome, table: ScoreTable) -> Found:
    """The change of the measure that shows it most clearly."""
    measures = _measures(look, outcome, table)
    tries = len(OCTAVES) if outcome.gate.kind == "quantile_ratio" else 1
    found = [(measure, _last(look.points(measure), tries)) for measure in measures]
    measure, (change, begin, end) = max(
        found, key=lambda one: (one[1].change.began is not None, one[1].change.evidence)
    )
    stretch = replace(
        look, begin=look.begin if begin is None else int(begin), end=look.end if end is None else int(end)
    )
    return Found(stretch, measure, change)


def _last(points: Sequence[Point], tries: int) -> _Episode:
    """The last change for the worse; what was over before it began is no part of it.

    Args:
        points: Steps in the order of time.
        tries: How many measures of the same requests are tried.
    """
    change = locate(points, tries)
    if change.began is None:
        return _Episode(change)
    for side in (
        [point for point in points if point.start >= change.began],
        [point for point in points if point.start < change.began],
    ):
        better = locate([_turned(point) for point in side], tries).began
        if better is not None:
            later = _last([point for point in points if point.start >= better], tries)
            if later.change.began is not None:
                return later if later.begin is not None else later._replace(begin=better)
            closer = locate([point for point in points if point.start < better], tries)
            if better > change.began and closer.began is not None:
                return _Episode(closer, end=better)
    return _Episode(change)


def _turned(point: Point) -> Point:
    """The same step with what was good for bad."""
    n, total = point.sums
    return point._replace(sums=Sums(n, n * MICRO - total))


def _measures(look: Look, outcome: Outcome, table: ScoreTable) -> Sequence[Measure]:
    """What may be followed for a gate."""
    if outcome.gate.kind == "quantile_ratio":
        return _within(look)
    if outcome.gate.kind == "distinct":
        indexes = sorted({key.index_hash for key in look.keys if key.index_hash})
        return [SameIndex(min(indexes, key=lambda index: _first(look, INDEX, index), default=""))]
    return [Metric(outcome.gate, table)]


def _within(look: Look) -> Sequence[Measure]:
    """The parting lines with requests on both sides; others cannot show anything."""
    rows = look.merged(look.keys, look.begin, look.end)
    lines = [Within(milliseconds) for milliseconds in OCTAVES]
    fast = [added(line.of(key, row) for key, row in rows.items()) for line in lines]
    return [line for line, stat in zip(lines, fast, strict=True) if 0 < stat.sum < stat.n * MICRO] or lines[:1]


def _first(look: Look, dimension: str, name: str) -> float:
    """When an index or a gold version was seen first; 0 where it is older than what is kept by time."""
    keys = [key for key in look.keys if getattr(key, dimension) == name]
    return first_seen(look.state, keys) or 0.0


def _versions(look: Look) -> list[str]:
    """The versions of the gold set that have requests in the look, the newest last."""
    found = {key.gold_version for key in look.keys if any(True for _ in look.rows(key, look.begin, look.end))}
    return sorted(found, key=lambda version: (_first(look, GOLD_VERSION, version), version))
