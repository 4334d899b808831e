"""A record from the spans of a request: which span is the request, its times, its end, its labels."""

from __future__ import annotations

import pytest

from ragmon.core import constants, semconv
from ragmon.core.record import Latency
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import NOT_RAG, Event, Mapped, SpanOptions
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL
from tests.support.alarming import GOLD
from tests.support.recorded_spans import START, TRACE, made

CHAIN = {semconv.SPAN_KIND: semconv.CHAIN}
LLM = {semconv.SPAN_KIND: semconv.LLM, semconv.OUTPUT_VALUE: "Yes."}
RETRIEVER = {semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: '[{"id": "d1"}]'}
HTTP = {"http.request.method": "POST"}


def measured(record, metric):
    """What a scorer makes of one record."""
    scorer = Scorer(GOLD)
    scorer.observe(record)
    return next(series for series in scorer.snapshot().series if series.window == ALL).estimate(metric)


def record_of(*spans, service=None, build=None, **options):
    mapped = to_record(spans, SpanOptions(**options), service=service, build=build)
    assert mapped.record is not None, mapped.reason
    return mapped.record


class TestTheRequest:
    """Its span is the outermost one around all that has to do with RAG."""

    @pytest.mark.parametrize("chain", [CHAIN, {}], ids=["chain", "step"])
    def test_a_web_request_around_a_pipeline(self, chain):
        web = made(HTTP, end=10)
        inner = made(chain, parent=web, start=2, end=5)
        spans = made(RETRIEVER, parent=inner, start=2, end=3), made(LLM, parent=inner, start=3, end=4), inner, web
        record = record_of(*spans)
        assert (record.trace_id, record.ts) == (TRACE, START / 1e9 + 10)
        assert record.latency_ms == Latency(total=10_000.0, retrieve=1000.0, generate=1000.0)
        assert (record.retrieved_ids, record.answer_json.claim) == (["d1"], "Yes.")

    def test_a_parent_in_another_service_is_not_waited_for(self):
        chain = made(CHAIN, end=2)._replace(parent_id="f" * 16)
        assert record_of(chain, made(LLM, parent=chain)).latency_ms.total == 2000.0

    def test_without_a_span_around_them_their_own_time_counts(self):
        """OpenLLMetry's LlamaIndex instrumentation never ends the spans around a stream."""
        record = record_of(made(RETRIEVER, start=1, end=2), made(LLM, start=3, end=4))
        assert (record.ts, record.latency_ms.total) == (START / 1e9 + 4, 3000.0)

    def test_a_time_outside_the_calendar_is_none(self):
        assert record_of(made(LLM)._replace(start_ns=0, end_ns=0)).ts is None
        assert record_of(made(LLM)._replace(end_ns=2**63 * 1000)).ts is None


def test_what_happens_at_once_counts_once():
    chain = made(CHAIN, end=10)
    times = [(0, 2), (1, 3), (1.5, 1.75), (5, 6)]
    steps = [made(RETRIEVER, parent=chain, start=start, end=end) for start, end in times]
    calls = [made(LLM, parent=chain, start=6, end=8), made(LLM, parent=steps[0], start=0, end=2)]
    latency = record_of(chain, *steps, *calls).latency_ms
    assert latency == Latency(total=10_000.0, retrieve=4000.0, generate=2000.0)


def test_how_long_a_span_took_that_ends_before_it_starts_is_unknown():
    assert record_of(made(LLM, start=2, end=1)).latency_ms == Latency()


def test_a_stage_that_does_not_say_when_it_started_has_no_latency():
    """A start of 0 is 1970: it is not set."""
    chain = made(CHAIN, end=10)
    found = record_of(chain, made(LLM, parent=chain, start=1, end=2)._replace(start_ns=0)).latency_ms
    assert found == Latency(total=10_000.0, retrieve=None, generate=None)
    assert record_of(chain._replace(start_ns=0), made(LLM, parent=chain, start=1, end=2)).latency_ms.total is None


