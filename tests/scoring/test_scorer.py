"""The scorer: which requests are counted where, once, by which rules."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core import constants
from ragmon.core.gold_item import GOLD as GOLD_FLAG
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, Sampling, TextFacts
from ragmon.core.refusals import RefusalRule
from ragmon.ingest.gold import GoldIndex, GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import FactReader
from ragmon.scoring.buckets import State
from ragmon.scoring.scorer import MODELS, ReductionRules, Scorer
from ragmon.testing import FakeClock, make_record
from tests.support.examples import cases
from tests.support.oracle.draw import ABSENT, drawn, without_absent
from tests.support.random_records import NOON, worlds
from tests.support.saved import saved

GOLD = GoldSet(
    "gold",
    (
        GoldItem("a", "Is it?", answerable=True, claim_substrings=["it is"], citations=["d1"]),
        GoldItem("b", "Was it?", answerable=False, tags={"lang": "de"}),
    ),
)


def request(source=None, qid="a", claim="Yes, it is.", **fields):
    return Record(source=source, qid=qid, retrieved_ids=["d1", "d2"], answer_json=Answer(claim, ["d1"]), **fields)


def counted(*records, **options):
    scorer = Scorer(options.pop("gold", GOLD), **options)
    for record in records:
        assert scorer.observe(record)
    return scorer


def n(scorer, metric, source, **where):
    """How many requests are in a metric's denominator in one series; None where there is no such series."""
    found = scorer.snapshot().find(where.pop("pipeline", "default"), source, **where)
    return None if found is None else found.metrics[metric].n


# --- sources ----------------------------------------------------------------------------------------------------------


def test_sources_are_never_pooled():
    """Each source has its own series; a record that names none is a replay."""
    records = [request(source) for source in (None, "replay", "probe", "label", "match") for _ in range(2)]
    scorer = counted(*records)
    for source, expected in (("replay", 4), ("probe", 2), ("label", 2), ("match", 2)):
        assert n(scorer, "answer_precision", source, gold="gold") == expected
        assert n(scorer, "compliance", source) == expected
    assert scorer.snapshot().find("default", "live") is None


def test_a_live_request_of_a_gold_question_is_live_without_gold_and_a_match_with_it():
    """Once each: user totals stay user totals, and a gold draw is judged by gold."""
    scorer = counted(request("live"), request("live", qid=None, q="IS it"), request("live", qid="unknown"))
    assert n(scorer, "compliance", "live") == 3
    assert n(scorer, "answer_precision", "live") == 0
    assert n(scorer, "answer_precision", "match", gold="gold") == 2
    assert scorer.snapshot().find("default", "live", gold="gold") is None
    assert (scorer.scored, scorer.state.unmatched) == (3, 1)


def test_a_live_request_counts_its_latency_once_in_each_of_its_series():
    snapshot = counted(request("live", latency_ms=Latency(total=100.0))).snapshot()
    for source, gold in (("live", ""), ("match", "gold")):
        assert sum(snapshot.find("default", source, gold=gold).latency["total"].values()) == 1


def test_probes_stand_apart_from_user_traffic_whichever_way_they_are_named():
    """Older logs carry a flag in place of a source."""
    flagged = {"probe": True, "qid": "a", "answer_json": {"claim": "it is", "citations": ["d1"]}}
    unflagged = {**flagged, "probe": False, "qid": "unknown"}
    records = [decode(json.dumps(one).encode()) for one in (flagged, unflagged)]
    scorer = counted(request("probe"), *records)
    assert (n(scorer, "compliance", "probe"), n(scorer, "compliance", "live")) == (2, 1)


def test_a_label_counts_under_its_own_source_alone():
    scorer = counted(request("label", measures={"answer_correct": 0.5}), request("live"))
    assert n(scorer, "answer_correct", "label", gold="gold") == 1
    assert n(scorer, "answer_correct", "live") == 0


def test_a_set_that_is_not_for_user_questions_leaves_them_alone():
    gold = GoldSet("gold", GOLD.items, use=("probe",))
    scorer = counted(request("live"), request("probe"), gold=gold)
    assert scorer.snapshot().find("default", "match", gold=None) is None
    assert n(scorer, "answer_precision", "probe", gold="gold") == 1


