"""Tracers with words of their own: Haystack's, the AI SDK's, MLflow's and Langfuse's; and messages in events."""

from __future__ import annotations

import json

import pytest

from ragmon.core import semconv
from ragmon.core.record import Answer
from ragmon.ingest import otlp
from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import (
    CONTENT_NOT_CAPTURED,
    NO_RETRIEVAL,
    NOT_RAG,
    NOT_UNDERSTOOD,
    UNKNOWN_CONVENTION,
    UPLOADED,
    Event,
    SpanOptions,
    count_scope,
)
from ragmon.stats.histograms import MAX_NAMES
from tests.support import recorded_agents
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made

Q = "Who ruled Normandy?"
CHAIN, LLM = {semconv.SPAN_KIND: semconv.CHAIN}, {semconv.SPAN_KIND: semconv.LLM}


def component(type_, given=None, returned=None, **fields):
    attributes = {"haystack.component.name": type_.lower(), "haystack.component.type": type_}
    data = {"haystack.component.input": given, "haystack.component.output": returned}
    written = {key: json.dumps(value) for key, value in data.items() if value is not None}
    return made(attributes | written, name="haystack.component.run", scope="haystack", **fields)


def documents(*names):
    return [{"id": name, "content": f"text {name}", "score": 0.5, "page": name, "blob": None} for name in names]


def retriever(*names, type_="InMemoryBM25Retriever", **fields):
    return component(type_, {"query": Q, "top_k": None}, {"documents": documents(*names)}, **fields)


class TestHaystack:
    def test_metadata_beside_the_document_may_be_its_id(self):
        retrieved = retriever("a", "b")
        assert to_record([retrieved]).record.retrieved_ids == ["a", "b"]
        assert to_record([retrieved], SpanOptions(id_from=("metadata", "page"))).record.retrieved_ids == ["a", "b"]
        assert to_record([retrieved]).record.scores == [0.5, 0.5]

    @pytest.mark.parametrize("type_", ["TransformersSimilarityRanker", "DocumentJoiner"])
    def test_what_a_ranker_or_joiner_returns_is_final(self, type_):
        given = [documents("a", "b"), documents("c")] if type_ == "DocumentJoiner" else documents("a", "b", "c")
        reranked = component(type_, {"documents": given}, {"documents": documents("c", "a")}, start=4, end=5)
        record = to_record([retriever("a", "b", end=1), retriever("c", start=2, end=3), reranked]).record
        assert (record.retrieved_ids, sorted(record.candidate_ids)) == (["c", "a"], ["a", "b", "c"])

    def test_a_component_of_the_application_that_answers_a_query_with_documents(self):
        assert to_record([retriever("a", type_="OurSearch")]).record.retrieved_ids == ["a"]

    def test_indexing_is_no_request(self):
        splitter = component("DocumentSplitter", {"documents": documents("a")}, {"documents": documents("a", "b")})
        embedder = component("OpenAIDocumentEmbedder", {"documents": documents("a")}, {"meta": {"model": "e"}})
        whole = made({"haystack.pipeline.input_data": "{}"}, name="haystack.pipeline.run", scope="haystack")
        assert to_record([whole, splitter, embedder]).reason == NOT_RAG

    def test_content_that_is_switched_off_is_named(self):
        whole = made(name="haystack.pipeline.run", end=9)
        spans = [component("InMemoryBM25Retriever", parent=whole), component("OpenAIGenerator", parent=whole)]
        mapped = to_record([whole, *spans])
        assert mapped.missing == dict.fromkeys(("q", "retrieved_ids", "answer_json"), CONTENT_NOT_CAPTURED)

    def test_replies_as_text(self):
        call = component("HuggingFaceLocalGenerator", {"prompt": Q}, {"replies": ["Rollo"], "meta": [{"model": "m"}]})
        assert to_record([call]).record.answer_json == Answer(claim="Rollo")

    def test_an_agent(self):
        messages = [{"role": "user", "content": [{"text": Q}]}]
        reply = {"role": "assistant", "content": [{"text": "Rollo"}]}
        agent = {"haystack.agent.input": {"messages": messages}, "haystack.agent.output": {"messages": [reply]}}
        outer = made({key: json.dumps(value) for key, value in agent.items()}, name="haystack.agent.run", end=9)
        step = {"haystack.agent.step.llm.output": json.dumps({"replies": [reply]})}
        record = to_record([outer, made(step, name="haystack.agent.step.llm", parent=outer)]).record
        assert (record.q, record.answer_json.claim) == (Q, "Rollo")


