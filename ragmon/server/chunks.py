"""A server that adds up what workers count: it reads the topic of chunks, and sends on what it is told.

Acknowledgements go through the topic of chunks, so every such server hears them. Each takes an acknowledgement when all
partitions have spoken of its time, so alarms are silenced in the same minute everywhere.

Labels go to the topic in which the answers are, as lines of a trace log with the trace id as key.

Where the reader goes on stands in the server's journal, with what was added. A chunk that is read again is dropped by
its position.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from http import HTTPStatus
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

from ragmon.config.services import StreamTable
from ragmon.core.errors import RagmonError, error_location, printable
from ragmon.core.http_server import RejectedError
from ragmon.core.record import Ack, ChunkEntry, Label, encode
from ragmon.server.writer import JournalWriter
from ragmon.stream import kafka
from ragmon.stream.chunk import PieceJoiner
from ragmon.stream.kafka import (
    LOOK,
    METADATA_AGE,
    PartitionEnds,
    client,
    client_settings,
    consumer_of,
    find_topics,
    is_out_of_range,
)

KEY: Final = b"ack"
PARTITION: Final = 0
"""The partition of the topic of chunks in which acknowledgements are."""
ACK_TIMEOUT: Final = 10.0
"""Seconds in which the broker must take an acknowledgement."""
LABEL_TIMEOUT_MS: Final = 30_000
"""Milliseconds in which the broker must take a label; its sender may try again after that."""
RETRY_AFTER: Final = 5.0
"""Seconds after which an acknowledgement or a label may be sent again."""
_REFUSED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, "broker")
_LABEL_POLL: Final = 0.1
_LABEL_JOIN: Final = 5.0
_log = logging.getLogger("ragmon.server")
TOGETHER: Final = 200
POLL: Final = 0.25
PAUSE: Final = 5.0
"""Seconds after which a broker that did not answer is asked again."""
TRIES: Final = 3
"""How often what a fetch left out is asked for again; after that it is not there."""
JOIN: Final = 10.0


def send_ack(stream: StreamTable, ack: Ack, *, fired: bool) -> Future[bool]:
    """Write an acknowledgement to the topic of chunks, in a thread of its own; the result is `fired`, once it is there.

    It is rare, and the broker may take its time.
    """
    done: Future[bool] = Future()

    def work() -> None:
        try:
            errors: list[str] = []
            settings = client_settings(stream, acks="all", message__timeout__ms=int(ACK_TIMEOUT * 1000))
            producer = client(kafka.confluent().Producer, settings)
            producer.produce(
                stream.chunks,
                encode(ack),
                key=KEY,
                partition=PARTITION,
                on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None,
            )
            if producer.flush(ACK_TIMEOUT) and not errors:
                errors.append(f"no answer in {ACK_TIMEOUT:g} s")
            if not errors:
                return done.set_result(fired)
            why = errors[0]
        except RagmonError as error:
            why = str(error)
        except BaseException as error:  # noqa: BLE001 - the future carries the error
            return done.set_exception(error)
        message = f"the acknowledgement cannot be written to {stream.chunks}: {why}"
        return done.set_exception(RejectedError(*_REFUSED, message, RETRY_AFTER))

    Thread(target=work, name="ragmon-ack", daemon=True).start()
    return done


class LabelProducer:
    """Sends labels to the topic of requests."""

    def __init__(self, stream: StreamTable) -> None:
        self._topic = stream.spans
        settings = client_settings(
            stream, partitioner=stream.partitioner, linger__ms=5, message__timeout__ms=LABEL_TIMEOUT_MS, acks="all"
        )
        self._producer = client(kafka.confluent().Producer, settings)
        self._stopping = Event()
        self._thread = Thread(target=self._work, name="ragmon-labels", daemon=True)

    def start(self) -> None:
        """Start the thread that learns what became of labels."""
        self._thread.start()

    def stop(self) -> None:
        """Send what waits, and end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_LABEL_JOIN)
        self._producer.flush(_LABEL_JOIN)

    def send(self, labels: Sequence[Label]) -> Future[None]:
        """Send labels; the result is there once the broker has all of them.

        A label that is sent again with the others is counted as a duplicate.
        """
        sent: Future[None] = Future()
        lock, left, errors = Lock(), len(labels), list[str]()

        def delivered(error: Any, _: Any) -> None:
            nonlocal left
            with lock:
                left -= 1
                if error is not None:
                    errors.append(str(error))
                is_last = not left
            if is_last and not errors:
                sent.set_result(None)
            elif is_last:
                _log.warning("labels cannot be sent: %s", errors[0])
                message = f"the broker does not take it ({errors[0]})"
                sent.set_exception(RejectedError(*_REFUSED, message, RETRY_AFTER))

        if not labels:
            sent.set_result(None)
        for label in labels:
            key = label.trace_id.encode()
            try:
                self._producer.produce(self._topic, encode(label).rstrip(), key, on_delivery=delivered)
            except (BufferError, kafka.confluent().KafkaException) as error:
                delivered(error, None)
        return sent

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(_LABEL_POLL)


