"""`ragmon doctor` looks at the topics of a stream."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from ragmon.cli.doctor_checks import room, stream_checks
from ragmon.config.load import load
from ragmon.config.services import StreamTable
from ragmon.stream.kafka import fnv1a_partition
from ragmon.stream.worker import PartitionCounter
from tests.support.alarming import write_config
from tests.support.brokers import EmulatedBroker, broker

PARTITIONS = 5


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """A broker with the topics of a stream."""
    with broker(tmp_path_factory.mktemp("broker")) as running:
        running.create(PARTITIONS, "otlp_spans", "ragmon.chunks", "torn")
        running.create(2, "few")
        yield running


def found(folder, mesh, **keys):
    """The checks by name, of a configuration with some keys."""
    keys = {"brokers": mesh.address, **keys}
    lines = "".join(f'{name} = "{value}"\n' for name, value in keys.items())
    (folder / "ragmon.toml").write_text(f"[stream]\n{lines}")
    return {check.name: check for check in stream_checks(load(folder / "ragmon.toml", environ={}))}


def test_without_brokers_nothing_is_looked_at(tmp_path):
    (tmp_path / "ragmon.toml").write_text("")
    assert list(stream_checks(load(tmp_path / "ragmon.toml", environ={}))) == []


def test_topics_and_keys_that_are_right(tmp_path, mesh):
    mesh.send("otlp_spans", [(time.time(), f"{number:032x}", b"x") for number in range(40)])
    checks = found(tmp_path, mesh)
    assert all(check.ok for check in checks.values()), checks
    assert checks["topics"].finding == "otlp_spans with 5 partitions, ragmon.chunks with 5 partitions"
    assert checks["topics"].hint == "there is no otlp_metrics: samples are not weighted"
    assert checks["keys"].finding == "40 messages of otlp_spans are where fnv1a places their key"


def test_a_topic_that_was_made_anew_since_it_was_counted_is_told(tmp_path, mesh):
    settings = load(write_config(tmp_path), environ={})
    counter = PartitionCounter("torn/1", 900, settings, (), now=time.time(), log="another")
    mesh.put("few", [(1, "torn/1", counter.seal(time.time()).dump())])
    counted = found(tmp_path, mesh, spans="torn", chunks="few")["counted"]
    assert counted.ok
    assert counted.finding == "created again since they were counted last: torn/1"


@pytest.mark.slow
def test_a_log_that_ends_before_what_was_counted_is_found(tmp_path):
    emulated, settings = EmulatedBroker(), load(write_config(tmp_path), environ={})
    emulated.put("otlp_spans", 0, [b""] * 20)
    counted = [PartitionCounter(f"otlp_spans/{n}", upto, settings, ()) for n, upto in ((0, 50), (1, 0))]
    for number, counter in enumerate(counted):
        emulated.put("ragmon.chunks", number, [counter.seal(time.time()).dump()], counter.part.encode())
    check = found(tmp_path, emulated)["counted"]
    assert (check.ok, check.finding) == (False, "shorter than what was counted of them: otlp_spans/0")


@pytest.mark.parametrize(
    ("largest", "own", "is_enough"),
    [(1_048_588, {}, True), (500_000, {}, False), (500_000, {"message.max.bytes": 500_000}, True)],
)
def test_the_topic_of_chunks_must_take_what_workers_write(largest, own, is_enough):
    check = room(StreamTable(kafka=own), {"max.message.bytes": str(largest)})
    assert check.ok is is_enough
    assert f"takes messages of {largest:,} bytes" in check.finding
    assert is_enough or "message.max.bytes" in check.hint


def test_another_hash_of_the_producer_is_found(tmp_path, mesh):
    """Librdkafka's own default would tear the spans of a trace apart from its labels."""
    producer = confluent_kafka.Producer({"bootstrap.servers": mesh.address, "partitioner": "consistent"})
    for number in range(30):
        producer.produce("torn", b"x", f"{number:032x}")
    assert producer.flush(30) == 0
    keys = found(tmp_path, mesh, spans="torn")["keys"]
    assert not keys.ok
    assert "of 30 messages of torn are not where fnv1a places their key" in keys.finding


def test_topics_of_different_sizes_are_found(tmp_path, mesh):
    topics = found(tmp_path, mesh, chunks="few")["topics"]
    assert not topics.ok
    assert "few with 2 partitions" in topics.finding


def test_a_topic_that_is_missing_is_named(tmp_path, mesh):
    (topics,) = found(tmp_path, mesh, spans="nowhere").values()
    assert (topics.ok, topics.finding) == (False, "unknown topic: 'nowhere'")


def test_the_hash_is_that_of_librdkafka(mesh):
    """So it is that of Sarama, of which librdkafka's `fnv1a` is a copy."""
    placed = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": mesh.address, "partitioner": "fnv1a"})
    for number in range(200):
        key = f"key {number}".encode()
        producer.produce("otlp_spans", b"", key, on_delivery=lambda _, m, key=key: placed.update({key: m.partition()}))
    assert producer.flush(30) == 0
    assert {key: fnv1a_partition(key, PARTITIONS) for key in placed} == placed
    assert len(placed) == 200
