"""An answer and what is said of it become a record under the source `label`, and the gold item it is held against.

Labels on their way into the counts, minute by minute: live windows and alarms hear the first word on an answer.

Counters cannot be taken back, and neither can alarms: later words on an answer, and changes of mind, count in reports.

Labels in reports: at the time of the answers they are about, with the last word of each rater.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import time
from typing import NamedTuple

import msgspec

from ragmon.core.constants import DEFAULT_PIPELINE, LABEL, LABELS
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import FIELDS, Label, Line, Record, joins
from ragmon.gold.labels.ratings import PROBED, Consensus, LabelStore, Rating, consensus, given_at
from ragmon.metrics.answers import AnswerCorrect
from ragmon.scoring.scorer import Scorer
from ragmon.stats.detection import Delays


def labelled_record(answer: Record, verdict: Consensus, ts: float | None) -> Record:
    """The record of a labelled answer.

    Args:
        answer: The answer.
        verdict: What is said of it.
        ts: When it counts, seconds since the epoch: when the label came, or when the answer was given.
    """
    measures = dict(answer.measures or {})
    measures.pop(AnswerCorrect.name, None)
    if verdict.correct is not None:
        measures[AnswerCorrect.name] = verdict.correct
    return msgspec.structs.replace(answer, source=LABEL, ts=ts, measures=measures or None)


def gold_item(trace_id: str, verdict: Consensus) -> GoldItem | None:
    """The gold that is in a verdict; None where it says neither whether nor where the answer is.

    A question of which somebody names documents has an answer, and one for which none is relevant has none, unless
    somebody says otherwise.
    """
    answerable, relevant = verdict.answerable, verdict.relevant_ids
    if answerable is None and relevant is None:
        return None
    has_answer = bool(relevant) if answerable is None else answerable
    return GoldItem(
        qid=trace_id,
        question="",
        answerable=has_answer,
        citations=relevant or None,
        set_name=LABELS,
    )


class LabelJoiner:
    """Joins labels to answers, whichever comes first.

    Args:
        scorer: Where labelled answers are scored.
        admit: Gives a record the names it is counted under.
        answers: How many answers are remembered here; a server has them in its journal, and remembers none.

    Attributes:
        book: What was said so far.
        heard: Told of every label whose answer is known, with the answer and when it came.
    """

    def __init__(self, scorer: Scorer, admit: Callable[[Record, float], Record], *, answers: int = 0) -> None:
        self.book = LabelStore()
        self.heard: Callable[[Label, Record, float], None] | None = None
        self._scorer = scorer
        self._admit = admit
        self._most = answers
        self._answers: dict[str, Record] = {}

    def see(self, answer: Record, now: float) -> None:
        """Take in an answer: labels may have waited for it.

        Args:
            answer: The answer.
            now: When it came, seconds since the epoch.
        """
        if self._most and answer.trace_id is not None and joins(answer):
            self._answers[answer.trace_id] = msgspec.structs.replace(answer, q=None, contexts=None)
            if len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]
        if self.book.waiting:
            self.book.expire(now)
            self._join_all(answer, now)

    def take(self, label: Label, now: float) -> None:
        """Take in what a person says of an answer.

        Args:
            label: The label; where nobody has its answer, it waits for it.
            now: When it came, seconds since the epoch. It counts now: windows of labels are of their arrival.
        """
        self.book.expire(now)
        answer = label.answer or self._answers.get(label.trace_id)
        if answer is None:
            self.book.keep(label, now)
        else:
            self._join(label, answer, now)

    def _join_all(self, answer: Record, now: float) -> None:
        """Score an answer with every label that waited for it, also where a metric raises on one of them."""
        failed: Exception | None = None
        for label in self.book.take(answer.trace_id):
            try:
                self._join(label, answer, now)
            except Exception as error:  # noqa: BLE001 - a metric is foreign code and may raise anything
                failed = failed or error
        if failed is not None:
            raise failed

    def _join(self, label: Label, answer: Record, now: float) -> None:
        """Score an answer with what is said of it."""
        if self.heard is not None:
            self.heard(label, answer, now)
        if not joins(answer):
            self.book.results[PROBED] += 1
            return
        verdict = self.book.hear(label, now)
        if verdict is not None:
            record = self._admit(labelled_record(answer, verdict, now), now)
            self._scorer.observe_label(record, gold_item(label.trace_id, verdict))


class Labelled(NamedTuple):
    """What a report says of its labels.

    Attributes:
        labels: How many there are.
        answers: Answers they are about.
        raters: Who gave them.
        conflicts: Answers of which raters say different things.
        orphans: Answers that were labelled and are not here.
        probes: Answers to gold questions that were labelled: gold says what is right.
        maturity: The share of the labels these answers will get that is here, of all pipelines together; None where
            there are too few to say.
    """

    labels: int
    answers: int
    raters: int
    conflicts: int
    orphans: int
    probes: int = 0
    maturity: float | None = None


@dataclass
class _Said:
    """What was said of one answer.

    Attributes:
        answer: The answer, as soon as it is known.
        first: When the first label was given, seconds since the epoch.
        labels: How many labels there are.
        raters: The last words of each.
    """

    answer: Record | None = None
    first: float | None = None
    labels: int = 0
    raters: dict[str, Rating] = field(default_factory=dict)

    @property
    def at_odds(self) -> bool:
        """Whether raters say different things."""
        told = ({said[1] for one in self.raters.values() if (said := getattr(one, name))} for name in FIELDS)
        return any(len(values) > 1 for values in told)


class FinalLabels:
    """What people say of answers once nobody changes their mind any more: the order of labels plays no part.

    Attributes:
        maturity: Once they are settled, the share of the labels to come that is here, by pipeline; pipelines with too
            few to say are not among them.
    """

    def __init__(self) -> None:
        self.maturity: dict[str, float] = {}
        self._said: dict[str, _Said] = {}
        self._now = time()

    def hear(self, label: Label, answer: Record | None = None, came: float | None = None) -> None:
        """Take in a label.

        Args:
            label: The label.
            answer: What it is about, where that is known already.
            came: When it came, seconds since the epoch; where nobody knows, a label whose time is none, or is yet to
                come, is older than all others.
        """
        said = self._said.setdefault(label.trace_id, _Said())
        at = given_at(label, self._now if came is None else came)
        at = came or 0.0 if at is None else at
        said.labels += 1
        said.raters.setdefault(label.rater, Rating()).hear(label, at)
        said.first = at if said.first is None else min(said.first, at)
        said.answer = answer or said.answer

    def meet(self, lines: Iterable[Line]) -> None:
        """Look for answers; the newest of a trace is the one that is meant."""
        for line in lines:
            if isinstance(line, Record) and line.trace_id and (said := self._said.get(line.trace_id.lower())):
                said.answer = line

    def __bool__(self) -> bool:
        return bool(self._said)

    def rename(self, known: Callable[[Record], Record]) -> None:
        """Let answers stand under the names they were counted under, which need not be their own."""
        for said in self._said.values():
            said.answer = None if said.answer is None else known(said.answer)

    def finalise(self, scorer: Scorer) -> Labelled:
        """Count what was said, in place of all labels that were counted before; alarms have heard them already."""
        for key in [key for key in scorer.state.series if key.source == LABEL]:
            del scorer.state.series[key]
        scorer.forget_streams()
        scorer.steps = scorer.watch = None
        scorer.state.retention = None  # windows end, a report does not
        found = [(trace_id, said, said.answer) for trace_id, said in sorted(self._said.items()) if said.answer]
        about = [(trace_id, said, answer) for trace_id, said, answer in found if joins(answer)]
        for trace_id, said, answer in about:
            verdict = consensus(said.raters.values())
            scorer.observe_label(labelled_record(answer, verdict, answer.ts), gold_item(trace_id, verdict))
        maturity, self.maturity = _maturity(about)
        mine = [said for _, said, _ in about]
        return Labelled(
            labels=sum(said.labels for said in self._said.values()),
            answers=len(about),
            raters=len({rater for said in mine for rater in said.raters}),
            conflicts=sum(said.at_odds for said in mine),
            orphans=len(self._said) - len(found),
            probes=len(found) - len(about),
            maturity=maturity,
        )


def _maturity(about: Iterable[tuple[str, _Said, Record]]) -> tuple[float | None, dict[str, float]]:
    """How much of what will be said is here, by how long labels take; it is as late as the last label.

    People who label one pipeline may take days, and minutes for another: one that is labelled fast does not vouch for
    one that is labelled slowly.

    Args:
        about: Answers, and what was said of them.

    Returns:
        The share of all pipelines together, None where there are too few to say, and that of each that has enough.
    """
    told = [
        (answer.pipeline or DEFAULT_PIPELINE, answer.ts, said.first)
        for _, said, answer in about
        if answer.ts is not None and said.first
    ]
    until = max((first for *_, first in told), default=0.0)
    each: dict[str, list[tuple[float, float]]] = {}
    for pipeline, asked, first in told:
        each.setdefault(pipeline, []).append((first - asked, until - asked))
    found = ((pipeline, Delays(mine).maturity) for pipeline, mine in each.items())
    of_all = Delays([one for mine in each.values() for one in mine]).maturity
    return of_all, {pipeline: share for pipeline, share in found if share is not None}
