"""What no sum can take in is unknown, with a reason, and so is what stands beyond a thousand documents."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

import ragmon
from ragmon.capture.convert import read_documents
from ragmon.core import constants, errors, semconv
from ragmon.core.record import (
    DOCUMENTS,
    LARGEST,
    LONGEST_MS,
    MAX_DOCUMENTS_KEPT,
    Answer,
    Latency,
    Record,
    Totals,
    bounded,
    encode,
)
from ragmon.core.written import MAX_TEXT_CHARS
from ragmon.ingest import trace_buffer
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import totals
from ragmon.ingest.receiver import Encoding
from ragmon.ingest.spans.documents import MAX_STEPS
from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import MAX_SPANS, NOT_UNDERSTOOD, TOO_MANY_STEPS
from ragmon.metrics.facts import DEPTH
from ragmon.server.pending import decode_traces
from ragmon.stats.histograms import bucket
from ragmon.stream.assembler import AssemblyLimits, JournalledTraceBuffer
from ragmon.testing import make_gold, make_record
from tests.support.effort import effort, least_ratio
from tests.support.otlp_requests import as_json, export, of_totals
from tests.support.recorded_spans import START, made
from tests.support.serving import accounted, asked, digest, foreign, replayed, send_body, serving, values, whole

MILLION = 10**6


def told(line):
    """What a line is read as, and what of it is unknown."""
    unknown = {}
    return decode(line, unknown.__setitem__), unknown


LATENCIES = {
    "a second": (1000.0, True),
    "nothing": (0.0, True),
    "less than nothing, in sign alone": (-0.0, True),
    "a day": (LONGEST_MS, True),
    "more than a day": (LONGEST_MS + 1, False),
    "as much as a float holds": (1e308, False),
    "less than nothing": (-1, False),
}
SHAPES = {
    "own": lambda stage, ms: encode(make_record("q1", v=1, ended="cut", latency_ms=Latency(**{stage: ms}))),
    "other": lambda stage, ms: json.dumps({"qid": "q1", "q": "?", "latency_ms": {stage: ms}}).encode(),
}


def test_a_latency_that_is_none_is_unknown_and_the_record_stays():
    for shape in SHAPES.values():
        for stage in constants.STAGES:
            for ms, known in LATENCIES.values():
                record, unknown = told(shape(stage, ms))
                assert getattr(record.latency_ms, stage) == (ms if known else None), (shape, stage, ms, known)
                assert unknown == ({} if known else {f"latency_ms.{stage}": constants.OUT_OF_RANGE}), (
                    shape,
                    stage,
                    ms,
                    known,
                )
                assert record.qid == "q1", (shape, stage, ms, known)
                assert record.ended == ("cut" if record.v else None), "the rest of the record is as it was"


def test_a_total_is_not_added_up_from_stages_that_are_none():
    record, unknown = told(b'{"qid":"q1","q":"?","retrieval_ms":-5,"generation_ms":900}')
    assert record.latency_ms == Latency(generate=900.0)
    assert unknown == {"latency_ms.retrieve": constants.OUT_OF_RANGE}


def test_a_replay_counts_what_is_unknown_and_its_sums_stay_what_they_were(tmp_path):
    good = [make_record("q1", v=1, latency_ms=Latency(total=100.0 + n)) for n in range(9)]
    odd = [make_record("q1", v=1, latency_ms=Latency(total=ms, retrieve=5.0)) for ms in (1e308, -3.0)]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(map(encode, good + odd)))
    intake = ReadSummary()
    report = ragmon.replay(read_files([str(path)], intake))
    assert intake.unknown == {"latency_ms.total: out_of_range": 2}
    assert (report.scored, intake.rejected) == (11, {})
    assert report.data()["latency_ms"]["total"]["p99"] < 110
    assert ragmon.replay(good + odd).digest == report.digest, "records that are handed over alike"


@pytest.mark.slow
def test_a_server_does_as_a_replay_does(tmp_path):
    """Own records, spans of others whose clocks went wrong; the reason is on `/metrics`, the digest is the replay's."""
    odd = [asked(n, latency_ms=Latency(total=ms)) for n, ms in enumerate((50.0, 1e308, -1.0, LONGEST_MS * 2))]
    backwards = [span._replace(start_ns=span.end_ns + 10**9) for span in foreign(1)]
    for_ages = [span._replace(start_ns=1) for span in foreign(2)]
    with serving(tmp_path) as running:
        send_body(running, whole(odd))
        send_body(running, export([*backwards, *for_ages]).SerializeToString())
        running.settled(len(odd) + 2)
        assert accounted(running)["scored"] == len(odd) + 2
        shown = running.metrics()
        sums = {name: value for name, value in shown.items() if name.startswith("rag_e2e_latency_seconds_sum")}
        assert sum(sums.values()) < 1
        unknown = {name: n for name, n in shown.items() if "ragmon_fields_unknown_total" in name}
        assert unknown['ragmon_fields_unknown_total{field="latency_ms.total",reason="out_of_range"}'] == 5
        found = digest(running)
    assert replayed(tmp_path) == found


