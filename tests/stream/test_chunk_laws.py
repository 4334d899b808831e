"""Chunks of any split, in any order, however often: the counts, the alarms and the accounts are those of one pass."""

from __future__ import annotations

import random
import zlib

import pytest
from msgspec.structs import replace

from ragmon.config.load import defaults, load
from ragmon.core.constants import OTHER
from ragmon.core.record import Label, Totals, encode
from ragmon.scoring import minutes
from ragmon.scoring.score_table import ScoreTable
from ragmon.stream.chunk import Chunk, ChunkAdder, ChunkError, config_version
from ragmon.stream.worker import CountingLimits, PartitionCounter
from ragmon.testing import make_record
from tests.support.alarming import NOON, SEVERAL, mixed, write_config
from tests.support.partitions import (
    Head,
    Worker,
    counted_at_once,
    last_chunk,
    partitions_of,
    result,
    shuffled_logs,
)

START = 60.0 * NOON
PARTS = 4


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A configuration, an hour of traffic of three pipelines in which much goes wrong, and a time after it."""
    settings = load(write_config(tmp_path_factory.mktemp("stream")), environ={})
    return settings, list(mixed(3, 60)), 60.0 * (NOON + 75)


@pytest.fixture(scope="module")
def expected(day):
    """What one pass over them gives."""
    settings, records, end = day
    engine = counted_at_once(settings, records)
    engine.advance(end // 10 * 10)
    assert len(engine.transitions) >= 6
    return result(engine)


def all_chunks(settings, logs, end, limits=None):
    """The chunks of every partition, in order, as they are sent."""
    found = {}
    for number, log in enumerate(logs):
        worker, chunks = Worker(settings, str(number), log, limits=limits), []
        while not worker.done:
            chunks += worker.step()
        chunks += last_chunk(worker, end)
        found[str(number)] = [chunk.dump() for chunk in chunks]
    return found


def in_any_order(chunks, chance):
    """Chunks of partitions that are at different places, each partition in order; some come twice."""
    places, sent = dict.fromkeys(chunks, 0), []
    while places:
        part = chance.choice(sorted(places))
        for _ in range(chance.randrange(1, 40)):
            if places[part] == len(chunks[part]):
                del places[part]
                break
            sent.append(chunks[part][places[part]])
            yield sent[-1]
            places[part] += 1
        if chance.random() < 0.3:
            yield chance.choice(sent)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_any_split_order_and_repeats_give_the_counts_and_edges_of_one_pass(day, expected, seed):
    settings, records, end = day
    chance = random.Random(seed)
    limits = CountingLimits(period=chance.choice((10.0, 30.0, 60.0)), offsets=chance.choice((97, 1 << 16)))
    chunks = all_chunks(settings, shuffled_logs(records, PARTS, seed), end, limits)
    head = Head(settings, sorted(chunks))
    repeats = sum(not head.take(data) for data in in_any_order(chunks, chance))
    head.engine.advance(end // 10 * 10)
    assert result(head.engine) == expected
    assert head.adder.state.results == {"added": sum(map(len, chunks.values())), "repeated": repeats}
    assert repeats > 0


@pytest.mark.slow
@pytest.mark.parametrize("cells", [5])
def test_past_the_caps_of_rows_and_minutes_it_holds_as_well(day, cells, monkeypatch):
    settings, records, end = day
    monkeypatch.setitem(ScoreTable.__init__.__kwdefaults__, "cells", cells)
    monkeypatch.setattr(minutes, "CLUSTERS", 12)
    monkeypatch.setattr(minutes, "MEMBERS", 2)
    monkeypatch.setattr(minutes, "ROOM", 24)
    once = counted_at_once(settings, records)
    once.advance(end // 10 * 10)
    chunks = all_chunks(settings, partitions_of(records, PARTS), end)
    head = Head(settings, sorted(chunks))
    for data in in_any_order(chunks, random.Random(5)):
        head.take(data)
    head.engine.advance(end // 10 * 10)
    assert result(head.engine) == result(once)


def test_who_counts_a_stretch_again_gets_the_same_bits(day):
    """A worker that starts at any chunk with what came shortly before makes the chunks that another one makes."""
    settings, records, end = day
    (log,) = shuffled_logs(records[:3000], 1, 7)
    (chunks,) = all_chunks(settings, [log], end).values()
    chance = random.Random(1)
    for place in chance.sample(range(len(chunks) - 1), 12):
        worker, again = Worker(settings, "0", log, Chunk.load(chunks[place])), []
        while not worker.done and len(again) < 3:
            again += worker.step()
        for number, chunk in enumerate(again[:3]):
            assert chunk.dump() == chunks[place + 1 + number]


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(day, expected):
    """Who counts is killed at random messages; what was not handed on is counted again."""
    settings, records, end = day
    logs = shuffled_logs(records, 2, 11)
    chance = random.Random(2)
    head = Head(settings, ["0", "1"])
    for number, log in enumerate(logs):
        kills = set(chance.sample(range(len(log)), 50))
        last, worker = None, Worker(settings, str(number), log)
        while True:
            if worker.offset in kills:
                kills.discard(worker.offset)
                worker = Worker(settings, str(number), log, last)
                continue
            chunks = last_chunk(worker, end) if worker.done else worker.step()
            for chunk in chunks:
                last = Chunk.load(chunk.dump())
                assert head.take(chunk.dump())
            if worker.done and chunks:
                break
    head.engine.advance(end // 10 * 10)
    assert result(head.engine) == expected


def test_a_clock_of_brokers_that_goes_back_stands_still_until_it_has_caught_up(day):
    """As at a failover to a broker whose clock is behind: the log's time is the running maximum of its messages."""
    settings, records, end = day
    (log,) = shuffled_logs(records[:3000], 1, 13)
    place, behind = len(log) // 2, 90.0
    jumped = [*log[:place], *((at - behind, message) for at, message in log[place:])]
    newest, expected = 0.0, []
    for at, message in jumped:
        newest = max(newest, at)
        expected.append((newest, message))
    assert all_chunks(settings, [jumped], end) == all_chunks(settings, [expected], end)


