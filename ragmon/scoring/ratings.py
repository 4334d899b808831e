"""The ratings of an answer: the latest one of each rater counts, in whatever order labels arrive.

`LabelStore` keeps the ratings of recent answers and counts every label under exactly one result. Labels whose traces
have not come wait in `PendingLabels`: a flood of labels for traces that never come must not evict the labels of others.
If the labels of a rater take more than one rater's share of the limit, the oldest label of that rater is evicted. If no
rater is over the share, the oldest label of all is evicted: most traces arrive within minutes of their labels, so it is
the least likely to be joined. The choice depends only on the order of the labels, so a replay makes the same one.

The labelling queue: a random sample of answers first, then the answers about which least is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from hashlib import blake2b
from heapq import nsmallest
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ragmon.core.constants import CLOCK_AHEAD, JUDGE_PREFIX, QUARANTINED
from ragmon.core.errors import printable
from ragmon.core.record import FAILING_ENTRY, FIELDS, Label, Line, Record, accepts_labels, trace_key

SHARE: Final = 8
"""One rater may use one part in so many of the limit before the labels of that rater are evicted first."""


class _PendingLabel(NamedTuple):
    """A label that waits for its trace."""

    at: float
    label: Label
    size: int


class PendingLabels(msgspec.Struct, dict=True):
    """Labels whose traces have not arrived, in the order of arrival."""

    by_number: dict[int, _PendingLabel] = {}
    number: int = 0

    def __post_init__(self) -> None:
        """Index the labels by trace and by rater."""
        self._bytes = 0
        self._by_trace: dict[str, dict[int, None]] = {}
        self._by_rater: dict[str, dict[int, None]] = {}
        self._bytes_of_rater: dict[str, int] = {}
        self._over_share: set[str] = set()
        for number, pending in self.by_number.items():
            self._index(number, pending)

    def __len__(self) -> int:
        return len(self.by_number)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._by_trace

    def put(self, label: Label, now: float) -> int:
        """Add a label that arrived now, never earlier than the label before; returns how many labels were evicted."""
        number, self.number = self.number, self.number + 1
        pending = _PendingLabel(now, msgspec.structs.replace(label, comment=None), _size(label.rater, label))
        self.by_number[number] = pending
        self._index(number, pending)
        evicted = 0
        while len(self.by_number) > MAX_ANSWERS or self._bytes > MAX_BYTES:
            greedy = max(self._over_share, key=lambda rater: (self._usage(rater), rater), default=None)
            self._remove(next(iter(self.by_number if greedy is None else self._by_rater[greedy])))
            evicted += 1
        return evicted

    def _index(self, number: int, pending: _PendingLabel) -> None:
        label = pending.label
        self._by_trace.setdefault(label.trace_id, {})[number] = None
        self._by_rater.setdefault(label.rater, {})[number] = None
        self._add_bytes(label.rater, pending.size)

    def _add_bytes(self, rater: str, size: int) -> None:
        self._bytes += size
        self._bytes_of_rater[rater] = self._bytes_of_rater.get(rater, 0) + size
        if self._usage(rater) * SHARE > MAX_ANSWERS * MAX_BYTES:
            self._over_share.add(rater)
        else:
            self._over_share.discard(rater)

    def _usage(self, rater: str) -> int:
        # By number or by bytes, in units of both limits.
        return max(len(self._by_rater[rater]) * MAX_BYTES, self._bytes_of_rater[rater] * MAX_ANSWERS)

    def _remove(self, number: int) -> _PendingLabel:
        pending = self.by_number.pop(number)
        trace_id, rater = pending.label.trace_id, pending.label.rater
        del self._by_trace[trace_id][number]
        if not self._by_trace[trace_id]:
            del self._by_trace[trace_id]
        del self._by_rater[rater][number]
        self._add_bytes(rater, -pending.size)
        if not self._by_rater[rater]:
            del self._by_rater[rater], self._bytes_of_rater[rater]
        return pending

    def take(self, trace_id: str) -> list[Label]:
        """Remove and return the labels that waited for a trace."""
        return [self._remove(number).label for number in tuple(self._by_trace.get(trace_id, ()))]

    def expire(self, before: float) -> int:
        """Remove labels that arrived before a time in seconds since the epoch; returns how many."""
        expired = 0
        while self.by_number and next(iter(self.by_number.values())).at < before:
            self._remove(next(iter(self.by_number)))
            expired += 1
        return expired


# Results: what became of a label.
JOINED: Final = "joined"
CHANGED: Final = "changed"
CONFLICT: Final = "conflict"
DUPLICATE: Final = "duplicate"
LATE: Final = "late"
ORPHAN: Final = "orphan"
PROBED: Final = "probe"
REJECTED: Final = "rejected"
TOO_MANY_RATINGS: Final = "crowded"
EVICTED: Final = "no_room"
RESULTS: Final = {
    JOINED: "it says something new about an answer",
    CHANGED: "its rater had said something else, and changed their mind",
    CONFLICT: "it says something new, and another rater disagrees",
    DUPLICATE: "its rater had already said the same",
    LATE: "its rater has said something else since",
    ORPHAN: "no trace with this id arrived, or it is no longer kept",
    PROBED: "the trace answers a gold question, and gold says what is right",
    REJECTED: "it is not a valid label",
    TOO_MANY_RATINGS: "the answer had too many ratings already",
    EVICTED: "it waited for its trace, and too many labels came after it",
    QUARANTINED: "the process ended twice while it was counted, so it was set aside",
    CLOCK_AHEAD: "the clock of the producer that wrote it to a log was ahead",
}


AHEAD: Final = 60.0  # seconds by which the clock of a rater may be ahead


def given_at(label: Label, now: float) -> float | None:
    """The time a label carries; None where it carries none or, by the time of its arrival, one in the future.

    A wrong clock must not make a label the latest one for ever.
    """
    return None if label.ts is None or label.ts > now + AHEAD else label.ts


class Consensus(NamedTuple):
    """The combined judgement of all raters of an answer.

    Attributes:
        correct: The mean of their values, in [0, 1]; None where none gave one.
        answerable: The majority's value; None where none gave one, or in a tie.
        relevant_ids: The documents that at least half of the raters who name any call relevant, sorted; None where no
            rater names any.
    """

    correct: float | None = None
    answerable: bool | None = None
    relevant_ids: tuple[str, ...] | None = None


class Rating(msgspec.Struct, omit_defaults=True):
    """The latest value of one rater for each field of one answer, with its time in seconds since the epoch."""

    correct: tuple[float, float] | None = None
    answerable: tuple[float, bool] | None = None
    relevant_ids: tuple[float, tuple[str, ...]] | None = None

    def apply(self, label: Label, ts: float) -> str:
        """Apply a label that the rater gave at a time.

        `joined` where a field gets its first value, else `changed`, `late` or `duplicate`.

        The later value counts; of two values at the same time the greater one. So the order of arrival has no effect.
        """
        relevant_ids = None if label.relevant_ids is None else tuple(sorted(set(label.relevant_ids)))
        correct = None if label.correct is None else float(label.correct)
        values = {"correct": correct, "answerable": label.answerable, "relevant_ids": relevant_ids}
        results = set()
        for name, value in values.items():
            current, given = getattr(self, name), (ts, value)
            if value is None:
                continue
            if current is None:
                results.add(JOINED)
            elif current[1] == value:
                given = max(current, given)
            elif given < current:
                results.add(LATE)
                continue
            else:
                results.add(CHANGED)
            setattr(self, name, given)
        return next((result for result in (JOINED, CHANGED, LATE) if result in results), DUPLICATE)

    def agrees(self, other: Rating) -> bool:
        """Whether two raters give the same value for every field that both judge."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in FIELDS)
        return all(a is None or b is None or a[1] == b[1] for a, b in pairs)


