"""The answer, the documents and the citations in what real clients and frameworks return."""

from __future__ import annotations

import collections
import dataclasses
import json
from types import SimpleNamespace

import django.http
import flask
import pytest
from django.conf import settings as django_settings
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.base.response.schema import Response, StreamingResponse
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.schema import NodeWithScore, TextNode
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from pydantic import BaseModel

import ragmon
from ragmon.capture.convert import call_to_record
from tests.support.capturing import capturing, record_of

DOCUMENTS = [Document("one", id="d1", metadata={"page": 1}), Document("two", id="d2", metadata={"page": 2})]
NODES = [
    NodeWithScore(node=TextNode(id_="d1", text="one"), score=0.9),
    NodeWithScore(node=TextNode(id_="d2", text="two"), score=0.4),
]
DICTS = [{"id": "d1", "text": "one"}, {"id": "d2", "text": "two"}]


def read(result, **settings):
    """Claim, citations, ids and texts that are found in a result."""
    record = record_of(result, **settings)
    return record.answer_json.claim, record.answer_json.citations, record.retrieved_ids, record.contexts


def completion(content, **message):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    fields = {"id": "c1", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    return ChatCompletion.model_validate(fields)


def responses(*output):
    fields = {"id": "r1", "created_at": 1, "model": "m", "object": "response", "parallel_tool_calls": False}
    return OpenAIResponse.model_validate(
        {**fields, "tool_choice": "auto", "tools": [], "text": {"format": {"type": "text"}}, "output": output}
    )


REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "thinks"}]}
MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
}


@dataclasses.dataclass
class AnthropicBlock:
    """As anthropic's `TextBlock` and `ThinkingBlock`: the package is not installed here."""

    type: str
    text: str | None = None
    thinking: str | None = None


@dataclasses.dataclass
class HaystackMessage:
    """As Haystack's `ChatMessage`, whose fields are private and whose text is a property."""

    _role: str
    _content: list[object]

    @property
    def text(self):
        return self._content[0].text


class Reply(BaseModel):
    answer: str
    sources: list[object] = []


class Enveloped(BaseModel):
    status: str = "ok"
    data: Reply


