"""What is an error of the pipeline, and what is control flow: by type and status, the same for calls and for spans."""

from __future__ import annotations

import asyncio
import concurrent.futures

import aiohttp
import aiohttp.web
import fastapi
import flask
import httpx
import openai
import pytest
import requests
import starlette.exceptions
import starlette.requests
import werkzeug.exceptions
from django.core.exceptions import PermissionDenied, SuspiciousOperation, ValidationError
from django.http import Http404
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from langgraph.errors import GraphInterrupt, GraphRecursionError, ParentCommand

from ragmon.core.endings import ending_of, ending_of_error, status_in


class QuotaExceeded(fastapi.HTTPException):
    """An application's own answer to its client."""

    def __init__(self) -> None:
        super().__init__(429)


def raised_by(function, *args):
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001 - any
        return error
    raise AssertionError("nothing was raised")


def handed_on(inner, outer, *, cause=True):
    def provider():
        raise inner

    def view():
        try:
            provider()
        except Exception as error:  # noqa: BLE001 - any
            raise outer from (error if cause else None)

    return raised_by(view)


class OwnError(Exception):
    """An application's own error, which carries a status as those of client libraries do."""

    status_code = code = 404


def openai_error(kind, status):
    return kind("no", response=httpx.Response(status, request=httpx.Request("POST", "http://model")), body=None)


def web_response(status):
    return flask.Response("no", status=status)


REJECTED = [
    *(fastapi.HTTPException(status) for status in (400, 401, 403, 404, 409, 422, 429)),
    *(starlette.exceptions.HTTPException(status) for status in (307, 404, 413)),
    QuotaExceeded(),
    RequestValidationError([]),
    *(raised_by(flask.abort, status) for status in (400, 404, 429)),
    raised_by(flask.abort, web_response(403)),
    werkzeug.exceptions.BadRequestKeyError("question"),
    werkzeug.exceptions.UnprocessableEntity(),
    Http404(),
    PermissionDenied(),
    SuspiciousOperation(),
    aiohttp.web.HTTPNotFound(),
    aiohttp.web.HTTPTooManyRequests(),
    aiohttp.web.HTTPFound("/login"),
]
ERRORS = [
    *(fastapi.HTTPException(status) for status in (500, 502, 503)),
    starlette.exceptions.HTTPException(504),
    ResponseValidationError([]),
    raised_by(flask.abort, 500),
    raised_by(flask.abort, web_response(503)),
    werkzeug.exceptions.InternalServerError(),
    aiohttp.web.HTTPServiceUnavailable(),
    ValidationError("no"),
    openai_error(openai.BadRequestError, 400),
    openai_error(openai.AuthenticationError, 401),
    openai_error(openai.NotFoundError, 404),
    openai_error(openai.RateLimitError, 429),
    httpx.HTTPStatusError("no", request=httpx.Request("GET", "http://x"), response=httpx.Response(404)),
    requests.HTTPError("404 Client Error"),
    aiohttp.ClientResponseError(None, (), status=404),
    OwnError(),
    *(TimeoutError(), ConnectionResetError(), KeyError("x"), SystemExit(1), StopAsyncIteration()),
    GraphRecursionError(),
    ExceptionGroup("two", [fastapi.HTTPException(404), KeyError()]),
]
OTHERS = {
    "abandoned": [
        GeneratorExit(),
        fastapi.WebSocketDisconnect(1001),
        starlette.requests.ClientDisconnect(),
        werkzeug.exceptions.ClientDisconnected(),
        ExceptionGroup("a task", [fastapi.WebSocketDisconnect(1000)]),
    ],
    "cancelled": [asyncio.CancelledError(), concurrent.futures.CancelledError()],
    "interrupted": [KeyboardInterrupt(), GraphInterrupt(()), ParentCommand(None)],
}


def shown(error):
    return f"{type(error).__module__}.{type(error).__name__} {getattr(error, 'status_code', '')}"


@pytest.mark.parametrize("error", REJECTED, ids=shown)
def test_a_status_below_500_that_a_web_framework_raises_to_its_client_is_no_error(error):
    assert ending_of_error(error) == "rejected"


@pytest.mark.parametrize("error", ERRORS, ids=shown)
def test_faults_and_the_status_errors_of_client_libraries_are_errors(error):
    assert ending_of_error(error) is None


