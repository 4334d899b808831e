"""What comes with chunks beside counts: samples of whole records, labels with their answers, erased traces."""

from __future__ import annotations

import random

import pytest

from ragmon.config.load import defaults, load
from ragmon.core.record import FAILING_ENTRY, SAMPLED_ENTRY, Label, Record, encode
from ragmon.monitor import partial_counts
from ragmon.monitor.partial_counts import PER_GATE
from ragmon.scoring.minutes import rank
from ragmon.server.state import ServerState, entries
from ragmon.stream.accounts import BatchCounts
from ragmon.stream.chunk import Chunk, split
from ragmon.stream.partition import CountingLimits
from ragmon.testing import make_record
from tests.support.alarming import NOON, mixed, write_config
from tests.support.partitions import Head, Worker, last_chunk, partitions_of

START = 60.0 * NOON
K = 5


def trace_of(number):
    """A trace id as random as those of applications."""
    return f"{random.Random(number).getrandbits(128):032x}"


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    """A configuration with gates, and twenty minutes in which some of them break."""
    config = load(write_config(tmp_path_factory.mktemp("samples")), environ={})
    records = list(mixed(3, 20))
    for number, record in enumerate(records):
        record.v, record.trace_id = 1, trace_of(number)
    return config, records


def chunks_of(settings, log, limits, kills=()):
    """The chunks of a log whose worker is killed before some messages, as they are sent."""
    worker, sent, kills, last = Worker(settings, "0", log, limits=limits), [], set(kills), None
    while not worker.done:
        if worker.offset in kills:
            kills.discard(worker.offset)
            worker = Worker(settings, "0", log, last, limits=limits)
            continue
        for chunk in worker.step():
            sent.append(chunk.dump())
            last = Chunk.load(sent[-1])
    return sent + [chunk.dump() for chunk in last_chunk(worker, log[-1][0] + 3600)]


def sampled(chunks):
    """The records that came with chunks."""
    return [line for data in chunks for line in entries(Chunk.load(data).lines) if isinstance(line, Record)]


def smallest(trace_ids, most):
    """Those with the smallest hashes."""
    return sorted(trace_ids, key=lambda trace_id: (rank(trace_id[-16:]), trace_id))[:most]


def failing_by_gate(settings, records):
    """By pipeline and metric, the traces that fail, as a server that gets all of them finds them."""
    state = ServerState(settings)
    state.apply(1, records[-1].ts, BatchCounts(), records)
    found = {}
    for failure in state.failures:
        for metric in failure.scores:
            found.setdefault((failure.pipeline, metric), set()).add(failure.trace_id)
    return found


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "period", "offsets"), [(1, 10.0, 1 << 16), (3, 60.0, 97), (4, 30.0, 1 << 16)])
def test_however_a_log_is_divided_the_sample_of_the_whole_is_the_same(traffic, parts, period, offsets):
    """Of all records those with the smallest hashes, and of those that fail a gate as well."""
    settings, records = traffic
    limits = CountingLimits(period=period, offsets=offsets, samples=K)
    chunks = [data for log in partitions_of(records, parts) for data in chunks_of(settings, log, limits)]
    found = sampled(chunks)
    drawn = {record.trace_id for record in found if record.kind == SAMPLED_ENTRY}
    assert smallest(drawn, K) == smallest((record.trace_id for record in records), K)
    expected = failing_by_gate(settings, records)
    assert len(expected) >= 4
    for place, failing in expected.items():
        kept = {record.trace_id for record in found if record.trace_id in failing}
        assert smallest(kept, PER_GATE) == smallest(failing, PER_GATE), place


def test_each_chunk_holds_at_most_so_many_that_were_drawn_and_eight_that_fail_a_gate(traffic):
    settings, records = traffic
    (log,) = partitions_of(records, 1)
    gates = len(failing_by_gate(settings, records))
    for data in chunks_of(settings, log, CountingLimits(60.0, samples=K)):
        found = sampled([data])
        assert len([record for record in found if record.kind == SAMPLED_ENTRY]) <= K
        assert len([record for record in found if record.kind == FAILING_ENTRY]) <= PER_GATE * gates


def test_records_are_sampled_whole_and_once(traffic):
    settings, records = traffic
    (log,) = partitions_of(records, 1)
    found = sampled(chunks_of(settings, log, CountingLimits(samples=K)))
    whole = {record.trace_id: record for record in records}
    for record in found:
        record.kind = None
        assert encode(record) == encode(whole[record.trace_id])
    assert len({record.trace_id for record in found}) == len(found)


def test_without_samples_no_text_travels(traffic):
    settings, records = traffic
    (log,) = partitions_of(records[:300], 1)
    assert sampled(chunks_of(settings, log, CountingLimits())) == []


