"""Traces of more spans than are kept: what tells of the request is read in files, on servers and in processes."""

from __future__ import annotations

import time

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode

import ragmon
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.spans.span import MAX_SPANS, Event
from ragmon.ingest.trace_buffer import FileTraceBuffer, TraceLimits
from ragmon.stream.assembler import AssemblyLimits
from ragmon.testing import Collected
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import made
from tests.support.serving import accounted, journalled, send_body, serving

CHUNKS = 12_000
MANY = "too_many_spans"
FULL = '[capture]\ncontent = "full"\n'
KINDS = {
    "nothing": {},
    "chunks that are sent": {"asgi.event.type": "http.response.body"},
    "queries": {"db.system": "redis", "db.statement": "GET x"},
    "chunks of a model": {
        "gen_ai.operation.name": "model_chunk",
        "mastra.span.type": "model_chunk",
        "mastra.model_chunk.output": '{"text":"x"}',
    },
}
SEARCH = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.id": "h1"}
CHAIN = {"openinference.span.kind": "CHAIN", "input.value": "Is it?"}
RAISED = [Event("exception", {"exception.type": "openai.APITimeoutError", "exception.message": "slow"})]


def stream(told, chunks=CHUNKS, answer="so [1]"):
    """The spans of a request of a minute, as they end; without an answer its model call failed, the last step."""
    root = made({"http.route": "/ask"}, end=60.0, name="POST /ask")
    output = {} if answer is None else {"output.value": answer}
    chain = made(CHAIN | output, parent=root, start=0.1, end=59.0, failed=answer is None)
    search = made(SEARCH, parent=chain, start=0.2, end=1.0)
    sent = [made(told, parent=chain, start=1 + n / 1000, end=1 + n / 1000 + 0.0005) for n in range(chunks)]
    failed = made({"openinference.span.kind": "LLM"}, parent=chain, start=58.0, end=58.5, failed=True, events=RAISED)
    return [search, *sent, *([failed] if answer is None else []), chain, root]


def in_a_file(folder, spans):
    path = folder / "spans.jsonl"
    path.write_bytes(as_json(export(spans)))
    summary = ReadSummary()
    return list(read_files([str(path)], summary)), summary.unknown[f"spans: {MANY}"]


