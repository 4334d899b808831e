"""How a request ended, read off its spans: an exception that is control flow is no error of the pipeline."""

from __future__ import annotations

import pytest

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Event, SpanOptions
from tests.support.recorded_spans import made

CHAIN = {semconv.SPAN_KIND: semconv.CHAIN, semconv.INPUT_VALUE: "Is it?"}
DOCUMENTS = {semconv.SPAN_KIND: semconv.RETRIEVER, "retrieval.documents.0.document.id": "d1"}


def exception(name, message=""):
    return Event(semconv.EXCEPTION, {semconv.EXCEPTION_TYPE: name, semconv.EXCEPTION_MESSAGE: message})


def request(chain, events=(), *, failed=True, root=None, scope="openinference.instrumentation.langchain"):
    """A web server's span, in it a chain that ended as said, and in it a retriever."""
    outer = made({"http.request.method": "POST", "url.path": "/ask", **(root or {})}, end=5)
    inner = made({**CHAIN, **chain}, parent=outer, end=4, failed=failed, events=events, scope=scope)
    return [outer, inner, made(DOCUMENTS, parent=inner, end=2)]


def told(spans, **options):
    record = to_record(spans, SpanOptions(**options)).record
    return record.error, record.ended, record.partial, record.answer_json, record.retrieved_ids


def ended(how):
    return None, how, True, None, ["d1"]


@pytest.mark.parametrize(
    ("name", "message", "how"),
    [
        ("GeneratorExit", "GeneratorExit()", "abandoned"),
        ("starlette.websockets.WebSocketDisconnect", "(1001, '')", "abandoned"),
        ("asyncio.exceptions.CancelledError", "", "cancelled"),
        ("CancelledError", "", "cancelled"),
        ("langgraph.errors.GraphInterrupt", "(Interrupt(value='May I?'),)", "interrupted"),
        ("NodeInterrupt", "", "interrupted"),
        ("KeyboardInterrupt", "", "interrupted"),
        ("fastapi.exceptions.HTTPException", "404: no such page", "rejected"),
        ("werkzeug.exceptions.BadRequest", "400 Bad Request: The browser sent", "rejected"),
        ("django.http.response.Http404", "No page matches", "rejected"),
    ],
)
def test_control_flow_is_no_error_and_leaves_no_answer(name, message, how):
    assert told(request({semconv.OUTPUT_VALUE: "It i"}, [exception(name, message)])) == ended(how)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai.RateLimitError", "Error code: 429 - {}"),
        ("anthropic.AuthenticationError", "Error code: 401"),
        ("httpx.HTTPStatusError", "Client error '404 Not Found'"),
        ("fastapi.exceptions.HTTPException", "503: busy"),
        ("KeyError", "'documents'"),
    ],
)
def test_faults_and_answers_of_providers_are_errors(name, message):
    assert told(request({}, [exception(name, message)], root={"http.response.status_code": 429}))[:2] == (name, None)


def test_the_status_is_the_web_servers_where_no_message_has_it():
    events = [exception("starlette.exceptions.HTTPException", "no")]
    assert told(request({}, events, root={"http.response.status_code": 422})) == ended("rejected")
    assert told(request({}, events, root={"http.response.status_code": 500}))[1] is None
    assert told(request({}, events))[1] is None


def test_the_last_exception_decides_and_an_attribute_may_lack_its_module():
    left = [exception("KeyError"), exception("GeneratorExit")]
    assert told(request({}, left)) == ended("abandoned")
    assert told(request({}, left[::-1]))[0] == "KeyError"
    refused = [exception("fastapi.exceptions.HTTPException", "404: no")]
    assert told(request({semconv.ERROR_TYPE: "HTTPException"}, refused)) == ended("rejected")
    provider = [exception("google.api_core.exceptions.Cancelled", "499 cancelled")]
    assert told(request({semconv.ERROR_TYPE: "Cancelled"}, provider))[:2] == ("Cancelled", None)


def test_the_web_servers_own_fault_is_an_error_where_the_chain_returned():
    outer, inner, step = request({semconv.OUTPUT_VALUE: "It is."}, failed=False)
    outer = outer._replace(failed=True, attributes={**outer.attributes, semconv.ERROR_TYPE: "500"})
    assert told([outer, inner, step])[:2] == ("500", None)


@pytest.mark.parametrize(("status", "error"), [(404, None), (429, None), (500, "500")])
def test_a_web_servers_span_may_fail_for_what_its_client_asked(status, error):
    outer, inner, step = request({semconv.OUTPUT_VALUE: "It is."}, failed=False)
    told_client = {"http.response.status_code": status, semconv.ERROR_TYPE: str(status)}
    outer = outer._replace(failed=True, attributes={**outer.attributes, **told_client})
    assert told([outer, inner, step])[0] == error


def test_a_models_span_with_a_providers_status_is_an_error():
    call = made({semconv.SPAN_KIND: semconv.LLM, semconv.ERROR_TYPE: "429", "http.response.status_code": 429}, end=3)
    assert told([call._replace(failed=True), made(DOCUMENTS, end=2)])[:2] == ("429", None)
    assert told([call._replace(failed=True)])[:2] == ("429", None)


@pytest.mark.parametrize("output", ["null", " null\n"])
def test_a_chain_of_langchain_that_was_closed_early_is_abandoned(output):
    """Its tracer writes None, and a step may have the model's whole reply, which nobody read."""
    outer, chain, step = request({semconv.OUTPUT_VALUE: output}, failed=False)
    call = made({semconv.SPAN_KIND: semconv.LLM, semconv.OUTPUT_VALUE: "It is."}, parent=chain, end=3)
    assert told([outer, chain, step, call]) == ended("abandoned")


@pytest.mark.parametrize("output", ["null", "NaN", "undefined"])
def test_no_value_is_no_answer(output):
    record = to_record(request({semconv.OUTPUT_VALUE: output}, failed=False, scope="app")).record
    assert (record.error, record.ended, record.partial, record.answer_json) == (None, None, True, None)


def test_a_graph_whose_step_asks_a_person_waits():
    outer, graph, step = request({semconv.OUTPUT_VALUE: '{"question": "Is it?", "docs": []}'}, failed=False)
    asks = made(
        {semconv.SPAN_KIND: semconv.CHAIN},
        parent=graph,
        events=[exception("langgraph.errors.GraphInterrupt")],
        end=3,
    )
    assert told([outer, graph, step, asks])[:4] == (None, "interrupted", True, None)


@pytest.mark.parametrize(("name", "how"), [("GeneratorExit", "abandoned"), ("CancelledError", "cancelled")])
def test_some_tracers_fail_no_span_for_a_caller_who_leaves(name, how):
    assert told(request({}, [exception(name)], failed=False)) == ended(how)
    answered = request({semconv.OUTPUT_VALUE: "It is."}, [exception(name)], failed=False)
    assert told(answered)[:3] == (None, None, False)


def test_what_is_configured_adds():
    spans = request({}, [exception("app.errors.QuotaExceeded")])
    assert told(spans)[0] == "app.errors.QuotaExceeded"
    for pattern in ("QuotaExceeded", "app.errors.*"):
        assert told(spans, ignored=[pattern]) == ended("ignored")
