"""Log records that are messages of a model call join the spans they belong to, live and in files, each once."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragmon.ingest.files import ReadSummary, read_file
from ragmon.stream.assembler import AssemblyLimits
from tests.support.instrumented import ANSWER, QUESTION
from tests.support.serving import accounted, configuration, journalled, post, process, serving
from tests.support.waiting import TIMEOUT, wait_for

pytest.importorskip("opentelemetry.instrumentation.openai_v2")
ROOT = Path(__file__).parents[2]
FULL = '[capture]\ncontent = "full"\n'
PROTOBUF = "application/x-protobuf"


def run_program(*arguments):
    """The spans and the log records of one call of a model, as they were exported."""
    program = [sys.executable, "-m", "tests.support.instrumented_openai_logs", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT, timeout=TIMEOUT)
    spans, logs = map(base64.b64decode, json.loads(done.stdout))
    return ExportTraceServiceRequest.FromString(spans), ExportLogsServiceRequest.FromString(logs)


@pytest.fixture(scope="module")
def exported():
    return run_program("-")


@pytest.fixture
def fresh(exported):
    """The same call, ended just now."""
    shift = None
    for request in exported:
        for resource in [*getattr(request, "resource_spans", ()), *getattr(request, "resource_logs", ())]:
            for scope in [*getattr(resource, "scope_spans", ()), *getattr(resource, "scope_logs", ())]:
                for item in [*getattr(scope, "spans", ()), *getattr(scope, "log_records", ())]:
                    if isinstance(item, LogRecord):
                        item.observed_time_unix_nano += shift
                    else:
                        shift = time.time_ns() - item.end_time_unix_nano
                        item.start_time_unix_nano += shift
                        item.end_time_unix_nano += shift
    return exported


def as_json(request):
    """A request in OTLP's JSON, whose ids are hexadecimal."""

    def with_hex_ids(value):
        if isinstance(value, list):
            return [with_hex_ids(member) for member in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64decode(member).hex() if key in ("traceId", "spanId") else with_hex_ids(member)
            for key, member in value.items()
        }

    return json.dumps(with_hex_ids(MessageToDict(request)))


def send(running, request, kind=PROTOBUF):
    path = "traces" if isinstance(request, ExportTraceServiceRequest) else "logs"
    body = request.SerializeToString() if kind == PROTOBUF else as_json(request).encode()
    status, answer = post(f"{running.otlp}/v1/{path}", body, kind)
    assert status == 200
    return answer


def assert_understood(record):
    claim = json.loads(ANSWER)
    assert (record.q, record.pipeline) == (QUESTION, "helpdesk")
    assert (record.answer_json.claim, record.answer_json.citations) == (claim["claim"], claim["citations"])


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_question_and_answer_of_a_real_instrumentation_come_as_log_records(tmp_path, transport):
    with serving(tmp_path, FULL, assembly_limits=AssemblyLimits(idle=1.5, rootless=3.0)) as running:
        run_program(running.otlp if transport == "http" else running.grpc.replace("http", "grpc"))
        books = running.settled(1)
    assert (books["scored"], books["residual"]) == (1, 0)
    (record,) = journalled(tmp_path)
    assert_understood(record)


@pytest.mark.slow
def test_without_content_the_reason_is_that_it_was_not_captured(tmp_path):
    with serving(tmp_path, FULL, assembly_limits=AssemblyLimits(idle=1.5, rootless=3.0)) as running:
        run_program(running.otlp, "without-content")
        running.settled(1)
        shown = running.metrics()
    (record,) = journalled(tmp_path)
    assert (record.q, record.answer_json) == (None, None)
    reasons = {name for name in shown if 'reason="content_not_captured"' in name}
    assert {field for field in ("q", "answer_json") if any(f'field="{field}"' in name for name in reasons)} == {
        "q",
        "answer_json",
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PROTOBUF, "application/json"])
@pytest.mark.parametrize("first", ["logs", "spans"])
def test_they_join_whichever_comes_first_and_once_however_often_they_are_sent(tmp_path, fresh, kind, first):
    spans, logs = fresh
    with serving(tmp_path, FULL) as running:
        for request in [logs, spans, logs] if first == "logs" else [spans, logs, logs]:
            send(running, request, kind)
        books = accounted(running)
        shown = running.metrics()
    assert (books["received"], books["scored"], books["residual"]) == (1, 1, 0)
    assert sum(value for name, value in shown.items() if 'reason="duplicate"' in name and "span" in name) == 3
    (record,) = journalled(tmp_path)
    assert_understood(record)


@pytest.mark.slow
def test_log_records_that_wait_survive_a_server_that_is_killed(tmp_path, fresh):
    spans, logs = fresh
    configuration(tmp_path, FULL)
    with process(tmp_path) as running:
        send(running, logs)  # it is killed at the end
    with process(tmp_path) as running:
        send(running, spans)
        books = wait_for(running.books, lambda books: books["received"] and not books["pending"])
        assert running.stop() == 0
    assert books["residual"] == 0
    (record,) = journalled(tmp_path)
    assert_understood(record)


def test_log_records_without_their_span_are_counted(tmp_path, fresh):
    spans, logs = fresh
    with serving(tmp_path, FULL) as running:
        send(running, logs)
        books = accounted(running)
        assert (books["received"], books["scored"], books["ignored"]) == (1, 0, {"no_span": 1})
        send(running, spans)  # too late
        shown = running.metrics()
    assert sum(value for name, value in shown.items() if 'reason="no_span"' in name and "span" in name) >= 3
    assert journalled(tmp_path) == []


def test_other_log_records_are_rejected_beside_those_that_are_read(tmp_path, fresh):
    spans, logs = fresh
    records = logs.resource_logs[0].scope_logs[0].log_records
    records.append(LogRecord(body={"string_value": "a line of the application"}))
    records.append(LogRecord(event_name="gen_ai.user.message", body={"string_value": "of no span"}))
    with serving(tmp_path, FULL) as running:
        answer = ExportLogsServiceResponse.FromString(
            post(f"{running.otlp}/v1/logs", logs.SerializeToString(), PROTOBUF)[1].encode()
        )
        send(running, spans)
        accounted(running)
    del records[-2:]
    assert answer.partial_success.rejected_log_records == 2
    (record,) = journalled(tmp_path)
    assert_understood(record)


@pytest.mark.parametrize("first", ["logs", "spans"])
def test_a_file_with_both_is_read_as_a_server_reads_them(tmp_path, exported, first):
    lines = [as_json(request) for request in (exported if first == "spans" else reversed(exported))]
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join(lines))
    intake = ReadSummary()
    (record,) = read_file(str(file), intake)
    assert_understood(record)
    assert (intake.read, intake.rejected) == (1, {})


def test_a_file_with_log_records_alone_says_that_spans_are_missing(tmp_path, exported):
    file = tmp_path / "logs.jsonl"
    file.write_text(as_json(exported[1]))
    intake = ReadSummary()
    assert list(read_file(str(file), intake)) == []
    assert intake.rejected == {"no_span": 1}
