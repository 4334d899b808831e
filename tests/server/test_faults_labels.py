"""Labels nobody meant to have so many of: what is counted stays small, whatever is sent."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.record import Answer, Record, Sampling, Totals
from ragmon.export.prometheus import Collector
from ragmon.monitor.engine import Engine
from ragmon.server.reader import open_readonly
from tests.support.process_usage import peak
from tests.support.serving import (
    BEGIN,
    accounted,
    configuration,
    digest,
    get,
    process,
    replayed,
    send_body,
    serving,
    whole,
)

CONFIG = '[pipelines.support]\n[slices]\nlang = ["de"]\n'
PIPELINES = 50
"""Pipelines nobody configured that have a name of their own, at most."""
SERIES = 10_000
"""Prometheus series, at most."""
PAIRS = 32
"""Builds with their indexes that a pipeline keeps apart."""
ANSWER = Answer("an answer", ["d1"])
KINDS = {
    "pipelines": lambda n: {"pipeline": f"pipeline {n}"},
    "builds": lambda n: {"build": f"build {n}"},
    "indexes": lambda n: {"index_hash": f"index {n}"},
    "strata": lambda n: {"sampling": Sampling(True, f"stratum {n}", 1.0, 1.0)},
    "tags": lambda n: {"tags": {"lang": f"language {n}", f"tag {n}": "x"}},
    "requests": lambda n: {"session": f"session {n}", "qid": f"q{n}", "q": f"What is {n}?"},
}


def everything(n):
    """All labels at once; every other request is in a stratum that is known."""
    kinds = [kind for name, kind in KINDS.items() if n % 2 or name != "strata"]
    return {name: value for kind in kinds for name, value in kind(n).items()}


def record(n, now, **fields):
    told = {"pipeline": "support", "trace_id": f"{n + 1:032x}", "retrieved_ids": ["d1"], "answer_json": ANSWER}
    return Record(v=1, ts=now, source="live", **{**told, **fields})


def series(live):
    """What is kept apart, by pipeline."""
    found = defaultdict(set)
    for key in live.scorer.state.series:
        found[key.pipeline].add((key.build, key.index_hash))
        assert key.stratum in (*constants.STRATA, constants.UNKNOWN_WEIGHT)
        assert key.slice in ("", "lang=de", f"lang={constants.OTHER}")
    return found


def check(live):
    """Whether what is kept apart is as little as was promised."""
    found = series(live)
    assert len(found.keys() - {"support", constants.OTHER}) <= PIPELINES
    assert (
        max(len(pairs - {(constants.OTHER, constants.OTHER)}) for pairs in found.values()) <= PAIRS + 1
    )  # one without a name
    return found


def feed(live, kind, n, minutes):
    """So many requests in so many minutes, with labels of a kind that are all different."""
    for number in range(n):
        now = BEGIN + 60.0 * minutes * number / n
        assert live.observe(record(number, now, **kind(number)), now)


@pytest.fixture
def live(tmp_path):
    return Engine(load(configuration(tmp_path, CONFIG), environ={}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_of_any_label_only_so_many_values_are_kept_apart(live, kind):
    feed(live, KINDS[kind], 50_000, 100)
    found = check(live)
    assert live.scorer.scored == 50_000
    if kind == "pipelines":
        assert constants.OTHER in found
        assert 10 < len(found.keys()) <= PIPELINES + 1
    else:
        assert found.keys() == {"support"}
    if kind == "strata":
        assert {key.stratum for key in live.scorer.state.series} == {constants.UNKNOWN_WEIGHT}
    if kind == "tags":
        assert {key.slice for key in live.scorer.state.series} == {"", f"lang={constants.OTHER}"}


@pytest.mark.slow
def test_half_a_million_requests_with_nothing_in_common_take_little_memory_and_no_long_page(live):
    """Everything about each of them is new, in three hours; what nobody configured is counted all the same."""
    feed(live, everything, 200_000, 40)
    before = held()
    feed(live, lambda n: everything(n + 200_000), 300_000, 140)
    assert held() - before < 24 << 20  # 84 bytes a request
    found = check(live)
    assert constants.OTHER in found
    assert live.scorer.scored == 500_000
    page = exposed(live)
    small(page.decode())
    assert counted(page.decode(), "rag_retrieved_documents_count") == 500_000


def small(page):
    """Whether a page of metrics is one Prometheus reads in no time: so many lines for each pipeline, and no more."""
    assert len(page) < 4 << 20
    assert sum(not line.startswith("#") for line in page.splitlines()) <= SERIES
    shown = {sample.labels.get("pipeline") for family in parse(page) for sample in family.samples}
    assert len(shown - {None, "support", constants.OTHER}) <= PIPELINES
    assert constants.OTHER in shown


def counted(page, name):
    """The sum of a family's samples."""
    return sum(sample.value for family in parse(page) for sample in family.samples if sample.name == name)


@pytest.mark.slow
def test_a_hundred_thousand_requests_with_nothing_in_common_are_all_counted(tmp_path):
    """Through a real server: its memory, its pages and its checkpoints do not grow with what is sent."""
    configuration(tmp_path, CONFIG)
    with process(tmp_path) as running:
        begin = running.status()["now"]
        for n in range(0, 100_000, 1000):
            send_body(running, whole([record(k, begin, **everything(k)) for k in range(n, n + 1000)]))
            if n == 50_000:
                get(f"{running.admin}/metrics")
                half = peak(running.pid)
        books = accounted(running)
        assert (books["scored"], books["received"]) == (100_000, 100_000)
        page = get(f"{running.admin}/metrics")[1]
        small(page)
        assert counted(page, "rag_retrieved_documents_count") == 100_000
        assert peak(running.pid) - half < 48 << 20
        assert running.stop() == 0
    with open_readonly(tmp_path / "state") as journal:
        assert len(journal.checkpoint().data) < 4 << 20
    with serving(tmp_path, CONFIG) as running:
        assert accounted(running)["scored"] == 100_000
        found = digest(running)
    assert replayed(tmp_path) == found


@pytest.mark.slow
def test_totals_of_ever_new_producers_are_kept_apart_up_to_a_number(tmp_path):
    """Past it they count for nothing, until some have been silent for a day."""
    live = Engine(load(configuration(tmp_path, CONFIG), environ={}))

    def tell(n, now):
        line = Totals(ts=now, instance=f"i{n}", started=BEGIN, pipeline="support", source="live", calls=1, kept=1)
        return live.report(line, now)

    taken = [tell(n, BEGIN + 0.01 * n) for n in range(24_000)]
    assert taken == [True] * 20_000 + [False] * 4000
    assert tell(0, BEGIN + 300.0)
    assert tell(24_000, BEGIN + 86_400.0 + 250.0)


def held():
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def exposed(live):
    registry = CollectorRegistry()
    registry.register(Collector(lambda: live.monitor_snapshot(BEGIN + 3 * 3600.0, {})))
    return generate_latest(registry)
