"""What is kept from one reading to the next changes nothing: every snapshot is that of somebody who reads it first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ragmon.core.constants import HOUR
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import build
from ragmon.scoring.buckets import State, edges
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.scoring.snapshot import take_snapshot
from tests.support.examples import cases
from tests.support.random_records import NOON

WINDOWS = {"1m": 60, "5m": 300, "1h": HOUR, "6h": 6 * HOUR, "1d": 24 * HOUR, "all": None}
GOLD = GoldSet(
    "gold",
    tuple(
        GoldItem(qid=qid, question=f"What is {qid}?", answerable=qid != "c", claim_substrings=["one"], citations=["d1"])
        for qid in "abc"
    ),
)
GATED = ("answer_precision", "recall@5", "coverage")
RULES = ReductionRules(slices={"lang": ["de"]})


def scorer_of(gold, state):
    return Scorer(gold, metrics=ScoreTable(build()), rules=RULES, state=state)


def comparable(snapshot):
    """All series with all their numbers; of items with equal scores the order is chance."""
    return [
        (
            (one.pipeline, one.source, one.gold, one.gold_version, one.window, one.slice),
            *(dict(part) for part in (one.metrics, one.latency, one.estimates)),
            *(one.records, one.traced, one.of),
            {name: sorted(clusters.items()) for name, clusters in one.clusters.items()},
        )
        for one in snapshot.series
    ]


def read(scorer, now, windows=WINDOWS):
    return comparable(scorer.snapshot(now=now, windows=windows, gated=GATED))


def read_first(scorer, now, windows=WINDOWS):
    """The same reading by somebody who has kept nothing."""
    snapshot = take_snapshot(
        scorer.state, scorer.table, now=now, windows=windows, golds=scorer.gold.infos(), gated=GATED
    )
    return comparable(snapshot)


def some_record(chance, ts):
    """A record of one of two pipelines, often about one of three gold items, right or wrong."""
    asks, ids = chance.choice((None, "a", "b", "c")), chance.choice((["d1"], ["d2"], ["d2", "d1"]))
    return Record(
        trace_id=f"{chance.getrandbits(128):032x}",
        ts=ts,
        pipeline=chance.choice(("support", "support", "sales")),
        source=chance.choice(("live", "probe")),
        qid=asks,
        retrieved_ids=ids,
        answer_json=Answer(chance.choice(("value one", "not in context")), chance.choice((["d1"], []))),
        latency_ms=chance.choice((None, Latency(total=chance.choice((5.0, 80.0, 900.0)), retrieve=3.0))),
        session=chance.choice((None, "s1", "s2", "s3")),
        build=chance.choice(("b1", "b2")),
        tags=chance.choice((None, {"lang": "de"})),
    )


@pytest.mark.slow
@settings(max_examples=cases(40), deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from((10, 60, 700, 3 * HOUR)))
def test_after_any_records_folds_merges_and_pauses_a_reading_is_that_of_a_first_reader(seed, pause):
    """Records come in order or late, by hours too; states are merged in; windows are asked for that were not before."""
    chance = random.Random(seed)
    scorer = scorer_of(GOLD, State(retention=26.0 * HOUR, is_live=True))
    now = NOON
    for _ in range(30):
        now += chance.choice((1, 10, 10, pause))
        for _ in range(chance.randrange(5)):
            late = chance.choice((0, 0, 0, 5, 70, 400, 2 * HOUR))
            scorer.observe(some_record(chance, chance.choice((None, *[now - late] * 15))))
        if chance.random() < 0.1:
            other = scorer_of(GOLD, State(is_live=True))
            other.observe(some_record(chance, now - chance.choice((0, 30, 300))))
            scorer.state.merge(other.state)
            scorer.forget_streams()
        if chance.random() < 0.05:
            scorer.state.give_up(chance.choice(("support", "sales")))
            scorer.forget_streams()
        windows = chance.choice((WINDOWS, WINDOWS, WINDOWS, dict(list(WINDOWS.items())[:3])))
        asked = now + chance.choice((0, 0, 3, -30))
        assert read(scorer, asked, windows) == read_first(scorer, asked, windows)


@pytest.mark.slow
def test_a_snapshot_stays_as_it_was_taken_while_records_go_on():
    """Rows that are alone in a window are read where they lie, and grow afterwards."""
    chance = random.Random(11)
    scorer = scorer_of(GOLD, State(retention=26.0 * HOUR, is_live=True))
    taken = []
    for place in range(40):
        scorer.observe(some_record(chance, NOON + 4 * place))
        snapshot = scorer.snapshot(now=NOON + 4 * place, windows=WINDOWS, gated=GATED)
        taken.append((snapshot, repr(comparable(snapshot))))
    assert all(repr(comparable(snapshot)) == before for snapshot, before in taken)


def test_edges_of_windows_lie_anywhere_in_a_minute_and_in_five_minutes():
    """Traffic without a pause, and a reading every step."""
    chance = random.Random(5)
    scorer = scorer_of(GOLD, State(retention=26.0 * HOUR, is_live=True))
    for place in range(70):
        now = NOON + 10 * place
        for source in ("live", "probe"):
            record = some_record(chance, now)
            scorer.observe(replace(record, pipeline="support", source=source, qid="a", build="b1", tags=None))
        snapshot = scorer.snapshot(now=now, windows=WINDOWS, gated=GATED)
        for name, span in WINDOWS.items():
            begin, _ = (0, 0) if span is None else edges(span, now)
            counted = snapshot.find("support", "probe", window=name, gold="gold").records
            assert counted == sum(NOON + 10 * earlier >= begin for earlier in range(place + 1))
        assert read(scorer, now) == read_first(scorer, now)


def test_a_snapshot_does_not_change_when_more_is_counted():
    chance = random.Random(3)
    scorer = scorer_of(GOLD, State(retention=26.0 * HOUR, is_live=True))
    for place in range(40):
        scorer.observe(some_record(chance, NOON + place))
    snapshot = scorer.snapshot(now=NOON + 100, windows=WINDOWS, gated=GATED)
    before = repr(comparable(snapshot))
    for place in range(40):
        scorer.observe(some_record(chance, NOON + 100 + place))
    read(scorer, NOON + 200)
    assert repr(comparable(snapshot)) == before
