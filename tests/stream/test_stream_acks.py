"""An acknowledgement in the topic of chunks: every head hears it, and silences the alarm in the same minute."""

from __future__ import annotations

import itertools
import random

import pytest

from ragmon.config.load import load
from ragmon.core.record import Ack, ChunkEntry, encode
from ragmon.server.state import ServerState
from ragmon.stream.chunk import BatchCounts, Chunk
from tests.stream.test_chunk_laws import all_chunks
from tests.support.alarming import NOON, SEVERAL, mixed, shown, write_config
from tests.support.partitions import partitions_of
from tests.support.serving import PORTS

pytestmark = pytest.mark.slow
PARTS = 2
GIVEN = 60.0 * (NOON + 52) + 17
END = 60.0 * (NOON + 65)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Those of a head."""
    path = write_config(tmp_path_factory.mktemp("head"), SEVERAL)
    path.write_text(f'{SEVERAL}{PORTS}from = "stream"\n[stream]\nbrokers = "kafka:9092"\n', encoding="utf-8")
    return load(path, environ={})


@pytest.fixture(scope="module")
def topic(settings):
    """The chunks of two partitions, as their numbers, times and bytes, in order of time."""
    logs = partitions_of(mixed(3, 60), PARTS)
    found = all_chunks(settings, logs, END)
    return {int(part): bodies for part, bodies in found.items()}


def entries(settings, topic, seed, ack=None):
    """What a head may read: partitions in any order among each other, the acknowledgement in its place in the first."""
    logs = {}
    for number, bodies in topic.items():
        chunks = [Chunk.load(body) for body in bodies]
        for chunk in chunks:
            chunk.part, chunk.partitions = f"otlp_spans/{number}", PARTS
        logs[number] = [chunk.dump() for chunk in chunks]
        if ack is not None and number == 0:
            place = sum(chunk.until <= GIVEN for chunk in chunks)
            logs[0][place:place] = [encode(ack)] * 2  # a producer that tried twice
    chance, offsets = random.Random(seed), itertools.count()
    while any(logs.values()):
        left = [number for number, rest in logs.items() if rest]
        (number,) = chance.choices(left, [6 if number == seed % PARTS else 1 for number in left])
        yield ChunkEntry(logs[number].pop(0), number, next(offsets))


def heard(settings, topic, seed, ack=None):
    """The edges of a head that reads in one of many orders, and its state."""
    state = ServerState(settings, edges=None)
    for seq, entry in enumerate(entries(settings, topic, seed, ack)):
        state.apply(seq + 1, END, BatchCounts(), [entry])
        if seq % 300 == 150:  # a crash: it goes on from what it has saved
            again = ServerState(settings, edges=None)
            again.load(state.dump())
            state = again
    state.advance(END)
    return state


@pytest.fixture(scope="module")
def ack(settings, topic):
    """An acknowledgement of an alarm that fires when it is given."""
    firing = {}
    for edge in heard(settings, topic, 0).engine.transitions:
        if edge.ts <= GIVEN:
            firing[edge.pipeline, edge.alert] = edge.state == "firing"
    pipeline, alert = next(name for name, fires in sorted(firing.items()) if fires)
    return Ack(pipeline=pipeline, alert=alert, reason="seen", by="ada", at=GIVEN)


def test_every_head_silences_the_alarm_in_the_same_minute_whatever_it_read_first(settings, topic, ack):
    heads = [heard(settings, topic, seed, ack) for seed in range(3)]
    edges = [shown(head.engine.transitions) for head in heads]
    assert edges[0] != shown(heard(settings, topic, 0).engine.transitions)
    assert all(found == edges[0] for found in edges)


def test_who_acknowledged_it_is_remembered_once_with_the_time(settings, topic, ack):
    (known,) = heard(settings, topic, 1, ack).engine.acknowledged.shown(GIVEN + 600)
    assert (known.by, known.reason, known.at, known.fired) == ("ada", "seen", GIVEN, True)
