"""Retrieval metrics against gold documents, by the names and rules of trec_eval.

All of them read the ranks of the gold documents as bits: rank 1 is the lowest bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from ragmon.metrics.base import Metric, register
from ragmon.metrics.facts import Facts


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
        return float(facts.relevant(self.k) != 0)


@register
class Precision(_AtK):
    """Mean share of the top k that is relevant; without k, of everything retrieved."""

    name = "precision"

    def rank_score(self, facts: Facts) -> float:
        relevant = facts.relevant(self.k).bit_count()
        size = facts.retrieved if self.k is None else self.k
        return relevant / size if size else 0.0


@register
class Mrr(_Retrieval):
    """Mean reciprocal rank of the first gold document, 0 where none came back."""

    name = "mrr"

    def rank_score(self, facts: Facts) -> float:
        relevant = facts.relevant()
        return 1 / first_rank(relevant) if relevant else 0.0


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
        return facts.candidates(self.k).bit_count() / facts.total()


def first_rank(bits: int) -> int:
    """The lowest rank among the bits, which must not be 0."""
    return (bits & -bits).bit_length()


def precision_sum(bits: int) -> float:
    """Sum over the relevant ranks of (relevant so far / rank).

    >>> [round(precision_sum(bits) / bits.bit_count(), 2) for bits in (0b011, 0b101, 0b110, 0b100)]
    [1.0, 0.83, 0.58, 0.33]
    """
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