def producer(**counted):
    """What a producer tells of its calls."""
    known = {"ts": 2e9, "instance": "i", "started": 1.9e9, "pipeline": "p", "source": "live"}
    return Totals(**{**known, "calls": 3, "kept": 3, **counted})


def test_a_producers_count_that_nobody_can_have_counted_is_refused_and_its_others_are_read():
    lines = [producer(), producer(instance="odd", calls=LARGEST * 2, kept=LARGEST * 2, dropped={"x": 1})]
    found, rejected, first = totals(of_totals(lines, {}), json=False)
    assert [(line.instance, line.calls, line.dropped) for line in found] == [("i", 3, {}), ("odd", 0, {"x": 1})]
    assert (rejected, first) == (1, f"a count is at most {LARGEST}, not {LARGEST * 2}")
    with pytest.raises(Rejected, match="at most"):
        decode(encode(lines[1]))
    assert decode(encode(lines[0])) == lines[0]


def test_latencies_of_producers_beyond_a_day_do_not_count_and_the_others_do():
    kept = {bucket(5.0): 2, bucket(LONGEST_MS): 1}
    lines = [producer(calls=9, kept=9, latency_ms={**kept, bucket(1e300): 4, bucket(LONGEST_MS * 2): 2})]
    found, rejected, first = totals(of_totals(lines, {}), json=False)
    assert [line.latency_ms for line in found] == [kept]
    assert rejected == 1
    assert "6 longer ones" in first


def test_sums_that_a_producer_tells_beside_its_buckets_are_not_read():
    request = ExportMetricsServiceRequest.FromString(of_totals([producer(latency_ms={bucket(5.0): 3})], {}))
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.exponential_histogram.data_points:
            point.sum = point.max = 1e308
    assert totals(request.SerializeToString(), json=False)[0][0].latency_ms == {bucket(5.0): 3}


# --- documents --------------------------------------------------------------------------------------------------------

IDS = [f"d{number}" for number in range(3000)]


def test_a_record_keeps_as_many_documents_as_are_ranked_and_one_that_says_there_were_more():
    assert DOCUMENTS == DEPTH
    ids, beside = ["d0", *IDS], list(range(3001))
    record = make_record(
        "q1",
        retrieved=ids,
        v=1,
        scores=[float(n) for n in beside],
        contexts=[str(n) for n in beside],
        candidate_ids=IDS,
    )
    found, unknown = told(encode(record))
    assert found.retrieved_ids == found.candidate_ids == IDS[:MAX_DOCUMENTS_KEPT]
    assert found.contexts[:3] == ["0", "2", "3"], "what stands beside a document stays beside it"
    assert len(found.scores) == len(found.contexts) == MAX_DOCUMENTS_KEPT
    assert unknown == dict.fromkeys(("retrieved_ids", "candidate_ids"), constants.TOO_MANY_DOCUMENTS)


def test_what_is_cut_off_changes_no_metric_at_a_rank_and_leaves_whole_lists_unassessed():
    gold = make_gold(("q1", True))
    records = [make_record("q1", retrieved=[*IDS[5:], "d1"]), make_record("q1", retrieved=[*IDS[1:], "d0"])]
    cut = [bounded(record)[0] for record in records]
    whole_lists, short = (ragmon.replay(map(encode_decode, found), gold) for found in (records, cut))
    assert short.digest == whole_lists.digest
    assert short.metric("recall@10").value == 0.5
    assert short.metric("mrr").unassessed == {constants.BEYOND_DEPTH: 1}


def encode_decode(record):
    return json.loads(encode(record))


@given(
    st.lists(st.sampled_from(IDS[:5]), max_size=3),
    st.integers(MAX_DOCUMENTS_KEPT - 3, MAX_DOCUMENTS_KEPT + 3),
    st.integers(0, 2),
)
def test_what_was_cut_once_is_not_cut_again(before, length, more):
    record = Record(retrieved_ids=[*before, *IDS[:length]], contexts=["x"] * (length + more), scores=[0.5] * length)
    once, _ = bounded(record)
    assert max(len(once.retrieved_ids), len(once.contexts), len(once.scores)) <= MAX_DOCUMENTS_KEPT
    assert bounded(once) == (once, {})


