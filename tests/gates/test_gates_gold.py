"""Gates on gold metrics: whole runs, estimands, and which series is judged."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.policy import Gate, Policy
from ragmon.gates.evaluate import evaluate
from ragmon.metrics import Metric
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL
from ragmon.stats.intervals import clustered_or_missing
from ragmon.testing import make_gold, make_record
from tests.support.one_gate import FLOOR, PRECISION, SET, gold_run, judge, matched, series, stat

# --- a whole gold set -------------------------------------------------------------------------------------------------


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
    assert (outcome.lower, outcome.upper) == clustered_or_missing(run.clusters["answer_precision"])[:2]
    assert outcome.reason.endswith("the interval is for questions like these")


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


def test_items_not_draws_are_the_observations_of_questions_like_these():
    """Twenty items asked a hundred times each are twenty observations."""
    few = [(100, 100.0)] * 20
    outcome = judge(PRECISION, matched(few))
    assert (outcome.verdict, outcome.n) == ("insufficient", 2000)
    assert outcome.reason == "only 20 gold items (min_samples is 30)"
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
    assert (outcome.verdict, outcome.reason) == ("insufficient", "the scores of this metric are not kept by gold item")


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
