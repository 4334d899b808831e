"""What producers say of all their calls: each is counted once, however long it was silent and whatever it says."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ragmon.core.record import Totals
from ragmon.ingest.receiver import Encoding
from ragmon.server.pending import QueuedRequest, decode_metrics, decode_traces
from tests.support.manual_writer import HOUR, ManualWriter
from tests.support.otlp_requests import of_totals
from tests.support.serving import BEGIN, PROTOBUF, asked, post, serving, whole


def told(instance, calls, at, kept=0):
    """What a producer says."""
    return Totals(
        ts=at, instance=instance, started=BEGIN - 10, pipeline="support", source="live", calls=calls, kept=kept
    )


def says(manual, instance, calls, kept=0):
    """Have a producer say now how many calls there were."""
    manual.take(QueuedRequest(entries=[told(instance, calls, manual.time.now, kept)]))


def counted(calls, instance="a", at=BEGIN):
    """An export of a producer's totals in which every count is this number, as a collector may have rewritten it."""
    request = ExportMetricsServiceRequest.FromString(of_totals([told(instance, 2, at, 1)], {"service.name": "s"}))
    for process in request.resource_metrics:
        for metric in process.scope_metrics[0].metrics:
            for point in metric.sum.data_points:
                setattr(point, "as_double" if isinstance(calls, float) else "as_int", calls)
    return request.SerializeToString()


def metrics(body):
    """The request a body of metrics is."""
    return decode_metrics(body, Encoding.PROTOBUF)


def test_a_producer_that_was_idle_for_a_weekend_is_counted_once(tmp_path):
    """Another one was not, so that time passed."""
    with ManualWriter(tmp_path) as manual:
        says(manual, "idle", 1000, 10)
        for _ in range(3):
            manual.time.now += 20 * HOUR
            says(manual, "busy", 1)
        says(manual, "idle", 1001, 10)
        assert sum(manual.server_state.producers.calls().values()) == 1002


def test_a_server_that_was_down_for_a_day_counts_no_producer_twice(tmp_path):
    """Its producers were not, and each says what it counted when it is back."""
    with ManualWriter(tmp_path) as manual:
        for name in "abc":
            says(manual, name, 1000)
        manual.save()
        manual.again(25 * HOUR)
        for name in "abc":
            says(manual, name, 1001)
        assert sum(manual.server_state.producers.calls().values()) == 3003


def test_what_came_too_late_to_be_taken_is_not_missing(tmp_path):
    with ManualWriter(tmp_path) as manual:
        says(manual, "a", 10, 10)
        assert manual.server_state.producers.missing(manual.server_state.counts.native) == 10
        manual.send(whole([asked(n, ts=manual.time.now - 25 * HOUR) for n in range(10)]))
        assert manual.books.dropped == {"too_old": 10}
        assert manual.server_state.producers.missing(manual.server_state.counts.native) == 0


def test_a_count_that_no_64_bits_hold_is_refused_and_costs_nobody_else_anything(tmp_path):
    """A request of somebody else came in the same moment, and one after the next start."""
    with ManualWriter(tmp_path) as manual:
        poison = metrics(counted(1e300))
        assert poison.result.rejected == 2
        manual.take(poison, decode_traces(whole([asked(1, ts=manual.time.now)]), Encoding.PROTOBUF))
        manual.again()
        manual.send(whole([asked(2, ts=manual.time.now)]))
        manual.save()
        manual.again()
        assert (manual.books.scored, manual.writer.resets) == (2, 0)


def test_the_largest_counts_of_several_producers_end_no_checkpoint(tmp_path):
    """Together they are more than 64 bits hold; a day later those producers are added up."""
    with ManualWriter(tmp_path) as manual:
        for name in "abc":
            manual.take(metrics(counted(2**63 - 1, name, manual.time.now)))
        before = manual.server_state.producers.calls()
        manual.save()
        manual.again(25 * HOUR)
        manual.take(metrics(counted(1, "late", manual.time.now)))
        manual.save()
        manual.again()
        assert manual.server_state.producers.calls() == {key: n + 2 for key, n in before.items()}
        assert manual.agrees()


@pytest.mark.slow
@pytest.mark.parametrize("calls", [2**63 - 1, 1e300, 1.7e308])
def test_whatever_a_producer_counts_every_page_can_be_read(tmp_path, calls):
    with serving(tmp_path) as running:
        for name in "ab":
            assert post(f"{running.otlp}/v1/metrics", counted(calls, name), PROTOBUF)[0] == 200
        assert {running.get(path)[0] for path in ("/metrics", "/api/status", "/")} == {200}