class TestAiSdk:
    def request(self, operation, **attributes):
        named = {f"ai.{name.replace('__', '.')}": value for name, value in attributes.items()}
        return {"ai.operationId": operation, **named}

    def test_a_conversation(self):
        messages = [
            {"role": "user", "content": "Before?"},
            {"role": "assistant", "content": "Before."},
            {"role": "user", "content": [{"type": "text", "text": Q}]},
        ]
        prompt = json.dumps({"messages": messages})
        whole = made(self.request("ai.streamText", prompt=prompt, response__text="Rollo"), end=9)
        call = made(self.request("ai.streamText.doStream", model__id="m", response__text="Rollo"), parent=whole)
        record = to_record([whole, call]).record
        assert (record.q, record.answer_json.claim) == (Q, "Rollo")
        assert record.latency_ms.generate == 1000

    def test_an_object_as_the_answer(self):
        answer = json.dumps({"claim": "Rollo", "citations": ["a"]})
        whole = made(self.request("ai.generateObject", prompt=json.dumps({"prompt": Q}), response__object=answer))
        call = made(self.request("ai.generateObject.doGenerate", response__object=answer), parent=whole)
        assert to_record([whole, call]).record.answer_json == Answer("Rollo", ["a"])

    def test_embedding_is_no_request(self):
        whole = made(self.request("ai.embed", value='"text"', model__id="text-model"), scope="ai", name="ai.embed")
        assert to_record([whole]).reason == NOT_RAG

    def test_recorded_without_inputs_and_outputs(self):
        whole = made(self.request("ai.generateText", telemetry__metadata__sessionId="s"), end=9)
        mapped = to_record([whole, made(self.request("ai.generateText.doGenerate"), parent=whole)])
        expected = dict.fromkeys(("q", "answer_json"), CONTENT_NOT_CAPTURED) | {"retrieved_ids": NO_RETRIEVAL}
        assert (mapped.record.session, mapped.missing) == ("s", expected)


class TestPlatforms:
    @pytest.mark.parametrize("returned", [{"content": "Rollo", "role": "assistant"}, "Rollo"])
    def test_a_generation_of_langfuse_alone(self, returned):
        text = returned if isinstance(returned, str) else json.dumps(returned)
        call = made(
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.input": json.dumps([{"role": "user", "content": Q}]),
                "langfuse.observation.output": text,
                "session.id": "s",
            }
        )
        record = to_record([call]).record
        assert (record.q, record.answer_json, record.session) == (Q, Answer("Rollo"), "s")

    def test_a_decorated_function_around_a_generation_is_the_request(self):
        """Langfuse's decorator makes spans of no kind."""
        whole = made(
            {
                "langfuse.observation.type": "span",
                "langfuse.trace.name": "support",
                "langfuse.observation.input": json.dumps({"args": [Q], "kwargs": {}}),
                "langfuse.observation.output": json.dumps({"answer": "Rollo", "citations": ["a"]}),
            },
            end=9,
        )
        call = made({"langfuse.observation.type": "generation"}, parent=whole)
        record = to_record([whole, call], SpanOptions(by_workflow=True), service="shop").record
        assert (record.q, record.answer_json, record.pipeline) == (Q, Answer("Rollo", ["a"]), "support")
        assert to_record([whole, call], service="shop").record.pipeline == "shop"

    def test_texts_that_mlflow_writes_as_json(self):
        def typed(kind, given, returned):
            values = {"mlflow.spanType": kind, "mlflow.spanInputs": given, "mlflow.spanOutputs": returned}
            return {key: json.dumps(value) for key, value in values.items()}

        found = [{"page_content": "text", "metadata": {"doc_uri": "a"}, "id": None}]
        search = made(typed("RETRIEVER", {"query": Q}, found))
        call = made(typed("LLM", "Say who.", "Rollo"), start=2)
        record = to_record([search, call], SpanOptions(id_from=("metadata", "doc_uri"))).record
        assert (record.q, record.retrieved_ids, record.answer_json) == (Q, ["a"], Answer("Rollo"))

    def test_pydantic_ai_under_mlflow(self):
        def typed(kind, given, returned, **fields):
            values = {"mlflow.spanType": kind, "mlflow.spanInputs": given, "mlflow.spanOutputs": returned}
            return made({key: json.dumps(value) for key, value in values.items()}, **fields)

        stream = "{'_all_messages': [ModelResponse(parts=[TextPart(content='Rollo')])], '_stream': None}"
        agent = typed("AGENT", {"user_prompt": Q}, stream, end=9)
        search = typed("TOOL", {"query": "ruler"}, documents("a"), parent=agent, end=2)
        thought = {"content": "It is on the first page.", "part_kind": "thinking"}
        reply = {"parts": [thought, {"content": "Rollo", "part_kind": "text"}], "kind": "response"}
        record = to_record([agent, search, typed("LLM", {"messages": []}, reply, parent=agent, start=3, end=4)]).record
        assert (record.q, record.retrieved_ids, record.answer_json) == (Q, ["a"], Answer("Rollo"))

    def test_an_embedding_is_no_request(self):
        assert to_record([made({"mlflow.spanType": '"EMBEDDING"', "mlflow.llm.model": '"m"'})]).reason == NOT_RAG


