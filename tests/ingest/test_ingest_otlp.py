"""OTLP-JSON lines, as a collector writes them to files: the spans of whole traces become the records they were."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from google.protobuf.json_format import MessageToDict

from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession
from ragmon.core.record import encode
from ragmon.core.semconv import DOCUMENTS, OPERATION, QUERY_TEXT
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.trace_buffer import FILE_LIMITS, FileTraceBuffer
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.otlp_receiver import receiving
from tests.support.recorded_spans import made, recorded

RECORDED = sorted((Path(__file__).parents[1] / "data" / "spans").glob("*.json"))


def exported(spans, **resource):
    """An export request in JSON, as the specification writes it."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(resource)},
                "scopeSpans": [{"scope": {"name": span.scope}, "spans": [told(span)]} for span in spans],
            }
        ]
    }


def told(span):
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id or "",
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": span.end_ns,
        "attributes": pairs(span.attributes),
        "events": [{"name": event.name, "attributes": pairs(event.attributes)} for event in span.events],
        "status": {"code": 2} if span.failed else {},
    }


def pairs(attributes):
    return [{"key": key, "value": value_of(value)} for key, value in attributes.items()]


def value_of(value):
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [value_of(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


def read(path, lines):
    """The records of a file with these lines, and what the reader met."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    intake = ReadSummary()
    return list(read_files([str(path)], intake)), intake


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_spans_of_real_instrumentations_become_the_records_they_are_live(path, tmp_path):
    """One line a span, as a collector that batches little would write them."""
    traces = recorded(path)
    spans = [span for trace in traces for span in trace]
    found, intake = read(tmp_path / "spans.jsonl", [exported([span]) for span in spans])
    mapped = [to_record(trace) for trace in traces]
    expected = [
        msgspec.structs.replace(one.record, why_unknown=dict(one.missing) or None)
        for one in mapped
        if one.record is not None
    ]
    assert sorted(found, key=lambda record: record.trace_id) == sorted(expected, key=lambda record: record.trace_id)
    assert intake.read == len(mapped)
    assert intake.rejections == sum(one.record is None for one in mapped)


def hexadecimal(message):
    """A request as JSON: protobuf's own encoding writes ids in base64, OTLP in hexadecimal."""
    found = MessageToDict(message)
    for process in found["resourceSpans"]:
        for scope in process["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return found


@pytest.mark.slow
def test_what_capture_sends_to_a_collector_is_replayed_from_its_file_like_the_trace_log(tmp_path):
    """The same report and the same digest, to the last bit."""
    records = [make_record(f"q{n}", v=1, trace_id=f"{n + 1:032x}", ts=1.7e9 + n) for n in range(300)]
    with receiving() as server:
        sink = OtlpExporter(OtlpSession(server.endpoint, timeout=5.0), resource={"service.name": "shop"})
        assert sink.deliver(records[:200]) == {}
        assert sink.deliver(records[200:]) == {}
        sink.close()
        lines = [hexadecimal(request.message) for request in server.of("/v1/traces")]
    assert read(tmp_path / "spans.jsonl", lines)[0] == records
    (tmp_path / "trace.jsonl").write_bytes(b"".join(map(encode, records)))
    reports = [ragmon("replay", name, cwd=tmp_path).json for name in ("spans.jsonl", "trace.jsonl")]
    assert reports[0] == reports[1]
    assert reports[0]["records"]["scored"] == 300


def retrieval(number, **fields):
    held = {OPERATION: "retrieval", QUERY_TEXT: f"question {number}", DOCUMENTS: '[{"id": "d1"}]'}
    return made(held, start=10 * number, end=10 * number + 1)._replace(**{"trace_id": f"{number + 1:032x}"} | fields)


def test_spans_of_a_trace_may_come_apart_and_in_any_order(tmp_path):
    spans = [retrieval(number) for number in range(20)]
    children = [
        made({}, parent=span, start=10 * number, end=10 * number + 0.5)._replace(trace_id=span.trace_id)
        for number, span in enumerate(spans)
    ]
    together = [*spans, *children]
    random.Random(3).shuffle(together)
    found, _ = read(tmp_path / "spans.jsonl", [exported(together[i : i + 7]) for i in range(0, 40, 7)])
    assert sorted(record.q for record in found) == sorted(f"question {number}" for number in range(20))


def test_a_trace_is_complete_when_nothing_of_it_came_for_five_minutes(tmp_path):
    """Memory holds what is open, not the whole file: the first records come while the rest is still unread."""
    held = FileTraceBuffer()
    came = [list(held.add(retrieval(number))) for number in range(100)]
    assert came.index(next(filter(None, came))) == 31
    assert sum(map(len, came)) + len(list(held.end())) == 100


def test_many_open_spans_complete_the_trace_that_waited_longest():
    held = FileTraceBuffer(replace(FILE_LIMITS, size=10))
    done = [mapped for number in range(15) for mapped in held.add(retrieval(0, trace_id=f"{number + 1:032x}"))]
    assert [mapped.record.trace_id for mapped in done] == [f"{number + 1:032x}" for number in range(5)]


def test_an_old_span_is_a_complete_trace_at_once_though_no_newer_one_is_open():
    held = FileTraceBuffer(replace(FILE_LIMITS, size=1))
    spans = [retrieval(number) for number in (99, 98, 0)]  # the second takes the place of the first
    done = [mapped.record.trace_id for span in spans for mapped in held.add(span)]
    assert done == [span.trace_id for span in spans]
    assert list(held.end()) == []


def test_the_process_says_which_pipeline_and_build_answered(tmp_path):
    lines = [exported([retrieval(1)], **{"service.name": "shop", "service.version": "2026.11"})]
    (record,), _ = read(tmp_path / "spans.jsonl", lines)
    assert (record.pipeline, record.build) == ("shop", "2026.11")


def test_traces_that_have_nothing_to_do_with_rag_are_counted(tmp_path):
    found, intake = read(tmp_path / "spans.jsonl", [exported([made({"http.request.method": "GET"})])])
    assert (found, intake.rejected) == ([], {"not_rag": 1})
    assert "nothing in it retrieves or calls a model" in str(intake.examples[0])


def test_metrics_and_logs_in_the_same_file_are_passed_over(tmp_path):
    lines = [{"resourceMetrics": []}, exported([retrieval(1)]), {"resourceLogs": [{"scopeLogs": []}]}]
    found, intake = read(tmp_path / "spans.jsonl", lines)
    assert (len(found), intake.rejected) == (1, {})


def test_a_span_that_is_none_is_named_and_the_others_of_its_line_are_read(tmp_path):
    bad, zero = retrieval(2, span_id="xyz"), retrieval(3, parent_id="0" * 16)
    found, intake = read(tmp_path / "spans.jsonl", [exported([retrieval(1), bad, zero])])
    assert sorted(record.q for record in found) == ["question 1", "question 3"]
    assert intake.rejected == {"invalid_schema": 1}
    assert "spanId is 16 hex digits, not 'xyz'" in str(intake.examples[0])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"resourceSpans": [', "malformed_json"),
        ('{"resourceSpans": 7}', "invalid_schema"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "00f067aa0ba902b7"}]}]}]}', "invalid_schema"),
        (json.dumps(exported([retrieval(1, start_ns="soon")])), "invalid_schema"),
        ("[" * 100_000, "depth"),
    ],
)
def test_a_line_that_is_no_request_is_counted_and_the_rest_is_read(tmp_path, line, reason):
    path = tmp_path / "spans.jsonl"
    path.write_text(f"{json.dumps(exported([retrieval(0)]))}\n{line}\n{json.dumps(exported([retrieval(9)]))}\n")
    intake = ReadSummary()
    assert len(list(read_files([str(path)], intake))) == 2
    assert intake.rejected == {reason: 1}
    assert intake.examples[0].line == 2


def test_values_of_every_kind_arrive(tmp_path):
    """Numbers too large for JSON are texts, and what is not finite too."""
    line = exported([retrieval(1)])
    span = line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["attributes"] += [
        {"key": "odd", "value": {"doubleValue": "NaN"}},
        {"key": "raw", "value": {"bytesValue": "AAE="}},
        {"key": "none"},
        {"key": "many", "value": {"arrayValue": {"values": [{"intValue": "9007199254740993"}, {"boolValue": False}]}}},
    ]
    assert len(read(tmp_path / "spans.jsonl", [line])[0]) == 1
    deep = {"stringValue": "x"}
    for _ in range(60):
        deep = {"arrayValue": {"values": [deep]}}
    span["attributes"].append({"key": "metadata", "value": deep})
    found, intake = read(tmp_path / "spans.jsonl", [line])
    assert (found, intake.rejected) == ([], {"depth": 1})
