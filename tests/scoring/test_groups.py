"""Windows know which requests share a session or a question: the interval, its bounds in memory, and what adds up."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.gates.evaluate import evaluate
from ragmon.metrics import build
from ragmon.metrics.facts import FactReader
from ragmon.scoring import score_table
from ragmon.scoring.buckets import Bucket, State
from ragmon.scoring.minutes import group_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.scoring.snapshot import ALL
from ragmon.stats.clusters import GROUPS
from tests.support.saved import saved

NOON = 1_763_683_200.0
GATE = Gate("refusals", "refusal_rate", 0.5, "at_most", pipeline="p", source="live", min_samples=1)


def request(i, session=None, question=None, *, refused=False, **more):
    claim = "not in context" if refused else "The fee is 5 euros."
    answer = Answer(claim=claim, citations=[])
    return Record(
        ts=NOON + i,
        pipeline="p",
        source="live",
        trace_id=f"{i:032x}",
        session=session,
        q=question,
        answer_json=answer,
        **more,
    )


def scored(records, **rules):
    scorer = Scorer(rules=ReductionRules(**rules))
    for record in records:
        scorer.observe(record)
    return scorer


def sessions(count, size, seed=1):
    """Sessions that are refused throughout or not at all."""
    chance = Random(seed)
    fates = [chance.random() < 0.4 for _ in range(count)]
    return [request(i, f"session {i % count}", f"question {i}", refused=fates[i % count]) for i in range(count * size)]


def outcome(scorer, window=ALL):
    snapshot = scorer.snapshot(windows={window: None}, gated=("refusal_rate",))
    (judged,) = evaluate(snapshot, Policy((GATE,)), whole_run=True)
    return judged


def test_thirty_sessions_of_ten_that_share_their_fate_are_worth_about_thirty_requests():
    clustered, alone = outcome(scored(sessions(30, 10))), outcome(scored(sessions(30, 10), cluster=()))
    assert (alone.n, alone.n_eff) == (300, 300)
    assert clustered.n == 300
    assert 20 <= clustered.n_eff <= 40
    assert clustered.lower < alone.lower <= alone.value == clustered.value <= alone.upper < clustered.upper
    assert alone.verdict == "pass"
    assert clustered.verdict == "insufficient"
    assert f"300 clustered samples count as {clustered.n_eff:.0f} independent ones" in clustered.reason
    assert clustered.needed > alone.n


def test_the_same_question_is_one_cluster_where_no_session_is_known():
    same = [request(i, question=f"Question {i % 30}!", refused=i % 30 < 10) for i in range(300)]
    assert outcome(scored(same)).n_eff < 60
    assert outcome(scored(same, cluster=("session",))).n_eff == 300


@pytest.mark.parametrize("by", ["question", "session"])
@pytest.mark.parametrize(("metric", "threshold"), [("error_rate", 0.05), ("answered_within", 0.05)])
def test_errors_and_latencies_are_of_single_requests(metric, threshold, by):
    """300 healthy requests are 300, whoever asks and however often: with their questions, and on a server without."""
    records = [request(i, latency_ms=Latency(100.0), **{by: f"number {i % 30}"}) for i in range(300)]
    bare = [msgspec.structs.replace(record, session=None, q=None) for record in records]
    way = "at_most" if metric == "error_rate" else "at_least"
    gate = Gate("requests", metric, threshold if way == "at_most" else 1 - threshold, way, pipeline="p", source="live")
    found = []
    for known in (records, bare):
        snapshot = scored(known, facts=FactReader(within_ms=1000.0)).snapshot(
            windows={ALL: None}, gated=(metric, "refusal_rate")
        )
        (judged,) = evaluate(snapshot, Policy((gate,)), whole_run=True)
        found.append((judged.verdict, judged.n, judged.n_eff, judged.lower, judged.upper))
    assert found[0] == found[1]
    assert found[0][:3] == ("pass", 300, 300)
    assert outcome(scored(records)).n_eff < 100


def test_requests_that_are_all_alone_keep_wilsons_interval():
    alone = [request(i, f"session {i}", refused=i % 4 == 0) for i in range(300)]
    without = [request(i, refused=i % 4 == 0) for i in range(300)]
    assert outcome(scored(alone)) == outcome(scored(without)) == outcome(scored(alone, cluster=()))


def test_sessions_that_reach_over_strata_widen_the_weighted_estimate():
    def kept(records):
        for record in records:
            stratum = "refusal" if record.answer_json.claim == "not in context" else "rest"
            yield msgspec.structs.replace(record, sampling=Sampling(stratum=stratum, p_audit=1.0, p=1.0))

    def weighted(**rules):
        scorer = scored(kept(sessions(30, 10)), **rules)
        rows = {}
        for key, series in scorer.state.series.items():
            for row in series.buckets():
                rows.setdefault(key.stratum, Bucket()).merge(row)
        calls = {name: row.count for name, row in rows.items()}
        assert len(calls) == 2
        return score_table.weighted(rows, calls, scorer.table)["refusal_rate"]

    clustered, alone = weighted(), weighted(cluster=())
    assert alone.value == clustered.value
    assert clustered.upper - clustered.lower > 2 * (alone.upper - alone.lower)
    assert clustered.n_eff < 60 < alone.n_eff


def test_scores_measured_on_text_are_kept_by_group_too():
    def answered(i, size):
        right = (i // size) % 3 > 0
        return request(i, f"s{i // size}", contexts=["The fee is 5 euros." if right else "Nothing is known."])

    scorer = scored([answered(i, 10) for i in range(300)])
    stat = scorer.snapshot().find("p", "live").metrics["groundedness"]
    counts, totals = stat.spread.totals()
    assert (sum(counts), sum(totals)) == (stat.n, stat.sum)
    assert stat.n == 300
    assert stat.estimate.n_eff < 60


def test_counts_by_group_add_up_in_any_order_and_survive_being_saved():
    records = sessions(40, 5)
    whole = scored(records)
    parts = [scored(Random(4).sample(records[i::3], len(records[i::3]))) for i in range(3)]
    merged = State()
    for part in reversed(parts):
        merged.merge(part.state)
    assert merged.digest() == whole.state.digest()
    loaded = saved(whole.state)
    assert loaded.digest() == whole.state.digest()
    for state in (merged, loaded):
        other = Scorer(state=state)
        assert outcome(other) == outcome(whole)


def test_ten_thousand_sessions_take_one_number_a_group_for_each_tuple_of_facts():
    scorer = scored([request(0, f"session {i}", refused=i % 2 == 0) for i in range(10_000)])
    (row,) = (row for series in scorer.state.series.values() for row in series.fresh.values())
    assert len(row.groups) == len(row.cells) == 2
    assert all(len(groups) == GROUPS for groups in row.groups.values())
    assert [sum(groups.values()) for groups in row.groups.values()] == [5000, 5000]


@pytest.mark.parametrize("source", ["live", "match", "replay"])
def test_the_session_comes_before_the_question_and_gold_items_have_tables_of_their_own(source):
    by, item = ("session", "question"), GoldItem(qid="a", question="Why?", answerable=False)
    assert group_of(request(1, "s", "a"), None, source, by) == group_of(request(2, "s", "b"), item, source, by)
    assert group_of(request(1, None, "Why?"), None, source, by) == group_of(request(2, None, " why "), None, source, by)
    assert group_of(request(1, None, "Why?"), item, source, by) is None
    assert group_of(request(1), None, source, by) is None
    assert group_of(request(1, "s", "a"), None, source, ()) is None


def test_a_label_has_the_session_of_its_answer_and_never_its_question():
    by = ("session", "question")
    assert group_of(request(1, "s"), None, "label", by) == group_of(request(1, "s"), None, "live", by)
    assert group_of(request(1, None, "Why?"), None, "label", by) is None


def test_later_metrics_have_the_groups_of_records_counted_before():
    scorer = scored(sessions(30, 10))
    (series,) = scorer.state.series.values()
    row = Bucket()
    for each in series.buckets():
        row.merge(each)
    assert ScoreTable(build()).of(row)["coverage"].estimate.n_eff < 60
