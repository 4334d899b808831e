"""Somebody gave the gold file where the log belongs: not 20 failures, but a mistake that has a name."""

import json

from tests.support.strangers import Truth

LOG = GOLD = "gold.jsonl"


def write(folder):
    """20 gold items and no log at all."""
    with (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(20):
            item = {"qid": f"g{number}", "question": f"What is {number}?", "answerable": True}
            gold.write(json.dumps(item | {"gold_claim_substr": ["so"], "gold_citations": ["d"]}) + "\n")


TRUTH = Truth(refused=True, words=["gold.jsonl", "gold", "hint: ", "--gold"])
