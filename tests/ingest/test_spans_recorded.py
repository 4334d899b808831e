"""Every recorded trace becomes the record that its instrumentation's spans allow, and says what they leave out."""

from __future__ import annotations

import pytest

from ragmon.core import constants
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import CONTENT_NOT_CAPTURED, NOT_RAG, Mapped, SpanOptions
from tests.support.recorded_spans import recorded

LANGCHAIN = ["S1#2", "S1#1"]
LLAMA_INDEX = ["S1#2", "S1#3"]
HAYSTACK = ["S1#0", "S1#1"]
REPLY = ("X is 1", ["S1#0"])
MOCKED = (" ".join(["text"] * 16), None)


@pytest.mark.parametrize(
    ("name", "ids", "answer", "stages"),
    [
        ("oi_langchain", LANGCHAIN, REPLY, {"retrieve", "generate"}),
        ("oi_langchain_dualgenai", LANGCHAIN, REPLY, {"retrieve", "generate"}),
        ("tl_langchain", LANGCHAIN, REPLY, {"retrieve", "generate"}),
        ("og_langchain", LANGCHAIN, None, {"retrieve"}),
        ("oi_llamaindex", LLAMA_INDEX, MOCKED, {"retrieve", "generate"}),
        ("tl_llamaindex", LLAMA_INDEX, MOCKED, {"retrieve", "generate"}),
        ("og_llamaindex", LLAMA_INDEX, None, {"retrieve"}),
        ("oi_haystack", HAYSTACK, REPLY, {"retrieve", "generate"}),
    ],
)
def test_question_ids_answer_and_stages_of_every_instrumentation(data, name, ids, answer, stages):
    spans = recorded(data / "spans" / f"{name}.json")[-1]
    mapped = to_record(spans)
    record = mapped.record
    assert (record.v, record.source, record.trace_id) == (constants.CONTRACT_VERSION, constants.LIVE, spans[0].trace_id)
    assert (record.q, record.retrieved_ids, record.error) == ("What is X?", ids, None)
    said = record.answer_json
    assert (None if said is None else (said.claim, said.citations)) == answer
    assert record.candidate_ids is None
    root = next(span for span in spans if span.parent_id is None)
    assert record.ts == root.end_ns / 1e9
    assert record.latency_ms.total == pytest.approx((root.end_ns - root.start_ns) / 1e6)
    assert {stage for stage in ("retrieve", "generate") if getattr(record.latency_ms, stage)} == stages
    assert all(getattr(record.latency_ms, stage) < record.latency_ms.total + 1e-9 for stage in stages)


@pytest.mark.parametrize(
    ("name", "texts", "scores"),
    [
        ("oi_langchain", ["chunk text 2", "chunk text 1"], None),
        ("oi_langchain_dualgenai", ["chunk text 2", "chunk text 1"], None),
        ("tl_langchain", ["chunk text 2", "chunk text 1"], None),
        ("og_langchain", None, None),
        ("oi_llamaindex", ["chunk text 2", "chunk text 3"], [1.0, 1.0]),
        ("tl_llamaindex", ["chunk text 2", "chunk text 3"], [1.0, 1.0]),
        ("og_llamaindex", None, [1.0, 1.0]),
        ("oi_haystack", ["chunk text X 0", "chunk text X 1"], [0.1317, 0.1317]),
    ],
)
def test_contexts_and_scores_where_the_instrumentation_records_them(data, name, texts, scores):
    record = to_record(recorded(data / "spans" / f"{name}.json")[-1]).record
    assert record.contexts == texts
    assert record.scores == (None if scores is None else pytest.approx(scores, abs=1e-4))


def test_what_an_instrumentation_leaves_out_is_named(data):
    """OpenTelemetry's own writes no messages by default; a lone retrieval was never answered."""
    folder = data / "spans"
    assert to_record(recorded(folder / "og_langchain.json")[0]).missing == {"answer_json": CONTENT_NOT_CAPTURED}
    assert to_record(recorded(folder / "og_llamaindex.json")[0]).missing == {"answer_json": constants.NO_ANSWER}
    assert to_record(recorded(folder / "oi_haystack.json")[0]).missing == {}


@pytest.mark.parametrize("name", ["oi_llamaindex", "tl_llamaindex"])
def test_building_an_index_is_no_request(data, name):
    assert to_record(recorded(data / "spans" / f"{name}.json")[0]) == Mapped(None, NOT_RAG)


@pytest.mark.parametrize("name", ["oi_langchain", "oi_langchain_dualgenai", "tl_langchain", "oi_haystack"])
def test_id_from_goes_before_the_documents_own_ids(data, name):
    spans = recorded(data / "spans" / f"{name}.json")[-1]
    pages = to_record(spans, SpanOptions(id_from=("metadata", "page"))).record.retrieved_ids
    assert pages == (None if name == "oi_haystack" else ["2", "1"])
    assert to_record(spans, SpanOptions(id_from=("metadata", "source"))).record.retrieved_ids == ["S1", "S1"]


def test_openllmetry_alone_on_langchain_needs_id_from(data):
    """Its retriever span has no ids; only steps around it that write whole documents do."""
    chain = recorded(data / "spans" / "tl_langchain.json")[0]
    retriever = [span for span in chain if "VectorStoreRetriever" in span.name]
    mapped = to_record(retriever)
    assert (mapped.record.retrieved_ids, mapped.missing["retrieved_ids"]) == (None, constants.NO_IDS)
    assert to_record(retriever, SpanOptions(id_from=("metadata", "page"))).record.retrieved_ids == ["2", "1"]
    assert to_record(chain).record.retrieved_ids == LANGCHAIN


def test_nested_retrieval_spans_count_once(data):
    """LlamaIndex's instrumentations leave two retriever spans, one in the other, for one retrieval."""
    for name in ("oi_llamaindex", "tl_llamaindex"):
        spans = recorded(data / "spans" / f"{name}.json")[-1]
        retrievers = [span for span in spans if "Retriever." in span.name]
        assert len(retrievers) == 2
        record = to_record(spans, SpanOptions(merge="concat")).record
        assert (record.retrieved_ids, record.candidate_ids) == (LLAMA_INDEX, None)
        outer = max(retrievers, key=lambda span: span.end_ns - span.start_ns)
        assert record.latency_ms.retrieve == pytest.approx((outer.end_ns - outer.start_ns) / 1e6)
