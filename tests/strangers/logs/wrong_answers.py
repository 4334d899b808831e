"""A truly bad bot: it cites the right page and says something else in 40 of 100 answers."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "traces.jsonl", "gold.jsonl"


def write(folder):
    """100 questions, half of them asked in English and half in German."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(100):
            question = f"How deep is well {number}?" if number % 2 else f"Wie tief ist Brunnen {number}?"
            page, depth = f"wells-{number}", f"{number + 11} m"
            claim = f"It is {depth} deep." if number % 5 > 1 else "It is a thousand feet deep."
            answer = {"claim": claim, "citations": [page]}
            log.write(json.dumps({"q": question, "retrieved_ids": [page, "wells-x"], "answer_json": answer}) + "\n")
            item = {"qid": f"w{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [depth]}) + "\n")


TRUTH = Truth(
    read=100,
    metrics={"answer_precision": 0.6, "claim_containment": 0.6, "citation_hit_rate": 1.0, "recall": 1.0},
    n={"answer_precision": 100},
    fails=["answer_precision"],
    pages=["answer_precision"],
    passes=["citation_hit_rate", "citation_scope", "coverage", "over_refusal_rate", "empty_retrieval_rate"],
)
