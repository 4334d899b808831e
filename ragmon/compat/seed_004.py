"""seed-004: the evaluation of ResearchMate, from its README.

Recall@K is a hit rate: the share of queries with at least one chunk of the relevant section in the top K. The retriever
returns ten chunks, so nothing below rank 10 is seen and the MRR is an MRR@10. Groundedness is the share of an answer's
tokens that occur in the retrieved texts; an answer without tokens counts as grounded, an answer that was not generated
is silently not counted.

The gold directory holds `queries.json`, `qrels.json` and `answers.json`. With a `corpus/` beside them, queries whose
section is not in it are dropped, as published; without one, every query that has a qrel is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ragmon.compat.base import Options, PublishedScorerFailed, published_rule, read_lines
from ragmon.compat.seed_004_gold import Benchmark, Query, load_benchmark
from ragmon.compat.seed_004_tokens import groundedness

CUTOFFS: Final = (3, 5, 10)
RETRIEVED: Final = 10
DEFAULT_THRESHOLD: Final = 0.10
FLAT: Final = ("recall@3", "recall@5", "recall@10", "mrr", "groundedness")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one query adds: nothing, a rank (None: no hit), or a rank and a groundedness."""

    details: dict[str, Any]
    retrieval_counts: bool = False
    rank: int | None = None
    grounded: float | None = None


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """The README's flat JSON, or with `include_details` the shape the code writes to its results file.

    A query without a trace, or whose trace recorded no retrieval, is in no denominator (the published runner drops a
    query whose retrieval raises). Its time stamp is the newest one on the traces, so equal inputs give equal output.

    Args:
        traces: Trace files (JSONL), joined by qid; the last line of a qid counts.
        gold: The one benchmark directory.
        options: `max_queries`, `skip_generation`, `include_details` and `threshold` are read.

    Raises:
        PublishedScorerFailed: The benchmark cannot be loaded, or a trace line is not a JSON object.
    """
    if len(gold) != 1:
        raise PublishedScorerFailed("seed-004 reads one directory", path="--gold", value=list(gold), hint="name one")
    benchmark = load_benchmark(gold[0])
    by_qid, newest = _read_traces(traces)
    queries = benchmark.queries[: options.max_queries] if options.max_queries else benchmark.queries
    outcomes = [_evaluated(query, by_qid.get(query.query_id, {}), benchmark, options) for query in queries]
    metrics = _metrics(outcomes, DEFAULT_THRESHOLD if options.threshold is None else options.threshold)
    if options.include_details:
        details = [outcome.details for outcome in outcomes]
        return _json({"timestamp": newest, "metrics": metrics, "per_query_results": details})
    return _json({name: metrics[name] for name in FLAT})


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2) + "\n"


def _read_traces(paths: Sequence[str]) -> tuple[dict[Any, dict[str, Any]], float | None]:
    by_qid: dict[Any, dict[str, Any]] = {}
    stamps: list[float] = []
    for trace in read_lines(paths):
        with published_rule(trace, "a trace is joined by its qid", "one object a line, its qid a string"):
            by_qid[trace.value.get("qid") or trace.value.get("q_id")] = trace.value
            stamp = trace.value.get("ts")
        if isinstance(stamp, int | float) and -math.inf < stamp < math.inf:
            stamps.append(stamp)
    return by_qid, max(stamps, default=None)


def _evaluated(query: Query, trace: dict[str, Any], benchmark: Benchmark, options: Options) -> _Outcome:
    if not query.text:
        return _Outcome({"error": "Query not found"})
    retrieved = trace.get("retrieved_ids")
    if not isinstance(retrieved, list):
        return _Outcome({"query_id": query.query_id, "error": "no retrieval was recorded"})
    top = retrieved[:RETRIEVED]
    relevant = [chunk_id for chunk_id in top if query.is_answered_by(chunk_id)]
    rank = top.index(relevant[0]) + 1 if relevant else None
    details = {
        "query_id": query.query_id,
        "query_text": query.text,
        "retrieved_chunk_ids": top,
        # The published list holds the whole section; only the retrieved part of it can be known from traces.
        "relevant_chunk_ids": relevant,
    }
    outcome = _Outcome(details, retrieval_counts=True, rank=rank)
    texts = trace.get("contexts")
    if options.skip_generation or not isinstance(texts, list) or not texts:
        return outcome
    return _grounded(outcome, texts[:RETRIEVED], trace, benchmark)


def _grounded(outcome: _Outcome, texts: list[Any], trace: dict[str, Any], benchmark: Benchmark) -> _Outcome:
    try:
        answer = _generated_answer(trace)
        share = groundedness(answer, " ".join(texts))
    except (AttributeError, TypeError, ValueError) as trouble:
        return replace(outcome, details={**outcome.details, "generation_error": str(trouble)})
    reference = benchmark.answers.get(outcome.details["query_id"])
    details = {**outcome.details, "generated_answer": answer, "reference_answer": reference}
    return replace(outcome, details=details, grounded=share)


def _generated_answer(trace: dict[str, Any]) -> str:
    """The answer on the trace.

    Raises:
        ValueError: The call failed or left no answer: what the published runner catches as a generation error.
    """
    if trace.get("error") is not None:
        raise ValueError(str(trace["error"]))
    answer = trace.get("answer")
    if answer is None:
        answer = (trace.get("answer_json") or {}).get("claim")
    if not isinstance(answer, str):
        raise ValueError("no answer text was recorded")  # noqa: TRY004 - one kind of failure for the caller
    return answer


def _metrics(outcomes: list[_Outcome], threshold: float) -> dict[str, float | int]:
    ranks = [outcome.rank for outcome in outcomes if outcome.retrieval_counts]
    shares = [outcome.grounded for outcome in outcomes if outcome.grounded is not None]
    hit_rates = {
        f"recall@{k}": _mean([1.0 if rank is not None and rank <= k else 0.0 for rank in ranks]) for k in CUTOFFS
    }
    return {
        **hit_rates,
        "mrr": _mean([1.0 / rank if rank is not None else 0.0 for rank in ranks]),
        "groundedness": _mean(shares),
        "grounded_ratio": _mean([1.0 if share >= threshold else 0.0 for share in shares]),
        "total_queries": len(ranks),
        "queries_with_retrieval": len(ranks),
        "queries_with_groundedness": len(shares),
    }


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
