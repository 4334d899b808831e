"""Where the ids of retrieved documents are looked for on a span, in which order, and when they stay unknown."""

from __future__ import annotations

import json

import pytest

from ragmon.core import constants, semconv
from ragmon.core.record import MAX_DOCUMENTS_KEPT
from ragmon.core.written import REDACTED
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, Event, SpanOptions
from tests.support.recorded_spans import made

RETRIEVER = {semconv.SPAN_KIND: semconv.RETRIEVER}


def flat(*documents, name=semconv.RETRIEVED, first=0):
    """Documents as OpenInference flattens them."""
    return {
        f"{name}.{place}.document.{part}": value
        for place, document in enumerate(documents, start=first)
        for part, value in document.items()
    }


def read(attributes, **options):
    """The record of a lone retriever, and why its ids are missing."""
    fields = {name: options.pop(name) for name in ("dropped", "dropped_events", "events") if name in options}
    mapped = to_record([made(attributes, **fields)], SpanOptions(**options))
    return mapped.record, mapped.missing.get("retrieved_ids")


def ids(attributes, **options):
    record, reason = read(attributes, **options)
    assert (record.retrieved_ids is None) == (reason is not None)
    return record.retrieved_ids


NODE = json.dumps({"node": {"id_": "n1", "text": "one", "metadata": {"chunk_id": "c1"}}, "score": 0.5})


@pytest.mark.parametrize(
    "attributes",
    [
        {semconv.DOCUMENTS: '[{"id": "n1", "score": 0.5, "content": "one"}]'},
        {semconv.DOCUMENTS: [{"id": "n1", "score": 0.5, "content": "one"}]},
        flat({"id": "n1", "content": "one", "score": 0.5}),
        {semconv.OUTPUT_VALUE: '{"documents": [{"id": "n1", "page_content": "one", "score": 0.5}]}'},
        {semconv.OUTPUT_VALUE: '[{"id": "n1", "text": "one", "score": 0.5}]'},
        {semconv.OUTPUT_VALUE: json.dumps([NODE])},
        {semconv.ENTITY_OUTPUT: json.dumps([NODE])},
        {semconv.ENTITY_OUTPUT: json.dumps({"documents": [{"id": "n1", "page_content": "one", "score": 0.5}]})},
        {semconv.OUTPUT_VALUE: '[{"lc": 1, "kwargs": {"id": "n1", "page_content": "one", "score": 0.5}}]'},
    ],
)
def test_one_document_in_every_place_it_may_stand(attributes):
    record, reason = read(RETRIEVER | attributes)
    assert (record.retrieved_ids, record.contexts, record.scores, reason) == (["n1"], ["one"], [0.5], None)


def test_frameworks_that_write_their_documents_as_text():
    nodes = [
        "<NodeWithScore(node=TextNode(id_=a (1), b), score=0.75)>",
        "<NodeWithScore(node=ImageNode(id_=2), score=None)>",
    ]
    assert ids(RETRIEVER | {semconv.OUTPUT_VALUE: json.dumps(nodes)}) == ["a (1), b", "2"]
    haystack = ["Document(id=h1, content: 'one, two', meta: {}, score: 0.5)", "Document(id=h2, meta: {})"]
    assert ids(RETRIEVER | {semconv.OUTPUT_VALUE: json.dumps({"documents": haystack})}) == ["h1", "h2"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"id": 7}, "7"),
        ({"id": True}, None),
        ({"id": 1.5}, None),
        ({"id": None, "metadata": '{"chunk_id": "c1"}'}, "c1"),
        ({"metadata": '{"id": 3, "chunk_id": "c1", "doc_id": "d1"}'}, "3"),
        ({"id": "own", "metadata": '{"chunk_id": "c1"}'}, "own"),
        ({"metadata": '{"doc_id": "d1"}', "id": REDACTED}, "d1"),
        ({"metadata": "no JSON", "content": "one"}, None),
    ],
)
def test_what_counts_as_an_id(document, expected):
    assert ids(RETRIEVER | flat(document)) == (None if expected is None else [expected])


