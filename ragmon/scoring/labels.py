"""Labels in the counts: a rated answer becomes a record of source `label`, with the gold item that the label implies.

Live, the first label of an answer counts in the minute it arrives, for windows and alarms. Counters and alarms cannot
be undone, so later labels and corrections count only in reports. Reports count labels at the time of the answers, with
the latest rating of each rater.

The labels of a window are compared with the proxies of the answers they are about: those of the same hours and of the
same version of the judge (`ragmon.scoring.buckets`), whenever the labels came. So the estimate is of the answers whose
labels came in the window, as the labels alone are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import time
from typing import Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.core.constants import DEFAULT_PIPELINE, LABEL, LABELS, OTHER
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Label, Line, Record, TextFacts, accepts_labels, is_redacted, trace_key
from ragmon.core.refusals import TOKEN
from ragmon.core.text import READ
from ragmon.metrics import facts as bits
from ragmon.metrics.builtin import AnswerCorrect
from ragmon.scoring.buckets import UNTIMED, Cohorts, Judged, State, edges
from ragmon.scoring.minutes import question_of
from ragmon.scoring.ratings import PROBED, Consensus, LabelStore, Rating, agreement, consensus, given_at
from ragmon.scoring.scorer import Scorer
from ragmon.stats.histograms import MICRO, add_sums
from ragmon.stats.prediction import FEWEST, Delays, Predicted, StratumSample, Sums, predicted, stratified


def labelled_record(answer: Record, verdict: Consensus, ts: float | None) -> Record:
    """The record of a labelled answer, counted when the label arrived or when the answer was given."""
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
        answers: How many answers are remembered here; a server remembers none, it has them in its journal.
    """

    def __init__(
        self,
        scorer: Scorer,
        admit: Callable[[Record, float], Record],
        *,
        answers: int = 0,
        observer: LabelObserver | None = None,
    ) -> None:
        self.store = LabelStore()
        self._observer = observer
        self._scorer = scorer
        self._admit = admit
        self._max_answers = answers
        self._answers: dict[str, Record] = {}

    def see(self, answer: Record, now: float) -> None:
        """Add an answer, and join the labels that waited for it."""
        if self._max_answers and answer.trace_id is not None and accepts_labels(answer):
            self._answers[answer.trace_id] = msgspec.structs.replace(answer, q=None, contexts=None)
            if len(self._answers) > self._max_answers:
                del self._answers[next(iter(self._answers))]
        if self.store.pending:
            self.store.expire(now)
            # Score an answer with every label that waited for it, even if a metric raises on one of them.
            failed: Exception | None = None
            for label in self.store.take(answer.trace_id):
                try:
                    self._join(label, answer, now)
                except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
                    failed = failed or error
            if failed is not None:
                raise failed

    def take(self, label: Label, now: float) -> None:
        """Add a label, which waits where its answer is unknown. It counts now: windows of labels use their arrival."""
        self.store.expire(now)
        answer = label.answer or self._answers.get(label.trace_id)
        if answer is None:
            self.store.add_pending(label, now)
        else:
            self._join(label, answer, now)

    def _join(self, label: Label, answer: Record, now: float) -> None:
        if self._observer is not None:
            self._observer(label, answer, now)
        if not accepts_labels(answer):
            self.store.results[PROBED] += 1
            return
        verdict = self.store.apply(label, now)
        if verdict is not None:
            record = self._admit(labelled_record(answer, verdict, now), now)
            self._scorer.observe_label(record, gold_item(label.trace_id, verdict), answer.ts)


@dataclass(frozen=True)
class Labelled:
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
    """One answer with its labels."""

    answer: Record | None = None
    first: float | None = None
    labels: int = 0
    raters: dict[str, Rating] = field(default_factory=dict)

    @property
    def is_disputed(self) -> bool:
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
        """Add a label, with its answer where that is known already.

        Where the arrival is unknown, a label without a time, or with one in the future, is older than all others.
        """
        labelled = self._answers_by_trace.setdefault(trace_key(label.trace_id), _LabelledAnswer())
        given = given_at(label, self._now if arrival is None else arrival)
        given = arrival or 0.0 if given is None else given
        labelled.labels += 1
        labelled.raters.setdefault(label.rater, Rating()).apply(label, given)
        labelled.first = given if labelled.first is None else min(labelled.first, given)
        labelled.answer = answer or labelled.answer

    @property
    def traces(self) -> Collection[str]:
        """The traces of the labelled answers, by `trace_key`."""
        return self._answers_by_trace.keys()

    def meet(self, lines: Iterable[Line]) -> None:
        """Find the answers in lines; the newest answer of a trace is used."""
        for line in lines:
            if (
                isinstance(line, Record)
                and line.trace_id
                and (labelled := self._answers_by_trace.get(trace_key(line.trace_id)))
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
            conflicts=sum(labelled.is_disputed for labelled in rated_answers),
            orphans=len(self._answers_by_trace) - len(with_answer),
            probes=len(with_answer) - len(rated),
            maturity=maturity,
        )


