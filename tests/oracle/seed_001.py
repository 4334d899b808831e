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
