"""A real Prometheus scrapes real monitors: what PromQL says of replicas is what one monitor would say of the whole."""

from __future__ import annotations

import json
import math
import random
import subprocess
import time
import urllib.request

import pytest

from ragmon.core.record import Latency
from ragmon.export.status import SdkStats
from ragmon.monitor.embedded import Monitor
from ragmon.testing import make_record
from tests.support.servers import prometheus
from tests.support.waiting import TIMEOUT

GOLD = [
    {"qid": f"q{n}", "question": f"Question {n}?", "answerable": True, "gold_citations": [f"d{n}", "d9"]}
    | {"gold_claim_substr": ["answer"]}
    for n in range(8)
] + [{"qid": "none", "question": "Nobody knows?", "answerable": False}]
CONFIG = """
[slices]
lang = ["de", "en"]
[gold.gold]
path = "gold.jsonl"
[gates.answer_precision]
at_least = 0.9
source = "probe"
[gates.compliance]
at_least = 0.5
"""
RECORDS = 600
PRECISION = "rag_answer_precision"
"""What the probes of these records get right lies well below the gate."""


def records():
    """Users and probes of mixed success, all of them just now."""
    chance = random.Random(7)
    ids = [f"d{n}" for n in range(12)]
    now = time.time()
    for number in range(RECORDS):
        retrieved = chance.sample(ids, chance.randint(0, 9))
        yield make_record(
            chance.choice(GOLD)["qid"] if number % 3 else None,
            source="probe" if number % 3 else "live",
            claim=chance.choice(["an answer", "something else", "not in context"]),
            citations=retrieved[:2],
            retrieved=retrieved,
            error="TimeoutError" if number % 50 == 0 else None,
            tags={"lang": chance.choice(["de", "en", "fr"])},
            latency_ms=Latency(total=chance.uniform(1, 3000), retrieve=chance.uniform(1, 90)),
            ts=now,
        )


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    from ragmon.config.load import load  # noqa: PLC0415 - skipped tests need no configuration

    folder = tmp_path_factory.mktemp("replicas")
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, GOLD)))
    (folder / "ragmon.toml").write_text(CONFIG)
    return load(folder / "ragmon.toml", environ={})


@pytest.fixture(scope="module")
def whole(settings):
    """One monitor that saw every record."""
    monitor = Monitor(settings)
    for record in records():
        monitor.submit(record)
    return monitor


@pytest.fixture(scope="module")
def replicas(settings):
    """Two monitors that saw a part each, and a name no label can hold."""
    chance = random.Random(8)
    with Monitor(settings).start("127.0.0.1:0") as one, Monitor(settings).start("127.0.0.1:0") as other:
        for record in records():
            (one if chance.random() < 0.3 else other).submit(record)
        one.submit(make_record(source="live", pipeline='"\n\\' + "x" * 10_000 + "\ud800", ts=time.time()))
        for monitor, calls in ((one, 1000), (other, 500)):
            monitor.captured = lambda calls=calls: SdkStats(calls={("default", "live", "rest"): calls})
        yield one, other


