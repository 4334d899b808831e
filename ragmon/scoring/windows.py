"""Windows: the sums of buckets over spans of time, and gold items in them, kept up from one reading to the next.

An answer to a gold item is right where a question that can be answered is answered with a citation of a gold document,
and any other is refused: the outcomes `OK` and `REFUSAL_OK` of a report. Whether it was is not known where citations
were not captured, or where gold names no document ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
            self._folded = (cache_key, _folded_sums(series, windows))
        sums: Sums = {}
        for key, each in series.items():
            for start, bucket in each.fresh.items():
                mask = sum(1 << place for place, window in enumerate(windows) if window.holds(start, fresh=True))
                _add(sums, mask, kind_of(key), bucket)
        found: list[dict[Kind, list[Bucket]]] = [{} for _ in windows]
        for mask, by_kind in (*self._folded[1].items(), *sums.items()):
            for place, of_window in enumerate(found):
                if mask >> place & 1:
                    for kind, bucket in by_kind.items():
                        of_window.setdefault(kind, []).append(bucket)
        return [{kind: merged(parts) for kind, parts in of_window.items()} for of_window in found]


def _folded_sums(series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> Sums:
    """The sums of folded and older buckets."""
    sums: Sums = {}
    unbounded = sum(1 << place for place, window in enumerate(windows) if window.span is None)
    for key, each in series.items():
        kind = kind_of(key)
        if each.past.count:
            _add(sums, unbounded, kind, each.past)
        for start, bucket in each.folded.items():
            _add(sums, sum(1 << place for place, window in enumerate(windows) if window.holds(start)), kind, bucket)
    return sums


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
            return self.total / (self.n * MICRO) if self.n else None
        n = self.n + self.unknown
        return (self.total + unknown * self.unknown * MICRO) / (n * MICRO) if n else None

    def cluster(self) -> Cluster | None:
        """The scores as a cluster; None where the item is in no denominator."""
        return (self.n, self.total / MICRO, self.unknown) if self.n or self.unknown else None


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


_Place = tuple[SeriesKey, Literal["step", "hour", "past"], int]
"""A table of a series: its step, or its hour."""
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
        items: The scores of each item.
        clusters: By gated metric, how many items have equal scores.
    """

    tables: dict[_Place, dict[str, _Scores]] = field(default_factory=dict)
    items: dict[str, _Scores] = field(default_factory=dict)
    clusters: list[Counter[Cluster]] = field(default_factory=list)


