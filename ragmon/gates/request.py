"""One request as an engineer on call needs it: the gates it fails, and why it scores as it does, a sentence a metric.

The facts of the request decide every sentence, as they decide the score; the record and the gold item only give names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple

from ragmon.core import constants
from ragmon.core.citations import ids_at
from ragmon.core.errors import Unassessed, shown_name
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Latency, Record, TextFacts, is_redacted
from ragmon.gates import coverage
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import COUNTED_FROM_ZERO, IDS, REFUSAL_LIKE, Facts, Key
from ragmon.scoring.minutes import CountedRequest
from ragmon.scoring.score_table import Score, ScoreTable
from ragmon.scoring.scorer import Assessment
from ragmon.stats.histograms import MICRO

MEMORY: Final = 16_384
NAMES: Final = 5
"""Ids that a sentence names; it counts the others."""
_UNASSESSED: Final[Mapping[str, str]] = {
    constants.NO_IDS: "the ids of the retrieved documents were not captured",
    constants.NO_CITATIONS: "no list of citations was captured",
    constants.CITATION_FORM: "its citations have another form than the retrieved ids",
    constants.NO_TEXT: "the text that it needs was not captured, nor any fact about it",
    constants.NO_GOLD_CLAIM: "the gold item has no phrase to look for",
    constants.NO_GOLD_CITATIONS: "the gold item names no document",
    constants.NO_LATENCY: "its latency is unknown",
    constants.NO_ANSWER: "there is no answer",
    constants.ERROR: "the call ended in an error",
    constants.TOTAL_UNKNOWN: "gold names sections, so the number of relevant documents is unknown",
    constants.GOLD_VERSION: "the answer was compared with another version of the gold set",
    constants.BEYOND_DEPTH: "the list of documents or verdicts is longer than the 1,000 ranks that are kept",
    constants.ID_FORM: "an id differs from a gold id only in form",
    constants.TEXT_CUT: "the text is longer than the part that is read",
    constants.PARTIAL: "no answer was expected, or the call was kept for its outcome, without its details",
}
_UNDER_REFUSAL: Final = "under_refusal_rate"
_NEEDS: Final[Mapping[str, str]] = {
    "answered_within": "no limit is configured: `[metrics] answered_within`",
    "candidate_recall": "no list of documents before reranking was captured",
}
"""What metrics need that most requests do not have."""
_ANSWERED_UNANSWERABLE: Final = "it was answered, and gold calls the question unanswerable"
MetricOutcome = Literal["pass", "fail", "scored", "unassessed", "outside"]
_SAME: Final = ("ts", "build", "index_hash", "model", "error", "ended", "session", "user", "tags")
_KEEPS: Final = '"redacted" or "full" keeps it'
_CUT: Final = "…"
"""Stands for a name that may be a text."""


class Failed(NamedTuple):
    """A request that fails a gate."""

    pipeline: str
    source: str
    record: Record
    key: Key
    scores: dict[str, float]
    slices: Sequence[str]


class FailureDetector:
    """Finds the single requests that do not reach a gate's threshold."""

    def __init__(self, table: ScoreTable, policy: Callable[[str], Policy]) -> None:
        self.failures: list[Failed] = []
        self._table = table
        self._policy = policy
        self._columns = {name: column for column, name in enumerate(table.metrics)}
        self._cache: dict[tuple[str, str, Key], dict[str, float]] = {}
        self._gates: dict[tuple[str, str], list[tuple[str, int, bool, float]]] = {}

    def collect(self, request: CountedRequest) -> None:
        """Check a counted request; one that is counted as live traffic and as a gold match is reported once."""
        pipeline, source, record, key = request.pipeline, request.source, request.record, request.key
        scores = self._cache.get((pipeline, source, key))
        if scores is None or request.measured:
            scores = self._judge(pipeline, source, key, request.measured)
        if not scores:
            return
        if self.failures and self.failures[-1].record is record:
            scores = {**self.failures.pop().scores, **scores}
        self.failures.append(Failed(pipeline, source, record, key, scores, request.slices))

    def fails(self, pipeline: str, source: str, key: Key) -> bool:
        """Whether requests with some facts, of which no text was measured, fail a gate."""
        scores = self._cache.get((pipeline, source, key))
        return bool(self._judge(pipeline, source, key, {}) if scores is None else scores)

    def _judge(self, pipeline: str, source: str, key: Key, measured: Mapping[str, int]) -> dict[str, float]:
        """The failing scores of a request; cached where they depend on facts alone, which many requests share."""
        gates = self._gates.get((pipeline, source))
        if gates is None:  # once per metric and direction, in micro-units
            thresholds = {
                (gate.metric, self._columns[gate.metric], gate.at_least, gate.threshold * MICRO)
                for gate in self._policy(pipeline).gates
                if gate.kind == "threshold" and gate.metric in self._columns and gate.source in (None, source)
            }
            gates = self._gates[pipeline, source] = sorted(thresholds)
        scores = self._table.scores(key)
        failing_scores: dict[str, float] = {}
        for metric, column, at_least, threshold in gates:
            score = scores[column]
            if isinstance(score, int) and self._table.metrics[metric].measured:
                score = measured.get(metric)
            if isinstance(score, int) and (score < threshold if at_least else score > threshold):
                failing_scores[metric] = score / MICRO
        if not measured:
            if len(self._cache) >= MEMORY:
                self._cache.clear()
            self._cache[pipeline, source, key] = failing_scores
        return failing_scores

    def take(self) -> list[Failed]:
        """The failures that were found since the last time."""
        found, self.failures = self.failures, []
        return found


