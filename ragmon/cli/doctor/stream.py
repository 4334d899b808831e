"""Checks of a stream on Kafka: topics, whose clock they have, how long they keep messages, and where keys lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from ragmon.cli.doctor.local import Check
from ragmon.config.services import StreamTable
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.stream.chunk import BESIDE, piece_size
from ragmon.stream.kafka import (
    METADATA_TIMEOUT,
    ChunkTail,
    PartitionEnds,
    StreamTopics,
    client,
    client_settings,
    confluent,
    find_topics,
    fnv1a_partition,
)

DAY_MS: Final = 86_400_000
"""Milliseconds for which messages and chunks must be kept at least: a night without a worker must lose nothing."""
LOOKED_AT: Final = 50
"""Keyed messages of a partition that are looked at."""
_POLL: Final = 2.0


def stream_checks(settings: Settings) -> Iterator[Check]:
    """Check the stream that a configuration names; nothing where it names none.

    Args:
        settings: The configuration, without problems.
    """
    stream = settings.stream
    if stream.brokers is None:
        return
    try:
        kafka = confluent()
        consumer = client(kafka.Consumer, client_settings(stream, group__id=f"{stream.group}-doctor"))
        topics = find_topics(consumer, stream)
    except RagmonError as error:
        yield Check("topics", ok=False, finding=str(error), hint=error.hint)
        return
    try:
        yield _topics(stream, topics)
        configs = _topic_configs(kafka, stream)
        yield _clock(stream, configs.get(stream.spans, {}))
        yield _retention(configs)
        yield room(stream, configs.get(stream.chunks, {}))
        yield _keys(kafka, consumer, stream, topics)
        yield _counted(stream, topics)
    except UnavailableError as error:
        yield Check("topics", ok=False, finding=str(error), hint=error.hint)
    finally:
        consumer.close()


def _topics(stream: StreamTable, topics: StreamTopics) -> Check:
    found = {**topics.inputs, stream.chunks: topics.chunks}
    finding = ", ".join(f"{name} with {number} partitions" for name, number in found.items())
    if len({topics.inputs[stream.spans], topics.chunks}) > 1:
        hint = "the same number for both, so that each worker's chunks have a partition of their own"
        return Check("topics", ok=False, finding=finding, hint=hint)
    hint = "" if stream.metrics in topics.inputs else f"there is no {stream.metrics}: samples are not weighted"
    return Check("topics", ok=True, finding=finding, hint=hint)


def _topic_configs(kafka: Any, stream: StreamTable) -> dict[str, dict[str, str]]:
    """The settings of the topics, as far as the broker says them."""
    administration = import_module("confluent_kafka.admin")  # an extra
    admin, of_topic = client(administration.AdminClient, client_settings(stream)), administration.ResourceType.TOPIC
    resources = [administration.ConfigResource(of_topic, name) for name in (stream.spans, stream.chunks)]
    found: dict[str, dict[str, str]] = {}
    for resource, told in admin.describe_configs(resources, request_timeout=METADATA_TIMEOUT).items():
        try:
            found[resource.name] = {name: entry.value for name, entry in told.result().items() if entry.value}
        except kafka.KafkaException:
            found[resource.name] = {}
    return found


def _clock(stream: StreamTable, config: Mapping[str, str]) -> Check:
    kind = config.get("message.timestamp.type")
    if kind is None:
        return Check("clock", ok=True, finding=f"the broker does not say whose clock {stream.spans} has")
    hint = "kafka-configs.sh --alter --add-config message.timestamp.type=LogAppendTime"
    is_broker = kind == "LogAppendTime"
    finding = f"{stream.spans} has the clock of {'the broker' if is_broker else 'its producers'} ({kind})"
    return Check("clock", ok=is_broker, finding=finding, hint="" if is_broker else hint)


def _retention(configs: Mapping[str, Mapping[str, str]]) -> Check:
    kept = {name: int(config["retention.ms"]) for name, config in configs.items() if "retention.ms" in config}
    if not kept:
        return Check("kept", ok=True, finding="the broker does not say how long it keeps messages")
    finding = ", ".join(
        f"{name} {'without end' if ms < 0 else f'{ms / 3_600_000:g} hours'}" for name, ms in sorted(kept.items())
    )
    is_enough = all(ms < 0 or ms >= DAY_MS for ms in kept.values())
    return Check("kept", ok=is_enough, finding=finding, hint="" if is_enough else "retention.ms of a day at least")


def room(stream: StreamTable, config: Mapping[str, str]) -> Check:
    """Look whether the topic of chunks takes messages as large as workers write.

    Args:
        stream: The table.
        config: The settings of the topic, as far as the broker says them.
    """
    needed, largest = piece_size(stream.kafka) + BESIDE, config.get("max.message.bytes")
    if largest is None:
        return Check("room", ok=True, finding=f"the broker does not say how large a message of {stream.chunks} may be")
    finding = f"{stream.chunks} takes messages of {int(largest):,} bytes, workers write up to {needed:,}"
    hint = f'raise its max.message.bytes, or "message.max.bytes" = {largest} in `[stream.kafka]` of workers'
    is_enough = int(largest) >= needed
    return Check("room", ok=is_enough, finding=finding, hint="" if is_enough else hint)


def _counted(stream: StreamTable, topics: StreamTopics) -> Check:
    """Look whether each partition still is the log of which chunks were made, and has all that they counted."""
    parts = [f"{topic}/{n}" for topic, number in topics.inputs.items() for n in range(number)]
    last, ids = ChunkTail(stream, topics.chunks).last(parts), PartitionEnds(stream).log_ids(list(topics.inputs))
    anew, same = [], {}
    for part, chunk in last.items():
        topic, _, number = part.rpartition("/")
        if chunk.log and ids.get(topic, chunk.log) != chunk.log:
            anew.append(part)
        else:
            same[topic, int(number)] = chunk.upto
    cut = [f"{topic}/{n}" for topic, n in sorted(PartitionEnds(stream).beyond(same))]
    if cut:
        finding = f"shorter than what was counted of them: {', '.join(cut)}"
        return Check(
            "counted", ok=False, finding=finding, hint="docs/runbook.md, RagmonStreamIncomplete: a log cut off"
        )
    if anew:
        finding = f"made anew since they were counted last: {', '.join(anew)}"
        return Check("counted", ok=True, finding=finding, hint="workers count them from their beginning")
    return Check("counted", ok=True, finding=f"{len(last)} of {len(parts)} partitions have been counted")


def _keys(kafka: Any, consumer: Any, stream: StreamTable, topics: StreamTopics) -> Check:
    """Look at the newest keyed messages: each must lie where the hash of its key says, or traces are torn apart."""
    number = topics.inputs[stream.spans]
    places = []
    for partition in range(number):
        low, high = consumer.get_watermark_offsets(
            kafka.TopicPartition(stream.spans, partition), timeout=METADATA_TIMEOUT
        )
        places.append(kafka.TopicPartition(stream.spans, partition, max(low, high - LOOKED_AT)))
    consumer.assign(places)
    messages = [m for m in consumer.consume(LOOKED_AT * number, _POLL) if m.error() is None and m.key()]
    if not messages:
        return Check("keys", ok=True, finding=f"{stream.spans} holds no message with a key yet")
    if stream.partitioner != "fnv1a":
        return Check("keys", ok=True, finding=f"not tried: they are placed by {stream.partitioner}")
    wrong = [m for m in messages if fnv1a_partition(m.key(), number) != m.partition()]
    if wrong:
        finding = f"{len(wrong)} of {len(messages)} messages of {stream.spans} do not lie where fnv1a places their key"
        hint = "the spans of a trace do not meet; set the same partitioner for whoever writes to it"
        return Check("keys", ok=False, finding=finding, hint=hint)
    return Check(
        "keys", ok=True, finding=f"{len(messages)} messages of {stream.spans} lie where fnv1a places their key"
    )
