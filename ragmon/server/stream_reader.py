"""Reading the topic of chunks: this server adds up what workers counted, and its journal holds the chunks.

Where it goes on stands in its journal, with what was added. A chunk that is read again is dropped by its place.
"""

from __future__ import annotations

import logging
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

from ragmon.core.errors import error_location, printable
from ragmon.core.record import ChunkEntry
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.stream import kafka
from ragmon.stream.chunk import PieceJoiner
from ragmon.stream.kafka import LOOK, METADATA_AGE, PartitionEnds, client, client_settings, find_topics

TOGETHER: Final = 200
"""Chunks that are taken at once."""
POLL: Final = 0.25
PAUSE: Final = 5.0
"""Seconds after which a broker that did not answer is asked again."""
TRIES: Final = 3
"""How often what a fetch left out is asked for again; after that it is not there."""
JOIN: Final = 10.0
_log = logging.getLogger("ragmon.server")


class StreamReader:
    """Reads every partition of the topic of chunks.

    Args:
        writer: The journal writer of this server.

    Raises:
        RagmonError: The Kafka client is not installed, or a setting of it is wrong.
    """

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._stream = writer.server_state.engine.settings.stream
        self._kafka = kafka.confluent()
        self._trouble = ""
        self._log_id = ""
        self._next: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._joiners: dict[int, PieceJoiner] = {}
        self._stopping = Event()
        self._settings = client_settings(
            self._stream,
            group__id=f"{self._stream.group}-head",
            enable__auto__commit=False,
            auto__offset__reset="error",
            topic__metadata__refresh__interval__ms=METADATA_AGE,
            fetch__wait__max__ms=50,
        )
        self._thread = Thread(target=self._work, name="ragmon-stream", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN)

    def troubles(self) -> dict[str, str]:
        """Why nothing is read, by the brokers' address."""
        return {str(self._stream.brokers): self._trouble} if self._trouble else {}

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except Exception as error:  # noqa: BLE001 - the thread must survive: nothing else reads
                self._note(str(error) or error_location(error))
                self._stopping.wait(PAUSE)

    def _note(self, trouble: str) -> None:
        if trouble and not self._trouble:
            _log.warning("no chunks are read: %s", trouble)
        self._trouble = trouble

    def _read(self) -> None:
        """Read until the server stops, or the topic of chunks gets more partitions or is made anew."""
        consumer = client(self._kafka.Consumer, self._settings)
        try:
            ends = PartitionEnds(self._stream)
            found = self._find(consumer, ends)
            consumer.assign(self._places(*found))
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

    def _places(self, partitions: int, log: str) -> list[Any]:
        """Where to go on in each partition; a topic that was made anew is read from its beginning."""
        with self._writer.lock:
            adder = self._writer.server_state.adder
            offsets, known = ({}, "") if adder is None else (dict(adder.state.offsets), adder.state.log)
        if log and known and log != known:
            _log.warning("%s was deleted and made anew: it is read from its beginning", printable(self._stream.chunks))
            offsets = {}
        self._log_id = log
        self._next, self._tries = offsets, {}
        self._joiners = {number: PieceJoiner() for number in range(partitions)}
        first = self._kafka.OFFSET_BEGINNING
        places = [(number, offsets.get(number, first)) for number in range(partitions)]
        return [self._kafka.TopicPartition(self._stream.chunks, *place) for place in places]

    def _take(self, consumer: Any, messages: list[Any]) -> None:
        """Put chunks into the journal, those of a partition in order."""
        futures, asked = [], set[int]()
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if message.error() is not None:
                self._note(str(message.error()))
                if message.error().code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
                    self._begin_anew(consumer, partition)
                continue
            expected = self._next.get(partition)
            if partition in asked or (expected is not None and offset < expected):
                continue
            if expected is not None and offset > expected and self._asks_again(consumer, partition, expected):
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

    def _begin_anew(self, consumer: Any, partition: int) -> None:
        """Read a partition from its beginning, where what comes next is not there; what was added is dropped."""
        self._next.pop(partition, None)
        consumer.seek(self._kafka.TopicPartition(self._stream.chunks, partition, self._kafka.OFFSET_BEGINNING))

    def _asks_again(self, consumer: Any, partition: int, expected: int) -> bool:
        """Ask again for what a fetch left out; returns False where it is not there any more."""
        self._tries[partition] = self._tries.get(partition, 0) + 1
        if self._tries[partition] > TRIES:
            return False
        consumer.seek(self._kafka.TopicPartition(self._stream.chunks, partition, expected))
        return True
