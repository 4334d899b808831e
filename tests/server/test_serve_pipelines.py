"""Pipelines that no configuration names: gates, alarms and rules are theirs from their first record on."""

from __future__ import annotations

import json
import re
import time

import pytest

from ragmon.cli.doctor import chain_checks
from ragmon.config.load import load
from ragmon.export.rules import render, rule_groups
from tests.support.command_line import ragmon
from tests.support.servers import prometheus
from tests.support.serving import Time as Clocks
from tests.support.serving import (
    accounted,
    asked,
    configuration,
    get,
    pass_by,
    process,
    send_body,
    serving,
    whole,
)
from tests.support.waiting import TIMEOUT, wait_for

GATES = "[gates.compliance]\nat_least = 0.98\n[gates.error_rate]\nat_most = 0.05\n"


def spans_of(service, number):
    """A request that a framework traced in a service: OTLP in JSON, the call and what it retrieved."""
    end = time.time_ns()

    def span(own, parent, name, **attributes):
        told = [{"key": key.replace("__", "."), "value": {"stringValue": text}} for key, text in attributes.items()]
        ids = {"traceId": f"{number:032x}", "spanId": f"{own:016x}", "parentSpanId": parent}
        return {**ids, "name": name, "startTimeUnixNano": end - 10**9, "endTimeUnixNano": end, "attributes": told}

    call = {"openinference__span__kind": "CHAIN", "input__value": "Is it open?", "output__value": "It is [1]."}
    document = {"retrieval__documents__0__document__id": "d1", "retrieval__documents__0__document__content": "It is."}
    spans = [
        span(1, "", "ask", **call),
        span(2, f"{1:016x}", "retrieve", openinference__span__kind="RETRIEVER", input__value="Is it open?", **document),
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return json.dumps(
        {
            "resourceSpans": [
                {"resource": resource, "scopeSpans": [{"scope": {"name": "openinference"}, "spans": spans}]}
            ]
        }
    ).encode()


def pipelines_of(exposition, family):
    """The pipelines that have a series of a family."""
    return set(re.findall(rf'^{family}\{{[^}}]*pipeline="([^"]*)"', exposition, re.MULTILINE))


@pytest.mark.slow
def test_a_pipeline_named_in_code_and_one_by_its_service_have_gates_and_rules_and_default_has_none(real, tmp_path):
    """Of a real server that a real Prometheus watches; the server is started again in between."""
    path = configuration(tmp_path, GATES)
    (tmp_path / "rules.yml").write_text(render(rule_groups(load(path, environ={}))), encoding="utf-8")
    with process(tmp_path) as running:
        assert pipelines_of(get(f"{running.admin}/metrics")[1], r"\w+") == set()
        assert "default" not in get(f"{running.admin}/")[1].partition("<h2>Gates</h2>")[2].partition("<h2>")[0]
        send_body(running, whole([asked(number, pipeline="helpdesk") for number in range(40)]))
        send_body(running, spans_of("intranet", 1 << 64), "application/json")
        wait_for(running.books, lambda books: books["scored"] == 41)
        found = judged(running)
        assert set(found) == {
            (name, gate) for name in ("helpdesk", "intranet") for gate in ("compliance", "error_rate")
        }
        assert found["helpdesk", "compliance"] == "insufficient", "40 of them cannot prove 98 %, and are judged"
        running.stop()
    with process(tmp_path) as running:
        exposition = get(f"{running.admin}/metrics")[1]
        for family in ("ragmon_gate_threshold", "ragmon_gate_status", "ragmon_gate_samples", "ragmon_gate_info"):
            assert pipelines_of(exposition, family) == {"helpdesk", "intranet"}
        with prometheus(
            real("prometheus"), tmp_path, [running.admin.removeprefix("http://")], [tmp_path / "rules.yml"]
        ) as watch:
            for pipeline in ("helpdesk", "intranet"):
                which = f'{{pipeline="{pipeline}",gate="compliance"}}'
                watch.wait_for(f"pipeline_gate:ragmon_gate_threshold:constant{which}", 0.98)
                watch.wait_for(f"pipeline_gate:ragmon_gate_min_samples:constant{which}", 30.0)
            watch.wait_for('ragmon_gate_samples{pipeline="helpdesk",gate="compliance"}', 40.0)
            watch.wait_for("count(count by (pipeline) (pipeline_gate:ragmon_gate_threshold:constant))", 2.0)
            watch.wait_for('count(ALERTS{alertname="RagmonGateInsufficient",alertstate="pending"}) > bool 0', 1.0)
            assert watch.value('count({pipeline="default"})') is None
            # An alert that was evaluated before the rules it reads is pending until its next turn.
            watch.wait_for('count(ALERTS{alertname="RagmonRulesStale"}) or vector(0)', 0.0)


def judged(running):
    """The verdicts of `/api/status`, by pipeline and gate."""
    return {(gate["pipeline"], gate["gate"]): gate["verdict"] for gate in running.status()["gates"]}


def test_a_record_without_a_pipeline_is_of_default_which_is_then_judged(tmp_path):
    with serving(tmp_path, GATES) as running:
        assert judged(running) == {}
        send_body(running, whole([asked(1, pipeline=None)]))
        accounted(running)
        assert {pipeline for pipeline, _ in judged(running)} == {"default"}


def test_beside_a_configured_pipeline_others_have_the_top_level_gates(tmp_path):
    own = GATES + "[pipelines.billing.gates.coverage]\nat_least = 0.7\n"
    with serving(tmp_path, own) as running:
        assert set(judged(running)) == {("billing", name) for name in ("compliance", "error_rate", "coverage")}
        send_body(running, whole([asked(1, pipeline="helpdesk")]))
        accounted(running)
        others = {gate for pipeline, gate in judged(running) if pipeline == "helpdesk"}
        assert others == {"compliance", "error_rate"}


def test_a_silent_pipeline_takes_its_gates_and_alarms_along_and_leaves_its_place(tmp_path):
    """A day without a line of it; the next pipeline has its place in the budget of false alarms."""
    clocks = Clocks()
    with serving(tmp_path, GATES, clock=clocks.clock()) as running:
        alarms = running.server.writer.server_state.engine.alarms
        send_body(running, whole([asked(1, pipeline="first", ts=clocks.now)]))
        accounted(running)
        pass_by(running, clocks, 90.0)
        send_body(running, whole([asked(2, pipeline="second", ts=clocks.now)]))
        accounted(running)
        pass_by(running, clocks, 23 * 3600.0)
        assert {name: found.state.place for name, found in alarms.pipelines.items()} == {"first": 1, "second": 2}
        send_body(running, whole([asked(3, pipeline="second", ts=clocks.now)]))
        accounted(running)
        pass_by(running, clocks, 2 * 3600.0)
        send_body(running, whole([asked(4, pipeline="third", ts=clocks.now)]))
        accounted(running)
        pass_by(running, clocks, 90.0)
        send_body(running, whole([asked(5, pipeline="third", ts=clocks.now)]))
        accounted(running)
        assert {name: found.state.place for name, found in alarms.pipelines.items()} == {"second": 2, "third": 1}
        exposition = running.get("/metrics")[1]
        for family in ("ragmon_gate_threshold", "ragmon_gate_alarm"):
            assert pipelines_of(exposition, family) == {"second", "third"}


@pytest.mark.slow
def test_the_journal_has_the_same_verdicts_and_alarms_of_pipelines_nobody_named(tmp_path):
    """`ragmon replay --journal` comes to the server's digest and edges, and judges the pipelines it saw."""
    clocks, names = Clocks(), ("helpdesk", "intranet", "support")
    with serving(tmp_path, GATES, clock=clocks.clock()) as running:
        for minute in range(40):
            fault = "TimeoutError" if minute > 10 else None
            told = [
                asked(1000 * minute + number, pipeline=names[number % 3], ts=clocks.now, error=fault)
                for number in range(90)
            ]
            send_body(running, whole(told))
            accounted(running)
            pass_by(running, clocks, 60.0)
        engine = running.server.writer.server_state.engine
        edges, found, digest = list(engine.transitions), judged(running), engine.scorer.state.digest()
    assert {edge.pipeline for edge in edges} == set(names), "each of them fired"
    done = ragmon(
        "replay", "--journal", "state", "--alerts-out", "alerts.jsonl", "--output", "report.json", cwd=tmp_path
    )
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["digest"] == digest
    assert {(gate["pipeline"], gate["gate"]) for gate in report["gates"]} == set(found)
    lines = [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text().splitlines()]
    assert [(line["ts"], line["alert"], line["state"]) for line in lines] == [
        (edge.ts, f"{edge.pipeline}/{edge.alert}", edge.state) for edge in edges
    ]


def test_a_pipeline_that_no_gate_covers_is_named_on_the_page_and_once_in_the_log(tmp_path, caplog):
    """All gates of this file are on the gold of another pipeline."""
    (tmp_path / "gold.jsonl").write_text('{"qid": "a", "question": "A?", "answerable": false}\n')
    text = (
        '[pipelines.billing]\n[gold.g]\npath = "gold.jsonl"\npipeline = "billing"\n'
        '[gates.under_refusal_rate]\nat_most = 0.05\ngold = "g"\n'
    )
    with serving(tmp_path, text) as running:
        send_body(running, whole([asked(1, pipeline="helpdesk")]))
        accounted(running)
        warning = "pipeline 'helpdesk' has records, but no gates and no rules"
        assert [doubt["what"] for doubt in running.status()["doubts"]] == [warning]
        running.get("/metrics")
        running.get("/")
        assert running.status()["gates"][0]["pipeline"] == "billing"
        asking = load(configuration(tmp_path, f'[export]\nendpoint = "{running.otlp}"\n'), environ={})
        (bad,) = [check for check in chain_checks(asking, running.admin, TIMEOUT) if not check.ok]
        assert (bad.name, bad.finding) == ("gates", warning)
    assert caplog.text.count(warning) == 1


def test_pipelines_without_a_place_are_named_once_and_counted_on_the_page(tmp_path, caplog):
    with serving(tmp_path, GATES) as running:
        send_body(running, whole([asked(number, pipeline=f"pod-{number}") for number in range(200)]))
        accounted(running)
        assert any(
            doubt["what"].startswith("records of pipelines without room, ") for doubt in running.status()["doubts"]
        )
    assert caplog.text.count("leaves no room for their gates") == 1
