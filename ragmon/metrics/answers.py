"""Metrics that compare answers with gold: precision, citation hits, refusals.

Definitions and their sources are in docs/reference/metrics.md. An unanswerable item needs neither claim nor citation:
shipping an answer to one scores 0.
"""

from __future__ import annotations

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.metrics.base import Metric, register
from ragmon.metrics.facts import Facts


@register
class AnswerPrecision(Metric):
    """Share of shipped answers that are right and cite the gold document among the retrieved ones."""

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
    """Share of shipped answers that cite a gold document, whatever they say."""

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
    """Share of shipped answers that cite a gold document and nothing that was not retrieved."""

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
    """Mean human label of shipped answers, in [0, 1]."""

    name = "answer_correct"
    labelled = True
    reads = "measures"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        return None  # the label is in the measures of the record, under this name

    def applies(self, facts: Facts) -> bool:
        """Shipped answers are in the denominator; a refusal is judged by gold."""
        return facts.answered and facts.shipped
