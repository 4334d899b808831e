"""The shapes other programs write, each as its source document shows it, and the record it becomes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from ragmon.core.record import Answer, Latency, Record, TextFacts
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.spans.span import NO_OPTIONS, SpanOptions
from ragmon.ingest.tables import TableOptions
from ragmon.metrics.facts import OUTCOME_UNKNOWN, FactReader, Facts
from ragmon.scoring.scorer import Scorer
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.trace_files import take


def read(**fields):
    """The record a JSON object becomes."""
    return decode(json.dumps(fields, ensure_ascii=False).encode())


SEED_000 = {
    "qid": "A001",
    "q": "What is X?",
    "retrieved_ids": ["p12#1", "p12#2"],
    "answer_json": {"claim": "X is a constrained map.", "citations": ["p12#1"]},
}
SEED_000_RECORD = Record(
    qid="A001",
    q="What is X?",
    retrieved_ids=["p12#1", "p12#2"],
    answer_json=Answer(claim="X is a constrained map.", citations=["p12#1"]),
)


def test_a_trace_of_the_eval_page():
    assert read(**SEED_000) == SEED_000_RECORD


def test_a_trace_of_the_eval_page_may_call_its_id_q_id():
    renamed = {"q_id" if name == "qid" else name: value for name, value in SEED_000.items()}
    assert read(**renamed) == SEED_000_RECORD


def test_where_both_ids_stand_qid_is_the_one():
    assert read(qid="a", q_id="b").qid == "a"
    assert read(qid=None, q_id="b").qid == "b"
    assert read(qid=0, q_id="b").qid == "0"


def test_what_ragmon_does_not_know_of_the_eval_page_is_passed_over():
    found = read(**SEED_000, model={"name": "bert"}, user=None, embedding=[0.1, 0.2], meta={"a": {"b": None}})
    assert found == SEED_000_RECORD


def test_the_model_and_the_user_are_read_where_they_are_names():
    record = read(**SEED_000, model="bert", user=7)
    assert (record.model, record.user) == ("bert", "7")


def test_a_trace_without_an_answer_says_so():
    """The published scorer takes it for an answer; here it has none."""
    for missing in ({}, {"answer_json": None}):
        record = read(qid="A001", q="What is X?", retrieved_ids=["p12#1"], **missing)
        assert record.answer_json is None
        assert not Facts._make(FactReader().read(record, None)).answered


@pytest.mark.parametrize("name", ["q", "question"])
def test_a_trace_of_example_08(name):
    record = read(
        ts=1_763_683_200,
        chunks=[{"id": "p12#1"}, {"id": "p13#4"}],
        answer="- X is a constrained map.\n- citations: [p12#1, p13#4]",
        ok=True,
        **{name: "What is X?"},
    )
    assert record == Record(
        ts=1_763_683_200,
        q="What is X?",
        retrieved_ids=["p12#1", "p13#4"],
        answer_json=Answer(claim="X is a constrained map.", citations=["p12#1", "p13#4"]),
    )


def test_the_citations_field_of_example_08_wins_over_what_the_text_says():
    written = "X. citations: [p1]"
    assert read(q="X?", answer=written, citations=["p2", 3]).answer_json == Answer(claim="X.", citations=["p2", "3"])
    assert read(q="X?", answer=written, citations=[]).answer_json == Answer(claim="X.", citations=[])


def test_a_citations_field_that_names_no_document_leaves_the_text_to_speak():
    assert read(q="X?", answer="X. citations: [p1]", citations=True).answer_json.citations == ["p1"]
    assert read(q="X?", answer="X.", citations=True).answer_json.citations is None
    assert read(q="X?", answer="X. citations: [p1]", citations="p2").answer_json.citations == ["p1"]


def test_an_answer_of_example_08_that_is_not_ok_is_an_error():
    assert read(q="X?", answer="", ok=False).error == "not ok"
    assert read(q="X?", answer="", ok=False, error="timeout").error == "timeout"
    assert read(q="X?", answer="X.", ok=True).error is None


def test_a_refusal_of_example_08_is_one():
    record = read(q="X?", chunks=[], answer="not in context", ok=True)
    assert Facts._make(FactReader().read(record, None)).refused


def test_chunks_may_carry_text_and_scores():
    chunks = [{"id": "a", "text": "one", "score": 0.9}, {"id": "b", "text": "two", "score": 0.1}]
    record = read(q="X?", chunks=chunks, answer="X.")
    assert (record.contexts, record.scores) == (["one", "two"], [0.9, 0.1])


def test_texts_and_scores_that_some_chunks_lack_are_left_out_whole():
    """A list with holes would shift ranks."""
    record = read(q="X?", chunks=[{"id": "a", "text": "one", "score": 1}, {"id": "b"}], answer="X.")
    assert (record.retrieved_ids, record.contexts, record.scores) == (["a", "b"], None, None)


def test_no_chunks_is_a_retrieval_that_found_nothing_and_null_is_one_nobody_captured():
    assert read(q="X?", chunks=[], answer="X.").retrieved_ids == []
    assert read(q="X?", chunks=None, answer="X.").retrieved_ids is None


LIVE = {
    "qid": "q1",
    "question": "Where is the anchor?",
    "retrieval": {
        "topk": [
            {"id": "s1", "score": 0.81, "type": "prose", "offsets": [0, 120]},
            {"id": "s2", "score": 0.52, "type": "table", "offsets": [7, 90]},
        ],
        "metric": "cosine",
        "analyzer": "bm25",
        "index_hash": "sha256:9f1c",
        "embed_model": "e5",
        "ΔS_list": [0.3, 0.4],
        "λ_states": ["→", "→"],
    },
    "answer": {"citations": [{"id": "s1", "offsets": [4, 80]}], "coverage": 0.7, "ΔS": 0.31, "λ_final": "→"},
    "perf": {"t_retrieve_ms": 120, "t_reason_ms": 900},
    "context": {"client": "web", "build": "v1.3.2", "region": "eu"},
    "ts": "2025-11-21T00:00:00Z",
}


def test_the_live_record_of_the_chunking_page():
    assert read(**LIVE) == Record(
        ts=1_763_683_200,
        qid="q1",
        q="Where is the anchor?",
        retrieved_ids=["s1", "s2"],
        scores=[0.81, 0.52],
        answer_json=Answer(citations=["s1"]),
        latency_ms=Latency(total=1020, retrieve=120, generate=900),
        index_hash="sha256:9f1c",
        build="v1.3.2",
        facts=TextFacts(answered=True, refused=False),
        tags={"client": "web", "region": "eu"},
    )


def test_a_live_record_without_text_and_citations_may_have_been_a_refusal():
    """Nobody can tell, so nobody counts it as an empty answer."""
    record = read(**LIVE | {"answer": {"citations": [], "coverage": 0}})
    assert Facts._make(FactReader().read(record, None)).has(OUTCOME_UNKNOWN)


def test_a_live_record_with_its_text_is_judged_by_the_text():
    answer = {"claim": "not in context", "citations": []}
    assert Facts._make(FactReader().read(read(**LIVE | {"answer": answer}), None)).refused


def test_own_tags_win_over_the_context():
    assert read(**LIVE, tags={"region": "us"}).tags == {"client": "web", "region": "us"}


def test_a_live_record_with_one_stage_has_no_total():
    """The other stage may have taken hours."""
    assert read(**LIVE | {"perf": {"t_retrieve_ms": 120}}).latency_ms == Latency(retrieve=120)
    assert read(**LIVE | {"perf": {}}).latency_ms is None


SCENARIO = {
    "trace_id": "535fea2f5dddc43ea55244f677e44e16",
    "ts": 1_763_683_200.842,
    "qid": None,
    "q": "Who held the rights?",
    "retrieved_ids": ["a#1", "b#2"],
    "answer_json": {"claim": "ITV", "citations": ["a#1"]},
    "model": "bert",
    "probe": False,
    "retrieval_ms": 33.6,
    "generation_ms": 670.6,
    "latency_ms": 704.2,
    "error": None,
}


def test_a_log_with_probe_flag_and_latencies_as_numbers():
    assert read(**SCENARIO) == Record(
        trace_id="535fea2f5dddc43ea55244f677e44e16",
        ts=1_763_683_200.842,
        source="live",
        q="Who held the rights?",
        retrieved_ids=["a#1", "b#2"],
        answer_json=Answer(claim="ITV", citations=["a#1"]),
        latency_ms=Latency(total=704.2, retrieve=33.6, generate=670.6),
        model="bert",
    )


@pytest.mark.parametrize("latency", [704.2, {"total": 704.2}, None])
@pytest.mark.parametrize(("probe", "source"), [(True, "probe"), (False, "live")])
def test_the_probe_flag_names_the_source_however_the_latency_is_written(probe, source, latency):
    assert read(**SCENARIO | {"qid": "q1", "probe": probe, "latency_ms": latency}).source == source


def test_a_record_that_names_no_source_is_left_without_one():
    assert read(**SEED_000).source is None


def test_an_empty_error_is_no_error():
    """On the fast way and on the slow one."""
    for latency in (None, 5):
        record = read(**SEED_000, error="", latency_ms=latency)
        assert not Facts._make(FactReader().read(record, None)).error


def test_other_shapes_may_be_mixed_in_one_file(tmp_path):
    shapes = [SEED_000, LIVE, SCENARIO, {"q": "X?", "chunks": [{"id": "a"}], "answer": "X."}]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(shape) + "\n" for shape in shapes), encoding="utf-8")
    records, intake = take(path)
    assert [record.q for record in records] == ["What is X?", "Where is the anchor?", "Who held the rights?", "X?"]
    assert (intake.read, intake.rejected) == (4, {})


@pytest.mark.parametrize("name", ["chunks", "retrieved_ids"])
def test_documents_are_found_beside_a_complete_answer_too(name):
    """A record of the eval page whose retrieval is written as in Example 08."""
    documents = {"chunks": [{"id": "a"}], "retrieved_ids": ["a"]}[name]
    answer = {"claim": "X", "citations": ["a"]}
    assert read(qid="q", q="X?", answer_json=answer, **{name: documents}).retrieved_ids == ["a"]


def test_the_question_is_found_beside_a_complete_trace_too():
    """A gold item may be found by it when the id is another system's."""
    renamed = {"question" if name == "q" else name: value for name, value in SEED_000.items()}
    assert read(**renamed) == SEED_000_RECORD