class TestEvents:
    def test_one_event_for_each_message(self):
        events = [
            Event("gen_ai.system.message", {"content": "Be brief."}),
            Event("gen_ai.user.message", {"content": json.dumps([{"text": Q}])}),
            Event("gen_ai.choice", {"finish_reason": "stop", "message": json.dumps([{"text": "Rollo"}])}),
        ]
        record = to_record([made({semconv.OPERATION: "chat"}, events=events)]).record
        assert (record.q, record.answer_json) == (Q, Answer("Rollo"))

    def test_text_that_is_json_is_the_answer_itself(self):
        answer = {"claim": "Rollo", "citations": ["a"]}
        for written in (json.dumps(answer), json.dumps({"role": "assistant", "content": json.dumps(answer)})):
            events = [Event("gen_ai.choice", {"message": written})]
            record = to_record([made({semconv.OPERATION: "chat"}, events=events)]).record
            assert record.answer_json == Answer("Rollo", ["a"])

    @pytest.mark.parametrize("written", [json.dumps, lambda value: value])
    def test_one_event_with_all_messages(self, written):
        def message(role, text):
            return [{"role": role, "parts": [{"type": "text", "content": text}]}]

        details = {
            semconv.INPUT_MESSAGES: written(message("user", Q)),
            semconv.OUTPUT_MESSAGES: written(message("assistant", "Rollo")),
        }
        events = [Event(semconv.INFERENCE_DETAILS, details)]
        record = to_record([made({semconv.OPERATION: "chat"}, events=events)]).record
        assert (record.q, record.answer_json) == (Q, Answer("Rollo"))

    def test_messages_on_the_span_itself_come_first(self):
        own = {semconv.OPERATION: "chat", semconv.OUTPUT_MESSAGES: [{"role": "assistant", "content": "Rollo"}]}
        events = [Event("gen_ai.choice", {"message": '{"content": "cut"}'})]
        assert to_record([made(own, events=events)]).record.answer_json == Answer("Rollo")


def test_the_model_is_the_assistant():
    """Google's name of the role."""
    call = made(LLM | {"llm.output_messages.0.message.role": "model", "llm.output_messages.0.message.content": "Rollo"})
    assert to_record([call]).record.answer_json == Answer("Rollo")


REPRS = [
    "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='not in context')], _meta={})",
    "[{'id': 'd1', 'score': 0.5, 'text': 'Rollo ruled.'}]",
    "Response(response='Rollo', source_nodes=[NodeWithScore(node=TextNode(id_='a'))], metadata={})",
    "content='Rollo' additional_kwargs={} response_metadata={'model': 'm'}",
    "<openai.Stream object at 0x7f2b3c4d5e6f>",
]


