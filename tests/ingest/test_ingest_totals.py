"""Producers' totals off the wire: what capture sends comes back as it was, whatever a collector made of it."""

from __future__ import annotations

import math

import msgspec
import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from ragmon.core import constants, semconv
from ragmon.core.record import Totals
from ragmon.ingest.lines import Rejected
from ragmon.ingest.native import totals
from ragmon.ingest.otlp import MALFORMED_PROTOBUF
from ragmon.stats.histograms import bucket, buckets
from tests.support.examples import cases
from tests.support.otlp_requests import of_totals

STARTED = 1_700_000_000.0
ENCODINGS = pytest.mark.parametrize("as_json", [False, True], ids=["protobuf", "json"])
COUNTS = st.integers(0, 2**40)
MOMENTS = st.integers(1, int(1.8e10 * 8)).map(lambda eighths: eighths / 8)
LABELS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TOTALS = st.builds(
    lambda kept, unkept, timed, **fields: Totals(
        calls=kept + unkept, kept=kept, latency_ms=dict(buckets(timed)), **fields
    ),
    COUNTS,
    COUNTS,
    st.lists(st.floats(0.001, 1e7) | st.just(0.0), max_size=20),
    ts=MOMENTS,
    started=MOMENTS,
    instance=LABELS,
    pipeline=LABELS,
    source=st.sampled_from(constants.SOURCES),
    stratum=st.sampled_from(constants.CALL_STRATA),
    dropped=st.dictionaries(LABELS, COUNTS, max_size=3),
)


def series(found):
    return (found.instance, found.started, found.ts, found.pipeline, found.source, found.stratum)


def alike(found, reports):
    """Whether they are the same, their times to what a double of today's nanoseconds can hold."""
    found, reports = sorted(found, key=series), sorted(reports, key=series)
    times = [(one.ts, one.started) for one in reports]
    near = [
        abs(one.ts - ts) < 1e-5 and abs(one.started - started) < 1e-5
        for one, (ts, started) in zip(found, times, strict=True)
    ]
    return all(near) and reports == [
        msgspec.structs.replace(one, ts=ts, started=started) for one, (ts, started) in zip(found, times, strict=True)
    ]


REPORTS = st.lists(TOTALS, max_size=6, unique_by=series)


def counted(**fields):
    known = {"instance": "i-1", "started": STARTED, "pipeline": "support", "source": "live", "stratum": "rest"}
    return Totals(**{"ts": STARTED + 10, "calls": 100, "kept": 5, **known, **fields})


TOLD = counted(dropped={"queue_full": 2}, latency_ms={bucket(100.0): 90, bucket(2000.0): 10})


def message(*reports):
    """What a producer sends of some totals."""
    return ExportMetricsServiceRequest.FromString(of_totals(reports, {"service.name": "shop"}))


def read(request, as_json=False):
    if as_json:
        return totals(MessageToJson(request).encode(), json=True)
    return totals(request.SerializeToString(), json=False)


@pytest.mark.slow
@ENCODINGS
@settings(max_examples=50)
@given(REPORTS)
def test_what_a_producer_reports_comes_back_as_it_was(as_json, reports):
    found, rejected, first = read(message(*reports), as_json)
    assert (rejected, first) == (0, "")
    assert alike(found, reports)


def points(metric):
    return getattr(metric, metric.WhichOneof("data")).data_points


@st.composite
def collected(draw, requests):
    """The points of several requests as a collector may pass them on: mixed, apart, empty metrics among them."""
    apart = []
    for process in (process for request in requests for process in request.resource_metrics):
        for metric in process.scope_metrics[0].metrics:
            apart += [(process, metric, point) for point in points(metric)]
    request = ExportMetricsServiceRequest()
    for process, metric, point in draw(st.permutations(apart)):
        if draw(st.booleans()) or not request.resource_metrics:
            request.resource_metrics.add().scope_metrics.add().metrics.add()
        held = request.resource_metrics.add()
        held.resource.CopyFrom(process.resource)
        scope = held.scope_metrics.add()
        scope.scope.CopyFrom(process.scope_metrics[0].scope)
        one = scope.metrics.add()
        one.CopyFrom(metric)
        del points(one)[:]
        points(one).append(point)
    return request


@settings(max_examples=50)
@given(st.data(), REPORTS)
def test_points_a_collector_mixed_and_took_apart_come_together_again(data, reports):
    half = len(reports) // 2
    request = data.draw(collected([message(*reports[:half]), message(*reports[half:])]))
    found, rejected, _ = read(request)
    assert rejected == 0
    assert alike(found, reports)


