"""The store's ids are UUIDs and gold names pages; the page stands in the metadata of each document."""

import json
import uuid

from tests.support.strangers import Truth

LOG, GOLD = "traces.jsonl", "gold.jsonl"
CONFIG = '[gates]\npreset = "default"\nhit_rate = { at_least = 0.8 }\n'


def write(folder):
    """60 birds, each found at once and described rightly."""
    with (folder / LOG).open("w", encoding="utf-8") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(60):
            question, page = f"How heavy is heron {number}?", f"grey-heron#{number}"
            documents = [
                {
                    "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
                    "text": f"Notes on {name}.",
                    "metadata": {"chunk_id": name, "lang": "en"},
                }
                for name in (page, "index#1")
            ]
            line = {"question": question, "answer": f"It weighs {number + 900} g.", "documents": documents}
            log.write(json.dumps(line) + "\n")
            item = {"qid": f"h{number}", "question": question, "answerable": True, "gold_citations": [page]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"{number + 900} g"]}) + "\n")


TRUTH = Truth(
    read=60,
    metrics={"claim_containment": 1.0},
    undecided=["hit_rate", "answer_precision", "citation_hit_rate"],
    words=["none of 120 retrieved ids occurs in gold", "grey-heron#", 'id_from = "metadata.chunk_id"'],
)
