"""Where to look: which measure, which gold version, and which of several changes is the last.

The answer to "what broke?", from counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ragmon.core.constants import FOLDED, STEP
from ragmon.core.policy import Outcome
from ragmon.gates.diagnosis import traits
from ragmon.gates.diagnosis.change import Point, ScoreSums, added, level, locate, moved_by
from ragmon.gates.diagnosis.model import ChangePoint, Moved, Standing, Suspect, Why
from ragmon.gates.diagnosis.reads import (
    OCTAVES,
    GateMetric,
    Measure,
    SameIndex,
    SideReader,
    WindowSelection,
    Within,
    first_seen,
    reads,
    stages,
)
from ragmon.gates.diagnosis.suspects import (
    BUILD,
    GOLD_VERSION,
    INDEX,
    CauseScorer,
    PartSeries,
    Splitter,
    causes,
    ranked,
    slower,
    splits,
)
from ragmon.scoring.score_table import ScoreTable, Stat
from ragmon.scoring.windows import State
from ragmon.stats import MICRO


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        look: The stretch of time around the change, and of what.
        measure: What is followed.
        change: When it became worse.
    """

    look: WindowSelection
    measure: Measure
    change: ChangePoint


class _Episode(NamedTuple):
    """A change for the worse, and the stretch around it in which nothing became better.

    Attributes:
        begin: Where it starts; None: with the first step.
        end: Where it became better again; None: it did not.
    """

    change: ChangePoint
    begin: float | None = None
    end: float | None = None


def search(look: WindowSelection, outcome: Outcome, table: ScoreTable) -> Diagnosis:
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


def _clearest(look: WindowSelection, outcome: Outcome, table: ScoreTable) -> Diagnosis:
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
    return Diagnosis(stretch, measure, change)


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
    return point._replace(sums=ScoreSums(n, n * MICRO - total))


def _measures(look: WindowSelection, outcome: Outcome, table: ScoreTable) -> Sequence[Measure]:
    """What may be followed for a gate."""
    if outcome.gate.kind == "quantile_ratio":
        return _within(look)
    if outcome.gate.kind == "distinct":
        indexes = sorted({key.index_hash for key in look.keys if key.index_hash})
        return [SameIndex(min(indexes, key=lambda index: _first(look, INDEX, index), default=""))]
    return [GateMetric(outcome.gate, table)]


def _within(look: WindowSelection) -> Sequence[Measure]:
    """The parting lines with requests on both sides; others cannot show anything."""
    rows = look.merged(look.keys, look.begin, look.end)
    lines = [Within(milliseconds) for milliseconds in OCTAVES]
    fast = [added(line.of(key, row) for key, row in rows.items()) for line in lines]
    return [line for line, stat in zip(lines, fast, strict=True) if 0 < stat.sum < stat.n * MICRO] or lines[:1]


def _first(look: WindowSelection, dimension: str, name: str) -> float:
    """When an index or a gold version was seen first; 0 where it is older than what is kept by time."""
    keys = [key for key in look.keys if getattr(key, dimension) == name]
    return first_seen(look.state, keys) or 0.0


def _versions(look: WindowSelection) -> list[str]:
    """The versions of the gold set that have requests in the look, the newest last."""
    found = {key.gold_version for key in look.keys if any(True for _ in look.rows(key, look.begin, look.end))}
    return sorted(found, key=lambda version: (_first(look, GOLD_VERSION, version), version))


BACK: Final = 7200.0
"""Seconds looked back from the alarm, or from now."""