def test_a_repeat_is_dropped_as_long_as_it_is_remembered_and_counts_again_later():
    settings, message = defaults(), make_record(ts=START)
    log = [(START + after, encode(message)) for after in (0, 599, 2000)]
    chunks = [Chunk.load(data) for data in all_chunks(settings, [log], START + 3000)["0"]]
    assert sum(chunk.arrived.duplicate for chunk in chunks) == 1
    assert sum(chunk.counts.state.scored for chunk in chunks) == 2
    assert sum(chunk.arrived.received for chunk in chunks) == 3


def test_names_above_the_limits_are_counted_as_other(tmp_path):
    """By who counts and by who adds up: neither can be filled by an application that invents names."""
    settings = load(write_config(tmp_path), environ={})
    records = [make_record(ts=START + n / 100, pipeline=f"p{n}", build=f"b{n}", error="E") for n in range(3000)]
    chunks = all_chunks(settings, partitions_of(records, 2), START + 60)
    assert all(len(Chunk.load(data).counts.state.series) < 1500 for part in chunks.values() for data in part)
    head = Head(settings, sorted(chunks))
    for data in in_any_order(chunks, random.Random(1)):
        head.take(data)
    scorer = head.engine.scorer
    assert scorer.scored == 3000
    pipelines = {key.pipeline for key in scorer.state.series}
    assert OTHER in pipelines
    assert len(pipelines) < 400
    assert (
        sum(
            series.past.count + sum(row.count for row in (*series.fresh.values(), *series.folded.values()))
            for key, series in scorer.state.series.items()
            if not key.slice
        )
        == 3000
    )
    assert sum(head.engine.errors.values()) == 3000


