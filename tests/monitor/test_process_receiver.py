"""What the process that scores makes of the exports of the other processes of its application."""

from __future__ import annotations

from time import time

import pytest

from ragmon import testing
from ragmon.core.record import Totals
from ragmon.ingest.receiver import Encoding
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.producers import ProcessReceiver
from tests.support.otlp_requests import of_records, of_totals


@pytest.fixture
def receiver(configured):
    return ProcessReceiver(Monitor(configured()), "token", time())


def receive(receiver, records):
    return receiver.traces(of_records(records).SerializeToString(), Encoding.PROTOBUF).result()


def totals(started, calls, **dropped):
    line = Totals(ts=time(), instance="one", started=started, pipeline="docs", source="live", stratum="rest")
    line.calls, line.kept, line.dropped = calls, calls, dropped
    return of_totals([line], {"service.instance.id": "one"})


def test_a_request_that_comes_twice_counts_once(receiver):
    body = of_records([testing.make_record(v=1, source="live") for _ in range(3)]).SerializeToString()
    for _ in range(2):
        assert receiver.traces(body, Encoding.PROTOBUF).result().rejected == 0
    assert receiver.stats().counters.received == receiver.stats().counters.scored == 3
    assert receiver._monitor.snapshot().stages["score"].scored == 3


def test_errors_of_other_processes_are_counted_by_their_type(receiver):
    receive(receiver, [testing.make_record(v=1, source="live", pipeline="docs", error="TimeoutError")])
    assert receiver.stats().errors == {("docs", "TimeoutError"): 1}


def test_what_a_process_lost_is_a_loss_until_another_process_counts_it(receiver):
    receiver.metrics(totals(time(), 5, export_timeout=2), Encoding.PROTOBUF)
    counters = receiver.stats().counters
    assert (counters.received, counters.dropped, counters.residual) == (2, {"export_timeout": 2}, 0)
    receiver.end_of("one")
    assert not receiver.stats().counters.dropped


@pytest.mark.parametrize(("age", "counted"), [(1.0, 7), (60.0, 3)], ids=["begun together", "older"])
def test_calls_that_another_leader_has_counted_are_not_counted_again(receiver, age, counted):
    """An older process is counted from its first totals on."""
    started = time() - age
    for calls in (4, 7):
        receiver.metrics(totals(started, calls), Encoding.PROTOBUF)
    assert sum(receiver.stats().calls.values()) == counted


def test_requests_without_the_token_reach_the_admin_port_alone(tmp_path, configured):
    import httpx  # noqa: PLC0415 - as an application's other process does

    from ragmon.monitor.sharing import SharedMonitor  # noqa: PLC0415 - as above

    shared = SharedMonitor(configured('[serve]\nadmin = "127.0.0.1:0"\n'), tmp_path / "private")
    shared.start()
    try:
        leader = shared._election.leader()
        body = of_records([testing.make_record(v=1, source="live")]).SerializeToString()
        sent = {"content": body, "headers": {"Content-Type": "application/x-protobuf"}}
        assert httpx.post(f"{leader.url}/v1/traces", **sent).status_code == 405
        sent["headers"] = {**sent["headers"], "Authorization": f"Bearer {leader.token}"}
        assert httpx.post(f"{leader.url}/v1/traces", **sent).status_code == 200
        assert shared.monitor.snapshot().stages["score"].scored == 1
    finally:
        shared.close()