def consensus(raters: Collection[Rating]) -> Consensus:
    """The combined judgement of raters; each has one vote."""
    correct = sorted(rating.correct[1] for rating in raters if rating.correct is not None)
    answerable = Counter(rating.answerable[1] for rating in raters if rating.answerable is not None)
    lists = [rating.relevant_ids[1] for rating in raters if rating.relevant_ids is not None]
    votes = Counter(name for ids in lists for name in ids)
    return Consensus(
        correct=sum(correct) / len(correct) if correct else None,
        answerable=None if answerable[True] == answerable[False] else answerable[True] > answerable[False],
        relevant_ids=tuple(sorted(name for name, n in votes.items() if 2 * n >= len(lists))) if lists else None,
    )


def agreement(raters: Collection[Rating]) -> dict[str, bool]:
    """By field that at least two raters judged, whether all of them give the same value."""
    values = {name: [given[1] for rating in raters if (given := getattr(rating, name)) is not None] for name in FIELDS}
    return {name: all(value == given[0] for value in given) for name, given in values.items() if len(given) > 1}


class Raters(NamedTuple):
    """Who rated the answers of the last days, and how far they agree.

    Attributes:
        shared: Answers with ratings of at least two people.
        fields: By field of a label, the number of answers of which at least two people judge it, and of those on which
            all of them say the same.
    """

    answers: int = 0
    raters: int = 0
    shared: int = 0
    disputed: int = 0
    fields: Mapping[str, tuple[int, int]] = MappingProxyType({})


