"""What was captured of each record: which fields it has, and whether its ids occur in gold.

A record is reduced to one integer, the bits of what it lacks, and the state counts these integers by pipeline, source
and minute. Minutes make a report follow a setting that was mended; older minutes are summed, so that a replay reports
the whole run. Everything is addition of integers: tables merge in any order to the same counts.

The bits are in saved states: they are never renumbered.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from ragmon.core import constants, shapes
from ragmon.core.citations import has_marks, unread_mark
from ragmon.core.endings import CUT
from ragmon.core.errors import printable, shown_name
from ragmon.core.gold_item import HAS_GOLD_IDS, GoldItem
from ragmon.core.record import Record
from ragmon.core.text import fold
from ragmon.ingest.gold import Items
from ragmon.metrics.facts import CITES_ALIKE, IDS, IDS_ALIKE, REFUSAL_LIKE, SHIPPED, Key
from ragmon.stats.histograms import add_counts, add_sums, count_name

(
    NO_QUESTION,
    NO_ANSWER,
    NO_IDS,
    NO_CONTEXTS,
    NO_CITATIONS,
    NO_GOLD,
    NO_SESSION,
    NO_BUILD,
    NO_LATENCY,
    WITHHELD_QUESTION,
    WITHHELD_ANSWER,
    WITHHELD_CONTEXTS,
    UNFINISHED,
    NOT_SHIPPED,
    OF_FILE,
    IN_GOLD,
    NOT_IN_GOLD,
    UNCOUNTED_REFUSAL,
    CITES,
    UNREAD_MARK,
    MARKED,
    OF_SPANS,
) = (1 << i for i in range(22))
"""What a record lacks; which texts were withheld by setting; that it failed, or that only its outcome was kept; that it
ships no answer; that it is of a file; whether its ids occur in gold; that its answer sounds like a refusal and counts
as an answer; that its answer cites something, which is counted elsewhere; that what looks like a mark in its answer is
none that is understood; that its answer has marks, and there are no retrieved ids that they stand for; that it is of
spans."""

_USUAL: Final = SHIPPED | IDS
_FLAGS: Final = _USUAL | REFUSAL_LIKE
_ALIKE: Final = IDS_ALIKE | CITES_ALIKE
"""The facts of the usual record, which has ids and an answer, and those that decide whether one is usual."""
HIDDEN: Final = ("q", "answer_json")  # fields whose reasons are counted
FIRST: Final = 20  # records from which a gap is named, and records with a gold item from which strange ids are
MINUTE: Final = 60
MINUTES: Final = 60  # buckets of a series that are kept apart: the newest with records
EXAMPLES: Final = 3
LONGEST_EXAMPLE: Final = 24
SAMPLED: Final = 300
PATHS: Final = 64
REPEATED: Final = 40  # equal answers that cite nothing from which they are proposed as a token of refusals
LONGEST_REPEATED: Final = 120  # characters of such an answer
REPEATS: Final = 256
SESSIONS: Final = 50  # records, each with a session of its own, from which these ids are no sessions


class CandidateCount(NamedTuple):
    """How well another field of documents would fit gold."""

    documents: int = 0
    fitting: int = 0


class AlikeIds(NamedTuple):
    """Ids that differ from gold ids in form alone.

    Attributes:
        forms: What they differ in.
        example, gold: One of them, "" where it may be a text, and the gold id.
    """

    forms: tuple[str, ...]
    example: str = ""
    gold: str = ""

    def plus(self, other: AlikeIds) -> AlikeIds:
        """Both together, with the example that comes first in the order of text."""
        first = min(self, other, key=lambda each: (not each.example, each.example, each.gold))
        return first._replace(forms=tuple(sorted({*self.forms, *other.forms})))


class CapturedBucket(msgspec.Struct, omit_defaults=True):
    """The counts of one minute, or of several.

    Attributes:
        masks: Records by the bits of what they lack.
        ids: Retrieved ids of the records whose ids do not occur in gold.
        candidates: Other ids of their documents, by path.
        hidden_by: Records from spans without question or answer, by instrumentation.
        hidden_why: The same by the field of the record and the reason, as in `q|prompt`.
        examples: The first of those ids in the order of text, so that they do not depend on the order of records.
        alike: By gold set, the ids that differ from gold ids in form alone.
        marks: Likewise of marks that are not understood, or of traces whose answers have them.
    """

    masks: dict[int, int] = {}
    ids: int = 0
    candidates: dict[str, CandidateCount] = {}
    hidden_by: dict[str, int] = {}
    hidden_why: dict[str, int] = {}
    examples: list[str] = []
    alike: dict[str, AlikeIds] = {}
    marks: list[str] = []

    def merge(self, other: CapturedBucket) -> None:
        """Add the counts of another bucket."""
        add_counts(self.masks, other.masks)
        self.ids += other.ids
        for path, count in other.candidates.items():
            self.add_candidate(path, count.documents, count.fitting)
        for name, n in other.hidden_by.items():
            count_name(self.hidden_by, name, n)
        for name, n in other.hidden_why.items():
            count_name(self.hidden_why, name, n)
        for name in other.examples:
            self.add_example(name)
        for gold, ids in other.alike.items():
            self.add_alike(gold, ids)
        for name in other.marks:
            self.add_mark(name)

    def add_mark(self, name: str) -> None:
        """Keep a mark, or where one was seen, if it is among the first in the order of text."""
        self.marks = sorted({name, *self.marks})[:EXAMPLES]

    def add_example(self, name: str) -> None:
        """Keep an id as an example, if it is among the first in the order of text; an id that may be a text is none."""
        examples, name = self.examples, shown_name(name, "")
        if name and (len(examples) < EXAMPLES or name < examples[-1]):
            self.examples = sorted({name, *examples})[:EXAMPLES]

    def add_alike(self, gold: str, ids: AlikeIds) -> None:
        """Note ids that differ from those of a gold set in form alone."""
        self.alike[gold] = ids.plus(self.alike.get(gold, ids))

    def add_candidate(self, path: str, documents: int, fitting: int) -> None:
        """Count documents that have another id at a path; of too many paths the further ones are left out."""
        count = self.candidates.get(path)
        if count is not None:
            self.candidates[path] = CandidateCount(count.documents + documents, count.fitting + fitting)
        elif len(self.candidates) < PATHS:
            self.candidates[path] = CandidateCount(documents, fitting)

    @property
    def sampled(self) -> int:
        """How many documents were looked at for other ids, at least."""
        return max((count.documents for count in self.candidates.values()), default=0)

    @property
    def records(self) -> int:
        """How many records it counts."""
        return sum(self.masks.values())

    @property
    def compared(self) -> int:
        """How many records had ids to compare with gold."""
        return self.count(lambda mask: bool(mask & (IN_GOLD | NOT_IN_GOLD)))

    def count(self, wanted: Callable[[int], bool]) -> int:
        """How many records have bits that are wanted."""
        return sum(n for mask, n in self.masks.items() if wanted(mask))


class RepeatedAnswer(msgspec.Struct, omit_defaults=True):
    """An answer that cites nothing, and how often it was given.

    Attributes:
        n: How often it counted as an answer.
        refused: How often it counted as a refusal.
        trace: The first of its traces in the order of text; "" where none is known.
        text: The first of its spellings; "" where no text is shown.
    """

    n: int = 0
    refused: int = 0
    trace: str = ""
    text: str = ""

    def merge(self, other: RepeatedAnswer) -> None:
        """Add the counts of the same answer."""
        self.n += other.n
        self.refused += other.refused
        self.trace = min(filter(None, (self.trace, other.trace)), default="")
        self.text = min(filter(None, (self.text, other.text)), default="")


class RepeatedAnswers(msgspec.Struct):
    """How often short answers that cite nothing were given, by the hash of the folded text.

    Where there are too many answers, those whose hash is a multiple of 2 ** level are kept: the least level with which
    they fit. Every count is exact, whatever the order and the parts in which the answers came.
    """

    level: int = 0
    answers: dict[int, RepeatedAnswer] = {}

    def add(self, claim: str, trace: str, *, is_shipped: bool, shows_text: bool) -> None:
        """Count an answer."""
        key = int.from_bytes(blake2b(fold(claim).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        if not key & ((1 << self.level) - 1):
            text = claim.strip() if shows_text else ""
            self._add(key, RepeatedAnswer(int(is_shipped), int(not is_shipped), trace, text))

    def _add(self, key: int, answer: RepeatedAnswer) -> None:
        if (known := self.answers.get(key)) is not None:
            known.merge(answer)
            return
        self.answers[key] = answer
        while len(self.answers) > REPEATS:
            self._raise(self.level + 1)

    def _raise(self, level: int) -> None:
        if level > self.level:
            self.level, mask = level, (1 << level) - 1
            self.answers = {key: answer for key, answer in self.answers.items() if not key & mask}

    def merge(self, other: RepeatedAnswers) -> None:
        """Add the counts of another table."""
        self._raise(other.level)
        for key, answer in other.answers.items():
            if not key & ((1 << self.level) - 1):
                self._add(key, msgspec.structs.replace(answer))

    def frequent(self) -> list[RepeatedAnswer]:
        """The answers that were given often and never counted as refusals, the most frequent first."""
        found = [
            (-answer.n, key) for key, answer in self.answers.items() if answer.n >= REPEATED and not answer.refused
        ]
        return [self.answers[key] for _, key in sorted(found)]

    def forget(self) -> bool:
        """Remove texts and traces; returns whether there were any."""
        kept = [answer for answer in self.answers.values() if answer.trace or answer.text]
        for answer in kept:
            answer.trace = answer.text = ""
        return bool(kept)


class SessionCounts(msgspec.Struct):
    """How many records some sessions have, by the hash of their id: those that `RepeatedAnswers` would keep.

    An id that an application makes for every request is no session; a record alone does not tell.
    """

    level: int = 0
    counts: dict[int, int] = {}

    def add(self, session: str) -> None:
        """Count a record."""
        key = int.from_bytes(blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        if not key & ((1 << self.level) - 1):
            self.counts[key] = self.counts.get(key, 0) + 1
            if len(self.counts) > REPEATS:
                self._keep(self.level + 1)

    def merge(self, other: SessionCounts) -> None:
        """Add the counts of another table."""
        add_counts(self.counts, other.counts)
        self._keep(max(self.level, other.level))

    def _keep(self, level: int) -> None:
        self.level, mask = level, (1 << level) - 1
        self.counts = {key: n for key, n in self.counts.items() if not key & mask}
        if len(self.counts) > REPEATS:
            self._keep(level + 1)

    @property
    def is_never_repeated(self) -> bool:
        """Whether there are enough records to say that every one has a session of its own."""
        return len(self.counts) >= SESSIONS and max(self.counts.values()) == 1


class CapturedSeries(msgspec.Struct):
    """The buckets of one pipeline and source.

    Attributes:
        minutes: The newest buckets by minute since the epoch.
        past: The sum of older minutes, and of records without a time.
        repeats: Short answers that cite nothing, over all time.
        sessions: Sessions, over all time.
    """

    minutes: dict[int, CapturedBucket] = {}
    past: CapturedBucket = msgspec.field(default_factory=CapturedBucket)
    repeats: RepeatedAnswers = msgspec.field(default_factory=RepeatedAnswers)
    sessions: SessionCounts = msgspec.field(default_factory=SessionCounts)

    @property
    def buckets(self) -> tuple[CapturedBucket, ...]:
        """Everything that was ever counted."""
        return self.past, *self.minutes.values()

    def lacks(
        self, record: Record, item: GoldItem | None, key: Key, items: Items, mask: int, *, shows_text: bool = False
    ) -> int:
        """The bits of what a record lacks, added to those of its stream; ids that do not occur in gold are noted.

        `items` are the gold items that records of this pipeline and source may match; `shows_text` says whether its
        texts may be kept as examples.
        """
        answer, flags = record.answer_json, key[0]
        # Every test here is felt in a replay: what is rare is looked at last.
        if record.q is None and record.qid is None:
            mask |= NO_QUESTION
        if answer is None or (answer.citations is None and answer.ranks is None):
            mask |= NO_CITATIONS
        elif answer.citations or answer.ranks:
            mask |= CITES
        if answer is not None and answer.claim and not mask & CITES:
            mask |= self._note_uncited(record, answer.claim, flags, shows_text=shows_text)
        if record.contexts is None:
            mask |= NO_CONTEXTS
        if record.session is None:
            mask |= NO_SESSION
        else:
            self.sessions.add(record.session)
        if record.latency_ms is None:
            mask |= NO_LATENCY
        if record.instrumentation is not None:
            mask |= OF_SPANS
        elif record.sampling is None:
            mask |= OF_FILE
        if flags & _FLAGS != _USUAL:
            mask |= 0 if flags & IDS else NO_IDS
            if not flags & SHIPPED:
                mask |= NOT_SHIPPED if answer is not None and answer.claim is not None else NOT_SHIPPED | NO_ANSWER
            elif flags & REFUSAL_LIKE:
                mask |= UNCOUNTED_REFUSAL
        if record.facts is not None or record.partial or record.error is not None:
            mask = _explained(mask, record)
        if item is None:
            mask |= NO_GOLD
        elif (in_gold := ids_in_gold(record, key, items)) is not None:
            mask |= IN_GOLD if in_gold else self._note_strange(record, items.ids)
        if flags & _ALIKE and item is not None:
            self._note_alike(record, item)
        if record.instrumentation is not None and mask & (NO_QUESTION | NO_ANSWER):
            bucket = self._at(record.ts)
            count_name(bucket.hidden_by, record.instrumentation)
            for field, reason in (record.why_unknown or {}).items():
                if field in HIDDEN:
                    count_name(bucket.hidden_why, f"{field}|{shown_name(reason, constants.OTHER)}")
        return mask

    def add(self, ts: float | None, masks: Mapping[int, int]) -> None:
        """Count records of one minute, or without a time, by the bits of what they lack."""
        counts = self._at(ts).masks if masks else {}
        for mask, n in masks.items():
            mask &= ~CITES  # noqa: PLW2901 - what is counted here
            counts[mask] = counts.get(mask, 0) + n

    def _at(self, ts: float | None) -> CapturedBucket:
        if ts is None:
            return self.past
        minute = int(ts) // MINUTE
        if minute not in self.minutes:
            self.minutes[minute] = CapturedBucket()
            self._trim()
        return self.minutes.get(minute, self.past)  # where it is older than all minutes that are kept

    def _trim(self) -> None:
        for minute in heapq.nsmallest(len(self.minutes) - MINUTES, self.minutes):
            self.past.merge(self.minutes.pop(minute))

    def _note_strange(self, record: Record, gold_ids: AbstractSet[str]) -> int:
        # Ids of which none occurs in gold; other ids may be in their documents.
        bucket, ids = self._at(record.ts), record.retrieved_ids or ()
        bucket.ids += len(ids)
        bucket.add_example(min(ids))
        if shapes.document_hints.known and bucket.sampled < SAMPLED:
            for name in ids:
                others = shapes.document_hints.other_ids(name)
                if others is None:
                    shapes.document_hints.ask()
                for path, value in (others or {}).items():
                    bucket.add_candidate(path, 1, int(value in gold_ids))
        return NOT_IN_GOLD

    def _note_alike(self, record: Record, item: GoldItem) -> None:
        cited = record.answer_json.citations if record.answer_json is not None else None
        for name in (*(record.retrieved_ids or ()), *(cited or ())):
            for gold, forms in item.named(name):
                if not forms <= set(item.id_forms):
                    ids = AlikeIds(tuple(sorted({*forms, *item.id_forms})), shown_name(name, ""), gold)
                    self._at(record.ts).add_alike(item.set_name, ids)

    def _note_uncited(self, record: Record, claim: str, flags: int, *, shows_text: bool) -> int:
        # An answer that cites nothing: it may be a refusal in words that nobody knows, or cite in a form of its own.
        trace, is_shipped = record.trace_id or "", bool(flags & SHIPPED)
        if is_shipped and record.retrieved_ids is None and has_marks(claim):
            return MARKED
        if len(claim) <= LONGEST_REPEATED:
            self.repeats.add(claim, trace, is_shipped=is_shipped, shows_text=shows_text)
        if not is_shipped or not record.retrieved_ids or (mark := unread_mark(claim)) is None:
            return 0
        if shows_text or trace:
            self._at(record.ts).add_mark(f"`{mark}`" if shows_text else f"that of trace {trace}")
        return UNREAD_MARK

    def merge(self, other: CapturedSeries) -> None:
        """Add the counts of another series."""
        self.repeats.merge(other.repeats)
        self.sessions.merge(other.sessions)
        self.past.merge(other.past)
        for minute, bucket in other.minutes.items():
            self.minutes.setdefault(minute, CapturedBucket()).merge(bucket)
        self._trim()

    def latest(self, enough: int, size: Callable[[CapturedBucket], int]) -> tuple[CapturedBucket, float | None]:
        """The sum of the newest minutes that are enough together by their size, or of all that are kept.

        It is given with its start in seconds since the epoch; None where there is no minute.
        """
        total, start = CapturedBucket(), None
        for minute in sorted(self.minutes, reverse=True):
            if size(total) >= enough:
                break
            total.merge(self.minutes[minute])
            start = float(minute * MINUTE)
        if start is None:
            total.merge(self.past)
        return total, start

    def compared(self) -> tuple[int, int, int]:
        """Of everything that was ever counted: records whose ids occur in gold, records whose do not, and their ids."""
        in_gold = strange = ids = 0
        for bucket in self.buckets:  # of every pipeline at every scrape
            ids += bucket.ids
            for mask, n in bucket.masks.items():
                if mask & IN_GOLD:
                    in_gold += n
                elif mask & NOT_IN_GOLD:
                    strange += n
        return in_gold, strange, ids

    def whole(self) -> CapturedBucket:
        """The sum of everything that was ever counted."""
        total = CapturedBucket()
        for bucket in self.buckets:
            total.merge(bucket)
        return total


class CapturedTable(msgspec.Struct):
    """What was captured, by pipeline and source."""

    series: dict[tuple[str, str], CapturedSeries] = {}

    def at(self, pipeline: str, source: str) -> CapturedSeries:
        """The series of a pipeline and source, created if it is new."""
        return self.series.setdefault((pipeline, source), CapturedSeries())

    def __iter__(self) -> Iterator[tuple[tuple[str, str], CapturedSeries]]:
        """The series that counted a record, by pipeline and source."""
        return (
            (key, series)
            for key, series in sorted(self.series.items())
            if any(bucket.masks for bucket in series.buckets)
        )

    def merge(self, other: CapturedTable) -> None:
        """Add another table; the order of merging does not matter."""
        for key, series in other:
            self.at(*key).merge(series)

    def rename(self, pipeline_of: Callable[[str, str], str]) -> None:
        """Move the series to the pipelines they are to be counted under, by pipeline and source."""
        for pipeline, source in list(self.series):
            name = pipeline_of(pipeline, source)
            if name != pipeline:
                self.at(name, source).merge(self.series.pop((pipeline, source)))

    def strange_ids(self) -> dict[str, int]:
        """The pipelines none of whose retrieved ids ever occurred in gold, with the number of these ids.

        They are named from so many records on that it is no chance.
        """
        found: dict[str, list[int]] = {}
        for (pipeline, _), series in self.series.items():
            add_sums(found, pipeline, series.compared())
        return {
            pipeline: ids for pipeline, (in_gold, strange, ids) in found.items() if not in_gold and strange >= FIRST
        }

    def alike_ids(self) -> dict[tuple[str, str], AlikeIds]:
        """By pipeline and gold set, the ids that differ from gold ids in form alone."""
        found: dict[tuple[str, str], AlikeIds] = {}
        for (pipeline, _), series in self.series.items():
            for bucket in series.buckets:
                for gold, ids in bucket.alike.items():
                    found[pipeline, gold] = ids.plus(found.get((pipeline, gold), ids))
        return found

    def give_up(self, pipeline: str) -> None:
        """Delete the counts of a pipeline."""
        self.series = {key: series for key, series in self.series.items() if key[0] != pipeline}

    def forget_examples(self) -> bool:
        """Remove what is kept as an example, because somebody is forgotten; returns whether there was anything."""
        buckets = [bucket for series in self.series.values() for bucket in series.buckets]
        kept = [examples for bucket in buckets for examples in (bucket.examples, bucket.marks) if examples]
        for examples in kept:
            examples.clear()
        alike = [bucket for bucket in buckets if any(ids.example for ids in bucket.alike.values())]
        for bucket in alike:
            bucket.alike = {gold: AlikeIds(ids.forms) for gold, ids in bucket.alike.items()}
        forgotten = [series.repeats.forget() for series in self.series.values()]
        return bool(kept or alike) or any(forgotten)


def ids_in_gold(record: Record, key: Key, items: Items) -> bool | None:
    """Whether one of the retrieved ids occurs anywhere in gold; None where there are none to compare.

    `items` are the gold items that records of the pipeline and source may match.
    """
    if key[3]:
        return True
    if key[2] and key[0] & HAS_GOLD_IDS:
        return not items.ids.isdisjoint(record.retrieved_ids or ())
    return None


def shortened(name: str) -> str:
    """An id for display: printable, and cut where it is long.

    >>> shortened("grey-heron#1"), shortened("e1f72df8-9c1b-4c66-a6d1-3f0d3f6c1f9a")
    ('grey-heron#1', 'e1f72df8-9c1b-4c66-a6d1…')
    """
    return printable(name, LONGEST_EXAMPLE)


def _explained(mask: int, record: Record) -> int:
    # A trace without an answer or some of its spans is partial as well: there it is missing, not left out by the draw.
    sampling, facts = record.sampling, record.facts
    without_details = record.ended not in (None, CUT) or (sampling is not None and not sampling.audit)
    if record.error is not None or (record.partial and without_details):
        mask |= UNFINISHED
    if facts is None:
        return mask
    if mask & NO_QUESTION and facts.question_hash is not None:
        mask &= ~NO_QUESTION
    if mask & NO_QUESTION and facts.question_chars is not None:
        mask |= WITHHELD_QUESTION
    has_claim = record.answer_json is not None and record.answer_json.claim is not None
    if not has_claim and (facts.claim_chars is not None or facts.answered is not None):
        mask |= NO_ANSWER | WITHHELD_ANSWER
    if mask & NO_CONTEXTS and facts.contexts is not None:
        mask |= WITHHELD_CONTEXTS
    return mask
