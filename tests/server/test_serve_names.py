"""No text of a user is shown without the token, wherever a stranger's instrumentation puts it in place of a name."""

from __future__ import annotations

import json
import logging
import re
import time
from html import unescape
from urllib.parse import quote

import msgspec
import pytest

from ragmon.cli.doctor import tool_checks
from ragmon.config.load import defaults
from ragmon.core import constants, semconv
from ragmon.core.errors import shown_name
from ragmon.export.families import label
from ragmon.export.status import (
    MonitorSnapshot,
    ServerStats,
    StageCounters,
    retriever_hint,
    tools_without_documents,
    unknown_conventions,
    warnings,
)
from ragmon.ingest.otlp import _READ_KEYS
from ragmon.ingest.spans.span import Event
from ragmon.monitor.engine import Engine
from ragmon.scoring.snapshot import Snapshot
from ragmon.stream.chunk import BatchCounts
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made
from tests.support.serving import accounted, asked, configuration, send_body, serving, whole

CONFIG = """
[gold.handbook]
path = "gold.jsonl"
[gates]
answer_precision = { at_least = 0.9, source = "match" }
error_rate = { at_most = 0.1 }
"""
GOLD = {
    "qid": "q1",
    "question": "What is a day ticket?",
    "answerable": True,
    "gold_claim_substr": ["seven marks"],
    "gold_citations": ["ticket#1"],
}
"""The only question of a user that may be shown: whoever runs the server wrote it."""
SHARED = 30
"""Requests of a kind, so that gaps are named and gates judged."""
NAMED = "search_docs"


def crew(word):
    """CrewAI under OpenLLMetry: the span of a task is named after its description, which holds the question."""
    question = f"What does {word} pay for a day ticket?"
    flow = made({semconv.TRACELOOP_KIND: "workflow", semconv.ENTITY_NAME: "crewai"}, end=9, name="crewai.workflow")
    task = {semconv.TRACELOOP_KIND: "task", semconv.ENTITY_NAME: question, semconv.ENTITY_OUTPUT: f"{word}: 7 [1]."}
    step = made(task, parent=flow, end=8, name=f"{question}.task")
    asks = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"\nCurrent Task: {question}"}]}])
    says = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": f"{word} pays seven marks [1]."}]}])
    chat = {semconv.OPERATION: "chat", semconv.INPUT_MESSAGES: asks, semconv.OUTPUT_MESSAGES: says}
    return [flow, step, made(chat, parent=step, start=2, end=3, name="openai.chat")]


def tool(attributes, name="tool"):
    """An agent that called a tool, whose name is a text in some place."""
    agent = made({semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: "Who?", semconv.OUTPUT_VALUE: "He."}, end=9)
    call = made({semconv.SPAN_KIND: semconv.LLM}, parent=agent, start=2, end=3)
    return [agent, made({semconv.OUTPUT_VALUE: "He did.", **attributes}, parent=agent, name=name), call]


def chain(attributes=(), **fields):
    """A request that calls a model, with more attributes on its root."""
    root = made({semconv.SPAN_KIND: semconv.CHAIN, semconv.INPUT_VALUE: "Who?", **dict(attributes)}, end=9, **fields)
    return [root, made({semconv.SPAN_KIND: semconv.LLM}, parent=root, start=2, end=3)]


def raised(attributes):
    return chain(failed=True, events=[Event(semconv.EXCEPTION, attributes)])


KINDS = {
    **{
        f"{kind} of OpenInference": {semconv.SPAN_KIND: kind} for kind in ("CHAIN", "AGENT", "LLM", "TOOL", "RETRIEVER")
    },
    **{
        f"{operation} of OpenTelemetry": {semconv.OPERATION: operation}
        for operation in ("invoke_agent", "chat", "execute_tool", "retrieval", "embeddings", "rag")
    },
    **{f"{kind} of OpenLLMetry": {semconv.TRACELOOP_KIND: kind} for kind in ("workflow", "task", "tool", "agent")},
    "a request of OpenLLMetry": {semconv.REQUEST_TYPE: "chat"},
    "a request to MCP": {semconv.MCP_METHOD: "tools/call"},
    "a root of TruLens": {semconv.TRULENS_KIND: "record_root"},
    "a generation of Langfuse": {"langfuse.observation.type": "generation"},
    "a chain of MLflow": {"mlflow.spanType": '"CHAIN"'},
    "a request of the AI SDK": {"ai.operationId": "ai.generateText"},
    "a request of a web server": {"http.route": "/ask"},
    "words that are not read": {"acme.span.kind": "llm"},
}
"""The attributes that say what a span is."""
SAYING = {semconv.RAGMON_RECORD, semconv.RAGMON_INTERNAL, *(key for kind in KINDS.values() for key in kind)}
FLATTENED = (
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "gen_ai.completion.0.content",
)


