"""Calls kept for how they ended: at the rates that were asked for, with probabilities that make estimates right."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture import call as draws
from ragmon.capture.call import SamplingDecision
from ragmon.capture.convert import call_to_record
from ragmon.core.refusals import RefusalRule
from ragmon.testing import capture_traces
from tests.support.capturing import BrokenError, capturing, seed_draws

KEEP = {"error": 1.0, "refusal": 0.5, "slow": 1.0}


@ragmon.trace
def answer(question):
    ragmon.record(retrieved=["d1"], tags={"lang": "de"})
    if question == "raise":
        raise BrokenError(question)
    return {"claim": question, "citations": ["d1"]}


def asked(*questions):
    """Ask, whatever comes of it."""
    for question in questions:
        try:
            answer(question)
        except BrokenError:
            continue


def test_calls_that_lost_the_draw_are_kept_for_how_they_ended():
    with capturing(0.0, keep={"error": 1.0, "refusal": 1.0}) as (found, kept):
        asked("raise", "not in context", "an answer")
    assert [(call.stratum, call.decision.audit) for call in kept] == [("error", False), ("refusal", False)]
    assert sum(found.totals().values()) == 3


WORDS = "Leider konnte ich dazu in den Dokumenten nichts finden."


@ragmon.trace
def spoken(question):
    yield from (f"{word} " for word in question.split())


@pytest.mark.parametrize("ask", [answer, lambda question: list(spoken(question))], ids=["dict", "stream"])
def test_a_refusal_in_plain_words_is_kept_as_one_where_words_count(ask):
    for refuses, strata in ((RefusalRule().refuses, ["refusal"]), (None, [])):
        with capturing(0.0, keep={"refusal": 1.0}, refuses=refuses) as (found, kept):
            ask(WORDS)
            ask("Das Museum ist montags nicht geschlossen.")
        assert [call.stratum for call in kept] == strata
        assert sum(found.totals().values()) == 2


def test_the_caller_waits_for_no_search_of_a_long_answer_or_where_no_refusal_is_kept():
    def search(text):
        raise AssertionError(text)

    with capturing(0.0, keep={"refusal": 1.0}, refuses=search) as (found, _):
        asked("word " * 100)
        assert sum(found.totals().values()) == 1
    with capturing(0.0, keep={"slow": 1.0}, slow_above=9.0, refuses=search) as (found, _):
        asked(WORDS)
        assert sum(found.totals().values()) == 1


def test_a_slow_call_is_kept_where_slow_calls_are():
    with capturing(0.0, keep={"slow": 1.0}, slow_above=0.0) as (_, kept):
        asked("an answer")
    assert [call.stratum for call in kept] == ["slow"]


def test_they_are_kept_at_the_rate_of_their_stratum():
    """4,000 draws at 0.25 lie within six standard deviations."""
    with capturing(0.0, keep={"refusal": 0.25}) as (_, kept):
        asked(*["not in context"] * 4000)
    assert abs(len(kept) - 1000) < 6 * (4000 * 0.25 * 0.75) ** 0.5


def test_what_was_said_inside_such_a_call_is_unknown_not_false():
    """Its arguments and its result are held; `partial` says that the rest is missing."""
    with capturing(0.0, keep=KEEP | {"refusal": 1.0}) as (_, kept):
        asked("not in context", "raise")
    refusal, error = map(call_to_record, kept)
    assert (refusal.partial, refusal.retrieved_ids, refusal.tags) == (True, None, None)
    assert (refusal.q, refusal.answer_json.claim) == ("not in context", "not in context")
    assert (error.partial, error.error, error.q) == (True, "BrokenError", "raise")


def test_detail_keeps_what_was_said_inside_such_a_call():
    with capturing(0.0, keep=KEEP | {"refusal": 1.0}, detail=True) as (found, kept):
        asked("not in context", "raise", "an answer")
    assert [(r.partial, r.retrieved_ids, r.tags) for r in map(call_to_record, kept)] == [
        (False, ["d1"], {"lang": "de"})
    ] * 2
    assert sum(found.totals().values()) == 3


def test_the_record_says_by_which_draw_it_was_kept_and_how_likely_that_was():
    """Two draws: kept by either. A call that won the audit draw and failed belongs to both."""
    with capturing(0.2, keep=KEEP) as (_, kept):
        asked(*["raise", "not in context", "an answer"] * 400)
    found = {(s.stratum, s.audit): (s.p_audit, round(s.p, 9)) for s in (call_to_record(call).sampling for call in kept)}
    assert found == {
        ("error", True): (0.2, 1.0),
        ("error", False): (0.2, 1.0),
        ("refusal", True): (0.2, 0.6),
        ("refusal", False): (0.2, 0.6),
        ("rest", True): (0.2, 0.2),
    }


def test_the_trace_id_of_a_call_kept_for_its_outcome_says_that_it_lost_the_draw():
    with capturing(0.25, keep={"refusal": 1.0}) as (_, kept):
        asked(*["not in context"] * 400)
    lowest = draws.threshold(0.25)
    for call in kept:
        assert (int(call.trace_id, 16) % draws.SPAN >= lowest) is call.decision.audit
    assert len({call.trace_id for call in kept}) == 400


def test_the_rates_come_from_the_configuration(configured):
    settings = configured("[sampling]\nrate = 0.0\nkeep = { error = 1.0 }\n[pipelines.support.sampling]\nkeep = {}")
    with capture_traces(settings) as records:
        for name in ("support", "other"):
            with pytest.raises(BrokenError):
                ragmon.trace(name=name)(answer.__wrapped__)("raise")
    assert [(r.pipeline, r.sampling.stratum) for r in records] == [("other", "error")]


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_probability_of_either_draw_is_a_probability_and_no_less_than_each(audit, keep):
    p = SamplingDecision(audit=False, p_audit=audit).p(keep)
    assert max(audit, keep) - 1e-12 <= p <= 1.0


def estimate(calls):
    """The total of right answers and its standard error, each record weighted by how likely it was to be kept.

    Source: Horvitz and Thompson, JASA 47 (1952), with independent draws.
    """
    total = variance = 0.0
    for call in calls:
        record = call_to_record(call)
        p = record.sampling.p
        right = record.error is None and record.answer_json.claim == "right"
        total += right / p
        variance += right * (1 - p) / p**2
    return total, variance**0.5


@pytest.mark.slow
def test_weighted_by_their_probabilities_kept_calls_tell_the_truth_about_all_calls():
    """Within two standard errors in at least 93 % of 200 runs, with strata kept at different rates."""
    inside = 0
    for seed in range(200):
        seed_draws(seed)
        questions = ["raise"] * 60 + ["not in context"] * 120 + ["wrong"] * 120 + ["right"] * 700
        with capturing(0.1, keep={"error": 1.0, "refusal": 0.5}) as (_, kept):
            asked(*questions)
        total, error = estimate(kept)
        inside += abs(total - 700) <= 2 * error
    assert inside >= 0.93 * 200


def test_the_application_seeding_random_decides_nothing_here():
    """A model library that seeds the common generator for every request would else keep all calls or none."""
    with capturing(0.5) as (_, kept):
        for _ in range(200):
            random.seed(1)
            asked("an answer")
    state = random.getstate()
    asked("an answer")
    assert 50 < len(kept) < 150
    assert random.getstate() == state
