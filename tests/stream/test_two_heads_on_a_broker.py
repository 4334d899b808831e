"""Two heads that read one topic of chunks: they say the same, and what is acknowledged at one holds at both."""

from __future__ import annotations

import pytest

from tests.stream.test_kafka import cluster, configured, recent, replayed_edges, scored, watermark, working
from tests.support.serving import get, post, process, replayed, values
from tests.support.waiting import wait_for


def firing(head):
    """The alarms that fire: pipeline and alarm."""
    return sorted((alarm["pipeline"], alarm["alert"]) for alarm in head.status()["alarms"])


@pytest.mark.slow
def test_an_acknowledgement_at_one_head_silences_the_alarm_at_both(tmp_path):
    records, sent = recent(52)
    with cluster(tmp_path) as (mesh, stack):
        configured(tmp_path / "second", mesh.address, 'from = "stream"\n')
        mesh.send("otlp_spans", sent)
        stack.enter_context(working(tmp_path / "a"))
        heads = [stack.enter_context(process(tmp_path / name)) for name in ("head", "second")]
        for head in heads:
            wait_for(lambda head=head: scored(head) == len(records))
            wait_for(lambda head=head: watermark(head) > records[-1].ts + 60)
        alarms = firing(heads[0])
        assert firing(heads[1]) == alarms
        pipeline, alert = alarms[0]
        ack = {"pipeline": pipeline, "gate": alert, "reason": "seen", "by": "ada"}
        assert post(f"{heads[1].otlp}/v1/ack", ack) == (200, '{"fired": true}')
        for head in heads:
            wait_for(lambda head=head: head.status()["acknowledged"])
            assert alarms[0] not in firing(head)
        assert heads[0].status()["acknowledged"] == heads[1].status()["acknowledged"]
        chunks = values(get(f"{heads[0].admin}/metrics")[1])
        assert 'ragmon_stream_chunks_total{result="damaged"}' not in chunks
        assert [head.stop() for head in heads] == [0, 0]
    assert replayed(tmp_path / "head") == replayed(tmp_path / "second")
    first, second = (replayed_edges(tmp_path / name) for name in ("head", "second"))
    assert min(len(first), len(second)) > 0
    assert first[: len(second)] == second[: len(first)]
