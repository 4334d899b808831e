"""`RagmonSpanProcessor` in a real TracerProvider: whole requests, once each, whatever the application's tracer does."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from opentelemetry import context
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    AlwaysRecordSampler,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

import ragmon
from ragmon.capture.call import threshold
from ragmon.capture.span_processor import BufferLimits, SpanBuffer
from ragmon.config.load import defaults, load
from ragmon.core.sampling import SPAN
from ragmon.monitor.install import Installation
from ragmon.testing import Collected, FakeClock
from tests.support.capturing import Gate

QUICK = BufferLimits(idle=0.0)


class Traced:
    """An application with a tracer, and what ragmon learns from its spans."""

    def __init__(self, sampler=ALWAYS_ON, sink=None, **told):
        self.sink = sink or Collected()
        self.processor = ragmon.RagmonSpanProcessor(self.sink, **{"limits": QUICK, **told})
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("app")

    def retrieve(self, *ids):
        with self.tracer.start_as_current_span("retrieval") as span:
            span.set_attribute("gen_ai.operation.name", "retrieval")
            found = [{"id": name, "metadata": {"title": f"Plan {name}"}} for name in ids]
            span.set_attribute("gen_ai.retrieval.documents", json.dumps(found))

    @contextmanager
    def request(self, name="request"):
        with self.tracer.start_as_current_span(name) as span:
            yield span

    def records(self):
        """What was delivered, once all of it is."""
        assert self.processor.force_flush()
        return self.sink.records

    def dropped(self):
        return {reason: n for reason, n in self.processor._requests.gathering.dropped.items() if n}


@pytest.fixture
def traced():
    made = []

    def make(*args, **told):
        made.append(Traced(*args, **told))
        return made[-1]

    yield make
    for one in made:
        one.provider.shutdown()


def test_a_request_is_its_outermost_span_and_all_below_it(traced):
    app = traced()
    with app.request() as root:
        root.set_attributes({"gen_ai.operation.name": "invoke_workflow", "output.value": "an answer"})
        app.retrieve("d1", "d2")
    (record,) = app.records()
    assert record.retrieved_ids == ["d1", "d2"]
    assert record.trace_id == f"{root.get_span_context().trace_id:032x}"
    assert (record.exported, record.partial) == (True, False)
    assert record.instrumentation == "OpenTelemetry GenAI"


def test_turns_of_a_session_in_one_span_are_requests_of_their_own(traced):
    app = traced()
    with app.request("session"):
        for name in ("a", "b"):
            with app.request() as turn:
                turn.set_attributes({"openinference.span.kind": "CHAIN", "output.value": f"answer {name}"})
                app.retrieve(name)
    found = [(record.retrieved_ids, record.answer_json.claim) for record in app.records()]
    assert found == [(["a"], "answer a"), (["b"], "answer b")]


def ask(app, question, chain="chain"):
    """A request as a framework records it, with a retrieval and an answer."""
    attributes = {"openinference.span.kind": "CHAIN", "input.value": question, "output.value": "so [1]"}
    with app.tracer.start_as_current_span(chain, attributes=attributes):
        app.retrieve("h1")


def asked(app):
    return sorted(record.q for record in app.records() if record.retrieved_ids == ["h1"])


@pytest.mark.parametrize(
    "parent",
    [
        pytest.param(lambda app: TracerProvider(shutdown_on_exit=False).get_tracer("web"), id="another provider"),
        pytest.param(lambda app: app.tracer, id="the sampler drops it"),
    ],
)
def test_below_a_parent_that_nobody_sees_the_outermost_span_that_is_seen_is_the_request(traced, parent):
    class DropsWebServer(Sampler):
        def should_sample(
            self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None
        ):
            decision = Decision.DROP if name.startswith("POST") else Decision.RECORD_AND_SAMPLE
            return SamplingResult(decision, attributes)

        def get_description(self):
            return "drops the spans of the web server"

    app = traced(sampler=DropsWebServer())
    for n in range(2):
        with parent(app).start_as_current_span("POST /ask"):
            ask(app, f"question {n}?")
    assert asked(app) == ["question 0?", "question 1?"]
    assert app.dropped() == {}


def test_spans_below_one_unseen_parent_are_one_request(traced):
    """The web server's span is of another provider, and no chain holds retrieval and model call together."""
    app = traced()
    with TracerProvider(shutdown_on_exit=False).get_tracer("web").start_as_current_span("POST /ask"):
        app.retrieve("h1")
        message = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "so [1]"}
        with app.tracer.start_as_current_span("model", attributes={"openinference.span.kind": "LLM", **message}):
            pass
    (record,) = app.records()
    assert (record.retrieved_ids, record.answer_json.claim) == (["h1"], "so [1]")