class StreamReader:
    """Reads every partition of the topic of chunks; `trouble` says why nothing is read, "" where something is."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._stream = writer.server_state.engine.settings.stream
        self._kafka = kafka.confluent()
        self.trouble = ""
        self._log_id = ""
        self._next: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._joiners: dict[int, PieceJoiner] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._work, name="ragmon-stream", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN)

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except Exception as error:  # noqa: BLE001 - the thread must survive: nothing else reads
                self._note(str(error) or error_location(error))
                self._stopping.wait(PAUSE)

    def _note(self, trouble: str) -> None:
        if trouble and not self.trouble:
            _log.warning("no chunks are read: %s", trouble)
        self.trouble = trouble

    def _read(self) -> None:
        """Read until the server stops, or the topic of chunks gets more partitions or is made anew."""
        consumer = consumer_of(self._stream, "-head", topic__metadata__refresh__interval__ms=METADATA_AGE)
        try:
            ends = PartitionEnds(self._stream)
            found = self._find(consumer, ends)
            with self._writer.lock:
                adder = self._writer.server_state.adder
                offsets, known = ({}, "") if adder is None else (dict(adder.state.offsets), adder.state.log)
            partitions, log = found
            if log and known and log != known:
                what = printable(self._stream.chunks)
                _log.warning("%s was deleted and created again: it is read from its beginning", what)
                offsets = {}
            self._log_id, self._next, self._tries = log, offsets, {}
            self._joiners = {number: PieceJoiner() for number in range(partitions)}
            consumer.assign([self._position(number, offsets.get(number)) for number in range(partitions)])
            next_look = monotonic() + LOOK
            while not self._stopping.is_set():
                self._take(consumer, consumer.consume(TOGETHER, POLL))
                if monotonic() > next_look:
                    next_look = monotonic() + LOOK
                    if self._find(consumer, ends) != found:
                        return
        finally:
            consumer.close()

    def _find(self, consumer: Any, ends: PartitionEnds) -> tuple[int, str]:
        """How many partitions the topic of chunks has, and its id; "" where the broker has none."""
        chunks = self._stream.chunks
        return find_topics(consumer, self._stream).chunks, ends.log_ids([chunks]).get(chunks, "")

    def _position(self, partition: int, offset: int | None) -> Any:
        start = self._kafka.OFFSET_BEGINNING if offset is None else offset
        return self._kafka.TopicPartition(self._stream.chunks, partition, start)

    def _take(self, consumer: Any, messages: list[Any]) -> None:
        futures, asked = [], set[int]()
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if message.error() is not None:
                self._note(str(message.error()))
                if is_out_of_range(message.error()):
                    # Read a partition from its beginning, where what comes next is not there; what was added is
                    # dropped.
                    self._next.pop(partition, None)
                    consumer.seek(self._position(partition, None))
                continue
            expected = self._next.get(partition)
            if partition in asked or (expected is not None and offset < expected):
                continue
            if expected is not None and offset > expected:
                # A fetch left messages out: they are asked for again, until they are not there any more.
                self._tries[partition] = self._tries.get(partition, 0) + 1
                if self._tries[partition] <= TRIES:
                    consumer.seek(self._position(partition, expected))
                    asked.add(partition)
                    continue
            self._next[partition], self._tries[partition] = offset + 1, 0
            joiner = self._joiners[partition]
            body = joiner.take(message.key() or b"", message.headers(), message.value() or b"", offset)
            if body is not None:
                entry = ChunkEntry(body, partition, joiner.resume(offset + 1) - 1, self._log_id)
                futures.append(self._writer.chunk(entry))
            self._note("")
        for future in futures:
            future.result()
