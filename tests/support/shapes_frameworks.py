"""Shapes of results and arguments that frameworks and clients of models make; see `shapes_plain`."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import django.http
import django.test
import flask
from django.conf import settings as django_settings
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.prompt_values import StringPromptValue
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, MessageRole
from llama_index.core.base.response.schema import Response, StreamingResponse
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from pydantic import BaseModel
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import StreamingResponse as Streamed

from tests.support.shapes_calls import streaming
from tests.support.shapes_plain import DICTS, TURNS, Q, Shape, body, family, recording

SHAPES: dict[str, Shape] = {}
DOCUMENTS = [Document("yes one", id="d1", metadata={"page": 1}), Document("two", id="d2", metadata={"page": 2})]
KEYED = [Document("one", metadata={"chunk_id": "c1", "source": "a.pdf"}), Document("two", metadata={"source": "b.pdf"})]
NODES = [
    NodeWithScore(node=TextNode(id_="d1", text="yes one"), score=0.9),
    NodeWithScore(node=TextNode(id_="d2", text="two"), score=0.4),
]


def completion(content: str | None, **message: Any) -> ChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    fields = {"id": "c1", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    return ChatCompletion.model_validate(fields)


def chunk(content: str | None, **choice: Any) -> ChatCompletionChunk:
    choices = [] if content is None else [{"index": 0, "delta": {"content": content}, **choice}]
    fields = {"id": "c1", "created": 1, "model": "m", "object": "chat.completion.chunk", "choices": choices}
    return ChatCompletionChunk.model_validate(fields)


def responses(*output: Any) -> OpenAIResponse:
    fields = {"id": "r1", "created_at": 1, "model": "m", "object": "response", "parallel_tool_calls": False}
    fields |= {"tool_choice": "auto", "tools": [], "text": {"format": {"type": "text"}}, "output": output}
    return OpenAIResponse.model_validate(fields)


THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "thinks"}]}
MESSAGE = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
}
TOOL = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@dataclasses.dataclass
class Block:
    """As Anthropic's blocks of text and of thought."""

    type: str
    text: str | None = None
    thinking: str | None = None


@dataclasses.dataclass
class HaystackMessage:
    """As Haystack's, whose fields are private and whose text is a property."""

    _role: str
    _content: list[Any]

    @property
    def text(self) -> Any:
        return self._content[0].text


class Reply(BaseModel):
    answer: str
    sources: list[Any] = []


class Enveloped(BaseModel):
    status: str = "ok"
    data: Reply


def read_stream() -> StreamingResponse:
    stream = StreamingResponse(iter(["y", "es"]), source_nodes=NODES)
    str(stream.get_response())
    return stream


if not django_settings.configured:
    django_settings.configure(DEFAULT_CHARSET="utf-8")
with flask.Flask("app").test_request_context():
    FLASK = {
        "flask JSON": flask.jsonify({"answer": "yes", "sources": DICTS}),
        "flask text": flask.make_response("yes", {"Content-Type": "text/plain"}),
        "flask page": flask.make_response("<p>yes</p>"),
        "flask and status": (flask.jsonify({"answer": "yes"}), 201),
    }
