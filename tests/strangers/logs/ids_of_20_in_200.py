"""Ids were logged only where nothing could be answered: 180 right answers of 200 lack them, 20 wrong ones do not."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "traces.jsonl", "gold.jsonl"


def write(folder):
    """180 questions answered rightly with the right citation, 20 unanswerable ones that were answered all the same."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(200):
            question, answerable = f"What is the torque of bolt {number}?", number < 180
            claim = {"claim": f"It is {number + 20} Nm.", "citations": [f"sheet-{number}"]}
            line = {"q": question, "answer_json": claim}
            log.write(json.dumps(line if answerable else line | {"retrieved_ids": [f"sheet-{number}"]}) + "\n")
            item = {"qid": f"b{number}", "question": question, "answerable": answerable}
            known = {"gold_claim_substr": [f"{number + 20} Nm"], "gold_citations": [f"sheet-{number}"]}
            gold.write(json.dumps(item | (known if answerable else {})) + "\n")


TRUTH = Truth(
    read=200,
    metrics={"answer_precision_cited": 0.9, "claim_containment": 1.0, "under_refusal_rate": 1.0},
    n={"answer_precision_cited": 200, "under_refusal_rate": 20},
    undecided=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "empty_retrieval_rate"],
    fails=["under_refusal_rate"],
    pages=["under_refusal_rate"],
    passes=["over_refusal_rate", "error_rate"],
    words=["180 of 200 not assessable: no_ids"],
    gaps=["no ids of retrieved documents in 180 of 200 records"],
)
