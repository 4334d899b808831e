"""Labels made more certain by a score every answer has: in windows, on /metrics and in reports."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.config.load import defaults
from ragmon.core.record import Label, Sampling
from ragmon.export.prometheus import families
from ragmon.monitor.engine import Engine
from ragmon.scoring.buckets import METRIC, Cohorts
from ragmon.scoring.labels import predictions, samples
from ragmon.stats.histograms import MICRO
from ragmon.stats.prediction import FEWEST, Sums, predicted
from ragmon.testing import make_record

NOW = 1_763_683_200.0
PROXY = "groundedness"
scores = st.integers(0, MICRO)


def trace(number):
    return f"{number + 1:032x}"


def answered(cohorts, ts, proxies, versions=None):
    """Count an answer with what is known of it."""
    cohorts.see("support", "rest", ts, 1, known=1, shipped=1)
    cohorts.see_scores("support", "rest", ts, proxies, versions or {})


@given(st.lists(st.tuples(scores, scores), min_size=FEWEST, max_size=2 * FEWEST))
def test_the_sums_of_pairs_are_exact(drawn):
    cohorts = Cohorts()
    for label, proxy in drawn:
        answered(cohorts, NOW, {PROXY: proxy})
        cohorts.see_label("support", "rest", NOW, NOW, {METRIC: label, PROXY: proxy}, {})
    expected = sum((Sums.of_label(label, proxy) + Sums.of_record(proxy) for label, proxy in drawn), Sums())
    (sample,) = samples(cohorts, "support", PROXY, None)
    assert sample.sums == expected


def test_a_label_without_a_score_makes_no_pair():
    cohorts = Cohorts()
    cohorts.see_label("support", "rest", NOW, NOW, {METRIC: 1}, {})
    assert cohorts.labels == {}


def world(n=600, labels=150, seed=1, audit=None):
    """Answers of which two in three are grounded, and those are mostly right; some of them are labelled."""
    rng, live = random.Random(seed), Engine(defaults(), answers=n)
    right = {}
    for number in range(n):
        grounded = rng.random() < 0.67
        right[number] = rng.random() < (0.95 if grounded else 0.2)
        drawn = Sampling() if audit is None or audit(number) else Sampling(audit=False, stratum="slow", p_audit=0.1)
        live.observe(
            make_record(
                trace_id=trace(number),
                ts=NOW + number,
                source="live",
                measures={PROXY: 0.9 if grounded else 0.3},
                sampling=drawn,
            ),
            NOW + number,
        )
    for number in rng.sample(range(n), labels):
        live.apply(Label(trace_id=trace(number), rater="ada", correct=right[number]), NOW + n)
    return live, sum(right.values()) / n


def shown(live, name):
    reading = live.monitor_snapshot(NOW + 601, {})
    samples = (sample for family in families(reading) for sample in family.samples)
    return [sample.value for sample in samples if sample.name == name and sample.labels.get("window") == "1h"]


def test_the_estimate_is_nearer_than_labels_alone_and_says_what_a_label_is_worth():
    live, truth = world()
    (lower,), (upper,) = shown(live, f"rag_{METRIC}_ppi_lower"), shown(live, f"rag_{METRIC}_ppi_upper")
    (alone_lower,), (alone_upper,) = shown(live, f"rag_{METRIC}_lower"), shown(live, f"rag_{METRIC}_upper")
    assert lower < truth < upper
    assert upper - lower < 0.9 * (alone_upper - alone_lower)
    assert shown(live, "ragmon_proxy_gain")[0] > 1.3


def test_it_is_what_the_formula_says_of_the_same_pairs():
    live, _ = world()
    scorer = live.scorer
    (told,) = predictions(scorer.state, {"all": None}, NOW, lambda _: PROXY)
    every = scorer.snapshot().find("default", "live").metrics[PROXY]
    assert (told.estimate.n, every.n) == (150, 600)
    (sample,) = samples(scorer.state.cohorts, "default", PROXY, None)
    assert told.estimate == predicted(sample.sums)
    assert (sample.sums.records, sample.sums.proxies) == (every.n, every.sum)


def test_answers_kept_for_their_outcome_are_no_sample_and_count_on_neither_side():
    live, _ = world(audit=lambda number: number % 2 == 0)
    (told,) = predictions(live.scorer.state, {"all": None}, NOW, lambda _: PROXY)
    assert told.estimate.n < 150
    drawn = live.scorer.snapshot().find("default", "live").metrics[PROXY].n
    assert drawn == 300


@pytest.mark.parametrize("labels", [0, FEWEST - 1])
def test_of_few_labels_nothing_is_predicted(labels):
    live, _ = world(labels=labels)
    assert shown(live, f"rag_{METRIC}_ppi") == []


def test_refused_answers_are_in_no_pair():
    live = Engine(defaults(), answers=10)
    told = {"ts": NOW, "source": "live", "measures": {PROXY: 0.5}}
    live.observe(make_record(trace_id=trace(1), claim="not in context", **told), NOW)
    live.apply(Label(trace_id=trace(1), rater="ada", correct=True), NOW)
    assert live.scorer.state.cohorts.labels == {}


def test_strata_are_weighed_by_what_they_hold_of_the_answers_not_of_the_labels():
    """Whoever labels picked slow answers, which are mostly wrong; of a hundred answers ten are slow."""
    live, rng = Engine(defaults(), answers=3000), random.Random(3)
    for number in range(2000):
        slow = number % 10 == 0
        right = rng.random() < (0.2 if slow else 0.9)
        drawn = Sampling(stratum="slow" if slow else "rest")
        told = {"ts": NOW + number % 60, "source": "live", "measures": {PROXY: 0.9 if right else 0.4}}
        live.observe(make_record(trace_id=trace(number), sampling=drawn, **told), NOW + 60)
        if number < 400 and (slow or number % 4 == 1):
            live.apply(Label(trace_id=trace(number), rater="ada", correct=right), NOW + 60)
    scorer = live.scorer
    (told,) = predictions(scorer.state, {"all": None}, NOW + 60, lambda _: PROXY)
    alone = scorer.snapshot().find("default", "label").metrics[METRIC].value
    assert told.estimate.lower < 0.83 < told.estimate.upper
    assert alone < told.estimate.lower


def test_refusals_weigh_nothing_in_what_is_correct():
    live, rng = Engine(defaults(), answers=3000), random.Random(4)
    for number in range(300):
        refused = number % 3 == 0
        drawn = Sampling(stratum="refusal" if refused else "rest")
        told = {"ts": NOW, "source": "live", "claim": "not in context" if refused else "an answer"}
        told["measures"] = {PROXY: rng.random()}
        live.observe(make_record(trace_id=trace(number), sampling=drawn, **told), NOW)
        if number < 100:
            live.apply(Label(trace_id=trace(number), rater="ada", correct=True), NOW)
    scorer = live.scorer
    (told,) = predictions(scorer.state, {"all": None}, NOW, lambda _: PROXY)
    assert told.estimate.value == 1.0


def test_scores_of_two_versions_are_never_put_together_and_both_are_shown():
    cohorts, judge = Cohorts(), "judge_tone"
    for number in range(4 * FEWEST):
        version, score = ("1", MICRO) if number % 2 else ("2", 0)
        answered(cohorts, NOW, {judge: score}, {judge: version})
        cohorts.see_label("support", "rest", NOW, NOW + 60, {METRIC: MICRO, judge: score}, {judge: version})
    first, second = samples(cohorts, "support", judge, None)
    assert [(sample.sums.f, sample.sums.proxies) for sample in (first, second)] == [(40 * MICRO, 40 * MICRO), (0, 0)]
    assert [(version.version, version.answers) for version in cohorts.judges()] == [("1", 40), ("2", 40)]


def test_a_label_whose_answer_was_counted_nowhere_speaks_alone():
    cohorts = Cohorts()
    for number in range(FEWEST):
        answered(cohorts, NOW, {PROXY: MICRO})
        cohorts.see_label("support", "rest", NOW - 7200, NOW, {METRIC: MICRO * (number % 2), PROXY: MICRO}, {})
    (sample,) = samples(cohorts, "support", PROXY, None)
    assert (sample.sums.labels, sample.sums.records) == (FEWEST, 0)


def test_a_label_counts_in_the_windows_that_hold_the_step_in_which_it_was_given():
    cohorts, step = Cohorts(), 10
    answered(cohorts, NOW - 3600, {PROXY: MICRO})
    cohorts.see_label("support", "rest", NOW - 3600, NOW + 3, {METRIC: MICRO, PROXY: MICRO}, {})
    for begin, end, labels in (
        (NOW - 300, NOW, 0),
        (NOW - 300 + step, NOW + step, 1),
        (NOW, NOW + 300, 1),
        (NOW + step, NOW + 300 + step, 0),
    ):
        found = samples(cohorts, "support", PROXY, (begin, end))
        assert sum(sample.sums.labels for sample in found) == labels, (begin - NOW, end - NOW)


def test_merged_cohorts_are_those_of_all_records_in_any_order():
    def counted(numbers):
        cohorts = Cohorts()
        for number in numbers:
            answered(cohorts, NOW + 600 * number, {PROXY: number})
            measured = {METRIC: MICRO, PROXY: number}
            cohorts.see_label("support", "rest", NOW + 600 * number, NOW + 60, measured, {})
        return cohorts

    whole, left, right = counted(range(20)), counted(range(0, 20, 2)), counted(range(1, 20, 2))
    right.merge(left)
    assert (right.to_rows(), samples(right, "support", PROXY, None)) == (
        whole.to_rows(),
        samples(whole, "support", PROXY, None),
    )