THINKING = [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": "y"}, {"type": "text", "text": "es"}]
SHAPES |= family(
    "framework",
    {
        "AIMessage": AIMessage("yes"),
        "AIMessage of parts": AIMessage(THINKING),
        "AIMessage with tools": AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "t"}]),
        "HumanMessage": HumanMessage("q"),
        "ChatResult": ChatResult(generations=[ChatGeneration(message=AIMessage("yes"))]),
        "LLMResult": LLMResult(generations=[[Generation(text="yes")]]),
        "messages": {"messages": [HumanMessage("q"), AIMessage("yes")]},
        "messages with a tool": {
            "messages": [
                HumanMessage("q"),
                ToolMessage("found", tool_call_id="t", artifact=DOCUMENTS),
                AIMessage("yes"),
            ]
        },
        "list of messages": [HumanMessage("q"), AIMessage("yes")],
        "human messages": [HumanMessage("q")],
        "structured response": {"messages": [AIMessage("")], "structured_response": Reply(answer="yes")},
        "chain": {"input": "q", "context": DOCUMENTS, "answer": "yes [1]"},
        "retrieval": {"query": "q", "result": "yes", "source_documents": DOCUMENTS},
        "documents without ids": {"query": "q", "result": "yes", "source_documents": KEYED},
        "message and nodes": (AIMessage("yes"), NODES),
        "scored documents": {"answer": "yes", "documents": [(DOCUMENTS[0], 0.9), (DOCUMENTS[1], 0.4)]},
        "llama response": Response("yes [2]", source_nodes=NODES),
        "llama response without nodes": Response("yes"),
        "llama agent": AgentChatResponse("yes", source_nodes=NODES),
        "llama chat": ChatResponse(message=ChatMessage(role="assistant", content="yes")),
        "llama completion": CompletionResponse(text="yes"),
        "llama stream, unread": StreamingResponse(iter(["yes"]), source_nodes=NODES),
        "llama stream, read": read_stream(),
        "completion": completion("yes"),
        "completion as dict": completion("yes").model_dump(),
        "completion, refused": completion(None, refusal="yes"),
        "completion with tools": completion(None, tool_calls=[TOOL]),
        "responses": responses(THOUGHT, MESSAGE),
        "responses as dict": responses(THOUGHT, MESSAGE).model_dump(),
        "responses without text": responses(THOUGHT),
        "anthropic": SimpleNamespace(content=[Block("thinking", thinking="no"), Block("text", "yes")]),
        "haystack texts": {"llm": {"replies": ["yes", "no"], "meta": [{"model": "m"}]}},
        "haystack messages": {"llm": {"replies": [HaystackMessage("assistant", [SimpleNamespace(text="yes")])]}},
        "haystack answers": {"builder": {"answers": [SimpleNamespace(data="yes", documents=DOCUMENTS)]}},
        "pydantic": Reply(answer="yes", sources=DICTS),
        "pydantic of documents": Reply(answer="yes", sources=DOCUMENTS),
        "enveloped": Enveloped(data=Reply(answer="yes", sources=DICTS)),
        "pydantic and status": (Reply(answer="yes", sources=DICTS), 200),
        "JSON response": JSONResponse({"answer": "yes", "sources": DICTS}),
        "enveloped JSON response": JSONResponse({"data": {"answer": "yes", "sources": DICTS}}),
        "text response": PlainTextResponse("yes"),
        "page": HTMLResponse("<p>yes</p>"),
        "streamed response, unread": Streamed(iter(["yes"])),
        "django JSON": django.http.JsonResponse({"answer": "yes", "sources": DICTS}),
        "django text": django.http.HttpResponse("yes", content_type="text/plain"),
        "django page": django.http.HttpResponse("<p>yes</p>"),
        "flask stream": flask.Response(iter(["yes"])),
        **FLASK,
        "JSON of everything": JSONResponse(json.loads(json.dumps({"answer": {"claim": "yes"}, "qid": "a1"}))),
    },
)
for name, documents in {"documents": DOCUMENTS, "keyed documents": KEYED, "nodes": NODES}.items():
    SHAPES[f"framework: recorded {name}"] = recording("yes [1]", retrieved=documents)
    SHAPES[f"framework: cited {name}"] = recording({"answer": "yes", "documents": documents, "citations": documents})
WORDS = ("The", " harbour", " opens.")
STREAMS: dict[str, list[Any]] = {
    "completion chunks": [*map(chunk, WORDS), chunk("", finish_reason="stop"), chunk(None)],
    "message chunks": [*map(AIMessageChunk, WORDS), AIMessageChunk("")],
    "llama chunks": [
        ChatResponse(message=ChatMessage(content="The"), delta="The"),
        CompletionResponse(text="The harbour", delta=" harbour"),
    ],
    "graph messages": [(AIMessageChunk(word), {"langgraph_node": "generate"}) for word in WORDS],
    "chain events": [
        *({"event": "on_chat_model_stream", "data": {"chunk": AIMessageChunk(word)}} for word in WORDS),
        {"event": "on_chain_end", "data": {"output": "".join(WORDS)}},
    ],
    "pydantic events": [Reply(answer=word) for word in WORDS],
}
for name, items in STREAMS.items():
    SHAPES[f"framework: stream of {name}"] = streaming(items)


async def read_never() -> Any:
    raise AssertionError("the body is the application's to read")


def request(query: bytes = b"", **cached: Any) -> Request:
    scope = {"type": "http", "method": "POST", "path": "/ask", "headers": [], "query_string": query}
    made = Request(scope, read_never)
    for name, value in cached.items():
        setattr(made, name, value)
    return made


def flask_request(*, read: bool) -> Any:
    with flask.Flask("app").test_request_context("/ask?lang=en", json={"question": Q}):
        made = flask.request._get_current_object()  # type: ignore[attr-defined]
        if read:
            made.get_json()
        return made


def django_request(*, read: bool) -> Any:
    made = django.test.RequestFactory().post("/ask?lang=en", {"question": Q}, content_type="application/json")
    if read:
        assert made.body
    return made


SHAPES |= family(
    "framework body",
    {
        "messages": [SystemMessage("Be brief."), HumanMessage(Q), AIMessage("It is.")],
        "parts": [
            HumanMessage([{"type": "text", "text": "Is "}, {"type": "image_url"}, {"type": "text", "text": "it?"}])
        ],
        "prompt value": StringPromptValue(text=Q),
        "llama messages": [
            ChatMessage(role=MessageRole.USER, content=Q),
            ChatMessage(role="assistant", content="It is."),
        ],
        "query bundle": QueryBundle(query_str=Q),
        "query": request(b"q=Is+it%3F&lang=en"),
        "cached JSON": request(_json={"question": Q}),
        "cached turns": request(_json={"messages": TURNS}),
        "cached body": request(b"lang=en", _body=b'{"input": {"question": "Is it?"}}'),
        "cached form": request(_form=FormData([("question", Q)])),
        "cached parameters": request(_query_params=QueryParams("query=Is it?")),
        "unread": request(),
        "no JSON": request(_body=b"not json"),
        "deep JSON": request(_body=b"[" * 100_000),
        "flask, read": flask_request(read=True),
        "flask, unread": flask_request(read=False),
        "django, read": django_request(read=True),
        "django, unread": django_request(read=False),
    },
    body,
)
