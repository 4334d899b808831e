"""Releases judged while their traffic comes in: one build against the gates, and against the build before it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Latency, Sampling
from ragmon.export.schema import compared_gate
from ragmon.gates.releases import Clusters, Release, compare, judge, of_release
from ragmon.scoring.buckets import State
from ragmon.scoring.minutes import CLUSTER
from ragmon.scoring.scorer import Scorer
from ragmon.stats import betting
from ragmon.stats.betting import log_worse
from ragmon.testing import make_gold, make_record
from tests.support.random_records import worlds

RIGHT, WRONG, REFUSED = "an answer", "a guess", "not in context"
GOLD = make_gold(*((f"q{i:03}", i < 600) for i in range(800)))
"""600 answerable questions, 200 that are not."""
FEW = make_gold(*((f"q{i:03}", i < 40) for i in range(50)))
"""40 answerable questions, 10 that are not."""
REST = [REFUSED] * 200
"""What `GOLD` has that cannot be answered."""
PRECISION = Gate("precision", "answer_precision", 0.80, "at_least")
REFUSAL = Gate("refusal", "over_refusal_rate", 0.10, "at_most")
HALLUCINATION = Gate("hallucination", "under_refusal_rate", 0.05, "at_most")
COMPLIANCE = Gate("compliance", "compliance", 0.80, "at_least")
ERRORS = Gate("errors", "error_rate", 0.20, "at_most")
GROUNDED = Gate("grounded", "groundedness", 0.50, "at_least")


class Counted:
    """A scorer, and the clusters of every build, or of every index."""

    def __init__(self, *records, gold=GOLD, by="build"):
        self.scorer = Scorer(gold, clock=lambda: math.inf, observers=[self])
        self.clusters = {}
        self.by = by
        for record in itertools.chain(*records):
            assert self.scorer.observe(record)

    def collect(self, request):
        name = getattr(request.record, self.by) or ""
        if name not in self.clusters:
            self.clusters[name] = Clusters(self.scorer.table, (GROUNDED,), lambda _: CLUSTER)
        self.clusters[name].collect(request)

    def release(self, name, by="build"):
        state = of_release(self.scorer.state, by, name)
        return Release(name, state, self.clusters[name])


counted = Counted


def live(good=0, bad=0, **fields):
    """User requests: good ones carry a list of citations, bad ones refuse in words of their own."""
    yield from (make_record(source="live", **fields) for _ in range(good))
    yield from (make_record(source="live", claim="I do not know.", **fields) for _ in range(bad))


def answers(claims, first=0, **fields):
    """Answers to the gold questions from the first on."""
    return [make_record(f"q{first + i:03}", claim=claim, **fields) for i, claim in enumerate(claims)]


def since(traffic, *gates, build="new", **policy):
    scorer = traffic.scorer
    return judge(traffic.release(build), scorer.table, Policy(gates, **policy), golds=scorer.gold.infos())


def against(traffic, *gates, by="build", names=("old", "new"), **options):
    releases = [traffic.release(name, by) for name in names]
    return compare(*releases, traffic.scorer.table, Policy(gates), golds=traffic.scorer.gold.infos(), **options)


# --- what was counted of a release ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(worlds())
def test_the_parts_of_a_state_are_all_of_it(world):
    gold, records = world
    scorer = counted(records, gold=gold).scorer
    builds = {key.build for key in scorer.state.series} - {""}
    parts = [of_release(scorer.state, "build", build) for build in builds]
    rest = State()
    rest.series = {key: series for key, series in scorer.state.series.items() if not key.build}
    rest.matched = scorer.state.matched  # how gold was found is not told by build, nor is what concerns a pipeline
    rest.answers, rest.captured, rest.cohorts = scorer.state.answers, scorer.state.captured, scorer.state.cohorts
    whole = State()
    for some in (*parts, rest):
        whole.merge(some)
    assert whole.digest() == scorer.state.digest()


@pytest.mark.parametrize(
    ("by", "name", "message", "hint"),
    [
        ("build", "2.0.1", "unknown build: '2.0.1'", "did you mean 2.0.0?"),
        ("index_hash", "zzz", "unknown index hash: 'zzz'", "one of: aaa"),
        ("build", "", "unknown build: ''", "one of: 2.0.0"),
    ],
)
def test_a_release_nobody_has_seen_is_refused_with_the_nearest(by, name, message, hint):
    scorer = counted([make_record("q000", build="2.0.0", index_hash="aaa"), make_record("q001")]).scorer
    with pytest.raises(UnknownNameError) as refused:
        of_release(scorer.state, by, name)
    assert (str(refused.value), refused.value.hint) == (message, hint)


@pytest.mark.parametrize(("by", "hint"), [("build", "no record carries a build"), ("index_hash", "an index hash")])
def test_where_no_record_carries_a_release_it_says_so(by, hint):
    with pytest.raises(UnknownNameError) as refused:
        of_release(counted([make_record("q000")]).scorer.state, by, "1")
    assert refused.value.hint.endswith(hint)


# --- one build against the gates --------------------------------------------------------------------------------------


@pytest.mark.slow
@given(good=st.integers(1, 200), bad=st.integers(0, 200), threshold=st.sampled_from([0.5, 0.8, 0.95]))
@settings(max_examples=30)
def test_the_verdict_is_that_of_bets_on_the_counts(good, bad, threshold):
    gate = dataclasses.replace(COMPLIANCE, threshold=threshold, min_samples=1)
    (outcome,) = since(counted(live(good, bad, build="new"), live(1, build="old")), gate)
    seen = betting.shares(good, good + bad)
    assert outcome.verdict == (betting.verdict(seen, threshold) or "insufficient")
    assert (outcome.value, outcome.n, outcome.n_eff) == (pytest.approx(good / (good + bad)), good + bad, good + bad)
    assert (outcome.lower, outcome.upper) == betting.confidence_sequence(seen)


def test_records_of_other_builds_and_of_none_do_not_count():
    traffic = counted(live(0, 500, build="old"), live(0, 500), live(100, build="new"))
    (outcome,) = since(traffic, COMPLIANCE)
    assert (outcome.verdict, outcome.n, outcome.value) == ("pass", 100, 1.0)
    assert outcome.reason == "since build new: proven within the limit by 100 observations, however often you look"


@pytest.mark.parametrize(
    "kept", [Sampling(audit=False, stratum="error", p_audit=0.05, p=1.0), Sampling(stratum="unknown_weight")]
)
def test_requests_that_won_no_uniform_draw_at_a_known_rate_do_not_count(kept):
    traffic = counted(live(100, build="new"), live(0, 500, build="new", sampling=kept))
    assert [(o.verdict, o.n) for o in since(traffic, COMPLIANCE)] == [("pass", 100)]
    only_kept = counted(live(0, 500, build="new", sampling=kept))
    assert [(o.verdict, o.n, o.reason) for o in since(only_kept, COMPLIANCE)] == [
        ("insufficient", 0, "since build new: no data")
    ]


@pytest.mark.slow
def test_a_ceiling_is_broken_by_what_it_counts():
    traffic = counted(live(50, build="new"), live(50, build="new", error="timeout"))
    (outcome,) = since(traffic, ERRORS)
    assert (outcome.verdict, outcome.value) == ("fail", 0.5)
    assert outcome.reason == "since build new: proven outside the limit by 100 observations, however often you look"


@pytest.mark.parametrize(
    ("good", "bad", "reason", "needed"),
    [
        (5, 0, "only 5 observations (min_samples is 30)", 30),
        (0, 29, "only 29 observations (min_samples is 30)", 30),
        (
            85,
            15,
            "100 observations do not decide it; the value is within the limit by 5.0 points",
            betting.needed({1: 85, 0: 15}, 0.8),
        ),
        (
            78,
            22,
            "100 observations do not decide it; the value is outside the limit by 2.0 points",
            betting.needed({1: 78, 0: 22}, 0.8),
        ),
        (80, 20, "100 observations do not decide it; the value is within the limit by 0.0 points", None),
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


def test_the_requests_of_a_session_are_one_observation():
    """80 of 100 requests are well, 8 of 10 sessions: taken for draws the requests would keep a gate of .60."""
    sessions = (live(10 * (i < 8), 10 * (i >= 8), build="new", session=f"s{i}") for i in range(10))
    gate = dataclasses.replace(COMPLIANCE, threshold=0.60, min_samples=10)
    (outcome,) = since(counted(*sessions), gate)
    assert betting.verdict(betting.shares(80, 100), 0.60) == "pass"
    assert (outcome.verdict, outcome.n, outcome.n_eff) == ("insufficient", 100, 10)
    assert (outcome.lower, outcome.upper) == betting.confidence_sequence({1.0: 8, 0.0: 2})
    assert outcome.needed == betting.needed({1.0: 8, 0.0: 2}, 0.60)


def test_a_session_is_one_voice_however_long_it_is():
    long, short = live(0, 90, build="new", session="long"), (live(1, build="new", session=f"s{i}") for i in range(9))
    (outcome,) = since(counted(long, *short), dataclasses.replace(COMPLIANCE, min_samples=1))
    assert (outcome.value, outcome.n) == (pytest.approx(0.9), 99)


@pytest.mark.parametrize("source", ["probe", None])
@pytest.mark.parametrize("estimand", [None, "gold_set", "questions_like_these"])
def test_a_run_through_a_gold_set_says_nothing_until_it_has_come_to_nearly_all_of_it(source, estimand):
    """What can be answered comes first, and all of it is right."""
    claims = [RIGHT] * 40 + [WRONG] * 10
    gates = [dataclasses.replace(gate, estimand=estimand, min_samples=10) for gate in (PRECISION, COMPLIANCE)]
    for asked in (1, 30, 40, 48):
        seen = counted(answers(claims[:asked], source=source, build="new"), gold=FEW)
        for outcome in since(seen, *gates):
            told = f"since build new: {50 - asked} of 50 gold items have no trace yet"
            assert (outcome.verdict, outcome.reason, outcome.lower) == ("insufficient", told, None)
    for asked in (49, 50):
        precision, compliance = since(counted(answers(claims[:asked], source=source, build="new"), gold=FEW), *gates)
        assert "have no trace yet" not in precision.reason + compliance.reason


def test_of_a_whole_run_through_a_gold_set_the_value_is_exact():
    """The interval says what is known of other questions, at all looks together."""
    claims = [RIGHT] * 38 + [WRONG] * 12
    precision, compliance = since(
        counted(answers(claims, source="probe", build="new"), gold=FEW), PRECISION, COMPLIANCE
    )
    assert (precision.verdict, precision.value, precision.n_eff) == ("fail", 0.76, None)
    assert precision.reason == "since build new: exact over 50 gold items; the interval is for questions like these"
    assert (precision.lower, precision.upper) == betting.confidence_sequence({1.0: 38, 0.0: 12})
    assert (compliance.verdict, compliance.gold, compliance.value) == ("pass", "gold", 1.0)
    like_these = dataclasses.replace(PRECISION, estimand="questions_like_these")
    (outcome,) = since(counted(answers(claims, source="probe", build="new"), gold=FEW), like_these)
    assert (outcome.verdict, outcome.n_eff) == ("insufficient", 50)
    assert outcome.reason.startswith("since build new: 50 gold items do not decide it")


def test_items_asked_again_are_no_more_gold_items():
    claims = [RIGHT] * 30 + [WRONG] * 20
    like_these = dataclasses.replace(PRECISION, estimand="questions_like_these")
    (outcome,) = since(
        counted(*(answers(claims, source="probe", build="new") for _ in range(10)), gold=FEW), like_these
    )
    assert (outcome.verdict, outcome.n, outcome.n_eff, outcome.items) == ("insufficient", 500, 50, 50)
    assert (outcome.lower, outcome.upper) == betting.confidence_sequence({1.0: 30, 0.0: 20})


def test_a_run_with_some_strangers_in_it_is_waited_for_too_and_a_log_that_touches_the_set_is_not():
    strangers = [make_record(f"z{i}", build="new") for i in range(10)]
    (outcome,) = since(counted(answers([RIGHT] * 40, build="new"), strangers, gold=FEW), COMPLIANCE)
    assert outcome.reason == "since build new: 10 of 50 gold items have no trace yet"
    (outcome,) = since(counted(answers([RIGHT] * 10, build="new"), strangers * 5, gold=FEW), COMPLIANCE)
    assert (outcome.verdict, outcome.gold, outcome.n_eff) == ("pass", "", 60)


def test_a_source_is_found_as_for_every_gate():
    """Probes come before matched user questions, and those are told apart from the traffic they are part of."""
    matched = answers([WRONG] * 45, source="live", build="new")
    (outcome,) = since(counted(matched, gold=FEW), PRECISION)
    assert (outcome.verdict, outcome.source, outcome.estimand) == ("fail", "match", "questions_like_these")
    assert outcome.reason == "since build new: proven outside the limit by 45 gold items, however often you look"
    probed = answers([RIGHT] * 40 + [REFUSED] * 10, source="probe", build="new")
    first, second = since(counted(matched, probed, gold=FEW), PRECISION, COMPLIANCE)
    assert (first.verdict, first.source, second.source, second.n) == ("pass", "probe", "live", 45)


def test_scores_measured_on_the_text_count_item_by_item_too():
    def answered(number, grounded):
        return make_record(f"q{number:03}", source="probe", build="new", measures={"groundedness": grounded})

    seen = counted([answered(i, x) for i in range(50) for x in (0.9, 0.5)], gold=FEW)
    by_item = dataclasses.replace(GROUNDED, estimand="questions_like_these")
    run, items = since(seen, GROUNDED, by_item)
    assert (run.verdict, run.value, run.lower) == ("pass", pytest.approx(0.7), None)
    assert (items.value, items.n, items.n_eff) == (pytest.approx(0.7), 100, 50)
    assert (items.lower, items.upper) == pytest.approx(betting.confidence_sequence({0.7: 50}))


def test_a_build_is_no_part_of_counted_calls():
    """Totals know of no builds, so the number is neither one of all calls nor of exported traffic."""
    (outcome,) = since(counted(live(50, build="new")), COMPLIANCE)
    assert (outcome.source, outcome.of) == ("live", "")


def test_the_point_mode_of_a_policy_does_not_decide():
    """It would tell a verdict after the first request."""
    (outcome,) = since(counted(live(9, 1, build="new")), COMPLIANCE, mode="point")
    assert outcome.verdict == "insufficient"


def test_gates_of_other_kinds_are_judged_on_the_builds_records():
    latency = Gate("p95", "latency", 1.3, "at_most", kind="quantile_ratio")
    index = Gate("index", "index_hash", 1, "at_most", kind="distinct")
    slow, fast = Latency(total=2000.0), Latency(total=1000.0)
    traffic = counted(
        live(50, build="old", latency_ms=slow, index_hash="a"),
        live(50, build="new", latency_ms=fast, index_hash="b"),
        live(1, build="new", latency_ms=fast, index_hash="c"),
    )
    found = since(traffic, latency, index, COMPLIANCE, baseline_p95_ms={"default": 1000.0})
    assert [outcome.verdict for outcome in found] == ["pass", "fail", "pass"]
    assert found[1].reason == "since build new: build new answered from index b, c"


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_the_records_does_not_matter(chance):
    records = [r for i in range(20) for r in live(i % 4, i % 3, build="new", session=f"s{i}", ts=float(i))]
    expected = since(counted(records), COMPLIANCE, ERRORS)
    chance.shuffle(records)
    assert since(counted(records), COMPLIANCE, ERRORS) == expected


# --- one build against another ----------------------------------------------------------------------------------------


def verdicts(found):
    return {comparison.gate.name: comparison.verdict for comparison in found}


@pytest.mark.parametrize(
    ("bad", "max_drop", "verdict"),
    [(0, 0.02, "pass"), (70, 0.02, "fail"), (70, 0.20, "pass"), (10, 0.01, "insufficient")],
)
def test_user_requests_are_two_samples(bad, max_drop, verdict):
    traffic = counted(live(1000, build="old"), live(1000 - bad, bad, build="new"))
    (found,) = against(traffic, COMPLIANCE, max_drop=max_drop)
    assert (found.verdict, found.source, found.items, found.flips) == (verdict, "live", None, ())
    assert (found.before, found.after) == ((1.0, 1000), ((1000 - bad) / 1000, 1000))
    assert found.drop == pytest.approx(bad / 1000)


def test_where_less_is_better_more_is_worse():
    traffic = counted(live(300, build="old"), live(240, build="new"), live(60, build="new", error="timeout"))
    (found,) = against(traffic, ERRORS)
    assert (found.verdict, found.drop) == ("fail", pytest.approx(0.2))
    (found,) = against(traffic, ERRORS, names=("new", "old"))
    assert (found.verdict, found.drop) == ("pass", pytest.approx(-0.2))


@pytest.mark.parametrize("source", ["probe", "replay", "live"])
def test_gold_questions_are_paired_item_by_item(source):
    old = answers([RIGHT] * 600 + REST, source=source, build="old")
    new = answers([RIGHT] * 580 + [WRONG] * 20 + REST, source=source, build="new")
    (found,) = against(counted(old, new), PRECISION)
    assert (found.verdict, found.reason) == ("fail", "a drop is proven")
    assert (found.items, len(found.flips), compared_gate(found).worse) == (600, 20, 20)
    assert [flip.qid for flip in found.flips] == [f"q{i}" for i in range(580, 600)]
    assert (found.before, found.after) == ((1.0, 600), (pytest.approx(580 / 600), 600))


def test_where_less_is_better_a_flip_to_more_is_for_the_worse():
    old = answers([REFUSED] * 20 + [RIGHT] * 580 + REST, build="old")
    new = answers([RIGHT] * 20 + [RIGHT] * 580 + REST, build="new")
    (found,) = against(counted(old, new), REFUSAL)
    assert (found.verdict, len(found.flips), compared_gate(found).worse) == ("pass", 20, 0)
    (found,) = against(counted(old, new), REFUSAL, names=("new", "old"))
    assert (found.verdict, compared_gate(found).worse) == ("fail", 20)


def test_intervals_agree_with_the_verdicts_and_are_computed_where_they_are_asked_for():
    old = answers([RIGHT] * 600 + REST, build="old")
    new = answers([RIGHT] * 580 + [WRONG] * 20 + REST, build="new")
    paired_items, samples = counted(old, new), counted(live(1000, build="old"), live(930, 70, build="new"))
    for traffic, gate in ((paired_items, PRECISION), (paired_items, REFUSAL), (samples, COMPLIANCE), (samples, ERRORS)):
        for names in (("old", "new"), ("new", "old")):
            (plain,) = against(traffic, gate, names=names)
            (found,) = against(traffic, gate, names=names, intervals=True)
            assert plain.intervals is None
            assert replace(found, intervals=None) == plain
            lower, upper = found.intervals.drop
            assert lower <= found.drop <= upper
            assert (found.verdict == "fail") == (lower >= 0)
            assert (found.verdict == "pass") == (upper < 0.02)
            for interval, sample in ((found.intervals.before, found.before), (found.intervals.after, found.after)):
                assert interval[0] <= sample.value <= interval[1]


def test_without_data_there_are_no_intervals():
    (found,) = against(counted(live(10, build="old"), live(10, build="new")), PRECISION, intervals=True)
    assert found.intervals is None


def test_answers_to_what_was_refused_count_against_precision():
    """All that both answered is as it was; what the candidate answers besides is wrong."""
    old = answers([RIGHT] * 600 + [REFUSED] * 200, build="old")
    new = answers([RIGHT] * 600 + [WRONG] * 200, build="new")
    precision, hallucination = against(counted(old, new), PRECISION, HALLUCINATION)
    assert (precision.verdict, precision.flips, precision.after.value) == ("fail", (), 0.75)
    assert (hallucination.verdict, compared_gate(hallucination).worse) == ("fail", 200)


def test_all_gates_together_call_an_equal_release_worse_with_one_error_probability():
    """What proves a drop to one gate proves none to each of ten."""
    traffic = counted(live(1000, build="old"), live(986, 14, build="new"))
    evidence = log_worse(betting.shares(1000, 1000), betting.shares(986, 1000))
    assert math.log(2 / betting.ALPHA) < evidence < math.log(10 * 2 / betting.ALPHA)
    ten = [replace(COMPLIANCE, name=f"compliance {number}") for number in range(10)]
    assert [found.verdict for found in against(traffic, COMPLIANCE, max_drop=0.001)] == ["fail"]
    assert {found.verdict for found in against(traffic, *ten, max_drop=0.001)} == {"insufficient"}


def test_gold_items_that_one_build_alone_was_asked_are_two_samples():
    halves = [RIGHT, RIGHT, RIGHT, WRONG, RIGHT] * 50
    old, new = answers(halves, source="live", build="old"), answers(halves, first=250, source="live", build="new")
    traffic = counted(old, new)
    equal, loose = against(traffic, PRECISION), against(traffic, PRECISION, max_drop=0.25)
    assert (equal[0].verdict, equal[0].items, equal[0].before, equal[0].after) == (
        "insufficient",
        0,
        (0.8, 250),
        (0.8, 250),
    )
    assert verdicts(loose) == {"precision": "pass"}


def test_items_asked_again_are_no_more_items():
    old = [record for _ in range(20) for record in answers([RIGHT] * 8, source="live", build="old")]
    new = [record for _ in range(20) for record in answers([WRONG] * 8, source="live", build="new")]
    (found,) = against(counted(old, new), PRECISION)
    assert (found.verdict, found.items, len(found.flips)) == ("insufficient", 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["probe", "replay"])
@pytest.mark.parametrize("behind", ["old", "new"])
def test_runs_through_a_gold_set_are_compared_when_both_have_come_to_nearly_all_of_it(source, behind):
    """All that can be answered comes first, and is as it was; what comes last is not."""
    old, new = [RIGHT] * 600 + REST, [RIGHT] * 600 + [WRONG] * 200
    for asked, verdict in ((600, "insufficient"), (783, "insufficient"), (784, "fail"), (800, "fail")):
        seen = {"old": old, "new": new}
        seen[behind] = seen[behind][:asked]
        runs = [answers(claims, source=source, build=build) for build, claims in seen.items()]
        (found,) = against(counted(*runs), PRECISION)
        assert found.verdict == verdict
        if asked < 784:
            assert found.reason == f"{behind}: {800 - asked} of 800 gold items have no trace yet"


def test_a_metric_without_gold_is_paired_where_every_request_belongs_to_the_set():
    old, new = (answers([RIGHT] * 600 + REST, build=build, index_hash=build) for build in ("old", "new"))
    (found,) = against(counted(old, new), COMPLIANCE)
    assert (found.gold, found.items, found.verdict) == ("gold", 800, "pass")
    stranger = make_record("elsewhere", build="new")
    (found,) = against(counted(old, new, [stranger]), COMPLIANCE)
    assert (found.gold, found.items, found.after.n) == ("", None, 801)


def test_the_requests_of_a_session_are_one_observation_of_a_release():
    """Taken for draws, 2 bad sessions of 20 requests each would prove a drop."""
    old = (live(20, build="old", session=f"s{i}") for i in range(20))
    new = (live(20 * (i > 1), 20 * (i <= 1), build="new", session=f"t{i}") for i in range(20))
    (found,) = against(counted(*old, *new), COMPLIANCE)
    assert log_worse(betting.shares(400, 400), betting.shares(360, 400)) > math.log(40)
    assert (found.verdict, found.before, found.after) == ("insufficient", (1.0, 20), (pytest.approx(0.9), 20))


def test_scores_measured_on_the_text_are_two_samples_of_items():
    def run(build, grounded, times):
        fields = {"source": "probe", "build": build, "measures": {"groundedness": grounded}}
        return [make_record(f"q{i:03}", **fields) for i in range(50) for _ in range(times)]

    (found,) = against(counted(run("old", 0.9, 10), run("new", 0.5, 1), gold=FEW), GROUNDED)
    assert (found.verdict, found.items, found.drop) == ("fail", None, pytest.approx(0.4))
    assert (found.before.n, found.after.n) == (50, 50)


def test_both_are_read_from_the_same_source():
    """The candidate was probed, the baseline was not: user traffic is what both have."""
    traffic = counted(
        answers([RIGHT] * 100, source="live", build="old"),
        answers([RIGHT] * 100, source="live", build="new"),
        answers([WRONG] * 100, source="probe", build="new"),
    )
    (found,) = against(traffic, PRECISION)
    assert (found.source, found.items, found.drop) == ("match", 100, 0.0)


def test_where_one_release_lacks_data_what_the_other_has_is_shown_with_its_source():
    """Probes of the old build asked nothing that tells of the metric; users did."""
    asked = make_record("q700", source="live", claim=REFUSED, build="old")
    traffic = counted([asked], answers([RIGHT], source="probe", build="old"), live(1, build="new"))
    (found,) = against(traffic, HALLUCINATION)
    assert (found.source, found.before.n, found.before.value, found.reason) == ("match", 1, 0.0, "no data for new")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ([], answers([RIGHT], build="new"), "no data for old"),
        (answers([RIGHT], build="old"), [], "no data for new"),
        ([], [], "no data for old and new"),
    ],
)
def test_without_data_nothing_is_decided(old, new, reason):
    traffic = counted(old, new, live(1, build="old"), live(1, build="new"))
    (found,) = against(traffic, PRECISION)
    assert (found.verdict, found.reason) == ("insufficient", reason)


def test_indexes_are_compared_as_builds_are():
    traffic = counted(live(500, index_hash="a"), live(300, 200, index_hash="b"), by="index_hash")
    assert verdicts(against(traffic, COMPLIANCE, by="index_hash", names=("a", "b"))) == {"compliance": "fail"}


@pytest.mark.slow
def test_the_error_of_a_false_alarm_is_shared_by_the_gates_and_that_of_a_false_all_clear_is_not():
    """Nine flips prove a drop for one gate, and not for one of twenty."""
    old = answers([RIGHT] * 600 + REST, build="old")
    new = answers([WRONG] * 9 + [RIGHT] * 591 + REST, build="new")
    traffic = counted(old, new)
    others = [dataclasses.replace(COMPLIANCE, name=f"c{i}") for i in range(19)]
    assert verdicts(against(traffic, PRECISION, max_drop=0.0))["precision"] == "fail"
    assert verdicts(against(traffic, PRECISION, *others, max_drop=0.0))["precision"] == "insufficient"
    alone, among = (against(traffic, PRECISION, *more, max_drop=0.05)[0] for more in ((), others))
    assert alone.verdict == among.verdict == "pass"
    assert alone.reason == "a drop is proven, but one of 5.0 points is ruled out"
    assert among.reason == "a drop of 5.0 points is ruled out"


def test_gates_on_other_things_than_means_are_left_out():
    index = Gate("index", "index_hash", 1, "at_most", kind="distinct")
    traffic = counted(live(10, build="old"), live(10, build="new"))
    assert verdicts(against(traffic, index, COMPLIANCE)) == {"compliance": "insufficient"}
    assert against(traffic, index) == []


def test_an_unknown_release_and_an_impossible_margin_are_refused():
    traffic = counted(live(1, build="old"), live(1, build="new"))
    with pytest.raises(UnknownNameError, match="unknown build: 'newer'"):
        against(traffic, COMPLIANCE, names=("old", "newer"))
    with pytest.raises(RagmonError, match="margin 1 is not a difference"):
        against(traffic, COMPLIANCE, max_drop=1)


@pytest.mark.slow
@given(worlds())
@settings(max_examples=40)
def test_a_release_is_never_worse_than_itself(world):
    """The same records under two names: whatever they hold, no drop is proven."""
    gold, records = world
    both = [msgspec.structs.replace(record, build=build) for record in records for build in ("old", "new")]
    if records:
        for found in against(counted(both, gold=gold), PRECISION, REFUSAL, COMPLIANCE, ERRORS, GROUNDED):
            assert found.verdict != "fail"
            assert not found.flips
