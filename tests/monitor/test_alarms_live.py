"""The alarms of a running monitor: those of a replay of the same records, whoever looks and however often."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse

from ragmon.alarms.pipelines import as_alert_line
from ragmon.config.load import defaults, load
from ragmon.core.errors import UnknownNameError
from ragmon.core.record import Record
from ragmon.export.prometheus import Collector
from ragmon.export.status import MonitorSnapshot
from ragmon.ingest.gold import load_gold
from ragmon.metrics import Metric, base
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.replay import AlarmReplay
from ragmon.scoring.scorer import ScorerFactory
from ragmon.scoring.snapshot import Snapshot
from ragmon.testing import FakeClock
from tests.support.alarming import FAULTS, GOOD, World, live, mixed, with_template, write_config
from tests.support.random_records import NOON, worlds


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Settings with two pipelines, gold and slices."""
    return load(write_config(tmp_path_factory.mktemp("several")), environ={})


def offline(settings, records):
    """The edge lines of a replay."""
    watching = AlarmReplay(ScorerFactory(settings, load_gold(settings.gold)))
    for record in watching.follow(records):
        watching.scorer.observe(record)
    return [as_alert_line(transition) for transition in watching.transitions]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_monitor_tells_what_a_replay_tells_whoever_reads_it_and_when(several, seed):
    """The first one is read by nobody until the end, the others at random moments."""
    records = list(mixed(seed))
    expected = offline(several, records)
    assert len(expected) > 10
    assert live(several, records, look=random.Random(seed) if seed else None) == expected


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(worlds(20, spread=60))
def test_it_does_so_for_whatever_a_record_may_hold(several, world):
    """Half an hour in which the same odd requests come every minute."""
    requests = sorted((r for r in world[1] if r.ts is not None), key=lambda record: record.ts)
    records = [msgspec.structs.replace(r, ts=r.ts + 60 * minute) for minute in range(30) for r in requests]
    assert live(several, records) == offline(several, records)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return FakeClock(NOON)


@pytest.fixture
def monitor(clock):
    return Monitor(with_template(), clock=clock)


def submit(monitor, clock, *answers, **fields):
    for number, answer in enumerate(answers):
        monitor.submit(Record(**{"ts": clock(), "source": "live", "q": f"{clock()} {number}", **answer, **fields}))


def broken(monitor, clock, minutes=1, **fields):
    """Minutes in which half of all answers break the template; the last one is not over."""
    for minute in range(minutes):
        clock.advance(60 * bool(minute))
        submit(monitor, clock, *[FAULTS["listless"], GOOD] * 20, **fields)


def firing(monitor):
    return {f"{state.pipeline}/{state.alert}" for state in monitor.snapshot().alarms if state.firing is not None}


def test_a_minute_is_judged_when_it_is_over_even_if_nothing_comes_after_it(monitor, clock):
    broken(monitor, clock)
    clock.advance(59.9)
    assert (firing(monitor), monitor.transitions()) == (set(), [])
    clock.advance(0.1)
    assert "default/compliance" in firing(monitor)
    assert {edge.ts for edge in monitor.transitions()} == {NOON + 60}
    assert {state.firing for state in monitor.snapshot().alarms if state.firing is not None} == {NOON + 60}


def test_records_count_when_they_come(monitor, clock):
    """A sender that was cut off for two hours tells of then; what it tells is known now."""
    clock.advance(7200)
    broken(monitor, clock, ts=NOON)
    clock.advance(60)
    assert {edge.ts for edge in monitor.transitions()} == {NOON + 7260}


def test_a_record_from_the_future_is_in_no_alarm(monitor, clock):
    broken(monitor, clock, 2, ts=NOON + 7200)
    clock.advance(10_000)
    assert monitor.transitions() == []
    assert monitor.snapshot().stages["score"].dropped == {"too_future": 80}


# --- what is shown ----------------------------------------------------------------------------------------------------


LABELS = {"ragmon_gate_alarm": ("pipeline", "gate", "severity"), "ragmon_gate_evidence": ("pipeline", "gate")}


