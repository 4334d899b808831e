"""What ragmon finds in a call by itself: the question among the arguments, the answer in any shape a result has."""

from __future__ import annotations

import collections
import dataclasses
from types import SimpleNamespace
from typing import NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

import ragmon
from ragmon.capture import objects
from ragmon.config.gates import default_gates
from ragmon.core import errors, shapes
from ragmon.gates.coverage import capture_reports
from ragmon.scoring.scorer import Scorer
from ragmon.testing import capture_traces
from tests.support.capturing import found, record_of


@dataclasses.dataclass
class Reply:
    answer: str
    citations: list[str]
    documents: list[object]


@dataclasses.dataclass(slots=True)
class SlottedReply:
    answer: str
    citations: list[str]
    documents: list[object]


class ModelReply(BaseModel):
    answer: str
    citations: list[str]
    documents: list[object]


class StructReply(msgspec.Struct):
    answer: str
    citations: list[str]
    documents: list[object]


class TupleReply(NamedTuple):
    answer: str
    citations: list[str]
    documents: list[object]


class Document:
    """As LangChain has it: text and metadata, an id only if somebody gave one."""

    def __init__(self, page_content, metadata=None, id=None):  # noqa: A002 - LangChain's own name
        self.page_content = page_content
        self.metadata = metadata or {}
        self.id = id


class NodeWithScore:
    """As LlamaIndex has it: the node lies inside."""

    def __init__(self, text, node_id, score):
        self.node = SimpleNamespace(text=text, node_id=node_id, metadata={"file_name": "a.pdf"})
        self.score = score


class Message:
    """As LangChain's chat models answer: text, or a list of parts."""

    def __init__(self, content):
        self.content = content

    def text(self):
        return "a method is not a text"


LANGCHAIN = [Document("one", {"source": "a"}, "d1"), Document("two", {"source": "b"}, "d2")]
LLAMAINDEX = [NodeWithScore("one", "d1", 0.9), NodeWithScore("two", "d2", 0.4)]
DICTS = [{"id": "d1", "text": "one", "score": 0.9}, {"id": "d2", "text": "two", "score": 0.4}]
EXPECTED = ("yes", ["d1"], ["d1", "d2"], ["one", "two"])


def test_results_of_every_kind_with_documents_of_every_kind():
    for documents in [LANGCHAIN, LLAMAINDEX, DICTS, tuple(DICTS), collections.deque(DICTS)]:
        for reply in [Reply, SlottedReply, ModelReply, StructReply, TupleReply, SimpleNamespace, dict]:
            assert found(reply(answer="yes", citations=["d1"], documents=documents)) == EXPECTED, (documents, reply)


@pytest.mark.parametrize(
    "result",
    [
        {
            "answer_json": {"claim": "yes", "citations": ["d1"]},
            "retrieved_ids": ["d1", "d2"],
            "contexts": ["one", "two"],
        },
        {"chunks": DICTS, "answer": "yes\n- citations: [d1]"},
        {"chunks": DICTS, "answer": "yes", "citations": ["d1"]},
        {"retrieval": {"topk": DICTS}, "answer": {"claim": "yes", "citations": [{"id": "d1", "start": 0}]}},
        {"result": "yes", "source_documents": LANGCHAIN, "citations": ("d1",)},
        {"input": "q", "context": LANGCHAIN, "answer": Message("yes"), "citations": [LANGCHAIN[0]]},
        SimpleNamespace(response="yes", source_nodes=LLAMAINDEX, citations=[LLAMAINDEX[0]]),
        {"claim": "yes", "citations": {"d1"}, "retrieved": [(LANGCHAIN[0], 0.9), (LANGCHAIN[1], 0.4)]},
        {
            "answer": [{"type": "text", "text": "y"}, {"type": "text", "text": "es"}],
            "citations": ["d1"],
            "documents": DICTS,
        },
    ],
)
def test_published_shapes(result):
    assert found(result) == EXPECTED


def test_a_text_is_the_claim_and_may_carry_its_citations():
    assert found("yes") == ("yes", None, None, None)
    assert found("- yes\n- citations: [d1, d2]") == ("yes", ["d1", "d2"], None, None)


def test_a_message_is_the_claim():
    assert found(Message("yes"))[0] == found(Message(["y", {"text": "es"}]))[0] == "yes"


@pytest.mark.parametrize("result", [None, 7, b"yes", object(), [1, 2], {}, {"answer": None}, {"answer": True}])
def test_where_there_is_no_answer_none_is_found(result):
    assert found(result) == (None, None, None, None)


def test_scores_and_candidates_are_found():
    record = record_of({"answer": "yes", "documents": LLAMAINDEX, "candidates": [*DICTS, {"id": "d3"}]})
    assert record.scores == [0.9, 0.4]
    assert record.candidate_ids == ["d1", "d2", "d3"]


