"""Gold items in windows, kept up from one reading to the next: only what changed in between is counted again.

A window is the sum of the tables of some steps and hours. From a reading to the next a step enters it, one leaves it,
and the newest ones grow; so a set of many thousand items is not summed up each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ragmon import stats
from ragmon.core.constants import HOUR, IGNORABLE
from ragmon.metrics.facts import Key
from ragmon.scoring.counts import ItemTable, Table, add_table
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.series import SeriesKey, WindowSeries
from ragmon.scoring.window_sums import Window
from ragmon.scoring.windows import grid

Cluster = tuple[int, float, int]
"""The scores of an item in one metric: how many are known, their sum, and how many are unknown."""
Clusters = Mapping[Cluster, int]
"""How many gold items have equal scores."""
MEMORY: Final = 65_536
"""Combinations of facts whose scores are cached."""
_SUMS: Final = 3
"""Packed sums of a metric: of `ItemSums`."""
_PART_BYTES: Final = 8
"""Bytes of a packed sum: of 2**42 requests with scores in [0, 1]."""
_WIDE_BYTES: Final = 144
"""The same for every score that a float can be."""
_COUNT_BITS: Final = 43
"""Bits of a packed sum that are left for the number of requests, and a sign."""


class ItemSums(NamedTuple):
    """The scores of one gold item, or of another cluster of requests.

    Attributes:
        n: Scored requests.
        total: The sum of their scores in micro-units.
        unknown: Requests without a score, whose reason may depend on the outcome.
    """

    n: int = 0
    total: int = 0
    unknown: int = 0

    def mean(self, unknown: int | None = None) -> float | None:
        """The mean score; None without a score.

        Args:
            unknown: The score, 0 or 1, of the requests whose score is unknown; None leaves them out.
        """
        if unknown is None:
            return self.total / (self.n * stats.MICRO) if self.n else None
        n = self.n + self.unknown
        return (self.total + unknown * self.unknown * stats.MICRO) / (n * stats.MICRO) if n else None

    def cluster(self) -> Cluster | None:
        """The scores as a cluster; None where the item is in no denominator."""
        return (self.n, self.total / stats.MICRO, self.unknown) if self.n or self.unknown else None


def item_sums(table: ScoreTable, facts: Mapping[Key, int], place: int) -> ItemSums:
    """The scores of a gold item in one metric.

    Args:
        table: The metrics.
        facts: The facts counted for the item.
        place: The index of the metric in the table.
    """
    n = total = unknown = 0
    for key, count in facts.items():
        score = table.scores(key)[place]
        if isinstance(score, int):
            n += count
            total += count * score
        elif score is not None and score not in IGNORABLE:
            unknown += count
    return ItemSums(n, total, unknown)


def clusters_of(table: ScoreTable, items: Table, metric: str) -> Clusters:
    """How many items of a table have equal scores in a metric."""
    place = list(table.metrics).index(metric)
    sums = (item_sums(table, facts, place).cluster() for facts in items.values())
    return Counter(cluster for cluster in sums if cluster is not None)


_State = int
"""The requests of an item and its scores in the gated metrics, packed in one number, which adds up."""


class _Scores:
    """The scores of items in the gated metrics, packed.

    Args:
        table: The metrics.
        gated: The metrics whose scores are kept by item; those measured on text are not.
        part_bytes: The bytes of one sum in a packed number.

    Attributes:
        places: The places of these metrics in the table.
    """

    def __init__(self, table: ScoreTable, gated: Iterable[str], part_bytes: int = _PART_BYTES) -> None:
        wanted = set(gated)
        metrics = enumerate(table.metrics.values())
        self.places = {metric.key: place for place, metric in metrics if metric.key in wanted and not metric.measured}
        self._table = table
        self._part_bytes = part_bytes
        self._cache: dict[_State, tuple[_State, list[Cluster | None]]] = {}
        self._packed: dict[Key, _State] = {}

    def of(self, state: _State) -> tuple[_State, list[Cluster | None]]:
        """The one object for this state, since most items share theirs with others; and the scores by metric."""
        cached = self._cache.get(state)
        if cached is None:
            if len(self._cache) >= MEMORY:
                self._cache.clear()
            parts = self._parts(state)
            sums = map(ItemSums, parts[1::_SUMS], parts[2::_SUMS], parts[3::_SUMS])
            cached = self._cache[state] = (state, [each.cluster() for each in sums])
        return cached

    def state(self, facts: Mapping[Key, int]) -> _State:
        """The packed scores of requests by facts; a count may be less than zero."""
        total, known = 0, self._packed
        for key, n in facts.items():
            total += n * (known.get(key) or self._pack(key))
        return total

    def _parts(self, state: _State) -> Sequence[int]:
        """The requests, and of each metric the sums: `n, total, unknown`."""
        size, count = self._part_bytes, 1 + _SUMS * len(self.places)
        # A score below zero borrows from the parts above it; half of what a part holds, added to each, pays it back.
        half = 1 << 8 * size - 1
        data = (state + half * sum(1 << 8 * size * part for part in range(count))).to_bytes(size * count, "little")
        return [int.from_bytes(data[at : at + size], "little") - half for at in range(0, size * count, size)]

    def _pack(self, key: Key) -> _State:
        """The packed scores of one request.

        Raises:
            _TooLargeError: A metric breaks the law of [0, 1] so far that a part would not hold the sum of its scores.
        """
        if len(self._packed) >= MEMORY:
            self._packed.clear()
        scores, bits = self._table.scores(key), 8 * self._part_bytes
        packed = 1
        for lane, place in enumerate(self.places.values()):
            score = scores[place]
            if isinstance(score, int):
                if score.bit_length() > bits - _COUNT_BITS:
                    raise _TooLargeError
                packed += (1 + (score << bits)) << (1 + _SUMS * lane) * bits
            elif score is not None and score not in IGNORABLE:
                packed += 1 << (3 + _SUMS * lane) * bits
        self._packed[key] = packed
        return packed


class _TooLargeError(Exception):
    """A score is too large to be packed with others."""


_Place = tuple[SeriesKey, Literal["step", "hour", "whole"], int]
"""A table of a series: its step, or its hour."""


class _Seen(NamedTuple):
    """A table as it was at the last reading.

    Attributes:
        table: The table itself.
        n: The requests it had.
        copy: What it held; None for an hour or older, whose table changes only where steps are folded into it.
    """

    table: ItemTable
    n: int
    copy: Table | None


class _ItemWindow:
    """The items of one window.

    Attributes:
        places: The tables that are in it.
        items: The state of each item.
        clusters: By gated metric, how many items have equal scores.
    """

    def __init__(self, scores: _Scores) -> None:
        self.places: set[_Place] = set()
        self.items: dict[str, _State] = {}
        self.clusters: dict[str, Counter[Cluster]] = {name: Counter() for name in scores.places}
        self._scores = scores
        self._changes: dict[str, _State] = {}

    def apply(self, table: Mapping[str, Mapping[Key, int]], sign: int) -> None:
        """Add a table, or take one away."""
        changes, state = self._changes, self._scores.state
        for qid, facts in table.items():
            changes[qid] = changes.get(qid, 0) + sign * state(facts)

    def settle(self) -> None:
        """Count the items anew that changed."""
        items, moved = self.items, dict[_State, int]()
        for qid, change in self._changes.items():
            if not change:
                continue
            before = items.get(qid, 0)
            after = self._scores.of(before + change)[0]
            moved[before] = moved.get(before, 0) - 1
            moved[after] = moved.get(after, 0) + 1
            if after:
                items[qid] = after
            else:
                del items[qid]
        for state, n in moved.items():
            if n:
                for counter, cluster in zip(self.clusters.values(), self._scores.of(state)[1], strict=True):
                    _count(counter, cluster, n)
        self._changes = {}


def _count(counter: Counter[Cluster], cluster: Cluster | None, n: int) -> None:
    if cluster is not None:
        counter[cluster] += n
        if not counter[cluster]:
            del counter[cluster]


class ItemWindows:
    """The items of the series of one gold set, by window.

    Args:
        table: The metrics.
        gated: The metrics whose scores are kept by item.
    """

    def __init__(self, table: ScoreTable, gated: Iterable[str]) -> None:
        self._table, self._gated = table, tuple(gated)
        self._scores = _Scores(table, self._gated)
        self._seen: dict[_Place, _Seen] = {}
        self._windows: dict[tuple[int, str], _ItemWindow] = {}

    def clusters(self, window: tuple[int, str]) -> dict[str, Clusters]:
        """How many items of a window, given by its place and name, have equal scores, by gated metric."""
        return {name: dict(counter) for name, counter in self._windows[window].clusters.items()}

    def traced(self, window: tuple[int, str]) -> int:
        """How many items of a window were asked."""
        return len(self._windows[window].items)

    def read(self, series: Mapping[SeriesKey, WindowSeries], windows: Sequence[Window]) -> None:
        """Bring the windows up to date.

        Args:
            series: The series.
            windows: All windows that are asked for; what is known of others is dropped.
        """
        try:
            self._read(dict(_tables(series)), windows)
        except _TooLargeError:
            self._scores = _Scores(self._table, self._gated, _WIDE_BYTES)
            self._seen, self._windows = {}, {}
            self._read(dict(_tables(series)), windows)

    def _read(self, tables: dict[_Place, ItemTable], windows: Sequence[Window]) -> None:
        changes = self._changes(tables)
        known = {} if changes is None else self._windows
        # Windows of several moments have one name, so their place in the list tells them apart.
        named = {(place, window.name): window for place, window in enumerate(windows)}
        self._windows = {name: known.get(name) or _ItemWindow(self._scores) for name in named}
        for name, window in named.items():
            items = self._windows[name]
            places = {place for place in tables if _holds(window, place)}
            self._move(items, places, changes or {})
            for place in places - items.places:
                items.apply(tables[place], 1)
            items.places = places
            items.settle()
        self._remember(tables)

    def _move(self, items: _ItemWindow, places: set[_Place], changes: Mapping[_Place, Table]) -> None:
        """Take away what left a window, and add what changed in it."""
        for place in items.places - places:
            seen = self._seen[place]
            items.apply(seen.table if seen.copy is None else seen.copy, -1)
            if seen.copy is None and place in changes:  # the table has what the window never had
                items.apply(changes[place], 1)
        for place in items.places & changes.keys() & places:
            items.apply(changes[place], 1)

    def _changes(self, tables: Mapping[_Place, ItemTable]) -> dict[_Place, Table] | None:
        """What changed in tables since the last reading, where it did; None where that cannot be told."""
        changes: dict[_Place, Table] = {}
        folded: dict[_Place, list[Table]] = {}
        for place, seen in self._seen.items():
            table = tables.get(place)
            if seen.copy is None:
                continue
            if table is None:
                key, _, start = place
                folded.setdefault((key, "hour", start // HOUR), []).append(seen.copy)
            elif table is not seen.table or table.n != seen.n:
                changes[place] = _difference(table, seen.copy)
        for place, seen in self._seen.items():
            if seen.copy is not None:
                continue
            moved = folded.get(place, [])
            if seen.table.n != seen.n + sum(map(_requests, moved)) or tables.get(place, seen.table) is not seen.table:
                return None
            if moved:
                changes[place] = {}
                for copied in moved:
                    add_table(changes[place], copied)
        return changes

    def _remember(self, tables: Mapping[_Place, ItemTable]) -> None:
        """Note what the tables hold now; those of steps are copied, because they may still change."""
        remembered: dict[_Place, _Seen] = {}
        for place, table in tables.items():
            seen = self._seen.get(place)
            if seen is None or seen.table is not table or seen.n != table.n:
                copied = {qid: dict(facts) for qid, facts in table.items()} if place[1] == "step" else None
                seen = _Seen(table, table.n, copied)
            remembered[place] = seen
        self._seen = remembered


def _tables(series: Mapping[SeriesKey, WindowSeries]) -> Iterator[tuple[_Place, ItemTable]]:
    """The tables of series with their places."""
    for key, window_series in series.items():
        items = window_series.items
        for step, table in items.steps.items():
            yield (key, "step", step), table
        for hour, table in items.hours.items():
            yield (key, "hour", hour), table
        yield (key, "whole", 0), items.whole


def _holds(window: Window, place: _Place) -> bool:
    """Whether a table is in a window; of longer windows, hours that overlap them are in them whole."""
    if window.span is None:
        return True
    _, kind, start = place
    _, end = grid(window.span, window.now)
    begin = max(0, end - window.span)
    if kind == "step":
        return begin <= start < end
    return kind == "hour" and window.span > HOUR and (start + 1) * HOUR > begin and start * HOUR < end


def _difference(table: Table, earlier: Table) -> Table:
    """What has to be added to an earlier table."""
    changes: Table = {}
    for qid in table.keys() | earlier.keys():
        after, before = table.get(qid, {}), earlier.get(qid, {})
        if after != before:
            changes[qid] = {key: after.get(key, 0) - before.get(key, 0) for key in after.keys() | before.keys()}
    return changes


def _requests(table: Table) -> int:
    return sum(sum(facts.values()) for facts in table.values())
