"""What one step says of one metric: a score in [0, 1] per cluster, counted where it is 0 or 1.

From one step to observations: which source and gold set are looked at, and what every metric says there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ragmon.alarms.plan import AlarmRule
from ragmon.core.policy import FREE_SOURCES, GOLD_SOURCES
from ragmon.metrics.facts import Key
from ragmon.scoring.minutes import CountedRecord, Step
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import item_sums
from ragmon.stats import MICRO


class Observations(NamedTuple):
    """The cluster means of one step.

    Attributes:
        ones: Clusters with mean 1.
        zeros: Clusters with mean 0.
        parts: The means of all others, sorted: sums of them are the same in any order of arrival.
    """

    ones: int = 0
    zeros: int = 0
    parts: tuple[float, ...] = ()

    @property
    def n(self) -> int:
        """How many clusters."""
        return self.ones + self.zeros + len(self.parts)

    @property
    def total(self) -> float:
        """The sum of their means."""
        return self.ones + sum(self.parts)

    @property
    def turned(self) -> Observations:
        """One minus every mean: an upper bound seen as a lower one."""
        return Observations(self.zeros, self.ones, tuple(sorted(1.0 - part for part in self.parts)))


NONE = Observations()


def observe(clusters: Iterable[tuple[int, int]]) -> Observations:
    """The observations of `(n, sum in micro-units)` pairs, one per cluster; empty clusters do not count.

    A hundred requests of one session are one observation: they share what makes them good or bad, and an alarm that
    took them for a hundred would break its budget.

    >>> observe([(1, 1_000_000), (2, 0), (2, 1_000_000), (0, 0)])
    Observations(ones=1, zeros=1, parts=(0.5,))
    """
    ones = zeros = 0
    parts = []
    for n, total in clusters:
        if not n:
            continue
        if total == 0:
            zeros += 1
        elif total == n * MICRO:
            ones += 1
        else:
            parts.append(total / (n * MICRO))
    return Observations(ones, zeros, tuple(sorted(parts)))


Sums = tuple[int, int]
"""`(n, sum in micro-units)`."""
_LOWER_IS_BETTER: Final = "lower"


class SourceSwitch(NamedTuple):
    """What a step changed about where to look.

    Attributes:
        sources: For metrics with gold (True), without: another source is looked at.
        golds: The sources with another version of a gold set.
    """

    sources: frozenset[bool] = frozenset()
    golds: frozenset[str] = frozenset()


class ObservationSelector:
    """What a pipeline's watches look at.

    A watch that names no source looks at the first one that ever had data, in the order gates do; one that names no
    gold set at the first that was seen.

    Args:
        table: The metrics.

    Attributes:
        sources: The source looked at, for metrics with gold (True) and without.
        golds: The gold set looked at, by source, and its version.
        first: By metric and gold item, what it said when the item was seen first.
        given: The version of each gold set that baselines were given of.
    """

    def __init__(self, table: ScoreTable) -> None:
        self._table = table
        self._places = {name: place for place, name in enumerate(table.metrics)}
        self.sources: dict[bool, str] = {}
        self.golds: dict[str, dict[str, str]] = {}
        self.first: dict[str, dict[str, int]] = {}
        self.given: dict[str, str] = {}

    def turn(self, step: Step) -> SourceSwitch:
        """Look where the step has data; returns what is another population from now on."""
        sources = set()
        for needs_gold, order in ((True, GOLD_SOURCES), (False, FREE_SOURCES)):
            here = {place.source for place in step.facts if bool(place.gold) or not needs_gold}
            known = {*here, self.sources.get(needs_gold)}
            found = next((source for source in order if source in known), None)
            if found is not None and found != self.sources.get(needs_gold):
                if needs_gold in self.sources:
                    sources.add(needs_gold)
                self.sources[needs_gold] = found
        turn = SourceSwitch(frozenset(sources), frozenset(self._swapped(step)))
        if True in sources or self.sources.get(True) in turn.golds:
            self.first.clear()
        return turn

    def _swapped(self, step: Step) -> set[str]:
        """The sources a gold set of which has another version than before, or than the one baselines were given of.

        Where a set was swapped within the minute, the version that is new is looked at, and not both.
        """
        held: dict[tuple[str, str], set[str]] = {}
        for place in step.facts:
            if place.gold:
                held.setdefault((place.source, place.gold), set()).add(place.gold_version)
        found = set()
        for (source, gold), versions in held.items():
            known = self.golds.setdefault(source, {})
            before = known.get(gold, self.given.get(gold))
            known[gold] = max(versions - {before}, default=before or "")
            if before not in (None, known[gold]):
                found.add(source)
        return found

    def concerns(self, turn: SourceSwitch, watch: AlarmRule) -> bool:
        """Whether a watch looks at another population after a turn."""
        if watch.source is None and watch.needs_gold in turn.sources:
            return True
        return watch.needs_gold and (watch.source or self.sources.get(True)) in turn.golds

    def of(self, step: Step, watch: AlarmRule) -> Observations:
        """What a step says of a watch's metric, as the metric is exported."""
        source = watch.source or self.sources.get(watch.needs_gold)
        if source is None:
            return NONE
        places = self._where(step, watch, source)
        metric = self._table.metrics[watch.metric]
        if metric.measured:
            measures = (step.measures.get((place, watch.metric), {}) for place in places)
            return observe((n, total) for held in measures for n, total in held.values())
        place = self._places[watch.metric]
        return observe(_sums(self._table, held, place) for where in places for held in step.facts[where].values())

    def paired(self, step: Step, watch: AlarmRule, *, freeze: bool) -> Observations:
        """One minus how much worse each gold item scores than when it was seen first.

        Args:
            step: The step.
            watch: Which metric.
            freeze: Items that are seen for the first time are remembered.
        """
        source = watch.source or self.sources.get(True)
        if source is None:
            return NONE
        place, first = self._places[watch.metric], self.first.setdefault(watch.metric, {})
        worse = -1 if self._table.metrics[watch.metric].better == _LOWER_IS_BETTER else 1
        found = []
        for where in self._where(step, watch, source):
            for qid, held in step.facts[where].items():
                n, total = _sums(self._table, held, place)
                if not n:
                    continue
                if qid in first:
                    found.append((n, n * MICRO - max(0, worse * (n * first[qid] - total))))
                elif freeze:
                    first[qid] = total // n
        return observe(found)

    def _where(self, step: Step, watch: AlarmRule, source: str) -> list[CountedRecord]:
        """The places of a step that a watch looks at."""
        gold = watch.gold
        if watch.needs_gold and gold is None:
            gold = next(iter(self.golds.get(source, {})), None)
        versions = self.golds.get(source, {})
        return [
            place
            for place in step.facts
            if place.source == source
            and place.where == watch.where
            and (place.gold == gold if gold is not None else not watch.needs_gold)
            and (gold is None or place.gold_version == versions.get(place.gold))
        ]

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        sources = [[needs_gold, source] for needs_gold, source in self.sources.items()]
        return {"sources": sources, "golds": self.golds, "first": self.first, "given": self.given}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.sources = {bool(needs_gold): source for needs_gold, source in data["sources"]}
        self.golds, self.first, self.given = data["golds"], data["first"], data["given"]


def _sums(table: ScoreTable, held: Mapping[Key, int], place: int) -> Sums:
    """How often a cluster is in a metric's denominator, and the sum of its scores."""
    if len(held) == 1:
        ((key, n),) = held.items()
        score = table.scores(key)[place]
        return (n, n * score) if isinstance(score, int) else (0, 0)
    return item_sums(table, held, place)