def explain(
    state: State,
    table: ScoreTable,
    outcome: Outcome,
    *,
    now: float,
    since: float | None = None,
    firing: float | None = None,
) -> Why:
    """What broke: when a gate's metric became worse, what changed with it, and what the bad requests have in common.

    It reads the audit members of the series the gate reads, step by step: ten seconds while rows are fresh, five
    minutes later. Of several changes for the worse it tells of the last. Requests are taken as independent of each
    other: a run through a gold set that is harder towards its end looks like a change.

    Args:
        state: What was counted.
        table: The metrics.
        outcome: The gate as it stands now.
        now: Seconds since the epoch.
        since: How many seconds back to look; None: from two hours before the alarm fired, or two hours back.
        firing: Since when its alarm fires, seconds since the epoch; None while it is silent.
    """
    begin = now - since if since is not None else min(now, now if firing is None else firing) - BACK
    end = (int(now) // STEP + 1) * STEP
    whole = WindowSelection(state, reads(outcome, state, table), max(0, int(begin) // FOLDED * FOLDED), end)
    found = search(whole, outcome, table)
    look, measure, change = found.look, found.measure, found.change
    cut = look.begin if change.began is None else change.began
    before = None if change.began is None else SideReader(look, look.begin, cut)
    after = SideReader(look, cut, look.end)
    parts = Splitter(look, measure, before, after).groups()
    suspects = _suspects(CauseScorer(look, measure, change, before, after, len(causes(parts))), parts)
    then = {} if before is None else before.whole.cells
    seen = traits.compared(then, after.whole.cells, after.failing(measure))
    return Why(
        gate=_standing(outcome, look),
        firing=firing,
        now=now,
        begin=float(look.begin),
        end=float(look.end),
        measure=measure.name,
        change=change,
        before=None if before is None else before.side(measure, outcome, table),
        after=after.side(measure, outcome, table),
        mechanism=traits.mechanism(seen),
        traits=seen,
        metrics=_metrics(look, table, measure, before, after),
        stages=stages(before, after),
        splits=splits(parts),
        suspects=suspects,
        notes=tuple(_notes(whole, look, parts, suspects)),
    )


def _standing(outcome: Outcome, look: WindowSelection) -> Standing:
    gate = outcome.gate
    return Standing(
        pipeline=gate.pipeline,
        name=gate.name,
        metric=gate.metric,
        source=outcome.source,
        gold=look.reads.gold or "",
        slice=gate.where,
        kind=gate.kind,
        direction=gate.direction,
        threshold=gate.threshold,
        verdict=outcome.verdict,
        reason=outcome.reason,
        value=outcome.value,
        lower=outcome.lower,
        upper=outcome.upper,
        n=outcome.n,
    )


def _suspects(weighing: CauseScorer, parts: Sequence[PartSeries]) -> tuple[Suspect, ...]:
    """What separates good from bad, and the stages that became slower."""
    found = ranked([one for part in causes(parts) if (one := weighing.suspect(part)) is not None])
    if weighing.before is None:
        return found
    return (*found, *slower(stages(weighing.before, weighing.after), weighing.before, weighing.after))


def _metrics(
    look: WindowSelection, table: ScoreTable, measure: Measure, before: SideReader | None, after: SideReader
) -> tuple[Moved, ...]:
    """The other metrics of the same requests, those that moved most first; over all requests, those without gold."""
    olds, news = ({} if before is None else table.of(before.whole)), table.of(after.whole)
    found = []
    for name, metric in table.metrics.items():
        old, new = olds.get(name, Stat()), news[name]
        if name != measure.name and (old.n or new.n) and (look.reads.gold is not None or not metric.needs_gold):
            found.append(Moved(name, level(old), level(new), moved_by(old, new)))
    return tuple(sorted(found, key=lambda one: -abs(one.by)))


def _notes(
    whole: WindowSelection, look: WindowSelection, parts: Sequence[PartSeries], suspects: Sequence[Suspect]
) -> Iterator[str]:
    if look.version != whole.version:
        yield f"gold {look.reads.gold} changed its version; only requests of {look.version} are looked at"
    if not suspects and look.keys:
        compared = dict.fromkeys(part.dimension for part in causes(parts))
        held = [f"every {name} fares alike" for name in compared]
        held += [_single(look, name) for name in (BUILD, INDEX) if name not in compared]
        yield f"nothing that is recorded separates good requests from bad ones: {', '.join(held)}"


def _single(look: WindowSelection, dimension: str) -> str:
    """That there is nothing to compare."""
    return f"one {dimension}" if any(getattr(key, dimension) for key in look.keys) else f"no {dimension}"
