"""The counts of one release, grouped into clusters of requests.

A release is one build or one index. A cluster is the requests of one gold item, session or question, and each cluster
is one observation.

The requests of a session are correlated, and taken for independent draws they prove too much. Of releases exactly on a
gate of .80, with an intraclass correlation of .3 among a session's requests, 31 % (sessions of 5) and 67 % (of 10) got
a verdict within 600 sessions, checked after each, where 5 % may. One observation per session and minute, which alarms
take, is enough only for sessions that end within the minute: for sessions over several minutes 11 to 79 % got a
verdict. With the current mean of a session, one per session, 4 % at most got a wrong verdict over 54 designs: gates of
.50, .80 and .95; correlations of .3, .6 and .9; sessions of 10 to 100 requests over as many minutes, of equal length
and not, 1 to 50 beginning every minute; 500 or 1,500 releases each, checked every minute. The first minute of each
session alone holds as well, but takes 1.3 to 3 times as many sessions, and never sees later requests.

Two assumptions remain: sessions and questions are independent of each other, and the later requests of a session are on
average as good as its first ones. A mean that still changes is not a settled bet, so no theorem covers it. With many
open sessions mostly first requests are counted: where sessions fall from .85 to .75 half-way through ten minutes, 14 %
of the releases on a gate of .80 passed it at ten new sessions a minute, 2 % at one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal, NamedTuple

from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate
from ragmon.core.record import Record
from ragmon.gates.evaluate import MAX_MISSING
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.facts import Key
from ragmon.scoring.buckets import MODEL_SLICE, State, Table, add_table
from ragmon.scoring.minutes import MinuteBatches, cluster_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot, take_snapshot
from ragmon.scoring.windows import ItemSums, item_sums
from ragmon.stats.betting import Scores, coarse

MAX_SHARED_REQUESTS: Final = 8
"""Clusters of up to this many requests share equal counts, because most sessions are short and alike."""
_Counts = dict[Key, int]
"""The requests of a cluster, counted by facts."""


class SeriesLocation(NamedTuple):
    """The series a request is counted in."""

    pipeline: str
    source: str
    gold: str
    where: str


def items_of(state: State) -> dict[SeriesLocation, Table]:
    """The counts of every gold item, over all builds and gold versions."""
    tables: dict[SeriesLocation, Table] = {}
    for key, series in state.series.items():
        if key.gold and key.drawn and not key.slice.startswith(MODEL_SLICE):
            merged = tables.setdefault(SeriesLocation(key.pipeline, key.source, key.gold, key.slice), {})
            for table in series.items():
                add_table(merged, table)
    return tables


class Clusters(MinuteBatches):
    """The requests of a release by cluster, over its whole time.

    Args:
        table: The metrics.
        gates: The gates to judge; only their slices and measured metrics are kept.
        cluster: The record fields that define a cluster, by pipeline.

    Attributes:
        alone: Requests without these fields; each is a cluster of its own.
    """

    def __init__(self, table: ScoreTable, gates: Sequence[Gate], cluster: Callable[[str], Collection[str]]) -> None:
        super().__init__({gate.where for gate in gates if gate.where}, cluster)
        self.alone = 0
        self._table = table
        self._measured = {gate.metric for gate in gates} & {m.key for m in table.metrics.values() if m.measured}
        self._facts: dict[SeriesLocation, dict[str, _Counts]] = {}
        self._sums: dict[tuple[SeriesLocation, str], dict[str, list[int]]] = {}
        self._numbers = count()
        self._empty: _Counts = {}
        self._shared: dict[tuple[int, Key], _Counts] = {}

    def collect(
        self,
        pipeline: str,
        arrival: float,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        slices: Iterable[str],
        in_gold: bool | None = None,
    ) -> None:
        """Count a request in its cluster, if it was drawn uniformly at a known rate.

        Args:
            pipeline: The pipeline of the request.
            arrival: Not used: a cluster covers the whole time of its release.
            source: The source it is counted under.
            record: The request.
            item: Its gold item.
            key: Its facts.
            measured: Its measured scores, in micro-units.
            slices: The slices it belongs to.
            in_gold: Not used: releases are compared with each other.
        """
        if record.sampling is not None and not record.sampling.drawn:
            return
        cluster = self._cluster_of(pipeline, record, item)
        gold, key = "" if item is None else item.set_name, self._table.shared(key)
        for where in ("", *(where for where in slices if where in self._slices)):
            location = SeriesLocation(pipeline, source, gold, where)
            clusters = self._facts.setdefault(location, {})
            clusters[cluster] = self._with(clusters.get(cluster, self._empty), key)
            for name in self._measured & measured.keys():
                sums = self._sums.setdefault((location, name), {}).setdefault(cluster, [0, 0])
                sums[0] += 1
                sums[1] += measured[name]

    def scores(self, series: SeriesStats, metric: str, *, unknown: int | None = None) -> Scores:
        """How many clusters have each mean score in a series, in the order of the scores.

        Args:
            series: The series to read. A metric that needs gold is never pooled over gold sets.
            metric: The metric's key.
            unknown: The score, 0 or 1, of requests whose score is unknown for a reason that may depend on it; None
                leaves them out.
        """
        pooled = not series.gold and not self._table.metrics[metric].needs_gold
        clusters_by_mean: Counter[float] = Counter()
        for location in self._facts:
            if (location.pipeline, location.source, location.where) == (
                series.pipeline,
                series.source,
                series.slice,
            ) and (pooled or location.gold == series.gold):
                for sums, clusters in self._sums_of(location, metric):
                    mean = sums.mean(unknown)
                    if mean is not None:
                        clusters_by_mean[mean] += clusters
        return coarse(dict(sorted(clusters_by_mean.items())))

    def _sums_of(self, location: SeriesLocation, metric: str) -> Iterator[tuple[ItemSums, int]]:
        """The scores of clusters, and the number of clusters with equal ones."""
        column = list(self._table.metrics).index(metric)
        if metric in self._measured:
            measures = self._sums.get((location, metric), {})
            for cluster, facts in self._facts[location].items():
                n, total = measures.get(cluster, (0, 0))
                yield ItemSums(n, total, item_sums(self._table, facts, column).unknown), 1
            return
        counts = self._facts[location].values()
        by_id = {id(facts): facts for facts in counts}
        for identity, clusters in Counter(map(id, counts)).items():
            yield item_sums(self._table, by_id[identity], column), clusters

    def _cluster_of(self, pipeline: str, record: Record, item: GoldItem | None) -> str:
        """The cluster of a request; one of its own where it has none of the fields."""
        by = self._cluster(pipeline)
        cluster = cluster_of(record, item, by)
        if item is None and by and cluster == (record.trace_id or ""):
            self.alone += 1
        return cluster or f"alone {next(self._numbers)}"

    def _with(self, counts: _Counts, key: Key) -> _Counts:
        """The counts of a cluster with one more request."""
        n = sum(counts.values())
        if n > MAX_SHARED_REQUESTS:
            counts[key] = counts.get(key, 0) + 1
            return counts
        grown = self._shared.get((id(counts), key))
        if grown is None:
            grown = {**counts, key: counts.get(key, 0) + 1}
            if n < MAX_SHARED_REQUESTS:
                self._shared[(id(counts), key)] = grown
        return grown


By = Literal["build", "index_hash"]
"""The record field that tells two releases apart."""
_TITLES: Final[dict[By, str]] = {"build": "build", "index_hash": "index hash"}
_RUNS: Final = (constants.PROBE, constants.REPLAY)
"""Sources whose records may be a run through a gold set."""


@dataclass(frozen=True)
class Release:
    """The counts of a build or an index.

    Attributes:
        name: The build or the index.
        state: Its counts.
        clusters: Its requests by cluster.
    """

    name: str
    state: State
    clusters: Clusters


def of_release(state: State, by: By, name: str) -> State:
    """The counts of one build or index. Its series are shared with the whole state and only for reading.

    Args:
        state: All counts.
        by: The field that tells releases apart.
        name: The build or the index.

    Raises:
        UnknownNameError: No record has it.
    """
    names = {getattr(key, by) for key in state.series} - {""}
    if name not in names:
        error = UnknownNameError(_TITLES[by], name, names)
        if not names:
            error.hint = f"no record carries {'an' if by == 'index_hash' else 'a'} {_TITLES[by]}"
        raise error
    return State(
        retention=state.retention,
        is_live=state.is_live,
        scored=state.scored,
        unmatched=state.unmatched,
        dropped=state.dropped,
        newest=state.newest,
        series={key: series for key, series in state.series.items() if getattr(key, by) == name},
    )


def whole_window(state: State, table: ScoreTable, golds: Sequence[GoldInfo], gated: Collection[str]) -> Snapshot:
    """All counts as one window."""
    return take_snapshot(state, table, now=state.newest, windows={ALL: None}, golds=golds, gated=gated)


def missing_of_run(snapshot: Snapshot, series: SeriesStats) -> str | None:
    """Why a run through a gold set cannot be judged yet; None where it can.

    A run asks the items in some order, often that of the file, so its first answers are no random sample of the set.

    Args:
        snapshot: All counts of the release.
        series: The series to judge. One without a gold set is a run if most of its requests belong to a gold set.
    """
    if series.source not in _RUNS:
        return None
    key = (series.pipeline, series.source, "")
    of_source = [other for other in snapshot.series if (other.pipeline, other.source, other.slice) == key]
    runs = [other for other in of_source if other.gold and series.gold in ("", other.gold)]
    records = sum(other.records for other in of_source if not other.gold)
    if not series.gold and 2 * sum(run.records for run in runs) <= records:
        return None
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    for run in runs:
        size = sizes.get((run.gold, run.gold_version), 0)
        missing = size - run.traced
        if missing > MAX_MISSING * size:
            return f"{missing} of {size} gold items have no trace yet"
    return None