def exposed(monitor):
    """What Prometheus reads of alarms, by their labels: whether they fire, and how far they are on their way."""
    registry = CollectorRegistry()
    registry.register(Collector(monitor.snapshot))
    found = {name: {} for name in LABELS}
    for family in parse(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name in found:
                labels = tuple(
                    sample.labels[name] for name in ("pipeline", "gate", "severity") if name in sample.labels
                )
                assert len(labels) == len(sample.labels)
                assert labels not in found[sample.name]
                found[sample.name][labels] = sample.value
    return found.values()


def test_the_exposition_shows_every_alarm_and_how_far_it_is(monitor, clock):
    assert list(exposed(monitor)) == [{}, {}], "nobody has asked anything yet"
    submit(monitor, clock, *[GOOD] * 30, *[FAULTS["empty"]] * 6, pipeline="support")
    clock.advance(60)
    alarm, evidence = exposed(monitor)
    states = monitor.snapshot().alarms
    assert alarm == {("support", state.alert, state.severity): 0 for state in states}
    assert evidence == {("support", state.alert): pytest.approx(state.evidence) for state in states}
    assert 0 < evidence["support", "empty_retrieval_rate"] < 1
    submit(monitor, clock, *[FAULTS["empty"]] * 40, pipeline="support")
    clock.advance(60)
    alarm, evidence = exposed(monitor)
    assert alarm["support", "empty_retrieval_rate", "page"] == 1
    assert evidence["support", "empty_retrieval_rate"] == 1
    assert (alarm["support", "compliance", "page"], alarm["support", "index_hash:drift", "ticket"]) == (0, 0)
    assert all(0 <= value <= 1 for value in evidence.values())


def test_evidence_grows_until_it_fires(monitor, clock):
    """A weak fault builds up minute by minute: that is what a dashboard shows before anybody is called."""
    seen = []
    while "default/compliance" not in firing(monitor):
        submit(monitor, clock, FAULTS["listless"], *[GOOD] * 19)
        clock.advance(60)
        (state,) = (s for s in monitor.snapshot().alarms if s.alert == "compliance")
        seen.append(state.evidence)
        assert len(seen) < 200
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert (seen[0] < 0.1, seen[-1]) == (True, 1.0)


# --- acknowledging ----------------------------------------------------------------------------------------------------


def test_an_acknowledged_alarm_is_silent_until_there_is_proof_again(monitor, clock):
    broken(monitor, clock, 3)
    clock.advance(60)
    assert "default/compliance" in firing(monitor)
    assert monitor.acknowledge("compliance") is True
    assert monitor.acknowledge("compliance") is False
    assert "default/compliance" not in firing(monitor)
    assert [(edge.alert, edge.state) for edge in monitor.transitions()][-1] == ("compliance", "resolved")
    times = [edge.ts for edge in monitor.transitions()]
    assert times == sorted(times)
    broken(monitor, clock, 3)
    clock.advance(60)
    assert "default/compliance" in firing(monitor)


def test_acknowledging_judges_first_what_is_over(monitor, clock):
    """Else it would silence nothing, and the alarm would begin a moment later."""
    broken(monitor, clock)
    clock.advance(60)
    assert monitor.acknowledge("compliance") is True
    assert "default/compliance" not in firing(monitor)


def test_a_name_nobody_knows_is_refused(monitor, clock):
    broken(monitor, clock)
    clock.advance(60)
    monitor.transitions()
    for arguments in (("complience",), ("compliance", "support")):
        with pytest.raises(UnknownNameError, match=r"unknown (alarm|pipeline)"):
            monitor.acknowledge(*arguments)


# --- what fails -------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing():
    """A metric that cannot score an answer without citations."""

    class Picky(Metric):
        """Share of answers it likes."""

        name = "picky"

        def score(self, facts):
            return 1 / facts.cites_retrieved

    base.register(Picky)
    yield
    del base._families["picky"]


@pytest.mark.usefixtures("failing")
def test_a_metric_that_fails_in_an_alarm_neither_raises_nor_costs_the_record_that_comes_next(clock):
    """What it is handed is foreign code; received is scored and dropped, always."""
    monitor = Monitor(defaults(), clock=clock)
    submit(monitor, clock, FAULTS["uncited"])
    clock.advance(60)
    submit(monitor, clock, GOOD, GOOD)
    scorer = monitor._engine.scorer
    assert scorer.scored + sum(scorer.dropped.values()) == monitor._received == 3


def test_the_exposition_says_what_alarms_hold_metrics_against_and_where_that_comes_from():
    """`learning` is no guard yet: whoever looks must see it; a baseline that does not change any more has a version."""
    world = World()
    world.run(30)
    learning = registry_of(world)
    key = {"pipeline": "default", "gate": "coverage:look"}
    assert learning.get_sample_value("ragmon_gate_baseline", key) is None
    told = {**key, "state": "learning", "version": ""}
    assert learning.get_sample_value("ragmon_gate_baseline_info", told) == 1
    world.run(60)
    growing = registry_of(world)
    assert 0.8 < growing.get_sample_value("ragmon_gate_baseline", key) < 1.0
    assert growing.get_sample_value("ragmon_gate_baseline_info", {**told, "state": "growing"}) == 1


def registry_of(world):
    """What the alarms of a world look like to Prometheus."""
    registry = CollectorRegistry()
    registry.register(Collector(lambda: MonitorSnapshot(Snapshot(0.0, ()), alarms=world.alarms.states())))
    return registry
