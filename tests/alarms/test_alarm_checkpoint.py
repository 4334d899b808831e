"""What alarms remember: checkpoints that change nothing, and the baselines of a release run."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.alarms.baselines import frozen_file
from ragmon.config.load import defaults
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.replay import BaselineRecorder
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.scorer import ReductionRules, Scorer, ScorerFactory
from tests.support.alarming import GOLD, NOON, Traffic, World
from tests.support.examples import cases
from tests.support.random_records import NOON as START
from tests.support.random_records import worlds
from tests.support.saved import saved

FAULTS = {
    range(45, 60): {"wrong": 0.5},
    range(70, 80): {"error": 0.3, "slow": 2.0},
    range(80, 95): {"index": "i2"},
    range(100, 110): {"refused": 0.5, "over": 0.5},
}
"""By minutes after noon; the last quarter of an hour is well again."""
LENGTH = 125
EARLY = '[alarms]\nbaseline = { learn = "30m" }\n'


@pytest.fixture(scope="module")
def day():
    """The records of a day with all kinds of faults."""
    traffic = Traffic(11)
    return [
        record
        for number in range(LENGTH)
        for record in traffic.minute(
            NOON + number, **next((fault for when, fault in FAULTS.items() if number in when), {})
        )
    ]


def play(world, records):
    """Score records, and judge every minute as soon as the next one begins; what began and ended."""
    found = []
    for record in records:
        found += world.alarms.advance(record.ts)
        world.scorer.observe(record)
    return found


def end(world):
    return world.alarms.advance(float("inf"))


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """Settings that learn for half an hour."""
    from ragmon.config.load import load  # noqa: PLC0415 - the module's own folder, once

    path = tmp_path_factory.mktemp("checkpoint") / "ragmon.toml"
    path.write_text(EARLY, encoding="utf-8")
    return load(path, environ={})


@pytest.fixture(scope="module")
def straight(day, early):
    """What begins and ends when nothing is interrupted."""
    world = World(early)
    edges = play(world, day) + end(world)
    assert {edge.severity for edge in edges} == {"page", "look", "ticket"}
    assert {edge.state for edge in edges} == {"firing", "resolved"}
    assert len(edges) > 20
    return edges


class Replaceable:
    """An observer that hands everything to the steps it holds at the moment."""

    def __init__(self):
        self.steps = MinuteBatches({"lang=de"})

    def collect(self, *counted):
        self.steps.collect(*counted)


def collecting(gold):
    """A scorer that keeps steps, and what holds them."""
    holder = Replaceable()
    return Scorer(gold, observers=[holder], rules=ReductionRules(slices={"lang": ["de", "en"]})), holder


@pytest.mark.slow
@settings(max_examples=cases(150), deadline=None)
@given(worlds(), st.integers(0, 30), st.integers(0, 7200))
def test_open_minutes_survive_a_dump(world, cut, closed):
    """Written in the middle and read into new steps: the same minutes, to the last count."""
    gold, records = world
    (scorer, straight), (other, broken) = collecting(gold), collecting(gold)
    for number, record in enumerate(records):
        if number == cut:
            assert broken.steps.close(START + closed) == straight.steps.close(START + closed)
            open_steps = saved(broken.steps.state)
            broken.steps = MinuteBatches({"lang=de"})
            broken.steps.state = open_steps
        scorer.observe(record)
        other.observe(record)
    assert broken.steps.close(float("inf")) == straight.steps.close(float("inf"))
    assert broken.steps.state.late == straight.steps.state.late


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_however_often_it_is_restarted_the_same_begins_and_ends(day, early, straight, data):
    """At any record, in the middle of minutes: written and read by another process that knows nothing else."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(day) - 1), min_size=1, max_size=20)))
    world, found = World(early), []
    for begin, stop in zip([0, *cuts], [*cuts, len(day)], strict=True):
        fresh = World(early)
        fresh.alarms.restore(saved(world.alarms.state))
        found += play(fresh, day[begin:stop])
        world = fresh
    assert found + end(world) == straight


@pytest.mark.slow
def test_restarted_every_five_minutes_it_says_the_same_and_has_seen_the_same(day, early):
    """To the last bit of all evidence and every baseline."""
    straight, restarted = World(early), World(early)
    for begin in range(0, len(day), 300):
        again = World(early)
        again.alarms.restore(saved(restarted.alarms.state))
        restarted = again
        records = day[begin : begin + 300]
        assert play(restarted, records) == play(straight, records)
    assert end(restarted) == end(straight)
    assert restarted.alarms.state.pipelines == straight.alarms.state.pipelines


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0.2, 0.4, 0.45, 0.6, 0.82, 0.95])
def test_a_lost_checkpoint_delays_gates_and_raises_nothing(day, early, straight, cut):
    """An alarm that begins without its past has less evidence, never more."""
    gates = {alarm for alarm in World(early).alarms.of("default").rules if ":" not in alarm}
    place = int(cut * len(day))
    world = World(early)
    late = [edge for edge in play(world, day[place:]) + end(world) if edge.alert in gates and edge.state == "firing"]
    for edge in late:
        before = [e for e in straight if e.alert == edge.alert and e.ts <= edge.ts]
        assert before
        assert before[-1].state == "firing"


def test_two_that_go_on_from_one_checkpoint_share_nothing(day, early):
    first = World(early)
    play(first, day[:1000])
    alarms = first.alarms.state
    others = [World(early), World(early)]
    for other in others:
        other.alarms.restore(saved(alarms))
    expected = msgspec.msgpack.encode(others[1].alarms.state)
    play(others[0], day[1000:1400])
    assert msgspec.msgpack.encode(others[1].alarms.state) == expected


