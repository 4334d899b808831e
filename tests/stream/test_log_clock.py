"""The time of a log: no clock of a producer stops it, and who reads the log again, from wherever, tells the same."""

from __future__ import annotations

import random

import pytest

from ragmon.config.load import load
from ragmon.core.constants import CLOCK_AHEAD
from ragmon.core.record import encode
from ragmon.ingest.lines import decode
from ragmon.stream import worker
from ragmon.stream.accounts import BatchCounts
from ragmon.stream.chunk import Chunk
from ragmon.stream.partition import CountingLimits, PartitionCounter, TracePartitionCounter
from ragmon.stream.worker import LogClock, LogMessage
from ragmon.testing import make_record
from tests.stream.test_tracing import own, pieces, rated
from tests.support.alarming import NOON, write_config

START = 60.0 * NOON
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
LIMITS = CountingLimits()
TICK = b""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return load(write_config(tmp_path_factory.mktemp("clock")), environ={})


class Reader:
    """Counts a log that lies in memory as a worker does, from where the last chunk ended; lines, or requests."""

    def __init__(self, settings, log, last=None, limits=LIMITS, *, requests=False):
        read = lambda found: [log[number][1] for number in found]  # noqa: E731 - as a worker reads its topic again
        base, now, labels = (0, 0.0, []) if last is None else (last.upto, last.until, last.labels)
        more = {"waiting": last.waiting if last else b""} if requests else {}
        make = TracePartitionCounter if requests else PartitionCounter
        self.counter = make("0", base, settings, (), limits, now, labels=labels, read=read, **more)
        self.clock, self.log, self.offset = LogClock(limits, last), log, 0 if last is None else last.low

    def step(self):
        """Read the next message; returns the chunks that ended."""
        message, chunks = LogMessage(self.offset, *self.log[self.offset]), []
        self.offset += 1
        for told in self.clock.take(message):
            if told.offset < self.counter.upto:
                self.counter.warm_up([(*told[:2], b"" if told.is_ahead else told.body)])
            elif isinstance(self.counter, TracePartitionCounter):
                chunks += self.counter.take_request(*told[:3], is_ahead=told.is_ahead)
            else:
                lines = map(decode, told.body.splitlines())
                chunks += self.counter.take(*told[:3], lines, is_ahead=told.is_ahead)
        return chunks


def chunks_of(settings, log, kills=(), **form):
    """The chunks of a log as they are sent, by readers that are killed before some messages."""
    kills, last, sent = set(kills), None, []
    reader = Reader(settings, log, **form)
    while reader.offset < len(log):
        if reader.offset in kills:
            kills.discard(reader.offset)
            reader = Reader(settings, log, last, **form)
            continue
        for chunk in reader.step():
            sent.append(chunk.dump())
            last = Chunk.load(sent[-1])
    return sent


def told(settings, log, **form):
    """What became of a log: the times of the chunks, the records that were scored, and what arrived."""
    chunks = [Chunk.load(data) for data in chunks_of(settings, log, **form)]
    arrived = BatchCounts()
    for chunk in chunks:
        arrived.add(chunk.arrived)
    return [chunk.until for chunk in chunks], sum(chunk.counts.state.scored for chunk in chunks), arrived


def line(at, shift=0.0):
    """A record of a time in a message whose clock is ahead of it."""
    return at + shift, encode(make_record(ts=at, trace_id=f"{int(at * 1000):032x}"))


def ticks(at, number=3, every=10.0):
    """Ticks of a worker."""
    return [(at + place * every, TICK) for place in range(number)]


def steady(at, number, every=1.0):
    """Honest records, one after the other."""
    return [line(at + place * every) for place in range(number)]


@pytest.mark.slow
def test_one_message_a_year_ahead_among_6400_holds_up_no_other(settings):
    log = [*steady(START, 100, 0.5), line(START + 50, YEAR), *steady(START + 50.5, 6300, 0.5)]
    until, scored, arrived = told(settings, [*log, *ticks(START + 3300)])
    assert (scored, arrived.dropped, arrived.received) == (6400, {CLOCK_AHEAD: 1}, 6401)
    assert max(until) <= START + 3320


@pytest.mark.parametrize("ahead", [400.0, HOUR, DAY, YEAR, 1000 * START])
def test_ten_in_a_row_are_dropped_wherever_they_stand(settings, ahead):
    """Also as the first ones that ever come, where nothing but a worker's ticks tells the time."""
    bad = [line(START + 50 + place / 10, ahead) for place in range(10)]
    honest = steady(START, 40)
    for log in ([*honest, *bad, *steady(START + 60, 40)], [*honest, *bad], bad, [*bad, *honest]):
        until, scored, arrived = told(settings, [*log, *ticks(START + 110, 5)])
        assert scored == len(log) - 10
        assert arrived.dropped == {CLOCK_AHEAD: 10}
        assert START + 130 <= max(until) <= START + 160


@pytest.mark.slow
def test_of_two_producers_the_one_that_is_a_day_ahead_is_dropped_for_as_long_as_it_is(settings):
    log = [line(START + place, DAY * (place % 2)) for place in range(4000)]
    _, scored, arrived = told(settings, [*log, *ticks(START + 4000)])
    assert (scored, arrived.dropped) == (2000, {CLOCK_AHEAD: 2000})


