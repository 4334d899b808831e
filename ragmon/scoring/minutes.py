"""Which requests belong together, and the open minutes of all pipelines, for alarms.

A session or question is hashed: a checkpoint holds no text. Windows keep of clusters into which of 64 random groups
they fall: for each tuple of facts, how many requests fell into each group, which is bounded whatever the number of
sessions. A group follows from the session or the question alone, so the counts are a function of the set of records.

Of a minute with very many clusters, a step keeps a bottom-k sample: those whose names have the smallest hashes. The
sample is uniform over clusters, and it adds up: a name among the k smallest of a whole is among the k smallest of every
part that has it, so what is cut and merged in any order is what a cut of the whole would be (bottom-k sketches; Cohen
and Kaplan 2007, "Summarizing data using bottom-k sketches"). A dropped name may reappear until the next cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import astuple

from ragmon.core.constants import ALSO_LIVE_SOURCES, JUDGE_PREFIX, LABEL, LIVE
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.metrics.builtin import AnswerCorrect
from ragmon.metrics.facts import Key
from ragmon.stats.clusters import GROUPS
from ragmon.stats.histograms import add_counts, add_sums, bucket

CLUSTER: Final = ("session", "question")
HASH_DIGITS: Final = 16
_SESSION, _QUESTION, _HASH = range(3)
_RECENT: Final = 4096
"""Sessions and questions whose hashes are cached: a request that matches gold is counted twice."""


class Membership(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True, array_like=True):
    """The groups a request is in. Requests in the same groups of a step are counted together.

    A minute holds tens of thousands of them: the garbage collector does not visit them, and each is hashed once.

    Attributes:
        session: The hash of its session; "" without a session.
        question: The hash of its question, or the id of its gold item; "" without either.
        alone: Cluster id if there is no session or question: the gold item of probes and replays, else the trace id.
    """

    session: str = ""
    question: str = ""
    alone: str = ""

    @property
    def item(self) -> str:
        """The id of its gold item, where it has one."""
        return self.question or self.alone

    @property
    def name(self) -> str:
        """What it is kept or left out with: its session, so that a session is there as a whole."""
        return self.session or self.question or self.alone


def names_of(members: Iterable[Membership]) -> list[str]:
    """The name of each membership; a call for each would double what a cut of a minute costs."""
    return [member.session or member.question or member.alone for member in members]


def cluster_of(record: Record, item: GoldItem | None, by: Collection[str] = CLUSTER) -> str:
    """The cluster of a record: its gold item, its session, or all requests with the same question.

    `by` says which of `session` and `question` are used. Both are hashed, because a checkpoint holds no text.
    """
    if item is not None:
        return item.qid
    return _session(record, by) or _question(record, by) or record.trace_id or ""


def membership(record: Record, item: GoldItem | None, source: str, by: Collection[str] = CLUSTER) -> Membership:
    """The groups of a record that is counted under a source; `by` says which of `session` and `question` are used.

    ragmon itself asks the gold items of a run or of probes: each item is a cluster there.
    """
    if item is not None:
        users = source == LIVE or source in ALSO_LIVE_SOURCES
        return Membership(_session(record, by), item.qid) if users else Membership("", "", item.qid)
    session, question = _session(record, by), _question(record, by)
    return Membership(session, question, "" if session or question else record.trace_id or "")


def _session(record: Record, by: Collection[str]) -> str:
    session = record.session
    return _digest("s", session) if session and "session" in by else ""


def _question(record: Record, by: Collection[str]) -> str:
    return question_of(record) if "question" in by else ""


def question_of(record: Record) -> str:
    """The hash of a record's question; "" where the question is not known."""
    known = _known_question(record)
    if known is None:
        return ""
    text, kind = known
    return _digest("q", text) if kind == _QUESTION else text[:HASH_DIGITS]


def _known_question(record: Record) -> tuple[str, int] | None:
    # Its text, or its hash where the text was removed or changed.
    question, facts = record.q, record.facts
    if question is not None and (facts is None or not is_redacted(record, "q")):
        return normalise_question(question), _QUESTION
    return None if facts is None or facts.question_hash is None else (facts.question_hash, _HASH)


