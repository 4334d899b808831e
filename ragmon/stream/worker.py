"""A worker: a member of a Kafka consumer group that counts its partitions, chunk by chunk, and writes the chunks.

A worker has no disk and no state but what it can read again. A chunk is written to the topic of chunks, and the last
chunk there says where the next owner begins: output and position are one message, so offsets that the group commits are
for graphs of lag alone. A partition in which nothing comes is told the time, so that it holds up no other.

The time of a log is told by its messages alone: the running maximum of their times, without those that a producer's
clock set too far ahead. Such a message waits. A later message that is not ahead shows that its clock is wrong: it is
dropped. Time did pass, as over a night without messages and workers, if a tick of a worker agrees with a message that
waits, or if very many wait.
"""

from __future__ import annotations

import io
import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from statistics import median_low
from threading import Event
from time import monotonic, time
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ragmon.config.services import StreamTable
from ragmon.config.settings import Settings
from ragmon.core.errors import UnavailableError, UnknownNameError, printable
from ragmon.core.network import own_names
from ragmon.core.process import current_version
from ragmon.core.record import Line
from ragmon.ingest.files import MAX_LINE, LineReader
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import totals
from ragmon.monitor.admin import HEADERS, check_origin
from ragmon.scoring.scorer import FUTURE
from ragmon.stream import kafka
from ragmon.stream.chunk import Chunk, piece_size, pieces
from ragmon.stream.kafka import (
    LOOK,
    METADATA_AGE,
    ChunkTail,
    PartitionEnds,
    chunk_partition,
    client,
    client_settings,
    find_topics,
)
from ragmon.stream.partition import GENERATIONS, CountingLimits, PartitionCounter, TracePartitionCounter

MOST: Final = 4096
"""Messages that wait at most: so many in a row show that time did pass."""
MOST_BYTES: Final = 16 << 20
"""Their bytes at most, likewise."""
TIMEOUT: Final = 20.0
"""Seconds for one message."""
EARLIER: Final = (0, 100, 5_000)
"""From how many offsets before it a message is read: a fetch that begins in the middle of a batch may begin at the next
one. A message that none of them finds is not there any more."""
_POLL: Final = 0.1
_AT_ONCE: Final = 500
FLUSH: Final = 60.0
"""Seconds in which chunks must be written; a worker that cannot write ends, and is begun again elsewhere."""
_COUNTERS: Final = {
    "read": "Messages that were read",
    "counted": "Messages that were counted",
    "remembered": "Messages that were read again, to know what came shortly before",
    "chunks": "Chunks that were written",
    "chunk_bytes": "Bytes of these chunks",
    "asked_again": "How often messages that a fetch left out were asked for again",
    "passed_over": "Offsets at which there was no message after all",
    "ticks": "Empty messages that told a quiet partition the time",
    "made_anew": "Partitions that were begun anew because their topic had been deleted and made anew",
    "cut_off": "How often a log was found to end before what had been counted of it",
    "overwritten": "Messages at offsets that had been counted before their log was cut off; they are not counted",
    "assignments": "Partitions that were given to this worker",
}
"""What a worker counts of its own work, and the HELP text of its series."""
PREFIX: Final = "ragmon_worker_"
TOGETHER: Final = 2000
"""Messages that are taken at once."""
POLL: Final = 0.25
"""Seconds to wait for messages."""
QUIET: Final = 1.0
"""Seconds without a message after which a partition is told the time, once a period of its own is over."""
RESUME_EARLIER: Final = 5_000
"""Messages before those that are remembered from which it is read: a fetch that begins in the middle of a batch may
begin at the next one. What is older than what is remembered is forgotten again."""
TRIES: Final = 20
"""How often messages that a fetch left out are asked for again; after that they are not there."""
_log = logging.getLogger("ragmon.worker")


class LogMessage(NamedTuple):
    """A message of a log: its offset, its time and its bytes; and whether its clock was ahead of the log's time."""

    offset: int
    time: float
    body: bytes
    is_ahead: bool = False