TTL: Final = 7 * 86_400.0
"""Seconds for which a label waits for its trace, and for which the ratings of an answer are kept."""
MAX_ANSWERS: Final = 100_000
"""Limit of the answers with ratings, and of the labels that wait; beyond it the oldest are evicted."""
RATERS: Final = 100
"""Raters of one answer who are counted live: each new rating is compared with those of all others."""
MAX_BYTES: Final = 64 << 20
"""Limit of the bytes of ratings, and of labels that wait; beyond it the oldest are evicted."""
LARGEST_ANSWER: Final = 1 << 20
_RATING_BYTES: Final = 400
_NAME_BYTES: Final = 60  # bytes of a rating without its names, and of a name without its characters


class RatedAnswer(msgspec.Struct):
    """The ratings of one answer.

    Attributes:
        since: When the first label arrived, seconds since the epoch.
    """

    since: float
    size: int = 0
    raters: dict[str, Rating] = {}


def raters_of(answers: Collection[RatedAnswer]) -> Raters:
    """Who rated answers, and how far they agree; further ratings may come meanwhile."""
    names: set[str] = set()
    shared = disputed = 0
    judged, agreed = Counter[str](), Counter[str]()
    for answer in answers:
        raters = dict(answer.raters)  # at once, as labels may come
        names.update(raters)
        if len(raters) > 1:
            shared += 1
            found = agreement(raters.values())
            disputed += not all(found.values())
            judged.update(found.keys())
            agreed.update(name for name, agrees in found.items() if agrees)
    fields = {name: (judged[name], agreed[name]) for name in FIELDS if judged[name]}
    return Raters(len(answers), len(names), shared, disputed, fields)


class LabelStore(msgspec.Struct, dict=True):
    """The ratings of recent answers, and the labels that wait for their traces; it holds no comments.

    Attributes:
        results: Number of labels by result (`ragmon.scoring.ratings.RESULTS`); a `Counter`.
    """

    results: dict[str, int] = {}
    answers: dict[str, RatedAnswer] = {}
    waiting: PendingLabels = msgspec.field(default_factory=PendingLabels)

    def __post_init__(self) -> None:
        """Sum the sizes up."""
        self.results = Counter(self.results)
        self._bytes = sum(answer.size for answer in self.answers.values())

    def apply(self, label: Label, now: float) -> Consensus | None:
        """Apply a label that arrived now to an answer whose trace has arrived.

        The judgement of the answer, if this is its first label; else None.
        """
        answer = self.answers.get(label.trace_id)
        is_first = answer is None
        answer = answer or RatedAnswer(now)
        previous = answer.raters.get(label.rater)
        rating = Rating() if previous is None else copy(previous)
        given = given_at(label, now)
        result = rating.apply(label, now if given is None else given)
        size = answer.size + _size(label.rater, rating) - (0 if previous is None else _size(label.rater, previous))
        too_many = previous is None and len(answer.raters) >= RATERS
        if not is_first and (too_many or size > max(answer.size, LARGEST_ANSWER)):
            self.results[TOO_MANY_RATINGS] += 1
            return None
        answer.raters[label.rater] = rating
        self.answers[label.trace_id] = answer
        self._bytes += size - answer.size
        answer.size = size
        while len(self.answers) > MAX_ANSWERS or self._bytes > MAX_BYTES:
            self._drop(next(iter(self.answers)))
        if result == JOINED and not all(rating.agrees(other) for other in answer.raters.values()):
            result = CONFLICT
        self.results[result] += 1
        return consensus(answer.raters.values()) if is_first else None

    def _drop(self, trace_id: str) -> bool:
        answer = self.answers.pop(trace_id, None)
        self._bytes -= 0 if answer is None else answer.size
        return answer is not None

    def add_pending(self, label: Label, now: float) -> None:
        """Let a label wait for its trace; beyond the limit labels are evicted (`ragmon.scoring.ratings`)."""
        self._count(EVICTED, self.waiting.put(label, now))

    def take(self, trace_id: str | None) -> list[Label]:
        """Remove and return the labels that waited for a trace that has now arrived."""
        return [] if trace_id is None else self.waiting.take(trace_id)

    def erase(self, trace_ids: Iterable[str]) -> int:
        """Erase the ratings of traces, and the labels that wait for them; the ids are in lower case."""
        erased = 0
        for trace_id in trace_ids:
            had_ratings = self._drop(trace_id)
            erased += had_ratings or trace_id in self.waiting
            self._count(ORPHAN, len(self.take(trace_id)))
        return erased

    @property
    def pending(self) -> int:
        """Labels that wait for their traces."""
        return len(self.waiting)

    def rated(self, since: float) -> list[RatedAnswer]:
        """The answers of which the first label came after a time in seconds since the epoch; they are not copied."""
        return [answer for answer in self.answers.values() if answer.since >= since]

    def expire(self, now: float) -> None:
        """Remove ratings that are older than the TTL, and count labels whose trace never arrived."""
        before = now - TTL
        while self.answers and next(iter(self.answers.values())).since < before:
            self._drop(next(iter(self.answers)))
        self._count(ORPHAN, self.waiting.expire(before))

    def _count(self, result: str, n: int) -> None:
        if n:
            self.results[result] += n


