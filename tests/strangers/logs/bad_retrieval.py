"""Only retrieval is bad: it comes back empty for every third question, and then the bot says so, honestly."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "rag.log.jsonl", "gold.jsonl"


def write(folder):
    """90 questions: 60 right and cited, 30 refused for want of documents."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(90):
            question, page = f"What did ship {number} carry?", f"cargo-{number}"
            line = {"question": question, "retrieved_ids": [page], "answer": f"Lot L{number:02d}.", "citations": [page]}
            if number % 3 == 0:
                line |= {"retrieved_ids": [], "citations": [], "answer": "I could not find any documents about this."}
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"s{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"L{number:02d}"]}) + "\n")


TRUTH = Truth(
    read=90,
    metrics={"empty_retrieval_rate": 1 / 3, "over_refusal_rate": 1 / 3, "answer_precision": 1.0, "hit_rate": 2 / 3},
    n={"answer_precision": 60, "empty_retrieval_rate": 90},
    fails=["empty_retrieval_rate", "over_refusal_rate"],
    pages=["empty_retrieval_rate", "over_refusal_rate"],
    passes=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "error_rate"],
)