def test_a_claim_is_the_text_of_the_answer():
    for result in [
        AIMessage("yes"),
        AIMessage(
            [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": "y"}, {"type": "text", "text": "es"}]
        ),
        ChatResult(generations=[ChatGeneration(message=AIMessage("yes"))]),
        LLMResult(generations=[[Generation(text="yes")]]),
        {"messages": [HumanMessage("q"), AIMessage("yes")]},
        [HumanMessage("q"), AIMessage("yes")],
        Response("yes"),
        AgentChatResponse("yes"),
        ChatResponse(message=ChatMessage(role="assistant", content="yes")),
        CompletionResponse(text="yes"),
        completion("yes"),
        completion("yes").model_dump(),
        completion(None, refusal="yes"),
        responses(REASONING, MESSAGE),
        responses(REASONING, MESSAGE).model_dump(),
        SimpleNamespace(content=[AnthropicBlock("thinking", thinking="no"), AnthropicBlock("text", "yes")]),
        {"llm": {"replies": ["yes", "no"], "meta": [{"model": "m"}]}},
        {"llm": {"replies": [HaystackMessage("assistant", [SimpleNamespace(text="yes")])]}},
        {"answer_builder": {"answers": [SimpleNamespace(data="yes", query="q", documents=None)]}},
        {"answer": {"claim": "yes"}},
        {"response": {"output": {"text": "yes"}}},
        {"completion": "yes"},
        {"reply": "yes"},
        Reply(answer="yes"),
        Enveloped(data=Reply(answer="yes")),
        ("yes", 200),
        ({"answer": "yes"}, 200, {"X-Header": "1"}),
        JSONResponse({"answer": "yes"}),
        PlainTextResponse("yes"),
        {"statusCode": 200, "body": '{"answer": "yes"}'},
    ]:
        assert read(result)[0] == "yes", result


@pytest.mark.parametrize(
    "result",
    [
        HTMLResponse("<p>yes</p>"),
        completion(None, tool_calls=[{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        [HumanMessage("q")],
        {"messages": [HumanMessage("q")]},
        StreamingResponse(iter(["yes"]), source_nodes=[]),
        SimpleNamespace(response=iter(["yes"])),
        {"choices": []},
        {"replies": [[]]},
        {"answer": object()},
        {"status": "ok"},
        (1, 2),
        (),
        ([], []),
    ],
    ids=lambda result: type(result).__name__,
)
def test_what_has_no_text_is_no_answer(result):
    """No `repr` of an object stands for its text, and no iterator is read."""
    assert read(result)[0] is None


def test_a_stream_of_llama_index_is_its_text_once_it_was_read():
    stream = StreamingResponse(iter(["y", "es"]), source_nodes=NODES)
    assert str(stream.get_response()) == "yes"
    assert read(stream) == ("yes", None, ["d1", "d2"], ["one", "two"])


def test_documents_are_found_under_their_usual_names():
    for documents in [DOCUMENTS, NODES, DICTS, tuple(DICTS), collections.deque(DICTS)]:
        for name in [
            "sources",
            "references",
            "source_documents",
            "source_nodes",
            "documents",
            "docs",
            "context",
            "retrieved_documents",
        ]:
            assert read({"answer": "yes", name: documents}) == ("yes", None, ["d1", "d2"], ["one", "two"]), (
                documents,
                name,
            )
            assert read({"result": {"answer": "yes", name: documents}})[2] == ["d1", "d2"], (documents, name)


@pytest.mark.parametrize(
    "result",
    [
        {"query": "q", "result": "yes", "source_documents": DOCUMENTS},
        {"input": "q", "context": DOCUMENTS, "answer": "yes"},
        Response("yes", source_nodes=NODES),
        AgentChatResponse("yes", source_nodes=NODES),
        {"llm": {"replies": ["yes"]}, "retriever": {"documents": DICTS[::-1]}, "ranker": {"documents": DICTS}},
        {"answer_builder": {"answers": [SimpleNamespace(data="yes", documents=DICTS)]}},
        ("yes", DOCUMENTS),
        (AIMessage("yes"), NODES),
        (DICTS, "yes"),
        Reply(answer="yes", sources=DICTS),
        Enveloped(data=Reply(answer="yes", sources=DICTS)),
        (Reply(answer="yes", sources=DICTS), 200),
        JSONResponse({"answer": "yes", "sources": DICTS}),
        JSONResponse({"data": {"answer": "yes", "sources": DICTS}}),
        {"statusCode": 200, "body": json.dumps({"answer": "yes", "sources": DICTS})},
    ],
    ids=lambda result: type(result).__name__,
)
def test_answers_with_their_documents(result):
    assert read(result) == ("yes", None, ["d1", "d2"], ["one", "two"])


def test_responses_of_flask_and_django():
    if not django_settings.configured:
        django_settings.configure()
    with flask.Flask("app").test_request_context():
        of_flask = flask.jsonify({"answer": "yes", "sources": DICTS})
        text = flask.make_response("yes", {"Content-Type": "text/plain"})
        page = flask.make_response("<p>yes</p>")
    of_django = django.http.JsonResponse({"answer": "yes", "sources": DICTS})
    assert read(of_flask) == read(of_django) == ("yes", None, ["d1", "d2"], ["one", "two"])
    assert read(text)[0] == read(django.http.HttpResponse("yes", content_type="text/plain"))[0] == "yes"
    assert read(page)[0] is read(django.http.HttpResponse("<p>yes</p>"))[0] is None


# --- retrieved or cited -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sources", "references"])
def test_sources_are_what_was_retrieved_unless_that_is_known_otherwise(name):
    assert read({"answer": "yes", name: ["d1", "d2"]})[1:3] == (None, ["d1", "d2"])
    assert read({"answer": "yes", "documents": DICTS, name: ["d2"]})[1:3] == (["d2"], ["d1", "d2"])
    assert read({"answer": "yes", "retrieved_ids": ["d1", "d2"], name: [DICTS[0]]})[1:3] == (["d1"], ["d1", "d2"])
    assert read({"answer": "yes", "documents": DICTS, name: []})[1:3] == ([], ["d1", "d2"])
    assert read({"answer": "yes", name: []})[1:3] == (None, [])


def test_sources_are_the_citations_where_the_call_recorded_its_retrieval():
    @ragmon.trace
    def answer(question, sources):
        ragmon.record(retrieved=DICTS)
        return {"answer": "yes [1]", "sources": sources}

    with capturing() as (_, kept):
        for sources in (["d2"], [], ["d9"], ["A title"], [{"title": "A title"}], None):
            answer("q", sources)
    found = [call_to_record(call) for call in kept]
    assert [record.retrieved_ids for record in found] == [["d1", "d2"]] * 6
    # A source that is written as no id is leaves it to the marks of the text.
    assert [record.answer_json.citations for record in found] == [["d2"], [], ["d9"], ["d1"], ["d1"], ["d1"]]


def test_sources_may_be_the_titles_of_retrieved_documents():
    documents = [{**document, "title": f"Part {document['id']}"} for document in DICTS]
    for sources in (["Part d2"], [{"title": "PART D2"}], ["d2"]):
        assert read({"answer": "yes [1]", "documents": documents, "sources": sources})[1:3] == (["d2"], ["d1", "d2"])
    assert read({"answer": "yes [1]", "documents": documents, "sources": ["Part d2", "Other"]})[1] == ["d1"]


def test_the_key_citations_comes_before_sources_and_marks():
    result = {"answer": "yes [1]", "documents": DICTS, "sources": ["d1"], "citations": ["d2"]}
    assert read(result)[1] == ["d2"]
    assert read({**result, "citations": []})[1] == []
    assert read({"answer": "yes [1]\ncitations: [d2]", "documents": DICTS, "sources": ["d1"]})[:2] == (
        "yes [1]",
        ["d2"],
    )


def test_texts_among_sources_are_ids_passages_or_titles():
    """Under content "none" ids leave the process: a passage, also of a script without spaces, must not pass for one."""
    passage = "Rollo ruled Normandy. " * 20
    assert read({"answer": "yes", "sources": ["a.pdf", "b.pdf#3"]})[2:] == (["a.pdf", "b.pdf#3"], None)
    assert read({"answer": "yes", "sources": [passage, "Short."]})[2:] == (None, [passage, "Short."])
    assert read({"answer": "yes", "sources": ["Annual report 2023"]})[2:] == (None, None)
    assert read({"answer": "yes", "sources": ["罗洛统治诺曼底。" * 4]})[2:] == (None, None)


def test_a_text_made_of_all_documents_is_a_context_where_no_other_is_known():
    assert read({"answer": "yes", "context": "one\ntwo"})[2:] == (None, ["one\ntwo"])
    assert read({"answer": "yes", "context": "one\ntwo", "documents": DICTS})[2:] == (["d1", "d2"], ["one", "two"])
    assert read({"answer": "yes", "context": "one\ntwo", "sources": ["d1", "d2"]})[2:] == (["d1", "d2"], None)
    assert read({"answer": "yes", "context": "one\ntwo", "sources": []})[2:] == ([], None)


# --- citations beside the parts of an answer --------------------------------------------------------------------------


URL = {"type": "url_citation", "start_index": 0, "end_index": 3, "title": "Plan", "url": "https://a.example/plan"}
FILE = {"type": "file_citation", "file_id": "d2", "filename": "plan.pdf", "index": 3}
MADE = {"type": "container_file_citation", "container_id": "c", "file_id": "d1", "filename": "chart.png"}
MADE |= {"start_index": 0, "end_index": 3}


def part(text, *cited):
    """A block of Anthropic's: its citations count documents from 0."""
    citations = [SimpleNamespace(type="char_location", cited_text="one", document_index=n) for n in cited] or None
    return SimpleNamespace(type="text", text=text, citations=citations)


@pytest.mark.parametrize(
    ("reply", "cited"),
    [
        (SimpleNamespace(role="assistant", content=[part("y"), part("es", 1, 0)]), ["d2", "d1"]),
        (SimpleNamespace(role="assistant", content=[part("yes")]), None),
        (completion("yes", annotations=[{"type": "url_citation", "url_citation": URL}]), ["https://a.example/plan"]),
        (completion("yes", annotations=[]), None),
        (responses({**MESSAGE, "content": [{"type": "output_text", "text": "yes", "annotations": [FILE]}]}), ["d2"]),
        (responses({**MESSAGE, "content": [{"type": "output_text", "text": "yes", "annotations": [MADE]}]}), None),
        (AIMessage([{"type": "text", "text": "yes", "citations": [{"document_index": 1}]}]), ["d2"]),
        (AIMessage([{"type": "text", "text": "yes", "annotations": [{"type": "citation", "title": "x"}]}]), ["x"]),
        ({"messages": [AIMessage([part("no", 0).__dict__]), AIMessage([part("yes", 1).__dict__])]}, ["d2"]),
        ({"message": {"content": [{"text": "yes"}], "citations": [{"sources": [{"id": "d2"}]}]}}, ["d2"]),
    ],
)
def test_an_answer_cites_what_is_listed_beside_its_parts(reply, cited):
    for result in ({"answer": reply, "documents": DICTS}, (reply, DOCUMENTS)):
        assert read(result)[:3] == ("yes", cited, ["d1", "d2"])
    parts = [part("y", 1), part("es")]
    assert read({"answer": parts, "documents": DICTS})[:2] == ("yes", ["d2"])
    assert read(parts)[:2] == ("yes", ["[2]"])
    assert read({"answer": reply, "documents": DICTS, "citations": ["d9"]})[1] == ["d9"], "the application's own list"


def test_a_streamed_answer_cites_what_its_pieces_cite():
    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=DICTS)
        yield {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "yes"}}
        for n in (1, 0):
            yield {
                "type": "content_block_delta",
                "delta": {"type": "citations_delta", "citation": {"document_index": n}},
            }
        yield {"type": "message_stop"}

    with capturing() as (_, kept):
        list(answer("q"))
    said = call_to_record(kept[0]).answer_json
    assert (said.claim, said.citations) == ("yes", ["d2", "d1"])


# --- marks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "cited"),
    [
        ("Yes [2].", ["d2"]),
        ("Yes [1][2].", ["d1", "d2"]),
        ("Yes [^1].", ["d1"]),
        ("Yes (2).", ["d2"]),
        ("Yes【1】.", ["d1"]),
        ("Yes【4:1†source】.", ["d2"]),
        ("Yes [d2].", ["d2"]),
        ("Yes.", None),
    ],
)
def test_marks_in_an_answer_are_its_citations(claim, cited):
    assert read({"answer": claim, "source_documents": DOCUMENTS})[:2] == (claim, cited)
    assert read({"answer": claim, "source_documents": DOCUMENTS, "citations": []})[1] == []
    assert read({"answer": claim})[1] is None


def test_marks_count_the_documents_that_the_call_recorded():
    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=NODES)
        return completion("Yes [2].")

    with capturing() as (_, kept):
        answer("q")
    assert call_to_record(kept[0]).answer_json.citations == ["d2"]


