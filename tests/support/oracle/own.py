"""ragmon's own metric definitions, one small function each: slow, exact (fractions) and meant to be read.

A rule gets the trace and its gold item and returns a score in [0, 1], None where the metric does not apply, or raises
Unassessed where it applies but a needed fact is unknown. Choices made where the documents leave something open:

* Order of questions: does the gold item put the request into the denominator at all; is there an answer (``error`` and
  ``no_answer`` before every other reason, ``error`` first); then the gold facts. A truthy ``error`` is an error, also
  beside an answer. Elsewhere such a trace is not in the denominator, but what retrieval did is unknown for the reason
  ``error`` where it was not captured.
* Citations that are no list were not captured: ``no_citations``, after ``no_gold_citations`` and ``no_ids``. The
  refusal token is compliant without them, and a refusal in other words is not compliant with them.
* The claim is the text wherever there is one, so C is never ``no_text``; that reason means that ``contexts`` is absent.
* Without gold ids, sections and texts a retrieval metric is ``no_gold_citations``. An item with gold ids is judged by
  ids, and by the texts beside them of the ids that were not retrieved, else by its gold sections, else by its gold
  texts. A gold text of which normalisation leaves nothing is none.
* An item lacking gold facts is unassessed in ``citation_hit_rate_answerable`` and ``claim_containment`` even if it was
  refused; a ``gold_claim`` without a phrase of five characters is no gold claim: there is nothing to look for.
* Absent ``retrieved_ids`` are ``no_ids`` (``error`` of a call that failed) in ``empty_retrieval_rate``, for shipped
  answers in ``citation_scope`` and ``coverage``. ``candidate_recall`` is about items with gold ids and traces with
  ``candidate_ids`` alone; others are not in its denominator. Absent latency is ``no_latency``; an answer without
  content words has no groundedness: ``no_text``.
* Without @k: ``precision`` of nothing retrieved is 0; ``ndcg``'s ideal ranking holds all gold (TREC ndcg).
* Gold by text: every context is a rank; it is relevant if it matches any gold text. Gold texts equal after
  normalisation are one. Where order is rewarded against the gold total (``average_precision``, ``ndcg``), a rank counts
  once and only if it brings a gold text not seen before, so that neither can exceed 1.
* ``contextual_precision`` takes the verdicts recorded on the trace (an empty list is a list), gold item or not; else
  those of an answerable gold item, else it is unassessed for the reason gold could not be used.
* A phrase's length is measured after folding, which here leaves Markdown alone. Scripts written without spaces:
  Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan. A combining mark belongs to the letter it stands on. Empty
  phrases are ignored. The only hyphen is U+002D.
* Ids: strings, or whole numbers written as such; anything else is refused. A qid is an id.
* Left out: questions as keys, labels, judges, ``matcher_counts``. ``refusal_like_rate`` needs the patterns as argument.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from tests.support.oracle.own_facts import (
    Unassessed,
    answered_state,
    citation_hit,
    citations_of,
    claim_contains,
    claim_of,
    fold,
    hit_only,
    ident,
    occurs,
    phrases,
    retrieved_of,
    state,
    tokens,
)
from tests.support.oracle.own_retrieval import contextual_precision, retrieval_rules


@dataclass
class Result:
    """One metric over all traces."""

    n: int = 0
    total: Fraction | float = Fraction(0)
    unassessed: Counter = field(default_factory=Counter)

    @property
    def value(self):
        """The mean, None without data."""
        return self.total / self.n if self.n else None

    def add(self, rule, *arguments):
        """Apply a metric's rule to one request."""
        try:
            score = rule(*arguments)
        except Unassessed as reason:
            self.unassessed[str(reason)] += 1
        else:
            if score is not None:
                self.n += 1
                self.total += score


# --- answers ----------------------------------------------------------------------------------------------------------


def shipped_and_right(*facts):
    """Rule of the metrics over shipped answers: shipping an unanswerable one is wrong whatever the facts are."""

    def rule(trace, item):
        if answered_state(trace) != "shipped":
            return None
        return all([fact(trace, item) for fact in facts]) if item["answerable"] else 0  # noqa: C419 - all must be known

    return rule


def citation_hit_rate_answerable(trace, item, match):
    if not item["answerable"]:
        return None
    if answered_state(trace) == "refused" and item.get("gold_citations"):
        return False
    return hit_only(trace, item, match)


def under_refusal_rate(trace, item):
    return None if item["answerable"] else answered_state(trace) == "shipped"


def over_refusal_rate(trace, item):
    return answered_state(trace) == "refused" if item["answerable"] else None


def claim_containment(trace, item):
    if not item["answerable"]:
        return None
    shipped = answered_state(trace) == "shipped"
    wanted = phrases(item.get("gold_claim") or "")
    if any(occurs(phrase, fold(claim_of(trace))) for phrase in wanted):
        return shipped
    try:
        return claim_contains(trace, item) and shipped
    except Unassessed:
        if wanted:
            return 0
        raise


def answers(match):
    """Every metric of answers with a gold item."""
    hit = partial(citation_hit, match=match)
    return {
        "answer_precision": shipped_and_right(claim_contains, hit),
        "answer_precision_cited": shipped_and_right(partial(hit_only, match=match)),
        "citation_hit_rate": shipped_and_right(hit),
        "citation_hit_rate_answerable": partial(citation_hit_rate_answerable, match=match),
        "under_refusal_rate": under_refusal_rate,
        "over_refusal_rate": over_refusal_rate,
        "claim_containment": claim_containment,
    }


