"""Gold items in windows, kept up from one reading to the next: only what changed in between is counted again.

A window is the sum of the tables of some steps and hours. From a reading to the next a step enters it, one leaves it,
and the newest ones grow; so a set of many thousand items is not summed up each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
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


_LANE: Final = "LQL"
"""The scores of a metric in 16 bytes: how many are known, their sum in micro-units, and how many are unknown."""
_Facts = tuple[tuple[Key, int], ...]
"""The facts counted for an item, sorted: most items share theirs with others."""


class _Scores:
    """The scores of items in the gated metrics, cached by their facts.

    Args:
        table: The metrics.
        gated: The metrics whose scores are kept by item; those measured on text are not.
    """

    def __init__(self, table: ScoreTable, gated: Iterable[str]) -> None:
        wanted = set(gated)
        metrics = enumerate(table.metrics.values())
        self.places = {metric.key: place for place, metric in metrics if metric.key in wanted and not metric.measured}
        self._table = table
        self._lanes = Struct("<" + len(self.places) * _LANE)
        self._packed: dict[Key, int | None] = {}
        self._cache: dict[_Facts, tuple[_Facts, list[Cluster | None]]] = {}

    def of(self, facts: _Facts) -> tuple[_Facts, list[Cluster | None]]:
        """The one tuple for these facts, and the scores by metric."""
        cached = self._cache.get(facts)
        if cached is None:
            if len(self._cache) >= MEMORY:
                self._cache.clear()
            cached = self._cache[facts] = (facts, self._clusters(facts))
        return cached

    def _clusters(self, facts: _Facts) -> list[Cluster | None]:
        """The scores by metric: those of all metrics are one number, which adds up."""
        total = 0
        for key, count in facts:
            packed = self._packed[key] if key in self._packed else self._pack(key)
            if packed is None:
                counts = dict(facts)
                return [item_sums(self._table, counts, place).cluster() for place in self.places.values()]
            total += count * packed
        lanes = iter(self._lanes.unpack(total.to_bytes(self._lanes.size, "little")))
        return [ItemSums(*lane).cluster() for lane in zip(lanes, lanes, lanes, strict=True)]

    def _pack(self, key: Key) -> int | None:
        """The scores of facts as one number; None where a metric breaks its law and has one outside of [0, 1]."""
        if len(self._packed) >= MEMORY:
            self._packed.clear()
        scores, lanes = self._table.scores(key), []
        for place in self.places.values():
            score = scores[place]
            if isinstance(score, int):
                lanes += [1, score, 0]
            else:
                lanes += [0, 0, int(score is not None and score not in IGNORABLE)]
        in_bounds = all(0 <= score <= stats.MICRO for score in lanes)
        self._packed[key] = int.from_bytes(self._lanes.pack(*lanes), "little") if in_bounds else None
        return self._packed[key]


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
        items: The facts of each item.
        clusters: By gated metric, how many items have equal scores.
    """

    def __init__(self, scores: _Scores) -> None:
        self.places: set[_Place] = set()
        self.items: dict[str, _Facts] = {}
        self.clusters: dict[str, Counter[Cluster]] = {name: Counter() for name in scores.places}
        self._scores = scores
        self._changes: Table = {}

    def apply(self, table: Mapping[str, Mapping[Key, int]], sign: int) -> None:
        """Add a table, or take one away."""
        for qid, facts in table.items():
            changes = self._changes.setdefault(qid, {})
            for key, n in facts.items():
                changes[key] = changes.get(key, 0) + sign * n

    def settle(self) -> None:
        """Count the items anew that changed."""
        counters = list(self.clusters.values())
        for qid, changes in self._changes.items():
            before = self.items.get(qid, ())
            counts = dict(before)
            for key, n in changes.items():
                counts[key] = counts.get(key, 0) + n
            after, clusters = self._scores.of(tuple(sorted((key, n) for key, n in counts.items() if n)))
            if after == before:
                continue
            for counter, cluster in zip(counters, self._scores.of(before)[1], strict=True):
                _count(counter, cluster, -1)
            for counter, cluster in zip(counters, clusters, strict=True):
                _count(counter, cluster, 1)
            if after:
                self.items[qid] = after
            else:
                del self.items[qid]
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
        self._scores = _Scores(table, gated)
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
        tables = dict(_tables(series))
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
