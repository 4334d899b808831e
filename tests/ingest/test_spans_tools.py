"""Which tools are retrievers, by the shape of what they returned and by name, and what documents they returned."""

from __future__ import annotations

import json

import pytest

from ragmon.core import constants, semconv
from ragmon.core.written import MAX_LITERAL_CHARS, MAX_LITERAL_TOKENS, python_value
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import CONTENT_NOT_CAPTURED, NO_RETRIEVAL, NOT_UNDERSTOOD, SpanOptions
from ragmon.ingest.spans.tools import MAX_LITERALS_CHARS, LiteralBudget, RetrievingTools, documents_in, tool_names
from tests.support.effort import effort
from tests.support.recorded_spans import made

AGENT = {semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: "Is it?", semconv.OUTPUT_VALUE: "It is."}
CHAT = {semconv.OPERATION: "chat"}


def tool(output, name="search", **fields):
    written = output if isinstance(output, str) or output is None else json.dumps(output)
    held = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.GENAI_TOOL_NAME: name}
    return made(
        held | ({} if written is None else {semconv.TOOL_RESULT: written}), name=f"execute_tool {name}", **fields
    )


def read(*spans, **options):
    """Ids, contexts, scores, and why ids are missing."""
    agent = made(AGENT, end=99)
    inside = (span._replace(parent_id=span.parent_id or agent.span_id) for span in spans)
    mapped = to_record([agent, *inside], SpanOptions(**options))
    record = mapped.record
    return record.retrieved_ids, record.contexts, record.scores, mapped.missing.get("retrieved_ids")


