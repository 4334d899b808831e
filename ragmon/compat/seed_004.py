"""seed-004: the evaluation of ResearchMate, as its README describes it.

Recall@K is a hit rate: the share of queries with at least one chunk of the relevant section in the top K. The retriever
returns ten chunks, so ranks beyond 10 do not exist and the MRR is an MRR@10. Groundedness is the share of an answer's
tokens that occur in the retrieved texts; an answer without tokens counts as grounded, an answer that was not generated
is silently left out.

The gold directory holds `queries.json`, `qrels.json` (one relevant section a query) and `answers.json`. With a
`corpus/` beside them, queries whose section is not in it are dropped, as published; without one, every query that has a
qrel is kept.

The README says that stop words are removed and does not list them. The list below is ragmon's own: common English
function words, about as many as the original is said to have. On a text where the two lists differ, so do the figures.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ragmon.compat.base import Entry, Options, PublishedScorerFailed, published_rule, read_document, read_lines


@dataclass(frozen=True, slots=True)
class BenchmarkQuery:
    """One question and the section that answers it."""

    query_id: str
    text: Any
    doc_id: Any
    section_id: Any

    def is_answered_by(self, chunk_id: Any) -> bool:
        """Whether a chunk `{doc}_{section}_{i}` belongs to the relevant section."""
        if not isinstance(chunk_id, str):
            return False
        section, _, index = chunk_id.rpartition("_")
        return index.isdecimal() and section == f"{self.doc_id}_{self.section_id}"


def load_benchmark(directory: str) -> tuple[list[BenchmarkQuery], dict[str, Any]]:
    """The queries that have a usable qrel, in the order of `queries.json`, and the reference answers by query id."""
    root = Path(directory)
    if not root.is_dir():
        hint = "name the directory that holds queries.json, qrels.json and answers.json"
        raise PublishedScorerFailed("not a directory", path=directory, hint=hint)
    texts = {key: text for key, (text,) in _fields(root / "queries.json", ("query",))}
    sections = dict(_fields(root / "qrels.json", ("doc_id", "section_id")))
    answers = read_document(str(root / "answers.json"))
    with published_rule(answers, "it looks reference answers up by query id", "one JSON object, query id: answer"):
        by_id = dict(answers.value.items())
    corpus: set[tuple[Any, ...]] | None = None  # the sections with text, as (document, section number)
    if (root / "corpus").is_dir():
        corpus = set()
        for path in (root / "corpus").glob("*.json"):
            document = read_document(str(path))
            rule, hint = "it reads each section's section_id and text", "sections: [{section_id, text}]"
            with published_rule(document, rule, hint):
                for section in document.value.get("sections", ()):
                    if section.get("text", "").strip():
                        corpus.add((path.stem, section["section_id"]))
    usable = {key: section for key, section in sections.items() if corpus is None or section in corpus}
    return [BenchmarkQuery(key, text, *usable[key]) for key, text in texts.items() if key in usable], by_id


def _fields(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    document = read_document(str(path))
    with published_rule(document, "it walks through the queries by id", "write one JSON object, query id: entry"):
        entries = list(document.value.items())
    for query_id, entry in entries:
        at = Entry(entry, f"{path} (query {query_id!r})")
        with published_rule(at, f"it reads {' and '.join(names)}", f"give every entry {' and '.join(names)}"):
            yield query_id, tuple(entry[name] for name in names)


_WORD = re.compile(r"[a-z0-9]+")

_WORDS = """
an the this that these those
am is are was were be been being has have had having do does did
can could may might must shall should will would
he him his she her it its we us our they them their you your my me
who whom whose which what when where why how
and or but nor so yet if than then because while as until
of to in on at by for from with into onto over under about between among through during before after
above below up down out off against without within
all any both each every few more most other some such no not only own same too very just also
here there again once ever
"""
STOP_WORDS: Final = frozenset(_WORDS.split())
"""English function words of two letters or more (shorter tokens are dropped anyway)."""


def tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits in lower case, without stop words and single characters; repetitions stay.

    >>> tokens("The model's F1 is 0.91, a new high")
    ['model', 'f1', '91', 'new', 'high']
    """
    return [word for word in _WORD.findall(text.lower()) if len(word) > 1 and word not in STOP_WORDS]


def groundedness(answer: str, context: str) -> float:
    """Share of the answer's tokens, repeats counted, that occur in the context; 1 for an answer without tokens.

    >>> groundedness("Paris, Paris or Lyon", "Paris is the capital of France")
    0.6666666666666666
    """
    answer_tokens = tokens(answer)
    if not answer_tokens:
        return 1.0
    context_tokens = set(tokens(context))
    return sum(word in context_tokens for word in answer_tokens) / len(answer_tokens)


CUTOFFS: Final = (3, 5, 10)
RETRIEVED: Final = 10
DEFAULT_THRESHOLD: Final = 0.10
FLAT: Final = ("recall@3", "recall@5", "recall@10", "mrr", "groundedness")


@dataclass(frozen=True, slots=True)
class _Outcome:
    # The contribution of a query: nothing, a rank (None: no hit), or a rank and a groundedness.
    details: dict[str, Any]
    retrieval_counts: bool = False
    rank: int | None = None
    grounded: float | None = None


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """The README's flat JSON, or with `include_details` the shape the code writes to its results file.

    A query without a trace, or whose trace recorded no retrieval, is in no denominator (the published runner drops a
    query whose retrieval raises). The time stamp is the newest one of the traces, so equal inputs give equal output.
    """
    if len(gold) != 1:
        raise PublishedScorerFailed("seed-004 reads one directory", path="--gold", value=list(gold), hint="name one")
    queries, answers = load_benchmark(gold[0])
    by_qid: dict[Any, dict[str, Any]] = {}
    newest: float | None = None
    for trace in read_lines(traces):
        with published_rule(trace, "a trace is joined by its qid", "one object a line, its qid a string"):
            by_qid[trace.value.get("qid") or trace.value.get("q_id")] = trace.value
            stamp = trace.value.get("ts")
        if isinstance(stamp, int | float) and -math.inf < stamp < math.inf:
            newest = stamp if newest is None else max(newest, stamp)
    queries = queries[: options.max_queries] if options.max_queries else queries
    outcomes = [_evaluate(query, by_qid.get(query.query_id, {}), answers, options) for query in queries]
    metrics = _metrics(outcomes, DEFAULT_THRESHOLD if options.threshold is None else options.threshold)
    if options.include_details:
        details = [outcome.details for outcome in outcomes]
        return _json({"timestamp": newest, "metrics": metrics, "per_query_results": details})
    return _json({name: metrics[name] for name in FLAT})


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2) + "\n"


def _evaluate(query: BenchmarkQuery, trace: dict[str, Any], answers: dict[str, Any], options: Options) -> _Outcome:
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
        # The published list holds the full section; from traces only the retrieved part is known.
        "relevant_chunk_ids": relevant,
    }
    outcome = _Outcome(details, retrieval_counts=True, rank=rank)
    texts = trace.get("contexts")
    if options.skip_generation or not isinstance(texts, list) or not texts:
        return outcome
    try:
        answer = _generated_answer(trace)
        share = groundedness(answer, " ".join(texts[:RETRIEVED]))
    except (AttributeError, TypeError, ValueError) as error:
        return replace(outcome, details={**details, "generation_error": str(error)})
    reference = answers.get(query.query_id)
    details |= {"generated_answer": answer, "reference_answer": reference}
    return replace(outcome, details=details, grounded=share)


def _generated_answer(trace: dict[str, Any]) -> str:
    # A ValueError where the call failed or gave no answer: the published runner catches it as a generation error.
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