@lru_cache(_RECENT)
def _digest(kind: str, text: str) -> str:
    return blake2b(f"{kind}{text}".encode("utf-8", "surrogatepass"), digest_size=HASH_DIGITS // 2).hexdigest()


def group_of(record: Record, item: GoldItem | None, source: str, by: Collection[str]) -> int | None:
    """The group of a record's cluster: its session, or all requests with the same question; None if it is alone.

    Requests of a gold item without a session are in none: a number on gold is about this set, and an answer is an
    observation, or about questions like these, and the table of items has the clusters. A label does not keep the
    question of its answer.
    """
    session = record.session
    if session and "session" in by:
        return _group(session, _SESSION)
    if item is not None or source == LABEL or "question" not in by:
        return None
    known = _known_question(record)
    return None if known is None else _group(*known)


def _group(text: str, kind: int) -> int:
    # Mixed, as numbered sessions must not spread more evenly than chance. Source: the last steps of MurmurHash3
    # (Appleby, 2011, public domain).
    x = crc32(text.encode("utf-8", "surrogatepass"), kind)
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return (x ^ x >> 16) % GROUPS  # two rounds: of one, groups of numbered sessions are too even


CLUSTERS: Final = 4096  # clusters of one key that a minute keeps: more observations would decide nothing else
MEMBERS: Final = 16
"""Memberships of a cluster that a minute keeps: a session that asks more questions a minute is a crawler."""
_MIX: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1
"""An odd factor that spreads numbers over 64 bits (multiplicative hashing; Knuth, volume 3, section 6.4): names that
look like hashes and are counted up are no worse than hashes."""
ROOM: Final = 2 * CLUSTERS  # memberships from which a cut is made in the middle of a minute


@lru_cache(2 * ROOM)  # a name is ranked wherever it is counted, and at every cut
def rank(name: str) -> int:
    """The hash of a name, the same in every process: names with the smallest are kept.

    >>> rank("a") == rank("a") != rank("b")
    True
    """
    if len(name) == HASH_DIGITS:  # sessions and questions are hashes already
        try:
            return int(name, 16) * _MIX & _MASK
        except ValueError:
            pass
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def left_out(members: Iterable[Membership]) -> list[Membership]:
    """The memberships that are not kept: beyond `CLUSTERS` names, and `MEMBERS` memberships of a name."""
    every = list(members)
    names = names_of(every)
    found, sizes = list[Membership](), Counter(names)
    if len(sizes) > CLUSTERS:
        ranks = list(map(rank, sizes))
        largest = sorted(ranks)[CLUSTERS - 1]
        kept = {name for name, ranked in zip(sizes, ranks, strict=True) if ranked <= largest}
        found = [member for member, name in zip(every, names, strict=True) if name not in kept]
        sizes = Counter({name: sizes[name] for name in kept})
    crowded: dict[str, list[Membership]] = {name: [] for name, size in sizes.items() if size > MEMBERS}
    for member, name in zip(every, names, strict=True) if crowded else ():
        if name in crowded:
            crowded[name].append(member)
    for together in crowded.values():
        found += sorted(together, key=lambda member: rank("\0".join(astuple(member))))[MEMBERS:]
    return found


MINUTE: Final = 60
SHAPES: Final = ("latency", "question_length", "answer_length", "top_score")
"""Label-free properties whose distribution is monitored; lengths are in characters."""
INDEXES: Final = 256  # builds with their indexes that a step keeps: the first in the order of their names


class CountedRecord(NamedTuple):
    """The key under which a record was counted."""

    source: str
    gold: str = ""
    gold_version: str = ""
    where: str = ""


class Minute(msgspec.Struct, omit_defaults=True):
    """The records of one pipeline in one minute, or a uniform sample of their clusters where there are very many.

    Attributes:
        minute: Minutes since the epoch.
        facts: By key and membership, how often each tuple of facts was seen.
        measures: By key and metric, by membership, `[n, sum in micro-units]` of what was measured on text.
        latency: By source and membership, the total latencies in milliseconds.
        shapes: By source and property (`SHAPES`), the number of values in each log bucket.
        in_gold: Whether retrieved ids occur in gold; None where there were none to compare.
        judged: By source, judge and version, `[n, sum, sum of squares]` of scores in micro-units; under `label`, of
            label minus score.
    """

    minute: int
    facts: dict[CountedRecord, dict[Membership, dict[Key, int]]] = {}
    measures: dict[tuple[CountedRecord, str], dict[Membership, list[int]]] = {}
    latency: dict[str, dict[Membership, list[float]]] = {}
    shapes: dict[tuple[str, str], dict[int, int]] = {}
    indexes: dict[tuple[str, str], int] = {}
    cites: bool = False
    in_gold: bool | None = None
    judged: dict[tuple[str, str, str], list[int]] = {}
    records: int = 0

    def count(self, counted: CountedRecord, member: Membership, key: Key, measured: Mapping[str, int]) -> None:
        """Add one request under its key."""
        members = self.facts.setdefault(counted, {})
        counts = members.get(member)
        if counts is None:
            if len(members) >= ROOM and not len(members) % CLUSTERS:
                self._cut_facts(counted)
            members[member] = {key: 1}
        else:
            counts[key] = counts.get(key, 0) + 1
        for name, score in measured.items():
            add_sums(self.measures.setdefault((counted, name), {}), member, (1, score))

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
            add_counts(self.indexes, {(record.build or "", record.index_hash): 1})
            if len(self.indexes) > 2 * INDEXES:
                self._cut_indexes()
        latency = None if record.latency_ms is None else record.latency_ms.total
        if latency is not None:
            members = self.latency.setdefault(source, {})
            if member not in members and len(members) >= ROOM and not len(members) % CLUSTERS:
                _cut(members)
            members.setdefault(member, []).append(latency)
        # Of texts that were removed or changed, facts have the lengths.
        facts, claim = record.facts, None if record.answer_json is None else record.answer_json.claim
        question, answer = (None if text is None else len(text) for text in (record.q, claim))
        if facts is not None and (question is None or is_redacted(record, "q")):
            question = facts.question_chars
        if facts is not None and (answer is None or is_redacted(record, "claim")):
            answer = facts.claim_chars
        score = record.scores[0] if record.scores else None
        for name, value in zip(SHAPES, (latency, question, answer, score), strict=True):
            if value is not None:
                shape = self.shapes.setdefault((source, name), {})
                log_bucket = bucket(value)
                shape[log_bucket] = shape.get(log_bucket, 0) + 1

    def shape(self, source: str, name: str) -> Mapping[int, int]:
        """The number of values of a property in each log bucket."""
        return self.shapes.get((source, name), {})

    def _cut_facts(self, counted: CountedRecord) -> None:
        for member in _cut(self.facts[counted]):
            for (measured_as, _), sums in self.measures.items():
                if measured_as == counted:
                    sums.pop(member, None)

    def _cut_indexes(self) -> None:
        self.indexes = dict(sorted(self.indexes.items())[:INDEXES])

    def cut(self) -> None:
        """Keep of every key the clusters with the smallest hashes, so that a step has a bounded size.

        A cut of a sum of cut steps is the cut of the sum.
        """
        for counted in self.facts:
            self._cut_facts(counted)
        for members in self.latency.values():
            _cut(members)
        self._cut_indexes()

    def merge(self, other: Minute) -> None:
        """Add what was seen elsewhere in the same minute; the order of merging does not matter."""
        for counted, members in other.facts.items():
            own_members = self.facts.setdefault(counted, {})
            for member, counts in members.items():
                add_counts(own_members.setdefault(member, {}), counts)
        for measured, sums in other.measures.items():
            for member, pair in sums.items():
                add_sums(self.measures.setdefault(measured, {}), member, pair)
        for source, took in other.latency.items():
            for member, values in took.items():
                self.latency.setdefault(source, {}).setdefault(member, []).extend(values)
        for shape, values_of_shape in other.shapes.items():
            add_counts(self.shapes.setdefault(shape, {}), values_of_shape)
        for judge, sums_of_judge in other.judged.items():
            add_sums(self.judged, judge, sums_of_judge)
        add_counts(self.indexes, other.indexes)
        self.cites = self.cites or other.cites
        if other.in_gold is not None:
            self.in_gold = self.in_gold or other.in_gold
        self.records += other.records
        self.cut()


def _cut(members: dict[Membership, Any]) -> list[Membership]:
    others = left_out(members) if len(members) > MEMBERS else []
    for member in others:
        del members[member]
    return others


_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})
_counted_record: Final = lru_cache(256)(CountedRecord)
"""The key of the same names: to look it up is faster than to make it."""