def test_two_gold_sets_are_two_series():
    other = GoldSet("other", (GoldItem("z", "Else?", answerable=True, citations=["d2"]),))
    scorer = counted(request(), request(qid="z"), gold=GoldIndex([GOLD, other]))
    assert [n(scorer, "recall", "replay", gold=name) for name in ("gold", "other", "")] == [1, 1, 0]
    assert n(scorer, "compliance", "replay") == 2


# --- sampling and slices ----------------------------------------------------------------------------------------------


def test_a_record_kept_for_its_outcome_alone_is_in_no_estimate():
    """It says nothing about how common the outcome is; it is counted and can be looked at."""
    kept = request("live", claim="not in context", sampling=Sampling(audit=False, stratum="refusal", p_audit=0.05))
    scorer = counted(request("live", sampling=Sampling(stratum="rest", p_audit=0.05)), kept)
    assert scorer.scored == 2
    assert n(scorer, "refusal_rate", "live") == 1
    assert scorer.snapshot().find("default", "live").metrics["refusal_rate"].value == 0.0
    assert {(key.audit, key.stratum) for key in scorer.state.series} == {(True, "rest"), (False, "refusal")}


def test_slices_are_the_declared_values_and_everything_else_is_other():
    rules = ReductionRules(slices={"lang": ["de", "en"]})
    records = [request(tags={"lang": lang}) for lang in ("de", "en", "en", "fr", "xx")]
    scorer = counted(*records, request(), request(tags={"topic": "rivers"}), rules=rules)
    slices = {
        where: n(scorer, "compliance", "replay", where=where) for where in ("lang=de", "lang=en", "lang=__other__")
    }
    assert slices == {"lang=de": 1, "lang=en": 2, "lang=__other__": 2}
    assert n(scorer, "compliance", "replay") == 7, "slices are beside the whole, not part of it"
    assert n(scorer, "answer_precision", "replay", gold="gold", where="lang=en") == 2


def test_a_request_is_sliced_by_its_gold_items_tags_unless_it_has_its_own():
    scorer = counted(
        request(qid="b"), request(qid="b", tags={"lang": "en"}), rules=ReductionRules(slices={"lang": ["de", "en"]})
    )
    for where in ("lang=de", "lang=en"):
        assert n(scorer, "under_refusal_rate", "replay", gold="gold", where=where) == 1


# --- rules ------------------------------------------------------------------------------------------------------------


def test_each_pipeline_is_read_by_its_own_rules():
    """Another refusal token, latency bound and grounding threshold."""
    strict = ReductionRules(FactReader(RefusalRule(tokens=("weiß nicht",)), within_ms=10), grounded_threshold=0.9)
    records = [
        Record(pipeline=pipeline, contexts=["one"], latency_ms=Latency(total=20), answer_json=Answer(claim))
        for pipeline in ("default", "strict")
        for claim in ("weiß nicht", "one river")
    ]
    scorer = counted(*records, rules=ReductionRules(FactReader(within_ms=100)), by_pipeline={"strict": strict})
    values = {
        pipeline: {
            name: scorer.snapshot().find(pipeline, "replay").metrics[name].value
            for name in ("refusal_rate", "answered_within", "grounded_rate")
        }
        for pipeline in ("default", "strict")
    }
    assert values == {
        "default": {"refusal_rate": 0.0, "answered_within": 1.0, "grounded_rate": 0.5},
        "strict": {"refusal_rate": 0.5, "answered_within": 0.0, "grounded_rate": 0.0},
    }


# --- graded scores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "micro"), [(0.5e-6, 0), (1.5e-6, 2), (2.5e-6, 2), (1 / 3, 333_333), (2 / 3, 666_667), (1, 1_000_000)]
)
def test_a_graded_score_is_kept_in_millionths_rounded_half_to_even_once(score, micro):
    stat = labelled(score)
    assert (stat.n, stat.sum, stat.squares) == (1, micro, micro**2)


def labelled(score):
    scorer = counted(request("label", measures={"answer_correct": score}))
    return scorer.snapshot().find("default", "label", gold="gold").metrics["answer_correct"]


@pytest.mark.parametrize(("score", "kept"), [(1.5, 1_000_000), (-0.25, 0), (1e300, 1_000_000), (-0.0, 0)])
def test_a_score_out_of_range_is_cut_to_it(score, kept):
    assert (labelled(score).n, labelled(score).sum) == (1, kept)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_ignored(score):
    assert labelled(score).n == 0


