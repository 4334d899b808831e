"""A bot that names no sources, as most do: question, answer, ids; the word for a citation occurs nowhere in its log."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "chat.jsonl", "gold.jsonl"


def write(folder):
    """60 answers, of which 57 are right; retrieval finds the page each time, 20 times first and 40 times second."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(60):
            question, page = f"When does bus {number} leave?", f"plan-{number}"
            found = [page, "plan-a"] if number % 3 == 0 else ["plan-a", page]
            time = f"{number % 24:02d}:{number:02d}"
            answer = f"At {time}." if number % 20 else "At noon, I think."
            log.write(json.dumps({"question": question, "answer": answer, "retrieved_ids": found}) + "\n")
            item = {"qid": f"b{number}", "question": question, "answerable": True}
            gold.write(json.dumps(item | {"gold_claim_substr": [time], "gold_citations": [page]}) + "\n")


TRUTH = Truth(
    read=60,
    metrics={"claim_containment": 0.95, "recall": 1.0, "mrr": 40 / 60, "over_refusal_rate": 0.0}
    | {"answer_precision": None, "citation_scope": None, "coverage": None},
    undecided=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "under_refusal_rate"],
    passes=["over_refusal_rate", "empty_retrieval_rate", "error_rate"],
    words=["not applicable yet: 60 answers so far, and none with a citation"],
    gaps=["no list of citations in 60 of 60 answers"],
)