class CountedRequest(msgspec.Struct, frozen=True):
    """A request that a scorer counts, as observers see it.

    Attributes:
        arrival: Seconds since the epoch.
        measured: The scores, in micro-units, of measured metrics that apply.
        in_gold: Whether retrieved ids occur in gold; None where there are none to compare.
    """

    pipeline: str
    arrival: float
    source: str
    record: Record
    item: GoldItem | None
    key: Key
    measured: Mapping[str, int] = {}
    slices: Sequence[str] = ()
    in_gold: bool | None = None


class Minutes(msgspec.Struct):
    """The open steps, and what became of the closed ones.

    Attributes:
        late: Records that arrived after their minute was closed, and count in a later one.
    """

    closed: int = -1
    late: int = 0
    open: dict[int, dict[str, Minute]] = {}


class MinuteBatches:
    """The open steps of all pipelines.

    Args:
        slices: Slices that alarms watch; others are not collected.
    """

    def __init__(
        self, slices: Collection[str] = (), cluster: Callable[[str], Collection[str]] = lambda _: CLUSTER
    ) -> None:
        self.state = Minutes()
        self._slices = frozenset(slices)
        self._cluster = lru_cache(256)(cluster)

    def collect(self, request: CountedRequest) -> None:
        """Add a request to the step of its minute, as a `ScoreObserver`, if the uniform sampler kept it."""
        record, source, pipeline, item = request.record, request.source, request.pipeline, request.item
        if record.sampling is not None and not record.sampling.drawn:
            return
        key, measured, in_gold = request.key, request.measured, request.in_gold
        is_first, minute = source not in ALSO_LIVE_SOURCES, int(request.arrival) // MINUTE
        if minute <= self.state.closed:  # matched and labelled records were already counted as live traffic
            self.state.late += is_first
        step, member = self._at(pipeline, minute), membership(record, item, source, self._cluster(pipeline))
        if not step.cites and record.cites:
            step.cites = True
        if in_gold is not None:
            step.in_gold = step.in_gold or in_gold
        gold, version = ("", "") if item is None else (item.set_name, item.set_version)
        step.count(_counted_record(source, gold, version), member, key, measured)
        for where in request.slices:
            if where in self._slices:
                step.count(_counted_record(source, gold, version, where), member, key, measured)
        if is_first:
            step.add_properties(source, member, record)
        if measured and (source == LABEL or is_first):
            step.add_scores(source, measured, record.judge_versions or _NO_VERSIONS)

    def _at(self, pipeline: str, minute: int) -> Minute:
        if minute <= self.state.closed:
            minute = self.state.closed + 1
        steps = self.state.open.setdefault(minute, {})
        step = steps.get(pipeline)
        if step is None:
            step = steps[pipeline] = Minute(minute)
        return step

    def put(self, pipeline: str, step: Minute) -> None:
        """Add what was seen elsewhere in a minute; if that was closed here, it counts later. The step is used up."""
        if step.minute <= self.state.closed:
            self.state.late += step.records
        self._at(pipeline, step.minute).merge(step)

    def take(self) -> list[tuple[str, Minute]]:
        """Hand out every open step in order, whether its minute ended or not, and begin anew."""
        return self._hand_out(sorted(self.state.open))

    def close(self, before: float) -> list[tuple[str, Minute]]:
        """Close and return every step that ended before a time, in order."""
        minutes = sorted(minute for minute in self.state.open if (minute + 1) * MINUTE <= before)
        self.state.closed = minutes[-1] if minutes else self.state.closed
        return self._hand_out(minutes)

    def _hand_out(self, minutes: list[int]) -> list[tuple[str, Minute]]:
        steps = [
            entry for minute in minutes for entry in sorted(self.state.open.pop(minute).items(), key=itemgetter(0))
        ]
        for _, step in steps:
            step.cut()
        return steps
