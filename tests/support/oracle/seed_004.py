"""ResearchMate's evaluation: recall@K (a hit rate), MRR and groundedness.

A query is a dict: ``qrel`` ({doc_id, section_id} or None), ``retrieved`` (chunk ids, best first), ``contexts`` (their
texts), ``answer`` (None when generation failed or was skipped).
Choices, where the document is silent: a query without a qrel is dropped, a qrel without one of its two ids is a
KeyError, as in the project's loader; no query, or no answer to judge, gives 0.0; duplicates keep their ranks; only the
first ten chunks count, because the runner retrieves ten; a retrieved text that is empty is a text; nothing is rounded
(the printed figures have four places).
"""

from __future__ import annotations

import re

MRR_DEPTH = 10


def tokens(text, stop):
    """Lower-case ASCII words and numbers of two characters or more that are no stop words, repeats kept."""
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if len(word) > 1 and word not in stop]


def is_relevant(chunk, qrel):
    """Whether a chunk is of the judged section: chunk ids read document, section, number.

    Documents may hold underscores themselves: `a_1_2_0` is of document `a_1`, not of section 1 of `a`.
    """
    section = f"{qrel['doc_id']}_{qrel['section_id']}_"
    return chunk.startswith(section) and chunk[len(section) :].isdigit()


def judged(queries):
    """The queries with a relevance judgement; the others are in no metric.

    Raises:
        KeyError: a judgement lacks the document or the section.
    """
    usable = [query for query in queries if query.get("qrel") is not None]
    return [query for query in usable if (query["qrel"]["doc_id"], query["qrel"]["section_id"])]


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
    """One score per judged query that has an answer and at least one retrieved text."""
    return [
        groundedness(query["answer"], query["contexts"], stop)
        for query in judged(queries)
        if query["answer"] is not None and query["contexts"]
    ]


def score(queries, stop, ks=(3, 5, 10)):
    """The flat JSON of the README: recall@K, mrr, groundedness."""
    scores = grounded_scores(queries, stop)
    return {
        **{f"recall@{k}": recall_at(k, queries) for k in ks},
        "mrr": mrr(queries),
        "groundedness": sum(scores) / len(scores) if scores else 0.0,
    }


def metrics(queries, stop, threshold):
    """The nine figures of the code's results file."""
    return {
        **score(queries, stop),
        "grounded_ratio": grounded_ratio(queries, stop, threshold),
        "total_queries": len(judged(queries)),
        "queries_with_retrieval": len(judged(queries)),
        "queries_with_groundedness": len(grounded_scores(queries, stop)),
    }


def grounded_ratio(queries, stop, threshold):
    """Share of the judged answers at or above the threshold (README 0.10, stored code 0.20)."""
    scores = grounded_scores(queries, stop)
    return len([score for score in scores if score >= threshold]) / len(scores) if scores else 0.0
