"""Verdicts: what passes, what fails, and when nothing can be said."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon import stats
from ragmon.errors import RagmonError
from ragmon.gates import ORDER, Gate, Outcome, Policy, verdict_of
from ragmon.judging import evaluate
from ragmon.metrics import Metric
from ragmon.presets import PRESETS
from ragmon.scorer import Scorer
from ragmon.scores import Stat
from ragmon.snapshot import ALL, GoldInfo, SeriesStats, Snapshot
from ragmon.testing import make_gold, make_record

GOLD_METRICS = frozenset({"answer_precision", "under_refusal_rate"})


def stat(right, n, **unassessed):
    return Stat(n, right * stats.MICRO, right * stats.MICRO**2, unassessed)


def series(metric="compliance", right=0, n=0, *, items=None, **labels):
    """A series with one metric; `items` are the `(n, sum)` of its gold items."""
    fields = {
        "pipeline": "default",
        "source": "live",
        "gold": "",
        "gold_version": "",
        "window": "1h",
        "slice": "",
        "metrics": {metric: stat(right, n)},
        "latency": {},
        "clusters": {} if items is None else {metric: items},
        "traced": len(items or ()),
        "records": n,
    }
    return SeriesStats(**{**fields, **labels})


def judge(gate, *found, golds=(), builds=(), whole_run=False, **policy):
    snapshot = Snapshot(0.0, found, golds, builds, GOLD_METRICS)
    (outcome,) = evaluate(snapshot, Policy((gate,), **policy), whole_run=whole_run)
    return outcome


FLOOR = Gate("compliance", "compliance", 0.80, "at_least")
CEILING = Gate("error_rate", "error_rate", 0.20, "at_most")
PRECISION = Gate("precision", "answer_precision", 0.80, "at_least")
REFUSAL = Gate("refusal", "under_refusal_rate", 0.20, "at_most")

# --- the interval -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "n", "verdict", "reason", "needed"),
    [
        (29, 29, "insufficient", "29 of at least 30 samples", 30),
        (0, 29, "insufficient", "29 of at least 30 samples", 30),
        (30, 30, "pass", "the whole interval keeps the gate", None),
        (95, 100, "pass", "the whole interval keeps the gate", None),
        (50, 100, "fail", "the whole interval breaks the gate", None),
        (85, 100, "insufficient", "the interval straddles the gate; the value keeps it by 5.0 points", 246),
        (78, 100, "insufficient", "the interval straddles the gate; the value breaks it by 2.0 points", 1537),
        (80, 100, "insufficient", "the interval straddles the gate; the value keeps it by 0.0 points", None),
    ],
)
def test_a_floor_is_proven_broken_or_undecided(right, n, verdict, reason, needed):
    outcome = judge(FLOOR, series(right=right, n=n))
    assert (outcome.verdict, outcome.reason, outcome.needed) == (verdict, reason, needed)
    assert (outcome.value, outcome.n) == (right / n, n)
    assert (outcome.lower, outcome.upper) == stats.wilson(right, n)
    assert outcome.margin == pytest.approx(right / n - 0.80)


@given(right=st.integers(0, 400), wrong=st.integers(0, 400))
def test_a_ceiling_is_a_floor_seen_from_the_other_side(right, wrong):
    """`rate at most t` gets the verdict that `1 - rate at least 1 - t` gets, for the same reason."""
    n = right + wrong
    floor = judge(FLOOR, series(right=right, n=n))
    ceiling = judge(CEILING, series("error_rate", wrong, n))
    assert (floor.verdict, floor.n, floor.needed) == (ceiling.verdict, ceiling.n, ceiling.needed)
    assert floor.margin == (None if ceiling.margin is None else pytest.approx(ceiling.margin))


@given(n=st.integers(30, 2000), share=st.floats(0, 1), threshold=st.integers(1, 99).map(lambda i: i / 100))
def test_pass_and_fail_are_proven(n, share, threshold):
    """A verdict is given exactly where the whole interval lies on one side."""
    right = round(share * n)
    outcome = judge(dataclasses.replace(FLOOR, threshold=threshold), series(right=right, n=n))
    lower, upper = stats.wilson(right, n)
    assert outcome.verdict == ("pass" if lower >= threshold else "fail" if upper < threshold else "insufficient")


@given(n=st.integers(30, 500), share=st.floats(0, 1))
def test_what_is_undecided_needs_more_than_there_is(n, share):
    outcome = judge(FLOOR, series(right=round(share * n), n=n))
    if outcome.verdict == "insufficient" and outcome.margin:
        assert outcome.needed > n


def test_a_gate_that_needs_more_samples_than_the_minimum_says_so():
    gate = Gate("compliance", "compliance", 0.98, "at_least", min_samples=30)
    assert judge(gate, series(right=10, n=10)).needed == stats.needed_for_pass(0.98, at_least=True) == 189


# --- no data ----------------------------------------------------------------------------------------------------------


def test_an_empty_denominator_is_insufficient_and_has_no_value():
    outcome = judge(FLOOR, series(n=0, records=10))
    assert (outcome.verdict, outcome.value, outcome.margin, outcome.n) == ("insufficient", None, None, 0)
    assert (outcome.lower, outcome.upper, outcome.needed) == (None, None, 30)
    assert outcome.reason == "no request in the denominator"


def test_nothing_at_all_is_insufficient():
    outcome = judge(FLOOR)
    assert (outcome.verdict, outcome.value, outcome.reason) == ("insufficient", None, "no data")


def test_requests_that_cannot_be_assessed_are_named_by_reason():
    found = series(metrics={"compliance": stat(0, 0, no_text=7, error=2)})
    outcome = judge(FLOOR, found)
    assert outcome.verdict == "insufficient"
    assert outcome.reason == "no request could be assessed: 2 error, 7 no_text"


@pytest.mark.parametrize("mode", ["interval", "point"])
@pytest.mark.parametrize("whole_run", [False, True])
@pytest.mark.parametrize("gate", [FLOOR, CEILING, PRECISION, REFUSAL])
def test_no_data_never_passes_and_never_fails(gate, mode, whole_run):
    for found in [(), (series(gate.metric, n=0, window=ALL), series(gate.metric, n=0))]:
        assert judge(gate, *found, mode=mode, whole_run=whole_run).verdict == "insufficient"


# --- point mode -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "n", "verdict"), [(4, 5, "pass"), (79, 100, "fail"), (80, 100, "pass")])
def test_point_mode_judges_the_bare_value_as_the_source_documents_do(right, n, verdict):
    outcome = judge(FLOOR, series(right=right, n=n), mode="point")
    assert (outcome.verdict, outcome.lower, outcome.upper) == (verdict, None, None)
    assert outcome.reason == "point estimate, no interval"


@pytest.mark.parametrize(("wrong", "verdict"), [(20, "pass"), (21, "fail")])
def test_a_value_on_the_threshold_keeps_it(wrong, verdict):
    assert judge(CEILING, series("error_rate", wrong, 100), mode="point").verdict == verdict


# --- a whole gold set -------------------------------------------------------------------------------------------------

SET = GoldInfo("support", "aaaaaaaa", 100)


def gold_run(right, n, *, traced, gate=PRECISION, source="replay", **labels):
    items = [(1, float(i < right)) for i in range(n)]
    labels = {"gold": "support", "gold_version": "aaaaaaaa", "window": ALL, "source": source, **labels}
    return series(gate.metric, right, n, items=items, **{"traced": traced, "records": traced, **labels})


@pytest.mark.parametrize(
    ("right", "n", "verdict"), [(41, 50, "pass"), (40, 50, "pass"), (39, 50, "fail"), (1, 1, "pass")]
)
def test_a_run_of_a_whole_gold_set_is_exact(right, n, verdict):
    """No interval decides and no minimum applies: it is not a sample of the set, it is the set."""
    outcome = judge(PRECISION, gold_run(right, n, traced=100), golds=(SET,), whole_run=True)
    assert (outcome.verdict, outcome.value, outcome.estimand) == (verdict, right / n, "gold_set")
    assert outcome.reason.startswith("exact over 100 gold items")
    assert outcome.items == 100


def test_beside_the_exact_value_stands_the_interval_for_questions_like_these():
    run = gold_run(45, 50, traced=100)
    outcome = judge(PRECISION, run, golds=(SET,), whole_run=True)
    assert (outcome.lower, outcome.upper) == stats.clustered(run.clusters["answer_precision"])[:2]
    assert outcome.reason.endswith("interval: questions like these")


@pytest.mark.parametrize(
    ("traced", "verdict"), [(100, "pass"), (99, "pass"), (98, "pass"), (97, "insufficient"), (50, "insufficient")]
)
def test_more_than_two_percent_missing_says_nothing_about_the_set(traced, verdict):
    """Even a perfect value: the missing ones may be the ones that broke."""
    outcome = judge(PRECISION, gold_run(traced, traced, traced=traced), golds=(SET,), whole_run=True)
    assert outcome.verdict == verdict
    if verdict == "insufficient":
        assert outcome.reason.startswith(f"{100 - traced} of 100 gold items have no trace")


def test_a_slice_of_a_run_is_whole_where_the_run_is_whole():
    gate = dataclasses.replace(PRECISION, where="lang=de")
    part = gold_run(9, 10, traced=10, slice="lang=de")
    whole, most = gold_run(80, 100, traced=100), gold_run(50, 60, traced=60)
    assert judge(gate, part, whole, golds=(SET,), whole_run=True).verdict == "pass"
    assert judge(gate, part, most, golds=(SET,), whole_run=True).verdict == "insufficient"


def test_unassessed_requests_are_told_beside_the_exact_value():
    run = gold_run(45, 50, traced=100, metrics={"answer_precision": stat(45, 50, error=3)})
    reason = judge(PRECISION, run, golds=(SET,), whole_run=True).reason
    assert "not assessed: 3 error" in reason


def test_where_all_requests_belong_to_the_set_metrics_without_gold_are_exact_too():
    """A set of thirty questions could never prove compliance >= .98 by an interval."""
    gate = Gate("compliance", "compliance", 0.98, "at_least")
    over_all = series(right=30, n=30, source="replay", window=ALL)
    over_set = gold_run(30, 30, traced=30, gate=gate)
    small = dataclasses.replace(SET, items=30)
    assert judge(gate, over_all, over_set, golds=(small,), whole_run=True).verdict == "pass"
    more = dataclasses.replace(over_all, records=31)
    assert judge(gate, more, over_set, golds=(small,), whole_run=True).verdict == "insufficient"


def test_a_whole_run_can_be_judged_as_a_sample_of_questions_like_these():
    gate = dataclasses.replace(PRECISION, estimand="questions_like_these")
    outcome = judge(gate, gold_run(45, 50, traced=100), golds=(SET,), whole_run=True)
    assert (outcome.verdict, outcome.estimand) == ("insufficient", "questions_like_these")
    assert judge(gate, gold_run(95, 100, traced=100), golds=(SET,), whole_run=True).verdict == "pass"


# --- estimands --------------------------------------------------------------------------------------------------------


def matched(items, source="match", **labels):
    right, n = sum(y for _, y in items), sum(n for n, _ in items)
    labels = {"gold": "support", "gold_version": "aaaaaaaa", "source": source, **labels}
    return series("answer_precision", int(right), n, items=items, **labels)


def test_items_not_draws_are_the_observations_of_questions_like_these():
    """Twenty items asked a hundred times each are twenty observations."""
    few = [(100, 100.0)] * 20
    outcome = judge(PRECISION, matched(few))
    assert (outcome.verdict, outcome.n) == ("insufficient", 2000)
    assert outcome.reason == "20 of at least 30 gold items"
    assert judge(PRECISION, matched(few, source="probe")).verdict == "pass"


@pytest.mark.parametrize(
    ("source", "estimand"),
    [
        ("probe", "gold_set"),
        ("replay", "gold_set"),
        ("match", "questions_like_these"),
        ("label", "questions_like_these"),
    ],
)
def test_the_default_estimand_follows_the_source(source, estimand):
    items = [(2, 2.0)] * 40
    assert judge(PRECISION, matched(items, source=source)).estimand == estimand
    other = "questions_like_these" if estimand == "gold_set" else "gold_set"
    gate = dataclasses.replace(PRECISION, estimand=other)
    assert judge(gate, matched(items, source=source)).estimand == other


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1)), min_size=1, max_size=80))
def test_the_value_lies_in_its_clustered_interval(drawn):
    items = [(n, round(n * share)) for n, share in drawn]
    outcome = judge(PRECISION, matched(items))
    assert outcome.lower - 1e-9 <= outcome.value <= outcome.upper + 1e-9


def test_a_metric_without_gold_has_no_estimand():
    assert judge(FLOOR, series(right=95, n=100)).estimand == ""


def test_scores_that_are_not_kept_by_item_cannot_be_clustered():
    """A metric that is measured on the text has sums, but no table of items."""
    found = dataclasses.replace(matched([(1, 1.0)] * 90), clusters={})
    outcome = judge(PRECISION, found)
    assert (outcome.verdict, outcome.reason) == ("insufficient", "its scores are not kept item by item")


class Politeness(Metric):
    """Mean politeness of answers to gold questions, told by the application."""

    name = "politeness"
    needs_gold = True
    reads = "measures"

    def measure(self, record, item):
        return None

    def applies(self, facts):
        return facts.matched


def test_a_metric_measured_on_the_text_is_judged_by_its_sums():
    """Its item table holds facts, not scores: it must not be read as a table of scores."""
    scorer = Scorer(make_gold(*((f"q{i}", True) for i in range(40))), metrics={"politeness": Politeness()})
    for i in range(40):
        scorer.observe(make_record(f"q{i}", measures={"politeness": 0.75}))
    gate = Gate("politeness", "politeness", 0.5, "at_least")
    policies = [Policy((dataclasses.replace(gate, estimand=name),)) for name in ("gold_set", "questions_like_these")]
    snapshot = scorer.snapshot(gated=["politeness"])
    ((exact,), (clustered,)) = (evaluate(snapshot, policy, whole_run=True) for policy in policies)
    assert (exact.verdict, exact.value, exact.lower) == ("pass", 0.75, None)
    assert (clustered.verdict, clustered.value) == ("insufficient", 0.75)


# --- which series -----------------------------------------------------------------------------------------------------


def test_a_gold_gate_reads_probes_before_matched_questions():
    probed, found = matched([(1, 1.0)] * 40, source="probe"), matched([(1, 0.0)] * 40, source="match")
    assert judge(PRECISION, probed, found).source == "probe"
    assert judge(PRECISION, found).source == "match"
    assert judge(dataclasses.replace(PRECISION, source="match"), probed, found).source == "match"


def test_a_gate_without_gold_reads_live_traffic_before_anything_else():
    live, probed = series(right=95, n=100), series(right=10, n=100, source="probe")
    assert judge(FLOOR, probed, live).source == "live"
    assert judge(FLOOR, probed).source == "probe"


def test_sources_are_never_pooled():
    """A named source that has no data is insufficient, whatever others have."""
    gate = dataclasses.replace(PRECISION, source="probe")
    outcome = judge(gate, matched([(1, 1.0)] * 40, source="match"))
    assert (outcome.verdict, outcome.source, outcome.n) == ("insufficient", "probe", 0)


def test_a_gate_reads_its_pipeline_its_window_its_slice_and_its_gold():
    right = series(right=95, n=100, pipeline="support", window="5m", slice="lang=de")
    gate = dataclasses.replace(FLOOR, pipeline="support", window="5m", where="lang=de")
    assert judge(gate, right).verdict == "pass"
    for other in ("pipeline", "window", "slice"):
        assert judge(gate, dataclasses.replace(right, **{other: "x"})).reason == "no data"
    sales, support = matched([(1, 1.0)] * 60, gold="sales"), matched([(1, 0.0)] * 40)
    assert judge(dataclasses.replace(PRECISION, gold="support"), sales, support).gold == "support"
    assert judge(PRECISION, sales, support).gold == "sales"


def test_a_replaced_gold_version_is_not_judged_any_more():
    """After a swap the new version starts from nothing, however much the old one has."""
    old, new = matched([(1, 1.0)] * 90, gold_version="00000000"), matched([(1, 0.0)] * 40)
    assert judge(PRECISION, old, new, golds=(SET,)).verdict == "fail"
    assert judge(PRECISION, old, golds=(SET,)).reason == "no data"


# --- other kinds of gates ---------------------------------------------------------------------------------------------

SPEED = Gate("p95", "latency", 1.3, "at_most", kind="quantile_ratio")


def timed(ms, n, **labels):
    return series(latency={"total": {stats.bucket(ms): n}}, records=n, **labels)


@pytest.mark.parametrize(("ms", "verdict"), [(1000, "pass"), (1280, "pass"), (1330, "fail")])
def test_a_quantile_ratio_compares_with_the_baseline(ms, verdict):
    outcome = judge(SPEED, timed(ms, 50), baseline_p95_ms={"default": 1000.0})
    assert outcome.verdict == verdict
    assert outcome.value == pytest.approx(ms / 1000, rel=0.01)


def test_a_quantile_ratio_needs_a_baseline_and_samples():
    assert judge(SPEED, timed(1000, 50)).reason == "no latency baseline"
    few = judge(SPEED, timed(1000, 29), baseline_p95_ms={"default": 1000.0})
    assert (few.verdict, few.value, few.needed) == ("insufficient", None, 30)
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


@given(VERDICTS)
def test_fail_comes_before_insufficient_before_pass(verdicts):
    worst = next(v for v in ("fail", "insufficient", "pass") if v in verdicts)
    assert verdict_of(list(map(outcome_of, verdicts)), Policy()) == worst


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
        "compliance": (">=", 0.98),
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
