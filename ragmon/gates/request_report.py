"""One request as an engineer on call needs it: what was asked, retrieved and answered, and why it scores as it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, Literal

from ragmon.core import constants
from ragmon.core.errors import shown_name
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate
from ragmon.core.record import Answer, Latency, Record, TextFacts, is_redacted
from ragmon.gates.request_reasons import AssessedRequest, reason
from ragmon.metrics.base import Metric
from ragmon.scoring.score_table import Score
from ragmon.scoring.scorer import Assessment
from ragmon.stats.histograms import MICRO

MetricOutcome = Literal["pass", "fail", "scored", "unassessed", "outside"]
_SAME: Final = ("ts", "build", "index_hash", "model", "error", "ended", "session", "user", "tags")
"""The fields of a report that are those of the record."""
_KEEPS: Final = '"redacted" or "full" keeps it'


@dataclass(frozen=True)
class ShownText:
    """A text of the request.

    Attributes:
        text: The text as it was kept; None where it was not.
        chars: Its length in characters before it was kept, where that is known.
        note: Why there is no text, or what was done to it; "" for a whole text.
    """

    text: str | None
    chars: int | None = None
    note: str = ""


@dataclass(frozen=True)
class RankedDocument:
    """A retrieved document.

    Attributes:
        rank: From 1.
        id, score, text: As captured; None where it was not.
        gold: Whether the gold item names its id; None without a gold item that names ids.
        cited: Whether the answer cites it.
    """

    rank: int
    id: str | None
    score: float | None
    text: str | None
    gold: bool | None
    cited: bool


@dataclass(frozen=True)
class MatchedItem:
    """The gold item of the request.

    Attributes:
        qid, gold, version: The item, its set, and the version of that.
        how: How it was found (`ragmon.core.constants.MATCH_METHODS`).
        answerable: Whether gold has an answer.
        documents: The ids it names, or the prefixes of ids of relevant sections.
        texts: How many texts it names.
        question, claims: Its wording of the question, and the phrases a right answer has; None where not shown.
    """

    qid: str
    gold: str
    version: str
    how: str
    answerable: bool
    documents: tuple[str, ...]
    texts: int
    question: str | None = None
    claims: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MetricResult:
    """The score of the request in one metric.

    Attributes:
        metric: The metric.
        score: In [0, 1]; None where it has none.
        outcome: `fail` where it breaks a gate by itself, `pass` where it keeps all gates on the metric, `scored`
            without a gate, `unassessed` where a fact is unknown, `outside` where the request is not in the denominator.
        why: Why, in a sentence.
        gates: The gates it breaks.
    """

    metric: str
    score: float | None
    outcome: MetricOutcome
    why: str
    gates: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestReport:
    """One request.

    Attributes:
        trace_id, ts, pipeline, source, build, index_hash, model, error, ended: As in its record.
        kept: Why it was kept: `audit`, or the outcome it was kept for.
        latency_ms: By stage, in milliseconds.
        session, user, tags: As in its record; None where they are not shown.
        question, answer: The texts.
        citations: The ids that the answer cites; None where no list was captured.
        documents: The retrieved documents; None where they were not captured.
        documents_note: Why documents or their texts are missing; "" where nothing is.
        candidates: How many documents there were before reranking; None where that was not captured.
        gold: Its gold item; None where it matches none.
        metrics: The score in every metric.
        content: `[capture] content` of its pipeline and source; "" where that is not known.
        withheld: Why nothing of the content is shown; "" where what was kept is shown.
        link: The trace in the tracing backend; None without `[links] trace`.
    """

    trace_id: str
    ts: float | None
    pipeline: str
    source: str
    build: str | None
    index_hash: str | None
    model: str | None
    error: str | None
    ended: str | None
    kept: str
    latency_ms: dict[str, float]
    session: str | None
    user: str | None
    tags: dict[str, str] | None
    question: ShownText
    answer: ShownText
    citations: tuple[str, ...] | None
    documents: tuple[RankedDocument, ...] | None
    documents_note: str
    candidates: int | None
    gold: MatchedItem | None
    metrics: tuple[MetricResult, ...]
    content: str
    withheld: str = ""
    link: str | None = None


def report(
    record: Record,
    assessment: Assessment,
    metrics: Mapping[str, Metric],
    gates: Sequence[Gate],
    *,
    content: str,
    within_ms: float | None = None,
    link: str | None = None,
) -> RequestReport:
    """The report of a request.

    Args:
        record: The request.
        assessment: Its facts and scores.
        metrics: The metrics by key.
        gates: The gates of its pipeline.
        content: `[capture] content` of its pipeline and source; "" where that is not known.
        within_ms: The declared bound on the latency, in milliseconds.
        link: The URL of a trace, with `{trace_id}` in its place.
    """
    request = AssessedRequest(assessment.facts, record, assessment.item, within_ms)
    answer, latency, sampling = record.answer_json or Answer(), record.latency_ms or Latency(), record.sampling
    facts, trace_id = record.facts or TextFacts(), record.trace_id or ""
    same: dict[str, Any] = {name: getattr(record, name) for name in _SAME}
    return RequestReport(
        trace_id=trace_id,
        pipeline=record.pipeline or constants.DEFAULT_PIPELINE,
        source=record.source or constants.REPLAY,
        kept="audit" if sampling is None or sampling.audit else sampling.stratum,
        latency_ms={stage: ms for stage in constants.STAGES if (ms := getattr(latency, stage)) is not None},
        question=_shown(record, "q", record.q, facts.question_chars, content),
        answer=_shown(record, "claim", answer.claim, facts.claim_chars, content),
        citations=None if answer.citations is None else tuple(answer.citations),
        documents=_documents(record, assessment.item, request.citations),
        documents_note=_documents_note(record, content),
        candidates=None if record.candidate_ids is None else len(record.candidate_ids),
        gold=_matched(assessment),
        metrics=tuple(
            _result(metrics[name], score, request, _gates_on(name, gates, record, assessment))
            for name, score in assessment.scores.items()
        ),
        content=content,
        link=None if link is None or not trace_id else link.replace("{trace_id}", trace_id),
        **same,
    )


def without_content(full: RequestReport, why: str) -> RequestReport:
    """The same report without what people wrote and who they are: ids, names, times, numbers and reasons stay.

    An error may be a message, a citation the words of an answer: what does not look like a name is cut.

    Args:
        full: The report.
        why: Why the content is not shown.
    """
    gold, documents, citations = full.gold, full.documents or (), full.citations or ()
    names = (full.error, *citations, *(document.id for document in documents))
    texts = [name for name in names if name and _name(name) != name]
    metrics = (
        replace(metric, why=f"not shown: {why}") if any(text in metric.why for text in texts) else metric
        for metric in full.metrics
    )
    return replace(
        full,
        error=_name(full.error),
        session=None,
        user=None,
        tags=None,
        question=_withheld(full.question, why),
        answer=_withheld(full.answer, why),
        citations=full.citations and tuple(shown_name(name, _CUT) for name in citations),
        documents=full.documents and tuple(replace(each, id=_name(each.id), text=None) for each in documents),
        documents_note=why if any(document.text for document in documents) else full.documents_note,
        gold=None if gold is None else replace(gold, question=None, claims=None),
        metrics=tuple(metrics),
        withheld=why,
    )


_CUT: Final = "…"
"""Stands for a name that may be a text."""


def _name(name: str | None) -> str | None:
    return shown_name(name, _CUT) if name else name


def _withheld(shown: ShownText, why: str) -> ShownText:
    return shown if shown.text is None else ShownText(None, len(shown.text), f"not shown: {why}")


def _shown(record: Record, name: str, text: str | None, chars: int | None, content: str) -> ShownText:
    """A text of a record, and what is to be said of it."""
    if text is not None:
        return ShownText(text, chars, "redacted before it was kept" if is_redacted(record, name) else "")
    if record.error is not None and name == "claim":
        return ShownText(None, None, "the call ended in an error")
    if record.ended is not None and name == "claim":
        return ShownText(None, None, f"the call was {record.ended}")
    return ShownText(None, chars, _why_missing(record, chars, content))


def _why_missing(record: Record, chars: int | None, content: str) -> str:
    """Why a text was not captured, and the setting that would capture it."""
    if content in ("none", "hash"):
        return f'not captured: `[capture] content = "{content}"`; {_KEEPS}'
    if chars is not None:
        return f"not captured: `[capture] content` of the application left it out; {_KEEPS}"
    if record.partial:
        return "not captured: the call was kept for its outcome; `[sampling] detail = true` keeps more"
    return "not captured: " + ("the record came without" if content else "the line has none")


def _documents(record: Record, item: GoldItem | None, citations: Sequence[str]) -> tuple[RankedDocument, ...] | None:
    if record.retrieved_ids is None and record.contexts is None:
        return None
    gold = item.ids if item is not None else frozenset()
    columns = zip_longest(record.retrieved_ids or (), record.scores or (), record.contexts or ())
    return tuple(
        RankedDocument(
            rank=rank,
            id=name,
            score=score,
            text=text,
            gold=name in gold if gold and name is not None else None,
            cited=name is not None and name in citations,
        )
        for rank, (name, score, text) in enumerate(columns, start=1)
    )


def _documents_note(record: Record, content: str) -> str:
    """Why documents or their texts are missing, or that the texts were changed."""
    facts = record.facts
    if record.retrieved_ids is None and record.contexts is None:
        return _why_missing(record, None, content and "full")
    if record.contexts is None and record.retrieved_ids:
        chars = None if facts is None else facts.context_chars
        return f"texts {_why_missing(record, chars, content)}"
    return "the texts were redacted before they were kept" if is_redacted(record, "contexts") else ""


def _matched(assessment: Assessment) -> MatchedItem | None:
    item = assessment.item
    if item is None:
        return None
    claims = (*(item.claim_substrings or ()), *((item.gold_claim,) if item.gold_claim else ()))
    return MatchedItem(
        qid=item.qid,
        gold=item.set_name,
        version=item.set_version,
        how=assessment.how,
        answerable=item.answerable,
        documents=tuple(item.citations or item.sections or ()),
        texts=len(item.texts),
        question=item.question,
        claims=claims,
    )


def _gates_on(name: str, gates: Sequence[Gate], record: Record, assessment: Assessment) -> list[Gate]:
    """The gates on a metric that judge this request: those of its source and its slices."""
    source = record.source or constants.REPLAY
    sources = {source, constants.MATCH} if source == constants.LIVE and assessment.item is not None else {source}
    return [
        gate
        for gate in gates
        if gate.kind == "threshold"
        and gate.metric == name
        and (gate.source is None or gate.source in sources)
        and (not gate.where or gate.where in assessment.slices)
    ]


def _result(metric: Metric, score: Score, request: AssessedRequest, gates: Sequence[Gate]) -> MetricResult:
    why = reason(metric, score, request)
    if not isinstance(score, int):
        return MetricResult(metric.key, None, "outside" if score is None else "unassessed", why)
    share = score / MICRO
    broken = tuple(gate.name for gate in gates if not gate.holds(share))
    return MetricResult(metric.key, share, "fail" if broken else "pass" if gates else "scored", why, broken)