TWO = ["one", "two"]
DOCUMENTS = {
    "rows of a search function": [{"id": "a", "score": 0.9, "text": "one"}, {"id": "b", "score": 0.5, "text": "two"}],
    "an object with the query": {
        "query": "Is it?",
        "results": [{"id": "a", "content": "one", "url": "/a"}, {"id": "b", "content": "two", "url": "/b"}],
    },
    "LangChain's documents": [
        {"id": "a", "metadata": {"source": "x"}, "page_content": "one", "type": "Document"},
        {"id": "b", "metadata": {"source": "y"}, "page_content": "two", "type": "Document"},
    ],
    "LangChain's serialised documents": [
        {"lc": 1, "type": "constructor", "id": ["Document"], "kwargs": {"id": name, "page_content": text}}
        for name, text in zip("ab", TWO, strict=True)
    ],
    "LlamaIndex's scored nodes": [
        {"node": {"id_": name, "text": text, "metadata": {}, "class_name": "TextNode"}, "score": 0.5}
        for name, text in zip("ab", TWO, strict=True)
    ],
    "Qdrant's points": {
        "points": [
            {"id": name, "version": 3, "score": 0.5, "payload": {"text": text}}
            for name, text in zip("ab", TWO, strict=True)
        ]
    },
    "Pinecone's matches": {
        "matches": [
            {"id": name, "score": 0.5, "values": [], "metadata": {"text": text}}
            for name, text in zip("ab", TWO, strict=True)
        ],
        "namespace": "docs",
    },
    "Elasticsearch's hits": {
        "took": 3,
        "hits": {
            "total": {"value": 2},
            "hits": [
                {"_index": "docs", "_id": name, "_score": 0.5, "_source": {"content": text, "title": "A page"}}
                for name, text in zip("ab", TWO, strict=True)
            ],
        },
    },
    "Chroma's columns": {
        "ids": [["a", "b"]],
        "documents": [["one", "two"]],
        "distances": [[0.1, 0.3]],
        "metadatas": [[{"page": 1}, None]],
    },
    "Azure's rows": {
        "value": [
            {"@search.score": 0.5, "chunk_id": name, "chunk": text, "title": "t"}
            for name, text in zip("ab", TWO, strict=True)
        ]
    },
    "ids in metadata alone": [
        {"page_content": "one", "metadata": {"chunk_id": "a"}},
        {"page_content": "two", "metadata": {"chunk_id": "b"}},
    ],
    "a part of MCP with the whole list": {
        "content": [{"type": "text", "text": '[{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]'}],
        "isError": False,
    },
    "a part of MCP for each document": [
        {"type": "text", "text": '{"id": "a", "text": "one"}'},
        {"type": "text", "text": '{"id": "b", "text": "two"}'},
    ],
    "MCP's structured content": {
        "structuredContent": {"result": [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]}
    },
    "LangChain's artifact": {
        "type": "tool",
        "data": {
            "content": "Source: a\nContent: one\n\nSource: b\nContent: two",
            "type": "tool",
            "tool_call_id": "call_1",
            "artifact": [
                {"id": name, "metadata": {"source": "x"}, "page_content": text, "type": "Document"}
                for name, text in zip("ab", TWO, strict=True)
            ],
            "status": "success",
        },
    },
    "LangChain.js' artifact": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "ToolMessage"],
        "kwargs": {
            "content": "one, two",
            "artifact": [{"pageContent": text, "metadata": {"id": n}} for n, text in zip("ab", TWO, strict=True)],
        },
    },
    "Milvus' hits": [
        [{"pk": name, "distance": 0.5, "entity": {"text": text}} for name, text in zip("ab", TWO, strict=True)]
    ],
    "LanceDB's rows": [
        {"chunk_id": name, "text": text, "vector": [0.1], "_distance": 0.5}
        for name, text in zip("ab", TWO, strict=True)
    ],
    "Bedrock's results": {
        "retrievalResults": [
            {"content": {"text": text}, "location": {"s3Location": {"uri": name}}, "score": 0.5}
            for name, text in zip("ab", TWO, strict=True)
        ]
    },
    "Weaviate's objects": {
        "objects": [{"uuid": name, "properties": {"content": text}} for name, text in zip("ab", TWO, strict=True)]
    },
    "Vespa's hits": {
        "root": {
            "children": [{"id": n, "relevance": 1.0, "fields": {"text": t}} for n, t in zip("ab", TWO, strict=True)]
        }
    },
    "Typesense's hits": {
        "hits": [
            {"document": {"id": name, "text": text}, "text_match": 9} for name, text in zip("ab", TWO, strict=True)
        ]
    },
    "DSPy's passages": {"passages": [{"pid": name, "long_text": text} for name, text in zip("ab", TWO, strict=True)]},
    "MongoDB's documents": [{"_id": {"$oid": name}, "text": text} for name, text in zip("ab", TWO, strict=True)],
    "a tool message": {
        "type": "tool",
        "name": "search",
        "tool_call_id": "call_1",
        "content": '[{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]',
    },
    "Strands' content": [{"text": "[{'id': 'a', 'text': 'one'}, {'id': 'b', 'text': 'two'}]"}],
    "Python's repr of a list": "[{'id': 'a', 'text': 'one', 'page': None}, {'id': 'b', 'text': 'two', 'page': 3}]",
    "Python's repr of documents": "[Doc(id='a', metadata={}, page_content='one'), Doc(id='b', page_content='two')]",
    "passages with an author and a date": [
        {"id": name, "passage": text, "author": "Ann", "date": "2026-01-01", "title": "T"}
        for name, text in zip("ab", TWO, strict=True)
    ],
}


@pytest.mark.parametrize("output", DOCUMENTS.values(), ids=DOCUMENTS)
def test_outputs_that_are_documents_by_their_shape(output):
    ids, contexts, _, reason = read(tool(output))
    assert (ids, contexts, reason) == (["a", "b"], TWO, None)


def test_scores_without_texts_are_a_retrieval():
    """Where an object has nothing that a document has not: ids, scores, places."""
    output = {"matches": [{"id": "a", "score": 0.9, "metadata": {"page": 1}}, {"id": "b", "score": 0.5, "rank": 2}]}
    assert read(tool(output)) == (["a", "b"], None, [0.9, 0.5], None)
    assert read(tool([{"id": "a", "distance": 0.1}])) == (["a"], None, None, None)


