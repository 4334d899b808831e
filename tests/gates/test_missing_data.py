"""Missing is unknown: what could not be assessed never turns a gate, whatever made it missing.

The simulations draw requests whose chance to be captured depends on whether they are right, the worst kind of missing
data: by the assessed requests alone a system at 90 % looks like one at 50 %, and the reverse.
"""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.detector import Detector
from ragmon.alarms.observations import observe, observe_step
from ragmon.alarms.plan import PAGE_STEPS
from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Sampling
from ragmon.gates.coverage import BY_REASON, GOLD_IDS, needs
from ragmon.gates.evaluate import NO_GOLD, evaluate
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import build
from ragmon.metrics.facts import FactReader, Facts
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.scoring.snapshot import ItemSums
from ragmon.stats.histograms import MICRO
from ragmon.stats.intervals import wilson
from ragmon.stats.strata import Stratum, post_stratified
from ragmon.testing import make_gold, make_record
from tests.support.one_gate import CEILING, FLOOR, PRECISION, REFUSAL, SET, gold_run, judge, series, stat

GATE = 0.80
MISSING = (0.01, 0.05, 0.2, 0.4, 0.6)
"""Shares of requests that are not assessed."""


def scored(records, **reader):
    scorer = Scorer(make_gold(("a", True), ("u", False)), rules=ReductionRules(FactReader(**reader)))
    for record in records:
        assert scorer.observe(record)
    return scorer


def outcome(scorer, gate, **options):
    (found,) = evaluate(scorer.snapshot(gated=[gate.metric]), Policy((gate,)), **options)
    return found


# --- what is unknown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["citation_scope", "coverage", "compliance"])
def test_citations_that_were_not_captured_are_unknown_and_an_empty_list_is_captured(metric):
    scorer = scored([make_record(source="live", citations=None), make_record(source="live", citations=[])])
    found = scorer.snapshot().find("default", "live").metrics[metric]
    assert (found.n, found.unassessed) == (1, {"no_citations": 1})


@pytest.mark.parametrize("metric", ["answer_precision", "answer_precision_cited", "citation_hit_rate"])
def test_so_are_metrics_that_compare_them_with_gold(metric):
    scorer = scored([make_record("a", claim="an answer", citations=None)])
    assert scorer.snapshot().find("default", "replay", gold="gold").metrics[metric].unassessed == {"no_citations": 1}


def test_where_the_template_asks_for_a_list_an_answer_without_one_cites_nothing():
    scorer = scored([make_record(source="live", citations=None)], citations_required=True)
    metrics = scorer.snapshot().find("default", "live").metrics
    assert [metrics[name].value for name in ("compliance", "coverage", "citation_scope")] == [0.0, 0.0, 1.0]


def test_a_call_that_failed_is_unassessed_for_its_error_and_one_kept_for_its_outcome_for_its_sampling():
    """A partial record of an instrumentation that recorded no answer was not drawn by ragmon: it has its own reason."""
    record = make_record(source="live", retrieved=None)
    drawn = Sampling(audit=False, stratum="refusal", p_audit=0.05, p=1.0)
    failed = msgspec.structs.replace(record, error="timeout")
    partial = msgspec.structs.replace(record, partial=True, answer_json=None)
    kept = msgspec.structs.replace(partial, sampling=drawn)
    for found, reason in ((failed, "error"), (partial, "no_ids"), (kept, "partial")):
        with pytest.raises(Unassessed) as raised:
            _ = Facts._make(FactReader().read(found, None)).empty
        assert raised.value.reason == reason


def test_every_reason_that_may_depend_on_the_outcome_says_what_would_mend_it():
    assert constants.IGNORABLE | BY_REASON.keys() == set(constants.REASONS)
    assert not constants.IGNORABLE & BY_REASON.keys()


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_right_answers_without_ids_do_not_make_a_gold_run_fail():
    """Of 200 items 180 were answered rightly and lack the ids; the others are wrong and known to be."""
    run = gold_run(0, 20, traced=200, metrics={"answer_precision": stat(0, 20, no_ids=180)})
    found = judge(PRECISION, run, golds=(dataclasses.replace(SET, items=200),), whole_run=True)
    assert found.verdict == "insufficient"
    assert found.reason.startswith("180 of 200 not assessable: no_ids (")
    assert "--map retrieved_ids=NAME" in found.reason
    assert "0.0 % if all of them fail, 90.0 % if none does" in found.reason


