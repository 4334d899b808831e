"""Names a stranger sends: how many series they make, what a scrape costs beside them, and when they are given up."""

from __future__ import annotations

import json
import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.cli.doctor_checks import place_checks
from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.record import Latency, Sampling, Totals
from ragmon.export.families import NAMES_OVERFLOW, RECEIVED, UNASSESSED, budget
from ragmon.export.prometheus import families
from ragmon.export.status import SdkStats, warnings
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.engine import Engine
from ragmon.scoring.cardinality import SILENT
from ragmon.server.pending import decode_labels
from ragmon.testing import make_record
from tests.support.manual_writer import ManualWriter
from tests.support.process_usage import cpu_seconds
from tests.support.serving import configuration, get, process, send_body, values, whole
from tests.support.waiting import wait_for

CONFIG = '[pipelines.support]\n[slices]\nlang = ["de"]\n'
MOST = 10_000
"""Series there may be."""
CHEAP = 0.25
"""Seconds of the server's time that a scrape may take."""
DAY = SILENT
HOUR = 3600.0
NOW = 1_763_683_200.5


def record(number, at, **fields):
    """A request with everything that makes series."""
    told = {"v": 1, "trace_id": f"{number + 1:032x}", "source": "live", "pipeline": "support", "q": f"what {number}?"}
    return make_record(**{**told, "ts": at, "latency_ms": Latency(100.0 + number % 900, 10.0, 50.0), **fields})


def stratum(rng):
    return Sampling(rng.random() < 0.5, rng.choice((*constants.STRATA, "x", "y")), 1.0, 1.0)


SOURCES = ("live", "probe", "match", "replay")
ATTACKS = {
    "pipelines": lambda n, ts, rng: {"pipeline": f"pod-{n}"},
    "builds": lambda n, ts, rng: {"pipeline": f"pod-{n % 60}", "build": f"b{n}", "index_hash": f"i{n % 7}"},
    "sources": lambda n, ts, rng: {"pipeline": f"pod-{n % 30}", "source": rng.choice(SOURCES)},
    "strata": lambda n, ts, rng: {"pipeline": f"pod-{n % 30}", "sampling": stratum(rng)},
    "errors": lambda n, ts, rng: {"pipeline": f"pod-{n % 30}", "error": f"E{n}"},
    "tags": lambda n, ts, rng: {"tags": {"lang": f"l{n}", f"t{n}": "x"}},
    "times": lambda n, ts, rng: {"pipeline": f"pod-{n % 30}", "ts": ts - rng.random() * 6 * DAY},
}