@pytest.mark.parametrize("empty", [{"ts": 5}, {"answer": None}, {"retrieval": {}}, {"kind": None}, {"session": "s"}])
def test_an_object_in_which_nothing_is_a_trace_is_rejected(empty):
    with pytest.raises(Rejected, match="no question"):
        read(**empty)


def test_the_eval_page_and_example_08_tell_the_same_of_the_same_answers(shared):
    """One pipeline, logged in both shapes, gives the same claims, citations and documents in the same order."""
    small = shared / "squad2" / "small"
    page, _ = take(small / "traces.jsonl")
    example, intake = take(small / "traces_002.jsonl")
    assert intake.rejected == {}
    for one, other in zip(page, example, strict=True):
        assert (one.q, one.retrieved_ids) == (other.q, other.retrieved_ids)
        assert one.answer_json.claim == other.answer_json.claim
        assert one.answer_json.citations == (other.answer_json.citations or [])


@pytest.mark.slow
def test_a_day_of_the_scenario_logs_is_read_without_a_loss(shared):
    folder = shared / "scenario" / "standard"
    records, intake = take(folder / "stream.jsonl.gz")
    assert (intake.read, intake.rejected) == (len(records), {})
    assert {record.source for record in records} == {"live", "probe"}
    assert all(earlier.ts <= later.ts for earlier, later in pairwise(records))
    assert all(record.latency_ms.total >= record.latency_ms.retrieve for record in records)
    scorer = Scorer(GoldSet.load(folder / "gold.jsonl"))
    assert all(scorer.observe(record) for record in records[:2000])


