"""Test cases of DeepEval that a notebook saved with pandas: Parquet, numpy lists, gold beside the answers."""

import pandas as pd

from tests.support.strangers import Truth

LOG = GOLD = "cases.parquet"


def write(folder):
    """50 cases; in 5 of them retrieval missed the text that holds the answer, and the answer is a refusal."""
    cases = []
    for number in range(50):
        fact = f"Line {number} of the tram ends at stop {number + 500}."
        missed = number % 10 == 0
        cases.append(
            {
                "input": f"Where does line {number} end?",
                "actual_output": "I'm afraid I could not find that in the timetable."
                if missed
                else f"It ends at stop {number + 500}.",
                "expected_output": f"stop {number + 500}",
                "context": [fact],
                "retrieval_context": [f"Line {number} has no kitchen."] + ([] if missed else [fact]),
            }
        )
    pd.DataFrame(cases).to_parquet(folder / LOG)


TRUTH = Truth(
    read=50,
    metrics={"claim_containment": 0.9, "over_refusal_rate": 0.1, "refusal_rate": 0.1, "recall": 0.9, "mrr": 0.45},
    n={"claim_containment": 50, "recall": 50},
    passes=["over_refusal_rate", "error_rate"],
    undecided=["answer_precision", "citation_scope", "coverage", "citation_hit_rate", "under_refusal_rate"],
    words=["so far, and none with a citation"],
)
