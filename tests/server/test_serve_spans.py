"""Spans of other instrumentations at the server: whole traces across requests, and what the frameworks returned."""

from __future__ import annotations

import json
import random
import time

import msgspec
import pytest

from ragmon.cli.client import ServerStatus
from ragmon.cli.doctor import request_checks, tool_checks
from ragmon.core import semconv
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Span
from ragmon.stream.assembler import AssemblyLimits
from tests.ingest.test_spans_real import run_program
from tests.support.collectors import collector
from tests.support.command_line import ragmon
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made, recorded
from tests.support.serving import configuration, digest, journalled, post, process, serving
from tests.support.waiting import wait_for

FULL = '[capture]\ncontent = "full"\n'
FILES = (
    "oi_langchain",
    "oi_langchain_dualgenai",
    "tl_langchain",
    "og_langchain",
    "oi_llamaindex",
    "tl_llamaindex",
    "og_llamaindex",
    "oi_haystack",
)
UNKNOWN = {
    "og_langchain": {"answer_json: content_not_captured"},
    "og_llamaindex": {"answer_json: no_answer"},
}


def fresh(spans):
    """The same trace, ended just now."""
    shift = time.time_ns() - max(span.end_ns for span in spans)
    return [span._replace(start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans]


def message(spans):
    """Spans as an exporter sends them."""
    return export(spans).SerializeToString()


def send(running, spans):
    assert post(f"{running.otlp}/v1/traces", message(spans), "application/x-protobuf")[0] == 200


def said(record):
    """What a record says of its request, without when and how it was kept."""
    answer = record.answer_json
    return (
        record.q,
        record.retrieved_ids,
        record.candidate_ids,
        record.contexts,
        None if answer is None else (answer.claim, answer.citations),
        record.error,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_recorded_trace_maps_alike_however_its_spans_arrive(data, tmp_path, name):
    """In one request, one by one, backwards, or twice: one record, that of the whole trace."""
    trace = fresh(recorded(data / "spans" / f"{name}.json")[-1])
    whole = to_record(trace)
    order = [*trace, *trace]
    random.Random(name).shuffle(order)
    with serving(tmp_path, FULL) as running:
        for span in order:
            send(running, [span])
        books = running.settled(1)
        status = running.status()
    (record,) = journalled(tmp_path)
    assert said(record) == said(whole.record)
    assert (books["scored"], books["residual"]) == (1, 0)
    assert status["spans_dropped"] == {"duplicate": len(trace)}
    assert status["unknown"] == dict.fromkeys((f"{field}: {why}" for field, why in whole.missing.items()), 1)
    assert set(status["unknown"]) == UNKNOWN.get(name, set())


@pytest.mark.slow
def test_a_trace_that_is_not_rag_is_ignored_and_says_so(data, tmp_path):
    spans = [span._replace(attributes={}, events=[], scope="web") for span in fresh(recorded_trace(data))]
    with serving(tmp_path, FULL) as running:
        send(running, spans)
        books = running.settled(1)
    assert (books["ignored"], books["scored"], books["residual"]) == ({"not_rag": 1}, 0, 0)


@pytest.mark.slow
def test_a_convention_that_is_not_known_is_named_by_the_page_and_the_doctor(data, tmp_path):
    told = {"acme.llm.model_name": "m", "acme.completion.text": "Rollo"}
    spans = [span._replace(attributes=told, events=[], scope="acme.tracing") for span in fresh(recorded_trace(data))]
    with serving(tmp_path, FULL) as running:
        send(running, spans)
        books, status = running.settled(1), running.status()
    assert (books["ignored"], books["residual"]) == ({"unknown_convention": 1}, 0)
    assert status["unknown_conventions"] == {"acme.tracing": 1}
    assert any("1 requests of acme.tracing" in doubt["what"] for doubt in status["doubts"])
    nothing, check = request_checks(msgspec.convert(status, ServerStatus))
    assert nothing.finding == "nothing: 1 of 1 requests made no record: unknown_convention 1"
    assert (check.ok, check.finding) == (True, "no record is made of requests by acme.tracing (1)")
    with serving(tmp_path, FULL) as again:
        assert again.status()["unknown_conventions"] == {"acme.tracing": 1}


AGENT = {semconv.SPAN_KIND: semconv.AGENT, semconv.INPUT_VALUE: "Who?", semconv.OUTPUT_VALUE: "Rollo."}
LOOKED_UP = {semconv.SPAN_KIND: semconv.TOOL, semconv.TOOL_NAME: "look_up", semconv.OUTPUT_VALUE: "Rollo did."}


def agent_run():
    agent = made(AGENT, end=9)
    call = made({semconv.SPAN_KIND: semconv.LLM}, parent=agent, start=2, end=3)
    return fresh([agent, made(LOOKED_UP, parent=agent), call])


@pytest.mark.slow
def test_a_tool_that_is_no_retriever_yet_is_named_by_the_page_and_the_doctor_with_its_setting(tmp_path):
    with serving(tmp_path, FULL) as running:
        send(running, agent_run())
        running.settled(1)
        status = running.status()
    assert status["unknown"] == {"retrieved_ids: no_retrieval": 1}
    assert status["tools_without_documents"] == {"look_up": 1}
    (doubt,) = [doubt for doubt in status["doubts"] if "look_up" in doubt["what"]]
    (check,) = tool_checks(status["tools_without_documents"])
    assert doubt["hint"] == check.hint == 'if one of them retrieves: [capture] retrievers = ["look_up"]'
    assert "look_up (1)" in check.finding
    assert list(tool_checks({})) == []


@pytest.mark.slow
def test_a_tool_that_the_configuration_names_is_a_retriever(tmp_path):
    with serving(tmp_path, FULL.replace("[capture]", '[capture]\nretrievers = ["look_*"]')) as running:
        send(running, agent_run())
        running.settled(1)
        status = running.status()
    (record,) = journalled(tmp_path)
    assert (record.contexts, record.answer_json.claim) == (["Rollo did."], "Rollo.")
    assert status["unknown"] == {"retrieved_ids: no_ids": 1}
    assert status["tools_without_documents"] == {}


def test_spans_that_come_after_their_record_are_counted_and_make_no_other(data, tmp_path):
    *early, late = fresh(recorded_trace(data))
    with serving(tmp_path, FULL) as running:
        send(running, [late, *early[1:]])
        running.settled(1)
        send(running, early[:1])
        status = wait_for(running.status, lambda found: found["spans_dropped"])
    assert (status["spans_dropped"], status["books"]["ingest"]["received"]) == ({"late": 1}, 1)
    assert len(journalled(tmp_path)) == 1


@pytest.mark.slow
def test_without_content_the_journal_holds_no_text_and_the_same_facts(data, tmp_path):
    """The default: question, contexts and answer of users do not outlive the assembling."""
    trace = fresh(recorded_trace(data))
    with serving(tmp_path) as running:
        send(running, trace)
        running.settled(1)
    (record,) = journalled(tmp_path)
    assert (record.q, record.contexts, record.answer_json.claim) == (None, None, None)
    assert record.retrieved_ids == to_record(trace).record.retrieved_ids
    assert (record.facts.answered, record.facts.refused) == (True, False)
    held = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("journal.db*"))
    assert b"What is X?" not in held
    assert b"chunk text" not in held


@pytest.mark.slow
def test_a_rate_that_is_set_holds_for_traces_nobody_decorated(data, tmp_path):
    """The draw is the trace id, as everywhere else; what loses it is counted and its attributes are not read."""
    trace = fresh(recorded_trace(data))
    lost, won = f"{1:032x}", f"{2**56 - 1:032x}"
    with serving(tmp_path, "[sampling]\nrate = 0.5\n") as running:
        for trace_id in (lost, won):
            send(running, [span._replace(trace_id=trace_id) for span in trace])
        books = running.settled(2)
    assert (books["ignored"], books["scored"]) == ({"unsampled": 1}, 1)
    (record,) = journalled(tmp_path)
    assert (record.trace_id, record.sampling.p_audit) == (won, 0.5)


@pytest.mark.slow
def test_traces_that_wait_are_assembled_after_a_crash(data, tmp_path):
    """Half of a trace came before the server was killed, half after: one record, of all of it."""
    trace = fresh(recorded_trace(data))
    configuration(tmp_path, FULL)
    for part in (trace[::2], trace[1::2]):
        with process(tmp_path) as running:
            send(running, part)  # it is killed at the end
    with process(tmp_path) as running:
        books = wait_for(running.books, lambda found: not found["pending"])
    (record,) = journalled(tmp_path)
    assert said(record) == said(to_record(trace).record)
    assert (books["received"], books["scored"], books["residual"]) == (1, 1, 0)


def recorded_trace(data):
    return recorded(data / "spans" / "oi_langchain.json")[-1]


TRANSPORTS = {
    ("openinference", "langchain"): "http",
    ("openllmetry", "langchain"): "grpc",
    ("openinference", "llama_index"): "collector",
    ("openllmetry", "llama_index"): "http",
}


@pytest.mark.slow
@pytest.mark.parametrize("setup", TRANSPORTS, ids="-".join)
def test_frameworks_under_real_instrumentations_and_real_exporters(tmp_path, setup):
    """Over HTTP and gRPC, compressed, and through a real collector: what the frameworks themselves returned."""
    with serving(tmp_path, FULL, assembly_limits=AssemblyLimits(idle=1.5, rootless=3.0)) as running:
        how = TRANSPORTS[setup]
        if how == "collector":
            with collector(tmp_path, running.otlp) as place:
                runs = run_program(setup, place)
                running.wait_for(lambda books: books["received"] >= len(runs))
        else:
            runs = run_program(setup, running.otlp if how == "http" else running.grpc.replace("http", "grpc"))
        books = running.wait_for(lambda books: not books["pending"])
    records = {record.trace_id: record for record in journalled(tmp_path)}
    assert books["residual"] == 0
    for name, run in runs.items():
        if setup == ("openllmetry", "llama_index") and name in ("stream", "hidden content"):
            continue  # its streams never end: spans of the runs that follow are of the same trace
        mapped = to_record(run.spans)
        if mapped.record is not None:
            assert said(records[run.spans[0].trace_id]) == said(mapped.record), name
    asked = records[runs["invoke"].spans[0].trace_id]
    assert asked.retrieved_ids == runs["invoke"].told["ids"]
    assert {"claim": asked.answer_json.claim, "citations": asked.answer_json.citations} == json.loads(
        runs["invoke"].told["answer"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("merge", "ids"), [("concat", ["a", "b", "c"]), ("last", ["b", "c"]), ("rrf", ["b", "a", "c"])]
)
def test_several_retrievals_of_a_request_are_merged_as_configured(tmp_path, merge, ids):
    """One list after the other without repetitions, the last list, or their reciprocal rank fusion."""
    now, trace = time.time_ns(), "7" * 32
    told = [["a", "b"], ["b", "c"]]
    spans = [Span(trace, "1" * 16, None, "ask", now - 100, now, {"openinference.span.kind": "CHAIN"})]
    for place, found in enumerate(told):
        documents = json.dumps([{"id": name} for name in found])
        held = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents}
        at = now - 90 + 10 * place
        spans.append(Span(trace, f"{place + 2:016x}", "1" * 16, "retrieval", at, at + 5, held))
    with serving(tmp_path, f'[capture]\nmerge = "{merge}"\n') as running:
        send(running, spans)
        running.settled(1)
    (record,) = journalled(tmp_path)
    assert record.retrieved_ids == ids


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replay", "gate"])
def test_a_file_of_the_same_spans_is_read_by_the_same_settings(tmp_path, command):
    """Where ids are, which tools retrieve, how retrievals are merged, and the pipeline's name: as the server has it."""
    now, trace = time.time_ns(), "7" * 32
    settings = (
        '[pipeline]\nname = "docs"\n[capture]\nid_from = "metadata.url"\nretrievers = ["look_*"]\nmerge = "last"\n'
    )
    ask = {"openinference.span.kind": "CHAIN", "input.value": "Who?", "output.value": "Ada [1]", "session.id": "s"}
    spans = [Span(trace, "1" * 16, None, "ask", now - 100, now, ask)]
    for place, found in enumerate(["/a", "/b"]):
        output = json.dumps([{"text": "t", "metadata": {"url": found}}])
        tool = {"openinference.span.kind": "TOOL", "tool.name": "look_up", "output.value": output}
        at = now - 90 + 10 * place
        spans.append(Span(trace, f"{place + 2:016x}", "1" * 16, "look_up", at, at + 5, tool))
    with serving(tmp_path, settings) as running:
        send(running, spans)
        running.settled(1)
        live = digest(running)
    (record,) = journalled(tmp_path)
    assert (record.pipeline, record.retrieved_ids) == ("docs", ["/b"])
    file = tmp_path / "spans.jsonl"
    file.write_bytes(as_json(export(spans)))
    done = ragmon(command, file, "--config", tmp_path / "ragmon.toml", "--format", "json")
    assert done.json["digest"] == live
