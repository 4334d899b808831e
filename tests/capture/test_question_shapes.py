"""The question inside what functions of real applications take: bodies, messages, requests; and what is left alone."""

from __future__ import annotations

import collections
import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import attrs
import django.test
import flask
import msgspec
import pytest
from django.conf import settings as django_settings
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.schema import QueryBundle
from pydantic import BaseModel, ConfigDict, RootModel
from pydantic import v1 as pydantic_v1
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request

import ragmon
from ragmon.capture.convert import call_to_record
from tests.support.capturing import capturing

Q = "Is it?"


def asked(function, *args, **kwargs):
    """The question that is found in a call."""
    with capturing() as (_, kept):
        ragmon.trace(function)(*args, **kwargs)
    return call_to_record(kept[0]).q


def ask(body, session=None):
    assert body is not None


class Ask(BaseModel):
    question: str
    top_k: int = 5


class AskV1(pydantic_v1.BaseModel):
    query: str


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Frage(BaseModel):
    frage: str
    sprache: str = "de"
    nutzer_id: str = "ein Nutzer"


class Turn(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    model: str = "a model"
    messages: list[Turn]


class Envelope(BaseModel):
    data: Ask


class Turns(RootModel[list[Turn]]):
    pass


@dataclasses.dataclass
class Plain:
    user_input: str


@dataclasses.dataclass(slots=True)
class Slotted:
    question: str


@attrs.define
class Attrs:
    message: str


class Struct(msgspec.Struct):
    query: str


class Row(NamedTuple):
    tenant: str
    q: str


class Typed(TypedDict):
    prompt: str


class CommonQuery:
    """As FastAPI's documentation writes a class that is a dependency."""

    def __init__(self, q):
        self.q = q


USER = {"role": "user", "content": Q}
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Was it?"}, USER]


def test_the_question_is_found_in_every_kind_of_body():
    for body in [
        Ask(question=Q),
        AskV1(query=Q),
        Open.model_validate({"question": Q}),
        Frage(frage=Q),
        Chat(messages=[Turn(role="user", content=Q), Turn(role="assistant", content="It is.")]),
        Turns([Turn(role="user", content=Q)]),
        Envelope(data=Ask(question=Q)),
        Plain(Q),
        Slotted(Q),
        Attrs(Q),
        Struct(Q),
        Row("a tenant", Q),
        Typed(prompt=Q),
        SimpleNamespace(text=Q),
        collections.OrderedDict(query=Q),
        CommonQuery(Q),
        QueryBundle(query_str=Q),
        {"input": {"messages": TURNS}},
        {"data": {"prompt_builder": {"question": Q}}},
        {"body": '{"question": "Is it?"}'},
        {"message": {"text": Q, "chat": {"id": 7}}},
        {"prompt": "Be brief.", "messages": TURNS},
        TURNS,
        [SystemMessage("Be brief."), HumanMessage(Q), AIMessage("It is.")],
        [HumanMessage([{"type": "text", "text": "Is "}, {"type": "image_url"}, {"type": "text", "text": "it?"}])],
        [ChatMessage(role=MessageRole.USER, content=Q), ChatMessage(role="assistant", content="It is.")],
        [("system", "Be brief."), ("human", Q)],
        [{"role": "user", "parts": [{"type": "text", "text": Q}]}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": Q}]}],
        [USER, {"role": "user", "content": [{"type": "tool_result", "content": "42"}]}],
    ]:
        assert asked(ask, body) == Q, body
        assert asked(ask, session="a session", body=body) == Q, body


@pytest.mark.parametrize(
    "name", ["question", "query", "q", "prompt", "input", "user_input", "message", "text", "search"]
)
def test_usual_names_of_parameters_come_before_the_first_text(name):
    def answer(**arguments):
        assert arguments

    assert asked(answer, tenant="a tenant, by name", **{name: Q}) == Q
    assert asked(answer, settings={"prompt": "Be brief."}, body={name: Q}) == Q


def test_a_text_that_labels_something_is_no_question():
    def answer(session_id, user, payload):
        assert payload

    assert asked(answer, "s-1", "ada", {"unknown": 1}) is None
    assert asked(answer, "s-1", "ada", Q) == Q


def test_a_text_that_was_passed_comes_before_one_in_an_object():
    def answer(frage, notes):
        assert notes

    assert asked(answer, Q, Frage(frage="A note, nothing else.")) == Q


def test_the_object_of_a_method_is_not_looked_into():
    @dataclasses.dataclass
    class Pipeline:
        prompt: str = "You are a helpful assistant."

        @ragmon.trace
        def ask(self, body):
            return self.prompt

    with capturing() as (_, kept):
        Pipeline().ask({"unknown": 1})
        Pipeline().ask(Ask(question=Q))
    assert [call_to_record(call).q for call in kept] == [None, Q]


class Session:
    """Whatever is asked of it is an incident: an attribute, a question for its class, an item."""

    def __init__(self):
        self.prompt = "Not a question of a user."

    def __getattribute__(self, name):
        raise AssertionError(name)

    def __iter__(self):
        raise AssertionError("iter")

    def __len__(self):
        raise AssertionError("len")

    def __bool__(self):
        raise AssertionError("bool")

    def __eq__(self, other):
        raise AssertionError("eq")

    def __hash__(self):
        raise AssertionError("hash")


class Lazy(BaseModel):
    question: str

    @property
    def query(self):
        raise AssertionError("a property")


class Client(BaseModel):
    """A client of a library that makes them with pydantic."""

    query: str = "SELECT 1"

    def invoke(self):
        raise AssertionError("a call")


def test_sessions_clients_proxies_and_iterators_are_left_alone():
    def answer(session, client, proxy, items, body):
        assert body

    items = iter(["first"])
    with flask.Flask("app").test_request_context("/?q=other"):
        proxy = flask.request
    found = asked(answer, Session(), Client(), proxy, items, {"data": [Session()], "more": Lazy(question=Q)})
    assert found == Q
    assert next(items) == "first"


def test_depth_and_breadth_have_limits():
    deep: dict[str, Any] = {"question": Q}
    for _ in range(3):
        deep = {"inner": deep}
    assert asked(ask, deep) is None
    assert asked(ask, deep["inner"]) == Q
    assert asked(ask, {**{f"field_{place}": {} for place in range(100)}, "last": {"question": Q}}) is None
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert asked(ask, loop) is None


# --- requests of web frameworks ---------------------------------------------------------------------------------------


def scope(query=b""):
    return {"type": "http", "method": "POST", "path": "/ask", "headers": [], "query_string": query}


async def read_never():
    raise AssertionError("the body is the application's to read")


def starlette_request(query=b"", **cached):
    request = Request(scope(query), read_never)
    for name, value in cached.items():
        setattr(request, name, value)
    return request


def django_request():
    if not django_settings.configured:
        django_settings.configure()
    return django.test.RequestFactory().post("/ask?lang=en", {"question": Q}, content_type="application/json")


def flask_request(*, read):
    with flask.Flask("app").test_request_context("/ask?lang=en", json={"question": Q}):
        request = flask.request._get_current_object()
        assert not read or request.get_json()
        return request


GATEWAY = {"queryStringParameters": None, "body": '{"question": "Is it?"}', "requestContext": {}}


@pytest.mark.parametrize(
    "request_",
    [
        starlette_request(b"q=Is+it%3F&lang=en"),
        starlette_request(_json={"question": Q}),
        starlette_request(_json={"messages": TURNS}),
        starlette_request(b"lang=en", _body=b'{"input": {"question": "Is it?"}}'),
        starlette_request(_form=FormData([("question", Q)])),
        starlette_request(_query_params=QueryParams("query=Is it?")),
        flask_request(read=True),
        GATEWAY,
        {"queryStringParameters": {"q": Q}, "body": None},
        scope(b"question=Is%20it?"),
        {"REQUEST_METHOD": "GET", "QUERY_STRING": "q=Is+it%3F"},
    ],
    ids=lambda request_: type(request_).__name__,
)
def test_a_request_is_read_as_far_as_it_lies_in_memory(request_):
    assert asked(ask, request_) == Q


def test_the_request_that_flask_keeps_in_its_context_is_read():
    """A view has no arguments, or only those of its path; the first text among these is no question then."""
    app = flask.Flask("app")

    @app.post("/ask/<shop>")
    @ragmon.trace
    def view(shop):
        return {"answer": flask.request.get_json()["question"]}

    @app.get("/static")
    @ragmon.trace
    def without():
        return {"answer": "yes"}

    with capturing() as (_, kept):
        client = app.test_client()
        client.post("/ask/harbour", json={"question": Q})
        client.post("/ask/quay", json={"question": "And now?"})
        client.get("/static?q=Query")
        client.get("/static")
    assert [call_to_record(call).q for call in kept] == [Q, "And now?", "Query", None]


def test_the_body_of_a_request_that_was_not_read_is_unknown():
    """To read it would take it from the application, or wait for a connection."""
    assert asked(ask, starlette_request()) is None
    assert asked(ask, flask_request(read=False)) is None
    unread = django_request()
    assert asked(ask, unread) is None
    assert unread.body
    assert asked(ask, unread) == Q


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b"[1]", b'"text"', b'{"question": 7}', b"[" * 100_000, b'{"question": "' + b"x" * (1 << 20)],
)
def test_a_body_that_is_no_question_is_none(body):
    assert asked(ask, starlette_request(_body=body)) is None