@dataclass(frozen=True)
class AssessedRequest:
    """What the sentences are made of.

    Attributes:
        within_ms: The declared bound on the latency, in milliseconds; None without one.
    """

    facts: Facts
    record: Record
    item: GoldItem | None
    within_ms: float | None = None

    @property
    def citations(self) -> Sequence[str]:
        """The ids that the answer cites, each once."""
        answer = self.record.answer_json or Answer()
        if answer.ranks and self.facts.has(COUNTED_FROM_ZERO):
            return ids_at(answer.ranks, self.record.retrieved_ids or (), base=0)
        return list(dict.fromkeys(answer.citations or ()))

    @property
    def retrieved(self) -> Sequence[str]:
        """The ids of the retrieved documents in rank order, each once."""
        return list(dict.fromkeys(self.record.retrieved_ids or ()))

    @property
    def gold(self) -> str:
        """What gold names: ids, sections, or a number of texts."""
        item = self.item
        if item is None:
            return "gold: none"
        if item.ids:
            return f"gold: {listed(item.citations or ())}"
        if item.sections:
            return f"gold: sections {listed(item.sections)}"
        return f"gold: {len(item.texts)} texts"


def listed(names: Iterable[str]) -> str:
    """Some names, and how many others there are.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    every = list(dict.fromkeys(names))
    more = len(every) - NAMES
    return ", ".join(every[:NAMES]) + (f" and {more} more" if more > 0 else "")


def reason(metric: Metric, score: int | str | None, request: AssessedRequest) -> str:
    """Why a request has a score in a metric, or has none.

    Args:
        metric: The metric.
        score: The score in micro-units, the reason why it is unassessed, or None outside of the denominator.
        request: The request.
    """
    if isinstance(score, str):
        mend = _mend(score, request.record)
        why = f"not assessed, {score}: {_UNASSESSED.get(score, 'a fact it needs is unknown')}"
        return f"{why} ({mend})" if mend else why
    if score is None:
        return _why_outside(metric, request.facts)
    sentence = _SENTENCES.get(metric.name)
    try:
        return "" if sentence is None else sentence(request, metric.k)
    except Unassessed:  # the score did not need this fact
        return ""


def _mend(why: str, record: Record) -> str | None:
    facts, field = record.facts or TextFacts(), coverage.FIELD_OF_REASON.get(why)
    if why == constants.NO_TEXT:  # a setting of ragmon withholds what the spans had
        has_answer = facts.answered is not None or (record.answer_json or Answer()).claim is not None
        has_contexts = facts.contexts is not None or record.contexts is not None
        field = coverage.ANSWER if not has_answer else None if has_contexts else coverage.CONTEXTS
    if record.instrumentation is None or field is None:
        return coverage.BY_REASON.get(why)
    return coverage.remedy_of_record(record, field)


def _why_outside(metric: Metric, facts: Facts) -> str:
    if metric.labelled:
        return "no person has judged the answer"
    if metric.needs_gold and not facts.matched:
        return "no gold item matches the question"
    if facts.error:
        return "the call ended in an error"
    if metric.measured:
        return "it was not measured on this request"
    if metric.name in _NEEDS:
        return _NEEDS[metric.name]
    if metric.needs_gold and metric.name != _UNDER_REFUSAL and not facts.answerable:
        return "gold calls the question unanswerable"
    if metric.name == _UNDER_REFUSAL:
        return "gold has an answer to the question"
    try:
        return "the answer is a refusal" if facts.refused else "it is not about this request"
    except Unassessed:
        return "there is no answer"


_Sentence = Callable[[AssessedRequest, int | None], str]


def _retrieval(request: AssessedRequest, k: int | None) -> str:
    facts = request.facts
    facts.relevant(k)  # raises where the ranks are not known
    found = [rank for rank in facts.ranks if k is None or rank <= k]
    number = facts.retrieved
    looked_at = "the one retrieved document" if number == 1 else f"the {number} retrieved documents"
    if k and k < number:
        looked_at = f"the {'first' if k == 1 else f'first {k}'} of {number} retrieved documents"
    if not number:
        return f"retrieval found nothing ({request.gold})"
    if not found:
        if number == 1 or k == 1:
            return f"{looked_at} is not in gold ({request.gold})"
        return f"none of {looked_at} is in gold ({request.gold})"
    retrieved, item = request.retrieved, request.item
    if item is None or not item.ids:
        return f"gold at rank {', '.join(map(str, found))} of {looked_at} ({request.gold})"
    ranked = [f"{retrieved[rank - 1]} at rank {rank}" for rank in found[:NAMES]]
    missing = sorted(item.ids - {retrieved[rank - 1] for rank in found})
    rest = f"; not among {looked_at}: {listed(missing)}" if missing else ""
    return f"{', '.join(ranked)}{rest}"


def _candidates(request: AssessedRequest, k: int | None) -> str:
    found = request.facts.candidates(k)
    first = f"the first {k} candidates" if k else "the candidates"
    return f"{found} of {request.facts.total()} gold documents are among {first} before reranking ({request.gold})"


def _contextual(request: AssessedRequest, k: int | None) -> str:
    if not request.facts.has_verdicts:
        return _retrieval(request, k)
    ranks = ", ".join(map(str, request.facts.verdict_ranks))
    return f"recorded verdicts call rank {ranks} relevant" if ranks else "recorded verdicts call no document relevant"


def _answer(request: AssessedRequest, k: int | None) -> str:
    facts = request.facts
    if not facts.answerable:
        return _ANSWERED_UNANSWERABLE
    right = "a gold phrase is in the answer" if facts.contains_claim else "no gold phrase is in the answer"
    return f"{right}; {_citations(request, k)}"


def _citations(request: AssessedRequest, k: int | None) -> str:
    facts = request.facts
    if not facts.answerable:
        return _ANSWERED_UNANSWERABLE
    hit = _hits(request, k)
    if not facts.has(IDS) or facts.cites_only_retrieved:
        return hit
    return f"{hit}; {_scope(request, k)}"


def _hits(request: AssessedRequest, _: int | None) -> str:
    facts, cited = request.facts, request.citations
    if not facts.answerable:
        return _ANSWERED_UNANSWERABLE
    if not cited:
        return f"the answer cites nothing ({request.gold})"
    if facts.cites_gold:
        gold = request.item.ids if request.item is not None else frozenset()
        return f"it cites {listed(name for name in cited if name in gold)}, which is in gold"
    return f"it cites {listed(cited)}; none of it is in gold ({request.gold})"


def _refused_or(then: _Sentence) -> _Sentence:
    return lambda request, k: "the answer is a refusal" if request.facts.refused else then(request, k)


def _whether(fact: str, then: str, otherwise: str) -> _Sentence:
    return lambda request, _: then if getattr(request.facts, fact) else otherwise


def _compliance(request: AssessedRequest, _: int | None) -> str:
    facts = request.facts
    if facts.compliant:
        return "the answer is the exact refusal token" if facts.refused else "the answer has a list of citations"
    if facts.has(REFUSAL_LIKE):
        return "the answer is a refusal in other words than the exact refusal token"
    return "the answer has no list of citations and is not the exact refusal token"


def _scope(request: AssessedRequest, _: int | None) -> str:
    cited, retrieved = request.citations, set(request.retrieved)
    if request.facts.cites_only_retrieved:
        return "everything it cites was retrieved" if cited else "it cites nothing"
    return f"it cites {listed(name for name in cited if name not in retrieved)}, which was not retrieved"


def _coverage(request: AssessedRequest, _: int | None) -> str:
    cited, retrieved = request.citations, set(request.retrieved)
    if request.facts.cites_retrieved:
        return f"it cites {listed(name for name in cited if name in retrieved)}, which was retrieved"
    return f"nothing it cites was retrieved: {listed(cited)}" if cited else "the answer cites nothing"


def _within(request: AssessedRequest, _: int | None) -> str:
    latency = request.record.latency_ms
    took = f"{latency.total:.0f} ms" if latency is not None and latency.total is not None else "an unknown time"
    allowed = "" if request.within_ms is None else f", {request.within_ms:.0f} ms are allowed"
    return f"it took {took}{allowed}"


_SENTENCES: Final[Mapping[str, _Sentence]] = {
    **dict.fromkeys(("full_recall", "recall", "hit_rate", "mrr", "average_precision", "ndcg"), _retrieval),
    "precision": lambda request, k: (
        f"{request.facts.relevant(k).bit_count()} of {k or request.facts.retrieved} are in gold: "
        f"{_retrieval(request, k)}"
    ),
    "contextual_precision": _contextual,
    "candidate_recall": _candidates,
    "answer_precision": _answer,
    "answer_precision_cited": _hits,
    "citation_hit_rate": _citations,
    "citation_hit_rate_answerable": _refused_or(_hits),
    _UNDER_REFUSAL: _whether("shipped", _ANSWERED_UNANSWERABLE, "it was refused, as gold says it should be"),
    "over_refusal_rate": _whether("refused", "it was refused, and gold has an answer", "it was answered"),
    "claim_containment": _refused_or(
        _whether(
            "contains_gold_claim",
            "a phrase of the gold claim is in the answer",
            "no phrase of the gold claim is in the answer",
        )
    ),
    "compliance": _compliance,
    "citation_scope": _scope,
    "coverage": _coverage,
    "refusal_rate": _whether("refused", "the answer is a refusal", "the answer is not a refusal"),
    "refusal_like_rate": _whether(
        "refusal_like",
        "the answer reads like a refusal without being the refusal token",
        "the answer does not read like a refusal",
    ),
    "policy_refusal_rate": _whether(
        "policy_refusal",
        "the answer says that a policy forbids it",
        "the answer does not say that a policy forbids it",
    ),
    "empty_retrieval_rate": lambda request, _: (
        "retrieval found nothing"
        if request.facts.empty
        else f"retrieval found {request.facts.retrieved} document{'s' if request.facts.retrieved > 1 else ''}"
    ),
    "error_rate": lambda request, _: (
        f"the call ended in an error: {request.record.error}" if request.facts.error else "the call did not fail"
    ),
    "answered_within": _within,
    "groundedness": lambda *_: "the share of the answer's words that are in the retrieved texts",
    "grounded_rate": _whether(
        "grounded",
        "enough of the answer's words are in the retrieved texts",
        "too few of the answer's words are in the retrieved texts",
    ),
}


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
        how: How it was found (`ragmon.core.constants.MATCH_METHODS`).
        documents: The ids it names, or the prefixes of ids of relevant sections.
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
        score: In [0, 1]; None where it has none.
        outcome: `fail` where it breaks a gate by itself, `pass` where it keeps all gates on the metric, `scored`
            without a gate, `unassessed` where a fact is unknown, `outside` where the request is not in the denominator.
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
        kept: Why it was kept: `audit`, or the outcome it was kept for.
        session, user, tags: As in its record; None where they are not shown.
        citations: The ids that the answer cites; None where no list was captured.
        documents: The retrieved documents; None where they were not captured.
        documents_note: Why documents or their texts are missing; "" where nothing is.
        candidates: How many documents there were before reranking; None where that was not captured.
        gold: Its gold item; None where it matches none.
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
    """The report of a request."""
    item = assessment.item
    request = AssessedRequest(assessment.facts, record, item, within_ms)
    answer, latency, sampling = record.answer_json or Answer(), record.latency_ms or Latency(), record.sampling
    facts, trace_id, source = record.facts or TextFacts(), record.trace_id or "", record.source or constants.REPLAY
    # The gates that judge this request are those of its source and its slices.
    sources = {None, source, *([constants.MATCH] if source == constants.LIVE and item is not None else [])}
    judging = [
        gate
        for gate in gates
        if gate.kind == "threshold" and gate.source in sources and (not gate.where or gate.where in assessment.slices)
    ]
    gold = None
    if item is not None:
        gold = MatchedItem(
            qid=item.qid,
            gold=item.set_name,
            version=item.set_version,
            how=assessment.how,
            answerable=item.answerable,
            documents=tuple(item.citations or item.sections or ()),
            texts=len(item.texts),
            question=item.question,
            claims=(*(item.claim_substrings or ()), *((item.gold_claim,) if item.gold_claim else ())),
        )
    same: dict[str, Any] = {name: getattr(record, name) for name in _SAME}
    return RequestReport(
        trace_id=trace_id,
        pipeline=record.pipeline or constants.DEFAULT_PIPELINE,
        source=source,
        kept="audit" if sampling is None or sampling.audit else sampling.stratum,
        latency_ms={stage: ms for stage in constants.STAGES if (ms := getattr(latency, stage)) is not None},
        question=_shown(record, "q", record.q, facts.question_chars, content),
        answer=_shown(record, "claim", answer.claim, facts.claim_chars, content),
        citations=None if answer.citations is None else tuple(answer.citations),
        documents=_ranked_documents(record, item, request.citations),
        documents_note=_documents_note(record, content),
        candidates=None if record.candidate_ids is None else len(record.candidate_ids),
        gold=gold,
        metrics=tuple(
            _result(metrics[name], score, request, [gate for gate in judging if gate.metric == name])
            for name, score in assessment.scores.items()
        ),
        content=content,
        link=None if link is None or not trace_id else link.replace("{trace_id}", trace_id),
        **same,
    )


def without_content(full: RequestReport, why: str) -> RequestReport:
    """The same report without what people wrote and who they are: ids, names, times, numbers and reasons stay.

    An error may be a message, a citation the words of an answer: what does not look like a name is cut. `why` says why
    the content is not shown.
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


