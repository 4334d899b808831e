"""A minute with very many clusters keeps a uniform sample of them, the same however its records were divided."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.scoring import minutes
from ragmon.scoring.minutes import CountedRecord, Membership, Minute, MinuteBatches, left_out, rank
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record
from tests.support.examples import cases
from tests.support.random_records import NOON
from tests.support.saved import saved

LIVE = CountedRecord("live")
MEASURE = "grounded"


def keep_few(patch):
    """Let steps keep eight clusters of three memberships, and be cut in the middle of a minute from 16 on."""
    patch.setattr(minutes, "CLUSTERS", 8)
    patch.setattr(minutes, "MEMBERS", 3)
    patch.setattr(minutes, "ROOM", 16)


@pytest.fixture
def few(monkeypatch):
    """Steps that keep few clusters."""
    keep_few(monkeypatch)


def key(number):
    """One of a few tuples of facts."""
    return (number, 0, 0, (), (), (), ())


REQUESTS = st.lists(
    st.builds(
        lambda session, question, alone, facts, score: (
            Membership(session, question, "" if session or question else alone),
            key(facts),
            score,
        ),
        st.sampled_from(["", *(f"s{number}" for number in range(20))]),
        st.sampled_from(["", *(f"q{number}" for number in range(12))]),
        st.sampled_from([f"t{number}" for number in range(40)]),
        st.integers(0, 3),
        st.one_of(st.none(), st.integers(0, 1_000_000)),
    ),
    max_size=120,
)


def step_of(requests):
    """A step that counted some requests."""
    step = Minute(0)
    for member, facts, score in requests:
        step.count(LIVE, member, facts, {} if score is None else {MEASURE: score})
        step.records += 1
        if score is not None:
            step.latency.setdefault("live", {}).setdefault(member, []).append(float(score))
    return step


def content(step):
    """What a step holds after its cut."""
    step.cut()
    latency = {member: sorted(values) for member, values in step.latency.get("live", {}).items()}
    return step.facts.get(LIVE, {}), step.measures.get((LIVE, MEASURE), {}), latency, step.records


def expected(requests):
    """The same by the definition: keep the clusters with the smallest hashes of the whole, then count."""
    outside = left_out({member for member, _, _ in requests})
    without_latency = left_out({member for member, _, score in requests if score is not None})
    facts, measures, latency = {}, {}, {}
    for member, cell, score in requests:
        if member not in outside:
            facts.setdefault(member, Counter())[cell] += 1
            if score is not None:
                n, total = measures.get(member, [0, 0])
                measures[member] = [n + 1, total + score]
        if score is not None and member not in without_latency:
            latency.setdefault(member, []).append(float(score))
    return facts, measures, {member: sorted(values) for member, values in latency.items()}, len(requests)


@given(requests=REQUESTS, seed=st.integers(0, 1 << 16))
@settings(max_examples=cases(300), deadline=None, derandomize=True)
def test_a_sum_of_cut_parts_in_any_order_is_a_cut_of_the_whole(requests, seed):
    with pytest.MonkeyPatch.context() as patch:
        keep_few(patch)
        chance = random.Random(seed)
        shuffled = chance.sample(requests, len(requests))
        places = sorted(chance.randrange(len(requests) + 1) for _ in range(4))
        parts = [shuffled[a:b] for a, b in zip([0, *places], [*places, len(requests)], strict=True)]
        steps = [step_of(part) for part in parts]
        for step in steps:
            if chance.random() < 0.7:
                step.cut()
        steps = [saved(step) if chance.random() < 0.5 else step for step in steps]
        while len(steps) > 1:  # a random tree of sums
            other = steps.pop(chance.randrange(len(steps)))
            into = chance.choice(steps)
            into.merge(other)
            if chance.random() < 0.5:
                into.cut()
        assert content(steps[0]) == expected(requests)


def test_a_session_is_kept_with_all_its_questions(few):
    members = [Membership(f"s{number}", f"q{place}") for number in range(40) for place in range(2)]
    outside = left_out(members)
    kept = set(members) - set(outside)
    assert {member.session for member in kept} == set(sorted((f"s{n}" for n in range(40)), key=rank)[:8])
    assert len(kept) == 16


def test_of_a_session_with_very_many_questions_a_few_are_kept_and_no_other_session_suffers(few):
    step = step_of([(Membership("crawler", f"q{number}"), key(0), None) for number in range(1000)])
    assert len(step.facts[LIVE]) < 40
    for session in ("a", "b", "c"):
        step.count(LIVE, Membership(session, "q"), key(0), {})
    step.cut()
    assert Counter(member.session for member in step.facts[LIVE]) == {"crawler": 3, "a": 1, "b": 1, "c": 1}


def test_a_minute_of_any_number_of_sessions_stays_small_and_its_shares_true():
    """Of 40,000 sessions 4,096 are kept; among them as many fail as among all, but for chance."""
    step = Minute(0)
    largest = 0
    for number in range(40_000):
        step.count(LIVE, Membership(f"session {number}"), key(number % 5 == 0), {})
        largest = max(largest, len(step.facts[LIVE]))
    step.cut()
    assert largest <= minutes.ROOM
    assert len(step.facts[LIVE]) == minutes.CLUSTERS
    failing = sum(counts.get(key(True), 0) for counts in step.facts[LIVE].values())
    assert abs(failing / minutes.CLUSTERS - 0.2) < 4 * (0.16 / minutes.CLUSTERS) ** 0.5


def test_a_saved_minute_goes_on_where_it_was(few):
    requests = [(Membership(f"s{number}"), key(number % 3), None) for number in range(200)]
    step = saved(step_of(requests[:100]))
    for member, facts, _ in requests[100:]:
        step.count(LIVE, member, facts, {})
        step.records += 1
    assert content(step) == expected(requests)


def test_what_is_put_into_a_minute_that_was_closed_counts_in_the_next_one_and_is_told():
    steps, other = MinuteBatches(), MinuteBatches()
    Scorer(observers=[other]).observe(one := make_record(ts=NOON, session="s"))
    Scorer(observers=[steps]).observe(one)
    steps.close(NOON + 60)
    ((pipeline, step),) = other.take()
    steps.put(pipeline, step)
    assert steps.state.late == 1
    ((_, late),) = steps.take()
    assert (late.minute, late.records) == (int(NOON) // 60 + 1, 1)
    assert other.take() == []