def test_a_span_of_another_provider_between_two_spans_does_not_part_their_request(traced):
    app = traced()
    other = TracerProvider(shutdown_on_exit=False).get_tracer("other")
    attributes = {"openinference.span.kind": "CHAIN", "input.value": "Is it?", "output.value": "so [1]"}
    with app.tracer.start_as_current_span("chain", attributes=attributes), other.start_as_current_span("step"):
        app.retrieve("h1")
    assert asked(app) == ["Is it?"]


def test_requests_below_a_span_that_began_before_the_processor_came_count(traced):
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("notebook").start_as_current_span("main"):
        app = traced()
        provider.add_span_processor(app.processor)
        app.tracer = provider.get_tracer("app")
        ask(app, "Is it?")
        ask(app, "Was it?")
    assert asked(app) == ["Is it?", "Was it?"]


def test_requests_of_a_child_that_was_forked_inside_a_span_count(traced):
    app = traced()
    reading, writing = os.pipe()
    with app.request("job"):
        if not (child := os.fork()):
            ask(app, "Is it?")
            os.write(writing, json.dumps(asked(app)).encode())
            os._exit(0)
        os.waitpid(child, 0)
    assert json.loads(os.read(reading, 1000)) == ["Is it?"]


def test_what_goes_on_after_a_request_was_taken_counts_where_it_is_a_request(traced):
    """A queue's worker answers below a span that has ended; a model call that only tidies up is no request."""
    app = traced()
    with app.request("POST /enqueue") as enqueue:
        ask(app, "first?")
    assert asked(app) == ["first?"]
    with use_span(NonRecordingSpan(enqueue.get_span_context())):
        ask(app, "second?")
        assert asked(app) == ["first?", "second?"]
        with app.tracer.start_as_current_span("summary", attributes={"openinference.span.kind": "LLM"}):
            pass
    assert len(app.records()) == 2
    assert app.dropped() == {"late": 1}


def test_a_connection_that_stays_open_has_a_record_a_turn_while_it_is_open(traced):
    """A WebSocket or a loop over a queue is one span of hours; who greets and retrieves nothing has turns as well."""
    app = traced(limits=BufferLimits(idle=0.0, turns=0.0))
    with app.request("WebSocket /chat"), app.request("loop"):
        for n in range(3):
            ask(app, f"question {n}?")
            assert asked(app) == [f"question {k}?" for k in range(n + 1)]
        with app.tracer.start_as_current_span("chain", attributes={"openinference.span.kind": "CHAIN"}) as greeting:
            greeting.set_attributes({"input.value": "Hello", "output.value": "Good morning"})
            with app.tracer.start_as_current_span("model", attributes={"openinference.span.kind": "LLM"}):
                pass
        assert app.records()[-1].answer_json.claim == "Good morning"
    assert (len(app.records()), app.dropped()) == (4, {})


def test_a_workflow_of_hours_is_one_request_whatever_it_asks_meanwhile(traced):
    """An agent's research runs long and calls whole pipelines: they are its steps."""
    app = traced(limits=BufferLimits(idle=0.0, turns=0.0))
    with app.tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT"}) as agent:
        ask(app, "step 1?")
        assert app.records() == []
        ask(app, "step 2?")
        assert app.records() == []
        agent.set_attributes({"input.value": "Why?", "output.value": "Therefore [1]"})
    assert [record.q for record in app.records()] == ["Why?"]


def test_a_turn_that_is_running_when_its_connection_is_found_is_kept_whole(traced):
    app = traced(limits=BufferLimits(idle=0.0, turns=0.0))
    with app.request("WebSocket /chat"):
        ask(app, "first?")
        attributes = {"openinference.span.kind": "CHAIN", "input.value": "second?", "output.value": "so [1]"}
        with app.tracer.start_as_current_span("chain", attributes=attributes):
            assert asked(app) == ["first?"]
            app.retrieve("h1")
        assert asked(app) == ["first?", "second?"]


