"""Two teams in one log: billing is flawless, travel invents its citations. Only travel may fail and page."""

import json

from tests.support.strangers import Truth

LOG, GOLD = "all.jsonl", "gold.jsonl"


def write(folder):
    """50 answers of each; every second one of travel cites a page that was not retrieved."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(100):
            team = ("billing", "travel")[number % 2]
            question, page = f"{team}: what is rule {number}?", f"{team}-{number}"
            cited = "brochure-2019" if number % 4 == 3 else page
            answer = {"claim": f"Rule R{number:02d} holds.", "citations": [cited]}
            line = {"pipeline": team, "q": question, "retrieved_ids": [page, f"{team}-0"], "answer_json": answer}
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"r{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"R{number:02d}"]}) + "\n")


BAD = ["citation_scope", "coverage", "citation_hit_rate", "answer_precision"]
TRUTH = Truth(
    read=100,
    metrics={"billing/citation_scope": 1.0, "travel/citation_scope": 0.5, "travel/recall": 1.0}
    | {"billing/answer_precision": 1.0, "travel/answer_precision": 0.5},
    n={"billing/answer_precision": 50, "travel/citation_scope": 50},
    undecided=[f"{team}/{gate}" for team in ("billing", "travel") for gate in BAD],  # one gold set for both
    pages=[f"travel/{gate}" for gate in BAD],
    words=["50 of 100 gold items have no trace", "`[gold.NAME] pipeline` says whose questions they are"],
)