def test_plain_texts_are_texts_and_not_ids():
    """Under content "none" ids leave the process; a passage must never pass for one."""
    for name in ("documents", "contexts", "context", "source_documents"):
        assert found({"answer": "yes", name: ["a passage", "another"]})[2:] == (None, ["a passage", "another"])
    assert found({"answer": "yes", "retrieved_ids": ["d1"], "contexts": ["a passage"]})[2:] == (["d1"], ["a passage"])


def test_nothing_retrieved_is_not_the_same_as_not_captured():
    assert found({"answer": "yes", "documents": []})[2] == []
    assert found({"answer": "yes"})[2] is None


def test_extract_by_paths_and_by_a_callable():
    result = {"out": {"text": "yes"}, "sources": [{"ref": "d1"}, {"ref": "d2"}], "cited": ["d1"], "v": "i1"}
    paths = {"claim": "out.text", "retrieved": "sources", "citations": "cited", "index_hash": "v", "session": "none"}
    by_paths = record_of(result, extract=paths, id_from="ref")
    by_callable = record_of(
        result,
        extract=lambda r: {
            "claim": r["out"]["text"],
            "retrieved": [source["ref"] for source in r["sources"]],
            "citations": r["cited"],
            "index_hash": r["v"],
        },
    )
    for record in (by_paths, by_callable):
        assert (record.answer_json.claim, record.answer_json.citations) == ("yes", ["d1"])
        assert (record.retrieved_ids, record.index_hash, record.session) == (["d1", "d2"], "i1", None)
    assert record_of(("yes", DICTS), extract={"claim": "[0]", "retrieved": "[1]"}).retrieved_ids == ["d1", "d2"]


def fails(result):
    raise KeyError(f"a secret in {result}")


class Hostile:
    """A result whose every member raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("told", "result", "unread"),
    [
        ({"extract": fails}, "a secret", {("result", "raised"): 1}),
        ({"extract": lambda _: None}, "a secret", {("result", "raised"): 1}),
        ({"extract": lambda _: 7}, "a secret", {("result", "raised"): 1}),
        ({"question": fails}, "a secret", {("question", "raised"): 1}),
        ({"extract": {"claim": "answer"}}, Hostile(), {}),
        ({}, Hostile(), {}),
    ],
    ids=["extract raises", "extract gives None", "extract gives 7", "question raises", "a path meets it", "members"],
)
def test_what_cannot_be_read_is_unknown_and_counted_and_never_reaches_the_application(
    told, result, unread, caplog, monkeypatch
):
    """All other fields of the record are known; the log says where reading failed, not what was asked."""
    monkeypatch.setattr(errors, "_said", set())
    objects.unread.clear()
    sink = ragmon.testing.Collected()
    installation = ragmon.install(ragmon.testing.defaults(), sink=sink)
    results = iter(["before", result, "after"])

    def answer(question):
        assert question
        return next(results)

    try:
        broken = ragmon.trace(sample=1.0, **told)(answer)
        healthy = ragmon.trace(sample=1.0)(answer)
        assert (healthy("q"), broken("a secret"), healthy("q")) == ("before", result, "after")
        assert installation.flush(30)
    finally:
        installation.shutdown()
    reads_question = "question" in told
    assert [r.answer_json.claim for r in sink.records] == ["before", "a secret" if reads_question else None, "after"]
    assert [r.q for r in sink.records] == ["q", None if reads_question else "a secret", "q"]
    assert sink.records[1].latency_ms.total is not None
    books = installation.counters()
    assert (books.received, books.scored, books.dropped) == (3, 3, {})
    assert (books.residual, dict(objects.unread)) == (0, unread)
    assert "secret" not in caplog.text
    assert caplog.text.count("cannot be read and is unknown") == len(unread)


def ask(payload):
    return {"foo": {"bar": "The harbour opens at nine [1].", "n": 3}, "stuff": [{"ref": "d1", "words": "x"}]}


def test_where_a_field_is_missing_the_place_of_what_may_be_it_is_named_and_works_when_typed(monkeypatch):
    monkeypatch.setattr(shapes, "path_hints", shapes.BoundedMap(9))
    with capture_traces() as records:
        ragmon.trace(name="port")(ask)({"thing": "When does it open?"})
    scorer = Scorer(())
    for _ in range(30):
        assert scorer.observe(records[0])
    (report,) = capture_reports(scorer, lambda _: default_gates())
    gaps = {gap.field: gap for gap in report.gaps}
    assert gaps["answer"].finding == "no answer in 30 of 30 records; the result has a text at `foo.bar`"
    assert '`@ragmon.trace(extract={"claim": "foo.bar"})`' in gaps["answer"].remedy
    assert '`@ragmon.trace(question="payload.thing")`' in gaps["question"].remedy
    assert '`@ragmon.trace(extract={"retrieved": "stuff"})`' in gaps["ids"].remedy
    cure = {"question": "payload.thing", "extract": {"claim": "foo.bar", "retrieved": "stuff"}, "id_from": "ref"}
    with capture_traces() as records:
        ragmon.trace(**cure)(ask)({"thing": "When does it open?"})
    (record,) = records
    assert (record.q, record.retrieved_ids, record.answer_json.citations) == ("When does it open?", ["d1"], ["d1"])
