"""ResearchMate's evaluation: recall@K (a hit rate), MRR and groundedness.

A query is a dict: ``qrel`` ({doc_id, section_id} or None), ``retrieved`` (chunk ids, best first), ``contexts`` (their
texts), ``answer`` (None when generation failed or was skipped).
Choices, where the document is silent: a query is dropped when its qrel lacks one of the two ids; no query, or no answer
to judge, gives 0.0; duplicates keep their ranks; MRR looks at the first ten, because the runner retrieves ten; nothing
is rounded (the printed figures have four places).
"""

from __future__ import annotations

import re

MRR_DEPTH = 10


def tokens(text, stop):
    """Lower-case ASCII words and numbers of two characters or more that are no stop words, repeats kept."""
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if len(word) > 1 and word not in stop]


def is_relevant(chunk, qrel):
    """Whether a chunk is of the judged section: chunk ids read document, section, number."""
    return chunk.startswith(f"{qrel['doc_id']}_{qrel['section_id']}_")


def judged(queries):
    """The queries with a usable relevance judgement; the others are in no retrieval metric."""
    usable = []
    for query in queries:
        qrel = query.get("qrel") or {}
        if qrel.get("doc_id") is not None and qrel.get("section_id") is not None:
            usable.append(query)
    return usable


def recall_at(k, queries):
    """Share of judged queries with at least one relevant chunk among the first k."""
    found = [any(is_relevant(chunk, query["qrel"]) for chunk in query["retrieved"][:k]) for query in judged(queries)]
    return sum(found) / len(found) if found else 0.0


def mrr(queries):
    """Mean of 1 / rank of the first relevant chunk, 0 where none is among the first ten."""
    reciprocals = []
    for query in judged(queries):
        ranks = [rank for rank, chunk in enumerate(query["retrieved"], start=1) if is_relevant(chunk, query["qrel"])]
        reciprocals.append(1 / ranks[0] if ranks and ranks[0] <= MRR_DEPTH else 0.0)
    return sum(reciprocals) / len(reciprocals) if reciprocals else 0.0


def groundedness(answer, contexts, stop):
    """Share of the answer's tokens, repeats counted, that occur in a context; 1.0 for an answer without tokens."""
    answer_tokens = tokens(answer, stop)
    if not answer_tokens:
        return 1.0
    context_tokens = {token for context in contexts for token in tokens(context, stop)}
    return len([token for token in answer_tokens if token in context_tokens]) / len(answer_tokens)


def grounded_scores(queries, stop):
    """One score per judged query that has an answer and some retrieved text."""
    return [
        groundedness(query["answer"], query["contexts"], stop)
        for query in judged(queries)
        if query["answer"] is not None and any(query["contexts"])
    ]


def score(queries, stop, ks=(3, 5, 10)):
    """The flat JSON of the README: recall@K, mrr, groundedness."""
    scores = grounded_scores(queries, stop)
    return {
        **{f"recall@{k}": recall_at(k, queries) for k in ks},
        "mrr": mrr(queries),
        "groundedness": sum(scores) / len(scores) if scores else 0.0,
    }


def grounded_ratio(queries, stop, threshold):
    """Share of the judged answers at or above the threshold (README 0.10, stored code 0.20)."""
    scores = grounded_scores(queries, stop)
    return len([score for score in scores if score >= threshold]) / len(scores) if scores else 0.0
