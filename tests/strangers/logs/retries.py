"""A client that tries again: some requests are in the log twice, first as an error, and two days' files overlap."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "merged.jsonl", "gold.jsonl"
FLAGS = ["--duplicates", "last"]


def write(folder):
    """40 questions; 2 failed once and were answered in the second go; 10 lines stand there twice as they are."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(40):
            question, page = f"How old is oak {number}?", f"oaks-{number}"
            asked = {"trace_id": f"{number + 1:032x}", "question": question}
            answer = {"claim": f"It is {number + 200} years old.", "citations": [page]}
            line = json.dumps({**asked, "retrieved_ids": [page, "oaks"], "answer_json": answer}) + "\n"
            if number % 20 == 0:
                log.write(json.dumps({**asked, "error": "ConnectionResetError"}) + "\n")
            log.write(line * (2 if number % 4 == 1 else 1))
            item = {"qid": f"o{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"{number + 200} years"]}) + "\n")


TRUTH = Truth(
    read=52,
    metrics={"answer_precision": 1.0, "citation_hit_rate": 1.0, "error_rate": 0.0, "recall": 1.0},
    n={"answer_precision": 40, "error_rate": 40},
    passes=["answer_precision", "citation_hit_rate", "over_refusal_rate", "citation_scope", "coverage", "error_rate"],
)
