"""The records of one minute, for alarms: what windows do not keep, above all which records belong to one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, JUDGE_PREFIX, LABEL, LIVE
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
"""What makes one observation of several requests."""
TOGETHER: Final = 1024
"""Values that are put into log buckets at once."""
SHAPES: Final = ("latency", "question_length", "answer_length", "top_score")
"""Label-free properties whose distribution is monitored."""


T = TypeVar("T")
_NONE: Final[Counter[int]] = Counter()
_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


class CountedRecord(NamedTuple):
    """The key under which a record was counted."""

    source: str
    gold: str = ""
    gold_version: str = ""
    where: str = ""


class Membership(NamedTuple):
    """The groups a request is in. Requests in the same groups of a step are counted together.

    Attributes:
        session: The hash of its session; "" without one.
        question: The hash of its question, or the id of its gold item; "" without one.
        alone: What makes it a cluster of its own in every step: its gold item if its order is ours, else its trace id
            where nothing else is known.
    """

    session: str = ""
    question: str = ""
    alone: str = ""

    @property
    def item(self) -> str:
        """The id of its gold item, where it has one."""
        return self.question or self.alone


class StepState(msgspec.Struct):
    """The saved form of a `Step`; facts are text (`ragmon.scoring.counts.key_text`), and so are memberships.

    Attributes:
        grouped: Whether its texts are memberships; without it, each is a cluster.
    """

    minute: int
    facts: list[tuple[CountedRecord, dict[str, dict[str, int]]]]
    measures: list[tuple[tuple[CountedRecord, str], dict[str, list[int]]]]
    latency: dict[str, dict[str, list[float]]]
    shapes: list[tuple[tuple[str, str], dict[int, int]]]
    indexes: list[tuple[str, str]]
    cites: bool = False
    in_gold: bool | None = None
    judged: list[tuple[tuple[str, str, str], list[int]]] = []
    grouped: bool = False


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
        facts: By key and membership, how often each tuple of facts was seen.
        measures: By key and metric, by membership, `(n, sum in micro-units)` of what was measured on text.
        latency: By source and membership, the total latencies in milliseconds.
        shapes: By source and property, the number of values in each log bucket.
        values: Values that are not in buckets yet; they are added in batches.
        indexes: `(build, index_hash)` seen.
        cites: Whether an answer cites something.
        in_gold: Whether retrieved ids occur in gold; None where there were none to compare.
        judged: By source, judge and version, `[n, sum, sum of squares]` of scores in micro-units; under `label`, of
            label minus score.
    """

    minute: int
    facts: dict[CountedRecord, dict[Membership, dict[Key, int]]] = field(default_factory=dict)
    measures: dict[tuple[CountedRecord, str], dict[Membership, list[int]]] = field(default_factory=dict)
    latency: dict[str, dict[Membership, list[float]]] = field(default_factory=dict)
    shapes: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    indexes: set[tuple[str, str]] = field(default_factory=set)
    cites: bool = False
    in_gold: bool | None = None
    judged: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)

    def count(self, place: CountedRecord, member: Membership, key: Key, measured: Mapping[str, int]) -> None:
        """Add one request under its key."""
        members = self.facts.get(place)
        if members is None:
            members = self.facts[place] = {}
        counts = members.setdefault(member, {})
        counts[key] = counts.get(key, 0) + 1
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
        if record.index_hash:
            self.indexes.add((record.build or "", record.index_hash))
        latency = record.latency_ms
        if latency is not None and latency.total is not None:
            self.latency.setdefault(source, {}).setdefault(member, []).append(latency.total)
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
                source: {member(text): values for text, values in members.items()}
                for source, members in state.latency.items()
            },
            {key: Counter(counts) for key, counts in state.shapes},
            indexes=set(state.indexes),
            cites=state.cites,
            in_gold=state.in_gold,
            judged=dict(state.judged),
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
    return _session(record, by) or _question(record, by) or record.trace_id or ""


def membership(record: Record, item: GoldItem | None, source: str, by: Collection[str] = CLUSTER) -> Membership:
    """The groups of a record. Who asks the gold items of a run or of probes is us: each item is a cluster there.

    Args:
        record: The record.
        item: Its gold item.
        source: The source it is counted under.
        by: Which of `session` and `question` are used.
    """
    if item is not None:
        users = source == LIVE or source in ALSO_LIVE_SOURCES
        return Membership(_session(record, by), item.qid) if users else Membership(alone=item.qid)
    session, question = _session(record, by), _question(record, by)
    return Membership(session, question, "" if session or question else record.trace_id or "")


def _session(record: Record, by: Collection[str]) -> str:
    return _digest("s", record.session) if "session" in by and record.session else ""


def _question(record: Record, by: Collection[str]) -> str:
    if "question" not in by:
        return ""
    if record.q is not None and not is_redacted(record, "q"):
        return _digest("q", normalise_question(record.q))
    if record.facts is not None and record.facts.question_hash is not None:
        return record.facts.question_hash[:16]
    return ""


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
        step, member = self._at(pipeline, arrival), membership(record, item, source, self._cluster(pipeline))
        step.cites = step.cites or record.cites
        if in_gold is not None:
            step.in_gold = step.in_gold or in_gold
        gold, version = ("", "") if item is None else (item.set_name, item.set_version)
        step.count(CountedRecord(source, gold, version), member, key, measured)
        for where in slices:
            if where in self._slices:
                step.count(CountedRecord(source, gold, version, where), member, key, measured)
        if source not in ALSO_LIVE_SOURCES:
            step.add_properties(source, member, record)
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
