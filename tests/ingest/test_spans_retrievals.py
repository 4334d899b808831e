"""Which retrievals of a request count, what rerankers make of them, and how several lists become one."""

from __future__ import annotations

import json

import pytest

from ragmon.core import constants, semconv
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, NO_RETRIEVAL, Event, SpanOptions
from tests.support.recorded_spans import made

CHAIN = {semconv.SPAN_KIND: semconv.CHAIN}


def listed(*ids):
    return json.dumps([{"id": name} for name in ids])


def retrieval(*ids, **fields):
    return made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: listed(*ids)}, **fields)


def reranker(*ids, given=(), **fields):
    held = {semconv.SPAN_KIND: semconv.RERANKER, semconv.OUTPUT_VALUE: listed(*ids)}
    flat = {f"{semconv.RERANKER_INPUT}.{place}.document.id": name for place, name in enumerate(given)}
    return made(held | flat, **fields)


def ranked(*spans, **options):
    """Final ids, candidates, and why ids are missing."""
    mapped = to_record(spans, SpanOptions(**options))
    return mapped.record.retrieved_ids, mapped.record.candidate_ids, mapped.missing.get("retrieved_ids")


SHAPED = [{"id": "a", "text": "One."}, {"id": "b", "text": "Two."}]


@pytest.mark.parametrize("returned", [json.dumps({"output": SHAPED}), json.dumps({"result": SHAPED}), str(SHAPED)])
def test_a_retriever_returns_documents_in_the_shapes_of_tools(returned):
    """As LangSmith's functions and decorated Python functions return them."""
    assert ranked(made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.OUTPUT_VALUE: returned}))[0] == ["a", "b"]


def test_the_fields_of_a_hit_may_be_written_as_python_shows_them():
    """As OpenLLMetry does for Milvus."""
    hits = [{"db.search.result.id": name, "db.search.result.entity": str({"text": "One."})} for name in "ab"]
    search = made({"db.system": "milvus"}, events=[Event(semconv.SEARCH_RESULT, hit) for hit in hits])
    record = to_record([search]).record
    assert (record.retrieved_ids, record.contexts) == (["a", "b"], ["One.", "One."])


def test_the_documents_of_a_graph_that_failed_stand_in_the_state_of_its_steps():
    """As OpenLLMetry writes them: a step is a task."""
    graph = made({semconv.TRACELOOP_KIND: "workflow"}, end=9, failed=True)
    state = {"outputs": {"context": SHAPED}}
    step = {semconv.OPERATION: semconv.EXECUTE_TASK, semconv.ENTITY_OUTPUT: json.dumps(state)}
    assert ranked(graph, made(step, parent=graph, start=1, end=2))[0] == ["a", "b"]


class TestNested:
    def test_the_outermost_retrieval_with_documents_counts(self):
        outer = retrieval("a", "b", end=9)
        step = made({}, parent=outer)
        assert ranked(retrieval("a", "b", parent=step), step, outer) == (["a", "b"], None, None)

    def test_an_outer_span_without_documents_leaves_it_to_the_inner_one(self):
        outer = made({semconv.SPAN_KIND: semconv.RETRIEVER}, end=9)
        assert ranked(outer, retrieval("a", parent=outer)) == (["a"], None, None)

    def test_what_a_reranking_retriever_chose_from_are_its_candidates(self):
        outer = retrieval("c", "a", end=9)
        assert ranked(outer, retrieval("a", "b", parent=outer), retrieval("c", parent=outer)) == (
            ["c", "a"],
            ["a", "b", "c"],
            None,
        )

    def test_a_retriever_that_returns_other_documents_than_those_inside_it_chose_from_none(self):
        """LlamaIndex's merging retriever returns parents of what it found."""
        outer = retrieval("parent", end=9)
        assert ranked(outer, retrieval("a", "b", parent=outer)) == (["parent"], None, None)

    def test_a_reranker_inside_a_retriever_is_part_of_it(self):
        outer = retrieval("b", end=9)
        spans = outer, retrieval("a", "b", parent=outer), reranker("b", parent=outer, start=1, end=2)
        assert ranked(*spans) == (["b"], ["a", "b"], None)

    def test_a_database_client_inside_a_retriever_names_its_documents(self):
        """Where it found as many, and the same texts if both tell them."""
        told = {semconv.SPAN_KIND: semconv.RETRIEVER, semconv.OUTPUT_VALUE: '[{"text": "one"}, {"text": "two"}]'}
        outer = made(told, end=9)

        def client(*texts):
            hits = [
                {f"{semconv.QUERY_RESULT}.id": n, f"{semconv.QUERY_RESULT}.document": text}
                for n, text in enumerate(texts)
            ]
            return made({}, parent=outer, events=[Event(semconv.QUERY_RESULT, hit) for hit in hits])

        assert ranked(outer, client("one", "two"))[0] == ["0", "1"]
        assert ranked(outer, client("one", None))[0] == ["0", "1"]
        assert ranked(outer, client("one", "other"))[2] == constants.NO_IDS
        assert ranked(outer, client("one"))[2] == constants.NO_IDS


