"""Coverage: how much of the traffic matches a gold item, and how many gold items were asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ragmon.core.constants import LIVE, MATCH, MATCH_METHODS, UNMATCHED
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot


class Covered(NamedTuple):
    """How many items of a gold set were asked by one source.

    Attributes:
        pipeline, source: The pipeline and the source of the requests.
        gold, version: The gold set and its version.
        window: The window.
        seen: The number of distinct items that were asked.
        items: The number of items in the set.
    """

    pipeline: str
    source: str
    gold: str
    version: str
    window: str
    seen: int
    items: int


class Matched(NamedTuple):
    """How much of a pipeline's user traffic matches a gold item.

    Attributes:
        pipeline: The pipeline.
        window: The window.
        matched: Audit members that match an item.
        records: All audit members.
    """

    pipeline: str
    window: str
    matched: int
    records: int


def match_counts(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """How user traffic matched gold items, over all time, by pipeline; nothing where there is no gold set.

    The counts of a pipeline add up to all audit members of its user traffic; those without an item are `none`. In
    records of one build the way of matching is not known, so such a pipeline is left out.
    """
    by_pipeline: dict[str, dict[str, int]] = {}
    for traffic in matched(snapshot, ALL):
        counts = {way: n for way in MATCH_METHODS if (n := snapshot.matched.get((traffic.pipeline, way), 0))}
        if counts or not traffic.matched:
            by_pipeline[traffic.pipeline] = {**counts, UNMATCHED: traffic.records - traffic.matched}
    return by_pipeline


def matched(snapshot: Snapshot, window: str) -> list[Matched]:
    """How much of each pipeline's user traffic matches a gold item; nothing where there is no gold set."""
    if not snapshot.golds:
        return []
    records_by_pipeline: dict[str, int] = {}
    for series in _gold_series(snapshot, window):
        if series.source == MATCH:
            records_by_pipeline[series.pipeline] = records_by_pipeline.get(series.pipeline, 0) + series.records
    traffic = _traffic(snapshot, LIVE, window)
    return [
        Matched(series.pipeline, window, records_by_pipeline.get(series.pipeline, 0), series.records)
        for series in traffic
    ]


def match_summary(ways: dict[str, int]) -> str:
    """How user traffic matched gold items, in one line for people.

    >>> match_summary({"question": 3, "none": 9})
    '3 of 12 audit records of users match a gold item (25.0 %): 3 by question'
    """
    records = sum(ways.values())
    n = records - ways.get(UNMATCHED, 0)
    how = ", ".join(f"{count} by {way}" for way, count in ways.items() if way != UNMATCHED)
    share = f" ({n / records:.1%})".replace("%", " %") if records else ""
    return f"{n} of {records} audit records of users match a gold item{share}{': ' if how else ''}{how}"


def covered(snapshot: Snapshot, window: str) -> list[Covered]:
    """How many items of every current gold set each source asked."""
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    return [
        Covered(series.pipeline, series.source, series.gold, series.gold_version, window, series.traced, sizes[key])
        for series in _gold_series(snapshot, window)
        if (key := (series.gold, series.gold_version)) in sizes
    ]


def _traffic(snapshot: Snapshot, source: str, window: str) -> Iterator[SeriesStats]:
    """The series of a source without a gold set or a slice."""
    key = (source, window, "", "")
    return (series for series in snapshot.series if (series.source, series.window, series.slice, series.gold) == key)


def _gold_series(snapshot: Snapshot, window: str) -> Iterator[SeriesStats]:
    """The series over gold sets, slices excluded."""
    return (series for series in snapshot.series if series.gold and (series.window, series.slice) == (window, ""))
