"""FastAPI sees of a decorated endpoint what it sees of the bare one: parameters, dependencies, schema, answers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Body, Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel

import ragmon
from ragmon.testing import capture_traces

Q = "Is it?"
SOURCES = [{"id": "d1", "text": "one"}, {"id": "d2", "text": "two"}]


class Ask(BaseModel):
    question: str
    top_k: int = 5


class Turn(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    messages: list[Turn]


class Source(BaseModel):
    id: str
    text: str


class Reply(BaseModel):
    answer: str
    sources: list[Source]


class Session:
    """A handle of a database, which a dependency opens and closes."""

    is_open = True


def session() -> Iterator[Session]:
    opened = Session()
    yield opened
    opened.is_open = False


def rate_limit(x_user: Annotated[str, Header()] = "nobody") -> str:
    return x_user


class Paging:
    def __init__(self, limit: int = 10, q: str | None = None) -> None:
        self.limit = limit
        self.q = q


SessionOf = Annotated[Session, Depends(session)]


def reply() -> Reply:
    return Reply(answer="yes [2]", sources=[Source(**source) for source in SOURCES])


def of_body(body: Ask, db: SessionOf) -> Reply:
    """Answer a question."""
    assert db.is_open
    return reply()


async def of_body_async(body: Annotated[Ask, Body(embed=True)], user: Annotated[str, Depends(rate_limit)]) -> Reply:
    assert user == "ada"
    return reply()


async def of_chat(chat: Chat, tasks: BackgroundTasks, response: Response) -> dict[str, Any]:
    tasks.add_task(int)
    response.headers["x-answered"] = "1"
    return {"answer": "yes [2]", "sources": SOURCES}


async def of_request(request: Request) -> JSONResponse:
    assert await request.json() is not None
    return JSONResponse({"answer": "yes [2]", "sources": SOURCES})


def of_query(tenant: Annotated[str, Path()], q: Annotated[str, Query(min_length=2)], lang: str = "en") -> Reply:
    assert tenant
    assert lang
    return reply()


def of_dependency(paging: Annotated[Paging, Depends()], db: Session = Depends(session)) -> Reply:  # noqa: B008
    assert paging.limit == 10
    assert db.is_open
    return reply()


async def streamed(body: Ask) -> StreamingResponse:
    async def text() -> AsyncIterator[str]:
        yield "yes "
        yield "[2]"

    ragmon.record(retrieved=SOURCES)
    return StreamingResponse(text(), media_type="text/plain")


ENDPOINTS = {
    "/body": (of_body, {"json": {"question": Q}}),
    "/embedded": (of_body_async, {"json": {"body": {"question": Q}}, "headers": {"x-user": "ada"}}),
    "/chat": (of_chat, {"json": {"messages": [{"role": "user", "content": Q}]}}),
    "/request": (of_request, {"json": {"question": Q}}),
    "/query/{tenant}": (of_query, {"params": {"q": Q}}),
    "/dependency": (of_dependency, {"params": {"q": Q}}),
    "/streamed": (streamed, {"json": {"question": Q}}),
}


def application(decorate):
    app = FastAPI()
    for path, (endpoint, _) in ENDPOINTS.items():
        has_model = inspect.signature(endpoint, eval_str=True).return_annotation is Reply
        app.post(path, response_model=Reply if has_model else None)(decorate(endpoint))
    return app


@pytest.mark.parametrize("endpoint", [endpoint for endpoint, _ in ENDPOINTS.values()])
def test_a_decorated_endpoint_has_the_signature_of_the_bare_one(endpoint):
    traced = ragmon.trace(endpoint)
    assert inspect.signature(traced) == inspect.signature(endpoint)
    # Evaluated, annotations hold new objects each time, which are equal only in how they are written.
    assert str(inspect.signature(traced, eval_str=True)) == str(inspect.signature(endpoint, eval_str=True))
    assert inspect.get_annotations(traced) == inspect.get_annotations(endpoint)
    assert inspect.iscoroutinefunction(traced) == inspect.iscoroutinefunction(endpoint)
    assert (traced.__name__, traced.__doc__, traced.__module__) == (endpoint.__name__, endpoint.__doc__, __name__)


def test_the_schema_is_the_same_with_and_without_the_decorator():
    schema = application(lambda endpoint: endpoint).openapi()
    assert application(ragmon.trace).openapi() == schema
    assert application(ragmon.trace(name="support", question=lambda **_: Q)).openapi() == schema
    assert len(schema["paths"]) == len(ENDPOINTS)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_endpoints_answer_as_before_and_nothing_has_to_be_configured(path):
    _, request = ENDPOINTS[path]
    place = path.format(tenant="a-tenant")
    with TestClient(application(lambda endpoint: endpoint)) as bare:
        expected = bare.post(place, **request)
    with capture_traces() as records, TestClient(application(ragmon.trace)) as client:
        answered = client.post(place, **request)
        refused = client.post(place, json=[])
        expected_refusal = bare.post(place, json=[])
    assert (
        (answered.status_code, answered.content) == (expected.status_code, expected.content) == (200, expected.content)
    )
    assert answered.headers == expected.headers
    assert (refused.status_code, refused.content) == (expected_refusal.status_code, expected_refusal.content)
    record = records[0]
    assert (record.q, record.answer_json.claim) == (Q, "yes [2]")
    assert (record.retrieved_ids, record.contexts) == (["d1", "d2"], ["one", "two"])
    assert record.answer_json.citations == ["d2"]