def test_totals_and_labels_travel_with_the_chunk(tmp_path):
    settings = load(write_config(tmp_path), environ={})
    counter = PartitionCounter("log/0", 0, settings, (), now=START)
    answer = make_record(ts=START, trace_id="5" * 32)
    totals = [
        Totals(ts=START + n, instance="a", started=START, pipeline="support", source="live", calls=100 + n)
        for n in range(5)
    ]
    label = Label(trace_id="5" * 32, rater="ada", correct=True, answer=answer)
    for offset, line in enumerate([answer, *totals, label]):
        assert not list(counter.take(offset, START + 1, b"%d" % offset, [line]))
    (chunk,) = counter.until(7, START + 20)
    assert [line.calls for line in chunk.counts.totals] == [104]
    head = Head(settings, ["0"])
    assert head.take(chunk.dump())
    state = head.engine.scorer.state
    assert {key: (n.calls, n.kept) for key, n in state.calls.totals().items()} == {
        ("support", "live", "rest"): (104, 0)
    }
    assert [key for key in state.series if key.source == "label"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def chunks(day):
    """The first chunks of a partition."""
    settings, records, _ = day
    (found,) = all_chunks(settings, partitions_of(records[:400], 1), START + 3600).values()
    return found


def test_what_lies_between_two_chunks_is_lost_and_accounted_for(day, chunks):
    head = Head(day[0], ["0"])
    head.take(chunks[0])
    upto, base = Chunk.load(chunks[0]).upto, Chunk.load(chunks[2]).base
    assert head.take(chunks[2])
    assert head.adder.lost == base - upto
    assert not head.take(chunks[1])
    assert head.adder.state.results == {"added": 2, "missing": 1, "repeated": 1}


def test_an_overlap_is_refused(day, chunks):
    """Two versions of ragmon that divide the log in different ways would count records twice."""
    head = Head(day[0], ["0"])
    head.take(chunks[0])
    head.take(chunks[1])
    first = Chunk.load(chunks[1])
    first.base, first.upto = first.base + 1, first.upto + 1
    with pytest.raises(ChunkError, match="overlaps what was added up to"):
        head.take(first.dump())


@pytest.mark.parametrize("data", [b"", b"garbage", b"x\x9c"])
def test_what_is_no_chunk_is_refused(data):
    with pytest.raises(ChunkError, match=r"are not a chunk|is cut off"):
        Chunk.load(data)


@pytest.mark.parametrize("version", [0, 99])
def test_a_chunk_of_another_version_is_refused_with_what_to_do(chunks, version):
    chunk = Chunk.load(chunks[0])
    chunk.v = version
    with pytest.raises(ChunkError, match=f"version {version}, and this ragmon reads and writes version 1") as error:
        Chunk.load(chunk.dump())
    assert error.value.hint == "run one version of ragmon on workers and servers"


def test_a_chunk_that_inflates_without_end_is_refused():
    with pytest.raises(ChunkError, match="cut off, or larger"):
        Chunk.load(zlib.compress(bytes(100 << 20)))


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_watermark_is_where_every_partition_has_spoken(day, chunks):
    head = Head(day[0], ["0", "1"])
    head.take(chunks[0])
    assert head.adder.watermark(START + 600) == 0.0
    other = Chunk.load(chunks[0])
    other.part, other.until = "log/1", START - 7
    head.take(other.dump())
    assert head.adder.watermark(START + 600) == START - 7
    assert head.adder.behind(START + 600) == {"log/0": 600, "log/1": 607}


def test_a_partition_whose_time_lies_ahead_is_shown_as_far_off_as_it_is(day, chunks):
    """It stands still for as long, and is not one that has just spoken."""
    head, chunk = Head(day[0], ["0"]), Chunk.load(chunks[0])
    chunk.until = START + 86_400
    head.take(chunk.dump())
    assert head.adder.behind(START) == {"log/0": 86_400}


def test_with_patience_a_silent_partition_is_not_waited_for(day, chunks):
    head = Head(day[0], ["0", "1"], patience=120.0)
    head.take(chunks[0])
    assert head.adder.watermark(START + 600) == START + 480


def test_what_the_log_has_deleted_is_lost_and_counted(day, chunks):
    settings = day[0]
    head, second = Head(settings, ["0"]), Chunk.load(chunks[1])
    head.take(chunks[0])
    counter = PartitionCounter("log/0", second.base, settings, (), now=second.now)
    assert head.take(counter.gap(second.upto).dump())
    assert head.take(chunks[2])
    assert head.adder.lost == second.upto - second.base


def test_the_partitions_may_be_told_by_the_chunks(day, chunks):
    head = Head(day[0], None)
    chunk = Chunk.load(chunks[0])
    chunk.part, chunk.partitions = "spans/1", 3
    head.take(chunk.dump())
    assert head.adder.parts == ("spans/0", "spans/1", "spans/2")
    assert head.adder.watermark(START) == 0.0


def placed(chunk, log, base, upto, part="spans/0", partitions=1, **fields):
    """A chunk at another place."""
    found = Chunk.load(chunk)
    found.log, found.base, found.upto, found.part, found.partitions = log, base, upto, part, partitions
    return replace(found, **fields)


def test_another_log_in_the_place_of_one_begins_anew_and_late_chunks_of_the_old_one_are_repeats(chunks):
    """An old owner that was thought dead writes chunks of a topic that was deleted."""
    adder = ChunkAdder()
    assert adder.take(placed(chunks[0], "old", 0, 900))
    assert adder.take(placed(chunks[0], "old", 900, 1000, lost=5))
    assert adder.take(placed(chunks[0], "new", 0, 40))
    assert not adder.take(placed(chunks[0], "old", 900, 1000, lost=5))
    assert not adder.take(placed(chunks[0], "new", 0, 40))
    assert adder.take(placed(chunks[0], "new", 40, 50))
    assert adder.take(placed(chunks[0], "old", 1000, 1010))
    assert adder.take(placed(chunks[0], "new", 50, 60))
    assert adder.take(placed(chunks[0], "new", 70, 80))
    assert adder.state.results == {"added": 5, "returned": 2, "repeated": 2, "missing": 1}
    assert adder.lost == 15
    assert adder.state.positions["spans/0"].log == "new"


def test_another_log_may_have_fewer_partitions_and_the_same_one_may_get_more(chunks):
    """Who writes them learns of more partitions later than others: the greatest number counts."""
    adder = ChunkAdder()
    for part, partitions in (("spans/0", 4), ("spans/5", 4), ("spans/1", 6), ("spans/0", 4)):
        adder.take(
            placed(
                chunks[0],
                "old",
                adder.state.positions[part].upto if part in adder.state.positions else 0,
                90,
                part,
                partitions,
            )
        )
    assert adder.parts == tuple(f"spans/{number}" for number in range(6))
    assert adder.watermark(START) == 0.0
    adder.take(placed(chunks[0], "new", 0, 10, "spans/0", 2))
    assert adder.parts == ("spans/0", "spans/1")


def test_only_the_partitions_of_named_topics_are_waited_for(chunks):
    """A topic that was renamed or left out of the settings says nothing any more, and is no reason to wait."""
    adder = ChunkAdder(None, ["spans", "totals"])
    adder.take(placed(chunks[0], "", 0, 10, "before/0", 3, until=START, config="old"))
    adder.take(placed(chunks[0], "", 0, 10, "spans/0", 1, until=START + 600))
    assert adder.parts == ("spans/0",)
    assert adder.watermark(START) == START + 600
    assert (list(adder.behind(START + 700)), len(adder.configs)) == (["spans/0"], 1)
    assert adder.state.results == {"added": 2}


def test_offsets_of_another_topic_of_chunks_are_forgotten(chunks):
    adder = ChunkAdder()
    adder.read("one", 0, 10)
    adder.read("one", 1, 20)
    assert adder.state.offsets == {0: 10, 1: 20}
    adder.read("two", 0, 1)
    assert (adder.state.offsets, adder.state.log) == ({0: 1}, "two")
    adder.read("", 1, 7)  # a broker that did not say which it is
    assert (adder.state.offsets, adder.state.log) == ({0: 1, 1: 7}, "two")


def test_names_are_admitted_for_the_source_of_their_records(tmp_path):
    """Errors and builds of replayed records take no place of live traffic, so as many names fit as in one pass."""
    settings = load(write_config(tmp_path, "[serve]\nmax_series = 20_000\n" + SEVERAL), environ={})
    names = [f"p{n}" for n in range(20)]
    records = [make_record(ts=START, pipeline=name, source="replay", build="b", error="E") for name in names]
    head = Head(settings, ["0"])
    for chunk in all_chunks(settings, partitions_of(records, 1), START + 600)["0"]:
        head.take(chunk)
    once = counted_at_once(settings, records)
    assert all(once.shows(name) for name in names)
    assert all(head.engine.shows(name) for name in names)


def test_two_configurations_at_once_are_seen(day, chunks):
    """A worker that has another gold set, or another version of ragmon."""
    head = Head(day[0], ["0", "1"])
    head.take(chunks[0])
    other = Chunk.load(chunks[0])
    other.part, other.config = "log/1", "another"
    head.take(other.dump())
    assert len(head.adder.configs) == 2


def test_what_decides_how_records_are_counted_is_told_apart(tmp_path):
    one = load(write_config(tmp_path), environ={})
    ports = load(write_config(tmp_path, '[serve]\nadmin = "127.0.0.1:1"\n' + SEVERAL), environ={})
    gates = load(write_config(tmp_path, SEVERAL.replace("0.97", "0.9")), environ={})
    versions = [config_version(settings, ()) for settings in (one, ports, gates)]
    assert versions[0] == versions[1] != versions[2]