def test_groundedness_measured_where_the_text_was_counts_as_it_stands():
    scorer = counted(request(measures={"groundedness": 0.05}), request(measures={"groundedness": 0.2}))
    metrics = scorer.snapshot().find("default", "replay").metrics
    assert (metrics["groundedness"].n, metrics["groundedness"].value) == (2, 0.125)
    assert (metrics["grounded_rate"].n, metrics["grounded_rate"].value) == (2, 0.5)


@pytest.mark.parametrize("text", ["claim", "contexts", "q"])
def test_of_a_record_whose_text_redaction_changed_only_what_was_measured_before_counts(text):
    """Words that were taken out of a claim or a context are missing from the other as well."""
    facts = TextFacts(answered=True, refused=False, redacted=[text])
    redacted = Record(contexts=["The [name] sails at nine."], answer_json=Answer("[name] sails at nine."), facts=facts)
    measured = Record(contexts=redacted.contexts, answer_json=redacted.answer_json, measures={"groundedness": 0.25})
    measured.facts = facts
    scorer = counted(redacted, measured)
    stat = scorer.snapshot().find("default", "replay").metrics["groundedness"]
    assert (stat.n, stat.value, stat.unassessed) == (1, 0.25, {constants.NO_TEXT: 1})


# --- what is dropped, and what never stops it -------------------------------------------------------------------------


def test_a_record_from_the_future_is_dropped_and_counted():
    """Five minutes of difference between clocks are allowed."""
    clock = FakeClock(NOON)
    scorer = Scorer(clock=clock)
    assert scorer.observe(Record(ts=NOON + 300))
    assert not scorer.observe(Record(ts=NOON + 301))
    clock.advance(1)
    assert scorer.observe(Record(ts=NOON + 301))
    assert (scorer.scored, scorer.dropped) == (2, {constants.TOO_FUTURE: 1})


def test_a_record_older_than_the_retention_is_dropped_whole():
    """Neither its live nor its match half is counted."""
    scorer = Scorer(GOLD, state=State(retention=7200, is_live=True))
    assert scorer.observe(request("live", ts=NOON))
    assert not scorer.observe(request("live", ts=NOON - 7201))
    assert (scorer.scored, scorer.dropped) == (1, {constants.TOO_OLD: 1})
    assert (n(scorer, "compliance", "live"), n(scorer, "compliance", "match", gold="gold")) == (1, 1)


def test_a_record_may_be_too_old_by_its_arrival_whatever_came_before():
    """So that whoever counts a part of the records drops the same ones."""
    clock = FakeClock(NOON)
    ahead = Scorer(state=State(retention=7200, is_live=True), clock=clock, ages_by_clock=True)
    assert ahead.observe(Record(ts=NOON + 300))
    assert ahead.observe(Record(ts=NOON - 7200))
    alone = Scorer(state=State(retention=7200, is_live=True), clock=clock, ages_by_clock=True)
    assert not alone.observe(Record(ts=NOON - 7201))
    assert alone.dropped == {constants.TOO_OLD: 1}


