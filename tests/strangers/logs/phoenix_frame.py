"""Spans that somebody saved from Phoenix as a DataFrame: dotted columns, roots only, answers without ids."""

import pandas as pd

from tests.support.strangers import Truth

LOG, GOLD = "phoenix.parquet", "questions.csv"


def write(folder):
    """25 root spans; the references are single words, too short to be searched for as a claim's phrase."""
    rows, truth = [], ["question,reference"]
    for number in range(25):
        question, dish = f"What goes into dish number {number}?", ["eggs", "leek", "rice"][number % 3]
        rows.append(
            {
                "name": "query",
                "span_kind": "CHAIN",
                "start_time": pd.Timestamp("2025-11-20T12:00:00Z") + pd.Timedelta(minutes=number),
                "end_time": pd.Timestamp("2025-11-20T12:00:02Z") + pd.Timedelta(minutes=number),
                "context.trace_id": f"{number + 7:032x}",
                "attributes.input.value": question,
                "attributes.output.value": "Water, salt and flour." if number % 5 == 0 else f"Water, {dish} and salt.",
            }
        )
        truth.append(f"{question},{dish}")
    pd.DataFrame(rows).to_parquet(folder / LOG)
    (folder / GOLD).write_text("\n".join(truth) + "\n", encoding="utf-8")


TRUTH = Truth(
    read=25,
    metrics={"claim_containment": None, "over_refusal_rate": 0.0, "error_rate": 0.0, "hit_rate": None},
    passes=["over_refusal_rate", "error_rate"],
    undecided=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "empty_retrieval_rate"],
    words=["25 no_ids", "`retrieved_ids` in the file, or --map retrieved_ids=NAME"],
    gaps=["no ids of retrieved documents in 25 of 25 records"],
)