@pytest.mark.parametrize("written", REPRS)
def test_the_repr_of_an_object_is_no_answer(written):
    for output in (written, json.dumps({"llm": {"replies": [written]}}), json.dumps({"answer": written})):
        chain = made(CHAIN | {semconv.OUTPUT_VALUE: output}, end=9)
        message = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Rollo"}
        assert to_record([chain, made(LLM | message, parent=chain)]).record.answer_json == Answer("Rollo")
        mapped = to_record([chain, made(LLM, parent=chain)])
        assert (mapped.record.answer_json, mapped.missing["answer_json"]) == (None, NOT_UNDERSTOOD)


SAID = """'It\\'s "so".'"""


@pytest.mark.parametrize(
    "written",
    [
        f"ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[TextContent(text={SAID})], _name=None)",
        f"ChatMessage(role=<MessageRole.ASSISTANT: 'assistant'>, blocks=[TextBlock(block_type='text', text={SAID})])",
    ],
    ids=["haystack", "llama_index"],
)
def test_the_representation_of_the_assistants_message_has_its_text(written):
    chain = made(CHAIN | {semconv.OUTPUT_VALUE: json.dumps({"llm": {"replies": [written]}})})
    assert to_record([chain, made(LLM, parent=chain)]).record.answer_json == Answer('It\'s "so".')
    structured = written.replace(SAID, """'{"claim": "So.", "citations": ["d1"]}'""")
    chain = made(CHAIN | {semconv.OUTPUT_VALUE: json.dumps({"llm": {"replies": [structured]}})})
    assert to_record([chain, made(LLM, parent=chain)]).record.answer_json == Answer("So.", ["d1"])


@pytest.mark.parametrize("text", ["Rollo (911).", "f(x=1) = 2", "See Rollo(n=1) and others", "content='a' is set"])
def test_text_with_code_in_it_is_an_answer(text):
    assert to_record([made(LLM | {semconv.OUTPUT_VALUE: text})]).record.answer_json == Answer(text)


