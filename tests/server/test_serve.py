"""`ragmon serve` end to end: what producers send is on disk, scored once, accounted for, and shown."""

from __future__ import annotations

import time

import pytest

from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.cli.serve import TEMPORARY
from ragmon.core.record import Sampling, Totals
from ragmon.scoring.cardinality import CODES
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.otlp_requests import of_records, with_ids
from tests.support.serving import configuration, journalled, post, process, serving, totals

RESOURCE = {"service.name": "support"}


def request(n, **fields):
    """The nth request of a user, just now."""
    told = {"ts": time.time(), "source": "live", "pipeline": "support", "v": 1, "trace_id": f"{n + 1:032x}"}
    return make_record(f"q{n}", **{**told, **fields})


def send(running, records):
    """Send records as ragmon's own producers do; returns what was lost."""
    sink = OtlpExporter(running.otlp, resource=RESOURCE)
    try:
        return sink.deliver(records)
    finally:
        sink.close()


def test_what_a_producer_sends_is_scored_once_and_shown(tmp_path):
    with serving(tmp_path) as running:
        assert send(running, [request(n) for n in range(500)]) == {}
        books = running.settled(500)
        assert (books["scored"], books["duplicate"], books["residual"]) == (500, 0, 0)
        shown = running.metrics()
        assert shown['ragmon_records_scored_total{stage="ingest"}'] == 500
        assert shown['ragmon_accounting_residual{stage="ingest"}'] == 0
        assert shown['rag_compliance{gold="",pipeline="support",source="live",window="1h"}'] == 1.0
    assert [record.qid for record in journalled(tmp_path)] == [f"q{n}" for n in range(500)]


def test_a_span_that_is_sent_again_counts_once(tmp_path):
    """A producer whose answer was lost sends the same spans again."""
    sent = of_records([request(n) for n in range(20)], RESOURCE)
    body = with_ids(sent, [f"{n + 1:016x}" for n in range(20)])
    with serving(tmp_path) as running:
        for _ in range(3):
            assert post(f"{running.otlp}/v1/traces", body, "application/x-protobuf")[0] == 200
        books = running.settled(60)
    assert (books["scored"], books["duplicate"], books["residual"]) == (20, 40, 0)


def test_requests_of_long_ago_and_of_the_future_are_dropped_and_counted(tmp_path):
    now = time.time()
    records = [request(0, ts=now - 2 * 86_400), request(1, ts=now + 3600), request(2, ts=now)]
    with serving(tmp_path) as running:
        send(running, records)
        books = running.settled(3)
    assert books["dropped"] == {"too_old": 1, "too_future": 1}
    assert (books["scored"], books["residual"]) == (1, 0)


def test_a_body_that_is_no_request_is_refused_and_counted(tmp_path):
    with serving(tmp_path) as running:
        code, _ = post(f"{running.otlp}/v1/traces", b"\xff\xff", "application/x-protobuf")
        assert code == 400
        books = running.settled(1)
    assert books["dropped"] == {"malformed_protobuf": 1}
    assert books["residual"] == 0


def test_what_producers_count_weighs_the_strata_and_shows_what_did_not_come(tmp_path):
    now = time.time()
    kept = Sampling(audit=True, stratum="rest", p_audit=0.1, p=0.1)
    told = {"ts": now, "instance": "a", "started": now - 60, "pipeline": "support", "source": "live"}
    lines = [Totals(**told, stratum="rest", calls=1000, kept=110, dropped={"queue_full": 4}, latency_ms={10: 1000})]
    with serving(tmp_path) as running:
        sink = OtlpExporter(running.otlp, resource=RESOURCE)
        sink.deliver([request(n, sampling=kept) for n in range(100)])
        assert sink.report(lines)
        running.settled(100)
        shown = running.metrics()
        sink.close()
    assert shown['rag_requests_total{pipeline="support",source="live",stratum="rest"}'] == 1000
    assert shown["ragmon_producer_records_missing"] == 6
    assert shown['ragmon_producer_records_dropped_total{reason="queue_full"}'] == 4
    assert [line.calls for line in totals(tmp_path) if line.calls] == [1000]


@pytest.mark.slow
def test_errors_of_users_are_counted_by_kind_and_too_many_kinds_together(tmp_path):
    """Those of probes are not a user's; after a restart the counts go on."""
    erring = [request(n, error="TimeoutError") for n in range(3)]
    erring.append(request(3, error="TimeoutError", source="probe"))
    erring += [request(100 + n, error=f"Error{n}") for n in range(CODES + 5)]
    with serving(tmp_path) as running:
        send(running, erring)
        running.settled(len(erring))
        before = running.metrics()
    assert before['rag_errors_total{code="TimeoutError",pipeline="support"}'] == 3
    assert before['rag_errors_total{code="__other__",pipeline="support"}'] == 6
    with serving(tmp_path) as running:
        after = running.metrics()
    assert {key: n for key, n in before.items() if key.startswith("rag_errors_total")} == {
        key: n for key, n in after.items() if key.startswith("rag_errors_total")
    }


@pytest.mark.slow
def test_the_state_survives_a_stop_and_a_kill(tmp_path):
    """What was acknowledged is counted, whether the process ended or was killed; numbers go on where they stood."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        send(running, [request(n) for n in range(100)])
        assert running.stop() == 0
    with process(tmp_path) as running:
        assert running.books()["scored"] == 100
        send(running, [request(n) for n in range(100, 150)])
        running.kill()
    with process(tmp_path) as running:
        books = running.books()
        assert (books["received"], books["scored"], books["residual"]) == (150, 150, 0)
        assert running.stop() == 0


@pytest.mark.slow
def test_replaying_the_journal_gives_the_digest_of_the_server(tmp_path):
    with serving(tmp_path) as running:
        send(running, [request(n, claim="not in context" if n % 3 else "yes") for n in range(300)])
        running.settled(300)
        digest = running.server.writer.server_state.engine.scorer.state.digest()
    done = ragmon("replay", "--journal", tmp_path / "state", "--config", tmp_path / "ragmon.toml")
    assert done.json["digest"] == digest


@pytest.mark.slow
def test_a_second_server_on_the_same_folder_is_refused(tmp_path):
    configuration(tmp_path)
    with process(tmp_path) as running:
        with process(tmp_path) as second:
            assert second.wait() == TEMPORARY
            assert any(str(running.pid) in line for line in second.lines)
        assert running.stop() == 0
