"""Raw OTLP in a log: traces are put together in the log's own time, however often who counts it is killed."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from ragmon.config.load import load
from ragmon.core.constants import LOG_DELETED
from ragmon.core.record import Label, encode
from ragmon.ingest.trace_buffer import DECORATED, LATE
from ragmon.scoring.ratings import REJECTED
from ragmon.stream.chunk import Chunk
from ragmon.stream.worker import TracePartitionCounter
from ragmon.testing import make_record
from tests.support.alarming import NOON, write_config
from tests.support.otlp_requests import export
from tests.support.partitions import Head, result
from tests.support.serving import foreign, whole

START = 60.0 * NOON
SHORT = '[serve]\nstate_dir = "state"\n'


def own(number, at, **fields):
    """A whole record as the span of a decorated call, in a request of its own."""
    trace_id = f"{number + 1:032x}"
    return whole([make_record(f"q{number}", ts=at, source="live", v=1, trace_id=trace_id, **fields)])


def pieces(number, at):
    """The spans of a foreign trace, each in a request of its own: the call last, as it ends."""
    call, found = foreign(number, at=at)
    return export([found]).SerializeToString(), export([call]).SerializeToString()


def messages(number=600, seed=5):
    """A log in order of arrival: records of our own, foreign traces in pieces, rootless, late and repeated ones."""
    chance, log = random.Random(seed), []
    for n in range(number):
        at = START + n * 1.5
        if n % 3 == 0:
            body = own(n, at)
            log.append((at, body))
            if chance.random() < 0.05:
                log.append((at + chance.uniform(0, 300), body))
            continue
        found, call = pieces(n, at)
        log.append((at + chance.uniform(0, 4), found))
        if chance.random() < 0.05:
            continue  # its root never comes
        log.append((at + chance.uniform(0, 4), call))
        if chance.random() < 0.05:
            log.append((at + chance.uniform(30, 400), found))
        if chance.random() < 0.02:
            log.append((at + 1, b"no request at all"))
        for later in chance.sample((20, 70, 200, 500), 2) if n % 10 == 4 else ():
            log += turn(n, at + later, chance)
    for n in chance.sample(range(number), number // 3):
        at = START + n * 1.5 + chance.choice((-20, 0, 1, 3, 20, 100, 400, 1000, 2000)) + chance.random()
        log.append((max(START, at), rated(n, is_own=n % 3 == 0)))
    return sorted(log)


def turn(number, at, chance):
    """Another turn in a trace, which is sometimes sent again, and work left over after it."""
    spans = [span._replace(span_id=f"{round(at):016x}"[:15] + span.span_id[-1]) for span in foreign(number, at=at)]
    call, found = spans[0], spans[1]._replace(parent_id=spans[0].span_id)
    title = found._replace(span_id=f"{1:x}{found.span_id[1:]}", start_ns=call.end_ns + 1, end_ns=call.end_ns + 2)
    bodies = [export([one]).SerializeToString() for one in (found, call, title)]
    times = [at + chance.uniform(0, 3), at + chance.uniform(0, 3), at + chance.uniform(9, 90)]
    again = [(at + chance.uniform(9, 300), body) for body in bodies if chance.random() < 0.3]
    return [*zip(times, bodies, strict=True), *again]


def rated(number, *, is_own=False):
    """A label in a topic of requests, on a whole record or a foreign trace: a line, told by its first byte."""
    trace_id = f"{number + (1 if is_own else 1 << 64):032x}"
    return encode(Label(trace_id=trace_id, rater="ada", correct=True)).rstrip()


class TraceWorker:
    """Counts a log of requests that lies in memory, from where the last chunk ended."""

    def __init__(self, settings, log, last=None):
        self.log = log
        self.offset = 0 if last is None else last.upto
        read = lambda found: [log[number][1] for number in found]  # noqa: E731 - as a worker reads its topic again
        self.counter = TracePartitionCounter("log/0", self.offset, settings, (), last=last, read=read)
        if last is not None:
            self.counter.warm_up((number, *log[number]) for number in range(last.low, last.upto))

    def step(self):
        """Count the next message; returns the chunks that ended."""
        chunks = list(self.counter.take_request(self.offset, *self.log[self.offset]))
        self.offset += 1
        return chunks


def counted(settings, log, kills=()):
    """The head of a log whose worker is killed before some messages; and how many messages were read again."""
    head, kills = Head(settings, ["0"]), set(kills)
    last, worker, again = None, TraceWorker(settings, log), 0
    while worker.offset < len(log):
        if worker.offset in kills:
            kills.discard(worker.offset)
            again += worker.offset - (0 if last is None else last.low)
            worker = TraceWorker(settings, log, last)
            continue
        for chunk in worker.step():
            last = Chunk.load(chunk.dump())
            assert head.take(chunk.dump())
            head.books.add(last.arrived)
    return head, again


def with_ticks(log, seconds=1300):
    """A log after which nothing but the time is told, until everything that waits is done."""
    end = log[-1][0]
    return [*log, *((end + after, b"") for after in range(10, seconds, 10))]


@pytest.fixture(scope="module")
def log():
    return with_ticks(messages())


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return load(write_config(tmp_path_factory.mktemp("tracing"), SHORT), environ={})


@pytest.fixture(scope="module")
def once(settings, log):
    """What one worker that is never killed makes of it."""
    return counted(settings, log)[0]


def test_every_request_is_accounted_for(once):
    books, scorer = once.books, once.engine.scorer
    lost = sum(books.ignored.values()) + sum(books.dropped.values()) + sum(scorer.dropped.values())
    assert books.received == scorer.scored + lost + books.duplicate
    assert books.duplicate > 5
    assert books.spans[LATE] > 10
    assert sum(books.dropped.values()) > 3
    assert scorer.scored > 550


@pytest.mark.parametrize(
    "seed", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_a_worker_that_is_killed_25_times_changes_nothing(settings, log, once, seed):
    kills = random.Random(seed).sample(range(len(log)), 25)
    head, again = counted(settings, log, kills)
    assert result(head.engine) == result(once.engine)
    assert head.engine.labels.store.results == once.engine.labels.store.results
    assert head.books == once.books
    assert again > 0


def test_labels_join_records_of_our_own_and_foreign_traces_that_came_shortly_before_or_come_shortly_after(once):
    """However many spans a trace has: they are read again. The others are for the head's sample."""
    results = once.engine.labels.store.results
    assert results["joined"] > 100
    assert results["orphan"] > 20
    assert set(results) <= {"joined", "orphan"}