def flooded(kind, *, failed=False):
    """A span of a kind around a model's call and a tool, with the question as their names and in every attribute."""

    def make(word):
        question = f"What does {word} pay for a day ticket?"
        texts = {key: question for key in (*_READ_KEYS, *FLATTENED) if key not in SAYING}
        ended = {"failed": failed, "events": [Event(semconv.EXCEPTION, {semconv.EXCEPTION_TYPE: question})]}
        ended = ended if failed else {}
        root = made({**texts, **kind}, end=9, name=question, scope=question, **ended)
        call = made({**texts, semconv.SPAN_KIND: "LLM"}, parent=root, start=4, end=5, name=question, **ended)
        return [root, call, made({**texts, **kind}, parent=root, start=1, end=2, name=question, scope=question)]

    return make


STRANGERS = {
    **{f"every attribute of {name}": flooded(kind) for name, kind in KINDS.items()},
    **{f"every attribute of {name}, which failed": flooded(kind, failed=True) for name, kind in KINDS.items()},
    "the entity of a task": crew,
    "the name of a tool": lambda word: tool({semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: f"Ask {word} again"}),
    "a tool of OpenTelemetry": lambda word: tool(
        {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.GENAI_TOOL_NAME: f"{word}\n?"}
    ),
    "a span of MCP": lambda word: tool({semconv.MCP_METHOD: "tools/call"}, f"tools/call Where is {word}"),
    "a function": lambda word: tool({semconv.OPERATION: "execute_task", semconv.FUNCTION_NAME: f"{word}の券はいくら"}),
    "an address": lambda word: tool({semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: f"{word}@example.org"}),
    "a long word": lambda word: tool({semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: f"{word}-" * 30}),
    "a scope": lambda word: [
        made({"acme.llm.model_name": "m", "acme.completion.text": "Rollo"}, scope=f"the tracer of {word}")
    ],
    "a workflow": lambda word: chain({semconv.WORKFLOW_NAME: f"Answer {word} kindly"}),
    "a workflow of OpenLLMetry": lambda word: chain({semconv.TRACELOOP_WORKFLOW: f"Answer {word} kindly"}),
    "the type of an error": lambda word: chain({semconv.ERROR_TYPE: f"no ticket for {word}"}, failed=True),
    "the type of an exception": lambda word: raised({semconv.EXCEPTION_TYPE: f"no ticket for {word}"}),
    "the message of an exception": lambda word: raised(
        {semconv.EXCEPTION_TYPE: "KeyError", "exception.message": f"no {word}"}
    ),
}
OWN = {
    "an error of a record": lambda text: {"error": text, "claim": None},
    "an id": lambda text: {"retrieved": [text, "d2"]},
    "a citation": lambda text: {"citations": ["d1", text]},
    "a text": lambda text: {"claim": text, "contexts": [text], "session": text, "user": text},
    "a tag": lambda text: {"tags": {text: text, "lang": text}},
    "a measure": lambda text: {"measures": {f"judge.{text}": 0.5}, "judge_versions": {f"judge.{text}": text}},
}
WORDS = {kind: f"Zephyrine{number}x" for number, kind in enumerate((*STRANGERS, *OWN))}
"""For each kind the word that must be nowhere."""