def test_a_documents_own_id_elsewhere_goes_before_what_its_metadata_call_it():
    """OpenInference's flattened LangChain documents have metadata but no id; the output beside them has the ids."""
    attributes = flat({"content": "one", "metadata": '{"chunk_id": "c1"}'})
    attributes[semconv.OUTPUT_VALUE] = '{"documents": [{"id": "n1", "page_content": "one"}]}'
    record, _ = read(RETRIEVER | attributes)
    assert (record.retrieved_ids, record.contexts) == (["n1"], ["one"])


def test_texts_and_scores_come_from_another_list_only_where_that_is_as_long():
    output = {semconv.OUTPUT_VALUE: '[{"id": "n1"}, {"id": "n2"}]'}
    record, _ = read(RETRIEVER | output | flat({"content": "one", "score": 2}, {"content": "two", "score": "1"}))
    assert (record.retrieved_ids, record.contexts, record.scores) == (["n1", "n2"], ["one", "two"], [2.0, 1.0])
    record, _ = read(RETRIEVER | output | flat({"content": "one", "score": 2}))
    assert (record.retrieved_ids, record.contexts, record.scores) == (["n1", "n2"], None, None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("metadata", "chunk_id"), ["c1"]),
        (("node", "metadata", "chunk_id"), ["c1"]),
        (("meta", "chunk_id"), ["c1"]),
        (("node_id",), ["n1"]),
        (("metadata", "parts", -1), ["p2"]),
        (("metadata", "parts", 2), None),
        (("metadata", "nowhere"), None),
        (("metadata", "chunk_id", "further"), None),
    ],
)
def test_id_from_is_a_path_and_the_only_place_then(path, expected):
    node = {"node": {"id_": "n1", "metadata": {"chunk_id": "c1", "parts": ["p1", "p2"]}}, "score": 1}
    assert ids(RETRIEVER | {semconv.ENTITY_OUTPUT: json.dumps([node])}, id_from=path) == expected


def test_one_document_without_an_id_leaves_all_of_them_unknown():
    record, reason = read(RETRIEVER | flat({"id": "n1", "content": "one"}, {"content": "two"}))
    assert (record.retrieved_ids, record.contexts, reason) == (None, ["one", "two"], constants.NO_IDS)


@pytest.mark.parametrize(
    "attributes",
    [
        {semconv.DOCUMENTS: "[]"},
        {semconv.OUTPUT_VALUE: '{"documents": []}'},
        {semconv.ENTITY_OUTPUT: '{"documents": [], "count": 0}'},
        {semconv.ENTITY_NAME: "VectorIndexRetriever.task", semconv.ENTITY_OUTPUT: "[]"},
    ],
)
def test_a_retrieval_that_found_nothing_is_known_to_have_found_nothing(attributes):
    record, reason = read(RETRIEVER | attributes)
    assert (record.retrieved_ids, record.contexts, reason) == ([], None, None)


class TestNeverSilentlyShortened:
    """A list that a limit may have cut is unknown, not short: the first to go are the best ranked."""

    def test_a_flattened_list_that_does_not_start_at_its_first_place(self):
        assert read(RETRIEVER | flat({"id": "n8"}, {"id": "n9"}, first=8))[1] == ATTRIBUTES_DROPPED

    def test_a_flattened_list_with_a_gap(self):
        attributes = flat({"id": "n0"}, {"id": "n1"}, {"id": "n2"})
        del attributes["retrieval.documents.1.document.id"]
        assert read(RETRIEVER | attributes)[1] == ATTRIBUTES_DROPPED

    @pytest.mark.parametrize(
        "attributes", [{}, flat({"id": "n0"}), {semconv.OUTPUT_VALUE: '[{"page_content": "one"}]'}]
    )
    def test_a_span_that_lost_attributes(self, attributes):
        """Also where no list is left, and where what is left has other names for the documents."""
        record, reason = read(RETRIEVER | attributes, dropped=1)
        assert (record.retrieved_ids, reason) == (None, ATTRIBUTES_DROPPED)

    @pytest.mark.parametrize("key", [semconv.DOCUMENTS, semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT])
    def test_a_list_in_one_attribute_is_whole_whatever_else_was_lost(self, key):
        attributes = flat({"id": "n8"}, first=8) | {key: '[{"id": "n0"}, {"id": "n1"}]'}
        assert ids(RETRIEVER | attributes, dropped=23) == ["n0", "n1"]

    def test_json_that_a_limit_cut_off(self):
        record, reason = read(RETRIEVER | {semconv.DOCUMENTS: '[{"id": "n0"}, {"id": "n'})
        assert (record.retrieved_ids, reason) == (None, constants.MALFORMED_JSON)

    def test_hits_of_which_some_events_were_lost(self):
        hits = [Event(semconv.QUERY_RESULT, {f"{semconv.QUERY_RESULT}.id": "n9"})]
        assert read({}, events=hits, dropped_events=1)[1] == ATTRIBUTES_DROPPED

    def test_the_one_hit_that_older_chroma_instrumentations_record(self):
        hits = [Event(semconv.QUERY_RESULT, {f"{semconv.QUERY_RESULT}.id": "n0"})]
        assert read({semconv.CHROMA_RESULTS: 5}, events=hits)[1] == ATTRIBUTES_DROPPED
        assert ids({semconv.CHROMA_RESULTS: 1}, events=hits) == ["n0"]