@pytest.mark.parametrize(
    ("gate", "score", "verdict"),
    [
        (PRECISION, 95, "pass"),
        (PRECISION, 10, "fail"),
        (PRECISION, 79, "insufficient"),
        (REFUSAL, 5, "pass"),
        (REFUSAL, 90, "fail"),
        (REFUSAL, 19, "insufficient"),
    ],
)
def test_a_run_is_decided_where_the_missing_ones_cannot_change_it_and_is_not_called_exact(gate, score, verdict):
    run = gold_run(score, 98, traced=100, gate=gate, metrics={gate.metric: stat(score, 98, no_ids=2)})
    found = judge(gate, run, golds=(SET,), whole_run=True)
    assert (found.verdict, "exact" in found.reason) == (verdict, False)


@pytest.mark.parametrize(("gate", "right"), [(FLOOR, 95), (CEILING, 5)])
def test_a_window_passes_only_if_it_would_with_every_missing_request_failing(gate, right):
    complete = series(gate.metric, right, 100)
    lacking = series(gate.metric, metrics={gate.metric: stat(right, 100, no_text=60)}, n=160)
    assert judge(gate, complete).verdict == "pass"
    found = judge(gate, lacking)
    assert found.verdict == "insufficient"
    assert found.reason.startswith("60 of 160 not assessable: no_text")


@pytest.mark.parametrize(("gate", "right"), [(FLOOR, 40), (CEILING, 60)])
def test_and_fails_only_if_it_would_with_every_one_keeping_it(gate, right):
    lacking = series(gate.metric, metrics={gate.metric: stat(right, 100, no_text=400)}, n=500)
    assert judge(gate, series(gate.metric, right, 100)).verdict == "fail"
    assert judge(gate, lacking).verdict == "insufficient"


def test_what_sampling_left_out_widens_nothing():
    known = judge(FLOOR, series(right=95, n=100))
    partial = judge(FLOOR, series(metrics={"compliance": stat(95, 100, partial=400, error=5)}, n=505))
    assert (partial.verdict, partial.lower, partial.upper) == (known.verdict, known.lower, known.upper)


# --- not applicable ---------------------------------------------------------------------------------------------------

COVERAGE = Gate("coverage", "coverage", 0.70, "at_least", window="all")


@pytest.mark.parametrize("citations", [None, []])
def test_a_gate_on_citations_is_not_applicable_to_a_pipeline_that_never_cited(citations):
    found = outcome(scored([make_record(source="live", citations=citations) for _ in range(60)]), COVERAGE)
    assert (found.verdict, found.applicable, found.value) == ("insufficient", False, None)
    assert found.reason.startswith("not applicable yet: 60 answers so far, and none with a citation")


def test_from_the_first_citation_on_it_is_judged():
    records = [make_record(source="live", citations=[]) for _ in range(60)]
    found = outcome(scored([*records, make_record(source="live")]), COVERAGE)
    assert (found.verdict, found.applicable) == ("fail", True)


def test_and_always_where_the_template_asks_for_citations():
    records = [make_record(source="live", citations=None) for _ in range(60)]
    assert outcome(scored(records, citations_required=True), COVERAGE).verdict == "fail"


def test_what_was_shown_survives_merging_and_saving():
    citing, silent = scored([make_record(source="live")]), scored([make_record(source="live", citations=[])] * 3)
    silent.state.merge(citing.state)
    assert silent.snapshot().uncited == {}
    other = scored([])
    other.restore(scored([make_record(source="live", citations=[])] * 3).state)
    assert other.snapshot().uncited == {"default": 3}