def _size(rater: str, judgement: Rating | Label) -> int:
    relevant_ids = judgement.relevant_ids
    names = () if relevant_ids is None else relevant_ids[1] if isinstance(judgement, Rating) else relevant_ids
    return _RATING_BYTES + sum(_NAME_BYTES + len(name.encode()) for name in (rater, *names))


CELL: Final = 32_000
_SALT: Final = b"ragmon label queue"
_MAX_VARIANCE: Final = 0.25
"""The largest p (1 - p), at a score of a half: that score gives the least information."""


def queue(lines: Iterable[Line], most: int) -> list[Record]:
    """The answers most worth a label; labelled answers and answers to gold questions are left out.

    Those that won the audit draw come first, in random order, so that the labels are a random sample wherever the rater
    stops. Then come those whose scores are least certain: the score of a judge, else groundedness, near a half.
    """
    done: set[str] = set()
    answers: dict[str, Record] = {}
    for line in lines:
        if isinstance(line, Label):
            done.add(trace_key(line.trace_id))
        elif isinstance(line, Record) and line.trace_id and line.error is None and accepts_labels(line):
            answers[trace_key(line.trace_id)] = line
    unlabelled = [(trace_id, record) for trace_id, record in answers.items() if trace_id not in done]
    return [record for _, record in nsmallest(most, unlabelled, key=lambda entry: _priority(*entry))]


def _is_drawn(record: Record) -> bool:
    # Whether it won the uniform draw over all calls: labels of these estimate all traffic.
    return (record.sampling is None or record.sampling.drawn) and record.kind != FAILING_ENTRY


def _priority(trace_id: str, record: Record) -> tuple[bool, float, bytes]:
    # The smallest comes first; among equals a hash of the trace id, a random order that is the same on every run.
    order = blake2b(trace_id.encode(), key=_SALT, digest_size=8).digest()
    if _is_drawn(record):
        return False, 0.0, order
    measures = record.measures or {}
    scores = [score for name, score in measures.items() if name.startswith(JUDGE_PREFIX)] or [*measures.values()]
    certainty = min((1.0 - score * (1.0 - score) / _MAX_VARIANCE for score in scores), default=0.0)
    return True, certainty, order


def rows(records: Iterable[Record], link: str | None, *, text: bool = False) -> Iterator[dict[str, object]]:
    """The rows of the queue, as shown to the rater, with the link of the trace, and with texts on demand."""
    for record in records:
        row: dict[str, object] = {
            "trace_id": record.trace_id,
            "pipeline": _cell(record.pipeline),
            "answered": record.ts,
        }
        row["sample"] = "audit" if _is_drawn(record) else "informative"
        if link is not None:
            row["link"] = link.replace("{trace_id}", record.trace_id or "")
        if text:
            row["question"] = _cell(record.q)
            row["answer"] = _cell(None if record.answer_json is None else record.answer_json.claim)
        yield row


def _cell(text: str | None) -> str | None:
    # One line, which a spreadsheet does not run as a formula.
    shown = text and printable(text, CELL)
    return f"'{shown}" if shown and shown.lstrip()[:1] in ("=", "+", "-", "@") else shown
