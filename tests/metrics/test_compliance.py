"""A refusal in words lowers compliance on every way in, whatever list of citations it carries."""

from __future__ import annotations

import pytest

from ragmon.capture.redact import Redaction
from ragmon.core.record import Answer, Record, encode
from ragmon.core.refusals import RefusalRule
from ragmon.ingest.lines import decode
from ragmon.metrics.facts import FactReader, Facts

REFUSAL = "I could not find anything about this in the documents."
HEDGED = "The documents do not state this explicitly, but the refund takes 14 days."
LISTS = [[], ["d1"], ["d1", "d2"]]
WAYS = {
    "the application's own record": lambda record: record,
    "a file": lambda record: decode(encode(record)),
    "facts in place of the text": Redaction(content="none"),
    "text that was redacted": Redaction(content="redacted"),
}


def is_compliant(claim, citations, way, **rule):
    record = WAYS[way](Record(v=1, q="Is it?", retrieved_ids=["d1", "d2"], answer_json=Answer(claim, citations)))
    return Facts._make(FactReader(refusal=RefusalRule(**rule)).read(record, None)).compliant


def test_a_refusal_in_words_is_not_compliant():
    for way in WAYS:
        for citations in [*LISTS, None]:
            for counts in [True, False]:
                assert not is_compliant(REFUSAL, citations, way, matcher_counts=counts), (way, citations, counts)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("citations", LISTS)
def test_an_answer_with_a_list_is_compliant_behind_a_hedge_too(way, citations):
    assert is_compliant(HEDGED, citations, way)


@pytest.mark.parametrize("way", WAYS)
def test_the_token_is_compliant_without_a_list(way):
    assert is_compliant("Not in context", None, way)
