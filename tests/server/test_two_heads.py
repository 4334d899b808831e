"""Two heads of the same servers, on a real Prometheus and a real Alertmanager: a fault pages once, also without one."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from ragmon.config.load import load
from ragmon.export.rules import render, rule_groups
from tests.server.test_paging import impatient
from tests.server.test_shards import caught_up, of, running, send, traffic
from tests.support.alarming import NOON
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import document
from tests.support.servers import prometheus
from tests.support.serving import Time, post
from tests.support.waiting import wait_for

AT_BOTH = 'count by (pipeline, gate) (ragmon_gate_alarm{severity="page"} == 1) == 2'


@pytest.fixture
def watched(real, tmp_path):
    """Two servers whose records have a fault, two heads that find it, and who is told; the heads are scraped."""
    time = Time(60.0 * NOON)
    with ExitStack() as stack:
        shards = [stack.enter_context(running(tmp_path / name, time)) for name in ("a", "b")]
        heads = [stack.enter_context(running(tmp_path / name, time, of(*shards))) for name in ("head", "second")]
        send(time, traffic(), shards)
        for head in heads:
            caught_up(time, head)
        rules = render(rule_groups(load(tmp_path / "head" / "ragmon.toml", environ={})))
        (tmp_path / "rules.yml").write_text(rules.replace("keep_firing_for: 2m", "keep_firing_for: 2s"))
        hook, told = stack.enter_context(listening())
        (tmp_path / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(tmp_path))
        places = [head.admin.removeprefix("http://") for head in heads]
        rules = [tmp_path / "rules.yml"]
        watching = stack.enter_context(prometheus(real("prometheus"), tmp_path, places, rules, [manager]))
        yield heads, watching, told


def pages(told, status="firing"):
    """Whom somebody was paged for, as often as it was said: pipeline and alarm."""
    return [
        (one["labels"]["pipeline"], one["labels"]["alarm"])
        for receiver, one in told
        if (receiver, one["status"], one["labels"]["alertname"]) == ("page", status, "RagmonGateAlarm")
    ]


def firing(head):
    """The pages that a head asks for: pipeline and alarm."""
    return {
        (alarm["pipeline"], alarm["alert"])
        for alarm in head.status()["alarms"]
        if alarm["severity"] == "page" and alarm["alert"] != "index_hash"
    }


@pytest.mark.slow
def test_a_fault_that_two_heads_find_pages_once_and_ends_when_both_are_told(watched):
    heads, watching, told = watched
    expected = firing(heads[0])
    assert expected == firing(heads[1])
    assert expected
    wait_for(lambda: len(watching.query(AT_BOTH)) >= len({pair[:1] for pair in expected}))
    wait_for(lambda: set(pages(told)) == expected)
    assert sorted(pages(told)) == sorted(expected)

    pipeline, alarm = min(expected)
    ack = {"pipeline": pipeline, "gate": alarm, "reason": "seen", "by": "ada"}
    silenced = f'count(ragmon_gate_alarm{{pipeline="{pipeline}",gate="{alarm}"}} == 0)'
    assert post(f"{heads[0].otlp}/v1/ack", ack) == (200, '{"fired": true}')
    watching.wait_for(silenced, 1.0)
    assert pages(told, "resolved") == []
    assert post(f"{heads[1].otlp}/v1/ack", ack) == (200, '{"fired": true}')
    wait_for(lambda: pages(told, "resolved") == [(pipeline, alarm)])

    heads[1].server.admin.stop(0.0)
    watching.wait_for('count(up{job="ragmon"} == 0)', 1.0)
    watching.wait_for(
        'count(ALERTS{alertname="RagmonGateAlarm",alertstate="firing",severity="page"})', len(expected) - 1
    )
    assert sorted(pages(told)) == sorted(expected)