OTHERS = {
    "orders": [{"id": 1, "name": "Lamp", "status": "sent"}, {"id": 2, "name": "Chair", "status": "open"}],
    "users": [{"id": "u1", "name": "Ann"}, {"id": "u2", "name": "Ben"}],
    "products": {"results": [{"id": 1, "name": "Lamp", "description": "A lamp", "price": 9.5}]},
    "exam results": [{"id": 1, "name": "Ann", "score": 87}, {"id": 2, "name": "Ben", "score": 61}],
    "games": {"results": [{"id": 7, "home": "North", "away": "South", "score": "2:1"}]},
    "players": [{"id": 1, "player": "x", "score": 2400.0}],
    "chat messages": [
        {"id": "m1", "role": "user", "content": "Hello"},
        {"id": "m2", "role": "assistant", "content": "Hi"},
    ],
    "mails": {"results": [{"id": "1", "from": "ann", "to": "ben", "text": "See you"}]},
    "reviews": [{"id": 1, "rating": 4, "text": "Good lamp"}],
    "comments": [{"id": 1, "user": "ann", "text": "Nice"}],
    "tasks": {"items": [{"id": 1, "content": "Buy milk", "due": "today", "priority": 4}]},
    "tickets": [{"id": 1, "title": "Broken", "body": "It broke", "state": "open"}],
    "calendar events": [{"id": "e1", "summary": "Meeting", "start": "09:00"}],
    "files": [{"id": "f1", "name": "a.pdf", "size": 100}],
    "weather": {"temperature": 21, "unit": "C"},
    "numbers": [1, 2, 3],
    "names": ["one", "two"],
    "an empty list": [],
    "an object with an empty list": {"results": [], "total": 0},
    "a text": "Ferries leave at six.",
    "a text in brackets": "[1] Ferries leave at six.",
    "a list that was cut": '[{"id": "a", "text": "one"}, {"id": "b", "te',
    "one that is no document among them": [{"id": "a", "text": "one"}, {"name": "more"}],
    "texts without ids": [{"text": "one"}, {"text": "two"}],
    "calls in Python": "[print(1), {'id': 'a', 'text': 'one'}]",
    "bank transfers": [{"id": 1, "amount": 10.0, "currency": "EUR", "text": "Rent"}],
    "nothing": "null",
}


def test_outputs_that_are_no_documents():
    for output in OTHERS.values():
        assert read(tool(output), made(CHAT)) == (None, None, None, NO_RETRIEVAL), output


def test_an_id_where_id_from_says_makes_documents_of_texts():
    output = {"results": [{"url": "/a", "content": "one"}, {"url": "/b", "content": "two"}]}
    assert read(tool(output), made(CHAT))[3] == NO_RETRIEVAL
    assert read(tool(output), id_from=("url",))[:2] == (["/a", "/b"], TWO)


@pytest.mark.parametrize(
    "kind",
    [
        {semconv.SPAN_KIND: semconv.TOOL},
        {semconv.OPERATION: semconv.EXECUTE_TOOL},
        {semconv.TRACELOOP_KIND: "tool"},
        {semconv.TRACELOOP_KIND: "task"},
        {semconv.MCP_METHOD: "tools/call"},
    ],
    ids=str,
)
def test_tools_tasks_and_requests_to_mcp_servers_are_known_by_their_shape(kind):
    """In any attribute that holds an output; a span of another kind is no tool."""
    documents = json.dumps(DOCUMENTS["rows of a search function"])
    for key in (semconv.TOOL_RESULT, semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT):
        assert read(made(kind | {key: documents})) == (["a", "b"], TWO, [0.9, 0.5], None)
    assert read(made({semconv.OUTPUT_VALUE: documents}), made(CHAT))[3] == NO_RETRIEVAL