def _name(name: str | None) -> str | None:
    return shown_name(name, _CUT) if name else name


def _withheld(shown: ShownText, why: str) -> ShownText:
    return shown if shown.text is None else ShownText(None, len(shown.text), f"not shown: {why}")


def _shown(record: Record, name: str, text: str | None, chars: int | None, content: str) -> ShownText:
    if text is not None:
        return ShownText(text, chars, "redacted before it was kept" if is_redacted(record, name) else "")
    if record.error is not None and name == "claim":
        return ShownText(None, None, "the call ended in an error")
    if record.ended is not None and name == "claim":
        return ShownText(None, None, f"the call was {record.ended}")
    return ShownText(
        None, chars, _why_missing(record, coverage.QUESTION if name == "q" else coverage.ANSWER, chars, content)
    )


def _why_missing(record: Record, field: str, chars: int | None, content: str) -> str:
    if record.instrumentation is not None and chars is None:
        return f"not captured: its spans have none that ragmon reads; {coverage.remedy_of_record(record, field)}"
    if content in ("none", "hash"):
        return f'not captured: `[capture] content = "{content}"`; {_KEEPS}'
    if chars is not None:
        return f"not captured: `[capture] content` of the application left it out; {_KEEPS}"
    sampling = record.sampling
    if record.partial and sampling is not None and not sampling.audit:
        return "not captured: the call was kept for its outcome; `[sampling] detail = true` keeps more"
    return "not captured: " + ("the record arrived without it" if content else "the line does not have it")


def _ranked_documents(
    record: Record, item: GoldItem | None, citations: Sequence[str]
) -> tuple[RankedDocument, ...] | None:
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
    facts = record.facts
    if record.retrieved_ids is None and record.contexts is None:
        return _why_missing(record, coverage.IDS, None, content and "full")
    if record.contexts is None and record.retrieved_ids:
        chars = None if facts is None else facts.context_chars
        return f"texts {_why_missing(record, coverage.CONTEXTS, chars, content)}"
    return "the texts were redacted before they were kept" if is_redacted(record, "contexts") else ""


def _result(metric: Metric, score: Score, request: AssessedRequest, gates: Sequence[Gate]) -> MetricResult:
    why = reason(metric, score, request)
    if not isinstance(score, int):
        return MetricResult(metric.key, None, "outside" if score is None else "unassessed", why)
    share = score / MICRO
    broken = tuple(gate.name for gate in gates if not gate.holds(share))
    return MetricResult(metric.key, share, "fail" if broken else "pass" if gates else "scored", why, broken)
