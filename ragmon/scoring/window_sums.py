"""The sums of rows over several windows, where each row is added once, together with others in the same windows.

What grows no more is summed up once: from one reading to the next, a window of an hour takes some rows, not hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from ragmon.core.constants import FOLDED, STEP
from ragmon.scoring.counts import WindowBucket
from ragmon.scoring.series import SeriesKey, WindowSeries
from ragmon.scoring.windows import OPEN, edges, grid

BLOCKS: Final = (FOLDED, 60, STEP)
"""Seconds of the blocks of fresh rows that are summed up, the longest first."""


class Kind(NamedTuple):
    """The key by which the rows of a group are kept apart."""

    gold: str
    gold_version: str
    stratum: str
    drawn: bool


def kind_of(key: SeriesKey) -> Kind:
    """The kind of a series."""
    return Kind(key.gold, key.gold_version, key.stratum, key.drawn)


@dataclass
class Window:
    """A window that ends at a given moment.

    Attributes:
        name: Its name.
        span: Seconds; None for everything.
        now: Seconds since the epoch.
        begin, end: Its edges.
        step: The grid that the edges lie on.
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


Rows = dict[Kind, WindowBucket]
Sums = dict[int, Rows]
"""Rows by bit mask of the windows they are in, and by kind."""
_Parts = dict[int, dict[Kind, list[WindowBucket]]]
"""The same, before they are summed up."""
_Blocks = dict[tuple[int, int], WindowBucket]
"""The sums of fresh rows by the length and the start of their block."""


class WindowSums:
    """The sums of a group of series over windows; what did not change since the last reading is not summed up anew."""

    def __init__(self) -> None:
        self._folded: tuple[object, Sums] = (None, {})
        self._blocks: dict[SeriesKey, tuple[int, _Blocks]] = {}

    def read(self, series: Mapping[SeriesKey, WindowSeries], windows: Sequence[Window], newest: float) -> Sums:
        """The sums of all rows, for reading alone.

        Args:
            series: The series.
            windows: The windows.
            newest: The newest event time of their state, seconds since the epoch.
        """
        whole_edges = [(window.begin, window.end) for window in windows]
        cache_key = (max(each.old_changed for each in series.values()), tuple(series), whole_edges)
        if self._folded[0] != cache_key:
            self._folded = (cache_key, _folded_sums(series, windows))
        sums = {mask: {kind: [row] for kind, row in rows.items()} for mask, rows in self._folded[1].items()}
        inner_edges = sorted({edge for pair in whole_edges for edge in pair if edge % FOLDED and abs(edge) != inf})
        known, self._blocks = self._blocks, {}
        for key, each in series.items():
            changed, blocks = known.get(key, (-1, {}))
            reading = _FreshRows(each, inner_edges, newest - OPEN, blocks if changed == each.closed_changed else {})
            for start, row in reading.sums():
                _add(sums, _window_mask(start, windows, fresh=True), kind_of(key), row)
            self._blocks[key] = (each.closed_changed, reading.used)
        return {mask: {kind: merged(rows) for kind, rows in by_kind.items()} for mask, by_kind in sums.items()}


class _FreshRows:
    """The fresh rows of one series, by blocks in which all lie in the same windows.

    Args:
        series: The series.
        inner_edges: The edges of windows that lie inside of the longest blocks.
        closed: Rows that ended before this time grow no more, seconds since the epoch.
        known: The sums of blocks that were made before.

    Attributes:
        used: The sums of blocks that were used.
    """

    def __init__(self, series: WindowSeries, inner_edges: Sequence[float], closed: float, known: _Blocks) -> None:
        self.used: _Blocks = {}
        self._rows, self._inner_edges, self._closed, self._known = series.fresh, inner_edges, closed, known

    def sums(self) -> Iterator[tuple[int, WindowBucket]]:
        """The start of each block and the sum of its rows."""
        yield from self._divided(list(self._rows), 0)

    def _divided(self, starts: Sequence[int], level: int) -> Iterator[tuple[int, WindowBucket]]:
        """The blocks of rows, of the length of a level or shorter where an edge lies inside."""
        length, by_block = BLOCKS[level], dict[int, list[int]]()
        for start in starts:
            by_block.setdefault(start // length * length, []).append(start)
        for block, inside in by_block.items():
            if len(inside) == 1:
                yield inside[0], self._rows[inside[0]]
            elif block + length <= self._closed and not self._is_cut(block, length):
                yield block, self._sum(block, length, inside)
            else:
                yield from self._divided(inside, level + 1)

    def _is_cut(self, block: int, length: int) -> bool:
        return any(block < edge < block + length for edge in self._inner_edges)

    def _sum(self, block: int, length: int, starts: Sequence[int]) -> WindowBucket:
        total = self._known.get((length, block))
        if total is None:
            total = _added([self._rows[start] for start in starts])
        self.used[length, block] = total
        return total


def _window_mask(start: int, windows: Sequence[Window], *, fresh: bool = False) -> int:
    """The windows that a row is in, as a bit mask."""
    mask = 0
    for place, window in enumerate(windows):
        aligned = start // window.step * window.step if fresh else start
        if window.begin <= aligned < window.end:
            mask |= 1 << place
    return mask


def _folded_sums(series: Mapping[SeriesKey, WindowSeries], windows: Sequence[Window]) -> Sums:
    """The sums of folded and older rows of several series, each row added once."""
    sums: _Parts = {}
    unbounded_mask = sum(1 << place for place, window in enumerate(windows) if window.span is None)
    for key, each in series.items():
        kind = kind_of(key)
        if each.past.count:
            _add(sums, unbounded_mask, kind, each.past)
        for start, row in each.folded.items():
            _add(sums, _window_mask(start, windows), kind, row)
    return {mask: {kind: _added(rows) for kind, rows in by_kind.items()} for mask, by_kind in sums.items()}


def _add(sums: _Parts, mask: int, kind: Kind, row: WindowBucket) -> None:
    if mask:
        sums.setdefault(mask, {}).setdefault(kind, []).append(row)


def _added(rows: Sequence[WindowBucket]) -> WindowBucket:
    """A new row with the counts of several."""
    total = WindowBucket()
    for row in rows:
        total.merge(row)
    return total


def merged(rows: Sequence[WindowBucket]) -> WindowBucket:
    """The sum of rows. It is for reading alone: where there is one row, it is that row and no copy."""
    return rows[0] if len(rows) == 1 else _added(rows)


def rows_of_window(sums: Sums, place: int) -> Rows:
    """The rows of one window by kind; they are for reading alone."""
    window_rows: dict[Kind, list[WindowBucket]] = {}
    for mask, rows in sums.items():
        if mask >> place & 1:
            for kind, row in rows.items():
                window_rows.setdefault(kind, []).append(row)
    return {kind: merged(parts) for kind, parts in window_rows.items()}
