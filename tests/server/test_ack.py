"""Acknowledging an alarm: from the command line to the monitor in the application, and nobody else from outside."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
from contextlib import closing

import pytest

from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.core.record import Answer, Record
from ragmon.monitor.embedded import Monitor, split
from ragmon.testing import FakeClock
from tests.support.command_line import ragmon
from tests.support.waiting import TIMEOUT

START = 1_763_683_200.0


@pytest.fixture
def broken(tmp_path):
    """A monitor whose citation scope has been broken for three minutes, and its clock."""
    path = tmp_path / "ragmon.toml"
    path.write_text('[pipelines.support]\n[serve]\nadmin = "127.0.0.1:0"\n')
    clock = FakeClock(START)
    with Monitor(load(path, environ={}), clock=clock) as monitor:
        feed(monitor, clock)
        yield monitor, clock


def feed(monitor, clock, minutes=3):
    for _ in range(minutes * 60):
        clock.advance(1.0)
        record = Record(
            ts=clock(),
            trace_id=f"{int(clock()):032x}",
            pipeline="support",
            source="live",
            retrieved_ids=["d1"],
            answer_json=Answer("yes", ["d9"]),
        )
        monitor.submit(record)


def firing(monitor):
    return {state.alert for state in monitor.snapshot().alarms if state.firing is not None}


def post(monitor, body, *, method="POST", kind="application/json", **headers):
    with closing(http.client.HTTPConnection(monitor.address, timeout=TIMEOUT)) as connection:
        connection.request(method, "/v1/ack", body, {"Content-Type": kind} | headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


GOOD = json.dumps({"gate": "citation_scope", "pipeline": "support", "reason": "rolled back"})


@pytest.mark.slow
def test_the_command_silences_the_alarm_and_arms_it_again(broken, caplog):
    """It starts from nothing: the fault lasts, and the alarm fires anew."""
    monitor, clock = broken
    assert "citation_scope" in firing(monitor)
    with caplog.at_level(logging.INFO, "ragmon"):
        done = ragmon("ack", "support/citation_scope", "--reason", "rolled back", "--url", f"http://{monitor.address}")
    assert (done.code, done.err) == (0, "")
    assert done.out == "support/citation_scope: silenced and reset\n"
    assert re.search(r"alarm support/citation_scope acknowledged( by \S+)?: rolled back", caplog.text)
    assert "citation_scope" not in firing(monitor)
    last = [edge for edge in monitor.transitions() if edge.alert == "citation_scope"][-1]
    assert last.state == "resolved"
    feed(monitor, clock)
    assert "citation_scope" in firing(monitor)


@pytest.mark.slow
def test_an_alarm_that_is_silent_starts_from_nothing(broken):
    monitor, _ = broken
    done = ragmon("ack", "support/error_rate", "--reason", "a drill", "--url", f"http://{monitor.address}")
    assert (done.code, done.out) == (0, "support/error_rate: was silent; reset\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("support/citation_scop", "unknown alarm: 'citation_scop'", "did you mean citation_scope"),
        ("suport/citation_scope", "unknown pipeline: 'suport'", "did you mean support?"),
        ("support-20260101T0000", "there is no incident 'support-20260101T0000'", "did you mean support-"),
        ("citation_scope/", "'citation_scope/' names no alarm", "[PIPELINE/]ALARM"),
    ],
)
def test_a_name_nobody_knows_is_refused_with_the_nearest(broken, name, error, hint):
    done = ragmon("ack", name, "--reason", "x", "--url", f"http://{broken[0].address}")
    assert done.code == 3
    assert done.err.startswith(f"error: {error}\nhint: {hint}")


@pytest.mark.slow
def test_without_a_monitor_the_command_says_where_it_asked():
    done = ragmon("ack", "citation_scope", "--reason", "x", "--url", "http://127.0.0.1:9")
    assert done.code == 3
    assert done.err.startswith("error: no answer from 127.0.0.1:9 (")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "how", "status"),
    [
        (GOOD, {"method": "PUT"}, 405),
        (GOOD, {"kind": "text/plain"}, 415),  # what a web page may send to another site
        ("x" * 70_000, {}, 413),
        ("{", {}, 400),
        ("[]", {}, 400),
        ('{"gate": "citation_scope"}', {}, 400),
        ('{"gate": "citation_scope", "reason": ""}', {}, 400),
        ('{"gate": 1, "reason": "x"}', {}, 400),
        (GOOD, {"Origin": "https://evil.example"}, 403),
        (GOOD, {"Host": "rebound.evil.example:9464"}, 403),  # a name of somebody else's that leads here
    ],
)
def test_what_is_no_acknowledgement_is_refused_and_changes_nothing(broken, body, how, status):
    monitor, _ = broken
    found, told = post(monitor, body, **how)
    assert found == status
    assert told["error"]
    assert told["hint"]
    assert "citation_scope" in firing(monitor)


def test_half_a_request_does_not_hold_the_monitor_up(broken):
    monitor, _ = broken
    host, _, port = monitor.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as slow:
        slow.sendall(b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\n")
        assert post(monitor, GOOD)[0] == 200


@pytest.mark.slow
def test_the_one_pipeline_of_a_configuration_need_not_be_named(tmp_path):
    (tmp_path / "ragmon.toml").write_text('[pipeline]\nname = "support"\n[serve]\nadmin = "127.0.0.1:0"\n')
    clock = FakeClock(START)
    with Monitor(load(tmp_path / "ragmon.toml", environ={}), clock=clock) as monitor:
        feed(monitor, clock)
        done = ragmon("ack", "citation_scope", "--reason", "x", "--url", monitor.address, cwd=tmp_path)
    assert (done.code, done.out) == (0, "citation_scope: silenced and reset\n")


@pytest.mark.slow
def test_a_port_that_is_none_is_refused():
    done = ragmon("ack", "citation_scope", "--reason", "x", "--url", "http://127.0.0.1:99999")
    assert done.error == ("the server's URL is not an address: 'http://127.0.0.1:99999'", "http://127.0.0.1:9464")


def test_metrics_are_served_beside_it(broken):
    with closing(http.client.HTTPConnection(broken[0].address, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    assert 'ragmon_gate_alarm{gate="citation_scope",pipeline="support",severity="page"} 1.0' in text
    assert 'ragmon_gate_evidence{gate="citation_scope",pipeline="support"} 1.0' in text


def test_a_confirmed_incident_is_written_to_the_log(tmp_path, caplog):
    """Somebody without Prometheus reads logs; single alarms are not worth a warning."""
    clock = FakeClock(START)
    path = tmp_path / "ragmon.toml"
    path.write_text("[pipelines.support]\n")
    monitor = Monitor(load(path, environ={}), clock=clock)
    feed(monitor, clock)
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warned if re.match(r"incident 'support-\w+' \(confirmed\): firing; ", line)]
    assert not [line for line in warned if line.startswith("alarm ")]


def test_the_pipeline_may_be_left_out():
    assert split("precision") == ("precision", "default")
    with pytest.raises(RagmonError, match="names no alarm"):
        split("/precision")