def test_after_a_night_without_messages_and_workers_the_day_counts_from_its_first_message(settings):
    morning = START + 10 * HOUR
    log = [*steady(START, 30), *steady(morning, 30), *ticks(morning + 31)]
    until, scored, arrived = told(settings, log)
    assert (scored, arrived.dropped) == (60, {})
    assert morning in until


def test_a_single_message_after_a_night_counts_when_a_worker_has_told_the_time(settings):
    morning = START + 10 * HOUR
    log = [*ticks(START - 20), *steady(START, 30), line(morning)]
    assert told(settings, log)[1] == 20  # the chunks up to the last edge
    assert told(settings, [*log, *ticks(morning + 2)])[1] == 31
    assert told(settings, [*log, *ticks(morning + 3 * HOUR, 3)])[1] == 31  # the worker came three hours later


def test_a_night_of_messages_that_are_far_apart_counts_each_at_its_own_time(settings):
    log = [line(START + number * 2 * HOUR) for number in range(40)]
    until, scored, arrived = told(settings, [*log, *ticks(START + 100 * HOUR)])
    assert (scored, arrived.dropped) == (40, {})
    assert {at for at, _ in log} <= set(until)


def test_a_long_run_without_a_tick_counts(settings, monkeypatch):
    """Nobody told the time while it came, and there is no room for more of it."""
    monkeypatch.setattr(worker, "MOST", 50)
    log = [*steady(START, 20), *steady(START + DAY, 200)]
    assert told(settings, log)[1] > 200
    monkeypatch.setattr(worker, "MOST", 5000)
    monkeypatch.setattr(worker, "MOST_BYTES", 10_000)
    assert told(settings, log)[1] > 200


def test_a_producer_whose_clock_is_behind_counts_as_ever(settings):
    """Its messages came at the time of the log."""
    log = [line(START + place, -DAY * (place % 2)) for place in range(400)]
    _, scored, arrived = told(settings, [*log, *ticks(START + 400)])
    assert (scored, arrived.dropped) == (400, {})


def test_what_a_request_from_a_clock_that_is_ahead_holds_is_accounted_for(settings):
    """Records of our own and roots are records; other spans belong to none; labels are labels."""
    found, call = pieces(1, START)
    bad = [own(0, START), found, call, rated(7), b"garbage"]
    log = [(START, own(9, START)), *((START + DAY, body) for body in bad), *ticks(START + 1, 8)]
    _, scored, arrived = told(settings, log, requests=True)
    assert scored == 1
    assert arrived.dropped.pop(CLOCK_AHEAD) == 2
    assert arrived.labels == {CLOCK_AHEAD: 1}
    assert arrived.received == 3 + sum(arrived.dropped.values())
    assert arrived.native == 2


# --- the same log, whoever reads it -----------------------------------------------------------------------------------


def wild(chance, bodies):
    """A log in which much is wrong: clocks ahead and behind, alone and in runs, also of ticks, and nights."""
    log, now = ticks(START - 20), START
    while bodies:
        now += chance.choice((0.1, 0.1, 1, 5, 30, 200, 340, 1000, 4000)) * chance.random()
        off = chance.choice((0, 0, 0, 0, 0, 0, -5, 20, 300, 340, 500, HOUR, 3 * HOUR, DAY, -400, -DAY))
        for _ in range(chance.choice((1, 1, 1, 2, 12))):
            body = TICK if chance.random() < 0.2 or not bodies else bodies.pop()
            log.append((now + off + chance.random(), body))
            if body and chance.random() < 0.1:
                bodies.insert(chance.randrange(len(bodies) + 1), body)
    return log


def bodies_of(chance, *, requests):
    """Messages of a log: whole records, foreign traces in pieces, labels; some of them come twice."""
    if not requests:
        return [line(START + number)[1] for number in range(300)]
    found = [own(number, START + number) for number in range(0, 240, 3)]
    found += [piece for number in range(80) for piece in pieces(number, START + 3 * number)]
    found += [rated(number, is_own=number % 3 == 0) for number in range(60)]
    chance.shuffle(found)
    return found


@pytest.mark.parametrize("requests", [False, True])
@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_who_reads_a_log_at_another_time_or_is_killed_makes_the_same_chunks(settings, monkeypatch, seed, requests):
    """Whoever goes on reads what came shortly before, decides of the same messages alike, and makes equal bytes."""
    chance = random.Random(seed)
    monkeypatch.setattr(worker, "MOST", chance.choice((20, 50, 4096)))
    limits = CountingLimits(
        chance.choice((10.0, 60.0)), chance.choice((7, 97, 1 << 16)), chance.choice((20.0, 600.0, 5400.0)), samples=2
    )
    log = wild(chance, bodies_of(chance, requests=requests))
    form = {"limits": limits, "requests": requests}
    once = chunks_of(settings, log, **form)
    assert len(once) > 3
    assert chunks_of(settings, log, chance.sample(range(len(log)), 60), **form) == once
    for _ in range(5):
        earlier = chunks_of(settings, log[: chance.randrange(len(log))], **form)
        assert earlier == once[: len(earlier)]