@pytest.mark.slow
def test_what_was_counted_is_the_same_with_samples_and_without(traffic):
    settings, records = traffic
    (log,) = partitions_of(records, 1)
    without, sampled_ones = (
        [split(data).counts for data in chunks_of(settings, log, limits)]
        for limits in (CountingLimits(), CountingLimits(samples=K))
    )
    assert without == sampled_ones


def test_large_records_are_in_no_sample_and_a_chunk_is_not_filled_with_them(monkeypatch):
    monkeypatch.setattr(partial_counts, "LARGEST", 2000)
    monkeypatch.setattr(partial_counts, "MOST_BYTES", 5000)
    log = [
        (START + n, encode(make_record(ts=START + n, v=1, trace_id=trace_of(n), claim="x" * size)))
        for n, size in enumerate([5000, 1200, 1200, 1200, 1200, 1200])
    ]
    found = sampled(chunks_of(defaults(), log, CountingLimits(60.0, samples=8)))
    assert 2 <= len(found) <= 4
    assert trace_of(0) not in {record.trace_id for record in found}


# --- labels -----------------------------------------------------------------------------------------------------------

MEMORY = 120.0
LIMITS = CountingLimits(memory=MEMORY, samples=K)


def rated(number, at, rater="ada", **says):
    """A message with a label on the answer of a number."""
    label = Label(trace_id=trace_of(number), rater=rater, **(says or {"correct": True}))
    return at, encode(label).rstrip()


def answered(number, at):
    """A message with the answer of a number."""
    return at, encode(make_record(f"q{number}", ts=at, v=1, source="live", trace_id=trace_of(number)))


def rated_log(seed=1, number=500):
    """Answers, and labels on them: before them, soon after, later than is remembered, on none, and some twice."""
    chance, log = random.Random(seed), []
    for n in range(number):
        at = START + n * 2.0
        if n % 11:
            log.append(answered(n, at))
        for _ in range(chance.choice((0, 0, 1, 2))):
            after = at + chance.choice((-60, -1, 0, 1, 30, 100, 300, 500)) + chance.random()
            log.append(rated(n, max(START, after), chance.choice(("ada", "bob")), correct=chance.random() < 0.5))
            if chance.random() < 0.1:
                log.append((after + 5, log[-1][1]))
    return sorted(log)


def joined(settings, log, kills=()):
    """The labels by result at the head of a log, and the chunks."""
    head, chunks = Head(settings, ["0"]), chunks_of(settings, log, LIMITS, kills)
    for data in chunks:
        assert head.take(data)
    return dict(head.engine.labels.store.results), head.engine.scorer.state.digest(), chunks


@pytest.mark.parametrize("after", [-100, -1, 1, 100])
def test_a_label_joins_an_answer_that_came_shortly_before_or_comes_shortly_after(after):
    log = sorted([answered(1, START + 200), rated(1, START + 200 + after), (START + 900, b"")])
    results, *_ = joined(defaults(), log)
    assert results == {"joined": 1}


@pytest.mark.parametrize("after", [-400, 400])
def test_a_label_that_came_much_earlier_or_later_than_its_answer_is_passed_on_without_one(after):
    """It is an orphan, unless the head has its answer in the sample."""
    ticks = [(START + at, b"") for at in range(0, 1200, 20)]
    log = sorted([answered(1, START + 500), rated(1, START + 500 + after), *ticks])
    results, *_ = joined(defaults(), log)
    assert results == {"orphan": 1}


def test_several_labels_in_one_message_of_lines_all_count():
    both = b"\n".join(rated(1, START, name)[1] for name in ("ada", "bob"))
    results, *_ = joined(defaults(), [(START, both), answered(1, START + 5), (START + 900, b"")])
    assert results == {"joined": 2}


@pytest.mark.slow
def test_what_becomes_of_labels_follows_from_the_log_whoever_is_killed():
    """Who goes on knows which labels still wait, and finds the answers that came before."""
    log = rated_log()
    results, digest, chunks = joined(defaults(), log)
    assert results["orphan"] > 20
    assert results["joined"] > 100
    for seed in range(3):
        kills = random.Random(seed).sample(range(1, len(log)), 60)
        again, same_digest, same_chunks = joined(defaults(), log, kills)
        assert (again, same_digest) == (results, digest)
        assert same_chunks == chunks


def test_the_answer_travels_with_its_label_without_question_context_and_claim():
    record = make_record(
        ts=START,
        v=1,
        trace_id=trace_of(1),
        q="what does Ada earn?",
        contexts=["Ada earns 7"],
        claim="7 it is",
    )
    log = [(START, encode(record)), rated(1, START + 5)]
    chunks = chunks_of(defaults(), log, CountingLimits(memory=MEMORY))
    text = b"".join(Chunk.load(data).lines for data in chunks).decode()
    assert '"rater":"ada"' in text
    assert "earn" not in text
    assert "it is" not in text
