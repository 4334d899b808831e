"""A producer's totals as OTLP metrics: cumulative, by series, and exact to the bucket."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from ragmon.capture.otlp_exporter import SCALE, OtlpExporter, metrics_data
from ragmon.core.record import Totals
from ragmon.stats.histograms import NOT_POSITIVE, bucket, buckets
from tests.support.otlp_receiver import attributes, receiving

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
STARTED = 1_700_000_000.0


def totals(seconds=10.0, **fields):
    known = {"instance": "i-1", "started": STARTED, "pipeline": "support", "source": "live", "stratum": "rest"}
    return Totals(**{"ts": STARTED + seconds, **known, **fields})


@pytest.fixture(scope="module")
def reported():
    """Reports totals and gives the metrics the receiver got, by name; several reports give several lists."""
    with receiving() as server:

        def run(*reports):
            server.requests.clear()
            sink = OtlpExporter(server.endpoint, resource={"service.name": "shop", "service.instance.id": "elsewhere"})
            assert all(sink.report(report) for report in reports)
            sink.close()
            return [request.message for request in server.requests]

        yield run


def points(message, name):
    """The points of a metric, each with its attributes."""
    for resource in message.resource_metrics:
        for metric in resource.scope_metrics[0].metrics:
            if metric.name == name:
                return [(attributes(point), point) for point in getattr(metric, metric.WhichOneof("data")).data_points]
    return []


def test_all_calls_are_counted_by_pipeline_source_stratum_and_whether_they_became_records(reported):
    (message,) = reported([totals(calls=100, kept=5), totals(calls=7, kept=7, stratum="error", source="probe")])
    found = {tuple(sorted(held.items())): point.as_int for held, point in points(message, "rag.requests")}
    rest, error = (
        {"pipeline": "support", "source": "live", "stratum": "rest"},
        {"pipeline": "support", "source": "probe", "stratum": "error"},
    )
    assert found == {
        tuple(sorted({**rest, "outcome": "kept"}.items())): 5,
        tuple(sorted({**rest, "outcome": "unkept"}.items())): 95,
        tuple(sorted({**error, "outcome": "kept"}.items())): 7,
        tuple(sorted({**error, "outcome": "unkept"}.items())): 0,
    }


def test_two_reports_of_growing_totals_are_cumulative_points_of_one_start(reported):
    reports = reported(
        [totals(10, calls=3, kept=1, dropped={"queue_full": 1}, latency_ms={bucket(100.0): 3})],
        [totals(20, calls=9, kept=4, dropped={"queue_full": 2}, latency_ms={bucket(100.0): 8, bucket(900.0): 1})],
    )
    for name in ("rag.requests", "ragmon.records.dropped", "rag.e2e_latency"):
        (_, first), (_, second) = points(reports[0], name)[0], points(reports[1], name)[0]
        assert first.start_time_unix_nano == second.start_time_unix_nano == STARTED * 1e9
        assert (first.time_unix_nano, second.time_unix_nano) == ((STARTED + 10) * 1e9, (STARTED + 20) * 1e9)
    for message in reports:
        for metric in message.resource_metrics[0].scope_metrics[0].metrics:
            data = getattr(metric, metric.WhichOneof("data"))
            assert data.aggregation_temporality == CUMULATIVE
            assert metric.WhichOneof("data") != "sum" or data.is_monotonic
    assert sum(point.as_int for _, point in points(reports[1], "rag.requests")) == 9


def test_every_report_says_which_producer_counted(reported):
    """Counts of two producers must never be taken for one that fell."""
    (message,) = reported([totals(calls=1), totals(calls=2, instance="i-2"), totals(calls=3, stratum="error")])
    found = {}
    for resource in message.resource_metrics:
        held = attributes(resource.resource)
        assert held["service.name"] == "shop"
        counted = resource.scope_metrics[0].metrics[0].sum.data_points
        found[held["service.instance.id"]] = sum(point.as_int for point in counted)
    assert found == {"i-1": 4, "i-2": 2}


def test_lost_records_are_counted_by_reason(reported):
    (message,) = reported([totals(dropped={"queue_full": 4, "export_refused": 1})])
    found = {held["reason"]: point.as_int for held, point in points(message, "ragmon.records.dropped")}
    assert found == {"queue_full": 4, "export_refused": 1}


def test_a_count_of_more_records_than_calls_does_not_go_below_zero(reported):
    """The two are read one after the other, while calls go on."""
    (message,) = reported([totals(calls=3, kept=4)])
    assert [point.as_int for _, point in points(message, "rag.requests")] == [4, 0]


def test_where_nothing_was_timed_there_is_no_histogram(reported):
    (message,) = reported([totals(calls=3)])
    assert points(message, "rag.e2e_latency") == []


def read_back(point):
    """The buckets ragmon counted, from the middle of each bucket of the exponential histogram."""
    width = 2.0**-point.scale
    found = {NOT_POSITIVE: point.zero_count} if point.zero_count else {}
    for place, n in enumerate(point.positive.bucket_counts):
        if n:
            middle = 2.0 ** ((point.positive.offset + place + 0.5) * width)
            found[bucket(middle * 1000)] = n
    return found


latencies = st.lists(st.one_of(st.floats(0.001, 1e7), st.just(0.0)), min_size=1, max_size=50)


@settings(max_examples=100)
@given(values=latencies)
def test_the_histogram_arrives_bucket_by_bucket(reported, values):
    histogram = dict(buckets(values))
    (message,) = reported([totals(calls=len(values), latency_ms=histogram)])
    ((_, point),) = points(message, "rag.e2e_latency")
    assert read_back(point) == histogram
    assert point.count == len(values) == point.zero_count + sum(point.positive.bucket_counts)
    assert math.isclose(point.sum, sum(values) / 1000, rel_tol=0.008, abs_tol=1e-9)


def test_every_bucket_of_an_octave_has_one_of_its_own():
    """The claim behind the scale: no two of ragmon's buckets fall into one, and each is told by its middle."""
    first = bucket(1.0)
    reports = [totals(calls=1, latency_ms={first + number: 1}, stratum=str(number)) for number in range(64 * 20)]
    latency = metrics_data(reports, {}).resource_metrics[0].scope_metrics[0].metrics[-1]
    found = {
        point.positive.offset: bucket
        for point, report in zip(latency.data.data_points, reports, strict=True)
        for bucket in report.latency_ms
    }
    assert len(found) == 64 * 20
    for index, expected in found.items():
        assert bucket(2.0 ** ((index + 0.5) / 2**SCALE) * 1000) == expected
