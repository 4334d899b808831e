"""Histories: the metrics of a pipeline in many equal windows, one after another.

A point of a history is a window like any other, so it has the value and the interval that a gate would have had then.
Where a window lies in the past, late records are counted in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ragmon.core.constants import DROPPED_PIPELINES, FOLDED, HOUR, STEP
from ragmon.gold.sets import GoldInfo
from ragmon.scoring.buckets import State
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import SeriesReader, SeriesStats, Snapshot, window_totals
from ragmon.scoring.windows import Window

POINT: Final = "point"
"""The name of the window of a point."""


def point_ends(now: float, span: int, step: int) -> list[int]:
    """The ends of the windows that cover a span of time up to now.

    Args:
        now: Seconds since the epoch.
        span: How far back the first one begins, seconds.
        step: The length of a window, seconds: up to an hour a multiple of 10, otherwise of 300.

    Returns:
        Multiples of the step, the last of them the first after now.

    Raises:
        ValueError: The windows cannot lie on the edges of rows.

    >>> point_ends(7201.0, 3600, 1800)
    [7200, 9000]
    """
    row = STEP if step <= HOUR else FOLDED
    if step <= 0 or step % row:
        raise ValueError(f"step is {step}: it must be a multiple of {row} seconds")
    last = (int(now) // step + 1) * step
    return list(range(last - step * max(1, span // step) + step, last + 1, step))


def take_history(
    state: State,
    table: ScoreTable,
    *,
    ends: Sequence[int],
    step: int,
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
    pipelines: Collection[str] | None = None,
) -> list[Snapshot]:
    """The snapshots of a history, one a window, each of which has the name `point`.

    Args:
        state: The counts.
        table: The metrics.
        ends: The ends of the windows, seconds since the epoch, from `point_ends`.
        step: The length of a window, seconds.
        golds: The gold sets in use.
        gated: Metrics whose sums per item are needed by gates.
        pipelines: The pipelines to read; None reads all.
    """
    windows = [Window(POINT, step, end - 1) for end in ends]
    totals = [window_totals(state, step, end - 1) for end in ends]
    points: list[list[SeriesStats]] = [[] for _ in ends]
    reader = SeriesReader(state, table, tuple(gated))
    reader.refresh()
    for group, keys in reader.groups.items():
        if group.pipeline == DROPPED_PIPELINES or (pipelines is not None and group.pipeline not in pipelines):
            continue
        for place, series in enumerate(reader.read(group, keys, windows, totals)):
            points[place] += series
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    return [
        Snapshot(end - 1, tuple(series), tuple(golds), tuple(builds), needs_gold)
        for end, series in zip(ends, points, strict=True)
    ]
