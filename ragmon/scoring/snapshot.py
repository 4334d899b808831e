"""Snapshots: the metrics of every series and window at one moment, immutable; and histories of such moments.

An answer to a gold item is right where a question that can be answered is answered with a citation of a gold document,
and any other is refused. Whether it was is not known where citations were not captured, or gold names no document ids.

Series are read group by group, and what did not change since the last snapshot is not read again. A point of a history
is a window like any other, so it has the value and the interval that a gate would have had then; late records count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from math import inf, isfinite
from operator import add, sub
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import (
    ALL_CALLS,
    ALSO_LIVE_SOURCES,
    BUCKET_SECONDS,
    DROPPED_PIPELINES,
    EXPORTED_TRAFFIC,
    FOLDED_SECONDS,
    HOUR,
    IGNORABLE,
    LABEL,
    LIVE,
    UNKNOWN_WEIGHT,
)
from ragmon.core.gold_item import HAS_GOLD_IDS, GoldItem
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.facts import (
    CITATIONS_MISSING,
    CITES_ALIKE,
    HITS,
    IDS,
    OUTCOME_UNKNOWN,
    REFUSED,
    SHIPPED,
    Facts,
    Key,
)
from ragmon.scoring.buckets import (
    MODEL_SLICE,
    Bucket,
    CallKey,
    Count,
    ItemTable,
    Series,
    SeriesKey,
    State,
    Table,
    by_stratum,
    edges,
    grid,
    merged,
    sampled_calls,
)
from ragmon.scoring.captured import AlikeIds
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.stats.histograms import MICRO
from ragmon.stats.strata import Estimate


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


_MaskedBuckets = dict[int, dict[Kind, Bucket]]
"""Buckets by bit mask of the windows they are in, and by kind: each bucket is added once."""


class WindowSums:
    """The sums of a group of series over windows; folded and older buckets are summed up again only if they changed."""

    def __init__(self) -> None:
        self._folded: tuple[object, _MaskedBuckets] = (None, {})

    def read(self, series: Mapping[SeriesKey, Series], windows: Sequence[Window]) -> list[dict[Kind, Bucket]]:
        """The buckets of each window by kind, for reading alone."""
        cache_key = (
            max(each.old_changed for each in series.values()),
            tuple(series),
            [(window.begin, window.end) for window in windows],
        )
        if self._folded[0] != cache_key:
            folded: _MaskedBuckets = {}
            unbounded = sum(1 << index for index, window in enumerate(windows) if window.span is None)
            for key, each in series.items():
                if each.past.count:
                    _add(folded, unbounded, kind_of(key), each.past)
                for start, bucket in each.folded.items():
                    mask = sum(1 << index for index, window in enumerate(windows) if window.holds(start))
                    _add(folded, mask, kind_of(key), bucket)
            self._folded = (cache_key, folded)
        sums: _MaskedBuckets = {}
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


def _add(sums: _MaskedBuckets, mask: int, kind: Kind, bucket: Bucket) -> None:
    if mask:
        sums.setdefault(mask, {}).setdefault(kind, Bucket()).merge(bucket)


# --- gold items in windows ------------------------------------------------------------------------------------------

Cluster = tuple[int, float, int]
"""The scores of an item in one metric: how many are known, their sum, and how many are unknown."""
Clusters = Mapping[Cluster, int]  # how many gold items have equal scores


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


_Position = tuple[SeriesKey, Literal["step", "hour", "past"], int]  # which table of items of a series
_Scores = tuple[int, ...]
"""The requests of an item, and of each gated metric the numbers of `ItemSums`, one after the other."""
_SIZE: Final = len(ItemSums._fields)
MEMORY: Final = 65_536
"""Facts with their numbers of requests whose scores are cached: most items have the same few."""


@dataclass
class _ItemWindow:
    """The items of one window."""

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
_KNOWN_KEYS: Final = 16_384  # facts whose outcome is cached: many items have the same few


def item_outcome(observed: Facts) -> str:
    """The outcome of one request of a gold question, in the terms of seed 002's report."""
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
    if outcome == "ANS_NO_HIT" and (
        not observed.has(HAS_GOLD_IDS) or observed.flags & (CITATIONS_MISSING | CITES_ALIKE)
    ):
        return None
    return outcome in RIGHT


