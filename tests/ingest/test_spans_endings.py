"""How a request ended, read off its spans: an exception that is control flow is no error of the pipeline."""

from __future__ import annotations

import pytest

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import NOT_RAG, Event, SpanOptions
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


AGENT, LLM = {semconv.SPAN_KIND: semconv.AGENT}, {semconv.SPAN_KIND: semconv.LLM}
TOOL = {semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: "search"}
SAID = {**LLM, semconv.OUTPUT_VALUE: "At nine."}
BAD_REQUEST = exception("openai.BadRequestError", "Error code: 400 - no")


def run(*steps, outer=AGENT, **agent):
    """An agent whose outer span says that all went well, in it another agent, in it its steps in turn."""
    root = made(outer, end=99)
    inner = made(AGENT, parent=root, end=98, **agent)
    return [
        root,
        inner,
        *(made(kept, parent=inner, start=n, end=n + 1, **how) for n, (kept, how) in enumerate(steps, 1)),
    ]


class TestFailuresBelow:
    @pytest.mark.parametrize("outer", [AGENT, {**AGENT, semconv.OUTPUT_VALUE: ""}, CHAIN, {}])
    def test_a_request_without_an_answer_failed_where_its_last_step_did(self, outer):
        spans = run((LLM, {}), (TOOL, {}), (LLM, {"failed": True, "events": [BAD_REQUEST]}), outer=outer, failed=True)
        assert told(spans)[:4] == ("openai.BadRequestError", None, False, None)

    def test_a_failure_is_known_without_a_type(self):
        assert told(run((LLM, {}), (LLM, {"failed": True})))[0] == "error"

    @pytest.mark.parametrize("step", [LLM, {semconv.SPAN_KIND: semconv.RETRIEVER}])
    def test_a_step_that_was_tried_again_is_no_failure_of_the_request(self, step):
        """Content may be switched off: that no answer is known tells nothing of the request."""
        assert told(run((step, {"failed": True}), (step, {})))[:2] == (None, None)

    def test_a_tool_that_failed_is_none_where_the_model_went_on(self):
        assert told(run((TOOL, {"failed": True}), (LLM, {})))[:2] == (None, None)

    def test_a_request_with_an_answer_did_not_fail_for_what_came_after_it(self):
        error, ended, _, answer, _ = told(run((SAID, {}), (LLM, {"failed": True})))
        assert (error, ended, answer.claim) == (None, None, "At nine.")

    def test_what_a_failed_agent_said_on_its_way_is_no_answer(self):
        spans = run((SAID, {}), (TOOL, {}), (LLM, {"failed": True, "events": [BAD_REQUEST]}), failed=True)
        assert told(spans)[:4] == ("openai.BadRequestError", None, False, None)

    def test_what_a_failed_model_call_streamed_is_no_answer(self):
        assert told(run((SAID, {"failed": True})))[:4] == ("error", None, False, None)

    def test_a_step_of_the_applications_own_that_failed_around_a_retrieval(self):
        root = made({"http.route": "/ask"}, end=9)
        own = made({}, parent=root, end=8, failed=True, events=[exception("KeyError", "'context'")])
        assert told([root, own, made(DOCUMENTS, parent=own, end=2)]) == ("KeyError", None, False, None, ["d1"])

    def test_a_request_to_another_system_that_failed_beside_the_steps_is_none(self):
        spans = run((LLM, {}), ({"http.request.method": "GET"}, {"failed": True}))
        assert told(spans)[:2] == (None, None)

    def test_control_flow_below_an_outer_span_that_went_well(self):
        asks = exception("langgraph.errors.GraphInterrupt", "(Interrupt(value='May I?'),)")
        assert told(run((LLM, {}), (TOOL, {"failed": True, "events": [asks]})))[:4] == (None, "interrupted", True, None)

    @pytest.mark.parametrize("level", ["ERROR", "WARNING"])
    def test_a_level_of_langfuse_is_a_status(self, level):
        observation = {"langfuse.observation.type": "generation", "langfuse.observation.level": level}
        chain = made({"langfuse.observation.type": "chain"}, end=9)
        assert told([chain, made(observation, parent=chain)])[0] == ("error" if level == "ERROR" else None)


class TestAgentsWithoutModelCalls:
    @pytest.mark.parametrize(
        "agent",
        [AGENT, {semconv.OPERATION: "invoke_agent"}, {semconv.TRACELOOP_KIND: "agent"}],
        ids=["openinference", "genai", "openllmetry"],
    )
    @pytest.mark.parametrize("failed", [True, False])
    def test_they_count_when_they_succeed_as_when_they_fail(self, agent, failed):
        chain = made({semconv.SPAN_KIND: semconv.CHAIN}, end=3)
        record = to_record([chain, made(agent, parent=chain, failed=failed)]).record
        assert record.error == ("error" if failed else None)

    def test_their_output_is_the_answer(self):
        crew = {**CHAIN, semconv.OUTPUT_VALUE: '{"raw": "At nine [1].", "tasks_output": [{"raw": "At nine [1]."}]}'}
        chain = made(crew, end=3)
        agent = made({**AGENT, semconv.OUTPUT_VALUE: '{"raw": "At nine [1]."}'}, parent=chain, end=2)
        mapped = to_record([chain, agent, made({**TOOL, semconv.OUTPUT_VALUE: "[1] At nine."}, parent=agent)])
        assert (mapped.record.q, mapped.record.answer_json.claim) == ("Is it?", "At nine [1].")
        assert mapped.tools == ["search"]

    @pytest.mark.parametrize("failed", [True, False])
    def test_a_chain_alone_with_question_and_answer_counts_when_it_succeeds_as_when_it_fails(self, failed):
        """As a decorated function, where the client of the model is not traced."""
        record = to_record([made({**CHAIN, semconv.OUTPUT_VALUE: "It is."}, failed=failed)]).record
        assert (record.q, record.error) == ("Is it?", "error" if failed else None)

    def test_a_chain_alone_without_an_answer_is_no_request(self):
        assert to_record([made(CHAIN)]).reason == NOT_RAG

    def test_a_model_call_known_by_its_messages_is_one_when_it_fails(self):
        call = {semconv.INPUT_MESSAGES: '[{"role": "user", "content": "Is it?"}]'}
        record = to_record([made(call, failed=True, events=[BAD_REQUEST])]).record
        assert (record.q, record.error) == ("Is it?", "openai.BadRequestError")
