"""Citations as numbers in an answer's text, against the ranked list."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.ingest.spans import Span, to_record
from ragmon.ingest.spans.messages import numeric_citations

IDS = ["d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        ("Rollo did [2].", ["d2"]),
        ("Rollo did.[1]", ["d1"]),
        ("[1] Rollo did, [3] says", ["d1", "d3"]),
        ("Rollo did [1][3][1].", ["d1", "d3"]),
        ("Rollo did [3, 1; 2].", ["d3", "d1", "d2"]),
        ("Rollo did [^2]", ["d2"]),
        ("Rollo did [1] [9].", ["d1", "[9]"]),
        ("Rollo did [9].", None),
        ("Rollo did.", None),
        ("in [1066]", None),
        ("Rollo did[1][3].", ["d1", "d3"]),
        ("Rollo did[1], and so [3]", ["d1", "d3"]),
        ("罗洛[1]。", ["d1"]),
        ("Rollo did [1], others too [2-3].", ["d1", "d2", "d3"]),
        ("Rollo did [1–3].", ["d1", "d2", "d3"]),
        ("Rollo did [3-1].", ["d3", "d1"]),
        ("Rollo did [0], then [1].", None),
        ("Rollo did [1].\n```python\nx = [2, 3]\n```", ["d1"]),
        ("Rollo did [1], see `[2]`", ["d1"]),
        ("row[1].name is read", None),
        ("row[1] = 2", None),
        ("see [1](https://rollo.example)", None),
        ("see [the chronicle][2] [1]\n\n[2]: https://rollo.example", ["d1"]),
        ("[1]: https://rollo.example", None),
        ("Rollo did.[^1]\n\n[^1]: The chronicle.", ["d1"]),
    ],
)
def test_a_mark_is_the_document_of_that_rank(claim, found):
    """A number past the list was not retrieved; where no number is the list's, the brackets mean something else.

    Numbers in code, in links and in front of footnotes cite nothing; where they begin at 0, they are no ranks.
    """
    assert numeric_citations(claim, IDS) == found


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


@given(st.text("[]^,;-:` 0123456789ab(=.\n"), st.lists(st.text(min_size=1), max_size=4))
def test_any_text_gives_ids_of_the_list_or_numbers_that_are_not(claim, ids):
    found = numeric_citations(claim, ids)
    assert found is None or (found and len(set(found)) == len(found))
    assert found is None or any(name in ids for name in found)
