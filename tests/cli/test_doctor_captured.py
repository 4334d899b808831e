"""What a running monitor captures is the same in doctor, on the page, in /metrics and in the log of a real server."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from time import time, time_ns

import pytest

from ragmon.cli.doctor_checks import SHOWN, captured_checks
from ragmon.config.load import load
from ragmon.core import semconv
from ragmon.core.record import Answer, Record, Sampling
from ragmon.gates.coverage import EARLY, CaptureGap, CaptureReport
from ragmon.monitor.embedded import Monitor
from tests.support.collectors import free_port
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made
from tests.support.serving import PORTS, foreign, get, process, send_body, serving, values, whole
from tests.support.waiting import TIMEOUT, wait_for

GATES = "[gates.answer_precision]\nat_least = 0.8\n[gates.error_rate]\nat_most = 0.05\n"
GOLD = '[gold.gold]\npath = "gold.jsonl"\n'
RECORDS = 60


def with_gold(folder):
    """Gold items that name their documents, as a file beside the configuration."""
    items = (
        {
            "qid": f"g{number}",
            "question": f"What is {number}?",
            "answerable": True,
            "gold_claim_substr": ["yes"],
            "gold_citations": [f"grey-heron#{number}"],
        }
        for number in range(RECORDS)
    )
    (folder / "gold.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return GOLD + GATES


def doctor(folder, running):
    """The command against a server, and its lines about what is captured, each with its hint."""
    (folder / "app.toml").write_text(f'[export]\nendpoint = "{running.otlp}"\n')
    done = ragmon("doctor", "--config", folder / "app.toml", "--admin-url", running.admin, "--wait", TIMEOUT)
    lines = done.out.partition("\n\n")[0].splitlines()
    found = [
        (line, lines[place + 1] if lines[place + 1].startswith(" ") else "")
        for place, line in enumerate(lines[:-1])
        if line.startswith("captured")
    ]
    return done, found


def answered(**fields):
    """Requests of users whose calls were decorated."""
    told = {"ts": time(), "v": 1, "source": "live", "pipeline": "support", "sampling": Sampling()}
    told |= {"answer_json": Answer(claim="yes", citations=["grey-heron#1"]), "retrieved_ids": ["grey-heron#1"]}
    return [
        Record(**{**told, "trace_id": f"{number + 1:032x}", "q": f"What is {number}?", **fields})
        for number in range(RECORDS)
    ]


@pytest.mark.slow
def test_a_real_server_says_everywhere_that_no_record_has_a_question(tmp_path):
    (tmp_path / "ragmon.toml").write_text(with_gold(tmp_path) + PORTS)
    with process(tmp_path) as running:
        send_body(running, whole(answered(q=None)))
        status = wait_for(running.status, lambda status: status["books"]["ingest"]["scored"] == RECORDS)
        (captured,) = status["captured"]
        assert (captured["pipeline"], captured["source"], captured["records"]) == ("support", "live", RECORDS)
        assert captured["fields"]["question"] == {"present": 0, "of": RECORDS, "withheld": 0}
        assert captured["gaps"][0]["finding"] == "no question in 60 of 60 records"
        assert captured["gaps"][0]["blocked"] == ["answer_precision"]
        (doubt,) = (doubt for doubt in status["doubts"] if "no question" in doubt["what"])
        assert "@ragmon.trace(question=" in doubt["hint"]
        page, samples = running_pages(running)
        assert "<h2>Captured</h2>" in page
        assert samples['ragmon_captured_ratio{field="question",pipeline="support",source="live"}'] == 0.0
        assert samples['ragmon_captured_ratio{field="ids",pipeline="support",source="live"}'] == 1.0
        done, ((line, hint),) = doctor(tmp_path, running)
        assert done.code == 1
        assert line.startswith("captured  bad   support, live, 60 records: question 0 %, answer 100 %, ids 100 %")
        assert "no question in 60 of 60 records; cannot be judged: answer_precision" in line
        assert "question=" in hint
        logged = [line for line in running.lines if "no question" in line]
        assert len(logged) == 1
        assert "no question in 20 of 20 records" in logged[0]


@pytest.mark.slow
def test_a_real_server_names_the_field_of_spans_that_holds_the_ids_of_gold(tmp_path):
    """A framework's documents have UUIDs; what gold calls them stands in their metadata."""
    (tmp_path / "ragmon.toml").write_text(with_gold(tmp_path) + PORTS)
    with process(tmp_path) as running:
        spans = []
        for number in range(RECORDS):
            metadata = json.dumps({"chunk_id": f"grey-heron#{number}", "file": "herons.md"})
            spans += foreign(number, id=str(uuid.UUID(int=number)), metadata=metadata)
        send_body(running, export(spans).SerializeToString())
        wait_for(running.status, lambda status: status["books"]["ingest"]["scored"] == RECORDS)
        done, ((line, hint),) = doctor(tmp_path, running)
    assert done.code == 1
    assert "gold_ids 0 %" in line
    assert "none of 60 retrieved ids occurs in gold; they look like `00000000-0000-0000-0000…`" in line
    assert "`metadata.chunk_id` would match 100 %" in line
    assert hint.strip() == 'hint: `[capture] id_from = "metadata.chunk_id"`'


