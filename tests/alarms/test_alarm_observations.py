"""What alarms look at: the first source that has data, one gold set, and every gold item against its own past."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from ragmon.alarms.observations import NOTHING, Conventions, ObservationSelector, StepClusters
from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import defaults
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import FREE_SOURCES, GOLD_SOURCES
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import parse
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.scorer import Scorer
from tests.support.alarming import FAULTS, GOLD, GOOD, NOON, REFUSAL, Traffic, World, said, shown
from tests.support.examples import cases
from tests.support.oracle.draw import drawn
from tests.support.saved import saved

WRONG = said("quite something else", ["d1"])
NEWER = GoldSet("gold", tuple(replace(item, question=f"{item.question} Today?") for item in GOLD.items))
"""The same questions in another version."""


def step_of(records, gold=GOLD, table=None):
    """The step some records of one minute make."""
    steps = MinuteBatches()
    scorer = Scorer(gold, metrics=table, observers=[steps])
    for record in records:
        record.ts = 60.0 * NOON
        scorer.observe(record)
    ((_, step),) = steps.close(float("inf"))
    return step


def values(seen):
    """Observations, one by one."""
    return sorted([0.0] * seen.zeros + [*seen.parts] + [1.0] * seen.ones)


def users(world, *answers, source="live", question=""):
    """A minute of requests, every one a question of its own."""
    ts = 60.0 * world.minute
    return [Record(ts=ts, source=source, q=f"{question}{ts} {n}", **answer) for n, answer in enumerate(answers)]


def asked(world, *answers, source="probe", **fields):
    """A minute of gold questions everybody can answer."""
    ts = 60.0 * world.minute
    return [Record(ts=ts, source=source, qid=f"a{n}", **answer, **fields) for n, answer in enumerate(answers)]


# --- which source -----------------------------------------------------------------------------------------------------


def seen_minutes(draw):
    """Minutes, and in each one of them the sources that had gold questions and those that had others."""
    return [(draw.distinct(GOLD_SOURCES, 3), draw.distinct(FREE_SOURCES, 3)) for _ in range(1 + draw.number(7))]


@settings(max_examples=cases(150), deadline=None)
@given(drawn(seen_minutes, 80))
def test_the_first_source_that_ever_had_data_is_looked_at(minutes):
    """In the order in which gates look; an earlier one that appears later takes over and stays."""
    table = Scorer().table
    selector, known, before = ObservationSelector(table), {True: set(), False: set()}, {}
    for golden, free in minutes:
        records = [Record(source=source, qid="a0", **GOOD) for source in golden]
        records += [Record(source=source, q="?", **GOOD) for source in free]
        if not records:
            continue
        changed = selector.turn(step_of(records, table=table))
        known[True] |= set(golden)
        known[False] |= {*golden, *free}
        orders = {True: GOLD_SOURCES, False: FREE_SOURCES}
        expected = {kind: next(s for s in orders[kind] if s in known[kind]) for kind in orders if known[kind]}
        assert selector.state.sources == expected
        assert changed.sources == {kind for kind in before if before[kind] != expected[kind]}
        before = expected


def test_another_source_starts_label_free_alarms_anew_and_leaves_those_on_gold_alone():
    """What fired on the old population is over, and nothing that was learned of it counts."""
    world = World()
    for _ in range(70):
        world.feed([*users(world, *[GOOD] * 40, source="replay"), *asked(world, *[GOOD] * 4)])
    for _ in range(20):
        world.feed([*users(world, *[FAULTS["listless"]] * 40, source="replay"), *asked(world, *[WRONG] * 4)])
    fell = {"compliance", "compliance:look", "coverage", "coverage:look"}
    assert fell < world.firing
    golden = world.firing - fell
    assert {"answer_precision", "answer_precision:look"} <= golden
    learned = world.state("answer_precision:look").level
    edges = world.feed(users(world, GOOD))
    assert {(edge.alert, edge.state) for edge in edges} == {(alert, "resolved") for alert in fell}
    assert {edge.ts for edge in edges} == {60.0 * world.minute}
    assert world.firing == golden
    assert world.state("answer_precision:look").level == learned
    assert (world.state("compliance:look").level, world.state("latency:look").level) == (None, None)


def test_an_alarm_that_names_its_source_is_not_touched_by_another_one(configured):
    """Nothing has changed where it looks."""
    text = '[metrics]\ncitations_required = true\n[gates.compliance]\nat_least = 0.98\nsource = "probe"\n'
    world = World(configured(text))
    for _ in range(5):
        world.feed(users(world, *[FAULTS["listless"]] * 30, source="probe"))
    assert world.firing == {"compliance"}
    assert shown(world.feed(users(world, GOOD))) == []


def test_drift_of_another_source_is_drift_of_nothing():
    """Users are not probes: that their questions are longer is no news."""
    world = World()
    for source, minutes, question in (("probe", 62, ""), ("live", 75, "is it true what they say about ")):
        for _ in range(minutes):
            world.feed(users(world, *[GOOD] * 60, source=source, question=question))
    assert world.firing == set()


# --- which gold set ---------------------------------------------------------------------------------------------------


def upgraded(world, gold):
    """A world that goes on from another one's checkpoint with another gold set."""
    found = World(gold=(gold,), traffic=Traffic(2))
    found.alarms.restore(saved(world.alarms.state))
    found.minute = world.minute
    return found


