"""The built-in metrics, one class each, in the order in which they are shown.

Definitions and their sources are in docs/reference/metrics.md. An unanswerable item needs neither claim nor citation:
shipping an answer to one scores 0. Retrieval metrics follow the names and rules of trec_eval, and read the ranks of the
gold documents as bits: rank 1 is the lowest bit.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.text import UNSPACED, fold, head, is_cut
from ragmon.metrics.base import Metric, register
from ragmon.metrics.facts import Facts


@register
class AnswerPrecision(Metric):
    """Share of answers other than refusals that are right and cite a gold document that was retrieved."""

    name = "answer_precision"
    binary = True
    cites = True
    compares_ids = True
    needs_gold = True
    default_gate = ("at_least", 0.80)

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.shipped):
            return None
        # Both facts are read before either decides; otherwise an item without a gold claim would count only when it
        # fails.
        return float(facts.answerable and facts.contains_claim & facts.citation_hit)


@register
class AnswerPrecisionCited(Metric):
    """Share of answers other than refusals that cite a gold document, whatever they say."""

    name = "answer_precision_cited"
    binary = True
    cites = True
    needs_gold = True

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.shipped):
            return None
        return float(facts.answerable and facts.cites_gold)


@register
class CitationHitRate(Metric):
    """Share of answers other than refusals that cite a gold document and nothing that was not retrieved."""

    name = "citation_hit_rate"
    binary = True
    cites = True
    compares_ids = True
    needs_gold = True
    default_gate = ("at_least", 0.75)

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.shipped):
            return None
        return float(facts.answerable and facts.citation_hit)


@register
class CitationHitRateAnswerable(Metric):
    """Share of answerable questions that were answered with a citation of a gold document."""

    name = "citation_hit_rate_answerable"
    binary = True
    cites = True
    needs_gold = True

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.answerable):
            return None
        if facts.refused and facts.names_gold_ids:
            return 0.0  # whatever it cites
        return float(facts.cites_gold)


@register
class UnderRefusalRate(Metric):
    """Share of unanswerable questions that were answered instead of refused."""

    name = "under_refusal_rate"
    binary = True
    better = "lower"
    needs_gold = True
    default_gate = ("at_most", 0.05)

    def score(self, facts: Facts) -> float | None:
        if not facts.matched or facts.answerable:
            return None
        return float(facts.shipped)


@register
class OverRefusalRate(Metric):
    """Share of answerable questions that were refused."""

    name = "over_refusal_rate"
    binary = True
    better = "lower"
    needs_gold = True
    default_gate = ("at_most", 0.10)

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.answerable):
            return None
        return float(facts.refused)


@register
class ClaimContainment(Metric):
    """Share of answerable questions whose answer contains a phrase of the gold claim."""

    name = "claim_containment"
    binary = True
    needs_gold = True

    def score(self, facts: Facts) -> float | None:
        if not (facts.matched and facts.answerable):
            return None
        shipped = facts.shipped
        return float(facts.contains_gold_claim and shipped)


@register
class AnswerCorrect(Metric):
    """Mean human label of answers other than refusals, in [0, 1]."""

    name = "answer_correct"
    labelled = True
    reads = "measures"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        return None  # the label is in the measures of the record, under this name

    def applies(self, facts: Facts) -> bool:
        """Shipped answers are in the denominator; a refusal is judged by gold."""
        return facts.answered and facts.shipped


# --- whether an answer rests on what was retrieved ------------------------------------------------------------------

DEFAULT_THRESHOLD: Final = 0.10  # an answer with a smaller share counts as ungrounded

STOP_WORDS: Final = frozenset(
    """
    a about after again all also although an and any are as at be because been before being below between both but by
    can could did do does doing done down during each either else few for from further had has have having he her here
    hers him his how however i if in into is it its itself just may me might more most much must my nor not now of off
    on once only or other our out over own per rather same shall she should since so some such than that the their
    them then there these they this those though through thus to too under until up upon us very was we were what when
    where whether which while who whom whose why will with within without would yet you your
    """.split()
)
_PAIRS: Final = rf"{UNSPACED}\uac00-\ud7a3"  # Hangul syllables too
_PAIRED: Final = re.compile(rf"[{_PAIRS}]")
_WORD: Final = re.compile(r"[^\W_]+")
_PUNCTUATION: Final = re.compile(r"[\u3000-\u303f\u0e2f\u0e4f\u0e5a\u0e5b\u104a-\u104f\u17d4-\u17da\u0f04-\u0f14\s]+")
# A run of letters and digits: of a script without spaces between words, or Korean; or of any other script.
_RUN: Final = re.compile(rf"([{_PAIRS}]+)|(?:(?![{_PAIRS}])[^\W_])+")
_NO_WORD: Final = bytes(ord(chr(i).lower()) if chr(i).isalnum() and i < 128 else 32 for i in range(256))


def words(text: str) -> list[str]:
    """The runs of letters and digits of a text, folded, in order; pairs of characters where no spaces part the words.

    Korean is parted into pairs as well, because its particles stand on the words.

    Source: the bigrams of Lucene's CJKBigramFilter, here for all scripts without spaces.

    >>> words("BM25 ranks, Röntgen's ray_7")
    ['bm25', 'ranks', 'röntgen', 's', 'ray', '7']
    >>> words("用紙は305番です。")
    ['用紙', '紙は', '305', '番で', 'です']
    """
    if text.isascii():  # replacing other bytes by spaces gives the same runs in a third of the time
        return text.encode("ascii").translate(_NO_WORD).decode("ascii").split()
    folded = fold(text)
    if _PAIRED.search(folded) is None:
        return _WORD.findall(folded)
    found: list[str] = []
    for run in _RUN.finditer(folded):
        if run[1] is None:
            found.append(run[0])
        else:
            for part in _PUNCTUATION.split(run[0]):
                found += map("".join, pairwise(part)) if len(part) > 1 else [part] * len(part)
    return found


def content_words(text: str) -> list[str]:
    """The words with meaning: longer than one character and not stop words."""
    return [word for word in words(text) if len(word) > 1 and word not in STOP_WORDS]


def groundedness(claim: str, contexts: Sequence[str]) -> float | None:
    """The share of the claim's content words, repetitions counted, that occur in the contexts.

    Args:
        claim: The answer.
        contexts: The retrieved texts.

    Returns:
        A share in [0, 1]; None when the claim has no content word, or when the unread rest of a cut text
        (`ragmon.core.text.head`) could change the share.

    Source: the ResearchMate evaluation module's heuristic, extended to letters of every script.

    >>> groundedness("The ferry leaves at nine", ["A ferry leaves daily."])
    0.6666666666666666
    """
    claim_words = () if is_cut(claim) else content_words(fold(claim))
    if not claim_words:
        return None
    known = set(claim_words).intersection(words(" ".join(map(head, contexts))))
    found = sum(word in known for word in claim_words)
    if found < len(claim_words) and any(map(is_cut, contexts)):
        return None
    return found / len(claim_words)


@register
class Groundedness(Metric):
    """Mean share of an answer's words that occur in the retrieved contexts."""

    name = "groundedness"
    reads = "contexts"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        """The share of the claim's words; None where claim or contexts were not captured, or were cut."""
        answer = record.answer_json
        if record.contexts is None or answer is None or not answer.claim:
            return None
        return groundedness(answer.claim, record.contexts)

    def applies(self, facts: Facts) -> bool:
        """Shipped answers are in the denominator; they are unassessed where their text was not captured."""
        if not (facts.answered and facts.shipped):
            return False
        facts.require_grounding()
        return True


