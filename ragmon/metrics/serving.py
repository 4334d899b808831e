"""Metrics of every request, without gold: form, citation scope, refusals, errors, speed."""

from __future__ import annotations

from ragmon.metrics.base import Metric, register
from ragmon.metrics.facts import Facts


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
    """Share of shipped answers that cite nothing but retrieved documents."""

    name = "citation_scope"
    binary = True
    cites = True
    default_gate = ("at_least", 0.95)

    def score(self, facts: Facts) -> float | None:
        return float(facts.cites_only_retrieved) if facts.answered and facts.shipped else None


@register
class Coverage(Metric):
    """Share of shipped answers that cite at least one retrieved document."""

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
    better = "lower"
    default_gate = ("at_most", 0.05)

    def score(self, facts: Facts) -> float | None:
        return float(facts.error)


@register
class AnsweredWithin(Metric):
    """Share of requests without error that took no longer than the declared bound."""

    name = "answered_within"
    binary = True
    area = "traffic"

    def score(self, facts: Facts) -> float | None:
        return float(facts.within) if facts.bounded and not facts.error else None