def test_redacted_documents_are_not_captured():
    hidden = flat({"content": REDACTED, "metadata": REDACTED}) | {semconv.OUTPUT_VALUE: REDACTED}
    record, reason = read(RETRIEVER | hidden)
    assert (record.retrieved_ids, record.contexts, reason) == (None, None, CONTENT_NOT_CAPTURED)
    record, reason = read(RETRIEVER | flat({"id": "n1", "content": REDACTED}))
    assert (record.retrieved_ids, record.contexts, reason) == (["n1"], None, None)
    assert read(RETRIEVER)[1] == CONTENT_NOT_CAPTURED


@pytest.mark.parametrize("name", [semconv.QUERY_RESULT, semconv.SEARCH_RESULT])
def test_hits_of_a_vector_database(name):
    """One event a hit; hits of several queries at once stand one after the other."""
    hits = [Event(name, {f"{name}.id": found, f"{name}.document": f"text {found}"}) for found in (3, 1, 2, 1)]
    other = Event("db.query.embeddings", {"db.query.embeddings.vector": "[0.1]"})
    record, reason = read({}, events=[other, *hits])
    assert (record.retrieved_ids, reason) == (["3", "1", "2"], None)
    assert record.contexts == ["text 3", "text 1", "text 2"]


@pytest.mark.slow
def test_very_many_hits_are_read_as_fast_as_few():
    """The thread that writes reads them, and everybody waits for it: comparing each with each would take minutes."""
    hits = [Event(semconv.QUERY_RESULT, {f"{semconv.QUERY_RESULT}.id": f"d{n}"}) for n in range(200_000)]
    record, reason = read({}, events=hits)
    assert (len(record.retrieved_ids), reason) == (MAX_DOCUMENTS_KEPT, constants.TOO_MANY_DOCUMENTS)


def test_milvus_names_the_fields_of_a_hit_without_a_prefix():
    assert ids({}, events=[Event(semconv.QUERY_RESULT, {"id": 4}), Event(semconv.QUERY_RESULT, {"id": 2})]) == [
        "4",
        "2",
    ]


def test_trulens_has_ids_where_the_function_returns_them():
    returned = '[{"id": "d1", "text": "one", "score": 0.5}, {"id": "d2", "text": "two", "score": 0.25}]'
    attributes = {semconv.TRULENS_KIND: "retrieval", semconv.TRULENS_CONTEXTS: ["one", "two"]}
    record, _ = read(attributes | {semconv.TRULENS_RETURNED: returned})
    assert (record.retrieved_ids, record.contexts, record.scores) == (["d1", "d2"], ["one", "two"], [0.5, 0.25])


def test_trulens_has_texts_alone_where_the_function_does_not():
    attributes = {semconv.TRULENS_KIND: "retrieval", semconv.TRULENS_CONTEXTS: ["one", "[2] two"]}
    record, reason = read(attributes)
    assert (record.retrieved_ids, record.contexts, reason) == (None, ["one", "[2] two"], constants.NO_IDS)


def test_a_document_found_twice_in_one_list_stays_there_twice():
    """The list is what the retriever returned; metrics decide what a duplicate means."""
    assert ids(RETRIEVER | {semconv.DOCUMENTS: '[{"id": "n1"}, {"id": "n1"}]'}) == ["n1", "n1"]
