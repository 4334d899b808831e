"""The laws of the only accumulator: order, shards, folding and storage change nothing, windows are plain sums."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS, FRESH, HOUR, TOO_OLD
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import build
from ragmon.scoring.buckets import CELLS, State
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.examples import cases
from tests.support.random_records import NOON, worlds
from tests.support.saved import saved

DAY = 24 * HOUR
SPREADS = (60, 900, 2 * HOUR, 2 * DAY)
RULES = ReductionRules(slices={"lang": ["de"]})
law = settings(max_examples=cases(200), deadline=None, derandomize=True)
caps = st.sampled_from((0, 1, 3, CELLS))
"""How many distinct facts a row keeps."""
chances = st.integers(0, 2**32 - 1).map(Random)


def any_spread(most=25):
    """Gold and records within a minute, a quarter of an hour, two hours, or two days."""
    return st.sampled_from(SPREADS).flatmap(lambda spread: worlds(most, spread))


def scored(gold, records, cells=CELLS, **state):
    scorer = Scorer(gold, metrics=ScoreTable(build(), cells=cells), rules=RULES, state=State(**state))
    for record in records:
        scorer.observe(record)
    return scorer


def read(scorer, **asked):
    """Metrics, latencies and number of records by series."""
    snapshot = scorer.snapshot(windows={"window": asked.get("span")}, now=asked.get("now"))
    return {
        (s.pipeline, s.source, s.gold, s.gold_version, s.slice): (dict(s.metrics), dict(s.latency), s.records)
        for s in snapshot.series
    }


def shuffled(chance, records):
    return chance.sample(records, len(records))


def shards(chance, records):
    """The records in up to five parts, in any order, each part in any order."""
    cuts = sorted(chance.choices(range(len(records) + 1), k=4))
    mixed = shuffled(chance, records)
    return [mixed[start:end] for start, end in pairwise([0, *cuts, len(records)])]


@pytest.mark.slow
@law
@given(any_spread(), chances, caps)
def test_any_order_gives_the_same_digest_and_the_same_totals(world, chance, cells):
    gold, records = world
    one, other = scored(gold, records, cells), scored(gold, shuffled(chance, records), cells)
    assert one.state.digest() == other.state.digest()
    assert read(one) == read(other)


@pytest.mark.slow
@law
@given(any_spread(), chances, st.booleans(), caps)
def test_any_shards_merged_in_any_order_are_one_state(world, chance, is_live, cells):
    gold, records = world
    whole = scored(gold, records, cells, is_live=is_live)
    merged = scored(gold, [], cells, is_live=is_live)
    for part in shards(chance, records):
        merged.state.merge(scored(gold, part, cells, is_live=is_live).state)
    assert merged.state.digest() == whole.state.digest()
    assert merged.state.newest == whole.state.newest
    assert read(merged) == read(whole)


@pytest.mark.slow
@law
@given(any_spread(), any_spread())
def test_a_merged_state_shares_nothing_with_its_parts(world, more):
    gold, records = world
    part = scored(gold, records)
    before = part.state.digest()
    merged = scored(gold, [])
    merged.state.merge(part.state)
    for record in more[1]:
        merged.observe(record)
    assert part.state.digest() == before


around = st.integers(-128, 128)


def asked_at(scorer, span, since):
    """A time from five minutes before the newest record, as far as clocks may differ, to one span after it."""
    return max(0.0, scorer.state.newest + (300 if since < 0 else span) * since / 128)


def in_window(records, span, now):
    """By brute force: the records whose step lies in the window, whose end is the first edge after now."""
    step = BUCKET_SECONDS if span <= HOUR else FOLDED_SECONDS
    end = int(now) // step * step + step
    timed = (record for record in records if record.ts is not None)
    return [record for record in timed if end - span <= int(record.ts) // step * step < end]


@pytest.mark.slow
@law
@given(any_spread(), st.sampled_from((10, 60, 300, 900, HOUR)), around)
def test_a_window_up_to_an_hour_is_the_sum_of_its_ten_second_steps(world, span, since):
    gold, records = world
    scorer = scored(gold, records)
    now = asked_at(scorer, span, since)
    assert read(scorer, span=span, now=now) == read(scored(gold, in_window(records, span, now)))


@pytest.mark.slow
@settings(law, max_examples=cases(400))
@given(any_spread(), st.sampled_from((10, 300, HOUR)), around)
def test_the_gold_items_of_a_window_up_to_an_hour_are_those_of_its_records(world, span, since):
    gold, records = world
    scorer = scored(gold, records, is_live=True)
    now = asked_at(scorer, span, since)
    assert clusters(scorer, span, now) == clusters(scored(gold, in_window(records, span, now)))


def clusters(scorer, span=None, now=None):
    """Per series with gold how many items were traced, and what each added to a metric."""
    snapshot = scorer.snapshot(windows={"window": span}, now=now, gated=["hit_rate"])
    found = [s for s in snapshot.series if s.gold]
    return {(s.pipeline, s.source, s.slice): (s.traced, sorted(s.clusters["hit_rate"])) for s in found}


@pytest.mark.slow
@settings(law, max_examples=cases(600))
@given(any_spread(), st.sampled_from((HOUR + 300, 4000, 6 * HOUR, DAY)), around)
def test_a_longer_window_is_the_sum_of_its_five_minute_steps(world, span, since):
    """Asked at any time: long windows may end in the past."""
    gold, records = world
    scorer = scored(gold, records)
    now = max(0.0, scorer.state.newest + span * since / 128)
    assert read(scorer, span=span, now=now) == read(scored(gold, in_window(records, span, now)))


@pytest.mark.slow
@law
@given(any_spread(), chances)
def test_windows_of_merged_shards_are_the_windows_of_the_whole(world, chance):
    """A shard that saw only old records still holds them unfolded."""
    gold, records = world
    whole, merged = scored(gold, records), scored(gold, [])
    for part in shards(chance, records):
        merged.state.merge(scored(gold, part).state)
    for span in (300, HOUR, DAY):
        assert read(merged, span=span) == read(whole, span=span)


@pytest.mark.slow
@law
@given(any_spread(), st.lists(st.integers(0, 3 * DAY), max_size=4), caps, st.sampled_from((None, FRESH, 30 * HOUR)))
def test_folding_at_any_time_changes_neither_totals_nor_digest(world, times, cells, retention):
    """Nor does it when rows are past the retention, which a replay keeps."""
    gold, records = world
    scorer = scored(gold, records, cells)
    scorer.state.retention, scorer.state.is_live = retention, retention is not None
    before, digest = read(scorer), scorer.state.digest()
    for time in times:
        scorer.state.fold(min(NOON + time, scorer.state.newest))
    assert (read(scorer), scorer.state.digest()) == (before, digest)


@pytest.mark.slow
@law
@given(any_spread(), any_spread(), st.booleans())
def test_a_state_survives_being_saved_and_goes_on_as_if_nothing_had_happened(world, more, is_live):
    gold, records = world
    scorer = scored(gold, records, retention=DAY, is_live=is_live)
    restarted = Scorer(gold, rules=RULES, state=saved(scorer.state))
    assert restarted.state == scorer.state
    assert restarted.state.digest() == scorer.state.digest()
    for record in more[1]:
        assert restarted.observe(record) == scorer.observe(record)
    assert restarted.state.digest() == scorer.state.digest()
    assert read(restarted, span=HOUR) == read(scorer, span=HOUR)


@pytest.mark.slow
@law
@given(any_spread(), st.sampled_from((FRESH, 3 * HOUR, DAY)))
def test_past_the_retention_rows_leave_the_windows_but_never_the_totals(world, retention):
    gold, records = world
    scorer = Scorer(gold, rules=RULES, state=State(retention=retention, is_live=True))
    kept, newest = [], 0.0
    for record in records:
        newest = max(newest, record.ts or 0.0)
        too_old = record.ts is not None and record.ts < newest - retention
        assert scorer.observe(record) is not too_old
        kept += [] if too_old else [record]
    assert scorer.dropped.get(TOO_OLD, 0) == len(records) - len(kept)
    assert read(scorer) == read(scored(gold, kept))
    scorer.state.fold(newest)
    within = [
        r
        for r in kept
        if r.ts is not None and int(r.ts) // FOLDED_SECONDS * FOLDED_SECONDS + FOLDED_SECONDS >= newest - retention
    ]
    assert read(scorer, span=30 * DAY) == read(scored(gold, within))
    assert read(scorer) == read(scored(gold, kept))


def sums(scorer):
    """Per series and metric n, sum, squares and unassessed, which a full row must not lose."""
    return {series: (metrics, latency) for series, (metrics, latency, _) in read(scorer).items()}


@pytest.mark.slow
@law
@given(any_spread(), st.integers(0, 3))
def test_rows_with_too_many_distinct_facts_lose_no_sum(world, cells):
    """What comes after the cap is kept as sums of every metric: facts are lost, figures are not."""
    gold, records = world
    capped = scored(gold, records, cells=cells)
    whole = scored(gold, records)
    assert sums(capped) == sums(whole)
    rows = [row for series in capped.state.series.values() for row in series.buckets()]
    assert all(len(row.cells) <= cells for row in rows if row.spilled)
    merged = scored(gold, [])
    merged.state.merge(saved(capped.state))
    assert sums(merged) == sums(whole)


def test_records_without_a_time_are_in_the_totals_and_in_no_window():
    """Whatever the clock says: it may stand at the beginning of time."""
    scorer = scored((), [Record(answer_json=Answer("yes", []))])
    assert next(iter(read(scorer).values()))[2] == 1
    for now in (0.0, NOON):
        for span in (HOUR, DAY):
            assert read(scorer, span=span, now=now) == {}


@pytest.mark.parametrize(("span", "step"), [(HOUR, BUCKET_SECONDS), (DAY, FOLDED_SECONDS)])
def test_a_window_ends_at_the_first_edge_after_now(span, step):
    scorer = scored((), [Record(ts=NOON + step), Record(ts=NOON + step - 0.5), Record(ts=NOON - span + step)])
    count = [sum(s[2] for s in read(scorer, span=span, now=now).values()) for now in (NOON, NOON + step)]
    assert count == [2, 2], "the oldest step leaves when the newest enters"


@pytest.mark.parametrize(("span", "traced"), [(10, 1), (20, 2), (30, 3), (HOUR, 4)])
def test_the_gold_items_of_a_window_are_counted_by_its_edges(span, traced):
    """Four questions, one every ten seconds, and the moment after the last."""
    gold = GoldSet("gold", tuple(GoldItem(qid, "?", answerable=False) for qid in "abcd"))
    records = [Record(ts=NOON + 10 * place, qid=qid, answer_json=Answer("yes")) for place, qid in enumerate("abcd")]
    scorer = scored(gold, records, is_live=True)
    series = scorer.snapshot(windows={"window": span}, now=NOON + 35).find(
        "default", "replay", window="window", gold="gold"
    )
    assert (series.traced, series.records) == (traced, traced)


def test_five_minutes_leave_the_windows_once_they_ended_before_the_retention():
    retention = 2 * HOUR
    scorer = scored((), [Record(ts=NOON + 60)], retention=retention, is_live=True)
    for age, left in ((60, 1), (FOLDED_SECONDS, 1), (FOLDED_SECONDS + 1, 0)):
        scorer.observe(Record(ts=NOON + retention + age))
        scorer.state.fold(scorer.state.newest)
        first = scorer.snapshot(windows={"window": FOLDED_SECONDS}, now=NOON + 60).series
        assert sum(series.records for series in first) == left, age
        assert sum(metrics["error_rate"].n for metrics, *_ in read(scorer).values()) == scorer.scored


@pytest.mark.parametrize("times", [(NOON, NOON + HOUR), (NOON + HOUR, NOON), (NOON + HOUR, None)])
def test_a_merged_state_is_as_new_as_the_newest_of_its_parts(times):
    merged = scored((), [], retention=2 * HOUR, is_live=True)
    for ts in times:
        merged.state.merge(scored((), [Record(ts=ts)], is_live=True).state)
    merged.forget_streams()
    assert merged.state.newest == NOON + HOUR
    assert not merged.observe(Record(ts=NOON - HOUR - 1)), "older than the retention"