class ItemWindows:
    """The items of the series of one gold set, by window.

    From one reading to the next a step enters a window, one leaves it, and the newest ones grow: of a set of many
    thousand items, only those in these tables are added up again.

    Args:
        table: The metrics.
        gated: The metrics whose scores are kept by item; those measured on text are not.
    """

    def __init__(self, table: ScoreTable, gated: Iterable[str]) -> None:
        metrics, wanted = enumerate(table.metrics.items()), set(gated)
        self._places = {name: place for place, (name, metric) in metrics if name in wanted and not metric.measured}
        self._table = table
        self._scores: dict[_Place, tuple[int, dict[str, _Scores]]] = {}
        self._windows: dict[tuple[int, str], _ItemWindow] = {}
        self._known: dict[tuple[Key, int], _Scores] = {}

    def clusters(self, window: tuple[int, str]) -> dict[str, Clusters]:
        """How many items of a window, given by its place and name, have equal scores, by gated metric."""
        return {name: dict(counts) for name, counts in zip(self._places, self._windows[window].clusters, strict=True)}

    def traced(self, window: tuple[int, str]) -> int:
        """How many items of a window were asked."""
        return len(self._windows[window].items)

    def read(self, series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> None:
        """Bring the windows up to date.

        Args:
            series: The series.
            windows: All windows that are asked for; what is known of others is dropped.
        """
        known, self._scores = self._scores, {}
        for place, table in _tables(series):
            same = known.get(place)
            self._scores[place] = same if same is not None and same[0] == table.n else (table.n, self._score(table))
        before, self._windows = self._windows, {}
        # Windows of several moments have one name, so their place in the list tells them apart.
        for number, window in enumerate(windows):
            held = {place: scores for place, (_, scores) in self._scores.items() if _holds(window, place)}
            name = (number, window.name)
            self._windows[name] = before.get(name) or _ItemWindow(clusters=[Counter() for _ in self._places])
            self._move(self._windows[name], held)

    def _score(self, table: ItemTable) -> dict[str, _Scores]:
        """The scores of each item of a table."""
        found, known = {}, self._known
        for qid, facts in table.facts.items():
            parts = []
            for key, n in facts.items():
                scores = known.get((key, n))
                if scores is None:
                    places, counts = self._places.values(), {key: n}
                    scores = (n, *(part for place in places for part in item_sums(self._table, counts, place)))
                    if len(known) >= MEMORY:
                        known.clear()
                    known[key, n] = scores
                parts.append(scores)
            found[qid] = parts[0] if len(parts) == 1 else tuple(map(sum, zip(*parts, strict=True)))
        return found

    def _move(self, window: _ItemWindow, held: dict[_Place, dict[str, _Scores]]) -> None:
        """Let a window hold other tables."""
        changed: dict[str, _Scores] = {}
        nothing = (0,) * (1 + _SIZE * len(self._places))
        come = [scores for place, scores in held.items() if window.tables.get(place) is not scores]
        left = [scores for place, scores in window.tables.items() if held.get(place) is not scores]
        for operator, tables in ((add, come), (sub, left)):
            for scores_of in tables:
                for qid, scores in scores_of.items():
                    known = changed.get(qid) or window.items.get(qid)
                    changed[qid] = scores if known is None else tuple(map(operator, known, scores))
        window.tables = held
        moved: Counter[_Scores] = Counter()  # most items have the same few scores
        for qid, scores in changed.items():
            moved[window.items.get(qid, nothing)] -= 1
            moved[scores] += 1
            if scores[0]:
                window.items[qid] = scores
            else:
                window.items.pop(qid, None)
        for scores, n in moved.items():
            for number, clusters in enumerate(window.clusters):
                start = 1 + number * _SIZE
                cluster = ItemSums(*scores[start : start + _SIZE]).cluster()
                if cluster is not None and n:
                    clusters[cluster] += n
                    if not clusters[cluster]:
                        del clusters[cluster]


def _tables(series: Mapping[SeriesKey, Series]) -> Iterator[tuple[_Place, ItemTable]]:
    """The tables of series with their places."""
    for key, each in series.items():
        for start, table in each.item_steps.items():
            yield (key, "step", start), table
        for hour, table in each.item_hours.items():
            yield (key, "hour", hour), table
        yield (key, "past", 0), each.past_items


def _holds(window: Window, place: _Place) -> bool:
    """Whether a table is in a window; of longer windows, hours that overlap them are in them whole."""
    _, kind, start = place
    if window.span is None:
        return True
    if kind == "step":
        return window.begin <= start < window.end
    is_overlapping = (start + 1) * HOUR > window.begin and start * HOUR < window.end
    return kind == "hour" and window.span > HOUR and is_overlapping


RIGHT: Final = ("OK", "REFUSAL_OK")
"""The outcomes of right answers."""
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

    Args:
        state: The counts.
        asked: The set and the pipeline.
    """
    return [
        timed
        for key, series in state.series.items()
        if (key.gold, key.gold_version, key.pipeline) == asked and key.drawn and not key.slice and key.source != LABEL
        for timed in series.timed_items()
    ]


def add_points(found: ItemPoints, begin: int, end: int, table: Table) -> None:
    """Add the answers of a table to those of each item.

    Args:
        found: What is added to.
        begin: The start of the table's step or hour, seconds since the epoch; -1 where it has none.
        end: Its end, likewise.
        table: The table.
    """
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
