"""What citations name: ids, numbers, marks, titles, and objects of the libraries that write them."""

from __future__ import annotations

import pytest

from ragmon.core.shapes import cited_names, named_by_title

IDS = ["d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("citations", "names"),
    [
        (["d1"], ["d1"]),
        ([1, 2.0, 10**30], ["1", "2", str(10**30)]),
        (["[1]", "Source 2", "Bus plan, p. 3"], ["[1]", "Source 2", "Bus plan, p. 3"]),
        ("d1", ["d1"]),
        (7, ["7"]),
        ([], []),
        ([None, float("nan"), "d1"], ["d1"]),
        ([["d1"], ["d2", 3]], ["d1", "d2", "3"]),
        (['{"document_id": "d2"}'], ["d2"]),
    ],
)
def test_what_is_no_object_is_the_name_as_written(citations, names):
    assert cited_names(citations, IDS) == names


@pytest.mark.parametrize("key", ["id", "_id", "node_id", "chunk_id", "chunkId", "passage_id", "doc_id", "docID"])
@pytest.mark.parametrize(
    "wrapped", [lambda names: names, lambda names: {"metadata": names}, lambda names: {"node": names}]
)
def test_an_object_names_a_document_by_an_id(key, wrapped):
    assert cited_names([wrapped({key: "d2", "quote": "nine"}), wrapped({key: "x9"})], IDS) == ["d2", "x9"]


@pytest.mark.parametrize(
    ("citation", "names"),
    [
        ({"start": 0, "text": "At 9", "document_ids": ["d1", "d3"]}, ["d1", "d3"]),
        ({"text": "At 9", "sources": [{"type": "document", "id": "d1"}, {"id": "d2"}]}, ["d1", "d2"]),
        ({"type": "char_location", "document_index": 0, "document_title": "Bus plan"}, ["d1"]),
        ({"type": "char_location", "document_index": 2.0, "document_title": None}, ["d3"]),
        ({"type": "search_result_location", "source": "https://a.example", "search_result_index": 1}, ["d2"]),
        ({"type": "web_search_result_location", "url": "https://a.example", "title": "A"}, ["https://a.example"]),
        ({"type": "file_citation", "index": 992, "file_id": "file-1", "filename": "a.pdf"}, ["file-1"]),
        ({"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}, ["https://a.example"]),
        ({"page_content": "nine", "metadata": {"source": "bus.pdf", "page": 3}}, ["bus.pdf"]),
        ({"lc": 1, "id": ["langchain", "Document"], "kwargs": {"metadata": {"doc_id": "d3"}}}, ["d3"]),
        ({"retrievedReferences": [{"location": {"s3Location": {"uri": "s3://b/a"}}}]}, ["s3://b/a"]),
        ({"_index": "kb", "_id": "d2", "_source": {"title": "Bus"}}, ["d2"]),
        ({"index": 1, "snippet": "nine"}, ["1"]),
        ({"title": "Bus plan"}, ["Bus plan"]),
    ],
)
def test_objects_of_libraries(citation, names):
    assert cited_names([citation], IDS) == cited_names(citation, IDS) == names


@pytest.mark.parametrize(
    ("citation", "names"),
    [
        ({"id": 1, "document_id": "d2"}, ["d2"]),
        ({"id": "chunk-9", "source": "d3"}, ["d3"]),
        ({"url": "https://a.example", "title": "d1"}, ["d1"]),
        ({"id": "x9", "document_id": "x8"}, ["x9"]),
        ({"document_id": "x8", "document_index": 0}, ["x8"]),
        ({"url": "https://a.example", "document_index": 0}, ["d1"]),
    ],
)
def test_of_several_names_the_one_that_was_retrieved_counts_else_the_surest(citation, names):
    assert cited_names([citation], IDS) == names


@pytest.mark.parametrize(("ids", "name"), [(IDS, "[6]"), ([], "[6]"), (None, "[6]")])
def test_a_rank_from_zero_that_is_not_in_the_list_is_a_mark(ids, name):
    assert cited_names([{"document_index": 5}], ids) == [name]


def test_id_from_goes_before_the_usual_keys():
    citations = [{"id": "w", "meta": {"key": "d1"}}, {"id": "d2"}]
    assert cited_names(citations, IDS, ("meta", "key")) == ["d1", "d2"]


@pytest.mark.parametrize(
    "citations",
    [
        None,
        True,
        1.5,
        {},
        [True],
        ["d1", {}],
        [{"quote": "nine"}],
        [{"id": ""}],
        [{"id": None, "document_id": True}],
        [None],
    ],
)
def test_a_list_is_unknown_where_what_it_cites_cannot_be_told(citations):
    assert cited_names(citations, IDS) is None


def test_a_title_names_the_retrieved_documents_that_have_it():
    titles = [("d1", "Bus plan"), ("d2", "BUS  PLAN"), ("d3", None), (None, "Bus plan")]
    assert named_by_title(["Bus plan", "Other"], titles) == ["d1", "d2", "Other"]
    assert named_by_title(["d3", "Bus plan"], titles) == ["d3", "d1", "d2"]
    assert named_by_title(["Bus plan"], []) == ["Bus plan"]
    for names in (["d1", "Bus plan"], ["d2"]):
        assert named_by_title(names, titles) == names, "an id with a title is cited: names are ids then"


@pytest.mark.parametrize("others", [["d1"], ["d1", 7], [{"id": "d1"}]])
def test_an_empty_text_is_a_name_that_nobody_retrieved_whatever_stands_beside_it(others):
    assert cited_names([*others, ""]) == [*cited_names(others), ""]
