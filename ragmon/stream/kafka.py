"""What worker and head need of Kafka: clients, topics, chunks that are written and found, messages read again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from ragmon.config.services import StreamTable
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError
from ragmon.stream.chunk import Chunk, ChunkError, PieceJoiner, piece_size, pieces

EXTRA: Final = "pip install 'ragmon[kafka]'"
METADATA_TIMEOUT: Final = 20.0
"""Seconds for a question about topics."""
LOOK: Final = 10.0
"""Seconds between two looks whether a topic was made anew."""
METADATA_AGE: Final = 30_000
"""Milliseconds after which partitions that were added are found."""
ID_TIMEOUT: Final = 5.0
"""Seconds for the question which log a topic is. Brokers that have no ids may leave it without an answer."""
TAIL: Final = 8
"""Messages at the end of a partition of chunks that are read first, to find the last one of each part."""
FARTHER: Final = 8
"""How many times as far is looked back if it is not among them."""
FARTHEST: Final = 512
"""Messages that are looked back at most. Every part that has an owner writes a chunk in a period, so one that is not
among them begins anew: its chunks are counted again, and the server that adds up drops the chunks it has."""
KEPT: Final = 3
"""Chunks of a part that are kept while a partition is read: the last one may be damaged."""
_EMPTY_POLL: Final = 0.2
_ANSWER: Final = 10.0
"""Seconds to wait for what a broker says of an offset."""
_FROM_FILE: Final = "_file"
ORDER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
}
"""Chunks of a partition stay in order whatever is tried again; one that is there twice is dropped by its place."""
TIMEOUT: Final = 20.0
"""Seconds for one message."""
EARLIER: Final = (0, 100, 5_000)
"""From how many offsets before it a message is read: a fetch that begins in the middle of a batch may begin at the next
one. A message that none of them finds is not there any more."""
_POLL: Final = 0.1
_AT_ONCE: Final = 500
FLUSH: Final = 60.0
"""Seconds in which chunks must be written; a worker that cannot write ends, and is begun again elsewhere."""


def confluent() -> Any:
    """The Kafka client."""
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("the Kafka client is not installed", hint=EXTRA) from error
    return confluent_kafka


def client_settings(stream: StreamTable, **own: Any) -> dict[str, Any]:
    """The settings of a client: ours, then those of `[stream.kafka]`, which win."""
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
    """A client."""
    kafka = confluent()
    try:
        return create(dict(settings))
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise RagmonError(f"a Kafka client cannot be made: {error}", hint="check `[stream.kafka]`") from error


def consumer_of(stream: StreamTable, purpose: str, **own: Any) -> Any:
    """A consumer that commits nothing by itself."""
    settings = {
        "group__id": f"{stream.group}{purpose}",
        "enable__auto__commit": False,
        "auto__offset__reset": "error",
        "fetch__wait__max__ms": 50,
        **own,
    }
    return client(confluent().Consumer, client_settings(stream, **settings))


class StreamTopics(NamedTuple):
    """The topics of a stream, and how many partitions each has."""

    inputs: dict[str, int]
    chunks: int


def find_topics(consumer: Any, stream: StreamTable) -> StreamTopics:
    """Find the topics; without one of totals, weights of samples are unknown, and everything else is counted."""
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


def is_out_of_range(error: Any) -> bool:
    """Whether an error says that a partition has no such offset."""
    return error is not None and bool(error.code() == confluent().KafkaError._AUTO_OFFSET_RESET)  # noqa: SLF001 - its name


class PartitionEnds:
    """Where partitions begin and end, and which log a topic is; each question is one request for all of them."""

    def __init__(self, stream: StreamTable) -> None:
        self._kafka, self._admin = confluent(), import_module("confluent_kafka.admin")  # an extra
        self._stream = stream
        self._client = client(self._admin.AdminClient, client_settings(stream))

    def log_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of topics: one that was deleted and made anew has another one. Brokers before 2.8 have none."""
        asked = self._client.describe_topics(self._kafka.TopicCollection(list(topics)), request_timeout=ID_TIMEOUT)
        found = {}
        for name, answer in asked.items():
            try:
                topic_id = answer.result().topic_id
            except self._kafka.KafkaException:
                continue
            if topic_id is not None and topic_id.get_least_significant_bits():
                found[name] = str(topic_id)
        return found

    def first(self, partitions: Sequence[Any]) -> dict[tuple[str, int], int]:
        """The first offset of each partition that is still there."""
        return self._offsets(partitions, self._admin.OffsetSpec.earliest())

    def end(self, partitions: Sequence[Any]) -> dict[tuple[str, int], int]:
        """The offset after the last message of each partition."""
        return self._offsets(partitions, self._admin.OffsetSpec.latest())

    def beyond(self, offsets: Mapping[tuple[str, int], int]) -> set[tuple[str, int]]:
        """The partitions that end before an offset.

        The end that a broker names is not trusted alone: a consumer reads there and must be told that there is nothing.
        """
        partitions = [self._kafka.TopicPartition(*key, offset) for key, offset in offsets.items()]
        end = self.end(partitions)
        suspect = [asked for asked in partitions if asked.offset > end[asked.topic, asked.partition]]
        if not suspect:
            return set()
        consumer = consumer_of(self._stream, "-tail", enable__partition__eof=True)
        answers, deadline = dict[tuple[str, int], bool](), monotonic() + _ANSWER
        try:
            consumer.assign(suspect)
            while len(answers) < len(suspect) and monotonic() < deadline:
                for message in consumer.consume(len(suspect), _EMPTY_POLL):
                    answers.setdefault((message.topic(), message.partition()), is_out_of_range(message.error()))
        finally:
            consumer.close()
        return {key for key, is_beyond in answers.items() if is_beyond}

    def _offsets(self, partitions: Sequence[Any], which: Any) -> dict[tuple[str, int], int]:
        asked = {self._kafka.TopicPartition(partition.topic, partition.partition): which for partition in partitions}
        try:
            answers = self._client.list_offsets(asked, request_timeout=METADATA_TIMEOUT) if asked else {}
            return {(asked.topic, asked.partition): found.result().offset for asked, found in answers.items()}
        except self._kafka.KafkaException as error:
            hint = "is the broker up?"
            raise UnavailableError(f"the ends of partitions cannot be read ({error})", hint=hint) from error


