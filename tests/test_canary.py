"""Releases judged while their traffic comes in: one build against the gates, and against the build before it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_records import worlds

from ragmon.canary import compare, judge, part
from ragmon.canary.parts import look, scores
from ragmon.contract import Latency, Sampling
from ragmon.errors import RagmonError, UnknownNameError
from ragmon.gates import Gate, Policy
from ragmon.scorer import Rules, Scorer
from ragmon.stats import betting
from ragmon.testing import make_gold, make_record
from ragmon.windows import State

RIGHT, WRONG, REFUSED = "an answer", "no idea", "not in context"
GOLD = make_gold(*((f"q{i:03}", i < 600) for i in range(800)))
"""600 answerable questions, 200 that are not."""
PRECISION = Gate("precision", "answer_precision", 0.80, "at_least")
REFUSAL = Gate("refusal", "over_refusal_rate", 0.10, "at_most")
HALLUCINATION = Gate("hallucination", "under_refusal_rate", 0.05, "at_most")
COMPLIANCE = Gate("compliance", "compliance", 0.80, "at_least")
ERRORS = Gate("errors", "error_rate", 0.20, "at_most")
GROUNDED = Gate("grounded", "groundedness", 0.50, "at_least")


def counted(*records, gold=GOLD, rules=None):
    scorer = Scorer(gold, rules=rules)
    for record in itertools.chain(*records):
        assert scorer.observe(record)
    return scorer


def live(good=0, bad=0, **fields):
    """User requests: good ones carry a list of citations, bad ones none."""
    yield from (make_record(source="live", **fields) for _ in range(good))
    yield from (make_record(source="live", citations=None, **fields) for _ in range(bad))


def answers(claims, first=0, **fields):
    """Answers to the gold questions from the first on."""
    return [make_record(f"q{first + i:03}", claim=claim, **fields) for i, claim in enumerate(claims)]


def since(scorer, *gates, build="new", **policy):
    return judge(scorer.state, scorer.table, build, Policy(gates, **policy), golds=scorer.gold.infos())


def against(scorer, *gates, by="build", names=("old", "new"), **options):
    infos = scorer.gold.infos()
    return compare(scorer.state, scorer.table, by, *names, Policy(gates), golds=infos, **options)


# --- what was counted of a release ------------------------------------------------------------------------------------


@given(worlds())
def test_the_parts_of_a_state_are_all_of_it(world):
    gold, records = world
    scorer = counted(records, gold=gold)
    builds = {key.build for key in scorer.state.series} - {""}
    parts = [part(scorer.state, "build", build) for build in builds]
    rest = State()
    rest.series = {key: series for key, series in scorer.state.series.items() if not key.build}
    whole = State()
    for some in (*parts, rest):
        whole.merge(some)
    assert whole.digest() == scorer.state.digest()


@given(worlds(), st.sampled_from([1, 4096]))
@settings(max_examples=50)
def test_every_score_of_every_metric_is_found_again(world, cells):
    """Also where a row was full and kept sums alone."""
    gold, records = world
    with patch("ragmon.scorer.CELLS", cells):
        scorer = counted(records, gold=gold, rules=Rules(slices={"lang": ("de",)}))
    for series in look(scorer.state, scorer.table, scorer.gold.infos(), ()).series:
        for metric, stat in series.metrics.items():
            seen = scores(scorer.state, scorer.table, series, metric)
            assert sum(seen.values()) == pytest.approx(stat.n)
            assert math.fsum(x * n for x, n in seen.items()) == pytest.approx(stat.sum / 1e6)


@pytest.mark.parametrize(
    ("by", "name", "message", "hint"),
    [
        ("build", "2.0.1", "unknown build: '2.0.1'", "did you mean 2.0.0?"),
        ("index_hash", "zzz", "unknown index hash: 'zzz'", "one of: aaa"),
        ("build", "", "unknown build: ''", "one of: 2.0.0"),
    ],
)
def test_a_release_nobody_has_seen_is_refused_with_the_nearest(by, name, message, hint):
    scorer = counted([make_record("q000", build="2.0.0", index_hash="aaa"), make_record("q001")])
    with pytest.raises(UnknownNameError) as refused:
        part(scorer.state, by, name)
    assert (str(refused.value), refused.value.hint) == (message, hint)


# --- one build against the gates --------------------------------------------------------------------------------------


@given(good=st.integers(1, 200), bad=st.integers(0, 200), threshold=st.sampled_from([0.5, 0.8, 0.95]))
@settings(max_examples=30)
def test_the_verdict_is_that_of_bets_on_the_counts(good, bad, threshold):
    gate = dataclasses.replace(COMPLIANCE, threshold=threshold, min_samples=1)
    (outcome,) = since(counted(live(good, bad, build="new"), live(1, build="old")), gate)
    seen = betting.shares(good, good + bad)
    assert outcome.verdict == (betting.verdict(seen, threshold) or "insufficient")
    assert (outcome.value, outcome.n) == (good / (good + bad), good + bad)
    assert (outcome.lower, outcome.upper) == betting.confidence_sequence(seen)


def test_records_of_other_builds_and_of_none_do_not_count():
    scorer = counted(live(0, 500, build="old"), live(0, 500), live(100, build="new"))
    (outcome,) = since(scorer, COMPLIANCE)
    assert (outcome.verdict, outcome.n, outcome.value) == ("pass", 100, 1.0)
    assert outcome.reason == "since build new: proven kept by 100 samples, however often it is asked"


def test_requests_kept_for_their_outcome_do_not_count():
    kept = Sampling(audit=False, stratum="error", p_audit=0.05, p=1.0)
    scorer = counted(live(100, build="new"), live(0, 500, build="new", sampling=kept))
    assert [(o.verdict, o.n) for o in since(scorer, COMPLIANCE)] == [("pass", 100)]
    only_kept = counted(live(0, 500, build="new", sampling=kept))
    assert [(o.verdict, o.n, o.reason) for o in since(only_kept, COMPLIANCE)] == [
        ("insufficient", 0, "since build new: no data")
    ]


def test_a_ceiling_is_broken_by_what_it_counts():
    scorer = counted(live(50, build="new"), live(50, build="new", error="timeout"))
    (outcome,) = since(scorer, ERRORS)
    assert (outcome.verdict, outcome.value) == ("fail", 0.5)
    assert outcome.reason == "since build new: proven broken by 100 samples, however often it is asked"


@pytest.mark.parametrize(
    ("good", "bad", "reason", "needed"),
    [
        (5, 0, "5 of at least 30 samples", 30),
        (0, 29, "29 of at least 30 samples", 30),
        (
            85,
            15,
            "100 samples prove neither; the value keeps the gate by 5.0 points",
            betting.needed({1: 85, 0: 15}, 0.8),
        ),
        (
            78,
            22,
            "100 samples prove neither; the value breaks the gate by 2.0 points",
            betting.needed({1: 78, 0: 22}, 0.8),
        ),
        (80, 20, "100 samples prove neither; the value keeps the gate by 0.0 points", None),
    ],
)
def test_what_is_not_proven_says_what_it_would_take(good, bad, reason, needed):
    (outcome,) = since(counted(live(good, bad, build="new")), COMPLIANCE)
    assert (outcome.verdict, outcome.needed) == ("insufficient", needed)
    assert outcome.reason == f"since build new: {reason}"


def test_a_gate_that_takes_more_than_the_minimum_to_pass_says_so():
    strict = dataclasses.replace(COMPLIANCE, threshold=0.98)
    (outcome,) = since(counted(live(10, build="new")), strict)
    assert outcome.needed == betting.needed({1: 1}, 0.98) > 200


def test_a_draw_from_the_gold_set_is_an_observation_and_for_questions_like_these_an_item_is():
    """30 items asked ten times, a third of them always answered wrongly."""
    claims = [RIGHT] * 20 + [WRONG] * 10
    scorer = counted(*[answers(claims, source="probe", build="new") for _ in range(10)])
    like_these = dataclasses.replace(PRECISION, estimand="questions_like_these")
    draws, items = since(scorer, PRECISION, like_these)
    assert (draws.verdict, draws.estimand, draws.n) == ("fail", "gold_set", 300)
    assert (items.verdict, items.estimand, items.n, items.items) == ("insufficient", "questions_like_these", 300, 30)
    assert items.reason.startswith("since build new: 30 gold items prove neither")
    assert (items.lower, items.upper) == betting.confidence_sequence({1.0: 20, 0.0: 10})
    assert draws.value == items.value == pytest.approx(2 / 3)


def test_a_source_is_found_as_for_every_gate():
    """Probes come before matched user questions, and those are told apart from the traffic they are part of."""
    matched = answers([WRONG] * 50, source="live", build="new")
    (outcome,) = since(counted(matched), PRECISION)
    assert (outcome.verdict, outcome.source, outcome.estimand) == ("fail", "match", "questions_like_these")
    probed = answers([RIGHT] * 100, source="probe", build="new")
    first, second = since(counted(matched, probed), PRECISION, COMPLIANCE)
    assert (first.verdict, first.source, second.source, second.n) == ("pass", "probe", "live", 50)


def test_scores_measured_on_the_text_count_by_their_sum():
    def answered(grounded):
        return make_record("q000", source="probe", build="new", measures={"groundedness": grounded})

    scorer = counted([answered(0.9), answered(0.7)] * 60)
    by_item = dataclasses.replace(GROUNDED, gold="gold", estimand="questions_like_these")
    draws, items = since(scorer, GROUNDED, by_item)
    assert (draws.verdict, draws.value) == ("pass", pytest.approx(0.8))
    assert (draws.lower, draws.upper) == pytest.approx(betting.confidence_sequence(betting.shares(96, 120)))
    assert items.reason == "since build new: its scores are not kept item by item"


def test_the_point_mode_of_a_policy_does_not_decide():
    """It would tell a verdict after the first request."""
    (outcome,) = since(counted(live(9, 1, build="new")), COMPLIANCE, mode="point")
    assert outcome.verdict == "insufficient"


def test_gates_of_other_kinds_are_judged_on_the_builds_records():
    latency = Gate("p95", "latency", 1.3, "at_most", kind="quantile_ratio")
    index = Gate("index", "index_hash", 1, "at_most", kind="distinct")
    slow, fast = Latency(total=2000.0), Latency(total=1000.0)
    scorer = counted(
        live(50, build="old", latency_ms=slow, index_hash="a"),
        live(50, build="new", latency_ms=fast, index_hash="b"),
        live(1, build="new", latency_ms=fast, index_hash="c"),
    )
    found = since(scorer, latency, index, COMPLIANCE, baseline_p95_ms={"default": 1000.0})
    assert [outcome.verdict for outcome in found] == ["pass", "fail", "pass"]
    assert found[1].reason == "since build new: build new answered from b, c"


def test_states_that_are_merged_are_judged_as_one():
    """The evidence is a function of counts: replicas may be added in any order."""
    shards = [counted(live(40 + i, i, build="new")) for i in range(3)]
    whole = counted(*(live(40 + i, i, build="new") for i in range(3)))
    merged = shards[2]
    merged.state.merge(shards[0].state)
    merged.state.merge(shards[1].state)
    assert since(merged, COMPLIANCE) == since(whole, COMPLIANCE)


# --- one build against another ----------------------------------------------------------------------------------------


def verdicts(found):
    return {comparison.gate.name: comparison.verdict for comparison in found}


@pytest.mark.parametrize(
    ("bad", "max_drop", "verdict"),
    [(0, 0.02, "pass"), (70, 0.02, "fail"), (70, 0.20, "pass"), (10, 0.01, "insufficient")],
)
def test_user_requests_are_two_samples(bad, max_drop, verdict):
    scorer = counted(live(1000, build="old"), live(1000 - bad, bad, build="new"))
    (found,) = against(scorer, COMPLIANCE, max_drop=max_drop)
    assert (found.verdict, found.source, found.items, found.flips) == (verdict, "live", None, ())
    assert (found.before, found.after) == ((1.0, 1000), ((1000 - bad) / 1000, 1000))
    assert found.drop == pytest.approx(bad / 1000)


def test_where_less_is_better_more_is_worse():
    scorer = counted(live(300, build="old"), live(240, build="new"), live(60, build="new", error="timeout"))
    (found,) = against(scorer, ERRORS)
    assert (found.verdict, found.drop) == ("fail", pytest.approx(0.2))
    (found,) = against(scorer, ERRORS, names=("new", "old"))
    assert (found.verdict, found.drop) == ("pass", pytest.approx(-0.2))


@pytest.mark.parametrize("source", ["probe", "replay", "live"])
def test_gold_questions_are_paired_item_by_item(source):
    old = answers([RIGHT] * 600, source=source, build="old")
    new = answers([RIGHT] * 580 + [WRONG] * 20, source=source, build="new")
    (found,) = against(counted(old, new), PRECISION)
    assert (found.verdict, found.reason) == ("fail", "a drop is proven")
    assert (found.items, len(found.flips), found.worse) == (600, 20, 20)
    assert [flip.qid for flip in found.flips] == [f"q{i}" for i in range(580, 600)]
    assert (found.before, found.after) == ((1.0, 600), (pytest.approx(580 / 600), 600))


def test_where_less_is_better_a_flip_to_more_is_for_the_worse():
    old = answers([REFUSED] * 20 + [RIGHT] * 580, build="old")
    new = answers([RIGHT] * 20 + [RIGHT] * 580, build="new")
    (found,) = against(counted(old, new), REFUSAL)
    assert (found.verdict, len(found.flips), found.worse) == ("pass", 20, 0)
    (found,) = against(counted(old, new), REFUSAL, names=("new", "old"))
    assert (found.verdict, found.worse) == ("fail", 20)


def test_answers_to_what_was_refused_count_against_precision():
    """All that both answered is as it was; what the candidate answers besides is wrong."""
    old = answers([RIGHT] * 600 + [REFUSED] * 200, build="old")
    new = answers([RIGHT] * 600 + [WRONG] * 200, build="new")
    precision, hallucination = against(counted(old, new), PRECISION, HALLUCINATION)
    assert (precision.verdict, precision.flips, precision.after.value) == ("fail", (), 0.75)
    assert (hallucination.verdict, hallucination.worse) == ("fail", 200)


def test_gold_items_that_one_build_alone_was_asked_are_two_samples():
    halves = [RIGHT, RIGHT, RIGHT, WRONG, RIGHT] * 50
    scorer = counted(answers(halves, build="old"), answers(halves, first=250, build="new"))
    equal, loose = against(scorer, PRECISION), against(scorer, PRECISION, max_drop=0.25)
    assert (equal[0].verdict, equal[0].items, equal[0].before, equal[0].after) == (
        "insufficient",
        0,
        (0.8, 250),
        (0.8, 250),
    )
    assert verdicts(loose) == {"precision": "pass"}


def test_items_asked_again_are_no_more_items():
    old = [record for _ in range(20) for record in answers([RIGHT] * 8, source="probe", build="old")]
    new = [record for _ in range(20) for record in answers([WRONG] * 8, source="probe", build="new")]
    (found,) = against(counted(old, new), PRECISION)
    assert (found.verdict, found.items, len(found.flips)) == ("insufficient", 8, 8)


def test_a_metric_without_gold_is_paired_where_every_request_belongs_to_the_set():
    old, new = (answers([RIGHT] * 400, build=build, index_hash=build) for build in ("old", "new"))
    (found,) = against(counted(old, new), COMPLIANCE)
    assert (found.gold, found.items, found.verdict) == ("gold", 400, "pass")
    stranger = make_record("elsewhere", build="new")
    (found,) = against(counted(old, new, [stranger]), COMPLIANCE)
    assert (found.gold, found.items, found.verdict, found.after.n) == ("", None, "insufficient", 401)


def test_scores_measured_on_the_text_are_two_samples():
    old = [make_record("q000", source="probe", build="old", measures={"groundedness": 0.9})] * 300
    new = [make_record("q000", source="probe", build="new", measures={"groundedness": 0.5})] * 300
    (found,) = against(counted(old, new), GROUNDED)
    assert (found.verdict, found.items, found.drop) == ("fail", None, pytest.approx(0.4))


def test_both_are_read_from_the_same_source():
    """The candidate was probed, the baseline was not: user traffic is what both have."""
    scorer = counted(
        answers([RIGHT] * 100, source="live", build="old"),
        answers([RIGHT] * 100, source="live", build="new"),
        answers([WRONG] * 100, source="probe", build="new"),
    )
    (found,) = against(scorer, PRECISION)
    assert (found.source, found.items, found.drop) == ("match", 100, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ([], answers([RIGHT], build="new"), "no data of old"),
        (answers([RIGHT], build="old"), [], "no data of new"),
        ([], [], "no data of old and new"),
    ],
)
def test_without_data_nothing_is_decided(old, new, reason):
    scorer = counted(old, new, live(1, build="old"), live(1, build="new"))
    (found,) = against(scorer, PRECISION)
    assert (found.verdict, found.reason) == ("insufficient", reason)


def test_indexes_are_compared_as_builds_are():
    scorer = counted(live(500, index_hash="a", build="1"), live(300, 200, index_hash="b", build="1"))
    assert verdicts(against(scorer, COMPLIANCE, by="index_hash", names=("a", "b"))) == {"compliance": "fail"}


def test_the_error_of_a_false_alarm_is_shared_by_the_gates_and_that_of_a_false_all_clear_is_not():
    """Nine flips prove a drop for one gate, and not for one of twenty."""
    old = answers([RIGHT] * 600, build="old")
    new = answers([WRONG] * 9 + [RIGHT] * 591, build="new")
    scorer = counted(old, new)
    others = [dataclasses.replace(COMPLIANCE, name=f"c{i}") for i in range(19)]
    assert verdicts(against(scorer, PRECISION, max_drop=0.0))["precision"] == "fail"
    assert verdicts(against(scorer, PRECISION, *others, max_drop=0.0))["precision"] == "insufficient"
    alone, among = (against(scorer, PRECISION, *more, max_drop=0.05)[0] for more in ((), others))
    assert alone.verdict == among.verdict == "pass"
    assert alone.reason == "a drop is proven, one of 5.0 points is ruled out"
    assert among.reason == "a drop of 5.0 points is ruled out"


def test_gates_on_other_things_than_means_are_left_out():
    index = Gate("index", "index_hash", 1, "at_most", kind="distinct")
    scorer = counted(live(10, build="old"), live(10, build="new"))
    assert verdicts(against(scorer, index, COMPLIANCE)) == {"compliance": "insufficient"}
    assert against(scorer, index) == []


def test_an_unknown_release_and_an_impossible_margin_are_refused():
    scorer = counted(live(1, build="old"), live(1, build="new"))
    with pytest.raises(UnknownNameError, match="unknown build: 'newer'"):
        against(scorer, COMPLIANCE, names=("old", "newer"))
    with pytest.raises(RagmonError, match="margin 1 is no difference"):
        against(scorer, COMPLIANCE, max_drop=1)


@given(worlds())
@settings(max_examples=40)
def test_a_release_is_never_worse_than_itself(world):
    """The same records under two names: whatever they hold, no drop is proven."""
    gold, records = world
    scorer = Scorer(gold)
    for record, build in itertools.product(records, ("old", "new")):
        record.build = build
        scorer.observe(record)
    if records:
        for found in against(scorer, PRECISION, REFUSAL, COMPLIANCE, ERRORS, GROUNDED):
            assert found.verdict != "fail"
            assert not found.flips