class ItemPoint(NamedTuple):
    """The answers to a gold item in one step or hour.

    Attributes:
        begin, end: Its edges, seconds since the epoch; both are -1 for requests whose time is not known.
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


ItemPoints = dict[str, list[ItemPoint]]  # the answers to each item; several points may have the same time


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


# --- snapshots and histories ----------------------------------------------------------------------------------------

_ID: Final = re.compile(r"[0-9a-f]{32}")


class Exemplar(NamedTuple):
    """An exemplar of a latency series."""

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """The newest exemplar by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Keep the trace of a counted record that arrived now, if it was exported and its latency is known."""
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def add(self, key: tuple[str, str], exemplar: Exemplar) -> None:
        """Keep an exemplar of a pipeline and source that another process saw, if it is newer."""
        known = self._newest.get(key)
        if known is None or exemplar.ts >= known.ts:
            self._newest[key] = exemplar

    def forget(self, pipeline: str) -> None:
        """Remove the exemplars of a pipeline."""
        self._newest = {key: exemplar for key, exemplar in self._newest.items() if key[0] != pipeline}

    def newest(self) -> dict[tuple[str, str], Exemplar]:
        """The exemplars by pipeline and source."""
        return dict(self._newest)


ALL: Final = "all"


@dataclass(frozen=True)
class SeriesStats:
    """The statistics of one series over one window.

    Attributes:
        gold, gold_version: Which gold set; "" for all requests.
        clusters: For gated metrics of a gold set, how many gold items have equal scores; scores measured on text are
            not kept per item.
        end: The end of the window, seconds since the epoch, where windows of several moments are compared.
        estimates: For live traffic whose calls were all counted, the metrics over all calls, weighted by stratum; empty
            otherwise. `metrics` covers audit members only.
        of: For live traffic, the population of the numbers: all calls, or exported traffic where calls were not all
            counted.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    slice: str
    metrics: Mapping[str, Stat]
    latency: Mapping[str, Mapping[int, int]]
    clusters: Mapping[str, Clusters]
    traced: int
    records: int
    end: int | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    of: str = ""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval: over all calls where known, else over the audit members."""
        estimate = self.estimates.get(metric)
        return estimate if estimate is not None else self.metrics[metric].estimate


class Lost(NamedTuple):
    """What could not be read of files: no verdict knows how those requests were answered.

    Attributes:
        requests: Lines that may be requests.
        lines: All lines.
        latencies: Latencies of records that were read.
    """

    requests: int = 0
    lines: int = 0
    latencies: int = 0

    def __str__(self) -> str:
        return f"{self.requests} of {self.lines} lines could not be read"


@dataclass(frozen=True)
class Snapshot:
    """All series in all windows at one moment.

    Attributes:
        maturity: By pipeline, the share of the expected labels that has arrived, where known.
        matched: Audit members of live traffic that have a gold item, by pipeline and kind of match.
        gone: The series of removed pipelines, summed over all time, for totals that name no pipeline.
        strange_ids: The number of retrieved ids of each pipeline of which none ever occurred in gold.
        alike_ids: By pipeline and gold set, the ids that differ from gold ids in form alone.
        gold_sources: The pipelines and sources that ever had a gold item, or a label that stands for one.
        lost: Of a replay, what could not be read.
        vanished: By pipeline and gold set, the gold ids that are retrieved no more.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()
    maturity: Mapping[str, float] = field(default_factory=dict)
    matched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[SeriesStats, ...] = ()
    uncited: Mapping[str, int] = field(default_factory=dict)
    citing_metrics: frozenset[str] = frozenset()
    strange_ids: Mapping[str, int] = field(default_factory=dict)
    alike_ids: Mapping[tuple[str, str], AlikeIds] = field(default_factory=dict)
    comparing_metrics: frozenset[str] = frozenset()
    gold_sources: frozenset[tuple[str, str]] = frozenset()
    lost: Lost = field(default_factory=Lost)
    vanished: Mapping[tuple[str, str], Vanished] = field(default_factory=dict)

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels, None where there is none; for a gold set in use, only its current version.

        `gold` is "" for all requests, and None for the gold set with the most records; `where` is the slice.
        """
        versions = {gold.name: gold.version for gold in self.golds}
        candidates = [
            s
            for s in self._by_labels.get((pipeline, source, window, where), ())
            if (s.gold == gold if gold is not None else s.gold != "")
            and s.gold_version == versions.get(s.gold, s.gold_version)
        ]
        return max(candidates, key=lambda s: s.records, default=None)

    @cached_property
    def _by_labels(self) -> Mapping[tuple[str, str, str, str], Sequence[SeriesStats]]:
        by_labels: dict[tuple[str, str, str, str], list[SeriesStats]] = {}
        for series in self.series:
            by_labels.setdefault((series.pipeline, series.source, series.window, series.slice), []).append(series)
        return by_labels


SLACK: Final = 1.25
FEW: Final = 20
"""Records may differ from the number that producers report as kept by 25 % and 20: reports are ten seconds late."""


def take_snapshot(
    state: State,
    table: ScoreTable,
    *,
    now: float,
    windows: Mapping[str, int | None],
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
    pipelines: Collection[str] | None = None,
    reader: SeriesReader | None = None,
) -> Snapshot:
    """Take a snapshot of a state, in windows of spans in seconds by name; a span of None is everything.

    Of the pipelines, None reads all. Of gated metrics, gates need sums per item. A reader of the same state, table and
    gated metrics remembers what it read before.
    """
    reader = SeriesReader(state, table, tuple(gated)) if reader is None else reader
    reader.refresh()
    all_windows = [Window(name, span, now) for name, span in windows.items()]
    totals = [window_totals(state, span, now) for span in windows.values()]
    series: list[SeriesStats] = []
    gone: list[SeriesStats] = []
    for group, keys in reader.groups.items():
        if pipelines is not None and group.pipeline not in pipelines:
            continue
        target = gone if group.pipeline == DROPPED_PIPELINES else series
        target += chain.from_iterable(reader.read(group, keys, all_windows, totals))
    matched = {(pipeline, how): n for (pipeline, how), n in state.matched.items() if pipeline != DROPPED_PIPELINES}
    return Snapshot(
        now,
        tuple(series),
        tuple(golds),
        *_builds_and_metrics(state, table),
        matched=matched,
        gone=tuple(gone),
        uncited={pipeline: answers for pipeline, (answers, citing) in state.answers.items() if not citing},
        citing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.cites),
        strange_ids=state.captured.strange_ids(),
        alike_ids=state.captured.alike_ids(),
        comparing_metrics=frozenset(name for name, metric in table.metrics.items() if metric.compares_ids),
        gold_sources=_gold_sources(state),
    )


class Vanished(NamedTuple):
    """Gold ids that answers retrieved under an earlier index, and that none retrieves under the newest.

    Attributes:
        ids: The ids, in the order of text.
        index_hash: The index since which none does.
    """

    ids: tuple[str, ...]
    index_hash: str


def vanished_ids(state: State, pipeline: str, gold: str, version: str, items: Iterable[GoldItem]) -> Vanished | None:
    """The gold ids of a set that a pipeline retrieves no more; None where there are none, or one index alone."""
    first: dict[str, int] = {}
    asked: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for key, series in state.series.items():
        if (key.pipeline, key.gold, key.gold_version, key.slice) != (pipeline, gold, version, "") or not key.index_hash:
            continue
        starts = (*series.fresh, *series.folded, *(hour * HOUR for hour in series.item_hours))
        begin = min((start for start in starts if start >= 0), default=-1)
        first[key.index_hash] = min(first.get(key.index_hash, begin), begin)
        for table in series.items():
            asked.setdefault(key.index_hash, set()).update(table)
            retrieved = (qid for qid, facts in table.items() if any(ranks for _, _, _, ranks, *_ in facts))
            found.setdefault(key.index_hash, set()).update(retrieved)
    order = sorted(first, key=lambda name: (first[name], name))
    if len(order) < 2 or len(set(first.values())) < len(order):  # without times nothing is known to be newer
        return None
    *earlier, newest = order
    missed = set().union(*(found[name] for name in earlier)) & asked[newest] - found[newest]
    kept = {name for item in items if item.qid in found[newest] for name in item.ids}
    ids = {name for item in items if item.qid in missed for name in item.ids} - kept
    if not ids:
        return None
    last = max(place for place, name in enumerate(order) if found[name] & missed)
    return Vanished(tuple(sorted(ids)), order[last + 1])


def _gold_sources(state: State) -> frozenset[tuple[str, str]]:
    return frozenset((key.pipeline, key.source) for key in state.series if key.gold)


def _builds_and_metrics(state: State, table: ScoreTable) -> tuple[tuple[tuple[str, str, str], ...], frozenset[str]]:
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    return tuple(builds), frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)


class _Group(NamedTuple):
    """The key of series that are read together: all gold sets, builds and strata."""

    pipeline: str
    source: str
    slice: str


@dataclass
class _GroupCache:
    """What is kept of a group from one reading to the next."""

    results: list[tuple[object, list[SeriesStats]]] = field(default_factory=list)
    sums: WindowSums = field(default_factory=WindowSums)
    items: dict[tuple[str, str], ItemWindows] = field(default_factory=dict)


_Totals = tuple[Mapping[CallKey, Count], Mapping[CallKey, Count]]
"""All calls of a window; and the same since each producer's first report, which differs only for the window of
everything.
"""


class SeriesReader:
    """Reads the groups of a state; caches what did not change since the same windows were read before."""

    def __init__(self, state: State, table: ScoreTable, gated: tuple[str, ...]) -> None:
        self.groups: dict[_Group, list[SeriesKey]] = {}
        self._keys: frozenset[SeriesKey] = frozenset()
        self.state = state
        self.gated = gated
        self._table = table
        self._cache: dict[_Group, _GroupCache] = {}

    def refresh(self) -> None:
        """Update the groups; what was cached of removed series is dropped."""
        if self._keys == self.state.series.keys():
            return
        self._keys = frozenset(self.state.series)
        self.groups = {}
        for key in sorted(key for key in self._keys if not key.slice.startswith(MODEL_SLICE)):
            self.groups.setdefault(_Group(key.pipeline, key.source, key.slice), []).append(key)
        self._cache = {group: cached for group, cached in self._cache.items() if group in self.groups}

    def read(
        self, group: _Group, keys: Sequence[SeriesKey], windows: Sequence[Window], totals: Sequence[_Totals]
    ) -> list[list[SeriesStats]]:
        """The statistics of a group by window, given all calls of each window."""
        series = {key: self.state.series[key] for key in keys}
        changed = max(each.changed for each in series.values())
        cached = self._cache.setdefault(group, _GroupCache())
        results: list[tuple[object, list[SeriesStats]]] = []
        buckets: list[dict[Kind, Bucket]] = []
        for index, (window, in_window) in enumerate(zip(windows, totals, strict=True)):
            calls, since = (
                (by_stratum(part, group.pipeline, group.source) if group.source == LIVE else {}) for part in in_window
            )
            cache_key = (changed, window.name, window.begin, window.end, calls, since)
            if index < len(cached.results) and cached.results[index][0] == cache_key:
                results.append(cached.results[index])
                continue
            if not buckets:
                buckets = cached.sums.read(series, windows)
                by_gold: dict[tuple[str, str], dict[SeriesKey, Series]] = {}
                for key, each in series.items():
                    if key.drawn and key.gold:
                        by_gold.setdefault((key.gold, key.gold_version), {})[key] = each
                cached.items = {
                    gold: cached.items.get(gold) or ItemWindows(self._table, self.gated) for gold in by_gold
                }
                for gold, items in cached.items.items():
                    items.read(by_gold[gold], windows)
            kinds = {kind: buckets[index].get(kind) for kind in dict.fromkeys(map(kind_of, keys))}
            results.append((cache_key, list(self._stats(group, cached, (index, window.name), kinds, calls, since))))
        cached.results = results
        return [window_series for _, window_series in results]

    def _stats(
        self,
        group: _Group,
        cached: _GroupCache,
        window: tuple[int, str],
        buckets: Mapping[Kind, Bucket | None],
        calls: Mapping[str, Count],
        since: Mapping[str, Count],
    ) -> Iterator[SeriesStats]:
        # One series over all requests, and one of each gold set version over its requests. Both hold audit members
        # only: a call that was kept for its outcome says nothing about the frequency of the outcome.
        by_gold: dict[tuple[str, str], list[Bucket]] = {("", ""): [], **{gold: [] for gold in cached.items}}
        strata: dict[str, list[Bucket]] = {}
        for kind, bucket in buckets.items():
            if kind.drawn:
                by_gold.setdefault((kind.gold, kind.gold_version), []).extend([] if bucket is None else [bucket])
            if bucket is not None and group.source == LIVE:
                strata.setdefault(kind.stratum, []).append(bucket)
        parts = {gold: merged(of_gold) for gold, of_gold in by_gold.items()}
        all_requests = merged([bucket for bucket in parts.values() if bucket.count])
        by_strata = {stratum: merged(of_stratum) for stratum, of_stratum in strata.items()}
        population, estimates = self._estimates(group, by_strata, calls, since)
        of_all = self._table.of(all_requests)
        for (gold, version), part in sorted(parts.items()):
            bucket = part if gold else all_requests
            if not (bucket.count or (estimates and not gold)):
                continue
            metrics = of_all if part is all_requests else self._table.of(part)
            if not gold:  # gold sets are never pooled: metrics that need gold count requests without a gold item
                needing = self._table.metrics.items()
                metrics = {name: (metrics if metric.needs_gold else of_all)[name] for name, metric in needing}
            items = cached.items.get((gold, version))
            yield SeriesStats(
                pipeline=group.pipeline,
                source=group.source,
                gold=gold,
                gold_version=version,
                window=window[1],
                slice=group.slice,
                metrics=MappingProxyType(metrics),
                latency=MappingProxyType({stage: dict(counts) for stage, counts in bucket.latency.items()}),
                clusters=MappingProxyType({} if items is None else items.clusters(window)),
                traced=0 if items is None else items.traced(window),
                records=bucket.count,
                estimates={} if gold else estimates,
                of=population,
            )

    def _estimates(
        self, group: _Group, buckets: Mapping[str, Bucket], calls: Mapping[str, Count], since: Mapping[str, Count]
    ) -> tuple[str, Mapping[str, Estimate]]:
        # The population of the numbers, and the estimates over all calls. There are none where the calls were not all
        # counted, or all had the same sampling probability. A truncated trace log holds fewer records than its
        # producers had kept by then: their counts before the first report belong to an earlier log.
        if group.source != LIVE:
            return "", {}
        if constants.SAMPLED in buckets:
            return constants.SAMPLED_TRAFFIC, {}
        sampled = sampled_calls(buckets)
        calls, since = {**calls, **sampled}, {**since, **sampled}
        records = sum(bucket.count for stratum, bucket in buckets.items() if stratum != UNKNOWN_WEIGHT)
        if not group.slice and sum(count.kept for count in calls.values()) > SLACK * records + FEW:
            calls = since
        kept = sum(count.kept for count in calls.values())
        if not calls or records > SLACK * kept + FEW:  # other records come from producers that report no totals
            return EXPORTED_TRAFFIC, {}
        if group.slice or len({*calls, *buckets}) == 1:
            return ALL_CALLS, {}
        sizes = {stratum: count.calls for stratum, count in calls.items()}
        return ALL_CALLS, weighted(buckets, sizes, self._table)


def window_totals(state: State, span: int | None, now: float) -> _Totals:
    """All calls of a window, and those since each producer's first report."""
    if span is None:
        return state.calls.totals(), state.calls.since(None, inf)
    totals = state.calls.since(*edges(span, now))
    return totals, totals