@pytest.mark.parametrize("attributes", [{}, {"asgi.event.type": "http.response.body"}, {"db.system": "redis"}])
def test_spans_of_chunks_take_no_room_from_those_that_tell_of_the_request(traced, attributes):
    """Instrumentations of web servers make a span of each chunk that is sent; the chain ends behind them all."""
    app = traced()
    with app.request("POST /ask"):
        chain = {"openinference.span.kind": "CHAIN", "input.value": "Is it?"}
        with app.tracer.start_as_current_span("chain", attributes=chain) as answering:
            app.retrieve("h1")
            for _ in range(2000):
                with app.tracer.start_as_current_span("http send", attributes=attributes):
                    pass
            answering.set_attribute("output.value", "so [1]")
    (record,) = app.records()
    assert (record.q, record.retrieved_ids, record.answer_json.claim) == ("Is it?", ["h1"], "so [1]")
    assert not record.partial
    assert app.dropped() == {"too_many_spans": 2000 - 128 + 1}


def test_150_turns_in_one_span_are_150_records(traced):
    app = traced()
    with app.request("batch"):
        for n in range(150):
            ask(app, f"question {n}?")
    assert len(app.records()) == 150
    assert app.processor._worker.counts().dropped == dict.fromkeys(app.processor._worker.counts().dropped, 0)


def test_it_is_over_when_its_last_span_has_ended_not_when_its_outermost_has(traced):
    app = traced()
    with app.request():
        background = app.tracer.start_span("retrieval", attributes={"gen_ai.operation.name": "retrieval"})
    assert app.records() == []
    background.set_attribute("gen_ai.retrieval.documents", '[{"id": "d9"}]')
    background.end()
    assert [record.retrieved_ids for record in app.records()] == [["d9"]]


def test_requests_of_one_remote_trace_are_apart(traced):
    """Two services of a chain of agents call this one: two requests, one trace id."""
    app = traced()
    remote = SpanContext(1 << 70, 7, is_remote=True, trace_flags=TraceFlags(1))
    for name in ("a", "b"):
        with use_span(NonRecordingSpan(remote)), app.request():
            app.retrieve(name)
    assert [record.retrieved_ids for record in app.records()] == [["a"], ["b"]]