def on_a_server(folder, spans):
    """In two requests, as they end now."""
    shift = time.time_ns() - spans[-1].end_ns
    spans = [span._replace(start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) for span in spans]
    with serving(folder, FULL, assembly_limits=AssemblyLimits(idle=0.1, rootless=60.0)) as running:
        for some in (spans[: CHUNKS // 2], spans[CHUNKS // 2 :]):
            send_body(running, export(some).SerializeToString())
        assert accounted(running)["scored"] == 1
        (left_out,) = (n for name, n in running.metrics().items() if name.startswith("ragmon_spans") and MANY in name)
    return journalled(folder), left_out


def in_the_process(_, spans):
    sink = Collected()
    processor = ragmon.RagmonSpanProcessor(sink)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer, running = provider.get_tracer("app"), {}
    steps = [(span.start_ns, False, span) for span in spans] + [(span.end_ns, True, span) for span in spans]
    for at, ends, span in sorted(steps, key=lambda step: step[0]):
        if not ends:
            parent = running.get(span.parent_id)
            context = None if parent is None else otel.set_span_in_context(parent)
            running[span.span_id] = tracer.start_span(span.name, context, attributes=span.attributes, start_time=at)
            continue
        for event in span.events:
            running[span.span_id].add_event(event.name, event.attributes)
        if span.failed:
            running[span.span_id].set_status(Status(StatusCode.ERROR))
        running[span.span_id].end(at)
    assert processor.force_flush()
    left_out = processor._requests.gathering.dropped[MANY]
    provider.shutdown()
    return sink.records, left_out


PLACES = pytest.mark.parametrize("read", [in_a_file, on_a_server, in_the_process])


@PLACES
@pytest.mark.parametrize("told", KINDS.values(), ids=KINDS)
def test_twelve_thousand_chunks_take_no_room_from_what_tells_of_the_request(tmp_path, read, told):
    (record,), left_out = read(tmp_path, stream(told))
    assert (record.q, record.retrieved_ids, record.error, record.partial) == ("Is it?", ["h1"], None, False)
    assert record.answer_json.claim == "so [1]"
    assert (record.latency_ms.total, record.latency_ms.retrieve) == (60_000.0, 800.0)
    assert left_out > CHUNKS - MAX_SPANS // 4


@PLACES
def test_a_step_that_failed_behind_twelve_thousand_chunks_is_the_error_of_the_request(tmp_path, read):
    (record,), _ = read(tmp_path, stream(KINDS["queries"], answer=None))
    assert (record.q, record.retrieved_ids, record.answer_json) == ("Is it?", ["h1"], None)
    assert (record.error, record.latency_ms.total) == ("openai.APITimeoutError", 60_000.0)


def in_a_small_room(spans, most):
    """The requests of a file of which a trace may have few spans, and how many spans were left out."""
    room = FileTraceBuffer(TraceLimits(idle=1e12, rootless=1e12, spans=most))
    return [mapped for span in spans for mapped in room.add(span)] + list(room.end()), room.left_out[MANY]


def test_a_span_that_tells_nothing_is_kept_where_others_lie_below_it():
    """A call of HTTP joins two services; its server's spans end first."""
    root = made(CHAIN | {"output.value": "so [1]"}, end=9.0)
    queries = [made(KINDS["queries"], parent=root) for _ in range(8)]
    call = made({"http.method": "POST"}, parent=root, end=8.0)
    served = made({"http.route": "/search"}, parent=call, end=7.0)
    search = made(SEARCH, parent=served, end=6.0)
    (mapped,), left_out = in_a_small_room([*queries, search, served, call, root], 16)
    assert (mapped.record.retrieved_ids, mapped.record.partial, left_out) == (["h1"], False, 4)


def test_a_request_lacks_spans_where_one_comes_whose_parent_was_left_out():
    """Nobody knew that others would lie below it; how they belong together is unknown."""
    root = made(CHAIN | {"output.value": "so [1]"}, end=9.0)
    queries = [made(KINDS["queries"], parent=root) for _ in range(8)]
    call = made({"http.method": "POST"}, parent=root, end=8.0)
    search = made(SEARCH, parent=call, end=6.0)
    (mapped,), _ = in_a_small_room([*queries, call, search, root], 16)
    assert (mapped.record.retrieved_ids, mapped.record.partial) == (None, True)
    assert mapped.missing == {"retrieved_ids": "incomplete"}


def test_what_spans_that_were_left_out_may_have_told_is_incomplete_and_no_latency_is_that_of_a_child():
    """The spans of retrievals take all the room; the chain around them has question and answer."""
    root = made({"http.route": "/ask"}, end=60.0)
    chain = made(CHAIN | {"output.value": "so [1]"}, parent=root, end=59.0)
    searches = [made(SEARCH, parent=chain) for _ in range(16)]
    (mapped,), left_out = in_a_small_room([*searches, chain, root], 16)
    record = mapped.record
    assert (record.q, record.retrieved_ids, record.answer_json, record.partial, left_out) == (None, None, None, True, 1)
    assert record.latency_ms.total is None
    assert mapped.missing == dict.fromkeys(("q", "retrieved_ids", "answer_json", "latency_ms.total"), "incomplete")


def test_the_latency_of_a_request_that_lacks_spans_is_that_of_its_root():
    root = made(CHAIN | {"output.value": "so [1]"}, end=60.0)
    searches = [made(SEARCH, parent=root) for _ in range(20)]
    (mapped,), left_out = in_a_small_room([*searches, root], 16)
    assert (mapped.record.q, mapped.record.latency_ms.total, left_out) == ("Is it?", 60_000.0, 4)
    assert mapped.record.retrieved_ids is None


def test_in_a_process_as_well_no_latency_is_that_of_a_child(tmp_path):
    root = made({"http.route": "/ask"}, end=60.0)
    chain = made(CHAIN | {"output.value": "so [1]"}, parent=root, start=0.1, end=59.0)
    searches = [made(SEARCH, parent=chain, start=1 + n / 100, end=1.005 + n / 100) for n in range(600)]
    (record,), left_out = in_the_process(tmp_path, [*searches, chain, root])
    assert (record.q, record.answer_json, record.partial, left_out) == (None, None, True, 600 - 512 + 1)
    assert (record.latency_ms.total, record.latency_ms.retrieve) == (None, 2560.0)