@pytest.mark.slow
def test_a_server_whose_records_have_everything_is_well_and_says_so_after_a_restart(tmp_path):
    records = answered()
    text = with_gold(tmp_path)
    with serving(tmp_path, text) as running:
        send_body(running, whole(records))
        running.settled(RECORDS)
        before = running.status()["captured"]
    with serving(tmp_path, text) as running:
        assert running.status()["captured"] == before
        done, ((line, hint),) = doctor(tmp_path, running)
    assert (done.code, hint) == (0, "")
    assert line.startswith("captured  ok    support, live, 60 records: question 100 %")


@pytest.mark.slow
def test_without_an_endpoint_the_monitor_of_the_application_is_asked(tmp_path, caplog):
    path = tmp_path / "ragmon.toml"
    path.write_text(with_gold(tmp_path) + '[serve]\nadmin = "127.0.0.1:0"\n')
    with Monitor(load(path, environ={})) as monitor:
        for record in answered(q=None):
            monitor.submit(record)
        done = ragmon("doctor", "--config", path, "--admin-url", f"http://{monitor.address}")
    assert done.code == 1
    assert "captured  bad   support, live, 60 records: question 0 %" in done.out
    assert [message for message in caplog.messages if "no question in 20 of 20 records" in message]
    done = ragmon("doctor", "--config", path, "--admin-url", f"http://127.0.0.1:{free_port()}")
    assert done.code == 0
    assert "captured  –     not known: no monitor answers on 127.0.0.1" in done.out
    assert "server    –     not tried: there is no `[export] endpoint`" in done.out


@pytest.mark.slow
def test_a_monitor_without_records_is_neither_good_nor_bad_and_the_usual_mistake_is_named(tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text('[serve]\nadmin = "127.0.0.1:0"\n')
    with Monitor(load(path, environ={})) as monitor:
        done = ragmon("doctor", "--config", path, "--admin-url", f"http://{monitor.address}")
    assert (done.code, "captured  –     nothing yet: the monitor has no records" in done.out) == (0, True)
    assert "hint: send requests; put `@ragmon.trace` below `@app.post`" in done.out


def told(folder, running):
    """What the command says of a server where no endpoint is configured: its exit code, and lines with their hints."""
    (folder / "alone.toml").write_text("")
    done = ragmon("doctor", "--config", folder / "alone.toml", "--admin-url", running.admin)
    lines = done.out.partition("\n\n")[0].splitlines()
    hints = [*lines[1:], ""]
    return done.code, [
        (line, hint.strip() if hint.startswith(" ") else "")
        for line, hint in zip(lines, hints, strict=True)
        if line.startswith(("captured", "spans", "tools"))
    ]


def spans_of(number, attributes, name="run", scope="acme.tracing", **more):
    """A request of spans inside one another, ended just now; `more` are those after the first, by their name."""
    ends, trace_id = time_ns(), f"{number + 1:032x}"
    spans = [made(attributes, name=name, scope=scope)]
    spans += [made(told, parent=spans[0], name=name, scope=scope) for name, told in more.items()]
    return [
        span._replace(trace_id=trace_id, start_ns=ends - 10**9 + n, end_ns=ends - n) for n, span in enumerate(spans)
    ]


def received(running, requests):
    spans = [span for request in requests for span in request]
    send_body(running, export(spans, **{"service.name": "support"}).SerializeToString())
    running.settled(len(requests))


AGENT, CHAT = {semconv.OPERATION: "invoke_agent"}, {semconv.OPERATION: "chat", semconv.REQUEST_MODEL: "m"}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(EARLY - 1, 0), (EARLY, 1), (12, 1)])
def test_the_first_requests_of_a_newcomer_that_lack_everything_are_not_well(tmp_path, number, code):
    with serving(tmp_path, GATES) as running:
        received(running, [spans_of(n, AGENT, chat=CHAT) for n in range(number)])
        exit_code, ((line, hint),) = told(tmp_path, running)
    assert exit_code == code
    assert f"support, live, {number} records: question 0 %, answer 0 %" in line
    assert ("bad" in line) == ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in hint) == bool(code)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(EARLY - 1, 0), (20, 1)])