class TestReranked:
    def test_a_later_reranker_replaces_the_list_it_chose_from(self):
        assert ranked(retrieval("a", "b", "c"), reranker("c", "a", start=1, end=2)) == (
            ["c", "a"],
            ["a", "b", "c"],
            None,
        )

    def test_one_reranker_after_another(self):
        spans = retrieval("a", "b", "c"), reranker("c", "a", start=1, end=2), reranker("a", start=2, end=3)
        assert ranked(*spans) == (["a"], ["a", "b", "c"], None)

    def test_only_the_list_it_shares_documents_with(self):
        spans = retrieval("a", "b"), retrieval("x", "y", end=1.5), reranker("b", given=("a", "b"), start=2, end=3)
        assert ranked(*spans) == (["x", "y", "b"], ["a", "b"], None)

    def test_a_reranker_over_several_retrievals(self):
        spans = retrieval("a", "b"), retrieval("x", end=1.5), reranker("x", "b", start=2, end=3)
        assert ranked(*spans) == (["x", "b"], ["a", "b", "x"], None)

    def test_a_reranker_that_kept_nothing(self):
        assert ranked(retrieval("a"), reranker(given=("a",), start=1, end=2)) == ([], ["a"], None)

    def test_what_it_was_given_are_the_candidates_where_no_retriever_tells(self):
        assert ranked(reranker("b", given=("a", "b"))) == (["b"], ["a", "b"], None)

    def test_without_its_output_the_final_ranking_is_unknown(self):
        silent = made({semconv.OPERATION: "rerank"}, start=1, end=2)
        assert ranked(retrieval("a", "b"), silent) == (None, ["a", "b"], CONTENT_NOT_CAPTURED)

    def test_a_llama_index_postprocessor_is_known_by_its_nodes(self):
        node = "<NodeWithScore(node=TextNode(id_={}), score=0.5)>"
        held = {
            semconv.INPUT_VALUE: json.dumps({"nodes": [node.format("a"), node.format("b")]}),
            semconv.OUTPUT_VALUE: json.dumps([node.format("b")]),
        }
        assert ranked(retrieval("a", "b"), made(CHAIN | held, start=1, end=2)) == (["b"], ["a", "b"], None)


def texts(*spans):
    record = to_record(spans).record
    return record.retrieved_ids, record.contexts, record.scores


FOUND = [{"id": name, "content": text, "score": 0.1} for name, text in zip("abc", ("one", "two", "three"), strict=True)]


