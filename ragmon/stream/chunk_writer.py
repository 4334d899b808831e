"""Writing chunks to their topic: in order, in pieces where they are large, and nobody goes on before they are there."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ragmon.config.services import StreamTable
from ragmon.core.errors import UnavailableError
from ragmon.stream import kafka
from ragmon.stream.chunk import Chunk
from ragmon.stream.kafka import chunk_partition, client, client_settings
from ragmon.stream.pieces import piece_size, pieces

FLUSH: Final = 60.0
"""Seconds in which chunks must be written; a worker that cannot write ends, and is begun again elsewhere."""


class ChunkWriter:
    """Writes chunks.

    Args:
        stream: The table.
        counts: Counts the chunks that are written and their bytes.

    Raises:
        RagmonError: A setting of the client is wrong.
    """

    def __init__(self, stream: StreamTable, counts: Counter[str]) -> None:
        self._stream, self._counts = stream, counts
        self._kafka = kafka.confluent()
        self._producer = client(self._kafka.Producer, {**kafka.ORDER, **client_settings(stream, linger__ms=5)})
        self._size = piece_size(stream.kafka)
        self._failed: list[str] = []
        self._too_large = False

    def put(self, chunk: Chunk, partitions: int) -> None:
        """Hand a chunk to the producer.

        Args:
            chunk: The chunk.
            partitions: How many partitions the topic of chunks has.
        """
        body = chunk.dump()
        self._counts["chunks"] += 1
        self._counts["chunk_bytes"] += len(body)
        place = {"key": chunk.part.encode(), "partition": chunk_partition(chunk.part, partitions)}
        for headers, piece in pieces(body, self._size):
            self._producer.produce(self._stream.chunks, piece, headers=headers, on_delivery=self._delivered, **place)

    def tick(self, topic: str, partition: int, now: float) -> None:
        """Put an empty message into a partition that is counted: it only tells the time.

        Args:
            topic: The topic of the partition.
            partition: Its number.
            now: The time, seconds since the epoch.
        """
        self._producer.produce(topic, b"", partition=partition, timestamp=int(now * 1000))
        self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))
            self._too_large = self._too_large or error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE

    def flush(self) -> None:
        """Wait until chunks are written.

        Raises:
            UnavailableError: They cannot be written.
        """
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