def everything(number, ts, rng):
    """All of them at once."""
    found = {name: value for attack in ATTACKS.values() for name, value in attack(number, ts, rng).items()}
    builds = {"pipeline": f"pod-{number % 40}", "build": f"b{rng.randrange(32)}", "index_hash": f"i{rng.randrange(4)}"}
    return {
        **found,
        **builds,
        "tags": {"lang": rng.choice(("de", "fr"))},
        "ts": ts - rng.choice((0, 60, HOUR, 5 * DAY)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("attack", [*ATTACKS, "everything"])
def test_a_scrape_takes_a_quarter_of_a_second_at_most_whatever_names_are_sent(tmp_path, attack):
    """Of a real server, with a request between two scrapes, so that nothing counted before can be shown again."""
    fields, rng, n = ATTACKS.get(attack, everything), random.Random(7), 4000
    configuration(tmp_path, CONFIG)
    with process(tmp_path) as running:
        now = running.status()["now"]

        def send(begin, end):
            send_body(running, whole([record(k, now, **fields(k, now, rng)) for k in range(begin, end)]))

        for begin in range(0, n, 1000):
            send(begin, begin + 1000)
        wait_for(running.books, lambda books: books["received"] == n)
        get(f"{running.admin}/metrics")
        costs = []
        for again in range(6):
            send(n + again, n + again + 1)
            wait_for(running.books, lambda books, asked=again: books["received"] == n + asked + 1)
            before = cpu_seconds(running.pid)
            page = get(f"{running.admin}/metrics")[1]
            costs.append(cpu_seconds(running.pid) - before)
        assert sum(costs) / len(costs) <= CHEAP
        assert len(values(page)) <= MOST
        assert running.stop() == 0


@pytest.mark.slow
def test_a_scrape_after_which_nothing_came_costs_nothing_and_says_the_same(tmp_path):
    configuration(tmp_path, CONFIG)
    with process(tmp_path) as running:
        now, rng = running.status()["now"], random.Random(1)
        send_body(running, whole([record(n, now, **everything(n, now, rng)) for n in range(2000)]))
        wait_for(running.books, lambda books: books["received"] == 2000)
        before = cpu_seconds(running.pid)
        first = get(f"{running.admin}/metrics")[1]
        once = cpu_seconds(running.pid) - before
        before = cpu_seconds(running.pid)
        pages = {get(f"{running.admin}/metrics")[1] for _ in range(20)}
        assert cpu_seconds(running.pid) - before < 20 * once / 4
        assert (
            len({tuple(values(page).items()) for page in (first, *pages)}) <= 3
        )  # edges of windows are ten seconds apart
        send_body(running, whole([record(5000, now)]))
        wait_for(running.books, lambda books: books["received"] == 2001)
        received = f'{RECEIVED}{{stage="ingest"}}'
        assert values(get(f"{running.admin}/metrics")[1])[received] == 2001


@pytest.fixture
def live(tmp_path):
    return Engine(load(configuration(tmp_path, CONFIG), environ={}))


def shown(live, now):
    """The pipelines on the page, and how many series there are."""
    samples = [sample for family in families(live.monitor_snapshot(now, {})) for sample in family.samples]
    return {sample.labels.get("pipeline") for sample in samples} - {None}, len(samples)


def total(live, now, name, **labels):
    """The sum of a family's samples."""
    samples = (sample for family in families(live.monitor_snapshot(now, {})) for sample in family.samples)
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([*ATTACKS, "everything"]), st.integers(1, 60)), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_no_mixture_of_names_makes_more_series_than_the_budget(attacks):
    live, rng, number = Engine(load_defaults()), random.Random(3), 0
    for attack, n in attacks:
        for _ in range(n * 5):
            number += 1
            live.observe(record(number, NOW, **ATTACKS.get(attack, everything)(number, NOW, rng)), NOW)
    live.advance(NOW + 120)
    assert shown(live, NOW + 120)[1] <= MOST
    assert live.scorer.scored + sum(live.scorer.dropped.values()) == number


def load_defaults():
    from ragmon.config.load import defaults  # noqa: PLC0415 - beside its only use

    return defaults()


def test_a_small_budget_has_room_for_configured_pipelines_alone(tmp_path):
    path = configuration(tmp_path, CONFIG)
    path.write_text(path.read_text(encoding="utf-8") + "max_series = 100\n", encoding="utf-8")
    live = Engine(load(path, environ={}))
    for n, pipeline in enumerate(("a stranger", "support")):
        assert live.observe(record(n, NOW, pipeline=pipeline), NOW)
    assert shown(live, NOW + 60)[0] == {"support", constants.OTHER}
    assert total(live, NOW + 60, NAMES_OVERFLOW, kind="pipeline") == 1


def test_of_25_services_and_a_gold_file_for_all_the_number_is_named_with_which_each_has_its_gates(tmp_path):
    """The gold file has twelve items and names no pipeline. Doctor and the page say the number."""
    items = [{"qid": f"q{n}", "question": f"What is {n}?", "relevant_ids": ["d1"]} for n in range(12)]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    needed, services = 10_000, {f"service-{n}" for n in range(25)}
    for _ in range(2):
        path = configuration(tmp_path, '[gold.all]\npath = "gold.jsonl"\n')
        path.write_text(path.read_text(encoding="utf-8") + f"max_series = {needed}\n", encoding="utf-8")
        live = Engine(load(path, environ={}))
        for n in range(250):
            live.observe(record(n, NOW, pipeline=f"service-{n % 25}", q=f"What is {n % 12}?"), NOW)
        live.advance(NOW + 120)
        reading = live.monitor_snapshot(NOW + 120, {})
        with_gates = {outcome.gate.pipeline for outcome in reading.outcomes} & services
        if reading.needed_series is None:
            break
        (check,) = place_checks(reading.needed_series)
        assert f"max_series = {reading.needed_series}" in check.hint
        assert any(check.hint.split(",")[0] in warning.hint for warning in warnings(reading))
        assert with_gates < services
        needed = reading.needed_series
    assert (with_gates, reading.needed_series) == (services, None)
    assert shown(live, NOW + 120)[1] <= needed


@pytest.mark.parametrize("places", [100, MOST], ids=["less than configured pipelines need", "usual"])
def test_with_the_number_that_is_named_every_pipeline_and_source_has_a_place_and_none_is_named_again(tmp_path, places):
    sent = [(f"service-{n}", source) for n in range(40) for source in ("live", "probe")]

    def engine(most):
        path = configuration(tmp_path, "[pipelines.support]\n")
        path.write_text(path.read_text(encoding="utf-8") + f"max_series = {most}\n", encoding="utf-8")
        return Engine(load(path, environ={}))

    def send(live):
        for n, (pipeline, source) in enumerate(sent):
            live.observe(record(n, NOW, pipeline=pipeline, source=source), NOW)
        return live.monitor_snapshot(NOW + 60, {}).needed_series

    full = engine(places)
    needed = send(full)
    fresh, later = engine(needed), engine(needed)
    later.restore(full.dump())
    assert (send(fresh), send(later)) == (None, None)


def test_names_that_do_not_fit_are_counted_by_their_kind(live):
    for n in range(300):
        live.observe(record(n, NOW, pipeline=f"pod-{n}"), NOW)
    for n in range(100):
        live.observe(record(n, NOW, build=f"b{n}", error=f"E{n}"), NOW)
    admitted = len(shown(live, NOW)[0] - {"support", constants.OTHER})
    assert 10 <= admitted < 100
    assert total(live, NOW, NAMES_OVERFLOW, kind="pipeline") == 300 - admitted
    assert total(live, NOW, NAMES_OVERFLOW, kind="build") == 100 - 32
    assert total(live, NOW, NAMES_OVERFLOW, kind="error_code") == 100 - 32
    assert live.scorer.scored == 400


def test_a_pipeline_silent_for_a_day_gives_its_place_to_one_that_comes_later(live):
    for n in range(300):
        live.observe(record(n, NOW, pipeline=f"pod-{n}"), NOW)
    live.observe(record(400, NOW + 60, pipeline="late"), NOW + 60)
    assert "late" not in shown(live, NOW + 60)[0]
    live.observe(record(401, NOW + DAY - 120, pipeline="pod-0"), NOW + DAY - 120)
    later = NOW + DAY + 120
    live.observe(record(402, later, pipeline="late"), later)
    assert shown(live, later)[0] == {"support", "pod-0", "late", constants.OTHER}
    assert total(live, later, "rag_retrieved_documents_count", pipeline="late") == 1


def test_a_pipeline_that_is_given_up_leaves_nothing_behind_of_a_reload(live):
    live.observe(record(0, NOW, pipeline="pod"), NOW)
    live.gates.reread["pod"] = NOW
    live.observe(record(1, NOW + 2 * DAY), NOW + 2 * DAY)
    assert live.gates.reread == {}


def test_a_configured_pipeline_is_never_given_up(live):
    live.observe(record(0, NOW), NOW)
    live.observe(record(1, NOW + 30 * DAY, pipeline="a stranger"), NOW + 30 * DAY)
    assert total(live, NOW + 30 * DAY, "rag_retrieved_documents_count", pipeline="support") == 1


def test_no_counter_rises_by_what_is_given_up_and_sums_over_all_pipelines_never_fall(live):
    """`rate()` takes a fall for a restart and a jump for traffic: neither may come of a pipeline that went."""
    for n in range(300):
        live.observe(record(n, NOW, pipeline=f"pod-{n}"), NOW)

    def sums(now):
        samples = [sample for family in families(live.monitor_snapshot(now, {})) for sample in family.samples]
        lasting = ("_total", "_count", "_sum", "_bucket")
        return {
            (one.name, *one.labels.items()): one.value
            for one in samples
            if one.name.endswith(lasting) and one.labels.get("pipeline") in (None, constants.OTHER)
        }

    before, later = sums(NOW + 60), NOW + 2 * DAY
    live.observe(record(400, later), later)
    after = sums(later)
    assert before.keys() <= after.keys()
    risen = {key: after[key] - value for key, value in before.items() if after[key] != value}
    assert min(risen.values()) > 0
    assert {key[0] for key in risen} == {UNASSESSED}
    assert max(risen.values()) == 1
    assert live.scorer.scored == 301


def test_the_alarms_of_a_pipeline_that_is_given_up_end_and_the_log_says_so(live, caplog):
    caplog.set_level(logging.INFO, constants.ALARM_LOG)
    for minute in range(30):
        at = NOW + 60 * minute
        for n in range(100):
            live.observe(record(100 * minute + n, at, pipeline="pod", error="E"), at)
    live.advance(NOW + HOUR)
    firing = {state.alert for state in live.alarms.states() if state.firing is not None}
    assert firing
    live.transitions.clear()
    later = NOW + DAY + 2 * HOUR
    live.observe(record(0, later), later)
    assert {(edge.pipeline, edge.alert, edge.state) for edge in live.transitions} == {
        ("pod", alert, "resolved") for alert in firing
    }
    assert sum("alarm pod/" in said and "resolved" in said for said in caplog.messages) == len(firing)
    assert "pod" not in {state.pipeline for state in live.alarms.states()}
    assert later - 60 <= live.transitions[0].ts <= later + 60


@pytest.mark.slow
def test_a_replay_gives_up_the_same_pipelines_after_crashes_and_looks_at_the_clock(tmp_path):
    """Only what comes lets a pipeline go: how often the server looked at its clock, or began anew, changes nothing."""
    with ManualWriter(tmp_path, CONFIG) as writer:
        for day in range(4):
            for n in range(60):
                fields = {"pipeline": f"pod-{day}-{n}", "error": f"E{n}" if n % 3 else None}
                writer.send(whole([record(1000 * day + n, writer.time.now, **fields)]))
            rater = {"trace_id": f"{1000 * day + 1:032x}", "rater": "ada", "correct": True}
            writer.take(decode_labels([rater]))
            writer.save()
            writer.tick(HOUR)
            writer.again(2 * HOUR)
            for _ in range(10):
                writer.tick(0.1 * DAY)
        assert writer.agrees()
        edges = [(edge.pipeline, edge.alert, edge.state, edge.ts) for edge in writer.server_state.engine.transitions]
        assert (
            edges == [(e.pipeline, e.alert, e.state, e.ts) for e in writer.replayed().engine.transitions][-len(edges) :]
        )
        held = {key.pipeline for key in writer.server_state.engine.scorer.state.series}
        assert {name.split("-")[1] for name in held if name.startswith("pod")} == {"3"}
        assert constants.DROPPED_PIPELINES in held
        assert writer.books.residual == 0
        assert not writer.verified().problems if hasattr(writer.verified(), "problems") else True


def test_totals_with_names_of_their_own_make_no_series(tmp_path):
    """Sources, strata and reasons are what they are; what a producer calls otherwise is not taken, or another."""
    with ManualWriter(tmp_path, CONFIG) as writer:

        def tell(n, **fields):
            told = {"pipeline": "support", "source": "live", "stratum": "rest", "calls": 1, "kept": 1}
            line = Totals(ts=NOW, instance=f"i{n}", started=NOW - 9, **{**told, **fields})
            if writer.server_state.engine.report(line, NOW):
                writer.server_state.producers.see(line, NOW)

        for n in range(50):
            tell(n, source=f"s{n}")
            tell(n, stratum=f"s{n}")
            tell(n, dropped={f"reason {n}": 1})
        reading = writer.server_state.monitor_snapshot(NOW, 0)
        assert set(reading.captured.calls) == {("support", "live", "rest")}
        assert dict(writer.server_state.producers.dropped()) == {constants.OTHER: 50}


def test_what_the_budget_leaves_is_what_configured_pipelines_do_not_need(tmp_path):
    one = load(configuration(tmp_path, "[pipelines.a]\n"), environ={})
    two = load(configuration(tmp_path, "[pipelines.a]\n[pipelines.b]\n"), environ={})
    assert 0 < budget(two).room < budget(one).room < MOST


def test_a_producer_that_is_given_up_is_shown_no_longer_and_still_accounted_for(tmp_path):
    with ManualWriter(tmp_path, CONFIG) as writer:
        told = {"source": "live", "calls": 7, "kept": 7}
        line = Totals(ts=NOW, instance="i", started=NOW - 9, pipeline="pod", **told)
        writer.server_state.engine.report(line, NOW)
        writer.server_state.producers.see(line, NOW)
        missing = writer.server_state.producers.missing(0)
        later = NOW + 2 * DAY
        writer.server_state.engine.observe(record(0, later), later)
        assert writer.server_state.monitor_snapshot(later, 0).captured.calls == {}
        assert writer.server_state.producers.missing(0) == missing == 7


def test_an_application_that_makes_up_pipelines_is_under_the_same_budget():
    """What capture counted beside the records as well: calls that were never kept have names too."""
    monitor = Monitor(load_defaults(), clock=lambda: NOW)
    calls = {(f"pipeline {n}", "live", "rest"): n + 1 for n in range(500)}
    monitor.captured = lambda: SdkStats(calls=calls, errors={(name, "E"): 1 for name, _, _ in calls})
    assert 10 <= len(monitor.snapshot().captured.calls) < 100
    for n in range(500):
        monitor.submit(record(n, NOW, pipeline=f"pipeline {n}"))
    reading = monitor.snapshot()
    assert 10 <= len(reading.captured.calls) < 100
    assert sum(len(family.samples) for family in families(reading)) <= MOST
    assert reading.stages["score"].scored == 500