def test_a_gate_on_gold_says_that_there_is_no_gold():
    scorer = Scorer()
    assert scorer.observe(make_record(source="live"))
    for source, reason in ((None, NO_GOLD), ("match", NO_GOLD), ("label", "no data")):
        found = outcome(scorer, dataclasses.replace(PRECISION, source=source))
        assert (found.verdict, found.reason) == ("insufficient", reason)
    assert outcome(scored([make_record(source="live")]), PRECISION).reason == "no data"


# --- ids that are not gold's ------------------------------------------------------------------------------------------

IDS_GOLD = GoldSet(
    "gold",
    tuple(GoldItem(f"a{n}", f"What is {n}?", answerable=True, citations=[f"page#{n}"]) for n in range(60)),
)
HIT_RATE = Gate("hit_rate", "hit_rate", 0.80, "at_least", window="all")


def found_ids(*ids, n=60, **fields):
    """Answers to gold questions, each from the same documents."""
    return [make_record(f"a{number}", retrieved=ids, source="probe", **fields) for number in range(n)]


def hit_rate(records, *, published=frozenset(), whole_run=False):
    """The outcome of a gate on the hit rate."""
    scorer = Scorer(IDS_GOLD)
    for record in records:
        scorer.observe(record)
    policy = Policy((HIT_RATE,), published=published)
    return evaluate(scorer.snapshot(gated=["hit_rate"]), policy, whole_run=whole_run)[0]


@pytest.mark.parametrize("whole_run", [True, False])
def test_a_gate_that_compares_ids_is_not_applicable_where_no_id_ever_occurs_in_gold(whole_run):
    found = hit_rate(found_ids("e1f72df8", "0c4ab3d1"), whole_run=whole_run)
    assert (found.verdict, found.applicable, found.value) == ("insufficient", False, None)
    assert found.reason.startswith("not applicable yet: none of 120 retrieved ids occurs in gold (`[capture] id_from`")


def test_a_second_source_with_few_of_them_changes_nothing():
    few = [make_record("a1", retrieved=["e1f72df8"], source="match") for _ in range(3)]
    assert hit_rate([*found_ids("e1f72df8"), *few]).applicable is False


@pytest.mark.parametrize(
    "records",
    [
        [*found_ids("e1f72df8", n=59), *found_ids("page#3", n=1)],
        found_ids("e1f72df8", n=19),
        found_ids(),
    ],
    ids=["one is gold's, of another question", "too few to say", "nothing was found"],
)
def test_and_fails_where_ids_can_be_compared_or_are_few_or_none(records):
    found = hit_rate(records, whole_run=len(records) == 60)
    assert (found.applicable, found.value) == (True, 0.0)
    assert found.verdict == ("fail" if len(records) == 60 else "insufficient")


def test_and_always_where_a_published_template_is_followed():
    found = hit_rate(found_ids("e1f72df8"), published=frozenset({"default"}), whole_run=True)
    assert (found.verdict, found.applicable) == ("fail", True)


def test_every_metric_that_compares_ids_says_so():
    metrics = {key: metric for key, metric in build((5,)).items() if type(metric).__module__.startswith("ragmon.")}
    reading = {key for key, metric in metrics.items() if GOLD_IDS in needs(metric)}
    candidates = {"candidate_recall", "candidate_recall@5"}  # ids before reranking are written as those after it
    assert {key for key, metric in metrics.items() if metric.compares_ids} == reading | candidates


def test_whether_ids_were_ever_gold_s_survives_merging_and_saving():
    def observed(records):
        scorer = Scorer(IDS_GOLD)
        for record in records:
            scorer.observe(record)
        return scorer

    strange = observed(found_ids("e1f72df8"))
    other = Scorer(IDS_GOLD)
    other.restore(strange.state)
    assert other.snapshot().strange_ids == strange.snapshot().strange_ids == {"default": 60}
    other.state.merge(observed(found_ids("page#1", n=1)).state)
    assert other.snapshot().strange_ids == {}


# --- strata and alarms ------------------------------------------------------------------------------------------------

shares = st.integers(0, 60)


