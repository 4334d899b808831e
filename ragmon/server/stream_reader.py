"""Reading the topic of chunks: this server adds up what workers counted, and its journal holds the chunks.

Where it goes on stands in its journal, with what was added. A chunk that is read again is dropped by its place.
"""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import Any, Final

from ragmon.core.log import error_location
from ragmon.core.record import ChunkEntry
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.stream import kafka
from ragmon.stream.kafka import client, client_settings, find_topics

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
        self._next: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._stopping = Event()
        self._settings = client_settings(
            self._stream,
            group__id=f"{self._stream.group}-head",
            enable__auto__commit=False,
            auto__offset__reset="earliest",
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
        """Read until the server stops."""
        consumer = client(self._kafka.Consumer, self._settings)
        try:
            partitions = find_topics(consumer, self._stream).chunks
            with self._writer.lock:
                adder = self._writer.server_state.adder
                offsets = {} if adder is None else dict(adder.offsets)
            first = self._kafka.OFFSET_BEGINNING
            self._next, self._tries = dict(offsets), {}
            places = [(number, offsets.get(number, first)) for number in range(partitions)]
            consumer.assign([self._kafka.TopicPartition(self._stream.chunks, *place) for place in places])
            while not self._stopping.is_set():
                self._take(consumer, consumer.consume(TOGETHER, POLL))
        finally:
            consumer.close()

    def _take(self, consumer: Any, messages: list[Any]) -> None:
        """Put chunks into the journal, those of a partition in order."""
        futures, asked = [], set[int]()
        for message in messages:
            if message.error() is not None:
                self._note(str(message.error()))
                continue
            partition, offset = message.partition(), message.offset()
            expected = self._next.get(partition)
            if partition in asked or (expected is not None and offset < expected):
                continue
            if expected is not None and offset > expected and self._asks_again(consumer, partition, expected):
                asked.add(partition)
                continue
            self._next[partition], self._tries[partition] = offset + 1, 0
            futures.append(self._writer.chunk(ChunkEntry(message.value() or b"", partition, offset)))
            self._note("")
        for future in futures:
            future.result()

    def _asks_again(self, consumer: Any, partition: int, expected: int) -> bool:
        """Ask again for what a fetch left out; returns False where it is not there any more."""
        self._tries[partition] = self._tries.get(partition, 0) + 1
        if self._tries[partition] > TRIES:
            return False
        consumer.seek(self._kafka.TopicPartition(self._stream.chunks, partition, expected))
        return True
