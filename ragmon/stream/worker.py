"""A worker: a member of a Kafka consumer group that counts its partitions, chunk by chunk, and writes the chunks.

It has no disk and no state but what it can read again. A chunk is written to the topic of chunks, and the last one
there says where whoever goes on begins: output and position are one message, so offsets that the group commits are for
graphs of lag alone. A partition in which nothing comes is told the time, so that it holds up nobody.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from threading import Event
from time import monotonic, time
from typing import Any, Final

from ragmon.config.settings import Settings
from ragmon.core.errors import UnavailableError, UnknownNameError, printable
from ragmon.core.record import Line
from ragmon.ingest.files import MAX_LINE, LineReader
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import totals
from ragmon.stream import kafka
from ragmon.stream.chunk import Chunk
from ragmon.stream.chunk_writer import ChunkWriter
from ragmon.stream.counting import CountingLimits, PartitionCounter
from ragmon.stream.kafka import (
    LOOK,
    METADATA_AGE,
    ChunkTail,
    PartitionEnds,
    client,
    client_settings,
    find_topics,
)
from ragmon.stream.log_clock import LogClock, LogMessage
from ragmon.stream.log_reader import LogReader
from ragmon.stream.tracing import TracePartitionCounter

TOGETHER: Final = 2000
"""Messages that are taken at once."""
POLL: Final = 0.25
"""Seconds to wait for messages."""
QUIET: Final = 1.0
"""Seconds without a message after which a partition is told the time, once a period of its own is over."""
EARLIER: Final = 5_000
"""Messages before those that are remembered from which it is read: a fetch that begins in the middle of a batch may
begin at the next one. What is older than what is remembered is forgotten again."""
TRIES: Final = 20
"""How often messages that a fetch left out are asked for again; after that they are not there."""
_log = logging.getLogger("ragmon.worker")


class _Partition:
    """A partition that this worker owns.

    Attributes:
        counter: Counts it.
        clock: Tells its time.
        resume: The first offset that is counted; earlier ones are only remembered.
        following: The offset that is to be read next.
        tries: How often what a fetch left out was asked for.
        asked: The batch in which it was asked for last.
        seen: When its last message was read, on the monotonic clock.
        told: When it was told the time last, on the same clock.
        cut: Where the log ended, when it was found to end before what was counted. The messages that come there up to
            `resume` have offsets that were counted before, and are not counted. None where it did not.
        overwritten: Messages since the last chunk that nobody counts: their offsets were counted before.
    """

    def __init__(self, counter: PartitionCounter, clock: LogClock, resume: int, following: int) -> None:
        self.counter, self.clock, self.resume, self.following = counter, clock, resume, following
        self.tries, self.asked, self.seen, self.told = 0, -1, monotonic(), 0.0
        self.cut: int | None = None
        self.overwritten = 0


class StreamWorker:
    """Counts the partitions that its group gives it.

    Args:
        settings: The configuration.
        gold: Its gold sets.
        clock: Seconds since the epoch, to tell quiet partitions the time.

    Attributes:
        counts: Messages read, counted and remembered, chunks and their bytes, ticks and assignments.

    Raises:
        RagmonError: The Kafka client is not installed, or a setting of it is wrong.
        UnavailableError: No broker answers.
        UnknownNameError: A topic is missing.
    """

    def __init__(self, settings: Settings, gold: Sequence[GoldSet], clock: Callable[[], float] = time) -> None:
        self.counts: Counter[str] = Counter()
        self._error = ""
        self._settings, self._gold, self._clock = settings, gold, clock
        self._stream = settings.stream
        memory, samples = float(self._stream.memory), self._stream.samples
        self._limits = CountingLimits(float(self._stream.period), memory=memory, samples=samples)
        self._kafka = kafka.confluent()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._outgoing: list[tuple[tuple[str, int], Chunk]] = []
        self._batch, self._next_look = 0, monotonic() + LOOK
        self._consumer = client(self._kafka.Consumer, self._consumer_settings())
        self._writer = ChunkWriter(self._stream, self.counts)
        self._topics = find_topics(self._consumer, self._stream)
        self._reader = LogReader(self._stream)
        self._ends = PartitionEnds(self._stream)

    def _consumer_settings(self) -> dict[str, Any]:
        return client_settings(
            self._stream,
            group__id=self._stream.group,
            enable__auto__commit=False,
            auto__offset__reset="error",
            topic__metadata__refresh__interval__ms=METADATA_AGE,
            partition__assignment__strategy="range",
            session__timeout__ms=10_000,
            max__poll__interval__ms=120_000,
            fetch__wait__max__ms=50,
        )

    @property
    def partitions(self) -> list[str]:
        """The partitions that it owns."""
        return sorted(f"{topic}/{number}" for topic, number in list(self._partitions))

    @property
    def trouble(self) -> str:
        """Why it does not count, or not all, at the moment; "" where it does."""
        cut = (found for found in list(self._partitions.values()) if found.cut is not None)
        return self._error or next((_cut_off(found) for found in cut), "")

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
        """Go on with partitions where their last chunks ended; what came shortly before is read again.

        Raises:
            UnavailableError: The broker does not answer, or a topic is not there any more.
        """
        self._revoked(consumer, assigned)
        if assigned:
            self._find_topics()
            first, ids = self._ends.first(assigned), self._ends.log_ids(list(self._topics.inputs))
            tail = ChunkTail(self._stream, self._topics.chunks).last(kafka.names_of(assigned))
            for place in assigned:
                last = tail.get(f"{place.topic}/{place.partition}")
                self._begin(place, first[place.topic, place.partition], last, ids.get(place.topic, ""))
            self.counts["assignments"] += len(assigned)
            self._find_cut()
        consumer.assign(list(assigned))
        _log.info("counts %s", ", ".join(map(printable, kafka.names_of(assigned))) or "nothing")

    def _find_topics(self) -> None:
        """Find the topics again: they may have more partitions by now."""
        try:
            self._topics = find_topics(self._consumer, self._stream)
        except UnknownNameError as error:
            raise UnavailableError(str(error), hint="it is begun again when the topic is there") from error

    def _begin(self, place: Any, first: int, last: Chunk | None, log: str) -> None:
        """Begin with a partition, or go on; one of a topic that was made anew begins at its own beginning.

        Args:
            place: The partition; its offset is set to the message that is read first.
            first: The first offset that is there.
            last: Its last chunk.
            log: The id of its topic; "" where the broker has none, and then it is taken for the one there was.
        """
        key, part = (place.topic, place.partition), f"{place.topic}/{place.partition}"
        deleted: Chunk | None = None
        log = log or (last.log if last else "")
        if last is not None and last.log and last.log != log:
            _log.warning("%s was deleted and made anew: it is counted from its beginning", printable(part))
            self.counts["made_anew"] += 1
            last, deleted = None, last
        now, base, low = (0.0, first, first) if last is None else (last.until, last.upto, max(first, last.low))
        counter = self._counter(part, place.topic, base, now, log, last)
        if deleted is not None:
            counter.replaces(deleted)
        if base < first:
            self._put(key, counter.gap(first))
        place.offset = max(first, low - EARLIER)
        self._partitions[key] = _Partition(counter, LogClock(self._limits, last), max(base, first), low)

    def _counter(self, part: str, topic: str, base: int, now: float, log: str, last: Chunk | None) -> PartitionCounter:
        waiting, labels = (b"", []) if last is None else (last.waiting, last.labels)
        place = (part, base, self._settings, self._gold, self._limits, now, log)
        read = partial(self._reader.read, topic, int(part.rpartition("/")[2])) if topic == self._stream.spans else None
        if topic == self._stream.spans and self._stream.encoding == "otlp_proto":
            return TracePartitionCounter(*place, waiting=waiting, labels=labels, read=read)
        return PartitionCounter(*place, labels=labels, read=read)

    def _revoked(self, _: Any, __: Sequence[Any]) -> None:
        """Forget everything: who owns a partition next counts the open chunk again."""
        self._partitions.clear()
        self._outgoing.clear()

    def _take(self, message: Any) -> None:
        key = (message.topic(), message.partition())
        partition = self._partitions.get(key)
        if message.error() is not None:
            self._note_error(message.error(), key)
            return
        if partition is None:
            return
        self._error, partition.seen = "", monotonic()
        if message.offset() < partition.following or self._left_out(partition, message):
            return
        if message.offset() > partition.following >= partition.resume:
            self._count_lost(partition, message)
        partition.following, partition.tries = message.offset() + 1, 0
        offset, arrival, value = message.offset(), message.timestamp()[1] / 1000, message.value() or b""
        if partition.cut is not None and offset >= partition.cut:
            if offset < partition.resume:
                partition.overwritten += bool(value)
                self.counts["overwritten"] += bool(value)
                return
            partition.cut = None
        self.counts["read"] += 1
        for told in partition.clock.take(LogMessage(offset, arrival, value)):
            if told.offset >= partition.counter.upto:
                for chunk in self._count(partition.counter, message.topic(), told):
                    self._put(key, chunk)
                self.counts["counted"] += 1
            else:
                partition.counter.warm_up([(told.offset, told.time, b"" if told.is_ahead else told.body)])
                self.counts["remembered"] += 1

    def _note_error(self, error: Any, key: tuple[str, int]) -> None:
        """Note why nothing is read; a partition that has no such offset is read from where it begins or ends."""
        self._error, partition = str(error), self._partitions.get(key)
        if partition is None or not kafka.is_out_of_range(error):
            return
        place = self._kafka.TopicPartition(*key)
        first, end = self._consumer.get_watermark_offsets(place, timeout=kafka.METADATA_TIMEOUT)
        place.offset, self._error = first, ""
        if first <= partition.following and end < partition.following:
            self._note_cut(partition, end)
            place.offset = end
        self._consumer.seek(place)

    def _find_cut(self) -> None:
        """Find logs that end before what was counted of them."""
        resume = {key: partition.resume for key, partition in self._partitions.items()}
        cut = self._ends.beyond(resume)
        end = self._ends.end([self._kafka.TopicPartition(*key) for key in cut])
        for key in cut:
            self._note_cut(self._partitions[key], end[key])

    def _note_cut(self, partition: _Partition, end: int) -> None:
        """Say that a log ends before what was counted of it."""
        partition.cut, partition.resume = end, max(partition.resume, partition.following)
        partition.following = min(partition.following, end)
        self.counts["cut_off"] += 1
        self._next_look = 0.0  # before anything more is read: it may be another log
        what = "a leader was elected that had not all of it, or the disk of the broker is an older one"
        _log.error("%s: %s", _cut_off(partition), what)

    def _count_lost(self, partition: _Partition, message: Any) -> None:
        """Account for messages that the log has deleted before they were counted."""
        place = self._kafka.TopicPartition(message.topic(), message.partition())
        first, _ = self._consumer.get_watermark_offsets(place, timeout=kafka.METADATA_TIMEOUT)
        if first > partition.following:
            gap = partition.counter.gap(message.offset())
            self._put((message.topic(), message.partition()), gap)
            partition.clock = LogClock(self._limits, gap)  # what waited is in the gap

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

    def _count(self, counter: PartitionCounter, topic: str, message: LogMessage) -> list[Chunk]:
        """Count a message; what cannot be read is accounted for, and its offset passes."""
        offset, arrival, value, is_ahead = message
        if isinstance(counter, TracePartitionCounter):
            return list(counter.take_request(offset, arrival, value, is_ahead=is_ahead))
        lines: list[Line] = []
        rejected: list[str] = []
        if value and topic == self._stream.metrics:
            try:
                lines = list(totals(value, json=False)[0])
            except Rejected as found:
                rejected.append(found.reason)
        elif value:
            lines = list(_lines(value, rejected))
        chunks = list(counter.take(offset, arrival, value, lines, is_ahead=is_ahead))
        for reason in rejected:
            counter.reject(reason)
        return chunks

    def _put(self, key: tuple[str, int], chunk: Chunk) -> None:
        """Let a chunk wait until what is there is written."""
        partition = self._partitions.get(key)
        if partition is not None:
            chunk.lost += partition.overwritten
            partition.overwritten = 0
        self._outgoing.append((key, chunk))

    def _write(self) -> None:
        """Write the chunks that ended; those of a topic that was made anew are the last ones of the old one.

        Raises:
            UnavailableError: They cannot be written.
        """
        if not self._outgoing and monotonic() < self._next_look:
            return
        # What was read before this question is of the log that the answer names, unless it is another one by now.
        anew = self._made_anew()
        if anew:
            self._find_topics()
            self._finish(anew)
        if self._outgoing:
            for (topic, _), chunk in self._outgoing:
                chunk.partitions = self._topics.inputs.get(topic, 0)
                self._writer.put(chunk, self._topics.chunks)
            self._writer.flush()
            self._commit()
            self._outgoing.clear()
        if anew:
            inputs = self._topics.inputs
            places = [at for at in self._consumer.assignment() if at.partition < inputs.get(at.topic, 0)]
            self._assigned(self._consumer, places)

    def _made_anew(self) -> list[tuple[str, int]]:
        """The partitions whose topic was deleted and made anew since they were begun."""
        self._next_look = monotonic() + LOOK
        logs = {topic: found.counter.log for (topic, _), found in self._partitions.items() if found.counter.log}
        ids = self._ends.log_ids(list(logs)) if logs else {}
        return [key for key in self._partitions if key[0] in ids and ids[key[0]] != logs[key[0]]]

    def _finish(self, anew: Sequence[tuple[str, int]]) -> None:
        """End the partitions of a topic that was deleted; what may have come from the new one is not counted here."""
        inputs = self._topics.inputs
        there = [self._kafka.TopicPartition(*key) for key in anew if key[1] < inputs.get(key[0], 0)]
        end = self._ends.end(there)
        for key in anew:
            partition = self._partitions[key]
            if end.get(key, 0) <= partition.following:
                partition.overwritten += len(partition.clock.waiting)  # nothing tells their time any more
                self._put(key, partition.counter.end())
                continue
            self._outgoing = [outgoing for outgoing in self._outgoing if outgoing[0] != key]
            what = f"from offset {partition.counter.base} on is not counted"
            _log.warning("%s was made anew while it was read: what came %s", printable(partition.counter.part), what)

    def _commit(self) -> None:
        """Tell the group how far this is, for whoever looks at the lag."""
        upto = [self._kafka.TopicPartition(*key, chunk.upto) for key, chunk in self._outgoing]
        try:
            self._consumer.commit(offsets=upto, asynchronous=True)
        except self._kafka.KafkaException as error:
            _log.debug("offsets are not committed: %s", error)

    def _tell_time(self) -> None:
        """Put an empty message, a tick, into partitions in which nothing came of a period, or where messages wait."""
        now, quiet = self._clock(), monotonic() - QUIET
        edge = now // self._limits.period * self._limits.period
        for (topic, number), partition in self._partitions.items():
            is_quiet = partition.seen < quiet and partition.counter.now < edge
            if is_quiet or (partition.clock.waiting and partition.told < quiet):
                self._writer.tick(topic, number, now)
                partition.seen = partition.told = monotonic()
                self.counts["ticks"] += 1


def _cut_off(partition: _Partition) -> str:
    """What is wrong with a log that ends before what was counted of it."""
    part = printable(partition.counter.part)
    counted = f"{part} ends at offset {partition.cut}, and was counted up to {partition.resume}"
    return f"{counted}: what comes at the offsets between is not counted"


def _lines(value: bytes, rejected: list[str]) -> Iterator[Line]:
    """The lines of a message that can be read; for each that cannot, the reason, as for a line of a file."""
    if b"\n" not in value and len(value) <= MAX_LINE:
        lines: Iterable[bytes] = (value,)
    else:
        lines = LineReader(io.BytesIO(value), lambda _, reason, __: rejected.append(reason))
    for line in lines:
        try:
            yield decode(line)
        except Rejected as found:
            rejected.append(found.reason)
