"""What was counted of one build or one index, and whether it may be judged yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ragmon.canary.clusters import Clusters
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.gold.sets import GoldInfo
from ragmon.judging import MISSING
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot, take
from ragmon.scoring.windows import State

By = Literal["build", "index_hash"]
"""What tells two releases apart."""
_CALLED: Final[dict[By, str]] = {"build": "build", "index_hash": "index hash"}
_RUNS: Final = (constants.PROBE, constants.REPLAY)
"""Sources whose records may be a run through a gold set."""


@dataclass(frozen=True)
class Release:
    """What is known of a build or an index.

    Attributes:
        name: The build or the index.
        state: Its counts.
        clusters: Its requests, kept together where they share their fate.
    """

    name: str
    state: State
    clusters: Clusters


def part(state: State, by: By, name: str) -> State:
    """What was counted of one build or index. The series are shared with the whole: they are for reading.

    Args:
        state: What was counted.
        by: What tells them apart.
        name: Which build or index.

    Raises:
        UnknownNameError: No record carries it.
    """
    known = {getattr(key, by) for key in state.series} - {""}
    if name not in known:
        error = UnknownNameError(_CALLED[by], name, known)
        if not known:
            error.hint = f"no record carries {'an' if by == 'index_hash' else 'a'} {_CALLED[by]}"
        raise error
    kept = State(retention=state.retention, timed_items=state.timed_items)
    kept.newest = state.newest
    kept.series = {key: series for key, series in state.series.items() if getattr(key, by) == name}
    return kept


def look(state: State, table: ScoreTable, golds: Sequence[GoldInfo], gated: Collection[str]) -> Snapshot:
    """Everything that was counted, as one window."""
    return take(state, table, now=state.newest, windows={ALL: None}, golds=golds, gated=gated)


def lacking(snapshot: Snapshot, series: SeriesStats) -> str | None:
    """What a run through a gold set has not come to yet; None where it may be judged.

    A run goes through a set in some order, often that of the file: what it has answered so far is no sample of the set.

    Args:
        snapshot: All that was counted of the release.
        series: What is to be judged. Without a gold set it is a run if most of its requests belong to one.
    """
    if series.source not in _RUNS:
        return None
    same = (series.pipeline, series.source, "")
    here = [found for found in snapshot.series if (found.pipeline, found.source, found.slice) == same]
    runs = [found for found in here if found.gold and series.gold in ("", found.gold)]
    whole = sum(found.records for found in here if not found.gold)
    if not series.gold and 2 * sum(run.records for run in runs) <= whole:
        return None
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    for run in runs:
        size = sizes.get((run.gold, run.gold_version), 0)
        missing = size - run.traced
        if missing > MISSING * size:
            return f"{missing} of {size} gold items have no trace yet"
    return None
