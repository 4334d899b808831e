"""Which fields of a record a metric needs: found by letting it score facts that note what is read.

No metric declares its fields, and a plugin's need not either: a request whose facts are all known is scored once as an
answerable and once as an unanswerable question, and whatever fact the metric asks for names the fields behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import ANSWERABLE, BY_TEXT, TOTAL_UNKNOWN
from ragmon.metrics import facts as bits
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Facts

QUESTION: Final = "question"
ANSWER: Final = "answer"
IDS: Final = "ids"
CONTEXTS: Final = "contexts"
CITATIONS: Final = "citations"
GOLD: Final = "gold"
GOLD_IDS: Final = "gold_ids"
SESSION: Final = "session"
BUILD: Final = "build"
LATENCY: Final = "latency"
FIELDS: Final = (QUESTION, ANSWER, IDS, CONTEXTS, CITATIONS, GOLD, GOLD_IDS, SESSION, BUILD, LATENCY)
"""What a report shows of records; `gold` is a match with a gold item, `gold_ids` that retrieved ids occur in gold."""

_READS: Final[Mapping[str, tuple[str, ...]]] = {
    "answered": (ANSWER,),
    "shipped": (ANSWER,),
    "refused": (ANSWER,),
    "refusal_like": (ANSWER,),
    "contains_claim": (ANSWER,),
    "contains_gold_claim": (ANSWER,),
    "cites_gold": (CITATIONS,),
    "citation_hit": (CITATIONS, IDS, GOLD_IDS),
    "cites_only_retrieved": (CITATIONS, IDS),
    "cites_retrieved": (CITATIONS, IDS),
    "compliant": (CITATIONS,),
    "empty": (IDS,),
    "within": (LATENCY,),
    "grounded": (ANSWER, CONTEXTS),
    "require_grounding": (ANSWER, CONTEXTS),
    "relevant": (IDS, GOLD_IDS),
}
"""The fields behind each fact."""
_KNOWN_METRICS: Final = 512
"""Metrics whose fields are cached: their scores depend on facts alone."""
_UNKNOWN: Final = (
    bits.REFUSED | bits.ERROR | bits.OUTCOME_UNKNOWN | bits.WRONG_GOLD_VERSION | bits.CLAIM_CUT | bits.CONTEXTS_CUT
)
_ALL: Final = ((1 << 48) - 1) & ~(_UNKNOWN | TOTAL_UNKNOWN | BY_TEXT)
"""Every flag that says something is known or good."""


class _NotingFacts(Facts):
    """Facts that note the fields behind whatever is read of them."""

    @cached_property
    def noted(self) -> set[str]:
        """The fields."""
        return set()

    def __getattribute__(self, name: str) -> Any:
        """The fact, after its fields are noted."""
        if name in _READS:
            self.noted.update(_READS[name])
        return super().__getattribute__(name)


@lru_cache(_KNOWN_METRICS)
def needs(metric: Metric) -> frozenset[str]:
    """The fields of a record without which a metric cannot be assessed.

    Args:
        metric: Any metric; one that raises something else than `Unassessed` needs nothing more.

    >>> from ragmon.metrics.base import parse
    >>> sorted(needs(parse("citation_scope"))), sorted(needs(parse("recall@5")))
    (['answer', 'citations', 'ids'], ['gold', 'gold_ids', 'ids', 'question'])
    """
    fields = {GOLD, QUESTION} if metric.needs_gold else set[str]()
    if metric.measured:
        fields |= {ANSWER, CONTEXTS} if metric.reads == "contexts" else set()
    for flags in (_ALL, _ALL & ~ANSWERABLE):
        facts = _NotingFacts(flags, 1, 1, (1,), (1,), (1,))
        try:
            if metric.measured:
                metric.applies(facts)
            else:
                metric.score(facts)
        except (Unassessed, ArithmeticError, LookupError, TypeError, ValueError):
            pass
        fields |= facts.noted
    return frozenset(fields)
