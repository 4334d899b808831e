"""Labels in the counts: a rated answer becomes a record of source `label`, with the gold item that the label implies.

Live, the first label of an answer counts in the minute it arrives, for windows and alarms. Counters and alarms cannot
be undone, so later labels and corrections count only in reports. Reports count labels at the time of the answers, with
the latest rating of each rater.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from time import time
from typing import NamedTuple

import msgspec

from ragmon.core.constants import DEFAULT_PIPELINE, LABEL, LABELS
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Label, Line, Record, accepts_labels
from ragmon.gold.labels.ratings import PROBED, Consensus, LabelStore, Rating, agreement, consensus, given_at
from ragmon.metrics.answers import AnswerCorrect
from ragmon.scoring.scorer import Scorer
from ragmon.stats.detection import Delays


def labelled_record(answer: Record, verdict: Consensus, ts: float | None) -> Record:
    """The record of a labelled answer.

    Args:
        answer: The answer.
        verdict: The consensus of its ratings.
        ts: The time it counts at, seconds since the epoch: when the label arrived, or when the answer was given.
    """
    measures = dict(answer.measures or {})
    measures.pop(AnswerCorrect.name, None)
    if verdict.correct is not None:
        measures[AnswerCorrect.name] = verdict.correct
    return msgspec.structs.replace(answer, source=LABEL, ts=ts, measures=measures or None)


def gold_item(trace_id: str, verdict: Consensus) -> GoldItem | None:
    """The gold item that a consensus implies; None where it has neither answerability nor relevant documents.

    A question with relevant documents is answerable, and one without any relevant document is not, unless a rater says
    otherwise.
    """
    answerable, relevant_ids = verdict.answerable, verdict.relevant_ids
    if answerable is None and relevant_ids is None:
        return None
    is_answerable = bool(relevant_ids) if answerable is None else answerable
    return GoldItem(
        qid=trace_id,
        question="",
        answerable=is_answerable,
        citations=relevant_ids or None,
        set_name=LABELS,
    )


LabelObserver = Callable[[Label, Record, float], None]
"""Gets a label, its answer, and when the label arrived in seconds since the epoch."""


class LabelJoiner:
    """Joins labels to answers, whichever arrives first.

    Args:
        scorer: Scores the labelled answers.
        admit: Gives a record the names it is counted under.
        answers: How many answers are remembered here; a server remembers none, it has them in its journal.
        observer: Called for every label whose answer is known.

    Attributes:
        book: The label store.
    """

    def __init__(
        self,
        scorer: Scorer,
        admit: Callable[[Record, float], Record],
        *,
        answers: int = 0,
        observer: LabelObserver | None = None,
    ) -> None:
        self.book = LabelStore()
        self._observer = observer
        self._scorer = scorer
        self._admit = admit
        self._max_answers = answers
        self._answers: dict[str, Record] = {}

    def see(self, answer: Record, now: float) -> None:
        """Add an answer, and join the labels that waited for it.

        Args:
            answer: The answer.
            now: When it arrived, seconds since the epoch.
        """
        if self._max_answers and answer.trace_id is not None and accepts_labels(answer):
            self._answers[answer.trace_id] = msgspec.structs.replace(answer, q=None, contexts=None)
            if len(self._answers) > self._max_answers:
                del self._answers[next(iter(self._answers))]
        if self.book.pending:
            self.book.expire(now)
            self._join_all(answer, now)

    def take(self, label: Label, now: float) -> None:
        """Add a label.

        Args:
            label: The label; it waits where its answer is unknown.
            now: When it arrived, seconds since the epoch. It counts now: windows of labels use their arrival.
        """
        self.book.expire(now)
        answer = label.answer or self._answers.get(label.trace_id)
        if answer is None:
            self.book.add_pending(label, now)
        else:
            self._join(label, answer, now)

    def _join_all(self, answer: Record, now: float) -> None:
        """Score an answer with every label that waited for it, even if a metric raises on one of them."""
        failed: Exception | None = None
        for label in self.book.take(answer.trace_id):
            try:
                self._join(label, answer, now)
            except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
                failed = failed or error
        if failed is not None:
            raise failed

    def _join(self, label: Label, answer: Record, now: float) -> None:
        """Score an answer with a label."""
        if self._observer is not None:
            self._observer(label, answer, now)
        if not accepts_labels(answer):
            self.book.results[PROBED] += 1
            return
        verdict = self.book.apply(label, now)
        if verdict is not None:
            record = self._admit(labelled_record(answer, verdict, now), now)
            self._scorer.observe_label(record, gold_item(label.trace_id, verdict), answer.ts)


class Labelled(NamedTuple):
    """Summary of the labels in a report.

    Attributes:
        labels: Labels.
        answers: Answers with labels.
        raters: Raters.
        conflicts: Answers on which raters disagree.
        orphans: Labelled answers that are missing.
        probes: Labelled answers to probes, which the gold already judges.
        maturity: The share of the labels to be expected for these answers that has arrived, over all pipelines; None
            where there are too few to estimate it.
    """

    labels: int
    answers: int
    raters: int
    conflicts: int
    orphans: int
    probes: int = 0
    maturity: float | None = None


@dataclass
class _LabelledAnswer:
    """One answer with its labels.

    Attributes:
        answer: The answer, as soon as it is known.
        first: When the first label was given, seconds since the epoch.
        labels: The number of labels.
        raters: The latest rating of each rater.
    """

    answer: Record | None = None
    first: float | None = None
    labels: int = 0
    raters: dict[str, Rating] = field(default_factory=dict)

    @property
    def at_odds(self) -> bool:
        """Whether raters disagree."""
        return not all(agreement(self.raters.values()).values())


class FinalLabels:
    """The labels of a report, with the latest rating of each rater; their order does not matter.

    Attributes:
        maturity: After `finalise`, the share of the expected labels that has arrived, by pipeline; without pipelines
            that have too few.
    """

    def __init__(self) -> None:
        self.maturity: dict[str, float] = {}
        self._answers_by_trace: dict[str, _LabelledAnswer] = {}
        self._now = time()

    def add(self, label: Label, answer: Record | None = None, arrival: float | None = None) -> None:
        """Add a label.

        Args:
            label: The label.
            answer: Its answer, where that is known already.
            arrival: When it arrived, seconds since the epoch; where that is unknown, a label without a time, or with
                one in the future, is older than all others.
        """
        labelled = self._answers_by_trace.setdefault(label.trace_id, _LabelledAnswer())
        given = given_at(label, self._now if arrival is None else arrival)
        given = arrival or 0.0 if given is None else given
        labelled.labels += 1
        labelled.raters.setdefault(label.rater, Rating()).apply(label, given)
        labelled.first = given if labelled.first is None else min(labelled.first, given)
        labelled.answer = answer or labelled.answer

    @property
    def traces(self) -> Collection[str]:
        """The traces of the labelled answers, in lower case where labels are."""
        return self._answers_by_trace.keys()

    def meet(self, lines: Iterable[Line]) -> None:
        """Find the answers in lines; the newest answer of a trace is used."""
        for line in lines:
            if (
                isinstance(line, Record)
                and line.trace_id
                and (labelled := self._answers_by_trace.get(line.trace_id.lower()))
            ):
                labelled.answer = line

    def __bool__(self) -> bool:
        return bool(self._answers_by_trace)

    def rename(self, known: Callable[[Record], Record]) -> None:
        """Rename answers to the names they were counted under."""
        for labelled in self._answers_by_trace.values():
            labelled.answer = None if labelled.answer is None else known(labelled.answer)

    def finalise(self, scorer: Scorer) -> Labelled:
        """Count these labels in place of all labels counted before; alarms have already processed those."""
        scorer.reset_labels()
        with_answer = [
            (trace_id, labelled, labelled.answer)
            for trace_id, labelled in sorted(self._answers_by_trace.items())
            if labelled.answer
        ]
        rated = [(trace_id, labelled, answer) for trace_id, labelled, answer in with_answer if accepts_labels(answer)]
        for trace_id, labelled, answer in rated:
            verdict = consensus(labelled.raters.values())
            scorer.observe_label(labelled_record(answer, verdict, answer.ts), gold_item(trace_id, verdict), answer.ts)
        maturity, self.maturity = _maturity(rated)
        rated_answers = [labelled for _, labelled, _ in rated]
        return Labelled(
            labels=sum(labelled.labels for labelled in self._answers_by_trace.values()),
            answers=len(rated),
            raters=len({rater for labelled in rated_answers for rater in labelled.raters}),
            conflicts=sum(labelled.at_odds for labelled in rated_answers),
            orphans=len(self._answers_by_trace) - len(with_answer),
            probes=len(with_answer) - len(rated),
            maturity=maturity,
        )


def _maturity(about: Iterable[tuple[str, _LabelledAnswer, Record]]) -> tuple[float | None, dict[str, float]]:
    """The share of the expected labels that has arrived, estimated from delays until the last label.

    Delays differ between pipelines, from minutes to days, so each pipeline is estimated on its own.

    Args:
        about: Answers with their labels.

    Returns:
        The share over all pipelines, None where there are too few labels, and the share of each pipeline that has
        enough.
    """
    times = [
        (answer.pipeline or DEFAULT_PIPELINE, answer.ts, labelled.first)
        for _, labelled, answer in about
        if answer.ts is not None and labelled.first
    ]
    until = max((first for *_, first in times), default=0.0)
    delays_by_pipeline: dict[str, list[tuple[float, float]]] = {}
    for pipeline, answered, first in times:
        delays_by_pipeline.setdefault(pipeline, []).append((first - answered, until - answered))
    shares = ((pipeline, Delays(delays).maturity) for pipeline, delays in delays_by_pipeline.items())
    overall = Delays([delay for delays in delays_by_pipeline.values() for delay in delays]).maturity
    return overall, {pipeline: share for pipeline, share in shares if share is not None}
