"""Two heads that read one topic of chunks: they say the same, a fault pages once, an acknowledgement holds at both."""

from __future__ import annotations

import json

import pytest

from ragmon.config.load import load
from ragmon.export.rules import render, rule_groups
from tests.server.test_paging import impatient, pages
from tests.stream.test_kafka import cluster, configured, recent, replayed_edges, scored, watermark, working
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import document
from tests.support.servers import prometheus
from tests.support.serving import get, post, process, replayed, values
from tests.support.waiting import wait_for

AT_BOTH = 'count by (pipeline, incident) (ragmon_incident{severity="page"}) == 2'


def firing(head):
    """The alarms that fire: pipeline and alarm."""
    return sorted((alarm["pipeline"], alarm["alert"]) for alarm in head.status()["alarms"])


def paging(head):
    """The confirmed incidents of a head that last: pipeline, name and sentence."""
    listed = json.loads(get(f"{head.admin}/api/incidents")[1])["incidents"]
    return sorted(
        (incident["pipeline"], incident["incident"], incident["summary"])
        for incident in listed
        if incident["severity"] == "confirmed" and incident["ended"] is None
    )


def told_of(told, status="firing"):
    """The incidents that somebody was paged for, as often as it was said: pipeline, name and sentence."""
    return sorted(
        (one["labels"]["pipeline"], one["labels"]["incident"], one["annotations"]["summary"])
        for one in pages(told, status)
    )


@pytest.mark.slow
def test_a_fault_pages_once_and_an_acknowledgement_at_one_head_silences_it_at_both(real, tmp_path):
    records, sent = recent(52)
    with cluster(tmp_path) as (mesh, stack):
        configured(tmp_path / "second", mesh.address, 'from = "stream"\n')
        mesh.send("otlp_spans", sent)
        stack.enter_context(working(tmp_path / "a"))
        heads = [stack.enter_context(process(tmp_path / name)) for name in ("head", "second")]
        for head in heads:
            wait_for(lambda head=head: scored(head) == len(records))
            wait_for(lambda head=head: watermark(head) > records[-1].ts + 60)
        alarms, paged = firing(heads[0]), paging(heads[0])
        assert paged
        assert (firing(heads[1]), paging(heads[1])) == (alarms, paged)

        rules = render(rule_groups(load(tmp_path / "head" / "ragmon.toml", environ={})))
        (tmp_path / "rules.yml").write_text(rules.replace("keep_firing_for: 2m", "keep_firing_for: 2s"))
        hook, told = stack.enter_context(listening())
        (tmp_path / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(tmp_path))
        scraped = [head.admin.removeprefix("http://") for head in heads]
        watch = prometheus(real("prometheus"), tmp_path, scraped, [tmp_path / "rules.yml"], [manager])
        watching = stack.enter_context(watch)
        wait_for(lambda: len(watching.query(AT_BOTH)) == len(paged))
        wait_for(lambda: told_of(told), lambda found: len(found) >= len(paged))
        assert told_of(told) == paged

        pipeline, incident, _ = paged[0]
        ack = {"pipeline": pipeline, "gate": incident, "reason": "seen", "by": "ada"}
        assert post(f"{heads[1].otlp}/v1/ack", ack) == (200, '{"fired": true}')
        for head in heads:
            wait_for(lambda head=head: head.status()["acknowledged"])
            assert paging(head) == paged[1:]
        assert heads[0].status()["acknowledged"] == heads[1].status()["acknowledged"]
        wait_for(lambda: told_of(told, "resolved") == [paged[0]])
        assert told_of(told) == paged
        chunks = values(get(f"{heads[0].admin}/metrics")[1])
        assert 'ragmon_stream_chunks_total{result="damaged"}' not in chunks
        assert [head.stop() for head in heads] == [0, 0]
    assert replayed(tmp_path / "head") == replayed(tmp_path / "second")
    first, second = (replayed_edges(tmp_path / name) for name in ("head", "second"))
    assert min(len(first), len(second)) > 0
    assert first[: len(second)] == second[: len(first)]
