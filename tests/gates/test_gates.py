"""Verdicts: what passes, what fails, and when nothing can be said."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.config.gates import PRESETS
from ragmon.core.errors import RagmonError
from ragmon.core.policy import ORDER, Gate, Outcome, Policy, verdict_of
from ragmon.gates.evaluate import MIN_MATURITY, evaluate
from ragmon.scoring.snapshot import ALL, Snapshot
from ragmon.stats.histograms import bucket
from ragmon.stats.intervals import needed_for_pass, wilson
from tests.support.one_gate import CEILING, FLOOR, PRECISION, REFUSAL, judge, series, stat

# --- the interval -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "n", "verdict", "reason", "needed"),
    [
        (29, 29, "insufficient", "only 29 samples (min_samples is 30)", 30),
        (0, 29, "insufficient", "only 29 samples (min_samples is 30)", 30),
        (30, 30, "pass", "the whole interval is within the limit", None),
        (95, 100, "pass", "the whole interval is within the limit", None),
        (50, 100, "fail", "the whole interval is outside the limit", None),
        (85, 100, "insufficient", "the interval reaches across the limit; the value is within it by 5.0 points", 246),
        (78, 100, "insufficient", "the interval reaches across the limit; the value is outside it by 2.0 points", 1537),
        (80, 100, "insufficient", "the interval reaches across the limit; the value is within it by 0.0 points", None),
    ],
)
def test_a_floor_is_proven_broken_or_undecided(right, n, verdict, reason, needed):
    outcome = judge(FLOOR, series(right=right, n=n))
    assert (outcome.verdict, outcome.reason, outcome.needed) == (verdict, reason, needed)
    assert (outcome.value, outcome.n) == (right / n, n)
    assert (outcome.lower, outcome.upper) == wilson(right, n)
    assert outcome.margin == pytest.approx(right / n - 0.80)


@pytest.mark.slow
@given(right=st.integers(0, 400), wrong=st.integers(0, 400))
def test_a_ceiling_is_a_floor_seen_from_the_other_side(right, wrong):
    """`rate at most t` gets the verdict that `1 - rate at least 1 - t` gets, for the same reason."""
    n = right + wrong
    floor = judge(FLOOR, series(right=right, n=n))
    ceiling = judge(CEILING, series("error_rate", wrong, n))
    assert (floor.verdict, floor.n, floor.needed) == (ceiling.verdict, ceiling.n, ceiling.needed)
    assert floor.margin == (None if ceiling.margin is None else pytest.approx(ceiling.margin))


@pytest.mark.slow
@given(n=st.integers(30, 2000), share=st.floats(0, 1), threshold=st.integers(1, 99).map(lambda i: i / 100))
def test_pass_and_fail_are_proven(n, share, threshold):
    """A verdict is given exactly where the whole interval lies on one side."""
    right = round(share * n)
    outcome = judge(dataclasses.replace(FLOOR, threshold=threshold), series(right=right, n=n))
    lower, upper = wilson(right, n)
    assert outcome.verdict == ("pass" if lower >= threshold else "fail" if upper < threshold else "insufficient")


@pytest.mark.slow
@given(n=st.integers(30, 500), share=st.floats(0, 1))
def test_what_is_undecided_needs_more_than_there_is(n, share):
    outcome = judge(FLOOR, series(right=round(share * n), n=n))
    if outcome.verdict == "insufficient" and outcome.margin:
        assert outcome.needed > n


def test_a_gate_that_needs_more_samples_than_the_minimum_says_so():
    gate = Gate("compliance", "compliance", 0.98, "at_least", min_samples=30)
    assert judge(gate, series(right=10, n=10)).needed == needed_for_pass(0.98, at_least=True) == 189


# --- no data ----------------------------------------------------------------------------------------------------------


def test_an_empty_denominator_is_insufficient_and_has_no_value():
    outcome = judge(FLOOR, series(n=0, records=10))
    assert (outcome.verdict, outcome.value, outcome.margin, outcome.n) == ("insufficient", None, None, 0)
    assert (outcome.lower, outcome.upper, outcome.needed) == (None, None, 30)
    assert outcome.reason == "no request that this metric applies to"


def test_nothing_at_all_is_insufficient():
    outcome = judge(FLOOR)
    assert (outcome.verdict, outcome.value, outcome.reason) == ("insufficient", None, "no data")


def test_requests_that_cannot_be_assessed_are_named_by_reason():
    found = series(metrics={"compliance": stat(0, 0, no_text=7, error=2)})
    outcome = judge(FLOOR, found)
    assert outcome.verdict == "insufficient"
    assert outcome.reason.startswith("no request could be assessed: 2 error, 7 no_text (set `[capture] content`")


@pytest.mark.parametrize("mode", ["interval", "point"])
@pytest.mark.parametrize("whole_run", [False, True])
@pytest.mark.parametrize("gate", [FLOOR, CEILING, PRECISION, REFUSAL])
def test_no_data_never_passes_and_never_fails(gate, mode, whole_run):
    for found in [(), (series(gate.metric, n=0, window=ALL), series(gate.metric, n=0))]:
        assert judge(gate, *found, mode=mode, whole_run=whole_run).verdict == "insufficient"


@pytest.mark.parametrize("source", ["live", "probe", "replay", "label"])
def test_only_gates_on_labels_wait_for_labels(source):
    """Of the labels on these answers a half is here: that says nothing about what needs none."""
    outcome = judge(FLOOR, series(right=95, n=100, source=source), maturity={"default": 0.5})
    assert outcome.verdict == ("insufficient" if source == "label" else "pass")
    assert judge(FLOOR, series(right=95, n=100, source=source), maturity={"default": MIN_MATURITY}).verdict == "pass"


# --- point mode -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "n", "verdict"), [(4, 5, "pass"), (79, 100, "fail"), (80, 100, "pass")])
def test_point_mode_judges_the_bare_value_as_the_source_documents_do(right, n, verdict):
    outcome = judge(FLOOR, series(right=right, n=n), mode="point")
    assert (outcome.verdict, outcome.lower, outcome.upper) == (verdict, None, None)
    assert outcome.reason == "point estimate, no interval"


@pytest.mark.parametrize(("wrong", "verdict"), [(20, "pass"), (21, "fail")])
def test_a_value_on_the_threshold_keeps_it(wrong, verdict):
    assert judge(CEILING, series("error_rate", wrong, 100), mode="point").verdict == verdict


# --- other kinds of gates ---------------------------------------------------------------------------------------------

SPEED = Gate("p95", "latency", 1.3, "at_most", kind="quantile_ratio")


def timed(ms, n, **labels):
    return series(latency={"total": {bucket(ms): n}}, records=n, **labels)


@pytest.mark.parametrize(("ms", "verdict"), [(1000, "pass"), (1280, "pass"), (1330, "fail")])
def test_a_quantile_ratio_compares_with_the_baseline(ms, verdict):
    outcome = judge(SPEED, timed(ms, 50), baseline_p95_ms={"default": 1000.0})
    assert outcome.verdict == verdict
    assert outcome.value == pytest.approx(ms / 1000, rel=0.01)


def test_a_quantile_ratio_needs_a_baseline_and_samples():
    assert judge(SPEED, timed(1000, 50)).reason == "no latency baseline"
    few = judge(SPEED, timed(1000, 29), baseline_p95_ms={"default": 1000.0})
    assert (few.verdict, few.value, few.needed) == ("insufficient", None, 30)
    assert judge(SPEED, timed(1000, 30), baseline_p95_ms={"default": 1000.0}).verdict == "pass"
    assert judge(SPEED, baseline_p95_ms={"default": 1000.0}).verdict == "insufficient"
    assert judge(SPEED, timed(1000, 50), baseline_p95_ms={"default": 0.0}).verdict == "insufficient"


def test_a_quantile_ratio_reads_live_traffic_before_probes():
    outcome = judge(SPEED, timed(9000, 50, source="probe"), timed(1000, 50), baseline_p95_ms={"default": 1000.0})
    assert (outcome.verdict, outcome.source) == ("pass", "live")


INDEX = Gate("index_hash", "index_hash", 1, "at_most", kind="distinct")


@pytest.mark.parametrize(
    ("builds", "verdict", "value"),
    [
        ((("default", "v1", "aa"), ("default", "v2", "bb")), "pass", 1),
        ((("default", "v1", "aa"), ("default", "v1", "bb")), "fail", 2),
        ((("default", "v1", "aa"), ("other", "v1", "bb")), "pass", 1),
        ((("default", "v1", ""),), "insufficient", None),
        ((), "insufficient", None),
    ],
)
def test_one_build_answers_from_one_index(builds, verdict, value):
    outcome = judge(INDEX, builds=builds)
    assert (outcome.verdict, outcome.value) == (verdict, value)


# --- the verdict of the whole -----------------------------------------------------------------------------------------


def outcome_of(verdict):
    return Outcome(FLOOR, "live", "", "", 0.9, 0.8, 1.0, 40, None, verdict, "")


VERDICTS = st.lists(st.sampled_from(ORDER), min_size=1)


@pytest.mark.slow
@given(VERDICTS)
def test_fail_comes_before_insufficient_before_pass(verdicts):
    worst = next(v for v in ("fail", "insufficient", "pass") if v in verdicts)
    assert verdict_of(list(map(outcome_of, verdicts)), Policy()) == worst


@pytest.mark.slow
@given(verdicts=VERDICTS, meaning=st.sampled_from(["pass", "fail"]))
def test_on_insufficient_replaces_it_in_the_whole_alone(verdicts, meaning):
    outcomes = list(map(outcome_of, verdicts))
    replaced = [meaning if v == "insufficient" else v for v in verdicts]
    assert verdict_of(outcomes, Policy(on_insufficient=meaning)) == ("fail" if "fail" in replaced else "pass")
    assert [outcome.verdict for outcome in outcomes] == verdicts


def test_a_policy_without_gates_passes():
    assert verdict_of([], Policy()) == "pass"


def test_outcomes_come_in_the_order_of_the_policy():
    policy = Policy(PRESETS["default"])
    assert [outcome.gate for outcome in evaluate(Snapshot(0.0, ()), policy)] == list(policy.gates)


# --- gates and presets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "threshold"), [("at_least", 80), ("at_most", -0.1), ("above", 0.8)])
def test_a_gate_nobody_could_judge_is_refused(direction, threshold):
    with pytest.raises(RagmonError, match=r"gate x: ") as error:
        Gate("x", "compliance", threshold, direction)
    assert error.value.hint


def test_presets_are_the_published_thresholds():
    def bars(name):
        return {gate.metric: ("<=" if not gate.at_least else ">=", gate.threshold) for gate in PRESETS[name]}

    assert bars("wfgy-eval") == {
        "answer_precision": (">=", 0.80),
        "citation_hit_rate": (">=", 0.75),
        "under_refusal_rate": ("<=", 0.05),
        "over_refusal_rate": ("<=", 0.10),
    }
    assert bars("wfgy-example-08") == {
        "answer_precision_cited": (">=", 0.80),
        "under_refusal_rate": ("<=", 0.05),
        "over_refusal_rate": ("<=", 0.25),
        "citation_hit_rate_answerable": (">=", 0.75),
        "compliance": (">=", 0.98),
    }
    assert bars("default") == bars("wfgy-eval") | {
        "citation_scope": (">=", 0.95),
        "coverage": (">=", 0.70),
        "error_rate": ("<=", 0.05),
        "empty_retrieval_rate": ("<=", 0.05),
    }
    assert bars("wfgy-live") == {
        "coverage": (">=", 0.70),
        "citation_scope": (">=", 0.95),
        "latency": ("<=", 1.3),
        "index_hash": ("<=", 1),
    }
    assert {(gate.window, gate.min_samples) for gate in PRESETS["wfgy-live"] if gate.metric == "coverage"} == {
        ("5m", 200)
    }