def _maturity(about: Iterable[tuple[str, _LabelledAnswer, Record]]) -> tuple[float | None, dict[str, float]]:
    # Delays differ between pipelines, from minutes to days, so each pipeline is estimated on its own.
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


MAX_COHORTS: Final = 64
"""Where the labels of a window span more hours than this, consecutive hours are one cohort: cohorts with few labels
make the mean proxy less precise."""


class Prediction(NamedTuple):
    """The estimate from labels and a proxy.

    Attributes:
        proxy: The score that every answer has.
        estimate: The estimated mean of the labels that all answers would have; combined over strata and versions of
            the judge where there are several.
    """

    pipeline: str
    window: str
    proxy: str
    estimate: Predicted


def predictions(
    state: State, windows: Mapping[str, int | None], now: float, proxy: Callable[[str], str]
) -> list[Prediction]:
    """The estimates of every pipeline that has labels, for the audit members.

    Each stratum is estimated on its own and weighted by its share of the audit members, because raters may prefer some
    answers; and each version of the judge is on its own, because scores of two versions have no common error.
    """
    estimates, cohorts = [], state.cohorts
    for pipeline in sorted({judged.pipeline for judged in cohorts.labels}):
        name = proxy(pipeline)
        for window, span in windows.items():
            parts = samples(cohorts, pipeline, name, None if span is None else edges(span, now))
            if sum(part.sums.labels for part in parts) >= FEWEST:
                estimate = predicted(parts[0].sums) if len(parts) == 1 else stratified(parts)
                estimates.append(Prediction(pipeline, window, name, estimate))
    return estimates


