"""seed-003: AdalFlow's `RetrieverEvaluator` (f231f23, 2026-02-09).

For each query the exact intersection of normalised strings, then a plain mean over the queries. Its docstring describes
a match against the joined context; the code never joins. Ids are normalised like texts, so `p1#1` and `p11` are equal.
`top_k` is the length of the list of the first query, whatever the lengths of the others are.
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
    `contexts`), or by id (`gold_citations` or `gold_ids` with `retrieved_ids`); where the trace has no list of that
    kind, the other kind is used.
    """
    del options
    items, by_qid = list(read_items(gold)), dict[Any, Entry]()
    for trace in read_lines(traces):
        with published_rule(trace, "a trace is joined by its qid", "one object a line, its qid a string"):
            by_qid[trace.value.get("qid") or trace.value.get("q_id")] = trace
    pairs = [_lists(item, by_qid) for item in items]
    if not pairs:
        message = "the published scorer crashes here, it takes the length of the first query's list (IndexError)"
        raise PublishedScorerFailed(message, path=", ".join(gold), hint="give at least one query")
    shares = [_recall_and_precision(retrieved, relevant) for retrieved, relevant in pairs]
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
    """Lower case, then ASCII punctuation removed, articles removed, white space collapsed; in this order.

    >>> normalized("The A!!"), normalized("C++"), normalized("  An   apple, the big one ")
    ('', 'c', 'apple big one')
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _lists(item: Entry, traces: dict[Any, Entry]) -> tuple[Entry, Entry]:
    with published_rule(item, "a gold item is joined by its qid", "one object an item, its qid a string"):
        trace = traces.get(item.value.get("qid"))
    if trace is None:
        message = "the published scorer crashes here, it wants as many retrieved lists as gold lists (ValueError)"
        hint = "trace this question, or leave it out of the gold"
        raise PublishedScorerFailed(message, path=item.path, line=item.line, value=item.value.get("qid"), hint=hint)
    by_text = item.value.get("gold_contexts") is not None
    kinds = ("contexts", "retrieved_ids") if by_text else ("retrieved_ids", "contexts")
    retrieved = _first_present(trace.value, kinds)
    relevant = _first_present(item.value, ("gold_contexts", "gold_citations", "gold_ids"))
    return trace._replace(value=retrieved), item._replace(value=relevant)


def _first_present(record: dict[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), [])


def _recall_and_precision(retrieved: Entry, gold: Entry) -> tuple[float, float]:
    with published_rule(gold, "it normalises the query's gold list", _TEXTS):
        gold_texts = {normalized(text) for text in gold.value}
    with published_rule(retrieved, "it normalises the query's retrieved list", _TEXTS):
        found_texts = {normalized(text) for text in retrieved.value}
    common = len(gold_texts & found_texts)
    with published_rule(gold, "it divides by the number of gold texts", _TEXTS):
        recall = common / len(gold_texts)
    with published_rule(retrieved, "it divides by the number of retrieved texts", _TEXTS):
        return recall, common / len(found_texts)