class TestReranker:
    """What a reranker leaves out is known from the documents that it was given, by their ids, texts or places."""

    @pytest.mark.parametrize(
        "output",
        [
            [{"id": "c", "score": 0.9}, {"id": "a", "score": 0.4}],
            [{"node": {"id_": "c"}, "score": 0.9}, {"node": {"id_": "a"}, "score": 0.4}],
            [f"<NodeWithScore(node=TextNode(id_={name}), score={score})>" for name, score in (("c", 0.9), ("a", 0.4))],
            [{"text": "three", "score": 0.9}, {"text": "one", "score": 0.4}],
            {"results": [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.4}]},
            {
                "results": [
                    {"index": 2, "relevance_score": 0.9, "document": {"text": "three"}},
                    {"index": 0, "relevance_score": 0.4, "document": {"text": "one"}},
                ]
            },
            {"data": [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.4}]},
            [{"corpus_id": 2, "score": 0.9}, {"corpus_id": 0, "score": 0.4}],
        ],
        ids=["ids", "nodes", "LlamaIndex", "texts", "Cohere", "Cohere with texts", "Voyage", "sentence-transformers"],
    )
    def test_after_a_retriever(self, output):
        found = made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: json.dumps(FOUND)})
        final = made({semconv.SPAN_KIND: semconv.RERANKER, semconv.OUTPUT_VALUE: json.dumps(output)}, start=1, end=2)
        assert texts(found, final) == (["c", "a"], ["three", "one"], [0.9, 0.4])

    def test_that_was_given_the_texts(self):
        told = json.dumps([{"index": 1, "score": 0.9}])
        given = {
            f"{semconv.RERANKER_INPUT}.{place}.document.{member}": value
            for place, found in enumerate(FOUND)
            for member, value in found.items()
        }
        final = made({semconv.SPAN_KIND: semconv.RERANKER, semconv.OUTPUT_VALUE: told} | given)
        assert texts(final) == (["b"], ["two"], [0.9])

    def test_inside_a_retriever(self):
        outer = retrieval("c", "a", end=9)
        inner = made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: json.dumps(FOUND)}, parent=outer)
        assert texts(outer, inner)[:2] == (["c", "a"], ["three", "one"])

    def test_places_among_several_lists_say_nothing(self):
        told = json.dumps([{"index": 1, "score": 0.9}])
        final = made({semconv.SPAN_KIND: semconv.RERANKER, semconv.OUTPUT_VALUE: told}, start=2, end=3)
        assert ranked(retrieval("a", "b"), retrieval("c", end=1.5), final)[0] is None


@pytest.mark.parametrize("name", ["context", "documents", "source_documents", "retrieved_docs"])
@pytest.mark.parametrize("key", [semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT])
def test_a_request_that_returns_its_documents_beside_the_answer(name, key):
    """LangGraph's state, where no step of it is known as a retriever."""
    state = {"question": "Is it?", name: FOUND, "answer": "It is [1]."}
    state = {"outputs": state} if key == semconv.ENTITY_OUTPUT else state
    root = made(CHAIN | {semconv.INPUT_VALUE: "Is it?", key: json.dumps(state)}, end=9)
    record = to_record([root, made({semconv.OPERATION: "chat"}, parent=root)]).record
    assert (record.retrieved_ids, record.contexts) == (["a", "b", "c"], ["one", "two", "three"])
    retriever = retrieval("x", parent=root)
    assert to_record([root, retriever]).record.retrieved_ids == ["x"]


def test_documents_in_the_state_that_a_failed_graph_left_on_its_steps():
    root = made(CHAIN | {semconv.INPUT_VALUE: "Is it?"}, end=9, failed=True)
    step = made(CHAIN | {semconv.OUTPUT_VALUE: json.dumps({"context": FOUND})}, parent=root, name="retrieve")
    asked = made({semconv.SPAN_KIND: semconv.LLM}, parent=root, start=2, end=3, failed=True)
    assert to_record([root, step, asked]).record.retrieved_ids == ["a", "b", "c"]


def test_a_llama_index_step_that_returns_scored_nodes_for_a_query_retrieves():
    """Its instrumentations call it a chain or a task; a step that was given neither nodes nor a query is one."""

    def step(asked):
        return made(
            CHAIN | {semconv.INPUT_VALUE: asked, semconv.OUTPUT_VALUE: '["<NodeWithScore(node=N(id_=a), score=1)>"]'}
        )

    assert ranked(step('{"str_or_query_bundle": "Is it?"}'))[0] == ["a"]
    model = made({semconv.OPERATION: "chat"})
    assert ranked(step('{"text": "Is it?"}'), model)[2] == ranked(step("Is it?"), model)[2] == NO_RETRIEVAL