@register
class GroundedRate(Metric):
    """Share of answers with at least the threshold of their words in the retrieved contexts."""

    name = "grounded_rate"
    binary = True

    def score(self, facts: Facts) -> float | None:
        """Shipped answers are in the denominator."""
        return float(facts.grounded) if facts.answered and facts.shipped else None


# --- retrieval against gold documents -------------------------------------------------------------------------------


class _Retrieval(Metric, ABC):
    # Over answerable gold items that name their documents.
    needs_gold = True
    compares_ids = True
    area = "retrieval"

    def score(self, facts: Facts) -> float | None:
        if not facts.answerable:
            return None
        facts.require_documents()
        return self.rank_score(facts)

    @abstractmethod
    def rank_score(self, facts: Facts) -> float:
        """The score of one ranking."""


class _AtK(_Retrieval):
    at_k = True


@register
class FullRecall(_AtK):
    """Share of questions with every gold document in the top k."""

    name = "full_recall"
    binary = True

    def rank_score(self, facts: Facts) -> float:
        return float(facts.gold_in_first(self.k) == facts.total())


@register
class Recall(_AtK):
    """Mean share of a question's gold documents found in the top k."""

    name = "recall"

    def rank_score(self, facts: Facts) -> float:
        return facts.gold_in_first(self.k) / facts.total()


@register
class HitRate(_AtK):
    """Share of questions with any gold document in the top k (TREC Success@k)."""

    name = "hit_rate"
    binary = True

    def rank_score(self, facts: Facts) -> float:
        return float(facts.first(self.k) is not None)


@register
class Precision(_AtK):
    """Mean share of the top k that is relevant; without k, of everything retrieved."""

    name = "precision"

    def rank_score(self, facts: Facts) -> float:
        relevant, size = facts.relevant(self.k).bit_count(), facts.listed(self.k)
        return relevant / size if size else 0.0


@register
class Mrr(_Retrieval):
    """Mean reciprocal rank of the first gold document, 0 where none was retrieved."""

    name = "mrr"

    def rank_score(self, facts: Facts) -> float:
        first = facts.first()
        return 1 / first if first is not None else 0.0