def retrieved_counts(state: State) -> dict[tuple[str, str], Counter[int]]:
    """How many audit members retrieved how many documents; matches and labels are skipped, as they repeat requests."""
    by_source: dict[tuple[str, str], Counter[int]] = {}
    for key, series in state.series.items():
        if key.slice or not key.audit or key.source in ALSO_LIVE_SOURCES or key.pipeline == DROPPED_PIPELINES:
            continue
        counts = by_source.setdefault((key.pipeline, key.source), Counter())
        for bucket in series.buckets():
            for facts, n in bucket.cells.items():
                flags, _, length, *_ = facts
                if flags & IDS:
                    counts[length] += n
    return by_source


POINT: Final = "point"


def point_ends(now: float, span: int, step: int) -> list[int]:
    """The ends of windows that cover a span up to now: multiples of the step, the last of them the first after now.

    The step is in seconds: up to an hour a multiple of 10, otherwise of 300.

    Raises:
        ValueError: The windows cannot lie on the edges of buckets.

    >>> point_ends(7201.0, 3600, 1800)
    [7200, 9000]
    """
    grain = BUCKET_SECONDS if step <= HOUR else FOLDED_SECONDS
    if step <= 0 or step % grain:
        raise ValueError(f"step is {step}: it must be a multiple of {grain} seconds")
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

    The windows have the ends of `point_ends`; of the pipelines, None reads all.
    """
    windows = [Window(POINT, step, end - 1) for end in ends]
    totals = [window_totals(state, step, end - 1) for end in ends]
    points: list[list[SeriesStats]] = [[] for _ in ends]
    reader = SeriesReader(state, table, tuple(gated))
    reader.refresh()
    for group, keys in reader.groups.items():
        if group.pipeline == DROPPED_PIPELINES or (pipelines is not None and group.pipeline not in pipelines):
            continue
        for point, series in zip(points, reader.read(group, keys, windows, totals), strict=True):
            point.extend(series)
    common, gold_sources = (tuple(golds), *_builds_and_metrics(state, table)), _gold_sources(state)
    return [
        Snapshot(end - 1, tuple(series), *common, gold_sources=gold_sources)
        for end, series in zip(ends, points, strict=True)
    ]