class TestUnknownConventions:
    @pytest.mark.parametrize(
        "attributes",
        [
            {"acme.llm.model_name": "m"},
            {"gen_ai.request.model": "m"},
            {"acme.span.kind": "retriever"},
            {"gen_ai.operation.name": "rag"},
        ],
    )
    def test_a_model_or_retrieval_in_words_that_are_not_read_names_its_scope(self, attributes):
        mapped = to_record([made({"http.route": "/ask"}, scope="web"), made(attributes, scope="acme.tracing")])
        assert (mapped.record, mapped.reason, mapped.scope) == (None, UNKNOWN_CONVENTION, "acme.tracing")

    @pytest.mark.parametrize(
        "attributes",
        [
            {"http.request.method": "GET", "url.query": "q=chat"},
            {"db.query.text": "SELECT model FROM cars"},
            {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"},
            {"acme.embedding.model": "m"},
            {semconv.SPAN_KIND: "EMBEDDING", "embedding.model_name": "m"},
            {"messaging.operation.name": "completion"},
            {"gen_ai.operation.name": "create_agent", "gen_ai.system": "autogen"},
        ],
    )
    def test_a_trace_without_either_is_not_rag(self, attributes):
        name = "embed" if "acme.embedding.model" in attributes else "a span"
        mapped = to_record([made(attributes, name=name, scope="acme")])
        assert (mapped.record, mapped.reason, mapped.scope) == (None, NOT_RAG, "")


def test_the_names_of_scopes_are_few_and_steer_nothing():
    scopes = {}
    for n in range(2 * MAX_NAMES):
        count_scope(scopes, f"scope{n}")
    count_scope(scopes, "a scope\x1b[31m")
    assert (len(scopes), scopes["__other__"]) == (MAX_NAMES + 1, MAX_NAMES + 1)
    assert all(name.isprintable() for name in scopes)


@pytest.mark.parametrize("operation", [["chat"], {"name": "chat"}, 5, True])
def test_an_operation_that_is_no_text_is_no_reason_to_fail(operation):
    """Attributes are a stranger's: a list as the name of the operation is one that is not known."""
    assert to_record([made({semconv.OPERATION: operation}, scope="acme")]).reason == NOT_RAG


class TestModelAndUser:
    def test_the_model_that_answered_is_what_the_last_call_replied(self):
        """What was asked for is often an alias."""
        rewriting = made(LLM | {semconv.LLM_MODEL: "small"}, start=1, end=2)
        asked = {semconv.OPERATION: "chat", semconv.REQUEST_MODEL: "large", semconv.RESPONSE_MODEL: "large-2026-11"}
        record = to_record([rewriting, made(asked, start=3, end=4)]).record
        assert (record.model, record.user) == ("large-2026-11", None)

    @pytest.mark.parametrize(
        "told",
        [
            {"user.id": "u1"},
            {"enduser.id": "u1"},
            {"metadata": '{"user_id": "u1"}'},
            {"traceloop.association.properties.user_id": "u1"},
        ],
    )
    def test_the_user(self, told):
        assert to_record([made(LLM | told)]).record.user == "u1"

    @pytest.mark.parametrize(
        ("name", "model", "user"), [("vercel", "fake", "user-1"), ("langchain-openinference", "fake", None)]
    )
    def test_of_real_tracers(self, name, model, user):
        (record,) = recorded_agents.questions(name)[0].records(SpanOptions())
        assert (record.model, record.user) == (model, user)


class TestHonestReasons:
    def test_texts_in_a_place_that_is_not_read_are_not_understood(self):
        whole = made(CHAIN | {"acme.request.question": Q}, end=9)
        call = made(LLM | {"acme.completion.text": "Rollo"}, parent=whole)
        missing = to_record([whole, call]).missing
        assert (missing["q"], missing["answer_json"]) == (NOT_UNDERSTOOD, NOT_UNDERSTOOD)

    def test_a_question_says_nothing_of_the_answer(self):
        whole = made(CHAIN | {semconv.INPUT_VALUE: Q}, end=9)
        assert to_record([whole, made(LLM, parent=whole)]).missing["answer_json"] == CONTENT_NOT_CAPTURED

    @pytest.mark.parametrize("content", [True, False])
    def test_texts_in_events_and_in_requests_of_a_client_are_not_understood(self, content):
        """Azure's events and Logfire's older spans; without content they have roles alone."""
        asked, said = (
            ({"role": "user"}, {"index": 0}) if not content else ({"content": Q}, {"message": {"content": "No"}})
        )
        events = [
            Event(name, {"gen_ai.acme.content": json.dumps(message)})
            for name, message in ((semconv.USER_EVENT, asked), (semconv.CHOICE_EVENT, said))
        ]
        data = {"request_data": json.dumps(asked), "response_data": json.dumps(said)} if content else {}
        for call in (made(LLM, events=events), made(LLM | data)):
            (sent,) = [span for span, _ in otlp.spans(as_json(export([call])), pytest.fail)]
            missing = to_record([sent]).missing
            reason = NOT_UNDERSTOOD if content else CONTENT_NOT_CAPTURED
            assert (missing["q"], missing["answer_json"]) == (reason, reason)

    def test_documents_in_a_form_that_is_not_read(self):
        search = made({semconv.SPAN_KIND: semconv.RETRIEVER, "input.value": Q, "acme.results": "1. Rollo"})
        silent = made({semconv.SPAN_KIND: semconv.RETRIEVER, "input.value": Q})
        assert to_record([search]).missing["retrieved_ids"] == NOT_UNDERSTOOD
        assert to_record([silent]).missing["retrieved_ids"] == CONTENT_NOT_CAPTURED


FOUND = [
    {"id": "d1", "page_content": "text d1", "metadata": {}},
    {"id": "d2", "page_content": "text d2", "metadata": {}},
]
MESSAGES = [{"lc": 1, "type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": Q, "type": "human"}}]


def told(spans):
    record = to_record(spans).record
    answer = None if record.answer_json is None else (record.answer_json.claim, record.answer_json.citations)
    return record.q, record.retrieved_ids, answer, record.session, record.user, record.error


def langsmith(kind, given, returned, **fields):
    attributes = {
        "langsmith.span.kind": kind,
        "langsmith.metadata.thread_id": "s-1",
        "langsmith.metadata.user_id": "u-1",
    }
    content = {"gen_ai.prompt": json.dumps(given), "gen_ai.completion": json.dumps(returned)}
    operation = {"llm": "chat", "retriever": "embeddings"}.get(kind, kind)  # as LangSmith writes it
    return made(attributes | content | {semconv.OPERATION: operation}, scope="langsmith", **fields)