class TestTheAnswer:
    """What the request said, where that was recorded."""

    @pytest.mark.parametrize(
        "inside",
        [{semconv.OPERATION: "chat"}, {semconv.OPERATION: "retrieval"}],
        ids=["content off", "retrieval alone"],
    )
    def test_one_that_nobody_recorded_is_unknown_and_breaks_no_format(self, inside):
        """OpenTelemetry's default is to record no content; a format gate must not be red for that."""
        root = made({semconv.OPERATION: semconv.INVOKE_WORKFLOW}, end=5)
        record = record_of(root, made(inside, parent=root, start=1, end=2))
        assert record.answer_json is None
        assert record.partial
        assert measured(record, "compliance").n == 0

    def test_one_that_is_empty_is_an_answer_without_citations(self):
        chain = made({**CHAIN, semconv.OUTPUT_VALUE: ""}, end=5)
        record = record_of(chain, made(RETRIEVER, parent=chain))
        assert not record.partial
        assert (measured(record, "compliance").n, record.answer_json.citations) == (0, None)

    def test_an_application_in_any_language_may_say_it_in_attributes_of_its_own(self):
        held = {semconv.RAGMON_CLAIM: "Yes.", semconv.RAGMON_CITATIONS: ["d1", "d9"], semconv.OUTPUT_VALUE: "Yes. [1]"}
        chain = made({**CHAIN, **held}, end=5)
        said = record_of(chain, made(RETRIEVER, parent=chain)).answer_json
        assert (said.claim, said.citations) == ("Yes.", ["d1", "d9"])

    def test_a_call_that_said_nothing_called_a_tool(self):
        root = made(CHAIN, end=9)
        silent = {**LLM, semconv.OUTPUT_VALUE: '{"role": "assistant", "content": ""}'}
        calls = [made(LLM, parent=root, start=1, end=2), made(silent, parent=root, start=3, end=4)]
        assert record_of(root, *calls).answer_json.claim == "Yes."
        assert record_of(root, calls[1]).answer_json.claim == ""

    def test_a_guardrails_verdict_is_none(self):
        root = made(CHAIN, end=9)
        guard = made({semconv.SPAN_KIND: semconv.GUARDRAIL}, parent=root, start=3, end=6)
        verdict = made({**LLM, semconv.OUTPUT_VALUE: "safe"}, parent=guard, start=4, end=5)
        assert record_of(root, made(LLM, parent=root, start=1, end=2), guard, verdict).answer_json.claim == "Yes."


class TestErrors:
    @pytest.mark.parametrize(
        ("attributes", "fields", "expected"),
        [
            ({}, {"failed": True}, constants.ERROR),
            ({semconv.ERROR_TYPE: "Timeout"}, {}, "Timeout"),
            ({semconv.ERROR_TYPE: "Timeout"}, {"failed": True}, "Timeout"),
            ({semconv.TASK_STATUS: "failure"}, {}, constants.ERROR),
            ({semconv.TRULENS_ERROR: "it said: secret"}, {}, constants.ERROR),
            ({}, {"failed": True, "events": [Event("exception", {"exception.type": "KeyError"})]}, "KeyError"),
            ({semconv.TASK_STATUS: "success"}, {"events": [Event("exception", {"exception.type": "KeyError"})]}, None),
        ],
    )
    def test_the_type_of_an_error_never_its_message(self, attributes, fields, expected):
        record = record_of(made(CHAIN | {semconv.OUTPUT_VALUE: "Yes."} | attributes, end=9, **fields), made(LLM))
        assert record.error == expected
        assert (record.answer_json is None) == (expected is not None)

    def test_a_request_that_failed_before_it_retrieved_is_one(self):
        """While the embedding service is down the error rate must not look at nothing."""
        chain = made(CHAIN, end=5, failed=True)
        embedding = made({semconv.SPAN_KIND: "EMBEDDING"}, parent=chain, failed=True)
        assert record_of(chain, embedding).error == constants.ERROR

    def test_a_step_that_failed_inside_a_request_that_went_well(self):
        chain = made(CHAIN, end=9)
        record = record_of(chain, made(RETRIEVER, parent=chain, failed=True), made(LLM, parent=chain))
        assert (record.error, record.answer_json.claim) == (None, "Yes.")

    def test_a_web_request_that_failed_around_a_retriever_that_did_not(self):
        web = made(HTTP, end=9, failed=True, events=[Event("exception", {"exception.type": "KeyError"})])
        assert record_of(web, made(RETRIEVER, parent=web)).error == "KeyError"

    def test_a_chain_that_failed_tells_more_than_the_web_request_around_it(self):
        """Also where the server made an apology of it."""
        web = made(HTTP | {semconv.ERROR_TYPE: "500"}, end=9, failed=True)
        chain = made(CHAIN | {semconv.ERROR_TYPE: "KeyError"}, parent=web, end=8)
        assert record_of(web, chain, made(LLM, parent=chain)).error == "KeyError"
        assert (
            record_of(web._replace(attributes=HTTP, failed=False), chain, made(LLM, parent=chain)).error == "KeyError"
        )

    def test_without_a_span_around_it_the_last_step_decides(self):
        assert record_of(made(RETRIEVER, failed=True), made(LLM, end=2)).error is None
        assert record_of(made(RETRIEVER), made(LLM, end=2, failed=True)).error == constants.ERROR


