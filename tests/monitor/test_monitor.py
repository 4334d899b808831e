"""The monitor in one process: what it counts, what it forgets, and how it is served."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import ragmon
from ragmon.config.load import defaults
from ragmon.core import errors
from ragmon.core.errors import RagmonError
from ragmon.core.record import Latency, Sampling
from ragmon.export.prometheus import Collector
from ragmon.metrics import Metric, base
from ragmon.monitor.embedded import Monitor
from ragmon.scoring.cardinality import BUILDS
from ragmon.testing import FakeClock, make_record
from tests.support.waiting import TIMEOUT

HOUR = 3600


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def monitor(clock):
    return Monitor(defaults(), clock=clock)


def samples(monitor):
    """Every sample a scrape would see: name and labels, and the value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in Collector(monitor.snapshot).collect()
        for sample in family.samples
    }


def counters(monitor):
    """The samples that must never fall."""
    families = list(Collector(monitor.snapshot).collect())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


def live(clock, **fields):
    return make_record(source="live", ts=clock(), **fields)


def test_a_registry_of_the_application_has_the_series_of_the_monitor(clock):
    """Each scrape of it is of that moment."""
    registry = CollectorRegistry()
    monitor = Monitor(defaults(), clock=clock, registry=registry)
    assert registry.get_sample_value("ragmon_records_scored_total", {"stage": "score"}) == 0
    monitor.submit(live(clock))
    assert registry.get_sample_value("ragmon_records_scored_total", {"stage": "score"}) == 1


def test_received_is_scored_and_dropped(monitor, clock):
    for ts in (clock(), clock() + 299, clock() + 301, clock() - 30 * 24 * HOUR, None):
        monitor.submit(make_record(source="live", ts=ts))
    books = monitor.snapshot().stages["score"]
    assert (books.received, books.scored) == (5, 3)
    assert books.dropped == {"too_future": 1, "too_old": 1}
    assert books.residual == 0


@pytest.fixture
def failing():
    """A metric that fails on some records, registered for one test."""

    class Picky(Metric):
        """Share of answers it likes."""

        name = "picky"

        def measure(self, record, item):
            if record.q == "poison":
                raise ZeroDivisionError(record.q)
            return 0.25 if item is None else 1.0

    base.register(Picky)
    yield
    del base._families["picky"]


@pytest.mark.usefixtures("failing")
def test_a_metric_that_fails_costs_the_record_is_counted_and_does_not_raise(clock, caplog, monkeypatch):
    monkeypatch.setattr(errors, "_said", set())
    monitor = Monitor(defaults(), clock=clock)
    with caplog.at_level(logging.WARNING, logger="ragmon"):
        for question in ("fine", "poison", "poison", "fine"):
            monitor.submit(live(clock, q=question))
    books = monitor.snapshot().stages["score"]
    assert (books.received, books.scored, books.dropped, books.residual) == (4, 2, {"scorer_error": 2}, 0)
    assert ["ZeroDivisionError at test_monitor.py" in entry.getMessage() for entry in caplog.records] == [True]
    assert "poison" not in caplog.text


@pytest.mark.usefixtures("failing")
def test_a_registered_metric_is_exported_with_its_docstring_as_help(clock):
    monitor = Monitor(defaults(), clock=clock)
    monitor.submit(live(clock))
    (family,) = (f for f in Collector(monitor.snapshot).collect() if f.name == "rag_picky")
    assert family.documentation == "Share of answers it likes."
    assert {(sample.labels["window"], sample.value) for sample in family.samples} == {
        ("5m", 0.25),
        ("1h", 0.25),
        ("24h", 0.25),
    }


def test_counters_never_fall_and_never_vanish_while_windows_empty_and_rows_expire(monitor, clock):
    """Two days of traffic with a pause; the longest window is a day, rows are kept an hour longer."""
    before, emptied = {}, False
    for hour in range(48):
        for answer in ("yes", "not in context", ""):
            if not 10 <= hour < 40:
                monitor.submit(
                    live(clock, claim=answer, citations=None, latency_ms=Latency(total=40.0 * hour), build=f"b{hour}")
                )
        now = counters(monitor)
        assert before.keys() <= now.keys()
        assert all(now[key] >= value for key, value in before.items())
        gauges = {key[-1] for key in samples(monitor) if key[0] == "rag_compliance"}
        emptied = emptied or not gauges
        before = now
        clock.advance(HOUR)
    assert emptied, "the pause is longer than the longest window"
    assert before["ragmon_records_scored_total", ("stage", "score")] == 54


