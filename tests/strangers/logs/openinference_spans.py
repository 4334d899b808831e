"""A collector's file of OpenInference spans (LlamaIndex): the pages' ids are there, and the answers cite with [1]."""

import json

from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.strangers import Truth

LOG, GOLD = "traces.otlp.json", "gold.jsonl"


def request(number, question, pages, answer):
    """The spans of one request."""
    found = {"openinference.span.kind": "RETRIEVER", "input.value": question}
    for rank, page in enumerate(pages):
        found[f"retrieval.documents.{rank}.document.id"] = page
        found[f"retrieval.documents.{rank}.document.content"] = f"The text of {page}."
    root = made({"openinference.span.kind": "CHAIN", "input.value": question, "output.value": answer}, end=2.0)
    retriever = made(found, parent=root, start=0.1, end=0.4)
    model = made({"openinference.span.kind": "LLM", "llm.model_name": "m1"}, parent=root, start=0.5, end=1.9)
    return [span._replace(trace_id=f"{number + 1:032x}") for span in (retriever, model, root)]


def write(folder):
    """100 right answers and 20 refusals, an export a line."""
    with (folder / LOG).open("wb") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(120):
            question, page = f"Who keeps lighthouse {number}?", f"lights/{number}.md"
            known, answer = {"gold_citations": [page]}, f"Keeper K{number:02d} does [1]."
            if answerable := number < 100:
                known["gold_claim_substr"] = [f"K{number:02d}"]
            else:
                known, answer = {}, "I'm sorry, the documents do not say who keeps it."
            spans = request(number, question, [page, "lights/index.md"], answer)
            log.write(as_json(export(spans, **{"service.name": "lights", "service.version": "7"})) + b"\n")
            gold.write(json.dumps({"qid": f"l{number}", "question": question, "answerable": answerable} | known) + "\n")


TRUTH = Truth(
    read=120,
    metrics={"answer_precision": 1.0, "under_refusal_rate": 0.0, "refusal_rate": 1 / 6, "recall": 1.0, "coverage": 1.0},
    n={"answer_precision": 100, "under_refusal_rate": 20},
    passes=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "error_rate"],
    undecided=["under_refusal_rate"],  # spans are a sample of traffic, and 20 questions are too few
)
