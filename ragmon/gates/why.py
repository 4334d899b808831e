"""The diagnosis of a gate from counts: which measure to follow, when it became worse, and what changed with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS
from ragmon.core.policy import Outcome
from ragmon.gates.change import (
    ALPHA,
    OCTAVES,
    ChangePoint,
    FailingStretch,
    GateMetric,
    GateState,
    Measure,
    Moved,
    Point,
    Reads,
    Requests,
    SameIndex,
    SideReader,
    Suspect,
    Why,
    WindowSelection,
    Within,
    added,
    first_seen,
    gain,
    inverted,
    level,
    locate,
    moved_by,
    p_bound,
    reads,
    segments,
    stages,
    total,
)
from ragmon.gates.suspects import (
    BUILD,
    GOLD_VERSION,
    INDEX,
    MAIN,
    TRAITS,
    CauseScorer,
    PartSeries,
    Splitter,
    candidates,
    compared,
    mechanism,
    ranked,
    seen_elsewhere,
    slower,
    splits,
)
from ragmon.scoring.buckets import State
from ragmon.scoring.score_table import ScoreTable, Stat
from ragmon.stats.histograms import MICRO

BACK: Final = 7200.0
"""The time range in seconds before the alarm, or before now."""
WORSE: Final = 1.5
"""How many times as often requests fail in a stretch as at the best time."""
CERTAIN: Final = 1e-7
"""The probability by chance at which a change is told without a verdict: asked every minute, false once in years."""
MIN_SHIFT: Final = 0.05
"""The change of a part's share of the requests that is worth a note."""


@dataclass(frozen=True)
class Diagnosis:
    """The change that was found."""

    selection: WindowSelection
    measure: Measure
    change: ChangePoint


class _Episode(NamedTuple):
    """A change for the worse, and the time range around it without a change for the better.

    Attributes:
        begin: The start; None for the first step.
        end: The time of the next change for the better; None where there is none.
    """

    change: ChangePoint
    begin: float | None = None
    end: float | None = None


def search(selection: WindowSelection, outcome: Outcome, table: ScoreTable) -> Diagnosis:
    """The last change for the worse of a gate's metric.

    Requests of the newest gold version are searched first; a change found only over all versions is one of the version.
    """
    versions = {
        key.gold_version
        for key in selection.keys
        if any(True for _ in selection.rows(key, selection.begin, selection.end))
    }
    if selection.reads.gold and len(versions) > 1:
        newest = max(versions, key=lambda version: (_first(selection, GOLD_VERSION, version), version))
        diagnosis = _clearest(replace(selection, version=newest), outcome, table)
        if diagnosis.change.began is not None:
            return diagnosis
    return _clearest(selection, outcome, table)


def _clearest(available: WindowSelection, outcome: Outcome, table: ScoreTable) -> Diagnosis:
    measures: Sequence[Measure]
    tries = 1
    if outcome.gate.kind == "quantile_ratio":
        measures, tries = _within(available), len(OCTAVES)
    elif outcome.gate.kind == "distinct":
        indexes = sorted({key.index_hash for key in available.keys if key.index_hash})
        measures = [SameIndex(min(indexes, key=lambda index: _first(available, INDEX, index), default=""))]
    else:
        measures = [GateMetric(outcome.gate, table)]
    episodes = [(measure, _last(available.points(measure), tries)) for measure in measures]
    measure, (change, begin, end) = max(
        episodes, key=lambda entry: (entry[1].change.began is not None, entry[1].change.evidence)
    )
    selection = replace(
        available,
        begin=available.begin if begin is None else int(begin),
        end=available.end if end is None else int(end),
    )
    return Diagnosis(selection, measure, change)


def _last(points: Sequence[Point], tries: int) -> _Episode:
    """The last change for the worse, without earlier changes that had ended before it began.

    One that became better again may show only in the steps up to then: what was good before and since outweighs it.
    """
    change = locate(points, tries)
    began = change.began or 0.0
    since, before = ([point for point in points if (point.start >= began) == is_since] for is_since in (True, False))
    for side in (since, before):
        better = locate(inverted(side), tries).began
        if better is not None:
            later = _last([point for point in points if point.start >= better], tries)
            if later.change.began is not None:
                return later if later.begin is not None else later._replace(begin=better)
            closer = locate([point for point in points if point.start < better], tries)
            if better > began and closer.began is not None:
                return _Episode(closer, end=better)
    return _Episode(change)


def _within(selection: WindowSelection) -> Sequence[Measure]:
    """The latency limits with requests on both sides; others cannot show a change."""
    rows = selection.merged(selection.keys, selection.begin, selection.end)
    limits = [Within(milliseconds) for milliseconds in OCTAVES]
    stats = [added(limit.of(key, row) for key, row in rows.items()) for limit in limits]
    return [limit for limit, stat in zip(limits, stats, strict=True) if 0 < stat.sum < stat.n * MICRO] or limits[:1]