def samples(cohorts: Cohorts, pipeline: str, proxy: str, window: tuple[int, int] | None) -> list[StratumSample]:
    """The labels of one window (None: all) with the proxies of their cohorts, by stratum and version of the judge."""
    begin, end = (None, 0) if window is None else window
    labels = {
        judged: arrived
        for judged in sorted(cohorts.labels)
        if (judged.pipeline, judged.proxy) == (pipeline, proxy) and (arrived := cohorts.arrived(judged, begin, end))
    }
    hours = [hour for arrived in labels.values() for hour in arrived]
    if not hours:
        return []
    timed = [hour for hour in hours if hour != UNTIMED] or [0]
    width = -(-(max(timed) - min(timed) + 1) // MAX_COHORTS)
    blocks = {hour // width for hour in hours}
    strata: dict[str, _Answers] = defaultdict(_Answers)
    for (owner, name, hour), (total, known, shipped) in cohorts.answers.items():
        if owner == pipeline and hour // width in blocks:
            stratum = strata[name]
            stratum.total, stratum.known = stratum.total + total, stratum.known + known
            stratum.shipped += shipped
    for judged, arrived in labels.items():
        strata[judged.stratum].add(judged, _with_proxies(arrived, cohorts.proxies.get(judged, {}), width))
    return [sample for name, stratum in sorted(strata.items()) for sample in stratum.samples(name)]


@dataclass
class _Answers:
    """One stratum.

    Attributes:
        total, known, shipped: Its requests in the hours of the labels, those with a known outcome, and those with an
            answer that a label may rate.
        versions: Sums of labels and proxies by version of the judge.
    """

    total: int = 0
    known: int = 0
    shipped: int = 0
    versions: dict[str, Sums] = field(default_factory=dict)
    alone: Sums = field(default_factory=Sums)

    def add(self, judged: Judged, found: tuple[Sums, Sums]) -> None:
        sums, alone = found
        if sums.labels >= FEWEST and judged.version != OTHER:
            self.versions[judged.version], self.alone = sums, self.alone + alone
        else:
            self.alone = self.alone + Sums(sums.labels, sums.y, sums.yy, sums.f, sums.ff, sums.yf) + alone

    def samples(self, name: str) -> list[StratumSample]:
        groups = [(f"{name} {version}".rstrip(), sums) for version, sums in sorted(self.versions.items())]
        if self.alone.labels or not groups:
            groups.append((name if not groups else f"{name} without a score", self.alone))
        labels = sum(sums.labels for _, sums in groups)
        if not (labels or self.total):
            return []
        found = []
        for group, sums in groups:
            share = Fraction(sums.labels, labels) if labels else Fraction(1)
            domain = max(sums.labels, round(share * self.shipped))
            assessed = max(domain, round(share * self.known))
            found.append(StratumSample(group, float(share * self.total), assessed, sums, domain))
        return found


def _with_proxies(
    arrived: Mapping[int, Sequence[int]], answers: Mapping[int, Sequence[int]], width: int
) -> tuple[Sums, Sums]:
    """The sums of labels with the mean proxy of all answers of their cohorts, and those of labels without.

    With n of the labels and N of the answers in a cohort, the mean proxy is Σ n · mean / Σ n. It is as precise as that
    of (Σ n)² / Σ (n² / N) answers: the variance of the estimate is that of `predicted` with so many records.
    """
    labelled: dict[int, list[int]] = {}
    scored: dict[int, list[int]] = {}
    for blocks, by_hour in ((labelled, arrived), (scored, answers)):
        for hour, counts in by_hour.items():
            add_sums(blocks, hour // width, counts)
    complete = {block for block, sums in labelled.items() if scored.get(block, (0, 0))[0] >= sums[0]}
    with_proxies = _total(labelled[block] for block in complete)
    alone = _total(sums for block, sums in labelled.items() if block not in complete)
    if not complete:
        return Sums(), Sums(*alone)
    n = with_proxies[0]
    weighted = sum(Fraction(labelled[block][0] * scored[block][1], scored[block][0]) for block in complete)
    records = int(n * n / sum(Fraction(labelled[block][0] ** 2, scored[block][0]) for block in complete))
    return replace(Sums(*with_proxies), records=records, proxies=round(weighted * records / n)), Sums(*alone)


def _total(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0] * 6


def without_text(answer: Record, scorer: Scorer) -> Record:
    """An answer without question, contexts and claim; a claim that is the refusal token alone stays.

    User and tags stay as well: an erasure goes by them.
    """
    rules = scorer.rules_of(answer.pipeline or constants.DEFAULT_PIPELINE)
    measured, grounded = scorer.measured(answer)
    flags = rules.facts.read(answer, None, grounded)[0]
    given = answer.answer_json
    claim = None if given is None else given.claim
    is_token = claim is not None and rules.facts.refusal.kind(claim[:READ]) == TOKEN
    facts = TextFacts() if answer.facts is None else msgspec.structs.replace(answer.facts)
    has_facts = is_token or (claim is None and answer.facts is not None) or is_redacted(answer, "claim")
    if not has_facts and claim is None:
        # With facts an outcome that they do not tell is unknown; without, there simply is no answer.
        facts.answered = None if flags & bits.OUTCOME_UNKNOWN else False
    elif not has_facts:
        facts.answered = bool(flags & (bits.SHIPPED | bits.REFUSED))
        facts.refused, facts.refusal_like = bool(flags & bits.REFUSED), bool(flags & bits.REFUSAL_LIKE)
        facts.policy_refusal = True if flags & bits.POLICY_REFUSAL else None
        facts.gold_version = facts.contains_gold_claim = None
        facts.contains_claim = False if flags & bits.SHIPPED else None
    cuts = {"claim": bits.CLAIM_CUT, "contexts": bits.CONTEXTS_CUT}
    facts.cut = [name for name, flag in cuts.items() if flags & flag] or None
    facts.grounded, facts.question_hash = grounded, question_of(answer) or None
    return msgspec.structs.replace(
        answer,
        kind=None,
        q=None,
        qid=None,
        matched=None,
        contexts=None,
        scores=None,
        exported=None,
        parent_span_id=None,
        answer_json=None if given is None else msgspec.structs.replace(given, claim=claim if is_token else None),
        # Empty facts say that the outcome is unknown; no facts and no answer say that there is none.
        facts=None if answer.facts is None and facts == TextFacts() else facts,
        measures={name: n / MICRO for name, n in measured.items()} | (answer.measures or {}) or None,
    )