class TestSeveral:
    SPANS = (retrieval("a", "b"), retrieval("c", "b", end=2), retrieval("d", start=-5, end=3))

    @pytest.mark.parametrize(
        ("merge", "expected"),
        [("concat", ["a", "b", "c", "d"]), ("last", ["d"]), ("rrf", ["b", "a", "c", "d"])],
    )
    def test_independent_retrievals_in_the_order_they_ended(self, merge, expected):
        assert ranked(*self.SPANS, merge=merge) == (expected, None, None)
        assert ranked(*reversed(self.SPANS), merge=merge) == (expected, None, None)

    @pytest.mark.parametrize(("merge", "ids"), [("concat", ["a", "b", "c"]), ("rrf", ["b", "a", "c"])])
    def test_a_document_has_one_place_however_its_text_is_cut_out(self, merge, ids):
        """Retrievers return other passages of it, or mark what was searched for; one without an id is its text."""

        def found(*documents, **fields):
            told = json.dumps([dict(zip(("id", "content"), one, strict=True)) for one in documents])
            return made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: told}, **fields)

        spans = found(("a", "one"), ("b", "two")), found(("b", "<b>two</b>"), ("c", "three"), end=2)
        record = to_record(spans, SpanOptions(merge=merge)).record
        assert record.retrieved_ids == ids
        assert record.contexts == [{"a": "one", "b": "two", "c": "three"}[name] for name in ids]

    def test_scores_of_different_retrievers_do_not_stand_in_one_list(self):
        scored = [made({semconv.DOCUMENTS: json.dumps([{"id": name, "score": 1}])}) for name in "ab"]
        assert to_record(scored[:1]).record.scores == [1.0]
        assert to_record(scored).record.scores is None

    def test_one_that_lost_attributes_leaves_all_ids_unknown(self):
        cut = made({semconv.SPAN_KIND: semconv.RETRIEVER}, dropped=9, end=0.5)
        assert ranked(*self.SPANS, cut) == (None, None, ATTRIBUTES_DROPPED)
        assert ranked(*self.SPANS, cut, merge="last")[0] == ["d"]

    def test_one_whose_documents_were_not_recorded_leaves_all_ids_unknown(self):
        assert ranked(*self.SPANS, made({semconv.OPERATION: "retrieval"}))[2] == CONTENT_NOT_CAPTURED

    def test_one_that_failed_found_nothing_to_miss(self):
        assert ranked(retrieval("a"), made({semconv.OPERATION: "retrieval"}, failed=True, end=0.5))[0] == ["a"]


def test_ids_that_only_another_step_of_a_langchain_request_wrote():
    """OpenLLMetry's retriever span has texts and metadata; whole documents stand on the step that got them."""

    def written(**parts):
        return {"lc": 1, "type": "constructor", "id": ["langchain", "Document"], "kwargs": parts}

    def retriever(*documents):
        return made(
            {semconv.OPERATION: "vector_db_retrieve", semconv.ENTITY_OUTPUT: json.dumps({"documents": documents})}
        )

    one, two = {"page_content": "one"}, {"page_content": "two", "metadata": {"chunk_id": "c2"}}
    step = made({semconv.ENTITY_INPUT: json.dumps({"inputs": [written(id="n1", **one), written(id="n2", **two)]})})
    assert ranked(retriever(one, two), step)[0] == ["n1", "n2"]
    assert ranked(retriever(two))[0] == ["c2"]
    # The same text twice: which of them was found cannot be told, and c2 is no name of the same kind.
    again = made({semconv.ENTITY_INPUT: json.dumps([written(id="n3", **one)])})
    assert ranked(retriever(one, two), step, again)[2] == constants.NO_IDS
    assert ranked(retriever(one, two), step, id_from=("metadata", "chunk_id"))[2] == constants.NO_IDS


def test_a_request_that_retrieved_nothing_anybody_saw():
    assert ranked(made({semconv.OPERATION: "chat"}))[2] == NO_RETRIEVAL


def test_documents_on_the_span_of_the_request_itself():
    """OpenTelemetry's conventions allow it; a retrieval inside knows better."""
    whole = made({semconv.OPERATION: semconv.INVOKE_WORKFLOW, semconv.DOCUMENTS: listed("a", "b")}, end=9)
    assert ranked(whole) == (["a", "b"], None, None)
    assert ranked(whole, retrieval("c", parent=whole)) == (["c"], None, None)
    assert ranked(whole, made({semconv.OPERATION: "chat"}, parent=whole))[0] == ["a", "b"]
