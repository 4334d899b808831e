"""Observations: the scores of one metric in one step, one score in [0, 1] per cluster.

`ObservationSelector` chooses the source and the gold set that each alarm rule judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from ragmon.alarms.clusters import StepClusters
from ragmon.alarms.plan import AlarmRule
from ragmon.core.policy import FREE_SOURCES, GOLD_SOURCES
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Key
from ragmon.scoring.item_windows import ItemSums, item_sums
from ragmon.scoring.membership import Membership
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.steps import CountedRecord, Step
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
        """The number of clusters."""
        return self.ones + self.zeros + len(self.parts)

    @property
    def total(self) -> float:
        """The sum of their means."""
        return self.ones + sum(self.parts, 0.0)

    @property
    def turned(self) -> Observations:
        """One minus every mean: an upper bound becomes a lower bound."""
        return Observations(self.zeros, self.ones, tuple(sorted(1.0 - part for part in self.parts)))


NONE = Observations()


class Conventions(msgspec.Struct):
    """What a pipeline has shown: whether its answers cite, and whether its ids are those of gold.

    Attributes:
        cited: Whether an answer has cited something; before, nothing about citations is judged or learned.
        in_gold: Whether a retrieved id has occurred in gold; as long as none did, nothing that compares ids is judged
            or learned. None: there were none to compare.
    """

    cited: bool = False
    in_gold: bool | None = None

    def see(self, step: Step) -> None:
        """Remember what the records of a step show."""
        self.cited = self.cited or step.cites
        if step.in_gold is not None:
            self.in_gold = self.in_gold or step.in_gold

    def apply_to(self, metric: Metric) -> bool:
        """Whether the pipeline has shown what a metric is about."""
        return (self.cited or not metric.cites) and (self.in_gold is not False or not metric.compares_ids)


def observe(clusters: Iterable[tuple[int, int]]) -> Observations:
    """The observations of `(n, sum in micro-units)` pairs, one per cluster; empty clusters do not count.

    A hundred requests of one session are one observation: they share their causes, and counting them as a hundred
    independent observations would break the false-alarm budget.

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


class StepObservations(NamedTuple):
    """The observations of one metric in one step, for a rule to judge and for its baseline to learn.

    Attributes:
        assessed: Of the scored requests alone; baselines learn these.
        high: The same with a score of 1 for every request whose score is unknown.
        low: The same with 0 for them.
    """

    assessed: Observations = NONE
    high: Observations = NONE
    low: Observations = NONE

    def keeping(self, *, at_least: bool) -> Observations:
        """The observations if every unknown score kept the gate: an alarm must not rest on what nobody knows."""
        return self.high if at_least else self.low


NOTHING = StepObservations()


def observe_step(clusters: Iterable[ItemSums]) -> StepObservations:
    """The observations of the scores of clusters.

    >>> observe_step([ItemSums(1, 0, 1), ItemSums(1, 1_000_000, 0)]).keeping(at_least=True)
    Observations(ones=1, zeros=0, parts=(0.5,))
    """
    sums = list(clusters)
    assessed = observe((n, total) for n, total, _ in sums)
    if not any(unknown for _, _, unknown in sums):
        return StepObservations(assessed, assessed, assessed)
    high = observe((n + unknown, total + unknown * MICRO) for n, total, unknown in sums)
    low = observe((n + unknown, total) for n, total, unknown in sums)
    return StepObservations(assessed, high, low)


_LOWER_IS_BETTER: Final = "lower"


class SourceSwitch(NamedTuple):
    """The changes of source and gold version that a step caused.

    Attributes:
        sources: True if the source of metrics with gold changed, False if that of the others did.
        golds: The sources in which a gold set has another version.
    """

    sources: frozenset[bool] = frozenset()
    golds: frozenset[str] = frozenset()


class Selection(msgspec.Struct):
    """What an `ObservationSelector` has chosen.

    Attributes:
        sources: The chosen source, for metrics with gold (1) and without (0).
        golds: By source, the gold sets and their versions; the first is the chosen one.
        first: By metric and gold item, the item's first score in micro-units.
        given: The version of each gold set in the baseline file.
    """

    sources: dict[int, str] = {}
    golds: dict[str, dict[str, str]] = {}
    first: dict[str, dict[str, int]] = {}
    given: dict[str, str] = {}


