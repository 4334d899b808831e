"""An agent that retrieves by a call of its tool `kb_search`, which is no retriever's span; it cites ids in brackets."""

import json

from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.strangers import Truth

LOG, GOLD = "agent.json", "gold.jsonl"


def write(folder):
    """80 questions: the agent thinks, searches, and answers with the id of what it found."""
    with (folder / LOG).open("wb") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(80):
            question, doc = f"How long is trail {number}?", f"trail-{number}"
            hits = [{"id": doc, "text": f"{number + 3} km", "score": 4.0}, {"id": "map", "text": "-", "score": 1.0}]
            root = made(
                {
                    "openinference.span.kind": "AGENT",
                    "input.value": question,
                    "output.value": f"It is {number + 3} km long [{doc}].",
                },
                end=3.0,
                name="agent",
            )
            called = {"openinference.span.kind": "TOOL", "tool.name": "kb_search", "output.value": json.dumps(hits)}
            tool = made(called, parent=root, start=1.0, end=1.2, name="kb_search")
            model = made({"openinference.span.kind": "LLM", "llm.model_name": "m"}, parent=root, start=1.3, end=2.9)
            spans = [span._replace(trace_id=f"{number + 1:032x}") for span in (tool, model, root)]
            log.write(as_json(export(spans, **{"service.name": "ranger"})) + b"\n")
            item = {"qid": f"t{number}", "question": question, "answerable": True, "gold_citations": [doc]}
            gold.write(json.dumps(item | {"gold_claim_substr": [f"{number + 3} km"]}) + "\n")


TRUTH = Truth(
    read=80,
    metrics={"answer_precision": 1.0, "citation_scope": 1.0, "coverage": 1.0, "recall": 1.0, "mrr": 1.0},
    n={"answer_precision": 80},
    passes=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "empty_retrieval_rate"],
)
