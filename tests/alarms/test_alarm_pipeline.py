"""The alarms of a pipeline: which fault fires which alert, how urgent it is, when it is over, what it costs."""

from __future__ import annotations

import copy
import random
from collections import Counter
from functools import cache

import pytest

from ragmon.alarms.plan import GOLD_METRICS
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.core.record import Record
from tests.support.alarming import FAULTS, GOOD, NOON, Traffic, World, shown

PAGE, LOOK, TICKET = constants.PAGE, constants.LOOK, constants.TICKET
LONGER = "How is that, if one looks at it from the other side of the river?"
INCIDENTS = {  # what breaks, how, and what must be told of it
    "hallucination": ({"wrong": 0.5}, {"answer_precision": PAGE, "answer_precision:look": LOOK}),
    "hallucination item by item": ({"wrong": 0.5}, {"answer_precision:paired": LOOK}),
    "weak hallucination": ({"wrong": 0.14}, {"answer_precision:look": LOOK}),
    "half the index gone": ({"missed": 0.6}, {"hit_rate:baseline": PAGE, "hit_rate:paired": LOOK}),
    "cites what it was not given": ({"missed": 0.6}, {"citation_hit_rate": PAGE}),
    "cites what does not exist": ({"foreign": 0.4}, {"citation_scope": PAGE, "citation_scope:look": LOOK}),
    "cites nothing": ({"uncited": 0.6}, {"coverage": PAGE, "coverage:look": LOOK}),
    "broken template": ({"listless": 0.3}, {"compliance": PAGE, "compliance:look": LOOK}),
    "retrieval finds nothing": ({"empty": 0.3}, {"empty_retrieval_rate": PAGE, "empty_retrieval_rate:look": LOOK}),
    "errors": ({"error": 0.3}, {"error_rate": PAGE, "error_rate:look": LOOK}),
    "refuses what it knows": ({"over": 0.5}, {"over_refusal_rate": PAGE, "over_refusal_rate:look": LOOK}),
    "answers what it cannot know": ({"under": 0.7}, {"under_refusal_rate": PAGE, "under_refusal_rate:paired": LOOK}),
    "wave of refusals": ({"refused": 0.4}, {"refusal_rate:look": LOOK}),
    "refuses nobody any more": ({"refused": 0.0}, {"refusal_rate:look-low": LOOK}),
    "refuses in its own words": ({"own_words": 0.3}, {"refusal_like_rate:look": LOOK}),
    "slow": ({"slow": 2.0}, {"latency:look": LOOK, "latency:drift": TICKET}),
    "another index": ({"index": "i2"}, {"index_hash:drift": TICKET}),
    "other questions": ({"question": LONGER}, {"question_length:drift": TICKET}),
}

OF_GOLD = {"wrong", "missed", "over", "under"}


@cache
def learned():
    """A world in which all was well for an hour and a quarter, and nothing was told."""
    world = World()
    assert world.run(75) == []
    return world


def begun():
    return copy.deepcopy(learned())


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENTS)
def test_a_fault_is_told_with_its_metric_and_urgency_and_is_over_when_it_is_over(incident):
    """What breaks in answers to gold questions wakes nobody for user traffic, and the other way round."""
    changed, expected = INCIDENTS[incident]
    world, start = begun(), 60.0 * learned().minute
    fired = {(edge.alert, edge.metric, edge.severity) for edge in world.run(50, **changed)}
    for alert, severity in expected.items():
        assert (alert, alert.partition(":")[0], severity) in fired
    assert {metric in GOLD_METRICS for _, metric, _ in fired} == {changed.keys() <= OF_GOLD}
    assert {edge.state for edge in world.edges} == {"firing"}
    assert all(start < edge.ts <= 60.0 * world.minute for edge in world.edges)
    after = world.run(125)
    assert world.firing == set()
    assert {edge.alert for edge in after if edge.state == "resolved"} == {alert for alert, *_ in fired}
    assert {edge.state for edge in after} == {"resolved"}


@pytest.mark.slow
def test_days_without_a_fault_stay_within_the_budget():
    """Three times six hours: a fortieth of a false page, and three looks with three standard errors."""
    edges = [edge for seed in range(3) for edge in World(traffic=Traffic(seed)).run(360) if edge.state == "firing"]
    told = Counter(edge.severity for edge in edges)
    assert told[PAGE] == 0
    assert told[LOOK] + told[TICKET] <= 3 + 3 * 3**0.5


def test_a_weaker_fault_is_a_look_and_no_page():
    world = begun()
    world.run(60, wrong=0.14)
    assert {edge.severity for edge in world.edges} == {LOOK}