class ChunkTail:
    """Reads the last chunks of parts: what was counted, and from where to go on."""

    def __init__(self, stream: StreamTable, partitions: int) -> None:
        self.passes = 0
        self._stream = stream
        self._partitions = partitions
        self._kafka = confluent()
        self._ends = PartitionEnds(stream)

    def last(self, parts: Sequence[str]) -> dict[str, Chunk]:
        """The last chunk of each part; one that has none is missing."""
        numbers = {chunk_partition(part, self._partitions) for part in parts}
        partitions = [self._kafka.TopicPartition(self._stream.chunks, number) for number in sorted(numbers)]
        first, end = (
            {number: offset for (_, number), offset in found.items()}
            for found in (self._ends.first(partitions), self._ends.end(partitions))
        )
        found: dict[str, Chunk] = {}
        wanted, look_back = set(parts), TAIL
        while wanted and look_back <= FARTHEST:
            starts = {number: max(first[number], end[number] - look_back) for number in self._numbers(wanted)}
            found |= self._last_from(starts, wanted)
            is_all = {number for number, start in starts.items() if start == first[number]}
            wanted = {part for part in wanted - found.keys() if not self._numbers({part}) <= is_all}
            look_back *= FARTHER
        return found

    def _numbers(self, parts: Iterable[str]) -> set[int]:
        return {chunk_partition(part, self._partitions) for part in parts}

    def _last_from(self, starts: Mapping[int, int], parts: Collection[str]) -> dict[str, Chunk]:
        """The last chunks of parts from some offsets on, by partition of the topic of chunks: one pass."""
        self.passes += 1
        consumer = consumer_of(self._stream, "-tail", enable__partition__eof=True, auto__offset__reset="earliest")
        try:
            consumer.assign([self._kafka.TopicPartition(self._stream.chunks, *start) for start in starts.items()])
            bodies = self._read(consumer, set(starts), {part.encode() for part in parts})
        except self._kafka.KafkaException as error:
            raise UnavailableError(f"the last chunks cannot be read ({error})", hint="is the broker up?") from error
        finally:
            consumer.close()
        newest: dict[str, Chunk] = {}
        for key, found in bodies.items():
            while found and key.decode() not in newest:
                with suppress(ChunkError):  # the server that adds up counts it as damaged
                    newest[key.decode()] = Chunk.load(found.pop())
        return newest

    def _read(self, consumer: Any, unread: set[int], keys: Collection[bytes]) -> dict[bytes, deque[bytes]]:
        bodies = {key: deque[bytes](maxlen=KEPT) for key in keys}
        joiners, deadline = {key: PieceJoiner() for key in keys}, monotonic() + METADATA_TIMEOUT
        while True:
            messages = consumer.consume(500, _EMPTY_POLL)
            if not messages and not unread:
                return bodies
            if monotonic() > deadline:
                raise self._kafka.KafkaException(f"partitions {sorted(unread)} have no known end")
            for message in messages:
                error, key = message.error(), message.key()
                if error is not None and error.code() == self._kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    unread.discard(message.partition())
                elif error is None and key in bodies:
                    body = joiners[key].take(key, message.headers(), message.value() or b"", message.offset())
                    if body is not None:
                        bodies[key].append(body)


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """The partition of a key by FNV-1a as Sarama, franz-go's default for the collector, and librdkafka's `fnv1a` do.

    >>> fnv1a_partition(b"0af7651916cd43dd8448eb211c80319c", 12) in range(12)
    True
    """
    hashed = 2_166_136_261
    for byte in key:
        hashed = (hashed ^ byte) * 16_777_619 & 0xFFFF_FFFF
    signed = hashed - (1 << 32) if hashed & 0x8000_0000 else hashed
    return abs(signed) % partitions


