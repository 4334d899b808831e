"""Decorated calls that neither return nor fail, under the frameworks themselves: no error, no answer, one record."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from http import HTTPStatus
from typing import Annotated

import aiohttp.web
import fastapi
import flask
import httpx
import openai
import pytest
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from fastapi.testclient import TestClient
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from starlette.responses import JSONResponse, PlainTextResponse
from typing_extensions import TypedDict

import ragmon
from ragmon.testing import capture_traces
from tests.support.waiting import TIMEOUT


def told(records):
    return [(record.error, record.ended, record.partial, record.answer_json) for record in records]


@pytest.mark.parametrize(("status", "ended"), [(400, "rejected"), (404, "rejected"), (429, "rejected"), (503, None)])
def test_fastapi_refuses_its_client(status, ended):
    app = fastapi.FastAPI()

    @app.post("/ask")
    @ragmon.trace
    async def ask(question: Annotated[str, fastapi.Body(embed=True)]):
        raise fastapi.HTTPException(status, "no")

    with capture_traces() as records:
        assert TestClient(app).post("/ask", json={"question": "Is it?"}).status_code == status
    error = None if ended else "HTTPException"
    assert told(records) == [(error, ended, ended is not None, None)]
    assert records[0].q == "Is it?"


@pytest.mark.parametrize(("status", "ended"), [(400, "rejected"), (404, "rejected"), (422, "rejected"), (500, None)])
def test_flask_aborts(status, ended):
    app = flask.Flask(__name__)

    @app.post("/ask")
    @ragmon.trace
    def ask():
        flask.abort(status)

    with capture_traces() as records:
        assert app.test_client().post("/ask", json={"question": "Is it?"}).status_code == status
    assert [(record.ended, record.error is None) for record in records] == [(ended, ended is not None)]


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        (aiohttp.web.HTTPNotFound, "rejected"),
        (aiohttp.web.HTTPUnauthorized, "rejected"),
        (aiohttp.web.HTTPTooManyRequests, "rejected"),
        (aiohttp.web.HTTPServiceUnavailable, None),
    ],
)
def test_aiohttp_refuses_its_client(kind, ended):
    @ragmon.trace
    async def ask(request):
        raise kind

    async def main():
        app = aiohttp.web.Application()
        app.router.add_post("/ask", ask)
        async with AiohttpClient(TestServer(app)) as client, client.post("/ask", json={"question": "?"}) as response:
            return response.status

    with capture_traces() as records:
        assert asyncio.run(main()) == kind.status_code
    assert [(record.ended, record.error is None) for record in records] == [(ended, ended is not None)]


DJANGO = """
import json
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], INSTALLED_APPS=["rest_framework"], SECRET_KEY="x",
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []})
import django
django.setup()
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import Http404
from django.test import Client
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.exceptions import APIException, Throttled, ValidationError
import ragmon
from ragmon.testing import capture_traces

ERRORS = {"404": Http404, "403": PermissionDenied, "400": SuspiciousOperation, "500": KeyError,
    "rest400": lambda: ValidationError("no"), "rest429": Throttled, "rest500": APIException}

@ragmon.trace
def view(request, name):
    raise ERRORS[name]()

rest = api_view(["GET"])(view)
urlpatterns = [path("rest/<name>", rest), path("<name>", view)]
client = Client(raise_request_exception=False)
found = {}
for name in ERRORS:
    with capture_traces() as records:
        status = client.get(f"/rest/{name}" if name.startswith("rest") else f"/{name}").status_code
    found[name] = [status, *[[record.ended, record.error] for record in records]]
