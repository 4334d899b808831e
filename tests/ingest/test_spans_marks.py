"""Citations as numbers in an answer's text, against the ranked list."""

from __future__ import annotations

import json

import pytest

from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Span

IDS = ["d1", "d2", "d3"]


def trace(answer, ids=IDS):
    documents = json.dumps([{"id": name} for name in ids])
    held = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents}
    root = {"openinference.span.kind": "CHAIN", "input.value": "Who ruled Normandy?", "output.value": answer}
    return [
        Span("1" * 32, "1" * 16, None, "ask", 1, 9, root),
        Span("1" * 32, "2" * 16, "1" * 16, "retrieval", 2, 3, held),
    ]


def test_marks_of_an_answer_without_a_list_are_its_citations():
    said = to_record(trace("Rollo did [2].")).record.answer_json
    assert (said.claim, said.citations) == ("Rollo did [2].", ["d2"])


@pytest.mark.parametrize("answer", ['{"claim": "Rollo [1]", "citations": []}', "Rollo [1]\ncitations: [d3]"])
def test_a_list_of_citations_comes_before_marks(answer):
    assert to_record(trace(answer)).record.answer_json.citations in ([], ["d3"])


def test_without_ids_marks_stand_for_nothing():
    assert to_record(trace("Rollo did [1].", ids=[])).record.answer_json.citations is None


def test_a_model_call_says_what_the_text_that_the_application_hands_on_cites():
    def cited(text):
        parts = [{"type": "text", "text": text, "citations": [{"type": "char_location", "document_index": 1}]}]
        reply = {"openinference.span.kind": "LLM", "output.value": json.dumps({"role": "assistant", "content": parts})}
        call = Span("1" * 32, "3" * 16, "1" * 16, "messages.create", 4, 5, reply)
        return to_record([*trace("Rollo did."), call]).record.answer_json.citations

    assert cited("Rollo did.") == ["d2"]
    assert cited("Who is asking?") is None, "another reply says nothing of this one"
