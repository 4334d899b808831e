"""A gold number is of this gold set or of questions like these: two intervals, named, covering what they are about."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Record
from ragmon.export.prometheus import Collector
from ragmon.gates.evaluate import bounds, evaluate
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.embedded import Monitor
from ragmon.scoring.scorer import Scorer
from ragmon.stats.intervals import clustered, wilson
from tests.support.command_line import gold, lines, ragmon, traces
from tests.support.serving import accounted, asked, send_body, serving, values, whole

ITEMS, PROBES, RUNS = 50, 100, 250
ALPHA, BETA = 0.58, 0.15
"""How often items are answered right: some nearly always, a few nearly never, .795 in the mean (statistics 1.6)."""
GOLD = GoldSet("gold", tuple(GoldItem(f"a{k}", f"{k}?", True, ["right"], citations=["d"]) for k in range(ITEMS)))
GATES = {
    estimand: Gate(estimand, "answer_precision", 0.5, "at_least", source="probe", estimand=estimand)
    for estimand in (constants.GOLD_SET, constants.QUESTIONS_LIKE_THESE)
}


def probe(qid, claim):
    return Record(source="probe", qid=qid, ts=60.0, retrieved_ids=["d"], answer_json=Answer(claim, ["d"]))


ANSWERS = [(probe(item.qid, "wrong"), probe(item.qid, "right")) for item in GOLD]


def judged(right):
    """Both gates after every item was probed so often, and so many answers were right."""
    scorer = Scorer(GOLD)
    for (wrong, good), n in zip(ANSWERS, right, strict=True):
        for k in range(PROBES):
            assert scorer.observe(good if k < n else wrong)
    snapshot = scorer.snapshot(now=60.0, windows={"1h": None}, gated=["answer_precision"])
    return dict(zip(GATES, evaluate(snapshot, Policy(gates=tuple(GATES.values()))), strict=True))


@cache
def simulated():
    """Runs of fifty items that are probed a hundred times: the share in which each interval covers each truth."""
    rng = np.random.default_rng(20260821)
    covered = dict.fromkeys(((estimand, truth) for estimand in GATES for truth in ("items", "population")), 0)
    widths, most = dict.fromkeys(GATES, 0.0), 0.0
    for _ in range(RUNS):
        shares = rng.beta(ALPHA, BETA, ITEMS)
        outcomes = judged(rng.binomial(PROBES, shares).tolist())
        truths = {"items": shares.mean(), "population": ALPHA / (ALPHA + BETA)}
        for estimand, outcome in outcomes.items():
            assert outcome.n == ITEMS * PROBES
            widths[estimand] += (outcome.upper - outcome.lower) / RUNS
            for truth, value in truths.items():
                covered[estimand, truth] += outcome.lower <= value <= outcome.upper
        most = max(most, outcomes[constants.QUESTIONS_LIKE_THESE].n_eff)
    return {key: n / RUNS for key, n in covered.items()}, widths, most


@pytest.mark.slow
def test_questions_like_these_covers_the_questions_the_items_stand_for():
    """And knows no more than fifty things, however often they were asked."""
    covered, widths, most = simulated()
    assert covered[constants.QUESTIONS_LIKE_THESE, "population"] >= 0.93
    assert most <= ITEMS
    assert widths[constants.QUESTIONS_LIKE_THESE] > 5 * widths[constants.GOLD_SET]


@pytest.mark.slow
def test_this_gold_set_covers_these_items():
    covered, _, _ = simulated()
    assert covered[constants.GOLD_SET, "items"] >= 0.95


@pytest.mark.slow
def test_taken_for_the_other_the_interval_of_this_gold_set_is_wrong_four_times_in_five():
    """That is why both have a name: counting draws as if each were another question promises far too much."""
    covered, widths, _ = simulated()
    assert covered[constants.GOLD_SET, "population"] < 0.3
    assert widths[constants.GOLD_SET] < 0.03


# --- exported and named -----------------------------------------------------------------------------------------------

CONFIG = """
[gold.gold]
path = "gold.jsonl"
[pipelines.support.gates.probed]
metric = "answer_precision"
at_least = 0.5
source = "probe"
[pipelines.support.gates.matched]
metric = "answer_precision"
at_least = 0.5
source = "match"
"""


@pytest.fixture
def monitor(tmp_path):
    """A monitor that saw five items, of which two fail, ten times each: as probes, and asked by users."""
    lines(tmp_path / "gold.jsonl", gold(answerable=5, unanswerable=0))
    (tmp_path / "ragmon.toml").write_text(CONFIG)
    found = Monitor(load(tmp_path / "ragmon.toml", environ={}), clock=lambda: 100.0)
    for source in ("probe", "live"):
        for k in range(50):
            claim = "right" if k % 5 < 3 else "wrong"
            told = {"retrieved_ids": [f"d{k % 5}"], "answer_json": Answer(claim, [f"d{k % 5}"])}
            found.submit(Record(source=source, pipeline="support", qid=f"a{k % 5}", ts=60.0, **told))
    return found


def page(monitor):
    registry = CollectorRegistry()
    registry.register(Collector(monitor.snapshot))
    return values(generate_latest(registry).decode())


@pytest.mark.parametrize("source", ["probe", "match"])
def test_both_intervals_are_exported_under_their_names(monitor, source):
    found = page(monitor)

    def told(what, estimand):
        labels = f'estimand="{estimand}",gold="gold",metric="answer_precision",pipeline="support",source="{source}"'
        return found[f'ragmon_gold_{what}{{{labels},window="1h"}}']

    items = {(10, 10.0): 3, (10, 0.0): 2}
    expected = {
        constants.GOLD_SET: (*wilson(30, 50), 50),
        constants.QUESTIONS_LIKE_THESE: clustered(items),
    }
    for estimand, (lower, upper, n_eff) in expected.items():
        assert told("lower", estimand) == pytest.approx(lower)
        assert told("upper", estimand) == pytest.approx(upper)
        assert told("n_eff", estimand) == pytest.approx(n_eff)
    bare = f'gold="gold",pipeline="support",source="{source}",window="1h"'
    assert found[f"rag_answer_precision_lower{{{bare}}}"] == told("lower", constants.GOLD_SET)


def test_a_gate_says_what_its_interval_is_about(monitor):
    estimands = {
        line.partition('gate="')[2].partition('"')[0]: line.partition('estimand="')[2].partition('"')[0]
        for line in page(monitor)
        if line.startswith("ragmon_gate_info") and 'source="' in line
    }
    assert (estimands["probed"], estimands["matched"]) == (constants.GOLD_SET, constants.QUESTIONS_LIKE_THESE)
    assert estimands["coverage"] == ""


def test_the_status_and_its_page_say_it_too(tmp_path):
    lines(tmp_path / "gold.jsonl", gold(answerable=5, unanswerable=0))
    with serving(tmp_path, CONFIG) as running:
        records = [asked(k, source="probe") for k in range(5)]
        for k, record in enumerate(records):
            record.qid = f"a{k}"
        send_body(running, whole(records))
        accounted(running)
        gates = {one["gate"]: one["estimand"] for one in running.status()["gates"]}
        assert gates["probed"] == constants.GOLD_SET
        assert "probe, of this gold set" in running.get("/")[1]


@pytest.mark.slow
def test_a_report_has_both_intervals_of_every_gated_gold_metric(tmp_path):
    lines(tmp_path / "gold.jsonl", gold())
    lines(tmp_path / "traces.jsonl", traces(wrong=("a1", "a2")))
    done = ragmon("replay", "traces.jsonl", "--gold", "gold.jsonl", "--format", "json", cwd=tmp_path)
    (series,) = (one for one in done.json["series"] if one["gold"])
    found = series["metrics"]["answer_precision"]["estimands"]
    assert set(found) == {constants.GOLD_SET, constants.QUESTIONS_LIKE_THESE}
    assert found[constants.GOLD_SET]["lower"] == series["metrics"]["answer_precision"]["lower"]
    assert json.dumps(found)


def test_what_is_of_no_gold_set_has_no_estimand():
    scorer = Scorer(GOLD)
    scorer.observe(Record(source="live", answer_json=Answer("yes", [])))
    (series,) = scorer.snapshot(gated=["answer_precision", "compliance"]).series
    assert bounds(series, "answer_precision") == bounds(series, "compliance") == {}