def _first(selection: WindowSelection, dimension: str, name: str) -> float:
    """When an index or a gold version was seen first; 0 where it is older than the rows kept by time."""
    keys = [key for key in selection.keys if getattr(key, dimension) == name]
    return first_seen(selection.state, keys) or 0.0


def explain(
    state: State,
    table: ScoreTable,
    outcome: Outcome,
    *,
    now: float,
    since: float | None = None,
    firing: float | None = None,
    alarm: str = "",
    derived: bool = False,
    proven: float | None = None,
) -> Why:
    """The diagnosis of a gate: when its metric became worse, what changed with it, and what failing requests share.

    It reads the audit members of the series the gate reads, step by step: a step is ten seconds while rows are fresh,
    five minutes later. Of several changes for the worse it takes the last. Requests are taken as independent of each
    other, so a run through a gold set that is harder towards its end looks like a change.

    Args:
        state: The counts.
        table: The metrics.
        outcome: The gate's current outcome.
        now: Seconds since the epoch.
        since: The start of the time range, in seconds before `now`; None for two hours before the alarm fired, or
            before `now`.
        firing: Since when its alarm fires, seconds since the epoch; None while it does not fire.
        alarm: What its alarm has seen, in a sentence.
        derived: The outcome is that of an alarm on a metric's own past, written as a gate.
        proven: Since when an alarm has proof: the requests since then are compared where no change is significant.
    """
    begin = now - since if since is not None else min(now, now if firing is None else firing) - BACK
    whole_range = _range(state, table, outcome, begin, now)
    found = search(whole_range, outcome, table)
    if proven is not None and found.selection.end <= proven:  # what was over by then is another fault
        found = search(replace(whole_range, begin=found.selection.end), outcome, table)
    look, measure, change = found.selection, found.measure, found.change
    if change.began is None and proven is not None and look.begin < proven < look.end:
        change = replace(change, began=proven)
    before = None if change.began is None else SideReader(look, look.begin, change.began)
    after = SideReader(look, look.begin if change.began is None else change.began, look.end)
    parts = Splitter(look, measure, before, after).groups()
    suspects = _suspects(look, CauseScorer(measure, change, before, after, len(candidates(parts))), parts)
    cells_before = {} if before is None else before.total.cells
    moved_traits = compared(cells_before, after.total.cells, after.failing(measure))
    failed, stretches = _failing_stretches(whole_range, measure)
    return Why(
        gate=replace(_standing(outcome, look), alarm=alarm, derived=derived),
        firing=firing,
        now=now,
        begin=float(look.begin),
        end=float(look.end),
        measure=measure.name,
        change=change,
        before=None if before is None else before.side(measure, outcome, table),
        after=after.side(measure, outcome, table),
        mechanism=mechanism(moved_traits),
        traits=moved_traits,
        metrics=_metrics(look, table, measure, before, after),
        stages=stages(before, after),
        splits=splits(parts),
        suspects=suspects,
        notes=tuple(_notes(whole_range, look, parts, suspects)),
        failed=failed,
        stretches=stretches,
    )


def has_changed(state: State, table: ScoreTable, outcome: Outcome, now: float) -> bool:
    """Whether a gate's metric became worse within the usual range, beyond all doubt however often it is asked."""
    change = search(_range(state, table, outcome, now - BACK, now), outcome, table).change
    return change.began is not None and change.p <= CERTAIN


