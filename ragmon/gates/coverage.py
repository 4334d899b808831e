"""How much of the traffic the gold covers, and how much of the gold the traffic: what a gold number may be said of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ragmon.core.constants import LIVE, MATCH, UNMATCHED, WAYS
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot

HEAD: Final = (
    "questions of users that match a gold item are those many people ask: a number on them is of head questions, "
    "not of all traffic"
)
"""What stands beside every number on matched questions."""


class Covered(NamedTuple):
    """How much of a gold set one source touched.

    Attributes:
        pipeline, source: Whose requests.
        gold, version: The set.
        window: Over which time.
        seen: Distinct items that were asked.
        items: How many there are.
    """

    pipeline: str
    source: str
    gold: str
    version: str
    window: str
    seen: int
    items: int


class Matched(NamedTuple):
    """How much of a pipeline's user traffic has a gold item.

    Attributes:
        pipeline: Whose requests.
        window: Over which time.
        matched: Audit members that have one.
        records: All audit members.
    """

    pipeline: str
    window: str
    matched: int
    records: int


def ways(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """How the gold items of user traffic were found, over all time, by pipeline; nothing where there is no gold.

    Together they are all audit members of user traffic: those that have no item are `none`. Of the records of one build
    nobody knows how theirs were found, so nothing is said.
    """
    found: dict[str, dict[str, int]] = {}
    for one in matched(snapshot, ALL):
        told = {way: n for way in WAYS if (n := snapshot.matched.get((one.pipeline, way), 0))}
        if told or not one.matched:
            found[one.pipeline] = {**told, UNMATCHED: one.records - one.matched}
    return found


def matched(snapshot: Snapshot, window: str) -> list[Matched]:
    """How much of each pipeline's user traffic has a gold item; nothing where there is no gold."""
    if not snapshot.golds:
        return []
    found: dict[str, int] = {}
    for series in _golden(snapshot, window):
        if series.source == MATCH:
            found[series.pipeline] = found.get(series.pipeline, 0) + series.records
    traffic = _traffic(snapshot, LIVE, window)
    return [Matched(one.pipeline, window, found.get(one.pipeline, 0), one.records) for one in traffic]


def sentence(ways: dict[str, int]) -> str:
    """How user traffic was matched, in one line for people.

    >>> sentence({"question": 3, "none": 9})
    '3 of 12 audit records of users match a gold item (25.0 %): 3 by question'
    """
    records = sum(ways.values())
    n = records - ways.get(UNMATCHED, 0)
    how = ", ".join(f"{count} by {way}" for way, count in ways.items() if way != UNMATCHED)
    share = f" ({n / records:.1%})".replace("%", " %") if records else ""
    return f"{n} of {records} audit records of users match a gold item{share}{': ' if how else ''}{how}"


def covered(snapshot: Snapshot, window: str) -> list[Covered]:
    """How much of every gold set in force each source touched."""
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    return [
        Covered(one.pipeline, one.source, one.gold, one.gold_version, window, one.traced, sizes[key])
        for one in _golden(snapshot, window)
        if (key := (one.gold, one.gold_version)) in sizes
    ]


def _traffic(snapshot: Snapshot, source: str, window: str) -> Iterator[SeriesStats]:
    """The series over all requests of a source."""
    where = (source, window, "", "")
    return (one for one in snapshot.series if (one.source, one.window, one.slice, one.gold) == where)


def _golden(snapshot: Snapshot, window: str) -> Iterator[SeriesStats]:
    """The series over gold sets."""
    return (one for one in snapshot.series if one.gold and (one.window, one.slice) == (window, ""))
