"""A minute that was packed, sent and unpacked is the same minute, and much smaller than its saved form."""

from __future__ import annotations

import zlib

import msgspec
from hypothesis import given, settings

from ragmon.core.record import Latency
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.packed_steps import PackedStep, pack, unpack
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record
from tests.support.examples import cases
from tests.support.random_records import NOON, worlds

_decode = msgspec.msgpack.Decoder(PackedStep).decode


def sent(step):
    """A step as it arrives."""
    return unpack(_decode(msgspec.msgpack.encode(pack(step))))


def steps_of(gold, records):
    """The minutes of some records."""
    batches = MinuteBatches()
    scorer = Scorer(gold, observers=[batches])
    for record in records:
        scorer.observe(record)
    return [step for _, step in batches.take()]


@given(worlds(spread=120))
@settings(max_examples=cases(200), deadline=None, derandomize=True)
def test_a_minute_arrives_as_it_was_sent(world):
    for step in steps_of(*world):
        arrived = sent(step)
        assert arrived == step
        assert list(arrived.facts) == list(step.facts)


def test_latencies_arrive_to_the_last_bit():
    records = [make_record(ts=NOON, session=f"s{n}", latency_ms=Latency(total=0.1 * 3 * n)) for n in range(50)]
    (step,) = steps_of((), records)
    assert sent(step).latency == step.latency


def test_a_busy_minute_is_much_smaller_than_its_saved_form():
    records = [make_record(ts=NOON, session=f"s{n // 2}", q=f"question {n % 700}") for n in range(4000)]
    (step,) = steps_of((), records)
    packed, saved = (zlib.compress(msgspec.msgpack.encode(form), 1) for form in (pack(step), step.dump()))
    assert len(packed) < 0.6 * len(saved)
