"""Functions of an application between the span of its web server and the first span that is known."""

from __future__ import annotations

import pytest

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import to_record
from tests.support.recorded_spans import made

HTTP = {"http.request.method": "POST", "http.route": "/ask", "http.response.status_code": 200}
Q, CLAIM, RAW = "Is it?", "It is [1].", "So, well: it is."
CALL = {semconv.SPAN_KIND: semconv.LLM, semconv.OUTPUT_VALUE: RAW, semconv.LLM_MODEL: "m"}
FUNCTIONS = {
    "langfuse": {
        "langfuse.observation.type": "span",
        "langfuse.observation.input": f'{{"question": "{Q}"}}',
        "langfuse.observation.output": CLAIM,
    },
    "mlflow": {
        "mlflow.spanType": '"UNKNOWN"',
        "mlflow.spanInputs": f'{{"question": "{Q}"}}',
        "mlflow.spanOutputs": f'"{CLAIM}"',
    },
    "laminar": {"lmnr.span.type": "DEFAULT", "lmnr.span.input": f'{{"question": "{Q}"}}', "lmnr.span.output": CLAIM},
    "own, as OpenInference": {semconv.INPUT_VALUE: Q, semconv.OUTPUT_VALUE: CLAIM},
    "own, as ragmon": {semconv.RAGMON_QUESTION: Q, semconv.RAGMON_CLAIM: CLAIM},
}
TYPED = ["langfuse", "mlflow", "laminar"]


def behind_http(function, *, failed=False, called=True):
    """A web server's span around a function's, around a model's call."""
    server = made(HTTP, end=9)
    inner = made(function, parent=server, start=1, end=8, failed=failed)
    return [server, inner, *([made(CALL, parent=inner, start=2, end=3)] if called else [])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_behind_a_web_server_tells_question_and_answer(name):
    record = to_record(behind_http(FUNCTIONS[name])).record
    assert (record.q, record.answer_json.claim, record.latency_ms.total) == (Q, CLAIM, 9000.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails_is_an_error_whatever_its_server_answers(name):
    record = to_record(behind_http(FUNCTIONS[name], failed=True)).record
    assert (record.q, record.error, record.answer_json) == (Q, "error", None)


@pytest.mark.parametrize("name", TYPED)
def test_a_function_that_fails_before_it_calls_a_model_is_a_request(name):
    record = to_record(behind_http(FUNCTIONS[name], failed=True, called=False)).record
    assert (record.q, record.error) == (Q, "error")


def test_where_an_agent_tells_no_answer_an_agent_inside_it_does():
    """As a remote agent, or the graph of an agent; a grader after it does not."""
    agent = made({semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: Q}, end=9)
    graph = made({semconv.SPAN_KIND: semconv.CHAIN, semconv.OUTPUT_VALUE: CLAIM}, parent=agent, start=1, end=8)
    grader = CALL | {semconv.OUTPUT_VALUE: "yes"}
    calls = [made(CALL, parent=graph, start=2, end=3), made(grader, parent=graph, start=4, end=5)]
    assert to_record([agent, graph, *calls]).record.answer_json.claim == CLAIM


def test_what_an_agent_returns_to_a_tool_is_no_answer():
    """Where it is another agent's tool, that one answers."""
    agent = made({semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: Q}, end=9)
    tool = made({semconv.SPAN_KIND: semconv.TOOL}, parent=agent, start=4, end=8)
    helper = {semconv.SPAN_KIND: semconv.AGENT, semconv.OUTPUT_VALUE: "Notes."}
    calls = [made(helper, parent=tool, start=5, end=7), made(CALL, parent=agent, start=1, end=3)]
    assert to_record([agent, tool, *calls]).record.answer_json.claim == RAW
