"""Answers cite as models are told to, "[1]" for the first document: no list of citations, but all is known."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "answers.jsonl", "gold.jsonl"


def write(folder):
    """40 answers: 36 cite the right document, 4 the other one that was retrieved."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(40):
            question, page = f"Which valve closes at {number} bar?", f"valves-{number}"
            mark = "[2]" if number % 10 == 0 else "[1]"
            line = {"question": question, "answer": f"Valve V{number:02d} does {mark}.", "doc_ids": [page, "valves"]}
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"v{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"V{number:02d}"]}) + "\n")


TRUTH = Truth(
    read=40,
    metrics={"answer_precision": 0.9, "citation_hit_rate": 0.9, "citation_scope": 1.0, "coverage": 1.0},
    n={"answer_precision": 40},
    passes=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "over_refusal_rate"],
    undecided=["under_refusal_rate"],
)
