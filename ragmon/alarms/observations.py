"""Observations: which requests count, and the scores of one metric in one step, one score in [0, 1] per cluster.

Within a step a request belongs to its session or to its question, whichever is coarser: to the question if more
sessions asked it than the session asked questions. A retry storm is one observation then, and so is a crawler.

Over the steps a session counts in the first one in which a metric can score it, until it was silent for `IDLE`
minutes or is `LIFE` minutes old. A question that is asked `CROWD` times in a minute, and was asked within `LULL`
minutes before, counts once in `REPEAT` minutes. So each step counts only new sessions, and its mean, given the past, is
that of new sessions, however much the requests of one session have in common. Gold items that are probed or replayed
are no part of this: who asks, and when, does not depend on the answers. Nor are items for a rule on those that flipped:
each is one observation in every minute in which `DIVERSE` items are asked.

The memory is a function of the steps: it uses no clock and no chance, and the order within a step does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from operator import add
from typing import Final, NamedTuple

import msgspec

from ragmon.alarms.plan import AlarmRule
from ragmon.core.constants import ALSO_LIVE_SOURCES, LATENCY
from ragmon.core.policy import FREE_SOURCES, GOLD_SOURCES
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import CITED_OTHERWISE, CitationCounts, Key, all_read_as
from ragmon.scoring.minutes import CountedRecord, Membership, Minute, rank
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ItemSums, item_sums
from ragmon.stats.histograms import MICRO

IDLE: Final = 30  # minutes of silence after which a session is over
LIFE: Final = 240
"""Minutes after which a session that goes on counts again: one name for all traffic must not silence every alarm."""
REPEAT: Final = 10
"""Minutes until a question counts again: a storm of retries adds six failures an hour, and 20 questions that
everybody asks still are 120 observations."""
LULL: Final = 2
"""Minutes without a question after which it counts again: two people who ask the same by chance are no storm."""
CROWD: Final = 2
"""Requests in a minute from which on a question is no coincidence: a single one counts whenever it comes."""
DIVERSE: Final = 5
"""Gold items in a minute from which on they count again: a crowd that asks one question is no proof."""
MOST: Final = 8_192
"""Sessions, and questions, that a pipeline remembers; with more of them it observes a sample."""
_LONG: Final = 32  # longer names of questions are hashed

Cluster = tuple[str, ...]


class Counted(msgspec.Struct, array_like=True, gc=False):
    """A session or a question that was counted.

    Attributes:
        first: The first minute of its life.
        last: The last minute with a request.
        uses: For what it was counted (`ClusterMemory.uses`), in order. Nearly all have the same, so equal ones are one.
    """

    first: int
    last: int
    uses: tuple[int, ...] = ()


@lru_cache(1024)
def _with_use(uses: tuple[int, ...], use: int) -> tuple[int, ...]:
    return tuple(sorted({*uses, use}))


class ClusterMemory(msgspec.Struct):
    """The sessions and questions of a pipeline that were counted.

    A sample of hashes is observed where there are more than `MOST`: halved until the sessions fit, doubled when they
    fill less than a quarter. Of too many questions the oldest are forgotten.

    Attributes:
        uses: What sessions and questions are counted for: the metrics of a source, each known by its place.
        sessions, questions: What was counted, by hash.
    """

    uses: list[str] = []
    sessions: dict[str, Counted] = {}
    questions: dict[str, Counted] = {}
    halvings: int = 0

    def open(self, step: Minute) -> StepClusters:
        """The clusters of a step that is later than any before; what is over by then is forgotten."""
        minute = step.minute
        self.sessions = {
            name: counted
            for name, counted in self.sessions.items()
            if minute - counted.last <= IDLE and minute - counted.first < LIFE
        }
        self.questions = {
            name: counted
            for name, counted in self.questions.items()
            if minute - counted.last <= LULL and minute - counted.first < REPEAT
        }
        for member in {member for members in step.facts.values() for member in members}:
            for names, name in ((self.sessions, member.session), (self.questions, _name(member.question))):
                if name in names:
                    names[name].last = minute
        return StepClusters(step, self)

    def close(self) -> None:
        """End a step: observe as large a sample as can be remembered."""
        crowded = len(self.questions) > MOST
        if crowded:
            newest = sorted(self.questions, key=lambda name: (-self.questions[name].first, name))[:MOST]
            self.questions = {name: self.questions[name] for name in newest}
        elif self.halvings and max(len(self.sessions), len(self.questions)) < MOST // 4:
            self.halvings -= 1
        while crowded or len(self.sessions) > MOST:
            self.halvings += 1
            self.sessions = {name: counted for name, counted in self.sessions.items() if self._samples(name)}
            crowded = False

    def _samples(self, name: str) -> bool:
        return rank(name) >> (64 - self.halvings) == 0

    def observes(self, member: Membership) -> bool:
        """Whether a session, or a question without one, is in the sample."""
        name = member.session or _name(member.question)
        return not (self.halvings and name) or self._samples(name)

    def uses_of(self, member: Membership, asked: Mapping[str, int]) -> tuple[int, ...]:
        """For what a session or question was counted, given how often each question is asked in this step."""
        session, question = self.sessions.get(member.session), self.questions.get(_name(member.question))
        found = () if session is None else session.uses
        return (*found, *question.uses) if question is not None and asked[member.question] >= CROWD else found

    def number(self, use: str) -> int:
        """The number of a use, given at its first one."""
        if use not in self.uses:
            self.uses.append(use)
        return self.uses.index(use)

    def mark(self, members: Iterable[Membership], minute: int, use: int) -> None:
        """Remember that these were counted."""
        for member in members:
            for names, name in ((self.sessions, member.session), (self.questions, _name(member.question))):
                if name:
                    counted = names.setdefault(name, Counted(minute, minute))
                    counted.uses = _with_use(counted.uses, use)


def _name(question: str) -> str:
    if len(question) <= _LONG:
        return question
    return blake2b(question.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class StepClusters:
    """The clusters of one step."""

    def __init__(self, step: Minute, memory: ClusterMemory | None = None) -> None:
        self._minute, self._memory = step.minute, memory or ClusterMemory()
        found: dict[str, set[Membership]] = {}
        by_source: dict[str, Counter[str]] = {}
        for location, members in step.facts.items():
            found.setdefault(location.source, set()).update(members)
            if not location.where:
                counts = by_source.setdefault(location.source, Counter())
                for member, facts in members.items():
                    counts[member.question] += max(1, sum(facts.values()))
        asked: Counter[str] = Counter()
        for counts in by_source.values():
            asked |= counts  # the most of any source: a request that matches gold is counted under two
        self._before = {
            member: self._memory.uses_of(member, asked)
            for member in set().union(*found.values())
            if self._memory.observes(member)
        }
        self._clusters = {source: coarser(members) for source, members in found.items()}

    def new(self, source: str, use: str, members: Collection[Membership]) -> list[Membership]:
        """Those of the sample whose session and question were not counted for this use in an earlier step."""
        number, before = self._memory.number(f"{source}/{use}"), self._before
        return [member for member in members if member in before and number not in before[member]]

    def fold(
        self, source: str, use: str, members: Collection[Membership], sums: Callable[[Membership], ItemSums]
    ) -> Iterator[ItemSums]:
        """The sums of each cluster; what has a score is counted, and does not count in later steps."""
        clusters, counted = self._clusters[source], []
        folded: dict[Cluster, ItemSums] = {}
        for member in self.new(source, use, members):
            n, total, unknown = sums(member)
            if n or unknown:
                counted.append(member)
                cluster = clusters[member]
                before = folded.get(cluster)
                if before is not None:
                    n, total, unknown = n + before.n, total + before.total, unknown + before.unknown
                folded[cluster] = ItemSums(n, total, unknown)
        self._memory.mark(counted, self._minute, self._memory.number(f"{source}/{use}"))
        return iter(folded.values())

    def latencies(self, source: str, values: Mapping[Membership, list[float]]) -> list[list[float]]:
        """The latencies of each cluster; they are counted."""
        clusters = self._clusters.get(source, {})
        # Of very many clusters a sample is kept, and of facts another one than of latencies where some have none.
        members = self.new(source, LATENCY, [member for member in values if member in clusters])
        joined: dict[Cluster, list[float]] = {}
        for member in members:
            joined.setdefault(clusters[member], []).extend(values[member])
        self._memory.mark(members, self._minute, self._memory.number(f"{source}/{LATENCY}"))
        return list(joined.values())


def coarser(members: Collection[Membership]) -> dict[Membership, Cluster]:
    """The cluster of each member: its question if more sessions asked it than its session asked questions."""
    asked_by: Counter[str] = Counter()
    asks: Counter[str] = Counter()
    for member in members:
        if member.session and member.question:
            asked_by[member.question] += 1
            asks[member.session] += 1
    clusters: dict[Membership, Cluster] = {}
    for member in members:
        session, question, alone = member.session, member.question, member.alone
        if not question or (session and asked_by[question] <= asks[session]):
            clusters[member] = ("session", session) if session else ("alone", alone)
        else:
            clusters[member] = ("question", question)
    return clusters


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
    """What a pipeline has shown: whether its answers cite, and how, and whether its ids are those of gold.

    Attributes:
        cited: Whether an answer has cited something; before, nothing about citations is judged or learned.
        in_gold: Whether a retrieved id has occurred in gold; as long as none did, nothing that compares ids is judged
            or learned. None: there were none to compare.
        citations: The numbers of `CitationCounts`.
    """

    cited: bool = False
    in_gold: bool | None = None
    citations: CitationCounts = CitationCounts()

    def see(self, step: Minute) -> None:
        """Remember what the records of a step show, and read its citations in the form that they have."""
        is_usual, counts = True, self.citations
        for counted, members in step.facts.items():
            if counted.where or counted.source in ALSO_LIVE_SOURCES:  # the same requests again
                continue
            for facts in members.values():
                for (flags, *_), n in facts.items():
                    if (cited := CitationCounts.of(flags, n)) is not None:
                        counts = CitationCounts(*map(add, counts, cited))
                        is_usual = is_usual and not flags & CITED_OTHERWISE
        self.citations = counts
        if not is_usual:
            form = counts.form
            for members in step.facts.values():
                for member, facts in members.items():
                    members[member] = all_read_as(facts, form)
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
    """The observations of the scores of clusters."""
    sums = list(clusters)
    assessed = observe((n, total) for n, total, _ in sums)
    if not any(unknown for _, _, unknown in sums):
        return StepObservations(assessed, assessed, assessed)
    high = observe((n + unknown, total + unknown * MICRO) for n, total, unknown in sums)
    low = observe((n + unknown, total) for n, total, unknown in sums)
    return StepObservations(assessed, high, low)


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
    """

    sources: dict[int, str] = {}
    golds: dict[str, dict[str, str]] = {}
    first: dict[str, dict[str, int]] = {}
    given: dict[str, str] = {}


