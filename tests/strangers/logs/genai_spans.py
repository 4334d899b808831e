"""Spans of OpenTelemetry's GenAI conventions: retrieval with documents, messages on the model's span, sessions."""

import json

from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.strangers import Truth

LOG, GOLD = "export.json", "gold.jsonl"
DAY = 6_000
"""Requests of the simulated day: each conversation of four is one observation."""


def says(role, text):
    """Messages as the conventions write them."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def write(folder):
    """40 requests of 10 conversations; 4 failed with an error, 36 are answered rightly, and nothing is cited."""
    with (folder / LOG).open("wb") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(40):
            question, failed = f"Which gate has flight {number}?", number % 10 == 9
            documents = [{"id": f"flights#{number}", "score": 0.9}, {"id": "flights#0", "score": 0.5}]
            found = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(documents)}
            asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": says("user", question)}
            asked |= {"gen_ai.request.model": "m2", "gen_ai.conversation.id": f"talk-{number % 10}"}
            if not failed:
                asked["gen_ai.output.messages"] = says("assistant", f"It leaves from gate G{number:02d}.")
            root = made({"http.route": "/ask"}, end=2.0, name="POST /ask", failed=failed)
            retriever = made(found, parent=root, start=0.1, end=0.3, name="retrieval flights")
            model = made(asked, parent=root, start=0.4, end=1.9, name="chat m2", failed=failed)
            spans = [span._replace(trace_id=f"{number + 1:032x}") for span in (retriever, model, root)]
            log.write(as_json(export(spans, **{"service.name": "airport"})) + b"\n")
            item = {"qid": f"f{number}", "question": question, "answerable": True}
            known = {"gold_claim_substr": [f"G{number:02d}"], "gold_citations": [f"flights#{number}"]}
            gold.write(json.dumps(item | known) + "\n")


TRUTH = Truth(
    read=40,
    metrics={"error_rate": 0.1, "claim_containment": 1.0, "hit_rate": 1.0, "mrr": 1.0, "answer_precision": None},
    n={"claim_containment": 36},
    undecided=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "error_rate"],
    pages=["error_rate"],  # spans are a sample of traffic: 4 errors of 40 decide nothing, those of a day do
    passes=["over_refusal_rate"],
    words=["so far, and none with a citation"],
)
