"""The records of one minute, for alarms: what windows do not keep, above all which records belong to one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import JUDGE_PREFIX, LABEL
from ragmon.core.record import Record, is_redacted
from ragmon.metrics.answers import AnswerCorrect
from ragmon.metrics.facts import Key
from ragmon.scoring.bottom_k import CLUSTERS, MEMBERS, ROOM, left_out
from ragmon.scoring.counts import add_counts, add_sums
from ragmon.scoring.membership import Membership
from ragmon.stats import bucket

STEP: Final = 60
"""Seconds of a step."""
SHAPES: Final = ("latency", "question_length", "answer_length", "top_score")
"""Label-free properties whose distribution is monitored; lengths are in characters."""
INDEXES: Final = 256
"""Builds with their indexes that a step keeps: the first in the order of their names."""


class CountedRecord(NamedTuple):
    """The key under which a record was counted."""

    source: str
    gold: str = ""
    gold_version: str = ""
    where: str = ""


class Step(msgspec.Struct, omit_defaults=True):
    """The records of one pipeline in one minute, or a uniform sample of their clusters where there are very many.

    Attributes:
        minute: Minutes since the epoch.
        facts: By key and membership, how often each tuple of facts was seen.
        measures: By key and metric, by membership, `[n, sum in micro-units]` of what was measured on text.
        latency: By source and membership, the total latencies in milliseconds.
        shapes: By source and property (`SHAPES`), the number of values in each log bucket.
        indexes: Requests by `(build, index_hash)`.
        cites: Whether an answer cites something.
        in_gold: Whether retrieved ids occur in gold; None where there were none to compare.
        judged: By source, judge and version, `[n, sum, sum of squares]` of scores in micro-units; under `label`, of
            label minus score.
        records: Its requests, each once, those that are not in the sample too.
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

    def count(self, place: CountedRecord, member: Membership, key: Key, measured: Mapping[str, int]) -> None:
        """Add one request under its key."""
        members = self.facts.get(place)
        if members is None:
            members = self.facts[place] = {}
        counts = members.get(member)
        if counts is None:
            if len(members) >= ROOM and not len(members) % CLUSTERS:
                self._cut_facts(place)
            members[member] = {key: 1}
        else:
            counts[key] = counts.get(key, 0) + 1
        for name, score in measured.items():
            add_sums(self.measures.setdefault((place, name), {}), member, (1, score))

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
        question, answer = _lengths(record)
        score = record.scores[0] if record.scores else None
        for name, value in zip(SHAPES, (latency, question, answer, score), strict=True):
            if value is not None:
                shape = self.shapes.setdefault((source, name), {})
                place = bucket(value)
                shape[place] = shape.get(place, 0) + 1

    def shape(self, source: str, name: str) -> Mapping[int, int]:
        """The number of values of a property in each log bucket."""
        return self.shapes.get((source, name), {})

    def _cut_facts(self, place: CountedRecord) -> None:
        """Cut what is counted under one key to the clusters that are kept."""
        for member in _cut(self.facts[place]):
            for (measured_place, _), sums in self.measures.items():
                if measured_place == place:
                    sums.pop(member, None)

    def _cut_indexes(self) -> None:
        self.indexes = dict(sorted(self.indexes.items())[:INDEXES])

    def cut(self) -> None:
        """Keep of every place the clusters with the smallest hashes, so that a step has a bounded size.

        A cut of a sum of cut steps is the cut of the sum.
        """
        for place in self.facts:
            self._cut_facts(place)
        for members in self.latency.values():
            _cut(members)
        self._cut_indexes()

    def merge(self, other: Step) -> None:
        """Add what was seen elsewhere in the same minute; the order of merging does not matter."""
        for place, members in other.facts.items():
            own_members = self.facts.setdefault(place, {})
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
    """Remove the memberships that are not kept of a table; returns them."""
    others = left_out(members) if len(members) > MEMBERS else []
    for member in others:
        del members[member]
    return others


def _lengths(record: Record) -> tuple[int | None, int | None]:
    """The characters of question and answer; of texts that were removed or changed, facts have them."""
    facts, claim = record.facts, None if record.answer_json is None else record.answer_json.claim
    question = None if record.q is None else len(record.q)
    answer = None if claim is None else len(claim)
    if facts is not None and (question is None or is_redacted(record, "q")):
        question = facts.question_chars
    if facts is not None and (answer is None or is_redacted(record, "claim")):
        answer = facts.claim_chars
    return question, answer