class ObservationSelector:
    """Chooses the observations of a pipeline's alarm rules.

    A rule without a source uses the first source that ever had data, in the order of the gates; a rule without a gold
    set uses the first gold set that was seen.
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
        """Compare with a release run: its gold versions by source, and each item's score by metric, in micro-units."""
        self.state.given = {gold: version for versions in golds.values() for gold, version in versions.items()}
        self.state.first = {name: dict(scores) for name, scores in first.items()}

    def turn(self, step: Minute) -> SourceSwitch:
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
        versions_by_gold: dict[tuple[str, str], set[str]] = {}
        for key in step.facts:
            if key.gold:
                versions_by_gold.setdefault((key.source, key.gold), set()).add(key.gold_version)
        swapped = set()
        for (source, gold), versions in sorted(versions_by_gold.items()):  # in whatever order their records came
            current = self.state.golds.setdefault(source, {})
            previous = current.get(gold, self.state.given.get(gold))
            current[gold] = max(
                versions - {previous}, default=previous or ""
            )  # of both versions in a minute the new one
            if previous not in (None, current[gold]):
                swapped.add(source)
        switch = SourceSwitch(frozenset(switched), frozenset(swapped))
        if True in switched or sources.get(True) in switch.golds:
            self.state.first.clear()
        return switch

    def concerns(self, turn: SourceSwitch, rule: AlarmRule) -> bool:
        """Whether a rule judges another population after a switch."""
        if rule.source is None and rule.needs_gold in turn.sources:
            return True
        return rule.needs_gold and (rule.source or self.state.sources.get(True)) in turn.golds

    def of(self, step: Minute, rule: AlarmRule, clusters: StepClusters) -> StepObservations:
        """The observations of a rule's metric in a step, oriented as the metric is exported."""
        source = rule.source or self.state.sources.get(rule.needs_gold)
        if source is None:
            return NOTHING
        found: list[ItemSums] = []
        for key in self._keys(step, rule, source):
            found += clusters.fold(source, rule.metric, step.facts[key], self._reader(step, key, rule.metric))
        return observe_step(found)

    def _reader(self, step: Minute, key: CountedRecord, metric: str) -> Callable[[Membership], ItemSums]:
        # By membership; what is measured on text may be unknown, as texts are not captured.
        index, members = self._indexes[metric], step.facts[key]
        if not self._table.metrics[metric].measured:
            return lambda member: _sums(self._table, members[member], index)
        measures = step.measures.get((key, metric), {})

        def measured(member: Membership) -> ItemSums:
            n, total = measures.get(member, (0, 0))
            return ItemSums(n, total, _sums(self._table, members[member], index).unknown)

        return measured

    def paired(self, step: Minute, rule: AlarmRule, clusters: StepClusters, *, freeze: bool) -> StepObservations:
        """One minus the loss of each gold item against its first score."""
        source = rule.source or self.state.sources.get(True)
        if source is None:
            return NOTHING
        first = self.state.first.setdefault(rule.metric, {})
        direction = -1 if self._table.metrics[rule.metric].better == "lower" else 1
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
            if rule.repeats:
                found += _by_item(known, loss)
            else:
                found += clusters.fold(source, f"{rule.metric}:paired", known, loss)
        first |= {item: total // n for item, (n, total) in new.items()}
        return NOTHING if rule.repeats and len(found) < DIVERSE else observe_step(found)

    def _keys(self, step: Minute, rule: AlarmRule, source: str) -> list[CountedRecord]:
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


def _by_item(members: Iterable[Membership], sums: Callable[[Membership], ItemSums]) -> Iterable[ItemSums]:
    by_item: dict[str, ItemSums] = {}
    for member in members:
        before = by_item.get(member.item, ItemSums())
        by_item[member.item] = ItemSums(*map(add, before, sums(member)))
    return by_item.values()


def _sums(table: ScoreTable, facts: Mapping[Key, int], index: int) -> ItemSums:
    if len(facts) == 1:
        ((key, n),) = facts.items()
        score = table.scores(key)[index]
        if isinstance(score, int):
            return ItemSums(n, n * score)
    return item_sums(table, facts, index)