def test_the_order_of_arrival_within_a_minute_changes_nothing():
    """Sums of fractions too are the same to the last bit: sessions are good in parts."""
    rng, straight, shuffled = random.Random(3), World(), World()
    one, other = Traffic(5), Traffic(5)
    for number in range(110):
        changed = {"wrong": 0.5, "listless": 0.3} if number > 75 else {}
        straight.feed(in_sessions(one.minute(NOON + number, **changed)))
        records = in_sessions(other.minute(NOON + number, **changed))
        rng.shuffle(records)
        shuffled.feed(records)
    assert straight.edges == shuffled.edges != []
    assert straight.alarms.state.pipelines == shuffled.alarms.state.pipelines


def in_sessions(records):
    """The same, some of them in sessions of three."""
    found = list(records)
    for number, record in enumerate(found[::2]):
        record.session = f"s{number // 3}"
    return found


def test_one_session_cannot_raise_an_alarm_by_itself():
    """A crawler whose every request fails is one observation a minute, not six hundred."""
    world = begun()
    for _ in range(30):
        ts = 60.0 * world.minute
        crawler = [Record(ts=ts, source="live", session="bot", q=f"{n}", error="timeout") for n in range(600)]
        world.feed([*Traffic(world.minute, live=120).minute(world.minute), *crawler])
    assert world.firing == set()


def test_pipelines_have_alarms_of_their_own():
    """A fault of one of them is a fault of that one."""
    world = World()
    good, bad = Traffic(1, pipeline="sales"), Traffic(2, pipeline="support")
    for _ in range(20):
        world.feed([*good.minute(world.minute), *bad.minute(world.minute, error=0.5)])
    assert world.firing == {"support/error_rate"}
    assert {edge.pipeline for edge in world.edges} == {"support"}


# --- acknowledging ----------------------------------------------------------------------------------------------------


def broken(world):
    """A minute in which every twentieth answer breaks the template."""
    ts = 60.0 * world.minute
    answers = [FAULTS["listless"]] * 3 + [GOOD] * 57
    return [Record(ts=ts, source="live", q=f"{ts} {n}", **answer) for n, answer in enumerate(answers)]


def until_it_fires(world, alert):
    """How many minutes it takes."""
    start = world.minute
    while alert not in world.firing:
        world.feed(broken(world))
        assert world.minute < start + 200
    return world.minute - start


def test_an_alarm_that_is_acknowledged_is_silent_and_starts_from_nothing():
    """It takes as long again as it took at first: what was seen before counts no more."""
    world = World()
    first = until_it_fires(world, "compliance")
    assert first > 5
    edges = world.alarms.acknowledge("default", "compliance")
    assert shown(edges) == [f"{60.0 * world.minute} resolved page compliance compliance"]
    assert (world.firing, world.state("compliance").evidence) == (set(), 0.0)
    assert until_it_fires(world, "compliance") == first
    world.run(30)
    assert world.firing == set()


def test_acknowledging_leaves_the_other_alarms_alone():
    world = begun()
    world.run(10, error=0.5, listless=0.5)
    before = world.firing
    assert {"error_rate", "compliance"} < before
    world.alarms.acknowledge("default", "compliance")
    assert world.firing == before - {"compliance"}


def test_what_does_not_fire_cannot_be_silenced():
    world = begun()
    assert world.alarms.acknowledge("default", "compliance") == []
    assert world.alarms.acknowledge("default", "index_hash:drift") == []


def test_an_acknowledged_index_is_forgotten_with_all_that_answered_until_then():
    world = World()
    world.run(1, index="i1")
    world.run(1, index="i2")
    assert world.firing == {"index_hash:drift"}
    (edge,) = world.alarms.acknowledge("default", "index_hash:drift")
    assert (edge.metric, edge.severity, edge.state) == ("index_hash", TICKET, "resolved")
    assert world.run(30, index="i2") == []
    assert [edge.state for edge in world.run(1, index="i1")] == ["firing"]


def test_learning_goes_on_after_the_last_alarm_was_acknowledged():
    world = World()
    world.run(30, error=0.5)
    assert world.alarms.of("default").state.baselines["compliance"].n == 0
    for alert in world.firing:
        world.alarms.acknowledge("default", alert)
    world.run(20)
    assert world.alarms.of("default").state.baselines["compliance"].n > 0


@pytest.mark.parametrize(
    ("pipeline", "alert", "message", "hint"),
    [
        ("default", "complience", "unknown alarm: 'complience'", "compliance"),
        ("default", "answer_precision:loook", "unknown alarm: 'answer_precision:loook'", "answer_precision:look"),
        ("default", "question_length", "unknown alarm: 'question_length'", "question_length:drift"),
        ("defualt", "compliance", "unknown pipeline: 'defualt'", "default"),
    ],
)
def test_a_name_nobody_knows_is_refused_with_the_nearest(pipeline, alert, message, hint):
    with pytest.raises(UnknownNameError) as caught:
        learned().alarms.acknowledge(pipeline, alert)
    assert str(caught.value) == message
    assert hint in caught.value.hint