class TestNamed:
    """Tools that `[capture] retrievers` names retrieve whatever they return."""

    @pytest.mark.parametrize(
        ("output", "expected"),
        [
            ([{"id": 1, "name": "Lamp"}], (["1"], None, None, None)),
            ("Ferries leave at six.", (None, ["Ferries leave at six."], None, constants.NO_IDS)),
            (["one", "two"], (None, TWO, None, constants.NO_IDS)),
            ([{"text": "one"}, {"text": "two"}], (None, TWO, None, constants.NO_IDS)),
            ({"content": [{"type": "text", "text": "one"}]}, (None, ["one"], None, constants.NO_IDS)),
            ([], ([], None, None, None)),
            ({"results": []}, ([], None, None, None)),
            ({"temperature": 21}, (None, None, None, NOT_UNDERSTOOD)),
            ([{"start": 1}], (None, None, None, NOT_UNDERSTOOD)),
            ("17", (None, None, None, NOT_UNDERSTOOD)),
            (None, (None, None, None, CONTENT_NOT_CAPTURED)),
        ],
    )
    def test_whatever_the_shape(self, output, expected):
        assert read(tool(output), retrievers=["sea*"]) == expected

    def test_that_hand_on_the_state_of_a_graph(self):
        state = json.dumps({"question": "Is it?", "context": [{"id": "a", "page_content": "one"}]})
        step = made({semconv.TRACELOOP_KIND: "task", semconv.ENTITY_OUTPUT: state}, name="retrieve.task")
        assert read(step, retrievers=["retrieve"])[:2] == (["a"], ["one"])
        assert read(step, made(CHAT))[3] == NO_RETRIEVAL

    def test_by_the_type_of_the_tool(self):
        """The conventions call a tool that retrieves a data store."""
        span = made(
            {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_TYPE: "datastore", semconv.TOOL_RESULT: "one"}
        )
        assert read(span) == (None, ["one"], None, constants.NO_IDS)

    def test_that_failed_found_nothing_to_miss(self):
        spans = tool("timeout", failed=True), tool([{"id": "a", "text": "one"}], start=1, end=2)
        assert read(*spans, retrievers=["other"])[0] == ["a"]

    @pytest.mark.parametrize(
        "span",
        [
            made({semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: "find", semconv.OUTPUT_VALUE: "one"}),
            made({semconv.TRACELOOP_KIND: "task", semconv.ENTITY_NAME: "find", semconv.ENTITY_OUTPUT: '"one"'}),
            made({semconv.SPAN_KIND: semconv.CHAIN, semconv.OUTPUT_VALUE: "one"}, name="find"),
            made({semconv.OUTPUT_VALUE: "one"}, name="find.task"),
            made({semconv.MCP_METHOD: "tools/call", semconv.OUTPUT_VALUE: "one"}, name="tools/call find"),
        ],
        ids=["tool", "task", "chain", "function", "MCP"],
    )
    def test_of_any_kind(self, span):
        assert read(span, retrievers=("find",))[1] == ["one"]

    def test_is_no_agent_and_no_model_call(self):
        agent = made(AGENT, name="find", end=9)
        spans = agent, made(CHAT | {semconv.OUTPUT_VALUE: "It is."}, name="find", parent=agent)
        record = to_record(spans, SpanOptions(retrievers=("find",))).record
        assert (record.retrieved_ids, record.answer_json.claim) == (None, "It is.")

    def test_leaves_it_to_the_retriever_inside_that_names_the_documents(self):
        outer = tool("one\n\ntwo", end=5)
        inner = made(
            {semconv.SPAN_KIND: semconv.RETRIEVER, semconv.OUTPUT_VALUE: json.dumps([{"id": "a"}])}, parent=outer
        )
        assert read(outer, inner, retrievers=["search"])[0] == ["a"]

    @pytest.mark.parametrize(
        ("pattern", "matching", "others"),
        [
            ("retrieve", ["retrieve"], ["retrieve2", "Retrieve", ""]),
            ("search_*", ["search_", "search_faq"], ["search", "do_search_"]),
            ("*_search", ["_search", "web_search"], ["search", "_search_"]),
            ("a*b*c", ["abc", "axbxbc"], ["ab", "ac", "acb"]),
            ("aa*aa", ["aaaa", "aabaa"], ["aaa"]),
            ("*", ["", "x"], []),
            ("find.*", ["find.x"], ["findx"]),
        ],
    )
    def test_patterns_with_stars(self, pattern, matching, others):
        tools = RetrievingTools((pattern,))
        assert all(tools.has_name([name]) for name in matching)
        assert not any(tools.has_name([name]) for name in others)

    def test_names_of_a_span(self):
        assert tool_names({semconv.GENAI_TOOL_NAME: "a", semconv.TOOL_NAME: "b"}, "execute_tool c")[:3] == [
            "a",
            "b",
            "c",
        ]


def step(name, kind="task", **fields):
    return made({semconv.TRACELOOP_KIND: kind, semconv.ENTITY_NAME: name}, name=f"{name}.{kind}", **fields)


