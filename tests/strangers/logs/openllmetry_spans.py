"""Spans of OpenLLMetry, content switched off by the security team: ids and texts are not there, and that is said."""

import json

from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.strangers import Truth

LOG, GOLD = "spans.json", "gold.jsonl"


def write(folder):
    """30 requests: a chain, a vector store's query and a model call, none with a text."""
    with (folder / LOG).open("wb") as log, (folder / GOLD).open("w", encoding="utf-8") as gold:
        for number in range(30):
            root = made({"traceloop.span.kind": "workflow", "traceloop.entity.name": "support"}, end=2.0)
            store = made({"db.system": "chroma", "db.operation": "query"}, parent=root, end=0.3, name="chroma.query")
            usage = {"gen_ai.system": "openai", "gen_ai.request.model": "m1", "llm.request.type": "chat"}
            model = made(usage, parent=root, start=0.4, end=1.8, name="openai.chat")
            spans = [span._replace(trace_id=f"{number + 1:032x}") for span in (store, model, root)]
            exported = export(spans, scope="opentelemetry.instrumentation.openai.v1", **{"service.name": "support"})
            log.write(as_json(exported) + b"\n")
            item = {"qid": f"s{number}", "question": f"How do I reset router {number}?", "answerable": True}
            gold.write(json.dumps(item | {"gold_claim_substr": ["button"], "gold_citations": ["r"]}) + "\n")


TRUTH = Truth(
    read=30,
    metrics={"error_rate": 0.0, "answer_precision": None, "hit_rate": None, "refusal_rate": None},
    undecided=["answer_precision", "citation_hit_rate", "citation_scope", "coverage", "over_refusal_rate"],
    words=["TRACELOOP_TRACE_CONTENT=true"],
    gaps=["no question in 30 of 30 records", "no answer in 30 of 30 records", "TRACELOOP_TRACE_CONTENT=true"],
)
