"""The records of one minute, for alarms: what windows do not keep, above all which records belong to one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core.constants import JUDGE_PREFIX, LABEL
from ragmon.core.record import Record, TextFacts, is_redacted
from ragmon.metrics.answers import AnswerCorrect
from ragmon.metrics.facts import Key
from ragmon.scoring.bottom_k import MEMBERS, ROOM, left_out, rank
from ragmon.scoring.counts import add_sums, with_keys, with_text_keys
from ragmon.scoring.membership import Membership, names_of
from ragmon.stats import buckets

STEP: Final = 60
"""Seconds of a step."""
TOGETHER: Final = 1024
"""Values that are put into log buckets at once."""
SHAPES: Final = ("latency", "question_length", "answer_length", "top_score")
"""Label-free properties whose distribution is monitored; lengths are in characters."""
INDEXES: Final = 256
"""Builds with their indexes that a step keeps: the first in the order of their names."""


T = TypeVar("T")
_NONE: Final[Counter[int]] = Counter()
_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


Latencies = tuple[float, ...] | list[float]
"""Milliseconds: a tuple where there is one, because it takes less memory, and the garbage collector forgets it."""


class CountedRecord(NamedTuple):
    """The key under which a record was counted."""

    source: str
    gold: str = ""
    gold_version: str = ""
    where: str = ""


@lru_cache(4096)
def once(key: Key) -> dict[Key, int]:
    """The table of a single request with some facts. It is shared, and not to be changed."""
    return {key: 1}


def with_counts(own: dict[Key, int], other: Mapping[Key, int]) -> dict[Key, int]:
    """A table of facts with another one added; tables of a single tuple of facts may be shared, and are copied.

    >>> with_counts({(1,): 1}, {(1,): 2, (3,): 4})
    {(1,): 3, (3,): 4}
    """
    total = dict(own) if len(own) == 1 else own
    for key, n in other.items():
        total[key] = total.get(key, 0) + n
    return total


def latencies(values: Iterable[float]) -> Latencies:
    """Latencies of requests that are counted together.

    >>> latencies([1.0]), latencies([1.0, 2.0])
    ((1.0,), [1.0, 2.0])
    """
    found = list(values)
    return found if len(found) > 1 else tuple(found)


def joined(own: Latencies, other: Latencies) -> Latencies:
    """Latencies with others after them; a list is extended in place."""
    if isinstance(own, tuple):
        return [*own, *other]
    own.extend(other)
    return own


class StepState(msgspec.Struct):
    """The saved form of a `Step`; facts are text (`ragmon.scoring.counts.key_text`), and so are memberships.

    Attributes:
        grouped: Whether its texts are memberships; without it, each is a cluster.
        records: Its requests, each once.
    """

    minute: int
    facts: list[tuple[CountedRecord, dict[str, dict[str, int]]]]
    measures: list[tuple[tuple[CountedRecord, str], dict[str, list[int]]]]
    latency: dict[str, dict[str, Sequence[float]]]
    shapes: list[tuple[tuple[str, str], dict[int, int]]]
    indexes: list[tuple[str, str]]
    cites: bool = False
    in_gold: bool | None = None
    judged: list[tuple[tuple[str, str, str], list[int]]] = []
    grouped: bool = False
    records: int = 0


class _Limit(NamedTuple):
    """What a table of a step has room for.

    Attributes:
        room: Memberships from which it is cut again.
        largest: The largest rank of a name that is kept; None where none was left out.
    """

    room: int
    largest: int | None


@dataclass
class Step:
    """The records of one pipeline in one minute, or a uniform sample of their clusters where there are very many.

    Attributes:
        minute: Minutes since the epoch.
        facts: By key and membership, how often each tuple of facts was seen. Most memberships have one request, and
            those with the same facts share one table (`once`), which is never changed.
        measures: By key and metric, by membership, `(n, sum in micro-units)` of what was measured on text.
        latency: By source and membership, the total latencies in milliseconds.
        shapes: By source and property, the number of values in each log bucket.
        values: By source, the values of each of `SHAPES` that are not in buckets yet; they are added in batches.
        indexes: `(build, index_hash)` seen.
        cites: Whether an answer cites something.
        in_gold: Whether retrieved ids occur in gold; None where there were none to compare.
        judged: By source, judge and version, `[n, sum, sum of squares]` of scores in micro-units; under `label`, of
            label minus score.
        records: Its requests, each once, those that are not in the sample too.
    """

    minute: int
    facts: dict[CountedRecord, dict[Membership, dict[Key, int]]] = field(default_factory=dict)
    measures: dict[tuple[CountedRecord, str], dict[Membership, list[int]]] = field(default_factory=dict)
    latency: dict[str, dict[Membership, Latencies]] = field(default_factory=dict)
    shapes: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    values: dict[str, tuple[list[float], ...]] = field(default_factory=dict)
    indexes: set[tuple[str, str]] = field(default_factory=set)
    cites: bool = False
    in_gold: bool | None = None
    judged: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    records: int = 0
    _limits: dict[CountedRecord | str, _Limit] = field(default_factory=dict, repr=False, compare=False)

    def count(self, place: CountedRecord, member: Membership, key: Key, measured: Mapping[str, int]) -> None:
        """Add one request under its key, if its cluster is kept."""
        members = self.facts.get(place)
        if members is None:
            members = self.facts[place] = {}
        counts = members.get(member)
        if counts is not None:
            members[member] = with_counts(counts, {key: 1})
        elif (len(members) < ROOM and not self._limits) or self._admits(place, members, member):
            members[member] = once(key)
        else:
            return
        if not measured:
            return
        for name, score in measured.items():
            sums = self.measures.setdefault((place, name), {}).setdefault(member, [0, 0])
            sums[0] += 1
            sums[1] += score

    def add_scores(self, source: str, measured: Mapping[str, int], versions: Mapping[str, str]) -> None:
        """Add the scores of judges; of a labelled answer, how far the label is above them."""
        label = measured.get(AnswerCorrect.name) if source == LABEL else 0
        if label is None:
            return
        for name, score in measured.items():
            if name.startswith(JUDGE_PREFIX):
                observed = label - score if source == LABEL else score
                add_sums(self.judged, (source, name, versions.get(name, "")), (1, observed, observed * observed))

    def add_properties(self, source: str, member: Membership, record: Record) -> None:
        """Add the monitored properties of a request that do not depend on its facts."""
        self.records += 1
        if record.index_hash:
            self.indexes.add((record.build or "", record.index_hash))
            if len(self.indexes) > 2 * INDEXES:
                self._cut_indexes()
        values = self.values.get(source)
        if values is None:
            values = self.values[source] = ([], [], [], [])
        latencies, questions, answers, scores = values
        answer, latency = record.answer_json, record.latency_ms
        if latency is not None and latency.total is not None:
            self._add_latency(source, member, latency.total)
            latencies.append(latency.total)
        if record.facts is not None:
            _add_lengths(record, record.facts, questions, answers)
        else:
            if record.q is not None:
                questions.append(len(record.q))
            if answer is not None and answer.claim is not None:
                answers.append(len(answer.claim))
        if record.scores:
            scores.append(record.scores[0])
        if self.records % TOGETHER == 0:
            self.flush()

    def _add_latency(self, source: str, member: Membership, milliseconds: float) -> None:
        """Add a latency, if its cluster is kept."""
        members = self.latency.get(source)
        if members is None:
            members = self.latency[source] = {}
        known = members.get(member)
        if known is not None:
            members[member] = joined(known, (milliseconds,))
        elif (len(members) < ROOM and not self._limits) or self._admits(source, members, member):
            members[member] = (milliseconds,)

    def shape(self, source: str, name: str) -> Counter[int]:
        """The number of values of a property in each log bucket."""
        self.flush()
        return self.shapes.get((source, name), _NONE)

    def flush(self) -> None:
        """Put values into their buckets, so that a busy minute is not kept and saved value by value."""
        for source, lists in self.values.items():
            for name, values in zip(SHAPES, lists, strict=True):
                if values:
                    self.shapes.setdefault((source, name), Counter()).update(buckets(values))
        self.values.clear()

    def _admits(self, table: CountedRecord | str, members: Mapping[Membership, Any], member: Membership) -> bool:
        """Whether a membership that a table does not have may be added to it; a table that is full is cut first.

        Args:
            table: The place of facts, or the source of latencies.
            members: What the table has.
            member: The membership.
        """
        limit = self._limits.get(table)
        if len(members) >= (ROOM if limit is None else limit.room):
            limit = self._cut_table(table)
        return limit is None or limit.largest is None or rank(member.name) <= limit.largest

    def _cut_table(self, table: CountedRecord | str) -> _Limit:
        """Cut one table to the clusters it keeps."""
        is_latency = isinstance(table, str)
        members: dict[Membership, Any] = self.latency[table] if isinstance(table, str) else self.facts[table]
        others, largest = left_out(members)
        sums = [] if is_latency else [held for (place, _), held in self.measures.items() if place == table]
        for cells in (members, *sums) if others else ():
            for member in others:
                cells.pop(member, None)
        limit = self._limits[table] = _Limit(max(ROOM, 2 * len(members)), largest)
        return limit

    def _cut_indexes(self) -> None:
        self.indexes = set(sorted(self.indexes)[:INDEXES])

    def cut(self) -> None:
        """Keep of every place the clusters with the smallest hashes, so that a step has a bounded size.

        A cut of a sum of cut steps is the cut of the sum.
        """
        tables: list[tuple[CountedRecord | str, Sized]] = [*self.facts.items(), *self.latency.items()]
        for table, members in tables:
            if len(members) > MEMBERS:
                self._cut_table(table)
        self._cut_indexes()

    def merge(self, other: Step) -> None:
        """Add what was seen elsewhere in the same minute; the order of merging does not matter.

        Args:
            other: The step; it is not to be used any more.
        """
        for place, members in other.facts.items():
            self._merge_table(place, self.facts.setdefault(place, {}), members, with_counts)
        for (place, metric), measured in other.measures.items():
            known, sums = self.facts[place], self.measures.setdefault((place, metric), {})
            for member, pair in measured.items():
                if member in known:
                    add_sums(sums, member, pair)
        for source, took in other.latency.items():
            self._merge_table(source, self.latency.setdefault(source, {}), took, joined)
        self._merge_properties(other)

    def _merge_table(
        self,
        table: CountedRecord | str,
        held: dict[Membership, T],
        others: Mapping[Membership, T],
        add: Callable[[T, T], T],
    ) -> None:
        """Add a table of another step to one of this step, and cut it where it gets too large."""
        room, largest = self._limits.get(table) or _Limit(ROOM, None)
        both = {member: add(held[member], others[member]) for member in held.keys() & others.keys()}
        if largest is None:
            held.update(others)
        else:
            ranks = map(rank, names_of(others))
            held.update(entry for entry, ranked in zip(others.items(), ranks, strict=True) if ranked <= largest)
        held.update(both)
        if len(held) >= room:
            self._cut_table(table)

    def _merge_properties(self, other: Step) -> None:
        """Add what is not counted by cluster."""
        other.flush()
        self.flush()
        for shape, buckets_of_shape in other.shapes.items():
            self.shapes.setdefault(shape, Counter()).update(buckets_of_shape)
        for judge, sums in other.judged.items():
            add_sums(self.judged, judge, sums)
        self.indexes |= other.indexes
        self._cut_indexes()
        self.cites = self.cites or other.cites
        if other.in_gold is not None:
            self.in_gold = self.in_gold or other.in_gold
        self.records += other.records

    def dump(self) -> StepState:
        """The step in its saved form; parts of it are not copied."""
        self.flush()
        return StepState(
            minute=self.minute,
            facts=[
                (place, {_member_text(member): with_text_keys(cells) for member, cells in members.items()})
                for place, members in self.facts.items()
            ],
            measures=[(key, _with_texts(members)) for key, members in self.measures.items()],
            latency={source: _with_texts(members) for source, members in self.latency.items()},
            shapes=list(self.shapes.items()),
            indexes=sorted(self.indexes),
            cites=self.cites,
            in_gold=self.in_gold,
            judged=list(self.judged.items()),
            grouped=True,
            records=self.records,
        )

    @classmethod
    def load(cls, state: StepState) -> Step:
        """A step from its saved form."""
        member = _text_member if state.grouped else _cluster_member
        return cls(
            state.minute,
            {
                place: {member(text): with_keys(cells) for text, cells in members.items()}
                for place, members in state.facts
            },
            {key: {member(text): sums for text, sums in members.items()} for key, members in state.measures},
            {
                source: {member(text): latencies(values) for text, values in members.items()}
                for source, members in state.latency.items()
            },
            {key: Counter(counts) for key, counts in state.shapes},
            indexes=set(state.indexes),
            cites=state.cites,
            in_gold=state.in_gold,
            judged=dict(state.judged),
            records=state.records,
        )


_ALONE: Final = "="
"""Begins the text of a membership that is a cluster of its own; others begin with a hash or with the mark below."""
_THEN: Final = "/"
"""Stands between the hash of a session and the question."""


def _member_text(member: Membership) -> str:
    if member.session or member.question:
        return f"{member.session}{_THEN}{member.question}"
    return f"{_ALONE}{member.alone}"


def _text_member(text: str) -> Membership:
    if text.startswith(_ALONE):
        return Membership(alone=text[len(_ALONE) :])
    session, _, question = text.partition(_THEN)
    return Membership(session, question)


def _cluster_member(cluster: str) -> Membership:
    return Membership(alone=cluster)


def _with_texts(members: Mapping[Membership, T]) -> dict[str, T]:
    return {_member_text(member): value for member, value in members.items()}


def _add_lengths(record: Record, facts: TextFacts, questions: list[float], answers: list[float]) -> None:
    """Add the lengths of texts that may have been removed or changed; facts have them then."""
    answer = record.answer_json
    if record.q is not None and not is_redacted(record, "q"):
        questions.append(len(record.q))
    elif facts.question_chars is not None:
        questions.append(facts.question_chars)
    if answer is not None and answer.claim is not None and not is_redacted(record, "claim"):
        answers.append(len(answer.claim))
    elif facts.claim_chars is not None:
        answers.append(facts.claim_chars)
