"""What a server says of requests that it read from spans is about spans: their switches, and nothing was sampled."""

from __future__ import annotations

import json
import logging
import time
from html import unescape

import pytest

from ragmon.core import semconv
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made
from tests.support.serving import configuration, send_body, serving

AGENT, CHAT = {semconv.OPERATION: "invoke_agent"}, {semconv.OPERATION: "chat", semconv.REQUEST_MODEL: "m"}
CHAIN, LLM = {semconv.SPAN_KIND: semconv.CHAIN}, {semconv.SPAN_KIND: semconv.LLM}
FLOW, CALL = {semconv.TRACELOOP_KIND: "workflow"}, {semconv.REQUEST_TYPE: "chat"}
STEP = {"haystack.component.type": "OpenAIGenerator"}
SILENT = {
    "opentelemetry.instrumentation.google_genai": (AGENT, CHAT, "CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
    "openinference.instrumentation.langchain": (CHAIN, LLM, "unset OPENINFERENCE_HIDE_INPUTS"),
    "opentelemetry.instrumentation.langchain": (FLOW, CALL, "TRACELOOP_TRACE_CONTENT=true"),
    "opentelemetry.instrumentation.openai.v1": ({}, CHAT, "TRACELOOP_TRACE_CONTENT=true"),
    "@traceloop/instrumentation-openai": ({}, CHAT, "TRACELOOP_TRACE_CONTENT=true"),
    "lmnr.tracer": ({}, {"lmnr.span.type": "LLM"}, "`observe` without `ignore_input`"),
    "gcp.vertex.agent": (AGENT, CHAT, "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true OTEL_INSTRUMENTATION_GENAI"),
    "haystack": ({}, STEP, "HAYSTACK_CONTENT_TRACING_ENABLED=true"),
    "langfuse-sdk": ({}, {"langfuse.observation.type": "generation"}, "LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED"),
    "autogen-core": (AGENT, {semconv.OPERATION: semconv.EXECUTE_TOOL}, "AutoGen's own spans hold neither"),
    "langsmith": (AGENT, CHAT, "unset LANGSMITH_HIDE_INPUTS"),
    "pydantic-ai": (AGENT, CHAT, "include_content=True"),
    "semantic_kernel.utils.telemetry": (AGENT, CHAT, "ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true"),
    "agent_framework": (AGENT, CHAT, "ENABLE_SENSITIVE_DATA=true"),
    "ai": ({}, {"ai.operationId": "ai.generateText.doGenerate"}, "recordInputs: true"),
    "acme.tracing": ({}, {semconv.LLM_MODEL: "m", **LLM}, "unset OPENINFERENCE_HIDE_INPUTS"),
}
"""By scope: the attributes of the outermost span and of the model's call, and the switch that shows their content."""
NAMES = {"haystack": ("haystack.pipeline.run", "haystack.component.run")}
SERVICES = {scope: f"service-{number}" for number, scope in enumerate(SILENT)}
REQUESTS = 24


def request(scope, number):
    """A request whose spans hold no content, ended just now."""
    outer, inner, _ = SILENT[scope]
    outer_name, inner_name = NAMES.get(scope, ("run", "call"))
    root = made(outer, end=3, name=outer_name, scope=scope)
    spans = [root, made(inner, parent=root, start=1, end=2, name=inner_name, scope=scope)]
    shift, trace_id = time.time_ns() - root.end_ns, f"{number + 1:032x}"
    return [
        span._replace(trace_id=trace_id, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans
    ]


@pytest.fixture(scope="module", params=["none", "full"])
def told(request_of_spans, request):
    return request_of_spans(request.param)


@pytest.fixture(scope="module")
def request_of_spans(tmp_path_factory):
    """What a server says of such requests, with a value of `[capture] content`."""

    def run(content):
        folder, lines = tmp_path_factory.mktemp("hints"), []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("ragmon").addHandler(handler)
        try:
            with serving(folder, f'[capture]\ncontent = "{content}"\n') as running:
                for place, scope in enumerate(SILENT):
                    spans = [span for n in range(REQUESTS) for span in request(scope, REQUESTS * place + n)]
                    body = export(spans, **{"service.name": SERVICES[scope]}).SerializeToString()
                    send_body(running, body)
                running.wait_for(lambda books: books["scored"] == REQUESTS * len(SILENT))
                pages = {scope: running.get(f"/t/{REQUESTS * place + 1:032x}")[1] for place, scope in enumerate(SILENT)}
                traces = {
                    scope: json.loads(running.get(f"/api/traces/{REQUESTS * place + 1:032x}")[1])
                    for place, scope in enumerate(SILENT)
                }
                path = configuration(folder, f'[export]\nendpoint = "{running.otlp}"\n')
                done = ragmon("doctor", "--config", path, "--admin-url", running.admin, "--wait", "5", cwd=folder)
                return running.status(), {scope: unescape(page) for scope, page in pages.items()}, traces, done, lines
        finally:
            logging.getLogger("ragmon").removeHandler(handler)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("scope", SILENT)
def test_spans_without_content_name_the_switch_of_their_instrumentation_everywhere(told, scope):
    status, pages, traces, done, lines = told
    switch, service = SILENT[scope][2], SERVICES[scope]
    (report,) = [each for each in status["captured"] if each["pipeline"] == service]
    gaps = {gap["field"]: gap["remedy"] for gap in report["gaps"]}
    assert switch in gaps["question"]
    assert switch in gaps["answer"]
    assert "@ragmon.trace" not in " ".join(gaps.values())
    (trace,) = traces[scope]["requests"]
    assert switch in trace["question"]["note"]
    assert switch in trace["answer"]["note"]
    assert switch in pages[scope]
    assert "@ragmon.trace" not in pages[scope]
    assert "[capture] content" not in pages[scope]
    printed = done.out.splitlines()
    (place,) = [n for n, line in enumerate(printed) if line.startswith("captured") and f" {service}, live" in line]
    assert switch in printed[place + 1]
    (line,) = [line for line in lines if line.startswith(f"{service}, live: ")]
    assert switch in line


def messages(text):
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


SAID = {semconv.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Nine."}]}])}
UNTOLD = {
    "prompt": (
        {semconv.INPUT_MESSAGES: messages("Context:\nA.\nBe brief.\nIs it?\nWhy so?"), **SAID},
        "ragmon.question",
    ),
    "uploaded": ({"gen_ai.input.messages_ref": "gs://b/1.json", **SAID}, "GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
    "not_understood": ({"acme.request.question": "Is it?", **SAID}, "ragmon.question"),
    "content_not_captured": (SAID, "TRACELOOP_TRACE_CONTENT"),
}
"""By the reason why the question is unknown: the attributes of OpenLLMetry's span, and what mends it."""


@pytest.mark.slow
def test_the_hint_for_a_question_follows_from_why_it_is_unknown(tmp_path):
    """No switch is named that is on: in the status, by doctor, and by `ragmon show` of one request."""
    with serving(tmp_path) as running:
        for place, (reason, (attributes, _)) in enumerate(UNTOLD.items()):
            spans, now = [], time.time_ns()
            for n in range(REQUESTS):
                call = made(CHAT | attributes, scope="opentelemetry.instrumentation.openai.v1")
                search = {semconv.OPERATION: semconv.RETRIEVAL, semconv.DOCUMENTS: '[{"id": "d1", "content": "A."}]'}
                for span in (call, made(search, parent=call, scope=call.scope)):
                    trace_id = f"{REQUESTS * place + n + 1:032x}"
                    spans.append(span._replace(trace_id=trace_id, start_ns=now - 10**9, end_ns=now))
            send_body(running, export(spans, **{"service.name": reason}).SerializeToString())
        running.settled(REQUESTS * len(UNTOLD))
        remedies = {
            report["pipeline"]: gap["remedy"]
            for report in running.status()["captured"]
            for gap in report["gaps"]
            if gap["field"] == "question"
        }
        path = configuration(tmp_path, f'[export]\nendpoint = "{running.otlp}"\n')
        done = ragmon("doctor", "--config", path, "--admin-url", running.admin, "--wait", "5", cwd=tmp_path).out
        for place, (reason, (_, mends)) in enumerate(UNTOLD.items()):
            trace_id = f"{REQUESTS * place + 1:032x}"
            told = json.loads(running.get(f"/api/traces/{trace_id}")[1])["requests"][0]["question"]["note"]
            shown = ragmon("show", trace_id, "--url", running.admin, cwd=tmp_path).out
            for said in (remedies[reason], told, " ".join(shown.split())):
                assert mends in said
                assert ("TRACELOOP_TRACE_CONTENT" in said) == (reason == "content_not_captured")
            assert remedies[reason] in done


@pytest.mark.slow
def test_no_page_blames_sampling_where_nothing_was_sampled(told):
    _, pages, traces, *_ = told
    assert [scope for scope, page in pages.items() if "[sampling]" in page or "kept for its outcome" in page] == []
    assert [scope for scope, trace in traces.items() if "[sampling]" in json.dumps(trace)] == []


@pytest.mark.slow
@pytest.mark.parametrize(("turns", "present"), [(1, 0), (3, 60)])
def test_a_conversation_id_that_a_framework_makes_for_each_run_is_no_session(tmp_path, turns, present):
    """Pydantic AI does, unless it is given one."""
    with serving(tmp_path) as running:
        spans = []
        for number in range(60):
            agent, chat = request("pydantic-ai", number)
            told = {semconv.CONVERSATION: f"019a-{number // turns}"}
            spans += [agent._replace(attributes={**agent.attributes, **told}), chat]
        send_body(running, export(spans).SerializeToString())
        running.settled(60)
        (report,) = running.status()["captured"]
    assert (report["fields"]["session"]["present"], report["fields"]["session"]["of"]) == (present, 60)
    findings = [gap["finding"] for gap in report["gaps"] if gap["field"] == "session"]
    assert findings == ([] if present else ["no session in 60 of 60 records: their session ids never repeat"])