class LogClock:
    """Tells the time of one partition.

    Attributes:
        now: The time, seconds since the epoch.
        waiting: Messages that are ahead, and of which nothing after them tells yet whether time did pass.
    """

    def __init__(self, limits: CountingLimits, last: Chunk | None) -> None:
        self.now, self.waiting = -inf, list[LogMessage]()
        self._bytes, self._period = 0, limits.period
        # Where time passes by more, a new generation of what is remembered begins, and chunks tell where that is.
        self._ahead = max(FUTURE, limits.memory / (GENERATIONS - 1) + limits.period)
        self._known = deque(
            () if last is None else [*(last.times or [(last.low, last.until)]), (last.upto, last.until)]
        )

    def take(self, message: LogMessage) -> Iterator[LogMessage]:
        """Read a message; gives those of which it tells what they are, in order, each with the time of the log."""
        while self._known and self._known[0][0] <= message.offset:
            yield from self._drop()
            self.now = self._known.popleft()[1]
        unread = deque([message])
        while unread:
            message = unread.popleft()
            if message.time <= self.now + self._ahead:
                yield from self._drop()
                self.now = max(self.now, message.time)
                yield LogMessage(message.offset, self.now, message.body)
                continue
            self.waiting.append(message)
            self._bytes += len(message.body)
            if len(self.waiting) >= MOST or self._bytes >= MOST_BYTES:
                shown = median_low(waiting.time for waiting in self.waiting)
            elif not message.body and any(abs(message.time - other.time) <= self._ahead for other in self.waiting[:-1]):
                shown = message.time
            else:
                continue
            # The waiting messages show that time did pass: it is set, and they are read again.
            first = next(waiting.time for waiting in self.waiting if waiting.time <= shown + self._ahead)
            # The edge of a period, because a chunk ends there, and the next owner knows no other time.
            self.now = first // self._period * self._period
            unread.extendleft(reversed(self.waiting))
            self.waiting, self._bytes = [], 0

    def _drop(self) -> Iterator[LogMessage]:
        yield from (message._replace(time=self.now, is_ahead=True) for message in self.waiting)
        self.waiting, self._bytes = [], 0


class LogReader:
    """Reads messages by their offsets, with a consumer of its own; nothing is committed."""

    def __init__(self, stream: StreamTable) -> None:
        self._stream = stream
        self._kafka = kafka.confluent()
        self._consumer: Any = None

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """The messages at some offsets; those that are not there any more are left out."""
        if offsets and self._consumer is None:
            settings = client_settings(
                self._stream,
                group__id=f"{self._stream.group}-again",
                enable__auto__commit=False,
                auto__offset__reset="earliest",
                fetch__wait__max__ms=50,
            )
            self._consumer = client(self._kafka.Consumer, settings)
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
        self._kafka = kafka.confluent()
        self._producer = client(self._kafka.Producer, {**kafka.ORDER, **client_settings(stream, linger__ms=5)})
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
            self._producer.produce(
                self._stream.chunks,
                piece,
                key=key,
                partition=partition,
                headers=headers,
                on_delivery=self._delivered,
            )

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
        hint = "another worker goes on from the last one"
        if self._too_large:
            hint = (
                f"{self._stream.chunks} takes no message of {self._size} bytes: raise its max.message.bytes, or set "
                '"message.max.bytes" of `[stream.kafka]` to it'
            )
        raise UnavailableError(f"chunks cannot be written ({why})", hint=hint)


class WorkerCollector(Collector):
    """The series of a worker."""

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All series of this moment."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, self._worker.counts[name])
        owned = GaugeMetricFamily(f"{PREFIX}partition", "A partition that it counts; always 1", labels=("partition",))
        for part in self._worker.partitions:
            owned.add_metric((part,), 1)
        yield owned
        info = GaugeMetricFamily("ragmon_build_info", "This ragmon; always 1", labels=("version",))
        info.add_metric((current_version(),), 1)
        yield info


