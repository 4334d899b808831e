"""seed-003: AdalFlow's `RetrieverEvaluator` (f231f23, 2026-02-09).

Exact intersection of normalised strings, query by query, then a plain mean of the queries. Its docstring speaks of a
match against the joined context; the code never joins. Ids pass through the same normalisation as texts, so `p1#1` and
`p11` are one. `top_k` is the length of the first query's list, whatever the others are.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from typing import Any, Final

from ragmon.compat.base import Entry, Options, PublishedScorerFailed, published_rule, read_items, read_lines

_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_TEXTS: Final = "give a list of at least one string"


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """The result dictionary as JSON, unrounded.

    A gold item is one query, in the order of the gold file. It is compared by text (`gold_contexts` with the trace's
    `contexts`), or by id (`gold_citations` or `gold_ids` with `retrieved_ids`); where the trace lacks the list of that
    kind the other one is taken.

    Args:
        traces: Trace files (JSONL), joined by qid; the last line of a qid counts.
        gold: Gold files, JSONL or JSON arrays.
        options: None is read.

    Raises:
        PublishedScorerFailed: The published evaluator raises on this input.
    """
    del options
    pairs = _pairs(list(read_items(gold)), _last_trace_by_qid(traces))
    if not pairs:
        message = "the published scorer crashes here, it takes the length of the first query's list (IndexError)"
        raise PublishedScorerFailed(message, path=", ".join(gold), hint="give at least one query")
    shares = [_shares(retrieved, wanted) for retrieved, wanted in pairs]
    recalls = [recall for recall, _ in shares]
    precisions = [precision for _, precision in shares]
    result = {
        "avg_recall": sum(recalls) / len(recalls),
        "avg_precision": sum(precisions) / len(precisions),
        "recall_list": recalls,
        "precision_list": precisions,
        "top_k": len(pairs[0][0].value),
    }
    return json.dumps(result, indent=2) + "\n"


def normalized(text: str) -> str:
    """Lower case, ASCII punctuation out, articles out, white space squeezed; in this order.

    >>> normalized("The A!!"), normalized("C++"), normalized("  An   apple, the big one ")
    ('', 'c', 'apple big one')
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _last_trace_by_qid(paths: Sequence[str]) -> dict[Any, Entry]:
    traces: dict[Any, Entry] = {}
    for trace in read_lines(paths):
        with published_rule(trace, "a trace is joined by its qid", "one object a line, its qid a string"):
            traces[trace.value.get("qid") or trace.value.get("q_id")] = trace
    return traces


def _pairs(items: list[Entry], traces: dict[Any, Entry]) -> list[tuple[Entry, Entry]]:
    pairs = []
    for item in items:
        with published_rule(item, "a gold item is joined by its qid", "one object an item, its qid a string"):
            trace = traces.get(item.value.get("qid"))
        if trace is None:
            message = "the published scorer crashes here, it wants as many retrieved lists as gold lists (ValueError)"
            hint = "trace this question, or leave it out of the gold"
            raise PublishedScorerFailed(message, path=item.path, line=item.line, value=item.value.get("qid"), hint=hint)
        pairs.append(_lists(item, trace))
    return pairs


def _lists(item: Entry, trace: Entry) -> tuple[Entry, Entry]:
    by_text = item.value.get("gold_contexts") is not None
    kinds = ("contexts", "retrieved_ids") if by_text else ("retrieved_ids", "contexts")
    retrieved = _first(trace.value, kinds)
    wanted = _first(item.value, ("gold_contexts", "gold_citations", "gold_ids"))
    return trace._replace(value=retrieved), item._replace(value=wanted)


def _first(record: dict[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), [])


def _shares(retrieved: Entry, wanted: Entry) -> tuple[float, float]:
    with published_rule(wanted, "it normalises the query's gold list", _TEXTS):
        relevant = {normalized(text) for text in wanted.value}
    with published_rule(retrieved, "it normalises the query's retrieved list", _TEXTS):
        found = {normalized(text) for text in retrieved.value}
    both = len(relevant & found)
    with published_rule(wanted, "it divides by the number of gold texts", _TEXTS):
        recall = both / len(relevant)
    with published_rule(retrieved, "it divides by the number of retrieved texts", _TEXTS):
        return recall, both / len(found)