@given(shares, shares, shares, st.integers(0, 5_000))
def test_bounds_over_strata_hold_whatever_the_unknown_scores_are(right, wrong, unknown, calls):
    """They are those of the same sample with the worst, and with the best scores for the unknown ones."""
    n = right + wrong
    part = Stratum("rest", calls, n, n, float(right), float(right), unknown=unknown)
    found = post_stratified([part, Stratum("error", 50, 20, 20, 5.0, 5.0)])
    for more in range(0, unknown + 1, max(1, unknown // 3)):
        known = Stratum("rest", calls, n + unknown, n + unknown, float(right + more), float(right + more))
        estimate = post_stratified([known, Stratum("error", 50, 20, 20, 5.0, 5.0)])
        assert found.lower <= estimate.value + 1e-9
        assert found.upper >= estimate.value - 1e-9


clusters = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=6)


@given(clusters, st.booleans())
def test_an_alarm_sees_no_worse_than_what_a_complete_capture_would_have_shown(found, at_least):
    """Cluster by cluster, whatever the missing scores were: here all of them broke the gate."""
    missing = 0 if at_least else MICRO
    sums = [ItemSums(right + wrong, right * MICRO, unknown) for right, wrong, unknown in found]
    truth = observe((s.n + s.unknown, s.total + s.unknown * missing) for s in sums)
    seen = observe_step(sums).keeping(at_least=at_least)
    assert seen.n == truth.n
    assert seen.total >= truth.total - 1e-9 if at_least else seen.total <= truth.total + 1e-9


# --- simulations ------------------------------------------------------------------------------------------------------


def informative(rng, p, missing, n, *, hides):
    """Right, wrong and missing requests of a sample; right ones are hidden `hides` times as often as wrong ones."""
    share = min(1.0, missing / (1 - p + p * hides))
    right = rng.random(n) < p
    hidden = rng.random(n) < np.where(right, min(1.0, share * hides), share)
    return int((right & ~hidden).sum()), int((~right & ~hidden).sum()), int(hidden.sum())


@pytest.mark.parametrize("hides", [0.1, 10.0], ids=["wrong ones hide", "right ones hide"])
@pytest.mark.parametrize("missing", MISSING)
def test_verdicts_are_wrong_in_at_most_five_percent_of_windows(missing, hides):
    """By the assessed requests alone most windows would be judged wrongly from 20 % on."""
    rng, gate = np.random.default_rng(7), Gate("g", "compliance", GATE, "at_least")
    for p, wrong_verdict in ((GATE - 0.02, "pass"), (GATE, "fail"), (GATE + 0.02, "fail")):
        wrong = 0
        for _ in range(300):
            right, bad, hidden = informative(rng, p, missing, 400, hides=hides)
            found = judge(gate, series(metrics={"compliance": stat(right, right + bad, no_ids=hidden)}, n=400))
            wrong += found.verdict == wrong_verdict
        assert wrong <= 0.05 * 300, (p, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING)
def test_no_false_page_in_twenty_days_however_much_is_missing(missing):
    """Ten requests a minute of a system exactly on its gate, whose right answers hide ten times as often."""
    rng, detector, pages = np.random.default_rng(11), Detector(), 0
    for _ in range(20 * 1440):
        right, wrong, hidden = informative(rng, GATE, missing, 10, hides=10.0)
        sums = [ItemSums(1, MICRO)] * right + [ItemSums(1, 0)] * wrong + [ItemSums(0, 0, 1)] * hidden
        if detector.update(observe_step(sums).keeping(at_least=True), GATE) >= PAGE_STEPS:
            detector.clear()
            pages += 1
    assert pages <= 1


def test_the_extremes_of_a_count_are_its_means_with_the_worst_and_best_scores():
    found = Stat(8, 6 * MICRO, 6 * MICRO**2, {"no_ids": 2, "error": 5})
    assert (found.unknown, found.extremes) == (2, (0.6, 0.8))
    assert found.estimate.lower == wilson(6, 10)[0]
    assert found.estimate.upper == wilson(8, 10)[1]