class TestLangSmith:
    def test_a_chain_with_a_retriever(self):
        root = langsmith("chain", {"input": Q}, {"output": "Rollo [1]."}, end=9)
        retrieved = langsmith("retriever", {"query": "rewritten"}, {"documents": FOUND}, parent=root)
        assert told([root, retrieved]) == (Q, ["d1", "d2"], ("Rollo [1].", ["d1"]), "s-1", "u-1", None)

    def test_a_model_call_and_a_tool_with_an_artifact(self):
        generations = {"generations": [[{"text": "Rollo [2].", "type": "ChatGeneration"}]]}
        root = made({}, end=9)
        artifact = {"output": {"content": "text d1", "artifact": FOUND, "type": "tool"}}
        searched = langsmith("tool", {"input": "{}"}, artifact, parent=root, name="search")
        said = langsmith("llm", {"messages": [MESSAGES]}, generations, parent=root, start=2, end=3)
        assert told([root, searched, said])[:3] == (Q, ["d1", "d2"], ("Rollo [2].", ["d2"]))


class TestLaminar:
    def span(self, kind, given, returned, **fields):
        held = {"lmnr.span.type": kind, "lmnr.span.input": json.dumps(given), "lmnr.span.output": json.dumps(returned)}
        return made(held | {"lmnr.association.properties.session_id": "s-1"}, **fields)

    def test_a_decorated_function_and_its_model_call(self):
        root = self.span("DEFAULT", {"question": Q}, "Rollo [1].", end=9)
        said = self.span("LLM", [{"role": "user", "content": "Be brief."}], "Rollo [1].", parent=root)
        assert told([root, said])[::2] == (Q, ("Rollo [1].", None), None)
        assert told([root, said])[3] == "s-1"

    def test_a_model_call_that_failed_is_one(self):
        said = self.span("LLM", [{"role": "user", "content": Q}], None, failed=True)
        assert told([said])[0::5] == (Q, "error")

    def test_choices_in_the_output_messages(self):
        choices = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Rollo."}}]
        call = {"lmnr.span.type": "LLM", semconv.OUTPUT_MESSAGES: json.dumps(choices)}
        assert told([made(call)])[2] == ("Rollo.", None)


class TestEventsInAnAttribute:
    EVENTS = json.dumps(
        [
            {"event.name": "gen_ai.user.message", "role": "user", "content": Q},
            {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "Rollo [1]."}},
        ]
    )

    def test_agents_of_openai_under_logfire(self):
        root = made({"name": "clerk", "group_id": "s-1"}, name="OpenAI Agents trace: {name}", end=9)
        returned = {"name": "search", "input": "{}", "output": json.dumps(documents("d1", "d2"))}
        searched = made(returned, name="Function: {name}", parent=root)
        said = made({semconv.OPERATION: "chat", "events": self.EVENTS}, parent=root, start=2, end=3)
        assert told([root, searched, said])[:4] == (Q, ["d1", "d2"], ("Rollo [1].", ["d1"]), "s-1")

    def test_pydantic_ai_before_version_1(self):
        root = made({"all_messages_events": self.EVENTS, "final_result": "Rollo [1]."}, name="agent run", end=9)
        returned = {semconv.GENAI_TOOL_NAME: "search", "tool_response": json.dumps(documents("d1"))}
        searched = made(returned, name="running tool", parent=root)
        said = made({semconv.OPERATION: "chat", "events": self.EVENTS}, parent=root, start=2, end=3)
        assert told([root, searched, said])[:3] == (Q, ["d1"], ("Rollo [1].", ["d1"]))


def test_a_search_under_the_decorator_of_logfire():
    root = made({"question": Q, "return": "Rollo [1]."}, name="Calling app.answer", scope="logfire", end=9)
    returned = {"query": Q, "code.function": "search", "return": json.dumps(documents("d1", "d2"))}
    searched = made(returned, name="Calling app.search", scope="logfire", parent=root)
    said = made({semconv.OPERATION: "chat", "events": TestEventsInAnAttribute.EVENTS}, parent=root, start=2, end=3)
    assert told([root, searched, said])[:3] == (Q, ["d1", "d2"], ("Rollo [1].", ["d1"]))


