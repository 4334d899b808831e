"""What broke: the first suspect is the true one, the moment is right, and every number is one the monitor shows."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from msgspec.structs import replace
from scipy import stats as scipy_stats

from bench.scenario import Stream
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Record, Sampling, Totals
from ragmon.export.text import why_text
from ragmon.gates.change import ALPHA, Point, ScoreSums, Why, gain, locate, p_bound
from ragmon.gates.evaluate import evaluate
from ragmon.gates.why import explain
from ragmon.scoring.buckets import State
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.scoring.snapshot import take_snapshot
from ragmon.stats.histograms import MICRO
from tests.support.alarming import NOON, REFUSAL, said
from tests.support.broken_pipelines import (
    COVERAGE,
    ERRORS,
    ONE_INDEX,
    OVER_REFUSAL,
    P95,
    PRECISION,
    Pipeline,
    named,
    other_gold,
    trait,
)
from tests.support.random_records import worlds

BAD = {"missed": 0.6}
"""Retrieval no longer finds most of the gold documents."""


def close(why, began, seconds=60):
    """Whether the moment is right, and between its bounds."""
    change = why.change
    assert change.began is not None, change
    assert abs(change.began - began) <= seconds, (change.began - began) / 60
    assert change.earliest <= began <= change.latest
    assert change.p <= ALPHA
    return True


# --- one fault at a time ----------------------------------------------------------------------------------------------


def test_an_index_was_swapped():
    """The index that came with the change is named first, and what it did: it does not find the gold document."""
    pipeline = Pipeline()
    pipeline.run(100)
    began = pipeline.run(15, index="i2", **BAD)
    why = pipeline.why(PRECISION)
    assert close(why, began)
    assert named(why)[0] == "index_hash i2 appeared"
    assert why.suspects[0].first_seen == began
    assert why.suspects[0].share_after == 1.0
    assert why.mechanism == "retrieved no gold document"
    found = trait(why, "retrieved no gold document")
    assert found.before.value < 0.05
    assert found.after.value > 0.5
    assert found.failing.value > 0.9
    assert {one.name for one in why.metrics if one.by < -8} >= {"hit_rate@5", "recall@5", "citation_hit_rate"}


def test_a_build_refuses_too_much():
    pipeline = Pipeline()
    pipeline.run(100)
    began = pipeline.run(15, build="b2", over=0.5)
    why = pipeline.why(OVER_REFUSAL)
    assert close(why, began)
    assert named(why)[0] == "build b2 appeared"
    assert why.mechanism == "refused what can be answered"
    assert trait(why, "retrieved no gold document").by < 3


def test_what_failing_requests_do_not_have_is_not_what_broke():
    """Retrieval got worse as well, but those that were refused found their documents."""
    pipeline = Pipeline()
    pipeline.run(60)
    pipeline.run(60, build="b2", over=0.4, missed=0.5)
    why = pipeline.why(OVER_REFUSAL)
    assert trait(why, "retrieved no gold document").failing.value == 0
    assert why.mechanism == "refused what can be answered"


def test_what_requests_that_pass_have_as_well_is_another_fault():
    """Retrieval had missed every gold document for a while when a build began to refuse."""
    pipeline = Pipeline()
    pipeline.run(60)
    pipeline.run(10, change=lambda record, _: replace(record, retrieved_ids=["d9"]))
    began = pipeline.run(10, build="b2", over=0.6, change=lambda record, _: replace(record, retrieved_ids=["d9"]))
    why = pipeline.why(OVER_REFUSAL)
    assert close(why, began)
    assert trait(why, "retrieved no gold document").failing.value == 1.0
    assert why.mechanism == "refused what can be answered"


def test_a_build_and_an_index_that_came_together_are_named_together():
    pipeline = Pipeline()
    pipeline.run(100)
    pipeline.run(15, build="b2", index="i2", **BAD)
    why = pipeline.why(PRECISION)
    assert named(why) == ["build and index_hash b2 with i2 appeared"]
    assert {split.dimension for split in why.splits} >= {"build", "index_hash", "build and index_hash"}


@pytest.mark.slow
def test_one_of_two_builds_that_answer_side_by_side_is_bad():
    """A rollout to half of the traffic: the part explains more than the time does."""
    pipeline = Pipeline()
    pipeline.run(100)

    def bad_in_b2(record, rng):
        broken = record.build == "b2" and record.source == "probe" and rng.random() < 0.8
        return replace(record, **said("that is right", ["d2"], retrieved=["d2", "d3"])) if broken else record

    began = pipeline.run(20, build=lambda rng: rng.choice(["b1", "b2"]), change=bad_in_b2)
    why = pipeline.why(PRECISION)
    assert close(why, began, 120)
    assert named(why)[0] == "build b2 appeared"
    assert why.suspects[0].evidence > why.change.evidence
    assert why.suspects[0].rest_after.value > 0.85 > why.suspects[0].after.value


def test_the_retriever_is_slow():
    """The gate is on the total; the stage is named."""
    pipeline = Pipeline()
    pipeline.run(100)
    began = pipeline.run(15, retrieve=40)
    why = pipeline.why(P95)
    assert close(why, began)
    assert named(why) == ["stage retrieve slower"]
    stages = {stage.name: stage for stage in why.stages}
    assert stages["retrieve"].after.p50 > 30 * stages["retrieve"].before.p50
    assert stages["generate"].after.p50 == pytest.approx(stages["generate"].before.p50, rel=0.1)
    assert why.measure.startswith("within ")


def test_a_slow_build_is_named_before_its_stage():
    pipeline = Pipeline()
    pipeline.run(100)
    pipeline.run(15, retrieve=40, build="b2")
    assert named(pipeline.why(P95)) == ["build b2 appeared", "stage retrieve slower"]


def test_one_slice_alone_breaks():
    pipeline = Pipeline(probes=40)
    pipeline.run(100)

    def german_breaks(record, rng):
        return replace(record, **REFUSAL) if record.tags["lang"] == "de" and rng.random() < 0.7 else record

    began = pipeline.run(20, change=german_breaks)
    why = pipeline.why(OVER_REFUSAL)
    assert close(why, began, 120)
    assert named(why)[0] == "lang de inside"
    first = why.suspects[0]
    assert first.after.value - first.before.value > 0.5
    assert abs(first.rest_after.value - first.rest_before.value) < 0.05


def test_the_model_changed():
    """Nothing is configured for it: a record that names its model is enough."""
    pipeline = Pipeline()
    pipeline.run(100, change=lambda record, _: replace(record, model="fixed-1"))
    began = pipeline.run(15, change=lambda record, _: replace(record, model="fixed-2"), **BAD)
    why = pipeline.why(PRECISION)
    assert close(why, began)
    assert named(why)[0] == "model fixed-2 appeared"
    assert why.suspects[0].first_seen == began
    assert not [series for series in pipeline.scorer.snapshot().series if series.slice.startswith("(model)")]


def test_one_model_separates_nothing():
    pipeline = Pipeline()
    pipeline.run(100, change=lambda record, _: replace(record, model="fixed-1"))
    pipeline.run(15, build="b2", change=lambda record, _: replace(record, model="fixed-1"), **BAD)
    why = pipeline.why(PRECISION)
    assert named(why)[0] == "build b2 appeared"
    assert "model" not in {split.dimension for split in why.splits}


@pytest.mark.slow
def test_a_large_slice_is_no_suspect_because_most_of_the_change_is_in_it():
    pipeline = Pipeline(probes=40)
    pipeline.run(100)
    pipeline.run(20, over=0.5)
    assert named(pipeline.why(OVER_REFUSAL)) == []


@pytest.mark.slow
def test_users_ask_more_of_what_was_always_bad():
    """Nothing became worse in any slice: the mix of slices did."""
    pipeline = Pipeline(live=60)

    def mix(german):
        def change(record, rng):
            lang = "de" if rng.random() < german else "en"
            bad = lang == "de" and record.error is None and rng.random() < 0.7
            return replace(record, tags={"lang": lang}, **(said("that is right", []) if bad else {}))

        return change

    pipeline.run(100, change=mix(0.1))
    began = pipeline.run(20, change=mix(0.8))
    why = pipeline.why(COVERAGE)
    assert close(why, began)
    assert named(why)[0] == "lang de carries"
    assert why.suspects[0].share_before < 0.15
    assert why.suspects[0].share_after > 0.7


def test_what_other_requests_say_is_new_is_a_suspect_where_probes_say_nothing():
    """A prober records neither build nor index; user traffic shows an index that came when its answers became worse."""

    def unsaid(record, _):
        return replace(record, build=None, index_hash=None) if record.qid else record

    pipeline = Pipeline()
    pipeline.run(60, change=unsaid)
    began = pipeline.run(15, index="i2", change=unsaid, **BAD)
    why = pipeline.why(PRECISION)
    assert named(why) == ["index_hash i2 elsewhere"]
    assert why.suspects[0].first_seen == began
    assert "index_hash i2: first seen 01:00, in requests of other sources: those of probe carry none" in why_text(why)


@pytest.mark.parametrize("minutes", [2, 25])
def test_a_build_that_answered_well_before_the_change_is_no_suspect(minutes):
    pipeline = Pipeline()
    pipeline.run(60)
    pipeline.run(minutes, build="b2")
    began = pipeline.run(15, build="b2", over=0.6)
    why = pipeline.why(OVER_REFUSAL)
    assert close(why, began)
    assert named(why) == []


def test_the_gold_set_has_another_version():
    """Other answers are right now: before and since cannot be compared, and that is said first."""
    pipeline = Pipeline()
    pipeline.run(100)
    pipeline.adopt(other_gold())
    began = pipeline.run(15)
    why = pipeline.why(PRECISION)
    assert close(why, began)
    assert why.suspects[0].dimension == "gold_version"
    assert why.suspects[0].name == pipeline.scorer.gold.infos()[0].version
    assert why.mechanism == "said something else than the gold claim"


def test_a_gold_version_that_changed_before_is_no_suspect_and_older_answers_are_left_out():
    pipeline = Pipeline()
    pipeline.run(40)
    pipeline.adopt(other_gold())
    pipeline.run(60)
    began = pipeline.run(20, index="i2", **BAD)
    why = pipeline.why(PRECISION)
    assert close(why, began, 120)
    assert named(why)[0] == "index_hash i2 appeared"
    assert why.before.begin == 60.0 * (NOON + 40)
    assert "has a new version" in why.notes[0]


def test_a_second_index_answers_under_one_build():
    """A gate that counts indexes: what is followed is the share of the one that was there first."""
    pipeline = Pipeline()
    pipeline.run(60)
    began = pipeline.run(10, index="i2")
    why = pipeline.why(ONE_INDEX)
    assert close(why, began)
    assert (why.measure, named(why)) == ("index_hash i1", ["index_hash i2 appeared"])


# --- nothing, or too little -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nothing_broke(seed):
    pipeline = Pipeline(seed=seed)
    pipeline.run(120, build=lambda rng: rng.choice(["b1", "b2"]))
    for gate in (PRECISION, OVER_REFUSAL, COVERAGE, P95, ERRORS, ONE_INDEX):
        why = pipeline.why(gate)
        assert (why.change.began, why.before, why.suspects) == (None, None, ())
        assert why.change.reason.startswith("nothing became worse")
        assert "tells failing requests from the others: no build is worse than the others, no lang" in why.notes[0]


def test_what_became_better_did_not_break():
    pipeline = Pipeline()
    pipeline.run(60, **BAD)
    pipeline.run(60, index="i2")
    assert pipeline.why(PRECISION).change.began is None


def test_a_part_that_was_bad_all_along_is_named_without_a_moment():
    pipeline = Pipeline(live=60)

    def german_is_bad(record, rng):
        bad = record.tags["lang"] == "de" and record.error is None and rng.random() < 0.6
        return replace(record, **said("that is right", [])) if bad else record

    pipeline.run(60, change=german_is_bad)
    why = pipeline.why(COVERAGE)
    assert why.change.began is None
    assert named(why) == ["lang de carries"]


def test_too_little_data_says_so():
    pipeline = Pipeline(live=0, probes=1)
    pipeline.run(6)
    pipeline.run(6, index="i2", missed=1.0)
    why = pipeline.why(PRECISION)
    assert why.change.began is None
    assert "are too few to tell a change from chance" in why.change.reason
    assert why.after.scored == why.after.n > 0


@pytest.mark.parametrize(("records", "reason"), [(0, "no request was scored"), (9, "are in one step of time")])
def test_nothing_to_compare_says_so(records, reason):
    pipeline = Pipeline(live=0)
    for record in itertools.islice(pipeline._traffic.minute(NOON), records):
        pipeline.scorer.observe(replace(record, ts=60.0 * NOON))
    pipeline.minute += 1
    why = pipeline.why(PRECISION)
    assert reason in why.change.reason
    assert why.after.value is None or records


def test_records_without_a_time_are_in_no_step():
    pipeline = Pipeline()
    pipeline.run(30, change=lambda record, _: replace(record, ts=None))
    why = pipeline.why(PRECISION)
    assert (why.change.reason, why.after.records) == ("no request was scored", 0)


# --- when -------------------------------------------------------------------------------------------------------------


def test_of_several_episodes_the_last_is_told():
    """One that was over long ago is neither the change nor part of what was before it."""
    pipeline = Pipeline()
    pipeline.run(20)
    pipeline.run(20, **BAD)
    pipeline.run(40)
    began = pipeline.run(15, over=0.6)
    why = pipeline.why(OVER_REFUSAL)
    assert close(why, began)
    pipeline.run(20)
    pipeline.run(10, build="b9", missed=0.5)
    why = pipeline.why(PRECISION)
    assert why.before.value > 0.9
    assert named(why)[0] == "build b9 appeared"


def test_an_episode_that_is_over_ends_where_it_became_better():
    pipeline = Pipeline()
    pipeline.run(60)
    began = pipeline.run(15, **BAD)
    over = pipeline.run(30)
    why = pipeline.why(PRECISION)
    assert close(why, began)
    assert abs(why.end - over) <= 60
    assert why.after.value < 0.6


def test_what_was_over_before_an_alarm_had_proof_is_not_what_it_fires_for():
    pipeline = Pipeline()
    pipeline.run(60)
    began = pipeline.run(15, **BAD)
    over = pipeline.run(40)
    assert close(pipeline.why(PRECISION), began)
    assert close(pipeline.why(PRECISION, proven=began + 60), began)
    why = pipeline.why(PRECISION, proven=over + 1200)
    assert (why.change.began, why.change.reason[:6]) == (over + 1200, "nothin")
    assert why.before.value > 0.9
    assert why.after.value > 0.9


def test_an_episode_that_is_over_is_found_where_little_data_came_before_it():
    """What is good since outweighs what was good before: over the whole time nothing became worse."""
    pipeline = Pipeline()
    pipeline.run(2)
    began = pipeline.run(8, missed=1.0)
    over = pipeline.run(15)
    why = pipeline.why(PRECISION)
    assert close(why, began)
    assert abs(why.end - over) <= 60
    assert why.before.value > 0.9
    assert why.after.value < 0.1


def test_every_failing_request_of_the_time_range_is_accounted_for():
    """The fault that is told last may be the smaller one; whoever mends it alone must know of the other."""
    pipeline = Pipeline()
    pipeline.run(60)
    broke = pipeline.run(10, **BAD)
    mended = pipeline.run(15)
    invents = pipeline.run(5, wrong=0.7)
    why = pipeline.why(PRECISION)
    assert close(why, invents)
    retrieval, answers = why.stretches
    assert abs(retrieval.begin - broke) <= 60 >= abs(retrieval.end - mended)
    assert abs(answers.begin - invents) <= 60
    assert (retrieval.trait, answers.trait) == ("retrieved no gold document", "said something else than the gold claim")
    assert answers.failed == why.after.failed < retrieval.failed
    rest = why.failed - retrieval.failed - answers.failed
    assert 0 <= rest < 0.1 * 20 * 75  # the usual failures of good minutes
    line = next(line for line in why_text(why).splitlines() if line.startswith("all failing"))
    assert f"{why.failed}: {retrieval.failed} from " in line
    assert line.endswith(f"; {rest} at other times")


@pytest.mark.slow
def test_an_alarm_that_fires_for_hours_is_explained_by_what_was_before_it():
    """Old rows are five minutes long, and so is the answer."""
    pipeline = Pipeline(live=2, probes=10)
    pipeline.run(180)
    began = pipeline.run(7 * 60, index="i2", **BAD)
    late = pipeline.why(PRECISION)
    assert late.change.began is None, "two hours back there is nothing but the fault"
    why = pipeline.why(PRECISION, firing=began + 600)
    assert close(why, began, 300)
    assert why.begin == began + 600 - 7200
    assert named(why)[0] == "index_hash i2 appeared"
    assert pipeline.why(PRECISION, since=8 * 3600).change.began == why.change.began


@pytest.mark.slow
def test_recorded_streams_break_where_they_were_broken():
    """Real answers of a real system, faults of every kind: the moment is right to two minutes."""
    stream = Stream("standard", 3, 9.5, probe_share=0.2)
    scorer = Scorer(stream.gold, state=State(retention=1e6, is_live=True))
    records = list(stream.records())
    shown = {
        "index_drift": (PRECISION, "retrieved no gold document"),
        "refusal_wave": (OVER_REFUSAL, "refused what can be answered"),
        "citation_break": (
            Gate("hits", "citation_hit_rate", 0.75, "at_least", source="probe"),
            "cited what was not retrieved",
        ),
        "latency": (P95, ""),
        "hallucination": (
            Gate("under", "under_refusal_rate", 0.05, "at_most", source="probe"),
            "answered what cannot be answered",
        ),
    }
    seen = set()
    for incident in stream.incidents:
        now = incident.start + 1200
        while records[scorer.scored].ts < now:
            scorer.observe(records[scorer.scored])
        if incident.kind in shown:
            gate, mechanism = shown[incident.kind]
            snapshot = scorer.snapshot(now=now, windows={"1h": 3600}, gated=[gate.metric])
            (outcome,) = evaluate(snapshot, Policy((gate,)))
            why = explain(scorer.state, scorer.table, outcome, now=now)
            assert close(why, incident.start, 120), incident
            assert why.mechanism == mechanism
            assert [one.name for one in why.suspects] == (["generate"] if incident.kind == "latency" else [])
            seen.add(incident.kind)
    assert seen == set(shown)


# --- the numbers are those the monitor shows --------------------------------------------------------------------------

GATES = st.sampled_from(
    [
        Gate("g", metric, threshold, direction, pipeline=pipeline, source=source, where=where)
        for metric, threshold, direction in (
            ("answer_precision", 0.8, "at_least"),
            ("over_refusal_rate", 0.1, "at_most"),
            ("recall@3", 0.5, "at_least"),
            ("groundedness", 0.5, "at_least"),
            ("compliance", 0.9, "at_least"),
            ("error_rate", 0.1, "at_most"),
        )
        for pipeline in ("default", "support")
        for source in ("live", "probe", "match", "replay")
        for where in ("", "lang=de")
    ]
)


@pytest.mark.slow
@given(worlds(60), GATES, st.integers(0, 7200))
def test_totals_add_up_and_values_are_those_of_the_snapshot(world, gate, cut):
    """Whatever was recorded: a side holds the records of its time, and says of them what the monitor would."""
    gold, records = world
    begin = (records and max((record.ts or 0.0) for record in records)) or 0.0
    now = begin + cut % 600
    rules = ReductionRules(slices={"lang": ["de"]})
    scorer, scored = Scorer(gold, rules=rules), Scorer(gold, rules=rules)
    for record in records:
        scorer.observe(record)
    (outcome,) = evaluate(scorer.snapshot(gated=[gate.metric]), Policy((gate,)), whole_run=True)
    why = explain(scorer.state, scorer.table, outcome, now=now)
    for record in records:
        if record.ts is not None and why.begin <= record.ts < why.end:
            scored.observe(record)
    side = why.after
    assert side.records == side.scored + sum(side.unassessed.values()) + side.outside
    assert side.passed is None or side.passed + side.failed == side.scored
    for split in why.splits:
        whole = sum(part.records_before + part.records_after for part in split.parts)
        assert whole <= side.records + (why.before.records if why.before else 0)
        assert whole == side.records or split.dimension in ("lang", "topic", "build and index_hash")
    found = scored.snapshot().find(gate.pipeline, why.gate.source, gold=why.gate.gold, where=gate.where)
    if why.before is None and found is not None and found.records == side.records:
        stat = found.metrics[gate.metric]
        assert (side.scored, side.value, side.unassessed) == (stat.n, stat.value, dict(stat.unassessed))


@pytest.mark.slow
@pytest.mark.parametrize("gate", [PRECISION, OVER_REFUSAL, COVERAGE, ERRORS], ids=lambda gate: gate.name)
def test_before_and_after_are_what_a_monitor_shows_of_those_times_alone(gate):
    pipeline = Pipeline()
    pipeline.run(70)
    pipeline.run(20, index="i2", missed=0.5, over=0.3, error=0.2, empty=0.4)
    why = pipeline.why(gate)
    for side, begin, end in ((why.before, why.begin, why.change.began), (why.after, why.change.began, why.end)):
        alone = Scorer(pipeline.scorer.gold)
        for record in pipeline.records:
            if begin <= record.ts < end:
                alone.observe(record)
        found = alone.snapshot().find("default", gate.source, gold="gold" if gate.source == "probe" else "")
        estimate = found.metrics[gate.metric].estimate
        assert (side.value, side.lower, side.upper, side.n) == (
            estimate.value,
            estimate.lower,
            estimate.upper,
            estimate.n,
        )
        assert side.records == found.records
    split = {one.dimension: one for one in why.splits}
    for part in split["index_hash"].parts:
        whole = sum(record.index_hash == part.name and record.source == gate.source for record in pipeline.records)
        assert part.records_before + part.records_after == whole


def test_user_traffic_is_weighted_as_the_gate_weights_it():
    """Errors are all kept, other calls one in four: the shares are those of all calls."""
    pipeline = Pipeline(live=0, probes=0)
    rng, calls, kept = random.Random(4), {"error": 0, "rest": 0}, {"error": 0, "rest": 0}
    for second in range(7200):
        ts = 60.0 * NOON + second
        stratum = "error" if rng.random() < (0.02 if second < 5400 else 0.2) else "rest"
        audit = rng.random() < 0.25
        calls[stratum] += 1
        if audit or stratum == "error":
            kept[stratum] += 1
            sampling = Sampling(audit=audit, stratum=stratum, p_audit=0.25, p=1.0 if stratum == "error" else 0.25)
            error = "TimeoutError" if stratum == "error" else None
            answer = {} if error else said("that is right", ["d1"])
            pipeline.scorer.observe(Record(ts=ts, source="live", sampling=sampling, error=error, **answer))
        if second % 10 == 9:
            for name, n in calls.items():
                line = Totals(ts=ts, instance="p", started=60.0 * NOON, pipeline="default", source="live", stratum=name)
                pipeline.scorer.state.calls.see(replace(line, calls=n, kept=kept[name]))
    pipeline.minute = NOON + 120
    why = pipeline.why(ERRORS)
    assert close(why, 60.0 * NOON + 5400)
    assert (why.before.of, why.after.of) == ("all calls", "all calls")
    assert why.after.per_minute == pytest.approx(60, rel=0.02)
    span = int(why.end - why.change.began)
    state, table = pipeline.scorer.state, pipeline.scorer.table
    (shown,) = (
        s for s in take_snapshot(state, table, now=why.end - 1, windows={"w": span}).series if s.source == "live"
    )
    estimate = shown.estimate("error_rate")
    assert (why.after.value, why.after.lower, why.after.n) == (estimate.value, estimate.lower, estimate.n)
    assert {split.dimension for split in why.splits} == {"stratum"}
    assert why.suspects == (), "an error is what became of a call, not why"


def test_questions_like_these_have_an_interval_over_gold_items():
    pipeline = Pipeline()
    pipeline.run(30)
    pipeline.run(10, **BAD)
    gate = Gate("g", "answer_precision", 0.8, "at_least", source="probe", estimand="questions_like_these")
    sides = [pipeline.why(one) for one in (PRECISION, gate)]
    assert [why.after.of for why in sides] == ["requests", "gold items"]
    assert sides[0].after.value == sides[1].after.value


def test_an_explanation_survives_json():
    pipeline = Pipeline()
    pipeline.run(30)
    pipeline.run(10, index="i2", **BAD)
    for gate in (PRECISION, P95, ONE_INDEX):
        why = pipeline.why(gate)
        assert convert(json.loads(json.dumps(to_builtins(why), allow_nan=False)), Why) == why


# --- how sure ---------------------------------------------------------------------------------------------------------


def steps(scores):
    return [
        Point(BUCKET_SECONDS * i, BUCKET_SECONDS * (i + 1), ScoreSums(1, score * MICRO))
        for i, score in enumerate(scores)
    ]


@given(st.lists(st.integers(0, 1), min_size=2, max_size=60))
def test_the_cut_is_the_one_of_the_largest_likelihood(scores):
    def log_likelihood(part):
        good, p = sum(part), sum(part) / len(part)
        return float(scipy_stats.binom.logpmf(good, len(part), p) - math.log(math.comb(len(part), good)))

    falls = {
        i: log_likelihood(scores[:i]) + log_likelihood(scores[i:]) - log_likelihood(scores)
        for i in range(1, len(scores))
        if sum(scores[:i]) * (len(scores) - i) > sum(scores[i:]) * i
    }
    found = locate(steps(scores))
    if found.began is not None:
        assert falls[int(found.began) // BUCKET_SECONDS] == pytest.approx(max(falls.values()))
        assert found.evidence == pytest.approx(max(falls.values()))
    elif falls and p_bound(max(falls.values()), len(scores) - 1) < ALPHA * 0.99:
        pytest.fail("a clear fall was not found")


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8, 0.95])
def test_the_bound_holds_exactly_where_every_sequence_can_be_counted(p):
    """The chance that some cut of twelve requests shows so much evidence is never larger than is said."""
    n, best = 12, {}
    for scores in itertools.product((0, 1), repeat=n):
        cuts = [(ScoreSums(i, sum(scores[:i]) * MICRO), ScoreSums(n - i, sum(scores[i:]) * MICRO)) for i in range(1, n)]
        evidence = max(gain(a, b) if a.mean > b.mean else 0.0 for a, b in cuts)
        best[evidence] = best.get(evidence, 0.0) + p ** sum(scores) * (1 - p) ** (n - sum(scores))
    tail = 0.0
    for evidence in sorted(best, reverse=True):
        tail += best[evidence]
        assert tail <= p_bound(evidence, n - 1) + 1e-12


@pytest.mark.slow
def test_where_nothing_changes_a_change_is_seen_no_oftener_than_is_said():
    rng = random.Random(11)
    seen = sum(locate(steps([rng.random() < 0.85 for _ in range(150)])).began is not None for _ in range(1000))
    assert seen <= 1000 * ALPHA


@pytest.mark.slow
def test_the_bounds_of_the_moment_hold_it_nineteen_times_in_twenty():
    rng = random.Random(12)
    found = [locate(steps([rng.random() < (0.9 if i < 120 else 0.55) for i in range(240)])) for _ in range(400)]
    clear = [change for change in found if change.began is not None]
    assert len(clear) > 350
    held = sum(change.earliest <= 120 * BUCKET_SECONDS <= change.latest for change in clear)
    assert held >= 0.95 * len(clear)
