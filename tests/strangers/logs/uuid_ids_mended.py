"""The log of `uuid_ids`, after the setting that ragmon names was written: the numbers are right."""

from tests.strangers.logs import uuid_ids
from tests.support.strangers import Truth

LOG, GOLD, write = uuid_ids.LOG, uuid_ids.GOLD, uuid_ids.write
CONFIG = uuid_ids.CONFIG + '[capture]\nid_from = "metadata.chunk_id"\n'
TRUTH = Truth(
    read=60,
    metrics={"claim_containment": 1.0, "hit_rate": 1.0, "mrr": 1.0, "recall": 1.0, "precision": 0.5},
    n={"hit_rate": 60},
    passes=["hit_rate", "over_refusal_rate", "empty_retrieval_rate", "error_rate"],
    undecided=["answer_precision", "citation_hit_rate"],
    words=["so far, and none with a citation"],
)