def worker_app(worker: StreamWorker, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of a worker's admin port."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={**HEADERS, "Content-Type": content_type})

    def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=HEADERS)

    def ready(_: Request) -> Response:
        if worker.trouble:
            return PlainTextResponse(f"{worker.trouble}\n", 503, HEADERS)
        return PlainTextResponse("ok\n", headers=HEADERS)

    routes = [Route("/metrics", metrics), Route("/healthz", healthy), Route("/readyz", ready)]
    return check_origin(Starlette(routes=routes), own_names(tuple(hosts)))


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
        ticked: When it was told the time last, on the same clock.
        cut: Where the log ended, when it was found to end before what was counted. The messages that come there up to
            `resume` have offsets that were counted before, and are not counted. None where it did not.
        overwritten: Messages since the last chunk that are not counted: their offsets were counted before.
    """

    def __init__(self, counter: PartitionCounter, clock: LogClock, resume: int, following: int) -> None:
        self.counter, self.clock, self.resume, self.following = counter, clock, resume, following
        self.tries, self.asked, self.seen, self.ticked = 0, -1, monotonic(), 0.0
        self.cut: int | None = None
        self.overwritten = 0


class StreamWorker:
    """Counts the partitions that its group gives it."""

    def __init__(self, settings: Settings, gold: Sequence[GoldSet]) -> None:
        self.counts: Counter[str] = Counter()
        self._error = ""
        self._settings, self._gold = settings, gold
        self._stream = settings.stream
        memory, samples = float(self._stream.memory), self._stream.samples
        self._limits = CountingLimits(float(self._stream.period), memory=memory, samples=samples)
        self._kafka = kafka.confluent()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._outgoing: list[tuple[tuple[str, int], Chunk]] = []
        self._batch, self._next_look = 0, monotonic() + LOOK
        consumer_settings = client_settings(
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
        self._consumer = client(self._kafka.Consumer, consumer_settings)
        self._writer = ChunkWriter(self._stream, self.counts)
        self._topics = find_topics(self._consumer, self._stream)
        self._reader = LogReader(self._stream)
        self._ends = PartitionEnds(self._stream)

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
        """Count until it is told to stop."""
        self._consumer.subscribe(list(self._topics.inputs), on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not stopping.is_set():
                self._batch += 1
                for message in self._consumer.consume(TOGETHER, POLL):
                    self._take(message)
                self._write()
                # Put an empty message, a tick, into partitions in which nothing came of a period, or where messages
                # wait.
                now, quiet = time(), monotonic() - QUIET
                edge = now // self._limits.period * self._limits.period
                for (topic, number), partition in self._partitions.items():
                    is_quiet = partition.seen < quiet and partition.counter.now < edge
                    if is_quiet or (partition.clock.waiting and partition.ticked < quiet):
                        self._writer.tick(topic, number, now)
                        partition.seen = partition.ticked = monotonic()
                        self.counts["ticks"] += 1
        finally:
            self._consumer.close()
            self._reader.close()

    def _assigned(self, consumer: Any, assigned: Sequence[Any]) -> None:
        """Go on with partitions where their last chunks ended; what came shortly before is read again."""
        self._revoked(consumer, assigned)
        if assigned:
            self._find_topics()
            first, ids = self._ends.first(assigned), self._ends.log_ids(list(self._topics.inputs))
            tail = ChunkTail(self._stream, self._topics.chunks).last(kafka.names_of(assigned))
            for target in assigned:
                last = tail.get(f"{target.topic}/{target.partition}")
                self._begin(target, first[target.topic, target.partition], last, ids.get(target.topic, ""))
            self.counts["assignments"] += len(assigned)
            # Find logs that end before what was counted of them.
            resume = {key: partition.resume for key, partition in self._partitions.items()}
            cut = self._ends.beyond(resume)
            end = self._ends.end([self._kafka.TopicPartition(*key) for key in cut])
            for key in cut:
                self._note_cut(self._partitions[key], end[key])
        consumer.assign(list(assigned))
        _log.info("counts %s", ", ".join(map(printable, kafka.names_of(assigned))) or "nothing")

    def _find_topics(self) -> None:
        try:
            self._topics = find_topics(self._consumer, self._stream)
        except UnknownNameError as error:
            raise UnavailableError(str(error), hint="it is begun again when the topic is there") from error

    def _begin(self, target: Any, first: int, last: Chunk | None, log: str) -> None:
        key, part = (target.topic, target.partition), f"{target.topic}/{target.partition}"
        deleted: Chunk | None = None
        log = log or (last.log if last else "")
        if last is not None and last.log and last.log != log:
            _log.warning("%s was deleted and made anew: it is counted from its beginning", printable(part))
            self.counts["made_anew"] += 1
            last, deleted = None, last
        now, base, low = (0.0, first, first) if last is None else (last.until, last.upto, max(first, last.low))
        waiting, labels = (b"", []) if last is None else (last.waiting, last.labels)
        common = (part, base, self._settings, self._gold, self._limits, now, log)
        is_traces = target.topic == self._stream.spans
        read = partial(self._reader.read, target.topic, target.partition) if is_traces else None
        counter = (
            TracePartitionCounter(*common, waiting=waiting, labels=labels, read=read)
            if is_traces and self._stream.encoding == "otlp_proto"
            else PartitionCounter(*common, labels=labels, read=read)
        )
        if deleted is not None:
            counter.replaces(deleted)
        if base < first:
            self._put(key, counter.gap(first))
        target.offset = max(first, low - RESUME_EARLIER)
        self._partitions[key] = _Partition(counter, LogClock(self._limits, last), max(base, first), low)

    def _revoked(self, _: Any, __: Sequence[Any]) -> None:
        """Forget everything: the next owner of a partition counts the open chunk again."""
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
            # Account for messages that the log has deleted before they were counted.
            target = self._kafka.TopicPartition(message.topic(), message.partition())
            first, _ = self._consumer.get_watermark_offsets(target, timeout=kafka.METADATA_TIMEOUT)
            if first > partition.following:
                gap = partition.counter.gap(message.offset())
                self._put((message.topic(), message.partition()), gap)
                partition.clock = LogClock(self._limits, gap)  # what waited is in the gap
        partition.following, partition.tries = message.offset() + 1, 0
        offset, arrival, value = message.offset(), message.timestamp()[1] / 1000, message.value() or b""
        if partition.cut is not None and offset >= partition.cut:
            if offset < partition.resume:
                partition.overwritten += bool(value)
                self.counts["overwritten"] += bool(value)
                return
            partition.cut = None
        self.counts["read"] += 1
        for timed in partition.clock.take(LogMessage(offset, arrival, value)):
            if timed.offset >= partition.counter.upto:
                for chunk in self._count(partition.counter, message.topic(), timed):
                    self._put(key, chunk)
                self.counts["counted"] += 1
            else:
                partition.counter.warm_up([(timed.offset, timed.time, b"" if timed.is_ahead else timed.body)])
                self.counts["remembered"] += 1

    def _note_error(self, error: Any, key: tuple[str, int]) -> None:
        """Note why nothing is read; a partition that has no such offset is read from where it begins or ends."""
        self._error, partition = str(error), self._partitions.get(key)
        if partition is None or not kafka.is_out_of_range(error):
            return
        target = self._kafka.TopicPartition(*key)
        first, end = self._consumer.get_watermark_offsets(target, timeout=kafka.METADATA_TIMEOUT)
        target.offset, self._error = first, ""
        if first <= partition.following and end < partition.following:
            self._note_cut(partition, end)
            target.offset = end
        self._consumer.seek(target)

    def _note_cut(self, partition: _Partition, end: int) -> None:
        partition.cut, partition.resume = end, max(partition.resume, partition.following)
        partition.following = min(partition.following, end)
        self.counts["cut_off"] += 1
        self._next_look = 0.0  # before anything more is read: it may be another log
        what = "a leader was elected that had not all of it, or the disk of the broker is an older one"
        _log.error("%s: %s", _cut_off(partition), what)

    def _left_out(self, partition: _Partition, message: Any) -> bool:
        """Ask again for messages before one that came too early; returns whether that is worth it.

        A batch may still hold messages of the assignment before this one, and a fetch may have left some out. Offsets
        without a message (of transactions, or of compacted messages) are passed over after some tries.
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
        self._consumer.seek(self._kafka.TopicPartition(message.topic(), message.partition(), partition.following))
        return True

    def _count(self, counter: PartitionCounter, topic: str, message: LogMessage) -> list[Chunk]:
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
            # For a line that cannot be read the reason is counted, as for a line of a file.
            texts: Iterable[bytes] = (value,)
            if b"\n" in value or len(value) > MAX_LINE:
                texts = LineReader(io.BytesIO(value), lambda _, reason, __: rejected.append(reason))
            for text in texts:
                try:
                    lines.append(decode(text))
                except Rejected as found:
                    rejected.append(found.reason)
        chunks = list(counter.take(offset, arrival, value, lines, is_ahead=is_ahead))
        for reason in rejected:
            counter.reject(reason)
        return chunks

    def _put(self, key: tuple[str, int], chunk: Chunk) -> None:
        """Let a chunk wait for the next write."""
        partition = self._partitions.get(key)
        if partition is not None:
            chunk.lost += partition.overwritten
            partition.overwritten = 0
        self._outgoing.append((key, chunk))

    def _write(self) -> None:
        """Write the chunks that ended; the chunks of a topic that was made anew are the last of the old topic."""
        if not self._outgoing and monotonic() < self._next_look:
            return
        # What was read before this question is of the log that the answer names, unless it is another one by now.
        self._next_look = monotonic() + LOOK
        logs = {topic: found.counter.log for (topic, _), found in self._partitions.items() if found.counter.log}
        ids = self._ends.log_ids(list(logs)) if logs else {}
        anew = [key for key in self._partitions if key[0] in ids and ids[key[0]] != logs[key[0]]]
        if anew:
            self._find_topics()
            self._finish(anew)
        if self._outgoing:
            for (topic, _), chunk in self._outgoing:
                chunk.partitions = self._topics.inputs.get(topic, 0)
                self._writer.put(chunk, self._topics.chunks)
            self._writer.flush()
            # The group is told how far this is, for graphs of the lag.
            upto = [self._kafka.TopicPartition(*key, chunk.upto) for key, chunk in self._outgoing]
            try:
                self._consumer.commit(offsets=upto, asynchronous=True)
            except self._kafka.KafkaException as error:
                _log.debug("offsets are not committed: %s", error)
            self._outgoing.clear()
        if anew:
            inputs = self._topics.inputs
            there = [at for at in self._consumer.assignment() if at.partition < inputs.get(at.topic, 0)]
            self._assigned(self._consumer, there)

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


def _cut_off(partition: _Partition) -> str:
    part = printable(partition.counter.part)
    counted = f"{part} ends at offset {partition.cut}, and was counted up to {partition.resume}"
    return f"{counted}: what comes at the offsets between is not counted"