@pytest.mark.parametrize("as_returned", [lambda found: found, lambda found: {"context": found}])
def test_retrievers_that_langfuse_calls_spans(as_returned):
    """So does LangChain in JavaScript: a retriever returns a list, a step of a graph its state."""

    def observed(kind, returned=None, **fields):
        held = {"type": kind, "input": Q, "output": returned}
        return made({f"langfuse.observation.{key}": value for key, value in held.items() if value}, **fields)

    root = observed("span", end=9)
    found = [{"pageContent": f"text {name}", "id": name, "metadata": {}} for name in ("d1", "d2")]
    searched = observed("span", json.dumps(as_returned(found)), parent=root)
    called = observed("generation", json.dumps({"role": "assistant", "content": "Rollo [1]."}), parent=root, start=2)
    assert told([root, searched, called])[:2] == (Q, ["d1", "d2"])


def test_the_input_of_mastras_agents():
    agent = {semconv.OPERATION: "invoke_agent", "mastra.agent_run.input": json.dumps([{"role": "user", "content": Q}])}
    metadata = {"mastra.metadata.threadId": "s-1", "mastra.metadata.userId": "u-1"}
    assert told([made(agent | metadata)])[::3] == (Q, "s-1")


@pytest.mark.parametrize("prefix", semconv.METADATA_PREFIXES)
@pytest.mark.parametrize("name", ["session_id", "sessionId", "thread_id", "chatId"])
def test_a_session_in_the_metadata_of_every_tracer(prefix, name):
    assert told([made(LLM | {f"{prefix}{name}": "s-1"})])[3] == "s-1"


@pytest.mark.parametrize("name", ["session_id", "threadId"])
def test_a_session_in_the_metadata_of_openinference(name):
    assert told([made(LLM | {semconv.METADATA: json.dumps({name: "s-1"})})])[3] == "s-1"


class TestAdk:
    def test_of_google_before_version_2(self):
        root = made({}, name="invocation", scope="gcp.vertex.agent", end=9)
        agent = made({}, name="agent_run [clerk]", scope="gcp.vertex.agent", parent=root, end=8)
        asked = {"contents": [{"role": "user", "parts": [{"text": Q}]}]}
        replies = [{"parts": [{"function_call": {"name": "search", "args": {}}}], "role": "model"}]
        replies += [{"parts": [{"text": "Rollo [1]."}], "role": "model"}]
        calls = [
            made(
                {
                    "gcp.vertex.agent.llm_request": json.dumps(asked),
                    "gcp.vertex.agent.llm_response": json.dumps({"content": reply}),
                    "gcp.vertex.agent.session_id": "s-1",
                },
                name="call_llm",
                scope="gcp.vertex.agent",
                parent=agent,
                start=start,
                end=start + 2,
            )
            for start, reply in zip((1, 4), replies, strict=True)
        ]
        returned = {"gcp.vertex.agent.tool_response": json.dumps({"result": documents("d1", "d2")})}
        tool = {semconv.OPERATION: "execute_tool", semconv.GENAI_TOOL_NAME: "search", **returned}
        spans = [root, agent, *calls, made(tool, scope="gcp.vertex.agent", parent=calls[0], start=2, end=3)]
        assert told(spans)[:4] == (Q, ["d1", "d2"], ("Rollo [1].", ["d1"]), "s-1")


def test_the_events_of_llama_indexs_own_tracer():
    def span(parent=None, start=1, end=2, **events):
        told = [Event(name, attributes) for name, attributes in events.items()]
        return made({}, scope="llamaindex.opentelemetry.tracer", parent=parent, start=start, end=end, events=told)

    root = span(end=9, QueryStartEvent={"query": Q}, QueryEndEvent={"response.response": "Rollo [1]."})
    nodes = [{"node": {"id_": name, "text": f"text {name}"}, "score": 0.5} for name in ("d1", "d2")]
    asked = {"str_or_query_bundle.query_str": "rewritten"}
    retrieved = span(root, RetrievalStartEvent=asked, RetrievalEndEvent={"nodes": json.dumps(nodes)})
    blocks = {"response.message.blocks": json.dumps([{"block_type": "text", "text": "Rollo."}])}
    said = span(root, 3, 4, LLMChatEndEvent=blocks)
    assert told([root, retrieved, said])[:3] == (Q, ["d1", "d2"], ("Rollo [1].", ["d1"]))
    assert told([retrieved, said])[:3] == ("rewritten", ["d1", "d2"], ("Rollo.", None))


