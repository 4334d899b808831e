"""A workbook of a Ragas evaluation, log and references in one sheet: no ids, no citations, texts of contexts."""

import pandas as pd

from tests.support.command_line import ragmon
from tests.support.strangers import Truth

LOG, GOLD = "evaluation.xlsx", "gold.jsonl"
FLAGS = ["--sheet", "testset"]


def write(folder):
    """30 questions; every third answer misses the reference; every retrieved list holds the reference's text second."""
    rows = []
    for number in range(30):
        product, months = f"model {100 + number}", str(12 + number)
        fact = f"The {product} has a warranty of {months} months."
        rows.append(
            {
                "user_input": f"How long is the warranty of the {product}?",
                "retrieved_contexts": [f"The {product} weighs two kilograms.", fact],
                "response": f"The {product} has a warranty of {months if number % 3 else 'a few'} months.",
                "reference": f"a warranty of {months} months",
                "reference_contexts": [fact],
            }
        )
    with pd.ExcelWriter(folder / LOG) as book:
        pd.DataFrame({"about": ["made with Ragas"]}).to_excel(book, sheet_name="readme", index=False)
        frame = pd.DataFrame(rows)
        for column in ("retrieved_contexts", "reference_contexts"):
            frame[column] = frame[column].map(str)
        frame.to_excel(book, sheet_name="testset", index=False)
    assert ragmon("gold", "from-table", folder / LOG, *FLAGS, "--output", folder / GOLD).code == 0


TRUTH = Truth(
    read=30,
    metrics={"claim_containment": 20 / 30, "recall": 1.0, "mrr": 0.5, "over_refusal_rate": 0.0, "error_rate": 0.0}
    | {"answer_precision": None, "citation_scope": None, "citation_hit_rate": None, "under_refusal_rate": None},
    undecided=["answer_precision", "citation_scope", "coverage", "citation_hit_rate", "under_refusal_rate"],
    passes=["over_refusal_rate", "error_rate"],
    words=["so far, and none with a citation"],
    gaps=["no list of citations in 30 of 30 answers"],
)