@pytest.mark.slow
@settings(max_examples=cases(200), deadline=None, derandomize=True)
@given(worlds())
def test_more_pipelines_and_builds_than_are_remembered_change_no_count(world):
    gold, records = world
    expected = counted(*records, gold=gold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragmon.scoring.scorer.STREAMS", 1)
        assert counted(*records, gold=gold).state.digest() == expected.state.digest()


JUNK = (
    *(ABSENT, ABSENT, ABSENT, None, True, False, 0, 7, -1, 1e308, 2**70, "", "not in context", "a", "citations: [d1]"),
    *([], [""], ["d1", "d1"], [1, 2], [None], [[]], [True, 0, "yes"], [{"id": "d1", "text": "it is"}], [{"score": 1}]),
    *({}, {"claim": "it is", "citations": ["d1"]}, {"claim": 5}, {"total": 1e9}, {"total": -1}, {"audit": False}),
    *({"topk": [{"id": "d1"}]}, {"answered": True}, {"lang": "de"}, {"groundedness": 9.5}, {"groundedness": None}),
)
FIELDS = (
    *("v", "kind", "trace_id", "ts", "pipeline", "source", "qid", "q_id", "q", "question", "retrieved_ids", "ok"),
    *("candidate_ids", "scores", "contexts", "answer_json", "answer", "citations", "error", "latency_ms", "index_hash"),
    *("build", "session", "sampling", "facts", "partial", "exported", "tags", "verdicts", "measures", "probe"),
    *("chunks", "retrieval", "perf", "context", "retrieval_ms", "generation_ms"),
)


def junk(draw):
    """A line whose fields hold anything; only few of them, or nothing would ever be accepted."""
    return without_absent(**{draw.one(FIELDS): draw.one(JUNK) for _ in range(draw.number(7))})


@pytest.mark.slow
@settings(max_examples=cases(2_000), deadline=None, derandomize=True)
@given(st.lists(drawn(junk, 16), min_size=1, max_size=4))
def test_whatever_can_be_read_can_be_scored_and_reported(lines):
    """The reader refuses or the scorer counts; nothing raises."""
    scorer = Scorer(
        GOLD, rules=ReductionRules(FactReader(within_ms=100), slices={"lang": ["de"]}), state=State(retention=1e6)
    )
    accepted = 0
    for line in lines:
        with contextlib.suppress(Rejected):
            record = decode(json.dumps(line).encode())
            if isinstance(record, Record):
                accepted += 1
                scorer.observe(record)
    assert scorer.scored + sum(scorer.dropped.values()) == accepted
    snapshot = scorer.snapshot(windows={"5m": 300, "all": None}, gated=["answer_precision"])
    assert all(s.records > 0 for s in snapshot.series)
    assert saved(scorer.state).digest() == scorer.state.digest()


@given(worlds(), st.booleans())
def test_whoever_reads_after_each_request_reads_at_the_end_what_others_read(world, is_live):
    """A request is in an open bucket until its step is over or somebody reads; where it is shows nowhere."""
    gold, records = world
    options = {"is_live": is_live, "retention": 3600.0 if is_live else None}
    read, unread = (Scorer(gold, state=State(**options)) for _ in range(2))
    for record in records:
        assert read.observe(record) == unread.observe(record)
        read.snapshot()
    assert unread.snapshot() == read.snapshot()
    assert read.state.digest() == unread.state.digest()


class RaisesOnGold(Metric):
    """A metric of somebody's own that fails over requests of a gold item."""

    name = "raises_on_gold"

    def score(self, facts):
        return 1 // 0 if facts.has(GOLD_FLAG) else 1.0


def test_a_metric_that_raises_over_one_half_of_a_live_request_leaves_both_uncounted():
    scorer = Scorer(GOLD, metrics={"raises_on_gold": RaisesOnGold()})
    with pytest.raises(ZeroDivisionError):
        scorer.observe(request("live", ts=NOON))
    assert scorer.observe(request("live", qid=None, ts=NOON))
    assert not [key for key in scorer.state.series if key.gold]
    assert scorer.snapshot().find("default", "live").records == scorer.scored == 1


def test_models_that_are_counted_apart_are_few():
    """Their names come from outside; beyond the limit they share one slice."""
    scorer = Scorer()
    for n in range(3 * MODELS):
        assert scorer.observe(make_record("a", model=f"m{n % (2 * MODELS)}", ts=1000.0 + n))
    slices = {key.slice for key in scorer.state.series if key.slice}
    assert slices == {f"(model)=m{n}" for n in range(MODELS)} | {"(model)=__other__"}
    restored = Scorer()
    restored.restore(saved(scorer.state))
    assert restored.observe(make_record("a", model="new", ts=2000.0))
    assert {key.slice for key in restored.state.series if key.slice} == slices


def test_a_model_counts_as_a_slice_where_one_is_declared():
    scorer = Scorer(rules=ReductionRules(slices={"model": ("m1",)}))
    for model in ("m1", "m2"):
        scorer.observe(make_record("a", model=model))
    assert {series.slice for series in scorer.snapshot().series} == {"", "model=m1", "model=__other__"}


def test_records_without_a_model_are_counted_as_ever():
    bare, named = Scorer(), Scorer()
    bare.observe(make_record("a"))
    named.observe(make_record("a", user="u1"))
    assert bare.state.digest() == named.state.digest()
