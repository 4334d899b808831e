"""Whoever wrote this logger had never heard of ragmon: nested lines, its own names."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "bot.log.jsonl", "faq.jsonl"
FLAGS = ["--map", "question=payload.text,answer=reply.body,retrieved_ids=kb.hits,citations=reply.refs"]
CONFIG = '[gates]\npreset = "default"\nhit_rate = { at_least = 0.8 }\n'


def write(folder):
    """60 questions about parcels: 54 right, 6 right as well but found with the wrong article only."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(60):
            text, depot = f"Where is parcel {number:04d}?", f"depot {number % 7 + 10}"
            article = f"kb-{number}" if number % 10 else "kb-other"
            line = {
                "lvl": "INFO",
                "at": "2025-11-20T09:00:00Z",
                "payload": {"text": text, "lang": "en"},
                "kb": {"hits": [{"id": article, "score": 0.9}, {"id": "kb-start", "score": 0.2}], "took": 12},
                "reply": {"body": f"It waits in {depot}.", "refs": [article], "tokens": 9},
            }
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"p{number}", "question": text, "answerable": True}
            gold.write(json.dumps(item | {"gold_claim_substr": [depot], "gold_citations": [f"kb-{number}"]}) + "\n")


TRUTH = Truth(
    read=60,
    metrics={"hit_rate": 0.9, "mrr": 0.9, "claim_containment": 1.0, "answer_precision": 0.9, "citation_scope": 1.0},
    n={"hit_rate": 60, "answer_precision": 60},
    passes=["hit_rate", "answer_precision", "citation_hit_rate", "citation_scope", "coverage", "over_refusal_rate"],
    undecided=["under_refusal_rate"],
)
