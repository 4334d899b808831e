"""The session and the user of a decorated call: in its arguments, in the bodies it gets, and in what it returns."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated
from uuid import UUID

import aiohttp.web
import fastapi
import flask
import pydantic
import pytest
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import ragmon
from ragmon.core import shapes
from ragmon.core.shapes import normalised
from ragmon.ingest.tables import TRACE
from ragmon.testing import capture_traces

NAMES = (
    *("session_id", "conversation_id", "thread_id", "chat_id", "sessionId", "conversationId", "threadId", "chatId"),
    *("session", "dialog_id", "SessionID"),
)
UUID4 = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


class Turn(pydantic.BaseModel):
    role: str
    content: str


class Body(pydantic.BaseModel):
    session_id: str | None = None
    messages: list[Turn] = []
    user_id: int | None = None


class Camel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    thread: str = pydantic.Field(alias="threadId")


@dataclass
class Ask:
    question: str
    chat_id: UUID
    user: SimpleNamespace


def found(function, *args, **kwargs):
    with capture_traces() as records:
        function(*args, **kwargs)
    (record,) = records
    return record.session, record.user


@ragmon.trace
def anything(*args, **kwargs):
    return "At nine."


@ragmon.trace
def named(question, session_id=None, user_id=None):
    return "At nine."


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_and_a_member_of_a_body_have_the_usual_names(name):
    assert found(anything, "Is it?", **{name: "s1"}) == ("s1", None)
    assert found(anything, {"question": "Is it?", name: "s1"}) == ("s1", None)
    assert found(anything, body=SimpleNamespace(**{name: "s1"})) == ("s1", None)
    assert found(anything, {"input": "Is it?", "metadata": {name: "s1", "user_id": 7}}) == ("s1", "7")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("Is it?", "s1", "u1"), ("s1", "u1")),
        (("Is it?", 17, UUID4), ("17", str(UUID4))),
        (("Is it?",), (None, None)),
        (("Is it?", None, ""), (None, None)),
        (("Is it?", "  ", True), (None, None)),
        (("Is it?", "the text of a whole conversation", 1.5), (None, None)),
        (("Is it?", "s" * 1000, None), (None, None)),
    ],
)
def test_an_id_is_a_text_without_space_an_integer_or_a_uuid(arguments, expected):
    assert found(named, *arguments) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Body(session_id="s1", messages=[Turn(role="user", content="Is it?")], user_id=7), ("s1", "7")),
        (Camel(thread="t1"), (None, None)),  # its name in Python says that it is a thread, not the id of one
        (Ask("Is it?", UUID4, SimpleNamespace(id=9, name="Ann")), (str(UUID4), "9")),
        ({"conversation": {"id": "c1", "messages": []}, "user": {"id": "u1"}}, ("c1", "u1")),
        ({"configurable": {"thread_id": "t1", "user_id": "u1"}}, ("t1", "u1")),
        ({"data": {"input": {"session_id": "deep"}}}, ("deep", None)),
        ({"session_id": "outer", "data": {"session_id": "inner"}}, ("outer", None)),
        ({"user": "u1", "question": "Is it?"}, (None, "u1")),
        ({"messages": [{"role": "user", "content": "Is it?", "session_id": "s1"}]}, (None, None)),
    ],
)
def test_models_dataclasses_and_dicts_are_read_the_least_deep_first(given, expected):
    assert found(anything, given) == expected


def test_the_configuration_of_a_graph_has_its_thread():
    @ragmon.trace
    def ask(state, config):
        return {"answer": "At nine."}

    assert found(ask, {"question": "Is it?"}, {"configurable": {"thread_id": "t1"}}) == ("t1", None)


def test_what_a_user_says_and_connections_are_no_ids():
    """A parameter `user` beside `system` is a prompt; a `session` may be one of a database or of a client."""

    class Session:
        def __init__(self):
            self.bind = object()

        def execute(self):
            raise AssertionError("nothing of it may run")

        __enter__ = __exit__ = execute

    @ragmon.trace
    def ask(system, user, session):
        return "At nine."

    assert found(ask, "Be brief.", "hello", Session()) == (None, None)


def test_what_is_recorded_wins_and_a_result_tells_a_new_session():
    @ragmon.trace
    def recorded(question, session_id):
        ragmon.record(session="mine", user="me")
        return "At nine."

    @ragmon.trace
    def begins(question, session_id=None):
        return {"answer": "At nine.", "session_id": "new"}

    assert found(recorded, "Is it?", "s1") == ("mine", "me")
    assert found(begins, "Is it?") == ("new", None)


def test_an_argument_of_another_thread_that_raises_costs_the_session_alone():
    class Broken(dict):
        def items(self):
            raise KeyError("broken")

    assert found(anything, "Is it?", Broken(session_id="s1")) == ("s1", None)


BODY = {"session_id": "s1", "user_id": "u1", "messages": [{"role": "user", "content": "Is it?"}]}


def test_a_fastapi_body_a_path_and_a_request():
    app = fastapi.FastAPI()

    @app.post("/model")
    @ragmon.trace
    async def model(body: Body):
        return {"answer": "At nine."}

    @app.post("/threads/{thread_id}")
    @ragmon.trace
    async def path(thread_id: str, question: Annotated[str, fastapi.Body(embed=True)]):
        return {"answer": "At nine."}

    @app.post("/request")
    @ragmon.trace
    async def request(request: fastapi.Request):
        await request.json()
        return {"answer": "At nine."}

    client = TestClient(app)
    with capture_traces() as records:
        client.post("/model", json=BODY | {"user_id": 7})
        client.post("/threads/t1", json={"question": "Is it?"})
        client.post("/request", json=BODY)
    assert [(r.session, r.user) for r in records] == [("s1", "7"), ("t1", None), ("s1", "u1")]


def test_a_starlette_request_and_its_path():
    @ragmon.trace
    async def ask(request):
        await request.json()
        return JSONResponse({"answer": "At nine."})

    app = Starlette(routes=[Route("/{chat_id}", ask, methods=["POST"]), Route("/", ask, methods=["POST"])])
    with capture_traces() as records:
        TestClient(app).post("/c1", json={"question": "Is it?"})
        TestClient(app).post("/", json=BODY)
    assert [(r.session, r.user) for r in records] == [("c1", None), ("s1", "u1")]


def test_a_flask_body_a_query_and_a_path():
    app = flask.Flask(__name__)

    @app.route("/ask", methods=["GET", "POST"])
    @ragmon.trace
    def ask():
        flask.request.get_json(silent=True)
        return {"answer": "At nine."}

    @app.post("/threads/<thread_id>")
    @ragmon.trace
    def path(thread_id):
        return {"answer": "At nine."}

    with capture_traces() as records:
        client = app.test_client()
        client.post("/ask", json=BODY)
        client.get("/ask?q=Is+it&conversationId=c1")
        client.post("/threads/t1", json={"question": "Is it?"})
    assert [r.session for r in records] == ["s1", "c1", "t1"]


def test_an_aiohttp_body_a_query_and_a_path():
    @ragmon.trace
    async def ask(request):
        if request.can_read_body:
            await request.json()
        return aiohttp.web.json_response({"answer": "At nine."})

    async def main():
        app = aiohttp.web.Application()
        app.router.add_post("/ask", ask)
        app.router.add_get("/ask", ask)
        app.router.add_get("/threads/{thread_id}", ask)
        async with AiohttpClient(TestServer(app)) as client:
            await client.post("/ask", json=BODY)
            await client.get("/ask?q=Is+it&sessionId=s2")
            await client.get("/threads/t1?q=Is+it")

    with capture_traces() as records:
        asyncio.run(main())
    assert [(r.q, r.session, r.user) for r in records] == [
        ("Is it?", "s1", "u1"),
        ("Is it", "s2", None),
        ("Is it", "t1", None),
    ]


def test_an_event_of_a_gateway():
    event = {"path": "/ask", "queryStringParameters": {"sessionId": "s1"}, "body": json.dumps({"question": "Is it?"})}
    assert found(anything, event, None) == ("s1", None)


def test_every_reader_has_the_same_names():
    assert TRACE["session"].strong == shapes.SESSION_KEYS
    assert all(normalised(key) == key for key in (*shapes.SESSION_KEYS, *shapes.USER_KEYS))
