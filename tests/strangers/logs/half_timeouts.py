"""The model was down half of the time: 50 errors without an answer, 50 flawless answers. Only error_rate is red."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "day.jsonl", "gold.jsonl"


def write(folder):
    """An error has a question and a latency, and nothing else."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(100):
            question, page = f"Who tuned organ {number}?", f"organs-{number}"
            right = {"claim": f"Master M{number:02d} did.", "citations": [page]}
            line = {"q": question, "latency_ms": {"total": 30_000}, "error": "TimeoutError"}
            if number % 2:
                line = {"q": question, "latency_ms": {"total": 900}, "retrieved_ids": [page], "answer_json": right}
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"o{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"M{number:02d}"]}) + "\n")


TRUTH = Truth(
    read=100,
    metrics={"error_rate": 0.5, "answer_precision": 1.0, "citation_hit_rate": 1.0, "over_refusal_rate": 0.0},
    n={"error_rate": 100, "answer_precision": 50},
    fails=["error_rate"],
    pages=["error_rate"],
)