def test_where_no_request_makes_a_record_that_is_said_and_is_not_well(tmp_path, number, code):
    """Only the web server is instrumented."""
    with serving(tmp_path, GATES) as running:
        received(running, [spans_of(n, {"http.route": "/ask"}, scope="web") for n in range(number)])
        exit_code, ((line, hint),) = told(tmp_path, running)
    assert exit_code == code
    assert line.endswith(f"nothing: {number} of {number} requests made no record: not_rag {number}")
    assert "instrument the model's client" in hint


@pytest.mark.slow
@pytest.mark.parametrize(("read", "code"), [(0, 1), (9, 1), (11, 0)])
def test_without_an_endpoint_unread_conventions_are_named_and_are_not_well_where_they_are_most(tmp_path, read, code):
    unread = {"acme.llm.model_name": "m", "acme.completion.text": "Rollo"}
    with serving(tmp_path, "[gates.error_rate]\nat_most = 0.05\n") as running:
        received(running, [*(spans_of(n, unread) for n in range(10)), *(foreign(n) for n in range(read))])
        exit_code, found = told(tmp_path, running)
    assert exit_code == code
    (hint,) = [hint for line, hint in found if "no record is made of requests by acme.tracing (10)" in line]
    assert "instrumentations.md" in hint
    assert any(line.endswith("made no record: unknown_convention 10") for line, _ in found) == (not read)


@pytest.mark.slow
def test_requests_of_something_else_beside_those_that_are_read_are_no_fault(tmp_path):
    with serving(tmp_path, "[gates.error_rate]\nat_most = 0.05\n") as running:
        received(running, [*(spans_of(n, {"http.route": "/healthz"}) for n in range(30)), *map(foreign, range(20))])
        exit_code, found = told(tmp_path, running)
    assert exit_code == 0
    assert any("30 of 50 requests made no record: not_rag 30" in line for line, _ in found)


@pytest.mark.slow
def test_without_an_endpoint_tools_that_may_retrieve_are_named(tmp_path):
    agent = {**AGENT, semconv.INPUT_MESSAGES: '[{"role": "user", "content": "Who?"}]'}
    agent |= {semconv.OUTPUT_MESSAGES: '[{"role": "assistant", "content": "Rollo."}]'}
    tool = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.GENAI_TOOL_NAME: "search_docs", semconv.TOOL_RESULT: "He."}
    with serving(tmp_path, "[gates.error_rate]\nat_most = 0.05\n") as running:
        received(running, [spans_of(n, agent, tool=tool, chat=CHAT) for n in range(12)])
        _, found = told(tmp_path, running)
    (hint,) = [hint for line, hint in found if "search_docs (12)" in line]
    assert hint.endswith('retrievers = ["search_docs"]')


def test_what_stops_a_gate_comes_first_and_a_long_list_is_cut():
    gap = CaptureGap("ids", 20, 20, "no ids", "id_from", ("a",), ("a",))
    reports = [CaptureReport(f"p{number:02}", "live", 20, None, {}) for number in range(SHOWN + 4)]
    found = list(captured_checks([*reports, replace(reports[-1], pipeline="z", gaps=(gap,))]))
    assert (found[0].ok, found[0].finding[:2], found[0].hint) == (False, "z,", "id_from")
    assert found[-1].finding == "and 5 more pipelines and sources"
    assert len(found) == SHOWN + 1


def running_pages(running):
    """The page, and the samples of /metrics."""
    return get(f"{running.admin}/")[1], values(get(f"{running.admin}/metrics")[1])
