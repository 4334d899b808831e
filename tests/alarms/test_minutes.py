"""One minute of records: which requests make one observation, where they are counted, when the minute is over."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings

from ragmon.alarms.observations import observe
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, Sampling, TextFacts
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.minutes import SHAPES, CountedRecord, CountedRequest, MinuteBatches, cluster_of
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.stats.histograms import buckets
from tests.support.examples import cases
from tests.support.random_records import NOON, worlds
from tests.support.saved import saved

EVER = float("inf")
ITEM = GoldItem("a", "Is it?", answerable=True, claim_substrings=["it is"], citations=["d1"], tags={"lang": "de"})
GOLD = GoldSet("gold", (ITEM,))
VERSION = GOLD.short_version


def request(at=0.0, source="live", **fields):
    """A request so many seconds after noon."""
    return Record(ts=NOON + at, source=source, retrieved_ids=["d1"], answer_json=Answer("it is", ["d1"]), **fields)


def collecting(slices=(), gold=GOLD, **options):
    """A scorer, and the steps it keeps."""
    steps = MinuteBatches(slices, **options)
    return Scorer(gold, observers=[steps], rules=ReductionRules(slices={"lang": ["de", "en"]})), steps


def collected(*records, **options):
    """The steps of some records, all of them closed."""
    scorer, steps = collecting(**options)
    for record in records:
        scorer.observe(record)
    return [step for _, step in steps.close(EVER)]


def requests(step, place):
    """How many requests a step counted in a place."""
    return sum(n for held in step.facts.get(place, {}).values() for n in held.values())


# --- minutes ----------------------------------------------------------------------------------------------------------


def test_minutes_are_those_of_the_clock_wherever_the_first_record_stands():
    steps = collected(request(59.9), request(60.0), request(119.9), request(120.0))
    assert [(step.minute * 60 - NOON, requests(step, CountedRecord("live"))) for step in steps] == [
        (0, 1),
        (60, 2),
        (120, 1),
    ]


def test_minutes_are_handed_out_once_in_order_and_pipelines_by_name():
    scorer, steps = collecting()
    for at, pipeline in ((130, "a"), (10, "b"), (70, "b"), (5, "a"), (65, None)):
        scorer.observe(request(at, pipeline=pipeline))
    assert steps.close(NOON) == []
    found = [(step.minute * 60 - NOON, pipeline) for pipeline, step in steps.close(NOON + 120)]
    assert found == [(0, "a"), (0, "b"), (60, "b"), (60, "default")]
    assert steps.close(NOON + 120) == []
    assert [pipeline for pipeline, _ in steps.close(EVER)] == ["a"]


@pytest.mark.parametrize(("now", "closed"), [(59.999, 0), (60.0, 1), (119.0, 1), (120.0, 2)])
def test_a_minute_is_over_when_the_next_one_begins(now, closed):
    scorer, steps = collecting()
    scorer.observe(request(0))
    scorer.observe(request(60))
    assert len(steps.close(NOON + now)) == closed


def test_a_record_that_comes_after_its_minute_counts_in_the_next_one_that_is_open():
    scorer, steps = collecting()
    scorer.observe(request(125))
    steps.close(NOON + 180)
    for at in (10, 130, 190):
        scorer.observe(request(at))
    (_, step), *others = steps.close(EVER)
    assert (step.minute * 60 - NOON, requests(step, CountedRecord("live")), others) == (180, 3, [])
    assert steps.state.late == 2


def test_a_record_before_a_minute_that_had_none_is_not_late():
    """Nothing was judged there yet."""
    scorer, steps = collecting()
    scorer.observe(request(0))
    steps.close(NOON + 600)
    scorer.observe(request(300))
    ((_, step),) = steps.close(NOON + 600)
    assert (step.minute * 60 - NOON, steps.state.late) == (300, 0)


def test_a_late_question_of_the_gold_set_is_one_late_record():
    """It is counted in two places, as user traffic and as a gold draw; it came once."""
    scorer, steps = collecting()
    scorer.observe(request(0))
    steps.close(EVER)
    scorer.observe(request(0, q="Is it?"))
    assert steps.state.late == 1


# --- clusters ---------------------------------------------------------------------------------------------------------

TOLD = TextFacts(question_hash="5e" * 32)
EVERYTHING = {"session": "s", "q": "Where?", "facts": TOLD, "trace_id": "0" * 32}
ALIKE = {  # how two requests that share nothing else become one observation
    "the gold item": ({**EVERYTHING, "item": ITEM}, {"session": "other", "q": "else", "item": ITEM}),
    "the session": (EVERYTHING, {"session": "s", "q": "Something else?"}),
    "the question as it is normalised": ({**EVERYTHING, "session": None}, {"q": "  WHERE ? ", "trace_id": "1" * 32}),
    "the hash of a question whose text was left behind": (
        {"facts": TOLD, "trace_id": "0" * 32},
        {"facts": TextFacts(question_hash="5e" * 32), "trace_id": "1" * 32},
    ),
    "a session, although it is empty, is none": ({"session": "", "q": "Where?"}, {"q": "Where?"}),
}
UNLIKE = {
    "two sessions that ask the same": ({**EVERYTHING}, {**EVERYTHING, "session": "t"}),
    "a session called like a question": ({"session": "where"}, {"q": "where"}),
    "two questions": ({"q": "Where?"}, {"q": "When?"}),
    "two calls nobody knows anything of": ({"trace_id": "0" * 32}, {"trace_id": "1" * 32}),
}


def cluster(item=None, by=("session", "question"), **fields):
    return cluster_of(Record(**fields), item, by)


@pytest.mark.parametrize("why", ALIKE)
def test_what_shares_its_fate_is_one_observation(why):
    one, other = ALIKE[why]
    assert cluster(**one) == cluster(**other)


@pytest.mark.parametrize("why", UNLIKE)
def test_what_does_not_is_several(why):
    one, other = UNLIKE[why]
    assert cluster(**one) != cluster(**other)


@pytest.mark.parametrize(
    ("by", "together"),
    [
        (("session", "question"), {"session": "s"}),
        (("session",), {"session": "s"}),
        (("question",), {"q": "Where?"}),
        ((), {"trace_id": "0" * 32}),
    ],
)
def test_a_pipeline_chooses_what_makes_a_cluster(by, together):
    assert cluster(by=by, **EVERYTHING) == cluster(by=by, **together)


def test_a_question_that_redaction_changed_is_known_by_its_hash():
    """Its text is for people to read: two questions may look alike once the names are gone."""
    facts = [TextFacts(redacted=["q"], question_hash=digits * 32) for digits in ("5e", "6f")]
    assert cluster(q="Who is [NAME]?", facts=facts[0]) != cluster(q="Who is [NAME]?", facts=facts[1])


def test_a_hundred_requests_of_a_session_are_one_observation_of_their_mean():
    right, wrong = {"session": "s"}, {"session": "s", "error": "timeout"}
    (step,) = collected(*(request(**right) for _ in range(75)), *(request(**wrong) for _ in range(25)), request())
    assert sorted(sorted(held.values()) for held in step.facts[CountedRecord("live")].values()) == [[1], [25, 75]]
    assert observe([(100, 75_000_000), (1, 1_000_000)]) == (1, 0, (0.75,))


def test_requests_of_one_cluster_keep_their_latencies_together():
    slow, quick = Latency(total=900.0), Latency(total=10.0)
    (step,) = collected(request(session="s", latency_ms=slow), request(session="s", latency_ms=quick), request())
    assert list(step.latency["live"].values()) == [[900.0, 10.0]]


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_live_question_of_the_gold_set_is_live_without_gold_and_a_match_with_it():
    """Once each; its latency, lengths and index belong to user traffic alone."""
    (step,) = collected(request(q="is it", latency_ms=Latency(total=5.0), index_hash="i1", build="b1"))
    assert {place: requests(step, place) for place in step.facts} == {
        CountedRecord("live"): 1,
        CountedRecord("match", "gold", VERSION): 1,
    }
    assert list(step.latency) == ["live"]
    assert step.shape("live", "latency") == buckets([5.0])
    assert not step.shape("match", "latency")
    assert step.indexes == {("b1", "i1"): 1}


def test_probes_are_with_gold_alone():
    (step,) = collected(request(source="probe", qid="a", latency_ms=Latency(total=5.0)))
    assert list(step.facts) == [CountedRecord("probe", "gold", VERSION)]
    assert list(step.latency) == ["probe"]


def test_slices_are_kept_where_an_alarm_guards_one():
    tagged = [request(tags={"lang": lang}) for lang in ("de", "en", "fr")]
    probe = request(source="probe", qid="a")
    (step,) = collected(*tagged, probe, slices={"lang=de", "lang=__other__"})
    assert {place: requests(step, place) for place in step.facts if place.where} == {
        CountedRecord("live", where="lang=de"): 1,
        CountedRecord("live", where="lang=__other__"): 1,
        CountedRecord("probe", "gold", VERSION, "lang=de"): 1,
    }
    assert requests(step, CountedRecord("live")) == 3, "slices are beside the whole"
    assert not any(place.where for place in collected(*tagged)[0].facts)


def test_a_call_kept_for_its_outcome_is_in_no_alarm():
    """It says nothing about how common the outcome is."""
    kept = Sampling(audit=False, stratum="error", p_audit=0.05)
    assert collected(request(error="timeout", sampling=kept, latency_ms=Latency(total=9.0), index_hash="i2")) == []


def test_a_record_without_a_time_is_in_no_minute_of_a_file():
    assert collected(Record(source="live", answer_json=Answer("it is", ["d1"]))) == []


def test_live_records_belong_to_the_minute_they_came_in():
    """However old they are: a minute that was judged cannot be judged again."""
    steps = MinuteBatches()
    scorer = Scorer(GOLD, observers=[steps], clock=lambda: NOON + 61)
    for at in (-7200, 0, 120):
        assert scorer.observe(request(at))
    assert [step.minute * 60 - NOON for _, step in steps.close(EVER)] == [60]


LENGTHS = {
    "the text": (Answer("y" * 70, []), {"q": "x" * 40}),
    "what was told of a text that was left behind": (
        None,
        {"facts": TextFacts(answered=True, question_chars=40, claim_chars=70)},
    ),
    "what was told of a text that redaction changed": (
        Answer("[NAME]", []),
        {"q": "[NAME]", "facts": TextFacts(redacted=["q", "claim"], question_chars=40, claim_chars=70)},
    ),
}


@pytest.mark.parametrize("of", LENGTHS)
def test_lengths_are_those_of(of):
    answer, fields = LENGTHS[of]
    (step,) = collected(Record(ts=NOON, source="live", scores=[0.5, 0.9], answer_json=answer, **fields))
    expected = {"question_length": [40.0], "answer_length": [70.0], "top_score": [0.5], "latency": []}
    assert {name: step.shape("live", name) for name in SHAPES} == {n: buckets(v) for n, v in expected.items()}


def test_a_busy_minute_keeps_and_saves_counts_and_not_each_value():
    """Twenty thousand values of a property are some hundred log buckets, whenever they are counted."""
    steps = MinuteBatches()
    values = [1.001**n for n in range(20_000)]
    for n, value in enumerate(values):
        record = Record(ts=NOON, source="live", session="s", latency_ms=Latency(total=value))
        steps.collect(CountedRequest("p", NOON, "live", record, None, (0, 0, 0, (), (), (), ())))
        if n == 7_777:
            steps.state = saved(steps.state)
    ((_, step),) = steps.close(NOON + 120)
    assert step.shape("live", "latency") == buckets(values)
    assert len(msgspec.msgpack.encode(step.shapes)) < 20_000


@settings(max_examples=cases(150), deadline=None)
@given(worlds())
def test_every_audit_member_is_in_one_minute_with_the_facts_that_are_counted(world):
    """What alarms see and what windows show are the same requests."""
    gold, records = world
    scorer, steps = collecting(gold=gold)
    for record in records:
        if record.ts is not None:
            scorer.observe(record)
    seen = Counter()
    for pipeline, step in steps.close(EVER):
        for place, clusters in step.facts.items():
            for held in clusters.values():
                seen.update({(pipeline, place.source, place.gold_version, key): n for key, n in held.items()})
    counted = Counter()
    for key, series in scorer.state.series.items():
        if key.audit and not key.slice:
            for row in series.buckets():
                counted.update({(key.pipeline, key.source, key.gold_version, k): n for k, n in row.cells.items()})
    assert seen == counted