def test_a_checkpoint_holds_no_text_and_nobody():
    secrets = {"session": "anna", "q": "where is anna", "contexts": ["anna lives here"], "tags": {"lang": "anna"}}
    world = World()
    for _ in range(3):
        ts = 60.0 * world.minute
        world.feed(
            Record(ts=ts, source=source, latency_ms=Latency(total=5.0), answer_json=Answer("it is anna", []), **secrets)
            for source in ("live", "probe")
        )
        world.scorer.observe(Record(ts=60.0 * world.minute, source="live", answer_json=Answer("anna", []), **secrets))
    data = msgspec.msgpack.encode(world.alarms.state)
    assert b"anna" not in data
    assert b"live" in data


def test_gates_that_are_new_start_from_nothing_and_those_that_are_gone_are_forgotten(configured):
    old = World(configured("[gates.error_rate]\nat_most = 0.05\n[gates.coverage]\nat_least = 0.7\n"))
    old.run(10, error=0.3)
    assert old.firing == {"error_rate"}
    new = World(configured("[gates.error_rate]\nat_most = 0.05\n[gates.compliance]\nat_least = 0.98\n"))
    new.alarms.restore(saved(old.alarms.state))
    new.minute = old.minute
    assert new.firing == {"error_rate"}
    assert (new.state("compliance").evidence, "coverage" in new.alarms.of("default").state.alarms) == (0.0, False)
    new.run(20)
    assert new.firing == set()


# --- the baselines of a release run -----------------------------------------------------------------------------------


def with_source(record, source):
    return msgspec.structs.replace(record, source=source)


def frozen(traffic_of, *, minutes=90, gold=GOLD):
    """The baseline file of a run that is known to be good."""
    freezing = BaselineRecorder(ScorerFactory(defaults(), (gold,)))
    for record in freezing.follow(r for m in range(NOON, NOON + minutes) for r in traffic_of(m)):
        freezing.scorer.observe(record)
    return freezing.file()


@pytest.fixture
def given_world(configured, tmp_path):
    """A world with the baselines of a good run."""

    def make(file=None, gold=(GOLD,)):
        file = frozen(Traffic(7).minute) if file is None else file
        (tmp_path / "baseline.json").write_text(json.dumps(file), encoding="utf-8")
        return World(configured('[alarms]\nbaseline = { file = "baseline.json" }'), gold=gold)

    return make


def test_given_baselines_hold_from_the_first_minute_and_are_not_learned(given_world):
    world = given_world()
    world.run(1)
    before = {state.alert: state.level for state in world.alarms.states() if state.baseline == "given"}
    looks = {state.alert for state in world.alarms.states() if state.severity == "look"}
    assert before.keys() >= looks
    assert None not in before.values()
    assert world.run(90) == []
    assert {state.alert: state.level for state in world.alarms.states() if state.baseline == "given"} == before
    world.run(20, wrong=0.4, slow=2.0)
    assert {"answer_precision:look", "answer_precision:paired", "latency:look"} <= world.firing


@pytest.mark.slow
def test_items_are_compared_with_their_answers_in_the_good_run(given_world):
    """From the first minute on: what is wrong today was right then."""
    world = given_world()
    world.run(20, wrong=0.5)
    assert "answer_precision:paired" in world.firing
    assert world.alarms.of("default").selector.state.first["answer_precision"].keys() >= {f"a{n}" for n in range(30)}


def test_what_the_file_does_not_know_is_learned(given_world):
    file = frozen(Traffic(7).minute)
    pipelines = file["pipelines"]
    for metric in ("latency", "compliance"):
        del pipelines["default"]["metrics"][metric]
    world = given_world(frozen_file(pipelines))
    world.run(1)
    unknown = ("latency:look", "compliance:look")
    assert [world.state(alert).baseline for alert in unknown] == ["learning"] * 2
    world.run(75)
    assert [world.state(alert).baseline for alert in unknown] == ["growing"] * 2
    assert world.state("coverage:look").baseline == "given"


def test_baselines_of_another_version_of_the_gold_set_do_not_hold(given_world):
    """Wherever that version was seen: a release run is read from files, production is probed."""
    other = GoldSet("gold", tuple(replace(item, question=f"{item.question} Today?") for item in GOLD.items))
    world = given_world(frozen(lambda m: [with_source(r, "replay") for r in Traffic(m).minute(m)], gold=other))
    world.run(1)
    assert world.state("answer_precision:look").baseline == "learning"
    assert world.state("compliance:look").baseline == "given"


def test_a_run_that_begins_with_probes_gives_the_baseline_of_its_users():
    """Label-free metrics are those of user traffic as soon as there is any; what came before is another population."""
    first = {"live": [], "both": Traffic(1, live=0, gold=40).minute(NOON)}
    known = {
        name: frozen(lambda m, begins=begins: begins if m == NOON else Traffic(m, gold=0).minute(m))
        for name, begins in first.items()
    }
    both, live_alone = (known[name]["pipelines"]["default"]["metrics"] for name in ("both", "live"))
    assert {name: both[name] for name in live_alone} == live_alone


@pytest.mark.slow
def test_a_baseline_file_that_is_new_counts_more_than_what_was_learned(given_world):
    """Somebody froze it and named it in the configuration; a checkpoint of before that must not take its place."""
    old = World()
    old.run(80, wrong=0.15)
    world = given_world()
    world.run(1)
    level = world.state("answer_precision:look").level
    again = given_world()
    again.alarms.restore(saved(old.alarms.state))
    assert again.state("answer_precision:look").baseline == "given"
    assert again.state("answer_precision:look").level == level