def test_requests_in_threads_and_tasks_keep_apart(traced):
    app = traced()

    def sync(name):
        with app.request():
            app.retrieve(name)

    async def many():
        async def one(name):
            with app.request():
                await asyncio.sleep(0)
                app.retrieve(name)

        await asyncio.gather(*(one(f"task {n}") for n in range(20)))

    threads = [threading.Thread(target=sync, args=(f"thread {n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    asyncio.run(many())
    for thread in threads:
        thread.join()
    expected = [[f"{kind} {n}"] for kind in ("task", "thread") for n in range(20)]
    assert sorted(record.retrieved_ids for record in app.records()) == sorted(expected)


def test_what_is_no_rag_is_ignored_and_counted(traced):
    app = traced()
    with app.request("GET /health"):
        pass
    assert app.records() == []
    assert dict(app.processor._requests.ignored) == {"not_rag": 1}


def test_requests_are_kept_by_the_draw_their_trace_id_is(traced):
    app = traced(rate=0.5)
    kept = set()
    for _ in range(60):
        with app.request() as root:
            app.retrieve("d1")
        trace_id = root.get_span_context().trace_id
        if trace_id % SPAN >= threshold(0.5):
            kept.add(f"{trace_id:032x}")
    records = app.records()
    assert {record.trace_id for record in records} == kept
    assert {(r.sampling.audit, r.sampling.p_audit, r.sampling.p) for r in records} == {(True, 0.5, 0.5)}
    assert app.dropped() == {}, "the spans of a lost request are nobody's loss"


def test_requests_that_lost_the_draw_are_kept_for_how_they_ended(traced):
    app = traced(rate=0.0, keep={"error": 1.0})
    with app.request():
        app.retrieve("d1")
    with suppress(KeyError), app.request():
        app.retrieve("d2")
        raise KeyError("d2")
    (record,) = app.records()
    assert (record.retrieved_ids, record.sampling.audit, record.sampling.stratum) == (["d2"], False, "error")


@pytest.mark.parametrize(("sampler", "seen"), [(ALWAYS_ON, 1), (ALWAYS_OFF, 0), (TraceIdRatioBased(0.0), 0)])
def test_what_the_applications_sampler_drops_nobody_sees(traced, sampler, seen):
    app = traced(sampler)
    with app.request():
        app.retrieve("d1")
    assert len(app.records()) == seen


def test_with_a_sampler_that_always_records_all_requests_are_seen_and_said_not_to_be_exported(traced):
    app = traced(AlwaysRecordSampler(ALWAYS_OFF))
    with app.request():
        app.retrieve("d1")
    assert [record.exported for record in app.records()] == [False]


@pytest.mark.parametrize("cited", [["d1"], ["Plan d1"], [{"title": "plan d1"}], [{"document_index": 0}]])
def test_below_a_decorated_call_spans_fill_what_it_does_not_know(traced, cited):
    """The retriever is instrumented, the decorated function says nothing of it; it may cite documents by title."""
    app = traced()

    @ragmon.trace
    def answer(question):
        app.retrieve("d1", "d2")
        return {"answer": "yes", "citations": cited}

    installation = Installation(defaults(), sink := Collected(), keep_all=True)
    before = installation.start()
    try:
        with app.request():
            answer("is it?")
    finally:
        installation.shutdown()
        ragmon.capture.call.install_runtime(before)
    (record,) = sink.records
    assert (record.q, record.retrieved_ids, record.answer_json.citations) == ("is it?", ["d1", "d2"], ["d1"])
    assert record.instrumentation is None


def test_a_decorated_call_waits_a_moment_for_spans_inside_it_that_have_not_ended(traced):
    app = traced()
    spans = []

    @ragmon.trace
    def answer(question):
        spans.append(app.tracer.start_span("retrieval", attributes={"gen_ai.operation.name": "retrieval"}))
        return {"answer": "yes"}

    installation = Installation(defaults(), sink := Collected(), keep_all=True)
    before = installation.start()
    try:
        answer("is it?")
        spans[0].set_attribute("gen_ai.retrieval.documents", '[{"id": "d1"}]')
        spans[0].end()
        assert installation.flush(30)
    finally:
        installation.shutdown()
        ragmon.capture.call.install_runtime(before)
    assert [record.retrieved_ids for record in sink.records] == [["d1"]]


@pytest.mark.parametrize("keep_all", [True, False])
def test_what_lies_around_a_decorated_call_is_no_request_of_its_own(keep_all, configured):
    """A model that rewrites the question before the decorated function is asked would else be a second record."""
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = provider.get_tracer("app")

    @ragmon.trace
    def answer(question):
        return {"answer": "yes"}

    settings = configured("[sampling]\nrate = 0.0\nkeep = { slow = 1.0 }\nslow_above = '1h'")
    installation = Installation(settings, sink := Collected(), keep_all=keep_all)
    before = installation.start()
    try:
        installation.watch(provider)
        with tracer.start_as_current_span("request"):
            with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
                pass
            answer("is it?")
        assert installation.flush(30)
    finally:
        installation.shutdown()
        ragmon.capture.call.install_runtime(before)
    assert [record.q for record in sink.records] == ["is it?"] * keep_all
    assert installation.counters().ignored == {"decorated": 1}


def test_ragmons_own_work_is_never_traffic(traced):
    """A judge asks a model: monitored as a request it would be judged, and so on."""
    app = traced()
    with suppress_instrumentation(), app.request():
        app.retrieve("judge")
    with app.tracer.start_as_current_span("judge", attributes={"ragmon.internal": True}):
        app.retrieve("judge")
    with app.request():
        app.retrieve("user")
    assert [record.retrieved_ids for record in app.records()] == [["user"]]
    assert app.dropped() == {}


def test_beside_an_exporter_both_get_every_span(traced):
    app = traced()
    exporter = InMemorySpanExporter()
    app.provider.add_span_processor(BatchSpanProcessor(exporter))
    with app.request():
        app.retrieve("d1")
    app.provider.force_flush()
    assert len(exporter.get_finished_spans()) == 2
    assert len(app.records()) == 1


def test_force_flush_keeps_its_timeout_where_the_sink_hangs(traced):
    gate = Gate()
    app = traced(sink=gate)
    with app.request():
        app.retrieve("d1")
    assert not app.processor.force_flush(timeout_millis=50)
    gate.opened.set()
    assert app.processor.force_flush(timeout_millis=30_000)
    assert len(gate.records) == 1


def test_force_flush_does_not_linger(traced):
    """A function that is frozen after its answer gets no other moment."""
    app = traced(limits=BufferLimits(idle=60.0))
    with app.request():
        app.retrieve("d1")
    assert [record.retrieved_ids for record in app.records()] == [["d1"]]


@pytest.mark.parametrize(
    ("ot", "flags", "rate", "expected"),
    [
        ("th:8", 1, 0.9, (True, 0.5, 0.5)),  # both keep it: the stricter one says how likely that was
        ("th:8", 1, 0.2, (True, 0.2, 0.2)),
        ("th:8", 0, 0.9, (True, 0.9, 0.9)),  # recorded, not sampled: everything is seen
        (None, 1, 0.9, (True, 0.9, 0.9)),  # nobody says: of what was exported
        ("rv:00000000000000", 1, 0.9, None),
    ],
)
def test_the_probability_knows_of_the_applications_own_sampler(traced, ot, flags, rate, expected):
    app = traced(AlwaysRecordSampler(ParentBased(ALWAYS_ON)), rate=rate)
    state = TraceState([("ot", ot)]) if ot else TraceState()
    remote = SpanContext(SPAN - 1, 7, is_remote=True, trace_flags=TraceFlags(flags), trace_state=state)
    with use_span(NonRecordingSpan(remote)), app.request():
        app.retrieve("d1")
    found = [(r.sampling.audit, r.sampling.p_audit, r.sampling.p) for r in app.records()]
    assert found == ([] if expected is None else [expected])


def test_in_the_process_requests_of_two_rates_are_strata(traced):
    app = traced()
    for n, th in enumerate("0088888888"):
        state = TraceState([("ot", f"th:{th}")])
        remote = SpanContext(SPAN - 1 - n, 7, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
        with use_span(NonRecordingSpan(remote)), app.request():
            app.retrieve("d1")
    found = [(record.sampling.stratum, record.sampling.p) for record in app.records()]
    assert sorted(found) == [("1 in 1", 1.0)] * 2 + [("1 in 2", 0.5)] * 8


def test_shutdown_takes_requests_as_they_are_and_says_that_something_is_missing(traced):
    app = traced()
    span = app.tracer.start_span("request")
    with use_span(span):
        app.retrieve("d1")
    app.provider.shutdown()
    assert [(record.retrieved_ids, record.partial) for record in app.sink.records] == [(["d1"], True)]
    span.end()


def test_no_span_is_an_error_to_the_application(traced, monkeypatch):
    """Whatever goes wrong in here, its requests go on."""
    app = traced()

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(app.processor._requests.gathering, "begin", broken)
    monkeypatch.setattr(app.processor._requests.gathering, "end", broken)
    with app.request():
        pass


def test_install_adds_one_processor_to_a_provider_and_replaces_nothing(monkeypatch):
    provider = TracerProvider(shutdown_on_exit=False)
    installed = ragmon.install(defaults(), provider=provider, sink=Collected())
    try:
        assert ragmon.install(provider=provider) is installed
        assert len(provider._active_span_processor._span_processors) == 1
    finally:
        installed.shutdown()


@pytest.mark.parametrize("decorated", [False, True])
def test_a_tool_that_the_configuration_names_is_a_retriever(tmp_path, decorated):
    """In requests of their own and below a traced call."""
    file = tmp_path / "ragmon.toml"
    file.write_text('[capture]\ncontent = "full"\nretrievers = ["look_*"]\n[sampling]\nrate = 1.0\n')
    provider, sink = TracerProvider(shutdown_on_exit=False), Collected()
    tracer = provider.get_tracer("app")
    installed = ragmon.install(load(file), provider=provider, sink=sink)

    def ask(question):
        with tracer.start_as_current_span("agent") as agent:
            agent.set_attributes(
                {"openinference.span.kind": "AGENT", "input.value": question, "output.value": "Rollo."}
            )
            with tracer.start_as_current_span("look_up") as tool:
                tool.set_attributes({"openinference.span.kind": "TOOL", "output.value": "Rollo did."})
        return "Rollo."

    try:
        (ragmon.trace(ask) if decorated else ask)("Who?")
        installed.flush()
    finally:
        installed.shutdown()
    (record,) = sink.records
    assert (record.q, record.contexts, record.answer_json.claim) == ("Who?", ["Rollo did."], "Rollo.")


def test_a_provider_that_takes_no_processors_is_refused():
    """The one OpenTelemetry hands out before an application has set its own."""
    installed = Installation(defaults(), Collected())
    with pytest.raises(ragmon.core.errors.RagmonError, match="provider takes no span processors") as caught:
        installed.watch(context)
    assert "TracerProvider" in caught.value.hint


# The gathering itself, by a clock that is told.


@pytest.fixture
def clock():
    return FakeClock(0.0)


@pytest.fixture
def gathering(clock):
    return SpanBuffer(BufferLimits(idle=1.0, unended=30.0, age=600.0, spans=3, requests=2), clock)


def ended(name):
    """A span that tells something of its request."""
    return ReadableSpan(str(name), attributes={"input.value": "Is it?"})


def due(gathering):
    return [([span.name for span in found.spans], found.complete) for _, found in gathering.due(gathering.clock())]


def test_it_lingers_for_spans_that_begin_after_the_last_one_ended(gathering, clock):
    gathering.begin(None, 7, 1)
    gathering.end(1, ended("root"))
    clock.advance(0.9)
    gathering.begin(None, 7, 2, 1)
    gathering.end(2, ended("detached"))
    clock.advance(0.9)
    assert due(gathering) == []
    clock.advance(0.1)
    assert due(gathering) == [(["root", "detached"], True)]
    assert due(gathering) == []


def test_a_span_that_never_ends_holds_its_request_thirty_seconds_after_the_outermost_and_is_then_late(gathering, clock):
    gathering.begin(None, 7, 1)
    gathering.begin(None, 7, 2, 1)
    gathering.end(1, ended("root"))
    clock.advance(29)
    assert due(gathering) == []
    clock.advance(1)
    assert due(gathering) == [(["root"], False)]
    gathering.end(2, ended("late"))
    assert gathering.dropped["late"] == 1


def test_a_request_that_never_ends_is_taken_after_ten_minutes(gathering, clock):
    gathering.begin(None, 7, 1)
    clock.advance(600)
    assert due(gathering) == [([], False)]


def test_a_request_whose_spans_have_all_ended_lingers_at_that_age_too(gathering, clock):
    gathering.begin(None, 7, 1)
    clock.advance(599.5)
    gathering.end(1, ended("root"))
    clock.advance(0.75)
    assert due(gathering) == []
    clock.advance(0.25)
    assert due(gathering) == [(["root"], True)]


def test_spans_and_requests_past_the_caps_are_counted(gathering, clock):
    for span_id in (1, 2, 3):
        gathering.begin(None, span_id, span_id)
    for span_id in range(10, 16):
        gathering.begin(None, 1, span_id, 1)
        gathering.end(span_id, ended(span_id))
    gathering.end(1, ended("root"))
    gathering.end(2, ended("root"))
    clock.advance(1)
    assert due(gathering) == [(["10", "11", "12", "root"], False), (["root"], True)]
    assert (gathering.dropped["too_many_requests"], gathering.dropped["too_many_spans"]) == (1, 3)


def test_nothing_is_remembered_of_requests_that_are_over(gathering, clock):
    for n in range(100):
        gathering.begin(None, n, n)
        gathering.begin(None, n, 1000 + n, n)
        gathering.end(n, ended("root"))
        gathering.end(1000 + n, ended("child"))
        clock.advance(1)
        assert len(due(gathering)) == 1
    assert (gathering._of, gathering._newest_of, gathering.traces, gathering._gone) == ({}, {}, {}, {})
