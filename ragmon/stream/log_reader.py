"""Reading single messages of a Kafka topic again: those in which the answers of labels stand."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from ragmon.config.services import StreamTable
from ragmon.core.errors import UnavailableError
from ragmon.stream import kafka
from ragmon.stream.kafka import client, client_settings

TIMEOUT: Final = 20.0
"""Seconds for one message."""
EARLIER: Final = (0, 100, 5_000)
"""From how many offsets before it a message is read: a fetch that begins in the middle of a batch may begin at the next
one. A message that none of them finds is not there any more."""
_POLL: Final = 0.1
_AT_ONCE: Final = 500


class LogReader:
    """Reads messages by their offsets, with a consumer of its own; nothing is committed.

    Args:
        stream: The table.
    """

    def __init__(self, stream: StreamTable) -> None:
        self._stream = stream
        self._kafka = kafka.confluent()
        self._consumer: Any = None

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """The messages at some offsets; those that are not there any more are left out.

        Args:
            topic: The topic.
            partition: The partition.
            offsets: The offsets, in order.

        Raises:
            UnavailableError: The broker does not answer in time.
        """
        found = (self._message(topic, partition, offset) for offset in offsets)
        return [message for message in found if message is not None]

    def _message(self, topic: str, partition: int, offset: int) -> bytes | None:
        for earlier in EARLIER:
            start = max(0, offset - earlier)
            self._open().assign([self._kafka.TopicPartition(topic, partition, start)])
            message = self._search(offset)
            if message is not None:
                return message
        return None

    def _search(self, offset: int) -> bytes | None:
        """Read on until an offset is found, or passed without a message there."""
        deadline = monotonic() + TIMEOUT
        while monotonic() < deadline:
            for message in self._consumer.consume(_AT_ONCE, _POLL):
                if message.error() is not None:
                    continue
                if message.offset() >= offset:
                    return (message.value() or b"") if message.offset() == offset else None
        raise UnavailableError(f"offset {offset} cannot be read again in {TIMEOUT:g} s", hint="is the broker up?")

    def _open(self) -> Any:
        if self._consumer is None:
            settings = client_settings(
                self._stream,
                group__id=f"{self._stream.group}-again",
                enable__auto__commit=False,
                auto__offset__reset="earliest",
                fetch__wait__max__ms=50,
            )
            self._consumer = client(self._kafka.Consumer, settings)
        return self._consumer

    def close(self) -> None:
        """Close the consumer, if there is one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