@pytest.mark.parametrize(("ending", "error"), [(e, each) for e, errors in OTHERS.items() for each in errors])
def test_who_leaves_cancels_or_interrupts_makes_no_error(ending, error):
    assert ending_of_error(error) == ending


@pytest.mark.parametrize(
    ("name", "message", "ending"),
    [
        ("fastapi.exceptions.HTTPException", "404: no such page", "rejected"),
        ("starlette.exceptions.HTTPException", "503: busy", None),
        ("starlette.exceptions.HTTPException", "", None),  # its status is not known
        ("werkzeug.exceptions.NotFound", "404 Not Found: The requested URL was not found", "rejected"),
        ("django.http.response.Http404", "no Page matches", "rejected"),
        ("django.core.exceptions.PermissionDenied", "", "rejected"),
        ("rest_framework.exceptions.ValidationError", "{'q': ['required']}", "rejected"),
        ("rest_framework.exceptions.APIException", "A server error occurred.", None),
        ("tornado.web.HTTPError", "HTTP 403: Forbidden", "rejected"),
        ("tornado.web.HTTPError", "HTTP 500: Internal Server Error", None),
        ("tornado.httpclient.HTTPClientError", "HTTP 404: Not Found", None),
        ("litestar.exceptions.http_exceptions.NotFoundException", "404: Not Found", "rejected"),
        ("litestar.exceptions.http_exceptions.InternalServerException", "500: no", None),
        ("sanic.exceptions.NotFound", "Requested URL /x not found", "rejected"),
        ("sanic.exceptions.ServiceUnavailable", "busy", None),
        ("aiohttp.web_exceptions.HTTPBadRequest", "Bad Request", "rejected"),
        ("aiohttp.client_exceptions.ClientResponseError", "404, message='Not Found'", None),
        ("google.api_core.exceptions.NotFound", "404 no such index", None),
        ("google.api_core.exceptions.Cancelled", "499 cancelled", None),
        ("anthropic.RateLimitError", "Error code: 429", None),
        ("botocore.exceptions.ClientError", "An error occurred (404)", None),
        ("elasticsearch.NotFoundError", "NotFoundError(404, 'index_not_found_exception')", None),
        ("HTTPException", "404: no such page", "rejected"),
        ("Http404", "", "rejected"),
        ("NotFoundError", "Error code: 404", None),
        ("CancelledError", "", "cancelled"),
        ("trio.Cancelled", "", "cancelled"),
        ("GraphInterrupt", "(Interrupt(value='Is it?'),)", "interrupted"),
        ("GeneratorExit", "GeneratorExit()", "abandoned"),
    ],
)
def test_a_span_tells_the_name_of_the_type_and_a_message(name, message, ending):
    assert ending_of([name], status_in(message)) == ending


@pytest.mark.parametrize("pattern", ["OwnError", "*.OwnError", "*Error", "Exception"])
def test_what_is_ignored_adds_by_the_name_of_the_class_or_of_a_base(pattern):
    assert ending_of_error(OwnError(), [pattern]) == "ignored"
    assert ending_of_error(OwnError(), ["OtherError", "Own"]) is None


@pytest.mark.parametrize(
    "inner",
    [
        openai_error(openai.RateLimitError, 429),
        openai_error(openai.BadRequestError, 400),
        httpx.HTTPStatusError("no", request=httpx.Request("GET", "http://x"), response=httpx.Response(404)),
        httpx.ReadTimeout("late", request=httpx.Request("GET", "http://x")),
        requests.HTTPError("404 Client Error", response=requests.Response()),
    ],
    ids=shown,
)
def test_a_providers_answer_that_is_handed_on_to_the_client_is_an_error(inner):
    assert ending_of_error(handed_on(inner, fastapi.HTTPException(429))) is None
    assert ending_of_error(handed_on(inner, fastapi.HTTPException(429), cause=False)) == "rejected"


@pytest.mark.parametrize("inner", [KeyError("page"), OwnError(), ValueError("no number")], ids=shown)
def test_what_is_not_found_and_told_to_the_client_is_none(inner):
    assert ending_of_error(handed_on(inner, fastapi.HTTPException(404))) == "rejected"


def test_a_status_that_cannot_be_read_leaves_an_error():
    class Broken(starlette.exceptions.HTTPException):
        @property
        def status_code(self):
            raise KeyError("no status")

        @status_code.setter
        def status_code(self, value):
            pass

    assert ending_of_error(Broken(404)) is None