class TestLabels:
    @pytest.mark.parametrize(
        "attributes",
        [
            {semconv.RAGMON_QID: "A1"},
            {semconv.METADATA: '{"qid": "A1"}'},
            {f"{semconv.ASSOCIATION}.qid": "A1"},
            {semconv.TRULENS_INPUT_ID: "A1"},
        ],
    )
    def test_the_gold_questions_id_on_any_span(self, attributes):
        chain = made(CHAIN, end=9)
        assert record_of(chain, made(LLM | attributes, parent=chain)).qid == "A1"

    @pytest.mark.parametrize(
        "attributes",
        [
            {semconv.SESSION: "s1"},
            {semconv.CONVERSATION: "s1"},
            {semconv.METADATA: '{"thread_id": "s1"}'},
            {f"{semconv.ASSOCIATION}.session_id": "s1"},
            {semconv.TRULENS_CONVERSATION: "s1"},
        ],
    )
    def test_the_conversation(self, attributes):
        assert record_of(made(LLM | attributes)).session == "s1"

    def test_the_outer_span_says_it_first(self):
        chain = made(CHAIN | {semconv.SESSION: "outer"}, end=9)
        assert record_of(made(LLM | {semconv.SESSION: "inner"}, parent=chain), chain).session == "outer"

    def test_a_number_is_an_id_and_an_empty_text_is_none(self):
        assert record_of(made(LLM | {semconv.SESSION: 7, semconv.RAGMON_QID: ""})).session == "7"
        assert record_of(made(LLM | {semconv.SESSION: 7, semconv.RAGMON_QID: ""})).qid is None

    @pytest.mark.parametrize("key", [semconv.WORKFLOW_NAME, semconv.TRACELOOP_WORKFLOW])
    def test_the_pipeline_is_what_the_caller_says_else_the_service_and_no_workflow_unless_configured(self, key):
        named = made(LLM | {key: "support"})
        unnamed = made(LLM | {semconv.TRACELOOP_WORKFLOW: "RunnableSequence"})
        assert record_of(named, pipeline="faq", service="shop").pipeline == "faq"
        assert record_of(named, service="shop").pipeline == "shop"
        assert record_of(named).pipeline == constants.DEFAULT_PIPELINE
        assert record_of(named, by_workflow=True, service="shop").pipeline == "support"
        assert record_of(unnamed, by_workflow=True, service="shop").pipeline == "shop"

    def test_trulens_names_the_application_on_its_spans_and_its_service_is_the_library(self):
        app = {"ai.observability.app_name": "clerk", "ai.observability.app_version": "v7"}
        told = made({"ai.observability.span_type": "record_root", **app}, end=9)
        record = record_of(told, made(LLM, parent=told), service="trulens", build="2.16.0")
        assert (record.pipeline, record.build) == ("clerk", "v7")

    def test_build_and_whether_the_trace_can_be_opened(self):
        record = record_of(made(LLM, sampled=False), build="1.2")
        assert (record.build, record.exported) == ("1.2", False)


class TestNotMonitored:
    @pytest.mark.parametrize(
        "spans",
        [
            [],
            [made(HTTP)],
            [made(CHAIN)],
            [made({semconv.SPAN_KIND: "EMBEDDING"})],
            [made({semconv.TRACELOOP_KIND: "workflow", semconv.OPERATION: "embeddings"})],
        ],
    )
    def test_what_neither_retrieves_nor_asks_a_model(self, spans):
        assert to_record(spans) == Mapped(None, NOT_RAG)

    @pytest.mark.parametrize(
        "judge",
        [{semconv.RAGMON_INTERNAL: True}, {semconv.SPAN_KIND: semconv.EVALUATOR}, {semconv.TRULENS_KIND: "eval_root"}],
    )
    def test_the_work_of_judges(self, judge):
        outer = made(judge, start=5, end=9)
        call = made(LLM | {semconv.OUTPUT_VALUE: "Relevant."}, parent=outer, start=6, end=8)
        assert to_record([outer, call]).reason == NOT_RAG
        assert record_of(outer, call, made(LLM, start=1)).answer_json.claim == "Yes."

    def test_haystacks_prompt_builder_is_no_model(self):
        """OpenInference says so."""
        builder = made(
            {semconv.SPAN_KIND: semconv.LLM, semconv.PROMPT_TEMPLATE: "{{q}}", semconv.OUTPUT_VALUE: "Is it?"}
        )
        assert to_record([builder]).reason == NOT_RAG

    def test_what_llama_index_does_with_a_history_is_no_model(self):
        """OpenInference says so, of a thread of its own; a call that failed has no output either."""
        writer = made({semconv.SPAN_KIND: semconv.LLM, semconv.INPUT_VALUE: '{"memory": "Memory(token_limit=3644)"}'})
        assert to_record([writer]).reason == NOT_RAG
        assert to_record([writer._replace(failed=True)]).record.error is not None


def test_a_chain_that_names_its_model_called_it():
    """Instructor's span is a chain, around the call of a client that may leave no span."""
    asked = {"llm.model_name": "m", "llm.input_messages.0.message.role": "user"}
    asked |= {"llm.input_messages.0.message.content": "Is it?", semconv.OUTPUT_VALUE: '{"answer": "Yes."}'}
    record = record_of(made(CHAIN | asked))
    assert (record.q, record.answer_json.claim) == ("Is it?", "Yes.")


def test_a_span_that_came_twice_counts_once():
    call = made(LLM)
    assert record_of(call, call, made(LLM, end=3)) == record_of(call, made(LLM, end=3))


def test_parents_in_a_circle_are_survived():
    one, other = made(LLM), made(RETRIEVER)
    one, other = one._replace(parent_id=other.span_id), other._replace(parent_id=one.span_id)
    assert record_of(one, other).retrieved_ids == ["d1"]