def fresh(spans, number):
    """The same trace under an id of its own, ended just now."""
    shift = time.time_ns() - max(span.end_ns for span in spans)
    trace_id = f"{number + (1 << 70):032x}"
    return [
        span._replace(trace_id=trace_id, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans
    ]


def requests():
    """Every kind as often as it is looked at; one tool has a name that may be shown."""
    named = tool({semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: NAMED})
    kinds = [*(make(WORDS[kind]) for kind, make in STRANGERS.items()), named]
    strangers = [fresh(spans, SHARED * place + n) for place, spans in enumerate(kinds) for n in range(SHARED)]
    own = [
        asked(SHARED * place + n, **{"q": GOLD["question"], **make(f"What does {WORDS[kind]} pay?")})
        for place, (kind, make) in enumerate(OWN.items())
        for n in range(SHARED)
    ]
    return strangers, own


class Keeper(logging.Handler):
    """Keeps every line of the log."""

    def __init__(self):
        super().__init__(0)
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Everything that a server shows without a token after such requests, by its place, and its status."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "gold.jsonl").write_text(json.dumps(GOLD) + "\n")
    keeper, logger = Keeper(), logging.getLogger("ragmon")
    logger.addHandler(keeper)
    try:
        with serving(folder, CONFIG) as running:
            strangers, own = requests()
            send_body(running, whole(own))
            for first in range(0, len(strangers), SHARED):
                spans = [span for spans in strangers[first : first + SHARED] for span in spans]
                send_body(running, export(spans).SerializeToString())
            running.wait_for(lambda books: books["received"] == len(own) + len(strangers) and not books["pending"])
            accounted(running)
            status = running.status()
            places = {path: unescape(running.get(path)[1]) for path in paths(status, strangers, own)}
            path = configuration(folder, f'{CONFIG}\n[export]\nendpoint = "{running.otlp}"\n')
            done = ragmon("doctor", "--config", path, "--admin-url", running.admin, "--wait", "1", cwd=folder)
            yield {**places, "doctor": done.out + done.err, "log": "\n".join(keeper.lines)}, status
    finally:
        logger.removeHandler(keeper)


def paths(status, strangers, own):
    """Every address of the admin port that shows something."""
    yield from ("/", "/monitor", "/incidents", "/gold", "/metrics", "/readyz", "/healthz")
    yield from ("/api/status", "/api/history", "/api/incidents", "/api/records", "/api/compare?baseline=a&candidate=b")
    for pipeline, gate in {(gate["pipeline"], gate["gate"]) for gate in status["gates"]}:
        name = quote(label(pipeline), safe="")
        yield from (f"/p/{name}", f"/p/{name}/{quote(gate, safe='')}")
        yield from (f"/api/{what}?pipeline={name}&gate={quote(gate)}" for what in ("why", "records"))
    for trace in (*(spans[0].trace_id for spans in strangers), *(record.trace_id for record in own)):
        if int(trace, 16) % SHARED == 1:
            yield from (f"/api/traces/{trace}", f"/t/{trace}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORDS)
def test_a_text_in_place_of_a_name_is_nowhere(shown, kind):
    places, _ = shown
    assert [place for place, text in places.items() if WORDS[kind] in text] == []


@pytest.mark.slow
def test_every_place_was_looked_at_and_what_has_a_name_is_named(shown):
    places, status = shown
    assert len(places) > 60
    assert "# TYPE" in places["/metrics"]
    assert "none of" in places["log"]
    assert 'code="KeyError"' in places["/metrics"]
    tools = status["tools_without_documents"]
    assert tools.keys() == {NAMED, constants.OTHER}
    assert (tools[NAMED], tools[constants.OTHER] >= 6 * SHARED) == (SHARED, True)
    assert status["unknown_conventions"].keys() == {constants.OTHER}
    assert re.search(rf"other names \({tools[constants.OTHER]}\), {NAMED} \({SHARED}\)", places["doctor"])
    assert f'retrievers = ["{NAMED}"]' in places["doctor"]


@pytest.mark.parametrize(
    "name",
    [
        *("search_docs", "retrieve.task", "tools/call", "@acme/tracing", "io.acme.tracing", "ferry#1", "500"),
        *("claude-3-5-sonnet@20240620", "@cf/meta/llama-3.1-8b", "anthropic.claude-v2:1", "text-bison@default"),
        *("*url.Error", "java.lang.IllegalStateException", "com.acme.Pool$TimeoutException", "std::bad_alloc"),
    ],
)
def test_names_in_programs_are_shown(name):
    assert shown_name(name, "other") == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "two words",
        "a\tb",
        "line\n",
        "Who?",
        "ada@example.org",
        "一日券はいくらですか",
        "größe",
        "x" * 101,
        "\x1b[31m",
    ],
)
def test_what_may_be_a_text_is_not(text):
    assert shown_name(text, "other") == "other"


@pytest.mark.parametrize(
    ("tools", "first"),
    [
        ({"model": 9, "retrieve_context": 9}, "retrieve_context"),
        ({"generate": 9, "retrieve": 9}, "retrieve"),
        ({"get_weather": 9, "searchDocs": 2, "ask_kb": 5}, "ask_kb"),
        ({"zeta": 4, "alpha": 4}, "zeta"),
        ({"alpha": 3, "zeta": 4}, "zeta"),
    ],
)
def test_the_hint_names_what_sounds_like_a_retrieval_then_what_is_called_most_then_what_came_first(tools, first):
    assert retriever_hint(tools).endswith(f'retrievers = ["{first}"]')


def test_texts_that_an_older_journal_holds_are_not_shown():
    old = {"What is it?": 3, "search": 2, "Who is she?": 1}
    counts = BatchCounts()
    counts.add(BatchCounts(tools=old, scopes=old))
    served = ServerStats(tools=old, scopes=old)
    snapshot = MonitorSnapshot(
        Snapshot(5000.0, [], [], [], frozenset()),
        last_scored=5000.0,
        stages={"ingest": StageCounters(received=4, scored=4)},
        served=served,
    )
    shown = {"search": 2, constants.OTHER: 4}
    assert [counts.tools, counts.scopes] == [shown] * 2
    assert [tools_without_documents(snapshot), unknown_conventions(snapshot)] == [shown] * 2
    (doubt,) = [found for found in warnings(snapshot) if "called tools" in found.what]
    assert doubt.what.endswith("no retrieval was seen: other names (4), search (2)")
    assert doubt.hint.endswith('retrievers = ["search"]')
    (check,) = tool_checks({constants.OTHER: 4})
    assert check.hint.endswith('retrievers = ["NAME"]')


def test_errors_of_an_older_state_are_counted_without_their_messages():
    state = msgspec.structs.replace(
        Engine(defaults()).dump(),
        errors=[(("p", "no ticket for Ada"), 2), (("p", "no ticket for Bo"), 1), (("p", "KeyError"), 4)],
    )
    engine = Engine(defaults())
    engine.restore(state)
    assert engine.errors == {("p", constants.ERROR): 3, ("p", "KeyError"): 4}
