"""A flawless bot that refuses as people do: 50 right and cited answers, 50 times "I don't know based on ..."."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "traces.jsonl", "gold.jsonl"
REFUSALS = [
    "I don't know based on the provided context.",
    "I'm sorry, but the documents don't mention that.",
    "The handbook does not say anything about this.",
    "I could not find any information on that. Please contact support.",
    "Unfortunately, there is no information about this in the context.",
]


def write(folder):
    """Citations are a list where something is cited; a refusal has none, not even an empty one."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(50):
            question, page = f"How many litres does tank {number} hold?", f"manual#{number}"
            answer = {"claim": f"Tank {number} holds {number * 10 + 5} litres.", "citations": [page]}
            log.write(json.dumps({"q": question, "retrieved_ids": [page, "manual#0"], "answer_json": answer}) + "\n")
            item = {"qid": f"t{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"{number * 10 + 5} litres"]}) + "\n")
        for number in range(50):
            question, refusal = f"Who welded tank {number}?", {"claim": REFUSALS[number % 5]}
            log.write(json.dumps({"q": question, "retrieved_ids": ["manual#7"], "answer_json": refusal}) + "\n")
            gold.write(json.dumps({"qid": f"w{number}", "question": question, "answerable": False}) + "\n")


TRUTH = Truth(
    read=100,
    metrics={"answer_precision": 1.0, "under_refusal_rate": 0.0, "over_refusal_rate": 0.0, "refusal_rate": 0.5}
    | {"citation_scope": 1.0, "coverage": 1.0, "citation_hit_rate": 1.0, "recall": 1.0},
    n={"answer_precision": 50, "under_refusal_rate": 50, "refusal_rate": 100},
    passes=["answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "citation_scope"],
)