# --- streams ----------------------------------------------------------------------------------------------------------


def chunk(content, **choice):
    fields = {"id": "c1", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    choices = [] if content is None else [{"index": 0, "delta": {"content": content}, **choice}]
    return ChatCompletionChunk.model_validate({**fields, "choices": choices})


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([chunk("y"), chunk("es"), chunk("", finish_reason="stop"), chunk(None)], ("yes", None)),
        ([AIMessageChunk("y"), AIMessageChunk("es"), AIMessageChunk("")], ("yes", None)),
        (
            [ChatResponse(message=ChatMessage(content="y"), delta="y"), CompletionResponse(text="yes", delta="es")],
            ("yes", None),
        ),
        (["y", "es", {"sources": DICTS}], ("yes", ["d1", "d2"])),
        ([{"sources": DICTS}, "y", "es"], ("yes", ["d1", "d2"])),
        (["thinking", {"answer": "yes", "sources": DICTS}], ("yes", ["d1", "d2"])),
        ([{"answer": "y"}, {"answer": "yes", "documents": DICTS}], ("yes", ["d1", "d2"])),
    ],
)
def test_streams_of_chunks_and_of_texts_with_a_result(items, expected):
    @ragmon.trace
    def answer(question):
        yield from items

    with capturing() as (_, kept):
        assert list(answer("q")) == items
    record = call_to_record(kept[0])
    assert (record.answer_json.claim, record.retrieved_ids) == expected
