"""Which requests make one observation, and which of them count: what shares its fate bets once, not every minute.

Within a step a request belongs to its session or to its question, whichever is coarser: to the question if more
sessions asked it than the session asked questions. A retry storm is one observation then, and so is a crawler.

Over the steps a session counts in the first one in which a metric can score it, until it was silent for `IDLE`
minutes or is `LIFE` minutes old. A question that is asked `CROWD` times in a minute, and was asked within `LULL`
minutes before, counts once in `REPEAT` minutes. What a metric sees in a step is new, so that its mean, given the past,
is that of new sessions, however much the requests of one session have in common.
Gold items that are probed or replayed are no part of this: who asks, and when, does not depend on the answers.

The memory is a function of the steps: it uses no clock and no chance, and the order within a step does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from ragmon.core.constants import LATENCY
from ragmon.scoring.bottom_k import rank
from ragmon.scoring.item_windows import ItemSums
from ragmon.scoring.membership import Membership
from ragmon.scoring.steps import Latencies, Step

IDLE: Final = 30
"""Minutes of silence after which a session is over."""
LIFE: Final = 240
"""Minutes after which a session that goes on counts again: one name for all traffic must not silence every alarm."""
REPEAT: Final = 10
"""Minutes until a question counts again: a storm of retries adds six failures an hour, and 20 questions that
everybody asks still are 120 observations."""
LULL: Final = 2
"""Minutes without a question after which it counts again: two people who ask the same by chance are no storm."""
CROWD: Final = 2
"""Requests in a minute from which on a question is no coincidence: a single one counts whenever it comes."""
MOST: Final = 8_192
"""Sessions, and questions, that a pipeline remembers; with more of them it observes a sample."""
_LONG: Final = 32
"""Longer names of questions are hashed."""

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
def _with(uses: tuple[int, ...], use: int) -> tuple[int, ...]:
    return tuple(sorted({*uses, use}))


class ClusterMemory(msgspec.Struct):
    """The sessions and questions of a pipeline that were counted.

    A sample of hashes is observed where there are more than `MOST`: halved until the sessions fit, doubled when they
    fill less than a quarter. Of too many questions the oldest are forgotten.

    Attributes:
        uses: What sessions and questions are counted for: the metrics of a source, each known by its place.
        sessions, questions: What was counted, by hash.
        halvings: How often the observed sample was halved.
    """

    uses: list[str] = []
    sessions: dict[str, Counted] = {}
    questions: dict[str, Counted] = {}
    halvings: int = 0

    def open(self, step: Step) -> StepClusters:
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
        """For what a session or question was counted.

        Args:
            member: The session and the question.
            asked: How often each question is asked in this step.
        """
        session, question = self.sessions.get(member.session), self.questions.get(_name(member.question))
        found = () if session is None else session.uses
        return (*found, *question.uses) if question is not None and asked[member.question] >= CROWD else found

    def number(self, use: str) -> int:
        """The place of a use, given at its first one."""
        if use not in self.uses:
            self.uses.append(use)
        return self.uses.index(use)

    def mark(self, members: Iterable[Membership], minute: int, use: int) -> None:
        """Remember that these were counted."""
        for member in members:
            for names, name in ((self.sessions, member.session), (self.questions, _name(member.question))):
                if name:
                    counted = names.setdefault(name, Counted(minute, minute))
                    counted.uses = _with(counted.uses, use)


def _name(question: str) -> str:
    """A question's name, of a bounded length."""
    if len(question) <= _LONG:
        return question
    return blake2b(question.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class StepClusters:
    """The clusters of one step.

    Args:
        step: The step.
        memory: What was counted before; None: nothing was.
    """

    def __init__(self, step: Step, memory: ClusterMemory | None = None) -> None:
        self._minute, self._memory = step.minute, memory or ClusterMemory()
        found: dict[str, set[Membership]] = {}
        for place, members in step.facts.items():
            found.setdefault(place.source, set()).update(members)
        asked = _asked(step)
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
        """The sums of each cluster; what has a score is counted, and does not count in later steps.

        Args:
            source: The source of the requests.
            use: What they are counted for.
            members: The groups of requests.
            sums: The scores of the requests in the same groups.
        """
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

    def latencies(self, source: str, values: Mapping[Membership, Latencies]) -> list[list[float]]:
        """The latencies of each cluster; they are counted.

        Args:
            source: The source of the requests.
            values: Milliseconds, by the groups of the requests.
        """
        clusters = self._clusters.get(source, {})
        # Of very many clusters a sample is kept, and of facts another one than of latencies where some have none.
        members = self.new(source, LATENCY, [member for member in values if member in clusters])
        joined: dict[Cluster, list[float]] = {}
        for member in members:
            joined.setdefault(clusters[member], []).extend(values[member])
        self._memory.mark(members, self._minute, self._memory.number(f"{source}/{LATENCY}"))
        return list(joined.values())


def _asked(step: Step) -> Counter[str]:
    """How often each question is asked in a step; a request that matches gold is counted under two sources."""
    asked: Counter[str] = Counter()
    by_source: dict[str, Counter[str]] = {}
    for place, members in step.facts.items():
        if not place.where:
            counts = by_source.setdefault(place.source, Counter())
            for member, facts in members.items():
                counts[member.question] += max(1, sum(facts.values()))
    for counts in by_source.values():
        asked |= counts
    return asked


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
