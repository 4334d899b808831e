"""The published evaluation page's rules, one answer at a time.

They choose the gold set, whose known failures must not move with ragmon's own definitions, and they are all the
reference monitors know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer

SHORTEST: Final = 5
"""Gold phrases of fewer characters count for nothing."""


def scores(answer: Answer | None, retrieved: Sequence[str], item: GoldItem) -> Mapping[str, int]:
    """The metrics whose denominator an answer is in, each 0 or 1.

    Args:
        answer: What was said; None counts as a wrong answer.
        retrieved: The retrieved ids.
        item: The gold item of the question.
    """
    claim = ((answer and answer.claim) or "").strip().lower()
    refused = claim == REFUSAL_TOKEN
    found = {"over_refusal_rate": int(refused)} if item.answerable else {"under_refusal_rate": int(not refused)}
    if not refused:
        cited = set((answer and answer.citations) or ())
        hit = item.answerable and cited <= set(retrieved) and not cited.isdisjoint(item.citations or ())
        said = any(len(p) >= SHORTEST and p.lower() in claim for p in item.claim_substrings or ())
        found |= {"citation_hit_rate": int(hit), "answer_precision": int(hit and said)}
    return found


def passes(answer: Answer | None, retrieved: Sequence[str], item: GoldItem) -> bool:
    """Whether the answer is right: claim and citation both, or a refusal where nothing could be answered."""
    found = scores(answer, retrieved, item)
    return found["answer_precision"] == 1 if "answer_precision" in found else not item.answerable
