"""Through a real OpenTelemetry collector, rotel: what ragmon sends arrives behind it as it was."""

from __future__ import annotations

from contextlib import closing

import pytest

from ragmon.capture.exporters.otlp import OtlpExporter
from ragmon.capture.exporters.scores import Scored, ScoreExporter
from ragmon.core.record import Totals
from ragmon.stats import bucket
from ragmon.testing import make_record
from tests.support.collectors import collector
from tests.support.otlp_receiver import attributes, receiving
from tests.support.waiting import TIMEOUT


@pytest.fixture
def behind(tmp_path):
    """A receiver behind a collector, and the collector's own endpoint."""
    with receiving() as server, collector(tmp_path, server.endpoint) as endpoint:
        yield server, endpoint


def test_records_totals_and_scores_pass_a_collector_unchanged(behind):
    server, endpoint = behind
    sent = [
        make_record(f"q{n}", trace_id=f"{n + 1:032x}", ts=1.7e9 + n, q="Wo ist das Ächt-Ei? 🥚") for n in range(1000)
    ]
    totals = Totals(
        ts=2.0, instance="i-1", started=1.0, pipeline="p", source="live", calls=9, kept=4, latency_ms={bucket(250.0): 9}
    )
    with closing(OtlpExporter(endpoint, resource={"service.name": "shop"}, timeout=TIMEOUT)) as sink:
        assert sink.deliver(sent) == {}
        assert sink.report([totals]) is True
    with closing(ScoreExporter(endpoint, resource={}, carriers=True)) as scores:
        assert scores.deliver([Scored("1" * 32, "2" * 16, [("mrr", 0.5, "pass")])]) == {}
    server.wait_for(lambda: len(server.spans()) >= 1001 and server.metrics() and server.events())
    assert sorted(server.records(), key=lambda record: record.ts) == sent
    by_name = {metric.name: metric for metric in server.metrics()}
    assert [point.as_int for point in by_name["rag.requests"].sum.data_points] == [4, 5]
    (point,) = by_name["rag.e2e_latency"].exponential_histogram.data_points
    assert (point.count, list(point.positive.bucket_counts)) == (9, [9])
    (event,) = server.events()
    assert (event.trace_id.hex(), attributes(event)["gen_ai.evaluation.score.value"]) == ("1" * 32, 0.5)