def test_a_gauge_is_absent_once_its_window_is_empty(monitor, clock):
    monitor.submit(live(clock))
    windows = []
    for seconds in (0, 600, HOUR, 24 * HOUR):
        clock.advance(seconds)
        windows.append({dict(key[1:])["window"] for key in samples(monitor) if key[0] == "rag_compliance"})
    assert windows == [{"5m", "1h", "24h"}, {"1h", "24h"}, {"24h"}, set()]


def test_only_the_audit_share_is_estimated_on(monitor, clock):
    """A call that was kept because it failed says nothing about how often calls fail."""
    monitor.submit(live(clock))
    monitor.submit(live(clock, error="TimeoutError", sampling=Sampling(False, "error", 0.05, 1.0)))
    assert monitor.snapshot().snapshot.find("default", "live").metrics["error_rate"].value == 0.0


def test_a_pipeline_nobody_configured_is_judged_by_the_common_gates(monitor, clock):
    """Else a newcomer who names a pipeline in the decorator alone would never see a verdict on it."""
    for _ in range(400):
        monitor.submit(live(clock, pipeline="support"))
    verdicts = {(o.gate.pipeline, o.gate.name): o.verdict for o in monitor.outcomes()}
    assert verdicts["support", "coverage"] == "pass"
    assert {pipeline for pipeline, _ in verdicts} == {"support"}, "nobody named `default`, and nothing came of it"


def test_pipelines_may_be_judged_in_different_ways(configured, clock):
    settings = configured('[pipelines.a.gates]\nverdict = "point"\n[pipelines.b.gates]\nverdict = "interval"')
    monitor = Monitor(settings, clock=clock)
    for pipeline in "ab":
        monitor.submit(live(clock, pipeline=pipeline))
    verdicts = {(o.gate.pipeline, o.gate.name): o.verdict for o in monitor.outcomes()}
    assert verdicts["a", "coverage"] == "pass"
    assert verdicts["b", "coverage"] == "insufficient"


def test_the_builds_that_are_shown_are_those_of_each_pipeline_seen_last(monitor, clock):
    order = [*range(BUILDS), 0, BUILDS]
    for pipeline in ("support", "sales"):
        for number in order:
            monitor.submit(live(clock, pipeline=pipeline, build=f"b{number}", index_hash="i1"))
    shown = monitor.snapshot().builds
    for pipeline in ("support", "sales"):
        mine = [build for name, build, _ in shown if name == pipeline]
        assert mine == [*(f"b{number}" for number in range(2, BUILDS)), "b0", f"b{BUILDS}"]


def test_a_question_that_matched_gold_is_counted_once_in_what_counts_requests(configured, clock):
    """It stands under `live` and, as a gold draw, under `match`."""
    (configured().path.parent / "gold.jsonl").write_text(
        '{"qid": "q1", "question": "question q1", "answerable": true, "gold_citations": ["d1"]}\n'
    )
    monitor = Monitor(configured('[gold.gold]\npath = "gold.jsonl"'), clock=clock)
    for question in ("question q1", "Question Q1?", "another"):
        monitor.submit(live(clock, q=question, latency_ms=Latency(total=1.0), retrieved=None))
    monitor.submit(live(clock, q="question q1"))
    found = samples(monitor)
    pipeline = ("pipeline", "default")
    assert found["rag_e2e_latency_seconds_count", pipeline, ("source", "live")] == 3
    assert found["rag_retrieved_documents_count", pipeline, ("source", "live")] == 1
    assert not {key for key in found if ("latency" in key[0] or "documents" in key[0]) and ("source", "match") in key}
    assert found["ragmon_unassessed_total", ("metric", "empty_retrieval_rate"), ("reason", "no_ids")] == 3
    assert found["ragmon_unassessed_total", ("metric", "citation_hit_rate"), ("reason", "no_ids")] == 2


@pytest.mark.slow
def test_two_monitors_share_nothing(clock):
    one, other = Monitor(defaults(), clock=clock), Monitor(defaults(), clock=clock)
    with one.start("127.0.0.1:0"), other.start("127.0.0.1:0"):
        assert one.address != other.address
        one.submit(live(clock))
        assert scrape(one)["ragmon_records_scored_total", ("stage", "score")] == 1
        assert scrape(other)["ragmon_records_scored_total", ("stage", "score")] == 0
        assert one.digest() != other.digest()