class ObservationSelector:
    """Chooses the observations of a pipeline's alarm rules.

    A rule without a source uses the first source that ever had data, in the order of the gates; a rule without a gold
    set uses the first gold set that was seen.

    Args:
        table: The metrics.
        state: What it has chosen, where it continues.
    """

    def __init__(self, table: ScoreTable, state: Selection | None = None) -> None:
        self.state = state or Selection()
        self._table = table
        self._indexes = {name: index for index, name in enumerate(table.metrics)}

    @property
    def user_source(self) -> str:
        """The source of user traffic; "" before there is any."""
        return self.state.sources.get(False, "")

    def give(self, golds: Mapping[str, Mapping[str, str]], first: Mapping[str, Mapping[str, int]]) -> None:
        """Compare with a release run.

        Args:
            golds: By source, its gold sets and their versions.
            first: By metric and gold item, the item's score in micro-units.
        """
        self.state.given = {gold: version for versions in golds.values() for gold, version in versions.items()}
        self.state.first = {name: dict(scores) for name, scores in first.items()}

    def turn(self, step: Step) -> SourceSwitch:
        """Update the chosen sources and gold versions from a step; returns what changed."""
        switched, sources = set(), self.state.sources
        for needs_gold, order in ((True, GOLD_SOURCES), (False, FREE_SOURCES)):
            present = {key.source for key in step.facts if bool(key.gold) or not needs_gold}
            available = {*present, sources.get(needs_gold)}
            chosen = next((source for source in order if source in available), None)
            if chosen is not None and chosen != sources.get(needs_gold):
                if needs_gold in sources:
                    switched.add(needs_gold)
                sources[int(needs_gold)] = chosen
        switch = SourceSwitch(frozenset(switched), frozenset(self._swapped_gold(step)))
        if True in switched or sources.get(True) in switch.golds:
            self.state.first.clear()
        return switch

    def _swapped_gold(self, step: Step) -> set[str]:
        """The sources with a gold set whose version differs from the previous one or from the baseline file.

        If both versions occur within the minute, the new one is chosen.
        """
        versions_by_gold: dict[tuple[str, str], set[str]] = {}
        for key in step.facts:
            if key.gold:
                versions_by_gold.setdefault((key.source, key.gold), set()).add(key.gold_version)
        swapped = set()
        for (source, gold), versions in sorted(versions_by_gold.items()):  # in whatever order their records came
            current = self.state.golds.setdefault(source, {})
            previous = current.get(gold, self.state.given.get(gold))
            current[gold] = max(versions - {previous}, default=previous or "")
            if previous not in (None, current[gold]):
                swapped.add(source)
        return swapped

    def concerns(self, turn: SourceSwitch, rule: AlarmRule) -> bool:
        """Whether a rule judges another population after a switch."""
        if rule.source is None and rule.needs_gold in turn.sources:
            return True
        return rule.needs_gold and (rule.source or self.state.sources.get(True)) in turn.golds

    def of(self, step: Step, rule: AlarmRule, clusters: StepClusters) -> StepObservations:
        """The observations of a rule's metric in a step, oriented as the metric is exported."""
        source = rule.source or self.state.sources.get(rule.needs_gold)
        if source is None:
            return NOTHING
        found: list[ItemSums] = []
        for key in self._keys(step, rule, source):
            found += clusters.fold(source, rule.metric, step.facts[key], self._reader(step, key, rule.metric))
        return observe_step(found)

    def _reader(self, step: Step, key: CountedRecord, metric: str) -> Callable[[Membership], ItemSums]:
        """The sums of a metric by membership; what is measured on text may be unknown, as texts are not captured."""
        index, members = self._indexes[metric], step.facts[key]
        if not self._table.metrics[metric].measured:
            return lambda member: _sums(self._table, members[member], index)
        measures = step.measures.get((key, metric), {})

        def measured(member: Membership) -> ItemSums:
            n, total = measures.get(member, (0, 0))
            return ItemSums(n, total, _sums(self._table, members[member], index).unknown)

        return measured

    def paired(self, step: Step, rule: AlarmRule, clusters: StepClusters, *, freeze: bool) -> StepObservations:
        """One minus the loss of each gold item against its first score.

        Args:
            step: The step.
            rule: The rule.
            clusters: The clusters of the step.
            freeze: Store the first score of items that are new.
        """
        source = rule.source or self.state.sources.get(True)
        if source is None:
            return NOTHING
        first = self.state.first.setdefault(rule.metric, {})
        direction = -1 if self._table.metrics[rule.metric].better == _LOWER_IS_BETTER else 1
        found: list[ItemSums] = []
        new: dict[str, list[int]] = {}
        for key in self._keys(step, rule, source):
            members, read = step.facts[key], self._reader(step, key, rule.metric)
            for member in members if freeze else ():
                n, total, _ = read(member)
                if n and member.item not in first:
                    sums = new.setdefault(member.item, [0, 0])
                    sums[0] += n
                    sums[1] += total

            def loss(member: Membership, read: Callable[[Membership], ItemSums] = read) -> ItemSums:
                n, total, unknown = read(member)
                lost = max(0, direction * (n * first[member.item] - total))
                return ItemSums(n, n * MICRO - lost, unknown if n else 0)

            known = [member for member in members if member.item in first]
            found += clusters.fold(source, f"{rule.metric}:paired", known, loss)
        first |= {item: total // n for item, (n, total) in new.items()}
        return observe_step(found)

    def _keys(self, step: Step, rule: AlarmRule, source: str) -> list[CountedRecord]:
        """The keys of a step's counts that a rule judges."""
        gold = rule.gold
        if rule.needs_gold and gold is None:
            gold = next(iter(self.state.golds.get(source, {})), None)
        versions = self.state.golds.get(source, {})
        return [
            key
            for key in step.facts
            if key.source == source
            and key.where == rule.where
            and (key.gold == gold if gold is not None else not rule.needs_gold)
            and (gold is None or key.gold_version == versions.get(key.gold))
        ]


def _sums(table: ScoreTable, facts: Mapping[Key, int], index: int) -> ItemSums:
    """The scores of a cluster's requests in one metric."""
    if len(facts) == 1:
        ((key, n),) = facts.items()
        score = table.scores(key)[index]
        if isinstance(score, int):
            return ItemSums(n, n * score)
    return item_sums(table, facts, index)