def test_two_reports_in_one_request_are_two_lines():
    first, second = counted(calls=3, kept=1), counted(calls=9, kept=2, ts=STARTED + 20)
    request = message(first)
    request.MergeFrom(message(second))
    assert read(request)[0] == [first, second]


def test_a_report_that_came_twice_counts_once():
    request = message(TOLD)
    request.MergeFrom(message(TOLD))
    assert read(request) == ([TOLD], 0, "")


def test_empty_counts_a_collector_left_out_count_nothing():
    request = message(counted(calls=7, kept=0, dropped={"queue_full": 1}))
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for place, point in reversed(list(enumerate(points(metric)))):
            if metric.name == semconv.REQUESTS and point.as_int == 0:
                del points(metric)[place]
    assert read(request) == ([counted(calls=7, kept=0, dropped={"queue_full": 1})], 0, "")


@ENCODINGS
def test_other_programs_metrics_are_passed_over(as_json):
    request = message(TOLD)
    other = request.resource_metrics.add()
    scope = other.scope_metrics.add()
    scope.scope.name = "somebody else"
    scope.metrics.add(name=semconv.REQUESTS).gauge.data_points.add(as_double=1.0)
    request.resource_metrics[0].scope_metrics[0].metrics.add(name="process.cpu.time").sum.data_points.add(as_int=1)
    assert read(request, as_json) == ([TOLD], 0, "")


def metric_of(request, name):
    (found,) = (one for one in request.resource_metrics[0].scope_metrics[0].metrics if one.name == name)
    return found


def test_counts_since_the_last_report_are_rejected():
    """Only what a producer counted since it started survives a report that got lost."""
    request = message(TOLD)
    delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    metric_of(request, semconv.REQUESTS).sum.aggregation_temporality = delta
    found, rejected, first = read(request)
    assert [one.calls for one in found] == [0]
    assert rejected == 2
    assert "rag.requests is cumulative, not 'AGGREGATION_TEMPORALITY_DELTA'" in first


def test_a_temporality_nobody_knows_is_rejected():
    request = message(TOLD)
    metric_of(request, semconv.E2E_LATENCY).exponential_histogram.aggregation_temporality = 99
    found, rejected, first = read(request)
    assert (found[0].latency_ms, rejected) == ({}, 1)
    assert "rag.e2e_latency is cumulative, not 99" in first


def test_a_sum_that_may_fall_is_rejected():
    request = message(TOLD)
    metric_of(request, semconv.RECORDS_DROPPED).sum.is_monotonic = False
    found, rejected, first = read(request)
    assert (found[0].dropped, rejected) == ({}, 1)
    assert "only grows" in first


def test_a_metric_of_another_kind_is_rejected_point_by_point():
    request = message(TOLD)
    metric = metric_of(request, semconv.E2E_LATENCY)
    metric.histogram.data_points.add()
    metric.histogram.data_points.add()
    found, rejected, first = read(request)
    assert (found[0].latency_ms, found[0].calls, rejected) == ({}, 100, 2)
    assert "rag.e2e_latency is a metric of the kind exponential_histogram, not 'histogram'" in first


def altered(change):
    """A report whose first count of calls was changed."""
    request = message(TOLD)
    change(points(metric_of(request, semconv.REQUESTS))[0])
    return request


def relabelled(key, value=None):
    def change(point):
        (pair,) = (pair for pair in point.attributes if pair.key == key)
        if value is None:
            point.attributes.remove(pair)
        else:
            pair.value.string_value = value

    return change