class TestThatMayHaveRetrieved:
    """The tools of a request without a retrieval are named, as somebody may call one of them a retriever."""

    def test_nodes_of_a_graph_are_none_beside_tools_of_the_model(self):
        """LangGraph's agent under OpenLLMetry."""
        graph = made({semconv.TRACELOOP_KIND: "workflow"}, end=20)
        model, tools = step("model", parent=graph, end=3), step("tools", parent=graph, start=4, end=7)
        again = step("model", parent=graph, start=8, end=12)
        called = step("retrieve_context", kind="tool", parent=tools, start=5, end=6)
        calls = [made(CHAT, parent=model, start=1, end=2), made(CHAT, parent=again, start=9, end=10)]
        assert to_record([graph, model, tools, again, called, *calls]).tools == ["retrieve_context"]

    def test_of_a_graph_alone_those_are_before_the_last_call_and_not_around_it(self):
        graph = made({semconv.TRACELOOP_KIND: "workflow"}, end=20)
        nodes = step("retrieve", parent=graph, end=2), step("generate", parent=graph, start=3, end=6)
        after = step("store", parent=graph, start=7, end=8)
        call = made(CHAT, parent=nodes[1], start=4, end=5)
        assert to_record([graph, *nodes, after, call]).tools == ["retrieve"]

    def test_a_task_around_the_whole_request_is_none(self):
        crew = made({semconv.TRACELOOP_KIND: "workflow"}, end=20)
        task = step("What does a day ticket cost?", parent=crew, end=15)
        assert to_record([crew, task, made(CHAT, parent=task, start=1, end=2)]).tools == []

    def test_an_agent_that_is_a_tool_is_named_where_nothing_else_is(self):
        agent = made(AGENT, end=9)
        outer = tool("It is.", parent=agent, start=1, end=6)
        calls = [made(CHAT, parent=outer, start=2, end=3), made(CHAT, parent=agent, start=7, end=8)]
        assert to_record([agent, outer, *calls]).tools == ["search"]


class TestSeveral:
    def test_searches_accumulate_in_the_order_of_time_and_a_document_counts_once_at_its_best_rank(self):
        first = tool([{"id": "a", "text": "one"}, {"id": "b", "text": "two"}])
        second = tool([{"id": "c", "text": "three"}, {"id": "a", "text": "one"}], start=2, end=3)
        assert read(second, first)[:2] == (["a", "b", "c"], ["one", "two", "three"])
        assert read(second, first, merge="last")[0] == ["c", "a"]

    def test_an_empty_result_of_a_tool_that_is_known_counts(self):
        """The same tool found something in this request, so finding nothing is a retrieval, too."""
        assert read(tool([]), tool([{"id": "a", "text": "one"}], start=2, end=3))[0] == ["a"]
        assert read(tool([{"id": "a", "text": "one"}]), tool({"results": []}, start=2, end=3), merge="last")[0] == []

    def test_a_request_to_a_server_inside_a_tool_counts_once(self):
        outer = tool([{"id": "a", "text": "one"}], end=5)
        inner = made(
            {semconv.MCP_METHOD: "tools/call", semconv.OUTPUT_VALUE: '[{"id": "a", "text": "one"}]'},
            parent=outer,
            end=2,
        )
        assert read(outer, inner) == (["a"], ["one"], None, None)

    def test_a_task_around_a_model_call_is_no_retrieval_though_it_returns_the_documents(self):
        output = json.dumps({"context": [], "documents": [{"id": "a", "text": "one"}]})
        workflow = made({semconv.TRACELOOP_KIND: "workflow"}, end=6)
        task = made({semconv.TRACELOOP_KIND: "task", semconv.ENTITY_OUTPUT: output}, parent=workflow, end=5)
        call = made(CHAT | {semconv.OUTPUT_MESSAGES: '[{"role": "assistant", "content": "It is."}]'}, parent=task)
        record = to_record([workflow, task, call]).record
        assert (record.retrieved_ids, record.answer_json.claim) == (None, "It is.")

    def test_a_tool_alone_makes_a_record(self):
        """CrewAI's spans have no model call."""
        mapped = to_record([tool([{"id": "a", "text": "one"}])])
        assert (mapped.record.retrieved_ids, mapped.missing["answer_json"]) == (["a"], constants.NO_ANSWER)