# --- what answers and documents say by themselves ---------------------------------------------------------------------

ASKED = {"question": "Who?", "retrieved_ids": ["d1", "d2"]}


@pytest.mark.parametrize(
    ("fields", "citations"),
    [
        ({"answer": "Rollo did [2]."}, ["d2"]),
        ({"answer": "Rollo did【1】。"}, ["d1"]),
        ({"response": "Rollo did [d2]."}, ["d2"]),
        ({"answer": "Rollo did [2].", "citations": []}, []),
        ({"answer": "Rollo did."}, None),
        ({"answer": "Rollo did [2].", "retrieved_ids": None}, None),
        ({"answer_json": {"claim": "Rollo did [2]."}}, None),
    ],
)
def test_marks_in_a_plain_answer_are_its_citations_where_it_has_no_list(fields, citations):
    """The trace contract has a place for citations: there a missing list stays missing."""
    assert read(**{**ASKED, **fields}).answer_json.citations == citations


DOCUMENT = {"id": "e1f72df8", "text": "Rollo.", "score": 0.5, "metadata": {"page": "normans#1"}}
BY_PAGE = TableOptions(id_from=("metadata", "page"))


@pytest.mark.parametrize("name", ["retrieved_ids", "chunks", "documents", "sources"])
def test_the_id_of_a_document_stands_where_id_from_says(name):
    line = json.dumps({"question": "Who?", "answer": "Rollo.", name: [DOCUMENT]}).encode()
    assert decode(line).retrieved_ids == ["e1f72df8"]
    assert decode(line, None, BY_PAGE).retrieved_ids == ["normans#1"]


def test_a_file_of_spans_is_read_with_id_from_and_retrievers(tmp_path):
    root = made({"openinference.span.kind": "AGENT", "input.value": "Who?", "output.value": "Rollo."})
    result = {"openinference.span.kind": "TOOL", "tool.name": "look", "output.value": json.dumps([DOCUMENT])}
    path = tmp_path / "spans.json"
    path.write_bytes(as_json(export([made(result, parent=root, end=0.5), root])))
    options = SpanOptions(id_from=("metadata", "page"), retrievers=("look",))
    (usual,), (record,) = (
        list(read_files([str(path)], ReadSummary(), span_options=each)) for each in (NO_OPTIONS, options)
    )
    assert (usual.retrieved_ids, record.retrieved_ids) == (["e1f72df8"], ["normans#1"])
