"""The published evaluation page's arithmetic, applied to every trace: what a short script would do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ragmon.ingest.gold import GoldSet

TOKEN = "not in context"


def score(lines: Iterable[bytes], gold: GoldSet, k: int = 5) -> dict[str, float]:
    """Precision, citation hit rate, refusal rates and full recall at k over every trace of a file."""
    items: dict[str, Any] = {item.qid: item for item in gold}
    counts = dict.fromkeys(("shipped", "right", "hit", "under", "over", "answerable", "unanswerable", "recalled"), 0)
    for line in lines:
        trace = json.loads(line)
        item = items.get(trace.get("qid"))
        if item is None:
            continue
        answer = trace.get("answer_json") or {}
        claim = (answer.get("claim") or "").strip().lower()
        citations, retrieved = set(answer.get("citations") or []), trace.get("retrieved_ids") or []
        shipped = claim != TOKEN
        counts["answerable" if item.answerable else "unanswerable"] += 1
        counts["shipped"] += shipped
        if item.answerable:
            wanted = set(item.citations or ())
            hit = citations <= set(retrieved) and bool(citations & wanted)
            contains = any(len(p) >= 5 and p.lower() in claim for p in item.claim_substrings or ())
            counts["hit"] += shipped and hit
            counts["right"] += shipped and hit and contains
            counts["over"] += not shipped
            counts["recalled"] += wanted <= set(retrieved[:k])
        else:
            counts["under"] += shipped
    return {
        "precision": counts["right"] / counts["shipped"],
        "citation_hit_rate": counts["hit"] / counts["shipped"],
        "under_refusal": counts["under"] / counts["unanswerable"],
        "over_refusal": counts["over"] / counts["answerable"],
        "full_recall": counts["recalled"] / counts["answerable"],
    }