# --- no gold needed ---------------------------------------------------------------------------------------------------


def compliance(trace, patterns, window):
    if state(trace) == "error":
        return None
    if state(trace) == "refused" or refusal_like_rate(trace, patterns, window):
        return state(trace) == "refused"
    return citations_of(trace) is not None


def citation_scope(trace):
    if state(trace) != "shipped":
        return None
    retrieved = set(retrieved_of(trace))
    return set(citations_of(trace)) <= retrieved


def coverage(trace):
    if state(trace) != "shipped":
        return None
    retrieved = set(retrieved_of(trace))
    return bool(set(citations_of(trace)) & retrieved)


def refusal_rate(trace):
    return state(trace) == "refused" if state(trace) in ("shipped", "refused") else None


def refusal_like_rate(trace, patterns, window):
    if state(trace) not in ("shipped", "refused"):
        return None
    said = any(re.search(pattern, claim_of(trace)[:window], re.IGNORECASE) for pattern in patterns)
    return said and state(trace) == "shipped"


def groundedness(trace, stop):
    if state(trace) != "shipped":
        return None
    if trace.get("contexts") is None:
        raise Unassessed("no_text")
    answer = tokens(claim_of(trace), stop)
    if not answer:
        raise Unassessed("no_text")
    known = {token for context in trace["contexts"] for token in tokens(context, stop)}
    return Fraction(len([token for token in answer if token in known]), len(answer))


def grounded_rate(trace, stop, threshold):
    score = groundedness(trace, stop)
    return None if score is None else score >= Fraction(str(threshold))


def answered_within(trace, within_ms):
    if state(trace) == "error":
        return None
    latency = trace.get("latency_ms")
    total = latency.get("total") if isinstance(latency, dict) else latency
    if total is None:
        raise Unassessed("no_latency")
    return total <= within_ms


def rules_without_gold(stop, grounded_threshold, within_ms, refusal_patterns, refusal_window):
    """The no-gold table; a metric whose bound or patterns were not given is not in it."""
    rules = {
        "compliance": lambda trace: compliance(trace, refusal_patterns or (), refusal_window),
        "citation_scope": citation_scope,
        "coverage": coverage,
        "refusal_rate": refusal_rate,
        "empty_retrieval_rate": lambda trace: not retrieved_of(trace),
        "error_rate": lambda trace: state(trace) == "error",
        "groundedness": lambda trace: groundedness(trace, stop),
        "grounded_rate": lambda trace: grounded_rate(trace, stop, grounded_threshold),
    }
    if within_ms is not None:
        rules["answered_within"] = lambda trace: answered_within(trace, within_ms)
    if refusal_patterns is not None:
        rules["refusal_like_rate"] = lambda trace: refusal_like_rate(trace, refusal_patterns, refusal_window)
    return rules


def items_by_qid(gold):
    """Gold items by id; a gold file that breaks the strict rules is refused."""
    items = {}
    for item in gold:
        qid = ident(item["qid"])
        if qid in items:
            raise ValueError(f"two gold items with qid {qid!r}")
        if not isinstance(item["answerable"], bool):
            raise TypeError(f"answerable of {qid!r} is not a boolean: {item['answerable']!r}")
        items[qid] = item
    return items


def item_of(trace, items):
    """The gold item a trace answers, None when it names none or an unknown one."""
    qid = trace.get("qid") if trace.get("qid") is not None else trace.get("q_id")
    return None if qid is None else items.get(ident(qid))


def score(
    gold,
    traces,
    ks=(1, 3, 5, 10),
    *,
    match="exact",
    stop=frozenset(),
    grounded_threshold=0.10,
    within_ms=None,
    refusal_patterns=None,
    refusal_window=120,
):
    """Every metric over all traces, each trace counted, as name -> Result.

    Args:
        gold: gold items: qid, answerable, gold_claim_substr, gold_claim, gold_citations, gold_sections, gold_contexts.
        traces: traces in the contract's shape; `verdicts` is a list of 0 and 1.
        ks: depths of the metrics with @k.
        match: how a context meets a gold text, "exact" or "contains".
        stop: folded words that do not count for groundedness.
        grounded_threshold: least groundedness of a grounded answer.
        within_ms: bound of `answered_within`, in milliseconds.
        refusal_patterns: regular expressions of `refusal_like_rate`, tried on the first `refusal_window` characters.
        refusal_window: see there.
    """
    items = items_by_qid(gold)
    with_gold = answers(match) | retrieval_rules(ks, match)
    without_gold = rules_without_gold(stop, grounded_threshold, within_ms, refusal_patterns, refusal_window)
    results = {name: Result() for name in (*with_gold, *without_gold)}
    for trace in traces:
        item = item_of(trace, items)
        if item is not None:
            for name, rule in with_gold.items():
                results[name].add(rule, trace, item)
        elif trace.get("verdicts") is not None:
            results["contextual_precision"].add(contextual_precision, trace["verdicts"])
        for name, rule in without_gold.items():
            results[name].add(rule, trace)
    return results
