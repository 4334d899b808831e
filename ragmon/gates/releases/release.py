"""Requests of one release that share their fate, kept together: each gold item, session or question is one observation.

Ten requests of a session are good or bad together. Taken for ten draws they prove what is not so: of releases that lie
on a gate of .80, with an intraclass correlation of .3 among a session's requests, 31 % (sessions of 5) and 67 % (of 10)
were told a verdict within 600 sessions, looked at after each, where 5 % may be. One observation per session and minute,
which is what alarms take, is enough only for sessions that end within the minute: over several minutes 11 to 79 % were
told one. The mean of a session so far, one per session, was wrong for 4 % at most over 54 designs: gates of .50, .80
and .95; correlations of .3, .6 and .9; sessions of 10 to 100 requests over as many minutes, of equal length and not, 1
to 50 beginning every minute; 500 or 1,500 releases each, looked at every minute. The first minute of each session alone
holds as well, but takes 1.3 to 3 times as many sessions, and never sees what comes later.

What remains assumed: sessions and questions are independent of each other, and what a session says later is on average
as good as its beginning. A mean that still moves is no bet that is settled, so no theorem covers it. A look at many
open sessions sees beginnings: where they fall from .85 to .75 half-way through ten minutes, 14 % of the releases on a
gate of .80 were passed at ten new sessions a minute, 2 % at one.

What was counted of one build or one index, and whether it may be judged yet.
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
from ragmon.gates.evaluate import MISSING
from ragmon.gold.sets import GoldInfo
from ragmon.metrics.facts import Key
from ragmon.scoring.minutes import MinuteBatches, cluster_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot, item_sums, take_snapshot
from ragmon.scoring.windows import State
from ragmon.stats import MICRO
from ragmon.stats.betting import Scores, coarse

SHARED: Final = 8
"""Requests of a cluster up to which equal ones are held once: most sessions are short, and much alike."""
_Held = dict[Key, int]
"""How often each tuple of facts was seen in a cluster."""


class _Place(NamedTuple):
    """Where requests were counted."""

    pipeline: str
    source: str
    gold: str
    where: str


class Clusters(MinuteBatches):
    """The requests of a release by cluster, whenever they came.

    Args:
        table: The metrics.
        gates: What will be asked: their slices and measured metrics are kept.
        cluster: What makes a cluster, by pipeline.

    Attributes:
        alone: Requests that carry nothing a cluster is made of; each counts as one of its own.
    """

    def __init__(self, table: ScoreTable, gates: Sequence[Gate], cluster: Callable[[str], Collection[str]]) -> None:
        super().__init__({gate.where for gate in gates if gate.where}, cluster)
        self.alone = 0
        self._table = table
        self._measured = {gate.metric for gate in gates} & {m.key for m in table.metrics.values() if m.measured}
        self._facts: dict[_Place, dict[str, _Held]] = {}
        self._sums: dict[tuple[_Place, str], dict[str, list[int]]] = {}
        self._numbers = count()
        self._nothing: _Held = {}
        self._shared: dict[tuple[int, Key], _Held] = {}

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
    ) -> None:
        """Keep what a request says with the others of its cluster, if it won the uniform draw at a known rate.

        Args:
            pipeline: Whose request it is.
            arrival: Unread: a cluster has all the time of its release.
            source: Where it was counted.
            record: The request.
            item: Its gold item.
            key: Its facts.
            measured: What was measured on its text, in micro-units.
            slices: The slices it belongs to.
        """
        if record.sampling is not None and not record.sampling.drawn:
            return
        cluster = self._cluster_of(pipeline, record, item)
        gold, key = "" if item is None else item.set_name, self._table.shared(key)
        for where in ("", *(where for where in slices if where in self._slices)):
            place = _Place(pipeline, source, gold, where)
            clusters = self._facts.setdefault(place, {})
            clusters[cluster] = self._with(clusters.get(cluster, self._nothing), key)
            for name in self._measured & measured.keys():
                sums = self._sums.setdefault((place, name), {}).setdefault(cluster, [0, 0])
                sums[0] += 1
                sums[1] += measured[name]

    def scores(self, series: SeriesStats, metric: str) -> Scores:
        """How often each mean score of a cluster occurs in a series, in the order of the scores.

        Args:
            series: Which requests. What needs gold is never pooled over gold sets.
            metric: The metric's key.
        """
        pooled = not series.gold and not self._table.metrics[metric].needs_gold
        found: Counter[float] = Counter()
        for place in self._facts:
            if (place.pipeline, place.source, place.where) == (series.pipeline, series.source, series.slice) and (
                pooled or place.gold == series.gold
            ):
                for n, total, clusters in self._sums_of(place, metric):
                    found[total / (n * MICRO)] += clusters
        return coarse(dict(sorted(found.items())))

    def _sums_of(self, place: _Place, metric: str) -> Iterator[tuple[int, int, int]]:
        """Requests in the denominator, the sum of their scores, and how many clusters are like that."""
        if metric in self._measured:
            yield from ((n, total, 1) for n, total in self._sums.get((place, metric), {}).values())
            return
        at = list(self._table.metrics).index(metric)
        held = self._facts[place].values()
        alike = {id(facts): facts for facts in held}
        for which, clusters in Counter(map(id, held)).items():
            n, total = item_sums(self._table, alike[which], at)
            if n:
                yield n, total, clusters

    def _cluster_of(self, pipeline: str, record: Record, item: GoldItem | None) -> str:
        """The cluster of a request; one of its own where it names none."""
        by = self._cluster(pipeline)
        found = cluster_of(record, item, by)
        if item is None and by and found == (record.trace_id or ""):
            self.alone += 1
        return found or f"alone {next(self._numbers)}"

    def _with(self, held: _Held, key: Key) -> _Held:
        """What a cluster holds with one more request."""
        n = sum(held.values())
        if n > SHARED:
            held[key] = held.get(key, 0) + 1
            return held
        grown = self._shared.get((id(held), key))
        if grown is None:
            grown = {**held, key: held.get(key, 0) + 1}
            if n < SHARED:
                self._shared[(id(held), key)] = grown
        return grown


By = Literal["build", "index_hash"]
"""What tells two releases apart."""
_CALLED: Final[dict[By, str]] = {"build": "build", "index_hash": "index hash"}
_RUNS: Final = (constants.PROBE, constants.REPLAY)
"""Sources whose records may be a run through a gold set."""


@dataclass(frozen=True)
class Release:
    """What is known of a build or an index.

    Attributes:
        name: The build or the index.
        state: Its counts.
        clusters: Its requests, kept together where they share their fate.
    """

    name: str
    state: State
    clusters: Clusters


def part(state: State, by: By, name: str) -> State:
    """What was counted of one build or index. The series are shared with the whole: they are for reading.

    Args:
        state: What was counted.
        by: What tells them apart.
        name: Which build or index.

    Raises:
        UnknownNameError: No record carries it.
    """
    known = {getattr(key, by) for key in state.series} - {""}
    if name not in known:
        error = UnknownNameError(_CALLED[by], name, known)
        if not known:
            error.hint = f"no record carries {'an' if by == 'index_hash' else 'a'} {_CALLED[by]}"
        raise error
    kept = State(retention=state.retention, timed_items=state.timed_items)
    kept.newest = state.newest
    kept.series = {key: series for key, series in state.series.items() if getattr(key, by) == name}
    return kept


def whole_window(state: State, table: ScoreTable, golds: Sequence[GoldInfo], gated: Collection[str]) -> Snapshot:
    """Everything that was counted, as one window."""
    return take_snapshot(state, table, now=state.newest, windows={ALL: None}, golds=golds, gated=gated)


def missing_of_run(snapshot: Snapshot, series: SeriesStats) -> str | None:
    """What a run through a gold set has not come to yet; None where it may be judged.

    A run goes through a set in some order, often that of the file: what it has answered so far is no sample of the set.

    Args:
        snapshot: All that was counted of the release.
        series: What is to be judged. Without a gold set it is a run if most of its requests belong to one.
    """
    if series.source not in _RUNS:
        return None
    same = (series.pipeline, series.source, "")
    here = [found for found in snapshot.series if (found.pipeline, found.source, found.slice) == same]
    runs = [found for found in here if found.gold and series.gold in ("", found.gold)]
    whole = sum(found.records for found in here if not found.gold)
    if not series.gold and 2 * sum(run.records for run in runs) <= whole:
        return None
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    for run in runs:
        size = sizes.get((run.gold, run.gold_version), 0)
        missing = size - run.traced
        if missing > MISSING * size:
            return f"{missing} of {size} gold items have no trace yet"
    return None