def assigned(**fields):
    def change(point):
        for name, value in fields.items():
            setattr(point, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (relabelled(semconv.PIPELINE), "a point has no pipeline"),
        (relabelled(semconv.STRATUM), "a point has no stratum"),
        (relabelled(semconv.OUTCOME), "a point has no outcome"),
        (relabelled(semconv.OUTCOME, "lost"), "outcome is one of kept, unkept, not 'lost'"),
        (assigned(as_int=-1), "a count is a whole number of at least 0, not -1"),
        (assigned(as_double=1.5), "a count is a whole number of at least 0, not 1.5"),
        (assigned(as_double=math.nan), "a count is a whole number of at least 0, not nan"),
        (assigned(as_double=math.inf), "a count is a whole number of at least 0, not inf"),
        (assigned(start_time_unix_nano=0), "start_time_unix_nano is a time, not 0"),
        (assigned(time_unix_nano=0), "time_unix_nano is a time"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_point_that_is_none_is_rejected_and_the_others_count(change, said):
    found, rejected, first = read(altered(change))
    assert rejected == 1
    assert said in first
    (one,) = (one for one in found if one.ts == TOLD.ts and one.started == STARTED)
    assert (one.calls, one.kept, one.dropped, one.latency_ms) == (95, 0, TOLD.dropped, TOLD.latency_ms)


def test_a_count_that_became_a_floating_point_number_on_the_way_counts():
    assert read(altered(assigned(as_double=5.0))) == ([TOLD], 0, "")


def test_a_point_that_says_nothing_was_counted_is_passed_over():
    found, rejected, _ = read(altered(assigned(flags=1)))
    assert (found[0].calls, found[0].kept, rejected) == (95, 0, 0)


def test_without_the_producer_nothing_counts():
    """Counts of two producers must never be taken for one that fell."""
    request = message(TOLD)
    del request.resource_metrics[0].resource.attributes[:]
    found, rejected, first = read(request)
    assert (found, rejected) == ([], 4)
    assert "no service.instance.id says which producer counted" in first


def histogram(change):
    request = message(TOLD)
    (point,) = points(metric_of(request, semconv.E2E_LATENCY))
    change(point)
    return request


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda point: point.negative.bucket_counts.append(1), "a latency is not below zero"),
        (assigned(count=7), "the sum of a histogram's buckets is its count, 7, not 100"),
        (assigned(scale=-20), "a latency is a finite number"),
        (assigned(scale=-(2**31)), "a latency is a finite number"),
    ],
    ids=["negative", "count", "coarse", "coarsest"],
)
def test_a_histogram_that_is_none_is_rejected(change, said):
    found, rejected, first = read(histogram(change))
    assert (found[0].latency_ms, found[0].calls, rejected) == ({}, 100, 1)
    assert said in first


def test_a_coarser_histogram_keeps_its_counts():
    """A collector may halve the scale to save space: the buckets are wider, no call is lost."""

    def halve(point):
        held = point.positive
        merged = {}
        for index, n in enumerate(held.bucket_counts, held.offset):
            merged[index // 2] = merged.get(index // 2, 0) + n
        point.scale -= 1
        held.offset = min(merged)
        del held.bucket_counts[:]
        held.bucket_counts.extend(merged.get(index, 0) for index in range(min(merged), max(merged) + 1))

    (found,), rejected, _ = read(histogram(halve))
    assert (sum(found.latency_ms.values()), rejected) == (100, 0)
    assert all(min(abs(place - told) for told in TOLD.latency_ms) <= 1 for place in found.latency_ms)


@pytest.mark.parametrize(
    ("body", "as_json", "reason"),
    [
        (b"\x0a\xff", False, MALFORMED_PROTOBUF),
        (b"", True, constants.MALFORMED_JSON),
        (b"[]", True, constants.MALFORMED_JSON),
        (b'{"resourceMetrics": 7}', True, constants.MALFORMED_JSON),
        (b'{"resourceMetrics": [{"schemaUrl": "\\ud800"}]}', True, constants.MALFORMED_JSON),
        (b'{"x": "\xff"}', True, constants.INVALID_UTF8),
        (b'{"x": ' + b"[" * 100_000, True, constants.MALFORMED_JSON),
    ],
    ids=["broken off", "empty", "list", "number", "surrogate", "no utf-8", "deep"],
)
def test_a_body_that_is_no_request_is_told_why(body, as_json, reason):
    with pytest.raises(Rejected) as caught:
        totals(body, json=as_json)
    assert caught.value.reason == reason


def survives(body, as_json):
    try:
        found, rejected, first = totals(body, json=as_json)
    except Rejected:
        return
    assert all(isinstance(one, Totals) for one in found)
    assert bool(rejected) == bool(first)


@ENCODINGS
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(as_json, body):
    survives(body, as_json)


@pytest.mark.slow
@ENCODINGS
@settings(max_examples=cases(300))
@given(st.data())
def test_damaged_requests_are_read_or_refused(as_json, data):
    body = MessageToJson(message(TOLD)).encode() if as_json else message(TOLD).SerializeToString()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        new = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\xff", b"\x80\x80", b"9" * 400, b"-", b'"NaN"', b"[[["])
        )
        body = body[:place] + new + body[place + data.draw(st.integers(0, 3)) :]
    survives(body, as_json)