def test_another_version_of_the_gold_set_starts_alarms_on_gold_anew_and_leaves_the_others_alone():
    old = World()
    old.run(75)
    old.run(20, wrong=0.5, listless=0.5)
    fired = old.firing
    assert {"answer_precision", "answer_precision:look", "answer_precision:paired", "compliance"} <= fired
    assert not upgraded(old, GOLD).run(1, wrong=0.5, listless=0.5)
    world = upgraded(old, NEWER)
    edges = world.run(1, wrong=0.5, listless=0.5)
    assert {edge.alert for edge in edges} == {alert for alert in fired if alert.startswith(("answer", "citation_hit"))}
    assert {edge.state for edge in edges} == {"resolved"}
    assert {"compliance", "compliance:look"} <= world.firing
    assert world.state("answer_precision:look").level is None
    assert not any(world.alarms.of("default").selector.state.first.values())
    assert world.state("compliance:look").level == old.state("compliance:look").level
    world.run(30, listless=0.5)
    assert world.firing == fired - {edge.alert for edge in edges}


def test_a_user_question_of_the_new_version_does_not_start_probes_anew():
    """They were started anew when the first probe of it came; a question in common may come hours later."""
    old = World()
    old.run(10)
    old.feed(users(old, GOOD) + asked(old, GOOD, source="live"))
    world = upgraded(old, NEWER)
    world.run(80)
    world.run(20, wrong=0.6)
    learned = world.state("answer_precision:look").level
    assert "answer_precision" in world.firing
    assert shown(world.feed(asked(world, GOOD, source="live"))) == []
    assert world.state("answer_precision:look").level == learned


def test_a_gate_looks_at_the_source_the_gold_set_and_the_slice_it_names(configured):
    other = GoldSet("other", (GoldItem("z0", "Else?", True, claim_substrings=["right"], citations=["d1"]),))
    world = World(
        configured(
            '[slices]\nlang = ["de"]\n'.join(f'[gold.{name}]\npath = "{name}.jsonl"\n' for name in ("gold", "other"))
            + "".join(
                f'[gates.{name}]\nmetric = "answer_precision"\nat_least = 0.8\n{where}\n'
                for name, where in (
                    ("first", ""),
                    ("matched", 'source = "match"'),
                    ("others", 'gold = "other"'),
                    ("german", 'slice = { lang = "de" }'),
                )
            )
        ),
        gold=(GOLD, other),
    )

    def minutes(**bad):
        for _ in range(60):
            answers = {name: [WRONG if name in bad else GOOD] * 5 for name in ("first", "matched", "others", "german")}
            records = asked(world, *answers["first"])
            for n, answer in enumerate(answers["matched"]):  # users do not ask the same five every minute
                qid = f"a{(5 * world.minute + n) % 30}"
                records.append(Record(ts=60.0 * world.minute, source="live", qid=qid, **answer))
            records += asked(world, *answers["german"], tags={"lang": "de"})
            records += [Record(ts=60.0 * world.minute, source="probe", qid="z0", **answers["others"][0])]
            world.feed(records)
        return {alert for alert in world.firing if ":" not in alert}

    assert minutes() == set()
    assert minutes(matched=True) == {"matched"}
    assert minutes(others=True) == {"others"}
    assert minutes(first=True) == {"first"}
    assert minutes(german=True, first=True) == {"first", "german"}


# --- what is unknown --------------------------------------------------------------------------------------------------


def test_requests_whose_score_is_unknown_break_no_gate_neither_a_floor_nor_a_ceiling():
    """An alarm must not rest on what nobody knows: whether they cited anything, and whether retrieval was empty."""
    world, unknown = World(defaults()), {**said("that is right", None), "retrieved_ids": None}
    for _ in range(10):
        world.feed(users(world, *[GOOD] * 10, *[unknown] * 30))
    series = world.scorer.snapshot().find("default", "live")
    assert {name: series.metrics[name].unknown for name in ("coverage", "empty_retrieval_rate")} == {
        "coverage": 300,
        "empty_retrieval_rate": 300,
    }
    assert world.firing == set()
    for _ in range(10):
        world.feed(users(world, *[GOOD] * 10, *[FAULTS["empty"]] * 30))
    assert {"coverage", "empty_retrieval_rate"} <= world.firing, "known scores break both"


# --- every gold item against its first answer -------------------------------------------------------------------------

METRICS = ("answer_precision", "under_refusal_rate", "over_refusal_rate")
ANSWERS = {"right": GOOD, "wrong": WRONG, "refused": REFUSAL}