def _range(state: State, table: ScoreTable, outcome: Outcome, begin: float, end: float) -> WindowSelection:
    span = max(0, int(begin) // FOLDED_SECONDS * FOLDED_SECONDS), (int(end) // BUCKET_SECONDS + 1) * BUCKET_SECONDS
    return WindowSelection(state, reads(outcome, state, table), *span)


def explain_drift(
    state: State,
    table: ScoreTable,
    outcome: Outcome,
    *,
    now: float,
    since: float | None,
    firing: float | None,
    alarm: str,
) -> Why:
    """The diagnosis of an alarm on a distribution: which requests there are since it moved, and which there were."""
    end, cut = (int(now) // BUCKET_SECONDS + 1) * BUCKET_SECONDS, now - BACK if since is None else since
    begin = max(0, int(cut - BACK) // FOLDED_SECONDS * FOLDED_SECONDS)
    look = WindowSelection(state, Reads(outcome.gate.pipeline, outcome.source, None, ""), begin, end)
    measure, before, after = Requests(), SideReader(look, begin, cut), SideReader(look, cut, end)
    parts = Splitter(look, measure, before, after).groups()
    moved_traits = compared(before.total.cells, after.total.cells, {})
    return Why(
        gate=replace(_standing(outcome, look), alarm=alarm, derived=True),
        firing=firing,
        now=now,
        begin=float(begin),
        end=float(end),
        measure=measure.name,
        change=ChangePoint(since, None, None, 1.0, 0.0, 0, "" if since is not None else "no stretch differs"),
        before=before.side(measure, outcome, table),
        after=after.side(measure, outcome, table),
        mechanism="",
        traits=moved_traits,
        metrics=_metrics(look, table, measure, before, after),
        stages=stages(before, after),
        splits=splits(parts),
        suspects=(),
        notes=tuple(_shares(parts, before.total.count, after.total.count)),
    )


def _shares(parts: Sequence[PartSeries], before: int, after: int) -> Iterator[str]:
    """The parts whose share of the requests changed, the largest change first."""
    if not (before and after):
        return
    single = [part for part in parts if " and " not in part.dimension]  # pairs repeat what their parts say
    shares = [(part.records_before / before, part.records_after / after, part) for part in single]
    for old, new, part in sorted(shares, key=lambda entry: -abs(entry[1] - entry[0])):
        if abs(new - old) >= MIN_SHIFT:
            yield f"{part.dimension} {part.name or '(none)'}: {100 * old:.0f} % -> {100 * new:.0f} % of the requests"


def _failing_stretches(selection: WindowSelection, measure: Measure) -> tuple[int | None, tuple[FailingStretch, ...]]:
    """The failing requests of a time range, and the stretches in which they fail more often than at the best time."""
    failed = _failed(SideReader(selection, selection.begin, selection.end), measure)
    points = selection.points(measure)
    if not failed or not points:
        return failed, ()
    parts = [(part, total(point.sums for point in part)) for part in segments(points)]
    best = max((sums for _, sums in parts), key=lambda sums: sums.mean)
    stretches: list[FailingStretch] = []
    for part, sums in parts:
        if 1.0 - sums.mean < WORSE * (1.0 - best.mean) or p_bound(gain(best, sums), len(points)) > ALPHA:
            continue
        side = SideReader(selection, part[0].start, part[-1].end)
        failing = side.failing(measure)
        common = {trait.name for trait in compared({}, side.total.cells, failing) if trait.of_failing >= MAIN}
        first = next((name for name in TRAITS if name in common), "")
        stretch = FailingStretch(part[0].start, part[-1].end, _failed(side, measure) or 0, first)
        last = stretches[-1] if stretches else None
        if last is not None and (last.end, last.trait) == (stretch.begin, stretch.trait):  # one that grows, or ebbs
            stretches.pop()
            stretch = FailingStretch(last.begin, stretch.end, last.failed + stretch.failed, stretch.trait)
        stretches.append(stretch)
    return failed, tuple(stretches)


def _failed(side: SideReader, measure: Measure) -> int | None:
    counts = [measure.passed(key, row) for key, row in side.rows.items()]
    return None if None in counts else sum(pair[1] for pair in counts if pair is not None)


def _standing(outcome: Outcome, selection: WindowSelection) -> GateState:
    gate = outcome.gate
    return GateState(
        pipeline=gate.pipeline,
        name=gate.name,
        metric=gate.metric,
        source=outcome.source,
        gold=selection.reads.gold or "",
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


def _suspects(selection: WindowSelection, scorer: CauseScorer, parts: Sequence[PartSeries]) -> tuple[Suspect, ...]:
    suspects = ranked([suspect for part in candidates(parts) if (suspect := scorer.suspect(part)) is not None])
    if scorer.before is None:
        return suspects
    slow = slower(stages(scorer.before, scorer.after), scorer.before, scorer.after)
    return (*suspects, *seen_elsewhere(selection, scorer.change), *slow)


def _metrics(
    selection: WindowSelection, table: ScoreTable, measure: Measure, before: SideReader | None, after: SideReader
) -> tuple[Moved, ...]:
    stats_before, stats_after = ({} if before is None else table.of(before.total)), table.of(after.total)
    moved = []
    for name, metric in table.metrics.items():
        old, new = stats_before.get(name, Stat()), stats_after[name]
        if name != measure.name and (old.n or new.n) and (selection.reads.gold is not None or not metric.needs_gold):
            moved.append(Moved(name, level(old), level(new), moved_by(old, new)))
    return tuple(sorted(moved, key=lambda metric: -abs(metric.by)))


def _notes(
    whole_range: WindowSelection, selection: WindowSelection, parts: Sequence[PartSeries], suspects: Sequence[Suspect]
) -> Iterator[str]:
    if selection.version != whole_range.version:
        yield f"gold {selection.reads.gold} has a new version; only requests of {selection.version} are looked at"
    if not suspects and selection.keys:
        compared = dict.fromkeys(part.dimension for part in candidates(parts))
        reasons = [f"no {name} is worse than the others" for name in compared]
        reasons += [
            (f"one {name}" if any(getattr(key, name) for key in selection.keys) else f"no {name}")
            for name in (BUILD, INDEX)
            if name not in compared
        ]
        yield f"nothing on record tells failing requests from the others: {', '.join(reasons)}"