def names_of(assigned: Sequence[Any]) -> list[str]:
    """The parts that partitions are, `TOPIC/NUMBER`."""
    return [f"{partition.topic}/{partition.partition}" for partition in assigned]


class LogReader:
    """Reads messages by their offsets, with a consumer of its own; nothing is committed."""

    def __init__(self, stream: StreamTable) -> None:
        self._stream = stream
        self._kafka = confluent()
        self._consumer: Any = None

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """The messages at some offsets; those that are not there any more are left out."""
        if offsets and self._consumer is None:
            self._consumer = consumer_of(self._stream, "-again", auto__offset__reset="earliest")
        messages = []
        for offset in offsets:
            for earlier in EARLIER:
                self._consumer.assign([self._kafka.TopicPartition(topic, partition, max(0, offset - earlier))])
                message = self._search(offset)
                if message is not None:
                    messages.append(message)
                    break
        return messages

    def _search(self, offset: int) -> bytes | None:
        deadline = monotonic() + TIMEOUT
        while monotonic() < deadline:
            for message in self._consumer.consume(_AT_ONCE, _POLL):
                if message.error() is not None:
                    continue
                if message.offset() >= offset:
                    return (message.value() or b"") if message.offset() == offset else None
        raise UnavailableError(f"offset {offset} cannot be read again in {TIMEOUT:g} s", hint="is the broker up?")

    def close(self) -> None:
        """Close the consumer, if there is one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class ChunkWriter:
    """Writes chunks."""

    def __init__(self, stream: StreamTable, counts: Counter[str]) -> None:
        self._stream, self._counts = stream, counts
        self._kafka = confluent()
        self._producer = client(self._kafka.Producer, {**ORDER, **client_settings(stream, linger__ms=5)})
        self._size = piece_size(stream.kafka)
        self._failed: list[str] = []
        self._too_large = False

    def put(self, chunk: Chunk, partitions: int) -> None:
        """Hand a chunk to the producer."""
        body = chunk.dump()
        self._counts["chunks"] += 1
        self._counts["chunk_bytes"] += len(body)
        key, partition = chunk.part.encode(), chunk_partition(chunk.part, partitions)
        for headers, piece in pieces(body, self._size):
            how = {"key": key, "partition": partition, "headers": headers, "on_delivery": self._delivered}
            self._producer.produce(self._stream.chunks, piece, **how)

    def tick(self, topic: str, partition: int, now: float) -> None:
        """Put an empty message into a partition that is counted: it only tells the time."""
        self._producer.produce(topic, b"", partition=partition, timestamp=int(now * 1000))
        self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))
            self._too_large = self._too_large or error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE

    def flush(self) -> None:
        """Wait until chunks are written."""
        left = self._producer.flush(FLUSH)
        if not left and not self._failed:
            return
        why = self._failed[0] if self._failed else f"{left} are not acknowledged in {FLUSH:g} s"
        hint = "another worker continues from the last one"
        if self._too_large:
            hint = (
                f"{self._stream.chunks} takes no message of {self._size} bytes: raise its max.message.bytes, or set "
                '"message.max.bytes" of `[stream.kafka]` to it'
            )
        raise UnavailableError(f"chunks cannot be written ({why})", hint=hint)
