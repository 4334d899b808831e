"""The records of one minute, for alarms: what windows do not keep, above all which records belong to one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, JUDGE_PREFIX, LABEL
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.metrics.answers import AnswerCorrect
from ragmon.metrics.facts import Key
from ragmon.scoring.counts import add_sums, with_keys, with_text_keys
from ragmon.stats import buckets

STEP: Final = 60
"""Seconds of a step."""
CLUSTER: Final = ("session", "question")
"""What makes one observation of several requests; the first known property is used."""
TOGETHER: Final = 1024
"""Values that are put into log buckets at once."""
SHAPES: Final = ("latency", "question_length", "answer_length", "top_score")
"""Label-free properties whose distribution is monitored."""


_NONE: Final[Counter[int]] = Counter()
_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


class CountedRecord(NamedTuple):
    """The key under which a record was counted."""

    source: str
    gold: str = ""
    gold_version: str = ""
    where: str = ""


class StepState(msgspec.Struct):
    """The saved form of a `Step`; its facts are text (`ragmon.scoring.counts.key_text`)."""

    minute: int
    facts: list[tuple[CountedRecord, dict[str, dict[str, int]]]]
    measures: list[tuple[tuple[CountedRecord, str], dict[str, list[int]]]]
    latency: dict[str, dict[str, list[float]]]
    shapes: list[tuple[tuple[str, str], dict[int, int]]]
    indexes: list[tuple[str, str]]
    cites: bool = False
    in_gold: bool | None = None
    judged: list[tuple[tuple[str, str, str], list[int]]] = []


class MinutesState(msgspec.Struct):
    """The saved form of `MinuteBatches`: its counters, and the open steps by pipeline."""

    closed: int
    late: int
    open: list[tuple[str, StepState]]


@dataclass
class Step:
    """The records of one pipeline in one minute.

    Attributes:
        minute: Minutes since the epoch.
        facts: By key and cluster, how often each tuple of facts was seen.
        measures: By key and metric, by cluster, `(n, sum in micro-units)` of what was measured on text.
        latency: By source and cluster, the total latencies in milliseconds.
        shapes: By source and property, the number of values in each log bucket.
        values: Values that are not in buckets yet; they are added in batches.
        indexes: `(build, index_hash)` seen.
        cites: Whether an answer cites something.
        in_gold: Whether retrieved ids occur in gold; None where there were none to compare.
        judged: By source, judge and version, `[n, sum, sum of squares]` of scores in micro-units; under `label`, of
            label minus score.
    """

    minute: int
    facts: dict[CountedRecord, dict[str, dict[Key, int]]] = field(default_factory=dict)
    measures: dict[tuple[CountedRecord, str], dict[str, list[int]]] = field(default_factory=dict)
    latency: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    shapes: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    indexes: set[tuple[str, str]] = field(default_factory=set)
    cites: bool = False
    in_gold: bool | None = None
    judged: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)

    def count(self, place: CountedRecord, cluster: str, key: Key, measured: Mapping[str, int]) -> None:
        """Add one request under its key."""
        clusters = self.facts.get(place)
        if clusters is None:
            clusters = self.facts[place] = {}
        counts = clusters.setdefault(cluster, {})
        counts[key] = counts.get(key, 0) + 1
        for name, score in measured.items():
            sums = self.measures.setdefault((place, name), {}).setdefault(cluster, [0, 0])
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

    def add_properties(self, source: str, cluster: str, record: Record) -> None:
        """Add the monitored properties of a request that do not depend on its facts."""
        if record.index_hash:
            self.indexes.add((record.build or "", record.index_hash))
        latency = record.latency_ms
        if latency is not None and latency.total is not None:
            self.latency.setdefault(source, {}).setdefault(cluster, []).append(latency.total)
        for name, value in _shapes(record):
            values = self.values.setdefault((source, name), [])
            values.append(value)
            if len(values) >= TOGETHER:
                self.flush()

    def shape(self, source: str, name: str) -> Counter[int]:
        """The number of values of a property in each log bucket."""
        self.flush()
        return self.shapes.get((source, name), _NONE)

    def flush(self) -> None:
        """Put values into their buckets, so that a busy minute is not kept and saved value by value."""
        for key, values in self.values.items():
            self.shapes.setdefault(key, Counter()).update(buckets(values))
        self.values.clear()

    def dump(self) -> StepState:
        """The step in its saved form; parts of it are not copied."""
        self.flush()
        return StepState(
            minute=self.minute,
            facts=[
                (place, {cluster: with_text_keys(cells) for cluster, cells in clusters.items()})
                for place, clusters in self.facts.items()
            ],
            measures=list(self.measures.items()),
            latency=self.latency,
            shapes=list(self.shapes.items()),
            indexes=sorted(self.indexes),
            cites=self.cites,
            in_gold=self.in_gold,
            judged=list(self.judged.items()),
        )

    @classmethod
    def load(cls, state: StepState) -> Step:
        """A step from its saved form."""
        return cls(
            state.minute,
            {
                place: {cluster: with_keys(cells) for cluster, cells in clusters.items()}
                for place, clusters in state.facts
            },
            dict(state.measures),
            state.latency,
            {key: Counter(counts) for key, counts in state.shapes},
            indexes=set(state.indexes),
            cites=state.cites,
            in_gold=state.in_gold,
            judged=dict(state.judged),
        )


def _shapes(record: Record) -> Iterator[tuple[str, float]]:
    """The captured ones of: latency, lengths in characters, and the best retrieval score."""
    facts, answer, latency = record.facts, record.answer_json, record.latency_ms
    if latency is not None and latency.total is not None:
        yield "latency", latency.total
    if record.q is not None and not is_redacted(record, "q"):
        yield "question_length", float(len(record.q))
    elif facts is not None and facts.question_chars is not None:
        yield "question_length", float(facts.question_chars)
    if answer is not None and answer.claim is not None and not is_redacted(record, "claim"):
        yield "answer_length", float(len(answer.claim))
    elif facts is not None and facts.claim_chars is not None:
        yield "answer_length", float(facts.claim_chars)
    if record.scores:
        yield "top_score", record.scores[0]


def cluster_of(record: Record, item: GoldItem | None, by: Collection[str] = CLUSTER) -> str:
    """The cluster of a record: its gold item, its session, or all requests with the same question.

    Sessions and questions are hashed, because a checkpoint holds no text.

    Args:
        record: The record.
        item: Its gold item.
        by: Which of `session` and `question` are used.
    """
    if item is not None:
        return item.qid
    if "session" in by and record.session:
        return _digest("s", record.session)
    if "question" in by:
        if record.q is not None and not is_redacted(record, "q"):
            return _digest("q", normalise_question(record.q))
        if record.facts is not None and record.facts.question_hash is not None:
            return record.facts.question_hash[:16]
    return record.trace_id or ""


def _digest(kind: str, text: str) -> str:
    return blake2b(f"{kind}{text}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class MinuteBatches:
    """The open steps of all pipelines.

    Args:
        slices: Slices that alarms watch; others are not collected.
        cluster: What makes a cluster, by pipeline.

    Attributes:
        closed: The last minute with records that was closed.
        late: Records that arrived after their minute was closed, and count in a later one.
    """

    def __init__(
        self, slices: Collection[str] = (), cluster: Callable[[str], Collection[str]] = lambda _: CLUSTER
    ) -> None:
        self.closed = -1
        self.late = 0
        self._slices = frozenset(slices)
        self._cluster = cluster
        self._open: dict[int, dict[str, Step]] = {}

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
        """Add a record to the step of its minute, if the uniform sampler kept it at a known rate.

        Args:
            pipeline: Its pipeline.
            arrival: When it arrived, seconds since the epoch.
            source: The source it is counted under.
            record: The record.
            item: Its gold item.
            key: Its facts.
            measured: What was measured on its text, in micro-units.
            slices: The slices it belongs to.
            in_gold: Whether its retrieved ids occur in gold; None where there are none to compare.
        """
        if record.sampling is not None and not record.sampling.drawn:
            return
        if source not in ALSO_LIVE_SOURCES:  # matched and labelled records were already counted as live traffic
            self.late += int(arrival) // STEP <= self.closed
        step, cluster = self._at(pipeline, arrival), cluster_of(record, item, self._cluster(pipeline))
        step.cites = step.cites or record.cites
        if in_gold is not None:
            step.in_gold = step.in_gold or in_gold
        gold, version = ("", "") if item is None else (item.set_name, item.set_version)
        step.count(CountedRecord(source, gold, version), cluster, key, measured)
        for where in slices:
            if where in self._slices:
                step.count(CountedRecord(source, gold, version, where), cluster, key, measured)
        if source not in ALSO_LIVE_SOURCES:
            step.add_properties(source, cluster, record)
        if measured and (source == LABEL or source not in ALSO_LIVE_SOURCES):
            step.add_scores(source, measured, record.judge_versions or _NO_VERSIONS)

    def _at(self, pipeline: str, arrival: float) -> Step:
        """The step of an arrival; a record that arrives after its minute was closed counts in a later one."""
        minute = max(int(arrival) // STEP, self.closed + 1)
        steps = self._open.setdefault(minute, {})
        step = steps.get(pipeline)
        if step is None:
            step = steps[pipeline] = Step(minute)
        return step

    def close(self, before: float) -> list[tuple[str, Step]]:
        """Close and return every step that ended before a time, in order."""
        closed_steps = []
        for minute in sorted(minute for minute in self._open if (minute + 1) * STEP <= before):
            closed_steps += sorted(self._open.pop(minute).items(), key=lambda entry: entry[0])
            for _, step in closed_steps:
                step.flush()
            self.closed = minute
        return closed_steps

    def dump(self) -> MinutesState:
        """The open steps in their saved form."""
        steps = [(pipeline, step.dump()) for steps in self._open.values() for pipeline, step in steps.items()]
        return MinutesState(self.closed, self.late, steps)

    def restore(self, state: MinutesState) -> None:
        """Replace everything by a saved state."""
        self.closed, self.late = state.closed, state.late
        self._open = {}
        for pipeline, step in state.open:
            self._open.setdefault(step.minute, {})[pipeline] = Step.load(step)