class TestGivenToTheModel:
    """Without spans of tools, their results stand in the messages of the model calls that follow."""

    FOUND = '[{"id": "a", "text": "one"}]'

    @pytest.mark.parametrize(
        "attributes",
        [
            {
                f"{semconv.LLM_INPUT}.0.message.role": "user",
                f"{semconv.LLM_INPUT}.0.message.content": "Is it?",
                f"{semconv.LLM_INPUT}.1.message.role": "tool",
                f"{semconv.LLM_INPUT}.1.message.content": FOUND,
            },
            {
                semconv.INPUT_MESSAGES: json.dumps(
                    [{"role": "user", "content": "?"}, {"role": "tool", "content": FOUND}]
                )
            },
            {
                semconv.INPUT_MESSAGES: json.dumps(
                    [{"role": "user", "parts": [{"type": "tool_call_response", "id": "1", "response": FOUND}]}]
                )
            },
            {
                semconv.OUTPUT_VALUE: json.dumps(
                    {
                        "automatic_function_calling_history": [
                            {"role": "user", "parts": [{"function_response": {"response": {"result": FOUND}}}]}
                        ]
                    }
                )
            },
        ],
        ids=["OpenInference", "a message of a tool", "a part of a message", "Google's functions"],
    )
    def test_results_with_the_shape_of_documents_are_a_retrieval(self, attributes):
        assert read(made(CHAT | attributes)) == (["a"], ["one"], None, None)

    def test_those_of_earlier_turns_are_none(self):
        messages = [{"role": "tool", "content": self.FOUND}, {"role": "user", "content": "And now?"}]
        assert read(made(CHAT | {semconv.INPUT_MESSAGES: json.dumps(messages)}))[3] == NO_RETRIEVAL

    def test_spans_of_retrievals_know_better(self):
        messages = json.dumps([{"role": "tool", "content": self.FOUND}])
        spans = tool([{"id": "b", "text": "two"}]), made(CHAT | {semconv.INPUT_MESSAGES: messages}, start=2, end=3)
        assert read(*spans)[0] == ["b"]


class TestPythonValues:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (
                "[{'a': 'it\\'s', \"b\": None, 'c': -1.5e3, 'd': True}]",
                [{"a": "it's", "b": None, "c": -1500.0, "d": True}],
            ),
            ("('x', 'y')", ["x", "y"]),
            ("{'a': [1, (2,)]}", {"a": [1, [2]]}),
            ("[Hit(id='a', score=0.5)]", [{"id": "a", "score": 0.5}]),
            ("[Hit('a')]", None),
            ("[datetime.date(2026, 1, 1)]", None),
            ("[x for x in y]", None),
            ("[lambda: 1]", None),
            ("[f'a']", None),
            ("[{1: 'a'}]", None),
            ("[1] Ferries leave at six.", None),
            ("['a', 'b'", None),
            ("[-'a']", None),
            ("", None),
        ],
    )
    def test_values_without_names_and_calculations(self, text, value):
        assert python_value(text) == value

    def test_deep_and_long_texts_are_refused(self):
        assert python_value("[" * 13 + "]" * 13) is None
        assert python_value("[" * 100_000) is None
        assert python_value(f"[{'1,' * MAX_LITERAL_TOKENS}]") is None
        assert python_value(f"['{'x' * MAX_LITERAL_CHARS}']") is None

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "part",
        [
            "{'a': 'x'}, ",
            "'",
            '"x" ',
            "'\\'",
            "[1], ",
            "{}, ",
            "a.b ",
            "=-",
            "f(",
            "[[[[]]]], ",
            "f(a=f(a=1)), ",
            "1e-",
            "'a',",
        ],
    )
    def test_no_text_of_any_length_takes_longer_than_a_large_one_of_json(self, part):
        """At most ten times what `json.loads` takes for a megabyte; tokens and length are limited."""
        text = f"[{part * (MAX_LITERAL_TOKENS // 2)}]"[:MAX_LITERAL_CHARS]
        assert effort(lambda: python_value(text))[0] < 10

    def test_many_outputs_share_a_limit(self):
        """A request with a thousand long Python values is read as far as its limit goes."""
        output = str([{"id": str(n), "text": "x" * 90} for n in range(900)])
        assert documents_in(output) is not None
        literals = LiteralBudget()
        read = [documents_in(output, None, literals) is not None for _ in range(9)]
        assert read == [True] * (MAX_LITERALS_CHARS // len(output)) + [False] * (9 - MAX_LITERALS_CHARS // len(output))


def test_an_output_is_read_in_a_bounded_depth():
    value = [{"id": "a", "text": "one"}]
    for _ in range(5):
        value = {"result": value}
    assert documents_in(json.dumps(value)) is not None
    for _ in range(5):
        value = {"result": value}
    assert documents_in(json.dumps(value)) is None


def test_documents_in_lists_in_lists_are_read_in_a_bounded_depth():
    deep = "[" * 900 + "]" * 900
    for kind in (semconv.RETRIEVER, semconv.RERANKER):
        record = to_record(
            [made({semconv.SPAN_KIND: kind, semconv.INPUT_VALUE: "Is it?", semconv.DOCUMENTS: deep})]
        ).record
        assert (record.retrieved_ids, record.contexts) == (None, None)
