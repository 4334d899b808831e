"""The answer to "what broke?", from counts alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ragmon.core.constants import FOLDED, STEP
from ragmon.core.policy import Outcome
from ragmon.scoring.score_table import ScoreTable, Stat
from ragmon.scoring.windows import State
from ragmon.why import traits
from ragmon.why.levels import level, moved_by
from ragmon.why.look import Look, reads
from ragmon.why.measures import Measure
from ragmon.why.model import Moved, Standing, Suspect, Why
from ragmon.why.parts import BUILD, INDEX, Group, Parting, splits
from ragmon.why.search import search
from ragmon.why.sides import Half, stages
from ragmon.why.slower import slower
from ragmon.why.suspects import Weighing, causes, ranked

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
    whole = Look(state, reads(outcome, state, table), max(0, int(begin) // FOLDED * FOLDED), end)
    found = search(whole, outcome, table)
    look, measure, change = found.look, found.measure, found.change
    cut = look.begin if change.began is None else change.began
    before = None if change.began is None else Half(look, look.begin, cut)
    after = Half(look, cut, look.end)
    parts = Parting(look, measure, before, after).groups()
    suspects = _suspects(Weighing(look, measure, change, before, after, len(causes(parts))), parts)
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


def _standing(outcome: Outcome, look: Look) -> Standing:
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


def _suspects(weighing: Weighing, parts: Sequence[Group]) -> tuple[Suspect, ...]:
    """What separates good from bad, and the stages that became slower."""
    found = ranked([one for part in causes(parts) if (one := weighing.suspect(part)) is not None])
    if weighing.before is None:
        return found
    return (*found, *slower(stages(weighing.before, weighing.after), weighing.before, weighing.after))


def _metrics(look: Look, table: ScoreTable, measure: Measure, before: Half | None, after: Half) -> tuple[Moved, ...]:
    """The other metrics of the same requests, those that moved most first; over all requests, those without gold."""
    olds, news = ({} if before is None else table.of(before.whole)), table.of(after.whole)
    found = []
    for name, metric in table.metrics.items():
        old, new = olds.get(name, Stat()), news[name]
        if name != measure.name and (old.n or new.n) and (look.reads.gold is not None or not metric.needs_gold):
            found.append(Moved(name, level(old), level(new), moved_by(old, new)))
    return tuple(sorted(found, key=lambda one: -abs(one.by)))


def _notes(whole: Look, look: Look, parts: Sequence[Group], suspects: Sequence[Suspect]) -> Iterator[str]:
    if look.version != whole.version:
        yield f"gold {look.reads.gold} changed its version; only requests of {look.version} are looked at"
    if not suspects and look.keys:
        compared = dict.fromkeys(part.dimension for part in causes(parts))
        held = [f"every {name} fares alike" for name in compared]
        held += [_single(look, name) for name in (BUILD, INDEX) if name not in compared]
        yield f"nothing that is recorded separates good requests from bad ones: {', '.join(held)}"


def _single(look: Look, dimension: str) -> str:
    """That there is nothing to compare."""
    return f"one {dimension}" if any(getattr(key, dimension) for key in look.keys) else f"no {dimension}"