@register
class AveragePrecision(_Retrieval):
    """Mean average precision over all gold documents (TREC map)."""

    name = "average_precision"

    def rank_score(self, facts: Facts) -> float:
        gains = facts.gains()
        return precision_sum(gains) / facts.total()


@register
class ContextualPrecision(Metric):
    """Mean average precision over the relevant documents that were retrieved: are they ranked first?"""

    name = "contextual_precision"
    area = "retrieval"
    needs_gold = True

    def score(self, facts: Facts) -> float | None:
        if facts.has_verdicts:
            relevant = facts.relevant_by_verdict()
        elif facts.answerable:
            facts.require_documents()
            relevant = facts.relevant()
        else:
            return None
        return precision_sum(relevant) / relevant.bit_count() if relevant else 0.0


@register
class Ndcg(_AtK):
    """Mean normalised discounted cumulative gain with binary gain (TREC ndcg_cut)."""

    name = "ndcg"

    def rank_score(self, facts: Facts) -> float:
        gains, total = facts.gains(self.k), facts.total()
        ideal = total if self.k is None else min(self.k, total)
        return _discounted(gains) / _discounted((1 << ideal) - 1)


@register
class CandidateRecall(_AtK):
    """Mean share of a question's gold documents among the first k candidates, before reranking."""

    name = "candidate_recall"

    def score(self, facts: Facts) -> float | None:
        # Most pipelines do not rerank: without a candidate list the metric does not apply.
        return super().score(facts) if facts.has_candidates else None

    def rank_score(self, facts: Facts) -> float:
        return facts.candidates(self.k) / facts.total()


def first_rank(bits: int) -> int:
    """The lowest rank among the bits, which must not be 0."""
    return (bits & -bits).bit_length()


def precision_sum(bits: int) -> float:
    """Sum over the relevant ranks of (relevant so far / rank)."""
    total, so_far = 0.0, 0
    while bits:
        so_far += 1
        total += so_far / first_rank(bits)
        bits &= bits - 1
    return total


def _discounted(bits: int) -> float:
    # Discounted cumulative gain: sum over the ranks of 1 / log2(rank + 1).
    total = 0.0
    while bits:
        total += 1 / math.log2(first_rank(bits) + 1)
        bits &= bits - 1
    return total


# --- every request, without gold: form, citation scope, refusals, errors, speed -------------------------------------


@register
class Compliance(Metric):
    """Share of answers that carry a citation list or are the exact refusal token."""

    name = "compliance"
    binary = True
    cites = True

    def score(self, facts: Facts) -> float | None:
        return None if facts.error else float(facts.compliant)


@register
class CitationScope(Metric):
    """Share of answers other than refusals that cite nothing but retrieved documents."""

    name = "citation_scope"
    binary = True
    cites = True
    default_gate = ("at_least", 0.95)

    def score(self, facts: Facts) -> float | None:
        return float(facts.cites_only_retrieved) if facts.answered and facts.shipped else None


@register
class Coverage(Metric):
    """Share of answers other than refusals that cite at least one retrieved document."""

    name = "coverage"
    binary = True
    cites = True
    default_gate = ("at_least", 0.70)

    def score(self, facts: Facts) -> float | None:
        return float(facts.cites_retrieved) if facts.answered and facts.shipped else None


@register
class RefusalRate(Metric):
    """Share of answers that are refusals."""

    name = "refusal_rate"
    binary = True
    better = "lower"

    def score(self, facts: Facts) -> float | None:
        return float(facts.refused) if facts.answered else None


@register
class RefusalLikeRate(Metric):
    """Share of answers that read like a refusal without being the refusal token."""

    name = "refusal_like_rate"
    binary = True
    better = "lower"

    def score(self, facts: Facts) -> float | None:
        return float(facts.refusal_like) if facts.answered else None


@register
class PolicyRefusalRate(Metric):
    """Share of answers that refuse because a policy forbids the answer."""

    name = "policy_refusal_rate"
    binary = True
    better = "lower"

    def score(self, facts: Facts) -> float | None:
        return float(facts.policy_refusal) if facts.answered else None


@register
class EmptyRetrievalRate(Metric):
    """Share of requests whose retrieval found nothing."""

    name = "empty_retrieval_rate"
    binary = True
    area = "retrieval"
    better = "lower"
    default_gate = ("at_most", 0.05)

    def score(self, facts: Facts) -> float | None:
        return float(facts.empty)


@register
class ErrorRate(Metric):
    """Share of requests that ended in an error."""

    name = "error_rate"
    binary = True
    area = "traffic"
    of_requests = True
    better = "lower"
    default_gate = ("at_most", 0.05)

    def score(self, facts: Facts) -> float | None:
        return float(facts.error)


@register
class AnsweredWithin(Metric):
    """Share of requests without error that took no longer than `[metrics] answered_within` allows."""

    name = "answered_within"
    binary = True
    area = "traffic"
    of_requests = True

    def score(self, facts: Facts) -> float | None:
        return float(facts.within) if facts.bounded and not facts.error else None
