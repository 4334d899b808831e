"""What a running monitor captures is the same in doctor, on the page, in /metrics and in the log of a real server."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from time import time

import pytest

from ragmon.cli.doctor_checks import SHOWN, captured_checks
from ragmon.config.load import load
from ragmon.core.record import Answer, Record, Sampling
from ragmon.gates.coverage import CaptureGap, CaptureReport
from ragmon.monitor.embedded import Monitor
from tests.support.collectors import free_port
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
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
    assert "captured  ok    not known: no monitor answers on 127.0.0.1" in done.out


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