def scrape(monitor):
    """What Prometheus would read over HTTP."""
    with urllib.request.urlopen(f"http://{monitor.address}/metrics", timeout=TIMEOUT) as response:
        text = response.read().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.slow
def test_starting_and_stopping_twice_changes_nothing(monitor):
    assert monitor.address is None
    address = monitor.start("127.0.0.1:0").address
    assert monitor.start("127.0.0.1:0").address == address
    monitor.stop()
    monitor.stop()
    assert monitor.address is None
    with monitor.start(address):
        assert scrape(monitor)["ragmon_config_last_reload_successful",] == 1


def test_it_listens_where_the_configuration_says(configured, clock):
    with Monitor(configured('[serve]\nadmin = "127.0.0.1:0"'), clock=clock) as monitor:
        assert scrape(monitor)["ragmon_accounting_residual", ("stage", "score")] == 0


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python knows no IPv6")
def test_it_listens_on_ipv6(monitor):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with monitor.start("[::1]:0"):
        assert monitor.address.startswith("[::1]:")
        assert scrape(monitor)


def test_a_port_that_is_taken_says_so_and_what_to_do(monitor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        with pytest.raises(RagmonError, match=f"cannot be served on {address} .*in use") as caught:
            monitor.start(address)
    assert caught.value.hint == "another process has the port: change `[serve] admin`"
    with monitor.start("127.0.0.1:0"):
        assert monitor.address


@pytest.mark.parametrize("address", ["9464", "localhost", "localhost:http", "127.0.0.1:99999", ":9464", "::1:9464"])
def test_an_address_that_is_none_is_refused(monitor, address):
    with pytest.raises(RagmonError, match="cannot be served on") as caught:
        monitor.start(address)
    assert '"127.0.0.1:4318"' in caught.value.hint


def test_an_address_of_another_machine_is_refused(monitor):
    with pytest.raises(RagmonError, match=r"cannot be served on 192\.0\.2\.1:9464") as caught:
        monitor.start("192.0.2.1:9464")
    assert "address of this machine" in caught.value.hint


def test_scrapes_while_records_are_scored_always_add_up(monitor, clock):
    """Four threads submit, four scrape: every scrape is one moment, and counters only grow."""
    done = threading.Event()

    def feed(_):
        for _ in range(150):
            monitor.submit(live(clock, latency_ms=Latency(total=7.0)))

    def watch(_):
        last, looks = 0, 0
        while not done.is_set():
            now = scrape(monitor)
            scored = now["ragmon_records_scored_total", ("stage", "score")]
            assert now["ragmon_accounting_residual", ("stage", "score")] == 0
            labels = (("gold", ""), ("gold_version", ""), ("pipeline", "default"), ("source", "live"))
            assert now.get(("rag_compliance_scored_total", *labels), 0) == scored >= last
            last, looks = scored, looks + 1
        return looks

    with monitor.start("127.0.0.1:0"), ThreadPoolExecutor(8) as pool:
        watching = [pool.submit(watch, n) for n in range(4)]
        list(pool.map(feed, range(4)))
        done.set()
        assert all(found.result() for found in watching)
    assert monitor.snapshot().stages["score"].scored == 600


def test_the_package_offers_it_under_its_name():
    assert ragmon.Monitor is Monitor


def test_the_log_names_a_gap_that_shows_only_later_and_each_gap_once(configured, tmp_path, caplog):
    """Ids are compared with gold where a question is in gold, which one in five is here: too few at the first look."""
    items = [
        {"qid": f"g{n}", "question": f"What is {n}?", "answerable": True, "gold_citations": [f"p#{n}"]} for n in (1, 2)
    ]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    monitor = Monitor(configured('[gold.gold]\npath = "gold.jsonl"\n'), clock=FakeClock())
    with caplog.at_level(logging.WARNING, logger="ragmon"):
        for number in range(2_500):
            question = "What is 1?" if number % 5 == 0 else f"Who is {number}?"
            monitor.submit(make_record(q=question, qid=None, source="live", retrieved=["u-1"], citations=None))
    lines = [line for line in caplog.messages if line.startswith("default, live: ")]
    assert len(lines) == 2
    assert "no list of citations in 20 of 20 answers" in lines[0]
    assert "none of 40 retrieved ids occurs in gold" in lines[1]
