"""What producers say of all their calls: each is counted once, however long it was silent and whatever it says."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ragmon.capture.exporters.otlp import metrics_request
from ragmon.core.record import Totals
from ragmon.server.pipeline.decode import QueuedRequest, decode_metrics, decode_traces
from ragmon.server.receiver.interface import Encoding
from tests.support.keepers import HOUR, Hand
from tests.support.serving import BEGIN, PROTOBUF, asked, post, serving, whole


def told(instance, calls, at, kept=0):
    """What a producer says."""
    return Totals(
        ts=at, instance=instance, started=BEGIN - 10, pipeline="support", source="live", calls=calls, kept=kept
    )


def says(hand, instance, calls, kept=0):
    """Have a producer say now how many calls there were."""
    hand.take(QueuedRequest(entries=[told(instance, calls, hand.time.now, kept)]))


def counted(calls, instance="a", at=BEGIN):
    """An export of a producer's totals in which every count is this number, as a collector may have rewritten it."""
    request = ExportMetricsServiceRequest.FromString(metrics_request([told(instance, 2, at, 1)], {"service.name": "s"}))
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
    with Hand(tmp_path) as hand:
        says(hand, "idle", 1000, 10)
        for _ in range(3):
            hand.time.now += 20 * HOUR
            says(hand, "busy", 1)
        says(hand, "idle", 1001, 10)
        assert sum(hand.server_state.producers.calls().values()) == 1002


def test_a_server_that_was_down_for_a_day_counts_no_producer_twice(tmp_path):
    """Its producers were not, and each says what it counted when it is back."""
    with Hand(tmp_path) as hand:
        for name in "abc":
            says(hand, name, 1000)
        hand.save()
        hand.again(25 * HOUR)
        for name in "abc":
            says(hand, name, 1001)
        assert sum(hand.server_state.producers.calls().values()) == 3003


def test_what_came_too_late_to_be_taken_is_not_missing(tmp_path):
    with Hand(tmp_path) as hand:
        says(hand, "a", 10, 10)
        assert hand.server_state.producers.missing(hand.server_state.counts.own) == 10
        hand.send(whole([asked(n, ts=hand.time.now - 25 * HOUR) for n in range(10)]))
        assert hand.books.dropped == {"too_old": 10}
        assert hand.server_state.producers.missing(hand.server_state.counts.own) == 0


def test_a_count_that_no_64_bits_hold_is_refused_and_costs_nobody_else_anything(tmp_path):
    """A request of somebody else came in the same moment, and one after the next start."""
    with Hand(tmp_path) as hand:
        poison = metrics(counted(1e300))
        assert poison.taken.rejected == 2
        hand.take(poison, decode_traces(whole([asked(1, ts=hand.time.now)]), Encoding.PROTOBUF))
        hand.again()
        hand.send(whole([asked(2, ts=hand.time.now)]))
        hand.save()
        hand.again()
        assert (hand.books.scored, hand.writer.resets) == (2, 0)


def test_the_largest_counts_of_several_producers_end_no_checkpoint(tmp_path):
    """Together they are more than 64 bits hold; a day later those producers are added up."""
    with Hand(tmp_path) as hand:
        for name in "abc":
            hand.take(metrics(counted(2**63 - 1, name, hand.time.now)))
        before = hand.server_state.producers.calls()
        hand.save()
        hand.again(25 * HOUR)
        hand.take(metrics(counted(1, "late", hand.time.now)))
        hand.save()
        hand.again()
        assert hand.server_state.producers.calls() == {key: n + 2 for key, n in before.items()}
        assert hand.agrees()


@pytest.mark.slow
@pytest.mark.parametrize("calls", [2**63 - 1, 1e300, 1.7e308])
def test_whatever_a_producer_counts_every_page_can_be_read(tmp_path, calls):
    with serving(tmp_path) as running:
        for name in "ab":
            assert post(f"{running.otlp}/v1/metrics", counted(calls, name), PROTOBUF)[0] == 200
        assert {running.get(path)[0] for path in ("/metrics", "/api/status", "/")} == {200}