def paired(metric):
    return AlarmRule(f"{metric}:paired", metric, "look", at_least=True, kind="paired", needs_gold=True)


def bad(metric, qid, answer):
    """How bad one answer is by a metric, in [0, 1]; None where it is not in its denominator."""
    shipped, answerable = answer != "refused", qid.startswith("a")
    if metric == "answer_precision":
        return float(not (answerable and answer == "right")) if shipped else None
    if metric == "under_refusal_rate":
        return None if answerable else float(shipped)
    return float(not shipped) if answerable else None


def quiz(draw):
    """Minutes of gold questions and how they were answered; the same one may come several times in a minute."""
    one = lambda: (draw.one(("a0", "a1", "u0")), draw.one(tuple(ANSWERS)))  # noqa: E731
    return [[one() for _ in range(1 + draw.number(5))] for _ in range(1 + draw.number(5))]


@settings(max_examples=cases(200), deadline=None)
@given(drawn(quiz, 90))
def test_an_item_is_as_bad_as_it_is_worse_than_when_it_was_seen_first(minutes):
    """Better counts as equally good. Where an answer is not in the denominator, the next one that is comes first."""
    table = Scorer().table
    selector, first = ObservationSelector(table), {metric: {} for metric in METRICS}
    for minute in minutes:
        step = step_of([Record(source="probe", qid=qid, **ANSWERS[answer]) for qid, answer in minute], table=table)
        selector.turn(step)
        for metric in METRICS:
            expected = []
            for qid in dict(minute):
                scores = [score for q, a in minute if q == qid and (score := bad(metric, q, a)) is not None]
                if scores and qid in first[metric]:
                    expected.append(1 - max(0.0, sum(scores) / len(scores) - first[metric][qid]))
                elif scores:
                    first[metric][qid] = sum(scores) / len(scores)
            assert values(
                selector.paired(step, paired(metric), StepClusters(step), freeze=True).assessed
            ) == pytest.approx(sorted(expected), abs=2e-6)


def test_nothing_is_remembered_of_an_item_that_is_seen_first_while_something_fires():
    world = World()
    for _ in range(3):
        world.feed([*users(world, *[FAULTS["listless"]] * 60), *asked(world, GOOD)])
    assert "compliance" in world.firing
    selector = world.alarms.of("default").selector
    assert set(selector.state.first["answer_precision"]) == {"a0"}
    for _ in range(5):
        world.feed([*users(world, *[FAULTS["listless"]] * 60), *asked(world, WRONG, WRONG)])
    assert set(selector.state.first["answer_precision"]) == {"a0"}
    for _ in range(10):
        world.feed([*users(world, *[GOOD] * 60), *asked(world, GOOD, GOOD)])
    assert world.firing == set()
    assert selector.state.first["answer_precision"] == {"a0": 1_000_000, "a1": 1_000_000}


def test_a_pipeline_without_gold_has_nothing_to_say_on_gold():
    selector, step = ObservationSelector(Scorer().table), step_of([Record(source="live", q="?", **GOOD)], None)
    selector.turn(step)
    assert selector.paired(step, paired("answer_precision"), StepClusters(step), freeze=True) == NOTHING
    assert selector.of(step, replace(paired("answer_precision"), kind="gate"), StepClusters(step)) == NOTHING


# --- what a pipeline has shown ----------------------------------------------------------------------------------------

STRANGE = said("that is right", ["e1f72df8"], retrieved=["e1f72df8"])
ELSEWHERE = said("that is right", ["d1"], retrieved=["d2"])


def in_gold(*answers):
    """What a minute of gold questions shows of the ids."""
    return step_of([Record(source="probe", qid=f"a{n}", **answer) for n, answer in enumerate(answers)]).in_gold


def test_a_step_says_whether_an_id_of_its_gold_questions_is_in_gold():
    assert in_gold(STRANGE, STRANGE) is False
    assert in_gold(STRANGE, GOOD) is True
    assert in_gold(ELSEWHERE) is False
    assert in_gold(said("that is right", [], retrieved=[])) is None
    assert step_of([Record(source="live", q="?", **STRANGE)]).in_gold is None


@pytest.mark.parametrize("metric", ["hit_rate", "recall@5", "answer_precision", "citation_hit_rate"])
def test_what_compares_ids_waits_until_one_of_them_is_in_gold(metric):
    """And is judged from then on, whatever comes: an index that was exchanged is a fault."""
    strange, good = (step_of([Record(source="probe", qid="a1", **answer)]) for answer in (STRANGE, GOOD))
    shown_so_far = Conventions(cited=True)
    applied = [shown_so_far.apply_to(parse(metric))]
    for step in (strange, good, strange):
        shown_so_far.see(step)
        applied.append(shown_so_far.apply_to(parse(metric)))
    assert applied == [True, False, True, True]


def test_a_saved_step_keeps_what_it_shows():
    step = step_of([Record(source="probe", qid="a1", **STRANGE)])
    assert saved(step).in_gold is False
