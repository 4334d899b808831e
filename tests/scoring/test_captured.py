"""What was captured is counted by addition: order, shards and storage change nothing; it is in no digest."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core import shapes
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record, Sampling, TextFacts
from ragmon.ingest.gold import GoldSet
from ragmon.scoring import captured as bits
from ragmon.scoring.buckets import State
from ragmon.scoring.captured import (
    EXAMPLES,
    MINUTE,
    MINUTES,
    REPEATS,
    CapturedBucket,
    CapturedSeries,
    CapturedTable,
    SessionCounts,
)
from ragmon.scoring.scorer import Scorer
from tests.support.examples import cases
from tests.support.random_records import NOON, worlds
from tests.support.saved import saved

law = settings(max_examples=cases(100), deadline=None, derandomize=True)
chances = st.integers(0, 2**32 - 1).map(Random)
GOLD = GoldSet("gold", (GoldItem("a", "Why?", answerable=True, citations=["heron#1"]),))


def scored(gold, records):
    scorer = Scorer(gold)
    for record in records:
        scorer.observe(record)
    return scorer


def counts(table):
    """Everything a table holds; it shares nothing with it."""
    return dict(saved(table))


def whole(scorer, pipeline="default", source="replay"):
    return scorer.state.captured.at(pipeline, source).whole()


def only(*records, gold=None):
    """The bits of the one kind of record among these."""
    (mask,) = whole(scored(gold, records)).masks
    return mask


@law
@given(worlds(spread=3 * MINUTES * MINUTE), chances)
def test_any_shards_in_any_order_are_one_table(world, chance):
    gold, records = world
    merged = scored(gold, [])
    mixed = chance.sample(records, len(records))
    cut = chance.randint(0, len(mixed))
    for part in (mixed[:cut], mixed[cut:]):
        merged.state.captured.merge(scored(gold, part).state.captured)
    assert counts(merged.state.captured) == counts(scored(gold, records).state.captured)


@law
@given(worlds(spread=MINUTES * MINUTE), worlds())
def test_a_merged_table_shares_nothing_with_its_parts(world, more):
    gold, records = world
    part = scored(gold, records)
    before = counts(part.state.captured)
    merged = scored(gold, [])
    merged.state.merge(part.state)
    merged.forget_streams()
    for record in more[1]:
        merged.observe(record)
    assert counts(part.state.captured) == before


@law
@given(worlds(spread=3 * MINUTES * MINUTE))
def test_a_saved_table_comes_back_and_goes_on(world):
    gold, records = world
    half = len(records) // 2
    first = scored(gold, records[:half])
    data = msgspec.msgpack.encode(first.state)
    second = scored(gold, [])
    second.restore(msgspec.msgpack.decode(data, type=State))
    assert msgspec.msgpack.encode(second.state) == data
    for record in records[half:]:
        second.observe(record)
    never_saved = scored(gold, records)
    mine, theirs = ({k: (s.whole(), len(s.minutes)) for k, s in t.state.captured} for t in (second, never_saved))
    assert mine == theirs


@law
@given(worlds())
def test_every_scored_record_is_counted_once(world):
    gold, records = world
    scorer = scored(gold, records)
    assert sum(series.whole().records for _, series in scorer.state.captured) == scorer.scored


def test_no_id_stays_once_somebody_is_forgotten():
    scorer = scored(GOLD, [Record(qid="a", ts=ts, retrieved_ids=["a-secret-id"]) for ts in (NOON, None)])
    table = scorer.state.captured
    assert msgspec.msgpack.encode(table).count(b"a-secret-id") == 2
    assert (table.forget_examples(), table.forget_examples()) == (True, False)
    assert b"a-secret-id" not in msgspec.msgpack.encode(table)
    assert whole(scorer).ids == 2


def test_old_minutes_are_summed_and_the_newest_are_kept_apart():
    times = [NOON + minute * MINUTE for minute in range(MINUTES + 5)]
    scorer = scored(None, [Record(ts=ts) for ts in (*times, NOON)])
    series = scorer.state.captured.at("default", "replay")
    assert (len(series.minutes), min(series.minutes)) == (MINUTES, int(times[5]) // MINUTE)
    assert (series.past.records, series.whole().records) == (6, MINUTES + 6)


def test_the_latest_minutes_are_those_that_are_enough():
    records = [Record(ts=NOON + minute * MINUTE) for minute in range(10) for _ in range(8)]
    total, since = (
        scored(None, records).state.captured.at("default", "replay").latest(20, lambda bucket: bucket.records)
    )
    assert (total.records, since) == (24, NOON + 7 * MINUTE)


def test_examples_are_few_and_the_same_in_any_order_and_no_texts():
    names = [f"{number:03}{rest}" for number in range(50) for rest in ("", "-" + "x" * 500, " day tickets")]
    records = [Record(qid="a", retrieved_ids=[name]) for name in names]
    kept = [whole(scored(GOLD, order)).examples for order in (records, records[::-1])]
    assert kept[0] == kept[1]
    assert kept[0] == ["000", "001", "002"][:EXAMPLES]


@pytest.mark.parametrize(
    ("record", "lacks"),
    [
        (Record(q="Why?"), False),
        (Record(qid="a"), False),
        (Record(facts=TextFacts(question_hash="0" * 64)), False),
        (Record(), True),
    ],
)
def test_a_question_is_there_as_text_as_an_id_or_as_a_hash(record, lacks):
    assert bool(only(record) & bits.NO_QUESTION) is lacks


def test_text_that_a_setting_keeps_back_is_withheld_and_not_missing():
    facts = TextFacts(answered=True, question_chars=9, claim_chars=3, contexts=2)
    mask = only(Record(facts=facts, answer_json=Answer(citations=[])))
    withheld = bits.WITHHELD_QUESTION | bits.WITHHELD_ANSWER | bits.WITHHELD_CONTEXTS
    assert mask & withheld == withheld


def test_a_span_without_an_answer_lacks_it_and_a_call_kept_for_its_outcome_does_not():
    assert not only(Record(partial=True)) & bits.UNFINISHED
    assert not only(Record(partial=True, sampling=Sampling())) & bits.UNFINISHED  # a trace at a server lacks its answer
    assert only(Record(partial=True, sampling=Sampling(audit=False))) & bits.UNFINISHED
    assert only(Record(partial=True, ended="abandoned")) & bits.UNFINISHED
    assert not only(Record(partial=True, ended="cut")) & bits.UNFINISHED
    assert not only(Record(ended="cancelled", facts=TextFacts())) & bits.UNFINISHED  # its answer is known


def test_other_ids_of_documents_are_compared_where_this_process_has_read_them():
    shapes.document_hints.note("e1f7", {"id": "e1f7", "page": 7}, {"chunk_id": "heron#1", "title": "Grey herons"})
    bucket = whole(scored(GOLD, [Record(qid="a", retrieved_ids=["e1f7", "unread"])] * 3))
    assert bucket.candidates == {"metadata.chunk_id": (3, 3), "page": (3, 0)}
    assert shapes.document_hints.room == shapes.ROOM  # more documents are wanted: one was not read


def test_hints_are_bounded_and_only_what_looks_like_an_id_is_one():
    hints = shapes.DocumentHints()
    for number in range(shapes.KEPT + 10):
        hints.note(str(number), {}, {"chunk_id": f"c{number}"})
    assert hints.other_ids("9") is None
    assert hints.other_ids("10") == {"metadata.chunk_id": "c10"}
    odd = {"a.b": "x", "k" * 99: "x", "flag": True, "long": "x" * 999, "text": "two words", "": "x", 7: "x", "ok": 7}
    assert dict(shapes.other_ids("d", {"text": "t", "content": "c"}, odd)) == {"metadata.ok": "7"}


def test_a_removed_pipeline_is_counted_no_more():
    table = CapturedTable({("support", "live"): CapturedSeries(past=CapturedBucket({1: 2}))})
    table.give_up("support")
    assert list(table) == []


@law
@given(chances)
def test_answers_that_come_often_are_counted_alike_in_any_order_and_parts(chance):
    """Beyond the bound as well: those that are kept are kept from their first answer on."""
    claims = [f"answer {number % (2 * REPEATS) if number % 3 else 7}" for number in range(1500)]
    records = [uncited(claim, f"{place:032x}") for place, claim in enumerate(claims)]
    expected = whole_repeats(records)
    assert len(expected.answers) <= REPEATS
    mixed, cut = chance.sample(records, len(records)), chance.randint(0, len(records))
    merged = whole_repeats(mixed[:cut])
    merged.merge(whole_repeats(mixed[cut:]))
    assert saved(merged) == saved(expected)
    exact = {answer.trace: answer.n for answer in expected.answers.values()}
    assert exact == {f"{claims.index(claims[int(trace, 16)]):032x}": n for trace, n in exact.items()}
    assert all(n == claims.count(claims[int(trace, 16)]) for trace, n in exact.items())


def uncited(claim, trace):
    return Record(trace_id=trace, answer_json=Answer(claim))


def whole_repeats(records):
    return scored(None, records).state.captured.at("default", "replay").repeats


def test_examples_are_forgotten_with_whoever_is():
    scorer = scored(None, [uncited("Ask Rosa.", "ab" * 16)] * 50)
    assert scorer.state.captured.forget_examples()
    assert not scorer.state.captured.forget_examples()
    assert [
        (answer.n, answer.trace) for answer in scorer.state.captured.at("default", "replay").repeats.frequent()
    ] == [(50, "")]


@pytest.mark.parametrize("size", [1, 3])
def test_sessions_are_counted_alike_in_any_order_and_in_any_parts(size):
    """Of many sessions a sample is counted, each exactly."""
    names = [f"session {number // size}" for number in range(6000)]
    whole, parts = SessionCounts(), [SessionCounts() for _ in range(3)]
    for name in names:
        whole.add(name)
    shuffled = Random(1).sample(names, len(names))
    for number, name in enumerate(shuffled):
        parts[number % 3].add(name)
    joined = SessionCounts()
    for part in Random(2).sample(parts, 3):
        joined.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=SessionCounts))
    assert joined == whole
    assert 64 <= len(whole.counts) <= 256
    assert set(whole.counts.values()) == {size}
    assert whole.is_never_repeated is (size == 1)
