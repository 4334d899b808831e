"""Metrics that share a denominator say the same of the same records: what is assessed follows from facts alone.

In windows, strata, gates, alarms and releases, every request is scored, unassessed with a reason, unscored (nobody
measured it), or outside of the denominator, and never two of these.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings

from ragmon.alarms.observations import ObservationSelector, StepClusters
from ragmon.alarms.plan import AlarmRule
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Record, Sampling, Totals
from ragmon.gates.evaluate import evaluate
from ragmon.gates.releases import Clusters
from ragmon.metrics import build
from ragmon.metrics.base import judged, parse
from ragmon.monitor.replay import Run
from ragmon.scoring.buckets import CELLS
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_gold
from tests.support.examples import cases
from tests.support.oracle.draw import drawn

NOON = 1_763_683_200.0
STRATA = ("rest", "refusal", "error", "slow")
JUDGE = judged("tone")()
METRICS = {**build((1, 2)), JUDGE.key: JUDGE}
SAME_DENOMINATOR = (
    ("groundedness", "grounded_rate"),
    ("citation_scope", "coverage"),
    ("answer_precision_cited", "citation_hit_rate"),
    ("full_recall@1", "full_recall@2", "recall@1", "recall@2", "ndcg@1", "ndcg@2", "full_recall", "recall", "ndcg"),
    ("hit_rate@1", "hit_rate@2", "precision@1", "precision@2", "hit_rate", "precision", "mrr", "average_precision"),
    ("candidate_recall@1", "candidate_recall@2", "candidate_recall"),
)
"""Keys of metrics that score the same requests (docs/reference/metrics.md), where every id is captured."""
PAIRS = [pair for keys in SAME_DENOMINATOR for pair in combinations(keys, 2)]
GROUNDED, RATE = "groundedness", "grounded_rate"
EMPTY = Gate("empty", "empty_retrieval_rate", 0.05, "at_most")
law = settings(max_examples=cases(300), deadline=None, derandomize=True)


def record(draw, number):
    """A record whose answer is grounded as a whole or not at all, so that its groundedness is 0 or 1."""
    claim = draw.one(("ferry harbour", "comet", "not in context", "", None))
    failed = draw.number(5) == 5
    audit = draw.number(2) > 0
    return Record(
        ts=NOON + number,
        trace_id=f"{number:032x}",
        source=draw.one(("live", "live", "probe")),
        qid=draw.one(("a", "u", None)),
        session=draw.one((None, "one", "two")),
        retrieved_ids=None if failed else draw.one((["g-a", "x"], ["x"], [])),
        candidate_ids=draw.one((None, ["x", "g-a"])),
        contexts=draw.one(
            (["the ferry leaves the harbour"], ["the ferry leaves the harbour"], None, ["word " * 14_000])
        ),
        answer_json=None if failed else Answer(claim, draw.one((["g-a"], ["elsewhere"], [], None))),
        error="timeout" if failed else None,
        partial=draw.number(4) == 4,
        sampling=Sampling(audit=audit, stratum=draw.one(STRATA), p_audit=0.5, p=1.0),
        measures=draw.one((None, None, {JUDGE.key: 0.5})),
    )


def world(draw):
    """Records, and all calls behind the live ones by stratum."""
    records = [record(draw, number) for number in range(1 + draw.number(39))]
    kept = Counter(each.sampling.stratum for each in records if each.source == "live")
    return records, {name: (kept[name] * (1 + draw.number(3)) + draw.number(1), kept[name]) for name in STRATA}


class Counted:
    """What all readers make of one world."""

    def __init__(self, records, calls, cells=CELLS):
        gold = make_gold(("a", True), ("u", False))
        self.minutes = MinuteBatches()
        table = ScoreTable(Scorer(metrics=METRICS).table.metrics, cells=cells)
        gates = [Gate(name, name, 0.5, "at_least") for name in (GROUNDED, RATE)]
        self.clusters = Clusters(table, gates, lambda _: ("session",))
        self.scorer = Scorer(gold, metrics=table, observers=(self.minutes, self.clusters))
        told = {"instance": "one", "pipeline": "default", "source": "live"}
        totals = [
            Totals(ts=NOON + 60, started=NOON - 60, stratum=name, calls=n, kept=kept, **told)
            for name, (n, kept) in calls.items()
        ]
        Run(self.scorer).feed([*records, *totals])
        self.snapshot = self.scorer.snapshot(gated=[RATE])

    def outcomes(self, metric):
        """What gates on a metric conclude; over gold without an interval, as measured scores are not kept by item."""
        gates = [
            Gate("gate", metric, threshold, "at_least", source=source, estimand="gold_set", min_samples=1)
            for threshold in (0.2, 0.8)
            for source in ("live", "probe")
        ]
        return [
            (each.verdict, each.value, each.n, each.unknown, (each.lower, each.upper) if not each.gold else None)
            for each in evaluate(self.snapshot, Policy(tuple(gates)), whole_run=True)
        ]

    def observations(self, metric):
        """What alarms on a metric see."""
        selector = ObservationSelector(self.scorer.table)
        rules = [AlarmRule("rule", metric, "page", at_least=True, kind="gate", source=s) for s in ("live", "probe")]
        steps = self.minutes.close(NOON + 3600)
        self.minutes = MinuteBatches()
        return [selector.of(step, rule, StepClusters(step)) for _, step in steps for rule in rules], steps

    def releases(self, metric):
        """What a release is judged on, with unknown scores left out, at their worst and at their best."""
        return [
            self.clusters.scores(series, metric, unknown=unknown)
            for series in self.snapshot.series
            for unknown in (None, 0, 1)
        ]


def denominator(stat):
    """All of a statistic but its scores."""
    return stat.n, stat.unscored, stat.outside, dict(stat.unassessed)


def weight(estimate):
    """All of an estimate but its scores."""
    return estimate.n, estimate.unobserved, estimate.population, estimate.missing


@pytest.mark.parametrize("cells", [CELLS, 3], ids=["facts", "spilled"])
@law
@given(drawn(world, 700))
def test_every_request_is_in_one_place_for_every_metric(cells, world):
    """Also where a row holds more distinct facts than it keeps."""
    counted = Counted(*world, cells=cells)
    for series in counted.snapshot.series:
        for name, stat in series.metrics.items():
            without_gold = not series.gold and METRICS[name].needs_gold
            parts = (stat.n, stat.unscored, stat.outside, *stat.unassessed.values())
            assert min(parts) >= 0, name
            assert sum(parts) == series.records or (without_gold and sum(parts) <= series.records), name


@law
@given(drawn(world, 700))
def test_metrics_of_one_denominator_agree_on_it_in_windows_and_strata(world):
    for series in Counted(*world).snapshot.series:
        for one, other in PAIRS:
            assert denominator(series.metrics[one]) == denominator(series.metrics[other]), (one, other)
            if series.estimates:
                assert weight(series.estimates[one]) == weight(series.estimates[other]), (one, other)


@law
@given(drawn(world, 700))
def test_groundedness_of_0_or_1_is_the_grounded_rate_for_every_reader(world):
    """A measured score and a fact about the same answers: windows, strata, gates, alarms and releases."""
    counted = Counted(*world)
    for series in counted.snapshot.series:
        assert series.metrics[GROUNDED] == series.metrics[RATE]
        assert series.estimates.get(GROUNDED) == series.estimates.get(RATE)
    assert counted.outcomes(GROUNDED) == counted.outcomes(RATE)
    assert counted.releases(GROUNDED) == counted.releases(RATE)
    seen, steps = counted.observations(GROUNDED)
    selector = ObservationSelector(counted.scorer.table)
    rules = [AlarmRule("rule", RATE, "page", at_least=True, kind="gate", source=s) for s in ("live", "probe")]
    assert seen == [selector.of(step, rule, StepClusters(step)) for _, step in steps for rule in rules]


def live(*kinds):
    """Live records of `(stratum, number, changes)`, all of them kept."""
    plain = Record(
        ts=NOON,
        source="live",
        retrieved_ids=["d1"],
        contexts=["the ferry leaves the harbour"],
        answer_json=Answer("ferry harbour", ["d1"]),
    )
    records, calls = [], {}
    for stratum, n, changes in kinds:
        kept = Sampling(audit=True, stratum=stratum, p_audit=1.0, p=1.0)
        records += [msgspec.structs.replace(plain, sampling=kept, **changes)] * n
        calls[stratum] = (calls.get(stratum, (0, 0))[0] + n,) * 2
    return Counted(records, calls)


@pytest.mark.parametrize("metric", [GROUNDED, RATE])
def test_refused_calls_do_not_hide_what_was_measured_on_all_answers(metric):
    counted = live(("rest", 300, {}), ("refusal", 100, {"answer_json": Answer("not in context", [])}))
    (outcome,) = evaluate(counted.snapshot, Policy((Gate("gate", metric, 0.80, "at_least"),)), whole_run=True)
    assert (outcome.verdict, outcome.value, outcome.n, round(outcome.lower, 3)) == ("pass", 1.0, 300, 0.984)


def test_calls_that_ended_in_an_error_do_not_hide_how_often_retrieval_found_nothing():
    """Their ids are unknown because of the error, which `error_rate` counts."""
    failed = {"answer_json": None, "retrieved_ids": None, "contexts": None, "error": "timeout"}
    counted = live(("rest", 380, {}), ("error", 20, failed))
    (outcome,) = evaluate(counted.snapshot, Policy((EMPTY,)), whole_run=True)
    assert (outcome.verdict, outcome.value, outcome.n) == ("pass", 0.0, 380)


def test_a_judge_that_read_some_answers_says_nothing_of_calls_it_never_gets():
    counted = live(
        ("rest", 30, {"measures": {JUDGE.key: 1.0}}),
        ("rest", 270, {}),
        ("refusal", 100, {"answer_json": Answer("not in context", [])}),
    )
    (series,) = counted.snapshot.series
    estimate = series.estimates[JUDGE.key]
    assert (estimate.n, estimate.unobserved, estimate.missing) == (30, 0.0, ())


def test_whether_an_answer_is_grounded_is_a_fact_whichever_metrics_are_asked_for():
    alone = Scorer(metrics={RATE: parse(RATE)})
    alone.observe(Record(contexts=["the ferry leaves"], answer_json=Answer("ferry", [])))
    assert alone.snapshot().series[0].metrics[RATE].value == 1.0


def test_the_interval_of_a_mean_reaches_from_unknown_scores_as_0_to_unknown_scores_as_1():
    """Whether an answer whose citations were not captured cited what was retrieved, nobody knows."""

    def estimate(**answers):
        cited = {"right": ["d1"], "wrong": ["elsewhere"], "unknown": None}
        kinds = (("rest", n, {"answer_json": Answer("ferry", cited[kind])}) for kind, n in answers.items())
        (series,) = live(*kinds).snapshot.series
        return series.metrics["citation_scope"].estimate

    found = estimate(right=30, wrong=10, unknown=5)
    assert found.lower == estimate(right=30, wrong=15).lower
    assert found.upper == estimate(right=35, wrong=10).upper
    assert (found.value, found.n) == (0.75, 40)
