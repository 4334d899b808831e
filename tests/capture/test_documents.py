"""Where the ids of retrieved documents are looked for, and what happens where there are none."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace
from uuid import UUID

import pytest

import ragmon
from ragmon.core import errors
from ragmon.testing import capture_traces
from tests.support.capturing import found, record_of


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"id": 7}, "7"),
        ({"id": UUID(int=1)}, "00000000-0000-0000-0000-000000000001"),
        ({"id": "", "metadata": {"chunk_id": "c1"}}, "c1"),
        ({"metadata": {"id": "m1", "chunk_id": "c1"}}, "m1"),
        ({"metadata": {"chunk_id": "c1", "doc_id": "d1"}}, "c1"),
        ({"metadata": {"doc_id": "d1"}}, "d1"),
        ({"id": True, "metadata": {"id": 1.5}}, None),
        ({"id": ["a"]}, None),
        ({"chunk_id": "c1", "content": "one"}, "c1"),
        ({"doc_id": "d1", "metadata": {"chunk_id": "c1"}}, "c1"),
        ({"_id": "e1", "_score": 1.5, "_source": {"title": "one"}}, "e1"),
        ({"meta": {"doc_id": "d1"}}, "d1"),
        ({"text": "one"}, None),
        (SimpleNamespace(node_id="n1"), "n1"),
        (1.0, "1"),
        (1.5, None),
    ],
)
def test_where_an_id_is_looked_for(document, expected):
    assert found({"retrieved": [document]})[2] == (None if expected is None else [expected])


@pytest.mark.parametrize("documents", [[7, 8], [{"id": "7"}, 8], [7, UUID(int=8)]])
def test_a_number_among_documents_is_its_id(documents):
    assert found({"documents": documents})[2] == ["7", "8" if documents[1] == 8 else str(documents[1])]


@pytest.mark.parametrize(
    "document",
    [
        {"chunk_id": "c1", "passage": "one", "similarity": 0.5},
        {"id": "c1", "score": 0.5, "metadata": {"text": "one"}},
        SimpleNamespace(id="c1", score=0.5, payload={"content": "one"}),
        {"_id": "c1", "_score": 0.5, "_source": {"text": "one", "page": 7}},
    ],
    ids=["own class", "Pinecone", "Qdrant", "Elasticsearch"],
)
def test_what_vector_databases_and_own_classes_return_are_documents(document):
    record = record_of({"answer": "yes", "documents": [document]})
    assert (record.retrieved_ids, record.contexts, record.scores) == (["c1"], ["one"], [0.5])


def test_id_from_names_the_place_for_documents_candidates_and_citations():
    documents = [{"id": "wrong", "meta": {"key": "d1"}}, {"id": "wrong", "meta": {"key": "d2"}}]
    record = record_of(
        {"answer": "yes", "citations": [documents[1]], "documents": documents, "candidates": documents},
        id_from="meta.key",
    )
    assert record.retrieved_ids == record.candidate_ids == ["d1", "d2"]
    assert record.answer_json.citations == ["d2"]


def test_id_from_may_stand_in_the_configuration(configured):
    """Per pipeline; the decorator's own goes before it."""
    settings = configured('[capture]\nid_from = "key"\n[pipelines.support.capture]\nid_from = "metadata.key"')
    document = {"key": "common", "metadata": {"key": "of the pipeline"}, "other": "of the decorator"}

    def answer(question):
        return {"answer": question, "retrieved": [document]}

    with capture_traces(settings) as records:
        ragmon.trace(name="any", sample=1.0)(answer)("q")
        ragmon.trace(name="support", sample=1.0)(answer)("q")
        ragmon.trace(name="support", sample=1.0, id_from="other")(answer)("q")
    assert [r.retrieved_ids for r in records] == [["common"], ["of the pipeline"], ["of the decorator"]]


def test_one_document_without_an_id_leaves_ids_unknown_and_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(errors, "_said", set())
    with caplog.at_level(logging.WARNING, logger="ragmon"):
        for _ in range(3):
            assert found({"documents": [{"id": "d1", "text": "one"}, {"text": "two"}]})[2:] == (None, ["one", "two"])
    assert ["has no id" in entry.getMessage() for entry in caplog.records] == [True]


@dataclass
class Cited:
    document_id: str | None = None
    document_index: int | None = None
    quote: str = "nine"


class Slotted:
    __slots__ = ("chunk_id",)

    def __init__(self, chunk_id):
        self.chunk_id = chunk_id


@pytest.mark.parametrize(
    "cited",
    [
        [Cited("d2")],
        [Cited(document_index=1)],
        [Slotted("d2")],
        [SimpleNamespace(node=SimpleNamespace(id_="d2"), score=0.5)],
        [(SimpleNamespace(id=None, metadata={"doc_id": "d2"}), 0.5)],
        SimpleNamespace(documentId="d2"),
        {"d2"},
        (value for value in ()),
    ],
    ids=["dataclass", "rank", "slots", "node", "pair", "alone", "set", "iterator"],
)
def test_citations_may_be_objects_of_any_class(cited):
    expected = None if hasattr(cited, "__next__") else ["d2"]
    assert found({"answer": "yes", "retrieved": ["d1", "d2"], "citations": cited})[1] == expected


def test_a_citation_by_rank_is_the_document_that_is_known_at_last():
    """Among `sources`, which are read as the retrieved documents where nothing else is."""
    result = {"answer": "yes", "sources": [{"id": "d1"}, {"id": "d2"}], "citations": [{"document_index": 1}]}
    assert found(result)[1:3] == (["d2"], ["d1", "d2"])


def test_citations_in_a_circle_and_by_the_million_are_bounded():
    circle = []
    circle.append(circle)
    circle_of_objects = SimpleNamespace()
    circle_of_objects.metadata = circle_of_objects.node = circle_of_objects
    wide = [[["d1"] * 1000] * 1000] * 1000
    for cited in (circle, [circle_of_objects], wide):
        assert found({"answer": "yes", "retrieved": ["d1"], "citations": cited})[1] is None