@pytest.fixture(scope="module")
def server(real, replicas, tmp_path_factory):
    """A Prometheus that has scraped both replicas."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus(real("prometheus"), folder, [monitor.address for monitor in replicas]) as found:
        found.wait_for('sum(ragmon_records_scored_total{stage="score"})', RECORDS + 1)
        found.wait_for("count(up == 1)", 2)
        yield found


def stat(monitor, metric, source, gold):
    return monitor.snapshot().snapshot.find("default", source, gold=gold).metrics[metric]


@pytest.mark.slow
def test_prometheus_takes_the_whole_exposition(server):
    targets = server.ask("targets")["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")] * 2


def test_every_metric_summed_over_replicas_and_divided_is_that_of_the_whole(server, whole):
    compared = 0
    for series in whole.snapshot().snapshot.series:
        if series.window != "all" or series.slice or series.source == "match":
            continue
        for key, found in series.metrics.items():
            name, _, k = key.partition("@")
            if found.value is None or (key in whole.snapshot().snapshot.gold_metrics) != bool(series.gold):
                continue
            labels = f'{{pipeline="default",source="{series.source}",gold="{series.gold}",k="{k}"}}'
            # Over a minute: a scrape that took too long leaves a gap.
            total = f"sum(last_over_time(rag_{name}_scored_total{labels}[1m]))"
            ratio = f"sum(last_over_time(rag_{name}_score_total{labels}[1m])) / {total}"
            assert server.value(ratio) == pytest.approx(found.value, abs=1e-9), ratio
            assert server.value(total) == found.n
            compared += 1
    assert compared > 30


def test_the_variance_of_a_graded_metric_can_be_had_in_promql(server, whole):
    found = stat(whole, "recall@5", "probe", "gold")
    of = 'sum(rag_recall_{}_total{{source="probe",k="5"}})'
    mean = f"{of.format('score')} / {of.format('scored')}"
    variance = server.value(f"{of.format('score_squares')} / {of.format('scored')} - ({mean}) ^ 2")
    assert 0 < found.value < 1
    assert variance == pytest.approx(found.squares / found.n / 1e12 - found.value**2)


def test_slices_latency_documents_and_requests_add_up_over_replicas(server, whole):
    series = {s.slice: s for s in whole.snapshot().snapshot.series if s.window == "all" and s.source == "live"}
    sliced = server.query('sum by (slice) (rag_slice_scored_total{metric="compliance",source="live"})')
    assert sliced == {(("slice", name),): found.metrics["compliance"].n for name, found in series.items() if name}
    assert len(sliced) == 3
    assert server.value('sum(rag_e2e_latency_seconds_count{source="live"})') == RECORDS / 3
    median = server.value('histogram_quantile(0.5, sum by (le) (rag_e2e_latency_seconds_bucket{source="probe"}))')
    assert 1.0 < median < 2.0
    assert server.value('sum(rag_retrieved_documents_count{source="probe"})') == RECORDS * 2 / 3
    assert server.value('sum(rag_requests_total{source="live",stratum="rest"})') == 1500


def test_gauges_and_verdicts_are_those_of_each_replica(server, replicas):
    for monitor in replicas:
        at = f'{{instance="{monitor.address}",pipeline="default"'
        series = monitor.snapshot().snapshot.find("default", "probe", window="1h", gold="gold")
        value = server.value(f'{PRECISION}{at},source="probe",window="1h"}}')
        assert value == pytest.approx(series.metrics["answer_precision"].value)
        judged = server.query(f'ragmon_gate_status{at},gate="answer_precision"}} == 1')
        assert [dict(labels)["status"] for labels in judged] == ["fail"]
        assert server.value(f'ragmon_gate_value{at},gate="answer_precision"}} < ragmon_gate_threshold') == value


def test_what_has_no_data_is_no_sample_and_nothing_is_nan(server):
    assert server.query("rag_groundedness") == {}
    everything = server.ask("query", query='{__name__=~"rag_.+|ragmon_.+"}')["result"]
    assert len(everything) > 1000
    assert not [found["metric"] for found in everything if math.isnan(float(found["value"][1]))]
    assert server.value("sum(ragmon_accounting_residual)") == 0


def test_counters_go_on_from_where_they_were(server, replicas):
    """Last: the other tests know how many records there are."""
    one, _ = replicas
    before = server.value(f'sum(rag_compliance_scored_total{{instance="{one.address}"}})')
    for _ in range(5):
        one.submit(make_record(source="live", ts=time.time()))
    server.wait_for(f'sum(rag_compliance_scored_total{{instance="{one.address}"}})', before + 5)


@pytest.mark.slow
def test_promtool_finds_nothing_to_say(real, replicas):
    with urllib.request.urlopen(f"http://{replicas[1].address}/metrics", timeout=TIMEOUT) as response:
        text = response.read()
    done = subprocess.run([real("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
