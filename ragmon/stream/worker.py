"""A worker: a member of a Kafka consumer group that counts its partitions, chunk by chunk, and writes the chunks.

It has no disk and no state but what it can read again. A chunk is written to the topic of chunks, and the last one
there says where whoever goes on begins: output and position are one message, so offsets that the group commits are for
graphs of lag alone. A partition in which nothing comes is told the time, so that it holds up nobody.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from time import monotonic, time
from typing import Any, Final

from ragmon.config.settings import Settings
from ragmon.core.errors import UnavailableError
from ragmon.core.escaping import printable
from ragmon.core.record import Line
from ragmon.gold import GoldSet
from ragmon.ingest.decode import decode
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.metrics import totals
from ragmon.stream import kafka
from ragmon.stream.chunk import Chunk
from ragmon.stream.counting import CountingLimits, PartitionCounter
from ragmon.stream.kafka import ChunkTail, chunk_partition, client, client_settings, find_topics
from ragmon.stream.log_reader import LogReader
from ragmon.stream.tracing import TracePartitionCounter

TOGETHER: Final = 2000
"""Messages that are taken at once."""
POLL: Final = 0.25
"""Seconds to wait for messages."""
FLUSH: Final = 60.0
"""Seconds in which chunks must be written; a worker that cannot write ends, and is begun again elsewhere."""
QUIET: Final = 1.0
"""Seconds without a message after which a partition is told the time, once a period of its own is over."""
EARLIER: Final = 5_000
"""Messages before those that are remembered from which it is read: a fetch that begins in the middle of a batch may
begin at the next one. What is older than what is remembered is forgotten again."""
TRIES: Final = 20
"""How often messages that a fetch left out are asked for again; after that they are not there."""
LARGEST: Final = 64 << 20
"""Bytes of a chunk that may be sent; the broker has a limit of its own (`max.message.bytes`)."""
_log = logging.getLogger("ragmon.worker")


class _Partition:
    """A partition that this worker owns.

    Attributes:
        counter: Counts it.
        resume: The first offset that is counted; earlier ones are only remembered.
        following: The offset that is to be read next.
        tries: How often what a fetch left out was asked for.
        asked: The batch in which it was asked for last.
        seen: When its last message was read, on the monotonic clock.
    """

    def __init__(self, counter: PartitionCounter, resume: int, following: int) -> None:
        self.counter, self.resume, self.following = counter, resume, following
        self.tries, self.asked, self.seen = 0, -1, monotonic()


class StreamWorker:
    """Counts the partitions that its group gives it.

    Args:
        settings: The configuration.
        gold: Its gold sets.
        clock: Seconds since the epoch, to tell quiet partitions the time.

    Attributes:
        counts: Messages read, counted and remembered, chunks and their bytes, ticks and assignments.
        trouble: Why it does not count at the moment; "" where it does.

    Raises:
        RagmonError: The Kafka client is not installed, or a setting of it is wrong.
        UnavailableError: No broker answers.
        UnknownNameError: A topic is missing.
    """

    def __init__(self, settings: Settings, gold: Sequence[GoldSet], clock: Callable[[], float] = time) -> None:
        self.counts: Counter[str] = Counter()
        self.trouble = ""
        self._settings, self._gold, self._clock = settings, gold, clock
        self._stream = settings.stream
        memory, samples = float(self._stream.memory), self._stream.samples
        self._limits = CountingLimits(float(self._stream.period), memory=memory, samples=samples)
        self._kafka = kafka.confluent()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._pending: dict[tuple[str, int], int] = {}
        self._failed: list[str] = []
        self._too_large = False
        self._batch = 0
        self._consumer = client(self._kafka.Consumer, self._consumer_settings())
        producer_settings = {**kafka.ORDER, **client_settings(self._stream, message__max__bytes=LARGEST, linger__ms=5)}
        self._producer = client(self._kafka.Producer, producer_settings)
        self._topics = find_topics(self._consumer, self._stream)
        self._tail = ChunkTail(self._stream, self._topics.chunks)
        self._reader = LogReader(self._stream)

    def _consumer_settings(self) -> dict[str, Any]:
        return client_settings(
            self._stream,
            group__id=self._stream.group,
            enable__auto__commit=False,
            auto__offset__reset="earliest",
            partition__assignment__strategy="range",
            session__timeout__ms=10_000,
            max__poll__interval__ms=120_000,
            fetch__wait__max__ms=50,
        )

    @property
    def partitions(self) -> list[str]:
        """The partitions that it owns."""
        return sorted(f"{topic}/{number}" for topic, number in list(self._partitions))

    def run(self, stopping: Event) -> None:
        """Count until it is told to stop.

        Raises:
            UnavailableError: Chunks cannot be written; somebody else goes on from the last one.
        """
        self._consumer.subscribe(list(self._topics.inputs), on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not stopping.is_set():
                self._batch += 1
                for message in self._consumer.consume(TOGETHER, POLL):
                    self._take(message)
                self._write()
                self._tell_time()
        finally:
            self._consumer.close()
            self._reader.close()

    def _assigned(self, consumer: Any, assigned: Sequence[Any]) -> None:
        """Go on with partitions where their last chunks ended; what came shortly before is read again."""
        self._revoked(consumer, assigned)
        for place in assigned:
            part = f"{place.topic}/{place.partition}"
            last = self._tail.last(part)
            first, _ = consumer.get_watermark_offsets(place, timeout=kafka.METADATA_TIMEOUT)
            base = first if last is None else last.upto
            counter = self._counter(part, place.topic, base, last)
            if base < first:
                self._put((place.topic, place.partition), counter.gap(first))
            low = first if last is None else max(first, last.low)
            place.offset = max(first, low - EARLIER)
            self._partitions[place.topic, place.partition] = _Partition(counter, max(base, first), low)
            self.counts["assignments"] += 1
        consumer.assign(list(assigned))
        _log.info("counts %s", ", ".join(map(printable, kafka.offsets_of(assigned))) or "nothing")

    def _counter(self, part: str, topic: str, base: int, last: Chunk | None) -> PartitionCounter:
        now, waiting, labels = (0.0, b"", []) if last is None else (last.until, last.waiting, last.labels)
        place = (part, base, self._settings, self._gold, self._limits, now)
        read = partial(self._reader.read, topic, int(part.rpartition("/")[2])) if topic == self._stream.spans else None
        if topic == self._stream.spans and self._stream.encoding == "otlp_proto":
            return TracePartitionCounter(*place, waiting=waiting, labels=labels, read=read)
        return PartitionCounter(*place, labels=labels, read=read)

    def _revoked(self, _: Any, __: Sequence[Any]) -> None:
        """Forget everything: who owns a partition next counts the open chunk again."""
        self._partitions.clear()
        self._pending.clear()

    def _take(self, message: Any) -> None:
        error = message.error()
        key = (message.topic(), message.partition())
        partition = self._partitions.get(key)
        if error is not None or partition is None:
            self.trouble = str(error) if error is not None else self.trouble
            return
        self.trouble, partition.seen = "", monotonic()
        if message.offset() < partition.following or self._left_out(partition, message):
            return
        if message.offset() > partition.following >= partition.resume:
            self._count_lost(partition, message)
        partition.following, partition.tries = message.offset() + 1, 0
        offset, arrival, value = message.offset(), message.timestamp()[1] / 1000, message.value() or b""
        self.counts["read"] += 1
        if offset < partition.resume:
            partition.counter.warm_up([(offset, arrival, value)])
            self.counts["remembered"] += 1
            return
        for chunk in self._count(partition.counter, message.topic(), offset, arrival, value):
            self._put(key, chunk)
        self.counts["counted"] += 1

    def _count_lost(self, partition: _Partition, message: Any) -> None:
        """Account for messages that the log has deleted before they were counted."""
        place = self._kafka.TopicPartition(message.topic(), message.partition())
        first, _ = self._consumer.get_watermark_offsets(place, timeout=kafka.METADATA_TIMEOUT)
        if first > partition.following:
            self._put((message.topic(), message.partition()), partition.counter.gap(message.offset()))

    def _left_out(self, partition: _Partition, message: Any) -> bool:
        """Ask again for messages before one that came too early; returns whether that is worth it.

        A batch may still hold messages of the assignment before this one, and a fetch may have left some out. Offsets
        that are nobody's (of transactions, or of what was compacted) are passed over after some tries.
        """
        if partition.asked == self._batch:
            return True
        if message.offset() == partition.following:
            return False
        if partition.tries == TRIES:
            self.counts["passed_over"] += message.offset() - partition.following
            return False
        self.counts["asked_again"] += 1
        partition.tries, partition.asked = partition.tries + 1, self._batch
        place = self._kafka.TopicPartition(message.topic(), message.partition(), partition.following)
        self._consumer.seek(place)
        return True

    def _count(self, counter: PartitionCounter, topic: str, offset: int, arrival: float, value: bytes) -> list[Chunk]:
        """Count a message; what cannot be read is accounted for, and its offset passes."""
        if isinstance(counter, TracePartitionCounter):
            return list(counter.take_request(offset, arrival, value))
        lines: list[Line] = []
        rejected: Rejected | None = None
        try:
            if value and topic == self._stream.metrics:
                lines = list(totals(value, json=False)[0])
            elif value:
                lines = [decode(line) for line in value.splitlines() if line]
        except Rejected as found:
            rejected = found
        chunks = list(counter.take(offset, arrival, value, lines))
        if rejected is not None:
            counter.reject(rejected.reason)
        return chunks

    def _put(self, key: tuple[str, int], chunk: Chunk) -> None:
        """Hand a chunk to the producer."""
        chunk.partitions = self._topics.inputs[key[0]]
        body = chunk.dump()
        self.counts["chunks"] += 1
        self.counts["chunk_bytes"] += len(body)
        partition = chunk_partition(chunk.part, self._topics.chunks)
        self._producer.produce(
            self._stream.chunks, body, key=chunk.part.encode(), partition=partition, on_delivery=self._delivered
        )
        self._pending[key] = chunk.upto

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))
            self._too_large = self._too_large or error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE

    def _write(self) -> None:
        """Wait until chunks are written; then tell the group how far this is, for whoever looks at the lag.

        Raises:
            UnavailableError: They cannot be written.
        """
        if not self._pending:
            return
        left = self._producer.flush(FLUSH)
        if left or self._failed:
            why = self._failed[0] if self._failed else f"{left} are not acknowledged in {FLUSH:g} s"
            hint = "another worker goes on from the last one"
            if self._too_large:
                hint = f"raise max.message.bytes of {self._stream.chunks}, or lower `[serve] max_series`"
            raise UnavailableError(f"chunks cannot be written ({why})", hint=hint)
        upto = [self._kafka.TopicPartition(*key, offset) for key, offset in self._pending.items()]
        try:
            self._consumer.commit(offsets=upto, asynchronous=True)
        except self._kafka.KafkaException as error:
            _log.debug("offsets are not committed: %s", error)
        self._pending.clear()

    def _tell_time(self) -> None:
        """Put an empty message into partitions in which nothing came since a period ended: it only tells the time."""
        now, quiet = self._clock(), monotonic() - QUIET
        edge = now // self._limits.period * self._limits.period
        for (topic, number), partition in self._partitions.items():
            if partition.seen < quiet and partition.counter.now < edge:
                self._producer.produce(topic, b"", partition=number, timestamp=int(now * 1000))
                partition.seen = monotonic()
                self.counts["ticks"] += 1
        self._producer.poll(0)
