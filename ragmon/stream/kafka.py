"""What worker and head need of Kafka: clients, topics, and the last chunk of a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from ragmon.config.services import StreamTable
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError
from ragmon.stream.chunk import Chunk, ChunkError

EXTRA: Final = "pip install 'ragmon[kafka]'"
METADATA_TIMEOUT: Final = 20.0
"""Seconds for a question about topics."""
TAIL: Final = 64
"""Chunks at the end of a partition that are read first, to find the last one of a part."""
_FARTHER: Final = 8
"""How many times as far is looked back if it is not among them."""
_EMPTY_POLL: Final = 0.2
_FROM_FILE: Final = "_file"
ORDER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
}
"""Chunks of a partition stay in order whatever is tried again; one that is there twice is dropped by its place."""


def confluent() -> Any:
    """The Kafka client.

    Raises:
        RagmonError: It is not installed.
    """
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("the Kafka client is not installed", hint=EXTRA) from error
    return confluent_kafka


def client_settings(stream: StreamTable, **own: Any) -> dict[str, Any]:
    """The settings of a client: ours, then those of `[stream.kafka]`, which win.

    Args:
        stream: The table.
        own: Our settings, with dots written as double underscores.

    Raises:
        RagmonError: There are no brokers, or a file of a setting cannot be read.
    """
    if stream.brokers is None:
        raise RagmonError("`[stream] brokers` is not set", hint='brokers = "kafka:9092"')
    settings: dict[str, Any] = {"bootstrap.servers": stream.brokers}
    settings |= {name.replace("__", "."): value for name, value in own.items()}
    for name, value in stream.kafka.items():
        if name.endswith(_FROM_FILE):
            settings[name.removesuffix(_FROM_FILE)] = _read(Path(str(value)), name)
        else:
            settings[name] = value
    return settings


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RagmonError(f"{path}: {name} cannot be read ({error})", hint="check `[stream.kafka]`") from error


def client(create: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """A client.

    Raises:
        RagmonError: librdkafka does not know a setting, or its value.
    """
    kafka = confluent()
    try:
        return create(dict(settings))
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise RagmonError(f"a Kafka client cannot be made: {error}", hint="check `[stream.kafka]`") from error


class StreamTopics(NamedTuple):
    """The topics of a stream, and how many partitions each has.

    Attributes:
        inputs: Those that are counted.
        chunks: Partitions of the topic of chunks.
    """

    inputs: dict[str, int]
    chunks: int


def find_topics(consumer: Any, stream: StreamTable) -> StreamTopics:
    """Find the topics; without one of totals, weights of samples are unknown, and everything else is counted.

    Args:
        consumer: Any client.
        stream: The table.

    Raises:
        UnavailableError: No broker answers.
        UnknownNameError: The topic of requests or that of chunks is missing.
    """
    kafka = confluent()
    try:
        known = consumer.list_topics(timeout=METADATA_TIMEOUT).topics
    except kafka.KafkaException as error:
        hint = "is it up, and is `[stream] brokers` right?"
        raise UnavailableError(f"no broker answers at {stream.brokers} ({error.args[0].str()})", hint=hint) from error
    partitions = {name: len(topic.partitions) for name, topic in known.items() if topic.error is None}
    for name in (stream.spans, stream.chunks):
        if not partitions.get(name):
            raise UnknownNameError("topic", name, sorted(partitions))
    inputs = [name for name in (stream.spans, stream.metrics) if partitions.get(name)]
    return StreamTopics({name: partitions[name] for name in inputs}, partitions[stream.chunks])


def chunk_partition(part: str, partitions: int) -> int:
    """The partition of the topic of chunks for a part, `TOPIC/NUMBER`."""
    return int(part.rpartition("/")[2]) % partitions


class ChunkTail:
    """Reads the last chunk of a part: what was counted, and from where to go on.

    Args:
        stream: The table.
        partitions: How many partitions the topic of chunks has.
    """

    def __init__(self, stream: StreamTable, partitions: int) -> None:
        self._stream = stream
        self._partitions = partitions
        self._kafka = confluent()

    def last(self, part: str) -> Chunk | None:
        """The last chunk of a part; None where there is none.

        Raises:
            UnavailableError: It cannot be read in time.
        """
        partition, look_back = chunk_partition(part, self._partitions), TAIL
        consumer = client(self._kafka.Consumer, self._settings())
        try:
            place = self._kafka.TopicPartition(self._stream.chunks, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=METADATA_TIMEOUT)
            while True:
                start = max(low, high - look_back)
                found = self._last_from(consumer, partition, start, part)
                if found is not None or start == low:
                    return found
                look_back *= _FARTHER
        except self._kafka.KafkaException as error:
            hint = "is the broker up?"
            raise UnavailableError(f"the last chunk of {part} cannot be read ({error})", hint=hint) from error
        finally:
            consumer.close()

    def _settings(self) -> dict[str, Any]:
        return client_settings(
            self._stream,
            group__id=f"{self._stream.group}-tail",
            enable__auto__commit=False,
            enable__partition__eof=True,
            auto__offset__reset="earliest",
            fetch__wait__max__ms=50,
        )

    def _last_from(self, consumer: Any, partition: int, start: int, part: str) -> Chunk | None:
        """The last chunk of a part from an offset on."""
        consumer.assign([self._kafka.TopicPartition(self._stream.chunks, partition, start)])
        found, is_end, deadline = None, False, monotonic() + METADATA_TIMEOUT
        while True:
            messages = consumer.consume(500, _EMPTY_POLL)
            if not messages and is_end:
                return found
            if monotonic() > deadline:
                raise self._kafka.KafkaException(f"partition {partition} of {self._stream.chunks} has no end in sight")
            for message in messages:
                error = message.error()
                if error is not None:
                    is_end = is_end or error.code() == self._kafka.KafkaError._PARTITION_EOF  # noqa: SLF001 - its name
                    continue
                chunk = _chunk(message.value())
                if chunk is not None and chunk.part == part:
                    found = chunk


def _chunk(value: bytes | None) -> Chunk | None:
    try:
        return Chunk.load(value or b"")
    except ChunkError:  # the head counts it as damaged
        return None


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """The partition of a key by FNV-1a as Sarama, franz-go's default for the collector, and librdkafka's `fnv1a` do.

    Args:
        key: The key.
        partitions: How many partitions there are.

    >>> fnv1a_partition(b"0af7651916cd43dd8448eb211c80319c", 12) in range(12)
    True
    """
    hashed = 2_166_136_261
    for byte in key:
        hashed = (hashed ^ byte) * 16_777_619 & 0xFFFF_FFFF
    signed = hashed - (1 << 32) if hashed & 0x8000_0000 else hashed
    return abs(signed) % partitions


def offsets_of(assigned: Sequence[Any]) -> list[str]:
    """Partitions for a log line."""
    return [f"{one.topic}/{one.partition}" for one in assigned]
