"""AdalFlow's RetrieverEvaluator: what its `compute` returns.

The code's rule, not its docstring's: exact equality of normalised strings, as sets, never the joined context.
"""

from __future__ import annotations

import re
import string
from functools import cache


@cache
def normalise(text):
    """Lower case, no ASCII punctuation, no English article, single spaces."""
    lowered = text.lower()
    bare = "".join(character for character in lowered if character not in string.punctuation)
    without_articles = re.sub(r"\b(a|an|the)\b", " ", bare)
    return " ".join(without_articles.split())


def evaluate(retrieved_contexts, gt_contexts):
    """Recall and precision per query and on average.

    Args:
        retrieved_contexts: one list of strings per query.
        gt_contexts: one list of strings per query, in the same order.

    Raises:
        ValueError: the two lists differ in length.
        IndexError: no query at all.
        ZeroDivisionError: a query without ground truth or without retrieved strings.
    """
    if len(retrieved_contexts) != len(gt_contexts):
        raise ValueError(f"{len(retrieved_contexts)} retrieved lists but {len(gt_contexts)} ground-truth lists")
    top_k = len(retrieved_contexts[0])
    recalls, precisions = [], []
    for retrieved, truth in zip(retrieved_contexts, gt_contexts, strict=True):
        retrieved_set = {normalise(text) for text in retrieved}
        truth_set = {normalise(text) for text in truth}
        common = len(truth_set & retrieved_set)
        recalls.append(common / len(truth_set))
        precisions.append(common / len(retrieved_set))
    return {
        "avg_recall": sum(recalls) / len(recalls),
        "avg_precision": sum(precisions) / len(precisions),
        "recall_list": recalls,
        "precision_list": precisions,
        "top_k": top_k,
    }
