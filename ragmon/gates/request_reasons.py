"""Why one request has the score it has, in a sentence for each metric.

The facts of the request decide every sentence, as they decide the score; the record and the gold item only give names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.gates.remedies import BY_REASON
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import IDS, REFUSAL_LIKE, Facts

NAMES: Final = 5
"""Ids that a sentence names; it counts the others."""

_UNASSESSED: Final[Mapping[str, str]] = {
    constants.NO_IDS: "the ids of the retrieved documents were not captured",
    constants.NO_CITATIONS: "no list of citations was captured",
    constants.NO_TEXT: "the text it needs was not captured, and no fact about it",
    constants.NO_GOLD_CLAIM: "the gold item has no phrase to look for",
    constants.NO_GOLD_CITATIONS: "the gold item names no document",
    constants.NO_LATENCY: "its latency is unknown",
    constants.NO_ANSWER: "there is no answer",
    constants.ERROR: "the call ended in an error",
    constants.TOTAL_UNKNOWN: "how many documents are relevant is unknown: gold names sections",
    constants.GOLD_VERSION: "the answer was compared with another version of the gold set",
    constants.BEYOND_DEPTH: "the list of documents or verdicts is longer than ranks are kept (1,000)",
    constants.TEXT_CUT: "the text is longer than the part that is read",
    constants.PARTIAL: "the call was kept for its outcome, without its details",
}


@dataclass(frozen=True)
class AssessedRequest:
    """What the sentences are made of.

    Attributes:
        facts: The facts of the request.
        record: The request.
        item: Its gold item; None where it has none.
        within_ms: The declared bound on the latency, in milliseconds; None without one.
    """

    facts: Facts
    record: Record
    item: GoldItem | None
    within_ms: float | None = None

    @property
    def citations(self) -> Sequence[str]:
        """The ids that the answer cites, each once."""
        answer = self.record.answer_json
        return list(dict.fromkeys((answer.citations or ()) if answer is not None else ()))

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
        remedy = f" ({BY_REASON[score]})" if score in BY_REASON else ""
        return f"not assessed, {score}: {_UNASSESSED.get(score, 'a fact it needs is unknown')}{remedy}"
    if score is None:
        return _outside(metric, request)
    sentence = _SENTENCES.get(metric.name)
    try:
        return "" if sentence is None else sentence(request, metric.k)
    except Unassessed:  # the score did not need this fact
        return ""


def _outside(metric: Metric, request: AssessedRequest) -> str:
    """Why a request is not in the denominator of a metric."""
    facts = request.facts
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


_UNDER_REFUSAL: Final = "under_refusal_rate"
_NEEDS: Final[Mapping[str, str]] = {
    "answered_within": "no bound is configured, `[metrics] answered_within`",
    "candidate_recall": "no list of documents before reranking was captured",
}
"""What metrics need that most requests do not have."""


def _retrieval(request: AssessedRequest, k: int | None) -> str:
    """Which gold documents were retrieved, at which ranks, and which were not."""
    facts = request.facts
    facts.relevant(k)  # raises where the ranks are not known
    found = [rank for rank in facts.ranks if k is None or rank <= k]
    number = facts.retrieved
    first = "first" if k == 1 else f"first {k}"
    looked_at = f"the {first} of {number} retrieved documents" if k and k < number else f"the {_documents(number)}"
    if not number:
        return f"retrieval found nothing ({request.gold})"
    if not found:
        return f"none of {looked_at} is in gold ({request.gold})"
    retrieved, item = request.retrieved, request.item
    if item is None or not item.ids:
        return f"gold at rank {', '.join(map(str, found))} of {looked_at} ({request.gold})"
    places = [f"{retrieved[rank - 1]} at rank {rank}" for rank in found[:NAMES]]
    missing = sorted(item.ids - {retrieved[rank - 1] for rank in found})
    rest = f"; not among {looked_at}: {listed(missing)}" if missing else ""
    return f"{', '.join(places)}{rest}"


def _documents(number: int) -> str:
    return "one retrieved document" if number == 1 else f"{number} retrieved documents"


def _precision(request: AssessedRequest, k: int | None) -> str:
    relevant = request.facts.relevant(k).bit_count()
    return f"{relevant} of {k or request.facts.retrieved} are in gold: {_retrieval(request, k)}"


def _candidates(request: AssessedRequest, k: int | None) -> str:
    found = request.facts.candidates(k).bit_count()
    first = f"the first {k} candidates" if k else "the candidates"
    return f"{found} of {request.facts.total()} gold documents are among {first} before reranking ({request.gold})"


def _contextual(request: AssessedRequest, k: int | None) -> str:
    if not request.facts.has_verdicts:
        return _retrieval(request, k)
    ranks = ", ".join(map(str, request.facts.verdict_ranks))
    return f"recorded verdicts call rank {ranks} relevant" if ranks else "recorded verdicts call no document relevant"


_ANSWERED_UNANSWERABLE: Final = "it was answered, and gold calls the question unanswerable"


def _answer(request: AssessedRequest, k: int | None) -> str:
    """Whether a shipped answer is right and cites gold."""
    facts = request.facts
    if not facts.answerable:
        return _ANSWERED_UNANSWERABLE
    right = "a gold phrase is in the answer" if facts.contains_claim else "no gold phrase is in the answer"
    return f"{right}; {_citations(request, k)}"


def _citations(request: AssessedRequest, k: int | None) -> str:
    """Whether an answer cites gold, and whether what it cites was retrieved."""
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
    return f"it cites {listed(cited)}, nothing of that is in gold ({request.gold})"


def _refused_or(then: Callable[[AssessedRequest, int | None], str]) -> Callable[[AssessedRequest, int | None], str]:
    return lambda request, k: "the answer is a refusal" if request.facts.refused else then(request, k)


def _containment(request: AssessedRequest, _: int | None) -> str:
    found = request.facts.contains_gold_claim
    return "a phrase of the gold claim is in the answer" if found else "no phrase of the gold claim is in the answer"


def _under_refusal(request: AssessedRequest, _: int | None) -> str:
    return _ANSWERED_UNANSWERABLE if request.facts.shipped else "it was refused, as gold wants"


def _over_refusal(request: AssessedRequest, _: int | None) -> str:
    return "it was refused, and gold has an answer" if request.facts.refused else "it was answered"


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


def _refusal(request: AssessedRequest, _: int | None) -> str:
    return "the answer is a refusal" if request.facts.refused else "the answer is no refusal"


def _refusal_like(request: AssessedRequest, _: int | None) -> str:
    if request.facts.refusal_like:
        return "the answer reads like a refusal without being the refusal token"
    return "the answer does not read like a refusal"


def _empty(request: AssessedRequest, _: int | None) -> str:
    return "retrieval found nothing" if request.facts.empty else f"documents found: {request.facts.retrieved}"


def _error(request: AssessedRequest, _: int | None) -> str:
    return f"the call ended in an error: {request.record.error}" if request.facts.error else "the call did not fail"


def _within(request: AssessedRequest, _: int | None) -> str:
    latency = request.record.latency_ms
    took = f"{latency.total:.0f} ms" if latency is not None and latency.total is not None else "an unknown time"
    allowed = "" if request.within_ms is None else f", {request.within_ms:.0f} ms are allowed"
    return f"it took {took}{allowed}"


def _grounded(request: AssessedRequest, _: int | None) -> str:
    if request.facts.grounded:
        return "enough of the answer's words are in the retrieved texts"
    return "too few of the answer's words are in the retrieved texts"


_SENTENCES: Final[Mapping[str, Callable[[AssessedRequest, int | None], str]]] = {
    **dict.fromkeys(("full_recall", "recall", "hit_rate", "mrr", "average_precision", "ndcg"), _retrieval),
    "precision": _precision,
    "contextual_precision": _contextual,
    "candidate_recall": _candidates,
    "answer_precision": _answer,
    "answer_precision_cited": _hits,
    "citation_hit_rate": _citations,
    "citation_hit_rate_answerable": _refused_or(_hits),
    _UNDER_REFUSAL: _under_refusal,
    "over_refusal_rate": _over_refusal,
    "claim_containment": _refused_or(_containment),
    "compliance": _compliance,
    "citation_scope": _scope,
    "coverage": _coverage,
    "refusal_rate": _refusal,
    "refusal_like_rate": _refusal_like,
    "empty_retrieval_rate": _empty,
    "error_rate": _error,
    "answered_within": _within,
    "groundedness": lambda *_: "the share of the answer's words that are in the retrieved texts",
    "grounded_rate": _grounded,
}
