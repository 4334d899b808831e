"""Windows: the sums of buckets over spans of time, and gold items in them, kept up from one reading to the next.

An answer to a gold item is right where a question that can be answered is answered with a citation of a gold document,
and any other is refused: the outcomes `OK` and `REFUSAL_OK` of a report. Whether it was is not known where citations
were not captured, or where gold names no document ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from operator import add, sub
from typing import Final, Literal, NamedTuple

from ragmon.core.constants import HOUR, IGNORABLE, LABEL
from ragmon.core.gold_item import HAS_GOLD_IDS
from ragmon.metrics.facts import CITATIONS_MISSING, HITS, OUTCOME_UNKNOWN, REFUSED, SHIPPED, Facts, Key
from ragmon.scoring.buckets import Bucket, ItemTable, Series, SeriesKey, State, Table, edges, grid, merged
from ragmon.scoring.score_table import ScoreTable
from ragmon.stats.histograms import MICRO


class Kind(NamedTuple):
    """The key by which the buckets of a group are kept apart."""

    gold: str
    gold_version: str
    stratum: str
    drawn: bool


def kind_of(key: SeriesKey) -> Kind:
    """The kind of a series."""
    return Kind(key.gold, key.gold_version, key.stratum, key.drawn)


@dataclass
class Window:
    """A window that ends at a given moment."""

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

    def holds(self, start: int, *, fresh: bool = False) -> bool:
        """Whether a bucket is in it, by the start of its step; fresh ones are aligned to the window's grid."""
        return self.begin <= (start // self.step * self.step if fresh else start) < self.end


Sums = dict[int, dict[Kind, Bucket]]
"""Buckets by bit mask of the windows they are in, and by kind: each bucket is added once."""


class WindowSums:
    """The sums of a group of series over windows; folded and older buckets are summed up again only if they changed."""

    def __init__(self) -> None:
        self._folded: tuple[object, Sums] = (None, {})

    def read(self, series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> list[dict[Kind, Bucket]]:
        """The buckets of each window by kind, for reading alone."""
        cache_key = (
            max(each.old_changed for each in series.values()),
            tuple(series),
            [(window.begin, window.end) for window in windows],
        )
        if self._folded[0] != cache_key:
            folded: Sums = {}
            unbounded = sum(1 << index for index, window in enumerate(windows) if window.span is None)
            for key, each in series.items():
                if each.past.count:
                    _add(folded, unbounded, kind_of(key), each.past)
                for start, bucket in each.folded.items():
                    mask = sum(1 << index for index, window in enumerate(windows) if window.holds(start))
                    _add(folded, mask, kind_of(key), bucket)
            self._folded = (cache_key, folded)
        sums: Sums = {}
        for key, each in series.items():
            for start, bucket in each.fresh.items():
                mask = sum(1 << index for index, window in enumerate(windows) if window.holds(start, fresh=True))
                _add(sums, mask, kind_of(key), bucket)
        found: list[dict[Kind, list[Bucket]]] = [{} for _ in windows]
        for mask, by_kind in (*self._folded[1].items(), *sums.items()):
            for index, of_window in enumerate(found):
                if mask >> index & 1:
                    for kind, bucket in by_kind.items():
                        of_window.setdefault(kind, []).append(bucket)
        return [{kind: merged(parts) for kind, parts in of_window.items()} for of_window in found]


def _add(sums: Sums, mask: int, kind: Kind, bucket: Bucket) -> None:
    if mask:
        sums.setdefault(mask, {}).setdefault(kind, Bucket()).merge(bucket)


Cluster = tuple[int, float, int]
"""The scores of an item in one metric: how many are known, their sum, and how many are unknown."""
Clusters = Mapping[Cluster, int]
"""How many gold items have equal scores."""


class ItemSums(NamedTuple):
    """The scores of one gold item, or of another cluster of requests.

    Attributes:
        total: The sum of their scores in micro-units.
        unknown: Requests without a score, whose reason may depend on the outcome.
    """

    n: int = 0
    total: int = 0
    unknown: int = 0

    def mean(self, unknown: int | None = None) -> float | None:
        """The mean score; requests whose score is unknown count with the given score. None where nothing counts."""
        if unknown is None:
            return self.total / (self.n * MICRO) if self.n else None
        n = self.n + self.unknown
        return (self.total + unknown * self.unknown * MICRO) / (n * MICRO) if n else None

    def cluster(self) -> Cluster | None:
        """The scores as a cluster; None where the item is in no denominator."""
        return (self.n, self.total / MICRO, self.unknown) if self.n or self.unknown else None


def item_sums(table: ScoreTable, facts: Mapping[Key, int], index: int) -> ItemSums:
    """The scores of a gold item, of which facts were counted, in the metric with an index in the table."""
    n = total = unknown = 0
    for key, count in facts.items():
        score = table.scores(key)[index]
        if isinstance(score, int):
            n += count
            total += count * score
        elif score is not None and score not in IGNORABLE:
            unknown += count
    return ItemSums(n, total, unknown)


def clusters_of(table: ScoreTable, items: Table, metric: str) -> Clusters:
    """How many items of a table have equal scores in a metric."""
    index = list(table.metrics).index(metric)
    sums = (item_sums(table, facts, index).cluster() for facts in items.values())
    return Counter(cluster for cluster in sums if cluster is not None)


_Position = tuple[SeriesKey, Literal["step", "hour", "past"], int]
"""Which table of items of a series."""
_Scores = tuple[int, ...]
"""The requests of an item, and of each gated metric the numbers of `ItemSums`, one after the other."""
_SIZE: Final = len(ItemSums._fields)
MEMORY: Final = 65_536
"""Facts with their numbers of requests whose scores are cached: most items have the same few."""


@dataclass
class _ItemWindow:
    """The items of one window.

    Attributes:
        tables: The scores of the tables that it holds, as they were added.
    """

    tables: dict[_Position, dict[str, _Scores]] = field(default_factory=dict)
    items: dict[str, _Scores] = field(default_factory=dict)
    clusters: list[Counter[Cluster]] = field(default_factory=list)

    def change(self, changed: Mapping[str, _Scores]) -> None:
        nothing = (0,) * (1 + _SIZE * len(self.clusters))
        moved: Counter[_Scores] = Counter()  # most items have the same few scores
        for qid, scores in changed.items():
            moved[self.items.get(qid, nothing)] -= 1
            moved[scores] += 1
            if scores[0]:
                self.items[qid] = scores
            else:
                self.items.pop(qid, None)
        for scores, n in moved.items():
            for number, clusters in enumerate(self.clusters):
                start = 1 + number * _SIZE
                cluster = ItemSums(*scores[start : start + _SIZE]).cluster()
                if cluster is not None and n:
                    clusters[cluster] += n
                    if not clusters[cluster]:
                        del clusters[cluster]


class ItemWindows:
    """The items of the series of one gold set, by window.

    From one reading to the next a step enters a window, one leaves it, and the newest ones grow: of a set of many
    thousand items, only those in these tables are added up again.

    Args:
        gated: The metrics whose scores are kept by item; those measured on text are not.
    """

    def __init__(self, table: ScoreTable, gated: Iterable[str]) -> None:
        metrics, wanted = enumerate(table.metrics.items()), set(gated)
        self._indexes = {name: index for index, (name, metric) in metrics if name in wanted and not metric.measured}
        self._table = table
        self._scores: dict[_Position, tuple[int, dict[str, _Scores]]] = {}
        self._windows: dict[tuple[int, str], _ItemWindow] = {}
        self._known: dict[tuple[Key, int], _Scores] = {}

    def clusters(self, window: tuple[int, str]) -> dict[str, Clusters]:
        """How many items of a window, given by its index and name, have equal scores, by gated metric."""
        return {name: dict(counts) for name, counts in zip(self._indexes, self._windows[window].clusters, strict=True)}

    def traced(self, window: tuple[int, str]) -> int:
        """How many items of a window were asked."""
        return len(self._windows[window].items)

    def read(self, series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> None:
        """Bring the windows up to date; what is known of windows that are not asked for is dropped."""
        known, self._scores = self._scores, {}
        for key, each in series.items():
            kinds: dict[Literal["step", "hour", "past"], dict[int, ItemTable]]
            kinds = {"step": each.item_steps, "hour": each.item_hours, "past": {0: each.past_items}}
            for kind, tables in kinds.items():
                for start, table in tables.items():
                    same = known.get((key, kind, start))
                    if same is None or same[0] != table.n:
                        same = table.n, self._scores_of(table)
                    self._scores[key, kind, start] = same
        before, self._windows = self._windows, {}
        # Windows of several moments have one name, so their index in the list tells them apart.
        for index, window in enumerate(windows):
            held = {}
            for position, (_, scores) in self._scores.items():
                _, kind, start = position
                if kind == "step":
                    is_inside = window.begin <= start < window.end
                else:  # of longer windows, hours that overlap them are in them whole
                    is_inside = kind == "hour" and (window.span or 0) > HOUR
                    is_inside = is_inside and (start + 1) * HOUR > window.begin and start * HOUR < window.end
                if window.span is None or is_inside:
                    held[position] = scores
            name = (index, window.name)
            item_window = before.get(name) or _ItemWindow(clusters=[Counter() for _ in self._indexes])
            self._windows[name] = item_window
            changed: dict[str, _Scores] = {}
            come = [table for position, table in held.items() if item_window.tables.get(position) is not table]
            left = [table for position, table in item_window.tables.items() if held.get(position) is not table]
            for operator, moved in ((add, come), (sub, left)):
                for of_items in moved:
                    for qid, own in of_items.items():
                        so_far = changed.get(qid) or item_window.items.get(qid)
                        changed[qid] = own if so_far is None else tuple(map(operator, so_far, own))
            item_window.tables = held
            item_window.change(changed)

    def _scores_of(self, table: ItemTable) -> dict[str, _Scores]:
        found, known = {}, self._known
        for qid, facts in table.facts.items():
            parts = []
            for key, n in facts.items():
                scores = known.get((key, n))
                if scores is None:
                    sums = (item_sums(self._table, {key: n}, index) for index in self._indexes.values())
                    scores = (n, *(number for of_metric in sums for number in of_metric))
                    if len(known) >= MEMORY:
                        known.clear()
                    known[key, n] = scores
                parts.append(scores)
            found[qid] = parts[0] if len(parts) == 1 else tuple(map(sum, zip(*parts, strict=True)))
        return found


RIGHT: Final = ("OK", "REFUSAL_OK")
_KNOWN_KEYS: Final = 16_384
"""Facts whose outcome is cached: many items have the same few."""


def item_outcome(observed: Facts) -> str:
    """The outcome of one request of a gold question, in the terms of seed 002's report.

    >>> item_outcome(Facts(0))
    'NO_ANSWER'
    """
    shipped, refused, hit = observed.has(SHIPPED), observed.has(REFUSED), observed.has(HITS)
    if not (shipped or refused):
        return "NO_ANSWER"
    if observed.answerable:
        return "OVER_REFUSAL" if refused else "OK" if hit else "ANS_NO_HIT"
    return "REFUSAL_OK" if refused else "HALLUCINATION"


@lru_cache(_KNOWN_KEYS)
def is_right(key: Key) -> bool | None:
    """Whether a request of a gold question was answered rightly; None where that is not known."""
    observed = Facts._make(key)
    outcome = item_outcome(observed)
    if outcome == "NO_ANSWER" and observed.has(OUTCOME_UNKNOWN):
        return None
    if outcome == "ANS_NO_HIT" and (not observed.has(HAS_GOLD_IDS) or observed.has(CITATIONS_MISSING)):
        return None
    return outcome in RIGHT


class ItemPoint(NamedTuple):
    """The answers to a gold item in one step or hour.

    Attributes:
        begin, end: Its edges, seconds since the epoch; both are -1 for requests whose time is not known.
        right, wrong: Answers that were right, and others.
        unknown: Answers of which neither is known.
    """

    begin: int
    end: int
    right: int = 0
    wrong: int = 0
    unknown: int = 0


class SetPipeline(NamedTuple):
    """A gold set in force, and a pipeline that was asked its questions."""

    gold: str
    version: str
    pipeline: str


ItemPoints = dict[str, list[ItemPoint]]
"""The answers to each item; several points may have the same time."""


def set_pipelines(state: State) -> set[SetPipeline]:
    """The gold sets that pipelines were asked, in all versions."""
    return {SetPipeline(key.gold, key.gold_version, key.pipeline) for key in state.series if key.gold_version}


def item_tables(state: State, asked: SetPipeline) -> list[tuple[int, int, Table]]:
    """The tables of the items of a set, of every source and build, with the start and the end of their step or hour.

    They are of audit members, as `ragmon_gold_items_seen` is, and are not copied.
    """
    return [
        timed
        for key, series in state.series.items()
        if (key.gold, key.gold_version, key.pipeline) == asked and key.drawn and not key.slice and key.source != LABEL
        for timed in series.timed_items()
    ]


def add_points(found: ItemPoints, begin: int, end: int, table: Table) -> None:
    """Add the answers of the table of a step or hour to those of each item; both edges are -1 without a time."""
    for qid, counts in table.items():
        right = wrong = unknown = 0
        for key, n in counts.items():
            verdict = is_right(key)
            if verdict is None:
                unknown += n
            elif verdict:
                right += n
            else:
                wrong += n
        found.setdefault(qid, []).append(ItemPoint(begin, end, right, wrong, unknown))