LISTED = "[" + ",".join(f'{{"id":"{number}"}}' for number in range(MILLION)) + "]"
FLAT = {f"{semconv.RETRIEVED}.{number}.document.id": str(number) for number in range(MILLION // 30)}
MANY = {
    "a million in one attribute": (
        {semconv.OPERATION: "retrieval", semconv.DOCUMENTS: LISTED},
        None,
        constants.OVERSIZE,
    ),
    "a million in an output": (
        {semconv.SPAN_KIND: "RETRIEVER", semconv.OUTPUT_VALUE: LISTED},
        None,
        constants.OVERSIZE,
    ),
    "a mebibyte of them": (
        {semconv.OPERATION: "retrieval", semconv.DOCUMENTS: LISTED[: LISTED.rindex(",", 0, MAX_TEXT_CHARS - 1)] + "]"},
        MAX_DOCUMENTS_KEPT,
        constants.TOO_MANY_DOCUMENTS,
    ),
    "thirty thousand, flattened": (
        {semconv.SPAN_KIND: "RETRIEVER", **FLAT},
        MAX_DOCUMENTS_KEPT,
        constants.TOO_MANY_DOCUMENTS,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", Encoding, ids=lambda form: form.value)
@pytest.mark.parametrize(("held", "length", "reason"), MANY.values(), ids=MANY)
def test_however_many_documents_a_span_brings_it_costs_little_and_the_record_says_why_they_are_cut(
    form, held, length, reason
):
    request = export([made({semconv.INPUT_VALUE: "Is it?", semconv.QUERY_TEXT: "Is it?", **held})])
    body = as_json(request) if form is Encoding.JSON else request.SerializeToString()
    tracemalloc.start()
    mapped = mapped_from(body, form)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert effort(lambda: mapped_from(body, form))[0] <= 60
    assert peak <= 96 << 20
    assert mapped.record.q == "Is it?"
    assert mapped.missing["retrieved_ids"] == reason
    assert (mapped.record.retrieved_ids and len(mapped.record.retrieved_ids)) == length


def mapped_from(body, form):
    spans = [one.span() for one in decode_traces(body, form).external]
    (request,) = per_request(spans)
    return to_record(request)


# --- spans of one trace -----------------------------------------------------------------------------------------------


def crowd(size, kind, shape):
    """The spans of one trace: a root, and under it, in each other, or beside it spans of one kind."""
    spans = []
    for number in range(1, size + 1):
        parent = {"under": 1, "inside": number - 1, "beside": None}[shape] if number > 1 else None
        told = {
            semconv.SPAN_KIND: kind if number > 1 else "CHAIN",
            semconv.INPUT_VALUE: "Is it?",
            semconv.OUTPUT_VALUE: "yes",
        }
        spans.append(
            made(told)._replace(
                span_id=f"{number:016x}",
                parent_id=None if parent is None else f"{parent:016x}",
                start_ns=START + number,
                end_ns=START + 10**9 - number,
            )
        )
    return spans


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["under", "inside", "beside"])
@pytest.mark.parametrize("kind", ["RETRIEVER", "RERANKER", "LLM", "CHAIN", "TOOL"])
def test_reading_the_largest_trace_costs_little_more_than_parsing_it(kind, shape):
    spans = crowd(MAX_SPANS, kind, shape)
    units, records = effort(lambda: [to_record(request).record for request in per_request(spans)])
    assert units <= 240
    assert records


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["under", "beside"])
def test_of_forty_thousand_spans_of_a_trace_ten_thousand_are_kept_and_the_others_counted(shape):
    """Roots as well: a trace has one."""
    spans = crowd(40_000, "RETRIEVER", shape)
    bodies = [export(spans[place : place + MAX_SPANS]).SerializeToString() for place in range(0, 40_000, MAX_SPANS)]
    room = JournalledTraceBuffer()

    def add_all():
        found = Counter()
        for number, body in enumerate(bodies):
            found += room.add(decode_traces(body, Encoding.PROTOBUF).external, number, 0.0, len(body))
        return found

    units, found = effort(add_all)
    assert units <= 180
    assert found == {"new": 1, trace_buffer.TOO_MANY: 40_000 - MAX_SPANS}
    (waiting,) = room.traces.values()
    assert (len(waiting.spans), waiting.complete) == (MAX_SPANS, False)


def test_a_root_that_comes_last_is_kept_however_many_came_before():
    room = JournalledTraceBuffer(AssemblyLimits(spans=2))
    spans = crowd(4, "TOOL", "under")
    body = export([*spans[1:], spans[0]]).SerializeToString()
    assert room.add(decode_traces(body, Encoding.PROTOBUF).external, 1, 0.0, 9)[trace_buffer.TOO_MANY] == 1
    assert next(iter(room.traces.values())).root_ended is not None


def test_a_file_is_read_by_the_same_limit(monkeypatch, tmp_path):
    """What the trace's spans retrieved is unknown then, as it is on a server."""
    monkeypatch.setattr(trace_buffer, "FILE_LIMITS", replace(trace_buffer.FILE_LIMITS, spans=3))
    told = {semconv.OPERATION: "retrieval", semconv.QUERY_TEXT: "Is it?", semconv.DOCUMENTS: '[{"id": "d1"}]'}
    spans = [made(told)._replace(span_id=f"{number:016x}", parent_id=f"{1:016x}") for number in range(2, 7)]
    path = tmp_path / "spans.jsonl"
    path.write_bytes(as_json(export([*spans, made(told)._replace(span_id=f"{1:016x}")])))
    intake = ReadSummary()
    (record,) = read_files([str(path)], intake)
    assert (record.q, record.retrieved_ids, record.partial) == ("Is it?", None, True)
    assert intake.unknown["retrieved_ids: incomplete"] == 1
    assert intake.unknown["spans: too_many_spans"] == 2


def test_documents_of_more_retrievals_than_are_followed_are_unknown():
    few, many = (to_record(crowd(size, "RETRIEVER", "under")) for size in (MAX_STEPS + 1, MAX_STEPS + 2))
    assert (few.missing["retrieved_ids"], many.missing["retrieved_ids"]) == (NOT_UNDERSTOOD, TOO_MANY_STEPS)


def test_an_answer_that_is_too_long_to_be_decoded_is_unknown_for_its_length():
    answer = json.dumps({"answer": "x" * MAX_TEXT_CHARS})
    mapped = to_record(
        [made({semconv.SPAN_KIND: "CHAIN", semconv.INPUT_VALUE: "Is it?", semconv.OUTPUT_VALUE: answer})]
    )
    assert mapped.reason or mapped.missing["answer_json"] == constants.OVERSIZE


@pytest.mark.slow
def test_capture_reads_the_first_thousand_documents_and_says_that_it_cut(monkeypatch, caplog):
    """In the time that those take, however many there are."""
    monkeypatch.setattr(errors, "_said", set(), raising=False)
    found = [{"id": name, "text": "one", "score": 0.5} for name in IDS] * 300
    read_documents(found[:DOCUMENTS], None)
    ratio = least_ratio(
        lambda: [read_documents(found, None) for _ in range(10)],
        lambda: [read_documents(found[:DOCUMENTS], None) for _ in range(10)],
        enough=3,
    )
    few, documents = read_documents(found[:DOCUMENTS], None), read_documents(found, None)
    assert ratio <= 3
    assert documents.ids == IDS[:MAX_DOCUMENTS_KEPT]
    assert len(documents.texts) == len(documents.scores) == MAX_DOCUMENTS_KEPT
    assert few.ids == IDS[:DOCUMENTS]
    assert "more than 1000 documents" in caplog.text


def test_what_is_unknown_of_a_record_does_not_touch_the_one_that_was_given():
    record = Record(latency_ms=Latency(total=1e308), retrieved_ids=list(IDS), answer_json=Answer())
    found, _ = bounded(record)
    assert (record.latency_ms.total, len(record.retrieved_ids)) == (1e308, 3000)
    assert (found.latency_ms.total, len(found.retrieved_ids)) == (None, MAX_DOCUMENTS_KEPT)


def test_exposition_reads_as_numbers(tmp_path):
    """No series is spoilt: every value of `/metrics` is finite after the worst that a producer may tell."""
    with serving(tmp_path) as running:
        send_body(running, whole([asked(1, latency_ms=Latency(1e308, 1e308, 1e308), scores=[1e308, -1e308, 0.0])]))
        running.settled(1)
        shown = values(running.get("/metrics")[1])
    assert all(abs(value) < 1e12 for name, value in shown.items() if name.startswith("rag_"))