print(json.dumps(found))
"""


def test_django_and_its_rest_framework_refuse_their_client():
    pytest.importorskip("rest_framework")
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO], capture_output=True, text=True, check=True, env=environment, timeout=TIMEOUT
    )
    assert json.loads(ran.stdout) == {
        "404": [404, ["rejected", None]],
        "403": [403, ["rejected", None]],
        "400": [400, ["rejected", None]],
        "500": [500, [None, "KeyError"]],
        "rest400": [400, ["rejected", None]],
        "rest429": [429, ["rejected", None]],
        "rest500": [500, [None, "APIException"]],
    }


class OwnResponse(JSONResponse):
    """An application's own response."""


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        (JSONResponse({"detail": "no"}, 404), "rejected"),
        (OwnResponse({"answer": "no"}, 422), "rejected"),
        (PlainTextResponse("no", 400), "rejected"),
        (flask.Response("no", status=403), "rejected"),
        (({"error": "no"}, 404), "rejected"),
        (({"error": "no"}, HTTPStatus.NOT_FOUND), "rejected"),
        ({"statusCode": 429, "body": '{"message": "no"}'}, "rejected"),
        (aiohttp.web.json_response({"error": "no"}, status=400), "rejected"),
        (JSONResponse({"answer": "At nine."}), None),
        (({"answer": "At nine."}, 201), None),
        ({"statusCode": 200, "body": '{"answer": "At nine."}'}, None),
        ({"answer": "At nine.", "statusCode": 404}, None),
        (httpx.Response(404, json={"answer": "At nine."}), None),  # what a provider says
        (("At nine.", ["d1"]), None),
    ],
)
def test_a_refusal_of_the_client_may_be_returned(response, ended):
    @ragmon.trace
    def ask(question):
        return response

    with capture_traces() as records:
        assert ask("Is it?") is response
    assert [(r.error, r.ended, r.partial, r.answer_json is None) for r in records] == [
        (None, ended, ended is not None, ended is not None)
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_what_a_provider_answers_is_an_error(status):
    client = openai.OpenAI(
        api_key="k",
        max_retries=0,
        http_client=httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, json={}))),
    )

    @ragmon.trace
    def ask(question):
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])

    with capture_traces() as records, pytest.raises(openai.APIStatusError):
        ask("Is it?")
    assert [(record.ended, record.error is not None) for record in records] == [(None, True)]


class State(TypedDict, total=False):
    question: str
    documents: list[dict[str, str]]
    answer: str


def waiting_graph():
    graph = StateGraph(State)
    graph.add_node("search", lambda state: {"documents": [{"id": "d1", "text": "At nine."}]})
    graph.add_node("ask_person", lambda state: {"answer": interrupt("May I answer?")})
    graph.add_edge(START, "search")
    graph.add_edge("search", "ask_person")
    graph.add_edge("ask_person", END)
    return graph.compile(checkpointer=MemorySaver())


def invoke(app, state, config):
    return app.invoke(state, config)


def stream_values(app, state, config):
    return app.stream(state, config, stream_mode="values")


def stream_updates(app, state, config):
    return app.stream(state, config, stream_mode="updates")


@pytest.mark.parametrize("run", [invoke, stream_values, stream_updates])
def test_a_graph_that_waits_for_a_person_is_interrupted(run):
    """LangGraph returns, or streams, what it asks: the call ends without an answer, and without an error."""
    app = waiting_graph()

    @ragmon.trace
    def ask(question, thread_id):
        return run(app, {"question": question}, {"configurable": {"thread_id": thread_id}})

    with capture_traces() as records:
        result = ask("Is it?", "t1")
        if run is not invoke:
            list(result)
    assert told(records) == [(None, "interrupted", True, None)]
    assert records[0].q == "Is it?"


def test_what_is_configured_adds_and_is_not_counted_as_an_error(tmp_path):
    class BudgetSpentError(Exception):
        pass

    @ragmon.trace
    def ask(question):
        raise BudgetSpentError if question == "spent" else KeyError(question)

    config = tmp_path / "ragmon.toml"
    config.write_text(
        '[sampling]\nrate = 1.0\n[errors]\nignore = ["Budget*"]\n[serve]\nadmin = "127.0.0.1:0"\n', encoding="utf-8"
    )
    installed = ragmon.install(config=config)
    try:
        for question in ("spent", "spent", "broken"):
            with pytest.raises((BudgetSpentError, KeyError)):
                ask(question)
        installed.flush()
        stat = installed.monitor.snapshot().snapshot.find("default", "live", window="5m").metrics["error_rate"]
    finally:
        installed.shutdown()
    assert (stat.sum // 1_000_000, stat.n) == (1, 3)