@pytest.mark.parametrize("after", [-30, 0.5, 3, 60, 500])
def test_a_label_joins_a_foreign_trace_before_while_and_after_it_waits(settings, after):
    found, call = pieces(1, START + 100)
    log = sorted([(START + 100, found), (START + 101, call), (START + 100 + after, rated(1))])
    head, _ = counted(settings, with_ticks(log))
    assert head.engine.labels.store.results == {"joined": 1}


def test_a_line_that_is_no_label_is_counted(settings):
    head, _ = counted(settings, with_ticks([(START, b'{"kind":"label","trace_id":"1"}'), (START, b"{}")], 60))
    assert head.books.labels == {REJECTED: 2}


def test_a_trace_whose_spans_come_in_several_chunks_is_one_request(settings):
    found, call = pieces(1, START)
    log = with_ticks([(START, found), (START + 14, b""), (START + 22, call)], 100)
    head, _ = counted(settings, log)
    assert (head.books.received, head.engine.scorer.scored) == (1, 1)


def test_each_turn_of_a_trace_is_a_request_and_what_comes_again_is_none(settings):
    spans = [foreign(1, at=START + later) for later in (0, 30, 200)]
    bodies = [
        export([span._replace(span_id=f"{number}{span.span_id[1:]}", parent_id=None) for span in one])
        for number, one in enumerate(spans, 1)
    ]
    arrivals = [(0, 0), (30, 1), (50, 0), (200, 2), (230, 1)]
    log = with_ticks([(START + later, bodies[number].SerializeToString()) for later, number in arrivals], 700)
    head, _ = counted(settings, log)
    assert (head.books.received, head.engine.scorer.scored, head.books.spans) == (3, 3, {LATE: 4})


def test_work_left_over_in_a_trace_that_is_done_is_late(settings):
    call, found = foreign(1, at=START)
    left = found._replace(span_id=f"{9:016x}", start_ns=call.end_ns + 1, end_ns=call.end_ns + 2)
    log = [(START, export([call, found]).SerializeToString()), (START + 30, export([left]).SerializeToString())]
    head, _ = counted(settings, with_ticks(log, 700))
    assert (head.books.received, head.engine.scorer.scored, head.books.ignored) == (2, 1, {LATE: 1})


def test_spans_inside_a_decorated_call_are_part_of_its_record(settings):
    call, found = foreign(7, parent="00000000000000aa", at=START)
    inner = [span._replace(trace_id=f"{8:032x}") for span in (call, found)]
    log = with_ticks(
        [
            (START, export([inner[1]]).SerializeToString()),
            (START + 1, own(7, START + 1)),
            (START + 2, export([inner[0]]).SerializeToString()),
        ],
        700,
    )
    head, _ = counted(settings, log)
    assert head.engine.scorer.scored == 1
    assert head.books.ignored == {DECORATED: 1}


def test_traces_that_wait_for_spans_which_the_log_has_deleted_are_dropped(settings):
    """They were received, so they are accounted for: nothing is pending for ever."""
    found, _ = pieces(1, START)
    worker = TraceWorker(settings, [(START, found), (START + 11, b"")])
    last = [chunk for _ in range(2) for chunk in worker.step()][-1]
    assert (len(last.waiting), last.arrived.received) == (16, 1)
    counter = TracePartitionCounter("0", 7, settings, (), last=last)
    assert not list(counter.take_request(7, START + 12, b""))
    chunk = counter.seal(START + 20)
    assert (chunk.arrived.dropped, chunk.waiting) == ({LOG_DELETED: 1}, b"")
    counter = TracePartitionCounter("0", 0, settings, (), log="another")
    counter.replaces(replace(last, labels=[(1, 0)]))
    chunk = counter.seal(START + 20)
    assert (chunk.arrived.dropped, chunk.arrived.labels) == ({LOG_DELETED: 1}, {LOG_DELETED: 1})
    counter = TracePartitionCounter("0", last.upto, settings, (), last=last)
    gap = counter.gap(50)
    assert (gap.arrived.dropped, gap.lost, gap.waiting) == ({LOG_DELETED: 1}, 50 - last.upto, b"")


def test_traces_of_a_log_that_was_deleted_wait_no_longer(settings):
    found, call = pieces(1, START)
    worker = TraceWorker(settings, [(START, found), (START + 1, call), (START + 1, pieces(2, START)[0])])
    assert [chunk.upto for _ in range(3) for chunk in worker.step()] == [0]
    chunk = worker.counter.end()
    assert (chunk.base, chunk.upto, chunk.waiting) == (0, 3, b"")
    lost = sum(chunk.arrived.ignored.values()) + sum(chunk.arrived.dropped.values())
    assert (chunk.arrived.received, chunk.counts.state.scored + lost) == (2, 2)
