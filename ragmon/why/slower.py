"""Stages that take longer than before the change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ragmon.core import constants
from ragmon.scoring.score_table import Stat
from ragmon.why.change import ALPHA, chance, gain
from ragmon.why.levels import level
from ragmon.why.measures import OCTAVES, Within
from ragmon.why.model import Level, Stage, Suspect, Times
from ragmon.why.sides import Half

SLOWER: Final = 1.25
"""How many times as long a stage must take at its median or its p95 to be worth a word."""
TOTAL: Final = constants.STAGES[0]
_NOBODY: Final = Level(0, None)


def slower(stages: Sequence[Stage], before: Half, after: Half) -> list[Suspect]:
    """The stages that became slower, those with most evidence first; the total is no stage.

    Args:
        stages: How long they took.
        before: Before the change.
        after: After it.
    """
    parts = [stage for stage in stages if stage.name != TOTAL and _longer(stage)]
    found = [_suspect(stage.name, before, after, len(OCTAVES) * len(stages)) for stage in parts]
    return sorted((one for one in found if one.p <= ALPHA), key=lambda one: -one.evidence)


def _longer(stage: Stage) -> bool:
    return any(a is not None and b is not None and b >= SLOWER * a for a, b in _quantiles(stage.before, stage.after))


def _quantiles(before: Times, after: Times) -> Iterator[tuple[float | None, float | None]]:
    yield before.p50, after.p50
    yield before.p95, after.p95


def _suspect(stage: str, before: Half, after: Half, tries: int) -> Suspect:
    """The stage at the number of milliseconds that tells most."""
    cuts = [(_gained(then, now), then, now) for then, now in _cuts(stage, before, after)]
    evidence, then, now = max(cuts, key=lambda cut: cut[0])
    p = chance(evidence, tries)
    return Suspect("stage", stage, "slower", evidence, p, level(then), level(now), _NOBODY, _NOBODY, 1.0, 1.0, None)


def _cuts(stage: str, before: Half, after: Half) -> Iterator[tuple[Stat, Stat]]:
    for milliseconds in OCTAVES:
        measure = Within(milliseconds, stage)
        yield before.stat(measure), after.stat(measure)


def _gained(then: Stat, now: Stat) -> float:
    """The evidence that fewer are within a time than before."""
    measure = Within(OCTAVES[0])
    a, b = measure.sums(then), measure.sums(now)
    return gain(a, b) if a.n and b.n and a.mean > b.mean else 0.0
