"""Rows of some series added up, each of them once, by the windows they are in: windows lie within one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ragmon.rows import Row
from ragmon.windows import Series, SeriesKey, edges, grid


class Kind(NamedTuple):
    """Which records of a group stand together."""

    gold: str
    gold_version: str
    stratum: str
    drawn: bool


Rows = dict[Kind, Row]
Held = Sequence[tuple[Kind, Series]]
"""Series and their kinds."""


@dataclass
class Window:
    """A window at a moment.

    Attributes:
        name: Its name.
        span: Seconds; None is everything.
        now: Seconds since the epoch.
        begin, end: Its edges.
        step: What they are a multiple of.
    """

    name: str
    span: int | None
    now: float
    begin: float = -inf
    end: float = inf
    step: int = 1

    def __post_init__(self) -> None:
        if self.span is not None:
            self.step, _ = grid(self.span, self.now)
            self.begin, self.end = edges(self.span, self.now)


Sums = dict[int, Rows]
"""Rows by the windows they are in, a bit for each, and by kind."""


def _places(start: int, windows: Sequence[Window], *, fresh: bool = False) -> int:
    """The windows a row is in, a bit for each."""
    found = 0
    for place, window in enumerate(windows):
        at = start // window.step * window.step if fresh else start
        if window.begin <= at < window.end:
            found |= 1 << place
    return found


def old(series: Held, windows: Sequence[Window]) -> Sums:
    """What is no longer fresh of some series, each row added once."""
    found: Sums = {}
    everything = sum(1 << place for place, window in enumerate(windows) if window.span is None)
    for kind, one in series:
        if one.past.count:
            _add(found, everything, kind, one.past)
        for start, row in one.folded.items():
            _add(found, _places(start, windows), kind, row)
    return found


def with_fresh(sums: Sums, series: Held, windows: Sequence[Window]) -> Sums:
    """Those sums and what is fresh of the series; the sums stay as they are."""
    found = {mask: {kind: _copied(row) for kind, row in rows.items()} for mask, rows in sums.items()}
    masks: dict[int, int] = {}
    for kind, one in series:
        for start, row in one.fresh.items():
            mask = masks.get(start)
            if mask is None:
                mask = masks[start] = _places(start, windows, fresh=True)
            _add(found, mask, kind, row)
    return found


def _add(sums: Sums, mask: int, kind: Kind, row: Row) -> None:
    if mask:
        rows = sums.setdefault(mask, {})
        held = rows.get(kind)
        if held is None:
            rows[kind] = _copied(row)
        else:
            held.merge(row)


def _copied(row: Row) -> Row:
    found = Row()
    found.merge(row)
    return found


def of_window(sums: Sums, place: int) -> Rows:
    """The rows of one window by kind."""
    found: Rows = {}
    for mask, rows in sums.items():
        if mask >> place & 1:
            for kind, row in rows.items():
                found.setdefault(kind, Row()).merge(row)
    return found


def kind_of(key: SeriesKey) -> Kind:
    """With which others the records of a series stand together."""
    return Kind(key.gold, key.gold_version, key.stratum, key.drawn)