class TestSmolagents:
    def test_a_streamed_run_answers_by_its_last_tool(self):
        given = {
            semconv.INPUT_VALUE: json.dumps({"task": Q}),
            semconv.OUTPUT_VALUE: "ToolCall(name='search')ToolOutput(id=1)",
        }
        root = made({semconv.SPAN_KIND: semconv.AGENT, **given}, end=9)
        tools = {"search": json.dumps(documents("d1")), "final_answer": "Rollo [1]."}
        spans = [
            made(
                {semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: name, semconv.OUTPUT_VALUE: returned}, parent=root
            )
            for name, returned in tools.items()
        ]
        assert told([root, *spans])[:3] == (Q, ["d1"], ("Rollo [1].", ["d1"]))

    def test_steps_without_their_agents_span_are_one_request(self):
        """The first one ends with what its tool returned, as Python shows it."""
        found = str([{"id": "d1", "score": 0.5, "text": "Rollo ruled."}])
        first = made(CHAIN | {semconv.OUTPUT_VALUE: found}, end=3, parent=made())
        called = {semconv.OUTPUT_VALUE: json.dumps({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]})}
        asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": f"New task:\n{Q}"}
        tool = {
            semconv.SPAN_KIND: semconv.TOOL,
            semconv.TOOL_NAME: "search",
            semconv.OUTPUT_VALUE: json.dumps(documents("d1")),
        }
        query = {semconv.INPUT_VALUE: json.dumps({"kwargs": {"query": "ruler of Normandy"}})}
        second = made(CHAIN, start=4, end=6, failed=True)._replace(parent_id=first.parent_id)
        spans = [
            *(first, made(LLM | called | asked, parent=first, end=1), made(tool | query, parent=first, start=1, end=2)),
            *(second, made(LLM, parent=second, start=4, end=5, failed=True)),
        ]
        (request,) = per_request(spans)
        record = to_record(request).record
        assert (record.q, record.retrieved_ids, record.answer_json, record.error) == (Q, ["d1"], None, "error")


def test_the_fields_of_a_message_that_python_shows_are_no_question():
    """AutoGen's; the model call below has what was asked."""
    shown = f"id='m1' source='user' models_usage=None metadata={{}} content='{Q}' type='TextMessage'"
    agent = made({semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: json.dumps({"messages": [shown]})}, end=9)
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": Q}
    assert told([agent, made(LLM | asked, parent=agent)])[0] == Q


class TestMemory:
    FOUND = json.dumps([{"id": "m1", "content": "Likes trams.", "score": 0.5}])

    def test_a_search_in_the_memory_of_an_agent_is_its_retrieval(self):
        searched = made(
            {semconv.OPERATION: "search_memory", semconv.MEMORY_QUERY: Q, semconv.MEMORY_RECORDS: self.FOUND}
        )
        record = to_record([searched]).record
        assert (record.q, record.retrieved_ids, record.contexts, record.scores) == (Q, ["m1"], ["Likes trams."], [0.5])

    def test_beside_a_retrieval_it_is_none(self):
        root = made(CHAIN, end=9)
        searched = made({semconv.OPERATION: "search_memory", semconv.MEMORY_RECORDS: self.FOUND}, parent=root)
        assert to_record([root, searched, retriever("a", parent=root)]).record.retrieved_ids == ["a"]


def test_content_that_was_uploaded_is_named():
    held = {"gen_ai.input.messages_ref": "s3://bucket/in.json", "gen_ai.output.messages_ref": "s3://bucket/out.json"}
    assert to_record([made(LLM | held)]).missing == {
        "q": UPLOADED,
        "retrieved_ids": NO_RETRIEVAL,
        "answer_json": UPLOADED,
    }
