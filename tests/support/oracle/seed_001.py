"""Contextual precision from a judge's verdicts (DeepEval, as the Elixir port describes it).

Choices: the mean is taken over the verdicts given, however many nodes there were (the published code does not compare
the two numbers); floats are added in rank order, as the published code does, so results are equal to the last bit.
"""

from __future__ import annotations


def score(verdicts):
    """Mean, over the relevant ranks k, of the share of relevant nodes among the first k; 0.0 if none is relevant.

    Args:
        verdicts: one string per retrieved node, best rank first; "yes" in any case and padding means relevant.
    """
    relevant = [verdict.strip().lower() == "yes" for verdict in verdicts]
    if not any(relevant):
        return 0.0
    total = 0.0
    for rank, is_relevant in enumerate(relevant, start=1):
        if is_relevant:
            total += sum(relevant[:rank]) / rank
    return total / sum(relevant)


def is_yes(verdict):
    """Whether a verdict as it was recorded means relevant; logs may hold true or 1 in place of the word."""
    word = verdict.get("verdict") if isinstance(verdict, dict) else verdict
    return word == 1 or (isinstance(word, str) and word.strip().lower() == "yes")


def result(verdicts, context_count, reason=None, threshold=0.5, *, strict=False):
    """The result of one case, keys in the order of the page's result structure.

    Args:
        verdicts: as recorded: words, objects with verdict and reason, or 0 and 1.
        context_count: how many nodes were judged; None where the case does not hold them.
        reason: the judge's summary.
        threshold: from which score the case succeeds.
        strict: only a perfect score counts, at a threshold of 1.
    """
    words = ["yes" if is_yes(verdict) else "no" for verdict in verdicts]
    reasons = [verdict.get("reason") if isinstance(verdict, dict) else None for verdict in verdicts]
    value, threshold = score(words), 1.0 if strict else threshold
    if strict and value < 1:
        value = 0.0
    return {
        "metric": "Contextual Precision",
        "score": value,
        "success": value >= threshold,
        "threshold": threshold,
        "reason": reason,
        "latency_ms": None,
        "metadata": {
            "context_count": context_count,
            "verdicts": [{"verdict": word, "reason": why} for word, why in zip(words, reasons, strict=True)],
        },
    }
