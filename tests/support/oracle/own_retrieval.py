"""ragmon's own retrieval metrics: gold ids, sections or texts against a ranking (see `own` for the choices made)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tests.support.oracle import seed_003
from tests.support.oracle.own_facts import Unassessed, gold_ids_of, idents, retrieved_of, stands_for


@dataclass
class Ranking:
    """What was retrieved, seen from the gold: each rank's relevance, the first rank of each gold entry found.

    `size` is how many gold entries there are; None where that is unknown.
    """

    relevant: list
    found: list
    size: int | None

    @property
    def total(self):
        """The number of gold entries, for the metrics that cannot do without."""
        if self.size is None:
            raise Unassessed("total_unknown")
        return self.size


def ranked(retrieved, gold, matches):
    """The ranking of a list of ids or texts."""
    firsts = [[rank for rank, entry in enumerate(retrieved, start=1) if matches(entry, one)][:1] for one in gold]
    relevant = [any(matches(entry, one) for one in gold) for entry in retrieved]
    return Ranking(relevant, [first[0] for first in firsts if first], len(gold))


def ranking(trace, item, match):
    """The ranking by gold ids, for an item without them by gold sections, else by gold texts."""
    if not item.get("gold_citations") and item.get("gold_sections"):
        relevant = [entry.startswith(tuple(item["gold_sections"])) for entry in retrieved_of(trace)]
        return Ranking(relevant, [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant], None)
    gold = {seed_003.normalise(text) for text in item.get("gold_contexts") or []} - {""}
    if item.get("gold_citations") or not gold:
        ids, named = gold_ids_of(item), stands_for(trace, item, match)
        return ranked(retrieved_of(trace), ids, lambda entry, one: entry == one or one in named.get(entry, ()))
    if trace.get("contexts") is None:
        raise Unassessed("error" if trace.get("error") else "no_text")
    contexts = [seed_003.normalise(text) for text in trace["contexts"]]
    return ranked(contexts, gold, lambda text, one: text == one if match == "exact" else one in text)


def found_in(r, k):
    """How many gold ids or texts are among the first k."""
    return len([rank for rank in r.found if rank <= k])


def precision(r, k):
    depth = len(r.relevant) if k == math.inf else k
    return Fraction(sum(r.relevant[:depth]), depth) if depth else 0


def ndcg(r, k):
    def discounted(ranks):
        return math.fsum(1 / math.log2(rank + 1) for rank in ranks)

    return discounted(rank for rank in set(r.found) if rank <= k) / discounted(range(1, 1 + min(k, r.total)))


def mrr(r):
    return Fraction(1, min(r.found)) if r.found else 0


def average_precision(r):
    news = sorted(set(r.found))
    return sum((Fraction(so_far, rank) for so_far, rank in enumerate(news, start=1)), Fraction(0)) / r.total


def contextual_precision(relevant):
    ranks = [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant]
    total = sum((Fraction(so_far, rank) for so_far, rank in enumerate(ranks, start=1)), Fraction(0))
    return total / len(ranks) if ranks else 0


def relevance(trace, item, match):
    """Relevance of each rank as it was recorded, else from an answerable item's gold, else None."""
    if trace.get("verdicts") is not None:
        return trace["verdicts"]
    return ranking(trace, item, match).relevant if item["answerable"] else None


def judged_precision(trace, item, match):
    relevant = relevance(trace, item, match)
    return None if relevant is None else contextual_precision(relevant)


def candidate_recall(trace, item, match, k):
    if not item.get("gold_citations") or trace.get("candidate_ids") is None:
        return None
    named = stands_for(trace, item, match)
    ids, gold = idents(trace["candidate_ids"]), gold_ids_of(item)
    r = ranked(ids, gold, lambda entry, one: entry == one or one in named.get(entry, ()))
    return Fraction(found_in(r, k), r.total)


AT_K = {
    "full_recall": lambda r, k: found_in(r, k) == r.total,
    "recall": lambda r, k: Fraction(found_in(r, k), r.total),
    "hit_rate": lambda r, k: found_in(r, k) > 0,
    "precision": precision,
    "ndcg": ndcg,
}


def retrieval_rules(ks, match):
    """Every metric of the retrieval table at every depth; all but one are about answerable items."""
    rules = {
        "mrr": lambda trace, item: mrr(ranking(trace, item, match)),
        "average_precision": lambda trace, item: average_precision(ranking(trace, item, match)),
    }
    for k in (math.inf, *ks):
        at = "" if k == math.inf else f"@{k}"
        for name, rule in AT_K.items():
            rules[name + at] = lambda trace, item, rule=rule, k=k: rule(ranking(trace, item, match), k)
        rules["candidate_recall" + at] = lambda trace, item, k=k: candidate_recall(trace, item, match, k)
    answerable = {name: only_answerable(rule) for name, rule in rules.items()}
    return answerable | {"contextual_precision": lambda trace, item: judged_precision(trace, item, match)}


def only_answerable(rule):
    return lambda trace, item: rule(trace, item) if item["answerable"] else None
